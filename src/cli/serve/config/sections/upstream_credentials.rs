//! The keys of `[agents.NAME.upstream]` with the server's credentials for the upstream.

use std::{
    hash::{Hash, Hasher},
    path::PathBuf,
};

use peregrine::{
    client::{
        HttpOrigin, HttpUrl,
        credentials::{AuthorizationServer, Credentials, OAuthClient, OAuthSource, Secret},
    },
    net::ClientTls,
};

use super::super::{
    file,
    tree::{ConfigSection, Wrong},
};

/// The server's credentials for an upstream, and the certificate authorities that it trusts there.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UpstreamCredentials {
    api_key: Option<Secret>,
    bearer: Option<Secret>,
    basic: Option<(String, Secret)>,
    oauth: Option<OAuthClient>,
    ca: Option<PathBuf>,
    /// Certificate and key.
    identity: Option<(PathBuf, PathBuf)>,
    /// True: the `Authorization` of callers is passed on.
    pub passes_authorization: bool,
}

/// The hash includes secrets and the content of files, so that a reload detects a change of either.
impl Hash for UpstreamCredentials {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let UpstreamCredentials { api_key, bearer, basic, oauth, ca, identity, .. } = self;
        let text = |secret: &Option<Secret>| secret.as_ref().map(|one| one.expose().to_owned());
        (text(api_key), text(bearer)).hash(state);
        basic.as_ref().map(|(name, word)| (name, word.expose())).hash(state);
        if let Some(OAuthClient { id, secret, scopes, source, .. }) = oauth {
            (id, text(secret), scopes, format!("{source:?}")).hash(state);
        }
        let pair = identity.iter().flat_map(|(cert, key)| [cert, key]);
        for path in ca.iter().chain(pair) {
            (path, file::read(path).ok()).hash(state);
        }
        (ca.is_some(), identity.is_some(), self.passes_authorization).hash(state);
    }
}

impl UpstreamCredentials {
    /// Reads the section.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn read(section: &ConfigSection) -> Result<UpstreamCredentials, Wrong> {
        let secret = |name| section.text(name).map(Secret::new);
        let basic = section.text("basic").map(|pair| {
            let pair = pair.split_once(':');
            let pair = pair.map(|(name, password)| (name.to_owned(), Secret::new(password)));
            pair.ok_or_else(|| section.wrong("basic", "must be NAME:PASSWORD"))
        });
        let identity = match (section.path("cert"), section.path("key")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(section.wrong("cert", "needs its private key: set key as well"));
            }
            (None, Some(_)) => {
                return Err(section.wrong("key", "needs its certificate: set cert as well"));
            }
        };
        Ok(UpstreamCredentials {
            api_key: secret("api_key"),
            bearer: secret("bearer"),
            basic: basic.transpose()?,
            oauth: oauth(section)?,
            ca: section.path("ca"),
            identity,
            passes_authorization: passes_authorization(section)?,
        })
    }

    /// The credentials for the client of the upstream.
    pub fn credentials(&self) -> Credentials {
        Credentials {
            api_key: self.api_key.clone(),
            bearer: self.bearer.clone(),
            basic: self.basic.clone(),
            oauth: self.oauth.clone(),
            passes_authorization: self.passes_authorization,
            has_certificate: self.identity.is_some(),
            ..Credentials::default()
        }
    }

    /// The trusted authorities, and the client's certificate.
    pub fn tls(&self) -> ClientTls {
        let mut tls = ClientTls::default();
        if let Some(ca) = &self.ca {
            tls = tls.authority(ca);
        }
        match &self.identity {
            Some((cert, key)) => tls.identity(cert, key),
            None => tls,
        }
    }
}

/// Whether the `Authorization` of callers is passed on, which excludes the server's own.
fn passes_authorization(section: &ConfigSection) -> Result<bool, Wrong> {
    const NAME: &str = "pass_authorization";
    if section.switch(NAME) != Some(true) {
        return Ok(false);
    }
    let names = ["bearer", "basic", "token_url", "issuer"];
    if let Some(name) = names.into_iter().find(|name| section.value(name).is_some()) {
        return Err(section.wrong(NAME, format!("cannot be combined with {name}")));
    }
    url(section, "url")?;
    Ok(true)
}

/// The OAuth client, if there is one.
fn oauth(section: &ConfigSection) -> Result<Option<OAuthClient>, Wrong> {
    let source = match (url(section, "token_url")?, url(section, "issuer")?) {
        (Some(token_url), None) => {
            OAuthSource::Server(AuthorizationServer { token_url, device_url: None })
        }
        (None, Some(issuer)) => OAuthSource::Issuer(issuer),
        (Some(_), Some(_)) => {
            return Err(section.wrong("issuer", "cannot be combined with token_url"));
        }
        (None, None) => {
            let names = ["client_id", "client_secret", "scopes"];
            return match names.into_iter().find(|name| section.value(name).is_some()) {
                Some(name) => Err(section.wrong(name, "needs token_url or issuer")),
                None => Ok(None),
            };
        }
    };
    // A token would replace these credentials.
    if let Some(name) = ["bearer", "basic"].into_iter().find(|name| section.value(name).is_some()) {
        return Err(section.wrong(name, "cannot be combined with token_url and issuer"));
    }
    let required = |name| match section.text(name) {
        Some(text) if !text.is_empty() => Ok(text),
        Some(_) | None => Err(section.wrong(name, "is missing: OAuth needs it")),
    };
    let mut client = OAuthClient::new(required("client_id")?, source);
    client.secret = Some(Secret::new(required("client_secret")?));
    client.scopes = section.strings("scopes").unwrap_or_default();
    Ok(Some(client))
}

/// A URL to which credentials may be sent.
fn url(section: &ConfigSection, name: &str) -> Result<Option<HttpUrl>, Wrong> {
    let Some(text) = section.text(name) else { return Ok(None) };
    let url = HttpOrigin::parse(text).map_err(|error| section.wrong(name, error.to_string()))?;
    if !url.origin.is_secure() && !url.origin.is_loopback() {
        let line = "must be https or on this machine: credentials are sent there";
        return Err(section.wrong(name, line));
    }
    Ok(Some(url))
}
