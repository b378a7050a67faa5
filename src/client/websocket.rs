//! Calls over a WebSocket: JSON-RPC, one text message each (`docs/dialects.md`).
//!
//! Invariant: a session carries one call at a time, so answers need no matching; a concurrent call
//! has another session. A session that ended in the middle of a call is closed; all others wait for
//! the next call, up to the idle time of a connection. The opening handshake identifies the caller
//! of a session, so a call with another credential or version has another session.

mod idle;

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll, Waker},
};

use crate::{
    http::FieldLinesBuf,
    model::Op,
    ws::{self, OpCode, Reader, ReaderRules, WsEvent},
};

use super::{
    ClientError, ClientErrorKind, HttpMethod, HttpRequest, HttpResponse, HttpVersion, Transport,
    TransportError,
    client::SharedClient,
    endpoint::AgentEndpoint,
    exchange::{READ_BYTES, Written, within},
    format::{CallId, ReplyHead},
    scratch::{CallBuffers, ReplyBuf},
    upgrade::{check_upgrade, upgrade_fields},
};

pub(super) use idle::IdleSessions;

/// RFC 6455 §7.4.1: the purpose of the connection has been fulfilled.
const CLOSE_NORMAL: u16 = 1000;

/// Maximum empty frames and control frames in a row without a message: a server that sends more
/// keeps the client busy.
const SILENT_FRAMES_MAX: usize = 10_000;

/// One upgraded connection.
pub(super) struct WsSession<R> {
    response: R,
    reader: Reader,
    input: Vec<u8>,
    at: usize,
    out: Vec<u8>,
    /// Sent bytes of `out`.
    sent: usize,
    /// When the idle timeout ends.
    silent_ms: Option<u64>,
    /// The handshake, which identifies the version and the caller.
    opened: WsOpening,
    /// The key of the close frame.
    close_key: [u8; 4],
    /// When the session became idle, in ms of [`Now::mono_ms`](crate::service::Now).
    idle_since_ms: u64,
}

/// Path, query and fields of the handshake, without the fields of every handshake.
struct WsOpening {
    target: String,
    fields: FieldLinesBuf,
}

/// The result of a read.
pub(super) enum WsRead {
    /// A text message, in the caller's buffer.
    Message,
    /// The server ended the session.
    End,
}

impl<R: HttpResponse> WsSession<R> {
    /// Whether the session has received bytes that belong to no call.
    pub fn is_dirty(&self) -> bool {
        self.at < self.input.len() || self.reader.is_inside()
    }

    /// Whether the session is open, and has received nothing since the answer to its last call.
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

    /// Sends a close frame if this needs no waiting; the connection is closed in any case.
    fn close(&mut self) {
        ws::client::close(&mut self.out, Some(CLOSE_NORMAL), self.close_key);
        let cx = &mut Context::from_waker(Waker::noop());
        let _ = self.response.poll_write(cx, &self.out);
    }

    /// Sends pending bytes. If the future is dropped, the next call sends the rest.
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
    /// A peer that sends nothing for `idle_ms` causes an error; `None`: the caller checks the time.
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
                    // RFC 6455 §5.5.1: the close frame in answer has the same code.
                    ws::client::close(&mut self.out, code, key(transport.random()));
                    self.flush().await?;
                    return Ok(WsRead::End);
                }
                WsEvent::Partial => {
                    let is_open = match idle_ms {
                        None => self.read().await?,
                        Some(idle_ms) => {
                            let now_ms = transport.mono_ms();
                            let due_ms = now_ms.saturating_add(idle_ms);
                            let due_ms = *self.silent_ms.get_or_insert(due_ms);
                            within(transport, due_ms, pin!(self.read())).await??
                        }
                    };
                    self.silent_ms = None;
                    if !is_open {
                        return Ok(WsRead::End);
                    }
                }
            }
        }
        Err(TransportError::Malformed("too many control frames without a message").into())
    }

    /// Reads more; false: the connection has ended.
    async fn read(&mut self) -> Result<bool, ClientError> {
        self.input.drain(..self.at);
        self.at = 0;
        let (response, input) = (&mut self.response, &mut self.input);
        Ok(poll_fn(|cx| response.poll_read(cx, input, READ_BYTES)).await?)
    }
}

/// The number of an event, which Peregrine's servers write after the result: `,"eventId":7}`.
pub(super) fn event_number(message: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b",\"eventId\":";
    let body = message.strip_suffix(b"}")?;
    let digits = body.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = body.split_at(body.len() - digits);
    let number = before.ends_with(NAME).then(|| str::from_utf8(number).ok()).flatten();
    number?.parse().ok()
}

/// A new key for each frame (RFC 6455 §5.3).
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
    /// A session for one call: an idle one, or a new one.
    pub(super) async fn session(
        &self,
        endpoint: &AgentEndpoint,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<WsSession<T::Response>, ClientError> {
        self.write_opening(endpoint, scratch, due_ms).await?;
        let idle_ms = self.built.limits.pool_idle_ms;
        while let Some(mut session) = self.sessions.take(self.transport.mono_ms(), idle_ms) {
            let WsOpening { target, fields } = &session.opened;
            let is_alike = *target == scratch.target && *fields == scratch.fields;
            // A call over a session that the server has closed, or on which it sends unrequested
            // bytes, would fail.
            if is_alike && session.is_quiet().await {
                return Ok(session);
            }
            session.close();
        }
        self.open_websocket(endpoint, scratch, due_ms).await
    }

    /// Writes the handshake of a session for this endpoint and caller.
    async fn write_opening(
        &self,
        endpoint: &AgentEndpoint,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<(), ClientError> {
        let CallBuffers { target, fields, token, .. } = scratch;
        fields.clear();
        fields.extend(endpoint.fields.get());
        target.clear();
        let path = endpoint.interface.url.path.as_str();
        target.push_str(path);
        target.push(if path.contains('?') { '&' } else { '?' });
        target.push_str("eventIds=1");
        *token = None;
        let plan = endpoint.plan()?;
        plan.add_query(target);
        fields.extend(plan.fields());
        match plan.needs_token() {
            true => self.add_token(fields, token, due_ms).await,
            false => Ok(()),
        }
    }

    /// Executes one call that is not a stream.
    pub(super) async fn call_by_message(
        &self,
        endpoint: &AgentEndpoint,
        written: Written,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<(), ClientError> {
        let mut session = self.session(endpoint, scratch, due_ms).await?;
        let CallBuffers { written: call, buffers, reply, .. } = scratch;
        let ReplyBuf { body, received, extensions } = &mut **reply;
        extensions.clear();
        let bytes_max = self.built.limits.body_bytes_max;
        let answer = async {
            session.send(&call.body, self.transport.random()).await?;
            session.next(body, bytes_max, &self.transport, None).await
        };
        let read = within(&self.transport, due_ms, pin!(answer)).await??;
        match read {
            WsRead::End => Err(TransportError::Closed { before_response: true }.into()),
            WsRead::Message => {
                let head = ReplyHead { status: 200, content_type: None };
                let call = CallId { op: written.op, rpc_id: written.rpc_id };
                endpoint.format.read_reply(buffers, call, head, body, received)?;
                if !session.is_dirty() {
                    let now_ms = self.transport.mono_ms();
                    let idle_ms = self.built.limits.pool_idle_ms;
                    if self.sessions.give(session, now_ms, idle_ms) {
                        self.watch_sessions(idle_ms);
                    }
                }
                Ok(())
            }
        }
    }

    /// Opens a session with the written handshake (RFC 6455 §4.1), which requests numbers of
    /// events.
    async fn open_websocket(
        &self,
        endpoint: &AgentEndpoint,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<WsSession<T::Response>, ClientError> {
        let nonce = ws::client::key(self.transport.random());
        let CallBuffers { target, fields, .. } = scratch;
        let opened = WsOpening { target: target.clone(), fields: fields.clone() };
        upgrade_fields(fields, &nonce, None);
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
        if (300..400).contains(&response.status()) {
            response = self.redirected(endpoint.plan()?, request, response).await?;
        }
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
        let close_key = key(self.transport.random());
        let (at, sent, silent_ms, idle_since_ms) = (0, 0, None, 0);
        Ok(WsSession {
            response,
            reader,
            input,
            at,
            out,
            sent,
            silent_ms,
            opened,
            close_key,
            idle_since_ms,
        })
    }
}
