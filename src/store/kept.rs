//! The private bytes that agents keep with their tasks, found by the ids that clients use.

use super::{Store, id::SlotAt};
use crate::service::Scope;

/// Tasks of a context that are examined, newest first.
const CONTEXT_TASKS_MAX: usize = 32;

impl Store {
    /// The bytes kept with a task of a scope; empty: there are none, or no such task.
    pub fn kept_with(&self, scope: Scope, id: &[u8]) -> Vec<u8> {
        let Some(key) = self.find(scope, id) else { return Vec::new() };
        let Some(shard) = self.lock_key(key) else { return Vec::new() };
        let SlotAt { index, .. } = self.sharding.split(key.position);
        shard.slab.slot(index).map_or_else(Vec::new, |slot| slot.kept().to_vec())
    }

    /// Of a context's newest [`CONTEXT_TASKS_MAX`] tasks, the bytes kept with the newest one that
    /// has any.
    pub fn kept_in_context(&self, scope: Scope, context_id: &[u8]) -> Vec<u8> {
        let (at, context) = self.context(scope, context_id);
        let shard = self.lock(at);
        let slots = shard.context(context, context_id).filter_map(|index| shard.slab.slot(index));
        let mut own = slots.take(CONTEXT_TASKS_MAX).filter(|slot| {
            let task = slot.task.get();
            slot.scope == scope && task.is_some_and(|task| task.context_id() == context_id)
        });
        let kept = own.find(|slot| !slot.kept().is_empty());
        kept.map_or_else(Vec::new, |slot| slot.kept().to_vec())
    }
}
