//! The kinds of calls, and their execution.

use std::{cell::Cell, pin::pin};

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::{
    client::{Answer, Client, ClientStream, EventKind, ListTasks, SendRequest, Transport},
    model::{JsonObject, PartBuf, PartsBuf, TaskState},
};

use super::{
    CallProbe, LoadClock, LoadPlan, PayloadShape, PlannedCall, WebhookReceiver,
    answer_check::{StreamCheck, has_text, is_of_generation, is_page, is_read_again},
    failure::CallFailure,
    schedule::DueCall,
};

/// Milliseconds for which the agent holds a task that will be canceled.
const HELD_TO_CANCEL_MS: u64 = 60_000;
/// Maximum tasks of a page.
const PAGE_TASKS: u32 = 50;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadOperation {
    /// Sends a message and waits for the answer.
    Send,
    /// Reads a task that an earlier call created.
    Get,
    /// Sends a message and follows the stream to its end.
    Stream,
    /// Creates a waiting task, and follows it with several streams to its end.
    Subscribe,
    /// Reads several tasks in one batch of JSON-RPC.
    Batch,
    /// Lists the newest tasks.
    List,
    /// Creates a waiting task, and cancels it.
    Cancel,
    /// Sends a message with a webhook, and waits for the last post to the webhook.
    Push,
    /// Follows a stream, closes it before its end, and resumes it.
    Resume,
}

impl LoadOperation {
    /// All operations.
    pub const ALL: [LoadOperation; 9] = [
        LoadOperation::Send,
        LoadOperation::Get,
        LoadOperation::Stream,
        LoadOperation::Subscribe,
        LoadOperation::Batch,
        LoadOperation::List,
        LoadOperation::Cancel,
        LoadOperation::Push,
        LoadOperation::Resume,
    ];

    /// The name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            LoadOperation::Send => "send",
            LoadOperation::Get => "get",
            LoadOperation::Stream => "stream",
            LoadOperation::Subscribe => "subscribe",
            LoadOperation::Batch => "batch",
            LoadOperation::List => "list",
            LoadOperation::Cancel => "cancel",
            LoadOperation::Push => "push",
            LoadOperation::Resume => "resume",
        }
    }

    /// The operation of this name.
    pub fn of_name(name: &str) -> Option<LoadOperation> {
        LoadOperation::ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// Whether the operation reads tasks that earlier calls created.
    pub(super) const fn reads_tasks(self) -> bool {
        matches!(self, LoadOperation::Get | LoadOperation::Batch | LoadOperation::List)
    }

    /// Whether the operation needs an agent that holds a task for `hold:MS:N`.
    pub const fn needs_hold(self) -> bool {
        matches!(self, LoadOperation::Subscribe | LoadOperation::Cancel | LoadOperation::Resume)
    }

    /// Whether the operation follows a stream.
    pub const fn is_streaming(self) -> bool {
        matches!(
            self,
            LoadOperation::Stream
                | LoadOperation::Subscribe
                | LoadOperation::Push
                | LoadOperation::Resume
        )
    }
}

/// The times of one call, in nanoseconds since the start of the run.
#[derive(Debug, Default)]
pub(super) struct CallTimes {
    /// The time of each event of a single stream.
    pub events_ns: Vec<u64>,
    /// Events of several streams.
    pub more_events: u64,
    /// Nanoseconds between the end of the first and the end of the last of several streams.
    pub spread_ns: Option<u64>,
    /// Nanoseconds from the last event of the stream to its webhook; 0 if the webhook arrived
    /// first.
    pub delivery_ns: Option<u64>,
}

impl CallTimes {
    pub fn clear(&mut self) {
        self.events_ns.clear();
        (self.more_events, self.spread_ns, self.delivery_ns) = (0, None, None);
    }
}

/// The context of a call.
pub(super) struct OperationContext<'a, T: Transport, C> {
    pub client: &'a Client<T>,
    pub clock: &'a C,
    pub plan: &'a LoadPlan,
    pub call: &'a PlannedCall,
    /// Tasks to read.
    pub tasks: &'a [ReadableTask],
    pub webhooks: Option<&'a WebhookReceiver>,
    pub probe: &'a CallProbe,
    pub is_checked: bool,
    /// True: the stream has ended, but its webhook has not arrived.
    pub awaits_webhook: Cell<bool>,
}

/// A task of a successful call, which later calls can read.
#[derive(Clone)]
pub(super) struct ReadableTask {
    pub id: String,
    /// Bytes and bits of the text with which the task was created; `None`: it is unknown whether
    /// the task contains the text.
    pub text: Option<(usize, u64)>,
    /// The state of the task when its call ended.
    pub state: TaskState,
}

impl<T: Transport, C: LoadClock> OperationContext<'_, T, C> {
    /// Makes one call. Returns the task that the call created, if later calls can read it.
    ///
    /// # Errors
    /// The reason why the call counts as failed.
    pub async fn make(
        &self,
        due: DueCall,
        times: &mut CallTimes,
    ) -> Result<Option<ReadableTask>, CallFailure> {
        let task = self.make_unwatched(due, times).await?;
        if self.is_checked {
            self.probe.check_media()?;
        }
        Ok(task)
    }

    async fn make_unwatched(
        &self,
        due: DueCall,
        times: &mut CallTimes,
    ) -> Result<Option<ReadableTask>, CallFailure> {
        match self.call.operation {
            LoadOperation::Send => return self.send(due).await,
            LoadOperation::Get => self.get().await?,
            LoadOperation::Stream => self.stream(times).await?,
            LoadOperation::Subscribe => self.subscribe(times).await?,
            LoadOperation::Batch => self.batch().await?,
            LoadOperation::List => self.list().await?,
            LoadOperation::Cancel => self.cancel().await?,
            LoadOperation::Push => self.push(times).await?,
            LoadOperation::Resume => self.resume(times).await?,
        }
        Ok(None)
    }

    async fn send(&self, due: DueCall) -> Result<Option<ReadableTask>, CallFailure> {
        let text = payload(due.payload_bytes, due.bits);
        let answer = self.client.send(&message(&text, self.call.shape)).await?;
        has_ended_well(&answer)?;
        if self.is_checked {
            is_of_generation(&answer)?;
        }
        let is_echoed = self.plan.agent.echoes && self.call.shape == PayloadShape::Text;
        if self.is_checked && is_echoed {
            if !has_text(&answer, &text) {
                let why = format!("the answer does not contain the sent text {text:.40}");
                return Err(CallFailure::wrong("other_answer", why));
            }
            if answer.state().is_some_and(|state| state != TaskState::Completed) {
                return Err(CallFailure::wrong("task_unfinished", "the task is not completed"));
            }
        }
        let reads = self.plan.calls.iter().any(|call| call.operation.reads_tasks());
        Ok(answer.task_id().filter(|_| reads).map(|id| ReadableTask {
            id: id.to_str().into_owned(),
            text: is_echoed.then_some((due.payload_bytes, due.bits)),
            state: answer.state().unwrap_or(TaskState::Unspecified),
        }))
    }

    async fn get(&self) -> Result<(), CallFailure> {
        let Some(task) = self.tasks.first() else {
            return Err(CallFailure::wrong("no_task", "no task to read"));
        };
        self.is_read(&self.client.get_task(task.id.as_str(), None).await?, task)
    }

    /// Checks that an answer is this task.
    fn is_read(&self, answer: &Answer, task: &ReadableTask) -> Result<(), CallFailure> {
        if answer.task().is_none() {
            return Err(CallFailure::wrong("no_task", "the answer has no task"));
        }
        if !self.is_checked {
            return Ok(());
        }
        let text = task.text.map(|(bytes, bits)| payload(bytes, bits));
        is_read_again(answer, task.state, text.as_deref())
    }

    async fn batch(&self) -> Result<(), CallFailure> {
        let ids: Vec<&str> = self.tasks.iter().map(|task| task.id.as_str()).collect();
        for (answer, task) in self.client.get_tasks(&ids).await?.into_iter().zip(self.tasks) {
            self.is_read(&answer?, task)?;
        }
        Ok(())
    }

    async fn list(&self) -> Result<(), CallFailure> {
        let wanted = ListTasks { page_size: Some(PAGE_TASKS), ..ListTasks::default() };
        let answer = self.client.list_tasks(&wanted).await?;
        let Some(page) = answer.page() else {
            return Err(CallFailure::wrong("no_page", "the answer is not a page of tasks"));
        };
        if self.is_checked && !self.tasks.is_empty() && page.tasks().next().is_none() {
            return Err(CallFailure::wrong(
                "tasks_missing",
                "the page is empty although tasks were created",
            ));
        }
        if self.is_checked { is_page(page, PAGE_TASKS) } else { Ok(()) }
    }

    async fn stream(&self, times: &mut CallTimes) -> Result<(), CallFailure> {
        let stream =
            self.client.stream(&SendRequest::text(self.trigger("stream:").as_str())).await?;
        let mut followed = StreamReading::new(self, stream);
        followed.follow_to_end(&mut times.events_ns).await?;
        self.is_uncut(1)
    }

    async fn subscribe(&self, times: &mut CallTimes) -> Result<(), CallFailure> {
        let hold_ms = self.call.hold.as_millis() as u64;
        let task_id = self.held_task(hold_ms).await?;
        let mut followers = FuturesUnordered::new();
        for _ in 0..self.call.subscribers {
            followers.push(async {
                let stream = self.client.subscribe(&task_id, None).await?;
                let mut events_ns = Vec::new();
                let mut followed = StreamReading::new(self, stream);
                followed.check.join();
                followed.follow_to_end(&mut events_ns).await?;
                Ok::<Vec<u64>, CallFailure>(events_ns)
            });
        }
        let mut ends_ns = (u64::MAX, 0);
        while let Some(events_ns) = followers.next().await {
            let events_ns = events_ns?;
            let end_ns = events_ns.last().copied().unwrap_or_default();
            ends_ns = (ends_ns.0.min(end_ns), ends_ns.1.max(end_ns));
            // The first stream represents all streams: its first event, and its gaps.
            match times.events_ns.is_empty() {
                true => times.events_ns = events_ns,
                false => times.more_events += events_ns.len() as u64,
            }
        }
        times.spread_ns = Some(ends_ns.1.saturating_sub(ends_ns.0));
        self.is_uncut(1 + self.call.subscribers as u64)
    }

    async fn cancel(&self) -> Result<(), CallFailure> {
        let task_id = self.held_task(HELD_TO_CANCEL_MS).await?;
        let answer = self.client.cancel_task(&task_id, None).await?;
        match answer.state() {
            Some(TaskState::Canceled) => Ok(()),
            other => {
                let state = other.map_or("nothing", TaskState::word);
                let why = format!("the canceled task is {state}");
                Err(CallFailure::wrong("not_canceled", why))
            }
        }
    }

    async fn push(&self, times: &mut CallTimes) -> Result<(), CallFailure> {
        let Some(receiver) = self.webhooks else {
            return Err(CallFailure::wrong("no_receiver", "no receiver of webhooks"));
        };
        let awaited = receiver.expect();
        let request = SendRequest::text(self.trigger("stream:").as_str()).push(awaited.config());
        let stream = self.client.stream(&request).await?;
        let mut followed = StreamReading::new(self, stream);
        followed.follow_to_end(&mut times.events_ns).await?;
        let ended_ns = self.clock.now_ns();
        self.awaits_webhook.set(true);
        let post = awaited.arrival().await;
        self.awaits_webhook.set(false);
        times.delivery_ns = Some(self.clock.now_ns().saturating_sub(ended_ns));
        let task_id = followed.stream.task_id().unwrap_or_default();
        if self.is_checked && !post.names(task_id) {
            return Err(CallFailure::wrong("other_task", "the webhook belongs to another task"));
        }
        self.is_uncut(1)
    }

    /// Closes a stream while the agent holds the task, and resumes it at its position.
    async fn resume(&self, times: &mut CallTimes) -> Result<(), CallFailure> {
        let hold_ms = self.call.hold.as_millis() as u64;
        let text = self.trigger(&format!("hold:{hold_ms}:"));
        let stream = self.client.stream(&SendRequest::text(text.as_str())).await?;
        let mut followed = StreamReading::new(self, stream);
        let Some(()) = followed.next(&mut times.events_ns).await? else {
            return Err(CallFailure::wrong("no_event", "the stream had no event"));
        };
        let Some(id) = followed.stream.task_id().map(|id| id.to_str().into_owned()) else {
            return Err(CallFailure::wrong("no_task", "the stream has no task"));
        };
        let after = followed.stream.last_number();
        // Dropping a stream closes it.
        followed.stream = self.client.subscribe(&id, after).await?;
        followed.check.join();
        followed.follow_to_end(&mut times.events_ns).await?;
        self.is_uncut(2)
    }

    /// Creates a task that the agent holds for `hold_ms`, and returns its id.
    async fn held_task(&self, hold_ms: u64) -> Result<String, CallFailure> {
        let text = self.trigger(&format!("hold:{hold_ms}:"));
        let request = SendRequest::text(text.as_str()).return_immediately();
        let answer = self.client.send(&request).await?;
        match (answer.task_id(), answer.state()) {
            (Some(id), Some(state)) if !state.is_terminal() => Ok(id.to_str().into_owned()),
            (_, state) => {
                let state = state.map_or("no task", TaskState::word);
                let why = format!("the agent does not hold the task: the task is {state}");
                Err(CallFailure::wrong("not_held", why))
            }
        }
    }

    /// The text that requests the events of the plan.
    fn trigger(&self, begin: &str) -> String {
        match self.call.chunk_bytes {
            0 => format!("{begin}{}", self.call.events),
            bytes => format!("{begin}{}:{bytes}", self.call.events),
        }
    }

    /// Checks that no stream broke. The client resumes broken streams without a loss; here a break
    /// is an error.
    fn is_uncut(&self, requests: u64) -> Result<(), CallFailure> {
        match self.probe.requests() {
            made if made > requests => {
                Err(CallFailure::wrong("stream_cut", "a stream broke and was resumed"))
            }
            _ => Ok(()),
        }
    }
}

/// A stream, and the state of its checks.
struct StreamReading<'a, T: Transport, C> {
    context: &'a OperationContext<'a, T, C>,
    stream: ClientStream<T>,
    check: StreamCheck,
    has_message: bool,
}

impl<'a, T: Transport, C: LoadClock> StreamReading<'a, T, C> {
    fn new(context: &'a OperationContext<'a, T, C>, stream: ClientStream<T>) -> Self {
        let check = StreamCheck::new(context.plan.agent, context.call.events);
        StreamReading { context, stream, check, has_message: false }
    }

    /// Reads the next event and records its time; `None`: the stream has ended.
    async fn next(&mut self, events_ns: &mut Vec<u64>) -> Result<Option<()>, CallFailure> {
        self.has_no_repeats()?;
        let Some(event) = pin!(self.stream.next()).await else { return Ok(None) };
        let event = event?;
        events_ns.push(self.context.clock.now_ns());
        match event.kind() {
            EventKind::Gap { .. } => {
                self.has_no_repeats()?;
                return Err(CallFailure::wrong("stream_cut", "the stream broke before its end"));
            }
            EventKind::Message(_) => self.has_message = true,
            EventKind::Change { .. } | EventKind::Task(_) => {}
        }
        if self.context.is_checked
            && let Err(failure) = self.check.event(&event)
        {
            // If repetitions were omitted, they explain the missing events.
            self.has_no_repeats()?;
            return Err(failure);
        }
        Ok(Some(()))
    }

    /// Reads the stream to its end, and checks that the task has ended.
    async fn follow_to_end(&mut self, events_ns: &mut Vec<u64>) -> Result<(), CallFailure> {
        while self.next(events_ns).await?.is_some() {}
        self.has_no_repeats()?;
        match self.stream.state() {
            None if self.has_message => return Ok(()),
            Some(state) => is_good_end(state)?,
            None => return Err(CallFailure::wrong("no_event", "the stream had no event")),
        }
        if self.context.is_checked { self.check.end() } else { Ok(()) }
    }

    /// Checks that no event was repeated. The client omits repeated events; here a repetition is an
    /// error.
    fn has_no_repeats(&self) -> Result<(), CallFailure> {
        match self.stream.repeats() {
            0 => Ok(()),
            _ if !self.context.is_checked => Ok(()),
            _ => Err(CallFailure::wrong(
                "event_repeated",
                "an event arrived twice, with the same number",
            )),
        }
    }
}

/// A message with this text.
fn message(text: &str, shape: PayloadShape) -> SendRequest {
    match shape {
        PayloadShape::Text => SendRequest::text(text),
        PayloadShape::Data => {
            let json = format!("{{\"text\":\"{text}\"}}");
            // The text has no characters that JSON must escape.
            match JsonObject::parse(&json) {
                Ok(object) => SendRequest::parts(&PartsBuf::new().data(object)),
                Err(_) => SendRequest::text(text),
            }
        }
        PayloadShape::File => {
            let file =
                PartBuf::bytes(text.as_bytes()).filename("load.txt").media_type("text/plain");
            SendRequest::parts(&PartsBuf::new().part(&file))
        }
    }
}

/// A text of `bytes` ASCII characters: 16 hexadecimal digits of `bits`, which differ between calls,
/// and then words.
pub(super) fn payload(bytes: usize, bits: u64) -> String {
    const FILL: &str = "the quick brown fox jumps over the lazy dog and runs on ";
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.max(17));
    for at in (0..16).rev() {
        text.push(char::from(DIGITS[(bits >> (4 * at)) as usize % 16]));
    }
    text.push(' ');
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
        None => Err(CallFailure::wrong("no_result", "the answer is neither a task nor a message")),
    }
}

/// Checks that a task has a state in which a wait may end successfully.
fn is_good_end(state: TaskState) -> Result<(), CallFailure> {
    match state {
        TaskState::Completed | TaskState::InputRequired | TaskState::AuthRequired => Ok(()),
        TaskState::Failed => Err(CallFailure::wrong("task_failed", "the task has failed")),
        TaskState::Canceled => Err(CallFailure::wrong("task_canceled", "the task was canceled")),
        TaskState::Rejected => Err(CallFailure::wrong("task_rejected", "the task was rejected")),
        TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
            let why = format!("the answer arrived while the task was {}", state.word());
            Err(CallFailure::wrong("task_unfinished", why))
        }
    }
}
