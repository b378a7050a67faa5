//! Checks whether answers and the events of streams are plausible.

use crate::{
    client::{Answer, EventKind, StreamEvent},
    model::{Artifact, Part, TaskEvent, TaskState, TaskView, received::TaskPage},
};

use super::{AgentBehaviour, failure::CallFailure};

/// The state of the checks of one stream.
#[derive(Debug, Default)]
pub(super) struct StreamCheck {
    agent: AgentBehaviour,
    /// The number of changes that the call requested.
    wanted: u64,
    state: Option<TaskState>,
    number: Option<u64>,
    task_id: Vec<u8>,
    context_id: Vec<u8>,
    has_message: bool,
    /// True: the next event begins the stream of an existing task. It may be a snapshot of the
    /// task, which includes all earlier changes.
    joins: bool,
    /// Changes of the task so far, including those before the stream began.
    changes: u64,
    /// True: the task was working when the stream began, so its first change may be missing.
    may_have_one_more: bool,
    /// The number of the newest chunk.
    chunk: u64,
}

impl StreamCheck {
    /// The checks of a new stream of this agent, which must send `wanted` changes.
    pub fn new(agent: AgentBehaviour, wanted: u64) -> StreamCheck {
        StreamCheck { agent, wanted, ..StreamCheck::default() }
    }

    /// Notes that the next event begins a subscription to an existing task.
    pub fn join(&mut self) {
        self.joins = true;
    }

    /// Checks the next event.
    ///
    /// # Errors
    /// The event cannot follow the earlier events.
    pub fn event(&mut self, event: &StreamEvent<'_>) -> Result<(), CallFailure> {
        if let Some(state) = self.state.filter(|state| state.is_terminal()) {
            let why = format!("an event arrived after the task was {}", state.word());
            return Err(CallFailure::wrong("event_after_end", why));
        }
        if self.has_message {
            return Err(CallFailure::wrong("event_after_end", "an event arrived after a message"));
        }
        let joined = std::mem::take(&mut self.joins);
        self.number(event, joined)?;
        self.ids(event)?;
        match event.kind() {
            EventKind::Task(task) => {
                has_words_of(event.v1_json(), "an event")?;
                if joined {
                    self.snapshot(task);
                }
                self.state(task.status().state)
            }
            EventKind::Change { change, .. } => {
                self.changes += 1;
                // Detects a stream without an end.
                if self.agent.counts && self.changes > self.wanted {
                    return self.end();
                }
                match change {
                    TaskEvent::Status { state, .. } => {
                        has_words_of(event.v1_json(), "an event")?;
                        self.state(state)
                    }
                    TaskEvent::Artifact { artifact, .. } => self.chunks(artifact),
                    TaskEvent::UserMessage { .. } => Ok(()),
                }
            }
            EventKind::Gap { .. } => Ok(()),
            EventKind::Message(_) => {
                self.has_message = true;
                Ok(())
            }
        }
    }

    /// Checks that all requested changes have arrived.
    ///
    /// # Errors
    /// The number of changes is wrong.
    pub fn end(&self) -> Result<(), CallFailure> {
        let (changes, wanted) = (self.changes, self.wanted);
        let is_right = changes == wanted || self.may_have_one_more && changes + 1 == wanted;
        if !self.agent.counts || is_right {
            return Ok(());
        }
        let kind = if changes < wanted { "events_lost" } else { "too_many_events" };
        Err(CallFailure::wrong(kind, format!("{changes} events arrived instead of {wanted}")))
    }

    /// Checks that event numbers increase by one. A subscription may begin with a snapshot of the
    /// task that has the number of its newest event.
    fn number(&mut self, event: &StreamEvent<'_>, joined: bool) -> Result<(), CallFailure> {
        let is_snapshot = joined && matches!(event.kind(), EventKind::Task(_));
        let Some(number) = event.number() else {
            return match self.number.filter(|_| !is_snapshot) {
                None => Ok(()),
                Some(before) => {
                    let why = format!("event ids do not increase after {before}");
                    Err(CallFailure::wrong("event_repeated", why))
                }
            };
        };
        if let Some(before) = self.number.replace(number)
            && number != before + 1
            && !(is_snapshot && number >= before)
        {
            let kind = if number > before { "sequence_gap" } else { "event_repeated" };
            return Err(CallFailure::wrong(
                kind,
                format!("event {number} arrived after event {before}"),
            ));
        }
        Ok(())
    }

    /// Checks that all events are about one task of one context.
    fn ids(&mut self, event: &StreamEvent<'_>) -> Result<(), CallFailure> {
        let (task_id, context_id) = match event.kind() {
            EventKind::Task(task) => (task.id(), task.context_id()),
            EventKind::Change { task_id, context_id, .. } => (task_id, context_id),
            EventKind::Message(_) | EventKind::Gap { .. } => return Ok(()),
        };
        if !is_same(&mut self.task_id, task_id.raw()) {
            return Err(CallFailure::wrong("other_task", "an event belongs to another task"));
        }
        if !is_same(&mut self.context_id, context_id.raw()) {
            return Err(CallFailure::wrong("other_context", "an event belongs to another context"));
        }
        Ok(())
    }

    /// Counts the changes in a snapshot of the task; each chunk is one part.
    fn snapshot(&mut self, task: TaskView<'_>) {
        let state = task.status().state;
        let chunks = task.artifacts().map(|artifact| artifact.parts().count() as u64).sum();
        let has_begun = chunks > 0 || state.is_terminal();
        // Some agents set the state to working before they send the change.
        self.may_have_one_more = !has_begun && state != TaskState::Submitted;
        self.changes = u64::from(has_begun) + chunks + u64::from(state.is_terminal());
        self.chunk = chunks;
    }

    /// Checks a state against the previous state (A2A 1.0 §4.1.3): a task never returns to
    /// submitted.
    fn state(&mut self, state: TaskState) -> Result<(), CallFailure> {
        let returns_to_submitted = state == TaskState::Submitted
            && self.state.is_some_and(|before| before != TaskState::Submitted);
        if state == TaskState::Unspecified || returns_to_submitted {
            let before = self.state.map_or("nothing", TaskState::word);
            let why = format!("the state {} arrived after {before}", state.word());
            return Err(CallFailure::wrong("illegal_state", why));
        }
        self.state = Some(state);
        Ok(())
    }

    /// Checks the chunks of an event: the text of each chunk begins with its number.
    fn chunks(&mut self, artifact: Artifact<'_>) -> Result<(), CallFailure> {
        if !self.agent.numbers {
            return Ok(());
        }
        for part in artifact.parts() {
            let (before, number) = (self.chunk, chunk_number(part).unwrap_or_default());
            self.chunk = number;
            if number != before + 1 {
                let kind = if number > before { "chunk_missing" } else { "chunk_repeated" };
                let why = format!("chunk {number} arrived after chunk {before}");
                return Err(CallFailure::wrong(kind, why));
            }
        }
        Ok(())
    }
}

/// Whether an id equals the first id; an empty id is unknown.
fn is_same(seen: &mut Vec<u8>, id: &[u8]) -> bool {
    if seen.is_empty() {
        seen.extend_from_slice(id);
        return true;
    }
    id.is_empty() || seen == id
}

/// The number of a chunk: its text begins with `chunk N`.
pub(super) fn chunk_number(part: Part<'_>) -> Option<u64> {
    let text = part.as_text()?;
    let digits = text.raw().strip_prefix(b"chunk ")?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// Checks that JSON of 1.0 uses the state names of 1.0 (A2A 1.0 §4.1.3), because the client also
/// accepts other names. Empty JSON passes.
fn has_words_of(v1_json: &[u8], what: &str) -> Result<(), CallFailure> {
    if v1_json.is_empty() || memchr::memmem::find(v1_json, b"\"TASK_STATE_").is_some() {
        return Ok(());
    }
    let why = format!("the state of {what} is not written as in A2A 1.0");
    Err(CallFailure::wrong("other_generation", why))
}

/// Checks that the task of an answer has the format of its generation.
///
/// # Errors
/// The task has another format.
pub(super) fn is_of_generation(answer: &Answer) -> Result<(), CallFailure> {
    match answer.task() {
        Some(_) => has_words_of(answer.v1_json(), "the answer"),
        None => Ok(()),
    }
}

/// Checks that a later read of a task returns the state in which its call ended.
///
/// # Errors
/// The answer has no task, or the task has another state.
pub(super) fn is_read_again(
    answer: &Answer,
    ended_as: TaskState,
    text: Option<&str>,
) -> Result<(), CallFailure> {
    is_of_generation(answer)?;
    let state = answer.state().unwrap_or(TaskState::Unspecified);
    if ended_as.is_terminal() && state != ended_as {
        let why = format!("the task had ended as {} and is now {}", ended_as.word(), state.word());
        return Err(CallFailure::wrong("illegal_state", why));
    }
    if matches!(state, TaskState::Submitted | TaskState::Working | TaskState::Unspecified) {
        let why = format!("the task had ended and is {} when read", state.word());
        return Err(CallFailure::wrong("illegal_state", why));
    }
    match text {
        Some(text) if !has_text(answer, text) => {
            let why = format!("the task does not contain the sent text {text:.40}");
            Err(CallFailure::wrong("other_answer", why))
        }
        _ => Ok(()),
    }
}

/// Checks that a page has at most `wanted` tasks, and no task twice.
///
/// # Errors
/// The page has too many tasks, or duplicates.
pub(super) fn is_page(page: TaskPage<'_>, wanted: u32) -> Result<(), CallFailure> {
    let mut ids: Vec<&[u8]> = page.tasks().map(|(task, _)| task.id().raw()).collect();
    if ids.len() > wanted as usize {
        let why = format!("the page has {} tasks, more than the {wanted} requested", ids.len());
        return Err(CallFailure::wrong("page_too_long", why));
    }
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => {
            let why = format!("the page has the task {} twice", String::from_utf8_lossy(pair[0]));
            Err(CallFailure::wrong("task_repeated", why))
        }
    }
}

/// Whether an answer contains this text: in an artifact, or in the message, also of the status.
pub(super) fn has_text(answer: &Answer, text: &str) -> bool {
    let is_it = |part: Part<'_>| part.as_text().is_some_and(|own| own == text);
    if let Some(message) = answer.message() {
        return message.parts().any(is_it);
    }
    let Some(task) = answer.task() else { return false };
    task.artifacts().any(|artifact| artifact.parts().any(is_it))
        || task.status().message.is_some_and(|message| message.parts().any(is_it))
}
