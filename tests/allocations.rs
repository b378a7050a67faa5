//! Heap allocations of the pure engine in steady state, and the bytes of its store, counted by the
//! test's own allocator.
//!
//! One test runs at a time, since the counter covers all threads. Scratch buffers, slabs and
//! indexes have grown before counting, and the store is full, so that tasks replace tasks.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(feature = "client")]
#[path = "allocations/calls.rs"]
mod calls;
#[cfg(all(feature = "client", target_os = "linux"))]
#[path = "allocations/misbehaving.rs"]
mod misbehaving;
#[cfg(feature = "client")]
#[path = "allocations/sockets.rs"]
mod sockets;

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

/// Locked by the test that counts.
static COUNTING: Mutex<()> = Mutex::new(());

/// Allocations and reallocations during `work`.
fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATOR.stats();
    work();
    let spent = ALLOCATOR.stats() - before;
    spent.allocations + spent.reallocations
}

/// The minimum of five runs: the work allocates in each run, while the test harness allocates only
/// in a run during which a test ends.
fn fewest_allocations(mut work: impl FnMut()) -> usize {
    (0..5).map(|_| allocations(&mut work)).min().unwrap_or(0)
}

const NOW: Now = Now { mono_ms: 1, unix_ms: 1_790_000_000_000 };

struct Counter(u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        self.0
    }
}

/// Keeps the job of its task, so that the test publishes the events.
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
        let start = Start { secret: 7, unix_ms: Arc::new(|| NOW.unix_ms), workers: 1, base_url };
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

    fn has_received(&self, what: &str) -> bool {
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

/// Allocations per request, after a few thousand equal requests.
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
    assert!(client.has_received(answer), "{}", String::from_utf8_lossy(&client.out));
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
        assert!(client.has_received("TASK_STATE_SUBMITTED"));
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
                assert!(client.has_received("a chunk of some forty"));
            }
        }
    };
    publish(&mut server, 64);
    let spent = allocations(|| publish(&mut server, events));
    job.status(TaskState::Completed, None).unwrap();
    for client in &mut clients {
        server.advance(client, b"");
        assert!(client.has_received("\r\n0\r\n\r\n") && client.rings.0.load(Relaxed) >= events);
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
    // The log and the indexes of a context and an order double in size, rarely.
    assert!(sent <= 4.0, "SendMessage: {sent}");
    assert_eq!((got, card), (0.0, 0.0), "GetTask and the card");

    // The task's log grows for any number of readers, and its list of wakers is one block per
    // event; further growth with the readers would be work they do not share.
    const EVENTS: usize = 512;
    let [one, many, twice] = [1, 64, 128].map(|subscribers| fan_out(subscribers, EVENTS));
    println!("allocations of {EVENTS} events: 1 subscriber {one}, 64 {many}, 128 {twice}");
    assert_eq!(many, twice, "an event for an extra subscriber");
    assert!(one <= 16 && many <= EVENTS + 16);
}

/// Numbers its records and drops them.
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

/// Creates a finished task.
fn make(store: &Store, bits: &mut Counter, context_id: Option<&[u8]>) {
    let message = MessageBuf::agent(&PartsBuf::new().text("x")).id("m");
    let new = NewTask {
        scope: Scope::of(AgentIndex(0)),
        incarnation: 0,
        context_id,
        chosen_id: None,
        bits: [bits.bits(), bits.bits()],
        worker: 0,
        share: None,
        peer: Default::default(),
    };
    let reserved = store.reserve(new, NOW).unwrap();
    let none = EventBuf::default();
    store.commit_new(&reserved, Generation::V1, message.view(), &none, NOW, |_| ()).unwrap();
    let (state, at_ms) = (TaskState::Completed, NOW.unix_ms);
    let done = TaskEvent::Status { state, at_ms, message: None, metadata: None };
    store.update(reserved.key(), NOW, |edit| edit.apply(&done).unwrap());
}

/// The store is filled, then twice as many tasks replace others.
#[test]
fn store_with_a_tap_stays_within_its_memory_estimate() {
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
            let other_bytes = (held() - before) as u64 - store.stats().bytes;
            assert!(other_bytes <= term, "{other_bytes} of {term}");
        }
        assert_eq!(store.stats().tasks, 10_000);
    }
}

/// Both sides of one connection without sockets: requests, answers with a length and in chunks,
/// events, and frames of WebSocket.
#[cfg(feature = "client")]
#[test]
fn client_http_sse_and_websocket_exchange_allocates_nothing() {
    use peregrine::{
        client::{
            ClientLimits, HttpMethod, HttpOrigin, HttpRequest, HttpVersion,
            http1::{Http1Connection, Http1Event, ResponseBuf},
        },
        http::{FieldLinesBuf, client::RequestHead},
        sse::SseParser,
        ws::{OpCode, Reader, ReaderRules, WsEvent, client, finish},
    };

    let _one = COUNTING.lock();
    let origin = HttpOrigin::parse("http://h/").unwrap().origin;
    let mut fields = FieldLinesBuf::default();
    fields.push("Content-Type", "application/json");
    let request = HttpRequest {
        method: HttpMethod::Post,
        origin: &origin,
        target: "/",
        fields: fields.get(),
        body: b"{}",
        version: HttpVersion::Any,
        head_due_ms: 0,
        body_idle_ms: 0,
        is_repeatable: false,
    };
    let limits = ClientLimits::default().of_response();
    let plain = "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 2\r\n\r\n{}";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        15\r\nid: 7\ndata: {\"a\":1}\n\n\r\n0\r\nX: y\r\n\r\n";
    let (mut http1, mut response) = (Http1Connection::default(), ResponseBuf::default());
    let (mut head, mut out, mut body) = (RequestHead::default(), Vec::new(), Vec::new());
    let mut exchange = |wire: &str| {
        out.clear();
        body.clear();
        http1.begin(&request, false, &mut head, &mut out).unwrap();
        http1.sent();
        let mut rest = wire.as_bytes();
        loop {
            let step = http1.advance(rest, &mut response, &mut body, 1024, &limits).unwrap();
            rest = &rest[step.consumed..];
            match step.event {
                Http1Event::More => panic!("{rest:?}"),
                Http1Event::Head => assert_eq!(response.head().status(), 200),
                Http1Event::End { is_reusable } => {
                    assert!(is_reusable);
                    break;
                }
            }
        }
        body.len()
    };
    let mut events = SseParser::new(1024);
    let mut event = || {
        let stream = b"id: 7\ndata: {\"a\":1}\n\n: keep-alive\n\n";
        let step = events.advance(stream).unwrap();
        assert_eq!(
            step.event.map(|event| (event.data, event.id)),
            Some((&b"{\"a\":1}"[..], &b"7"[..]))
        );
        let ate = step.ate;
        assert_eq!(events.advance(&stream[ate..]).unwrap().event, None);
    };
    let (mut reader, mut frames, mut scratch) = (Reader::default(), Vec::new(), Vec::new());
    let rules =
        ReaderRules { frame_bytes_max: 99, message_bytes_max: 99, binary: false, masked: false };
    let mut message = || {
        frames.clear();
        let mark = client::begin(&mut frames);
        frames.extend_from_slice(b"{}");
        client::finish(&mut frames, mark, OpCode::Text, [1, 2, 3, 4]);
        frames.clear();
        let mark = peregrine::ws::begin(&mut frames);
        frames.extend_from_slice(b"[]");
        finish(&mut frames, mark, OpCode::Text);
        let read = reader.advance(&frames, &mut scratch, &rules);
        assert_eq!((read, &scratch[..]), (Ok((4, WsEvent::Text)), &b"[]"[..]));
    };
    let mut all = || {
        assert_eq!((exchange(plain), exchange(chunked)), (2, 21));
        event();
        message();
    };
    all();
    assert_eq!(fewest_allocations(|| (0..64).for_each(|_| all())), 0);
}

/// The calls a client writes and the answers it reads: sends, gets, events, in each generation.
#[cfg(feature = "client")]
#[test]
fn writing_calls_and_reading_answers_allocates_nothing() {
    use peregrine::{
        client::{
            Binding, CallId, Format, FormatBuffers, ReplyHead, WrittenCall, format::push_json,
        },
        model::{Get, Op, OutgoingCall, RawText, Received, ReceivedKind, Send, SendMode},
    };

    let _one = COUNTING.lock();
    let user_message = MessageBuf::user(&PartsBuf::new().text("hello")).id("m-1");
    let send = Send {
        has_own_id: true,
        message: user_message.view(),
        task_id: None,
        client_chooses_id: false,
        context_id: None,
        mode: SendMode::Wait,
        history: None,
        accepted_output_modes: None,
        metadata: None,
        push: None,
        generation: Generation::V1,
    };
    let id = RawText::parse("t-1").unwrap();
    let calls = [
        OutgoingCall::Send(send),
        OutgoingCall::Get(Get { id, context_id: None, history: None, wait: None }),
    ];
    let message =
        r#"{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"x"}]}"#;
    let task = |kind: &str| {
        format!(
            r#"{{{kind}"id":"t-1","contextId":"c","status":{{"state":"completed","message":{message}}},"artifacts":[{{"artifactId":"a","parts":[{{"kind":"text","text":"x"}}]}}],"history":[{message}],"metadata":{{"k":1}}}}"#
        )
    };
    let rpc = |result: String| format!(r#"{{"jsonrpc":"2.0","id":"7","result":{result}}}"#);
    let answers = [rpc(format!(r#"{{"task":{}}}"#, task(""))), rpc(task(r#""kind":"task","#))];
    let items = [
        rpc(r#"{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"working"}}}"#.into()),
        rpc(r#"{"kind":"artifact-update","taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"x"}]}}"#.into()),
        rpc(format!(r#"{{"message":{message}}}"#)),
    ];
    let (mut written, mut received) = (WrittenCall::default(), Received::new());
    let (mut buffers, mut json) = (FormatBuffers::default(), Vec::new());
    let head = ReplyHead { status: 200, content_type: Some(b"application/json") };
    let mut round = || {
        for generation in [Generation::V1, Generation::V03] {
            let format = Format::standard(Binding::JsonRpc, generation);
            for call in &calls {
                format.write(call, 7, None, &mut written).unwrap();
            }
            for answer in &answers {
                let body = answer.as_bytes();
                format
                    .read_reply(
                        &mut buffers,
                        CallId { op: Op::Send, rpc_id: 7 },
                        head,
                        body,
                        &mut received,
                    )
                    .unwrap();
                json.clear();
                push_json(&mut json, &received, Op::Send);
                assert_eq!(received.kind(), ReceivedKind::Task);
            }
            for item in &items {
                format.read_item(&mut buffers, 7, item.as_bytes(), false, &mut received).unwrap();
                assert_ne!(received.kind(), ReceivedKind::Nothing);
            }
        }
    };
    round();
    let spent = fewest_allocations(|| (0..100).for_each(|_| round()));
    assert_eq!(spent, 0, "allocations in 100 rounds");
}
