//! Writes answers and events in the requested format.

use peregrine::{
    client::{Answer, EventKind, StreamEvent},
    model::{Generation, Refusal, TaskBuf, TaskEvent, TaskState, TaskView},
};
use serde_json::Value;

use super::{
    super::{
        print,
        settings::OutputFormat,
        text::{ShownStatus, TextOutput},
        warn,
    },
    Invocation,
    talk::Talk,
};

/// The envelope of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AnswerShape {
    /// No envelope: the document is the result of the operation.
    AsItIs,
    /// `{"task": ...}`, the result of `SendMessage`, although the task was read by `GetTask`.
    Wrapped,
}

/// Shows a task or a message; `shows_history`: the user requested the history.
pub fn answer(on: &Invocation<'_>, answer: &Answer, shape: AnswerShape, shows_history: bool) {
    let task = answer.task();
    if on.is_talk {
        let mut talk = Talk::default();
        let mut text = task.map(|view| talk.task(view)).unwrap_or_default();
        text.push_str(&answer.message().map(|message| talk.message(message)).unwrap_or_default());
        text.push_str(&talk.end());
        print(&text);
        if let Some(view) = task {
            on.outcome(&view.id().to_str(), view.status().state);
        }
        return;
    }
    if on.format == OutputFormat::Json {
        let mut json = Vec::new();
        if shape == AnswerShape::Wrapped && task.is_some() {
            json.extend_from_slice(b"{\"task\":");
        }
        answer.write_json(&mut json);
        if shape == AnswerShape::Wrapped && task.is_some() {
            json.push(b'}');
        }
        on.print_json(&json);
    }
    let mut output = on.text();
    for uri in answer.activated_extensions().filter(|_| on.is_verbose) {
        output.field("Activated extension", uri);
    }
    if let Some(view) = task {
        add_task(on, &mut output, view, shows_history);
    } else if let Some(message) = answer.message() {
        output.direct_message(message);
    }
    if on.format == OutputFormat::Text {
        print(&output.text);
    }
}

fn add_task(on: &Invocation<'_>, output: &mut TextOutput, view: TaskView<'_>, history: bool) {
    let next = on.outcome(&view.id().to_str(), view.status().state);
    output.task(view, history);
    if let Some(next) = next {
        output.field("Next", &next);
    }
}

/// Shows a task collected from its stream.
fn collected_task(
    on: &Invocation<'_>,
    view: TaskView<'_>,
    shape: AnswerShape,
    shows_history: bool,
) {
    if on.is_talk {
        let mut talk = Talk::default();
        print(&(talk.task(view) + &talk.end()));
        on.outcome(&view.id().to_str(), view.status().state);
        return;
    }
    let mut output = on.text();
    add_task(on, &mut output, view, shows_history);
    if on.format == OutputFormat::Text {
        print(&output.text);
        return;
    }
    let mut json = Vec::new();
    StreamEvent::of_task(view).write_json(&mut json);
    let bare = json.strip_prefix(b"{\"task\":").and_then(|json| json.strip_suffix(b"}"));
    on.print_json(bare.filter(|_| shape == AnswerShape::AsItIs).unwrap_or(&json));
}

/// The state of a task as collected from its stream.
#[derive(Default)]
pub struct FollowedStream {
    /// The task's id, once received.
    pub task_id: String,
    context_id: String,
    /// Its newest state.
    pub state: Option<TaskState>,
    /// True: the last shown event has the id and the state of the task.
    is_named: bool,
    /// True: the answer was a message, and there is no task.
    pub is_message: bool,
    /// True: the message goes to an existing task. The first snapshot of the task may be older than
    /// the message.
    continues_task: bool,
    /// True: the wait is over.
    pub is_settled: bool,
    /// True: the stream broke, and its server could not be reached again.
    pub has_lost: bool,
    talk: Talk,
    /// The direct message that becomes the single document.
    message: Option<Vec<u8>>,
    /// The collected task, if its events are not shown.
    collected: Option<TaskBuf>,
    /// True: the collected task is incomplete.
    is_incomplete: bool,
}

impl FollowedStream {
    /// The stream of a task with a known id.
    pub fn of(task_id: &str) -> FollowedStream {
        FollowedStream { task_id: task_id.to_owned(), ..FollowedStream::default() }
    }

    /// The stream after a message, which may name its task.
    pub fn after_message(on: &Invocation<'_>) -> FollowedStream {
        let continues_task = on.settings.text("task-id").is_some();
        FollowedStream { continues_task, ..FollowedStream::default() }
    }

    /// Notes an event. A message is shown, because it is the whole answer; other events if
    /// requested.
    pub fn take(&mut self, on: &Invocation<'_>, event: &StreamEvent<'_>) {
        if let Some(id) = event.task_id() {
            self.task_id = id.to_str().into_owned();
        }
        match event.kind() {
            EventKind::Task(view) => self.context_id = view.context_id().to_str().into_owned(),
            EventKind::Change { context_id, .. } if !context_id.is_empty() => {
                self.context_id = context_id.to_str().into_owned();
            }
            EventKind::Message(_) => self.is_message = self.state.is_none(),
            EventKind::Change { .. } | EventKind::Gap { .. } => {}
        }
        let mut is_old = false;
        if let Some(state) = event.state() {
            let is_first = self.state.replace(state).is_none();
            is_old = is_first && self.continues_task && matches!(event.kind(), EventKind::Task(_));
            self.is_settled = state.is_terminal() || (state.is_interrupted() && !is_old);
        }
        self.is_message &= self.state.is_none();
        if !self.task_id.is_empty() && !self.is_message {
            let state = self.state.unwrap_or(TaskState::Unspecified);
            on.note_task(&self.task_id, &self.context_id, state);
        }
        if !on.is_streaming {
            self.collect(event);
        }
        if on.is_talk {
            if on.is_streaming || self.is_message {
                print(&self.talk.event(event, is_old));
            }
        } else if self.is_message && !on.is_streaming && on.format == OutputFormat::Json {
            // One document, even for several messages.
            self.add_message(event);
        } else if on.is_streaming || self.is_message {
            self.show(on, event);
        }
    }

    /// Applies an event to the collected task. A task above the size limit is not collected
    /// further.
    fn collect(&mut self, event: &StreamEvent<'_>) {
        let collected = match event.kind() {
            EventKind::Task(view) => {
                self.collected = Some(TaskBuf::of(view));
                return;
            }
            EventKind::Change { task_id, context_id, change } => {
                // A stream of 0.1 does not begin with the task.
                let new = || {
                    let (id, context_id) = (task_id.to_str(), context_id.to_str());
                    let mut task = TaskBuf::new(&*id, &*context_id, Generation::V1)?;
                    task.status(TaskState::Working, 0, None)?;
                    Ok(task)
                };
                let task = self.collected.take().map_or_else(new, Ok);
                task.and_then(|mut task| match task.apply(&change) {
                    Ok(()) | Err(Refusal::Terminal) => Ok(task),
                    Err(refusal) => Err(refusal),
                })
            }
            EventKind::Gap { may_repeat, .. } => {
                self.is_incomplete |= may_repeat;
                return;
            }
            EventKind::Message(_) => return,
        };
        self.is_incomplete |= collected.is_err();
        self.collected = collected.ok();
    }

    /// Whether the collected task is complete, and has ended or needs input from its client.
    pub fn is_fully_collected(&self) -> bool {
        self.is_settled && !self.is_incomplete && self.collected.is_some()
    }

    /// Shows the collected task, which cannot be read from the agent.
    pub fn show_collected(&self, on: &Invocation<'_>, shape: AnswerShape, shows_history: bool) {
        if let Some(collected) = &self.collected {
            collected_task(on, collected.view(), shape, shows_history);
        }
    }

    fn show(&mut self, on: &Invocation<'_>, event: &StreamEvent<'_>) {
        if matches!(event.kind(), EventKind::Gap { .. }) {
            warn("the stream broke; a status may be missing before the next event");
            return;
        }
        if on.format == OutputFormat::Json {
            let mut json = Vec::new();
            if event.write_json(&mut json) {
                on.print_json(&json);
            }
            return;
        }
        let mut output = on.text();
        self.is_named = false;
        match event.kind() {
            EventKind::Task(view) => {
                output.task(view, on.is_verbose);
                self.is_named = true;
            }
            EventKind::Message(message) => output.direct_message(message),
            EventKind::Change { change, .. } => match change {
                TaskEvent::Status { state, message, metadata, .. } => {
                    let (task_id, context_id) = (&self.task_id, &self.context_id);
                    let shown = ShownStatus { task_id, context_id, state, message, metadata };
                    output.status_update(&shown);
                    self.is_named = true;
                }
                TaskEvent::Artifact { artifact, append, .. } => {
                    output.artifact_update(artifact, append);
                }
                TaskEvent::UserMessage { message } => output.message(message, true),
            },
            EventKind::Gap { .. } => {}
        }
        print(&output.text);
    }

    /// Appends the parts of a direct message to those of earlier messages.
    fn add_message(&mut self, event: &StreamEvent<'_>) {
        let mut json = Vec::new();
        if !event.write_json(&mut json) {
            return;
        }
        let Some(before) = &mut self.message else {
            self.message = Some(json);
            return;
        };
        let read = |json: &[u8]| serde_json::from_slice::<Value>(json).unwrap_or_default();
        let (mut all, mut next) = (read(before), read(&json));
        let more = next.pointer_mut("/message/parts").and_then(Value::as_array_mut);
        let parts = all.pointer_mut("/message/parts").and_then(Value::as_array_mut);
        if let (Some(parts), Some(more)) = (parts, more) {
            parts.append(more);
        }
        *before = all.to_string().into_bytes();
    }

    /// Ends the output of events. The task and its state are shown, unless the last event has shown
    /// them.
    pub fn end(&mut self, on: &Invocation<'_>) {
        if on.is_talk {
            print(&self.talk.end());
        }
        if let Some(json) = self.message.take() {
            on.print_json(&json);
        }
        if self.is_message || self.task_id.is_empty() {
            return;
        }
        let state = self.state.unwrap_or(TaskState::Unspecified);
        let next = on.outcome(&self.task_id, state);
        if on.format == OutputFormat::Text && !on.is_talk {
            let mut output = on.text();
            if !self.is_named {
                output.ids(&self.task_id, &self.context_id, state);
            }
            if let Some(next) = next {
                output.field("Next", &next);
            }
            print(&output.text);
        }
    }
}
