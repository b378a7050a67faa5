//! Change notifications of watched tasks, for as long as they are stored.
//!
//! Invariants: a changed task is noted once until it is examined, so there are no more notes than
//! watched tasks. The store wakes the watch of a task without holding a lock.

#![cfg_attr(not(feature = "push"), allow(dead_code, reason = "only webhooks watch tasks"))]

mod left;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Wake, Waker},
};

use crate::{model::Task, shares::Holder};

pub use left::RetainedTasks;

/// Woken when a task changes, and when it is evicted.
pub struct TaskWatch {
    key: u64,
    /// The holder that is charged for the task if it is retained after eviction.
    holder: Holder,
    id: TaskName,
    is_noted: AtomicBool,
    is_needed: AtomicBool,
    has_letters: AtomicBool,
    is_over: AtomicBool,
    /// The latest event that the store has reported.
    seq: AtomicU64,
    is_evicted: AtomicBool,
    changes: Arc<Changes>,
}

/// A task's id; an id created by a store needs no allocation.
enum TaskName {
    /// The bits of a [`uuid`](crate::model::uuid) in its usual form.
    Uuid([u8; 16]),
    Raw(Box<[u8]>),
}

impl TaskWatch {
    /// A watch of the task with this key in its store and this raw id.
    pub fn new(key: u64, id: &[u8], holder: Holder, changes: &Arc<Changes>) -> TaskWatch {
        let id = uuid_bits(id).map_or_else(|| TaskName::Raw(id.into()), TaskName::Uuid);
        let (is_noted, is_needed, has_letters, is_over, seq, is_evicted) = Default::default();
        let changes = Arc::clone(changes);
        TaskWatch {
            key,
            holder,
            id,
            is_noted,
            is_needed,
            has_letters,
            is_over,
            seq,
            is_evicted,
            changes,
        }
    }

    /// The task's raw id.
    pub fn task_id(&self) -> Box<[u8]> {
        match &self.id {
            TaskName::Raw(id) => id.clone(),
            TaskName::Uuid(bits) => uuid_text(*bits).into(),
        }
    }

    /// Starts an examination: it sees all changes noted before; later changes are noted again.
    pub fn look(&self) {
        // A swap, not a store: it also reads, so it synchronizes with a `wake` that found the task
        // noted already and noted nothing. The change before that `wake` is then seen here.
        self.is_noted.swap(false, Ordering::AcqRel);
    }

    /// The holder that the task is charged to.
    pub fn holder(&self) -> Holder {
        self.holder
    }

    /// Sets whether the task is still needed: a needed task does not expire.
    pub fn set_needed(&self, is_needed: bool) {
        self.is_needed.store(is_needed, Ordering::Release);
    }

    /// Sets whether the task has stopped webhooks that may be replayed.
    pub fn set_letters(&self, has_letters: bool) {
        self.has_letters.store(has_letters, Ordering::Release);
    }

    /// Whether the task is still needed. A noted task is needed until it is examined.
    pub fn is_needed(&self) -> bool {
        let [is_noted, is_needed, is_over] =
            [&self.is_noted, &self.is_needed, &self.is_over].map(|is| is.load(Ordering::Acquire));
        (is_needed || is_noted) && !is_over
    }

    /// Stores the latest event. Wake the watch to note the task.
    pub fn reach(&self, seq: u64) {
        self.seq.fetch_max(seq, Ordering::Relaxed);
    }

    /// The latest event; 0: there is none.
    pub fn seq(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    /// Retains an evicted task for its webhooks, if they still need it and [`Changes::left`] has
    /// room.
    pub fn keep(&self, task: Option<Task>) {
        let has_letters = self.has_letters.load(Ordering::Acquire) && !self.is_over();
        if let Some(task) = task.filter(|_| has_letters || self.is_needed()) {
            self.changes.left.keep(self.key, self.holder, task);
        }
    }

    /// Stores that the task was evicted after this event. Wake the watch to note the task.
    pub fn leave(&self, seq: u64) {
        self.reach(seq);
        self.is_evicted.store(true, Ordering::Release);
    }

    /// The last event of the task, if it was evicted.
    pub fn left(&self) -> Option<u64> {
        self.is_evicted.load(Ordering::Acquire).then(|| self.seq())
    }

    /// Whether the watch has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Ends the watch, even if it is still referenced: no later change is noted, and the task is
    /// not needed any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

impl Wake for TaskWatch {
    fn wake(self: Arc<TaskWatch>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<TaskWatch>) {
        if !self.is_over.load(Ordering::Acquire) && !self.is_noted.swap(true, Ordering::AcqRel) {
            self.set_needed(true);
            self.changes.note(self.key);
        }
    }
}

/// The bits of an id that is a UUID in its usual lower-case form.
fn uuid_bits(id: &[u8]) -> Option<[u8; 16]> {
    let text = str::from_utf8(id).ok().filter(|text| text.len() == 36)?;
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let bits = u128::from_str_radix(&digits, 16).ok()?.to_be_bytes();
    (uuid_text(bits) == id).then_some(bits)
}

fn uuid_text(bits: [u8; 16]) -> Vec<u8> {
    let mut text = format!("{:032x}", u128::from_be_bytes(bits));
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    text.into_bytes()
}

/// Changed tasks that were not examined yet, the watcher's waker, and evicted tasks that are still
/// needed.
#[derive(Default)]
pub struct Changes {
    noted: Mutex<(Vec<u64>, Option<Waker>)>,
    /// Evicted tasks.
    pub left: RetainedTasks,
}

impl Changes {
    /// An empty list; evicted tasks may hold this many bytes.
    pub fn new(evicted_bytes_max: usize) -> Changes {
        Changes { left: RetainedTasks::new(evicted_bytes_max), ..Changes::default() }
    }

    fn note(&self, key: u64) {
        let mut changes = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        changes.0.push(key);
        let waker = changes.1.take();
        drop(changes);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Takes the noted keys; if there are none, the next one wakes `wake`.
    pub fn take(&self, wake: &Waker) -> Vec<u64> {
        let mut changes = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.0.is_empty() {
            changes.1 = Some(wake.clone());
        }
        std::mem::take(&mut changes.0)
    }

    /// Wakes the watcher.
    pub fn wake(&self) {
        let waker = self.noted.lock().unwrap_or_else(PoisonError::into_inner).1.take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Whether any task is noted.
    pub fn has_noted(&self) -> bool {
        !self.noted.lock().unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }

    /// Noted tasks.
    #[cfg(test)]
    pub fn noted(&self) -> usize {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_id_round_trips_unchanged() {
        let changes = Arc::new(Changes::default());
        for id in [
            "75dd2cc9-af7d-4f1a-a52f-230a7d66b679",
            "75DD2CC9-af7d-4f1a-a52f-230a7d66b679",
            "00000000-0000-0000-0000-000000000000",
            "75dd2cc9af7d-4f1a-a52f-230a7d66b6790",
            "+75dd2cc-af7d-4f1a-a52f-230a7d66b679",
            "mine",
            "",
        ] {
            let watch = TaskWatch::new(1, id.as_bytes(), Holder::default(), &changes);
            assert_eq!(*watch.task_id(), *id.as_bytes());
        }
        assert_eq!(size_of::<TaskName>(), 24);
    }

    #[test]
    fn examination_misses_no_concurrent_eviction() {
        let changes = Arc::new(Changes::default());
        let turn = AtomicU64::new(0);
        // On a single core, neither side spins for its whole time slice.
        let wait = |until: u64| {
            for spins in 1u32.. {
                match turn.load(Ordering::Acquire) >= until {
                    true => return,
                    false if spins.is_multiple_of(1_000) => std::thread::yield_now(),
                    false => std::hint::spin_loop(),
                }
            }
        };
        let watches: Vec<_> = (0..20_000)
            .map(|key| Arc::new(TaskWatch::new(key, b"t", Holder::default(), &changes)))
            .collect();
        watches.iter().for_each(Wake::wake_by_ref);
        let _ = changes.take(Waker::noop());
        let missed = std::thread::scope(|scope| {
            scope.spawn(|| {
                for (watch, round) in watches.iter().zip(1..) {
                    wait(2 * round - 1);
                    watch.leave(7);
                    watch.wake_by_ref();
                    turn.fetch_add(1, Ordering::AcqRel);
                }
            });
            let looked = watches.iter().zip(1u64..).filter(|(watch, round)| {
                turn.fetch_add(1, Ordering::AcqRel);
                watch.look();
                let is_seen = watch.left().is_some();
                wait(2 * round);
                !is_seen && changes.take(Waker::noop()).is_empty()
            });
            looked.count()
        });
        assert_eq!(missed, 0);
    }

    #[test]
    fn noted_task_is_needed_until_it_is_examined() {
        let watch =
            Arc::new(TaskWatch::new(1, b"t", Holder::default(), &Arc::new(Changes::default())));
        watch.wake_by_ref();
        watch.set_needed(false);
        assert!(watch.is_needed());
        watch.look();
        assert!(!watch.is_needed());
    }

    #[test]
    fn ended_watch_needs_and_notes_nothing() {
        let changes = Arc::new(Changes::default());
        let watch = Arc::new(TaskWatch::new(1, b"t", Holder::default(), &changes));
        watch.wake_by_ref();
        assert!(watch.is_needed() && changes.noted() == 1);
        watch.look();
        watch.end();
        watch.wake_by_ref();
        assert!(!watch.is_needed() && changes.noted() == 1);
    }
}
