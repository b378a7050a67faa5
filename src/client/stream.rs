//! A stream of events that resumes by itself when its connection breaks.
//!
//! Invariant: the reader gets every event in order and once, or a gap that announces possible
//! repetitions. Changes that were missed without a connection are read from the task and become
//! events; unrecoverable changes are reported as a gap. A stream of an unknown task cannot be
//! resumed, because a repeated send might do the work twice: this is an error.

mod open;
mod resume;
mod source;

use std::{pin::pin, sync::Arc};

use crate::model::{EventBuf, Generation, RawText, ReadError, ReceivedKind, TaskState};

use super::{
    CallError, Client, ClientError, StreamEvent, Transport,
    answer::extension_list,
    endpoint::AgentEndpoint,
    exchange::{Written, within},
    format::StrayEvent,
    scratch::LentBuffers,
    seen::{Seeing, Seen, StreamItem},
};
use open::OpeningStream;
use resume::Resumption;
use source::{EventOrigin, SourceRead};

/// Milliseconds that a server has to end the stream of an ended task.
const END_MS: u64 = 1_000;

/// Events of one task, or one direct message.
pub struct ClientStream<T: Transport>(Box<StreamState<T>>);

/// The state of a stream. Boxed, because it is large and is moved.
struct StreamState<T: Transport> {
    client: Client<T>,
    endpoint: Arc<AgentEndpoint>,
    written: Written,
    scratch: LentBuffers,
    source: EventOrigin<T>,
    seen: Seen,
    task: FollowedTask,
    caught: Caught,
    /// How the stream was opened, until its first item: a server can reject it only before the
    /// item.
    opening: Option<Box<OpeningStream>>,
    /// The number of a received item, to be returned after the caught-up events.
    put_back: Option<Option<u64>>,
    /// Attempts to resume since the last event, or since the last subscription that lasted.
    attempts: u32,
    /// When the stream was opened or last resumed.
    opened_ms: u64,
    /// `Some`: the connection broke, and the stream is being resumed.
    resumption: Option<Resumption>,
    /// When the current wait ends: for the next poll of the task, or for the end of an ended
    /// stream.
    pause_due_ms: Option<u64>,
    /// A message, a fault or the end was returned: nothing follows.
    is_over: bool,
    /// The server declared the end of its stream, as servers before 1.0 do.
    is_final: bool,
    /// The stream continues while its task waits for a login.
    continues_through_logins: bool,
    /// The number of reads of the task since it waits for a login.
    login_reads: u32,
    /// The number of repeated events, if the server numbers its events.
    repeats: u64,
    /// A direct message was received, and nothing of a task.
    has_message: bool,
    /// A warning about a skipped event was given.
    has_warned: bool,
}

/// The task of a stream, as raw text.
#[derive(Default)]
struct FollowedTask {
    /// Empty: not received yet.
    id: Vec<u8>,
    context_id: Vec<u8>,
    /// The id of the task that the sent message names; empty: none. The id does not prove that the
    /// task received the message: only an event of the stream does.
    named: Vec<u8>,
}

/// Changes that were read from the task after a break, and the number of returned changes.
#[derive(Default)]
struct Caught {
    events: EventBuf,
    returned: usize,
    gap: Option<MissedEvents>,
}

#[derive(Clone, Copy)]
struct MissedEvents {
    after: Option<u64>,
    may_repeat: bool,
}

/// The next result of the stream.
enum Shown {
    Received(Option<u64>),
    Caught(usize),
    Missed(MissedEvents),
}

impl Caught {
    fn next(&mut self) -> Option<Shown> {
        if let Some(gap) = self.gap.take() {
            return Some(Shown::Missed(gap));
        }
        if self.returned < self.events.len() {
            self.returned += 1;
            return Some(Shown::Caught(self.returned - 1));
        }
        None
    }

    fn clear(&mut self) {
        self.events.clear();
        (self.returned, self.gap) = (0, None);
    }
}

impl<T: Transport> ClientStream<T> {
    /// Waits for the next event; `None`: the stream is complete.
    ///
    /// The future may be dropped and the method called again: nothing is lost. The exception is a
    /// drop while a message is sent again after a refusal: the next call then returns `StreamLost`.
    ///
    /// # Errors
    /// [`ClientError`]: a fault of the server, an invalid answer, or a break after which the stream
    /// could not be resumed. The stream is then over.
    pub async fn next(&mut self) -> Option<Result<StreamEvent<'_>, ClientError>> {
        let state = &mut *self.0;
        match state.advance().await {
            Ok(Some(shown)) => state.show(shown).map(Ok),
            Ok(None) => {
                state.is_over = true;
                None
            }
            Err(error) => {
                state.is_over = true;
                state.source = EventOrigin::Nowhere;
                Some(Err(error))
            }
        }
    }

    /// Continues while the task waits for a login (`auth-required`), which the client cannot send
    /// as a message. If the server ends its stream in this state, the stream is resumed or the task
    /// polled, first after [`CallOptions::poll_ms`](super::CallOptions::poll_ms), then at growing
    /// intervals, up to 16 times as long.
    #[must_use]
    pub fn through_logins(mut self) -> ClientStream<T> {
        self.0.continues_through_logins = true;
        self
    }

    /// The id of the task; `None`: not received yet, or the stream is a direct message.
    pub fn task_id(&self) -> Option<RawText<'_>> {
        let id = &self.0.task.id;
        (!id.is_empty()).then(|| RawText::known(id))
    }

    /// The newest state of the task, if one was received.
    pub fn state(&self) -> Option<TaskState> {
        self.0.seen.state()
    }

    /// The number of the newest event, if the server numbers its events.
    pub fn last_number(&self) -> Option<u64> {
        self.0.seen.number()
    }

    /// The number of repeated events, which were omitted, if the server numbers its events.
    pub fn repeats(&self) -> u64 {
        self.0.repeats
    }

    /// The URIs of the extensions that the server activated for the stream (A2A 1.0 §4.6.1), in the
    /// server's order. Empty over WebSocket.
    pub fn activated_extensions(&self) -> impl Iterator<Item = &str> {
        extension_list(&self.0.scratch.reply.extensions)
    }
}

impl<T: Transport> StreamState<T> {
    async fn advance(&mut self) -> Result<Option<Shown>, ClientError> {
        loop {
            if let Some(shown) = self.caught.next() {
                return Ok(Some(shown));
            }
            if self.is_over {
                return Ok(None);
            }
            if let Some(number) = self.put_back.take() {
                if let Some(shown) = self.take(number)? {
                    return Ok(Some(shown));
                }
                continue;
            }
            // Boxed, since few streams need these futures.
            if self.resumption.is_some() {
                Box::pin(self.try_resume()).await?;
                continue;
            }
            if self.is_to_be_opened() {
                Box::pin(self.open()).await?;
                continue;
            }
            let StreamState { source, endpoint, written, scratch, .. } = self;
            let read = match source.next_at_hand(endpoint, *written, scratch) {
                Some(read) => read,
                None => self.read().await,
            };
            match read {
                Ok(SourceRead::Item(number)) => {
                    self.opening = None;
                    if let Some(shown) = self.take(number)? {
                        return Ok(Some(shown));
                    }
                }
                Ok(SourceRead::Stray(stray)) => self.skip(stray),
                Ok(SourceRead::End) if self.is_complete() => return Ok(None),
                Ok(SourceRead::Poll) => Box::pin(self.poll_task()).await?,
                Ok(SourceRead::End) => self.resume(None)?,
                Err(error) if self.opening.is_some() && error.is_passing_refusal() => {
                    self.open_again(error)?;
                }
                // After the end of the task it does not matter how the connection ends.
                Err(error) if error.is_connection_lost() && self.has_ended() => return Ok(None),
                Err(error) if error.is_connection_lost() => self.resume(Some(error))?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the next item. After the end of the task, waits only [`END_MS`] for the end of the
    /// stream, so that the connection can be reused. The same applies after the single message of
    /// 1.0; before 1.0 another message may follow, so the wait is longer.
    async fn read(&mut self) -> Result<SourceRead, ClientError> {
        let inner = &self.client.inner;
        let is_one_message = self.has_message && self.is_v1();
        let has_ended = self.seen.state().is_some_and(TaskState::is_terminal) || is_one_message;
        let end_ms = if has_ended { END_MS } else { inner.built.limits.idle_ms };
        let read = self.source.next(inner, &self.endpoint, self.written, &mut self.scratch);
        if !has_ended && !self.has_message {
            return read.await;
        }
        let due_ms = inner.transport.mono_ms().saturating_add(end_ms);
        let due_ms = *self.pause_due_ms.get_or_insert(due_ms);
        within(&inner.transport, due_ms, pin!(read)).await.unwrap_or(Ok(SourceRead::End))
    }

    /// Processes a received item; `None`: the item is a repetition, or empty.
    fn take(&mut self, number: Option<u64>) -> Result<Option<Shown>, ClientError> {
        let received = &self.scratch.reply.received;
        if received.kind() == ReceivedKind::Nothing {
            // The item with which a2a-rust ends a stream over WebSocket.
            self.is_final = true;
            self.source = EventOrigin::Nowhere;
            return Ok(None);
        }
        let Some(item) = StreamItem::of(received) else { return Ok(None) };
        self.task.check(item.task_id, item.context_id)?;
        self.is_final |= item.is_final;
        if self.seen.is_uncounted() {
            if self.seen.has_newer(number) {
                let after = self.seen.number();
                self.seen.count_from(number);
                self.caught.gap = Some(MissedEvents { after, may_repeat: true });
                self.put_back = Some(number);
                return Ok(None);
            }
            if self.seen.is_in_uncounted_task(item.change, number) {
                return Ok(None);
            }
        }
        let is_counted = number.or(self.seen.number()).is_some();
        let seeing = self.seen.note(item.change, number);
        if seeing == Seeing::New {
            // Repetitions before a break do not count as progress.
            self.attempts = 0;
        }
        self.repeats += u64::from(seeing == Seeing::Repeated && is_counted);
        if received.kind() == ReceivedKind::Message {
            return self.take_message(number);
        }
        self.has_message = false;
        Ok((seeing != Seeing::Repeated).then_some(Shown::Received(number)))
    }

    /// Processes a direct message. A2A 1.0 §3.1.2: a stream has exactly one, and nothing else;
    /// further messages are not returned. Before 1.0 some agents stream each word of their model as
    /// a message.
    #[cold]
    fn take_message(&mut self, number: Option<u64>) -> Result<Option<Shown>, ClientError> {
        if self.seen.state().is_some() {
            return Ok(Some(Shown::Received(number)));
        }
        self.pause_due_ms = None;
        let was_message = std::mem::replace(&mut self.has_message, true);
        if !self.is_v1() {
            return Ok(Some(Shown::Received(number)));
        }
        if was_message {
            const MORE: &str = "the agent streamed more than one message, and A2A 1.0 allows one; \
                                only the first is used";
            self.client.inner.built.warn(MORE);
            self.is_over = true;
            self.source = EventOrigin::Nowhere;
            return Ok(None);
        }
        let message = self.scratch.reply.received.message();
        match message.is_some_and(|message| message.parts().next().is_some()) {
            true => Ok(Some(Shown::Received(number))),
            false => {
                Err(CallError::from(ReadError::at("message.parts", "must have a part")).into())
            }
        }
    }

    fn is_v1(&self) -> bool {
        self.endpoint.interface.generation == Generation::V1
    }

    /// Skips an event that is not A2A. Its content is lost, so the first one that is not a
    /// keep-alive gives a warning.
    #[cold]
    fn skip(&mut self, stray: StrayEvent) {
        if stray == StrayEvent::Unknown && !std::mem::replace(&mut self.has_warned, true) {
            const SHOWN_MAX: usize = 80;
            let content = String::from_utf8_lossy(&self.scratch.reply.body);
            let shown: String = content.chars().take(SHOWN_MAX).collect();
            let sentence = format!("the stream has an unknown event, which is skipped: {shown:?}");
            self.client.inner.built.warn(&sentence);
        }
    }

    /// Whether the task has ended, the server has declared the end of its stream, or the stream is
    /// a message.
    fn has_ended(&self) -> bool {
        let is_final = (self.is_final && !self.waits_for_login()) || self.has_message;
        is_final || self.seen.state().is_some_and(TaskState::is_terminal)
    }

    /// Whether the end of the connection is the end of the stream.
    fn is_complete(&self) -> bool {
        let has_ended = |state: TaskState| state.is_terminal() || state.is_interrupted();
        let is_done = self.is_final || self.seen.state().is_some_and(has_ended);
        (is_done && !self.waits_for_login()) || self.has_message
    }

    /// Whether the task waits for a login and the stream continues.
    #[cold]
    fn waits_for_login(&self) -> bool {
        self.continues_through_logins && self.seen.state() == Some(TaskState::AuthRequired)
    }

    fn show(&self, shown: Shown) -> Option<StreamEvent<'_>> {
        match shown {
            Shown::Received(number) => {
                let reply = &self.scratch.reply;
                let json = match self.endpoint.is_v1_json() {
                    true => reply.body.get(reply.received.span()).unwrap_or_default(),
                    false => b"",
                };
                StreamEvent::received(&reply.received, number, json)
            }
            Shown::Caught(index) => {
                let change = self.caught.events.iter(None).nth(index)?;
                let FollowedTask { id, context_id, .. } = &self.task;
                let ids = (RawText::known(id), RawText::known(context_id));
                Some(StreamEvent::change(ids.0, ids.1, change))
            }
            Shown::Missed(gap) => Some(StreamEvent::gap(gap.after, gap.may_repeat)),
        }
    }
}
