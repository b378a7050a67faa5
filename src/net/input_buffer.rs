//! The bytes of a connection that the engine has not consumed yet.
//!
//! `start <= end <= bytes.len()`: consumed | waiting | room. A quiet connection owns no buffer.
//! Bytes move to the front only when more than half of the buffer is before `start`, or there is no
//! room at the end, so each byte moves a bounded number of times with any pipelining. Where
//! requests have credentials, bytes are wiped when they are consumed, moved or dropped.

use crate::json::Source;

use super::pool::Pool;

/// Input of known length gets room for at most this many times the received bytes, or this many
/// times [`FIRST`] bytes: a client that announces a body without sending it reserves little, and a
/// body of 1 MiB is moved once, after its first 64 KiB.
const AHEAD: usize = 16;
/// See [`AHEAD`].
const FIRST: usize = 4 * 1024;

/// Bytes after a request that allow its body to be parsed in place.
const ROOM: usize = 64;

/// The largest step by which an input of unknown length grows.
const GROW_MAX: usize = 1024 * 1024;

/// Waiting input; one word in size, for the many connections without waiting input.
#[derive(Default)]
pub(super) struct InputBuffer(Option<Box<InputBytes>>);

struct InputBytes {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl InputBuffer {
    /// The waiting input.
    #[cfg(test)]
    fn waiting(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |held| &held.bytes[held.start..held.end])
    }

    /// The waiting input, and the room after it.
    pub(super) fn source(&mut self) -> Source<'_> {
        match &mut self.0 {
            Some(held) => Source::roomy(&mut held.bytes[held.start..], held.end - held.start),
            None => Source::roomy(&mut [], 0),
        }
    }

    /// How many bytes wait.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |held| held.end - held.start)
    }

    /// Bytes of the held buffer.
    pub(super) fn held_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |held| held.bytes.capacity())
    }

    /// True: no buffer is held.
    pub(super) fn is_quiet(&self) -> bool {
        self.0.is_none()
    }

    /// Returns room for more input, up to `need` bytes in all; empty when `bytes_max` bytes wait.
    pub(super) fn room(&mut self, need: usize, bytes_max: usize, pool: &mut Pool) -> &mut [u8] {
        let waiting = self.len();
        if waiting >= bytes_max {
            return &mut [];
        }
        let length = self.0.as_ref().map_or(0, |held| held.bytes.len());
        let reserved = if length > waiting { need.min(length) } else { ahead(need, waiting) };
        let wanted = reserved.max(waiting + 1).min(bytes_max);
        let held = self.0.get_or_insert_with(|| InputBytes::new(wanted, pool));
        if wanted > held.bytes.len() {
            let grown = (waiting + waiting.min(GROW_MAX)).min(bytes_max);
            let mut larger = pool.take_filled(wanted.max(grown));
            larger[..waiting].copy_from_slice(&held.bytes[held.start..held.end]);
            pool.wipe(&mut held.bytes[held.start..held.end]);
            pool.give(std::mem::replace(&mut held.bytes, larger));
            (held.start, held.end) = (0, waiting);
        } else if held.start + wanted > held.bytes.len() || held.start > held.bytes.len() / 2 {
            held.bytes.copy_within(held.start..held.end, 0);
            pool.wipe(&mut held.bytes[waiting.max(held.start)..held.end]);
            (held.start, held.end) = (0, waiting);
        }
        held.invariants();
        &mut held.bytes[held.end..]
    }

    /// Notes how much of the room was filled.
    pub(super) fn filled(&mut self, count: usize) {
        if let Some(held) = &mut self.0 {
            held.end += count;
            held.invariants();
        }
    }

    /// Stores unconsumed bytes that were read into another buffer.
    pub(super) fn keep(&mut self, unconsumed: &[u8], need: usize, pool: &mut Pool) {
        debug_assert!(self.is_quiet());
        if unconsumed.is_empty() {
            return;
        }
        let mut held = InputBytes::new(ahead(need, unconsumed.len()).max(unconsumed.len()), pool);
        held.bytes[..unconsumed.len()].copy_from_slice(unconsumed);
        held.end = unconsumed.len();
        self.0 = Some(held);
    }

    /// Drops the first `count` bytes; returns the buffer to the pool when no bytes remain.
    pub(super) fn consume(&mut self, count: usize, pool: &mut Pool) {
        let Some(held) = &mut self.0 else { return };
        pool.wipe(&mut held.bytes[held.start..held.start + count]);
        held.start += count;
        held.invariants();
        if held.start == held.end {
            self.release(pool);
        }
    }

    /// Drops the waiting input, and returns the buffer to the pool.
    pub(super) fn release(&mut self, pool: &mut Pool) {
        if let Some(mut held) = self.0.take() {
            pool.wipe(&mut held.bytes[held.start..held.end]);
            pool.give(held.bytes);
        }
    }
}

/// The bytes to reserve for `need` bytes of which `waiting` were received, with room for the
/// parser.
fn ahead(need: usize, waiting: usize) -> usize {
    need.saturating_add(ROOM).min(AHEAD * waiting.max(FIRST))
}

impl InputBytes {
    fn new(size: usize, pool: &mut Pool) -> Box<InputBytes> {
        Box::new(InputBytes { bytes: pool.take_filled(size), start: 0, end: 0 })
    }

    fn invariants(&self) {
        debug_assert!(self.start <= self.end && self.end <= self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 5 * 1024 * 1024;

    fn read(input: &mut InputBuffer, need: usize, bytes: &[u8], pool: &mut Pool) -> usize {
        let room = input.room(need, MAX, pool);
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        input.filled(count);
        count
    }

    #[test]
    fn announced_length_is_reserved_incrementally() {
        let (mut input, mut pool) = (InputBuffer::default(), Pool::new(1 << 25));
        let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        input.keep(&body[..4], body.len(), &mut pool);
        assert!(input.held_bytes() <= AHEAD * FIRST);
        let (mut sent, mut pointers) = (4, vec![input.waiting().as_ptr()]);
        while sent < body.len() {
            let most = AHEAD * sent.max(FIRST) + 65_536;
            sent += read(&mut input, body.len(), &body[sent..], &mut pool);
            pointers.push(input.waiting().as_ptr());
            assert!(input.len() == sent && input.held_bytes() <= most);
        }
        // The input moves a few times, for any length.
        assert!(input.waiting() == body && pointers.len() <= 4, "{}", pointers.len());
        input.consume(body.len(), &mut pool);
        assert!(input.is_quiet());
    }

    #[test]
    fn partial_consumption_keeps_all_bytes_in_order() {
        let (mut input, mut pool) = (InputBuffer::default(), Pool::new(1 << 25));
        let sent: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut wrote, mut seen) = (0, 0);
        while seen < sent.len() {
            let some = &sent[wrote..(wrote + 1 + wrote % 977).min(sent.len())];
            wrote += read(&mut input, 0, some, &mut pool);
            let count = if wrote == sent.len() { input.len() } else { input.len() / 2 };
            assert_eq!(&input.waiting()[..count], &sent[seen..seen + count]);
            input.consume(count, &mut pool);
            seen += count;
        }
        assert!(input.is_quiet());
    }

    #[test]
    fn wiping_pool_zeroes_consumed_and_released_bytes() {
        let (mut input, mut pool) = (InputBuffer::default(), Pool::new(1 << 25).wiping(true));
        let secret = vec![7; 200_000];
        let mut wrote = 0;
        // The input grows, moves to the front, is partly consumed, and is dropped.
        while wrote < secret.len() {
            wrote +=
                read(&mut input, 0, &secret[wrote..(wrote + 999).min(secret.len())], &mut pool);
            input.consume(input.len() / 3, &mut pool);
            let held = input.0.as_ref().unwrap();
            let outside = held.bytes[..held.start].iter().chain(&held.bytes[held.end..]);
            assert!(outside.copied().all(|byte| byte == 0), "{wrote}");
        }
        input.release(&mut pool);
        for size in [1_024, 2_048, 4_096, 8_192, 16_384, 65_536, 131_072, 262_144] {
            assert!(pool.take_filled(size).iter().all(|byte| *byte == 0), "{size}");
        }
    }

    #[test]
    fn input_buffer_size_is_bounded() {
        let (mut input, mut pool) = (InputBuffer::default(), Pool::new(1 << 25));
        let chunk = vec![0; 100_000];
        while read(&mut input, usize::MAX, &chunk, &mut pool) > 0 {}
        assert!(input.len() >= MAX && input.len() < MAX + 64 * 1024);
    }
}
