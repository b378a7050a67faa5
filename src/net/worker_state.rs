//! The state that the tasks of one worker share; and the permit of each open connection.

use std::{
    cell::{Cell, RefCell},
    net::IpAddr,
    ops::Deref,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::Waker,
};

use crate::{engine::Worker, limits::Limits, service::Now};

use super::{
    clock::{Clock, HeldUp},
    local_addr::LocalAddrs,
    peer_table::{PeerEntry, PeerKey},
    pool::Pool,
    server_state::{ServerState, Stage},
    wheel::{TimerSlot, Wheel},
};

/// Maximum bytes of one read on a connection without unconsumed input.
const READ_BYTES: usize = 64 * 1024;

/// Copies of the limits that the driver uses.
pub(super) struct DriverLimits {
    /// See [`Limits`].
    pub(super) output_bytes_max: usize,
    /// See [`Limits`].
    pub(super) write_stall_ms: u64,
    /// See [`Limits`].
    pub(super) write_progress_bytes_min: usize,
    /// See [`Limits`].
    pub(super) linger_ms: u64,
    /// This worker's part of [`Limits::reuse_bytes_max`] for each kind of buffer: input buffers,
    /// output buffers, and the answer buffer.
    pub(super) reuse_bytes_max: usize,
    /// Maximum unconsumed bytes of a connection: a whole request, and one read.
    pub(super) input_bytes_max: usize,
}

impl DriverLimits {
    /// Frees the excess capacity of the answer buffer.
    pub(super) fn trim(&self, out: &mut Vec<u8>) {
        if out.capacity() > self.reuse_bytes_max.max(READ_BYTES) {
            *out = Vec::with_capacity(READ_BYTES);
        }
    }
}

/// The memory that a poll of a connection uses; unused between polls.
pub(super) struct WorkerScratch {
    /// The engine's scratch.
    pub(super) worker: Worker,
    /// The output of one poll; empty between polls.
    pub(super) out: Vec<u8>,
    /// The read buffer of connections without unconsumed input.
    pub(super) read: Vec<u8>,
    /// Buffers of connections with unconsumed input.
    pub(super) inputs: Pool,
    /// Buffers of connections with slow readers.
    pub(super) outputs: Pool,
}

/// The state that the tasks of one worker share.
pub(super) struct WorkerState {
    /// Number of the worker, from 0.
    pub(super) worker: usize,
    /// The state that all workers share.
    pub(super) server: Arc<ServerState>,
    /// The copied limits.
    pub(super) bounds: DriverLimits,
    /// The time.
    pub(super) clock: Clock,
    /// Scratch.
    pub(super) scratch: RefCell<WorkerScratch>,
    /// Deadlines.
    pub(super) wheel: RefCell<Wheel>,
    /// Our sides of the worker's connections.
    pub(super) local_addrs: LocalAddrs,
    /// Open connections of this worker.
    pub(super) open: Cell<usize>,
    planned_ms: Cell<u64>,
    ticker: RefCell<Waker>,
}

impl WorkerState {
    /// The state of one worker.
    pub(super) fn new(server: Arc<ServerState>, clock: Clock, worker: Worker) -> WorkerState {
        let limits: &Limits = server.engine.limits();
        let bounds = DriverLimits {
            output_bytes_max: limits.output_bytes_max,
            write_stall_ms: limits.write_stall_ms,
            write_progress_bytes_min: limits.write_progress_bytes_min,
            linger_ms: limits.linger_ms,
            reuse_bytes_max: limits.reuse_bytes_max / (3 * server.workers_at_start),
            input_bytes_max: limits.head_bytes_max + limits.largest_body_bytes() + READ_BYTES,
        };
        let scratch = WorkerScratch {
            worker,
            out: Vec::with_capacity(READ_BYTES),
            read: vec![0; READ_BYTES],
            inputs: Pool::new(bounds.reuse_bytes_max).wiping(server.engine.has_secrets()),
            outputs: Pool::new(bounds.reuse_bytes_max),
        };
        let wheel = RefCell::new(Wheel::new(clock.now().mono_ms));
        WorkerState {
            worker: scratch.worker.scratch.call.worker,
            server,
            bounds,
            clock,
            scratch: RefCell::new(scratch),
            wheel,
            local_addrs: LocalAddrs::default(),
            open: Cell::new(0),
            planned_ms: Cell::new(0),
            ticker: RefCell::new(Waker::noop().clone()),
        }
    }

    /// The only worker of a server at `http://t`.
    #[cfg(test)]
    pub(super) fn for_test(
        setup: crate::engine::Setup,
        runtime: &tokio::runtime::Runtime,
    ) -> Rc<WorkerState> {
        let base_url = "http://t".to_owned();
        let start =
            crate::service::Start { secret: 1, unix_ms: Arc::new(|| 0), workers: 1, base_url };
        let server = Arc::new(ServerState::new(setup.build(start).unwrap(), None, 1, None));
        let stale = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let clock = Clock::new(std::time::Instant::now(), stale, runtime.metrics());
        let entropy = Box::new(super::entropy::Chacha::new().unwrap());
        let worker = Worker::new(0, server.engine.limits(), entropy);
        Rc::new(WorkerState::new(server, clock, worker))
    }

    /// The time, at most a few polls old, for a call of an agent.
    #[inline]
    pub(super) fn now(&self) -> Now {
        let now = self.clock.now();
        self.look_back(now);
        now
    }

    /// Reports an agent that has blocked the worker before this reading of the clock.
    #[inline]
    pub(super) fn look_back(&self, now: Now) {
        if let Some(held_up) = self.clock.held_up() {
            self.held_up(held_up, now);
        }
    }

    #[cold]
    fn held_up(&self, HeldUp { since_ms, ms }: HeldUp, now: Now) {
        let Ok(scratch) = self.scratch.try_borrow() else { return };
        let agent = scratch.worker.called_since(since_ms);
        drop(scratch);
        if let Some(agent) = agent {
            self.server.slow_turns.report(&self.server.engine, agent, ms, now.mono_ms);
        }
    }

    /// Sets a connection's deadline, and wakes the ticker if the ticker would sleep longer.
    pub(super) fn arm(&self, slot: TimerSlot, due_ms: u64) {
        if self.wheel.borrow_mut().set(slot, due_ms) && due_ms < self.planned_ms.get() {
            self.planned_ms.set(due_ms);
            self.ticker.borrow().wake_by_ref();
        }
    }

    /// Notes until when the ticker sleeps, and its waker.
    pub(super) fn plan(&self, until_ms: u64, ticker: &Waker) {
        self.planned_ms.set(until_ms);
        self.ticker.borrow_mut().clone_from(ticker);
    }

    /// Notes the end of a connection.
    fn connection_ended(&self) {
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 && self.server.stage() != Stage::Serving {
            self.ticker.borrow().wake_by_ref();
        }
    }
}

/// The permit of an open connection; dropping it returns the slot.
pub(super) struct ConnectionPermit {
    local: Rc<WorkerState>,
    /// `None`: another driver has the connection.
    entry: Option<PeerEntry>,
}

impl ConnectionPermit {
    /// Takes a slot for a new connection from this address; `None`: `connections_max` connections
    /// are open, and none of these can be ended.
    pub(super) fn take(local: &Rc<WorkerState>, address: IpAddr) -> Option<ConnectionPermit> {
        let server = &local.server;
        let remote = Some(address.to_canonical());
        let accepted = server.connections.accept(server.peer_of(address), remote);
        if accepted.as_ref().is_none_or(|accepted| accepted.evicts) {
            server.refused(local.worker, "connections_max");
        }
        let entry = Some(accepted?.entry);
        server.counts.accepted.fetch_add(1, Ordering::Relaxed);
        local.open.set(local.open.get() + 1);
        Some(ConnectionPermit { local: Rc::clone(local), entry })
    }

    /// Takes a slot for a connection to `--admin`; `remote` is the address of the peer, if it has
    /// one. `None`: `admin_connections_max` connections are open.
    pub(super) fn take_admin(
        local: &Rc<WorkerState>,
        remote: Option<IpAddr>,
    ) -> Option<ConnectionPermit> {
        let remote = remote.map(|address| address.to_canonical());
        let connections = &local.server.admin_connections;
        let Some(accepted) = connections.accept(PeerKey::UNKNOWN, remote) else {
            local.server.refused(local.worker, "admin_connections_max");
            return None;
        };
        Some(ConnectionPermit { local: Rc::clone(local), entry: Some(accepted.entry) })
    }

    /// Moves the connection to another driver.
    pub(super) fn hand_over(&mut self) -> ConnectionPermit {
        ConnectionPermit { local: Rc::clone(&self.local), entry: self.entry.take() }
    }

    /// The entry in the table of connections.
    pub(super) fn entry(&self) -> Option<&PeerEntry> {
        self.entry.as_ref()
    }

    /// The address of the peer; `None`: a Unix socket, or another driver has the connection.
    #[inline]
    pub(super) fn remote(&self) -> Option<IpAddr> {
        self.entry.as_ref()?.remote()
    }

    /// True: the connection has to end now, to free its slot for another connection.
    #[inline]
    pub(super) fn is_ending(&self) -> bool {
        self.entry.as_ref().is_some_and(PeerEntry::is_ending)
    }

    /// The state that the tasks of this worker share.
    #[cfg(feature = "grpc")]
    pub(super) fn local(&self) -> &Rc<WorkerState> {
        &self.local
    }
}

impl Deref for ConnectionPermit {
    type Target = WorkerState;

    fn deref(&self) -> &WorkerState {
        &self.local
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let is_open = entry.is_in(&self.local.server.connections);
        drop(entry);
        if is_open {
            self.local.connection_ended();
        }
    }
}
