//! One connection: read, advance, write.
//!
//! A poll reads the available input, lets the engine process it and writes the answers with one
//! call, and repeats this until the socket has no more input. An idle connection owns no buffer: it
//! reads into the buffer of its worker. A connection ends if its peer reads too little of our
//! output in a window of `write_stall_ms`, or if its buffers have the largest cost when all buffers
//! are full (`share`). After a close the peer has `linger_ms` to read our last output. A connection
//! that must free its slot for another connection (`peer_table`) ends at once.

mod sending;

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{
    engine::{Conn, Cx, Next},
    json::Source,
    service::{Now, Peer},
};

use super::{
    detachable::Detachable,
    input_buffer::InputBuffer,
    output_buffer::OutputBuffer,
    peer_table::PeerKey,
    share::{Share, WaitRound},
    transport::{Transport, poll_read, send},
    wheel::{NEVER, TimerSlot},
    worker_state::{ConnectionPermit, WorkerScratch, WorkerState},
};

/// Rounds of one poll before other connections are polled.
const ROUNDS_MAX: usize = 8;

/// Milliseconds between checks whether a peer has disconnected, while its connection does not read
/// because of a waiting call or full buffers: with unread bytes in the socket, the connection is
/// not woken.
const LOOK_MS: u64 = 1_000;

/// The future of one connection, generic over its transport.
pub(super) struct Drive<S: Transport> {
    local: ConnectionPermit,
    io: Io<S>,
}

struct Io<S> {
    stream: Detachable<S>,
    conn: Conn,
    input: InputBuffer,
    output: OutputBuffer,
    need: u32,
    due_ms: u64,
    /// The start of the current window of waiting output: the lower bits of its milliseconds.
    waits_ms: u32,
    /// Bytes that the peer has read in this window.
    window_bytes: u32,
    /// The bytes counted in `ServerState::buffers`.
    share: Share,
    waits_in: WaitRound,
    slot: Option<TimerSlot>,
    phase: Phase,
    local_addr: u8,
    read: bool,
    eof: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Output is sent, then our side closes.
    Closing,
    /// Our side is closed; input is ignored.
    Lingering,
    /// The peer speaks HTTP/2.
    Http2,
}

/// How a poll ends.
enum PollEnd {
    /// Every event that can advance the connection wakes it.
    Wait,
    /// All buffers are full: the connection that frees memory wakes this one.
    Full,
    /// There is more to do, after other connections were polled.
    Yield,
    /// The connection has ended.
    Done,
    /// Another driver takes over the connection.
    ToHttp2,
}

/// The connection failed, or must end at once.
struct Hangup;

impl From<io::Error> for Hangup {
    fn from(_: io::Error) -> Hangup {
        Hangup
    }
}

impl<S: Transport + 'static> Drive<S> {
    /// Drives a connection that was just accepted.
    pub(super) fn new(stream: S, local: ConnectionPermit, local_addr: u8) -> Drive<S> {
        let io = Io {
            stream: Detachable::new(stream),
            conn: Conn::new(local.clock.now()),
            input: InputBuffer::default(),
            output: OutputBuffer::default(),
            need: 0,
            due_ms: NEVER,
            waits_ms: 0,
            window_bytes: 0,
            share: Share::default(),
            waits_in: WaitRound::default(),
            slot: None,
            phase: Phase::Open,
            local_addr,
            read: true,
            eof: false,
        };
        Drive { local, io }
    }
}

impl<S: Transport + 'static> Future for Drive<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Drive { local, io } = self.get_mut();
        let now = local.now();
        let slot = *io.slot.get_or_insert_with(|| {
            local.entry().inspect(|entry| entry.set_waker(cx.waker()));
            local.wheel.borrow_mut().insert(cx.waker().clone())
        });
        if local.is_ending() {
            io.end_for_another(&mut local.scratch.borrow_mut(), local, now, cx);
            return Poll::Ready(());
        }
        let mut scratch = local.scratch.borrow_mut();
        let end = io.rounds(&mut scratch, local, now, cx);
        let forwarded = scratch.worker.take_forwarded();
        drop(scratch);
        if let Some(entry) = local.entry() {
            entry.note(io.conn.activity(io.is_drained()));
            forwarded.inspect(|address| entry.set_peer(PeerKey::of(*address)));
        }
        match end.unwrap_or(PollEnd::Done) {
            PollEnd::Done => return Poll::Ready(()),
            PollEnd::ToHttp2 => {
                let permit = local.hand_over();
                io.stream.move_to_http2(io.input.source().bytes(), permit, io.local_addr);
                return Poll::Ready(());
            }
            PollEnd::Yield => cx.waker().wake_by_ref(),
            PollEnd::Full => local.arm(slot, now.mono_ms + LOOK_MS),
            PollEnd::Wait => local.arm(slot, io.deadline(local, now)),
        }
        Poll::Pending
    }
}

impl<S: Transport> Drop for Drive<S> {
    fn drop(&mut self) {
        if let Some(slot) = self.io.slot {
            self.local.wheel.borrow_mut().remove(slot);
        }
        if !self.io.is_drained() {
            // The peer has not read all output: a reset frees the kernel's buffers.
            self.io.stream.reset_on_close();
        }
        if let Ok(mut scratch) = self.local.scratch.try_borrow_mut() {
            self.io.input.release(&mut scratch.inputs);
            self.io.output.release(&mut scratch.outputs);
        }
        self.local.server.buffers.release(&mut self.io.share);
    }
}

impl<S: Transport> Io<S> {
    /// True if no output waits to be sent.
    fn is_drained(&self) -> bool {
        self.output.is_empty() && self.stream.is_flushed()
    }
}

impl<S: Transport + 'static> Io<S> {
    fn rounds(
        &mut self,
        scratch: &mut WorkerScratch,
        local: &ConnectionPermit,
        now: Now,
        cx: &mut Context<'_>,
    ) -> Result<PollEnd, Hangup> {
        if self.share.is_cut() {
            return Err(Hangup);
        }
        // The reason of the poll is unknown: the engine may have been woken, unless it only waits
        // for input.
        let mut due = !self.needs_input() || now.mono_ms >= self.due_ms;
        for _ in 0..ROUNDS_MAX {
            let moved = self.flush(scratch, local, now, cx)?;
            if self.phase == Phase::Http2 {
                return Ok(PollEnd::ToHttp2);
            }
            if self.phase != Phase::Open {
                return self.close(scratch, local, now, cx);
            }
            if local.server.buffers.must_wait(&mut self.waits_in, cx.waker()) {
                return Ok(PollEnd::Full);
            }
            due |= moved && self.output.len() < local.bounds.output_bytes_max;
            let fresh = match self.fill(scratch, local, cx)? {
                Poll::Ready(fresh) => {
                    due |= self.eof || !self.needs_input();
                    fresh
                }
                Poll::Pending if due => 0,
                Poll::Pending if self.reads_paused(local) && self.stream.is_read_closed() => {
                    (self.eof, due) = (true, true);
                    0
                }
                Poll::Pending => {
                    // Also charges a buffer that has grown for expected input.
                    self.charge(local, now, cx)?;
                    return Ok(PollEnd::Wait);
                }
            };
            if due {
                due = self.advance(fresh, scratch, local, now, cx)?;
            }
            self.charge(local, now, cx)?;
        }
        Ok(PollEnd::Yield)
    }

    /// Counts the buffers that this connection holds.
    fn charge(&mut self, local: &WorkerState, now: Now, cx: &Context<'_>) -> Result<(), Hangup> {
        let (input, output) = (self.input.held_bytes(), self.output.held_bytes());
        let held = input + output + self.conn.held_bytes() + self.stream.held_bytes();
        if held == self.share.held() {
            return Ok(());
        }
        let buffers = &local.server.buffers;
        let stays = buffers.charge(&mut self.share, held, now.mono_ms, cx.waker());
        if stays { Ok(()) } else { Err(Hangup) }
    }

    /// True if the engine needs more input before it can advance.
    fn needs_input(&self) -> bool {
        self.need as usize > self.input.len()
    }

    /// True if the engine waits for a task and takes no input, so that no read can show that the
    /// peer has disconnected.
    fn reads_paused(&self, local: &WorkerState) -> bool {
        !self.read && !self.eof && self.output.len() < local.bounds.output_bytes_max
    }

    /// Begins a window in which the peer has to read some of the waiting output.
    fn begin_window(&mut self, now: Now) {
        (self.waits_ms, self.window_bytes) = (now.mono_ms as u32, 0);
    }

    /// How long the current window has lasted.
    fn waited_ms(&self, now: Now) -> u64 {
        u64::from((now.mono_ms as u32).wrapping_sub(self.waits_ms))
    }

    fn deadline(&self, local: &WorkerState, now: Now) -> u64 {
        let look_ms = if self.reads_paused(local) { now.mono_ms + LOOK_MS } else { NEVER };
        let remaining_ms = local.bounds.write_stall_ms.saturating_sub(self.waited_ms(now));
        let stalled = now.mono_ms.saturating_add(remaining_ms);
        let due_ms = self.due_ms.min(look_ms);
        if self.is_drained() { due_ms } else { due_ms.min(stalled) }
    }

    /// Reads once. Ready: the number of bytes in the worker's buffer; 0: the bytes are in the
    /// connection's own buffer, or the peer has closed its side.
    fn fill(
        &mut self,
        scratch: &mut WorkerScratch,
        local: &WorkerState,
        cx: &mut Context<'_>,
    ) -> Result<Poll<usize>, Hangup> {
        if self.eof || !self.read {
            return Ok(Poll::Pending);
        }
        let into_worker = self.input.is_quiet() && self.need == 0;
        let room = if into_worker {
            &mut scratch.read
        } else {
            self.input.room(self.need as usize, local.bounds.input_bytes_max, &mut scratch.inputs)
        };
        if room.is_empty() {
            return Ok(Poll::Pending);
        }
        let Poll::Ready(count) = poll_read(&mut self.stream, room, cx)? else {
            return Ok(Poll::Pending);
        };
        self.eof = count == 0;
        if into_worker {
            return Ok(Poll::Ready(count));
        }
        self.input.filled(count);
        Ok(Poll::Ready(0))
    }

    /// Lets the engine process the waiting input, or `fresh` bytes of the worker's buffer, and
    /// writes its output. True: the caller must continue at once, because there is room again for
    /// output, or the phase has changed.
    fn advance(
        &mut self,
        fresh: usize,
        scratch: &mut WorkerScratch,
        local: &ConnectionPermit,
        now: Now,
        cx: &mut Context<'_>,
    ) -> Result<bool, Hangup> {
        let WorkerScratch { worker, out, read, inputs, outputs } = scratch;
        // The buffer is empty, unless an agent panicked during another connection's answer.
        out.clear();
        let input = if fresh > 0 { Source::roomy(read, fresh) } else { self.input.source() };
        let (engine, wake) = (&*local.server.engine, cx.waker());
        let peer = Peer { remote: local.remote(), ..self.stream.peer() };
        let peer = local.local_addrs.at(self.local_addr).add_to(peer);
        let mut cx_engine = Cx { engine, worker, now, wake, out, unsent: self.output.len(), peer };
        let progress = self.conn.advance(&mut cx_engine, input, self.eof);
        // The engine counts the missing bytes of a body in 32 bits.
        self.need = progress.need.min(u32::MAX as usize) as u32;
        self.read = progress.read;
        self.due_ms = progress.deadline_ms.unwrap_or(NEVER);
        if fresh > 0 {
            self.input.keep(&read[progress.consumed..fresh], progress.need, inputs);
            inputs.wipe(&mut read[..fresh]);
        } else {
            self.input.consume(progress.consumed, inputs);
        }
        let output_bytes = out.len();
        if output_bytes > 0 {
            let first = self.is_drained();
            // Output after held-back output must wait as well.
            let waits = self.output.held_back().is_some_and(|held| held.is_some())
                || engine.tap().is_some_and(|tap| tap.durable() < progress.record);
            let is_next = self.output.is_empty() && !waits;
            let sent = if is_next { send(&mut self.stream, out, cx)? } else { 0 };
            if sent == output_bytes && self.stream.is_flushed() {
                out.clear();
            } else {
                if first {
                    self.begin_window(now);
                }
                self.output.keep(out, sent, outputs);
                if let Some(held) = self.output.held_back().filter(|_| waits) {
                    held.hold(output_bytes, progress.record);
                }
            }
        }
        local.bounds.trim(out);
        match progress.next {
            Next::Open => {}
            Next::Close => (self.phase, self.due_ms) = (Phase::Closing, NEVER),
            Next::Abort => {
                self.stream.reset_on_close();
                return Err(Hangup);
            }
            Next::Http2 => self.phase = Phase::Http2,
        }
        let stopped = !progress.read || output_bytes >= local.bounds.output_bytes_max / 2;
        let again =
            output_bytes > 0 && stopped && self.output.len() < local.bounds.output_bytes_max;
        Ok(again || self.phase != Phase::Open)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    use crate::{
        agent::{Agent, Profile, Turn},
        model::{ArtifactBuf, PartsBuf, TaskState},
        net::Server,
    };

    use super::*;

    #[test]
    fn connection_future_is_at_most_160_bytes() {
        // tokio adds less than 100 bytes, and rounds up to 128.
        let size = size_of::<Drive<tokio::net::TcpStream>>();
        assert!(size <= 160, "{size}");
    }

    struct Fragile;

    impl Agent for Fragile {
        fn start(&self, mut turn: Turn<'_>) {
            match turn.message.parts().count() {
                1 => turn.status(TaskState::Completed),
                2 => {
                    turn.artifact(&ArtifactBuf::new("x", &PartsBuf::new().text("not yours")));
                    panic!("a test of panics in start")
                }
                _ => turn.resume_after(1, 0),
            }
        }

        fn resume(&self, _turn: Turn<'_>, _token: u64) {
            panic!("a test of panics in resume");
        }
    }

    #[test]
    fn agent_panic_does_not_affect_later_calls() {
        let server = Server::new().agent(Profile::new("a", "b"), Fragile).workers(1);
        let running = server.listen("127.0.0.1:0").start().unwrap();
        let send = |parts: usize| {
            let wait_ms = if parts == 1 { 20_000 } else { 500 };
            let parts = vec![r#"{"text":"hi"}"#; parts].join(",");
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":
                {{"messageId":"m","role":"ROLE_USER","parts":[{parts}]}}}}}}"#
            );
            let length = body.len();
            let mut stream = TcpStream::connect(running.addrs()[0]).unwrap();
            stream.set_read_timeout(Some(std::time::Duration::from_millis(wait_ms))).unwrap();
            write!(
                stream,
                "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nA2A-Version: 1.0\r\n\
                 Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .unwrap();
            let mut answer = Vec::new();
            // If the agent panics and the task continues, the call gets no answer.
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8(answer).unwrap()
        };
        for parts in [2, 3, 2] {
            send(parts);
            let answer = send(1);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            assert!(answer.contains("TASK_STATE_COMPLETED"), "{answer}");
            // Events that the turn published before it panicked are in no other task.
            assert!(!answer.contains("not yours"), "{answer}");
        }
    }
}
