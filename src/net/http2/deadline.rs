//! Deadlines of waiting calls.

use std::{
    rc::Rc,
    task::{Context, Waker},
};

use crate::net::{
    wheel::{NEVER, TimerSlot},
    worker_state::WorkerState,
};

/// A deadline in the worker's wheel. It wakes the task that polls it, also when the server drains.
#[derive(Default)]
pub(super) struct Deadline(Option<Armed>);

/// A timer in the wheel.
struct Armed {
    local: Rc<WorkerState>,
    slot: TimerSlot,
    waker: Waker,
}

impl Deadline {
    /// Wakes the task of `cx` at `due_ms` of the monotonic clock, and when the server drains.
    pub(super) fn arm(&mut self, cx: &Context<'_>, local: &Rc<WorkerState>, due_ms: u64) {
        let slot = match &self.0 {
            Some(armed) if armed.waker.will_wake(cx.waker()) => armed.slot,
            _ => {
                // The old timer is removed before a new one is inserted.
                self.0 = None;
                let (local, waker) = (Rc::clone(local), cx.waker().clone());
                let slot = local.wheel.borrow_mut().insert(waker.clone());
                self.0 = Some(Armed { local, slot, waker });
                slot
            }
        };
        local.arm(slot, due_ms);
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.local.wheel.borrow_mut().remove(self.slot);
    }
}

/// The earlier of two deadlines.
pub(super) fn earlier(a: Option<u64>, b: Option<u64>) -> u64 {
    a.unwrap_or(NEVER).min(b.unwrap_or(NEVER))
}
