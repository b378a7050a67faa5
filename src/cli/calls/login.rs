//! `auth login`: gets a token by OAuth and stores it for later calls.
//!
//! Invariant: a client secret goes only to the URLs that the user named. Without a secret the
//! device flow may take its URLs from the card, since it sends only a public id.

use peregrine::{
    client::{
        ClientLimits, HttpOrigin, HttpUrl, Transport,
        card::{AgentCard, OAuthFlow, OAuthFlowKind, SecurityScheme},
        credentials::{
            AuthorizationServer, OAuthClient, OAuthError, OAuthSource, Secret, Token,
            fetch_device_code, fetch_token, poll_device, refresh_token, resolve_server,
        },
    },
    model::time::rfc3339,
};
use serde_json::json;

use super::{
    super::{
        eprint,
        failure::{CommandFailure, FailureCode},
        print,
        reference::{CardReference, shown},
        settings::{OutputFormat, Settings},
        text::one_line,
    },
    Invocation,
    agent::{self, AgentTransport},
    tokens::{StoredToken, TokenFile, agent_key},
    unused::accepts,
};

/// Gets a token and stores it.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn login(on: &Invocation<'_>) -> Result<(), CommandFailure> {
    let settings = &on.settings;
    let reference = CardReference::parse(settings.text("agent-card").unwrap_or_default())?;
    let is_device = match (on.flag("flow"), settings.text("client-secret")) {
        (Some("device"), _) | (None, None) => true,
        (Some("client-credentials"), _) | (None, Some(_)) => false,
        (Some(other), _) => {
            let line = format!("--flow {other:?} must be device or client-credentials");
            return Err(CommandFailure::usage(line));
        }
    };
    let Some(folder) = &settings.folder else {
        return Err(CommandFailure::usage(
            "tokens are stored in the home folder, and HOME is not set",
        ));
    };
    let transport = agent::transport(settings, None)?;
    let named = oauth_client(settings)?;
    let is_named_by_user = named.is_some();
    let client = match named {
        Some(client) => client,
        None if is_device && settings.text("client-secret").is_none() => {
            of_card(on, &agent::card(on).await?)?
        }
        None => {
            let line = "missing the source of the token";
            return Err(CommandFailure::usage(line).hint("--token-url URL, or --issuer URL"));
        }
    };
    let limits = ClientLimits::default();
    let server = resolve_server(&transport, &client, &limits).await.map_err(refused)?;
    let token = match is_device {
        true => by_device(&transport, &client, &server, &limits).await,
        false => fetch_token(&transport, &client, &limits).await,
    };
    let token = token.map_err(refused)?;
    let (token_url, client_id) = (server.token_url.to_string(), client.id.clone());
    let stored = StoredToken { token, token_url, is_named_by_user, client_id };
    let (file, key) = (TokenFile::of(folder), agent_key(&reference)?);
    file.put(&key, &stored)?;
    report(on, &file, &key, &stored.token);
    Ok(())
}

fn report(on: &Invocation<'_>, file: &TokenFile, key: &str, token: &Token) {
    let path = file.path().display().to_string();
    let expires = token.expires_at_unix_ms.map(rfc3339);
    let expires = expires.map(|text| String::from_utf8_lossy(&text).into_owned());
    match on.format {
        OutputFormat::Json => {
            let document = json!({ "agent": key, "file": path, "expiresAt": expires });
            on.print_json(document.to_string().as_bytes());
        }
        OutputFormat::Text => {
            let mut output = on.text();
            output.field("Agent", key);
            output.field("Token", "kept");
            output.field("File", &path);
            output.field("Expires", expires.as_deref().unwrap_or("not specified"));
            print(&output.text);
        }
    }
}

/// RFC 8628: the user grants access on another device.
async fn by_device(
    transport: &AgentTransport,
    client: &OAuthClient,
    server: &AuthorizationServer,
    limits: &ClientLimits,
) -> Result<Token, OAuthError> {
    let code = fetch_device_code(transport, client, server, limits).await?;
    eprint(&format!("Open: {}\n", one_line(&code.verification_url)));
    eprint(&format!("Code: {}\n", one_line(&code.user_code)));
    if let Some(url) = &code.verification_url_complete {
        eprint(&format!("Or open: {}\n", one_line(url)));
    }
    poll_device(transport, client, server, &code, limits).await
}

/// The OAuth client in the settings; `None`: the settings name no source of tokens.
///
/// # Errors
/// A [`CommandFailure`] of usage.
pub fn oauth_client(settings: &Settings) -> Result<Option<OAuthClient>, CommandFailure> {
    let url = |name: &str| -> Result<Option<HttpUrl>, CommandFailure> {
        let Some(text) = settings.text(name) else { return Ok(None) };
        let parsed = HttpOrigin::parse(text);
        let wrong = |error| {
            let line = format!("{}: {:?}: {error}", settings.label(name), shown(text));
            CommandFailure::usage(line)
        };
        parsed.map(Some).map_err(wrong)
    };
    let source = match (url("token-url")?, url("issuer")?) {
        (Some(token_url), None) => {
            OAuthSource::Server(AuthorizationServer { token_url, device_url: url("device-url")? })
        }
        (None, Some(issuer)) => OAuthSource::Issuer(issuer),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(CommandFailure::usage("--token-url and --issuer cannot be combined"));
        }
    };
    client_of(settings, source).map(Some)
}

fn client_of(settings: &Settings, source: OAuthSource) -> Result<OAuthClient, CommandFailure> {
    let Some(id) = settings.text("client-id") else {
        return Err(CommandFailure::usage("OAuth needs a client: --client-id ID"));
    };
    let mut client = OAuthClient::new(id, source);
    client.secret = settings.text("client-secret").map(Secret::new);
    client.scopes = settings.list("scope").map(str::to_owned).collect();
    client.allows_plain_http = settings.is_on("allow-http-credentials")?;
    Ok(client)
}

/// The client for the device flow that the card declares.
fn of_card(on: &Invocation<'_>, card: &AgentCard) -> Result<OAuthClient, CommandFailure> {
    let flows = card.security_schemes.values().flat_map(|scheme| match scheme {
        SecurityScheme::OAuth2(oauth) => oauth.flows.as_slice(),
        SecurityScheme::ApiKey(_)
        | SecurityScheme::Http(_)
        | SecurityScheme::OpenIdConnect(_)
        | SecurityScheme::MutualTls(_)
        | SecurityScheme::Unknown(_) => &[],
    });
    let server = |flow: &OAuthFlow| {
        let url = |text: &Option<String>| HttpOrigin::parse(text.as_deref()?).ok();
        let device_url = url(&flow.device_authorization_url);
        Some(AuthorizationServer { token_url: url(&flow.token_url)?, device_url })
    };
    let mut flows = flows.filter(|flow| flow.kind == OAuthFlowKind::DeviceCode);
    let server = flows.find_map(server).ok_or_else(|| {
        let line = "the card has no device flow, and the source of the token is missing";
        let keys = ["api-key", "bearer", "basic"].into_iter().filter(|name| accepts(card, name));
        let keys: Vec<String> = keys.map(|name| format!("--{name}")).collect();
        let accepted = match keys.is_empty() || card.security_schemes.is_empty() {
            true => String::new(),
            false => format!("the card accepts {} without a login; otherwise ", keys.join(" or ")),
        };
        let urls = "--token-url URL --device-url URL, or --issuer URL";
        CommandFailure::usage(line).hint(format!("{accepted}{urls}"))
    })?;
    client_of(&on.settings, OAuthSource::Server(server))
}

/// The stored token for the agent, renewed if it has expired; `None`: no token is stored.
///
/// # Errors
/// A [`CommandFailure`]: the token has expired and cannot be renewed, or the file cannot be used.
pub async fn stored_token(
    settings: &Settings,
    reference: &CardReference,
    transport: &AgentTransport,
) -> Result<Option<Secret>, CommandFailure> {
    let Some(folder) = &settings.folder else { return Ok(None) };
    let (file, key) = (TokenFile::of(folder), agent_key(reference)?);
    let Some(stored) = file.get(&key)? else { return Ok(None) };
    if stored.token.is_fresh(transport.now()) {
        return Ok(Some(stored.token.access));
    }
    let Some(refresh) = stored.token.refresh.clone() else {
        let line = "the token of auth login has expired";
        let failure = CommandFailure::new(FailureCode::CredentialsMissing, line);
        return Err(failure.hint("peregrine auth login"));
    };
    let token_url = HttpOrigin::parse(&stored.token_url);
    let token_url = token_url.map_err(|error| CommandFailure::usage(error.to_string()))?;
    let server = AuthorizationServer { token_url, device_url: None };
    let mut client = OAuthClient::new(&*stored.client_id, OAuthSource::Server(server.clone()));
    client.secret = secret_for(&stored, settings.text("client-secret"));
    client.allows_plain_http = settings.is_on("allow-http-credentials")?;
    let limits = ClientLimits::default();
    let renewed = refresh_token(transport, &client, &server, refresh, &limits).await;
    let token = renewed.map_err(refused)?;
    let stored = StoredToken { token, ..stored };
    file.put(&key, &stored)?;
    Ok(Some(stored.token.access))
}

/// The client secret, if the token URL may receive it.
fn secret_for(stored: &StoredToken, secret: Option<&str>) -> Option<Secret> {
    secret.filter(|_| stored.is_named_by_user).map(Secret::new)
}

fn refused(error: OAuthError) -> CommandFailure {
    CommandFailure::new(code(&error), error.to_string())
}

/// The code of an OAuth error.
pub fn code(error: &OAuthError) -> FailureCode {
    match error {
        OAuthError::Transport(_) => FailureCode::Unreachable,
        OAuthError::NoSecret | OAuthError::NoDeviceFlow | OAuthError::PlainHttp(_) => {
            FailureCode::Usage
        }
        OAuthError::Refused { .. }
        | OAuthError::Pending
        | OAuthError::SlowDown
        | OAuthError::Denied
        | OAuthError::Expired
        | OAuthError::Unreadable(_)
        | OAuthError::Status(_)
        | OAuthError::Issuer(_) => FailureCode::AuthFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_secret_is_not_sent_to_token_url_from_card() {
        let token = Token {
            access: Secret::new("a"),
            refresh: Some(Secret::new("r")),
            expires_at_unix_ms: None,
            renew_at_unix_ms: None,
        };
        let (token_url, client_id) = ("https://t".to_owned(), "me".to_owned());
        let mut stored = StoredToken { token, token_url, is_named_by_user: false, client_id };
        assert_eq!(secret_for(&stored, Some("hidden")), None);
        stored.is_named_by_user = true;
        assert_eq!(secret_for(&stored, Some("hidden")), Some(Secret::new("hidden")));
    }
}
