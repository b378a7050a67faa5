//! Builds an engine from settings: all names are resolved and checked here, once.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::AtomicBool},
};

#[cfg(feature = "push")]
use crate::push::{PushSettings, signature::PostSigner};
use crate::{
    agent::{Agent, FailureRules},
    auth::{Accounts, Authenticator, Gate, LateShares, Network, Quota, Quotas},
    binding::{
        Endpoint, LargeBodies, ServerConfig,
        admission::Access,
        card_signer::{CardSigner, SignedCards},
        cards::CardTimes,
        catalog::CatalogTimes,
        config,
        cors::{Cors, CorsPolicy},
        hosts::{self, Hosts},
        interfaces::Interface,
        tenant::Tenants,
        ws,
    },
    dialect::{self, card::CardForm},
    engine::{
        BuildError, Engine, key_set,
        local_core::{check_fields, check_security, indexes},
    },
    limits::Limits,
    model::{CardSecurity, Idempotency, IdempotentConflict, Profile, RepeatRules, is_agent_name},
    op::Core,
    permits::Permits,
    service::{
        AgentIndex, Service, Start,
        observe::CallObserver,
        pages::{PageSource, ServerPage},
        tap::Tap,
        trace::Tracer,
    },
};

/// All settings of a server.
pub struct Setup {
    /// All limits.
    pub limits: Limits,
    /// Agents; the first agent answers at the root.
    pub agents: Vec<(Profile, Arc<dyn Agent>)>,
    /// Answers calls in place of a local core with `agents`, which must then be empty. The agents
    /// that [`Service::profile`] returns when the server is built, from index 0 until `None`, are
    /// checked, and mounts may name them. More agents may be added and removed later
    /// ([`Service::agent`]). The name of an agent never changes.
    /// [`local_core`](crate::engine::local_core) creates cores for such a service.
    pub service: Option<Arc<dyn Service>>,
    /// The number of this server among those with the same agents: the ids of its tasks and
    /// contexts contain this number, and [`node_of`](crate::engine::node_of) reads it from an id. A
    /// `service` defines its own numbers.
    pub node: Option<u16>,
    /// Records the changes of tasks; answers wait until the tasks that they show are durable. With
    /// a `service`, the tap is used for the answers only: the service must pass it to its cores,
    /// and report the records that its answers show
    /// ([`CallCx::record`](crate::service::CallCx::record)).
    pub tap: Option<Arc<dyn Tap>>,
    /// Callers for which repeated sends are recognized. A `service` decides this itself, and its
    /// cards do not declare it.
    pub idempotency: Idempotency,
    /// The treatment of a send with a used message id but different content.
    pub idempotent_conflict: IdempotentConflict,
    /// The observer of calls, to count and log them.
    pub observer: Option<Arc<dyn CallObserver>>,
    /// The tracer of calls and turns; `observer` must report calls to the tracer and want their
    /// details. A `service` traces the turns of its agents itself
    /// ([`RequestFields::span`](crate::service::RequestFields::span)).
    pub tracer: Option<Arc<dyn Tracer>>,
    /// The source of the pages about the server, `/healthz`, `/readyz` and `/metrics`;
    /// [`net::Server`](crate::net::Server) sets it itself.
    pub pages: Option<Arc<dyn PageSource>>,
    /// Dialects at additional paths.
    pub mounts: Vec<Mount>,
    /// Authenticates callers: every operation needs an authenticated caller, except for agents with
    /// `anonymous` in their profile. `None`: callers are not authenticated.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// True: each operation requires its scope, `a2a:read`, `a2a:send` or `a2a:cancel`
    /// ([`ScopeSet`](crate::auth::ScopeSet)). Additional scopes of an agent are in its profile.
    pub requires_scopes: bool,
    /// Quotas of authenticated and of anonymous callers.
    pub quotas: Quotas,
    /// Trusted proxies, which send the address of their client in `X-Forwarded-For`.
    pub trusted_proxies: Vec<Network>,
    /// Valid values of `tenant`, in addition to names of agents: each value is a separate space of
    /// tasks.
    pub tenants: Tenants,
    /// The format of the public cards.
    pub card: CardForm,
    /// The interfaces in the cards, in order of preference; see [`Interface`].
    pub interfaces: Vec<Interface>,
    /// The URL under which clients reach the server; without it, cards contain the requested host.
    pub public_url: Option<String>,
    /// Accepted hosts in addition to the loopback interface, the host of `public_url` and the
    /// address of the connection: names or addresses without a port, or `*` for any host.
    /// `docs/guide/proxy.md` describes where hosts are checked.
    pub allow_hosts: Vec<String>,
    /// The reporting of errors and panics of agents. A `service` reports them itself.
    pub failures: FailureRules,
    /// Use `X-Forwarded-Proto`, `-Host`, `-Port` and `-Prefix` for the URLs of cards. Only safe
    /// behind a proxy that always sets them.
    pub trust_forwarded: bool,
    /// Enforce A2A 1.0 §3.6.2: a 1.0 method needs the version header.
    pub strict_version: bool,
    /// Enforce A2A 1.0 where clients are known to violate it: a 1.0 method needs the version
    /// header, as with `strict_version`, and a message needs its id (§5.7). Does not affect the
    /// dialects of platforms.
    pub strict: bool,
    /// Serve the extended card to every caller. Authenticated callers always get it (A2A 1.0
    /// §13.3).
    pub extended_card: bool,
    /// Origins of pages that may open WebSockets, in addition to the server's own host and
    /// `public_url`: as browsers send them (`https://app.example`), or `*` for all.
    pub ws_origins: Vec<String>,
    /// The other origins with pages that may read answers; by default none.
    pub cors: Cors,
    /// The signer of cards (A2A 1.0 §8.4), for instance `client::card::SigningKeys`. Cards with
    /// `public_url` or a host of `allow_hosts` are signed. The public keys are at
    /// `/.well-known/jwks.json`.
    pub card_signer: Option<Arc<dyn CardSigner>>,
    /// Webhook settings; `None`: no webhooks. The driver must send the requests of
    /// [`Engine::outbox`]: `net::Server` has a webhook worker for this. Without a webhook worker no
    /// delivery is sent, although the cards announce webhooks. A `service` has its own webhooks, or
    /// none ([`Service::has_push`]).
    #[cfg(feature = "push")]
    pub push: Option<PushSettings>,
    /// The signer of posts to webhooks, for instance `client::WebhookKeys`, in addition to the
    /// signatures of their configurations. The public keys are served with those of cards.
    #[cfg(feature = "push")]
    pub webhook_signer: Option<Arc<dyn PostSigner>>,
    /// The security requirements in cards, unless the agent has its own ([`Profile::security`]); by
    /// default the requirements of the authenticator.
    pub security: CardSecurity,
    /// Echo every body below this path; for framing tests.
    #[cfg(feature = "test-echo")]
    pub test_echo: Option<String>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            limits: Limits::default(),
            agents: Vec::new(),
            service: None,
            node: None,
            tap: None,
            idempotency: Idempotency::default(),
            idempotent_conflict: IdempotentConflict::default(),
            observer: None,
            tracer: None,
            pages: None,
            mounts: Vec::new(),
            authenticator: None,
            requires_scopes: false,
            quotas: Quotas::default(),
            trusted_proxies: Vec::new(),
            tenants: Tenants::default(),
            card: CardForm::Hybrid,
            interfaces: Interface::defaults(),
            public_url: None,
            allow_hosts: Vec::new(),
            failures: FailureRules::default(),
            trust_forwarded: false,
            strict_version: false,
            strict: false,
            extended_card: false,
            ws_origins: Vec::new(),
            cors: Cors::default(),
            card_signer: None,
            #[cfg(feature = "push")]
            push: None,
            #[cfg(feature = "push")]
            webhook_signer: None,
            security: CardSecurity::default(),
            #[cfg(feature = "test-echo")]
            test_echo: None,
        }
    }
}

/// A dialect at a path.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The absolute path; `/` for the root.
    pub path: String,
    /// Name of the dialect.
    pub dialect: String,
    /// Name of the agent; `None`: the first agent.
    pub agent: Option<String>,
}

impl Setup {
    /// Performs the checks of [`Setup::build`], for a program that needs the result before it has
    /// an address.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn check(&self) -> Result<(), BuildError> {
        self.resolve().map(drop)
    }

    /// The mounts, with their agents resolved.
    fn resolve(&self) -> Result<Vec<config::MountedEndpoint>, BuildError> {
        self.limits.check().map_err(BuildError::Limit)?;
        Interface::check(&self.interfaces).map_err(BuildError::Interfaces)?;
        let agents = indexes(self.names()?, &self.limits)?;
        check_fields(&self.agents)?;
        if let Some(name) = self.tenants.wrong_name(|name| agents.contains_key(name)) {
            return Err(BuildError::Tenant(name.clone()));
        }
        if let Some(origin) = self.ws_origins.iter().find(|text| !ws::is_origin(text)) {
            return Err(BuildError::Origin(origin.clone()));
        }
        if let Some(host) = self.allow_hosts.iter().find(|text| !hosts::is_host(text)) {
            return Err(BuildError::Host(host.clone()));
        }
        if let Some(url) = self.public_url.as_ref().filter(|url| !config::is_public_url(url)) {
            return Err(BuildError::PublicUrl(url.clone()));
        }
        self.cors.check().map_err(BuildError::Cors)?;
        check_security(&self.security, &self.agents)?;
        let mounts = self.mounts.iter().map(|mount| resolve(mount, &agents));
        let mounts = mounts.collect::<Result<Vec<_>, _>>()?;
        if let Some(at) = mounts.iter().position(|mount| ServerPage::at(&mount.path).is_some()) {
            return Err(BuildError::PageMount(self.mounts[at].path.clone()));
        }
        let mut paths = HashSet::new();
        if let Some(again) = mounts.iter().position(|mount| !paths.insert(&mount.path)) {
            return Err(BuildError::SameMount(self.mounts[again].path.clone()));
        }
        Ok(mounts)
    }

    /// The agents' names, by index.
    fn names(&self) -> Result<Vec<String>, BuildError> {
        let Some(service) = &self.service else {
            return Ok(self.agents.iter().map(|(profile, _)| profile.name.clone()).collect());
        };
        if !self.agents.is_empty() || self.node.is_some() {
            return Err(BuildError::AgentsWithService);
        }
        let profiles = (0..=u16::MAX).map_while(|index| service.profile(AgentIndex(index)));
        Ok(profiles.map(|profile| profile.name.clone()).collect())
    }

    /// The public keys of all signers.
    fn jwks(&self) -> Option<Box<[u8]>> {
        let sets = self.card_signer.iter().map(|signer| signer.jwks());
        #[cfg(feature = "push")]
        let sets = sets.chain(self.webhook_signer.iter().map(|signer| signer.jwks()));
        key_set::of(&sets.collect::<Vec<_>>())
    }

    /// Checks the settings and builds an engine.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build(self, start: Start) -> Result<Arc<Engine>, BuildError> {
        let (mounts, jwks) = (self.resolve()?, self.jwks());
        let (is_own, authenticates_callers) =
            (self.service.is_none(), self.authenticator.is_some());
        let declared = self.idempotency.callers(authenticates_callers).filter(|_| is_own);
        let (service, agents) = match self.service {
            Some(service) => (service, None),
            None => {
                let (limits, node, tap) = (&self.limits, self.node, self.tap.clone());
                let (callers, conflict) = (self.idempotency, self.idempotent_conflict);
                let repeats = RepeatRules { callers, conflict };
                let core = Core::new(limits, self.agents, node, repeats, &start, tap);
                core.report_failures(self.failures);
                self.tracer.iter().for_each(|tracer| core.trace(Arc::clone(tracer)));
                #[cfg(feature = "push")]
                self.push.into_iter().for_each(|push| core.serve_push(push));
                (Arc::clone(&core) as Arc<dyn Service>, Some(core.agents()))
            }
        };
        let streams = Permits::new(self.limits.streams_max, start.workers);
        #[cfg(feature = "grpc")]
        let service_streams = Permits::new(self.limits.service_streams_max, start.workers);
        let mut access = gate(self.authenticator, self.quotas, &self.limits, start.secret);
        (access.requires_scopes, access.trusted_proxies) =
            (self.requires_scopes, self.trusted_proxies);
        let config = ServerConfig {
            large: LargeBodies::new(&self.limits),
            waiting: Permits::new(self.limits.connections_max, start.workers),
            limits: self.limits,
            shared: LateShares::for_calls(&access.accounts, &access.trusted_proxies),
            access,
            reads_begin_time: self
                .observer
                .as_ref()
                .is_some_and(|observer| !observer.keeps_turns()),
            observer: self.observer,
            tracer: self.tracer,
            pages: self.pages,
            mounts,
            tenants: self.tenants,
            card: self.card,
            hosts: Hosts::new(self.allow_hosts, self.public_url.as_deref()),
            interfaces: self.interfaces,
            public_url: self.public_url.map(|url| url.trim_end_matches('/').to_owned()),
            base_url: start.base_url.trim_end_matches('/').to_owned(),
            trust_forwarded: self.trust_forwarded,
            strict_version: self.strict_version || self.strict,
            strict: self.strict,
            extended_card: self.extended_card || authenticates_callers,
            idempotent_send: declared,
            long_poll: is_own,
            push: service.has_push(),
            ws_origins: self.ws_origins,
            cors: CorsPolicy::new(self.cors),
            card_signer: self.card_signer,
            signed_cards: SignedCards::default(),
            jwks,
            security: self.security,
            #[cfg(feature = "test-echo")]
            test_echo: self.test_echo.map(|path| path.trim_end_matches('/').to_owned()),
            started_s: (start.unix_ms)() / 1000,
            streams,
            #[cfg(feature = "grpc")]
            service_streams,
            card_times: CardTimes::default(),
            ignored_filters: Default::default(),
            catalog_times: CatalogTimes::default(),
        };
        Ok(Arc::new(Engine {
            service,
            agents,
            #[cfg(feature = "push")]
            webhook_signer: self.webhook_signer,
            tap: self.tap,
            config,
            draining: AtomicBool::default(),
            cut: AtomicBool::default(),
        }))
    }
}

/// Creates the credential cache, and the accounts of callers.
fn gate(
    authenticator: Option<Arc<dyn Authenticator>>,
    quotas: Quotas,
    limits: &Limits,
    secret: u128,
) -> Access {
    let credentials_max = limits.credentials_max;
    // Without an authenticator, callers cannot be distinguished.
    let share = authenticator.as_ref().map(|_| Quota::share_of(limits)).unwrap_or_default();
    let accounts = Arc::new(Accounts::new(credentials_max, quotas, share, secret));
    let gate = |by| Gate::new(by, Arc::clone(&accounts), credentials_max, secret);
    let gate = authenticator.map(gate);
    Access { gate, accounts, requires_scopes: false, trusted_proxies: Vec::new() }
}

fn resolve(
    mount: &Mount,
    agents: &HashMap<String, AgentIndex>,
) -> Result<config::MountedEndpoint, BuildError> {
    let path = mount.path.trim_end_matches('/');
    let clean = path.split('/').skip(1).all(is_agent_name);
    if !mount.path.starts_with('/') || !clean {
        return Err(BuildError::Path(mount.path.clone()));
    }
    let dialect = dialect::by_name(&mount.dialect)
        .ok_or_else(|| BuildError::Dialect(mount.dialect.clone()))?;
    let agent = match &mount.agent {
        None => AgentIndex(0),
        Some(name) => *agents.get(name).ok_or_else(|| BuildError::Agent(name.clone()))?,
    };
    let is_own = mount.agent.is_some();
    Ok(config::MountedEndpoint {
        path: path.to_owned(),
        endpoint: Endpoint { dialect, agent, is_own },
    })
}
