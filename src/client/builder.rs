//! Making a client: what its caller wants, the agent's card, the interface that is chosen.

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
    /// Milliseconds for a whole call that is no stream, repetitions included: 120 s; a send waits
    /// for its task meanwhile. For a stream: until its head has come.
    pub call_ms: u64,
    /// When calls that are safe to repeat are made once more.
    pub backoff: Backoff,
    /// True: the server handles a message once, however often it comes, so a send is repeated, too.
    /// A2A 1.0 §3.3.1 leaves that to servers; a card may say it, too
    /// ([`AgentCard::knows_sends_again`]), and then this is not needed.
    pub is_idempotent: bool,
    /// Milliseconds between two looks at a task that cannot be streamed: 2 s.
    pub poll_ms: u64,
    /// True: an answer without its id, a state, a part or a role that is not known, and an artifact
    /// without an id are errors. For tools that judge an agent.
    pub is_strict: bool,
    /// True: webhooks go to an agent whose card does not declare push notifications as well, with a
    /// warning. Without it such a call is `NotDeclared` (A2A 1.0 §3.3.4).
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

/// Takes a warning: one sentence for a human, without secrets.
pub(super) type WarningSink = dyn Fn(&str) + Send + Sync;

/// What a client is made of.
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
    /// One of these has signed each card.
    pub(super) card_keys: Option<CardKeys>,
    /// The card of the agent, if one is known.
    pub(super) known: Option<KnownCard>,
    /// The tokens that clients of clones share.
    pub(super) tokens: Option<Arc<TokenCache>>,
    /// Gets what the client makes the best of.
    pub(super) warnings: Option<Arc<WarningSink>>,
}

impl ClientBuilder {
    /// Wants what the specification says: the card's first interface, the newest version, 1.0 at
    /// least.
    pub fn new() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The bindings to take, the most wanted first; where the card has none of them, its own order
    /// decides.
    #[must_use]
    pub fn transports(mut self, transports: impl IntoIterator<Item = Binding>) -> ClientBuilder {
        self.wants.transports = transports.into_iter().collect();
        self
    }

    /// The version to speak, below the floor or not.
    #[must_use]
    pub fn version(mut self, version: ProtocolVersion) -> ClientBuilder {
        self.wants.version = Some(version);
        self
    }

    /// The oldest version to speak if none is named; 1.0 by default.
    #[must_use]
    pub fn floor(mut self, version: ProtocolVersion) -> ClientBuilder {
        self.wants.floor = version;
        self
    }

    /// The tenant to call, in place of the one that the interface names (A2A 1.0 §8.3.2); empty:
    /// the interface's. Every request names it: 1.0 in its messages, over HTTP+JSON in the path.
    /// A URL that ends with `/tenants/NAME` gets it as its last segment, in every version. An
    /// interface with neither place, as in 0.3 at other URLs, is passed over, and so is one of gRPC
    /// whose tenant is the card's name, since that names the agent; `NoTenant` where no other is.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> ClientBuilder {
        self.wants.tenant = Some(tenant.into()).filter(|tenant| !tenant.is_empty());
        self
    }

    /// The origins that interfaces of the card may have; those at others are passed over. Without
    /// this any is called, but with credentials only the card's
    /// ([`Credentials::allows_other_origins`]).
    #[must_use]
    pub fn origins(mut self, origins: impl IntoIterator<Item = HttpOrigin>) -> ClientBuilder {
        self.wants.origins = Some(origins.into_iter().collect());
        self
    }

    /// The dialect to speak (`docs/dialects.md`), whatever the interface looks like.
    #[must_use]
    pub fn dialect(mut self, name: &'static str) -> ClientBuilder {
        self.wants.dialect = Some(name);
        self
    }

    /// The caller's credentials, and where they may go. The card says which are
    /// used.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> ClientBuilder {
        self.credentials = credentials;
        // A token of other credentials is of no use.
        self.tokens = self.tokens.map(|_| Arc::default());
        self
    }

    /// Clients that are made of clones of this builder share the token of [`Credentials::oauth`]:
    /// it is fetched once, and renewed once, for all of them.
    #[must_use]
    pub fn share_tokens(mut self) -> ClientBuilder {
        self.tokens.get_or_insert_default();
        self
    }

    /// The keys of the signer of the agent's card (A2A 1.0 §8.4). A card that none of them has
    /// signed is refused by `CardSignature`, wherever it is read: at discovery, when it is asked
    /// for again, and the one for authenticated callers. Without keys, signed or not is one.
    #[must_use]
    pub fn card_keys(mut self, keys: CardKeys) -> ClientBuilder {
        self.card_keys = Some(keys);
        self
    }

    /// A card that [`Client::known_card`] gave, for a discovery at the same URL; at another one it
    /// is not looked at. As long as its server said that it is good nothing is asked; then the URL
    /// that it came from at last, whose 304 (RFC 9110 §15.4.5) keeps it and whose 200 replaces it.
    /// Any other answer, and the card is looked for as if none were known. What a redirect means
    /// for credentials, and what [`ClientBuilder::card_keys`] demand, holds as when it was read
    /// first. It is as good as the transport that read it: one that trusts every server reads a
    /// card of any.
    #[must_use]
    pub fn known_card(mut self, known: KnownCard) -> ClientBuilder {
        self.known = Some(known);
        self
    }

    /// Gives warnings to `sink`, each one sentence: an event of a stream that was skipped, another
    /// interface that is called because the first one cannot be reached, and whatever else the
    /// client makes the best of. Without a sink they are dropped.
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

    /// What a server may take of the client.
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

    /// Adds the URI of an extension to ask for (A2A 1.0 §4.6).
    #[must_use]
    pub fn extension(mut self, uri: impl Into<String>) -> ClientBuilder {
        self.extensions.push(uri.into());
        self
    }

    /// Adds a field that every request to the agent has, as HTTP field or as metadata of gRPC. It
    /// takes the place of a credential that would be sent under the same name, or of our own
    /// `User-Agent`. Cards are requested without it, unless it is `User-Agent`. One that identifies
    /// the caller goes only where [`Credentials`] may go: it is known by its name, which has
    /// `authorization`, `authentication`, `cookie`, `token`, `secret`, `password`, `passphrase`,
    /// `session`, `credential`, `jwt`, `hmac`, `dpop`, `client-cert` or `api-key` (or another kind
    /// of key) in it, or one of the words `auth`, `bearer`, `key`, `otp`, `pin`, `sid`, `sign`,
    /// `signature`; or is that of an API key of the card.
    ///
    /// # Errors
    /// `InvalidField` when the name is no token (RFC 9110 §5.1), the value has a control byte, or
    /// the name is one that the client writes itself.
    pub fn field(mut self, name: &str, value: &str) -> Result<ClientBuilder, ClientError> {
        discover::check_field(name, value)?;
        self.fields.push(name, value);
        Ok(self)
    }

    /// The card of the agent at `url` as it came, whether or not it can be read, and the URL that
    /// it came from at last.
    ///
    /// # Errors
    /// [`ClientError`], but never `Card`, `CardSignature`, `NoInterface`, `BelowFloor` or
    /// `NoTenant`.
    pub async fn find_card_json<T: Transport>(
        &self,
        transport: &T,
        url: &str,
    ) -> Result<(Vec<u8>, HttpUrl), ClientError> {
        let asked = HttpOrigin::parse(url)?;
        let found = self.discovery(transport).find_document(&asked).await?;
        Ok((found.json, found.url))
    }

    /// Reads the card of the agent at `url` over a transport and chooses an interface: `url` is the
    /// agent's origin, or that of its card. A card that is known of it saves that, or is asked
    /// about; see [`ClientBuilder::known_card`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn discover_over<T: Transport>(
        self,
        transport: T,
        url: &str,
    ) -> Result<Client<T>, ClientError> {
        let found = self.discovery(&transport).find(url, self.known.as_ref()).await?;
        self.connect(transport, Arc::clone(&found.card), Some(found))
    }

    /// Reads the card of the agent at `url`, or asks about the one that is known, and checks that
    /// it is signed as wanted and can be called.
    #[cfg(feature = "gateway")]
    pub(crate) async fn find_card<T: Transport>(
        &self,
        transport: &T,
        url: &str,
    ) -> Result<KnownCard, ClientError> {
        let found = self.discovery(transport).find(url, self.known.as_ref()).await?;
        check_signed(&found.card, self.card_keys.as_ref())?;
        choose_all(&found.card, Some(&found.url), &self.wants)?;
        Ok(found)
    }

    /// Chooses an interface of a card that is known, stale or not; nothing is requested.
    #[cfg(feature = "gateway")]
    pub(crate) fn connect_known<T: Transport>(
        self,
        transport: T,
        known: KnownCard,
    ) -> Result<Client<T>, ClientError> {
        self.connect(transport, Arc::clone(known.card()), Some(known))
    }

    /// The same with calls that last no longer.
    #[cfg(feature = "gateway")]
    pub(crate) fn call_ms_max(mut self, call_ms_max: u64) -> ClientBuilder {
        self.options.call_ms = self.options.call_ms.min(call_ms_max);
        self
    }

    /// Chooses an interface of a card that is here already; `card_url` is where it came from, if it
    /// came from a URL.
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
        let known = card_url.map(|url| KnownCard::at(url, Arc::clone(&card)));
        self.connect(transport, card, known)
    }

    /// `known`: the same card, if it came from a URL.
    fn connect<T: Transport>(
        self,
        transport: T,
        card: Arc<AgentCard>,
        known: Option<KnownCard>,
    ) -> Result<Client<T>, ClientError> {
        check_signed(&card, self.card_keys.as_ref())?;
        let card_url = known.as_ref().map(|known| &known.url);
        let mut interfaces = choose_all(&card, card_url, &self.wants)?;
        // A host that answers for the named origin must not choose where credentials go.
        let is_elsewhere = known.as_ref().is_some_and(|known| known.is_elsewhere);
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
            known: Mutex::new(known),
            tokens: self.tokens.clone().unwrap_or_default(),
            // The one that was given is used, or was of no use.
            built: ClientBuilder { known: None, ..self },
            has_warned_of_push: AtomicBool::new(false),
        };
        Ok(Client { inner: Arc::new(inner), terms: None })
    }

    /// What cards are requested with.
    pub(super) fn discovery<'a, T>(&'a self, transport: &'a T) -> Discovery<'a, T> {
        let (limits, options, user_fields) = (&self.limits, &self.options, self.fields.get());
        Discovery { transport, limits, options, user_fields }
    }

    pub(super) fn endpoint(&self, card: &AgentCard, interface: ChosenInterface) -> AgentEndpoint {
        let (to, is_card_origin) = (&interface.url.origin, interface.is_card_origin);
        let given = &self.credentials;
        let fields = check_fields(self.fields.get(), card, given, to, is_card_origin);
        let credentials = fields.and_then(|()| plan(card, given, to, is_card_origin));
        let mut credentials = credentials.map(|plan| plan.without(self.fields.get()));
        if interface.binding == Binding::WebSocket && given.passes_authorization {
            credentials = Err(CredentialsError::WebSocket);
        }
        let mut extensions = Cow::Borrowed(&*self.extensions);
        let declared = card.capabilities.extensions.iter();
        let mut declared = declared.map(|one| one.uri.as_str());
        // What is sent again is known again only by servers that hear of it.
        let is_known = |uri: &str| uri == Extension::IDEMPOTENT_SEND;
        if declared.any(is_known) && !extensions.iter().any(|uri| is_known(uri)) {
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
