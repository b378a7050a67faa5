//! Making room: which finished task leaves, and when.
//!
//! Room is made before it is used. The task that ended first in the whole store goes first; each
//! shard notes the stamp of its oldest so that the choice costs 16 loads and one lock.

use std::sync::{PoisonError, TryLockError};

use super::{
    Refused, Store,
    id::SHARDS,
    room::Eviction,
    shard::Shard,
    sync::{MutexGuard, atomic::Ordering::Relaxed},
    waiters::Wakes,
};
use crate::service::Now;

/// Finished tasks that one [`Store::sweep`] evicts from one shard at most.
const SWEEP: usize = 64;

impl Store {
    /// Evicts finished tasks whose time is over; true when it should be called again soon.
    ///
    /// One call evicts at most 1,024 tasks. Call it about once a second.
    pub fn sweep(&self, now: Now) -> bool {
        let mut is_more = false;
        self.room.note_sweep(now.mono_ms);
        for at in 0..SHARDS {
            if self.shards[at].oldest.load(Relaxed) == u64::MAX {
                continue;
            }
            let mut wakes = Wakes::default();
            let mut shard = self.lock(at);
            self.expire(at, &mut shard, now, &mut wakes, SWEEP);
            is_more |= shard.is_expired(&self.room, now.mono_ms);
        }
        is_more
    }

    /// Evicts at most `most` tasks of a shard whose time is over.
    pub(super) fn expire(
        &self,
        at: usize,
        shard: &mut Shard,
        now: Now,
        wakes: &mut Wakes,
        most: usize,
    ) {
        for _ in 0..most {
            if !shard.is_expired(&self.room, now.mono_ms) {
                break;
            }
            self.evict_from(at, shard, Eviction::Ttl, wakes);
        }
    }

    /// Takes room for one more task.
    pub(super) fn make_task_room(&self, wakes: &mut Wakes) -> Result<(), Refused> {
        while !self.room.take_task() {
            self.evict_oldest(None, Eviction::Count, wakes)?;
        }
        Ok(())
    }

    /// Takes room for `bytes` more; `held` is the shard whose lock the caller has.
    pub(super) fn make_byte_room(
        &self,
        bytes: usize,
        mut held: Option<(usize, &mut Shard)>,
        wakes: &mut Wakes,
    ) -> Result<(), Refused> {
        while !self.room.take_bytes(bytes) {
            if !self.room.could_hold(bytes) {
                return Err(Refused::OutOfBytes);
            }
            let held = held.as_mut().map(|(at, shard)| (*at, &mut **shard));
            self.evict_oldest(held, Eviction::Bytes, wakes)?;
        }
        Ok(())
    }

    /// Evicts the task that ended first.
    fn evict_oldest(
        &self,
        mut held: Option<(usize, &mut Shard)>,
        why: Eviction,
        wakes: &mut Wakes,
    ) -> Result<(), Refused> {
        let mut skipped = 0u32;
        while let Some(at) = self.oldest_shard(skipped) {
            let is_done = match &mut held {
                Some((held_at, shard)) if *held_at == at => self.evict_from(at, shard, why, wakes),
                // Two that hold a shard each must not wait for one another.
                Some(_) => {
                    let shard = self.try_lock(at);
                    shard.is_some_and(|mut shard| self.evict_from(at, &mut shard, why, wakes))
                }
                None => self.evict_from(at, &mut self.lock(at), why, wakes),
            };
            if is_done {
                return Ok(());
            }
            skipped |= 1 << at;
        }
        Err(match why {
            Eviction::Bytes => Refused::OutOfBytes,
            Eviction::Count | Eviction::Ttl => Refused::Full,
        })
    }

    /// The shard with the task that ended first, among those not in the set `skipped`.
    fn oldest_shard(&self, skipped: u32) -> Option<usize> {
        let mut best = (u64::MAX, None);
        for (at, cell) in self.shards.iter().enumerate() {
            let stamp = cell.oldest.load(Relaxed);
            if stamp < best.0 && skipped >> at & 1 == 0 {
                best = (stamp, Some(at));
            }
        }
        best.1
    }

    fn try_lock(&self, at: usize) -> Option<MutexGuard<'_, Shard>> {
        match self.shards[at].shard.try_lock() {
            Ok(shard) => Some(shard),
            Err(TryLockError::Poisoned(poison)) => Some(PoisonError::into_inner(poison)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn evict_from(&self, at: usize, shard: &mut Shard, why: Eviction, wakes: &mut Wakes) -> bool {
        let evicted = shard.evict(&self.room, why, wakes);
        if let Some(Some((agent, task))) = &evicted {
            self.unchoose(self.chosen_hash(*agent, task.id()));
        }
        self.note_oldest(at, shard);
        evicted.is_some()
    }
}
