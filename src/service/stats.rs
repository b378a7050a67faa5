//! What a service counts of the tasks that it keeps.

use crate::model::TaskState;

/// What a service keeps, and has let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceStats {
    /// Tasks by state, in the order of [`TaskState::ALL`].
    pub tasks: [u64; TaskState::ALL.len()],
    /// Bytes of tasks.
    pub bytes: u64,
    /// Finished tasks that have left because of `task_ttl_ms`, `tasks_max` and `store_bytes_max`.
    pub evicted: [u64; 3],
    /// Unfinished tasks that failed because of `unfinished_idle_ms` and `input_required_ttl_ms`.
    pub ended: [u64; 2],
}

impl ServiceStats {
    /// The limits behind [`ServiceStats::evicted`], in its order.
    pub const EVICTED_BY: [&'static str; 3] = ["task_ttl_ms", "tasks_max", "store_bytes_max"];

    /// The limits behind [`ServiceStats::ended`], in its order.
    pub const ENDED_BY: [&'static str; 2] = ["unfinished_idle_ms", "input_required_ttl_ms"];

    /// All tasks.
    pub fn count(&self) -> u64 {
        self.tasks.iter().sum()
    }

    /// Those that have finished, and make room when there must be some.
    pub fn finished(&self) -> u64 {
        let states = TaskState::ALL.iter().zip(self.tasks);
        states.filter(|(state, _)| state.is_terminal()).map(|(_, count)| count).sum()
    }
}
