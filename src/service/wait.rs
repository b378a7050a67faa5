//! The handle of a waiting call, by which its service finds the call.

use super::{CallLink, Handle, Waiter};
use crate::model::Task;

/// The condition of a call that only reads a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLook {
    /// The call waits for an event after this one, or for a terminal or interrupted state.
    pub after: u64,
    /// The deadline in ms of the monotonic clock.
    pub due_ms: u64,
    /// True: the deadline has passed, and the call is answered with the current task.
    pub is_due: bool,
}

impl TaskLook {
    /// Whether the call can be answered with this task.
    pub fn is_answered_by(&self, task: &Task) -> bool {
        let state = task.state();
        self.is_due || task.seq() > self.after || state.is_terminal() || state.is_interrupted()
    }
}

/// A waiting call.
#[derive(Clone, Debug, Default)]
pub struct WaitHandle {
    /// The task or call for which the call waits.
    pub handle: Handle,
    /// An interrupted state counts only if it was entered after this event.
    pub after: u64,
    /// At most this many messages of history; `None`: all.
    pub history: Option<u32>,
    /// `Some`: the call only reads the task.
    pub look: Option<TaskLook>,
    /// Wakes the waiting call.
    pub waiter: Waiter,
    /// The link to the agent that answers the call, or is notified when the caller disconnects.
    pub link: CallLink,
    /// The newest record of the tasks that the answer shows, as in
    /// [`CallCx::record`](super::CallCx::record).
    pub record: u64,
}
