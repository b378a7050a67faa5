//! An agent under load: its client, its behaviour, and a run against it.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use peregrine::{
    client::{CallOptions, Client, SendRequest, Transport, retry::Backoff},
    load::{
        AgentBehaviour, LoadOperation, LoadPlan, LoadRun, LoadedTarget, PayloadSize, PlannedCall,
        ProbedTransport, WebhookTarget,
    },
    net::{HttpClient, HttpClientOptions},
};

use super::{
    super::{
        calls::{CalledAgent, Invocation, explained, http_options},
        eprint,
        failure::{CommandFailure, FailureCode},
        warn,
    },
    flags::{self, BenchPlan},
    internal,
    live::LiveView,
    shown::ShownRun,
};

/// Interval of the progress lines.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Interval of the live view's updates.
const VIEW_EVERY: Duration = Duration::from_millis(250);
/// Time limit of the first calls, which detect the agent's behaviour.
const FIRST_CALLS: Duration = Duration::from_secs(30);
/// Bytes of a JSON-RPC envelope.
const ENVELOPE_BYTES: usize = 38;

/// An agent under load.
pub struct BenchTarget<'i> {
    on: &'i Invocation<'i>,
    agent: CalledAgent,
    url: String,
    interface: String,
    behaviour: AgentBehaviour,
    pid: Option<u32>,
    webhooks: Option<WebhookTarget>,
    is_live: bool,
}

/// The address of an agent.
#[derive(Clone, Copy, Debug)]
pub struct TargetAddress<'u> {
    /// The URL of the agent, or another reference to it.
    pub url: &'u str,
    /// The id of its process, if the process is on this machine.
    pub pid: Option<u32>,
}

impl<'i> BenchTarget<'i> {
    /// Reads the agent's card and makes a few calls, so that errors show before the load hides
    /// them.
    ///
    /// # Errors
    /// A [`CommandFailure`]: the agent cannot be called, or does not do what the plan needs.
    pub async fn of(
        on: &'i Invocation<'i>,
        at: TargetAddress<'_>,
        bench: &BenchPlan<'_>,
    ) -> Result<BenchTarget<'i>, CommandFailure> {
        let TargetAddress { url, pid } = at;
        let agent = match on.settings.text("endpoint") == Some(url) {
            true => CalledAgent::of(on).await?,
            false => CalledAgent::at(on, url).await?,
        };
        let calls = || bench.phases.iter().flat_map(|plan| &plan.calls);
        let seen = AgentBehaviour::of(&agent.client, calls());
        let seen = tokio::time::timeout(FIRST_CALLS, seen).await.map_err(|_| {
            let line = format!("the agent did not respond within {FIRST_CALLS:?}");
            CommandFailure::new(FailureCode::Timeout, line)
        })?;
        let behaviour = seen.map_err(|error| explained(on, error))?;
        can_do(calls(), behaviour)?;
        let interface = agent.client.interface();
        let interface = format!("{} {}", interface.binding.word(), interface.version);
        let has_push = calls().any(|call| call.operation == LoadOperation::Push);
        Ok(BenchTarget {
            on,
            agent,
            url: url.to_owned(),
            interface,
            behaviour,
            pid,
            webhooks: bench.webhooks.clone().filter(|_| has_push),
            is_live: bench.is_live,
        })
    }

    /// Bytes of the answer to a message of this plan.
    ///
    /// # Errors
    /// A [`CommandFailure`]: the agent does not answer.
    pub async fn answer_bytes(&self, plan: &LoadPlan) -> Result<usize, CommandFailure> {
        let bytes = match plan.calls.first().map(|call| call.payload) {
            None => 1,
            Some(PayloadSize::Fixed(bytes)) => bytes,
            Some(PayloadSize::Uniform(least, most)) => least.midpoint(most),
            Some(PayloadSize::LogNormal { median, .. }) => median as usize,
        };
        let request = SendRequest::text("x".repeat(bytes.max(1)).as_str());
        let answer = self.agent.client.send(&request).await;
        let answer = answer.map_err(|error| explained(self.on, error))?;
        Ok(answer.raw_json().map_or(0, <[u8]>::len) + ENVELOPE_BYTES)
    }

    /// Runs a plan and shows its progress. Ctrl-C ends the run early; `None`: before the calls
    /// began.
    ///
    /// # Errors
    /// A [`CommandFailure`]: no threads, sockets or clients are available.
    pub async fn load(&self, plan: &LoadPlan) -> Result<Option<LoadedTarget>, CommandFailure> {
        let plan = LoadPlan { agent: self.behaviour, ..plan.clone() };
        let options = CallOptions {
            is_strict: true,
            call_ms: plan.call_timeout.as_millis() as u64,
            backoff: Backoff { attempts_max: 1, ..Backoff::default() },
            ..CallOptions::default()
        };
        let base = http_options(&self.on.settings)?;
        let http = HttpClientOptions { limits: flags::limits(&plan), ..base };
        let client = self.agent.client.clone();
        let maker = move || worker_client(&client, &http, &options);
        // On a separate thread, so that Ctrl-C is handled while tasks are created.
        let (done, started) = tokio::sync::oneshot::channel();
        let (of_thread, pid, webhooks) = (plan.clone(), self.pid, self.webhooks.clone());
        let thread = std::thread::Builder::new().name("load-start".to_owned());
        let spawned = thread.spawn(move || {
            // The receiver may have been dropped.
            let _ = done.send(LoadRun::start(&of_thread, maker, pid, webhooks));
        });
        spawned.map_err(|error| internal(format!("cannot start the runtime: {error}")))?;
        let (mut started, mut interrupted) = (pin!(started), pin!(end_signal()));
        let started = poll_fn(|cx| match interrupted.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => started.as_mut().poll(cx).map(Some),
        });
        let Some(started) = started.await else { return Ok(None) };
        let started = started.map_err(|_| internal("a worker thread ended early".to_owned()))?;
        let mut run = started.map_err(internal)?;
        let title = format!("{} · {} · {}", self.url, self.interface, plan.name);
        let view = if self.is_live { LiveView::open() } else { None };
        watch(&mut run, ShownRun::new(title), view).await;
        run.finish(&self.url, &self.interface).map(Some).map_err(internal)
    }
}

/// Whether an agent can do what these calls need.
fn can_do<'p>(
    mut calls: impl Iterator<Item = &'p PlannedCall>,
    behaviour: AgentBehaviour,
) -> Result<(), CommandFailure> {
    match calls.find(|call| call.operation.needs_hold() && !behaviour.holds) {
        None => Ok(()),
        Some(call) => {
            let name = call.operation.name();
            let line = format!(
                "{name} needs an agent that delays a task by MS milliseconds for the text hold:MS:N"
            );
            let code = FailureCode::Protocol("UnsupportedOperationError".to_owned());
            let failure = CommandFailure::new(code, line);
            Err(failure.hint("docs/bench.md has the contract and agents that implement it"))
        }
    }
}

/// Waits for the end of a run and shows its progress.
async fn watch(run: &mut LoadRun, mut shown: ShownRun, mut view: Option<LiveView>) {
    let mut interrupted = pin!(end_signal());
    let mut updated_at: Option<Instant> = None;
    while !run.is_over() {
        let mut pause = pin!(tokio::time::sleep(Duration::from_millis(50)));
        let is_interrupted = poll_fn(|cx| match interrupted.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => pause.as_mut().poll(cx).map(|()| false),
        });
        if is_interrupted.await || view.as_ref().is_some_and(LiveView::is_ended_by_user) {
            run.stop();
            drop(view);
            return warn("interrupted: the report covers the calls made so far");
        }
        run.sample_when_due();
        match &mut view {
            Some(view) => {
                if updated_at.is_none_or(|updated_at| updated_at.elapsed() >= VIEW_EVERY) {
                    updated_at = Some(Instant::now());
                    shown.update(run);
                    view.show(&shown);
                }
            }
            None => {
                if updated_at.get_or_insert_with(Instant::now).elapsed() >= LINE_EVERY {
                    updated_at = Some(Instant::now());
                    shown.update(run);
                    eprint(&shown.line());
                }
            }
        }
    }
}

/// Waits for Ctrl-C, or another signal that ends a process.
async fn end_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
        poll_fn(|cx| {
            let is_sent = signals.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if is_sent { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// The client of one worker, with its own connections.
fn worker_client<T: Transport>(
    client: &Client<T>,
    http: &HttpClientOptions,
    options: &CallOptions,
) -> Result<Client<ProbedTransport<HttpClient>>, String> {
    let inner = HttpClient::new(http.clone()).map_err(|error| error.to_string())?;
    Ok(client.over(ProbedTransport { inner }, options.clone()))
}
