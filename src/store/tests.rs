//! One test per rule; `tests/properties/store.rs` tests the rules together.

mod displace;
mod fair;
mod kept;
mod pages;
mod room;
mod shares;
mod spared;
mod workers;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Poll, Wake, Waker},
};

use super::*;
use crate::{
    fault::FaultKind,
    model::{ArtifactBuf, EventBuf, Generation, List, RawText, Task, TaskEvent, uuid},
    service::{AgentIndex, Cursor, Follow, OwnerIndex, StreamResponse, TenantIndex, WaitHandle},
    shares::Holder,
};

const NOW: Now = Now { mono_ms: 1_000, unix_ms: 1_000 };
const AGENT: Scope = Scope::of(AgentIndex(0));

/// Both clocks show the same time.
fn at(unix_ms: u64) -> Now {
    Now { mono_ms: unix_ms, unix_ms }
}

fn status(state: TaskState) -> TaskEvent<'static> {
    TaskEvent::Status { state, at_ms: 1_000, message: None, metadata: None }
}

fn text_message(length: usize) -> MessageBuf {
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
        share: None,
        peer: Holder::default(),
    }
}

/// Stores a task in a new context that ends in `state`.
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
    store.commit_new(&reserved, Generation::V1, text_message(9).view(), &events, now, |_| key)
}

fn apply(store: &Store, key: TaskKey, event: &TaskEvent<'_>) -> Option<Result<u64, Refused>> {
    store.update(key, NOW, |edit| edit.apply(event))
}

fn state(store: &Store, key: TaskKey) -> Option<TaskState> {
    store.read(key, |task| task.state())
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Follows until no item remains; the sequence numbers of snapshots are negative.
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
fn task_is_found_only_by_its_full_id_at_its_agent() {
    let store = Store::new(&Limits::default(), 7);
    let reserved = store.reserve(new(3), NOW).unwrap();
    let (key, mut id) = (reserved.key(), reserved.id().to_vec());
    assert_eq!(store.find(AGENT, &id), None);
    let none = EventBuf::default();
    store
        .commit_new(&reserved, Generation::V1, text_message(9).view(), &none, NOW, |_| ())
        .unwrap();
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
fn chosen_task_id_is_unique_per_agent() {
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
            let made = text_message(1);
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
    let (chosen, message) = (NewTask { chosen_id: Some(b"mine"), ..new(3) }, text_message(1));
    let mut events = EventBuf::default();
    events.push(&status(TaskState::Completed));
    let mut last = None;
    for _ in 0..3 {
        // This reservation evicts the old task, so that its id is free.
        let _ = store.reserve(new(4), NOW).unwrap();
        let reserved = store.reserve(chosen, NOW).unwrap();
        let key = reserved.key();
        store.commit_new(&reserved, Generation::V01, message.view(), &events, NOW, |_| ()).unwrap();
        assert_eq!(store.find(AGENT, b"mine"), Some(key));
        assert_ne!(last.replace(key), Some(key));
    }
    assert_eq!(store.stats().evicted, [0, 2, 0, 0]);
}

#[test]
fn eviction_removes_the_earliest_ended_task_not_running_ones() {
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
    assert_eq!(store.stats().evicted, [0, 5, 0, 0]);
}

#[test]
fn tasks_of_other_scopes_are_neither_found_nor_listed() {
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
    // Each scope uses the same context id and the same chosen task id.
    for (bits, scope) in scopes.into_iter().enumerate() {
        let new = NewTask { scope, chosen_id: Some(b"mine"), ..new(bits as u128) };
        let reserved = store.reserve(new, NOW).unwrap();
        let none = EventBuf::default();
        let key = reserved.key();
        store
            .commit_new(&reserved, Generation::V1, text_message(9).view(), &none, NOW, |_| ())
            .unwrap();
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
    // An id of the store is valid in its scope only.
    let key = make(&store, 9, TaskState::Completed, NOW).unwrap();
    let id = store.read(key, |task| task.id().to_vec()).unwrap();
    let found = scopes.map(|scope| store.find(scope, &id));
    assert_eq!(found, [Some(key), None, None, None, None]);
}

#[test]
fn finished_task_expires_after_its_ttl() {
    let store = Store::new(&Limits { task_ttl_ms: 100, ..Limits::default() }, 7);
    let running = make(&store, 0, TaskState::Working, at(1_000)).unwrap();
    for bits in 1..3_000 {
        make(&store, bits, TaskState::Completed, at(1_000)).unwrap();
    }
    let first = store.find(AGENT, &store.read(running, |t| t.id().to_vec()).unwrap());
    assert_eq!(first, Some(running));
    assert!(!store.sweep(at(1_100)));
    assert_eq!(store.stats().evicted, [0, 0, 0, 0]);
    assert!(store.sweep(at(1_101)));
    assert!(store.stats().evicted[0] <= 1_024);
    while store.sweep(at(1_101)) {}
    let stats = store.stats();
    assert_eq!((stats.tasks, stats.evicted), (1, [2_999, 0, 0, 0]));
    assert_eq!(stats.by_state[TaskState::Working as usize], 1);
}

#[test]
fn task_expiry_follows_the_monotonic_clock() {
    let store = Store::new(&Limits { task_ttl_ms: 100, ..Limits::default() }, 7);
    let now = |mono_ms, unix_ms| Now { mono_ms, unix_ms };
    let keys =
        [1, 2, 3].map(|bits| make(&store, bits, TaskState::Completed, now(50, 1_000_000)).unwrap());
    // The wall clock is set a day forward, then years back: no task is evicted.
    for unix_ms in [86_401_000_000, 5, 0] {
        store.sweep(now(150, unix_ms));
        assert!(keys.iter().all(|key| state(&store, *key).is_some()), "{unix_ms}");
    }
    // And no task is retained: all expire.
    store.sweep(now(151, 0));
    assert!(keys.iter().all(|key| state(&store, *key).is_none()));
}

#[test]
fn stream_ends_at_input_required_but_not_at_auth_required() {
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
    // The client answers. A stream that is opened now waits for later events.
    store
        .update(key, NOW, |edit| edit.user_message(text_message(1).view(), None))
        .unwrap()
        .unwrap();
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
fn event_burst_wakes_subscribers_once_and_eviction_ends_them() {
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
    let mut wait = WaitHandle { handle: key.handle(), ..WaitHandle::default() };
    assert_eq!(store.poll(&mut wait, &cursors[0].1, &mut |_| ()), Poll::Ready(Ok(())));
    make(&store, 2, TaskState::Working, NOW).unwrap();
    assert_eq!(follow(&store, &mut cursors[0].0, Waker::noop()).0, Follow::Gone);
    let outcome = store.poll(&mut wait, &cursors[0].1, &mut |_| ());
    assert!(matches!(outcome, Poll::Ready(Err(fault)) if fault.kind == FaultKind::TaskNotFound));
}

#[test]
fn waiting_call_returns_only_at_a_new_interruption() {
    let (store, counter) = (Store::new(&Limits::default(), 7), Arc::<Counter>::default());
    let waker = Waker::from(Arc::clone(&counter));
    let key = make(&store, 1, TaskState::InputRequired, NOW).unwrap();
    store
        .update(key, NOW, |edit| edit.user_message(text_message(1).view(), None))
        .unwrap()
        .unwrap();
    let mut wait =
        WaitHandle { handle: key.handle(), after: 2, history: Some(0), ..WaitHandle::default() };
    assert_eq!(store.poll(&mut wait, &waker, &mut |_| ()), Poll::Pending);
    apply(&store, key, &status(TaskState::Working)).unwrap().unwrap();
    assert_eq!(store.poll(&mut wait, &waker, &mut |_| ()), Poll::Pending);
    apply(&store, key, &status(TaskState::AuthRequired)).unwrap().unwrap();
    assert_eq!(counter.0.load(Relaxed), 2);
    assert_eq!(store.poll(&mut wait, &waker, &mut |_| ()), Poll::Ready(Ok(())));
}

#[test]
fn panic_in_a_callback_leaves_the_store_consistent() {
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
