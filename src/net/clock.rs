//! The time, read once per turn of a worker's loop.
//!
//! The runtime marks the time stale when it has waited for events; a busy loop refreshes it every
//! few polls. Between two readings of one poll the time stands still. The wall clock is asked ten
//! times a second; in between it goes on with the monotonic one.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime},
};

use crate::service::Now;

/// Polls that may share one reading.
const POLLS_MAX: u32 = 16;

/// Milliseconds after which the wall clock is asked again, in case it was set.
const WALL_MS: u64 = 100;

/// The clock of one worker.
pub(super) struct Clock {
    epoch: Instant,
    stale: Arc<AtomicBool>,
    polls: Cell<u32>,
    now: Cell<Now>,
    /// What the wall clock is ahead of the monotonic one, and when it is asked again.
    wall: Cell<(u64, u64)>,
}

impl Clock {
    /// A clock that starts with `epoch`, common to all workers.
    pub(super) fn new(epoch: Instant, stale: Arc<AtomicBool>) -> Clock {
        let (polls, now, wall) = (Cell::new(0), Cell::default(), Cell::default());
        let clock = Clock { epoch, stale, polls, now, wall };
        clock.refresh();
        clock
    }

    /// The time, at most a few polls old.
    pub(super) fn now(&self) -> Now {
        let polls = self.polls.get() + 1;
        if polls >= POLLS_MAX || self.stale.load(Ordering::Relaxed) {
            return self.refresh();
        }
        self.polls.set(polls);
        self.now.get()
    }

    /// The time now.
    pub(super) fn refresh(&self) -> Now {
        self.stale.store(false, Ordering::Relaxed);
        self.polls.set(0);
        let mono_ms = self.epoch.elapsed().as_millis() as u64;
        let (mut ahead_ms, due_ms) = self.wall.get();
        if mono_ms >= due_ms {
            let ahead = unix_ms().saturating_sub(mono_ms);
            // Both are rounded: a millisecond is no difference, and time is not to go back for it.
            if ahead.abs_diff(ahead_ms) > 1 {
                ahead_ms = ahead;
            }
            self.wall.set((ahead_ms, mono_ms + WALL_MS));
        }
        self.now.set(Now { mono_ms, unix_ms: ahead_ms + mono_ms });
        self.now.get()
    }

    /// The moment at which `mono_ms` will read `at_ms`.
    pub(super) fn instant(&self, at_ms: u64) -> Instant {
        self.epoch + std::time::Duration::from_millis(at_ms)
    }
}

/// Milliseconds since the Unix epoch; 0 on a clock before it.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_lasts_until_it_is_stale() {
        let stale = Arc::new(AtomicBool::new(false));
        let clock = Clock::new(Instant::now(), Arc::clone(&stale));
        let first = clock.now();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(clock.now(), first);
        stale.store(true, Ordering::Relaxed);
        let second = clock.now();
        assert!(second.mono_ms >= first.mono_ms + 5 && second.unix_ms >= first.unix_ms);
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!((0..POLLS_MAX).any(|_| clock.now() != second));
    }

    #[test]
    fn a_wall_clock_that_was_set_is_followed() {
        let clock = Clock::new(Instant::now(), Arc::default());
        let off = |now: Now| now.unix_ms.abs_diff(unix_ms());
        assert!(off(clock.refresh()) < 1000);
        // As if it had been an hour ahead when it was asked.
        let (ahead_ms, due_ms) = clock.wall.get();
        clock.wall.set((ahead_ms + 3_600_000, due_ms));
        std::thread::sleep(std::time::Duration::from_millis(WALL_MS + 5));
        assert!(off(clock.refresh()) < 1000);
    }
}
