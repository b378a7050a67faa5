//! The bytes of a connection that its socket has not accepted yet.
//!
//! `start <= bytes.len()`: sent | unsent. Only a connection with a slow reader owns a buffer.

use super::{held_back::HeldBack, pool::Pool};

/// Waiting output; one word in size, for the many connections without waiting output.
#[derive(Default)]
pub(super) struct OutputBuffer(Option<Box<OutputBytes>>);

struct OutputBytes {
    bytes: Vec<u8>,
    start: usize,
    /// The part of the output that must not be sent yet.
    held: HeldBack,
}

impl OutputBuffer {
    /// The waiting output.
    pub(super) fn unsent(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |held| &held.bytes[held.start..])
    }

    /// How many bytes wait.
    pub(super) fn len(&self) -> usize {
        self.unsent().len()
    }

    /// Bytes of the held buffer.
    pub(super) fn held_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |held| held.bytes.capacity())
    }

    /// True: nothing waits and no buffer is held.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Stores the bytes of `fresh` that the socket did not accept, and empties `fresh`.
    ///
    /// A large rest takes over the buffer; a small rest is copied, so that it occupies little
    /// memory.
    pub(super) fn keep(&mut self, fresh: &mut Vec<u8>, sent: usize, pool: &mut Pool) {
        let remaining = fresh.len() - sent;
        match &mut self.0 {
            None if remaining == 0 => {}
            None if remaining > fresh.capacity() / 4 => {
                // The replacement has the same size, so that the next large answer needs no growth
                // and no new pages.
                let next = pool.take_empty(fresh.capacity());
                let bytes = std::mem::replace(fresh, next);
                self.0 =
                    Some(Box::new(OutputBytes { bytes, start: sent, held: HeldBack::default() }));
            }
            None => {
                let mut bytes = pool.take_empty(remaining);
                bytes.extend_from_slice(&fresh[sent..]);
                self.0 = Some(Box::new(OutputBytes { bytes, start: 0, held: HeldBack::default() }));
            }
            Some(held) => {
                if held.start > held.bytes.len() / 2 {
                    held.bytes.drain(..held.start);
                    held.start = 0;
                }
                held.bytes.extend_from_slice(&fresh[sent..]);
            }
        }
        fresh.clear();
    }

    /// The part that must not be sent yet.
    pub(super) fn held_back(&mut self) -> Option<&mut HeldBack> {
        self.0.as_mut().map(|output| &mut output.held)
    }

    /// Drops the sent bytes; returns the buffer to the pool when no bytes remain.
    pub(super) fn sent(&mut self, count: usize, pool: &mut Pool) {
        let Some(held) = &mut self.0 else { return };
        held.start += count;
        debug_assert!(held.start <= held.bytes.len());
        if held.start == held.bytes.len() {
            self.release(pool);
        }
    }

    /// Drops the waiting output, and returns the buffer to the pool.
    pub(super) fn release(&mut self, pool: &mut Pool) {
        if let Some(held) = self.0.take() {
            pool.give(held.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsent_bytes_keep_their_order_and_buffer_is_released() {
        let (mut output, mut pool) = (OutputBuffer::default(), Pool::new(1 << 25));
        let mut seen = Vec::new();
        let mut sent = Vec::new();
        let mut fresh = Vec::new();
        for round in 0..500_usize {
            fresh.extend((0..1 + round * 7 % 4096).map(|n| (n * 31 + round) as u8));
            sent.extend_from_slice(&fresh);
            let first = if output.is_empty() { fresh.len() / 3 } else { 0 };
            seen.extend_from_slice(&fresh[..first]);
            output.keep(&mut fresh, first, &mut pool);
            assert!(fresh.is_empty());
            let count = output.len() * (round % 3) / 2;
            seen.extend_from_slice(&output.unsent()[..count]);
            output.sent(count, &mut pool);
        }
        seen.extend_from_slice(output.unsent());
        output.sent(output.len(), &mut pool);
        assert!(seen == sent && output.is_empty());
    }

    #[test]
    fn small_unsent_remainder_does_not_pin_a_large_buffer() {
        let (mut output, mut pool) = (OutputBuffer::default(), Pool::new(1 << 25));
        let mut fresh = Vec::with_capacity(1 << 20);
        fresh.extend_from_slice(&[1; 100_000]);
        output.keep(&mut fresh, 99_000, &mut pool);
        assert_eq!((output.len(), fresh.capacity()), (1000, 1 << 20));
        assert!(output.0.unwrap().bytes.capacity() <= 1024);
    }
}
