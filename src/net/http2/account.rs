//! What one connection holds: its calls, their answers, and what of them waits in h2.
//!
//! While answers of more than `output_bytes_max` and `answer_bytes_max` together wait, none of its
//! calls is begun: they wait until enough has left, or was given up. One that waited for
//! `write_stall_ms`, in which there was no room to begin any call, is refused. What waits of
//! streams is not counted there: one that is read slowly would hold up all calls.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::Waker,
};

use crate::net::{server_state::ServerState, share::Share};

/// The share of a connection, to which bytes are added in several places.
pub(super) struct Account {
    server: Arc<ServerState>,
    share: Mutex<Share>,
    waker: Waker,
    /// Bytes of answers that wait in h2, which are counted in the share as well.
    unsent: AtomicUsize,
    unsent_max: usize,
    /// Since when there are more of them, if there are.
    full_since_ms: AtomicU64,
    /// The calls that wait until there are fewer, and some that do not wait any more.
    waiting: Mutex<Vec<Waker>>,
    waiting_max: usize,
}

impl Account {
    /// Of a connection that `waker` wakes.
    pub(super) fn new(server: &Arc<ServerState>, waker: Waker) -> Account {
        let limits = server.engine.limits();
        let unsent_max = limits.output_bytes_max + limits.answer_bytes_max;
        // Twice as many as can wait: of a full list at least half are calls that have left.
        let waiting_max = 2 * limits.http2_streams_max;
        let (share, waiting) = (Mutex::default(), Mutex::default());
        Account {
            server: Arc::clone(server),
            share,
            waker,
            unsent: AtomicUsize::new(0),
            unsent_max,
            full_since_ms: AtomicU64::new(0),
            waiting,
            waiting_max,
        }
    }

    /// Counts an answer of `bytes` as [`Account::charge`] does.
    #[must_use]
    pub(super) fn charge_answer(&self, bytes: usize, now_ms: u64) -> bool {
        let before = self.unsent.fetch_add(bytes, Relaxed);
        if before <= self.unsent_max && before + bytes > self.unsent_max {
            self.full_since_ms.store(now_ms, Relaxed);
        }
        self.charge(0, bytes, now_ms)
    }

    /// Counts an answer no longer.
    pub(super) fn give_back_answer(&self, bytes: usize) {
        self.give_back(bytes);
        let before = self.unsent.fetch_sub(bytes, Relaxed);
        if before > self.unsent_max && before - bytes <= self.unsent_max {
            std::mem::take(&mut *self.waiting()).into_iter().for_each(Waker::wake);
        }
    }

    /// True: a call may begin; otherwise `waker` is woken when it may. Answers are given back on
    /// the thread of their connection, this one: none leaves between the look and the note.
    pub(super) fn lets_begin(&self, waker: &Waker) -> bool {
        if self.unsent.load(Relaxed) <= self.unsent_max {
            return true;
        }
        let mut waiting = self.waiting();
        if waiting.iter().any(|other| other.will_wake(waker)) {
            return false;
        }
        if waiting.len() >= self.waiting_max {
            // Those that still wait come back here; the others held memory for nothing.
            waiting.drain(..).for_each(Waker::wake);
        }
        waiting.push(waker.clone());
        false
    }

    /// Until when a call of this time waits that may not begin.
    pub(super) fn waits_until_ms(&self, began_ms: u64) -> u64 {
        began_ms.max(self.full_since_ms.load(Relaxed)) + self.server.engine.limits().write_stall_ms
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts `held` bytes of one of its parts instead of `before`; false: that part must go, and
    /// the connection with it if it is cut.
    #[must_use]
    pub(super) fn charge(&self, before: usize, held: usize, now_ms: u64) -> bool {
        let mut share = self.lock();
        let all = share.held() + held - before;
        self.server.buffers.charge(&mut share, all, now_ms, &self.waker)
    }

    /// Counts `before` bytes no longer.
    pub(super) fn give_back(&self, before: usize) {
        // A connection that was cut learns it where it is driven.
        let mut share = self.lock();
        let all = share.held() - before;
        self.server.buffers.shrink(&mut share, all);
    }

    /// True: the connection had taken most and must go.
    pub(super) fn is_cut(&self) -> bool {
        self.lock().is_cut()
    }

    fn lock(&self) -> MutexGuard<'_, Share> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let share = self.share.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.server.buffers.release(share);
    }
}
