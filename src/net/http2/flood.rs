//! The limit of frames that carry neither a call nor data.
//!
//! h2 answers SETTINGS and PING and skips unknown frames without a limit, so frames are counted
//! before h2 reads them. A peer has an allowance of `http2_control_frames_max` frames. Each frame
//! that carries no data and starts no call uses one of them; each call, and each data frame that is
//! sent to the peer, restores ten; thirty seconds restore the whole allowance. A peer without
//! allowance gets ENHANCE_YOUR_CALM.

use std::cell::Cell;

/// Bytes of the head of a frame (RFC 9113 §4.1).
const HEAD: usize = 9;
/// Bytes of the client's preface (RFC 9113 §3.4), which is not a frame.
const PREFACE: usize = 24;
/// Milliseconds in which the whole allowance is restored (nghttp2: 33 a second, 1,000 at once).
const REFILL_MS: u64 = 30_000;
/// Frames that a call or a sent data frame restores (Envoy: ten WINDOW_UPDATE for each data frame).
pub(in crate::net) const GRANT: u64 = 10;
/// Maximum bytes of padding and of its length field.
const PADDING: usize = 256;
/// Bytes of data in a frame that we send (RFC 9113 §4.2).
const FRAME_BYTES: usize = 16 * 1024;
/// Bytes that are read from one connection before others are polled.
const TURN_BYTES: usize = 64 * 1024;

/// The kind of a frame for the allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::net) enum FrameKind {
    /// HEADERS, which may start a call.
    Headers,
    /// DATA with content.
    Data,
    /// Anything else.
    Control,
}

fn frame(head: [u8; HEAD]) -> (FrameKind, usize) {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const PADDED: u8 = 8;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let (kind, flags) = (head[3], head[4]);
    let empty = if flags & PADDED == 0 { 0 } else { PADDING };
    let frame = match kind {
        HEADERS => FrameKind::Headers,
        DATA if length > empty => FrameKind::Data,
        _ => FrameKind::Control,
    };
    (frame, length)
}

/// Finds the frames in received bytes, which arrive in pieces of any size.
pub(in crate::net) struct Frames {
    /// Bytes to skip until the next head of a frame.
    skip: usize,
    /// The received part of a frame's head.
    head: [u8; HEAD],
    received: usize,
}

impl Frames {
    /// Starts at the first byte from a client.
    pub(in crate::net) fn new() -> Frames {
        Frames { skip: PREFACE, head: [0; HEAD], received: 0 }
    }

    /// Starts at the first byte from a server.
    #[cfg(feature = "client")]
    pub(in crate::net) fn of_server() -> Frames {
        Frames { skip: 0, ..Frames::new() }
    }

    /// Reports which frames begin in the next bytes.
    pub(in crate::net) fn scan(&mut self, mut bytes: &[u8], mut seen: impl FnMut(FrameKind)) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let some = bytes.len().min(HEAD - self.received);
            self.head[self.received..self.received + some].copy_from_slice(&bytes[..some]);
            self.received += some;
            bytes = &bytes[some..];
            if self.received < HEAD {
                return;
            }
            let (frame, length) = frame(self.head);
            (self.received, self.skip) = (0, length);
            seen(frame);
        }
    }
}

/// The remaining allowance; the caller provides the time.
#[derive(Clone, Copy, Debug)]
pub(in crate::net) struct Allowance {
    max: u64,
    remaining: u64,
    /// When time last restored a part of the allowance.
    since_ms: u64,
}

impl Allowance {
    pub(in crate::net) fn new(max: u64, now_ms: u64) -> Allowance {
        Allowance { max, remaining: max, since_ms: now_ms }
    }

    pub(in crate::net) fn grant(&mut self, frames: u64) {
        self.remaining = self.remaining.saturating_add(frames).min(self.max);
    }

    /// Takes one frame from the allowance; false: none is left.
    pub(in crate::net) fn spend(&mut self, now_ms: u64) -> bool {
        if self.remaining == 0 {
            let passed = now_ms.saturating_sub(self.since_ms).min(REFILL_MS);
            let back = passed.saturating_mul(self.max) / REFILL_MS;
            if back == 0 {
                return false;
            }
            (self.remaining, self.since_ms) = (back, now_ms);
        }
        self.remaining -= 1;
        true
    }
}

/// The limits of one connection's input, shared by its reader and its writer.
pub(super) struct Inflow {
    allowance: Cell<Allowance>,
    is_flooded: Cell<bool>,
    /// HEADERS frames that were read in this poll and have started no call yet.
    heads: Cell<u64>,
    /// Bytes that may still be read in this poll.
    turn: Cell<usize>,
    /// Polls so far, this one included.
    turns: Cell<u64>,
    /// The poll in which the end of the peer's side was first seen; 0: not yet.
    ended_in: Cell<u64>,
    /// True: read input is processed before more is read.
    is_paused: Cell<bool>,
}

impl Inflow {
    pub(super) fn new(control_frames_max: usize, now_ms: u64) -> Inflow {
        let allowance = Allowance::new(control_frames_max as u64, now_ms);
        let (allowance, turn) = (Cell::new(allowance), Cell::new(TURN_BYTES));
        let (is_flooded, heads, is_paused) = (Cell::new(false), Cell::new(0), Cell::new(false));
        let (turns, ended_in) = (Cell::new(0), Cell::new(0));
        Inflow { allowance, is_flooded, heads, turn, turns, ended_in, is_paused }
    }

    /// True: the peer has used up its allowance, and its input is no longer read.
    pub(super) fn is_flooded(&self) -> bool {
        self.is_flooded.get()
    }

    /// Begins a poll of the connection.
    pub(super) fn begin_turn(&self) {
        self.turn.set(TURN_BYTES);
        self.turns.set(self.turns.get() + 1);
    }

    /// Sets whether read input is processed before more is read. If so, the caller must clear this
    /// and poll the connection again before it waits, because unread input wakes no task.
    pub(super) fn pause(&self, is_paused: bool) {
        self.is_paused.set(is_paused);
    }

    /// See [`Inflow::pause`].
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.get()
    }

    /// True: other connections are polled before this one reads more.
    pub(super) fn turn_is_over(&self) -> bool {
        self.turn.get() == 0
    }

    /// True: the end of the peer's side must be hidden from h2 until a later poll. At the end h2
    /// discards its output, and the answers of this poll must be sent first.
    pub(super) fn keeps_end(&self) -> bool {
        let turn = self.turns.get();
        if self.ended_in.get() == 0 {
            self.ended_in.set(turn);
        }
        // Before the first poll no call was answered.
        turn > 0 && self.ended_in.get() == turn
    }

    /// Accounts for read bytes.
    pub(super) fn read(&self, frames: &mut Frames, bytes: &[u8], now_ms: impl Fn() -> u64) {
        self.turn.set(self.turn.get().saturating_sub(bytes.len()));
        let (mut allowance, mut is_flooded) = (self.allowance.get(), self.is_flooded.get());
        let mut heads = self.heads.get();
        frames.scan(bytes, |frame| match frame {
            FrameKind::Headers => heads += 1,
            FrameKind::Data => {}
            FrameKind::Control => is_flooded |= !allowance.spend(now_ms()),
        });
        self.heads.set(heads);
        self.allowance.set(allowance);
        self.is_flooded.set(is_flooded);
    }

    /// Accounts for a call that h2 has returned.
    pub(super) fn called(&self) {
        self.heads.set(self.heads.get().saturating_sub(1));
        self.grant(GRANT);
    }

    /// True: some received HEADERS have started no call yet.
    pub(super) fn has_heads(&self) -> bool {
        self.heads.get() > 0
    }

    /// Accounts for HEADERS that started no call: h2 has returned all calls of this poll.
    pub(super) fn end_turn(&self, now_ms: u64) {
        let mut allowance = self.allowance.get();
        let has_room = (0..self.heads.take()).all(|_| allowance.spend(now_ms));
        self.allowance.set(allowance);
        self.is_flooded.set(self.is_flooded.get() || !has_room);
    }

    /// Accounts for sent data, which the peer may acknowledge.
    pub(super) fn sent(&self, bytes: usize) {
        self.grant(GRANT * (1 + (bytes / FRAME_BYTES) as u64));
    }

    fn grant(&self, frames: u64) {
        let mut allowance = self.allowance.get();
        allowance.grant(frames);
        self.allowance.set(allowance);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let head = [&(length as u32).to_be_bytes()[1..], &[kind, flags, 0, 0, 0, 1]].concat();
        [head, vec![0xff; length]].concat()
    }

    /// The frames of a connection's bytes, parsed in one step.
    fn naive(mut rest: &[u8]) -> Vec<FrameKind> {
        let mut all = Vec::new();
        rest = rest.get(24..).unwrap_or_default();
        while rest.len() >= 9 {
            let length = (usize::from(rest[0]) << 16) + (usize::from(rest[1]) << 8);
            let length = length + usize::from(rest[2]);
            let padded = rest[4] & 8 != 0;
            let data = if padded { length > 256 } else { length > 0 };
            all.push(match rest[3] {
                0 if data => FrameKind::Data,
                1 => FrameKind::Headers,
                _ => FrameKind::Control,
            });
            rest = rest.get(9 + length..).unwrap_or_default();
        }
        all
    }

    proptest! {
        /// Pieces of any size give the same frames as the whole.
        #[test]
        fn frames_are_parsed_across_any_chunk_boundaries(
            frames in prop::collection::vec((0..12_u8, 0..16_u8, 0..600_usize), 0..40),
            pieces in prop::collection::vec(1..700_usize, 1..200),
            cut in 0..30_usize,
        ) {
            let frames = frames.into_iter().map(|(kind, flags, length)| bytes(kind, flags, length));
            let mut all = vec![b'P'; 24];
            all.extend(frames.flatten());
            all.truncate(all.len().saturating_sub(cut));
            let (mut seen, mut scanner, mut rest) = (Vec::new(), Frames::new(), &all[..]);
            for piece in pieces.into_iter().chain([usize::MAX]) {
                let (some, after) = rest.split_at(piece.min(rest.len()));
                scanner.scan(some, |frame| seen.push(frame));
                rest = after;
            }
            prop_assert_eq!(seen, naive(&all));
        }

        /// No peer spends more than the allowance, the grants, and the part restored over time.
        #[test]
        fn allowance_spending_never_exceeds_grants_and_refill(
            max in 1..50_u64,
            steps in prop::collection::vec((0..3_000_u64, 0..30_u64, 0..3_u64), 0..200),
        ) {
            let mut allowance = Allowance::new(max, 0);
            let (mut now, mut spent, mut granted) = (0, 0, 0);
            for (passed, wanted, grant) in steps {
                now += passed;
                granted += grant;
                allowance.grant(grant);
                spent += (0..wanted).filter(|_| allowance.spend(now)).count() as u64;
                prop_assert!(spent <= max + granted + now * max / REFILL_MS);
                prop_assert!(allowance.remaining <= max);
            }
        }
    }

    #[test]
    fn frames_without_call_or_data_count_as_control() {
        for (kind, flags, length, expected) in [
            (1, 4, 0, FrameKind::Headers),
            (0, 0, 1, FrameKind::Data),
            (0, 1, 0, FrameKind::Control),
            (0, 0, 0, FrameKind::Control),
            (0, 8, 256, FrameKind::Control),
            (0, 8, 257, FrameKind::Data),
            (2, 0, 5, FrameKind::Control),
            (6, 0, 8, FrameKind::Control),
            (9, 4, 100, FrameKind::Control),
            (0xfe, 0, 0, FrameKind::Control),
        ] {
            let mut scanner = Frames::new();
            let (mut seen, all) = (None, [vec![0; 24], bytes(kind, flags, length)].concat());
            scanner.scan(&all, |frame| seen = Some(frame));
            assert_eq!(seen, Some(expected), "{kind} {flags} {length}");
        }
    }

    #[test]
    fn allowance_refills_with_time_and_grants() {
        let mut allowance = Allowance::new(30, 0);
        assert!((0..30).all(|_| allowance.spend(0)));
        assert!(!allowance.spend(999));
        // One frame is restored in a second.
        assert!(allowance.spend(1000) && !allowance.spend(1000));
        allowance.grant(2);
        assert!(allowance.spend(1000) && allowance.spend(1000) && !allowance.spend(1000));
        assert_eq!((0..100).filter(|_| allowance.spend(1_000_000)).count(), 30);
    }

    #[test]
    fn an_exhausted_allowance_stays_exhausted_for_its_connection() {
        let (inflow, mut frames) = (Inflow::new(3, 0), Frames::new());
        let ping = bytes(6, 0, 8);
        inflow.read(&mut frames, &[0; 24], || 0);
        inflow.read(&mut frames, &ping.repeat(3), || 0);
        assert!(!inflow.is_flooded());
        inflow.sent(0);
        inflow.read(&mut frames, &ping.repeat(3), || 0);
        assert!(!inflow.is_flooded());
        inflow.read(&mut frames, &ping, || 0);
        assert!(inflow.is_flooded());
        inflow.read(&mut frames, &bytes(1, 4, 0), || 0);
        assert!(inflow.is_flooded());
        assert!(!inflow.turn_is_over());
        inflow.read(&mut frames, &[0; TURN_BYTES], || 0);
        assert!(inflow.turn_is_over());
        inflow.begin_turn();
        assert!(!inflow.turn_is_over());
    }
}
