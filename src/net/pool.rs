//! A pool of buffers, so that a large body costs no page fault.
//!
//! A pool retains at most [`BUFFERS_MAX`] buffers and its part of `reuse_bytes_max`; further
//! buffers are freed. A pool of input retains fully initialised buffers, and never clears them.

use crate::http;

/// Maximum number of buffers that a pool retains.
const BUFFERS_MAX: usize = 64;
/// The smallest buffer that is retained.
const SIZE_MIN: usize = 1024;

/// Buffers of one kind, for one worker.
pub(super) struct Pool {
    free: Vec<Vec<u8>>,
    bytes: usize,
    bytes_max: usize,
    /// True: returned buffers are wiped.
    wipes: bool,
}

impl Pool {
    /// A pool that retains at most `bytes_max`.
    pub(super) fn new(bytes_max: usize) -> Pool {
        Pool { free: Vec::new(), bytes: 0, bytes_max, wipes: false }
    }

    /// Sets whether the buffers may hold secrets, and are wiped.
    pub(super) fn wiping(self, wipes: bool) -> Pool {
        Pool { wipes, ..self }
    }

    /// Overwrites bytes after use, if they may hold a secret.
    pub(super) fn wipe(&self, bytes: &mut [u8]) {
        if self.wipes {
            http::wipe(bytes);
        }
    }

    /// A buffer for input: at least `size` bytes long, with arbitrary initialised content.
    pub(super) fn take_filled(&mut self, size: usize) -> Vec<u8> {
        self.take(size).unwrap_or_else(|| vec![0; round(size)])
    }

    /// A buffer for output: empty, with room for at least `size` bytes.
    pub(super) fn take_empty(&mut self, size: usize) -> Vec<u8> {
        let mut buffer = self.take(size).unwrap_or_else(|| Vec::with_capacity(round(size)));
        buffer.clear();
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn give(&mut self, buffer: Vec<u8>) {
        let size = buffer.capacity();
        let fits = self.free.len() < BUFFERS_MAX && self.bytes + size <= self.bytes_max;
        if size >= SIZE_MIN && fits {
            self.bytes += size;
            self.free.push(buffer);
        }
    }

    /// Takes the smallest buffer that is large enough, up to about twice the size: its whole
    /// capacity is charged to the connection.
    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        let fitting = size..=round(size).max(size.saturating_mul(2));
        let best = (0..self.free.len())
            .filter(|at| fitting.contains(&self.free[*at].capacity()))
            .min_by_key(|at| self.free[*at].capacity())?;
        let buffer = self.free.swap_remove(best);
        self.bytes -= buffer.capacity();
        Some(buffer)
    }
}

/// Rounds small sizes up to a power of two, large ones to a multiple of 64 KiB.
fn round(size: usize) -> usize {
    let step = 64 * 1024;
    if size > step { size.next_multiple_of(step) } else { size.max(SIZE_MIN).next_power_of_two() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooled_buffer_is_reused_without_clearing() {
        let mut pool = Pool::new(1 << 25);
        let mut buffer = pool.take_filled(1_048_900);
        assert_eq!(buffer.len(), 17 * 64 * 1024);
        buffer[0] = 7;
        pool.give(buffer);
        assert_eq!(pool.take_filled(1_000_000)[0], 7);
        assert_eq!(pool.bytes, 0);
    }

    #[test]
    fn small_request_does_not_take_a_large_buffer() {
        let mut pool = Pool::new(1 << 25);
        pool.give(vec![0; 4 * 1024 * 1024]);
        assert_eq!(pool.take_filled(300).len(), SIZE_MIN);
        assert_eq!(pool.take_filled(1_500_000).len(), round(1_500_000));
        assert_eq!(pool.free.len(), 1);
    }

    #[test]
    fn best_fitting_buffer_is_taken_first() {
        let mut pool = Pool::new(1 << 25);
        [8192, 2048, 4096].into_iter().for_each(|size| pool.give(Vec::with_capacity(size)));
        assert_eq!(pool.take_empty(1500).capacity(), 2048);
    }

    #[test]
    fn a_pool_is_bounded() {
        let mut pool = Pool::new(8 * 1024 * 1024);
        (0..20).for_each(|_| pool.give(vec![0; 4 * 1024 * 1024]));
        assert_eq!(pool.bytes, 8 * 1024 * 1024);
        let mut pool = Pool::new(1 << 25);
        (0..1000).for_each(|_| pool.give(vec![0; SIZE_MIN]));
        assert_eq!(pool.free.len(), BUFFERS_MAX);
    }
}
