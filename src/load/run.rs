//! A run: its threads, its progress, and its end.

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, mpsc},
    task::Poll,
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use tokio::net::TcpListener;

use crate::{
    client::{Client, Transport},
    net::descriptors,
};

use super::{
    LoadMeasures, LoadOperation, LoadPlan, LoadProgress, LoadWorker, ProbedTransport,
    ProcessSample, SharedMeasures, SystemClock, WebhookReceiver, WorkerSetup,
};

/// How often processes are sampled.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// The receiver of webhooks.
#[derive(Clone, Debug)]
pub struct WebhookTarget {
    /// The local address on which the receiver listens; with several workers its port must be 0.
    pub listen: SocketAddr,
    /// The URL by which the server reaches the receiver; `None`: the local address.
    pub url: Option<String>,
}

impl WebhookTarget {
    async fn bind(&self) -> io::Result<(WebhookReceiver, TcpListener)> {
        WebhookReceiver::bind(self.listen, self.url.as_deref()).await
    }
}

/// A run in progress.
pub struct LoadRun {
    plan: LoadPlan,
    shared: Vec<Arc<SharedMeasures>>,
    threads: Vec<JoinHandle<Result<(), String>>>,
    start: Instant,
    started_at: SystemTime,
    pid: Option<u32>,
    own: Vec<ProcessSample>,
    server: Vec<ProcessSample>,
    is_interrupted: bool,
}

/// The results of a run against one target.
#[derive(Clone, Debug)]
pub struct LoadedTarget {
    /// The URL of the target, as the user named it.
    pub url: String,
    /// The called interface, such as `JSON-RPC 1.0`.
    pub interface: String,
    /// The plan.
    pub plan: LoadPlan,
    /// The results.
    pub measures: LoadMeasures,
    /// The start of the run.
    pub started_at: SystemTime,
    /// Time during which calls were counted.
    pub counted: Duration,
    /// The time from which the samples count.
    pub start: Instant,
    /// Samples of the generator.
    pub own: Vec<ProcessSample>,
    /// Samples of the server; empty: unknown.
    pub server: Vec<ProcessSample>,
    /// True: the user ended the run early.
    pub is_interrupted: bool,
}

impl LoadedTarget {
    /// Joins consecutive runs into one, with the results of each run while calls were counted.
    pub fn joined(rounds: Vec<LoadedTarget>) -> Option<LoadedTarget> {
        let mut rounds = rounds.into_iter();
        let mut all = rounds.next()?;
        let counted = |target: &LoadedTarget| {
            let slice_ns = target.measures.slice.as_nanos() as u64;
            let from = target.plan.warmup_ns().div_ceil(slice_ns);
            from as usize..(target.plan.end_ns() / slice_ns) as usize
        };
        let (range, first) = (counted(&all), std::mem::take(&mut all.measures.slices));
        all.measures.slices = first.into_iter().take(range.end).skip(range.start).collect();
        for round in rounds {
            let range = counted(&round);
            all.counted += round.counted;
            append_samples(&mut all.own, round.own);
            append_samples(&mut all.server, round.server);
            all.measures.append(round.measures, range);
        }
        // With a replay the plan remains: each round replays the whole recording, which determines
        // the rate.
        if all.plan.replay.is_none() {
            all.plan.warmup = Duration::ZERO;
            all.plan.duration = all.counted;
        }
        Some(all)
    }
}

impl LoadRun {
    /// Starts the threads of a plan. `client` builds a client of a worker, in the runtime of that
    /// worker. `pid`: the process of the server, if it is on this machine. `webhooks`: the receiver
    /// of the server's posts; without it, calls of `push` fail.
    ///
    /// # Errors
    /// The system has no resources, a client cannot be built, or the tasks to read cannot be
    /// created.
    pub fn start<T: Transport + 'static>(
        plan: &LoadPlan,
        client: impl Fn() -> Result<Client<ProbedTransport<T>>, String> + Send + Sync + 'static,
        pid: Option<u32>,
        webhooks: Option<WebhookTarget>,
    ) -> Result<LoadRun, String> {
        let plan = &within_descriptors(plan);
        let client = Arc::new(client);
        let (ready, is_ready) = mpsc::channel();
        let (mut shared, mut threads, mut starters) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..plan.threads() {
            let measures = SharedMeasures::new(plan);
            shared.push(Arc::clone(&measures));
            let (starter, start) = mpsc::channel::<Instant>();
            starters.push(starter);
            let (client, ready) = (Arc::clone(&client), ready.clone());
            let (plan, webhooks) = (plan.clone(), webhooks.clone());
            let thread = LoadThread { plan, index, measures, webhooks, ready, start };
            let name = format!("load-{index}");
            let thread =
                thread::Builder::new().name(name).spawn(move || thread.work(client.as_ref()));
            threads.push(thread.map_err(no_room)?);
        }
        drop(ready);
        if is_ready.iter().take(threads.len()).count() < threads.len() {
            drop(starters);
            let failed = threads.into_iter().filter_map(|thread| thread.join().ok()?.err());
            return Err(failed.last().unwrap_or_else(|| "a worker thread ended early".to_owned()));
        }
        let start = Instant::now();
        for starter in &starters {
            // A thread that has already ended returns its error at the end of the run.
            let _ = starter.send(start);
        }
        let mut run = LoadRun {
            plan: plan.clone(),
            shared,
            threads,
            start,
            started_at: SystemTime::now(),
            pid,
            own: Vec::new(),
            server: Vec::new(),
            is_interrupted: false,
        };
        run.sample();
        Ok(run)
    }

    /// The results so far.
    fn measures(&self) -> LoadMeasures {
        let length = self.plan.warmup + self.plan.duration;
        let mut all = LoadMeasures::new(self.plan.calls.len(), length);
        self.shared.iter().for_each(|shared| all.add(&shared.lock()));
        all
    }

    /// The progress, with the time slices from `from` on.
    pub fn progress(&self, from: usize) -> LoadProgress {
        let mut all = LoadProgress::default();
        self.shared.iter().for_each(|shared| all.add(&shared.lock(), from));
        all
    }

    /// The plan.
    pub fn plan(&self) -> &LoadPlan {
        &self.plan
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> u64 {
        self.shared.iter().map(|shared| shared.in_flight()).sum()
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether every worker has ended.
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Samples the processes if a sample is due; callers call it often.
    pub fn sample_when_due(&mut self) {
        let last = self.own.last().map_or(self.start, |sample| sample.at);
        if last.elapsed() >= SAMPLE_EVERY {
            self.sample();
        }
    }

    /// Ends the run now.
    pub fn stop(&mut self) {
        self.is_interrupted = true;
        self.shared.iter().for_each(|shared| shared.stop());
    }

    /// Waits for the end of the run and returns the results.
    ///
    /// # Errors
    /// The failure of a worker.
    pub fn finish(mut self, url: &str, interface: &str) -> Result<LoadedTarget, String> {
        while !self.is_over() {
            thread::sleep(Duration::from_millis(5));
            self.sample_when_due();
        }
        let counted = self.start.elapsed().saturating_sub(self.plan.warmup);
        // There may be no due call between the last call and the end of the plan.
        let is_whole = self.plan.is_open() && self.plan.requests_max.is_none();
        let counted = match is_whole && !self.is_interrupted {
            true => self.plan.duration,
            false => counted.min(self.plan.duration),
        };
        self.sample();
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| "a worker thread panicked".to_owned())??;
        }
        Ok(LoadedTarget {
            url: url.to_owned(),
            interface: interface.to_owned(),
            measures: self.measures(),
            counted,
            is_interrupted: self.is_interrupted,
            plan: self.plan,
            started_at: self.started_at,
            start: self.start,
            own: self.own,
            server: self.server,
        })
    }

    fn sample(&mut self) {
        self.own.extend(ProcessSample::own());
        self.server.extend(self.pid.and_then(ProcessSample::of));
    }
}

/// Appends the samples of a later round as if the round had followed at once: resources used
/// between rounds belong to no round.
fn append_samples(samples: &mut Vec<ProcessSample>, later: Vec<ProcessSample>) {
    let (Some(last), Some(first)) = (samples.last().cloned(), later.first().cloned()) else {
        samples.extend(later);
        return;
    };
    samples.extend(later.into_iter().map(|sample| ProcessSample {
        at: last.at + sample.at.saturating_duration_since(first.at),
        cpu_ns: last.cpu_ns + sample.cpu_ns.saturating_sub(first.cpu_ns),
        ..sample
    }));
}

/// One thread of a run.
struct LoadThread {
    plan: LoadPlan,
    index: usize,
    measures: Arc<SharedMeasures>,
    webhooks: Option<WebhookTarget>,
    /// Signals that the thread can begin.
    ready: mpsc::Sender<()>,
    /// Receives the start time; closed without a start time if another thread has failed.
    start: mpsc::Receiver<Instant>,
}

impl LoadThread {
    /// Runs this thread's part of the plan. `client` builds a client.
    fn work<T: Transport + 'static>(
        self,
        client: &dyn Fn() -> Result<Client<ProbedTransport<T>>, String>,
    ) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(no_room)?.block_on(async {
            let LoadThread { plan, index, measures: shared, webhooks, ready, start } = self;
            let own = plan.connections.div_ceil(plan.threads()).max(1);
            let clients = (0..own).map(|_| client()).collect::<Result<Vec<_>, String>>()?;
            let prepared = LoadWorker::<_, SystemClock>::prepare(&clients[0], &plan).await?;
            let _ = ready.send(());
            drop(ready);
            let Ok(start) = start.recv() else { return Ok(()) };
            let clock = SystemClock::new(start).map_err(no_room)?;
            let (webhooks, listener) = match webhooks {
                Some(target) => target.bind().await.map(|(one, other)| (Some(one), Some(other))),
                None => Ok((None, None)),
            }
            .map_err(no_room)?;
            let plan = &plan;
            let setup = WorkerSetup { clients, clock, start, plan, index, shared, webhooks };
            let worker = LoadWorker::new(setup);
            let serve = async {
                match (worker.receiver(), listener) {
                    (Some(receiver), Some(listener)) => receiver.serve(listener).await,
                    _ => std::future::pending().await,
                }
            };
            let (mut serve, mut run) = (pin!(serve), pin!(worker.run(prepared)));
            poll_fn(|cx| {
                let _: Poll<()> = serve.as_mut().poll(cx);
                run.as_mut().poll(cx)
            })
            .await;
            Ok(())
        })
    }
}

/// Reduces the plan's calls in flight to the available descriptors: each stream may need its own
/// connection. The limit of the process is raised as far as allowed.
fn within_descriptors(plan: &LoadPlan) -> LoadPlan {
    let streams = plan.calls.iter().map(|call| match call.operation {
        LoadOperation::Subscribe => call.subscribers,
        _ => 1,
    });
    let streams = streams.max().unwrap_or(1).max(1);
    let wanted = plan.in_flight_max.max(1);
    let room = descriptors::connections(wanted.saturating_mul(streams), plan.threads());
    LoadPlan { in_flight_max: (room / streams).clamp(1, wanted), ..plan.clone() }
}

fn no_room(error: io::Error) -> String {
    format!("cannot start the runtime: {error}")
}
