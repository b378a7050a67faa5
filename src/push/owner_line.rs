//! A queue in which owners take turns; the items of each owner are served first in, first out.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

/// Waiting items by owner.
pub(super) struct OwnerLine<T> {
    /// The owners of waiting items, in the order of their turns.
    owners: VecDeque<u32>,
    by_owner: HashMap<u32, VecDeque<T>, RandomState>,
    len: usize,
}

impl<T> Default for OwnerLine<T> {
    fn default() -> OwnerLine<T> {
        let (owners, by_owner, len) = Default::default();
        OwnerLine { owners, by_owner, len }
    }
}

impl<T> OwnerLine<T> {
    /// The number of waiting items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends an item to the items of its owner.
    pub fn push_back(&mut self, owner: u32, item: T) {
        let own = self.by_owner.entry(owner).or_default();
        if own.is_empty() {
            self.owners.push_back(owner);
        }
        own.push_back(item);
        self.len += 1;
    }

    /// Puts an item and its owner before all others.
    pub fn push_front(&mut self, owner: u32, item: T) {
        self.owners.retain(|other| *other != owner);
        self.owners.push_front(owner);
        self.by_owner.entry(owner).or_default().push_front(item);
        self.len += 1;
    }

    /// Removes and returns the next item.
    pub fn pop_front(&mut self) -> Option<(u32, T)> {
        let owner = self.owners.pop_front()?;
        let own = self.by_owner.get_mut(&owner)?;
        let item = own.pop_front()?;
        match own.is_empty() {
            true => drop(self.by_owner.remove(&owner)),
            false => self.owners.push_back(owner),
        }
        self.len -= 1;
        Some((owner, item))
    }

    /// Removes items for which `waits` returns false, and shrinks the queues.
    pub fn retain(&mut self, waits: impl Fn(u32, &T) -> bool) {
        self.by_owner.retain(|owner, own| {
            own.retain(|item| waits(*owner, item));
            !own.is_empty()
        });
        self.owners.retain(|owner| self.by_owner.contains_key(owner));
        self.owners.shrink_to_fit();
        self.len = self.by_owner.values().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_queue_is_round_robin_and_push_front_keeps_order() {
        let mut line = OwnerLine::default();
        for (owner, item) in [(7, 1), (7, 2), (7, 3), (8, 4)] {
            line.push_back(owner, item);
        }
        let (owner, first) = line.pop_front().unwrap_or_default();
        assert_eq!((owner, first, line.len()), (7, 1, 3));
        line.push_front(owner, first);
        line.retain(|_, item| *item != 2);
        let all: Vec<_> = std::iter::from_fn(|| line.pop_front()).collect();
        assert_eq!(all, [(7, 1), (8, 4), (7, 3)]);
        assert!(line.len() == 0 && line.owners.is_empty() && line.by_owner.is_empty());
    }
}
