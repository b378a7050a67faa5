//! Many events at once, and how much memory they may take.
//!
//! The list has the form of the log already, so it joins it by one copy; what is near a limit goes
//! the careful way, event by event.

use super::{Chain, Task, TaskLimits};
use crate::model::event::{EventBuf, TaskEvent};

impl Task {
    /// Heap bytes that applying `event` may add at most.
    pub fn growth(&self, event: &TaskEvent<'_>) -> usize {
        let is_full = self.artifacts.len() == self.artifacts.capacity();
        let chains = match event {
            TaskEvent::Artifact { .. } if is_full => {
                2 * self.artifacts.capacity() * size_of::<Chain>()
            }
            TaskEvent::Artifact { .. } | TaskEvent::Turn { .. } | TaskEvent::Status { .. } => 0,
        };
        self.log_growth(Task::cost(event)) + chains
    }

    /// A vector grows to twice its size or to what is needed.
    fn log_growth(&self, more: usize) -> usize {
        let (held, need) = (self.log.capacity(), self.log.len() + more);
        if need > held { held.max(need - held) } else { 0 }
    }

    /// Makes the log long enough for one more event and no longer.
    pub fn make_room(&mut self, event: &TaskEvent<'_>) {
        self.log.reserve_exact(Task::cost(event));
    }

    /// Applies the first events of a list at once, as [`Task::apply`] would one by one.
    ///
    /// Returns how many, and whether a status was among them: none where the list as a whole comes
    /// near a limit, fewer than all where one of them is refused. The rest is for `apply`.
    pub fn apply_at_once(&mut self, events: &EventBuf, limits: &TaskLimits) -> (usize, bool) {
        let bytes = events.bytes();
        if self.state.is_terminal()
            || self.log.len() + bytes.len() > limits.bytes_max
            || self.may_squeeze(bytes.len(), events.len() as u64, limits)
        {
            return (0, false);
        }
        let (mut at, status_at) = (self.log.len(), self.status_at);
        self.log.extend_from_slice(bytes);
        let mut applied = 0;
        while !self.state.is_terminal()
            && let Some(end) = self.enter(at, limits)
        {
            at = end;
            applied += 1;
        }
        self.log.truncate(at);
        (applied, self.status_at != status_at)
    }

    /// Heap bytes that [`Task::apply_at_once`] may add at most.
    pub fn growth_at_once(&self, events: &EventBuf) -> usize {
        let chains = self.artifacts.len() + events.artifacts();
        let is_full = events.artifacts() > 0 && chains > self.artifacts.capacity();
        self.log_growth(events.bytes_len())
            + if is_full { chains.next_power_of_two() * size_of::<Chain>() } else { 0 }
    }

    /// Gives back log memory that nothing will fill; call it when no event is expected soon.
    pub fn fit(&mut self) {
        self.log.shrink_to_fit();
    }
}
