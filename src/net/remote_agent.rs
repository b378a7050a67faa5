//! Agents of other servers: the gateway's futures over the client's transport.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::runtime::Builder;

use super::{
    HttpClient, HttpClientError, HttpClientOptions,
    adopted_tasks::AdoptedTasks,
    async_agent::{FutureSlot, run_future, start_future},
    clock::monotonic_ns,
    owner_permits::OwnerPermits,
    turn_queue::TurnQueue,
    upstream_card::{CardRevision, UpstreamCard},
    worker_clients::WorkerClients,
};
use crate::{
    agent::{Adopted, Agent, CancelRequest, Deferred, RequestInfo, Turn},
    client::{
        Client, ClientBuilder, ClientError, HttpOrigin, TransportError, card::AgentCard,
        credentials::Secret,
    },
    fault::Fault,
    gateway::{self, RelayedCall, UpstreamTasks},
    limits::{AGENT_TURNS_QUEUED_MAX, UPSTREAM_CALLS_MAX, UPSTREAM_STREAMS_MAX},
    service::upstream::UpstreamMeter,
};

/// An agent that passes its messages to a remote A2A agent.
///
/// Each message becomes one call of the upstream agent, and the answer becomes a task of this
/// server or a direct message. The agent runs only under [`Server`](super::Server).
pub struct RemoteAgent {
    upstream: Arc<Upstream>,
    calls: Arc<TurnQueue>,
    streams: OwnerPermits,
    adopted: AdoptedTasks,
}

/// Limits of one remote agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// Maximum number of concurrent calls without the beginning of an answer.
    pub calls_max: usize,
    /// Maximum number of messages that wait for their call; the next message is refused (-32000,
    /// `turns_queued_max`).
    pub queue_max: usize,
    /// Maximum number of answers and tasks that the gateway follows, at most half of them for one
    /// caller; the next message is refused (-32000, `upstream_streams_max`).
    pub streams_max: usize,
}

impl Default for UpstreamLimits {
    fn default() -> UpstreamLimits {
        UpstreamLimits {
            calls_max: UPSTREAM_CALLS_MAX,
            queue_max: AGENT_TURNS_QUEUED_MAX,
            streams_max: UPSTREAM_STREAMS_MAX,
        }
    }
}

/// The upstream agent, and a client for each worker.
struct Upstream {
    url: String,
    /// Clones share one OAuth token.
    builder: ClientBuilder,
    /// The template for the workers' transports.
    transport: HttpClient,
    card: UpstreamCard,
    clients: WorkerClients<CardClient>,
    tasks: UpstreamTasks,
    /// True: calls name the tenants of the callers.
    passes_tenant: AtomicBool,
    meter: Arc<UpstreamMeter>,
}

/// A client, and the revision of its card.
#[derive(Clone)]
struct CardClient {
    made_of: u64,
    client: Client<HttpClient>,
}

impl RemoteAgent {
    /// The agent at `url`: its origin, or the URL of its card. No request is sent before the first
    /// message.
    ///
    /// With [`Credentials::passes_authorization`](crate::client::credentials::Credentials) the
    /// `Authorization` of callers is passed on, if the agent's profile names that field.
    ///
    /// # Errors
    /// [`HttpClientError`]: no client can be created with these options.
    pub fn new(
        url: impl Into<String>,
        builder: ClientBuilder,
        options: HttpClientOptions,
    ) -> Result<RemoteAgent, HttpClientError> {
        let url = url.into();
        let origin = HttpOrigin::parse(&url).ok().map(|url| url.origin.to_string());
        let tasks = UpstreamTasks::of(&url);
        let upstream = Upstream {
            url,
            builder: builder.share_tokens(),
            transport: HttpClient::new(options)?,
            card: UpstreamCard::new(),
            clients: WorkerClients::default(),
            tasks,
            passes_tenant: AtomicBool::new(false),
            meter: UpstreamMeter::new(origin, monotonic_ns),
        };
        let agent = RemoteAgent {
            upstream: Arc::new(upstream),
            calls: TurnQueue::new(1, 0),
            streams: OwnerPermits::new(0),
            adopted: AdoptedTasks::default(),
        };
        Ok(agent.limits(UpstreamLimits::default()))
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(self, limits: UpstreamLimits) -> RemoteAgent {
        let UpstreamLimits { calls_max, queue_max, streams_max } = limits;
        let (calls, streams) =
            (TurnQueue::new(calls_max, queue_max), OwnerPermits::new(streams_max));
        RemoteAgent { calls, streams, ..self }
    }

    /// Passes the tenant of each caller to the upstream agent, instead of the tenant in the client
    /// or the card, which is used for callers without a tenant. An upstream agent before A2A 1.0
    /// has no tenants: callers with a tenant are refused (`UnsupportedOperation`).
    #[must_use]
    pub fn pass_tenant(self) -> RemoteAgent {
        self.upstream.passes_tenant.store(true, Relaxed);
        self
    }
}

/// The card of the upstream agent.
impl RemoteAgent {
    /// Reads the card again every `ms` milliseconds. The default is the lifetime from the card's
    /// server (`Cache-Control`; at least one minute), or 5 min without a lifetime.
    #[must_use]
    pub fn card_every(self, ms: u64) -> RemoteAgent {
        self.upstream.card.set_every(ms);
        self
    }

    /// The last readable card, which determines how messages are sent; `None`: no card was read
    /// yet.
    pub fn card(&self) -> Option<Arc<AgentCard>> {
        self.upstream.card.last().map(|last| Arc::clone(last.cached.card()))
    }

    /// Whether the card must be read again.
    pub fn is_card_due(&self) -> bool {
        self.upstream.card.is_due()
    }

    /// Reads the card if it has changed. This blocks, and must not be called inside of a runtime.
    /// True: messages are sent with another card from now on.
    ///
    /// # Errors
    /// [`ClientError`]: no usable card was read within 5 s; the last card stays in use.
    pub fn refresh_card(&self) -> Result<bool, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| TransportError::Io(error.to_string()))?;
        runtime.block_on(self.read_card())
    }

    /// Like [`RemoteAgent::refresh_card`], for use inside of a runtime.
    ///
    /// # Errors
    /// The errors of [`RemoteAgent::refresh_card`].
    pub async fn read_card(&self) -> Result<bool, ClientError> {
        let (upstream, transport) = (&self.upstream, self.upstream.transport.apart()?);
        let before = upstream.card.revision();
        let read = upstream.card.read(&upstream.builder, &transport, &upstream.url).await?;
        Ok(read.number != before)
    }
}

impl Upstream {
    /// The client for a call on behalf of `request`, with the request's `Authorization`, if the
    /// credentials of the agent allow this, and with the request's tenant.
    async fn client_for(&self, request: &RequestInfo) -> Result<Client<HttpClient>, ClientError> {
        let mut client = self.client().await?;
        let is_plain = |value: &&str| value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if let Some(value) = request.header("authorization").filter(is_plain) {
            client = client.with_authorization(Secret::new(value));
        }
        match request.tenant().filter(|_| self.passes_tenant.load(Relaxed)) {
            Some(tenant) => Ok(client.with_tenant(tenant)),
            None => Ok(client),
        }
    }

    /// The client of the worker, created from the last card; if there is no card yet, it is read
    /// first.
    async fn client(&self) -> Result<Client<HttpClient>, ClientError> {
        let (revision, own) = (self.card.revision(), self.clients.own());
        match own {
            Some(own) if own.made_of == revision => Ok(own.client),
            // Boxed, since few messages need a new client.
            own => Box::pin(self.make_client(own)).await,
        }
    }

    async fn make_client(
        &self,
        before: Option<CardClient>,
    ) -> Result<Client<HttpClient>, ClientError> {
        let transport = match before {
            Some(before) => before.client.transport().clone(),
            None => self.transport.apart()?,
        };
        let CardRevision { number, cached } = match self.card.last() {
            Some(last) => last,
            None => self.card.read(&self.builder, &transport, &self.url).await?,
        };
        let client = self.builder.clone().connect_cached(transport, cached)?;
        self.clients.keep(CardClient { made_of: number, client: client.clone() });
        Ok(client)
    }
}

impl Agent for RemoteAgent {
    fn start(&self, turn: Turn<'_>) {
        let Some(stream) = self.streams.permit(turn.request.scope.owner) else {
            self.upstream.meter.refuse();
            return turn.refuse(Fault::at_limit("upstream_streams_max"));
        };
        let Some(queued) = self.calls.enter(turn.request.scope.owner) else {
            self.upstream.meter.refuse();
            return turn.refuse(Fault::at_limit("turns_queued_max"));
        };
        let upstream = Arc::clone(&self.upstream);
        let logged = upstream.meter.log(turn.request.headers.fields);
        start_future(turn, |deferred: Deferred| {
            let counted = upstream.meter.message().logged(logged);
            async move {
                let _stream = stream;
                let Some(permit) = queued.permit(deferred.canceled()).await else { return };
                let mut call = RelayedCall::new(permit, counted);
                match upstream.client_for(deferred.request()).await {
                    Ok(client) => gateway::relay(&client, deferred, &upstream.tasks, call).await,
                    Err(error) => {
                        call.end(gateway::outcome_of(&error));
                        deferred.refuse(gateway::fault_of(&error));
                    }
                }
            }
        });
    }

    fn adopt(&self, task: Adopted) {
        // Without a permit for another stream the task fails.
        let Some(stream) = self.streams.permit(task.request().scope().owner) else { return };
        let upstream = Arc::clone(&self.upstream);
        self.adopted.run(move || async move {
            let _stream = stream;
            let mut call = upstream.meter.resume();
            match upstream.client_for(task.request()).await {
                Ok(client) => gateway::adopt(&client, task, &upstream.tasks, call).await,
                Err(error) => {
                    call.end(gateway::outcome_of(&error));
                    let text = gateway::fault_of(&error).message().to_owned();
                    // On an error the task has already ended.
                    let _ = task.into_job().fail(&text);
                }
            }
        });
    }

    fn cancel(&self, cancel: CancelRequest<'_>) {
        let agent = cancel.request.scope.agent;
        let Some(slot) = FutureSlot::take() else {
            return cancel.refuse("the server has no room for the call (async_futures_max)");
        };
        let logged = self.upstream.meter.log(cancel.request.headers.fields);
        // On an error there was no room, and the server has answered the client.
        let Ok(deferred) = cancel.defer() else { return };
        let upstream = Arc::clone(&self.upstream);
        run_future(agent, slot, async move {
            let mut call = upstream.meter.cancel().logged(logged);
            // Uses the credential of this request, never that of the message.
            match upstream.client_for(deferred.request()).await {
                Ok(client) => gateway::cancel(&client, deferred, &upstream.tasks, call).await,
                Err(error) => {
                    call.end(gateway::outcome_of(&error));
                    deferred.refuse(gateway::fault_of(&error).message().to_owned());
                }
            }
        });
    }

    fn upstream(&self) -> Option<Arc<UpstreamMeter>> {
        Some(Arc::clone(&self.upstream.meter))
    }
}
