//! Tasks that were evicted before all of their webhooks had received all events.
//!
//! Invariants: all retained tasks together hold no more than the limit. If the limit is full, tasks
//! of the owner furthest above its equal share are dropped, oldest first. A retained task is
//! identified by its key.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    model::Task,
    shares::{Holder, Newcomer},
};

/// Bytes charged for a task in addition to its log: its entries in the tables.
const ENTRY_BYTES: usize = 256;

/// A log up to this size is copied.
const SMALL_BYTES: usize = 64 * 1024;

/// Maximum number of tasks: each task is charged at least 1 / `TASKS_MAX` of the limit.
const TASKS_MAX: usize = 1_024;

/// The retained tasks, see the module.
#[derive(Default)]
pub struct RetainedTasks(Mutex<Retained>);

#[derive(Default)]
struct Retained {
    bytes_max: usize,
    bytes: usize,
    tasks: HashMap<u64, RetainedTask>,
    owners: HashMap<Holder, OwnerTasks>,
    /// Keys of tasks dropped since [`RetainedTasks::take_dropped`].
    dropped: Vec<u64>,
}

struct RetainedTask {
    holder: Holder,
    bytes: usize,
    task: Arc<Task>,
}

/// The tasks of one owner.
#[derive(Default)]
struct OwnerTasks {
    bytes: usize,
    /// The oldest first; some of these tasks are not retained any more.
    keys: VecDeque<u64>,
    tasks: usize,
}

impl RetainedTasks {
    /// An empty set, with this limit on the bytes of its tasks.
    pub fn new(bytes_max: usize) -> RetainedTasks {
        RetainedTasks(Mutex::new(Retained { bytes_max, ..Retained::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Retained> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Retains a task, unless it is too large.
    pub fn keep(&self, key: u64, holder: Holder, task: Task) {
        // Without a copy, a small log would keep a whole page of the store's memory allocated.
        let task = if task.heap_bytes() <= SMALL_BYTES { task.clone() } else { task };
        let mut retained = self.lock();
        let most = retained.bytes_max;
        let bytes = (task.heap_bytes() + size_of::<Task>() + ENTRY_BYTES).max(most / TASKS_MAX);
        while !retained.has_room(holder, bytes) {
            let held = retained.owners.iter().map(|(holder, owner)| (*holder, owner.bytes));
            let victim = Newcomer { holder, more: bytes, most }.victim(held);
            if bytes > most || !victim.is_some_and(|victim| retained.drop_oldest(victim)) {
                retained.dropped.push(key);
                return;
            }
        }
        retained.bytes += bytes;
        let owner = retained.owners.entry(holder).or_default();
        (owner.bytes, owner.tasks) = (owner.bytes + bytes, owner.tasks + 1);
        owner.keys.push_back(key);
        retained.tasks.insert(key, RetainedTask { holder, bytes, task: Arc::new(task) });
    }

    /// The task with a key, if it is retained.
    pub fn get(&self, key: u64) -> Option<Arc<Task>> {
        self.lock().tasks.get(&key).map(|retained| Arc::clone(&retained.task))
    }

    /// Whether the task with a key is retained.
    pub fn has(&self, key: u64) -> bool {
        self.lock().tasks.contains_key(&key)
    }

    /// Drops a task that is not needed any more.
    pub fn forget(&self, key: u64) {
        self.lock().remove(key);
    }

    /// Takes the keys of tasks that were dropped or not retained for lack of room, each once.
    pub fn take_dropped(&self) -> Vec<u64> {
        std::mem::take(&mut self.lock().dropped)
    }

    /// Bytes charged for all retained tasks.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }
}

impl Retained {
    fn has_room(&self, holder: Holder, bytes: usize) -> bool {
        let strangers = || {
            let all = self.owners.iter().filter(|(holder, _)| holder.is_stranger());
            all.map(|(_, owner)| owner.bytes).sum::<usize>()
        };
        self.bytes + bytes <= self.bytes_max
            && (!holder.is_stranger() || strangers() + bytes <= self.bytes_max / 2)
    }

    /// Drops the oldest task of an owner; false: it has none.
    fn drop_oldest(&mut self, holder: Holder) -> bool {
        while let Some(key) = self.owners.get_mut(&holder).and_then(|own| own.keys.pop_front()) {
            if self.tasks.get(&key).is_some_and(|retained| retained.holder == holder) {
                self.remove(key);
                self.dropped.push(key);
                return true;
            }
        }
        false
    }

    fn remove(&mut self, key: u64) {
        let Some(RetainedTask { holder, bytes, .. }) = self.tasks.remove(&key) else { return };
        self.bytes -= bytes;
        let Some(owner) = self.owners.get_mut(&holder) else { return };
        (owner.bytes, owner.tasks) = (owner.bytes - bytes, owner.tasks - 1);
        if owner.tasks == 0 {
            self.owners.remove(&holder);
        } else if owner.keys.len() > 2 * owner.tasks + 8 {
            let tasks = &self.tasks;
            owner.keys.retain(|key| tasks.contains_key(key));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::{FirstMessage, Generation, MessageBuf, PartsBuf};

    fn task() -> Task {
        let text = "x".repeat(100);
        let message = MessageBuf::user(&PartsBuf::new().text(&*text));
        let first = FirstMessage { message: message.view(), at_ms: 0 };
        Task::submitted(b"id", b"context", Generation::V1, first, 0)
    }

    #[test]
    fn retained_task_flood_spares_an_owner_within_its_share() {
        let bytes = task().clone().heap_bytes() + size_of::<Task>() + ENTRY_BYTES;
        let retained = RetainedTasks::new(10 * bytes);
        let (a, v) = (Holder::owner(1), Holder::owner(2));
        (0..5).for_each(|key| retained.keep(key, v, task()));
        (100..200).for_each(|key| retained.keep(key, a, task()));
        assert!((0..5).chain(195..200).all(|key| retained.has(key)));
        assert_eq!((retained.bytes(), retained.take_dropped()), (10 * bytes, (100..195).collect()));
        // Above its share an owner loses its own oldest task.
        retained.keep(5, v, task());
        assert_eq!((retained.take_dropped(), retained.get(1).is_some()), (vec![0], true));
        (0..200).for_each(|key| retained.forget(key));
        assert!(retained.bytes() == 0 && retained.lock().owners.is_empty());
        // A task larger than the limit is not retained.
        let retained = RetainedTasks::new(bytes - 1);
        retained.keep(7, v, task());
        assert_eq!((retained.take_dropped(), retained.bytes()), (vec![7], 0));
    }

    #[test]
    fn anonymous_callers_retain_at_most_half_of_the_bytes() {
        let bytes = task().clone().heap_bytes() + size_of::<Task>() + ENTRY_BYTES;
        let retained = RetainedTasks::new(10 * bytes);
        let stranger = |last| Holder::peer(Some([192, 0, 2, last].into()), true);
        (0..20).for_each(|key| retained.keep(key, stranger(1), task()));
        retained.keep(20, stranger(2), task());
        assert_eq!(retained.bytes(), 5 * bytes);
        assert!((16..21).all(|key| retained.has(key)));
    }
}
