//! The whole engine without sockets: from the bytes of a request to the bytes of its answer.
//!
//! `cargo bench --bench engine`. Throughput is in operations, events or delivered events.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::{
    hint::black_box,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Wake, Waker},
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use peregrine::{
    agent::{Agent, Job, Turn, echo::Echo},
    engine::Conn,
    model::{ArtifactBuf, PartsBuf, TaskEvent, TaskState},
};

use support::{CARD, NOW, Server, TEXT, call, count, post, send, task_id};

/// One case: a request, the number of its operations, and a text of its answer with its count.
struct Case {
    name: &'static str,
    request: Vec<u8>,
    operations: u64,
    answer: &'static [u8],
    times: usize,
}

fn cases(id: &str) -> Vec<Case> {
    let get = call("GetTask", &format!(r#"{{"id":"{id}"}}"#));
    let batch = format!("[{}]", vec![get.clone(); 100].join(","));
    let case = |name, request, operations, answer: &'static str, times| {
        let answer = answer.as_bytes();
        Case { name, request, operations, answer, times }
    };
    let done = "\"TASK_STATE_COMPLETED\"";
    let stream = |events| post(&send("SendStreamingMessage", &format!("stream:{events}")));
    vec![
        case("send", post(&send("SendMessage", TEXT)), 1, done, 1),
        case("get", post(&get), 1, done, 1),
        case("get_pipelined_16", post(&get).repeat(16), 16, done, 16),
        case("batch_100", post(&batch), 100, done, 100),
        case("card", CARD.to_vec(), 1, "supportedInterfaces", 1),
        case("stream_3", stream(3), 3, "\ndata: ", 4),
        // The snapshot that opens the stream is not an event of the agent.
        case("stream_100", stream(100), 100, "\ndata: ", 101),
    ]
}

fn requests(criterion: &mut Criterion) {
    let mut server = Server::new(Arc::new(Echo));
    let (mut conn, mut out) = (Conn::new(NOW), Vec::with_capacity(1 << 20));
    server.advance(&mut conn, &post(&send("SendMessage", TEXT)), Waker::noop(), &mut out);
    let id = task_id(&out);
    let mut group = criterion.benchmark_group("engine");
    for case in cases(&id) {
        group.throughput(Throughput::Elements(case.operations));
        group.bench_function(case.name, |bencher| {
            // The task to read is the newest again, whatever was evicted meanwhile.
            let (mut server, mut conn) = (Server::new(Arc::new(Echo)), Conn::new(NOW));
            server.advance(&mut conn, &post(&send("SendMessage", TEXT)), Waker::noop(), &mut out);
            assert_eq!(task_id(&out), id);
            bencher.iter(|| {
                server.advance(&mut conn, black_box(&case.request), Waker::noop(), &mut out);
            });
            let found = count(&out, case.answer);
            assert_eq!(found, case.times, "{}", String::from_utf8_lossy(&out));
        });
    }
    group.finish();
}

/// Keeps the job of its task, so that the bench decides when events come.
#[derive(Default)]
struct Held(Mutex<Option<Job>>);

impl Agent for Held {
    fn start(&self, turn: Turn<'_>) {
        *self.0.lock().unwrap() = turn.detach().ok();
    }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

const SUBSCRIBERS: usize = 1_000;
const EVENTS: usize = 100;

/// One task, its subscribers, and the job that publishes.
struct Crowd {
    server: Server,
    job: Job,
    clients: Vec<(Conn, Arc<Flag>, Waker)>,
    out: Vec<u8>,
}

impl Crowd {
    fn gather() -> Crowd {
        let agent = Arc::<Held>::default();
        let mut server = Server::new(agent.clone());
        let (mut first, mut out) = (Conn::new(NOW), Vec::with_capacity(1 << 18));
        let stream = post(&send("SendStreamingMessage", "hi"));
        server.advance(&mut first, &stream, Waker::noop(), &mut out);
        let id = task_id(&out);
        let subscribe = post(&call("SubscribeToTask", &format!(r#"{{"id":"{id}"}}"#)));
        let clients = (0..SUBSCRIBERS).map(|_| {
            let (mut conn, flag) = (Conn::new(NOW), Arc::<Flag>::default());
            let waker = Waker::from(Arc::clone(&flag));
            server.advance(&mut conn, &subscribe, &waker, &mut out);
            assert_eq!(count(&out, b"\ndata: "), 1);
            (conn, flag, waker)
        });
        let clients = clients.collect();
        let job = agent.0.lock().unwrap().take().expect("a running task");
        Crowd { server, job, clients, out }
    }

    /// Publishes a burst and lets every subscriber read it; returns the time taken.
    fn burst(&mut self, inspect: &mut dyn FnMut(&[u8])) -> Duration {
        let text = PartsBuf::new().text("a chunk of some forty bytes, as models say");
        let chunk = ArtifactBuf::new("a", &text);
        let start = Instant::now();
        for at in 0..EVENTS {
            let append = at > 0;
            let (artifact, last_chunk, metadata) = (chunk.view(), at + 1 == EVENTS, None);
            let event = TaskEvent::Artifact { artifact, append, last_chunk, metadata };
            self.job.publish(event).expect("a running task");
        }
        for (conn, flag, waker) in &mut self.clients {
            assert!(flag.0.swap(false, Relaxed), "every subscriber is woken");
            self.server.advance(conn, b"", waker, &mut self.out);
            inspect(&self.out);
        }
        start.elapsed()
    }
}

/// A burst of events of one task, written for every one of its subscribers.
fn fan_out(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fan_out");
    group.throughput(Throughput::Elements((SUBSCRIBERS * EVENTS) as u64)).sample_size(10);
    group.bench_function("1000_subscribers_100_events", |bencher| {
        // The burst that is inspected is not the burst that is timed.
        let mut inspected = Crowd::gather();
        inspected.burst(&mut |out| assert_eq!(count(out, b"\ndata: "), EVENTS));
        inspected.job.status(TaskState::Completed, None).unwrap();
        bencher.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            for _ in 0..rounds {
                let mut crowd = Crowd::gather();
                let mut bytes = 0;
                spent += crowd.burst(&mut |out| bytes += out.len());
                assert!(bytes > SUBSCRIBERS * EVENTS * 100);
                crowd.job.status(TaskState::Completed, None).unwrap();
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, requests, fan_out);
criterion_main!(benches);
