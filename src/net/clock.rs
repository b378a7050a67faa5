//! The time, read once per iteration of a worker's loop.
//!
//! The runtime marks the time stale when it has waited for events; a busy loop refreshes it every
//! few polls. The time does not change between two readings. The wall clock is read ten times a
//! second, and advances with the monotonic clock in between.
//!
//! The time between two readings counts as work, except for waits, which the runtime measures
//! anyway. Long work blocks everything else on the worker.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use tokio::runtime::RuntimeMetrics;

#[cfg(feature = "metrics")]
use super::observers::Turned;
use crate::service::Now;

/// Maximum number of polls that share one reading.
const POLLS_MAX: u32 = 16;

/// Milliseconds after which the wall clock is read again, in case it was set.
const WALL_MS: u64 = 100;

/// Longer work counts as blocking its worker.
pub(super) const HELD_UP: Duration = Duration::from_millis(50);

/// Work that took long.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldUp {
    /// The time of the reading after which the work began.
    pub(super) since_ms: u64,
    /// The duration of the work.
    pub(super) ms: u64,
}

/// The clock of one worker.
pub(super) struct Clock {
    epoch: Instant,
    stale: Arc<AtomicBool>,
    polls: Cell<u32>,
    now: Cell<Now>,
    /// The offset of the wall clock from the monotonic clock, and the time of its next reading.
    wall: Cell<(u64, u64)>,
    metrics: RuntimeMetrics,
    /// Receives each reading in nanoseconds of the monotonic clock; the number is the epoch.
    #[cfg(feature = "metrics")]
    turned: Option<(Turned, u64)>,
    /// Milliseconds of work until the last reading, or until the wait before that reading.
    worked_ms: Cell<u64>,
    held_up: Cell<Option<HeldUp>>,
}

impl Clock {
    /// Creates a clock in a runtime of one thread; `epoch` is common to all workers.
    pub(super) fn new(epoch: Instant, stale: Arc<AtomicBool>, metrics: RuntimeMetrics) -> Clock {
        let (polls, now, wall) = (Cell::new(0), Cell::default(), Cell::default());
        let (worked_ms, held_up) = (Cell::default(), Cell::default());
        let clock = Clock {
            epoch,
            stale,
            polls,
            now,
            wall,
            metrics,
            #[cfg(feature = "metrics")]
            turned: None,
            worked_ms,
            held_up,
        };
        clock.refresh();
        clock.held_up.set(None);
        clock
    }

    /// Sets the receiver of the readings.
    #[cfg(feature = "metrics")]
    pub(super) fn with_receiver(mut self, turned: Turned) -> Clock {
        let elapsed_ns = self.epoch.elapsed().as_nanos() as u64;
        self.turned = Some((turned, monotonic_ns().wrapping_sub(elapsed_ns)));
        self
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

    /// Reads the clocks and returns the current time.
    pub(super) fn refresh(&self) -> Now {
        let has_waited = self.stale.load(Ordering::Relaxed);
        self.stale.store(false, Ordering::Relaxed);
        self.polls.set(0);
        let elapsed = self.epoch.elapsed();
        #[cfg(feature = "metrics")]
        if let Some((turned, epoch_ns)) = &self.turned {
            turned.store(epoch_ns.wrapping_add(elapsed.as_nanos() as u64), Ordering::Relaxed);
        }
        let mono_ms = elapsed.as_millis() as u64;
        self.look_back(has_waited, mono_ms);
        let (mut ahead_ms, due_ms) = self.wall.get();
        if mono_ms >= due_ms {
            let ahead = unix_ms().saturating_sub(mono_ms);
            // Both clocks are rounded to milliseconds: a difference of one is ignored, so that the
            // time does not go back.
            if ahead.abs_diff(ahead_ms) > 1 {
                ahead_ms = ahead;
            }
            self.wall.set((ahead_ms, mono_ms + WALL_MS));
        }
        self.now.set(Now { mono_ms, unix_ms: ahead_ms + mono_ms });
        self.now.get()
    }

    /// Checks whether the work since the last reading took long.
    fn look_back(&self, has_waited: bool, mono_ms: u64) {
        let since_ms = self.now.get().mono_ms;
        let (mut ms, worked_ms) = (mono_ms.saturating_sub(since_ms), self.worked_ms.get());
        let mut until_ms = worked_ms + ms;
        if has_waited {
            until_ms = self.metrics.worker_total_busy_duration(0).as_millis() as u64;
            ms = ms.min(until_ms.saturating_sub(worked_ms));
        }
        self.worked_ms.set(until_ms);
        if ms > HELD_UP.as_millis() as u64 {
            self.held_up.set(Some(HeldUp { since_ms, ms }));
        }
    }

    /// Takes the record of the last long work.
    #[inline]
    pub(super) fn held_up(&self) -> Option<HeldUp> {
        self.held_up.get().inspect(|_| self.held_up.set(None))
    }

    /// The instant at which `mono_ms` is `at_ms`.
    pub(super) fn instant(&self, at_ms: u64) -> Instant {
        self.epoch + Duration::from_millis(at_ms)
    }
}

/// Milliseconds since the Unix epoch; 0 if the clock is before the epoch.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Nanoseconds since the Unix epoch.
#[cfg(feature = "otlp")]
pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Nanoseconds of the monotonic clock that [`Instant`] uses, read directly: differences of
/// [`Instant`] cost more than the reading.
#[cfg(all(any(feature = "metrics", feature = "gateway"), target_os = "linux"))]
#[inline]
pub(super) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
}

/// The same for systems where [`Instant`] uses another clock.
#[cfg(all(any(feature = "metrics", feature = "gateway"), not(target_os = "linux")))]
pub(super) fn monotonic_ns() -> u64 {
    use std::sync::LazyLock;

    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    EPOCH.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The metrics of an idle runtime.
    fn metrics() -> RuntimeMetrics {
        tokio::runtime::Builder::new_current_thread().build().unwrap().metrics()
    }

    #[test]
    fn long_work_is_reported_as_held_up_but_waiting_is_not() {
        let stale = Arc::new(AtomicBool::new(false));
        let clock = Clock::new(Instant::now(), Arc::clone(&stale), metrics());
        let began = clock.refresh();
        std::thread::sleep(HELD_UP + Duration::from_millis(10));
        clock.refresh();
        let held_up = clock.held_up().unwrap();
        assert!(held_up.since_ms == began.mono_ms && held_up.ms >= 60);
        assert!(clock.held_up().is_none());
        std::thread::sleep(HELD_UP + Duration::from_millis(10));
        stale.store(true, Ordering::Relaxed);
        clock.refresh();
        assert!(clock.held_up().is_none());
    }

    #[test]
    fn clock_reading_is_reused_until_stale() {
        let stale = Arc::new(AtomicBool::new(false));
        let clock = Clock::new(Instant::now(), Arc::clone(&stale), metrics());
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(clock.now(), first);
        stale.store(true, Ordering::Relaxed);
        let second = clock.now();
        assert!(second.mono_ms >= first.mono_ms + 5 && second.unix_ms >= first.unix_ms);
        std::thread::sleep(Duration::from_millis(5));
        assert!((0..POLLS_MAX).any(|_| clock.now() != second));
    }

    #[test]
    fn clock_follows_wall_clock_adjustments() {
        let clock = Clock::new(Instant::now(), Arc::default(), metrics());
        let off = |now: Now| now.unix_ms.abs_diff(unix_ms());
        assert!(off(clock.refresh()) < 1000);
        // As if the wall clock had been an hour ahead at the last reading.
        let (ahead_ms, due_ms) = clock.wall.get();
        clock.wall.set((ahead_ms + 3_600_000, due_ms));
        std::thread::sleep(Duration::from_millis(WALL_MS + 5));
        assert!(off(clock.refresh()) < 1000);
    }
}
