//! A queue of turns for threads of the program.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{HostCancel, HostTurn, turn::EndNotice};

/// An item that the program takes for its agents.
pub enum HostItem {
    /// A message for the agent.
    Turn(HostTurn),
    /// A client's request to cancel a task, which waits for the decision.
    Cancel(HostCancel),
    /// The task of the turn with this number has ended, or the caller has left before a task
    /// existed: later events of the turn are refused. [`HostTurn::watch`] requests this item and
    /// returns the number.
    Ended(u64),
}

/// An item in a queue.
pub(super) enum Queued {
    Turn(HostTurn),
    Cancel(HostCancel),
    Ended(u64),
    /// A turn may have ended.
    Woken(Arc<EndNotice>),
}

impl Queued {
    fn item(self) -> Option<HostItem> {
        Some(match self {
            Queued::Turn(turn) => HostItem::Turn(turn),
            Queued::Cancel(cancel) => HostItem::Cancel(cancel),
            Queued::Ended(number) => HostItem::Ended(number),
            Queued::Woken(notice) => HostItem::Ended(notice.ended()?),
        })
    }
}

/// Turns that wait for a thread of the program, at most `deferred_calls_max`; the server refuses
/// more.
pub struct HostQueue {
    waiting: Mutex<QueuedItems>,
    ready: Condvar,
    /// Written to when the queue is no longer empty, for programs that wait for descriptors.
    bell: Option<UnixStream>,
    next_number: AtomicU64,
}

#[derive(Default)]
struct QueuedItems {
    items: VecDeque<Queued>,
    is_closed: bool,
    /// Threads in [`HostQueue::take`].
    takers: usize,
}

impl HostQueue {
    /// A queue that threads wait for.
    pub fn new() -> Arc<HostQueue> {
        Arc::new(HostQueue::of(None))
    }

    /// A queue, and a socket that becomes readable when the queue is no longer empty: for event
    /// loops, which first empty the socket with [`HostQueue::hear`], and then call
    /// [`HostQueue::take`] without waiting.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub fn with_bell() -> io::Result<(Arc<HostQueue>, UnixStream)> {
        let (bell, heard) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok((Arc::new(HostQueue::of(Some(bell))), heard))
    }

    fn of(bell: Option<UnixStream>) -> HostQueue {
        let next_number = AtomicU64::new(1);
        HostQueue { waiting: Mutex::default(), ready: Condvar::new(), bell, next_number }
    }

    /// Empties the socket of [`HostQueue::with_bell`].
    pub fn hear(mut socket: &UnixStream) {
        let mut bytes = [0; 64];
        while matches!(socket.read(&mut bytes), Ok(count) if count == bytes.len()) {}
    }

    /// Takes at most `most` items, in order. Waits until the queue has an item or is closed, or
    /// `wait` has passed. `None`: the queue is closed and empty.
    pub fn take(&self, wait: Duration, most: usize) -> Option<Vec<HostItem>> {
        let until = Instant::now().checked_add(wait);
        loop {
            let queued = self.take_queued(until, most)?;
            let is_empty = queued.is_empty();
            // Without the lock of the queue: this may lock a turn.
            let items: Vec<HostItem> = queued.into_iter().filter_map(Queued::item).collect();
            if is_empty || !items.is_empty() {
                return Some(items);
            }
        }
    }

    fn take_queued(&self, until: Option<Instant>, most: usize) -> Option<Vec<Queued>> {
        let mut waiting = self.lock();
        while waiting.items.is_empty() && !waiting.is_closed {
            let remaining = until
                .map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if remaining.is_zero() {
                break;
            }
            waiting.takers += 1;
            let woken = self.ready.wait_timeout(waiting, remaining);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
            waiting.takers -= 1;
        }
        if waiting.items.is_empty() && waiting.is_closed {
            return None;
        }
        let count = waiting.items.len().min(most);
        let batch = waiting.items.drain(..count).collect();
        // One wake-up may stand for several items: wake another thread for the rest.
        if !waiting.items.is_empty() && waiting.takers > 0 {
            self.ready.notify_one();
        }
        Some(batch)
    }

    /// Closes the queue: waiting turns fail, and waiting threads return.
    pub fn close(&self) {
        let dropped = {
            let mut waiting = self.lock();
            waiting.is_closed = true;
            std::mem::take(&mut waiting.items)
        };
        self.ready.notify_all();
        self.ring();
        // Without the lock: each drop notifies its call.
        drop(dropped);
    }

    /// A number that no other turn of the queue has.
    pub(super) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds an item; a closed queue drops it.
    pub(super) fn push(&self, item: Queued) {
        let mut waiting = self.lock();
        if waiting.is_closed {
            drop(waiting);
            return drop(item);
        }
        let was_empty = waiting.items.is_empty();
        waiting.items.push_back(item);
        let has_takers = waiting.takers > 0;
        drop(waiting);
        if has_takers {
            self.ready.notify_one();
        }
        if was_empty {
            self.ring();
        }
    }

    fn ring(&self) {
        if let Some(mut bell) = self.bell.as_ref() {
            // An error means that the socket is full, and so readable anyway.
            let _ = bell.write(&[1]);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueuedItems> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
