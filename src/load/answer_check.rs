//! Whether the events of a stream can be true.

use crate::{
    client::{EventKind, StreamEvent},
    model::{TaskEvent, TaskState},
};

use super::failure::CallFailure;

/// What was seen of one stream.
#[derive(Debug, Default)]
pub(super) struct StreamCheck {
    state: Option<TaskState>,
    number: Option<u64>,
    task_id: Vec<u8>,
    has_message: bool,
}

impl StreamCheck {
    /// Checks the next event.
    ///
    /// # Errors
    /// It cannot follow those before it.
    pub fn event(&mut self, event: &StreamEvent<'_>) -> Result<(), CallFailure> {
        if let Some(state) = self.state.filter(|state| state.is_terminal()) {
            let why = format!("an event came after the task was {}", state.word());
            return Err(CallFailure::wrong("event_after_end", why));
        }
        if self.has_message {
            return Err(CallFailure::wrong("event_after_end", "an event came after a message"));
        }
        if let (Some(before), Some(number)) = (self.number, event.number())
            && number != before + 1
        {
            let why = format!("event {number} came after event {before}");
            return Err(CallFailure::wrong("sequence_gap", why));
        }
        self.number = event.number().or(self.number);
        if let Some(id) = event.task_id() {
            if self.task_id.is_empty() {
                self.task_id.extend_from_slice(id.raw());
            } else if self.task_id != id.raw() {
                return Err(CallFailure::wrong("other_task", "an event is of another task"));
            }
        }
        match event.kind() {
            EventKind::Task(task) => self.state(task.status().state),
            EventKind::Change { change: TaskEvent::Status { state, .. }, .. } => self.state(state),
            EventKind::Change { .. } | EventKind::Gap { .. } => Ok(()),
            EventKind::Message(_) => {
                self.has_message = true;
                Ok(())
            }
        }
    }

    /// Checks a state against the one before it (A2A 1.0 §4.1.3): nothing goes back to submitted.
    fn state(&mut self, state: TaskState) -> Result<(), CallFailure> {
        let goes_back = state == TaskState::Submitted
            && self.state.is_some_and(|before| before != TaskState::Submitted);
        if state == TaskState::Unspecified || goes_back {
            let before = self.state.map_or("nothing", TaskState::word);
            let why = format!("the state {} came after {before}", state.word());
            return Err(CallFailure::wrong("illegal_state", why));
        }
        self.state = Some(state);
        Ok(())
    }
}
