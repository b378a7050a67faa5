//! Reads responses, and the items of streams.

use crate::{
    binding::interfaces::Binding,
    dialect,
    http::media,
    json::{JsonError, Kind, Value, ValueSlot},
    model::{Op, ReadError, Received},
};

use super::{
    CallError, Format, FormatBuffers, ValueLimits,
    pattern::{AnswerSource, Answers},
};

/// The parts of a response's head that describe its body.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHead<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The value of `Content-Type`, if there is one.
    pub content_type: Option<&'a [u8]>,
}

/// The operation of a written call, and its id in JSON-RPC.
#[derive(Clone, Copy, Debug)]
pub struct CallId {
    /// The operation.
    pub op: Op,
    /// The id that the answer of JSON-RPC must have.
    pub rpc_id: u64,
}

/// Maximum bytes of a media type to show.
const MEDIA_BYTES_MAX: usize = 64;

impl ReplyHead<'_> {
    /// Any 2xx means success (wire §3.4).
    pub fn is_success(self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether the body is a stream of events: check this first, since a rejected call is answered
    /// with JSON (wire §10, trap 15).
    pub fn is_event_stream(self) -> bool {
        self.media().eq_ignore_ascii_case(b"text/event-stream")
    }

    /// False if the body is certainly not gRPC: a page of a proxy is not read as messages.
    pub(in crate::client) fn may_be_grpc(self) -> bool {
        let (media, grpc) = (self.media(), media::GRPC.as_bytes());
        let start = media.get(..grpc.len());
        media.is_empty() || start.is_some_and(|start| start.eq_ignore_ascii_case(grpc))
    }

    /// Whether answers of A2A 1.0 have this media type (§9.1, §11.1).
    #[cfg(feature = "load")]
    pub(crate) fn is_of_a2a(self) -> bool {
        let is_supported = self.is_json() || self.is_event_stream() || self.may_be_grpc();
        is_supported && !self.media().is_empty()
    }

    fn media(&self) -> &[u8] {
        let value = self.content_type.unwrap_or_default();
        value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
    }

    fn is_json(self) -> bool {
        let media = self.media();
        let ends = |end: &[u8]| {
            let at = media.len().checked_sub(end.len());
            at.is_some_and(|at| media[at..].eq_ignore_ascii_case(end))
        };
        media.is_empty() || ends(b"/json") || ends(b"+json")
    }

    #[cold]
    pub(super) fn not_a2a(self) -> CallError {
        let media = self.media();
        let shown = media.get(..MEDIA_BYTES_MAX).unwrap_or(media);
        let media = String::from_utf8_lossy(shown).into_owned();
        CallError::NotA2a { status: self.status, media }
    }

    /// The error for an empty body, of any media type.
    #[cold]
    fn empty(self) -> CallError {
        CallError::NotA2a { status: self.status, media: "an empty body".to_owned() }
    }
}

impl Format {
    /// Reads the whole response to a written call.
    ///
    /// For a streaming operation, reads a fault, or a single answer that arrived instead of a
    /// stream.
    ///
    /// # Errors
    /// [`CallError`]; `received` is then empty.
    pub fn read_reply(
        &self,
        buffers: &mut FormatBuffers,
        call: CallId,
        head: ReplyHead<'_>,
        body: &[u8],
        received: &mut Received,
    ) -> Result<(), CallError> {
        let CallId { op, rpc_id } = call;
        let about = AnswerSource { format: self, answers: Answers::Call(op), rpc_id };
        let is_success = head.is_success();
        let FormatBuffers { parser, depth_max, values, longest, patterns, .. } = buffers;
        if is_success && patterns.read(about, body, values, received) {
            return Ok(());
        }
        received.clear();
        if body.trim_ascii().is_empty() {
            // HTTP+JSON of some servers answers a delete with 204 (wire §3.1).
            let is_delete = is_success && op == Op::PushDelete;
            return if is_delete { Ok(()) } else { Err(head.empty()) };
        }
        *longest = body.len().max(*longest);
        let value = match parser.parse(body, *depth_max) {
            Ok(value) => value,
            Err(error) if is_success && head.is_json() => return Err(no_json(error)),
            Err(_) => return Err(head.not_a2a()),
        };
        match self.binding {
            Binding::HttpJson if is_success => {
                dialect::read_reply(&self.reply_cx(values), op, Some(value), received)?;
            }
            Binding::HttpJson => return Err(self.fault(value, head)),
            Binding::JsonRpc | Binding::WebSocket | Binding::Grpc => {
                self.envelope(values, call, value, head, received)?;
            }
        }
        if is_success && patterns.wants(body) {
            patterns.learn(about, body, value, received);
        }
        Ok(())
    }

    /// Reads one item of the stream of a call with `rpc_id`: the data of an event, or a frame of a
    /// WebSocket. a2a-rust ends a stream with an empty item.
    ///
    /// `is_error`: the event is named `error` (wire §3.5).
    ///
    /// # Errors
    /// [`CallError`]; `received` is then empty.
    pub fn read_item(
        &self,
        buffers: &mut FormatBuffers,
        rpc_id: u64,
        data: &[u8],
        is_error: bool,
        received: &mut Received,
    ) -> Result<(), CallError> {
        let FormatBuffers { parser, depth_max, values, longest, patterns, .. } = buffers;
        let about = AnswerSource { format: self, answers: Answers::Item, rpc_id };
        if !is_error && patterns.read(about, data, values, received) {
            return Ok(());
        }
        received.clear();
        *longest = data.len().max(*longest);
        let value = parser.parse(data, *depth_max).map_err(no_json)?;
        self.whole_item(values, rpc_id, value, is_error, received)?;
        if !is_error && patterns.wants(data) {
            patterns.learn(about, data, value, received);
        }
        Ok(())
    }

    /// The kind of an event that is not a valid item; `None`: a broken item, or an item of another
    /// call. `name` is the event's name, or empty.
    #[cold]
    pub(in crate::client) fn stray_event(
        &self,
        buffers: &mut FormatBuffers,
        name: &str,
        data: &[u8],
    ) -> Option<StrayEvent> {
        let data = data.trim_ascii();
        // WHATWG HTML §9.2.6: a listener for messages receives no events with other names.
        if !matches!(name, "" | "message" | "error") || data.is_empty() {
            return Some(StrayEvent::KeepAlive);
        }
        let FormatBuffers { parser, depth_max, values, .. } = buffers;
        let Ok(value) = parser.parse(data, *depth_max) else {
            return match data[0] {
                b'{' => None,
                b'[' if !is_keep_alive(data) => None,
                _ if is_keep_alive(data) => Some(StrayEvent::KeepAlive),
                _ => (!values.is_strict).then_some(StrayEvent::Unknown),
            };
        };
        let inner = match self.binding {
            Binding::HttpJson => value,
            Binding::JsonRpc | Binding::WebSocket | Binding::Grpc => {
                value.get("result").unwrap_or(value)
            }
        };
        if dialect::looks_like_item(inner) {
            return None;
        }
        let is_named = value.members().chain(inner.members()).any(|(key, member)| {
            is_keep_alive(&key.text()) || member.text().is_some_and(|text| is_keep_alive(&text))
        });
        let is_text = inner.text().is_some_and(|text| is_keep_alive(&text));
        let is_empty = inner.is_null() || (inner.kind() == Kind::Object && inner.is_empty());
        match is_named || is_text || is_empty {
            true => Some(StrayEvent::KeepAlive),
            false => (!values.is_strict).then_some(StrayEvent::Unknown),
        }
    }

    fn whole_item(
        &self,
        values: &ValueLimits,
        rpc_id: u64,
        value: Value<'_>,
        is_error: bool,
        received: &mut Received,
    ) -> Result<(), CallError> {
        let head = ReplyHead { status: 200, content_type: None };
        match self.binding {
            Binding::HttpJson => {
                let is_fault = is_error || value.get("error").is_some_and(|e| !e.is_null());
                match is_fault {
                    true => Err(self.fault(value, head)),
                    false => dialect::read_item(&self.reply_cx(values), value, received)
                        .map_err(CallError::from),
                }
            }
            Binding::JsonRpc | Binding::WebSocket | Binding::Grpc
                if is_error && value.get("jsonrpc").is_none() =>
            {
                Err(self.fault(value, head))
            }
            Binding::JsonRpc | Binding::WebSocket | Binding::Grpc => {
                let call = CallId { op: Op::Stream, rpc_id };
                self.envelope(values, call, value, head, received)
            }
        }
    }

    /// The id in an envelope, if the binding has one.
    pub(super) fn rpc_id(&self, rpc_id: u64) -> Option<u64> {
        (self.binding != Binding::HttpJson).then_some(rpc_id)
    }

    /// Reads a response object of JSON-RPC 2.0 (§5).
    fn envelope(
        &self,
        values: &ValueLimits,
        call: CallId,
        value: Value<'_>,
        head: ReplyHead<'_>,
        received: &mut Received,
    ) -> Result<(), CallError> {
        let CallId { op, rpc_id } = call;
        let is_object = value.kind() == Kind::Object;
        let (mut id, mut result, mut error) =
            (ValueSlot::default(), ValueSlot::default(), ValueSlot::default());
        let mut is_rpc = false;
        for (key, member) in value.members() {
            match &*key.text() {
                b"id" => id = member.slot(),
                b"result" => result = member.slot(),
                b"error" => error = member.slot(),
                b"jsonrpc" => is_rpc = true,
                _ => {}
            }
        }
        let error = value.at(error).filter(|error| !error.is_null());
        // Layers below JSON-RPC answer with their own errors: a proxy, a web framework.
        let is_refused = is_rpc && error.is_some();
        if !head.is_success() && !is_refused {
            return Err(if is_object { self.fault(value, head) } else { head.not_a2a() });
        }
        if !is_object {
            return Err(ReadError::new("must be a response object of JSON-RPC").into());
        }
        let id = value.at(id);
        let is_ours = id.is_some_and(|id| is_id(id, rpc_id));
        // JSON-RPC 2.0 §5: the id is null if the server could not read the id of the request. Over
        // HTTP the exchange identifies the call, so a missing id is accepted.
        let is_exchange = self.binding == Binding::JsonRpc && !values.is_strict;
        let may_lack = error.is_some() || is_exchange;
        let is_valid = is_ours || (may_lack && id.is_none_or(|id| id.is_null()));
        if !is_valid {
            return Err(ReadError::at("id", "must be the id of the call").into());
        }
        if let Some(error) = error {
            return Err(self.fault(error, head));
        }
        let result = value.at(result);
        dialect::read_reply(&self.reply_cx(values), op, result, received)
            .map_err(|error| error.within("result").into())
    }

    fn fault(&self, value: Value<'_>, head: ReplyHead<'_>) -> CallError {
        let http = Some(head.status).filter(|_| !head.is_success());
        dialect::read_fault(value, self.generation, http).into()
    }
}

/// An event of a stream that is not A2A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum StrayEvent {
    /// A sign that the connection lives, or that the stream ends.
    KeepAlive,
    /// An unknown event.
    Unknown,
}

/// Whether servers send this word to keep a stream alive, or to end it.
fn is_keep_alive(word: &[u8]) -> bool {
    const WORDS: [&str; 8] =
        ["ping", "pong", "heartbeat", "keepalive", "noop", "done", "connected", "endofstream"];
    let letters = word.iter().filter(|byte| byte.is_ascii_alphabetic());
    let letters = letters.map(u8::to_ascii_lowercase);
    word.len() <= 32 && WORDS.iter().any(|known| letters.clone().eq(known.bytes()))
}

/// Whether an id is that of the call, as a string of digits.
pub(super) fn is_id(id: Value<'_>, rpc_id: u64) -> bool {
    let Some(text) = id.text() else { return false };
    !text.is_empty()
        && text.len() <= 20
        && (text[0] != b'0' || text.len() == 1)
        && str::from_utf8(&text).is_ok_and(|text| text.parse() == Ok(rpc_id))
        && text[0] != b'+'
}

#[cold]
fn no_json(error: JsonError) -> CallError {
    ReadError::new(format!("must be JSON: {error}")).into()
}
