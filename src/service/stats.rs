//! The counters of a service's tasks.

use crate::model::TaskState;

/// Counts of stored, evicted and failed tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceStats {
    /// Tasks by state, in the order of [`TaskState::ALL`].
    pub tasks: [u64; TaskState::ALL.len()],
    /// Bytes of tasks.
    pub bytes: u64,
    /// Finished tasks that were evicted because of `task_ttl_ms`, `tasks_max`, `store_bytes_max`
    /// and `owners_max`.
    pub evicted: [u64; 4],
    /// Unfinished tasks that failed because of `unfinished_idle_ms` and `input_required_ttl_ms`, or
    /// because the store was full and their owner had used its share.
    pub ended: [u64; 3],
}

impl ServiceStats {
    /// The limits of [`ServiceStats::evicted`], in its order.
    pub const EVICTED_BY: [&'static str; 4] =
        ["task_ttl_ms", "tasks_max", "store_bytes_max", "owners_max"];

    /// The limits of [`ServiceStats::ended`], in its order.
    pub const ENDED_BY: [&'static str; 3] =
        ["unfinished_idle_ms", "input_required_ttl_ms", "owner_share"];

    /// The number of all stored tasks.
    pub fn count(&self) -> u64 {
        self.tasks.iter().sum()
    }

    /// Finished and waiting tasks, which are evicted when space is needed.
    pub fn may_leave(&self) -> u64 {
        let states = TaskState::ALL.iter().zip(self.tasks);
        let may_leave = |state: &TaskState| state.is_terminal() || state.is_interrupted();
        states.filter(|(state, _)| may_leave(state)).map(|(_, count)| count).sum()
    }
}
