//! A call that waits for its answer, as the service that gives it finds it again.

use super::{CallLink, Handle, Waiter};
use crate::model::Task;

/// For what a call waits that only looks at a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLook {
    /// For an event behind this one, or for a state in which nothing more comes by itself.
    pub after: u64,
    /// Until then, in ms of the monotonic clock.
    pub due_ms: u64,
    /// True: that time has come, as the poller says, and the call gets the task as it is.
    pub is_due: bool,
}

impl TaskLook {
    /// Whether a task is what the call waits for, or as near to it as it comes.
    pub fn is_answered_by(&self, task: &Task) -> bool {
        let state = task.state();
        self.is_due || task.seq() > self.after || state.is_terminal() || state.is_interrupted()
    }
}

/// A call that waits for its answer.
#[derive(Clone, Debug, Default)]
pub struct WaitHandle {
    /// What it waits for.
    pub handle: Handle,
    /// An interrupted state counts only if it was entered after this event.
    pub after: u64,
    /// At most this many messages of history; `None`: all.
    pub history: Option<u32>,
    /// `Some`: it only looks at the task.
    pub look: Option<TaskLook>,
    /// How it is woken.
    pub waiter: Waiter,
    /// What it shares with the agent that answers it, or wants to know when it leaves.
    pub link: CallLink,
    /// The newest record of the tasks that the answer shows, as in
    /// [`CallCx::record`](super::CallCx::record).
    pub record: u64,
}
