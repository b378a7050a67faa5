//! Tasks in memory: 16 shards under a lock each, a place in every id, bounded in three ways.
//!
//! Law: a task is changed and read under its shard's lock and nowhere else; callbacks run under it
//! and must not call the store. Only finished tasks are evicted, the one that ended first goes
//! first, and no limit is exceeded even for a moment. Wakers are woken after the lock is released.
//!
//! Lock order: one shard (others only by `try_lock`), then one map of chosen ids.

mod edit;
mod evict;
mod follow;
mod id;
mod order;
mod page;
mod permute;
mod reserve;
mod room;
mod shard;
mod slab;
mod survivors;
mod sync;
mod waiters;

use std::sync::PoisonError;

use crossbeam_utils::CachePadded;

use self::{
    id::{Keys, SHARDS, split},
    page::Bound,
    room::Room,
    shard::{Context, HashedMap, Shard},
    slab::NONE,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    waiters::Wakes,
};
use crate::{
    fault::{Fault, FaultKind},
    limits::Limits,
    model::{MessageBuf, PartsBuf, Task, TaskLimits, TaskState},
    service::{AgentIndex, Now, TaskKey},
};

pub use self::{
    edit::Edit,
    id::ID_LEN,
    page::{Page, PageToken},
    reserve::{NewTask, Reserved},
    room::Eviction,
};

/// Domains of [`Keys::hash`]: an agent's number for the ids that its clients chose, and with this
/// bit for its contexts.
const CONTEXT: u32 = 1 << 16;

/// Bytes of a task's log kept back for the status that says it has reached a limit.
const LAST_WORDS: usize = 256;

/// Tasks in memory.
pub struct Store {
    shards: Box<[Cell]>,
    /// From the hash of an id that a client chose to its place.
    chosen: Box<[Mutex<HashedMap>]>,
    keys: Keys,
    room: Room,
    /// What a task may hold, and what it may hold before its last words.
    limits: TaskLimits,
    agent_limits: TaskLimits,
    /// What the tasks of a page may hold, the last one apart.
    page_bound: Bound,
    /// What tasks say that reach a limit: of the task, of the store.
    last_words: [MessageBuf; 2],
}

/// A shard, and the stamp of its oldest finished task for those who choose a shard.
struct Cell {
    oldest: CachePadded<AtomicU64>,
    shard: CachePadded<Mutex<Shard>>,
}

/// Why the store did not take something; it is then as it was, unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A limit of the store is reached and no task has finished.
    Full,
    /// As [`Refused::Full`], for the bytes of tasks.
    OutOfBytes,
    /// The message, or the task with this event, is beyond a limit of one task.
    TooLarge,
    /// The id that the client chose belongs to a task already.
    Taken,
    /// The task is in a terminal state.
    Terminal,
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Fault {
        match refused {
            Refused::Full => Fault::at_limit("tasks_max"),
            Refused::OutOfBytes => Fault::at_limit("store_bytes_max"),
            Refused::TooLarge => Fault::param("message", "the task has no room for this message"),
            Refused::Taken => Fault::param("id", "a task with this id is being made"),
            Refused::Terminal => Fault::new(FaultKind::TaskTerminal),
        }
    }
}

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tasks by state, in the order of [`TaskState::ALL`].
    pub by_state: [u64; TaskState::ALL.len()],
    /// Tasks, those being made included.
    pub tasks: u64,
    /// Bytes of task logs.
    pub bytes: u64,
    /// Evictions, in the order of [`Eviction`].
    pub evicted: [u64; 3],
    /// Wakers that wait for a task to change.
    pub waiting: u64,
}

impl Store {
    /// An empty store; `secret` must be random, and the same for all its life.
    pub fn new(limits: &Limits, secret: u128) -> Store {
        let say = |text| MessageBuf::agent(&PartsBuf::new().text(text)).id("limit-reached");
        let index_max = u32::try_from(limits.tasks_max).unwrap_or(u32::MAX);
        let cell = |_| Cell {
            oldest: CachePadded::new(AtomicU64::new(u64::MAX)),
            shard: CachePadded::new(Mutex::new(Shard::new(index_max.min(u32::MAX >> 4)))),
        };
        let task_limits = TaskLimits {
            bytes_max: limits.task_bytes_max,
            history_max: limits.history_max,
            artifacts_max: limits.artifacts_max,
            replay_max: limits.event_ring_max,
        };
        let kept_back = LAST_WORDS.min(limits.task_bytes_max / 2);
        let bytes_max = limits.task_bytes_max - kept_back;
        Store {
            shards: (0..SHARDS).map(cell).collect(),
            chosen: (0..SHARDS).map(|_| Mutex::default()).collect(),
            keys: Keys::new(secret),
            room: Room::new(limits),
            page_bound: Bound::new(limits),
            limits: task_limits,
            agent_limits: TaskLimits { bytes_max, ..task_limits },
            last_words: [
                say("the task has reached a limit and was ended"),
                say("the server has no room for more output and ended the task"),
            ],
        }
    }

    /// Calls `change` with a stored task; `None` when it is gone.
    ///
    /// The only way to change a task: its place in the lists follows and its waiters are woken.
    pub fn update<R>(
        &self,
        key: TaskKey,
        now: Now,
        change: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> Option<R> {
        let mut wakes = Wakes::default();
        let mut guard = self.lock_key(key)?;
        let mut edit = Edit::open(self, &mut guard, split(key.place), now, &mut wakes)?;
        Some(change(&mut edit))
    }

    /// The key of an agent's task by its raw id.
    pub fn find(&self, agent: AgentIndex, id: &[u8]) -> Option<TaskKey> {
        self.read_id(agent, id, |key, _| key)
    }

    /// Calls `read` with a task; `None` when it is gone.
    pub fn read<R>(&self, key: TaskKey, read: impl FnOnce(&Task) -> R) -> Option<R> {
        let shard = self.lock_key(key)?;
        shard.task(split(key.place).1).map(read)
    }

    /// Calls `read` with an agent's task by its raw id; `None` when there is none.
    pub fn read_id<R>(
        &self,
        agent: AgentIndex,
        id: &[u8],
        read: impl FnOnce(TaskKey, &Task) -> R,
    ) -> Option<R> {
        // One that the store made says where it is; only another one is looked for.
        for is_chosen in [false, true] {
            let place = if is_chosen { self.chosen_place(agent, id) } else { self.keys.place(id) };
            let Some(place) = place else { continue };
            let (at, index) = split(place);
            let shard = self.lock(at);
            let slot = shard.slab.slot(index).filter(|slot| slot.agent == agent);
            let Some(slot) = slot else { continue };
            if let Some(task) = slot.task.as_ref().filter(|task| task.id() == id) {
                return Some(read(TaskKey { place, check: slot.check }, task));
            }
        }
        None
    }

    /// The monotonic clock, no older than the last [`Store::sweep`]: for what happens where there
    /// is no clock.
    pub fn swept_ms(&self) -> u64 {
        self.room.swept_ms()
    }

    /// What the store holds and has let go.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            tasks: self.room.tasks() as u64,
            bytes: self.room.bytes() as u64,
            evicted: self.room.evicted(),
            ..Stats::default()
        };
        for at in 0..SHARDS {
            let shard = self.lock(at);
            stats.waiting += shard.waiting as u64;
            for orders in shard.all_orders() {
                for (sum, order) in stats.by_state.iter_mut().zip(orders) {
                    *sum += order.len() as u64;
                }
            }
        }
        stats
    }

    /// The shard and the name there of an agent's context: contexts of two agents have nothing in
    /// common. An id that we may have made names its shard, whoever made it; of any other the hash
    /// does, by other bits than the map inside uses.
    fn context(&self, agent: AgentIndex, context_id: &[u8]) -> (usize, Context) {
        let hash = self.keys.hash(CONTEXT | u32::from(agent.0), context_id);
        match self.keys.context_place(context_id).map(split) {
            Some((at, home)) => (at, Context { hash, home }),
            None => ((hash >> 32) as usize % SHARDS, Context { hash, home: NONE }),
        }
    }

    /// A panic under the lock is a caller's bug; the tasks are whole and others go on.
    fn lock(&self, at: usize) -> MutexGuard<'_, Shard> {
        self.shards[at].shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard of a task that is still the one the key was given for.
    fn lock_key(&self, key: TaskKey) -> Option<MutexGuard<'_, Shard>> {
        let (at, index) = split(key.place);
        let shard = self.lock(at);
        let is_it = shard.slab.slot(index).is_some_and(|slot| slot.check == key.check);
        is_it.then_some(shard)
    }

    fn note_oldest(&self, at: usize, shard: &Shard) {
        let oldest = &self.shards[at].oldest;
        let stamp = shard.oldest_stamp();
        if oldest.load(Relaxed) != stamp {
            oldest.store(stamp, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
