//! A bounded pool of threads for code that blocks.
//!
//! Invariants: a call with a [`WorkPermit`] gets a thread, at once or later; there is one permit
//! for each thread and each slot of the queue. A thread is started on demand and ends after a time
//! without work. A panic of one work item does not affect others. The pool does not wait for its
//! threads to end.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// How long an idle thread waits for work.
const IDLE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// The threads of one agent.
pub(super) struct BlockingPool {
    /// Maximum number of threads, at least one.
    pub(super) threads_max: usize,
    /// Maximum number of work items that wait for a thread.
    pub(super) queue_max: usize,
    shared: Arc<PoolShared>,
}

#[derive(Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    changed: Condvar,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<(Work, WorkPermit)>,
    /// Issued permits: their work is expected, waits or runs.
    permits: usize,
    threads: usize,
    /// The pool was dropped: no new permits are issued.
    is_closed: bool,
}

/// The permit of a work item, until the work ends.
pub(super) struct WorkPermit(Arc<PoolShared>);

/// Why there is no permit.
pub(super) enum NoWorker {
    /// All threads are busy, and the queue is full.
    Full,
    /// The pool has no thread, and the system cannot start one.
    NoThread,
}

impl BlockingPool {
    pub(super) fn new(threads_max: usize, queue_max: usize) -> BlockingPool {
        BlockingPool { threads_max, queue_max, shared: Arc::default() }
    }

    /// Issues a permit, and ensures that there will be a thread.
    pub(super) fn permit(&self) -> Result<WorkPermit, NoWorker> {
        let mut state = self.shared.lock();
        if state.permits >= self.threads_max.saturating_add(self.queue_max) {
            return Err(NoWorker::Full);
        }
        // A permit counts as one thread, whether its work is expected, waits or runs.
        if state.threads < self.threads_max.min(state.permits + 1) {
            match start_thread(&self.shared) {
                Ok(()) => state.threads += 1,
                Err(_) if state.threads == 0 => return Err(NoWorker::NoThread),
                // The existing threads run the work later.
                Err(_) => {}
            }
        }
        state.permits += 1;
        Ok(WorkPermit(Arc::clone(&self.shared)))
    }
}

impl Drop for BlockingPool {
    /// Queued work still runs.
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
    }
}

impl WorkPermit {
    /// Runs the work on a thread of the pool.
    pub(super) fn run(self, work: Work) {
        let shared = Arc::clone(&self.0);
        shared.lock().queue.push_back((work, self));
        shared.changed.notify_one();
    }
}

impl Drop for WorkPermit {
    fn drop(&mut self) {
        self.0.lock().permits -= 1;
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next work item; `None`: the thread must end, and is no longer counted.
    fn next(&self) -> Option<(Work, WorkPermit)> {
        let mut state = self.lock();
        let mut is_idle = false;
        loop {
            if let Some(next) = state.queue.pop_front() {
                return Some(next);
            }
            // Afterwards there is still a thread for each issued permit.
            if (is_idle || state.is_closed) && state.threads > state.permits {
                state.threads -= 1;
                return None;
            }
            let waited = self.changed.wait_timeout(state, IDLE);
            let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            (state, is_idle) = (back, timeout.timed_out());
        }
    }
}

fn start_thread(shared: &Arc<PoolShared>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let work = move || {
        while let Some((work, permit)) = shared.next() {
            // A panic was reported when it happened; dropping the turn fails its call.
            let _ = catch_unwind(AssertUnwindSafe(work));
            drop(permit);
        }
    };
    thread::Builder::new().name("peregrine-blocking".to_owned()).spawn(work).map(drop)
}
