//! The source of a stream's events: one connection, until it ends or breaks.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
};

use crate::sse::SseParser;

use super::super::{
    CallError, ClientError, HttpResponse, Transport, TransportError,
    client::SharedClient,
    endpoint::AgentEndpoint,
    exchange::{READ_BYTES, Written},
    format::StrayEvent,
    grpc::{GrpcRead, GrpcStream},
    scratch::{CallBuffers, ReplyBuf},
    websocket::{WsRead, WsSession, event_number},
};

/// The source of events.
pub(super) enum EventOrigin<T: Transport> {
    /// No source: the connection has ended or broken.
    Nowhere,
    /// A single answer arrived instead of a stream, and was received.
    Answered,
    /// The task, which is polled.
    Polling,
    /// Messages of a WebSocket.
    Messages(Box<WsSession<T::Response>>),
    /// Messages of gRPC.
    Rpc(Box<GrpcStream<T::Response>>),
    /// Server-sent events.
    Events(Box<EventSource<T::Response>>),
}

/// The result of a read.
pub(super) enum SourceRead {
    /// An item is in the scratch; its number, if the server numbers its events.
    Item(Option<u64>),
    /// The connection ended properly.
    End,
    /// The caller must poll the task.
    Poll,
    /// An event that is not A2A.
    Stray(StrayEvent),
}

/// An event with its data copied out.
struct CopiedEvent {
    number: Option<u64>,
    name: EventName,
    /// True: the response ended before the event was complete.
    is_unclosed: bool,
}

/// The relevant kinds of event names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventName {
    /// No name, or `message`.
    Message,
    /// `error` (wire §3.5).
    Error,
    /// Any other name.
    Other,
}

impl EventName {
    #[inline]
    fn of(name: &str) -> EventName {
        if name.is_empty() { EventName::Message } else { EventName::named(name) }
    }

    #[cold]
    fn named(name: &str) -> EventName {
        match name {
            "message" => EventName::Message,
            "error" => EventName::Error,
            _ => EventName::Other,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            EventName::Message => "",
            EventName::Error => "error",
            EventName::Other => "other",
        }
    }
}

/// A stream of server-sent events.
pub(super) struct EventSource<R> {
    response: R,
    parser: SseParser,
    /// The number of the previous event, which also applies to an event without an id.
    last_number: Option<u64>,
    /// Parsed bytes of the input.
    at: usize,
    /// The length of the input once it is complete: later bytes only terminate an unfinished event.
    all: Option<usize>,
}

impl<R: HttpResponse> EventSource<R> {
    /// The events of a response after its head; an event has at most `bytes_max` bytes.
    pub fn new(response: R, bytes_max: usize) -> EventSource<R> {
        let parser = SseParser::new(bytes_max);
        EventSource { response, parser, last_number: None, at: 0, all: None }
    }

    /// Copies the data of the next event into `data`; `None`: the stream has ended. `input`: the
    /// received bytes, empty at first.
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut Vec<u8>,
        data: &mut Vec<u8>,
    ) -> Poll<Result<Option<CopiedEvent>, ClientError>> {
        loop {
            if let Some(event) = self.next_of(input, data)? {
                return Poll::Ready(Ok(Some(event)));
            }
            if self.all.is_some() {
                return Poll::Ready(Ok(None));
            }
            input.clear();
            self.at = 0;
            if !ready!(self.response.poll_read(cx, input, READ_BYTES))? {
                self.all = Some(input.len());
                // An event without its final blank line counts if the response is complete.
                input.extend_from_slice(b"\n\n");
            }
        }
    }

    /// Copies the next event of the received bytes; `None`: all of them are parsed.
    #[inline]
    fn next_of(
        &mut self,
        input: &[u8],
        data: &mut Vec<u8>,
    ) -> Result<Option<CopiedEvent>, ClientError> {
        let rest = input.get(self.at..).unwrap_or_default();
        let step = self.parser.advance(rest).map_err(|_| too_large())?;
        self.at += step.ate;
        let Some(event) = step.event else { return Ok(None) };
        let mut number = None;
        if event.is_new_id {
            let id_number = decimal_number(event.id);
            number = id_number.filter(|_| id_number != self.last_number);
            self.last_number = id_number;
        }
        data.clear();
        data.extend_from_slice(event.data);
        let name = EventName::of(event.kind);
        let is_unclosed = self.all.is_some_and(|all| self.at > all);
        Ok(Some(CopiedEvent { number, name, is_unclosed }))
    }
}

/// The id as a number, if it is one.
fn decimal_number(id: &[u8]) -> Option<u64> {
    if id.is_empty() {
        return None;
    }
    id.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cold]
fn too_large() -> ClientError {
    TransportError::TooLarge("event_bytes_max").into()
}

impl<T: Transport> EventOrigin<T> {
    /// Waits for the next item and reads it into the scratch.
    pub async fn next(
        &mut self,
        inner: &SharedClient<T>,
        endpoint: &AgentEndpoint,
        written: Written,
        scratch: &mut CallBuffers,
    ) -> Result<SourceRead, ClientError> {
        match self {
            EventOrigin::Nowhere => Ok(SourceRead::End),
            EventOrigin::Polling => Ok(SourceRead::Poll),
            EventOrigin::Answered => {
                *self = EventOrigin::Nowhere;
                Ok(SourceRead::Item(None))
            }
            EventOrigin::Messages(session) => {
                let CallBuffers { buffers, reply, .. } = scratch;
                let ReplyBuf { body, received, .. } = &mut **reply;
                let bytes_max = inner.built.limits.event_bytes_max;
                let idle_ms = Some(inner.built.limits.stream_idle_ms);
                match session.next(body, bytes_max, &inner.transport, idle_ms).await? {
                    WsRead::End => {
                        *self = EventOrigin::Nowhere;
                        Ok(SourceRead::End)
                    }
                    WsRead::Message => {
                        let format = &endpoint.format;
                        match format.read_item(buffers, written.rpc_id, body, false, received) {
                            Ok(()) => Ok(SourceRead::Item(event_number(body))),
                            Err(error) => stray(error, endpoint, "", scratch),
                        }
                    }
                }
            }
            EventOrigin::Rpc(messages) => {
                let CallBuffers { buffers, reply, .. } = scratch;
                let ReplyBuf { body, received, .. } = &mut **reply;
                let bytes_max = inner.built.limits.event_bytes_max;
                match messages.next(endpoint, body, bytes_max).await? {
                    GrpcRead::End => {
                        *self = EventOrigin::Nowhere;
                        Ok(SourceRead::End)
                    }
                    GrpcRead::Message(number) => {
                        let format = &endpoint.format;
                        match format.read_message(buffers, written.op, body, received) {
                            Ok(()) => Ok(SourceRead::Item(number)),
                            // Fields of a later proto are not read, so the message is empty.
                            Err(CallError::Unreadable(_)) if buffers.is_empty_message() => {
                                Ok(SourceRead::Stray(StrayEvent::Unknown))
                            }
                            Err(error) => Err(error.into()),
                        }
                    }
                }
            }
            EventOrigin::Events(events) => {
                let CallBuffers { reply, input, .. } = scratch;
                let next = poll_fn(|cx| events.poll_next(cx, input, &mut reply.body));
                match next.await? {
                    Some(event) => read_event(&event, endpoint, written, scratch),
                    None => {
                        *self = EventOrigin::Nowhere;
                        Ok(SourceRead::End)
                    }
                }
            }
        }
    }

    /// Reads the next item into the scratch if it was already received, as most are, together with
    /// earlier items. `None`: it has not arrived yet.
    #[inline]
    pub fn next_at_hand(
        &mut self,
        endpoint: &AgentEndpoint,
        written: Written,
        scratch: &mut CallBuffers,
    ) -> Option<Result<SourceRead, ClientError>> {
        let EventOrigin::Events(events) = self else { return None };
        match events.next_of(&scratch.input, &mut scratch.reply.body) {
            Ok(event) => event.map(|event| read_event(&event, endpoint, written, scratch)),
            Err(error) => Some(Err(error)),
        }
    }
}

/// Parses an event; its data is in the scratch.
#[inline]
fn read_event(
    event: &CopiedEvent,
    endpoint: &AgentEndpoint,
    written: Written,
    scratch: &mut CallBuffers,
) -> Result<SourceRead, ClientError> {
    let CallBuffers { buffers, reply, .. } = scratch;
    let ReplyBuf { body, received, .. } = &mut **reply;
    let is_error = event.name == EventName::Error;
    match endpoint.format.read_item(buffers, written.rpc_id, body, is_error, received) {
        Ok(()) => Ok(SourceRead::Item(event.number)),
        // An incomplete event at the end of the stream.
        Err(CallError::Unreadable(_)) if event.is_unclosed => Ok(SourceRead::End),
        Err(error) => stray(error, endpoint, event.name.as_str(), scratch),
    }
}

/// The kind of an event that is not a valid item and not A2A.
///
/// # Errors
/// `error`, if it is a fault or a broken item.
#[cold]
fn stray(
    error: CallError,
    endpoint: &AgentEndpoint,
    name: &str,
    scratch: &mut CallBuffers,
) -> Result<SourceRead, ClientError> {
    let CallBuffers { buffers, reply, .. } = scratch;
    let stray = match error {
        CallError::Unreadable(_) => endpoint.format.stray_event(buffers, name, &reply.body),
        CallError::Fault(_) | CallError::NotA2a { .. } => None,
    };
    stray.map_or_else(|| Err(error.into()), |stray| Ok(SourceRead::Stray(stray)))
}
