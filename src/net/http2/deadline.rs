//! When to look again at what waits.

use std::{
    rc::Rc,
    task::{Context, Waker},
};

use crate::net::{
    wheel::{NEVER, TimerSlot},
    worker_state::WorkerState,
};

/// A deadline of whoever polls it, in the worker's wheel; it also hears the end of the server.
pub(super) struct Deadline {
    local: Rc<WorkerState>,
    slot: Option<(TimerSlot, Waker)>,
}

impl Deadline {
    pub(super) fn new(local: &Rc<WorkerState>) -> Deadline {
        Deadline { local: Rc::clone(local), slot: None }
    }

    /// Wakes the caller at `due_ms` of the monotonic clock, and when the server drains.
    pub(super) fn arm(&mut self, cx: &Context<'_>, due_ms: u64) {
        let slot = match &self.slot {
            Some((slot, waker)) if waker.will_wake(cx.waker()) => *slot,
            _ => {
                self.disarm();
                let slot = self.local.wheel.borrow_mut().insert(cx.waker().clone());
                self.slot = Some((slot, cx.waker().clone()));
                slot
            }
        };
        self.local.arm(slot, due_ms);
    }

    fn disarm(&mut self) {
        if let Some((slot, _)) = self.slot.take() {
            self.local.wheel.borrow_mut().remove(slot);
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.disarm();
    }
}

/// The earlier of two deadlines.
pub(super) fn earlier(a: Option<u64>, b: Option<u64>) -> u64 {
    a.unwrap_or(NEVER).min(b.unwrap_or(NEVER))
}
