//! Admits or rejects a request by its head and its caller, before the body is read. `authorize.rs`
//! checks each call of the request.
//!
//! Invariant: requests that show no task are public: cards, catalogs, health, reflection, requests
//! of HTTP itself such as OPTIONS, and errors about paths. If the server authenticates callers, all
//! other requests need an authenticated caller, unless the agent admits anonymous callers. Such an
//! agent still rejects a wrong credential (ADR 0021). A public resource ignores a wrong credential,
//! and the body of a public request without an authenticated caller is not read.

use std::{
    net::IpAddr,
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    auth::{
        Accounts, AdmittedCaller, AuthRefusal, CredentialSource, Gate, GateRequest, Network,
        NotAdmitted, Quota, Quotas, RecentCallers,
    },
    binding::{
        CallContext, Handled, RequestSource, ServerConfig, grpc, http_error, jsonrpc, pages, rest,
        route::{Route, RouteTarget, path_of, route},
        ws,
    },
    fault::{Fault, FaultKind},
    http::{self, BodyFraming, Field, Head, Method, TargetForm},
    service::{AgentIndex, Now, Peer, RequestFields, Service, pages::ServerPage},
};

/// The prefix of the WebSocket subprotocol with which a browser page sends its token, in addition
/// to `a2a`: a page cannot set `Authorization`.
const BEARER_PROTOCOL: &[u8] = b"a2a.bearer.";

/// The field that lists the accepted credentials.
const CHALLENGE: &str = "WWW-Authenticate";

/// The refusal of a request after `ADMISSION_MS_MAX` without an answer of the authenticator.
pub const LATE: AuthRefusal = AuthRefusal::Unavailable {
    why: "the authentication backend did not respond in time",
    retry_s: 1,
};

/// The refusal of a request if its credential expired or was withdrawn while the body arrived or
/// the answer was created.
pub const ENDED: AuthRefusal = AuthRefusal::Expired("the credential is no longer valid");

/// Which callers are admitted.
pub struct Access {
    /// Authenticates callers; `None`: every caller is anonymous.
    pub gate: Option<Gate>,
    /// The quotas of callers, and their usage.
    pub accounts: Arc<Accounts>,
    /// True: each operation requires its scope.
    pub requires_scopes: bool,
    /// Trusted proxies, which send the address of their client in `X-Forwarded-For`.
    pub trusted_proxies: Vec<Network>,
}

impl Default for Access {
    /// Admits every caller, without quotas.
    fn default() -> Access {
        let accounts = Arc::new(Accounts::new(1, Quotas::default(), Quota::default(), 0));
        Access { gate: None, accounts, requires_scopes: false, trusted_proxies: Vec::new() }
    }
}

/// The context of a request with a complete head.
#[derive(Clone, Copy)]
pub struct AdmissionCx<'x> {
    /// Mounts, agents and settings.
    pub config: &'x ServerConfig,
    /// The service interface.
    pub service: &'x dyn Service,
    /// The peer.
    pub peer: Peer<'x>,
    /// True: the request may be a gRPC call.
    pub takes_trailers: bool,
}

/// The caller of an admitted request; `None`: an anonymous caller.
pub type Admitted = Option<Arc<AdmittedCaller>>;

impl<'x> AdmissionCx<'x> {
    /// The caller of a request; `recent` is the cache of the worker. Pending: `wake` is woken when
    /// the authenticator has answered.
    ///
    /// # Errors
    /// [`AuthRefusal`].
    #[inline(always)]
    pub fn admit(
        self,
        head: &Head<'_>,
        recent: &mut RecentCallers,
        now: Now,
        wake: &Waker,
    ) -> Poll<Result<Admitted, NotAdmitted>> {
        match &self.config.access.gate {
            None => Poll::Ready(Ok(None)),
            Some(gate) => self.authenticate(gate, head, recent, now, wake),
        }
    }

    #[inline(never)]
    fn authenticate(
        self,
        gate: &Gate,
        head: &Head<'_>,
        recent: &mut RecentCallers,
        now: Now,
        wake: &Waker,
    ) -> Poll<Result<Admitted, NotAdmitted>> {
        let source = CredentialSource {
            authorization: head.value(Field::Authorization),
            api_key: head.value(Field::XApiKey),
            bearer: bearer_of_upgrade(head),
            identity: self.peer.identity,
            certificate: self.peer.certificate,
            ..self.source(head)
        };
        let (source, service) = (&source, self.service);
        let outcome = gate.admit(recent, GateRequest { source, service, now, wake });
        if let Poll::Ready(Err(NotAdmitted { slowed: Some(address), .. })) = &outcome {
            let observer = self.config.observer.iter();
            observer.for_each(|observer| observer.peer_slowed(*address));
        }
        match outcome {
            Poll::Ready(Ok(Some(admission))) => Poll::Ready(Ok(Some(admission))),
            Poll::Ready(Ok(None)) if self.allows_anonymous(head) => Poll::Ready(Ok(None)),
            Poll::Ready(Ok(None)) => Poll::Ready(Err(AuthRefusal::Missing.into())),
            // A page may show more to an authenticated caller.
            Poll::Pending if pages::agent_listener_page(self.config, path_of(head)).is_some() => {
                Poll::Pending
            }
            _ if self.is_public(head) => Poll::Ready(Ok(None)),
            refused_or_pending => refused_or_pending,
        }
    }

    /// The credential source of a request.
    fn source<'h>(self, head: &'h Head<'h>) -> CredentialSource<'h>
    where
        'x: 'h,
    {
        CredentialSource {
            fields: RequestFields::of(head),
            remote: self.peer.remote,
            trusted_proxies: &self.config.access.trusted_proxies,
            ..CredentialSource::default()
        }
    }

    /// The client address of a request.
    pub fn address(self, head: &Head<'_>) -> Option<IpAddr> {
        self.source(head).address()
    }

    /// The client address that trusted proxies have sent with a request; `None`: no such address.
    pub fn forwarded(self, head: &Head<'_>) -> Option<IpAddr> {
        let found = self.address(head)?;
        let is_proxy = self.config.access.trusted_proxies.iter().any(|hops| hops.contains(found));
        (!is_proxy && self.peer.remote != Some(found)).then_some(found)
    }

    /// Whether a request needs no caller.
    fn is_public(self, head: &Head<'_>) -> bool {
        if self.peer.is_admin {
            return self.peer.is_loopback || ServerPage::at(head.path()).is_some();
        }
        if head.method() == Method::Options || head.form() == TargetForm::Asterisk {
            return true;
        }
        if self.takes_trailers && grpc::is_request(head) {
            return !matches!(grpc::rpc(head.path()), Some(grpc::Rpc::A2a(_)));
        }
        match route(self.config, self.service, path_of(head)) {
            // Calls are POST or an upgrade; other methods give 405 to every caller.
            Route::Rpc(_) => head.method() != Method::Post && !ws::is_upgrade(head),
            Route::HttpJson(_) | Route::ExtendedCard(_) => false,
            Route::Card { .. } | Route::Catalog(_) | Route::Page(_) => true,
            Route::NoResource(..) | Route::NoAgent | Route::NotFound => true,
            #[cfg(feature = "test-echo")]
            Route::Echo => true,
        }
    }

    /// Whether only the head of a request is read: the caller is anonymous, and the resource does
    /// not depend on a body.
    #[inline]
    pub fn ignores_body(self, head: &Head<'_>, by: &Admitted) -> bool {
        self.config.access.gate.is_some() && by.is_none() && self.needs_no_body(head)
    }

    #[inline(never)]
    fn needs_no_body(self, head: &Head<'_>) -> bool {
        if head.body() == BodyFraming::None {
            return false;
        }
        if self.peer.is_admin {
            return ServerPage::at(head.path()).is_some();
        }
        if self.takes_trailers && grpc::is_request(head) {
            // The services for health and reflection need the message.
            return grpc::rpc(head.path()).is_none();
        }
        #[cfg(feature = "test-echo")]
        if let Route::Echo = route(self.config, self.service, path_of(head)) {
            return false;
        }
        self.is_public(head)
    }

    /// The agent at a path; the tenant in the path may be the name of an agent.
    fn agent_at(self, target: RouteTarget<'_>) -> AgentIndex {
        let named = target.tenant.filter(|_| !target.endpoint.is_own);
        named.and_then(|name| self.service.agent(name)).unwrap_or(target.endpoint.agent)
    }

    /// Whether a request without a credential is admitted. If its call names another agent,
    /// `authorize.rs` checks the caller again.
    fn allows_anonymous(self, head: &Head<'_>) -> bool {
        if self.is_public(head) {
            return true;
        }
        if self.peer.is_admin {
            return false;
        }
        if self.takes_trailers && grpc::is_request(head) {
            let named = head.value(Field::A2aTenant).and_then(|name| str::from_utf8(name).ok());
            let agent = named.and_then(|name| self.service.agent(name));
            return is_anonymous(self.service, agent.unwrap_or(AgentIndex(0)));
        }
        match route(self.config, self.service, path_of(head)) {
            Route::Rpc(target) => is_anonymous(self.service, self.agent_at(target)),
            Route::HttpJson(target) => is_anonymous(self.service, self.agent_at(target.at)),
            Route::ExtendedCard(_) => false,
            Route::Card { .. } | Route::Catalog(_) | Route::Page(_) => true,
            Route::NoResource(..) | Route::NoAgent | Route::NotFound => true,
            #[cfg(feature = "test-echo")]
            Route::Echo => true,
        }
    }
}

/// Whether anonymous callers may call an agent.
pub(super) fn is_anonymous(service: &dyn Service, agent: AgentIndex) -> bool {
    service.profile(agent).is_some_and(|profile| profile.anonymous)
}

/// The token of a browser page that opens a WebSocket.
fn bearer_of_upgrade<'h>(head: &Head<'h>) -> Option<&'h [u8]> {
    head.value(Field::SecWebSocketProtocol)?;
    if !ws::is_upgrade(head) {
        return None;
    }
    bearers_offered(head).next()
}

/// The tokens among the subprotocols; the handshake rejects more than one.
pub(super) fn bearers_offered<'h>(head: &Head<'h>) -> impl Iterator<Item = &'h [u8]> {
    let offered = head.values("sec-websocket-protocol").flat_map(http::list);
    offered.filter_map(|protocol| protocol.strip_prefix(BEARER_PROTOCOL))
}

/// The fault of a refusal.
pub fn fault(refusal: &AuthRefusal) -> Fault {
    match *refusal {
        AuthRefusal::Missing => FaultKind::Unauthenticated.into(),
        AuthRefusal::Wrong(why) | AuthRefusal::Expired(why) => {
            Fault::because(FaultKind::Unauthenticated, why)
        }
        AuthRefusal::Unavailable { why, retry_s } => {
            let retry_s = Some(retry_s);
            Fault { retry_s, ..Fault::because(FaultKind::ShuttingDown, why) }
        }
        AuthRefusal::TooMany { retry_s } => {
            let detail = "too many requests with invalid credentials; retry later";
            let retry_s = Some(retry_s);
            Fault { retry_s, ..Fault::because(FaultKind::RateLimited, detail) }
        }
    }
}

/// Answers a request that is not admitted, in the format that its head implies: mount, version and
/// media type. The connection closes after the answer, since the body is not read.
#[cold]
pub fn refuse<'x>(cx: &mut CallContext<'x>, head: &'x Head<'x>, refusal: &AuthRefusal) -> Handled {
    let fault = fault(refusal);
    cx.report_not_admitted(refusal);
    cx.challenge(refusal);
    if cx.peer.is_admin {
        http_error::write_fault(&mut cx.writer, &fault);
        return Handled::Answered;
    }
    if cx.writer.responder.has_trailers() && grpc::is_request(head) {
        return grpc::refuse_unread(&mut cx.writer, head, &fault);
    }
    match route(cx.config, cx.service, path_of(head)) {
        Route::Rpc(target) => {
            cx.endpoint = target.endpoint;
            jsonrpc::refuse_unread(cx, &fault);
        }
        Route::HttpJson(target) => return rest::refuse_unread(cx, head, target, fault),
        _ => http_error::write_fault(&mut cx.writer, &fault),
    }
    Handled::Answered
}

impl CallContext<'_> {
    /// The client address of the request.
    pub(super) fn origin_address(&self) -> Option<IpAddr> {
        if let RequestSource::WebSocket { upgrade, .. } = self.source
            && let Some(forwarded) = upgrade.forwarded()
        {
            return Some(forwarded);
        }
        let source = CredentialSource {
            fields: self.source.fields(),
            remote: self.peer.remote,
            trusted_proxies: &self.config.access.trusted_proxies,
            ..CredentialSource::default()
        };
        source.address()
    }

    /// The client address of the request with this head, if proxies are trusted.
    pub(super) fn forwarded_address(&self, head: &Head<'_>) -> Option<IpAddr> {
        let (config, service, peer) = (self.config, self.service, self.peer);
        let asking = AdmissionCx { config, service, peer, takes_trailers: false };
        let is_forwarded = !config.access.trusted_proxies.is_empty();
        is_forwarded.then(|| asking.address(head)).flatten()
    }

    /// RFC 9110 §11.6.1: the refusal of a missing or wrong credential lists the accepted schemes.
    pub(super) fn challenge(&mut self, refusal: &AuthRefusal) {
        let (AuthRefusal::Missing | AuthRefusal::Wrong(_) | AuthRefusal::Expired(_)) = refusal
        else {
            return;
        };
        // A batch may have several refused calls.
        if self.writer.fields.get().iter().any(|(name, _)| name == CHALLENGE) {
            return;
        }
        if let Some(gate) = &self.config.access.gate {
            self.writer.fields.push(CHALLENGE, &gate.challenge(refusal));
        }
    }
}
