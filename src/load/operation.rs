//! The kinds of calls, and how one of each is made.

use crate::{
    client::{Answer, Client, ClientError, ClientStream, EventKind, SendRequest, Transport},
    model::{Part, TaskState},
};

use super::{
    LoadClock, LoadPlan, answer_check::StreamCheck, failure::CallFailure, schedule::DueCall,
};

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadOperation {
    /// Sends a message and waits for the answer.
    Send,
    /// Reads a task that was made before.
    Get,
    /// Sends a message and follows the stream to its end.
    Stream,
}

impl LoadOperation {
    /// All of them.
    pub const ALL: [LoadOperation; 3] =
        [LoadOperation::Send, LoadOperation::Get, LoadOperation::Stream];

    /// Its name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            LoadOperation::Send => "send",
            LoadOperation::Get => "get",
            LoadOperation::Stream => "stream",
        }
    }

    /// The operation of this name.
    pub fn of_name(name: &str) -> Option<LoadOperation> {
        LoadOperation::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

/// When things happened within one call, in nanoseconds since the beginning of the run.
#[derive(Debug, Default)]
pub(super) struct CallTimes {
    /// Of each event of a stream.
    pub events_ns: Vec<u64>,
}

/// What a call is made with.
pub(super) struct OperationContext<'a, T: Transport, C> {
    pub client: &'a Client<T>,
    pub clock: &'a C,
    pub plan: &'a LoadPlan,
    /// A task to read.
    pub task_id: &'a str,
    pub is_checked: bool,
}

impl<T: Transport, C: LoadClock> OperationContext<'_, T, C> {
    /// Makes one call.
    ///
    /// # Errors
    /// Why it does not count as good.
    pub async fn call(
        &self,
        operation: LoadOperation,
        due: DueCall,
        times: &mut CallTimes,
    ) -> Result<(), CallFailure> {
        match operation {
            LoadOperation::Send => self.send(due).await,
            LoadOperation::Get => self.get().await,
            LoadOperation::Stream => self.stream(times).await,
        }
    }

    async fn send(&self, due: DueCall) -> Result<(), CallFailure> {
        let text = payload(self.plan.payload_bytes, due.bits);
        let answer = self.client.send(&SendRequest::text(text.as_str())).await?;
        has_ended_well(&answer)?;
        if self.is_checked && self.plan.echoes && !has_text(&answer, &text) {
            let why = format!("the answer to {:.60} does not repeat it", text);
            return Err(CallFailure::wrong("other_answer", why));
        }
        Ok(())
    }

    async fn get(&self) -> Result<(), CallFailure> {
        let answer = self.client.get_task(self.task_id, None).await?;
        match answer.task() {
            Some(_) => Ok(()),
            None => Err(CallFailure::wrong("no_task", "the answer has no task")),
        }
    }

    async fn stream(&self, times: &mut CallTimes) -> Result<(), CallFailure> {
        let text = format!("stream:{}", self.plan.stream_events);
        let stream = self.client.stream(&SendRequest::text(text.as_str())).await?;
        self.follow(stream, times).await
    }

    /// Reads a stream to its end.
    async fn follow(
        &self,
        mut stream: ClientStream<T>,
        times: &mut CallTimes,
    ) -> Result<(), CallFailure> {
        let mut check = StreamCheck::default();
        let mut has_message = false;
        while let Some(event) = stream.next().await {
            let event = event?;
            times.events_ns.push(self.clock.now_ns());
            if let EventKind::Gap { .. } = event.kind() {
                return Err(CallFailure::wrong("stream_cut", "the stream broke before its end"));
            }
            has_message |= matches!(event.kind(), EventKind::Message(_));
            if self.is_checked {
                check.event(&event)?;
            }
        }
        match stream.state() {
            None if has_message => Ok(()),
            Some(state) => is_good_end(state),
            None => Err(CallFailure::wrong("no_event", "the stream had no event")),
        }
    }
}

/// Whether an agent answers a text with the same text.
///
/// # Errors
/// [`ClientError`]: it does not answer.
pub async fn echoes<T: Transport>(client: &Client<T>) -> Result<bool, ClientError> {
    const TEXT: &str = "peregrine bench: first call";
    let answer = client.send(&SendRequest::text(TEXT)).await?;
    Ok(has_text(&answer, TEXT))
}

/// A text of so many bytes, different for each call, in ASCII letters.
pub(super) fn payload(bytes: usize, bits: u64) -> String {
    let mut text = format!("{bits:016x} ");
    const FILL: &str = "the quick brown fox jumps over the lazy dog and runs on ";
    while text.len() < bytes {
        text.push_str(&FILL[..FILL.len().min(bytes - text.len())]);
    }
    text.truncate(bytes.max(1));
    text
}

fn has_ended_well(answer: &Answer) -> Result<(), CallFailure> {
    match answer.state() {
        Some(state) => is_good_end(state),
        None if answer.message().is_some() => Ok(()),
        None => Err(CallFailure::wrong("no_result", "the answer is no task and no message")),
    }
}

/// Whether a task that was waited for is where it should be.
fn is_good_end(state: TaskState) -> Result<(), CallFailure> {
    match state {
        TaskState::Completed | TaskState::InputRequired | TaskState::AuthRequired => Ok(()),
        TaskState::Failed => Err(CallFailure::wrong("task_failed", "the task has failed")),
        TaskState::Canceled => Err(CallFailure::wrong("task_canceled", "the task was canceled")),
        TaskState::Rejected => Err(CallFailure::wrong("task_rejected", "the task was rejected")),
        TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
            let why = format!("the answer came while the task was {}", state.word());
            Err(CallFailure::wrong("task_unfinished", why))
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
