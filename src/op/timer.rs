//! Resume timers of agents: one heap per worker, ordered by time; the limit applies to the sum of
//! all workers.
//!
//! The timer of a finished task stays in the heap until its time comes, and each message to a
//! running task may add one. When the limit is reached, the timers of finished tasks are dropped.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Mutex, PoisonError},
    task::Waker,
};

use crossbeam_utils::CachePadded;

use crate::{op::Core, permits::Permits, service::TickCx, store::TaskKey};

/// When an agent wants to resume its task; ordered by time, then by the order of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ResumeTimer {
    pub due_ms: u64,
    /// The position among timers of the same time. It wraps around; then two of them run in the
    /// wrong order.
    pub number: u32,
    pub position: u32,
    pub check: u32,
    /// The incarnation that set the timer; later programs do not receive it.
    pub incarnation: u32,
    pub token: u64,
}

impl ResumeTimer {
    pub fn key(&self) -> TaskKey {
        TaskKey { position: self.position, check: self.check }
    }
}

/// The timers of one worker's turns.
#[derive(Default)]
pub(super) struct Timers(Mutex<TimerHeap>);

#[derive(Default)]
struct TimerHeap {
    heap: BinaryHeap<Reverse<ResumeTimer>>,
    wake: Option<Waker>,
    count: u32,
    /// The time of the next search for timers of finished tasks.
    look_ms: u64,
}

/// Maximum number of timers that one tick runs before connections are polled again.
const TIMERS_PER_TICK: usize = 256;

/// Milliseconds between sweeps of expired tasks.
const SWEEP_EVERY_MS: u64 = 1_000;

/// Number of timers for which a worker's heap always retains memory.
const TIMERS_RETAINED: usize = 64;

impl TimerHeap {
    /// Releases memory. All timers may move from one worker to another, and all heaps together hold
    /// at most two and a half times the memory that the timers need.
    fn shrink(&mut self) {
        let (len, room) = (self.heap.len(), self.heap.capacity());
        if room > TIMERS_RETAINED && 2 * room > 5 * len {
            self.heap.shrink_to((len + len / 4).max(TIMERS_RETAINED));
        }
    }
}

impl Timers {
    fn lock(&self) -> std::sync::MutexGuard<'_, TimerHeap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the timers of tasks that do not run; returns their number.
    fn forget(&self, now_ms: u64, runs: impl Fn(TaskKey) -> bool) -> usize {
        let mut inner = self.lock();
        if now_ms < inner.look_ms {
            return 0;
        }
        // The cost of a search grows with the heap, so it runs at most once per sweep interval.
        inner.look_ms = now_ms.saturating_add(SWEEP_EVERY_MS);
        let before = inner.heap.len();
        inner.heap.retain(|Reverse(timer)| runs(timer.key()));
        inner.shrink();
        before - inner.heap.len()
    }

    /// Adds a timer, and wakes the worker's ticker if the timer is now the first.
    fn push(&self, mut timer: ResumeTimer) {
        let mut inner = self.lock();
        inner.count = inner.count.wrapping_add(1);
        timer.number = inner.count;
        let (due_ms, first) = (timer.due_ms, inner.heap.peek().map(|Reverse(timer)| timer.due_ms));
        inner.heap.push(Reverse(timer));
        let wake = if first.is_none_or(|first| due_ms < first) { inner.wake.take() } else { None };
        drop(inner);
        if let Some(wake) = wake {
            wake.wake();
        }
    }

    fn pop(&self, now_ms: u64) -> Option<ResumeTimer> {
        let mut inner = self.lock();
        inner.heap.peek().filter(|Reverse(timer)| timer.due_ms <= now_ms)?;
        let timer = inner.heap.pop().map(|Reverse(timer)| timer);
        inner.shrink();
        timer
    }

    /// The time of the first timer; `wake` is woken when an earlier timer is added.
    fn next(&self, wake: &Waker) -> Option<u64> {
        let mut inner = self.lock();
        inner.wake = Some(wake.clone());
        inner.heap.peek().map(|Reverse(timer)| timer.due_ms)
    }
}

/// The timers of all workers.
pub(super) struct AllTimers {
    /// One heap for each worker, so that workers do not wait for each other.
    workers: Box<[CachePadded<Timers>]>,
    permits: Permits,
}

impl AllTimers {
    /// Timers for `workers` workers, at most `most` of them.
    pub fn new(workers: usize, most: usize) -> AllTimers {
        let timers = (0..workers.max(1)).map(|_| CachePadded::new(Timers::default()));
        AllTimers { workers: timers.collect(), permits: Permits::new(most, workers) }
    }

    /// Adds a timer for this worker; false: the limit is reached, even without the timers of tasks
    /// that were found finished.
    pub fn push(
        &self,
        worker: usize,
        timer: ResumeTimer,
        now_ms: u64,
        runs: impl Fn(TaskKey) -> bool,
    ) -> bool {
        if !self.permits.take(worker) {
            for (worker, timers) in self.workers.iter().enumerate() {
                self.permits.release(worker, timers.forget(now_ms, &runs));
            }
            if !self.permits.take(worker) {
                return false;
            }
        }
        self.of(worker).push(timer);
        true
    }

    fn of(&self, worker: usize) -> &Timers {
        &self.workers[worker % self.workers.len()]
    }

    fn pop(&self, worker: usize, now_ms: u64) -> Option<ResumeTimer> {
        let timer = self.of(worker).pop(now_ms)?;
        self.permits.release(worker, 1);
        Some(timer)
    }
}

impl Core {
    /// Resumes agents of `cx.worker` that are due, ends idle tasks and evicts expired ones. Returns
    /// when to run again; `wake` is woken when an earlier time becomes known.
    pub(super) fn run_due(&self, cx: &mut TickCx<'_>, wake: &Waker) -> u64 {
        for _ in 0..TIMERS_PER_TICK {
            let Some(timer) = self.timers.pop(cx.worker, cx.now.mono_ms) else { break };
            self.resume(cx, &timer);
        }
        // Each worker evicts the expired tasks of its own shards, because freeing memory is
        // cheapest on the thread that allocated it.
        let is_more = self.store.sweep_of(cx.worker, cx.now);
        let times = || self.agents.idle_times(&self.limits);
        let is_more = self.store.end_idle(cx.worker, cx.now, times) | is_more;
        let soon = if is_more { 1 } else { SWEEP_EVERY_MS };
        let sweep = cx.now.mono_ms + soon;
        self.agents.refresh(cx.worker);
        if cx.worker == 0 {
            self.forget_removed(cx.now);
        }
        self.timers.of(cx.worker).next(wake).map_or(sweep, |next| next.min(sweep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RESUME_TIMER_BYTES;

    fn timer(position: u32) -> ResumeTimer {
        ResumeTimer { due_ms: 600_000, number: 0, position, check: 0, incarnation: 0, token: 0 }
    }

    #[test]
    fn resume_timers_are_bounded_and_ended_tasks_free_slots() {
        let timers = AllTimers::new(3, 4);
        let push = |worker, position, now_ms, ended: u32| {
            timers.push(worker, timer(position), now_ms, |key| key.position >= ended)
        };
        // One task receives message after message, on one worker or on many.
        assert!((0..4).all(|worker| push(worker, 7, 0, 0)));
        assert!((0..100).all(|worker| !push(worker, 7, 0, 0)));
        assert_eq!(timers.permits.count(), 4);
        // The task ends. Not every push searches for finished tasks.
        assert!(!push(2, 9, 0, 8) && push(2, 9, SWEEP_EVERY_MS, 8));
        assert_eq!(timers.permits.count(), 1);
        assert!(timers.pop(0, 600_000).is_none() && timers.pop(2, 600_000).is_some());
        assert_eq!(timers.permits.count(), 0);
    }

    #[test]
    fn resume_timers_moving_between_workers_need_no_more_memory() {
        let (workers, most) = (4, 10_000);
        let timers = AllTimers::new(workers, most);
        let room =
            || -> usize { timers.workers.iter().map(|timers| timers.lock().heap.capacity()).sum() };
        for (round, worker) in (0..2 * workers as u64).zip((0..workers).cycle()) {
            // The tasks of the previous worker have ended, or their time has come.
            let now_ms = (round + 1) * SWEEP_EVERY_MS;
            for position in 0..most as u32 {
                assert!(timers.push(worker, timer(position), now_ms, |_| false));
            }
            if round % 2 == 0 {
                while timers.pop(worker, 600_000).is_some() {}
            }
            let bound = RESUME_TIMER_BYTES as usize * most
                + workers * TIMERS_RETAINED * size_of::<ResumeTimer>();
            assert!(size_of::<Reverse<ResumeTimer>>() * room() <= bound, "{round}: {}", room());
        }
    }
}
