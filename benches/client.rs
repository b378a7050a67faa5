//! The cost of a client's call, compared with a bare client that writes fixed bytes and counts
//! answers.
//!
//! `cargo bench --bench client [-- CASE...]`: `ratio` is the client's CPU time for a call divided
//! by that of the bare client, the median of interleaved rounds over 16 connections; `instructions`
//! counts user-space instructions of a call, `memory` the resident bytes of an idle connection.
//! Clients are processes of their own on core 1, the server has core 0. Needs Linux, `taskset` and,
//! for instructions, `valgrind`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "support/bare_client.rs"]
mod bare_client;
#[path = "support/served.rs"]
mod served;
mod support;

use std::{
    cell::Cell,
    future::poll_fn,
    process::{Command, Stdio},
    rc::Rc,
    time::Duration,
};

use peregrine::{
    client::{
        Client, HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpVersion, SendRequest,
        Transport,
    },
    http::FieldLines,
    net::{HttpClient, HttpClientOptions},
};
use served::{Served, VALGRIND};
use support::{TEXT, call, post, send, task_id};

/// The binary's allocator, since the bench measures resident memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONNECTIONS: usize = 16;
const ROUNDS: usize = 9;

/// Idle connections for the memory measurement; a quarter as many warm the allocator.
const IDLE: usize = 10_000;

struct Case {
    name: &'static str,
    request: Vec<u8>,
    /// Calls of a slice.
    calls: usize,
    at_most: f64,
    /// A text of the answer, and how often it occurs.
    counts: &'static str,
}

fn cases(id: &str) -> Vec<Case> {
    let get = call("GetTask", &format!(r#"{{"id":"{id}"}}"#));
    let stream = send("SendStreamingMessage", "stream:100");
    let case =
        |name, request, calls, at_most, counts| Case { name, request, calls, at_most, counts };
    vec![
        case("get", post(&get), 20_000, 1.4, "HTTP/1.1 200"),
        case("send", post(&send("SendMessage", TEXT)), 20_000, 1.4, "HTTP/1.1 200"),
        case("stream_100", post(&stream), 2_000, 2.5, "\r\n0\r\n\r\n"),
    ]
}

/// Nanoseconds of CPU that this thread has used.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Runs as one of the two clients, `client-of NAME PORT ID CALLS` or `bare-of ...`, or as the
/// holder of idle connections, `idle-of PORT`.
fn be(args: &[String]) {
    if let [kind, port] = args {
        assert_eq!(kind, "idle-of");
        return println!("{}", idle_bytes(port));
    }
    let [kind, name, port, id, calls] = args else { panic!("{args:?}") };
    let (port, calls): (u16, usize) = (port.parse().unwrap(), calls.parse().unwrap());
    let spent = if kind == "bare-of" {
        let case = cases(id).into_iter().find(|case| case.name == name).unwrap();
        let mut bare = bare_client::Bare::connect(port, CONNECTIONS, &case.request, case.counts);
        bare.run(CONNECTIONS * 4);
        let before = cpu_ns();
        bare.run(calls);
        cpu_ns() - before
    } else {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let client = Client::discover(&format!("http://127.0.0.1:{port}")).await.unwrap();
            spread(&client, name, id, CONNECTIONS * 4).await;
            let before = cpu_ns();
            spread(&client, name, id, calls).await;
            cpu_ns() - before
        })
    };
    println!("{spent}");
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Resident bytes that each of [`IDLE`] connections adds, once all have had an answer.
fn idle_bytes(port: &str) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let origin = HttpOrigin::parse(&format!("http://127.0.0.1:{port}/")).unwrap().origin;
    let client = || {
        let mut options = HttpClientOptions::default();
        options.limits.pool_per_origin_max = IDLE;
        HttpClient::new(options).unwrap()
    };
    runtime.block_on(async {
        let (warm, client) = (client(), client());
        hold_idle(&warm, &origin, IDLE / 4).await;
        let before = resident_bytes();
        hold_idle(&client, &origin, IDLE).await;
        // The allocator returns freed memory to the system a second later, at the next free.
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(600)).await;
            drop(std::hint::black_box(vec![1_u8; 1 << 20]));
        }
        let grown = resident_bytes().saturating_sub(before);
        drop((warm, client));
        grown / IDLE as u64
    })
}

/// Opens connections with one request each, and reads the answers once the last one is open.
async fn hold_idle(client: &HttpClient, origin: &HttpOrigin, count: usize) {
    let mut responses = Vec::with_capacity(count);
    for _ in 0..count {
        let request = HttpRequest {
            method: HttpMethod::Get,
            origin,
            target: "/.well-known/agent-card.json",
            fields: FieldLines::NONE,
            body: b"",
            version: HttpVersion::Any,
            head_due_ms: client.now().mono_ms + 20_000,
            body_idle_ms: 20_000,
            is_repeatable: false,
        };
        responses.push(client.request(request).await.unwrap());
    }
    let mut content = Vec::new();
    for mut response in responses {
        content.clear();
        while poll_fn(|cx| response.poll_read(cx, &mut content, 1 << 16)).await.unwrap() {}
    }
}

/// Makes this many calls, from one task per connection.
async fn spread(client: &Client<HttpClient>, name: &str, id: &str, calls: usize) {
    let remaining = Rc::new(Cell::new(calls));
    let tasks = (0..CONNECTIONS).map(|_| {
        let (client, remaining) = (client.clone(), Rc::clone(&remaining));
        let (name, id) = (name.to_owned(), id.to_owned());
        tokio::task::spawn_local(async move {
            let (text, stream) = (SendRequest::text(TEXT), SendRequest::text("stream:100"));
            while let Some(less) = remaining.get().checked_sub(1) {
                remaining.set(less);
                match name.as_str() {
                    "get" => {
                        let answer = client.get_task(&id, None).await.unwrap();
                        assert!(answer.task().is_some());
                    }
                    "send" => {
                        let answer = client.send(&text).await.unwrap();
                        assert!(answer.task().is_some());
                    }
                    _ => {
                        let mut events = client.stream(&stream).await.unwrap();
                        let mut count = 0;
                        while let Some(event) = events.next().await {
                            event.unwrap();
                            count += 1;
                        }
                        assert_eq!(count, 101);
                    }
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// Runs one of the two clients, and returns its output and that of callgrind.
fn child(prefix: &[&str], words: &[&str]) -> (u64, String) {
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]).args(prefix).arg(me).args(words);
    let output = command.stdin(Stdio::null()).output().expect("taskset");
    let (stdout, log) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{log}");
    (String::from_utf8_lossy(&stdout).trim().parse().unwrap(), log)
}

fn ratios(server: &Served, id: &str, wanted: &dyn Fn(&str) -> bool) {
    let port = server.port.to_string();
    for case in cases(id).into_iter().filter(|case| wanted(case.name)) {
        let calls = case.calls.to_string();
        let cost = |kind: &str| {
            let (spent, _) = child(&[], &[kind, case.name, &port, id, &calls]);
            spent as f64 / case.calls as f64 / 1_000.0
        };
        let mut rounds: Vec<(f64, f64, f64)> = (0..ROUNDS)
            .map(|_| {
                let (bare, ours) = (cost("bare-of"), cost("client-of"));
                (ours / bare, bare, ours)
            })
            .collect();
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, bare, ours) = rounds[ROUNDS / 2];
        println!(
            "{:<12} ratio {ratio:.2} (at most {:.1}), {ours:.2} of {bare:.2} us a call, {:.2} to {:.2}",
            case.name,
            case.at_most,
            rounds[0].0,
            rounds[ROUNDS - 1].0
        );
    }
}

fn instructions(server: &Served, id: &str) {
    let port = server.port.to_string();
    let counted = |name: &str, calls: &str| {
        let (_, log) = child(&VALGRIND, &["client-of", name, &port, id, calls]);
        let line = log.lines().find(|line| line.contains("Collected :")).expect(&log);
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    for (name, few, many) in
        [("get", "500", "3500"), ("send", "500", "3500"), ("stream_100", "50", "350")]
    {
        let calls = many.parse::<u64>().unwrap() - few.parse::<u64>().unwrap();
        let spent = (counted(name, many) - counted(name, few)) / calls;
        println!("{name:<12} {spent} instructions a call");
    }
}

fn memory() {
    let server = Served::server(&[]);
    let (bytes, _) = child(&[], &["idle-of", &server.port.to_string()]);
    println!("idle connection {bytes} bytes (at most 1024), of {IDLE}");
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if args.first().is_some_and(|word| word.ends_with("-of")) {
        return be(&args);
    }
    let wanted = |name: &str| args.is_empty() || args.iter().any(|word| word == name);
    let server = Served::server(&[]);
    let id = task_id(&server.request(&post(&send("SendMessage", TEXT))));
    ratios(&server, &id, &wanted);
    if wanted("instructions") {
        instructions(&server, &id);
    }
    if wanted("memory") {
        memory();
    }
}
