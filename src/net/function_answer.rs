//! The answer of an HTTP function, parsed incrementally into events.

use std::{
    collections::VecDeque,
    future::poll_fn,
    task::{Context, Poll, ready},
};

use super::{
    HttpClientResponse,
    line_turn::{NextEvent, TurnEvents},
};
use crate::{
    client::HttpResponse,
    gateway::lines::{LineEvent, read_answer},
    limits::AGENT_LINE_BYTES_MAX,
    model::{MessageBuf, PartsBuf},
    sse::SseParser,
};

/// Maximum number of bytes per read.
const READ_BYTES: usize = 16 * 1024;

/// The events of an answer with a status of 2xx.
pub(super) struct FunctionAnswer {
    response: HttpClientResponse,
    form: AnswerForm,
    /// The bytes of an incomplete event.
    bytes: Vec<u8>,
    /// Parsed events; an error is the last item.
    ready: VecDeque<Result<LineEvent, String>>,
    /// The answer was read to its end.
    is_read: bool,
}

/// The form of the events in an answer.
enum AnswerForm {
    /// One JSON value.
    Json,
    /// One text, which is a message.
    Text,
    /// One JSON value per line.
    Lines,
    /// One JSON value in the data of each event.
    Sse(Box<SseParser>),
}

impl FunctionAnswer {
    /// Reads an answer with a complete head.
    ///
    /// # Errors
    /// The reason why the answer cannot be read.
    pub fn new(response: HttpClientResponse) -> Result<FunctionAnswer, String> {
        let media_type = String::from_utf8_lossy(response.field("content-type").unwrap_or(b""));
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let form = match essence.as_str() {
            "application/json" | "text/json" => AnswerForm::Json,
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/jsonlines"
            | "application/x-jsonlines" => AnswerForm::Lines,
            "text/event-stream" => AnswerForm::Sse(Box::new(SseParser::new(AGENT_LINE_BYTES_MAX))),
            "text/plain" => AnswerForm::Text,
            // An answer with status 204 has no media type.
            "" if response.status() == 204 => AnswerForm::Json,
            "" => return Err("the function answered without a Content-Type".to_owned()),
            other if other.ends_with("+json") => AnswerForm::Json,
            other => {
                return Err(format!(
                    "the function answered with {other}; supported are application/json, \
                     application/x-ndjson, text/event-stream and text/plain"
                ));
            }
        };
        let (bytes, ready) = (Vec::new(), VecDeque::new());
        Ok(FunctionAnswer { response, form, bytes, ready, is_read: false })
    }

    /// Moves complete events from `bytes` to `ready`.
    fn read_events(&mut self) {
        let FunctionAnswer { form, bytes, ready, is_read, .. } = self;
        match form {
            AnswerForm::Json if *is_read => push_all(ready, bytes),
            AnswerForm::Text if *is_read && !bytes.is_empty() => ready.push_back(text(bytes)),
            AnswerForm::Json | AnswerForm::Text => {}
            AnswerForm::Lines => {
                // The last line may have no line feed.
                let end = memchr::memrchr(b'\n', bytes).map_or(0, |last| last + 1);
                let whole = if *is_read { bytes.len() } else { end };
                bytes[..whole].split(|byte| *byte == b'\n').for_each(|line| push_all(ready, line));
                bytes.drain(..whole);
            }
            AnswerForm::Sse(parser) => {
                if *is_read {
                    // The last event may lack its blank line; the JSON of an incomplete event is an
                    // error.
                    bytes.extend_from_slice(b"\n\n");
                }
                read_stream(parser, bytes, ready);
            }
        }
        if !*is_read && bytes.len() > AGENT_LINE_BYTES_MAX {
            ready.push_back(Err(oversized()));
        }
    }
}

/// Returns a text as a message.
fn text(bytes: &[u8]) -> Result<LineEvent, String> {
    if bytes.len() > AGENT_LINE_BYTES_MAX {
        return Err(oversized());
    }
    let text = String::from_utf8_lossy(bytes);
    Ok(LineEvent::Message(MessageBuf::agent(&PartsBuf::new().text(&text))))
}

#[cold]
fn oversized() -> String {
    format!("the function sent an event of more than {AGENT_LINE_BYTES_MAX} bytes")
}

/// Reads the events of a stream, and consumes all bytes.
fn read_stream(
    parser: &mut SseParser,
    bytes: &mut Vec<u8>,
    ready: &mut VecDeque<Result<LineEvent, String>>,
) {
    let mut input = bytes.as_slice();
    while !input.is_empty() {
        match parser.advance(input) {
            Ok(step) => {
                let ate = step.ate;
                if let Some(event) = step.event.filter(|event| event.data != b"[DONE]") {
                    push_all(ready, event.data);
                }
                input = &input[ate..];
            }
            Err(error) => {
                ready.push_back(Err(format!("the function sent an invalid event: {error}")));
                break;
            }
        }
    }
    bytes.clear();
}

/// Appends the events of a JSON value, or the reason why it has none.
fn push_all(ready: &mut VecDeque<Result<LineEvent, String>>, json: &[u8]) {
    if json.trim_ascii().is_empty() {
        return;
    }
    if json.len() > AGENT_LINE_BYTES_MAX {
        return ready.push_back(Err(oversized()));
    }
    match read_answer(json) {
        Ok(events) => ready.extend(events.into_iter().map(Ok)),
        Err(error) => {
            ready.push_back(Err(format!("the function sent an invalid event: {error}")));
        }
    }
}

impl TurnEvents for FunctionAnswer {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<NextEvent> {
        loop {
            match self.ready.pop_front() {
                Some(Ok(event)) => return Poll::Ready(NextEvent::Event(event)),
                Some(Err(reason)) => return Poll::Ready(NextEvent::Failed(reason)),
                None if self.is_read => return Poll::Ready(NextEvent::End),
                None => {}
            }
            match ready!(self.response.poll_read(cx, &mut self.bytes, READ_BYTES)) {
                Ok(is_more) => self.is_read = !is_more,
                Err(error) => {
                    let text = format!("the answer of the function broke off: {error}");
                    return Poll::Ready(NextEvent::Failed(text));
                }
            }
            self.read_events();
        }
    }

    fn end(&mut self) {}
}

/// The first bytes of an answer, at most `bytes_max`.
pub(super) async fn read_start(response: &mut HttpClientResponse, bytes_max: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < bytes_max {
        let room = bytes_max - bytes.len();
        match poll_fn(|cx| response.poll_read(cx, &mut bytes, room)).await {
            Ok(true) => {}
            Ok(false) | Err(_) => break,
        }
    }
    bytes
}
