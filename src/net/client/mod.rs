//! The client's transport over sockets: pools, TLS, both versions of HTTP, proxies and deadlines.
//!
//! Invariants: `client` and h2 implement the protocols; this module moves bytes, and every wait has
//! a deadline. A request with a `User-Agent` over an idle connection of HTTP/1.1 allocates nothing
//! and sets no timer. A request that may have reached its server is never sent again unless the
//! caller allows it.

mod blocking;
mod coding;
mod dial;
mod due;
mod exchange;
mod http2;
mod link;
mod open;
mod options;
mod origins;
mod proxy;
mod response;
mod tls;

use std::{
    future::poll_fn,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    client::{ClientLimits, HttpRequest, HttpVersion, Tick, Transport, TransportError},
    http::{FieldLines, FieldLinesBuf, USER_AGENT, client::ResponseLimits},
    service::{Entropy, Now},
};

use self::{
    due::ClientClock,
    exchange::{ExchangeCx, Http1Exchange},
    http2::Claim,
    link::Link,
    open::{OpenedLink, open},
    origins::{OriginPool, Origins, lock},
    tls::TlsSetup,
};
use super::entropy::Chacha;

pub use blocking::{BlockingClient, BlockingStream};
pub use options::{ConnectGuard, HttpClientError, HttpClientOptions};
pub use proxy::Proxies;
pub use response::HttpClientResponse;
pub use tls::ClientTls;

/// Maximum buffers that are retained for later requests.
const EXCHANGES_RETAINED_MAX: usize = 64;

/// How often a request that the server has not processed is repeated.
const REPEATS_MAX: usize = 2;

/// A client over sockets. Clones share its connections.
///
/// A client belongs to the tokio runtime of its first request, where its idle connections are
/// registered. The runtime must have I/O and timers.
#[derive(Clone)]
pub struct HttpClient {
    state: Arc<ClientState>,
}

/// The state that the clones of a client share.
struct ClientState {
    clock: ClientClock,
    limits: ClientLimits,
    response_limits: ResponseLimits,
    tls: Arc<TlsSetup>,
    proxies: Proxies,
    guard: ConnectGuard,
    /// The field `User-Agent`.
    user_agent: FieldLinesBuf,
    /// The Unix socket over which all origins are reached.
    unix: Option<PathBuf>,
    origins: Arc<Origins>,
    #[allow(
        clippy::vec_box,
        reason = "a response takes an exchange from the pool, and moves only its pointer"
    )]
    exchanges: Mutex<Vec<Box<Http1Exchange>>>,
    entropy: Mutex<Chacha>,
}

impl HttpClient {
    /// Creates a client. Connections are opened and names are resolved only when a request needs
    /// them.
    ///
    /// # Errors
    /// [`HttpClientError`].
    pub fn new(options: HttpClientOptions) -> Result<HttpClient, HttpClientError> {
        HttpClient::make(options, None)
    }

    /// Creates a client of the server at a Unix socket, in plain HTTP, for requests to any origin.
    /// The client uses no guard and no proxy.
    ///
    /// # Errors
    /// [`HttpClientError`].
    pub fn over_unix(
        path: impl Into<PathBuf>,
        options: HttpClientOptions,
    ) -> Result<HttpClient, HttpClientError> {
        HttpClient::make(options, Some(path.into()))
    }

    fn make(
        options: HttpClientOptions,
        unix: Option<PathBuf>,
    ) -> Result<HttpClient, HttpClientError> {
        let HttpClientOptions { limits, tls, proxies, guard, user_agent: value } = options;
        if value.is_empty() || !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(HttpClientError::UserAgent);
        }
        let mut user_agent = FieldLinesBuf::default();
        user_agent.push(USER_AGENT.0, &value);
        let clock = ClientClock::new();
        let state = ClientState {
            clock,
            response_limits: limits.of_response(),
            tls: Arc::new(tls.load()?),
            proxies,
            guard,
            user_agent,
            unix,
            origins: Arc::new(Origins::new(&limits, clock)),
            exchanges: Mutex::default(),
            entropy: Mutex::new(entropy()?),
            limits,
        };
        Ok(HttpClient { state: Arc::new(state) })
    }

    /// A copy of the client for another runtime, with its own connections. No file is read again.
    ///
    /// # Errors
    /// [`HttpClientError::System`].
    #[cfg(feature = "gateway")]
    pub(super) fn apart(&self) -> Result<HttpClient, HttpClientError> {
        let ClientState { clock, limits, tls, proxies, guard, user_agent, unix, .. } = &*self.state;
        let state = ClientState {
            clock: *clock,
            response_limits: limits.of_response(),
            tls: Arc::clone(tls),
            proxies: proxies.clone(),
            guard: guard.clone(),
            user_agent: user_agent.clone(),
            unix: unix.clone(),
            origins: Arc::new(Origins::new(limits, *clock)),
            exchanges: Mutex::default(),
            entropy: Mutex::new(entropy()?),
            limits: limits.clone(),
        };
        Ok(HttpClient { state: Arc::new(state) })
    }

    /// Makes a request as [`Transport::request`] does, but does not decode the content, for a
    /// caller that does not read it.
    ///
    /// # Errors
    /// [`TransportError`], but never `Coding`.
    pub(super) async fn request_undecoded(
        &self,
        mut request: HttpRequest<'_>,
    ) -> Result<HttpClientResponse, TransportError> {
        let state = &self.state;
        let has_user_agent = |(name, _): (&str, _)| name.eq_ignore_ascii_case(USER_AGENT.0);
        if !request.fields.iter().any(has_user_agent) {
            return self.request_with_user_agent(request).await;
        }
        let pool = state.origins.of(request.origin);
        // A connection of HTTP/1.1 has one request at a time. If an idle connection exists, no
        // other connection is needed.
        if request.version != HttpVersion::Http2
            && let Some(link) = state.origins.take(&pool, request.version == HttpVersion::Any)
        {
            match state.request_http1(&pool, link, &request).await {
                // The request is repeated at most once.
                Err(RequestFailure { may_repeat: true, .. }) => request.is_repeatable = false,
                Err(RequestFailure { error, may_repeat: false }) => return Err(error),
                Ok(response) => return Ok(response),
            }
        }
        // Boxed, because this future is rare and large.
        Box::pin(state.open_and_request(&pool, &request)).await
    }

    /// Adds `User-Agent` to a request; boxed, since few requests lack it.
    fn request_with_user_agent<'a>(
        &'a self,
        request: HttpRequest<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<HttpClientResponse, TransportError>> + Send + 'a>> {
        let fields = FieldLinesBuf::of(&[self.state.user_agent.get(), request.fields]);
        Box::pin(async move {
            self.request_undecoded(HttpRequest { fields: fields.get(), ..request }).await
        })
    }
}

/// The random bits of a client.
fn entropy() -> Result<Chacha, HttpClientError> {
    Chacha::new().map_err(|error| HttpClientError::System(error.to_string()))
}

impl Transport for HttpClient {
    type Response = HttpClientResponse;

    async fn request(
        &self,
        request: HttpRequest<'_>,
    ) -> Result<HttpClientResponse, TransportError> {
        self.request_undecoded(request).await?.decoded(&self.state.limits)
    }

    async fn sleep_until(&self, due_ms: u64) {
        while self.state.clock.now_ms() < due_ms {
            tokio::time::sleep_until(self.state.clock.instant(due_ms)).await;
        }
    }

    fn now(&self) -> Now {
        self.state.clock.now()
    }

    fn mono_ms(&self) -> u64 {
        self.state.clock.now_ms()
    }

    fn random(&self) -> u128 {
        lock(&self.state.entropy).bits()
    }

    fn every(&self, ms: u64, mut tick: Tick) {
        let clock = self.state.clock;
        // Outside of a runtime there is no timer.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    if !tick(clock.now_ms()) {
                        return;
                    }
                }
            });
        }
    }
}

/// Why there is no response.
struct RequestFailure {
    error: TransportError,
    /// True: the request may be repeated once, on a new connection.
    may_repeat: bool,
}

impl ClientState {
    /// Makes a request over a connection of HTTP/1.1.
    async fn request_http1(
        self: &Arc<ClientState>,
        pool: &Arc<OriginPool>,
        link: Link,
        request: &HttpRequest<'_>,
    ) -> Result<HttpClientResponse, RequestFailure> {
        let fail = |error| RequestFailure { error, may_repeat: false };
        let mut exchange = self.take_exchange();
        let proxy = link.to_proxy.then(|| self.proxies.of(request.origin)).flatten();
        let proxy = proxy.map_or(FieldLines::NONE, |proxy| proxy.authorization.get());
        exchange.begin(link, request, proxy).map_err(fail)?;
        let (with, due_ms) = (self.exchange_cx(), request.head_due_ms);
        let answered = poll_fn(|cx| exchange.poll_head(cx, request.body, due_ms, with)).await;
        if let Err(error) = answered {
            let is_closed = matches!(error, TransportError::Closed { before_response: true });
            let may_repeat = is_closed && exchange.may_repeat(request.is_repeatable);
            self.give_exchange(exchange);
            return Err(RequestFailure { error, may_repeat });
        }
        Ok(HttpClientResponse::http1(self, pool, exchange, request.body_idle_ms))
    }

    /// Makes a request over a new connection, or over the origin's HTTP/2 connection.
    async fn open_and_request(
        self: &Arc<ClientState>,
        pool: &Arc<OriginPool>,
        request: &HttpRequest<'_>,
    ) -> Result<HttpClientResponse, TransportError> {
        let HttpRequest { origin, version, head_due_ms, .. } = *request;
        let may_be_http2 = match version {
            HttpVersion::Any => origin.is_secure(),
            HttpVersion::Http1 => false,
            HttpVersion::Http2 => true,
        };
        if may_be_http2 && let Some(response) = self.request_http2(pool, request).await? {
            return Ok(response);
        }
        // The server has selected HTTP/1.1, or the request allows only one version.
        let version = if pool.http2.is_http1() { HttpVersion::Http1 } else { version };
        match open(self, origin, version, head_due_ms).await? {
            OpenedLink::Http1(link) => {
                self.request_http1(pool, link, request).await.map_err(|f| f.error)
            }
            OpenedLink::Http2(_) => Err(TransportError::Http2(
                "the server selected HTTP/2, which was not offered".to_owned(),
            )),
        }
    }

    /// Makes a request over the origin's HTTP/2 connection, which may still be opening; `None`: the
    /// server has selected HTTP/1.1.
    async fn request_http2(
        self: &Arc<ClientState>,
        pool: &Arc<OriginPool>,
        request: &HttpRequest<'_>,
    ) -> Result<Option<HttpClientResponse>, TransportError> {
        let HttpRequest { origin, version, head_due_ms, .. } = *request;
        let mut repeats = 0;
        loop {
            let claim = pool.http2.claim(version == HttpVersion::Http2, self.clock.now_ms());
            let claim = async { Ok(claim.await) };
            let mut is_reused = false;
            let sender = match self.clock.within(head_due_ms, "connection", claim).await? {
                Claim::Http1 => return Ok(None),
                Claim::Sender(sender) => {
                    is_reused = true;
                    sender
                }
                Claim::Opens(opening) => match open(self, origin, version, head_due_ms).await? {
                    OpenedLink::Http1(link) => {
                        opening.found_http1();
                        return self
                            .request_http1(pool, link, request)
                            .await
                            .map(Some)
                            .map_err(|f| f.error);
                    }
                    OpenedLink::Http2(link) => {
                        let sender = http2::start(link, &self.limits, self.clock).await?;
                        opening.done(&sender, self.clock.now_ms());
                        self.origins.watch();
                        sender
                    }
                },
            };
            let in_use = sender.in_use();
            // As over HTTP/1.1: a request that the server may have seen is repeated once, and only
            // if the connection was not opened for this request.
            let is_repeatable = request.is_repeatable && is_reused && repeats == 0;
            let request = &HttpRequest { is_repeatable, ..*request };
            match http2::send_request(sender, request, self.clock, &self.limits).await {
                Ok(response) => return Ok(Some(HttpClientResponse::http2(response))),
                Err(failure) => {
                    if failure.is_over {
                        pool.http2.forget(&in_use);
                    }
                    repeats += 1;
                    if !failure.may_repeat || repeats > REPEATS_MAX {
                        return Err(failure.error);
                    }
                }
            }
        }
    }

    /// Takes the buffers for one request.
    fn take_exchange(&self) -> Box<Http1Exchange> {
        lock(&self.exchanges).pop().unwrap_or_default()
    }

    /// Retains buffers for the next request.
    fn give_exchange(&self, mut exchange: Box<Http1Exchange>) {
        exchange.clear();
        let mut exchanges = lock(&self.exchanges);
        if exchanges.len() < EXCHANGES_RETAINED_MAX {
            exchanges.push(exchange);
        }
    }

    /// The context of every exchange.
    fn exchange_cx(&self) -> ExchangeCx<'_> {
        ExchangeCx { clock: self.clock, limits: &self.response_limits }
    }
}
