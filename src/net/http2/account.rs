//! The memory of one connection: its calls and their answers, with the bytes that wait in h2.
//!
//! No new call starts while more than `output_bytes_max` and `answer_bytes_max` together of answers
//! wait: calls wait until enough bytes were sent or dropped. A call is refused if it has waited for
//! `write_stall_ms` and no call could start in this time. Waiting bytes of streams do not count
//! towards this limit, because a slowly read stream would block all calls.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::Waker,
};

use crate::net::{server_state::ServerState, share::Share};

/// The share of a connection; several parts of the connection add bytes to it.
pub(super) struct Account {
    server: Arc<ServerState>,
    share: Mutex<Share>,
    waker: Waker,
    /// Bytes of answers that wait in h2, which are counted in the share as well.
    unsent: AtomicUsize,
    unsent_max: usize,
    /// The time since which more than `unsent_max` bytes wait, if they do.
    full_since_ms: AtomicU64,
    /// The wakers of calls that wait for room, and of some that no longer wait.
    waiting: Mutex<Vec<Waker>>,
    waiting_max: usize,
}

impl Account {
    /// Creates the account of a connection; `waker` wakes the connection.
    pub(super) fn new(server: &Arc<ServerState>, waker: Waker) -> Account {
        let limits = server.engine.limits();
        let unsent_max = limits.output_bytes_max + limits.answer_bytes_max;
        // Twice the number of calls that can wait: in a full list, at least half of the wakers
        // belong to calls that have ended.
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

    /// Counts an answer of `bytes`; returns the same as [`Account::charge`].
    #[must_use]
    pub(super) fn charge_answer(&self, bytes: usize, now_ms: u64) -> bool {
        let before = self.unsent.fetch_add(bytes, Relaxed);
        if before <= self.unsent_max && before + bytes > self.unsent_max {
            self.full_since_ms.store(now_ms, Relaxed);
        }
        self.charge(0, bytes, now_ms)
    }

    /// Stops counting an answer.
    pub(super) fn give_back_answer(&self, bytes: usize) {
        self.give_back(bytes);
        let before = self.unsent.fetch_sub(bytes, Relaxed);
        if before > self.unsent_max && before - bytes <= self.unsent_max {
            std::mem::take(&mut *self.waiting()).into_iter().for_each(Waker::wake);
        }
    }

    /// True: a call may start; otherwise `waker` is woken when a call may start. Answers are
    /// released only on the thread of their connection, so none is released between the check and
    /// the registration.
    pub(super) fn may_begin(&self, waker: &Waker) -> bool {
        if self.unsent.load(Relaxed) <= self.unsent_max {
            return true;
        }
        let mut waiting = self.waiting();
        if waiting.iter().any(|other| other.will_wake(waker)) {
            return false;
        }
        if waiting.len() >= self.waiting_max {
            // Calls that still wait register again; the other wakers only held memory.
            waiting.drain(..).for_each(Waker::wake);
        }
        waiting.push(waker.clone());
        false
    }

    /// The deadline of a call that began at this time and waits for room.
    pub(super) fn waits_until_ms(&self, began_ms: u64) -> u64 {
        began_ms.max(self.full_since_ms.load(Relaxed)) + self.server.engine.limits().write_stall_ms
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts `held` bytes of a part of the connection instead of `before`. False: this part must
    /// be dropped, and the connection as well if it is cut.
    #[must_use]
    pub(super) fn charge(&self, before: usize, held: usize, now_ms: u64) -> bool {
        let mut share = self.lock();
        let all = share.held() + held - before;
        self.server.buffers.charge(&mut share, all, now_ms, &self.waker)
    }

    /// Stops counting `before` bytes.
    pub(super) fn give_back(&self, before: usize) {
        // A connection that was cut detects this when it is polled.
        let mut share = self.lock();
        let all = share.held() - before;
        self.server.buffers.shrink(&mut share, all);
    }

    /// True: the connection had the largest cost and must end.
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
