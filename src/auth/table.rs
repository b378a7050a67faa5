//! A table of a fixed size: a new entry replaces the entry of least worth.
//!
//! Invariant: a key is 128 bits that no client can choose or guess, so the bits of a key select its
//! set. Entries never move and the table never grows; a new entry evicts only from its own set.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The slots of a set: a new entry replaces one entry of its set.
const WAYS: usize = 8;
/// The number of separately locked parts.
const PARTS: usize = 64;

/// The slots of one part.
type Ways<V> = Vec<Option<(u128, V)>>;

/// A table for the requested number of entries, rounded up to a multiple of 512.
pub(super) struct FixedTable<V> {
    parts: Box<[Mutex<Ways<V>>]>,
    sets: usize,
}

impl<V> FixedTable<V> {
    /// An empty table.
    pub fn new(entries_max: usize) -> FixedTable<V> {
        let sets = entries_max.div_ceil(PARTS * WAYS).max(1);
        let part = || Mutex::new((0..sets * WAYS).map(|_| None).collect());
        FixedTable { parts: (0..PARTS).map(|_| part()).collect(), sets }
    }

    /// The result of `look` on the entry of a key.
    pub fn look<R>(&self, key: u128, look: impl FnOnce(&mut V) -> R) -> Option<R> {
        let (part, at) = self.location(key);
        let mut part = lock(part);
        let found = part[at..at + WAYS].iter_mut().flatten().find(|(stored, _)| *stored == key);
        found.map(|(_, value)| look(value))
    }

    /// Whether a key without an entry would find no slot: each slot of its set has an entry for
    /// which `is_fixed` is true.
    pub fn is_full(&self, key: u128, is_fixed: impl Fn(&V) -> bool) -> bool {
        let (part, at) = self.location(key);
        let is_fixed = |way: &Option<(u128, V)>| matches!(way, Some((_, value)) if is_fixed(value));
        lock(part)[at..at + WAYS].iter().all(is_fixed)
    }

    /// Removes the entry of a key.
    pub fn remove(&self, key: u128) {
        let (part, at) = self.location(key);
        for way in &mut lock(part)[at..at + WAYS] {
            if matches!(way, Some((stored, _)) if *stored == key) {
                *way = None;
            }
        }
    }

    /// Passes the entry of a key to `change`. `make` creates a missing entry, which replaces the
    /// entry of least `worth`.
    pub fn change<R>(
        &self,
        key: u128,
        make: impl FnOnce() -> V,
        worth: impl Fn(&V) -> u64,
        change: impl FnOnce(&mut V) -> R,
    ) -> R {
        let (part, at) = self.location(key);
        let mut part = lock(part);
        let set = &mut part[at..at + WAYS];
        let position =
            set.iter().position(|way| matches!(way, Some((stored, _)) if *stored == key));
        let way = position.unwrap_or_else(|| {
            let worths = set.iter().map(|way| way.as_ref().map_or(0, |(_, value)| worth(value)));
            worths.enumerate().min_by_key(|(_, worth)| *worth).map_or(0, |(way, _)| way)
        });
        if position.is_none() {
            set[way] = None;
        }
        change(&mut set[way].get_or_insert_with(|| (key, make())).1)
    }

    /// Sets the entry of a key. The entries of a set together weigh at most `budget` per slot:
    /// entries of least worth are evicted until the new one fits. An entry that can never fit is
    /// dropped.
    pub fn put(
        &self,
        key: u128,
        value: V,
        budget: usize,
        worth: impl Fn(&V) -> u64,
        weight: impl Fn(&V) -> usize,
    ) {
        let (part, at) = self.location(key);
        let mut part = lock(part);
        let set = &mut part[at..at + WAYS];
        for way in &mut *set {
            if matches!(way, Some((stored, _)) if *stored == key) {
                *way = None;
            }
        }
        let own = weight(&value);
        if own > budget * WAYS {
            return;
        }
        loop {
            let held = set.iter().flatten().map(|(_, value)| weight(value)).sum::<usize>();
            let free = set.iter().position(Option::is_none);
            if let Some(free) = free.filter(|_| held + own <= budget * WAYS) {
                set[free] = Some((key, value));
                return;
            }
            let worths = set.iter().map(|way| way.as_ref().map_or(u64::MAX, |(_, v)| worth(v)));
            let Some((least, _)) = worths.enumerate().min_by_key(|(_, worth)| *worth) else {
                return;
            };
            set[least] = None;
        }
    }

    fn location(&self, key: u128) -> (&Mutex<Ways<V>>, usize) {
        let part = (key as usize) % PARTS;
        let set = (key >> 64) as usize % self.sets;
        (&self.parts[part], set * WAYS)
    }
}

/// A panic does not leave an incomplete entry, so a poisoned lock may be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that looks like a hash.
    fn key(number: u64) -> u128 {
        u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    }

    #[test]
    fn new_entry_evicts_entry_of_least_worth() {
        let table = FixedTable::new(512);
        for number in 0..100_000 {
            table.change(key(number), || number, |worth| *worth, |_| ());
            assert_eq!(table.look(key(number), |value| *value), Some(number));
        }
        let retained = (0..100_000).filter(|n| table.look(key(*n), |_| ()).is_some());
        let retained: Vec<u64> = retained.collect();
        assert!(retained.len() <= 512 && retained.len() > 256, "{}", retained.len());
        assert!(retained.iter().all(|number| *number > 90_000));
    }

    #[test]
    fn total_weight_is_bounded_and_oversized_entry_dropped() {
        let table = FixedTable::new(1);
        let put = |n: u64, weight: usize| {
            table.put(key(n), (n, weight), 100, |(n, _)| *n, |(_, weight)| *weight);
        };
        let held = || -> usize {
            (0..10_000).filter_map(|n| table.look(key(n), |(_, weight)| *weight)).sum()
        };
        // PARTS sets of WAYS entries.
        for weight in [1, 100, 101, 400, 799, 800] {
            for n in 0..10_000 {
                put(n, weight);
                assert!(table.look(key(n), |_| ()).is_some());
            }
            assert!(held() <= PARTS * WAYS * 100, "{weight}");
        }
        put(1, 801);
        assert!(table.look(key(1), |_| ()).is_none());
    }

    #[test]
    fn existing_entry_of_a_key_is_updated() {
        let table = FixedTable::new(1);
        for _ in 0..3 {
            table.change(key(1), || 0, |worth| *worth, |value| *value += 1);
        }
        assert_eq!(table.look(key(1), |value| *value), Some(3));
        assert_eq!(table.look(key(2), |value| *value), None);
    }
}
