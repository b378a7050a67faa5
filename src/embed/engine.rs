//! An engine without sockets, for a program that has an HTTP server, or sockets, of its own.
//!
//! Invariants: each worker has a lock, which is held while the engine advances one request or
//! connection, or runs due agents. An agent of the program that is called meanwhile must not enter
//! the engine again. [`HostEngine::open`] bounds the requests and connections that are open at
//! once.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
    time::Instant,
};

use crate::{
    cli::serve::{EngineParts, engine_parts},
    engine::{Cx, Engine, Start, Worker},
    net::{self, HttpClientOptions, KeyFetcher, agent_failure, unix_ms},
    service::{Entropy, Now, Peer},
};

use super::{HostAgent, HostError, HostSettings};

/// The clock and the random bits of a program.
pub trait HostTime: Send + Sync + 'static {
    /// The time. `mono_ms` never goes back.
    fn now(&self) -> Now;

    /// 128 random bits that no peer can guess.
    fn bits(&self) -> u128;
}

/// Random bits of the program, for one worker.
struct HostEntropy(Arc<dyn HostTime>);

impl Entropy for HostEntropy {
    fn bits(&mut self) -> u128 {
        self.0.bits()
    }
}

/// The context for advancing a request or a connection.
pub struct HostCx<'a> {
    /// The worker of the request or connection ([`OpenSlot::worker`]).
    pub worker: usize,
    /// Woken when the engine has more to do.
    pub wake: &'a Waker,
    /// Receives the output, appended.
    pub out: &'a mut Vec<u8>,
    /// Bytes of earlier output that the program has not sent.
    pub unsent: usize,
    /// The peer.
    pub peer: Peer<'a>,
}

/// An engine without sockets.
pub struct HostEngine {
    engine: Arc<Engine>,
    workers: Box<[Mutex<Worker>]>,
    time: Arc<dyn HostTime>,
    next: AtomicUsize,
    open: AtomicUsize,
    /// Wakes the open calls of the program, by the numbers of their slots.
    wakers: Mutex<HashMap<usize, Waker>>,
    /// Fetches the keys of issuers, on a thread of its own.
    _keys: Option<KeyFetcher>,
}

/// A slot for an open request or connection; a drop frees the slot.
pub struct OpenSlot {
    engine: Arc<HostEngine>,
    number: usize,
    has_waker: bool,
}

impl OpenSlot {
    /// The worker that advances the request or connection.
    pub fn worker(&self) -> usize {
        self.number % self.engine.workers.len()
    }

    /// Lets [`HostEngine::cut`] wake a call of the program.
    pub(super) fn wake_at_cut(&mut self, wake: &Waker) {
        self.has_waker = true;
        self.engine.wakers().insert(self.number, wake.clone());
    }
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.engine.open.fetch_sub(1, Ordering::Relaxed);
        if self.has_waker {
            let waker = self.engine.wakers().remove(&self.number);
            // Without the lock: this may drop the program's waker.
            drop(waker);
        }
    }
}

impl HostEngine {
    /// Creates an engine with these settings and agents; the first agent answers at `/`. Webhooks
    /// are not supported.
    ///
    /// # Errors
    /// [`HostError::Server`], in one line.
    pub fn new(
        settings: HostSettings,
        agents: Vec<HostAgent>,
        time: Arc<dyn HostTime>,
    ) -> Result<Arc<HostEngine>, HostError> {
        let agents = agents.into_iter().map(|HostAgent { profile, agent }| (profile, agent));
        let parts = engine_parts(settings, agents.collect()).map_err(HostError::Server)?;
        let EngineParts { mut setup, workers, callers } = parts;
        setup.failures.listener.get_or_insert_with(|| Arc::new(agent_failure));
        let clock = Arc::clone(&time);
        let unix_ms = Arc::new(move || clock.now().unix_ms);
        let start = Start { secret: time.bits(), unix_ms, workers, base_url: String::new() };
        let engine = setup.build(start).map_err(|error| HostError::Server(error.to_string()))?;
        let keys = callers.map(|callers| {
            let clock = Arc::clone(&time);
            let mono_ms = move || clock.now().mono_ms;
            KeyFetcher::start(callers, HttpClientOptions::default(), mono_ms)
        });
        let keys = keys.transpose().map_err(|error| HostError::Server(error.to_string()))?;
        let host = HostEngine::with(engine, workers, time);
        Ok(Arc::new(HostEngine { _keys: keys, ..host }))
    }

    /// The engine of a running server with this many workers, for calls of this process. It has the
    /// clock of the server, and the server's workers run its timers.
    pub(super) fn of_server(
        engine: Arc<Engine>,
        workers: usize,
        time: Arc<dyn HostTime>,
    ) -> Arc<HostEngine> {
        Arc::new(HostEngine::with(engine, workers, time))
    }

    fn with(engine: Arc<Engine>, workers: usize, time: Arc<dyn HostTime>) -> HostEngine {
        let worker = |index| {
            let entropy = Box::new(HostEntropy(Arc::clone(&time)));
            Mutex::new(Worker::new(index, engine.limits(), entropy))
        };
        let workers = (0..workers.max(1)).map(worker).collect();
        let (next, open) = (AtomicUsize::new(0), AtomicUsize::new(0));
        HostEngine { engine, workers, time, next, open, wakers: Mutex::default(), _keys: None }
    }

    /// The engine itself.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The time.
    pub fn now(&self) -> Now {
        self.time.now()
    }

    /// Opens a request or a connection; `None`: `connections_max` are open.
    pub fn open(self: &Arc<Self>) -> Option<OpenSlot> {
        let slot = OpenSlot {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            has_waker: false,
            engine: Arc::clone(self),
        };
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        (before < self.engine.limits().connections_max).then_some(slot)
    }

    fn wakers(&self) -> MutexGuard<'_, HashMap<usize, Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers waiting requests with an error, and ends streams: calls of the program at once,
    /// other requests and connections when they are advanced next.
    pub fn cut(&self) {
        self.engine.cut();
        let wakers: Vec<Waker> = self.wakers().values().cloned().collect();
        // Without the lock: a waker is a function of the program.
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    /// Runs `act` with the worker of a request or connection.
    pub fn with_cx<R>(&self, with: HostCx<'_>, act: impl FnOnce(&mut Cx<'_>) -> R) -> R {
        let HostCx { worker, wake, out, unsent, peer } = with;
        let now = self.now();
        if let Some(agents) = self.engine.agents() {
            agents.note_time(now);
        }
        let worker = &self.workers[worker % self.workers.len()];
        let worker = &mut *worker.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut Cx { engine: &self.engine, worker, now, wake, out, unsent, peer })
    }

    /// Runs due agents and evicts expired tasks. Returns when to call this again, in ms of the
    /// monotonic clock; `wake` is woken when this time becomes earlier.
    pub fn tick(&self, wake: &Waker) -> Option<u64> {
        let tick = |worker: &Mutex<Worker>| {
            let worker = &mut *worker.lock().unwrap_or_else(PoisonError::into_inner);
            self.engine.tick(worker, self.now(), wake)
        };
        self.workers.iter().filter_map(tick).min()
    }
}

/// The clock and the random bits of this machine.
pub struct OwnTime {
    began: Instant,
    entropy: Mutex<Box<dyn Entropy + Send>>,
}

impl OwnTime {
    /// A clock that starts now.
    ///
    /// # Errors
    /// [`HostError::Server`]: the system provides no random bits.
    pub fn new() -> Result<OwnTime, HostError> {
        OwnTime::since(Instant::now())
    }

    /// A clock that started at `began`.
    ///
    /// # Errors
    /// As from [`OwnTime::new`].
    pub fn since(began: Instant) -> Result<OwnTime, HostError> {
        let entropy = net::entropy().map_err(|error| HostError::Server(error.to_string()))?;
        Ok(OwnTime { began, entropy: Mutex::new(entropy) })
    }
}

impl HostTime for OwnTime {
    fn now(&self) -> Now {
        Now { mono_ms: self.began.elapsed().as_millis() as u64, unix_ms: unix_ms() }
    }

    fn bits(&self) -> u128 {
        self.entropy.lock().unwrap_or_else(PoisonError::into_inner).bits()
    }
}
