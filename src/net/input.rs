//! The bytes of a connection that the engine has not consumed yet.
//!
//! `start <= end <= bytes.len()`: consumed | waiting | room. A quiet connection owns no buffer.
//! Bytes move to the front only when more than half of the buffer is behind `start`, or there is
//! no room at the end, so each byte moves a bounded number of times however the peer pipelines.

use super::pool::Pool;

/// The largest step by which an input of unknown length grows.
const GROW_MAX: usize = 1024 * 1024;

/// Input that waits.
#[derive(Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// What waits.
    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// How many bytes wait.
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    /// True: nothing waits and no buffer is held.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Room for more, such that `need` bytes fit in all; empty when that would pass `bytes_max`.
    pub(super) fn room(&mut self, need: usize, bytes_max: usize, pool: &mut Pool) -> &mut [u8] {
        self.invariants();
        let waiting = self.len();
        let wanted = need.max(waiting + 1).min(bytes_max);
        if wanted > self.bytes.len() {
            let grown = waiting + waiting.min(GROW_MAX);
            let mut larger = pool.take_filled(wanted.max(grown.min(bytes_max)));
            larger[..waiting].copy_from_slice(self.waiting());
            pool.give(std::mem::replace(&mut self.bytes, larger));
            (self.start, self.end) = (0, waiting);
        } else if self.start + wanted > self.bytes.len() || self.start > self.bytes.len() / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, waiting);
        }
        if waiting >= bytes_max { &mut [] } else { &mut self.bytes[self.end..] }
    }

    /// Says how much of the room was filled.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
        self.invariants();
    }

    /// Keeps what the engine left of bytes that were read elsewhere.
    pub(super) fn keep(&mut self, left: &[u8], need: usize, pool: &mut Pool) {
        debug_assert!(self.is_empty());
        if left.is_empty() {
            return;
        }
        self.bytes = pool.take_filled(need.max(left.len()));
        self.bytes[..left.len()].copy_from_slice(left);
        (self.start, self.end) = (0, left.len());
    }

    /// Forgets the first `count` bytes, and gives the buffer back when nothing is left.
    pub(super) fn consume(&mut self, count: usize, pool: &mut Pool) {
        self.start += count;
        self.invariants();
        if self.is_empty() {
            self.release(pool);
        }
    }

    /// Forgets everything.
    pub(super) fn release(&mut self, pool: &mut Pool) {
        pool.give(std::mem::take(&mut self.bytes));
        (self.start, self.end) = (0, 0);
    }

    fn invariants(&self) {
        debug_assert!(self.start <= self.end && self.end <= self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 5 * 1024 * 1024;

    fn read(input: &mut Input, need: usize, bytes: &[u8], pool: &mut Pool) -> usize {
        let room = input.room(need, MAX, pool);
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        input.filled(count);
        count
    }

    #[test]
    fn a_known_length_is_reserved_once() {
        let (mut input, mut pool) = (Input::default(), Pool::default());
        input.keep(b"head", 3_000_000, &mut pool);
        let place = input.bytes.as_ptr();
        let body = vec![b'x'; 2_999_996];
        assert_eq!(read(&mut input, 3_000_000, &body, &mut pool), body.len());
        assert_eq!((input.len(), input.bytes.as_ptr()), (3_000_000, place));
        input.consume(3_000_000, &mut pool);
        assert!(input.bytes.is_empty());
    }

    #[test]
    fn nothing_is_lost_however_it_is_consumed() {
        let (mut input, mut pool) = (Input::default(), Pool::default());
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
        assert!(input.is_empty());
    }

    #[test]
    fn the_bound_holds() {
        let (mut input, mut pool) = (Input::default(), Pool::default());
        let chunk = vec![0; 100_000];
        while read(&mut input, usize::MAX, &chunk, &mut pool) > 0 {}
        assert!(input.len() >= MAX && input.bytes.len() < MAX + 64 * 1024);
    }
}
