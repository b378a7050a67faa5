//! Calls over a WebSocket: JSON-RPC, a text message each (`docs/dialects.md`).
//!
//! Law: a session makes one call at a time, so nothing has to be told apart; who calls at the same
//! time has another session. One that ended in the middle of a call is closed, all others wait for
//! the next call.

use std::{
    future::poll_fn,
    sync::{Mutex, PoisonError},
    task::Poll,
};

use crate::{
    dialect::version::ProtocolVersion,
    model::Op,
    ws::{self, OpCode, Reader, ReaderRules, WsEvent},
};

use super::{
    ClientError, ClientErrorKind, HttpMethod, HttpRequest, HttpResponse, HttpVersion, Transport,
    TransportError,
    client::SharedClient,
    endpoint::AgentEndpoint,
    exchange::{READ_BYTES, Written, within},
    format::ReplyHead,
    scratch::{CallBuffers, ReplyBuf},
    upgrade::{check_upgrade, upgrade_fields},
};

/// Sessions that wait for the next call.
const IDLE_MAX: usize = 32;

/// Frames of a message, and control frames between them, that say nothing: a server that sends more
/// in a row keeps the client from its work.
const SILENT_FRAMES_MAX: usize = 10_000;

/// One upgraded connection.
pub(super) struct WsSession<R> {
    response: R,
    reader: Reader,
    input: Vec<u8>,
    at: usize,
    out: Vec<u8>,
    /// Bytes of `out` that have gone out.
    sent: usize,
    /// When the silence has been too long.
    silent_ms: Option<u64>,
    /// What it was opened for.
    version: ProtocolVersion,
}

/// What came.
pub(super) enum WsRead {
    /// A text message, in the caller's buffer.
    Message,
    /// The server ended the session.
    End,
}

/// Sessions that wait for the next call.
pub(super) struct IdleSessions<R>(Mutex<Vec<WsSession<R>>>);

impl<R> IdleSessions<R> {
    pub fn new() -> IdleSessions<R> {
        IdleSessions(Mutex::new(Vec::new()))
    }

    pub fn take(&self) -> Option<WsSession<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Keeps a session whose call was answered.
    pub fn give(&self, mut session: WsSession<R>) {
        (session.input, session.at) = (Vec::new(), 0);
        session.out = Vec::new();
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(session);
        }
    }
}

impl<R: HttpResponse> WsSession<R> {
    /// True: bytes have come that belong to no call.
    pub fn is_dirty(&self) -> bool {
        self.at < self.input.len() || self.reader.is_inside()
    }

    /// True: it is open, and nothing has come since its last call was answered.
    async fn is_quiet(&mut self) -> bool {
        let (response, input) = (&mut self.response, &mut self.input);
        poll_fn(|cx| Poll::Ready(response.poll_read(cx, input, READ_BYTES).is_pending())).await
    }

    /// Sends one text message.
    pub async fn send(&mut self, text: &[u8], random: u128) -> Result<(), ClientError> {
        let mark = ws::client::begin(&mut self.out);
        self.out.extend_from_slice(text);
        ws::client::finish(&mut self.out, mark, OpCode::Text, key(random));
        self.flush().await
    }

    /// Sends what waits. Who drops this in the middle sends the rest next time.
    async fn flush(&mut self) -> Result<(), ClientError> {
        while self.sent < self.out.len() {
            let rest = self.out.get(self.sent..).unwrap_or_default();
            let response = &mut self.response;
            let count = poll_fn(|cx| response.poll_write(cx, rest)).await?;
            if count == 0 {
                return Err(TransportError::Closed { before_response: true }.into());
            }
            self.sent += count;
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Waits for the next text message, of at most `bytes_max` bytes, and answers pings meanwhile.
    /// Whoever says nothing at all for `idle_ms` is gone; `None`: the caller looks at the clock.
    pub async fn next<T: Transport<Response = R>>(
        &mut self,
        message: &mut Vec<u8>,
        bytes_max: usize,
        transport: &T,
        idle_ms: Option<u64>,
    ) -> Result<WsRead, ClientError> {
        self.flush().await?;
        let rules = ReaderRules {
            frame_bytes_max: bytes_max,
            message_bytes_max: bytes_max,
            binary: false,
            masked: false,
        };
        for _ in 0..SILENT_FRAMES_MAX {
            let rest = self.input.get(self.at..).unwrap_or_default();
            let (ate, event) = self.reader.advance(rest, message, &rules).map_err(broken)?;
            self.at += ate;
            match event {
                WsEvent::Text | WsEvent::Binary => return Ok(WsRead::Message),
                WsEvent::Pong => {}
                WsEvent::Ping => {
                    ws::client::control(
                        &mut self.out,
                        OpCode::Pong,
                        message,
                        key(transport.random()),
                    );
                    self.flush().await?;
                }
                WsEvent::Close(code) => {
                    // RFC 6455 §5.5.1: answered with one of the same code.
                    ws::client::close(&mut self.out, code, key(transport.random()));
                    self.flush().await?;
                    return Ok(WsRead::End);
                }
                WsEvent::Partial => {
                    let is_open = match idle_ms {
                        None => self.read().await?,
                        Some(idle_ms) => {
                            let now_ms = transport.now().mono_ms;
                            let due_ms = now_ms.saturating_add(idle_ms);
                            let due_ms = *self.silent_ms.get_or_insert(due_ms);
                            within(transport, due_ms, self.read()).await??
                        }
                    };
                    self.silent_ms = None;
                    if !is_open {
                        return Ok(WsRead::End);
                    }
                }
            }
        }
        Err(TransportError::Malformed("nothing but control frames").into())
    }

    /// Reads more; false: the connection has ended.
    async fn read(&mut self) -> Result<bool, ClientError> {
        self.input.drain(..self.at);
        self.at = 0;
        let (response, input) = (&mut self.response, &mut self.input);
        Ok(poll_fn(|cx| response.poll_read(cx, input, READ_BYTES)).await?)
    }
}

/// The number of an event, which Peregrine's servers say behind its result: `,"eventId":7}`.
pub(super) fn event_number(message: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b",\"eventId\":";
    let body = message.strip_suffix(b"}")?;
    let digits = body.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = body.split_at(body.len() - digits);
    let number = before.ends_with(NAME).then(|| str::from_utf8(number).ok()).flatten();
    number?.parse().ok()
}

/// Another key for each frame (RFC 6455 §5.3).
fn key(random: u128) -> [u8; 4] {
    (random as u32).to_be_bytes()
}

#[cold]
fn broken(error: ws::WsError) -> ClientError {
    match error {
        ws::WsError::TooLarge { .. } => TransportError::TooLarge("event_bytes_max").into(),
        _ => TransportError::Malformed("a frame that RFC 6455 does not allow").into(),
    }
}

impl<T: Transport> SharedClient<T> {
    /// A session for one call: one that waits, or a new one.
    pub(super) async fn session(
        &self,
        endpoint: &AgentEndpoint,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<WsSession<T::Response>, ClientError> {
        while let Some(mut session) = self.sessions.take() {
            // One that its server has closed, or speaks on by itself, would cost the call.
            if session.version == endpoint.interface.version && session.is_quiet().await {
                return Ok(session);
            }
        }
        self.open_websocket(endpoint, scratch, due_ms).await
    }

    /// Makes one call that is no stream.
    pub(super) async fn call_by_message(
        &self,
        endpoint: &AgentEndpoint,
        written: Written,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<(), ClientError> {
        let mut session = self.session(endpoint, scratch, due_ms).await?;
        let CallBuffers { written: call, buffers, said, .. } = scratch;
        let ReplyBuf { body, received, extensions } = said;
        extensions.clear();
        let bytes_max = self.built.limits.body_bytes_max;
        let answer = async {
            session.send(&call.body, self.transport.random()).await?;
            session.next(body, bytes_max, &self.transport, None).await
        };
        match within(&self.transport, due_ms, answer).await?? {
            WsRead::End => Err(TransportError::Closed { before_response: true }.into()),
            WsRead::Message => {
                let head = ReplyHead { status: 200, content_type: None };
                let call = (written.op, written.rpc_id);
                endpoint.format.read_reply(buffers, call, head, body, received)?;
                if !session.is_dirty() {
                    self.sessions.give(session);
                }
                Ok(())
            }
        }
    }

    /// Opens a session at an endpoint (RFC 6455 §4.1), whose events say their numbers.
    pub(super) async fn open_websocket(
        &self,
        endpoint: &AgentEndpoint,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<WsSession<T::Response>, ClientError> {
        let nonce = ws::client::key(self.transport.random());
        let CallBuffers { target, fields, .. } = scratch;
        fields.clear();
        fields.extend(endpoint.fields.get());
        upgrade_fields(fields, &nonce, None);
        target.clear();
        let path = endpoint.interface.url.path.as_str();
        target.push_str(path);
        target.push(if path.contains('?') { '&' } else { '?' });
        target.push_str("eventIds=1");
        within(&self.transport, due_ms, self.authorize(endpoint, fields, target)).await??;
        let request = HttpRequest {
            method: HttpMethod::Get,
            origin: &endpoint.interface.url.origin,
            target,
            fields: fields.get(),
            body: b"",
            version: HttpVersion::Http1,
            head_due_ms: due_ms,
            body_idle_ms: u64::MAX,
            is_repeatable: true,
        };
        let mut response = self.transport.request(request).await?;
        if response.status() != 101 {
            let written = Written { op: Op::Get, rpc_id: 0, after: None };
            let read = self.read_answer(endpoint, written, &mut response, scratch, due_ms).await;
            const WHY: &str = "no upgrade to WebSocket";
            return Err(read.err().unwrap_or_else(|| TransportError::Malformed(WHY).into()));
        }
        check_upgrade(&response, &nonce, None).map_err(|error| {
            let kind = ClientErrorKind::Transport(TransportError::Malformed("no upgrade"));
            ClientError::because(kind, error.to_string())
        })?;
        let (reader, input, out) = (Reader::default(), Vec::new(), Vec::new());
        let version = endpoint.interface.version;
        let (at, sent, silent_ms) = (0, 0, None);
        Ok(WsSession { response, reader, input, at, out, sent, silent_ms, version })
    }
}
