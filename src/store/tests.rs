//! One test a rule; `tests/properties/store.rs` holds the rules together.

mod pages;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Poll, Wake, Waker},
};

use super::*;
use crate::{
    model::{ArtifactBuf, EventBuf, Generation, List, RawText, TaskEvent, uuid},
    service::{AgentIndex, Cursor, Follow, OwnerIndex, StreamResponse, TenantIndex, WaitHandle},
};

const NOW: Now = Now { mono_ms: 1_000, unix_ms: 1_000 };
const AGENT: Scope = Scope::of(AgentIndex(0));

/// Both clocks show the same.
fn at(unix_ms: u64) -> Now {
    Now { mono_ms: unix_ms, unix_ms }
}

fn status(state: TaskState) -> TaskEvent<'static> {
    TaskEvent::Status { state, at_ms: 1_000, message: None, metadata: None }
}

fn said(length: usize) -> MessageBuf {
    MessageBuf::agent(&PartsBuf::new().text(&"x".repeat(length))).id("m")
}

fn new(bits: u128) -> NewTask<'static> {
    NewTask {
        scope: AGENT,
        incarnation: 0,
        context_id: Some(b"c"),
        chosen_id: None,
        bits: [bits; 2],
        worker: 0,
    }
}

/// Makes a task in a context of its own that ends in `state`.
fn make(store: &Store, bits: u128, state: TaskState, now: Now) -> Result<TaskKey, Refused> {
    let context_id = bits.to_le_bytes();
    let reserved = store.reserve(NewTask { context_id: Some(&context_id), ..new(bits) }, now)?;
    let (key, mut events) = (reserved.key(), EventBuf::default());
    if state != TaskState::Submitted {
        events.push(&TaskEvent::Status {
            state,
            at_ms: now.unix_ms,
            message: None,
            metadata: None,
        });
    }
    store.commit_new(&reserved, Generation::V1, said(9).view(), &events, now, |_| key)
}

fn apply(store: &Store, key: TaskKey, event: &TaskEvent<'_>) -> Option<Result<u64, Refused>> {
    store.update(key, NOW, |edit| edit.apply(event))
}

fn state(store: &Store, key: TaskKey) -> Option<TaskState> {
    store.read(key, Task::state)
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Follows until nothing is left; the sequence numbers of snapshots are negative.
fn follow(store: &Store, cursor: &mut Cursor, wake: &Waker) -> (Follow, Vec<i64>, bool) {
    let (mut seen, mut is_last) = (Vec::new(), false);
    let follow = store.follow(cursor, wake, &mut |item| {
        seen.push(match item {
            StreamResponse::Snapshot(view) => -(view.seq() as i64),
            StreamResponse::Event { seq, last, .. } => {
                is_last = last;
                seq as i64
            }
            StreamResponse::Message { .. } => 0,
        });
        true
    });
    (follow, seen, is_last)
}

fn cursor(key: TaskKey, seq: u64, snapshot: bool) -> Cursor {
    Cursor { handle: key.handle(), seq, snapshot, ends_at_input: true, ..Cursor::default() }
}

#[test]
fn a_task_is_found_by_its_whole_id_and_by_its_agent_only() {
    let store = Store::new(&Limits::default(), 7);
    let reserved = store.reserve(new(3), NOW).unwrap();
    let (key, mut id) = (reserved.key(), reserved.id().to_vec());
    assert_eq!(store.find(AGENT, &id), None);
    let none = EventBuf::default();
    store.commit_new(&reserved, Generation::V1, said(9).view(), &none, NOW, |_| ()).unwrap();
    assert_eq!(store.find(AGENT, &id), Some(key));
    assert_eq!(store.find(Scope::of(AgentIndex(1)), &id), None);
    id[35] ^= 1;
    assert_eq!(store.find(AGENT, &id), None);
    let page =
        store.list(Scope::of(AgentIndex(1)), &List::default(), 0, &mut |_| panic!("not its own"));
    assert_eq!(page.unwrap().total, 0);
}

#[test]
fn a_dropped_reservation_leaves_no_trace() {
    let store = Store::new(&Limits { tasks_max: 1, ..Limits::default() }, 7);
    for _ in 0..3 {
        let chosen = NewTask { chosen_id: Some(b"mine"), ..new(3) };
        let reserved = store.reserve(chosen, NOW).unwrap();
        assert_eq!(store.reserve(chosen, NOW).err(), Some(Refused::Full));
        drop(reserved);
        assert_eq!(store.stats(), Stats::default());
    }
}

#[test]
fn a_chosen_id_has_one_task_for_each_agent() {
    let store = Store::new(&Limits::default(), 7);
    let (ours, none) = (make(&store, 9, TaskState::Working, NOW).unwrap(), EventBuf::default());
    let ours_id = store.read(ours, |task| task.id().to_vec()).unwrap();
    let looks_like_ours = uuid(77);
    for id in [&b"mine"[..], &looks_like_ours] {
        for agent in [Scope::of(AgentIndex(0)), Scope::of(AgentIndex(1))] {
            let chosen = NewTask { scope: agent, chosen_id: Some(id), ..new(3) };
            let reserved = store.reserve(chosen, NOW).unwrap();
            assert_eq!(reserved.id(), id);
            assert_eq!(store.reserve(chosen, NOW).err(), Some(Refused::Taken));
            let key = reserved.key();
            let made = said(1);
            store.commit_new(&reserved, Generation::V01, made.view(), &none, NOW, |_| ()).unwrap();
            assert_eq!(store.find(agent, id), Some(key));
            assert_eq!(store.reserve(chosen, NOW).err(), Some(Refused::Taken));
        }
    }
    let chosen = NewTask { chosen_id: Some(&ours_id), ..new(3) };
    assert_eq!(store.reserve(chosen, NOW).err(), Some(Refused::Taken));
    assert_eq!(store.stats().tasks, 5);
}

#[test]
fn an_evicted_id_can_be_chosen_again() {
    let store = Store::new(&Limits { tasks_max: 1, ..Limits::default() }, 7);
    let (chosen, said) = (NewTask { chosen_id: Some(b"mine"), ..new(3) }, said(1));
    let mut events = EventBuf::default();
    events.push(&status(TaskState::Completed));
    let mut last = None;
    for _ in 0..3 {
        // The first look finds the old task; making room for another evicts it.
        let _ = store.reserve(new(4), NOW).unwrap();
        let reserved = store.reserve(chosen, NOW).unwrap();
        let key = reserved.key();
        store.commit_new(&reserved, Generation::V01, said.view(), &events, NOW, |_| ()).unwrap();
        assert_eq!(store.find(AGENT, b"mine"), Some(key));
        assert_ne!(last.replace(key), Some(key));
    }
    assert_eq!(store.stats().evicted, [0, 2, 0]);
}

#[test]
fn the_task_that_ended_first_leaves_first_and_running_ones_stay() {
    let store = Store::new(&Limits { tasks_max: 6, ..Limits::default() }, 7);
    let running = make(&store, 0, TaskState::Working, NOW).unwrap();
    let late = make(&store, 1, TaskState::Working, NOW).unwrap();
    let ended: Vec<_> =
        (2..6).map(|i| make(&store, i, TaskState::Completed, NOW).unwrap()).collect();
    apply(&store, late, &status(TaskState::Failed)).unwrap().unwrap();
    for (round, key) in ended.iter().chain([&late]).enumerate() {
        assert!(state(&store, *key).is_some());
        make(&store, 10 + round as u128, TaskState::Submitted, NOW).unwrap();
        assert_eq!(state(&store, *key), None);
    }
    assert_eq!(make(&store, 99, TaskState::Completed, NOW), Err(Refused::Full));
    assert_eq!(state(&store, running), Some(TaskState::Working));
    assert_eq!(store.stats().evicted, [0, 5, 0]);
}

/// Makes a task in a context that the store makes, for a worker; it completes.
fn make_for(store: &Store, worker: usize, bits: u128, now: Now) -> Result<TaskKey, Refused> {
    make_as(store, worker, bits, TaskState::Completed, now)
}

/// Makes a worker's task in a context that the store makes.
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
    store.commit_new(&reserved, Generation::V1, said(9).view(), &events, now, |_| key)
}

fn stored(store: &Store, keys: &[TaskKey]) -> usize {
    keys.iter().filter(|key| state(store, **key).is_some()).count()
}

#[test]
fn a_worker_evicts_in_its_own_shards_as_long_as_others_are_not_far_older() {
    let store = Store::for_workers(&Limits { tasks_max: 200, ..Limits::default() }, 7, 2);
    let fill = |worker, bits: u128, ms| -> Vec<TaskKey> {
        (bits..bits + 100).map(|bits| make_for(&store, worker, bits, at(ms)).unwrap()).collect()
    };
    let [theirs, ours] = [(1, 1_000), (0, 1_900)].map(|(worker, ms)| fill(worker, 0, ms));
    let next = fill(0, 200, 2_100);
    assert_eq!([&theirs, &ours, &next].map(|keys| stored(&store, keys)), [100, 0, 100]);
    // Ours are a second younger now, and theirs go first.
    let last = fill(0, 300, 2_500);
    assert_eq!([&theirs, &next, &last].map(|keys| stored(&store, keys)), [0, 100, 100]);
    assert_eq!(store.stats().evicted, [0, 200, 0]);
}

#[test]
fn the_tasks_of_a_worker_leave_in_the_order_in_which_they_ended() {
    let store = Store::for_workers(&Limits { tasks_max: 3_000, ..Limits::default() }, 7, 4);
    let mut keys = Vec::new();
    for bits in 0..9_000 {
        // The shard at work changes all the time.
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
fn a_worker_that_is_alone_from_now_on_takes_the_room_of_the_others() {
    let limits = Limits { tasks_max: 10_000, store_bytes_max: 9_000_000, ..Limits::default() };
    let store = Store::for_workers(&limits, 7, 4);
    for bits in 0..12_000 {
        make_for(&store, bits as usize % 4, bits, at(1_000)).unwrap();
    }
    let late = (0..10_000).map(|bits| make_for(&store, 3, bits, at(9_000 + bits as u64 / 9)));
    let late: Vec<TaskKey> = late.map(Result::unwrap).collect();
    // At most two portions stay with each of the others.
    let least = 10_000 - 3 * 2 * 64;
    assert!((least..=10_000).contains(&stored(&store, &late)), "{}", stored(&store, &late));
    assert!((least as u64..=10_000).contains(&store.stats().tasks));
}

/// Slots that are there.
fn slots(store: &Store) -> usize {
    (0..store.sharding.shards()).map(|at| store.lock(at).slab.slots()).sum()
}

#[test]
fn slots_go_where_the_load_goes() {
    let limits = Limits { tasks_max: 4_000, ..Limits::default() };
    let store = Store::for_workers(&limits, 7, 8);
    let most = budget::slots_max(&limits, store.sharding);
    // What shards keep for themselves apart, there is no more than what the sum of memory has.
    let kept = store.sharding.shards() * slab::CHUNK * (slab::SPARE_CHUNKS as usize + 1);
    assert_eq!(most, 6_000 + kept);
    for round in 0..16u128 {
        // A worker after the other fills the store, and what was there before leaves.
        for bits in 0..4_000 {
            let now = at(1_000 + 10_000 * round as u64 + bits as u64);
            make_for(&store, round as usize % 8, bits, now).unwrap();
            if bits % 500 == 0 {
                assert!(slots(&store) <= most, "{round}: {}", slots(&store));
            }
        }
        assert!(slots(&store) <= 4_000 + kept, "{round}: {}", slots(&store));
    }
    assert_eq!(store.stats().tasks, 4_000);
}

#[test]
fn tasks_that_run_on_keep_no_more_slots_than_the_sum_of_memory_has() {
    let limits = Limits { tasks_max: 4_000, ..Limits::default() };
    let store = Store::for_workers(&limits, 7, 4);
    let most = budget::slots_max(&limits, store.sharding);
    let mut running = Vec::new();
    for round in 0..12u128 {
        for bits in 0..3_000 {
            let now = at(1_000 + 10_000 * round as u64 + bits as u64);
            // About one of each chunk stays.
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
    // A context of its own finds room where there is a free slot.
    assert!(running.len() < 4_000);
    assert!(make_for(&store, 0, u128::MAX, at(900_000)).is_ok());
}

#[test]
fn no_worker_is_refused_what_another_does_not_use() {
    let limits = Limits { tasks_max: 20_000, store_bytes_max: 400_000, ..Limits::default() };
    let store = Store::for_workers(&limits, 7, 8);
    let large = said(180_000);
    // Every worker has had room, and keeps some of it.
    for worker in 0..8 {
        for bits in 0..10 {
            drop(store.reserve(NewTask { context_id: None, worker, ..new(bits) }, NOW).unwrap());
        }
    }
    let all = (0..20_000).map(|bits| NewTask { context_id: None, worker: 5, ..new(bits) });
    let all: Result<Vec<_>, Refused> = all.map(|new| store.reserve(new, NOW)).collect();
    let all = all.expect("all tasks that may be");
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
fn a_wall_clock_that_is_set_back_makes_no_worker_look_older_for_long() {
    let store = Store::for_workers(&Limits { tasks_max: 20, ..Limits::default() }, 7, 2);
    let now = |mono_ms, unix_ms| Now { mono_ms, unix_ms };
    let make = |worker, bits, now| make_for(&store, worker, bits, now).unwrap();
    let ours: Vec<_> = (0..10).map(|bits| make(0, bits, now(0, 900_000))).collect();
    store.sweep(now(900, 5_000));
    let theirs: Vec<_> = (0..10).map(|bits| make(1, bits, now(1_000, 5_000))).collect();
    (0..10).for_each(|bits| _ = make(0, 20 + bits, now(1_000, 5_000)));
    assert_eq!((stored(&store, &ours), stored(&store, &theirs)), (0, 10));
}

#[test]
fn what_is_outside_a_scope_is_not_there() {
    let store = Store::new(&Limits::default(), 7);
    let (tenant, owner) = (TenantIndex(1), OwnerIndex(1));
    let scopes = [
        AGENT,
        Scope { tenant, ..AGENT },
        Scope { owner, ..AGENT },
        Scope { tenant, owner, ..AGENT },
        Scope::of(AgentIndex(1)),
    ];
    let mut ids = Vec::new();
    // Each names the same context, and chooses the same id.
    for (bits, scope) in scopes.into_iter().enumerate() {
        let new = NewTask { scope, chosen_id: Some(b"mine"), ..new(bits as u128) };
        let reserved = store.reserve(new, NOW).unwrap();
        let none = EventBuf::default();
        let key = reserved.key();
        store.commit_new(&reserved, Generation::V1, said(9).view(), &none, NOW, |_| ()).unwrap();
        ids.push(key);
    }
    for (at, scope) in scopes.into_iter().enumerate() {
        assert_eq!(store.find(scope, b"mine"), Some(ids[at]));
        let context_id = Some(RawText::known(b"c"));
        for list in [List { context_id, ..List::default() }, List::default()] {
            let mut shown = 0;
            let page = store.list(scope, &list, 0, &mut |_| shown += 1).unwrap();
            assert_eq!((page.total, shown), (1, 1));
        }
    }
    // An id that the store made is known in its scope alone.
    let key = make(&store, 9, TaskState::Completed, NOW).unwrap();
    let id = store.read(key, |task| task.id().to_vec()).unwrap();
    let found = scopes.map(|scope| store.find(scope, &id));
    assert_eq!(found, [Some(key), None, None, None, None]);
}

#[test]
fn a_finished_task_lives_for_its_time() {
    let store = Store::new(&Limits { task_ttl_ms: 100, ..Limits::default() }, 7);
    let running = make(&store, 0, TaskState::Working, at(1_000)).unwrap();
    for bits in 1..3_000 {
        make(&store, bits, TaskState::Completed, at(1_000)).unwrap();
    }
    let first = store.find(AGENT, &store.read(running, |t| t.id().to_vec()).unwrap());
    assert_eq!(first, Some(running));
    assert!(!store.sweep(at(1_100)));
    assert_eq!(store.stats().evicted, [0, 0, 0]);
    assert!(store.sweep(at(1_101)));
    assert!(store.stats().evicted[0] <= 1_024);
    while store.sweep(at(1_101)) {}
    let stats = store.stats();
    assert_eq!((stats.tasks, stats.evicted), (1, [2_999, 0, 0]));
    assert_eq!(stats.by_state[TaskState::Working as usize], 1);
}

#[test]
fn the_time_of_a_task_is_that_of_the_monotonic_clock() {
    let store = Store::new(&Limits { task_ttl_ms: 100, ..Limits::default() }, 7);
    let now = |mono_ms, unix_ms| Now { mono_ms, unix_ms };
    let keys =
        [1, 2, 3].map(|bits| make(&store, bits, TaskState::Completed, now(50, 1_000_000)).unwrap());
    // A day forward, then years back: nobody is forgotten for it.
    for unix_ms in [86_401_000_000, 5, 0] {
        store.sweep(now(150, unix_ms));
        assert!(keys.iter().all(|key| state(&store, *key).is_some()), "{unix_ms}");
    }
    // Nor kept: their time is over.
    store.sweep(now(151, 0));
    assert!(keys.iter().all(|key| state(&store, *key).is_none()));
}

#[test]
fn bytes_are_bounded_whatever_tasks_do() {
    let limits = Limits { store_bytes_max: 20_000, ..Limits::default() };
    let store = Store::new(&limits, 7);
    let (message, artifact) = (said(2_000), PartsBuf::new().text(&"y".repeat(1_500)));
    let artifact = ArtifactBuf::new("a", &artifact);
    let grow = TaskEvent::Artifact {
        artifact: artifact.view(),
        append: true,
        last_chunk: false,
        metadata: None,
    };
    let ended = make(&store, 1, TaskState::Completed, NOW).unwrap();
    let mut running = Vec::new();
    let full = loop {
        let reserved = store.reserve(new(running.len() as u128), NOW).unwrap();
        let (key, none) = (reserved.key(), EventBuf::default());
        match store.commit_new(&reserved, Generation::V1, message.view(), &none, NOW, |_| key) {
            Ok(key) => running.push(key),
            Err(refused) => break refused,
        }
        assert!(store.stats().bytes <= 20_000);
    };
    assert_eq!((full, state(&store, ended)), (Refused::OutOfBytes, None));
    assert_eq!(store.stats().tasks, running.len() as u64);
    // A running task that cannot grow is ended; then it can make room for the others.
    assert_eq!(apply(&store, running[0], &grow), Some(Err(Refused::OutOfBytes)));
    assert_eq!(state(&store, running[0]), Some(TaskState::Failed));
    assert!(store.stats().bytes <= 20_000);
    assert_eq!(apply(&store, running[1], &grow), Some(Ok(2)));
    assert_eq!(state(&store, running[0]), None);
    assert_eq!(store.stats().evicted, [0, 0, 2]);
    assert!(store.stats().bytes <= 20_000);
}

#[test]
fn an_event_beyond_a_limit_fails_its_task_with_words() {
    for (bytes, artifacts) in [(600, 9), (4_000, 1)] {
        let limits =
            Limits { task_bytes_max: bytes, artifacts_max: artifacts, ..Limits::default() };
        let store = Store::new(&limits, 7);
        let key = make(&store, 1, TaskState::Working, NOW).unwrap();
        let refused = (0..100).find_map(|round| {
            let artifact = ArtifactBuf::new(&round.to_string(), &PartsBuf::new().text("y"));
            let event = TaskEvent::Artifact {
                artifact: artifact.view(),
                append: false,
                last_chunk: true,
                metadata: None,
            };
            apply(&store, key, &event).unwrap().err()
        });
        assert_eq!(refused, Some(Refused::TooLarge));
        let words = store.read(key, |task| task.view().status().message.map(|m| m.text()));
        assert!(words.unwrap().unwrap().contains("limit"));
        let closed = apply(&store, key, &status(TaskState::Working));
        assert_eq!(closed, Some(Err(Refused::Terminal)));
    }
}

#[test]
fn last_words_fit_into_what_is_kept_back() {
    let store = Store::new(&Limits::default(), 7);
    for words in &store.last_words {
        let event = TaskEvent::Status {
            state: TaskState::Failed,
            at_ms: 0,
            message: Some(words.view()),
            metadata: None,
        };
        assert!(Task::cost(&event) <= LAST_WORDS, "{}", Task::cost(&event));
    }
}

#[test]
fn a_message_too_large_makes_and_changes_nothing() {
    let limits = Limits { task_bytes_max: 1_000, ..Limits::default() };
    let store = Store::new(&limits, 7);
    let (large, none) = (said(1_000), EventBuf::default());
    let reserved = store.reserve(new(1), NOW).unwrap();
    let made = store.commit_new(&reserved, Generation::V1, large.view(), &none, NOW, |_| ());
    drop(reserved);
    assert_eq!(made, Err(Refused::TooLarge));
    assert_eq!(store.stats(), Stats::default());
    let key = make(&store, 1, TaskState::InputRequired, NOW).unwrap();
    let turn = store.update(key, NOW, |edit| edit.user_message(large.view()));
    assert_eq!(turn, Some(Err(Refused::TooLarge)));
    assert_eq!(state(&store, key), Some(TaskState::InputRequired));
}

#[test]
fn a_stream_ends_at_the_end_and_at_input_required_but_not_at_auth_required() {
    let (store, waker) = (Store::new(&Limits::default(), 7), Waker::noop());
    let key = make(&store, 1, TaskState::Submitted, NOW).unwrap();
    let mut live = cursor(key, 1, true);
    assert_eq!(follow(&store, &mut live, waker), (Follow::Pending, vec![-1], false));
    apply(&store, key, &status(TaskState::AuthRequired)).unwrap().unwrap();
    assert_eq!(follow(&store, &mut live, waker), (Follow::Pending, vec![2], false));
    apply(&store, key, &status(TaskState::InputRequired)).unwrap().unwrap();
    assert_eq!(follow(&store, &mut live, waker), (Follow::End, vec![3], true));
    let mut stays = Cursor { ends_at_input: false, ..cursor(key, 2, false) };
    assert_eq!(follow(&store, &mut stays, waker), (Follow::Pending, vec![3], false));
    // The client answers: a stream that begins here waits for what comes.
    store.update(key, NOW, |edit| edit.user_message(said(1).view())).unwrap().unwrap();
    let mut next = cursor(key, 3, true);
    assert_eq!(follow(&store, &mut next, waker), (Follow::Pending, vec![-3], false));
    apply(&store, key, &status(TaskState::Completed)).unwrap().unwrap();
    assert_eq!(follow(&store, &mut next, waker), (Follow::End, vec![4], true));
    let mut late = cursor(key, 4, true);
    assert_eq!(follow(&store, &mut late, waker), (Follow::End, vec![-4], false));
    let mut resumed = cursor(key, 2, false);
    assert_eq!(follow(&store, &mut resumed, waker), (Follow::End, vec![3, 4], true));
    let mut beyond = cursor(key, 400, false);
    assert_eq!(follow(&store, &mut beyond, waker), (Follow::End, vec![], false));
}

#[test]
fn a_burst_wakes_each_subscriber_once_and_eviction_wakes_too() {
    let store = Store::new(&Limits { tasks_max: 1, ..Limits::default() }, 7);
    let key = make(&store, 1, TaskState::Submitted, NOW).unwrap();
    let counters: [Arc<Counter>; 3] = Default::default();
    let mut cursors = counters.clone().map(|counter| (cursor(key, 1, false), Waker::from(counter)));
    for (cursor, waker) in &mut cursors {
        assert_eq!(store.follow(cursor, waker, &mut |_| true), Follow::Pending);
        assert_eq!(store.follow(cursor, waker, &mut |_| true), Follow::Pending);
    }
    assert_eq!(store.stats().waiting, 3);
    for _ in 0..100 {
        apply(&store, key, &status(TaskState::Working)).unwrap().unwrap();
    }
    assert_eq!(counters.each_ref().map(|c| c.0.load(Relaxed)), [1, 1, 1]);
    apply(&store, key, &status(TaskState::Completed)).unwrap().unwrap();
    let mut ticket = WaitHandle { handle: key.handle(), ..WaitHandle::default() };
    assert_eq!(store.poll(&mut ticket, &cursors[0].1, &mut |_| ()), Poll::Ready(Ok(())));
    make(&store, 2, TaskState::Working, NOW).unwrap();
    assert_eq!(follow(&store, &mut cursors[0].0, Waker::noop()).0, Follow::Gone);
    let gone = store.poll(&mut ticket, &cursors[0].1, &mut |_| ());
    assert!(matches!(gone, Poll::Ready(Err(fault)) if fault.kind == FaultKind::TaskNotFound));
}

#[test]
fn a_parked_call_waits_for_a_new_interruption() {
    let (store, counter) = (Store::new(&Limits::default(), 7), Arc::<Counter>::default());
    let waker = Waker::from(Arc::clone(&counter));
    let key = make(&store, 1, TaskState::InputRequired, NOW).unwrap();
    store.update(key, NOW, |edit| edit.user_message(said(1).view())).unwrap().unwrap();
    let mut ticket =
        WaitHandle { handle: key.handle(), after: 2, history: Some(0), ..WaitHandle::default() };
    assert_eq!(store.poll(&mut ticket, &waker, &mut |_| ()), Poll::Pending);
    apply(&store, key, &status(TaskState::Working)).unwrap().unwrap();
    assert_eq!(store.poll(&mut ticket, &waker, &mut |_| ()), Poll::Pending);
    apply(&store, key, &status(TaskState::AuthRequired)).unwrap().unwrap();
    assert_eq!(counter.0.load(Relaxed), 2);
    assert_eq!(store.poll(&mut ticket, &waker, &mut |_| ()), Poll::Ready(Ok(())));
}

#[test]
fn a_panic_in_a_callback_leaves_the_store_whole() {
    let store = Store::new(&Limits { tasks_max: 1, ..Limits::default() }, 7);
    let key = make(&store, 1, TaskState::Working, NOW).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.update(key, NOW, |edit| {
            edit.apply(&status(TaskState::Completed)).unwrap();
            panic!("a caller's bug");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(store.stats().by_state[TaskState::Completed as usize], 1);
    make(&store, 2, TaskState::Working, NOW).unwrap();
    assert_eq!(state(&store, key), None);
}
