//! Numbers for the names that peers choose: names of tenants and of owners.
//!
//! Invariant: a name keeps its number, which no other name has, while a call with the name runs, a
//! task or a reservation of the name exists, or an agent runs a call of that owner. When all
//! numbers are in use, the store searches for unreferenced ones, at most once in [`LOOK_MS`]. If
//! the search finds none, an idle name loses its number, if its kind allows that (`displace.rs`).
//! Another search follows at once if the last one found many idle names and all of them are used
//! up.
//!
//! Each worker caches the names that it used last, and the numbers that its calls use now. So a
//! call writes shared memory only if its name is new to its worker. Code that caches a name can
//! store a [`NumberHint`] with it, which saves the lookup. A hint is valid for one generation; a
//! generation ends when numbers are freed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::{
    displace::{IdleNumbers, NumberUses, Release},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
};
use crate::service::{Now, NumberHint};

/// Milliseconds between two searches for unreferenced numbers: each search visits all shards.
const LOOK_MS: u64 = 1_000;

/// Names that a worker caches.
const CACHED_MAX: usize = 256;

/// The names of one kind.
pub(super) struct SpaceNames {
    /// Maximum number of numbers, which start at 1.
    most: u32,
    table: Mutex<Table>,
    /// The names by number, from 1. This lock may be acquired under that of the table or of a
    /// shard; no other lock is acquired under it.
    by_number: Mutex<Vec<Option<Arc<str>>>>,
    /// The generation in which hints are valid; no two cores use the same one.
    generation: AtomicU32,
    workers: Box<[CachePadded<WorkerNames>]>,
}

#[derive(Default)]
struct Table {
    numbers: BTreeMap<Arc<str>, u32>,
    /// Freed numbers, the longest free one first.
    free: VecDeque<u32>,
    /// The highest number in use so far.
    highest: u32,
    /// Names that get no new number.
    claimed: BTreeSet<Box<str>>,
    /// The creator of each number's name, if known.
    makers: BTreeMap<u32, Arc<str>>,
    /// How many of the current names each caller has created.
    made: BTreeMap<Arc<str>, u32>,
    /// The time of the last search for unreferenced numbers.
    looked_ms: Option<u64>,
    /// Idle numbers found by that search.
    idle: IdleNumbers,
}

/// The names that one worker caches.
#[derive(Default)]
struct WorkerNames {
    cache: Mutex<NameCache>,
    /// The number that one of the worker's calls uses by a hint; 0: none.
    held: AtomicU32,
}

/// The cache of one worker.
#[derive(Default)]
struct NameCache {
    numbers: BTreeMap<Box<str>, u32>,
    /// The numbers that the worker's calls use, once for each use.
    used: SmallVec<[u32; 4]>,
}

/// Why a name has no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoNumber {
    /// The maximum of names is in use.
    Full,
    /// The name was claimed for another purpose.
    Claimed,
    /// Its creator has reached this maximum of names.
    ShareExhausted(u32),
}

impl Table {
    fn is_look_due(&self, now: Now) -> bool {
        let has_waited = |ms| now.mono_ms.saturating_sub(ms) >= LOOK_MS;
        self.looked_ms.is_none_or(has_waited) || self.idle.are_spent()
    }

    /// How many of the current names a caller has created.
    fn made_by(&self, maker: &str) -> u32 {
        self.made.get(maker).copied().unwrap_or(0)
    }

    fn note_maker(&mut self, number: u32, maker: &str) {
        let existing = self.made.get_key_value(maker).map(|(existing, _)| Arc::clone(existing));
        let maker = existing.unwrap_or_else(|| maker.into());
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

/// A name in a call.
#[derive(Clone, Copy)]
pub(super) struct RequestedName<'a> {
    pub name: &'a str,
    /// The caller that creates the name, if known: it may create at most half of the names.
    pub maker: Option<&'a str>,
    /// The hint that is cached with the name.
    pub hint: Option<&'a NumberHint>,
}

impl<'a> RequestedName<'a> {
    /// A name without a creator and a hint.
    pub fn plain(name: &'a str) -> RequestedName<'a> {
        RequestedName { name, maker: None, hint: None }
    }
}

/// A number that is not reassigned while this value exists.
pub(super) struct Number<'n> {
    worker: &'n WorkerNames,
    number: u32,
    is_held: bool,
}

impl Drop for Number<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.is_held {
            true => self.worker.held.store(0, Ordering::Release),
            false => self.forget(),
        }
    }
}

impl Number<'_> {
    pub fn get(&self) -> u32 {
        self.number
    }

    fn forget(&self) {
        let mut cache = lock(&self.worker.cache);
        if let Some(at) = cache.used.iter().position(|used| *used == self.number) {
            cache.used.swap_remove(at);
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

    pub fn contains(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

impl SpaceNames {
    /// An empty table for at most `most` names at a time, used by `workers` workers.
    pub fn new(most: usize, workers: usize) -> SpaceNames {
        SpaceNames {
            most: u32::try_from(most).unwrap_or(u32::MAX),
            table: Mutex::default(),
            by_number: Mutex::default(),
            generation: AtomicU32::new(NumberHint::next_generation()),
            workers: (0..workers.max(1)).map(|_| CachePadded::default()).collect(),
        }
    }

    /// The maximum number of numbers.
    pub fn most(&self) -> usize {
        self.most as usize
    }

    /// The number of a name, if it has one.
    pub fn find(&self, worker: usize, named: RequestedName<'_>) -> Option<Number<'_>> {
        self.cached(worker, named).or_else(|| {
            let table = lock(&self.table);
            let number = *table.numbers.get(named.name)?;
            Some(self.learn(&table, worker, named.name, number))
        })
    }

    /// The number in a hint, if it is still valid.
    ///
    /// A search that frees numbers starts a generation and then reads the held numbers. So either
    /// the search sees this number, or this call sees that the hint is old.
    #[inline]
    pub fn recall(&self, worker: usize, hint: Option<&NumberHint>) -> Option<Number<'_>> {
        let (generation, number) = hint?.get()?;
        let worker = self.of(worker);
        // Another call of the worker may hold a number: an outer call, or a call on another thread.
        worker.held.compare_exchange(0, number, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        let held = Number { worker, number, is_held: true };
        (self.generation.load(Ordering::SeqCst) == generation).then_some(held)
    }

    /// The number of a name; a name without a number gets one. `uses` finds the other references to
    /// numbers, and the names that may be displaced.
    pub fn enter(
        &self,
        worker: usize,
        named: RequestedName<'_>,
        now: Now,
        mut uses: impl NumberUses,
    ) -> Result<Number<'_>, NoNumber> {
        if let Some(number) = self.cached(worker, named) {
            return Ok(number);
        }
        let RequestedName { name, maker, .. } = named;
        let mut table = lock(&self.table);
        if table.claimed.contains(name) {
            return Err(NoNumber::Claimed);
        }
        if let Some(number) = table.numbers.get(name).copied() {
            return Ok(self.learn(&table, worker, name, number));
        }
        let share = (self.most / 2).max(1);
        let has_share = |table: &Table| maker.is_some_and(|maker| table.made_by(maker) >= share);
        let is_full = |table: &Table| table.free.is_empty() && table.highest == self.most;
        // All idle numbers of the last search may be in use again; then one more search runs.
        for _ in 0..2 {
            if (is_full(&table) || has_share(&table)) && table.is_look_due(now) {
                self.look(&mut table, now, &mut uses);
            }
            if is_full(&table) {
                self.displace(&mut table, &mut uses);
            }
            if !table.idle.are_spent() {
                break;
            }
        }
        if has_share(&table) {
            return Err(NoNumber::ShareExhausted(share));
        }
        let number = match table.free.pop_front() {
            Some(number) => number,
            None if table.highest < self.most => {
                table.highest += 1;
                table.highest
            }
            None => return Err(NoNumber::Full),
        };
        let shared_name: Arc<str> = name.into();
        table.numbers.insert(Arc::clone(&shared_name), number);
        if let Some(maker) = maker {
            table.note_maker(number, maker);
        }
        let (mut by_number, at) = (lock(&self.by_number), number as usize - 1);
        if at >= by_number.len() {
            by_number.resize(at + 1, None);
        }
        by_number[at] = Some(shared_name);
        drop(by_number);
        Ok(self.learn(&table, worker, name, number))
    }

    /// The name of a referenced number.
    pub fn name(&self, number: u32) -> Option<Arc<str>> {
        let at = (number as usize).checked_sub(1)?;
        lock(&self.by_number).get(at)?.clone()
    }

    /// Reserves a name, so that it gets no number; false: the name has a referenced number.
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

    /// Closes a name to calls that may create a task; other calls still find it. Returns the number
    /// of the name, if it has one.
    pub fn close(&self, name: &str) -> Option<u32> {
        let mut table = lock(&self.table);
        table.claimed.insert(name.into());
        // No worker caches the name again, since the table has the claim.
        for worker in &self.workers {
            lock(&worker.cache).numbers.remove(name);
        }
        self.generation.store(NumberHint::next_generation(), Ordering::SeqCst);
        table.numbers.get(name).copied()
    }

    /// The number of a name, until it is reassigned.
    pub fn number(&self, name: &str) -> Option<u32> {
        lock(&self.table).numbers.get(name).copied()
    }

    /// The numbers of the wanted names.
    #[cfg(feature = "net")]
    pub fn numbers_of(&self, is_wanted: impl Fn(&str) -> bool) -> BTreeSet<u32> {
        let table = lock(&self.table);
        let wanted = table.numbers.iter().filter(|(name, _)| is_wanted(name));
        wanted.map(|(_, number)| *number).collect()
    }

    /// Undoes [`SpaceNames::claim`].
    pub fn unclaim(&self, name: &str) {
        lock(&self.table).claimed.remove(name);
    }

    /// Frees unreferenced numbers, and collects those that may be displaced.
    #[cold]
    fn look(&self, table: &mut Table, now: Now, uses: &mut impl NumberUses) {
        table.looked_ms = Some(now.mono_ms);
        let mut idle = Default::default();
        self.free_unused(table, |used| idle = uses.note(used));
        table.idle = IdleNumbers::new(idle, self.most);
    }

    /// Frees the number of the least recently used idle name.
    #[cold]
    fn displace(&self, table: &mut Table, uses: &mut impl NumberUses) {
        while let Some(idle) = table.idle.queue.pop_front() {
            let number = idle.number;
            let Some(name) = self.name(number).filter(|name| !self.is_in_call(name, number)) else {
                continue;
            };
            match uses.release(idle) {
                Release::Done => {
                    table.numbers.remove(&name);
                    table.free.push_back(number);
                    table.forget_maker(number);
                    lock(&self.by_number)[number as usize - 1] = None;
                    return;
                }
                Release::Partial => return table.idle.queue.push_front(idle),
                Release::InUse => {}
            }
        }
    }

    /// Whether a call uses the number of a name. If not, no call can use it before the caller
    /// unlocks the table.
    fn is_in_call(&self, name: &str, number: u32) -> bool {
        let mut is_used = false;
        for worker in &self.workers {
            let mut cache = lock(&worker.cache);
            cache.numbers.remove(name);
            is_used |= cache.used.contains(&number);
        }
        self.generation.store(NumberHint::next_generation(), Ordering::SeqCst);
        let mut held = self.workers.iter().map(|worker| worker.held.load(Ordering::SeqCst));
        is_used || held.any(|held| held == number)
    }

    /// Frees unreferenced numbers.
    ///
    /// The caches of workers are cleared first: a later call waits for the table, and the task of
    /// an earlier call is stored where `note_tasks` finds it.
    fn free_unused(&self, table: &mut Table, note_tasks: impl FnOnce(&mut NumberSet)) {
        let mut used = NumberSet(vec![0; table.highest as usize / 64 + 1]);
        for worker in &self.workers {
            let mut cache = lock(&worker.cache);
            cache.numbers.clear();
            cache.used.iter().for_each(|number| used.insert(*number));
        }
        // New hints are set only under the lock of the table, which is held here.
        self.generation.store(NumberHint::next_generation(), Ordering::SeqCst);
        let held = self.workers.iter().map(|worker| worker.held.load(Ordering::SeqCst));
        held.filter(|number| *number != 0).for_each(|number| used.insert(number));
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

    /// The number of a name in the worker's cache; also stores the number in the hint.
    fn cached(&self, worker: usize, named: RequestedName<'_>) -> Option<Number<'_>> {
        let worker = self.of(worker);
        let mut cache = lock(&worker.cache);
        let number = *cache.numbers.get(named.name)?;
        cache.used.push(number);
        if let Some(hint) = named.hint {
            // No generation can start before the lock is released.
            hint.set(self.generation.load(Ordering::SeqCst), number);
        }
        Some(Number { worker, number, is_held: false })
    }

    /// Adds a name to a worker's cache, unless the name is claimed: a claimed name must create no
    /// task.
    fn learn(&self, table: &Table, worker: usize, name: &str, number: u32) -> Number<'_> {
        let worker = self.of(worker);
        let mut cache = lock(&worker.cache);
        if cache.numbers.len() >= CACHED_MAX {
            cache.numbers.clear();
        }
        if !table.claimed.contains(name) {
            cache.numbers.insert(name.into(), number);
        }
        cache.used.push(number);
        Number { worker, number, is_held: false }
    }

    fn of(&self, worker: usize) -> &WorkerNames {
        // A worker beyond the declared number uses the first cache: a remainder costs a division.
        self.workers.get(worker).unwrap_or(&self.workers[0])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::displace::NeverDisplaced;

    fn at(mono_ms: u64) -> Now {
        Now { mono_ms, unix_ms: 0 }
    }

    /// No number has tasks.
    fn none() -> impl NumberUses {
        NeverDisplaced(|_: &mut NumberSet| ())
    }

    /// The number of a name when these numbers have tasks.
    fn enter(names: &SpaceNames, name: &str, ms: u64, tasks: &[u32]) -> Result<u32, NoNumber> {
        let note = |set: &mut NumberSet| tasks.iter().for_each(|number| set.insert(*number));
        let uses = NeverDisplaced(note);
        names.enter(0, RequestedName::plain(name), at(ms), uses).map(|number| number.get())
    }

    #[test]
    fn a_name_has_one_number_for_all_workers() {
        let names = SpaceNames::new(10, 2);
        assert!(names.find(0, RequestedName::plain("a")).is_none());
        assert_eq!(enter(&names, "a", 0, &[]), Ok(1));
        assert_eq!(enter(&names, "b", 0, &[]), Ok(2));
        for worker in [0, 1, 7] {
            assert_eq!(names.find(worker, RequestedName::plain("a")).unwrap().get(), 1);
            assert_eq!(
                names.enter(worker, RequestedName::plain("b"), at(0), none()).unwrap().get(),
                2
            );
            assert!(names.find(worker, RequestedName::plain("c")).is_none());
        }
        assert!(names.workers.iter().all(|worker| lock(&worker.cache).used.is_empty()));
        let name = |number| names.name(number).map(|name| name.to_string());
        assert_eq!([0, 1, 2, 3].map(name), [None, Some("a".into()), Some("b".into()), None]);
    }

    #[test]
    fn unreferenced_number_is_reused() {
        let names = SpaceNames::new(3, 1);
        for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(enter(&names, name, 0, &[]), Ok(number));
        }
        // A call uses 1, and a task has 3.
        let call = names.find(0, RequestedName::plain("a")).unwrap();
        assert_eq!(enter(&names, "d", 0, &[3]), Ok(2));
        assert_eq!(
            (
                names.find(0, RequestedName::plain("b")).is_none(),
                names.find(0, RequestedName::plain("c")).is_some()
            ),
            (true, true)
        );
        assert_eq!(names.name(2).as_deref(), Some("d"));
        // All numbers are in use. A search visits all shards, so it is not repeated at once.
        assert_eq!(enter(&names, "b", 999, &[3]), Err(NoNumber::Full));
        assert_eq!(enter(&names, "b", 1_000, &[2, 3]), Err(NoNumber::Full));
        drop(call);
        assert_eq!(enter(&names, "b", 1_999, &[2, 3]), Err(NoNumber::Full));
        assert_eq!(enter(&names, "b", 2_000, &[2, 3]), Ok(1));
        assert_eq!(enter(&names, "d", 2_000, &[]), Ok(2));
    }

    #[test]
    fn number_hint_saves_the_lookup_until_numbers_are_freed() {
        let names = SpaceNames::new(2, 2);
        let (one, other) = (NumberHint::default(), NumberHint::default());
        let hinted = |name, hint| RequestedName { hint: Some(hint), ..RequestedName::plain(name) };
        let find = |worker, name, hint| {
            let recalled = names.recall(worker, Some(hint));
            recalled.or_else(|| names.find(worker, hinted(name, hint)))
        };
        let get = |name, hint| find(0, name, hint).map(|number| number.get());
        let is_held = || names.workers[0].held.load(Ordering::SeqCst) != 0;
        assert_eq!((enter(&names, "a", 0, &[]), enter(&names, "b", 0, &[])), (Ok(1), Ok(2)));
        assert_eq!((get("a", &one), get("b", &other)), (Some(1), Some(2)));
        // With a hint the name is ignored, no lock is taken and no list is written.
        let call = find(0, "a", &one).unwrap();
        assert!(call.is_held && is_held() && lock(&names.workers[0].cache).used.is_empty());
        // A nested call, or a call on another thread, looks the name up; a call of another worker
        // uses the hint.
        let inner = find(0, "b", &other).unwrap();
        assert!(!inner.is_held && find(1, "b", &other).unwrap().is_held);
        drop(inner);
        // The held number is not freed.
        assert_eq!(enter(&names, "c", 1_000, &[]), Ok(2));
        drop(call);
        assert!(!is_held());
        // The hint for the freed number belongs to an earlier generation.
        assert_eq!((get("b", &other), get("a", &one)), (None, Some(1)));
        assert_eq!(enter(&names, "d", 2_000, &[2]), Ok(1));
        assert_eq!((get("a", &one), get("d", &other)), (None, Some(1)));
        // Another core has other generations.
        let theirs = SpaceNames::new(2, 2);
        assert!(theirs.recall(0, Some(&other)).is_none());
    }

    #[test]
    fn caller_creates_at_most_half_of_the_names() {
        let names = SpaceNames::new(4, 1);
        let enter = |name: &str, maker: &str, ms: u64, tasks: &[u32]| {
            let note = |set: &mut NumberSet| tasks.iter().for_each(|number| set.insert(*number));
            names
                .enter(
                    0,
                    RequestedName { maker: Some(maker), ..RequestedName::plain(name) },
                    at(ms),
                    NeverDisplaced(note),
                )
                .map(|number| number.get())
        };
        assert_eq!((enter("a", "one", 0, &[]), enter("b", "one", 0, &[])), (Ok(1), Ok(2)));
        assert_eq!(enter("c", "one", 0, &[1, 2]), Err(NoNumber::ShareExhausted(2)));
        // Any caller may use an existing name; other callers create names of their own.
        assert_eq!((enter("a", "one", 0, &[]), enter("a", "two", 0, &[])), (Ok(1), Ok(1)));
        assert_eq!((enter("d", "two", 0, &[]), enter("e", "two", 0, &[])), (Ok(3), Ok(4)));
        assert_eq!(enter("f", "three", 999, &[]), Err(NoNumber::Full));
        // The number of an unreferenced name is freed.
        assert_eq!(enter("c", "one", 1_000, &[1, 3, 4]), Ok(2));
        assert_eq!(enter("g", "one", 2_000, &[1, 2, 3, 4]), Err(NoNumber::ShareExhausted(2)));
        assert_eq!(enter("g", "three", 3_000, &[2, 4]), Ok(1));
        assert_eq!(enter("h", "one", 3_000, &[]), Ok(3));
        let table = lock(&names.table);
        assert_eq!((table.makers.len(), table.made.len()), (4, 3));
    }

    #[test]
    fn claimed_name_gets_no_number() {
        let names = SpaceNames::new(3, 1);
        assert!(names.claim("agent", |_| ()) && names.claim("agent", |_| ()));
        assert_eq!(enter(&names, "agent", 0, &[]), Err(NoNumber::Claimed));
        names.unclaim("agent");
        assert_eq!(enter(&names, "agent", 0, &[]), Ok(1));
        // The name cannot be claimed while a call or a task refers to it.
        assert!(!names.claim("agent", |set| set.insert(1)));
        let call = names.find(0, RequestedName::plain("agent")).unwrap();
        assert!(!names.claim("agent", |_| ()));
        drop(call);
        assert!(names.claim("agent", |_| ()));
    }

    #[test]
    fn closed_name_is_found_but_cannot_be_entered() {
        let names = SpaceNames::new(3, 2);
        assert_eq!((enter(&names, "a", 0, &[]), names.close("b")), (Ok(1), None));
        assert_eq!(names.close("a"), Some(1));
        for worker in [0, 1, 0] {
            assert_eq!(names.find(worker, RequestedName::plain("a")).unwrap().get(), 1);
            let entered = names
                .enter(worker, RequestedName::plain("a"), at(0), none())
                .map(|number| number.get());
            assert_eq!(entered, Err(NoNumber::Claimed));
        }
        // Its number is reassigned when nothing refers to it.
        assert!(!names.claim("a", |set| set.insert(1)));
        assert!(names.claim("a", |_| ()) && names.find(0, RequestedName::plain("a")).is_none());
    }

    #[test]
    fn worker_name_cache_is_bounded() {
        let names = SpaceNames::new(10_000, 1);
        for number in 0..10_000u32 {
            assert_eq!(enter(&names, &number.to_string(), 0, &[]), Ok(number + 1));
            assert!(lock(&names.of(0).cache).numbers.len() <= CACHED_MAX);
        }
        assert_eq!(names.find(0, RequestedName::plain("77")).unwrap().get(), 78);
    }
}
