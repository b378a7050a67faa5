//! The time of a run, with the precision that a schedule needs.

use std::{future::Future, io, time::Instant};

/// The time of a run, in nanoseconds since its beginning.
pub trait LoadClock {
    /// The time now.
    fn now_ns(&self) -> u64;

    /// Waits until this time. Only one caller waits at a time.
    fn sleep_until(&self, due_ns: u64) -> impl Future<Output = ()>;
}

/// The system clock. On Linux it waits on a kernel timer with nanosecond precision, because the
/// timers of the runtime have steps of a millisecond. On other systems it polls the time during the
/// last two milliseconds.
pub struct SystemClock {
    start: Instant,
    /// A kernel timer, which is awaited and read like a pipe.
    #[cfg(target_os = "linux")]
    timer: tokio::net::unix::pipe::Receiver,
}

impl SystemClock {
    /// A clock that starts at `start`; the clocks of all workers have the same start. The clock
    /// belongs to the runtime in which it is created.
    ///
    /// # Errors
    /// The system cannot create a timer.
    pub fn new(start: Instant) -> io::Result<SystemClock> {
        #[cfg(target_os = "linux")]
        {
            use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let timer = tokio::net::unix::pipe::Receiver::from_owned_fd_unchecked(timer)?;
            Ok(SystemClock { start, timer })
        }
        #[cfg(not(target_os = "linux"))]
        Ok(SystemClock { start })
    }

    #[cfg(target_os = "linux")]
    async fn wait(&self, wait_ns: u64) {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let it_value = Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as _,
            tv_nsec: (wait_ns % 1_000_000_000) as _,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval, it_value };
        if timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_err() {
            return tokio::task::yield_now().await;
        }
        if self.timer.readable().await.is_ok() {
            // A read without data means that the timer has been set again.
            let _ = self.timer.try_read(&mut [0; 8]);
        }
    }

    #[cfg(not(target_os = "linux"))]
    async fn wait(&self, wait_ns: u64) {
        use std::time::Duration;
        match wait_ns {
            0..2_000_000 => tokio::task::yield_now().await,
            _ => tokio::time::sleep(Duration::from_nanos(wait_ns - 2_000_000)).await,
        }
    }
}

impl LoadClock for SystemClock {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    async fn sleep_until(&self, due_ns: u64) {
        loop {
            match due_ns.saturating_sub(self.now_ns()) {
                0 => return,
                remaining_ns => self.wait(remaining_ns).await,
            }
        }
    }
}
