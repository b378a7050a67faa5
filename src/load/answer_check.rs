//! Whether answers, and the events of a stream, can be true.

use crate::{
    client::{Answer, EventKind, StreamEvent},
    model::{Artifact, Part, TaskEvent, TaskState, TaskView, received::TaskPage},
};

use super::{AgentBehaviour, failure::CallFailure};

/// What was seen of one stream.
#[derive(Debug, Default)]
pub(super) struct StreamCheck {
    agent: AgentBehaviour,
    /// Changes that were asked for.
    wanted: u64,
    state: Option<TaskState>,
    number: Option<u64>,
    task_id: Vec<u8>,
    context_id: Vec<u8>,
    has_message: bool,
    /// The next event begins the stream of a task that is there: the task may come first, with all
    /// that has happened to it.
    joins: bool,
    /// Changes of the task so far, those included that were part of it when the stream began.
    changes: u64,
    /// The task was at work when the stream began, so that its first change may not be among them.
    may_have_one_more: bool,
    /// The number of the newest chunk.
    chunk: u64,
}

impl StreamCheck {
    /// Nothing yet, of a stream of this agent that was asked for so many changes.
    pub fn new(agent: AgentBehaviour, wanted: u64) -> StreamCheck {
        StreamCheck { agent, wanted, ..StreamCheck::default() }
    }

    /// The next event begins a subscription to a task that is there.
    pub fn join(&mut self) {
        self.joins = true;
    }

    /// Checks the next event.
    ///
    /// # Errors
    /// It cannot follow those before it.
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
                // A stream without an end is found here, and not by its end.
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

    /// Checks that all changes have come that were asked for.
    ///
    /// # Errors
    /// There were more or fewer.
    pub fn end(&self) -> Result<(), CallFailure> {
        let (changes, wanted) = (self.changes, self.wanted);
        let is_right = changes == wanted || self.may_have_one_more && changes + 1 == wanted;
        if !self.agent.counts || is_right {
            return Ok(());
        }
        let kind = if changes < wanted { "events_lost" } else { "too_many_events" };
        Err(CallFailure::wrong(kind, format!("{changes} events arrived instead of {wanted}")))
    }

    /// Checks that numbers go up by one. A subscription may begin with the task as of the newest
    /// event.
    fn number(&mut self, event: &StreamEvent<'_>, joined: bool) -> Result<(), CallFailure> {
        let is_snapshot = joined && matches!(event.kind(), EventKind::Task(_));
        let Some(number) = event.number() else {
            return match self.number.filter(|_| !is_snapshot) {
                None => Ok(()),
                Some(before) => {
                    let why = format!("the event after event {before} has no higher number");
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

    /// Checks that all is about one task of one context.
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

    /// Takes the changes that a task holds, each chunk as one part.
    fn snapshot(&mut self, task: TaskView<'_>) {
        let state = task.status().state;
        let chunks = task.artifacts().map(|artifact| artifact.parts().count() as u64).sum();
        let has_begun = chunks > 0 || state.is_terminal();
        // Some agents are at work before they say so in a change.
        self.may_have_one_more = !has_begun && state != TaskState::Submitted;
        self.changes = u64::from(has_begun) + chunks + u64::from(state.is_terminal());
        self.chunk = chunks;
    }

    /// Checks a state against the one before it (A2A 1.0 §4.1.3): nothing goes back to submitted.
    fn state(&mut self, state: TaskState) -> Result<(), CallFailure> {
        let goes_back = state == TaskState::Submitted
            && self.state.is_some_and(|before| before != TaskState::Submitted);
        if state == TaskState::Unspecified || goes_back {
            let before = self.state.map_or("nothing", TaskState::word);
            let why = format!("the state {} arrived after {before}", state.word());
            return Err(CallFailure::wrong("illegal_state", why));
        }
        self.state = Some(state);
        Ok(())
    }

    /// Checks the chunks of an event: each has its number in its text.
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

/// Whether an id is the one that was seen first; an empty one is unknown.
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

/// Checks that JSON of 1.0 names the state as 1.0 does (A2A 1.0 §4.1.3); the client takes other
/// words as well. Empty: there is no such JSON.
fn has_words_of(v1_json: &[u8], what: &str) -> Result<(), CallFailure> {
    if v1_json.is_empty() || memchr::memmem::find(v1_json, b"\"TASK_STATE_").is_some() {
        return Ok(());
    }
    let why = format!("the state of {what} is not written as in A2A 1.0");
    Err(CallFailure::wrong("other_generation", why))
}

/// Checks that an answer with a task is one of its generation.
///
/// # Errors
/// It is not.
pub(super) fn is_of_generation(answer: &Answer) -> Result<(), CallFailure> {
    match answer.task() {
        Some(_) => has_words_of(answer.v1_json(), "the answer"),
        None => Ok(()),
    }
}

/// Checks that a task whose call has ended well in a state is read as it was left.
///
/// # Errors
/// It has no task, or one in another state.
pub(super) fn is_read_again(
    answer: &Answer,
    left: TaskState,
    text: Option<&str>,
) -> Result<(), CallFailure> {
    is_of_generation(answer)?;
    let state = answer.state().unwrap_or(TaskState::Unspecified);
    if left.is_terminal() && state != left {
        let why = format!("the task had ended as {} and is now {}", left.word(), state.word());
        return Err(CallFailure::wrong("illegal_state", why));
    }
    if matches!(state, TaskState::Submitted | TaskState::Working | TaskState::Unspecified) {
        let why = format!("the task had ended and is {} when read", state.word());
        return Err(CallFailure::wrong("illegal_state", why));
    }
    match text {
        Some(text) if !has_text(answer, text) => {
            let why = format!("the task lacks its text {text:.40}");
            Err(CallFailure::wrong("other_answer", why))
        }
        _ => Ok(()),
    }
}

/// Checks that a page has no more tasks than wanted, and none twice.
///
/// # Errors
/// It has.
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

/// Whether an answer has this text somewhere: in an artifact, in the status or as its message.
pub(super) fn has_text(answer: &Answer, text: &str) -> bool {
    let is_it = |part: Part<'_>| part.as_text().is_some_and(|own| own == text);
    if let Some(message) = answer.message() {
        return message.parts().any(is_it);
    }
    let Some(task) = answer.task() else { return false };
    task.artifacts().any(|artifact| artifact.parts().any(is_it))
        || task.status().message.is_some_and(|message| message.parts().any(is_it))
}
