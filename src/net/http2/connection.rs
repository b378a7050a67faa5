//! One connection: calls start as they arrive. The connection ends when it is idle, when its peer
//! does not respond, or when its peer floods the server.
//!
//! Invariant: all calls of one read start before the connection writes. Changes in h2 during this
//! time wake no task, since h2 is polled again anyway.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
};

use h2::{Ping, PingPong, Reason, server::Connection};
use http::request::Parts;
use smallvec::SmallVec;

use crate::{
    engine::Activity,
    net::{server_state::Stage, share::WaitRound, transport::Transport},
};

use super::{
    Http2Shared,
    deadline::Deadline,
    permit::Http2Permit,
    request::{self, Rest},
    rewind::Rewind,
    send::Outgoing,
};

/// Calls of one read that fit on the stack.
const CALLS_TYPICAL: usize = 32;

/// Wakes the task of a connection, except for changes that the task itself makes.
struct ConnectionWaker {
    task: Waker,
    begins_calls: AtomicBool,
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.begins_calls.load(Relaxed) {
            self.task.wake_by_ref();
        }
    }
}

/// One connection.
pub(super) struct Http2Connection<S: Transport> {
    h2: Connection<Rewind<S>, Outgoing>,
    pings: Option<PingPong>,
    shared: Rc<Http2Shared>,
    permit: Http2Permit,
    deadline: Deadline,
    /// The waker that h2 gets.
    waker: Arc<ConnectionWaker>,
    /// When the last call or answer to a ping arrived.
    moved_ms: u64,
    /// When the unanswered ping or the GOAWAY was sent.
    probed_ms: Option<u64>,
    /// True: a GOAWAY was sent.
    is_leaving: bool,
    /// When a connection that flooded us is closed, whether or not the peer has read the reason.
    ends_ms: Option<u64>,
    waits_in: WaitRound,
}

impl<S: Transport> Http2Connection<S> {
    /// A connection that is driven by the task of the waker `task`.
    pub(super) fn new(
        mut h2: Connection<Rewind<S>, Outgoing>,
        shared: Rc<Http2Shared>,
        permit: Http2Permit,
        task: Waker,
    ) -> Http2Connection<S> {
        let pings = h2.ping_pong();
        let (deadline, moved_ms) = (Deadline::default(), shared.now_ms());
        let waker = Arc::new(ConnectionWaker { task, begins_calls: AtomicBool::new(false) });
        let (probed_ms, is_leaving, ends_ms) = (None, false, None);
        Http2Connection {
            h2,
            pings,
            shared,
            permit,
            deadline,
            waker,
            moved_ms,
            probed_ms,
            is_leaving,
            ends_ms,
            waits_in: WaitRound::default(),
        }
    }

    /// Advances as far as possible; ready when the connection has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.local.server.stage() != Stage::Serving || self.shared.sends_goaway.get() {
            self.leave();
        }
        if self.shared.account.is_cut() {
            return self.reset();
        }
        if self.permit.is_ending() {
            return self.end_for_another(cx);
        }
        let buffers = &self.shared.local.server.buffers;
        if buffers.must_wait(&mut self.waits_in, cx.waker()) {
            return self.only_send(cx);
        }
        self.shared.inflow.begin_turn();
        if !self.begin_calls() {
            return Poll::Ready(());
        }
        self.shared.inflow.end_turn(self.shared.local.clock.now().mono_ms);
        if self.shared.inflow.is_flooded() {
            return self.calm(cx);
        }
        self.note_activity();
        self.watch(cx)
    }

    /// Records the activity of the connection, and its forwarded peer address.
    fn note_activity(&self) {
        let shared = &self.shared;
        self.permit.note(match (shared.active.get(), shared.is_authenticated.get()) {
            (0, _) => Activity::Idle,
            (_, true) => Activity::Authenticated,
            (_, false) => Activity::Unauthenticated,
        });
        if let Some(address) = shared.forwarded.take() {
            self.permit.forwards(address);
        }
    }

    /// Ends the connection without waiting: GOAWAY (RFC 9113 §6.8) is sent if the socket accepts
    /// it.
    #[cold]
    fn end_for_another(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.shared.inflow.pause(true);
        self.h2.abrupt_shutdown(Reason::NO_ERROR);
        let _ = self.h2.poll_closed(cx);
        Poll::Ready(())
    }

    /// Starts all received calls, and sends pending output; false: the connection has ended.
    fn begin_calls(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.waker));
        let cx = &mut Context::from_waker(&waker);
        loop {
            // Takes all heads from h2, where a waiting head occupies several times its bytes.
            let mut heads: SmallVec<[Parts; CALLS_TYPICAL]> = SmallVec::new();
            let mut rests: SmallVec<[Rest; CALLS_TYPICAL]> = SmallVec::new();
            while heads.is_empty() || self.shared.inflow.has_heads() {
                match self.h2.poll_accept(cx) {
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        self.shared.inflow.called();
                        let (head, body) = request.into_parts();
                        heads.push(head);
                        rests.push((body, respond));
                        // h2 has already parsed the other calls of the same read.
                        self.shared.inflow.pause(true);
                    }
                    // h2 notifies the open streams.
                    Poll::Ready(Some(Err(_)) | None) => return false,
                    Poll::Pending => break,
                }
            }
            self.shared.inflow.pause(false);
            if heads.is_empty() {
                return true;
            }
            self.moved_ms = self.shared.now_ms();
            if self.is_leaving {
                // The peer sent these calls before it read the GOAWAY: the connection is no longer
                // idle.
                self.probed_ms = None;
            }
            self.waker.begins_calls.store(true, Relaxed);
            for (head, (body, respond)) in heads.iter().zip(rests.drain(..)) {
                request::start(&self.shared, head, body, respond, cx);
            }
            self.waker.begins_calls.store(false, Relaxed);
        }
    }

    /// Sends pending output, and accepts no calls.
    #[cold]
    fn only_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.shared.inflow.pause(true);
        let over = self.h2.poll_closed(cx).is_ready();
        self.shared.inflow.pause(false);
        // The latest time to check again whether the connection ends.
        let (now_ms, stall_ms) = (self.shared.now_ms(), self.shared.limits().write_stall_ms);
        self.deadline.arm(cx, &self.shared.local, now_ms + stall_ms);
        if over { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ends a connection after its peer sent too many frames without a call or data.
    fn calm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.shared.local.clock.now().mono_ms;
        let ends_ms = *self.ends_ms.get_or_insert_with(|| {
            self.h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            let local = &self.shared.local;
            local.server.refused(local.worker, "http2_control_frames_max");
            // The next poll sends the GOAWAY.
            cx.waker().wake_by_ref();
            now + self.shared.limits().linger_ms
        });
        self.deadline.arm(cx, &self.shared.local, ends_ms);
        if now < ends_ms { Poll::Pending } else { Poll::Ready(()) }
    }

    fn reset(&mut self) -> Poll<()> {
        self.shared.resets.set(true);
        Poll::Ready(())
    }

    fn leave(&mut self) {
        if !self.is_leaving {
            self.is_leaving = true;
            self.h2.graceful_shutdown();
        }
    }

    /// Ends an idle connection, or a connection with an unresponsive peer.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.shared.local.clock.now().mono_ms;
        let (limits, is_idle) = (self.shared.limits(), self.shared.active.get() == 0);
        let (stall_ms, quiet_ms) = match is_idle {
            true => (limits.write_stall_ms, limits.keep_alive_idle_ms),
            false => (limits.write_stall_ms, limits.sse_keep_alive_ms),
        };
        if self.probed_ms.is_some()
            && let Some(pings) = &mut self.pings
            && let Poll::Ready(answer) = pings.poll_pong(cx)
        {
            if answer.is_err() {
                return Poll::Ready(());
            }
            (self.probed_ms, self.moved_ms) = (None, now);
        }
        let due_ms = match self.probed_ms {
            Some(probed_ms) if now >= probed_ms + stall_ms => {
                return if is_idle { Poll::Ready(()) } else { self.reset() };
            }
            Some(probed_ms) => probed_ms + stall_ms,
            None if now < self.moved_ms + quiet_ms => self.moved_ms + quiet_ms,
            None => {
                self.probed_ms = Some(now);
                if is_idle {
                    self.leave();
                } else if let Some(pings) = &mut self.pings {
                    // An error means that another ping is in flight, which is enough.
                    let _ = pings.send_ping(Ping::opaque());
                }
                // The next poll sends the frame.
                cx.waker().wake_by_ref();
                now + stall_ms
            }
        };
        self.deadline.arm(cx, &self.shared.local, due_ms);
        Poll::Pending
    }
}
