//! `[agents.NAME.upstream]`: the remote A2A agent or the HTTP function behind an agent.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
};

use peregrine::{
    client::{
        Binding, CallOptions, ClientBuilder, ClientLimits, HttpOrigin, ProtocolVersion,
        card::CardKeys, credentials::Credentials,
    },
    limits::{UPSTREAM_CALLS_MAX, UPSTREAM_STREAMS_MAX, Unit},
    net::{HttpClientOptions, RemoteAgent, UpstreamLimits},
};

use super::{
    super::{
        file,
        tree::{ConfigSection, Key, Shape, Wrong, key},
    },
    upstream_credentials::UpstreamCredentials,
};

/// Default milliseconds until the answer to an upstream call begins.
const CALL_MS: u64 = 120_000;
const KEYS: &[Key] = &[
    key(
        "url",
        Shape::Text,
        "",
        "URL of the agent (its origin or the URL of its card), or of the function",
    )
    .live(),
    key(
        "transports",
        Shape::Texts,
        "",
        "Its bindings in order of preference: jsonrpc, http+json, grpc, websocket; default: its \
         card's order",
    )
    .live(),
    key("version", Shape::Text, "", "The A2A version to use: 1.0, 0.3 or 0.1").live(),
    key(
        "version_min",
        Shape::Text,
        "",
        "The oldest A2A version to use; default 0.1; an agent that supports only older ones is not \
         called",
    )
    .live(),
    key("tenant", Shape::Text, "", "The tenant to call at the agent").live(),
    key(
        "pass_tenant",
        Shape::Switch,
        "",
        "true: calls the tenant that each caller names, instead of the one in `tenant`",
    )
    .live(),
    key("api_key", Shape::Text, "", "API key for it; prefer ${VARIABLE}").live().secret(),
    key("bearer", Shape::Text, "", "Bearer token for it; prefer ${VARIABLE}").live().secret(),
    key("basic", Shape::Text, "", "NAME:PASSWORD for it; prefer ${VARIABLE}").live().secret(),
    key(
        "token_url",
        Shape::Text,
        "",
        "OAuth client credentials: the token endpoint, which alone receives client_secret",
    )
    .live(),
    key("issuer", Shape::Text, "", "OAuth: an issuer whose metadata names the token endpoint")
        .live(),
    key("client_id", Shape::Text, "", "OAuth: the client id").live(),
    key("client_secret", Shape::Text, "", "OAuth: the client secret; prefer ${VARIABLE}")
        .live()
        .secret(),
    key("scopes", Shape::Texts, "", "OAuth: scopes to request; default: the server decides").live(),
    key(
        "pass_authorization",
        Shape::Switch,
        "",
        "true: forwards the Authorization of each caller, over https or to this machine only",
    )
    .live(),
    key("ca", Shape::Path, "", "Additional certificate authorities to trust (PEM)").live(),
    key("cert", Shape::Path, "", "The client certificate chain (PEM)").live(),
    key("key", Shape::Path, "", "The private key of cert (PEM)").live(),
    key(
        "origins",
        Shape::Texts,
        "",
        "Origins allowed for the interface on its card, in addition to that of url",
    )
    .live(),
    key(
        "card_keys",
        Shape::Path,
        "",
        "Public keys, one of which must have signed its card (a JWK set or PEM); default: unsigned \
         cards are accepted",
    )
    .live(),
    key(
        "card_ms",
        Shape::Measure(Unit::Millis),
        "",
        "Milliseconds after which its card is read again; default: by Cache-Control, else 5 min",
    )
    .live(),
    key(
        "call_ms",
        Shape::Measure(Unit::Millis),
        "",
        "Milliseconds until its answer must begin; default 120,000",
    )
    .live(),
    key(
        "calls",
        Shape::Whole { min: 1, max: 1 << 20 },
        "",
        "Maximum calls of a remote agent before its answer begins; default 1,024; as many may wait",
    )
    .live(),
    key(
        "streams",
        Shape::Whole { min: 1, max: 1 << 20 },
        "",
        "Maximum unfinished answers of a remote agent; default 16,384; the next message is refused",
    )
    .live(),
];

/// The keys of the section.
pub fn keys() -> &'static [Key] {
    KEYS
}

/// A remote A2A agent, and the options of its calls.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RemoteSpec {
    /// The origin of the agent, or the URL of its card.
    pub url: String,
    transports: Vec<Binding>,
    version: Option<ProtocolVersion>,
    floor: ProtocolVersion,
    tenant: Option<String>,
    passes_tenant: bool,
    credentials: UpstreamCredentials,
    origins: Vec<String>,
    card_keys: Option<PathBuf>,
    card_ms: Option<u64>,
    call_ms: u64,
    calls_max: usize,
    streams_max: usize,
}

/// The URL of an upstream.
///
/// # Errors
/// [`Wrong`]: the URL is missing.
pub fn url(section: &ConfigSection) -> Result<&str, Wrong> {
    let url = section.text("url").filter(|url| !url.is_empty());
    url.ok_or_else(|| section.wrong("url", "is missing"))
}

/// The debug text has no secrets.
impl fmt::Debug for RemoteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSpec").field("url", &self.url).finish_non_exhaustive()
    }
}

impl RemoteSpec {
    /// The agent at a URL, called as its card describes.
    pub fn at(url: &str) -> RemoteSpec {
        RemoteSpec {
            url: url.to_owned(),
            transports: Vec::new(),
            version: None,
            floor: ProtocolVersion::V0_1,
            tenant: None,
            passes_tenant: false,
            credentials: UpstreamCredentials::default(),
            origins: Vec::new(),
            card_keys: None,
            card_ms: None,
            call_ms: CALL_MS,
            calls_max: UPSTREAM_CALLS_MAX,
            streams_max: UPSTREAM_STREAMS_MAX,
        }
    }

    /// Reads the section.
    ///
    /// # Errors
    /// [`Wrong`].
    pub fn read(section: &ConfigSection) -> Result<RemoteSpec, Wrong> {
        let whole = |name, default| section.whole(name).map_or(default, |number| number as usize);
        Ok(RemoteSpec {
            transports: transports(section)?,
            version: version(section, "version")?,
            floor: version(section, "version_min")?.unwrap_or(ProtocolVersion::V0_1),
            tenant: section.text("tenant").map(str::to_owned),
            passes_tenant: section.switch("pass_tenant").unwrap_or(false),
            credentials: UpstreamCredentials::read(section)?,
            origins: origins(section)?,
            card_keys: section.path("card_keys"),
            card_ms: section.millis("card_ms")?,
            call_ms: section.millis("call_ms")?.unwrap_or(CALL_MS),
            calls_max: whole("calls", UPSTREAM_CALLS_MAX),
            streams_max: whole("streams", UPSTREAM_STREAMS_MAX),
            url: url(section)?.to_owned(),
        })
    }

    /// The identity of the agent: agents with equal identities are called in the same way. The text
    /// has no secrets.
    pub fn made_of(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        self.card_keys.as_deref().map(file::read).and_then(Result::ok).hash(&mut hasher);
        format!("a2a {} {:x}", self.url, hasher.finish())
    }

    /// Whether the `Authorization` of callers is passed on.
    pub fn passes_authorization(&self) -> bool {
        self.credentials.passes_authorization
    }

    /// The limits on calls of the agent.
    fn limits(&self) -> UpstreamLimits {
        let limits = UpstreamLimits::default();
        UpstreamLimits { calls_max: self.calls_max, streams_max: self.streams_max, ..limits }
    }

    /// Builds the agent.
    ///
    /// # Errors
    /// An unusable file of keys or certificates, in one line.
    pub fn agent(&self) -> Result<RemoteAgent, String> {
        let options =
            HttpClientOptions { tls: self.credentials.tls(), ..HttpClientOptions::default() };
        let agent = RemoteAgent::new(self.url.as_str(), self.client()?, options);
        let agent = agent.map_err(|error| error.to_string())?.limits(self.limits());
        let agent = if self.passes_tenant { agent.pass_tenant() } else { agent };
        Ok(match self.card_ms {
            Some(card_ms) => agent.card_every(card_ms),
            None => agent,
        })
    }

    /// The builder of clients for the agent.
    fn client(&self) -> Result<ClientBuilder, String> {
        // Only interfaces at `url` and `origins` are called.
        let credentials =
            Credentials { allows_other_origins: true, ..self.credentials.credentials() };
        let mut builder = ClientBuilder::new()
            .transports(self.transports.iter().copied())
            .floor(self.floor)
            .credentials(credentials)
            .limits(ClientLimits { redirects_max: 0, ..ClientLimits::default() })
            .origins(self.allowed_origins());
        if let Some(version) = self.version {
            builder = builder.version(version);
        }
        if let Some(tenant) = &self.tenant {
            builder = builder.tenant(tenant.as_str());
        }
        if let Some(path) = &self.card_keys {
            let wrong = |reason: String| format!("cannot use {}: {reason}", path.display());
            let document = file::read(path).map_err(|error| wrong(error.to_string()))?;
            let keys = CardKeys::read(&document).map_err(|error| wrong(error.to_string()))?;
            builder = builder.card_keys(keys);
        }
        let options = CallOptions { call_ms: self.call_ms, ..CallOptions::default() };
        Ok(builder.options(options))
    }

    /// The origin of the agent and the configured origins. All names of this machine count as one.
    fn allowed_origins(&self) -> Vec<HttpOrigin> {
        let origin = |text: &str| HttpOrigin::parse(text).ok().map(|url| url.origin);
        let mut all: Vec<HttpOrigin> =
            self.origins.iter().filter_map(|text| origin(text)).collect();
        let own = origin(&self.url);
        if let Some(own) = own.as_ref().filter(|own| own.is_loopback()) {
            let scheme = if own.is_secure() { "https" } else { "http" };
            let hosts = ["localhost", "127.0.0.1", "[::1]", "0.0.0.0"];
            all.extend(
                hosts
                    .iter()
                    .filter_map(|host| origin(&format!("{scheme}://{host}:{}", own.port()))),
            );
        }
        all.extend(own);
        all
    }
}

/// The configured origins, checked.
fn origins(section: &ConfigSection) -> Result<Vec<String>, Wrong> {
    let all = section.strings("origins").unwrap_or_default();
    for (index, text) in all.iter().enumerate() {
        let wrong = |why: String| section.wrong_item("origins", index, format!("{text:?}: {why}"));
        let url = HttpOrigin::parse(text).map_err(|error| wrong(error.to_string()))?;
        if url.path != "/" {
            return Err(wrong("must be an origin without a path".to_owned()));
        }
    }
    Ok(all)
}

fn transports(section: &ConfigSection) -> Result<Vec<Binding>, Wrong> {
    let items = section.texts("transports").unwrap_or_default();
    let of = |(index, word): (usize, &str)| {
        let found = Binding::ALL.into_iter().find(|binding| binding.word() == word);
        found.ok_or_else(|| {
            let all = Binding::ALL.map(Binding::word).join(", ");
            section.wrong_item("transports", index, format!("{word:?} must be one of {all}"))
        })
    };
    items.iter().map(|item| item.text.as_str()).enumerate().map(of).collect()
}

fn version(section: &ConfigSection, name: &str) -> Result<Option<ProtocolVersion>, Wrong> {
    let Some(text) = section.text(name) else { return Ok(None) };
    let version = ProtocolVersion::parse(text).filter(|version| version.generation().is_some());
    version
        .map(Some)
        .ok_or_else(|| section.wrong(name, format!("{text:?} is not 1.0, 0.3, 0.2 or 0.1")))
}
