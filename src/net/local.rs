//! What the tasks of one worker share, and what all workers share.

use std::{
    cell::{Cell, RefCell},
    ops::Deref,
    rc::Rc,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    task::Waker,
    time::Instant,
};

use crate::{
    engine::{Engine, Waiting, Worker},
    limits::Limits,
};

use super::{
    clock::Clock,
    pool::Pool,
    share::Buffers,
    side::Sides,
    tls::Current,
    wheel::{Slot, Wheel},
};

/// Bytes that one read of a connection without leftover takes at most.
const READ_BYTES: usize = 64 * 1024;

/// How far a server is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It serves.
    Serving,
    /// It accepts no more and ends what runs.
    Draining,
    /// It ends now.
    Ending,
}

/// What all workers share.
pub(super) struct Shared {
    /// The engine.
    pub(super) engine: Arc<Engine>,
    /// When `Now::mono_ms` was 0.
    pub(super) epoch: Instant,
    /// Open connections of all workers.
    pub(super) open: AtomicUsize,
    /// Those of them that speak HTTP/2.
    #[cfg(feature = "grpc")]
    pub(super) http2: Arc<AtomicUsize>,
    /// Buffers that connections hold.
    pub(super) buffers: Buffers,
    /// Connections are accepted with TLS; `None`: as they are.
    pub(super) tls: Option<Current>,
    /// What was still running when `drain_ms` were over.
    pub(super) cut: OnceLock<Waiting>,
    stage: AtomicU8,
    /// How many workers there were in the beginning.
    workers_at_start: usize,
    workers: AtomicUsize,
    /// One for each worker's ticker, and a last one for whoever waits for the end.
    wakers: Mutex<Vec<Waker>>,
}

impl Shared {
    /// For `workers` workers.
    pub(super) fn new(engine: Arc<Engine>, tls: Option<Current>, workers: usize) -> Shared {
        let buffers = Buffers::new(engine.limits(), engine.core.buffers());
        Shared {
            engine,
            epoch: Instant::now(),
            open: AtomicUsize::new(0),
            #[cfg(feature = "grpc")]
            http2: Arc::default(),
            buffers,
            tls,
            cut: OnceLock::new(),
            stage: AtomicU8::new(0),
            workers_at_start: workers.max(1),
            workers: AtomicUsize::new(workers),
            wakers: Mutex::new(vec![Waker::noop().clone(); workers + 1]),
        }
    }

    /// How far the server is.
    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Serving,
            1 => Stage::Draining,
            _ => Stage::Ending,
        }
    }

    /// Moves on, never back, and tells every worker.
    pub(super) fn enter(&self, stage: Stage) {
        if stage >= Stage::Draining {
            self.engine.drain();
        }
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        self.wake_all();
    }

    /// Answers the calls that still wait, and ends the streams that are still open, when their
    /// connections are advanced next.
    pub(super) fn cut(&self) {
        self.cut.get_or_init(|| self.engine.waiting());
        self.engine.cut();
    }

    /// Registers the ticker of a worker, which a new stage wakes.
    pub(super) fn listen(&self, index: usize, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers[index].clone_from(waker);
    }

    /// Registers who is woken by the end of a worker.
    pub(super) fn listen_for_end(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = wakers.last_mut() {
            last.clone_from(waker);
        }
    }

    /// True when one worker is left.
    pub(super) fn has_one_worker(&self) -> bool {
        self.workers.load(Ordering::Acquire) <= 1
    }

    /// Says that a worker has ended.
    pub(super) fn worker_ended(&self) {
        self.workers.fetch_sub(1, Ordering::AcqRel);
        self.wake_all();
    }

    fn wake_all(&self) {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The limits that the driver keeps, at hand.
pub(super) struct Bounds {
    /// See [`Limits`].
    pub(super) connections_max: usize,
    /// See [`Limits`].
    pub(super) output_bytes_max: usize,
    /// See [`Limits`].
    pub(super) write_stall_ms: u64,
    /// See [`Limits`].
    pub(super) write_progress_bytes_min: usize,
    /// See [`Limits`].
    pub(super) linger_ms: u64,
    /// See [`Limits`].
    pub(super) drain_ms: u64,
    /// This worker's part of [`Limits::reuse_bytes_max`] for each kind of buffer: of input, of
    /// output, and the one that is written to.
    pub(super) reuse_bytes_max: usize,
    /// Unconsumed bytes of a connection: a whole request, and one read.
    pub(super) input_bytes_max: usize,
}

impl Bounds {
    /// Gives back what is too large to be kept of a buffer that answers are written to.
    pub(super) fn trim(&self, out: &mut Vec<u8>) {
        if out.capacity() > self.reuse_bytes_max.max(READ_BYTES) {
            *out = Vec::with_capacity(READ_BYTES);
        }
    }
}

/// What a poll of a connection works with; free between polls.
pub(super) struct Desk {
    /// The engine's scratch.
    pub(super) worker: Worker,
    /// What one turn says; empty between turns.
    pub(super) out: Vec<u8>,
    /// Where connections without leftover read.
    pub(super) read: Vec<u8>,
    /// Buffers of connections with leftover.
    pub(super) inputs: Pool,
    /// Buffers of connections whose peer reads slowly.
    pub(super) outputs: Pool,
}

/// What the tasks of one worker share.
pub(super) struct Local {
    /// What all workers share.
    pub(super) shared: Arc<Shared>,
    /// The limits at hand.
    pub(super) bounds: Bounds,
    /// The time.
    pub(super) clock: Clock,
    /// Scratch.
    pub(super) desk: RefCell<Desk>,
    /// Deadlines.
    pub(super) wheel: RefCell<Wheel>,
    /// Our sides of its connections.
    pub(super) sides: Sides,
    /// Open connections of this worker.
    pub(super) open: Cell<usize>,
    planned_ms: Cell<u64>,
    ticker: RefCell<Waker>,
}

impl Local {
    /// For one worker.
    pub(super) fn new(shared: Arc<Shared>, clock: Clock, worker: Worker) -> Local {
        let limits: &Limits = shared.engine.limits();
        let bounds = Bounds {
            connections_max: limits.connections_max,
            output_bytes_max: limits.output_bytes_max,
            write_stall_ms: limits.write_stall_ms,
            write_progress_bytes_min: limits.write_progress_bytes_min,
            linger_ms: limits.linger_ms,
            drain_ms: limits.drain_ms,
            reuse_bytes_max: limits.reuse_bytes_max / (3 * shared.workers_at_start),
            input_bytes_max: limits.head_bytes_max + limits.body_bytes_max + READ_BYTES,
        };
        let desk = Desk {
            worker,
            out: Vec::with_capacity(READ_BYTES),
            read: vec![0; READ_BYTES],
            inputs: Pool::new(bounds.reuse_bytes_max),
            outputs: Pool::new(bounds.reuse_bytes_max),
        };
        let wheel = RefCell::new(Wheel::new(clock.now().mono_ms));
        Local {
            shared,
            bounds,
            clock,
            desk: RefCell::new(desk),
            wheel,
            sides: Sides::default(),
            open: Cell::new(0),
            planned_ms: Cell::new(0),
            ticker: RefCell::new(Waker::noop().clone()),
        }
    }

    /// Sets a connection's deadline, and wakes the ticker if it would sleep past it.
    pub(super) fn arm(&self, slot: Slot, due_ms: u64) {
        if self.wheel.borrow_mut().set(slot, due_ms) && due_ms < self.planned_ms.get() {
            self.planned_ms.set(due_ms);
            self.ticker.borrow().wake_by_ref();
        }
    }

    /// Says until when the ticker sleeps, and how it is woken.
    pub(super) fn plan(&self, until_ms: u64, ticker: &Waker) {
        self.planned_ms.set(until_ms);
        self.ticker.borrow_mut().clone_from(ticker);
    }

    /// Takes a connection's end into account.
    fn connection_ended(&self) {
        self.open.set(self.open.get() - 1);
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        if self.open.get() == 0 && self.shared.stage() != Stage::Serving {
            self.ticker.borrow().wake_by_ref();
        }
    }
}

/// A connection's place among the open ones; dropping it gives the place back.
pub(super) struct Seat(Rc<Local>);

impl Seat {
    /// A place for a connection that was just accepted; `None`: there are `connections_max`.
    pub(super) fn take(local: &Rc<Local>) -> Option<Seat> {
        let open = &local.shared.open;
        if open.fetch_add(1, Ordering::Relaxed) >= local.bounds.connections_max {
            open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        local.open.set(local.open.get() + 1);
        Some(Seat(Rc::clone(local)))
    }

    /// A place for a connection that goes on under another driver, while its first one ends.
    #[cfg(feature = "grpc")]
    pub(super) fn again(&self) -> Seat {
        self.0.shared.open.fetch_add(1, Ordering::Relaxed);
        self.0.open.set(self.0.open.get() + 1);
        Seat(Rc::clone(&self.0))
    }

    /// What the tasks of this worker share.
    #[cfg(feature = "grpc")]
    pub(super) fn local(&self) -> &Rc<Local> {
        &self.0
    }
}

impl Deref for Seat {
    type Target = Local;

    fn deref(&self) -> &Local {
        &self.0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connection_ended();
    }
}
