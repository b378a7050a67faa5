//! The whole server over loopback, compared with a floor that answers any request with fixed bytes.
//!
//! `cargo bench --bench server [-- CASE...]`: `ratio` is the floor's CPU time for a request divided
//! by the server's, the median of interleaved rounds; `memory`, `instructions` and `switches` print
//! bytes and counts. CPU time is read from schedstat, so a busy neighbour moves it little; the
//! server has core 0, the load core 1. Needs Linux, `taskset` and, for instructions, `valgrind`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/floor.rs"]
mod floor;
#[path = "support/load.rs"]
mod load;
#[path = "support/served.rs"]
mod served;
mod support;

use std::{
    fs,
    io::{Read, Write},
};

use load::Load;
use served::Served;
use support::{CARD, TEXT, call, count, post, send, task_id};

const ROUNDS: usize = 7;

/// A case: the request, the number of connections, the concurrent requests, and the ratio to reach.
struct Case {
    name: &'static str,
    request: Vec<u8>,
    connections: usize,
    depth: usize,
    at_least: f64,
    /// A text of the answer, and its count.
    holds: (&'static str, usize),
    /// Turns before the first round, and rounds.
    turns: usize,
    rounds: usize,
}

impl Case {
    fn load(&self, served: &Served, answer_bytes: usize) -> Load {
        Load::new(served, self.connections, self.depth, &self.request, answer_bytes)
    }
}

/// Turns of four large bodies that fill the store.
const FILL: usize = 320;
/// Turns of sixteen small messages that make more tasks than `tasks_max`.
const FILL_SMALL: usize = 70_000;

fn cases(id: &str) -> Vec<Case> {
    let get = call("GetTask", &format!(r#"{{"id":"{id}"}}"#));
    let batch = format!("[{}]", vec![get.clone(); 100].join(","));
    let stream = send("SendStreamingMessage", "stream:3");
    let large = send("SendMessage", &"x".repeat((1 << 20) - 200));
    let case = |name, request, at_least, holds| {
        let (connections, depth, turns, rounds) = (16, 1, 1, ROUNDS);
        Case { name, request, connections, depth, at_least, holds, turns, rounds }
    };
    let done = "TASK_STATE_COMPLETED";
    let pipelined = case("get_pipelined_16", post(&get), 0.50, (done, 1));
    let filling = case("body_1MiB_filling", post(&large), 0.45, (done, 1));
    let full = case("send_full", post(&send("SendMessage", TEXT)), 0.75, (done, 1));
    let body = case("body_1MiB", post(&large), 0.45, (done, 1));
    vec![
        case("send", post(&send("SendMessage", TEXT)), 0.75, (done, 1)),
        case("get", post(&get), 0.85, (done, 1)),
        case("card", CARD.to_vec(), 0.93, ("supportedInterfaces", 1)),
        Case { depth: 16, ..pipelined },
        case("batch_100", post(&batch), 0.35, (done, 100)),
        case("stream_3", post(&stream), 0.70, ("\ndata: ", 4)),
        Case { connections: 4, rounds: 3, ..filling },
        Case { connections: 4, turns: FILL, ..body },
        Case { turns: FILL_SMALL, ..full },
    ]
}

fn ratios(server: &Served, wanted: &dyn Fn(&str) -> bool) {
    let id = task_id(&server.request(&post(&send("SendMessage", TEXT))));
    for case in cases(&id).into_iter().filter(|case| wanted(case.name)) {
        let answer = server.request(&case.request);
        let found = count(&answer, case.holds.0.as_bytes());
        assert_eq!(found, case.holds.1, "{}: {}", case.name, String::from_utf8_lossy(&answer));
        let floor = floor::start(case.request.len(), answer.len());
        let load = |served| case.load(served, answer.len());
        let [mut below, mut ours] = [&floor, server].map(load);
        below.turn();
        for _ in 0..case.turns {
            ours.turn();
        }
        let mut rounds: Vec<(f64, f64)> =
            (0..case.rounds).map(|_| (below.slice(&floor), ours.slice(server))).collect();
        rounds.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        let (below, ours) = rounds[case.rounds / 2];
        let (ratio, most) = (below / ours, case.at_least);
        let [below, ours] = [below, ours].map(|ns| ns / 1_000.0);
        let name = case.name;
        println!(
            "{name:18} ratio {ratio:.2} (at least {most:.2}); floor {below:.2} us, server {ours:.2} us"
        );
    }
}

/// The bytes of resident memory that each of `count` calls of `hold` adds.
fn growth<T>(server: &Served, count: usize, hold: &mut dyn FnMut(usize) -> T) -> f64 {
    let warm: Vec<T> = (0..count / 4).map(&mut *hold).collect();
    let before = server.resident_bytes();
    let held: Vec<T> = (0..count).map(hold).collect();
    let grown = server.resident_bytes().saturating_sub(before);
    drop((warm, held));
    grown as f64 / count as f64
}

fn memory() {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let files: usize = files.split_whitespace().nth(3).unwrap().parse().unwrap_or(1 << 20);
    let connections = (files.saturating_sub(64) * 4 / 5).min(8_000);

    let server = Served::server(&[]);
    let one = post(&send("SendMessage", TEXT));
    let length = server.request(&one).len();
    let (mut stream, mut answer) = (server.connect(), vec![0; length]);
    let bytes = growth(&server, 200_000, &mut |_| {
        stream.write_all(&one).unwrap();
        stream.read_exact(&mut answer).unwrap();
    });
    println!("stored echo task   {bytes:.0} bytes (at most 1126)");

    let server = Served::server(&[]);
    let mut buffer = vec![0; 1 << 16];
    let bytes = growth(&server, connections, &mut |_| {
        let mut stream = server.connect();
        stream.write_all(CARD).unwrap();
        assert!(stream.read(&mut buffer).unwrap() > 0);
        stream
    });
    println!("idle connection    {bytes:.0} bytes (at most 1024), of {connections}");

    let server = Served::server(&[]);
    let mut first = server.connect();
    first.write_all(&post(&send("SendStreamingMessage", "hold:600000:2"))).unwrap();
    let length = first.read(&mut buffer).unwrap();
    let id = task_id(&buffer[..length]);
    let subscribe = post(&call("SubscribeToTask", &format!(r#"{{"id":"{id}"}}"#)));
    let bytes = growth(&server, connections, &mut |_| {
        let mut stream = server.connect();
        stream.write_all(&subscribe).unwrap();
        let length = stream.read(&mut buffer).unwrap();
        assert_eq!(count(&buffer[..length], b"\ndata: "), 1);
        stream
    });
    println!("held stream        {bytes:.0} bytes (at most 2048), of {connections}");
}

/// Switches of the binary that add work to each GetTask: a name, variables of the environment, and
/// flags.
const SWITCHES: [(&str, &[&str], &[&str]); 4] = [
    ("defaults", &[], &[]),
    ("metrics_off", &["env", "PEREGRINE_METRICS_ENABLED=false"], &[]),
    ("access_log_100", &[], &["--access-log=100"]),
    ("access_log_1", &[], &["--access-log=1"]),
];

/// User-space instructions of the whole server for each request: two runs, subtracted.
fn instructions() {
    for (name, ceiling) in [("send", 10_450), ("get", 6_530), ("card", 3_010)] {
        let each = counted(name, &[], &[]);
        println!("{name:18} {each} instructions (at most {ceiling})");
    }
}

/// The same for a GetTask under each of [`SWITCHES`].
fn switches() {
    for (name, variables, flags) in SWITCHES {
        println!("{name:18} {} instructions", counted("get", variables, flags));
    }
}

/// Instructions of a request of a case, of a server with these variables and flags.
fn counted(name: &str, variables: &[&str], flags: &[&str]) -> u64 {
    let prefix = [variables, &served::VALGRIND[..]].concat();
    let run = |requests: u64| -> (u64, u64) {
        let server = Served::program_with(served::SERVER, &prefix, flags);
        let id = task_id(&server.request(&post(&send("SendMessage", TEXT))));
        let case = cases(&id).into_iter().find(|case| case.name == name).unwrap();
        let length = server.request(&case.request).len();
        let mut load = case.load(&server, length);
        let mut done = 0;
        while done < requests {
            done += load.turn();
        }
        drop(load);
        (done, server.end_counted())
    };
    let ((few, before), (many, after)) = (run(500), run(3_500));
    (after - before) / (many - few)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if floor::is_requested(&args) {
        return;
    }
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    served::pin_load();
    if cases("").iter().any(|case| wanted(case.name)) {
        ratios(&Served::server(&[]), &wanted);
    }
    if wanted("memory") {
        memory();
    }
    if wanted("instructions") {
        instructions();
    }
    if wanted("switches") {
        switches();
    }
}
