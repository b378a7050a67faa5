//! Heap allocations of the pure engine in steady state, and bytes of its store, counted by the
//! test's own allocator.
//!
//! One test runs at a time: the counter sees every thread. What grows once (scratch, slabs, indexes)
//! has grown before anything is counted, and the store is full, so that tasks replace tasks.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    alloc::System,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Wake, Waker},
};

use peregrine::{
    agent::{Agent, Job, Profile, Turn, echo::Echo},
    engine::{Conn, Cx, Engine, Setup, Start, Worker},
    limits::Limits,
    model::{ArtifactBuf, EventBuf, Generation, MessageBuf, PartsBuf, TaskEvent, TaskState},
    service::{
        AgentIndex, Entropy, Handle, Now, Peer, Scope,
        tap::{Record, Tap},
    },
    store::{NewTask, Store},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Held by the test that counts.
static COUNTING: Mutex<()> = Mutex::new(());

/// Allocations and reallocations during `work`.
fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATOR.stats();
    work();
    let spent = ALLOCATOR.stats() - before;
    spent.allocations + spent.reallocations
}

const NOW: Now = Now { mono_ms: 1, unix_ms: 1_790_000_000_000 };

struct Counter(u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        self.0
    }
}

/// Keeps the job of its task, so that the test decides when events come.
#[derive(Default)]
struct Held(Mutex<Option<Job>>);

impl Agent for Held {
    fn start(&self, turn: Turn<'_>) {
        *self.0.lock().unwrap() = turn.detach().ok();
    }
}

#[derive(Default)]
struct Rings(AtomicUsize);

impl Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

struct Server {
    engine: Arc<Engine>,
    worker: Worker,
}

impl Server {
    fn new(name: &str, agent: Arc<dyn Agent>, tasks_max: usize) -> Server {
        let limits = Limits { tasks_max, ..Limits::default() };
        let profile = Profile { name: name.to_owned(), ..Echo::profile() };
        let setup = Setup { limits, agents: vec![(profile, agent)], ..Setup::default() };
        let base_url = "http://127.0.0.1:3000".to_owned();
        let start = Start { secret: 7, unix_ms: || NOW.unix_ms, workers: 1, base_url };
        let engine = setup.build(start).unwrap();
        let worker = Worker::new(0, engine.limits(), Box::new(Counter(1)));
        Server { engine, worker }
    }

    fn advance(&mut self, client: &mut Client, input: &[u8]) {
        client.out.clear();
        let mut cx = Cx {
            engine: &self.engine,
            worker: &mut self.worker,
            now: NOW,
            wake: &client.wake,
            out: &mut client.out,
            unsent: 0,
            peer: Peer::default(),
        };
        let progress = client.conn.advance(&mut cx, input, false);
        assert_eq!(progress.consumed, input.len());
    }
}

struct Client {
    conn: Conn,
    wake: Waker,
    rings: Arc<Rings>,
    out: Vec<u8>,
}

impl Client {
    fn new() -> Client {
        let rings = Arc::<Rings>::default();
        let wake = Waker::from(Arc::clone(&rings));
        Client { conn: Conn::new(NOW), wake, rings, out: Vec::with_capacity(1 << 16) }
    }

    fn says(&self, what: &str) -> bool {
        self.out.windows(what.len()).any(|found| found == what.as_bytes())
    }

    /// The id of the task in the answer.
    fn task_id(&self) -> String {
        let text = str::from_utf8(&self.out).unwrap();
        let at = text.find("\"task\":{\"id\":\"").expect(text) + 14;
        text[at..at + 36].to_owned()
    }
}

fn post(body: &str) -> Vec<u8> {
    let length = body.len();
    let head =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n";
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

fn call(method: &str, params: &str) -> Vec<u8> {
    post(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#))
}

fn send(method: &str, text: &str) -> Vec<u8> {
    let message =
        format!(r#"{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}"#);
    call(method, &format!(r#"{{"message":{message}}}"#))
}

const CARD: &[u8] = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: a\r\n\r\n";

/// Allocations for each of many equal requests, once a few thousand have been answered.
fn per_request(server: &mut Server, request: &[u8], answer: &str) -> f64 {
    const REQUESTS: usize = 4_096;
    let mut client = Client::new();
    for _ in 0..REQUESTS {
        server.advance(&mut client, request);
    }
    let spent = allocations(|| {
        for _ in 0..REQUESTS {
            server.advance(&mut client, request);
        }
    });
    assert!(client.says(answer), "{}", String::from_utf8_lossy(&client.out));
    spent as f64 / REQUESTS as f64
}

/// Allocations while `events` chunks go to `subscribers` streams of one task.
fn fan_out(subscribers: usize, events: usize) -> usize {
    let agent = Arc::<Held>::default();
    let mut server = Server::new("held", agent.clone(), 16);
    let mut first = Client::new();
    server.advance(&mut first, &send("SendStreamingMessage", "hi"));
    let subscribe = call("SubscribeToTask", &format!(r#"{{"id":"{}"}}"#, first.task_id()));
    let mut clients: Vec<Client> = (0..subscribers).map(|_| Client::new()).collect();
    for client in &mut clients {
        server.advance(client, &subscribe);
        assert!(client.says("TASK_STATE_SUBMITTED"));
    }
    let mut job = agent.0.lock().unwrap().take().expect("a running task");
    let text = PartsBuf::new().text("a chunk of some forty bytes, as models say");
    let chunk = ArtifactBuf::new("a", &text);
    let mut publish = |server: &mut Server, events: usize| {
        for _ in 0..events {
            job.publish(TaskEvent::Artifact {
                artifact: chunk.view(),
                append: true,
                last_chunk: false,
                metadata: None,
            })
            .unwrap();
            for client in &mut clients {
                server.advance(client, b"");
                assert!(client.says("a chunk of some forty"));
            }
        }
    };
    publish(&mut server, 64);
    let spent = allocations(|| publish(&mut server, events));
    job.status(TaskState::Completed, None).unwrap();
    for client in &mut clients {
        server.advance(client, b"");
        assert!(client.says("\r\n0\r\n\r\n") && client.rings.0.load(Relaxed) >= events);
    }
    spent
}

#[test]
fn steady_state_allocations_are_bounded() {
    let _one = COUNTING.lock();
    let mut server = Server::new("echo", Arc::new(Echo), 1_024);
    let text = "Please summarise the attached quarterly numbers and tell me what grew fastest.";
    let sent = per_request(&mut server, &send("SendMessage", text), "TASK_STATE_COMPLETED");
    let mut client = Client::new();
    server.advance(&mut client, &send("SendMessage", text));
    let get = call("GetTask", &format!(r#"{{"id":"{}"}}"#, client.task_id()));
    let got = per_request(&mut server, &get, "TASK_STATE_COMPLETED");
    let card = per_request(&mut server, CARD, "supportedInterfaces");
    println!("allocations: SendMessage {sent:.3}, GetTask {got:.3}, card {card:.3}");
    // The log and the indexes of a context and an order grow by powers of two, rarely.
    assert!(sent <= 4.0, "SendMessage: {sent}");
    assert_eq!((got, card), (0.0, 0.0), "GetTask and the card");

    // The task's log grows, whoever reads it, and its list of wakers is one block for each event;
    // what grows with the readers would be work that is not shared.
    const EVENTS: usize = 512;
    let [one, many, twice] = [1, 64, 128].map(|subscribers| fan_out(subscribers, EVENTS));
    println!("allocations of {EVENTS} events: 1 subscriber {one}, 64 {many}, 128 {twice}");
    assert_eq!(many, twice, "an event for an extra subscriber");
    assert!(one <= 16 && many <= EVENTS + 16);
}

/// Numbers its records, and keeps none.
#[derive(Default)]
struct Numbers(AtomicUsize);

impl Tap for Numbers {
    fn record(&self, _: Handle, _: Record<'_>) -> u64 {
        1 + self.0.fetch_add(1, Relaxed) as u64
    }

    fn durable(&self) -> u64 {
        u64::MAX
    }

    fn wait(&self, _: u64, wake: &Waker) {
        wake.wake_by_ref();
    }
}

/// Makes a task that has ended.
fn make(store: &Store, bits: &mut Counter, context_id: Option<&[u8]>) {
    let said = MessageBuf::agent(&PartsBuf::new().text("x")).id("m");
    let new = NewTask {
        scope: Scope::of(AgentIndex(0)),
        incarnation: 0,
        context_id,
        chosen_id: None,
        bits: [bits.bits(), bits.bits()],
        worker: 0,
    };
    let reserved = store.reserve(new, NOW).unwrap();
    let none = EventBuf::default();
    store.commit_new(&reserved, Generation::V1, said.view(), &none, NOW, |_| ()).unwrap();
    let (state, at_ms) = (TaskState::Completed, NOW.unix_ms);
    let done = TaskEvent::Status { state, at_ms, message: None, metadata: None };
    store.update(reserved.key(), NOW, |edit| edit.apply(&done).unwrap());
}

/// The store is filled, and twice as many tasks take the places of others.
#[test]
fn a_store_with_a_tap_holds_no_more_beside_its_logs_than_is_counted() {
    let _one = COUNTING.lock();
    let held = || {
        let stats = ALLOCATOR.stats();
        stats.bytes_allocated - stats.bytes_deallocated
    };
    let limits = Limits { tasks_max: 10_000, ..Limits::default() };
    let terms = limits.memory_bytes_terms(1);
    let term = terms.iter().find(|(label, _)| label.contains("slots and indexes")).unwrap().1;
    for are_named in [false, true] {
        let (before, mut bits) = (held(), Counter(1));
        let store = Store::for_workers(&limits, 7, 1).tapped(Some(Arc::new(Numbers::default())));
        for _ in 0..30 {
            for _ in 0..limits.tasks_max / 10 {
                let context = bits.bits().to_le_bytes();
                make(&store, &mut bits, are_named.then_some(&context[..]));
            }
            let beside = (held() - before) as u64 - store.stats().bytes;
            assert!(beside <= term, "{beside} of {term}");
        }
        assert_eq!(store.stats().tasks, 10_000);
    }
}
