//! The calls of one WebSocket: those that wait, and how they go on.
//!
//! Whatever waits is polled when its connection is woken. At most `ws_in_flight_max` do; what they
//! may write before the others get their turn is bounded by the room that is left.

use std::task::Waker;

use super::Upgrade;
use crate::{
    binding::{Handled, Means, Parked, jsonrpc, stream::Pump},
    fault::{Fault, FaultKind},
    service::{Follow, Service},
    ws::{self, OpCode},
};

/// How a WebSocket was opened, and what it waits for.
pub struct Session {
    upgrade: Upgrade,
    #[cfg(feature = "test-echo")]
    echoes: bool,
    pending: Vec<Pending>,
}

/// One message that is not answered yet.
enum Pending {
    Call(Box<Parked>),
    Stream(Box<Pump>),
}

/// Entries for which an idle session keeps its list.
const PENDING_KEPT: usize = 4;

impl Session {
    pub(super) fn new(upgrade: Upgrade) -> Session {
        Session {
            upgrade,
            #[cfg(feature = "test-echo")]
            echoes: false,
            pending: Vec::new(),
        }
    }

    /// From now on it gives every message back, for the tests of frames.
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

    /// Whether messages of bytes are taken: A2A is text.
    pub fn takes_binary(&self) -> bool {
        self.echoes()
    }

    /// Requests that wait.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Answers one message; true: it waits, and may be ready already.
    pub fn message(&mut self, means: Means<'_>, opcode: OpCode, body: &[u8]) -> bool {
        if self.echoes() {
            let frame = ws::begin(means.out);
            means.out.extend_from_slice(body);
            ws::finish(means.out, frame, opcode);
            return false;
        }
        let is_full = self.pending.len() >= means.site.limits.ws_in_flight_max;
        match jsonrpc::handle_message(means, &self.upgrade, is_full, body) {
            Handled::Answered | Handled::AnsweredLast | Handled::Upgraded(_) => return false,
            Handled::Parked(parked) => self.pending.push(Pending::Call(parked)),
            Handled::Stream(pump) => self.pending.push(Pending::Stream(pump)),
        }
        true
    }

    /// Writes what is ready of everything that waits, until `out` holds `room` bytes. Whoever is
    /// stopped by that goes last the next time.
    pub fn settle(
        &mut self,
        service: &dyn Service,
        wake: &Waker,
        out: &mut Vec<u8>,
        room: usize,
        date: &[u8; 29],
    ) {
        let mut at = 0;
        while at < self.pending.len() {
            if out.len() >= room {
                return self.pending.rotate_left(at);
            }
            let is_done = match &mut self.pending[at] {
                Pending::Call(parked) => parked.settle(service, wake, out, date),
                Pending::Stream(pump) => match pump.pump(service, wake, out, room) {
                    Follow::Pending => false,
                    Follow::More => return self.pending.rotate_left(at + 1),
                    Follow::End | Follow::Gone => true,
                },
            };
            if is_done {
                self.pending.remove(at);
            } else {
                at += 1;
            }
        }
        if self.pending.is_empty() && self.pending.capacity() > PENDING_KEPT {
            self.pending = Vec::new();
        }
    }

    /// Ends streams before their tasks do, because the server ends.
    pub fn cut(&mut self, out: &mut Vec<u8>) {
        for pending in self.pending.drain(..) {
            match pending {
                // Answered already: no call waits at the end of the server.
                Pending::Call(_) => {}
                Pending::Stream(pump) => pump.cut(out),
            }
        }
    }

    /// Says in the caller's own terms that a message is beyond its limit, before the close frame
    /// does in those of WebSocket (wire §8, a2a_rust: -32000).
    pub fn too_large(&self, out: &mut Vec<u8>, limit: &'static str) {
        if self.echoes() {
            return;
        }
        let frame = ws::begin(out);
        let fault =
            Fault::because(FaultKind::Overloaded, format!("the message is too large ({limit})"));
        jsonrpc::push_unread(out, self.upgrade.endpoint(), &fault);
        ws::finish(out, frame, OpCode::Text);
    }

    /// Bytes of what waits, and of what the upgrade said.
    pub fn held_bytes(&self) -> usize {
        let each = |pending: &Pending| match pending {
            Pending::Call(parked) => size_of::<Parked>() + parked.held_bytes(),
            Pending::Stream(pump) => size_of::<Pump>() + pump.id.as_ref().map_or(0, |id| id.len()),
        };
        let list = self.pending.capacity() * size_of::<Pending>();
        self.upgrade.held_bytes() + list + self.pending.iter().map(each).sum::<usize>()
    }
}
