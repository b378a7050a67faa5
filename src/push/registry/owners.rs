//! The owners of webhooks, by name.
//!
//! Invariants: each owner has a number in this registry, which is not reused while a webhook, a
//! dead letter or an origin is charged to it. The owner numbers of the store are not suitable: a
//! webhook and its dead letter exist longer than their task, and the store may then reassign the
//! number.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::RandomState;

use super::{NewWebhook, PushState, Webhooks};
use crate::shares::Holder;

/// Bytes of a name in addition to its text: an allocation, and an entry in each of two maps.
const NAME_BYTES: usize = 150;

/// Number of names that may be added before unused ones are swept.
const SPARE: usize = 64;

/// The names and numbers, see the module.
#[derive(Default)]
pub(super) struct PushOwners {
    numbers: HashMap<Arc<str>, u32, RandomState>,
    names: HashMap<u32, Arc<str>, RandomState>,
    bytes: usize,
    /// The last assigned number.
    last: u32,
    /// The number of names in use at the last sweep.
    used: usize,
}

impl PushOwners {
    /// Bytes of all names.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn add(&mut self, name: &str) -> u32 {
        // Numbers wrap around after four billion names; 0 means anonymous callers.
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.names.contains_key(&self.last) {
                break;
            }
        }
        let shared_name: Arc<str> = name.into();
        self.bytes += shared_name.len() + NAME_BYTES;
        self.names.insert(self.last, Arc::clone(&shared_name));
        self.numbers.insert(shared_name, self.last);
        self.last
    }

    fn retain(&mut self, is_used: impl Fn(u32) -> bool) {
        self.names.retain(|number, _| is_used(*number));
        self.numbers.retain(|_, number| self.names.contains_key(number));
        self.bytes = self.numbers.keys().map(|name| name.len() + NAME_BYTES).sum();
        self.used = self.numbers.len();
    }
}

impl Webhooks {
    /// The name of an owner, by its number in this registry.
    pub fn owner_name(&self, owner: u32) -> Option<Arc<str>> {
        self.lock().owners.names.get(&owner).cloned()
    }
}

impl PushState {
    /// A configuration, charged to its owner's number in this registry.
    pub(super) fn charged<'a>(&mut self, new: &NewWebhook<'a>) -> NewWebhook<'a> {
        let Some(name) = new.owner else { return *new };
        let number = match self.owners.numbers.get(name).copied() {
            Some(number) => number,
            None => {
                if self.owners.numbers.len() >= 2 * self.owners.used + SPARE {
                    self.forget_owners(Holder::default());
                }
                self.owners.add(name)
            }
        };
        NewWebhook { holder: Holder::owner(number), ..*new }
    }

    /// Removes unused names, except that of `except`; false: none was removed.
    pub(super) fn forget_owners(&mut self, except: Holder) -> bool {
        let PushState { owners, counted, dead, schedule, .. } = self;
        let before = owners.bytes;
        owners.retain(|number| {
            let holder = Holder::owner(number);
            holder == except
                || counted.by_holder.contains_key(&holder)
                || dead.has_any_of(holder)
                || schedule.origin_bytes_of(holder) > 0
        });
        owners.bytes < before
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::push::registry::tests::{new_webhook, webhooks};

    #[test]
    fn owner_number_is_stable_while_webhooks_or_origins_use_it() {
        let webhooks = webhooks();
        let set = |task, owner: &str| {
            new_webhook(task, "https://h.example/", |new| {
                webhooks.set(&NewWebhook { owner: Some(owner), ..*new }).unwrap().holder().number()
            })
        };
        // The store's number 1 does not identify a webhook owner.
        let one = set(1, "one");
        assert_eq!((set(2, "two"), set(3, "one")), (one + 1, one));
        assert_eq!(webhooks.owner_name(one).as_deref(), Some("one"));
        webhooks.delete_all(2);
        for number in 0..1_000 {
            let owner = number.to_string();
            set(4, &owner);
            webhooks.delete_all(4);
        }
        let state = webhooks.lock();
        // The origin is charged to the first owner.
        assert_eq!(state.owners.numbers["one"], one);
        assert!(!state.owners.numbers.contains_key("two"));
        assert!(state.owners.numbers.len() <= 2 + SPARE);
        assert_eq!(state.owners.names.len(), state.owners.numbers.len());
        drop(state);
        webhooks.delete_all(1);
        webhooks.delete_all(3);
        let mut state = webhooks.lock();
        assert!(state.forget_owners(Holder::default()) && state.bytes() == 0);
    }

    #[test]
    fn owner_name_entries_fit_their_counted_bytes() {
        // Maps are partly empty; an allocation has a header and two counts.
        let entries = size_of::<(Arc<str>, u32)>() + size_of::<(u32, Arc<str>)>() + 2;
        assert!(entries * 2 + 48 <= NAME_BYTES, "{entries}");
    }
}
