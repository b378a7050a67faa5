//! The store under a scheduler that explores orders of its locks and atomics: a lost wake-up or a
//! deadlock stops all threads, which the scheduler detects.
//!
//! `SHUTTLE_ITERATIONS` sets how many orders each test explores. Shuttle runs atomics in one order
//! that all threads see: it finds lost updates, not weak memory.

use std::{
    sync::Arc,
    task::{Poll, Wake, Waker},
};

use peregrine::{
    limits::Limits,
    model::{EventBuf, Generation, List, MessageBuf, PartsBuf, TaskEvent, TaskState},
    service::{AgentIndex, Cursor, Follow, Now, Scope, StreamResponse, WaitHandle},
    store::{NewTask, Refused, Store, TaskKey},
};
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
    sync::{Condvar, Mutex},
    thread,
};

const AGENT: Scope = Scope::of(AgentIndex(0));
const NOW: Now = Now { mono_ms: 0, unix_ms: 1_000 };

/// Explores many orders, half of them random and half with few context switches.
fn explore(test: impl Fn() + Send + Sync + Clone + 'static) {
    let wanted = std::env::var("SHUTTLE_ITERATIONS").ok().and_then(|text| text.parse().ok());
    let orders = wanted.unwrap_or(2_000) / 2;
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    Runner::new(RandomScheduler::new(orders), config.clone()).run(test.clone());
    Runner::new(PctScheduler::new(3, orders), config).run(test);
}

/// A waker that a thread waits on.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.ring.notify_one();
    }
}

impl Bell {
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.ring.wait(rung).unwrap();
        }
        *rung = false;
    }
}

fn store(limits: Limits) -> Arc<Store> {
    Arc::new(Store::for_workers(&limits, 5, 2))
}

fn status(state: TaskState) -> TaskEvent<'static> {
    TaskEvent::Status { state, at_ms: NOW.unix_ms, message: None, metadata: None }
}

/// Creates a task with a message of `size`; contexts of different `bits` are in different shards.
fn make(store: &Store, bits: u128, size: usize) -> Result<TaskKey, Refused> {
    let context = bits.to_le_bytes();
    let message_buf = MessageBuf::agent(&PartsBuf::new().text(&"x".repeat(size))).id("m");
    let new = NewTask {
        scope: AGENT,
        incarnation: 0,
        context_id: Some(&context),
        chosen_id: None,
        bits: [bits; 2],
        worker: 0,
        share: None,
        peer: Default::default(),
    };
    let reserved = store.reserve(new, NOW)?;
    let key = reserved.key();
    let none = EventBuf::default();
    store.commit_new(&reserved, Generation::V1, message_buf.view(), &none, NOW, |_| key)
}

fn publish(store: &Store, key: TaskKey, state: TaskState) -> bool {
    store.update(key, NOW, |edit| edit.apply(&status(state)).is_ok()).unwrap_or(false)
}

/// Follows a task to its end and returns the last event it saw; `None` if the task was evicted.
fn follow(store: &Store, key: TaskKey) -> Option<u64> {
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(Arc::clone(&bell));
    let mut cursor = Cursor { handle: key.handle(), ends_at_input: true, ..Cursor::default() };
    let mut at = 0;
    loop {
        let follow = store.follow(&mut cursor, &waker, &mut |item| {
            match item {
                StreamResponse::Event { seq, .. } => {
                    assert_eq!(seq, at + 1, "lost, repeated or out of order");
                    at = seq;
                }
                StreamResponse::Snapshot(view) => at = view.seq(),
                StreamResponse::Message { .. } => unreachable!("no direct message here"),
            }
            true
        });
        match follow {
            Follow::Pending => bell.wait(),
            Follow::More => {}
            Follow::End => return Some(at),
            Follow::Gone => return None,
        }
    }
}

fn settle(store: &Store, key: TaskKey) -> bool {
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(Arc::clone(&bell));
    let mut ticket = WaitHandle { handle: key.handle(), ..WaitHandle::default() };
    loop {
        match store.poll(&mut ticket, &waker, &mut |_| ()) {
            Poll::Pending => bell.wait(),
            Poll::Ready(result) => return result.is_ok(),
        }
    }
}

macro_rules! spawn {
    ($store:ident, $work:expr) => {{
        let $store = Arc::clone(&$store);
        thread::spawn(move || $work)
    }};
}

#[test]
fn no_wake_up_is_lost_between_publish_and_follow() {
    explore(|| {
        let store = store(Limits::default());
        let key = make(&store, 1, 10).unwrap();
        let first = spawn!(store, follow(&store, key));
        let second = spawn!(store, follow(&store, key));
        let waiter = spawn!(store, settle(&store, key));
        for _ in 0..3 {
            assert!(publish(&store, key, TaskState::Working));
        }
        assert!(publish(&store, key, TaskState::Completed));
        // Submitted, three times working, completed.
        assert_eq!(first.join().unwrap(), Some(5));
        assert_eq!(second.join().unwrap(), Some(5));
        assert!(waiter.join().unwrap());
        assert_eq!(store.stats().waiting, 0);
    });
}

#[test]
fn concurrent_publishers_end_a_task_only_once() {
    explore(|| {
        let store = store(Limits::default());
        let key = make(&store, 1, 10).unwrap();
        let follower = spawn!(store, follow(&store, key));
        let other = spawn!(store, publish(&store, key, TaskState::Canceled));
        let is_first = publish(&store, key, TaskState::Completed);
        assert!(is_first != other.join().unwrap(), "a task ends once");
        assert_eq!(follower.join().unwrap(), Some(2));
    });
}

#[test]
fn eviction_releases_followers_and_waiters() {
    explore(|| {
        let store = store(Limits { tasks_max: 1, ..Limits::default() });
        let key = make(&store, 1, 10).unwrap();
        let follower = spawn!(store, follow(&store, key));
        let waiter = spawn!(store, settle(&store, key));
        let evictor = spawn!(store, {
            let full = make(&store, 2, 10);
            assert!(matches!(full, Ok(_) | Err(Refused::Full)));
            full.is_ok()
        });
        assert!(publish(&store, key, TaskState::Completed));
        let is_evicted = evictor.join().unwrap();
        let (seen, answered) = (follower.join().unwrap(), waiter.join().unwrap());
        assert!(is_evicted || (seen == Some(2) && answered));
        assert!(seen.is_none_or(|seen| seen == 2));
        let stats = store.stats();
        assert_eq!((stats.tasks, stats.waiting), (1, 0));
        assert_eq!(stats.evicted.iter().sum::<u64>(), u64::from(is_evicted));
    });
}

#[test]
fn concurrent_sweep_does_not_strand_a_follower() {
    explore(|| {
        let store = store(Limits { task_ttl_ms: 1, ..Limits::default() });
        let key = make(&store, 1, 10).unwrap();
        let follower = spawn!(store, follow(&store, key));
        let sweeper = spawn!(store, {
            let later = Now { mono_ms: 9, unix_ms: 9_000 };
            for _ in 0..2 {
                store.sweep(later);
            }
        });
        assert!(publish(&store, key, TaskState::Completed));
        sweeper.join().unwrap();
        assert!(follower.join().unwrap().is_none_or(|seen| seen == 2));
    });
}

#[test]
fn waiters_probing_a_full_waker_list_are_woken() {
    explore(|| {
        let store = store(Limits::default());
        let key = make(&store, 1, 10).unwrap();
        // Stale wakers fill the list, so that new waiters probe it.
        for _ in 0..9 {
            let waker = Waker::from(Arc::<Bell>::default());
            let mut ticket = WaitHandle { handle: key.handle(), ..WaitHandle::default() };
            assert!(store.poll(&mut ticket, &waker, &mut |_| ()).is_pending());
        }
        let first = spawn!(store, follow(&store, key));
        let second = spawn!(store, follow(&store, key));
        let third = spawn!(store, settle(&store, key));
        assert!(publish(&store, key, TaskState::Working));
        assert!(publish(&store, key, TaskState::Completed));
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (Some(3), Some(3)));
        assert!(third.join().unwrap());
    });
}

#[test]
fn concurrent_creators_evicting_tasks_respect_limits() {
    explore(|| {
        let limits = Limits { tasks_max: 2, store_bytes_max: 3_000, ..Limits::default() };
        let store = store(limits);
        let maker = |store: &Store, bits: u128| {
            for round in 0..2 {
                let Ok(key) = make(store, bits << 8 | round, 700) else { continue };
                // A task with little room grows under the lock of its own shard.
                publish(store, key, TaskState::Working);
                publish(store, key, TaskState::Completed);
            }
        };
        let makers = [1u128, 2, 3].map(|bits| spawn!(store, maker(&store, bits)));
        let watcher = spawn!(store, {
            for _ in 0..3 {
                let stats = store.stats();
                assert!(stats.tasks <= 2 && stats.bytes <= 3_000, "{stats:?}");
            }
            store.list(AGENT, &List::default(), 0, &mut |_| ()).unwrap();
        });
        for maker in makers {
            maker.join().unwrap();
        }
        watcher.join().unwrap();
        let stats = store.stats();
        assert_eq!(stats.by_state.iter().sum::<u64>(), stats.tasks);
    });
}

#[test]
fn same_chosen_id_from_two_clients_creates_at_most_one_task() {
    explore(|| {
        let store = store(Limits::default());
        let choose = |store: &Store, context: &[u8], keep: bool| {
            let new = NewTask {
                scope: AGENT,
                incarnation: 0,
                context_id: Some(context),
                chosen_id: Some(b"mine"),
                bits: [1; 2],
                worker: 0,
                share: None,
                peer: Default::default(),
            };
            let Ok(reserved) = store.reserve(new, NOW) else { return false };
            if !keep {
                return false;
            }
            let message_buf = MessageBuf::agent(&PartsBuf::new().text("x")).id("m");
            let none = EventBuf::default();
            let made =
                store.commit_new(&reserved, Generation::V1, message_buf.view(), &none, NOW, |_| ());
            made.is_ok()
        };
        let first = spawn!(store, choose(&store, b"a", true));
        let second = spawn!(store, choose(&store, b"b", true));
        let third = spawn!(store, choose(&store, b"c", false));
        let made = [first, second, third].map(|thread| u64::from(thread.join().unwrap()));
        let made: u64 = made.iter().sum();
        assert!(made <= 1, "one id, two tasks");
        assert_eq!(store.stats().tasks, made);
        assert_eq!(store.find(AGENT, b"mine").is_some(), made == 1);
    });
}
