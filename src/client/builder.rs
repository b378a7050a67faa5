//! Builds a client: from the caller's options, the agent's card and the chosen interface.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, AtomicU64},
    },
};

use crate::{dialect::version::ProtocolVersion, http::FieldLinesBuf, model::Extension};

use super::{
    Binding, Client, ClientError, ClientErrorKind, ClientLimits, HttpOrigin, HttpUrl, KnownCard,
    Transport,
    card::{
        AgentCard, CardKeys, ChooseError, ChosenInterface, Preferences, check_signed, choose_all,
    },
    client::SharedClient,
    credentials::{Credentials, CredentialsError, TokenCache, check_fields, plan},
    discover::{self, Discovery},
    endpoint::AgentEndpoint,
    retry::Backoff,
    scratch::Stash,
};

/// How calls behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallOptions {
    /// Milliseconds for a whole call with its retries: 120 s. For a send this includes the wait for
    /// its task, for a stream only the time until the response head.
    pub call_ms: u64,
    /// When to repeat calls that are safe to repeat.
    pub backoff: Backoff,
    /// True: the server handles a message once, even if it arrives several times, so sends are
    /// repeated too. A2A 1.0 §3.3.1 leaves this to servers. If the card declares it
    /// ([`AgentCard::deduplicates_sends`]), this option is not needed.
    pub is_idempotent: bool,
    /// Milliseconds between two polls of a task that cannot be streamed: 2 s.
    pub poll_ms: u64,
    /// True: it is an error if an answer lacks its id, has an unknown state, part or role, or has
    /// an artifact without an id. For tools that check an agent.
    pub is_strict: bool,
    /// True: webhooks are set even if the agent's card does not declare push notifications, with a
    /// warning. False: such a call fails with `NotDeclared` (A2A 1.0 §3.3.4).
    pub assumes_push: bool,
}

impl Default for CallOptions {
    fn default() -> CallOptions {
        CallOptions {
            call_ms: 120_000,
            backoff: Backoff::default(),
            is_idempotent: false,
            poll_ms: 2_000,
            is_strict: false,
            assumes_push: false,
        }
    }
}

/// Receives a warning: one sentence for a person, without secrets.
pub(super) type WarningSink = dyn Fn(&str) + Send + Sync;

/// The options of a client.
///
/// ```
/// use peregrine::client::{Binding, ClientBuilder};
///
/// let builder = ClientBuilder::new().transports([Binding::HttpJson]).extension("urn:example:e");
/// ```
#[derive(Clone, Default)]
pub struct ClientBuilder {
    pub(super) wants: Preferences,
    pub(super) limits: ClientLimits,
    pub(super) options: CallOptions,
    pub(super) extensions: Vec<String>,
    pub(super) fields: FieldLinesBuf,
    pub(super) credentials: Credentials,
    /// One of these keys must have signed each card.
    pub(super) card_keys: Option<CardKeys>,
    /// The cached card of the agent.
    pub(super) cached_card: Option<KnownCard>,
    /// The tokens that clients of cloned builders share.
    pub(super) tokens: Option<Arc<TokenCache>>,
    /// Receives the client's warnings.
    pub(super) warnings: Option<Arc<WarningSink>>,
}

impl ClientBuilder {
    /// The defaults of the specification: the card's first interface and its newest version, 1.0 or
    /// later.
    pub fn new() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The bindings to use, the preferred one first; if the card has none of them, the card's order
    /// decides.
    #[must_use]
    pub fn transports(mut self, transports: impl IntoIterator<Item = Binding>) -> ClientBuilder {
        self.wants.transports = transports.into_iter().collect();
        self
    }

    /// The version to speak, even below the floor.
    #[must_use]
    pub fn version(mut self, version: ProtocolVersion) -> ClientBuilder {
        self.wants.version = Some(version);
        self
    }

    /// The oldest version to speak, unless [`ClientBuilder::version`] names one; 1.0 by default.
    #[must_use]
    pub fn floor(mut self, version: ProtocolVersion) -> ClientBuilder {
        self.wants.floor = version;
        self
    }

    /// The tenant to call instead of the interface's tenant (A2A 1.0 §8.3.2); empty: the
    /// interface's. Every request names the tenant: in 1.0 in its messages, over HTTP+JSON in the
    /// path, and in every version as the last segment of a URL that ends with `/tenants/NAME`. An
    /// interface without such a position, for example of 0.3 at another URL, is skipped; so is a
    /// gRPC interface with the card's name as tenant, because that name selects the agent. If no
    /// interface remains, the error is `NoTenant`.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> ClientBuilder {
        self.wants.tenant = Some(tenant.into()).filter(|tenant| !tenant.is_empty());
        self
    }

    /// The allowed origins of interfaces; an interface at another origin is skipped. Without this
    /// option, every origin may be called, but only the card's origin with credentials
    /// ([`Credentials::allows_other_origins`]).
    #[must_use]
    pub fn origins(mut self, origins: impl IntoIterator<Item = HttpOrigin>) -> ClientBuilder {
        self.wants.origins = Some(origins.into_iter().collect());
        self
    }

    /// The dialect to speak (`docs/dialects.md`), instead of the one detected from the interface.
    #[must_use]
    pub fn dialect(mut self, name: &'static str) -> ClientBuilder {
        self.wants.dialect = Some(name);
        self
    }

    /// The caller's credentials, and where they may be sent. The card decides which credentials are
    /// used.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> ClientBuilder {
        self.credentials = credentials;
        // The cached token belongs to the previous credentials.
        self.tokens = self.tokens.map(|_| Arc::default());
        self
    }

    /// Makes the clients of this builder and of its clones share the token of
    /// [`Credentials::oauth`]: they fetch and renew it once for all of them.
    #[must_use]
    pub fn share_tokens(mut self) -> ClientBuilder {
        self.tokens.get_or_insert_default();
        self
    }

    /// The keys of the signer of the agent's card (A2A 1.0 §8.4). A card without a signature by one
    /// of these keys is rejected with `CardSignature` at each read: at discovery, at revalidation,
    /// and for the extended card. Without keys, signatures are ignored.
    #[must_use]
    pub fn card_keys(mut self, keys: CardKeys) -> ClientBuilder {
        self.card_keys = Some(keys);
        self
    }

    /// A cached card from [`Client::known_card`], for a discovery at the same URL; a discovery at
    /// another URL ignores it. A fresh card is used without a request. A stale card is revalidated
    /// at the URL of its last response: a 304 (RFC 9110 §15.4.5) keeps the card, a 200 replaces it,
    /// and any other answer starts a new discovery. Redirects limit the use of credentials, and
    /// [`ClientBuilder::card_keys`] are checked, as at the first read. The card is as trustworthy
    /// as the transport that read it: if the transport trusts every server, any server may have
    /// sent the card.
    #[must_use]
    pub fn known_card(mut self, cached: KnownCard) -> ClientBuilder {
        self.cached_card = Some(cached);
        self
    }

    /// Passes each warning to `sink` as one sentence: for example about a skipped stream event, or
    /// about the call of another interface because the first one is unreachable. Without a sink,
    /// warnings are dropped.
    #[must_use]
    pub fn on_warning(mut self, sink: impl Fn(&str) + Send + Sync + 'static) -> ClientBuilder {
        self.warnings = Some(Arc::new(sink));
        self
    }

    #[cold]
    pub(super) fn warn(&self, sentence: &str) {
        if let Some(sink) = &self.warnings {
            sink(sentence);
        }
    }

    /// Limits on the resources that a server may use.
    #[must_use]
    pub fn limits(mut self, limits: ClientLimits) -> ClientBuilder {
        self.limits = limits;
        self
    }

    /// How calls behave.
    #[must_use]
    pub fn options(mut self, options: CallOptions) -> ClientBuilder {
        self.options = options;
        self
    }

    /// Adds the URI of an extension to request (A2A 1.0 §4.6).
    #[must_use]
    pub fn extension(mut self, uri: impl Into<String>) -> ClientBuilder {
        self.extensions.push(uri.into());
        self
    }

    /// Adds a field to every request to the agent, as HTTP field or as gRPC metadata. The field
    /// replaces a credential of the same name, or the client's `User-Agent`. Requests for cards
    /// omit the field, unless it is `User-Agent`. A field that holds a credential is sent only
    /// where [`Credentials`] may be sent. Such a field is recognised by its name: a name that
    /// contains `authorization`, `authentication`, `cookie`, `token`, `secret`, `password`,
    /// `passphrase`, `session`, `credential`, `jwt`, `hmac`, `dpop`, `client-cert` or `api-key` (or
    /// another kind of key), or one of the words `auth`, `bearer`, `key`, `otp`, `pin`, `sid`,
    /// `sign`, `signature`; or the name of an API key of the card.
    ///
    /// # Errors
    /// `InvalidField` if the name is not a token (RFC 9110 §5.1), the value has a control byte, or
    /// the client writes a field of that name itself.
    pub fn field(mut self, name: &str, value: &str) -> Result<ClientBuilder, ClientError> {
        discover::check_field(name, value)?;
        self.fields.push(name, value);
        Ok(self)
    }

    /// The card of the agent at `url` as received, valid or not, and the URL of the card after
    /// redirects.
    ///
    /// # Errors
    /// [`ClientError`], but never `Card`, `CardSignature`, `NoInterface`, `BelowFloor` or
    /// `NoTenant`.
    pub async fn find_card_json<T: Transport>(
        &self,
        transport: &T,
        url: &str,
    ) -> Result<(Vec<u8>, HttpUrl), ClientError> {
        let requested = HttpOrigin::parse(url)?;
        let found = self.discovery(transport).find_document(&requested).await?;
        Ok((found.json, found.url))
    }

    /// Reads the card of the agent at `url` over a transport and chooses an interface. `url` is the
    /// agent's origin, or the URL of its card. A cached card is used or revalidated instead; see
    /// [`ClientBuilder::known_card`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn discover_over<T: Transport>(
        self,
        transport: T,
        url: &str,
    ) -> Result<Client<T>, ClientError> {
        let found = self.discovery(&transport).find(url, self.cached_card.as_ref()).await?;
        self.connect(transport, Arc::clone(&found.card), Some(found))
    }

    /// Reads the card of the agent at `url`, or revalidates the cached one. Checks the signature of
    /// the card, and that one of its interfaces can be called.
    #[cfg(feature = "gateway")]
    pub(crate) async fn find_card<T: Transport>(
        &self,
        transport: &T,
        url: &str,
    ) -> Result<KnownCard, ClientError> {
        let found = self.discovery(transport).find(url, self.cached_card.as_ref()).await?;
        check_signed(&found.card, self.card_keys.as_ref())?;
        choose_all(&found.card, Some(&found.url), &self.wants)?;
        Ok(found)
    }

    /// Chooses an interface of a cached card, fresh or stale, without a request.
    #[cfg(feature = "gateway")]
    pub(crate) fn connect_cached<T: Transport>(
        self,
        transport: T,
        cached: KnownCard,
    ) -> Result<Client<T>, ClientError> {
        self.connect(transport, Arc::clone(cached.card()), Some(cached))
    }

    /// The same builder with an upper bound on the time of a call.
    #[cfg(feature = "gateway")]
    pub(crate) fn call_ms_max(mut self, call_ms_max: u64) -> ClientBuilder {
        self.options.call_ms = self.options.call_ms.min(call_ms_max);
        self
    }

    /// Chooses an interface of `card`; `card_url` is the URL of the card, if any.
    ///
    /// # Errors
    /// `NoInterface`, `BelowFloor` or `NoTenant`; `CardSignature` with
    /// [`ClientBuilder::card_keys`].
    pub fn connect_over<T: Transport>(
        self,
        transport: T,
        card: AgentCard,
        card_url: Option<HttpUrl>,
    ) -> Result<Client<T>, ClientError> {
        let card = Arc::new(card);
        let known_card = card_url.map(|url| KnownCard::at(url, Arc::clone(&card)));
        self.connect(transport, card, known_card)
    }

    /// `known_card`: the same card with its URL, if it has one.
    fn connect<T: Transport>(
        self,
        transport: T,
        card: Arc<AgentCard>,
        known_card: Option<KnownCard>,
    ) -> Result<Client<T>, ClientError> {
        check_signed(&card, self.card_keys.as_ref())?;
        let card_url = known_card.as_ref().map(|known_card| &known_card.url);
        let mut interfaces = choose_all(&card, card_url, &self.wants)?;
        // A host that redirects from the named origin must not decide where credentials are sent.
        let is_elsewhere = known_card.as_ref().is_some_and(|known_card| known_card.is_elsewhere);
        interfaces.iter_mut().for_each(|one| one.is_card_origin &= !is_elsewhere);
        let endpoint = self.endpoint(&card, interfaces[0].clone());
        let stash = Stash::new(self.limits.clone(), self.options.is_strict);
        let inner = SharedClient {
            transport,
            sessions: Arc::default(),
            stash,
            rpc_id: AtomicU64::new(1),
            endpoint: RwLock::new(Arc::new(endpoint)),
            interfaces,
            card: RwLock::new(card),
            cached_card: Mutex::new(known_card),
            tokens: self.tokens.clone().unwrap_or_default(),
            // The cached card has been used or discarded.
            built: ClientBuilder { cached_card: None, ..self },
            has_warned_of_push: AtomicBool::new(false),
        };
        Ok(Client { inner: Arc::new(inner), terms: None })
    }

    /// The options of card requests.
    pub(super) fn discovery<'a, T>(&'a self, transport: &'a T) -> Discovery<'a, T> {
        let (limits, options, user_fields) = (&self.limits, &self.options, self.fields.get());
        Discovery { transport, limits, options, user_fields }
    }

    pub(super) fn endpoint(&self, card: &AgentCard, interface: ChosenInterface) -> AgentEndpoint {
        let (to, is_card_origin) = (&interface.url.origin, interface.is_card_origin);
        let configured = &self.credentials;
        let fields = check_fields(self.fields.get(), card, configured, to, is_card_origin);
        let credentials = fields.and_then(|()| plan(card, configured, to, is_card_origin));
        let mut credentials = credentials.map(|plan| plan.without(self.fields.get()));
        if interface.binding == Binding::WebSocket && configured.passes_authorization {
            credentials = Err(CredentialsError::WebSocket);
        }
        let mut extensions = Cow::Borrowed(&*self.extensions);
        let declared = card.capabilities.extensions.iter();
        let mut declared = declared.map(|one| one.uri.as_str());
        // Only a server that sees this extension recognises a repeated send.
        let is_idempotent_send = |uri: &str| uri == Extension::IDEMPOTENT_SEND;
        if declared.any(is_idempotent_send) && !extensions.iter().any(|uri| is_idempotent_send(uri))
        {
            extensions.to_mut().push(Extension::IDEMPOTENT_SEND.to_owned());
        }
        AgentEndpoint::new(interface, &extensions, &self.fields, credentials)
    }
}

impl From<ChooseError> for ClientError {
    fn from(error: ChooseError) -> ClientError {
        let detail = error.to_string();
        let kind = match error {
            ChooseError::BelowFloor { newest, floor } => {
                ClientErrorKind::BelowFloor { newest, floor }
            }
            ChooseError::NoTenant { .. } => ClientErrorKind::NoTenant,
            ChooseError::UnknownVersion(_)
            | ChooseError::OtherOrigin(_)
            | ChooseError::NoInterface { .. } => ClientErrorKind::NoInterface,
        };
        ClientError::because(kind, detail)
    }
}
