//! Tests of the displacement of names.

use std::cell::RefCell;

use super::*;
use crate::{fault::Fault, service::Scope};

fn status_at(state: TaskState, at_ms: u64) -> TaskEvent<'static> {
    TaskEvent::Status { state, at_ms, message: None, metadata: None }
}

/// A store for a few owners, and the holders that were displaced.
struct Owners {
    store: Store,
    forgotten: RefCell<Vec<u32>>,
    made: u128,
}

impl Owners {
    fn new(owners_max: usize, workers: usize) -> Owners {
        let limits = Limits { owners_max, task_ttl_ms: 1 << 40, ..Limits::default() };
        let store = Store::for_workers(&limits, 7, workers);
        Owners { store, forgotten: RefCell::default(), made: 0 }
    }

    fn named(name: &str) -> SpaceName<'_> {
        SpaceName {
            scope: AGENT,
            tenant: None,
            owner: Some(name),
            owner_hint: None,
            authenticates_callers: true,
        }
    }

    /// Calls `with` while a call of an owner runs, if the call is admitted.
    fn call<R>(&self, name: &str, ms: u64, with: impl FnOnce(Scope) -> R) -> Result<R, Fault> {
        let forget = |holder: Holder| self.forgotten.borrow_mut().push(holder.number());
        let space = self.store.enter_space(0, Owners::named(name), at(ms), &forget)?;
        Ok(with(space.scope))
    }

    /// Stores a task of an owner; `None`: the owner is new and refused.
    fn make(&mut self, name: &str, ms: u64, state: TaskState) -> Option<TaskKey> {
        self.made += 1;
        let made = self.made;
        self.call(name, ms, |scope| {
            let worker = made as usize % self.store.workers;
            let task = NewTask { scope, worker, context_id: None, ..new(made) };
            let reserved = self.store.reserve(task, at(ms)).ok().unwrap();
            let (key, mut events) = (reserved.key(), EventBuf::default());
            events.push(&status_at(state, ms));
            let (generation, message) = (Generation::V1, text_message(3));
            let made = self.store.commit_new(
                &reserved,
                generation,
                message.view(),
                &events,
                at(ms),
                |_| (),
            );
            made.ok().unwrap();
            key
        })
        .ok()
    }

    fn has(&self, key: Option<TaskKey>) -> bool {
        self.store.read(key.unwrap(), |_| ()).is_some()
    }
}

#[test]
fn new_owner_displaces_the_least_recently_used_owner() {
    for workers in [1, 4] {
        let mut owners = Owners::new(3, workers);
        let first = owners.make("a", 1, TaskState::Completed);
        let b = owners.make("b", 2, TaskState::Completed);
        let c = owners.make("c", 3, TaskState::Failed);
        let last = owners.make("a", 4, TaskState::Completed);
        let d = owners.make("d", 5, TaskState::Completed);
        assert!(!owners.has(b) && [first, last, c, d].iter().all(|key| owners.has(*key)));
        assert_eq!(owners.store.stats().evicted, [0, 0, 0, 1]);
        assert_eq!(owners.forgotten.take(), [2]);
        // The new owner has the number of the old one, but none of its tasks.
        let scope = owners.call("d", 6, |scope| scope).unwrap();
        assert_eq!(scope.owner, OwnerIndex(2));
        assert_eq!(owners.store.names_of(scope).owner.as_deref(), Some("d"));
        // Further new owners do not wait for a search.
        for (round, name) in ["e", "f", "g", "b", "h"].into_iter().enumerate() {
            assert!(owners.make(name, 7 + round as u64, TaskState::Completed).is_some(), "{name}");
        }
        assert!([first, last, c, d].iter().all(|key| !owners.has(*key)));
        assert_eq!(owners.store.stats().tasks, 3);
    }
}

#[test]
fn owner_with_unfinished_tasks_is_not_displaced() {
    use TaskState::{Completed, InputRequired, Working};
    let mut owners = Owners::new(3, 2);
    let busy = [owners.make("a", 1, Working), owners.make("b", 2, InputRequired)];
    let a = owners.make("a", 1, Completed);
    let c = owners.make("c", 3, Completed);
    for (ms, name) in [(4, "d"), (2_000, "e"), (2_001, "f")] {
        assert!(owners.make(name, ms, Completed).is_some(), "{name}");
    }
    assert!(!owners.has(c) && owners.has(a) && busy.into_iter().all(|key| owners.has(key)));
    owners.make("f", 2_002, Working);
    for ms in [2_003, 3_003, 9_000] {
        let refused = owners.call("g", ms, |_| ()).err().unwrap();
        assert_eq!((refused.kind, refused.limit), (FaultKind::Overloaded, Some("owners_max")));
    }
    // After the end of its last task an owner can be displaced like others.
    owners.store.update(busy[0].unwrap(), at(9_001), |edit| {
        edit.apply(&status_at(Completed, 9_001)).unwrap();
    });
    assert!(owners.make("g", 9_002, Working).is_none());
    assert!(owners.make("g", 9_999 + 1, Working).is_some());
    assert!(!owners.has(a) && !owners.has(busy[0]));
}

#[test]
fn owner_with_a_call_in_flight_is_not_displaced() {
    let mut owners = Owners::new(2, 1);
    let (a, b) =
        (owners.make("a", 1, TaskState::Completed), owners.make("b", 2, TaskState::Completed));
    let store = &owners.store;
    let call = store.find_space(0, Owners::named("a"));
    assert!(owners.call("c", 3, |_| ()).is_ok());
    assert!(owners.has(a) && !owners.has(b));
    // The call of the new owner has ended without a task.
    assert!(owners.call("d", 2_000, |_| assert!(owners.has(a))).is_ok());
    drop(call);
    // An owner that was active after the search stays.
    let call = store.find_space(0, Owners::named("a"));
    assert!(owners.call("d", 3_000, |_| owners.call("e", 3_000, |_| ()).is_err()).unwrap());
    drop(call);
    assert!(owners.call("d", 4_000, |_| owners.call("e", 4_000, |_| ()).is_ok()).unwrap());
    assert!(!owners.has(a));
}

#[test]
fn owner_active_after_the_search_is_not_displaced_next() {
    let mut owners = Owners::new(40, 1);
    for number in 0..40u64 {
        owners.make(&number.to_string(), number, TaskState::Completed);
    }
    let zero = owners.make("x", 50, TaskState::Completed);
    assert_eq!(owners.store.stats().evicted[3], 1);
    // The search has collected owners 0 to 15; of these, owner 1 is then active again.
    let one = owners.make("1", 60, TaskState::Completed);
    for (number, name) in ["y", "z"].into_iter().enumerate() {
        assert!(owners.make(name, 70 + number as u64, TaskState::Completed).is_some());
    }
    assert!(owners.has(one) && owners.has(zero));
    assert_eq!(owners.forgotten.take(), [1, 3, 4]);
    // In the end all owners are displaced, without a pause of a second.
    for number in 0..100u64 {
        assert!(owners.make(&format!("n{number}"), 80, TaskState::Completed).is_some(), "{number}");
    }
    assert!(!owners.has(one) && !owners.has(zero));
}

#[test]
fn owner_with_many_tasks_is_displaced_in_portions() {
    let mut owners = Owners::new(1, 1);
    for _ in 0..5_000 {
        owners.make("a", 1, TaskState::Completed);
    }
    assert!(owners.make("b", 2, TaskState::Completed).is_none());
    assert_eq!((owners.store.stats().tasks, owners.forgotten.take()), (904, vec![]));
    assert!(owners.make("b", 2, TaskState::Completed).is_some());
    assert_eq!((owners.store.stats().tasks, owners.forgotten.take()), (1, vec![1]));
}

/// The model of an owner: its tasks, its newest end, and its running tasks.
#[derive(Default)]
struct OwnerModel {
    finished: Vec<TaskKey>,
    end: usize,
    running: Vec<TaskKey>,
}

#[test]
fn random_new_owners_displace_the_oldest_idle_owner() {
    const OWNERS: usize = 4;
    let mut owners = Owners::new(OWNERS, 2);
    let mut model = std::collections::BTreeMap::<String, OwnerModel>::new();
    let (mut random, mut ms, mut refused_ms) = (1u64, 1, None::<u64>);
    let mut refusals = 0;
    for step in 0..5_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ms += 1 + (random >> 33) % 300;
        let name = ((random >> 40) % 9).to_string();
        // Half of the time a running task of the owner ends, if it has one; else a new task begins.
        if let Some(owner) = model.get_mut(&name)
            && (random >> 50).is_multiple_of(2)
            && let Some(key) = owner.running.pop()
        {
            let completed = status_at(TaskState::Completed, ms);
            owners.store.update(key, at(ms), |edit| edit.apply(&completed).unwrap()).unwrap();
            (owner.end, owner.finished) = (step, [&owner.finished[..], &[key]].concat());
            continue;
        }
        let is_existing = model.contains_key(&name);
        let idle = model.iter().filter(|(_, owner)| owner.running.is_empty());
        let oldest = idle.min_by_key(|(_, owner)| owner.end).map(|(name, _)| name.clone());
        let is_finished = (random >> 55).is_multiple_of(2);
        let state = if is_finished { TaskState::Completed } else { TaskState::Working };
        let Some(key) = owners.make(&name, ms, state) else {
            // If the last search found no idle owner, the next search runs after a second.
            let has_looked = refused_ms.is_some_and(|before| ms < before + 1_000);
            assert!(!is_existing && model.len() == OWNERS && (oldest.is_none() || has_looked));
            refused_ms = refused_ms.filter(|_| has_looked).or(Some(ms));
            refusals += 1;
            continue;
        };
        if !is_existing && model.len() == OWNERS {
            let displaced = model.remove(&oldest.unwrap()).unwrap();
            assert!(displaced.finished.iter().all(|key| !owners.has(Some(*key))), "{step}");
        }
        let owner = model.entry(name).or_default();
        match is_finished {
            true => (owner.end, owner.finished) = (step, [&owner.finished[..], &[key]].concat()),
            false => owner.running.push(key),
        }
        for owner in model.values() {
            let mut all = owner.finished.iter().chain(&owner.running);
            assert!(all.all(|key| owners.has(Some(*key))));
        }
    }
    let stats = owners.store.stats();
    assert!(stats.evicted[3] > 100 && refusals > 100, "{stats:?} {refusals}");
}
