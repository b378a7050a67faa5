//! Tasks in memory, in 16 shards per worker; each shard has a lock. A task's id contains its
//! location. The number of tasks, their bytes and the lifetime of finished ones are limited.
//!
//! Invariant: a task is changed and read only under its shard's lock; callbacks run under that lock
//! and must not call the store. Only finished tasks are evicted; an unfinished task fails before
//! its eviction. No limit is exceeded, even for a moment. Wakers are woken after the lock is
//! released.
//!
//! Locks are acquired in this order: a table of names; one shard (further shards only by
//! `try_lock`); then a map of chosen ids, a list of names by number, or the table of charges of a
//! group.

mod budget;
mod charged;
mod charges;
mod displace;
mod door;
mod edit;
mod evict;
mod finished;
mod follow;
mod group;
mod held;
mod id;
mod idle;
mod kept;
mod names;
mod order;
mod page;
mod permute;
mod refused;
mod reserve;
mod running;
mod scopes;
mod shard;
mod slab;
mod spaces;
#[cfg(feature = "net")]
mod survey;
mod survivors;
mod sync;
mod waiters;

use std::sync::Arc;

use self::{
    budget::Budget,
    door::Door,
    group::Group,
    id::{Keys, Sharding, SlotAt, group_of},
    idle::IdleSweeps,
    page::Bound,
    shard::{Context, HashedMap, Shard, spread},
    slab::NONE,
    spaces::Spaces,
    sync::{Mutex, MutexGuard},
    waiters::Wakes,
};
use crate::{
    limits::Limits,
    model::{MessageBuf, PartsBuf, TaskLimits, TaskState},
    service::{AgentIndex, Handle, Now, Scope, tap::Tap},
};

#[cfg(feature = "net")]
pub use self::survey::{AnyTask, SurveyFilter, SurveyPage, SurveyedTask};
pub use self::{
    edit::Edit,
    held::HeldBytes,
    id::{ID_LEN, node_of},
    idle::{EndReason, IdleTimes},
    refused::Refused,
    reserve::{NewTask, Reserved, ReservedBuf},
    slab::StoredTask,
    spaces::{ScopeNames, SpaceName},
};
#[cfg(feature = "internals")]
pub use self::{group::Eviction, page::PageToken};

/// Separates the hashes of a scope's contexts from those of the task ids that its clients chose:
/// both are domains of [`Keys::hash`].
const CONTEXT: u64 = 1 << 48 | 1 << 16;

/// Domain of [`Keys::code`] for a task's random bits.
const FRESH: u32 = u32::MAX - 6;

/// Bytes of each task's log that are reserved for its final status if it reaches a limit.
const FINAL_STATUS_BYTES: usize = 256;

/// Tasks in memory.
pub struct Store {
    groups: Box<[Group]>,
    sharding: Sharding,
    door: Door,
    workers: usize,
    /// The location of a task, by the hash of the id that a client chose for it.
    chosen: Box<[Mutex<HashedMap>]>,
    keys: Keys,
    budget: Budget,
    spaces: Spaces,
    idle: IdleSweeps,
    /// The idle times of agents that set none.
    idle_times: IdleTimes,
    /// The limits of a task with its final status, and the lower ones before that status.
    limits: TaskLimits,
    agent_limits: TaskLimits,
    /// The size limit of a page; only its last task may exceed it.
    page_bound: Bound,
    /// The messages of tasks that the store ends: at a limit of the task, of the store, of the
    /// caller's share (bytes, tasks), or to make room for other tasks.
    final_messages: [MessageBuf; 5],
}

/// A task in a store: its location, and a check that no later task in the same slot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskKey {
    /// Location in the store.
    pub position: u32,
    /// Changes each time the slot is reused.
    pub check: u32,
}

impl TaskKey {
    /// The task's handle for the service interface, without a position in its log.
    #[inline]
    pub fn handle(self) -> Handle {
        let key = u64::from(self.check) << 32 | u64::from(self.position);
        Handle { service: 0, key, hint: 0 }
    }

    /// The task's handle for a job of one incarnation of its agent.
    pub fn job_handle(self, incarnation: u32) -> Handle {
        Handle { hint: u64::from(incarnation), ..self.handle() }
    }

    /// The incarnation in a job's handle.
    pub fn incarnation_of(job: &Handle) -> u32 {
        job.hint as u32
    }

    /// The task in a handle of this store.
    #[inline]
    pub fn of(handle: &Handle) -> TaskKey {
        TaskKey { position: handle.key as u32, check: (handle.key >> 32) as u32 }
    }
}

/// Counts for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tasks by state, in the order of [`TaskState::ALL`].
    pub by_state: [u64; TaskState::ALL.len()],
    /// Tasks, reservations included.
    pub tasks: u64,
    /// Bytes of task logs.
    pub bytes: u64,
    /// Evictions, in the order of [`Eviction`].
    pub evicted: [u64; 4],
    /// Tasks that the store has ended, in the order of [`EndReason`].
    pub ended: [u64; EndReason::COUNT],
    /// Wakers that wait for a task to change.
    pub waiting: u64,
}

impl Store {
    /// An empty store for one worker; for `secret` see [`Store::for_workers`].
    #[cfg(any(test, feature = "internals"))]
    pub fn new(limits: &Limits, secret: u128) -> Store {
        Store::for_workers(limits, secret, 1)
    }

    /// An empty store with shards for each worker; `secret` must be random. A later store may use
    /// the same one: ids and page tokens depend only on the secret and on the number of workers.
    pub fn for_workers(limits: &Limits, secret: u128, workers: usize) -> Store {
        let message = |text| MessageBuf::agent(&PartsBuf::new().text(text)).id("limit-reached");
        let index_max = u32::try_from(limits.tasks_max).unwrap_or(u32::MAX);
        let sharding = Sharding::new(workers);
        let (shards, groups) = (sharding.shards(), sharding.groups());
        let index_max = index_max.min(sharding.index_max());
        let budget = Budget::new(limits, sharding);
        let capacity = [&budget.tasks, &budget.bytes].map(|limit| limit.most() / groups);
        let group = |number| Group::new(number, groups, index_max, capacity);
        let task_limits = TaskLimits {
            bytes_max: limits.task_bytes_max,
            history_max: limits.history_max,
            artifacts_max: limits.artifacts_max,
            replay_max: limits.event_ring_max,
        };
        let reserved = FINAL_STATUS_BYTES.min(limits.task_bytes_max / 2);
        let bytes_max = limits.task_bytes_max - reserved;
        Store {
            groups: (0..groups).map(group).collect(),
            sharding,
            door: Door { tap: None, sharding },
            workers: workers.max(1),
            chosen: (0..shards).map(|_| Mutex::default()).collect(),
            keys: Keys::new(secret),
            budget,
            spaces: Spaces::new(limits, workers, groups),
            idle: (0..groups).map(|_| Default::default()).collect(),
            idle_times: IdleTimes::of(limits),
            page_bound: Bound::new(limits),
            limits: task_limits,
            agent_limits: TaskLimits { bytes_max, ..task_limits },
            final_messages: [
                message(
                    "the task has reached a limit (task_bytes_max or artifacts_max) and was ended",
                ),
                message("the server has no room for more output and ended the task"),
                message("running tasks of the caller hold too many bytes: the task was ended"),
                message("the caller has too many running tasks: the task was ended"),
                message("evicted: the owner's share is full"),
            ],
        }
    }

    /// The same store, with the number of its node in the ids that it creates.
    #[must_use]
    pub fn of_node(mut self, node: Option<u16>) -> Store {
        self.keys.set_node(node);
        self
    }

    /// Sets the tap that records changes of tasks.
    #[must_use]
    pub fn tapped(mut self, tap: Option<Arc<dyn Tap>>) -> Store {
        self.door.tap = tap;
        self
    }

    /// Calls `change` with a stored task; `None`: the task is not stored any more.
    ///
    /// Only this function changes tasks: it also updates the lists and wakes the waiters.
    pub fn update<R>(
        &self,
        key: TaskKey,
        now: Now,
        change: impl FnOnce(&mut Edit<'_>) -> R,
    ) -> Option<R> {
        let mut wakes = Wakes::default();
        let mut guard = self.lock_key(key)?;
        let mut edit =
            Edit::open(self, &mut guard, self.sharding.split(key.position), now, &mut wakes)?;
        Some(change(&mut edit))
    }

    /// The key of a scope's task by its raw id.
    pub fn find(&self, scope: Scope, id: &[u8]) -> Option<TaskKey> {
        self.read_id(scope, id, |key, _| key)
    }

    /// Whether a task of any scope has this raw id. Ids that clients chose are not found.
    pub fn has_made(&self, id: &[u8]) -> bool {
        self.keys.position(id).is_some_and(|position| {
            let SlotAt { at, index } = self.sharding.split(position);
            self.lock(at).slab.stored(index).is_some_and(|task| task.id() == id)
        })
    }

    /// Calls `read` with a task; `None`: the task is not stored any more.
    pub fn read<R>(&self, key: TaskKey, read: impl FnOnce(StoredTask<'_>) -> R) -> Option<R> {
        let shard = self.lock_key(key)?;
        shard.slab.stored(self.sharding.split(key.position).index).map(read)
    }

    /// Calls `read` with a scope's task by its raw id; `None`: the scope has no such task.
    pub fn read_id<R>(
        &self,
        scope: Scope,
        id: &[u8],
        read: impl FnOnce(TaskKey, StoredTask<'_>) -> R,
    ) -> Option<R> {
        // An id of the store contains its location; only other ids need a search.
        for is_chosen in [false, true] {
            let position =
                if is_chosen { self.chosen_position(scope, id) } else { self.keys.position(id) };
            let Some(position) = position else { continue };
            let SlotAt { at, index } = self.sharding.split(position);
            let shard = self.lock(at);
            let slot = shard.slab.slot(index).filter(|slot| slot.scope == scope);
            let Some(slot) = slot else { continue };
            if let Some(task) = shard.slab.stored(index).filter(|task| task.id() == id) {
                return Some(read(TaskKey { position, check: slot.check }, task));
            }
        }
        None
    }

    /// Calls `each` with every task of an agent that is unfinished when its shard is visited.
    /// `each` may call the store.
    pub fn each_unfinished_of(&self, agent: AgentIndex, each: impl FnMut(TaskKey)) {
        self.each_unfinished(|scope| scope.agent == agent, each);
    }

    /// As [`Store::each_unfinished_of`], for the scopes that `is_of` selects.
    fn each_unfinished(&self, is_of: impl Fn(Scope) -> bool, mut each: impl FnMut(TaskKey)) {
        for at in 0..self.sharding.shards() {
            let shard = self.lock(at);
            let key = |index| {
                let position = self.sharding.position(at, index);
                TaskKey { position, check: shard.slab[index].check }
            };
            let keys: Vec<TaskKey> = shard.unfinished_of(&is_of).map(key).collect();
            drop(shard);
            keys.into_iter().for_each(&mut each);
        }
    }

    /// True when an agent has tasks, finished or not, of any owner.
    pub fn has_tasks_of(&self, agent: AgentIndex) -> bool {
        (0..self.sharding.shards()).any(|at| self.lock(at).has_tasks_of(agent))
    }

    /// Unguessable bits for ids that an incarnation of the agent creates in a task, for use without
    /// a random source.
    pub fn bits_of(&self, key: TaskKey, incarnation: u32) -> u128 {
        let position = u64::from(key.position) << 32 | u64::from(key.check);
        let half = |half| self.keys.code(FRESH, [position, u64::from(incarnation) << 1 | half]);
        u128::from(half(0)) << 64 | u128::from(half(1))
    }

    /// Stores the time for later changes by callers without a clock.
    #[cfg(feature = "embed")]
    pub fn note_time(&self, now: Now) {
        if self.budget.swept_ms() < now.mono_ms {
            self.budget.note_sweep(now.mono_ms);
        }
    }

    /// The monotonic time of the last [`Store::sweep`] or later, for changes by callers without a
    /// clock.
    pub fn swept_ms(&self) -> u64 {
        self.budget.swept_ms()
    }

    /// The current content of the store, and its evictions.
    pub fn stats(&self) -> Stats {
        let groups = || self.groups.iter();
        let evicted = |why: usize| groups().map(|group| group.evicted()[why]).sum();
        let mut stats = Stats {
            tasks: self.budget.tasks.used(groups().map(|group| &group.tasks)),
            bytes: self.budget.bytes.used(groups().map(|group| &group.bytes)),
            evicted: std::array::from_fn(evicted),
            ended: self.ended(),
            ..Stats::default()
        };
        for at in 0..self.sharding.shards() {
            let shard = self.lock(at);
            stats.waiting += shard.waiting as u64;
            for orders in shard.scopes.all_orders() {
                for (sum, order) in stats.by_state.iter_mut().zip(orders) {
                    *sum += order.len() as u64;
                }
            }
        }
        stats
    }

    /// The shard and the context for a context id in a scope; contexts of two scopes are unrelated.
    /// An id created by this store contains its shard. For any other id the hash selects the shard,
    /// by other bits than the map uses.
    fn context(&self, scope: Scope, context_id: &[u8]) -> (usize, Context) {
        let hash = self.keys.hash(CONTEXT ^ spread(scope), context_id);
        let named =
            self.keys.context_position(context_id).map(|position| self.sharding.split(position));
        let by_hash = SlotAt { at: self.sharding.shard_of(hash >> 32), index: NONE };
        let SlotAt { at, index: context_slot } = named.unwrap_or(by_hash);
        match self.own_shard(scope, at) {
            own if own == at => (at, Context { hash, context_slot }),
            // A forged id cannot point to a task of the scope.
            own => (own, Context { hash, context_slot: NONE }),
        }
    }

    /// The shard for a scope in the group of shard `at`. A scope with a tenant or an owner uses one
    /// shard per group, since each used shard stores lists for it.
    #[inline]
    fn own_shard(&self, scope: Scope, at: usize) -> usize {
        if scope.is_plain() { at } else { self.sharding.in_group_of(at, spread(scope)) }
    }

    #[inline]
    fn lock(&self, at: usize) -> MutexGuard<'_, Shard> {
        self.group(at).lock(at)
    }

    /// Locks the shard of a task if its slot still belongs to the key.
    fn lock_key(&self, key: TaskKey) -> Option<MutexGuard<'_, Shard>> {
        let SlotAt { at, index } = self.sharding.split(key.position);
        let shard = self.lock(at);
        let is_it = shard.slab.slot(index).is_some_and(|slot| slot.check == key.check);
        is_it.then_some(shard)
    }

    /// The group of a shard.
    #[inline]
    fn group(&self, at: usize) -> &Group {
        &self.groups[group_of(at)]
    }
}

#[cfg(test)]
mod tests;
