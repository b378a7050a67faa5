//! The agent of a call: its card, its interface, and its errors.

use std::{fs, io::Read, path::Path};

use peregrine::{
    client::{
        Binding, CallOptions, Client, ClientBuilder, ClientError, ClientStream, HttpUrl,
        ProtocolVersion, TraceParent,
        card::AgentCard,
        credentials::{Credentials, Secret},
        retry::Backoff,
    },
    engine::first_call,
    net::{ClientTls, HttpClient, HttpClientOptions},
};

use super::{
    super::{
        failure::{CommandFailure, FailureCode},
        reference::CardReference,
        settings::Settings,
        warn,
    },
    Invocation,
    card_cache::{AgentCardCache, CachingTransport},
    endpoint::endpoint_card,
    explain::failure,
    login,
    trace::TracedTransport,
    unused,
};

/// The transport of requests.
pub type AgentTransport = CachingTransport<TracedTransport<HttpClient>>;
/// A stream of the agent.
pub type AgentStream = ClientStream<AgentTransport>;

/// Maximum bytes of a card in a file.
const CARD_BYTES_MAX: u64 = 1 << 20;

/// Connect timeout in milliseconds: a waiting user learns of a dead server within 10 s.
const CONNECT_MS: u64 = 5_000;
/// The longest pause between two attempts, in milliseconds, for the same reason as [`CONNECT_MS`].
const PAUSE_MS_MAX: u64 = 1_000;

/// The agent of a call.
pub struct CalledAgent {
    /// The client that calls it.
    pub client: Client<AgentTransport>,
}

/// The names of the settings that are credentials, as warnings print them.
pub const CREDENTIALS: &[&str] = &["bearer", "api-key", "basic", "client-secret"];

impl CalledAgent {
    /// Reads the agent's card and chooses one of its interfaces.
    ///
    /// # Errors
    /// A [`CommandFailure`].
    pub async fn of(on: &Invocation<'_>) -> Result<CalledAgent, CommandFailure> {
        if let Some(card) = endpoint_card(&on.settings)? {
            return CalledAgent::at_endpoint(on, card);
        }
        let reference = on.settings.text("agent-card").unwrap_or_default();
        CalledAgent::with(on, reference, false).await
    }

    /// As [`CalledAgent::of`], for the agent at `reference` instead of the configured one.
    ///
    /// # Errors
    /// A [`CommandFailure`].
    pub async fn at(on: &Invocation<'_>, reference: &str) -> Result<CalledAgent, CommandFailure> {
        CalledAgent::with(on, reference, false).await
    }

    /// As [`CalledAgent::of`], but without credentials if the public card has no security scheme
    /// (the command line's specification, §12.4).
    ///
    /// # Errors
    /// A [`CommandFailure`].
    pub async fn of_public_card(on: &Invocation<'_>) -> Result<CalledAgent, CommandFailure> {
        let card = card(on).await?;
        let reference = on.settings.text("agent-card").unwrap_or_default();
        CalledAgent::with(on, reference, card.security_schemes.is_empty()).await
    }

    async fn with(
        on: &Invocation<'_>,
        reference: &str,
        is_anonymous: bool,
    ) -> Result<CalledAgent, CommandFailure> {
        let settings = &on.settings;
        let reference = CardReference::parse(reference)?;
        let transport = transport(settings, AgentCardCache::of(on)?)?;
        let mut credentials = credentials(settings)?;
        if is_anonymous {
            credentials = Credentials::default();
        } else if credentials.bearer.is_none() && credentials.oauth.is_none() {
            credentials.bearer = login::stored_token(settings, &reference, &transport).await?;
        }
        let builder = builder(settings, judges(on))?.credentials(credentials.clone());
        let client = match reference {
            CardReference::Origin(url) | CardReference::Url(url) => {
                builder.discover_over(transport, &url).await
            }
            CardReference::File(path) => {
                let card = AgentCard::read(&file(&path)?).map_err(ClientError::from);
                let card = card.map(|card| card.in_file(&path.to_string_lossy()));
                card.and_then(|card| builder.connect_over(transport, card, None))
            }
        };
        let client = client.map_err(|error| failure(on, error))?;
        on.set_card(client.card());
        unused::warn_of(on.path, settings, &client, &credentials)?;
        Ok(CalledAgent { client })
    }

    /// The agent of `--endpoint`, with `card` as its card.
    fn at_endpoint(on: &Invocation<'_>, card: AgentCard) -> Result<CalledAgent, CommandFailure> {
        let builder = builder(&on.settings, judges(on))?;
        let builder = builder.credentials(credentials(&on.settings)?);
        // An endpoint may have any version, even without `--a2a-version`.
        let builder = builder.floor(ProtocolVersion::V0_1);
        let client = builder.connect_over(transport(&on.settings, None)?, card, None);
        let client = client.map_err(|error| failure(on, error))?;
        on.set_card(client.card());
        Ok(CalledAgent { client })
    }
}

/// The card of the agent, even if none of its interfaces can be called.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn card(on: &Invocation<'_>) -> Result<AgentCard, CommandFailure> {
    let (json, _) = card_json(on).await?;
    AgentCard::read(&json).map_err(|error| failure(on, error.into()))
}

/// The card of the agent as received, valid or not, and its URL, if it has one.
///
/// # Errors
/// A [`CommandFailure`].
pub async fn card_json(on: &Invocation<'_>) -> Result<(Vec<u8>, Option<HttpUrl>), CommandFailure> {
    let settings = &on.settings;
    if settings.text("endpoint").is_some() {
        let line = format!("--endpoint is called without a card, and {} needs one", on.path);
        return Err(CommandFailure::usage(line));
    }
    match CardReference::parse(settings.text("agent-card").unwrap_or_default())? {
        CardReference::Origin(url) | CardReference::Url(url) => {
            let transport = transport(settings, AgentCardCache::of(on)?)?;
            let found = builder(settings, false)?.find_card_json(&transport, &url).await;
            found.map(|(json, url)| (json, Some(url))).map_err(|error| failure(on, error))
        }
        CardReference::File(path) => Ok((file(&path)?, None)),
    }
}

/// The HTTP client of a call, with its `--debug` trace and its card cache.
///
/// # Errors
/// A [`CommandFailure`]: unusable TLS files.
pub fn transport(
    settings: &Settings,
    cache: Option<AgentCardCache>,
) -> Result<AgentTransport, CommandFailure> {
    let mut options = http_options(settings)?;
    options.limits.connect_ms = CONNECT_MS;
    let inner = HttpClient::new(options);
    let inner = inner.map_err(|error| CommandFailure::usage(error.to_string()))?;
    let inner = TracedTransport::new(inner, settings.redaction(), settings.is_on("debug")?);
    Ok(CachingTransport::new(inner, cache))
}

/// TLS, proxies and the name of the client, from the settings.
///
/// # Errors
/// A [`CommandFailure`]: unusable TLS files, or an invalid proxy.
pub fn http_options(settings: &Settings) -> Result<HttpClientOptions, CommandFailure> {
    let tls = client_tls(settings)?;
    let mut options = HttpClientOptions { tls, ..HttpClientOptions::default() };
    let parameters = settings.service_parameters()?;
    let mut user_agents =
        parameters.iter().filter(|(name, _)| name.eq_ignore_ascii_case("user-agent"));
    if let Some((_, value)) = user_agents.next().filter(|(_, value)| !value.is_empty()) {
        options.user_agent = (*value).to_owned();
    }
    options.proxies_from_environment().map_err(|error| CommandFailure::usage(error.to_string()))
}

/// The certificate authorities and the client certificate of the settings.
///
/// # Errors
/// A [`CommandFailure`]: a certificate without its key, or a key without its certificate.
pub fn client_tls(settings: &Settings) -> Result<ClientTls, CommandFailure> {
    let mut tls = ClientTls::default();
    for file in settings.list("ca") {
        tls = tls.authority(file);
    }
    match (settings.text("cert"), settings.text("key")) {
        (Some(cert), Some(key)) => tls = tls.identity(cert, key),
        (None, None) => {}
        (Some(_), None) => {
            return Err(CommandFailure::usage("--cert needs its private key: add --key FILE"));
        }
        (None, Some(_)) => {
            return Err(CommandFailure::usage("--key needs its certificate: add --cert FILE"));
        }
    }
    if settings.is_on("insecure")? {
        warn_insecure(settings);
        tls = tls.insecure();
    }
    Ok(tls)
}

/// The command line's specification, §6.5 and §12.1: `--insecure` always causes a warning.
fn warn_insecure(settings: &Settings) {
    warn(
        "--insecure: certificates are not verified; any host on the path can read and change the \
         traffic",
    );
    let mut credentials = CREDENTIALS.iter().filter(|name| settings.text(name).is_some());
    if credentials.next().is_some() || settings.list("svc-param").next().is_some() {
        warn("--insecure: SECURITY: a credential is sent to an unverified server");
    }
}

/// Whether the command checks the agent strictly instead of leniently.
fn judges(on: &Invocation<'_>) -> bool {
    matches!(on.path, "conformance" | "bench")
}

fn builder(settings: &Settings, is_strict: bool) -> Result<ClientBuilder, CommandFailure> {
    let bindings = settings
        .transports()?
        .into_iter()
        .filter_map(|word| Binding::ALL.into_iter().find(|binding| binding.word() == word));
    let backoff = Backoff { pause_ms_max: PAUSE_MS_MAX, ..Backoff::default() };
    let assumes_push = settings.assumes_push()?;
    let options = CallOptions { backoff, is_strict, assumes_push, ..CallOptions::default() };
    let mut builder = ClientBuilder::new().transports(bindings).options(options).on_warning(warn);
    if let Some(text) = settings.text("a2a-version") {
        let wrong = || settings.wrong("a2a-version", text, "not 1.0, 0.3, 0.2 or 0.1");
        let version = ProtocolVersion::parse(text).filter(|one| one.generation().is_some());
        builder = builder.version(version.ok_or_else(wrong)?);
    }
    if let Some(tenant) = settings.text("tenant") {
        builder = builder.tenant(tenant);
    }
    if let Some(name) = settings.text("dialect").filter(|name| *name != "standard") {
        if first_call(name).is_none() {
            return Err(settings.wrong("dialect", name, "not a dialect; see docs/dialects.md"));
        }
        builder = builder.dialect(name.to_owned().leak());
    }
    for uri in settings.list("extension") {
        builder = builder.extension(uri);
    }
    if let Some(text) = settings.text("traceparent") {
        let wrong = || settings.wrong("traceparent", text, "not a traceparent (W3C Trace Context)");
        let trace = TraceParent::parse(text).ok_or_else(wrong)?;
        builder = builder.field("traceparent", trace.as_str()).map_err(|_| wrong())?;
    }
    for (name, value) in settings.service_parameters()? {
        let wrong = |_| {
            CommandFailure::usage(format!(
                "--svc-param {name} is not a field that can be added, or its value has invalid \
                 characters"
            ))
        };
        builder = builder.field(name, value).map_err(wrong)?;
    }
    Ok(builder)
}

/// The user's credentials; the card decides which are used.
fn credentials(settings: &Settings) -> Result<Credentials, CommandFailure> {
    let secret = |name: &str| settings.text(name).map(Secret::new);
    let basic = settings.text("basic").map(|text| {
        let pair = text
            .split_once(':')
            .ok_or_else(|| CommandFailure::usage("--basic must be NAME:PASSWORD"));
        pair.map(|(name, password)| (name.to_owned(), Secret::new(password)))
    });
    let oauth = match settings.text("client-secret") {
        // Without a client secret a token needs the user's consent: `auth login` gets it.
        Some(_) => login::oauth_client(settings)?,
        None => None,
    };
    Ok(Credentials {
        api_key: secret("api-key"),
        bearer: secret("bearer"),
        basic: basic.transpose()?,
        oauth,
        passes_authorization: false,
        has_certificate: settings.text("cert").is_some(),
        allows_plain_http: settings.is_on("allow-http-credentials")?,
        allows_other_origins: settings.is_on("allow-other-origin")?,
    })
}

/// Reads a file with a card or keys.
///
/// # Errors
/// A [`CommandFailure`]: the file is missing or too long.
pub fn file(path: &Path) -> Result<Vec<u8>, CommandFailure> {
    let unreadable = |error: std::io::Error| {
        let line = format!("cannot read {}: {error}", path.display());
        CommandFailure::new(FailureCode::CardNotFound, line)
    };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(CARD_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > CARD_BYTES_MAX {
        let line = format!("{} is longer than {CARD_BYTES_MAX} bytes", path.display());
        return Err(CommandFailure::new(FailureCode::CardInvalid, line));
    }
    Ok(bytes)
}

/// The extensions that the user names.
pub fn uri_list<'i>(on: &'i Invocation<'_>) -> impl Iterator<Item = &'i str> {
    on.settings.list("extension")
}
