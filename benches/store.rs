//! The store: creating, reading, following and listing tasks, small and full.
//!
//! `cargo bench --bench store`. The case of a million tasks needs about 1 GiB, is filled once, and
//! is compared with a thousand in turns; `-- make` and the like omit it.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::{
    cell::OnceCell,
    hint::black_box,
    task::Waker,
    time::{Duration, Instant},
};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use peregrine::{
    limits::Limits,
    model::{EventBuf, Generation, List, MessageBuf, PartsBuf, TaskEvent, TaskState},
    service::{AgentIndex, Cursor, Follow, Now, Scope},
    store::{NewTask, Store, TaskKey},
};

const AGENT: Scope = Scope::of(AgentIndex(0));
const TEXT: &str = "Please summarise the attached quarterly numbers and tell me what grew.";
const PAGE: u32 = 50;

fn now(at: u64) -> Now {
    Now { mono_ms: at, unix_ms: 1_790_000_000_000 + at }
}

struct Maker {
    store: Store,
    message: MessageBuf,
    events: EventBuf,
    bits: u128,
}

impl Maker {
    fn new(tasks_max: usize) -> Maker {
        let limits = Limits { tasks_max, ..Limits::default() };
        let message = MessageBuf::agent(&PartsBuf::new().text(TEXT)).id("0123456789abcdef");
        let mut events = EventBuf::default();
        let (state, at_ms) = (TaskState::Completed, now(0).unix_ms);
        events.push(&TaskEvent::Status { state, at_ms, message: None, metadata: None });
        Maker { store: Store::new(&limits, 5), message, events, bits: 1 }
    }

    /// Makes a task in a context of its own, completed if `is_done`.
    fn make(&mut self, is_done: bool) -> TaskKey {
        self.bits = self.bits.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645) + 1;
        let context = self.bits.to_le_bytes().map(|byte| b'a' + byte % 26);
        let new = NewTask {
            scope: AGENT,
            incarnation: 0,
            context_id: Some(&context),
            chosen_id: None,
            bits: [self.bits; 2],
            worker: 0,
            share: None,
            peer: Default::default(),
        };
        let now = now(self.bits as u64 % 8);
        let reserved = self.store.reserve(new, now).expect("room");
        let key = reserved.key();
        let none = EventBuf::default();
        let events = if is_done { &self.events } else { &none };
        let made = self.store.commit_new(
            &reserved,
            Generation::V1,
            self.message.view(),
            events,
            now,
            |task| task.state(),
        );
        let expected = if is_done { TaskState::Completed } else { TaskState::Submitted };
        assert_eq!(made, Ok(expected));
        key
    }

    fn filled(tasks: usize) -> Maker {
        let mut maker = Maker::new(1 << 20);
        for _ in 0..tasks {
            maker.make(true);
        }
        assert_eq!(maker.store.stats().tasks, tasks as u64);
        maker
    }

    /// Reads the first page; returns the number of its tasks and the total.
    fn page(&self) -> (u32, u64) {
        let list = List { page_size: Some(PAGE), ..List::default() };
        let mut shown = 0;
        let page = self.store.list(AGENT, black_box(&list), 0, &mut |view| {
            shown += u32::from(!black_box(view.id()).is_empty());
        });
        (shown, page.unwrap().total)
    }
}

fn status(state: TaskState) -> TaskEvent<'static> {
    TaskEvent::Status { state, at_ms: now(0).unix_ms, message: None, metadata: None }
}

fn tasks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("store");
    group.throughput(Throughput::Elements(1));
    // The store is full: each new task evicts the one that ended first.
    let mut maker = Maker::new(10_000);
    for _ in 0..20_000 {
        maker.make(true);
    }
    group.bench_function("make_and_evict", |bencher| bencher.iter(|| maker.make(true)));
    let stats = maker.store.stats();
    assert!(stats.tasks == 10_000 && stats.evicted.iter().sum::<u64>() >= 10_000);

    let key = maker.make(true);
    let id = maker.store.read(key, |task| task.id().to_vec()).unwrap();
    group.bench_function("read_by_id", |bencher| {
        bencher.iter(|| {
            let seq = maker.store.read_id(AGENT, black_box(&id), |_, task| task.seq());
            assert_eq!(seq, Some(2));
        });
    });
    group.bench_function("read_no_such_id", |bencher| {
        let mut wrong = id.clone();
        wrong[30] ^= 1;
        bencher.iter(|| assert!(maker.store.find(AGENT, black_box(&wrong)).is_none()));
    });
    let running = maker.make(false);
    group.bench_function("update", |bencher| {
        bencher.iter(|| {
            let event = status(TaskState::Working);
            let applied = maker.store.update(running, now(0), |edit| edit.apply(&event).is_ok());
            assert_eq!(applied, Some(true));
        });
    });
    group.finish();
}

/// A stream's read of a task that has a hundred events.
fn following(criterion: &mut Criterion) {
    let mut maker = Maker::new(16);
    let key = maker.make(false);
    for _ in 0..99 {
        let event = status(TaskState::Working);
        maker.store.update(key, now(0), |edit| edit.apply(&event).map(drop)).unwrap().unwrap();
    }
    let start = Cursor { handle: key.handle(), ends_at_input: true, ..Cursor::default() };
    let mut group = criterion.benchmark_group("store");
    group.throughput(Throughput::Elements(100));
    group.bench_function("follow_100_events", |bencher| {
        bencher.iter_batched_ref(
            || start.clone(),
            |cursor| {
                let mut events = 0;
                let follow = maker.store.follow(cursor, Waker::noop(), &mut |_| {
                    events += 1;
                    true
                });
                assert_eq!((follow, events), (Follow::Pending, 100));
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn pages(criterion: &mut Criterion) {
    const SIZES: [usize; 2] = [1_000, 1_000_000];
    let stores = [const { OnceCell::new() }; 2];
    let store = |at: usize| -> &Maker { stores[at].get_or_init(|| Maker::filled(SIZES[at])) };
    let mut group = criterion.benchmark_group("list_page");
    group.throughput(Throughput::Elements(PAGE.into()));
    for (at, size) in SIZES.into_iter().enumerate() {
        group.bench_function(format!("of_{size}_tasks"), |bencher| {
            let maker = store(at);
            bencher.iter(|| assert_eq!(maker.page(), (PAGE, size as u64)));
        });
    }
    group.finish();
    if let [Some(few), Some(many)] = stores.each_ref().map(OnceCell::get) {
        print_ratio(few, many);
    }
}

/// The fastest of many interleaved rounds: other load on the machine slows both.
fn print_ratio(few: &Maker, many: &Maker) {
    let time = |maker: &Maker| {
        let start = Instant::now();
        for _ in 0..20 {
            black_box(maker.page());
        }
        start.elapsed() / 20
    };
    let mut best = [Duration::MAX; 2];
    for _ in 0..200 {
        best[0] = best[0].min(time(few));
        best[1] = best[1].min(time(many));
    }
    let ratio = best[1].as_secs_f64() / best[0].as_secs_f64();
    println!(
        "list_page: {:?} of 1,000 tasks, {:?} of 1,000,000: {ratio:.2} times",
        best[0], best[1]
    );
}

criterion_group!(benches, tasks, following, pages);
criterion_main!(benches);
