//! Many threads on one small store: no lost wake-up, no repeated event, no exceeded limit.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Poll, Wake, Waker},
    thread,
    time::Duration,
};

use peregrine::{
    limits::Limits,
    model::{EventBuf, Generation, List, MessageBuf, PartsBuf, TaskEvent, TaskState},
    service::{AgentIndex, Cursor, Follow, Now, Scope, StreamResponse, WaitHandle},
    store::{NewTask, Refused, Store, TaskKey},
};

/// Longer than any scheduler delays a runnable thread.
const LOST: Duration = Duration::from_secs(10);

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
        let rung = self.rung.lock().unwrap();
        let (mut rung, timeout) = self.ring.wait_timeout_while(rung, LOST, |rung| !*rung).unwrap();
        assert!(!timeout.timed_out(), "lost wake-up");
        *rung = false;
    }
}

fn now(clock: &AtomicU64) -> Now {
    let unix_ms = clock.fetch_add(1, SeqCst) / 16 + 1_000;
    Now { mono_ms: unix_ms, unix_ms }
}

fn status(state: TaskState) -> TaskEvent<'static> {
    TaskEvent::Status { state, at_ms: 1_000, message: None, metadata: None }
}

/// Creates a task; its id and context come from `bits`.
fn make(store: &Store, bits: u128, now: Now) -> Option<TaskKey> {
    let context = bits.to_le_bytes();
    let text = PartsBuf::new().text(&"x".repeat(bits as usize % 300));
    let message_buf = MessageBuf::agent(&text).id("m");
    let new = NewTask {
        scope: Scope::of(AgentIndex(0)),
        incarnation: 0,
        context_id: Some(&context),
        chosen_id: None,
        bits: [bits; 2],
        worker: 0,
        share: None,
        peer: Default::default(),
    };
    let reserved = match store.reserve(new, now) {
        Ok(reserved) => reserved,
        Err(refused) => {
            assert_eq!(refused, Refused::Full);
            return None;
        }
    };
    let key = reserved.key();
    let none = EventBuf::default();
    let made = store.commit_new(&reserved, Generation::V1, message_buf.view(), &none, now, |_| ());
    made.ok().map(|()| key)
}

/// Follows a task to its end and returns how many events it saw; `None` if the task was evicted.
fn follow(store: &Store, key: TaskKey) -> Option<u64> {
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(Arc::clone(&bell));
    let mut cursor = Cursor { handle: key.handle(), ends_at_input: true, ..Cursor::default() };
    let mut at = 0;
    loop {
        let follow = store.follow(&mut cursor, &waker, &mut |item| {
            match item {
                StreamResponse::Event { seq, .. } => {
                    assert_eq!(seq, at + 1);
                    at = seq;
                }
                StreamResponse::Snapshot(view) => at = view.seq(),
                StreamResponse::Message { .. } => panic!("no direct message here"),
            }
            at % 3 != 0
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

#[test]
fn followers_see_every_event_and_the_end() {
    const EVENTS: u64 = 200;
    let store = Store::new(&Limits::default(), 5);
    let clock = AtomicU64::new(0);
    for round in 0..20 {
        let key = make(&store, round, now(&clock)).unwrap();
        thread::scope(|scope| {
            let followers: Vec<_> = (0..6).map(|_| scope.spawn(|| follow(&store, key))).collect();
            let settled = scope.spawn(|| settle(&store, key));
            for _ in 1..EVENTS - 1 {
                store.update(key, now(&clock), |e| e.apply(&status(TaskState::Working)).unwrap());
            }
            store.update(key, now(&clock), |e| e.apply(&status(TaskState::Completed)).unwrap());
            for follower in followers {
                assert_eq!(follower.join().unwrap(), Some(EVENTS));
            }
            assert!(settled.join().unwrap());
        });
    }
    assert_eq!(store.stats().waiting, 0);
}

#[test]
fn a_store_that_evicts_under_load_keeps_its_limits() {
    let limits = Limits {
        tasks_max: 40,
        store_bytes_max: 30_000,
        task_ttl_ms: 50,
        event_ring_max: 4,
        ..Limits::default()
    };
    let (store, clock) = (Store::for_workers(&limits, 6, 4), AtomicU64::new(0));
    let (is_over, made, ended) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (store, clock, limits) = (&store, &clock, &limits);
    let (is_over, made, ended) = (&is_over, &made, &ended);
    thread::scope(|scope| {
        scope.spawn(move || {
            while !is_over.load(SeqCst) {
                let stats = store.stats();
                assert!(stats.tasks <= limits.tasks_max as u64);
                assert!(stats.bytes <= limits.store_bytes_max as u64);
                store.sweep(now(clock));
                let mut stamps = Vec::new();
                let page = store
                    .list(Scope::of(AgentIndex(0)), &List::default(), 0, &mut |view| {
                        stamps.push(view.seq())
                    })
                    .unwrap();
                // The total is summed shard by shard, not at one moment.
                assert!(stamps.len() <= 50 && page.page_size == 50);
            }
        });
        let workers: Vec<_> = (0..4u128)
            .map(|worker| {
                scope.spawn(move || {
                    for round in 0..1_500u128 {
                        let Some(key) = make(store, worker << 64 | round, now(clock)) else {
                            continue;
                        };
                        made.fetch_add(1, SeqCst);
                        thread::scope(|scope| {
                            let follower =
                                (round % 8 == 0).then(|| scope.spawn(|| follow(store, key)));
                            let waiter =
                                (round % 8 == 1).then(|| scope.spawn(|| settle(store, key)));
                            for _ in 0..round % 6 {
                                let event = status(TaskState::Working);
                                store.update(key, now(clock), |edit| edit.apply(&event).is_ok());
                            }
                            let event = status(TaskState::Completed);
                            store.update(key, now(clock), |edit| edit.apply(&event).is_ok());
                            let seen = follower.and_then(|follower| follower.join().unwrap());
                            let answered = waiter.is_some_and(|waiter| waiter.join().unwrap());
                            ended.fetch_add(u64::from(seen.is_some() || answered), SeqCst);
                        });
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        is_over.store(true, SeqCst);
    });
    let (stats, made) = (store.stats(), made.load(SeqCst));
    assert!(made > 4_000 && ended.load(SeqCst) > 0);
    assert_eq!(stats.tasks + stats.evicted.iter().sum::<u64>(), made);
    assert_eq!(stats.by_state.iter().sum::<u64>(), stats.tasks);
}
