//! The private bytes that agents store with their tasks, by task id and by context id.

use super::{Store, id::SlotAt};
use crate::service::Scope;

/// Maximum tasks of a context that are examined, newest first.
const CONTEXT_TASKS_MAX: usize = 32;

impl Store {
    /// The private bytes of a task of a scope; empty if it has none, or does not exist.
    pub fn private_bytes_of(&self, scope: Scope, id: &[u8]) -> Vec<u8> {
        let Some(key) = self.find(scope, id) else { return Vec::new() };
        let Some(shard) = self.lock_key(key) else { return Vec::new() };
        let SlotAt { index, .. } = self.sharding.split(key.position);
        shard.slab.slot(index).map_or_else(Vec::new, |slot| slot.private_bytes().to_vec())
    }

    /// The private bytes of the newest task that has any, among the newest [`CONTEXT_TASKS_MAX`]
    /// tasks of a context.
    pub fn private_bytes_in_context(&self, scope: Scope, context_id: &[u8]) -> Vec<u8> {
        let (at, context) = self.context(scope, context_id);
        let shard = self.lock(at);
        let slots = shard.context(context, context_id).filter_map(|index| shard.slab.slot(index));
        let mut own = slots.take(CONTEXT_TASKS_MAX).filter(|slot| {
            let task = slot.task.get();
            slot.scope == scope && task.is_some_and(|task| task.context_id() == context_id)
        });
        let found = own.find(|slot| !slot.private_bytes().is_empty());
        found.map_or_else(Vec::new, |slot| slot.private_bytes().to_vec())
    }
}
