//! The state that all connections of a server share, and its lifecycle.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

#[cfg(feature = "push")]
use crate::push::signature::PostSigner;
use crate::{
    binding::ServerConfig,
    engine::Worker,
    limits::Limits,
    op::Agents,
    service::{Now, Service, TickCx, tap::Tap},
};

/// Calls and streams for which clients wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Waiting calls.
    pub calls: usize,
    /// Open streams.
    pub streams: usize,
}

/// The state that all connections of a server share.
pub struct Engine {
    pub(super) service: Arc<dyn Service>,
    pub(super) agents: Option<Agents>,
    /// The signer of posts to webhooks.
    #[cfg(feature = "push")]
    pub(super) webhook_signer: Option<Arc<dyn PostSigner>>,
    pub(super) tap: Option<Arc<dyn Tap>>,
    pub(crate) config: ServerConfig,
    pub(super) draining: AtomicBool,
    pub(super) cut: AtomicBool,
}

impl Engine {
    /// All limits.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// Bytes of the connections' buffers; the driver counts them.
    #[cfg(feature = "net")]
    pub(crate) fn held_bytes(&self) -> &Arc<std::sync::atomic::AtomicUsize> {
        &self.config.shared.held_bytes
    }

    /// The journal hook of tasks: a driver sends output that has a record in
    /// [`Progress`](crate::engine::Progress) only when the record is durable.
    pub fn tap(&self) -> Option<&Arc<dyn Tap>> {
        self.tap.as_ref()
    }

    /// The agents, to change them while the server runs; `None` for a custom service, which has its
    /// own.
    pub fn agents(&self) -> Option<&Agents> {
        self.agents.as_ref()
    }

    /// The service that answers calls.
    pub(crate) fn service(&self) -> &dyn Service {
        &*self.service
    }

    /// Resumes the agents of this worker that are due, and evicts expired tasks.
    ///
    /// Returns when to call `tick` again, in ms of the monotonic clock; wakes `wake` if work is due
    /// earlier.
    pub fn tick(&self, worker: &mut Worker, now: Now, wake: &Waker) -> Option<u64> {
        let scratch = &mut worker.scratch;
        scratch.shrink(now);
        if self.config.large.shrink(now) {
            scratch.note_freed(now);
        }
        let mut cx = TickCx {
            worker: scratch.call.worker,
            now,
            entropy: scratch.call.entropy.as_mut(),
            events: &mut scratch.call.events,
            last_call: &mut scratch.call.last_call,
        };
        self.service.tick(&mut cx, wake)
    }

    /// Starts the shutdown: answers close their connections, and new tasks are refused.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.service.drain();
    }

    /// Answers calls that still wait, and ends open streams, when their connections advance next.
    pub fn cut(&self) {
        self.service.cut();
        self.cut.store(true, Ordering::Relaxed);
    }

    /// True after [`Engine::cut`].
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// True: requests may contain credentials, which must be wiped from memory.
    #[cfg(feature = "net")]
    pub(crate) fn has_secrets(&self) -> bool {
        self.config.access.gate.is_some()
    }

    /// True after [`Engine::drain`].
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The number of waiting calls and open streams.
    pub fn running(&self) -> usize {
        let Waiting { calls, streams } = self.waiting();
        calls + streams
    }

    /// Calls and streams for which clients wait.
    pub fn waiting(&self) -> Waiting {
        Waiting { calls: self.config.waiting.count(), streams: self.config.streams.count() }
    }

    /// Tasks in a non-terminal state, with or without a waiting caller.
    pub fn unfinished_tasks(&self) -> usize {
        self.service.unfinished_tasks()
    }
}
