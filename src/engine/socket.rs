//! A connection that has become a WebSocket: messages in, messages out, and pings (RFC 6455).
//!
//! Pending output is written first, then new input is read, while there is room for output. Streams
//! may not use the last quarter of the room, which is reserved for answers to new input, so a call
//! can always overtake them. After a close frame of either side no input is parsed.

use super::{
    Engine,
    conn::{Cx, Next, Step},
};
use crate::{
    binding::{
        large::{LARGE_BODY_BYTES, Lent, Ticket},
        ws::{Session, SessionCx},
    },
    limits::Limits,
    service::Now,
    ws::{self, OpCode, Reader, WsError, WsEvent, code},
};

/// One WebSocket.
pub(super) struct Socket {
    reader: Reader,
    session: Session,
    /// When the last input arrived.
    heard_ms: u64,
    /// When the last ping was sent; `None`: input has arrived since.
    pinged_ms: Option<u64>,
    /// Bytes of unread input after the last call.
    unread_bytes: usize,
    /// The time window of the incoming message, if it is incomplete.
    window: Option<Window>,
    /// A large message that waits for a parse slot; no input after it is read.
    whole: Option<(OpCode, Vec<u8>)>,
    /// The ticket of the large message.
    ticket: Option<Box<Ticket>>,
    /// When the credential of the handshake expires.
    expires_ms: u64,
}

/// A time window in which a message must make progress; only its own bytes count, not other input.
#[derive(Clone, Copy)]
struct Window {
    since_ms: u64,
    /// [`Reader::gathered`] at the start of the window.
    gathered: usize,
}

impl Socket {
    /// A socket that was just opened.
    pub(super) fn new(session: Session, now: Now) -> Socket {
        Socket {
            reader: Reader::default(),
            expires_ms: session.expires_ms(now),
            session,
            heard_ms: now.mono_ms,
            pinged_ms: None,
            unread_bytes: 0,
            window: None,
            whole: None,
            ticket: None,
        }
    }

    /// Advances as far as possible; see `Conn::advance`.
    ///
    /// Out of line, so that HTTP requests do not pay for saving its registers.
    #[inline(never)]
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>, input: &[u8], eof: bool) -> Step {
        if input.len() != self.unread_bytes {
            (self.heard_ms, self.pinged_ms) = (cx.now.mono_ms, None);
        }
        if !self.session.is_admitted(cx.now, cx.wake) {
            ws::close(cx.out, Some(code::UNAUTHORIZED), "the credential is no longer valid");
            return Step::Over(Next::Close);
        }
        let room = cx.engine.limits().output_bytes_max.saturating_sub(cx.unsent);
        if self.session.in_flight() > 0 {
            self.poll_pending(cx, room);
        }
        let ate = match self.read(cx, input, room) {
            Ok(ate) => ate,
            Err(next) => return Step::Over(next),
        };
        self.unread_bytes = input.len() - ate;
        if self.reader.is_inside() && self.window.is_none() {
            self.window = Some(Window { since_ms: cx.now.mono_ms, gathered: 0 });
        }
        if cx.out.len() >= room {
            return Step::Rest(ate, false);
        }
        // Otherwise the pending calls of a disconnected peer would remain until their tasks end.
        // The tasks continue.
        if eof {
            return Step::Over(Next::Abort);
        }
        match self.keep_watch(cx) {
            Some(next) => Step::Over(next),
            None => Step::Rest(ate, true),
        }
    }

    /// When to advance without input or a wake-up.
    pub(super) fn deadline_ms(&self, limits: &Limits) -> u64 {
        let ping_ms = self.pinged_ms.unwrap_or(self.heard_ms) + limits.ws_ping_ms;
        let ping_ms = ping_ms.min(self.expires_ms);
        let window_ms = self.window.map(|window| window.since_ms + limits.body_idle_ms);
        let others = [window_ms, self.session.due_ms()];
        others.into_iter().flatten().fold(ping_ms, u64::min)
    }

    /// Bytes of buffers and of pending calls.
    pub(super) fn held_bytes(&self) -> usize {
        let whole = self.whole.as_ref().map_or(0, |(_, body)| body.capacity());
        self.reader.held_bytes() + self.session.held_bytes() + whole
    }

    /// Writes the available output of all pending calls.
    fn poll_pending(&mut self, cx: &mut Cx<'_>, room: usize) {
        let room = room.saturating_sub(cx.engine.limits().output_bytes_max / 4);
        let record = self.session.poll(cx.engine.service(), cx.now, cx.wake, cx.out, room);
        cx.worker.shows(record);
    }

    /// Handles input while there is room; returns the bytes consumed, or the action that ends the
    /// connection.
    fn read(&mut self, cx: &mut Cx<'_>, input: &[u8], room: usize) -> Result<usize, Next> {
        let rules = self.session.reader_rules(cx.engine.limits());
        if let Some((opcode, mut body)) = self.whole.take()
            && !self.message(cx, opcode, &mut body, room)
        {
            // This side does not read, so a silent peer is not closed.
            (self.heard_ms, self.pinged_ms) = (cx.now.mono_ms, None);
            return Ok(0);
        }
        let mut ate = 0;
        while ate < input.len() && cx.out.len() < room {
            let mut payload = std::mem::take(&mut cx.worker.scratch.message);
            let read = self.reader.advance(&input[ate..], &mut payload, &rules);
            let handled = match read {
                Ok((bytes, event)) => {
                    ate += bytes;
                    self.handle(cx, event, &mut payload, room)
                }
                Err(error) => {
                    if let WsError::TooLarge { limit } = error {
                        let limit = self.session.too_large(cx.out, limit);
                        let worker = cx.worker.scratch.call.worker;
                        cx.engine.config.report_limit(worker, Some(limit), None);
                    }
                    ws::close(cx.out, Some(error.code()), error.reason());
                    EventOutcome::Over
                }
            };
            if payload.capacity() <= LARGE_BODY_BYTES {
                cx.worker.scratch.message = payload;
            }
            match handled {
                EventOutcome::Done => {}
                EventOutcome::Partial => break,
                EventOutcome::Over => return Err(Next::Close),
            }
        }
        Ok(ate)
    }

    fn handle(
        &mut self,
        cx: &mut Cx<'_>,
        event: WsEvent,
        payload: &mut Vec<u8>,
        room: usize,
    ) -> EventOutcome {
        let is_done = match event {
            WsEvent::Partial => return EventOutcome::Partial,
            WsEvent::Text => self.message(cx, OpCode::Text, payload, room),
            WsEvent::Binary => self.message(cx, OpCode::Binary, payload, room),
            WsEvent::Ping => {
                ws::control(cx.out, OpCode::Pong, payload);
                true
            }
            WsEvent::Pong => true,
            WsEvent::Close(code) => {
                // RFC 6455 §5.5.1: the answer to a close frame echoes its code.
                ws::close(cx.out, code, "");
                return EventOutcome::Over;
            }
        };
        if is_done { EventOutcome::Done } else { EventOutcome::Partial }
    }

    /// Handles a message; false: the message waits for a parse slot.
    fn message(
        &mut self,
        cx: &mut Cx<'_>,
        opcode: OpCode,
        body: &mut Vec<u8>,
        room: usize,
    ) -> bool {
        self.window = None;
        let Engine { config, .. } = cx.engine;
        let mut lease = None;
        if body.len() > LARGE_BODY_BYTES {
            lease = config.large.take(&mut self.ticket, cx.wake);
            if lease.is_none() {
                self.whole = Some((opcode, std::mem::take(body)));
                return false;
            }
        }
        let mut lent = Lent::new(&mut cx.worker.scratch, lease, cx.now);
        let (service, now, wake, peer) = (cx.engine.service(), cx.now, cx.wake, cx.peer);
        let session_cx = SessionCx { service, config, scratch: &mut lent, now, wake, peer };
        let (waits, record) = self.session.message(session_cx, cx.out, opcode, body);
        drop(lent);
        cx.worker.shows(record);
        if waits {
            self.poll_pending(cx, room);
        }
        true
    }

    /// Handles timers and the shutdown of the server.
    fn keep_watch(&mut self, cx: &mut Cx<'_>) -> Option<Next> {
        let (limits, now_ms) = (cx.engine.limits(), cx.now.mono_ms);
        let is_idle =
            self.session.in_flight() == 0 && !self.reader.is_inside() && self.whole.is_none();
        if cx.engine.is_cut() || (cx.engine.is_draining() && is_idle) {
            let record = self.session.cut(cx.engine.service(), cx.now, cx.wake, cx.out);
            cx.worker.shows(record);
            ws::close(cx.out, Some(code::GOING_AWAY), "the server is shutting down");
            return Some(Next::Close);
        }
        if self.stalls(limits, now_ms) {
            ws::close(cx.out, Some(code::POLICY), "the message did not arrive in time");
            return Some(Next::Close);
        }
        match self.pinged_ms {
            None if now_ms >= self.heard_ms + limits.ws_ping_ms => {
                ws::control(cx.out, OpCode::Ping, b"");
                self.pinged_ms = Some(now_ms);
                None
            }
            // The ping may be unsent; the driver closes the connection if its peer does not read.
            Some(pinged_ms) if now_ms >= pinged_ms + limits.ws_ping_ms && cx.unsent > 0 => {
                self.pinged_ms = Some(now_ms);
                None
            }
            Some(pinged_ms) if now_ms >= pinged_ms + limits.ws_ping_ms => Some(Next::Abort),
            None | Some(_) => None,
        }
    }

    /// True when `body_idle_ms` passed without enough progress of an incoming message.
    fn stalls(&mut self, limits: &Limits, now_ms: u64) -> bool {
        let Some(window) = self.window else { return false };
        if now_ms < window.since_ms + limits.body_idle_ms {
            return false;
        }
        let gathered = self.reader.gathered();
        self.window = Some(Window { since_ms: now_ms, gathered });
        gathered.saturating_sub(window.gathered) < limits.body_progress_bytes_min
    }
}

/// The result of one event.
enum EventOutcome {
    Done,
    /// The input has no complete frame, or a message waits for a parse slot.
    Partial,
    /// A close frame is written.
    Over,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{sync::Arc, task::Waker};

    use super::*;
    use crate::{
        agent::echo::Echo,
        engine::{Conn, Setup, Worker},
        service::{Entropy, Peer, Start},
    };

    struct Same;

    impl Entropy for Same {
        fn bits(&mut self) -> u128 {
            7
        }
    }

    /// A call above the size of a large body, in a frame with a zero mask.
    fn large_call() -> Vec<u8> {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{{"id":"x","y":"{}"}}}}"#,
            "y".repeat(LARGE_BODY_BYTES)
        );
        let head = [&[0x81, 0xff][..], &(text.len() as u64).to_be_bytes(), &[0; 4]].concat();
        [head, text.into_bytes()].concat()
    }

    #[test]
    fn waiting_message_is_answered_before_a_drain_closes() {
        let limits = Limits { large_bodies_max: 1, ..Limits::default() };
        let agents: Vec<(_, Arc<dyn crate::agent::Agent>)> =
            vec![(Echo::profile(), Arc::new(Echo))];
        let base_url = String::new();
        let start = Start { secret: 1, unix_ms: Arc::new(|| 0), workers: 1, base_url };
        let engine = Setup { limits, agents, ..Setup::default() }.build(start).unwrap();
        let mut worker = Worker::new(0, engine.limits(), Box::new(Same));
        let now = Now { mono_ms: 1, unix_ms: 1 };
        let mut conn = Conn::new(now);
        let mut advance = |input: &[u8]| {
            let (mut out, wake, peer) = (Vec::new(), Waker::noop(), Peer::default());
            let worker = &mut worker;
            let mut cx = Cx { engine: &engine, worker, now, wake, out: &mut out, unsent: 0, peer };
            let progress = conn.advance(&mut cx, input, false);
            assert_eq!(progress.consumed, input.len());
            (String::from_utf8_lossy(&out).into_owned(), progress.next)
        };
        let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
        assert!(advance(upgrade.as_bytes()).0.starts_with("HTTP/1.1 101"));
        // Another large message is handled meanwhile.
        let busy = engine.config.large.take(&mut None, Waker::noop());
        assert!(busy.is_some());
        assert_eq!(advance(&large_call()), (String::new(), Next::Open));
        engine.drain();
        assert_eq!(advance(b""), (String::new(), Next::Open));
        drop(busy);
        let (answer, next) = advance(b"");
        assert!(answer.contains("-32001") && answer.contains("shutting down"), "{answer}");
        assert_eq!(next, Next::Close);
    }
}
