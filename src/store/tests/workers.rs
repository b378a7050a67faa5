//! Tests of several workers: which tasks are evicted, and which worker gets the room.

use super::*;

/// Stores a completed task of a worker in a new context.
fn make_for(store: &Store, worker: usize, bits: u128, now: Now) -> Result<TaskKey, Refused> {
    make_as(store, worker, bits, TaskState::Completed, now)
}

/// Stores a worker's task in a new context.
fn make_as(
    store: &Store,
    worker: usize,
    bits: u128,
    state: TaskState,
    now: Now,
) -> Result<TaskKey, Refused> {
    let reserved = store.reserve(NewTask { context_id: None, worker, ..new(bits) }, now)?;
    let (key, mut events) = (reserved.key(), EventBuf::default());
    let at_ms = now.unix_ms;
    events.push(&TaskEvent::Status { state, at_ms, message: None, metadata: None });
    store.commit_new(&reserved, Generation::V1, text_message(9).view(), &events, now, |_| key)
}

fn stored(store: &Store, keys: &[TaskKey]) -> usize {
    keys.iter().filter(|key| state(store, **key).is_some()).count()
}

#[test]
fn worker_evicts_own_tasks_unless_another_workers_are_older() {
    let store = Store::for_workers(&Limits { tasks_max: 200, ..Limits::default() }, 7, 2);
    let fill = |worker, bits: u128, ms| -> Vec<TaskKey> {
        (bits..bits + 100).map(|bits| make_for(&store, worker, bits, at(ms)).unwrap()).collect()
    };
    let [theirs, ours] = [(1, 1_000), (0, 1_900)].map(|(worker, ms)| fill(worker, 0, ms));
    let next = fill(0, 200, 2_100);
    assert_eq!([&theirs, &ours, &next].map(|keys| stored(&store, keys)), [100, 0, 100]);
    // This worker's tasks are a second younger now, so those of the other worker are evicted first.
    let last = fill(0, 300, 2_500);
    assert_eq!([&theirs, &next, &last].map(|keys| stored(&store, keys)), [0, 100, 100]);
    assert_eq!(store.stats().evicted, [0, 200, 0, 0]);
}

/// Number of shards with lists for scopes with names.
fn shards_with_names(store: &Store) -> usize {
    let has_some = |at: &usize| store.lock(*at).scopes.with_names().next().is_some();
    (0..store.sharding.shards()).filter(has_some).count()
}

#[test]
fn a_tenant_has_tasks_in_one_shard_of_each_worker() {
    let store = Store::for_workers(&Limits::default(), 7, 4);
    let scope = Scope { tenant: TenantIndex(3), ..AGENT };
    let mut contexts: Vec<Vec<u8>> = (0..500u32).map(|at| format!("c-{at}").into()).collect();
    // Ids of other workers' contexts, and forged ones.
    for bits in 0..500 {
        let key = make_for(&store, bits as usize, bits, at(bits as u64 * 10)).unwrap();
        contexts.push(store.read(key, |task| task.context_id().to_vec()).unwrap());
        contexts.push(format!("{:036x}", bits * 0x1234_5678_9abc_def1).into());
    }
    let none = EventBuf::default();
    let make = |context_id: Option<&[u8]>, worker: usize| {
        let bits = 10_000 + worker as u128 * 3;
        let new = NewTask { scope, context_id, worker, ..new(bits) };
        let reserved = store.reserve(new, at(worker as u64 * 10)).unwrap();
        let message = text_message(9);
        let read = |task: StoredTask<'_>| (task.id().to_vec(), task.context_id().to_vec());
        store.commit_new(&reserved, Generation::V1, message.view(), &none, NOW, read).unwrap()
    };
    let mut made: Vec<_> = contexts.iter().enumerate().map(|(at, id)| make(Some(id), at)).collect();
    made.extend((0..500).map(|worker| make(None, worker)));
    assert_eq!(shards_with_names(&store), 4);
    // All tasks are found: by id, in their contexts, and in the list.
    for (id, context_id) in &made {
        assert!(store.find(scope, id).is_some());
        let context_id = Some(RawText::known(context_id));
        let list = List { context_id, ..List::default() };
        assert!(store.list(scope, &list, 0, &mut |_| ()).unwrap().total > 0);
    }
    let all = store.list(scope, &List::default(), 0, &mut |_| ()).unwrap();
    assert_eq!(all.total, made.len() as u64);
}

#[test]
fn worker_tasks_are_evicted_in_the_order_they_ended() {
    let store = Store::for_workers(&Limits { tasks_max: 3_000, ..Limits::default() }, 7, 4);
    let mut keys = Vec::new();
    for bits in 0..9_000 {
        // The shard for new contexts changes often.
        keys.push(make_for(&store, 2, bits, at(1_000 + bits as u64 / 7)).unwrap());
        if bits % 500 == 0 {
            let first = keys.len().saturating_sub(3_000);
            assert_eq!(stored(&store, &keys[first..]), keys.len() - first);
        }
    }
    // A lone worker uses all of the store.
    assert_eq!(store.stats().tasks, 3_000);
}

#[test]
fn single_active_worker_uses_nearly_the_whole_store() {
    let limits = Limits { tasks_max: 10_000, store_bytes_max: 9_000_000, ..Limits::default() };
    let store = Store::for_workers(&limits, 7, 4);
    for bits in 0..12_000 {
        make_for(&store, bits as usize % 4, bits, at(1_000)).unwrap();
    }
    let late = (0..10_000).map(|bits| make_for(&store, 3, bits, at(9_000 + bits as u64 / 9)));
    let late: Vec<TaskKey> = late.map(Result::unwrap).collect();
    // Each of the other three workers keeps at most two portions.
    let least = 10_000 - 3 * 2 * 64;
    assert!((least..=10_000).contains(&stored(&store, &late)), "{}", stored(&store, &late));
    assert!((least as u64..=10_000).contains(&store.stats().tasks));
}

/// Slots in memory.
fn slots(store: &Store) -> usize {
    (0..store.sharding.shards()).map(|at| store.lock(at).slab.slots()).sum()
}

#[test]
fn slots_move_to_the_loaded_worker_within_the_budget() {
    let limits = Limits { tasks_max: 4_000, ..Limits::default() };
    let store = Store::for_workers(&limits, 7, 8);
    let most = budget::slots_max(&limits, store.sharding);
    // The memory budget counts one and a half slots per task, and the spare chunks of the shards.
    let spare = store.sharding.shards() * slab::CHUNK * (slab::SPARE_CHUNKS as usize + 1);
    assert_eq!(most, 6_000 + spare);
    for round in 0..16u128 {
        // One worker after the other fills the store, which evicts the earlier tasks.
        for bits in 0..4_000 {
            let now = at(1_000 + 10_000 * round as u64 + bits as u64);
            make_for(&store, round as usize % 8, bits, now).unwrap();
            if bits % 500 == 0 {
                assert!(slots(&store) <= most, "{round}: {}", slots(&store));
            }
        }
        assert!(slots(&store) <= 4_000 + spare, "{round}: {}", slots(&store));
    }
    assert_eq!(store.stats().tasks, 4_000);
}

#[test]
fn running_tasks_keep_slots_within_the_memory_budget() {
    let limits = Limits { tasks_max: 4_000, ..Limits::default() };
    let store = Store::for_workers(&limits, 7, 4);
    let most = budget::slots_max(&limits, store.sharding);
    let mut running = Vec::new();
    for round in 0..12u128 {
        for bits in 0..3_000 {
            let now = at(1_000 + 10_000 * round as u64 + bits as u64);
            // About one task of each chunk stays.
            let state = if bits % 21 == 0 { TaskState::Working } else { TaskState::Completed };
            let bits = round << 64 | bits;
            match make_as(&store, round as usize % 4, bits, state, now) {
                Ok(key) if state == TaskState::Working => running.push(key),
                Ok(_) => {}
                Err(refused) => assert_eq!(refused, Refused::Full),
            }
        }
        assert!(slots(&store) <= most, "{round}: {} of {most}", slots(&store));
    }
    assert_eq!(stored(&store, &running), running.len());
    // A new context finds room wherever there is a free slot.
    assert!(running.len() < 4_000);
    assert!(make_for(&store, 0, u128::MAX, at(900_000)).is_ok());
}

#[test]
fn worker_can_use_room_cached_by_idle_workers() {
    let limits = Limits { tasks_max: 20_000, store_bytes_max: 400_000, ..Limits::default() };
    let store = Store::for_workers(&limits, 7, 8);
    let large = text_message(180_000);
    // Every worker has taken room and returned it, and caches some of it.
    for worker in 0..8 {
        for bits in 0..10 {
            drop(store.reserve(NewTask { context_id: None, worker, ..new(bits) }, NOW).unwrap());
        }
    }
    let all = (0..20_000).map(|bits| NewTask { context_id: None, worker: 5, ..new(bits) });
    let all: Result<Vec<_>, Refused> = all.map(|new| store.reserve(new, NOW)).collect();
    let all = all.expect("tasks up to tasks_max");
    assert_eq!(store.reserve(new(1), NOW).err(), Some(Refused::Full));
    let none = EventBuf::default();
    for reserved in &all[..2] {
        store.commit_new(reserved, Generation::V1, large.view(), &none, NOW, |_| ()).unwrap();
    }
    drop(all);
    assert_eq!(store.stats().tasks, 2);
    assert_eq!(make(&store, 1, TaskState::Completed, NOW).map(drop), Ok(()));
}

#[test]
fn setting_the_clock_back_has_no_lasting_effect_on_eviction() {
    let store = Store::for_workers(&Limits { tasks_max: 20, ..Limits::default() }, 7, 2);
    let now = |mono_ms, unix_ms| Now { mono_ms, unix_ms };
    let make = |worker, bits, now| make_for(&store, worker, bits, now).unwrap();
    let ours: Vec<_> = (0..10).map(|bits| make(0, bits, now(0, 900_000))).collect();
    store.sweep(now(900, 5_000));
    let theirs: Vec<_> = (0..10).map(|bits| make(1, bits, now(1_000, 5_000))).collect();
    (0..10).for_each(|bits| _ = make(0, 20 + bits, now(1_000, 5_000)));
    assert_eq!((stored(&store, &ours), stored(&store, &theirs)), (0, 10));
}
