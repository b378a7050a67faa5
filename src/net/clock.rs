//! The time, read once per turn of a worker's loop.
//!
//! The runtime marks the time stale when it has waited for events; a busy loop refreshes it every
//! few polls. Between two readings of one poll the time stands still.

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

/// The clock of one worker.
pub(super) struct Clock {
    epoch: Instant,
    stale: Arc<AtomicBool>,
    polls: Cell<u32>,
    now: Cell<Now>,
}

impl Clock {
    /// A clock that starts with `epoch`, common to all workers.
    pub(super) fn new(epoch: Instant, stale: Arc<AtomicBool>) -> Clock {
        let now = Cell::new(read(epoch));
        Clock { epoch, stale, polls: Cell::new(0), now }
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
        self.now.set(read(self.epoch));
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

fn read(epoch: Instant) -> Now {
    Now { mono_ms: epoch.elapsed().as_millis() as u64, unix_ms: unix_ms() }
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
}
