//! Numbers of the names that peers choose: tenants' and owners'.
//!
//! Law: a name has one number, and a number one name, as long as a call that named it runs, a task
//! of it is stored, or room is taken for one. Numbers that nothing refers to are looked for when
//! all are given out, at most once in [`LOOK_MS`].
//!
//! Each worker knows the names that it used last, and which of them its calls use now: a call
//! writes nothing that other workers write, unless its name is new to its worker.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::sync::{Mutex, MutexGuard};
use crate::service::Now;

/// Milliseconds between two looks for numbers that nothing refers to: one goes through all shards.
const LOOK_MS: u64 = 1_000;

/// Names that a worker knows.
const KNOWN_MAX: usize = 256;

/// The names of one kind.
pub(super) struct SpaceNames {
    /// Numbers at most, from 1.
    most: u32,
    table: Mutex<Table>,
    /// The name of each number, from 1; locked behind the table or a shard, and before nothing.
    by_number: Mutex<Vec<Option<Arc<str>>>>,
    workers: Box<[CachePadded<Mutex<KnownSpaces>>]>,
}

#[derive(Default)]
struct Table {
    numbers: BTreeMap<Arc<str>, u32>,
    /// Numbers that were given out and came back: the first has been free for the longest.
    free: VecDeque<u32>,
    /// The highest number that was given out.
    highest: u32,
    /// Names that no number is given to.
    claimed: BTreeSet<Box<str>>,
    /// Who has made the name of a number, where that is known, and of how many.
    makers: BTreeMap<u32, Arc<str>>,
    made: BTreeMap<Arc<str>, u32>,
    /// When numbers were looked for that nothing refers to.
    looked_ms: Option<u64>,
}

/// What one worker knows.
#[derive(Default)]
struct KnownSpaces {
    numbers: BTreeMap<Box<str>, u32>,
    /// The numbers that its calls use, one as often as it is used.
    used: SmallVec<[u32; 4]>,
}

/// Why a name has no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoNumber {
    /// As many names as there may be have tasks.
    Full,
    /// The name was claimed for something else.
    Claimed,
    /// Who names it has made as many as one may, which are so many.
    ShareTaken(u32),
}

impl Table {
    /// How many names somebody has made that have numbers.
    fn made_by(&self, maker: &str) -> u32 {
        self.made.get(maker).copied().unwrap_or(0)
    }

    fn note_maker(&mut self, number: u32, maker: &str) {
        let known = self.made.get_key_value(maker).map(|(known, _)| Arc::clone(known));
        let maker = known.unwrap_or_else(|| maker.into());
        *self.made.entry(Arc::clone(&maker)).or_default() += 1;
        self.makers.insert(number, maker);
    }

    fn forget_maker(&mut self, number: u32) {
        let Some(maker) = self.makers.remove(&number) else { return };
        if let Some(made) = self.made.get_mut(&maker) {
            *made -= 1;
            if *made == 0 {
                self.made.remove(&maker);
            }
        }
    }
}

/// A number that is not given to another name before this is dropped.
pub(super) struct Number<'n> {
    known: &'n Mutex<KnownSpaces>,
    number: u32,
}

impl Number<'_> {
    pub fn get(&self) -> u32 {
        self.number
    }
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        let mut known = lock(self.known);
        if let Some(at) = known.used.iter().position(|used| *used == self.number) {
            known.used.swap_remove(at);
        }
    }
}

/// A set of numbers.
pub(super) struct NumberSet(Vec<u64>);

impl NumberSet {
    pub fn insert(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }

    fn contains(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

impl SpaceNames {
    /// No names; at most `most` at a time, for so many workers.
    pub fn new(most: usize, workers: usize) -> SpaceNames {
        SpaceNames {
            most: u32::try_from(most).unwrap_or(u32::MAX),
            table: Mutex::default(),
            by_number: Mutex::default(),
            workers: (0..workers.max(1)).map(|_| CachePadded::default()).collect(),
        }
    }

    /// The number of a name, if it has one.
    pub fn find(&self, worker: usize, name: &str) -> Option<Number<'_>> {
        self.known(worker, name).or_else(|| {
            let table = lock(&self.table);
            let number = *table.numbers.get(name)?;
            Some(self.learn(&table, worker, name, number))
        })
    }

    /// The number of a name, which is given one if it has none; `note_tasks` notes the numbers that
    /// tasks have. `maker` says the name; half of the names may be its own.
    pub fn enter(
        &self,
        worker: usize,
        (name, maker): (&str, Option<&str>),
        now: Now,
        note_tasks: impl FnOnce(&mut NumberSet),
    ) -> Result<Number<'_>, NoNumber> {
        if let Some(number) = self.known(worker, name) {
            return Ok(number);
        }
        let mut table = lock(&self.table);
        if table.claimed.contains(name) {
            return Err(NoNumber::Claimed);
        }
        if let Some(number) = table.numbers.get(name).copied() {
            return Ok(self.learn(&table, worker, name, number));
        }
        let share = (self.most / 2).max(1);
        let has_share = |table: &Table| maker.is_some_and(|maker| table.made_by(maker) >= share);
        let is_due = table.looked_ms.is_none_or(|ms| now.mono_ms.saturating_sub(ms) >= LOOK_MS);
        let is_full = table.free.is_empty() && table.highest == self.most;
        if (is_full || has_share(&table)) && is_due {
            table.looked_ms = Some(now.mono_ms);
            self.free_unused(&mut table, note_tasks);
        }
        if has_share(&table) {
            return Err(NoNumber::ShareTaken(share));
        }
        let number = match table.free.pop_front() {
            Some(number) => number,
            None if table.highest < self.most => {
                table.highest += 1;
                table.highest
            }
            None => return Err(NoNumber::Full),
        };
        let known: Arc<str> = name.into();
        table.numbers.insert(Arc::clone(&known), number);
        if let Some(maker) = maker {
            table.note_maker(number, maker);
        }
        let (mut by_number, at) = (lock(&self.by_number), number as usize - 1);
        if at >= by_number.len() {
            by_number.resize(at + 1, None);
        }
        by_number[at] = Some(known);
        drop(by_number);
        Ok(self.learn(&table, worker, name, number))
    }

    /// The name of a number that something refers to.
    pub fn name(&self, number: u32) -> Option<Arc<str>> {
        let at = (number as usize).checked_sub(1)?;
        lock(&self.by_number).get(at)?.clone()
    }

    /// From now on a name is given no number; false: it has one that something refers to.
    pub fn claim(&self, name: &str, note_tasks: impl FnOnce(&mut NumberSet)) -> bool {
        let mut table = lock(&self.table);
        if table.numbers.contains_key(name) {
            self.free_unused(&mut table, note_tasks);
        }
        !table.numbers.contains_key(name) && {
            table.claimed.insert(name.into());
            true
        }
    }

    /// From now on no call that may make a task goes by a name, whatever has its number, which is
    /// said; others go on to find it.
    pub fn close(&self, name: &str) -> Option<u32> {
        let mut table = lock(&self.table);
        table.claimed.insert(name.into());
        // Whoever learns it later asks the table.
        for worker in &self.workers {
            lock(worker).numbers.remove(name);
        }
        table.numbers.get(name).copied()
    }

    /// The number of a name, as long as nobody gives it to another.
    pub fn number(&self, name: &str) -> Option<u32> {
        lock(&self.table).numbers.get(name).copied()
    }

    /// Undoes [`SpaceNames::claim`].
    pub fn unclaim(&self, name: &str) {
        lock(&self.table).claimed.remove(name);
    }

    /// Takes back the numbers that nothing refers to.
    ///
    /// Workers forget what they know first: a call that begins later waits for the table, and one
    /// that has ended before has left its task where `note_tasks` finds it.
    fn free_unused(&self, table: &mut Table, note_tasks: impl FnOnce(&mut NumberSet)) {
        let mut used = NumberSet(vec![0; table.highest as usize / 64 + 1]);
        for worker in &self.workers {
            let mut known = lock(worker);
            known.numbers.clear();
            known.used.iter().for_each(|number| used.insert(*number));
        }
        note_tasks(&mut used);
        let mut numbers = std::mem::take(&mut table.numbers);
        let mut by_number = lock(&self.by_number);
        numbers.retain(|_, number| {
            let is_used = used.contains(*number);
            if !is_used {
                table.free.push_back(*number);
                table.forget_maker(*number);
                by_number[*number as usize - 1] = None;
            }
            is_used
        });
        table.numbers = numbers;
    }

    /// The number of a name that the worker knows.
    fn known(&self, worker: usize, name: &str) -> Option<Number<'_>> {
        let known_mutex = self.of(worker);
        let mut known = lock(known_mutex);
        let number = *known.numbers.get(name)?;
        known.used.push(number);
        Some(Number { known: known_mutex, number })
    }

    /// Tells a worker of a name, unless it was claimed: not by every name is a task made.
    fn learn(&self, table: &Table, worker: usize, name: &str, number: u32) -> Number<'_> {
        let known_mutex = self.of(worker);
        let mut known = lock(known_mutex);
        if known.numbers.len() >= KNOWN_MAX {
            known.numbers.clear();
        }
        if !table.claimed.contains(name) {
            known.numbers.insert(name.into(), number);
        }
        known.used.push(number);
        Number { known: known_mutex, number }
    }

    fn of(&self, worker: usize) -> &Mutex<KnownSpaces> {
        &self.workers[worker % self.workers.len()]
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(mono_ms: u64) -> Now {
        Now { mono_ms, unix_ms: 0 }
    }

    /// The number of a name when these numbers have tasks.
    fn enter(names: &SpaceNames, name: &str, ms: u64, tasks: &[u32]) -> Result<u32, NoNumber> {
        let note = |set: &mut NumberSet| tasks.iter().for_each(|number| set.insert(*number));
        names.enter(0, (name, None), at(ms), note).map(|number| number.get())
    }

    #[test]
    fn a_name_has_one_number_for_all_workers() {
        let names = SpaceNames::new(10, 2);
        assert!(names.find(0, "a").is_none());
        assert_eq!(enter(&names, "a", 0, &[]), Ok(1));
        assert_eq!(enter(&names, "b", 0, &[]), Ok(2));
        for worker in [0, 1, 7] {
            assert_eq!(names.find(worker, "a").unwrap().get(), 1);
            assert_eq!(names.enter(worker, ("b", None), at(0), |_| ()).unwrap().get(), 2);
            assert!(names.find(worker, "c").is_none());
        }
        assert!(names.workers.iter().all(|worker| lock(worker).used.is_empty()));
        let name = |number| names.name(number).map(|name| name.to_string());
        assert_eq!([0, 1, 2, 3].map(name), [None, Some("a".into()), Some("b".into()), None]);
    }

    #[test]
    fn a_number_is_given_again_when_nothing_refers_to_it() {
        let names = SpaceNames::new(3, 1);
        for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(enter(&names, name, 0, &[]), Ok(number));
        }
        // A call uses 1, and a task has 3.
        let call = names.find(0, "a").unwrap();
        assert_eq!(enter(&names, "d", 0, &[3]), Ok(2));
        assert_eq!((names.find(0, "b").is_none(), names.find(0, "c").is_some()), (true, true));
        assert_eq!(names.name(2).as_deref(), Some("d"));
        // All are used, and one look goes through all shards: it is not repeated at once.
        assert_eq!(enter(&names, "b", 999, &[3]), Err(NoNumber::Full));
        assert_eq!(enter(&names, "b", 1_000, &[2, 3]), Err(NoNumber::Full));
        drop(call);
        assert_eq!(enter(&names, "b", 1_999, &[2, 3]), Err(NoNumber::Full));
        assert_eq!(enter(&names, "b", 2_000, &[2, 3]), Ok(1));
        assert_eq!(enter(&names, "d", 2_000, &[]), Ok(2));
    }

    #[test]
    fn nobody_makes_more_than_half_of_the_names() {
        let names = SpaceNames::new(4, 1);
        let enter = |name: &str, maker: &str, ms: u64, tasks: &[u32]| {
            let note = |set: &mut NumberSet| tasks.iter().for_each(|number| set.insert(*number));
            names.enter(0, (name, Some(maker)), at(ms), note).map(|number| number.get())
        };
        assert_eq!((enter("a", "one", 0, &[]), enter("b", "one", 0, &[])), (Ok(1), Ok(2)));
        assert_eq!(enter("c", "one", 0, &[1, 2]), Err(NoNumber::ShareTaken(2)));
        // What has a number is anybody's, and others make names of their own.
        assert_eq!((enter("a", "one", 0, &[]), enter("a", "two", 0, &[])), (Ok(1), Ok(1)));
        assert_eq!((enter("d", "two", 0, &[]), enter("e", "two", 0, &[])), (Ok(3), Ok(4)));
        assert_eq!(enter("f", "three", 999, &[]), Err(NoNumber::Full));
        // A name that nothing refers to any more is nobody's.
        assert_eq!(enter("c", "one", 1_000, &[1, 3, 4]), Ok(2));
        assert_eq!(enter("g", "one", 2_000, &[1, 2, 3, 4]), Err(NoNumber::ShareTaken(2)));
        assert_eq!(enter("g", "three", 3_000, &[2, 4]), Ok(1));
        assert_eq!(enter("h", "one", 3_000, &[]), Ok(3));
        let table = lock(&names.table);
        assert_eq!((table.makers.len(), table.made.len()), (4, 3));
    }

    #[test]
    fn a_claimed_name_is_given_no_number() {
        let names = SpaceNames::new(3, 1);
        assert!(names.claim("agent", |_| ()) && names.claim("agent", |_| ()));
        assert_eq!(enter(&names, "agent", 0, &[]), Err(NoNumber::Claimed));
        names.unclaim("agent");
        assert_eq!(enter(&names, "agent", 0, &[]), Ok(1));
        // It is a live tenant's while a call or a task refers to it.
        assert!(!names.claim("agent", |set| set.insert(1)));
        let call = names.find(0, "agent").unwrap();
        assert!(!names.claim("agent", |_| ()));
        drop(call);
        assert!(names.claim("agent", |_| ()));
    }

    #[test]
    fn a_closed_name_is_found_and_makes_nothing() {
        let names = SpaceNames::new(3, 2);
        assert_eq!((enter(&names, "a", 0, &[]), names.close("b")), (Ok(1), None));
        assert_eq!(names.close("a"), Some(1));
        for worker in [0, 1, 0] {
            assert_eq!(names.find(worker, "a").unwrap().get(), 1);
            let entered =
                names.enter(worker, ("a", None), at(0), |_| ()).map(|number| number.get());
            assert_eq!(entered, Err(NoNumber::Claimed));
        }
        // Its number is given again when nothing refers to it.
        assert!(!names.claim("a", |set| set.insert(1)));
        assert!(names.claim("a", |_| ()) && names.find(0, "a").is_none());
    }

    #[test]
    fn what_a_worker_knows_is_bounded() {
        let names = SpaceNames::new(10_000, 1);
        for number in 0..10_000u32 {
            assert_eq!(enter(&names, &number.to_string(), 0, &[]), Ok(number + 1));
            assert!(lock(names.of(0)).numbers.len() <= KNOWN_MAX);
        }
        assert_eq!(names.find(0, "77").unwrap().get(), 78);
    }
}
