//! The waiting calls of one WebSocket.
//!
//! All waiting calls are polled when their connection is woken. At most `ws_in_flight_max` calls
//! wait; the free space in the output bounds the amount that they write in one poll.

use std::{
    borrow::Cow,
    task::{Poll, Waker},
};

use super::Upgrade;
use crate::{
    auth::CallerWatch,
    binding::{
        CallContext, EventStream, Handled, PendingResponse, RequestSource, Scratch, ServerConfig,
        answer::ResponseWriter,
        jsonrpc,
        observed::CallBegin,
        responder::{Transport, WebSocketMessages},
    },
    fault::{Fault, FaultKind},
    json::Source,
    limits::Limits,
    service::{Follow, Now, Peer, Service},
    ws::{self, OpCode, ReaderRules},
};

/// An open WebSocket and its waiting calls.
pub struct Session {
    upgrade: Upgrade,
    /// Wakes the connection when the caller's credential is withdrawn.
    watch: Option<Box<CallerWatch>>,
    #[cfg(feature = "test-echo")]
    echoes: bool,
    pending: Vec<Pending>,
}

/// A message that is not answered completely.
enum Pending {
    Call(Box<PendingResponse>),
    Stream(Box<EventStream>),
}

/// The context of one message, from which its [`CallContext`] is created.
pub struct SessionCx<'a> {
    /// The service that executes the call.
    pub service: &'a dyn Service,
    /// The server's settings.
    pub config: &'a ServerConfig,
    /// The buffers of the worker.
    pub scratch: &'a mut Scratch,
    /// The time.
    pub now: Now,
    /// Wakes the connection.
    pub wake: &'a Waker,
    /// The client.
    pub peer: Peer<'a>,
}

/// The capacity of the list of waiting calls that an idle session retains.
const PENDING_CAPACITY_MAX: usize = 4;

impl Session {
    pub(super) fn new(upgrade: Upgrade) -> Session {
        Session {
            upgrade,
            watch: None,
            #[cfg(feature = "test-echo")]
            echoes: false,
            pending: Vec::new(),
        }
    }

    /// Echoes every message from now on, for framing tests.
    #[cfg(feature = "test-echo")]
    pub fn echo(&mut self) {
        self.echoes = true;
    }

    #[cfg(feature = "test-echo")]
    fn echoes(&self) -> bool {
        self.echoes
    }

    #[cfg(not(feature = "test-echo"))]
    const fn echoes(&self) -> bool {
        false
    }

    /// The rules for reading messages: A2A uses text; a platform may define its own size limit.
    pub fn reader_rules(&self, limits: &Limits) -> ReaderRules {
        let documented = self.upgrade.endpoint().dialect.quirks.body;
        let documented = documented.map(|body| (body.bytes_max)(limits));
        ReaderRules {
            frame_bytes_max: documented.unwrap_or(limits.ws_frame_bytes_max),
            message_bytes_max: documented.unwrap_or(limits.ws_message_bytes_max),
            binary: self.echoes(),
            masked: true,
        }
    }

    /// Whether the caller's credential is still valid; `wake` is woken when the credential is
    /// withdrawn.
    pub fn is_admitted(&mut self, now: Now, wake: &Waker) -> bool {
        let (admission, watch) = (self.upgrade.admission(), &mut self.watch);
        admission.as_ref().is_none_or(|by| by.holds_or_wakes(watch, now, wake))
    }

    /// When the caller's credential expires, in ms of the monotonic clock.
    pub fn expires_ms(&self, now: Now) -> u64 {
        self.upgrade.admission().as_ref().map_or(u64::MAX, |by| by.expires_mono_ms(now))
    }

    /// When to poll the waiting calls without an earlier event, in ms of the monotonic clock.
    pub fn due_ms(&self) -> Option<u64> {
        let calls = self.pending.iter().filter_map(|pending| match pending {
            Pending::Call(call) => call.due_ms(),
            Pending::Stream(_) => None,
        });
        calls.min()
    }

    /// The number of waiting requests.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Answers one message; true: its call waits, and must be polled at once. Also returns the
    /// newest record that the output shows.
    pub fn message(
        &mut self,
        cx: SessionCx<'_>,
        out: &mut Vec<u8>,
        opcode: OpCode,
        body: &[u8],
    ) -> (bool, u64) {
        let SessionCx { service, config, scratch, now, wake, peer } = cx;
        if self.echoes() {
            let frame = ws::begin(out);
            out.extend_from_slice(body);
            ws::finish(out, frame, opcode);
            return (false, 0);
        }
        let upgrade = &self.upgrade;
        let is_full = self.pending.len() >= config.limits.ws_in_flight_max;
        let Scratch { decode, call, .. } = scratch;
        let mut cx = CallContext {
            service,
            config,
            scratch: call,
            writer: ResponseWriter::new(out, Transport::WebSocket(WebSocketMessages::default())),
            now,
            wake,
            peer,
            endpoint: upgrade.endpoint(),
            base: upgrade.base(),
            outside_tenant: upgrade.tenant(),
            agent: upgrade.endpoint().agent,
            source: RequestSource::WebSocket { upgrade, is_full },
            closes: false,
            extensions: upgrade.extensions().map(Cow::Borrowed),
            admission: upgrade.admission().clone(),
            share: None,
            begin: CallBegin::default(),
        };
        match jsonrpc::handle(&mut cx, decode, Source::from(body)) {
            Handled::Answered => return (false, cx.writer.record),
            Handled::Pending(pending) => self.pending.push(Pending::Call(pending)),
            Handled::Stream(stream) => self.pending.push(Pending::Stream(stream)),
        }
        (true, cx.writer.record)
    }

    /// Writes the ready output of all waiting calls, until `out` has `room` bytes. A call that
    /// stops for this reason is polled last in the next poll. Returns the newest record that the
    /// output shows.
    pub fn poll(
        &mut self,
        service: &dyn Service,
        now: Now,
        wake: &Waker,
        out: &mut Vec<u8>,
        room: usize,
    ) -> u64 {
        let mut writer =
            ResponseWriter::new(out, Transport::WebSocket(WebSocketMessages::default()));
        let mut at = 0;
        while at < self.pending.len() {
            if writer.out.len() >= room {
                self.pending.rotate_left(at);
                break;
            }
            let is_done = match &mut self.pending[at] {
                Pending::Call(call) => match call.poll(service, now, wake, &mut writer) {
                    Poll::Pending => false,
                    Poll::Ready(Handled::Stream(stream)) => {
                        self.pending[at] = Pending::Stream(stream);
                        continue;
                    }
                    Poll::Ready(_) => true,
                },
                Pending::Stream(stream) => match stream.poll(service, wake, &mut writer, room) {
                    Follow::Pending => false,
                    Follow::More => {
                        self.pending.rotate_left(at + 1);
                        break;
                    }
                    Follow::End | Follow::Gone => true,
                },
            };
            if is_done {
                self.pending.remove(at);
            } else {
                at += 1;
            }
        }
        if self.pending.is_empty() && self.pending.capacity() > PENDING_CAPACITY_MAX {
            self.pending = Vec::new();
        }
        writer.record
    }

    /// Ends the waiting calls before their tasks, because the server shuts down: calls are polled
    /// once more, and streams end with an error. Returns the newest record that the output shows.
    pub fn cut(&mut self, service: &dyn Service, now: Now, wake: &Waker, out: &mut Vec<u8>) -> u64 {
        let mut writer =
            ResponseWriter::new(out, Transport::WebSocket(WebSocketMessages::default()));
        for pending in self.pending.drain(..) {
            match pending {
                Pending::Call(mut call) => match call.poll(service, now, wake, &mut writer) {
                    Poll::Ready(Handled::Stream(mut stream)) => stream.cut(&mut writer),
                    Poll::Ready(_) => {}
                    Poll::Pending => call.cut(&mut writer),
                },
                Pending::Stream(mut stream) => stream.cut(&mut writer),
            }
        }
        writer.record
    }

    /// Answers a message above its size limit with a JSON-RPC error, before the WebSocket close
    /// frame (wire §8, a2a_rust: -32000).
    ///
    /// Returns the name of the limit.
    pub fn too_large(&self, out: &mut Vec<u8>, limit: &'static str) -> &'static str {
        let documented = self.upgrade.endpoint().dialect.quirks.body;
        let limit = documented.map_or(limit, |body| body.name);
        if self.echoes() {
            return limit;
        }
        let frame = ws::begin(out);
        let fault =
            Fault::because(FaultKind::Overloaded, format!("the message is too large ({limit})"));
        jsonrpc::push_unread(out, self.upgrade.endpoint(), &fault);
        ws::finish(out, frame, OpCode::Text);
        limit
    }

    /// Bytes of the waiting calls, and of the data of the upgrade.
    pub fn held_bytes(&self) -> usize {
        let each = |pending: &Pending| match pending {
            Pending::Call(call) => size_of::<PendingResponse>() + call.held_bytes(),
            Pending::Stream(stream) => size_of::<EventStream>() + stream.held_bytes(),
        };
        let list = self.pending.capacity() * size_of::<Pending>();
        let caller = self.upgrade.admission().as_ref().map_or(0, |by| by.counted_bytes());
        self.upgrade.held_bytes() + caller + list + self.pending.iter().map(each).sum::<usize>()
    }
}
