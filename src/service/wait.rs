//! The handle of a waiting call, by which its service finds it again.

use super::{CallLink, Handle, Waiter};
use crate::model::Task;

/// The condition of a call that only reads a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLook {
    /// It waits for an event after this one, or for a state in which the task does not continue by
    /// itself.
    pub after: u64,
    /// The deadline in ms of the monotonic clock.
    pub due_ms: u64,
    /// True: the poller has seen the deadline pass, and the call gets the task as it is.
    pub is_due: bool,
}

impl TaskLook {
    /// Whether the call need not wait any longer for this task.
    pub fn is_answered_by(&self, task: &Task) -> bool {
        let state = task.state();
        self.is_due || task.seq() > self.after || state.is_terminal() || state.is_interrupted()
    }
}

/// A waiting call.
#[derive(Clone, Debug, Default)]
pub struct WaitHandle {
    /// The task or call that it waits for.
    pub handle: Handle,
    /// An interrupted state counts only if it was entered after this event.
    pub after: u64,
    /// At most this many messages of history; `None`: all.
    pub history: Option<u32>,
    /// `Some`: it only reads the task.
    pub look: Option<TaskLook>,
    /// How it is woken.
    pub waiter: Waiter,
    /// The state shared with the agent that answers it, or that is notified when it leaves.
    pub link: CallLink,
    /// The newest record of the tasks that the answer shows, as in
    /// [`CallCx::record`](super::CallCx::record).
    pub record: u64,
}
