//! Thousands of faults at one server, mixed and several at a time.
//!
//! Invariants: each call ends, each task reaches a terminal state, and afterwards the process has
//! as many descriptors and threads as before, no call of an upstream and no process remains, its
//! memory has stopped growing, and it has not panicked.

#[cfg(feature = "gateway")]
mod frames;
#[cfg(feature = "gateway")]
mod functions;
#[cfg(feature = "exec")]
mod processes;
#[cfg(feature = "gateway")]
mod restarts;
#[cfg(feature = "gateway")]
mod upstream;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use serde_json::{Value, json};

use crate::support::{
    ask::{OutgoingMessage, V1, get, post, rpc, say},
    binary::{Binary, Tcp, eventually},
    reply::{Event, Reply},
};

/// Concurrent calls.
const CALLERS: usize = 12;
/// Rounds of a soak: the memory after the second one is compared with that after the last one.
const ROUNDS: usize = 4;
/// Faults that fill the store; until then, its tasks account for the memory growth.
const STORE_FULL: usize = 1_000;
/// Limits under which the tasks of that many upstream faults fill it.
#[cfg(feature = "gateway")]
const SMALL_STORE: [&str; 3] =
    ["task_bytes_max=2_097_152", "store_bytes_max=32M", "tasks_max=1000"];
/// The allowed memory growth between the two rounds: the pages that an allocator retains.
const GROWTH_KIB_MAX: u64 = 16 * 1024;

/// Connections to one origin that a client keeps (`pool_per_origin_max`).
#[cfg(feature = "gateway")]
const POOL_MAX: usize = 32;

/// The message for a task that waits for input: the client does not leave it, since nothing else
/// would end it.
pub const INPUT_REQUIRED: &str = "ask";

/// A fault, the word by which a message requests it, and how its call may end: with a state, or
/// with an `error`.
pub struct FaultCase {
    pub word: &'static str,
    pub ends: &'static [&'static str],
}

pub const COMPLETED: &[&str] = &["COMPLETED"];
pub const FAILED: &[&str] = &["FAILED"];
#[cfg(feature = "gateway")]
pub const ERROR: &[&str] = &["error"];

/// What a client does while the fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Waits for the task.
    Send,
    /// Reads the stream to its end.
    Stream,
    /// Disconnects when a stream has begun.
    Leave,
    /// Cancels the task when its stream has begun, and reads on to the end.
    Cancel,
    /// Reads nothing of a stream, and disconnects.
    Narrow,
    /// Subscribes to the task of a stream, and drops the stream.
    Subscribe,
}

const WAYS: [Way; 6] =
    [Way::Send, Way::Stream, Way::Leave, Way::Cancel, Way::Narrow, Way::Subscribe];

/// A server in which the faults must leave nothing behind.
pub struct Soak<'s> {
    pub server: &'s SoakedServer,
    /// The first one is not a fault: its call completes.
    pub faults: &'s [FaultCase],
    /// Descriptors that may remain: connections pooled for the next call.
    pub pooled_max: usize,
    /// Processes that may remain: children of the server, and processes with `marker`.
    pub processes_max: usize,
    /// Runs meanwhile, over and over.
    pub meanwhile: Option<&'s (dyn Fn() + Sync)>,
    /// An argument that only processes of the soak have, if any.
    pub marker: &'s str,
}

/// A server, and the file with its stderr.
pub struct SoakedServer {
    binary: Binary,
    log: PathBuf,
}

impl SoakedServer {
    /// Starts one with these flags; `name` is the name of the file.
    pub fn start(name: &str, flags: &[&str]) -> SoakedServer {
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let stderr = File::create(&log).expect("a file");
        SoakedServer { binary: Binary::start_with(flags, stderr.into()), log }
    }
}

impl Soak<'_> {
    /// Makes `count` faults, and checks that they left nothing behind.
    pub fn run(&self, count: usize) {
        self.completes();
        let binary = &self.server.binary;
        let (before, threads) = (entries(binary, "fd"), entries(binary, "task"));
        let mut memory = Vec::new();
        for round in 0..ROUNDS {
            let (first, end) = (count * round / ROUNDS, count * (round + 1) / ROUNDS);
            self.round(first, end);
            self.assert_settled(before);
            eventually(&format!("{threads} threads again"), || entries(binary, "task") <= threads);
            memory.push(kilobytes(binary));
        }
        let grown = memory[ROUNDS - 1].saturating_sub(memory[1]);
        eprintln!("{count} faults: {before} descriptors, {memory:?} KiB after each round");
        if count >= STORE_FULL {
            assert!(grown <= GROWTH_KIB_MAX, "grown by {grown} KiB: {memory:?}");
        }
        self.completes();
        let log = fs::read_to_string(&self.server.log).expect("a log");
        assert!(!log.contains("panicked"), "{}", self.server.log.display());
    }

    /// The first call may meet a program that has hung since its task was canceled.
    fn completes(&self) {
        eventually("a good call completes", || {
            call(&self.server.binary, self.faults[0].word, Way::Send).as_deref()
                == Some("COMPLETED")
        });
    }

    /// The faults with these numbers.
    fn round(&self, first: usize, end: usize) {
        let next = AtomicUsize::new(first);
        let callers = Arc::new(());
        thread::scope(|scope| {
            for _ in 0..CALLERS {
                let (next, caller) = (&next, Arc::clone(&callers));
                scope.spawn(move || {
                    let _caller = caller;
                    while let Some(number) = Some(next.fetch_add(1, Relaxed)).filter(|n| *n < end) {
                        let fault = &self.faults[number % self.faults.len()];
                        let way = match WAYS[number / self.faults.len() % WAYS.len()] {
                            Way::Leave | Way::Narrow | Way::Subscribe
                                if fault.word == INPUT_REQUIRED =>
                            {
                                Way::Send
                            }
                            way => way,
                        };
                        let Some(ended) = call(&self.server.binary, fault.word, way) else {
                            continue;
                        };
                        let is_canceled = way == Way::Cancel && ended == "CANCELED";
                        assert!(
                            is_canceled || fault.ends.contains(&&*ended),
                            "{} by {way:?} ended as {ended}",
                            fault.word
                        );
                    }
                });
            }
            while let Some(meanwhile) = self.meanwhile.filter(|_| Arc::strong_count(&callers) > 1) {
                meanwhile();
            }
        });
    }

    /// Waits until nothing runs.
    fn assert_settled(&self, before: usize) {
        for state in ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED"] {
            let state = format!("TASK_STATE_{state}");
            let is_empty = || self.count_of(&state) == 0;
            eventually(&format!("no task is {state}"), is_empty);
        }
        let (server, pooled_max) = (&self.server.binary, self.pooled_max);
        eventually(&format!("{before} descriptors again, and {pooled_max}"), || {
            entries(server, "fd") <= before + pooled_max
        });
        eventually("no upstream is called", || self.upstream_calls() == 0);
        eventually("the processes are gone", || self.processes() <= self.processes_max);
    }

    /// The number of processes that are children of the server, zombies included, or have the
    /// marker.
    fn processes(&self) -> usize {
        let parent = self.server.binary.pid().to_string();
        let all = fs::read_dir("/proc").expect("the processes").flatten();
        all.filter(|entry| {
            // A process may have ended meanwhile.
            let read = |name| fs::read(entry.path().join(name)).unwrap_or_default();
            let stat = String::from_utf8_lossy(&read("stat")).into_owned();
            let fields = stat.rsplit(") ").next().unwrap_or_default();
            let is_child = fields.split(' ').nth(1) == Some(&*parent);
            let marker = self.marker.as_bytes();
            is_child || read("cmdline").split(|byte| *byte == 0).any(|word| word == marker)
        })
        .count()
    }

    /// Calls that wait for an upstream, and answers that are followed.
    fn upstream_calls(&self) -> u64 {
        let mut line = self.server.binary.connect();
        line.write(&get("/metrics"));
        let reply = line.reply();
        let gauges = ["queued{", "outstanding{", "streams{"];
        let lines =
            reply.text().lines().filter_map(|line| line.strip_prefix("peregrine_upstream_"));
        let counts = lines.filter(|line| gauges.iter().any(|gauge| line.starts_with(gauge)));
        let number = |line: &str| line.rsplit(' ').next().expect("a number").parse::<u64>();
        counts.map(|line| number(line).expect(line)).sum()
    }

    /// How many tasks are in a state.
    fn count_of(&self, state: &str) -> u64 {
        let mut line = self.server.binary.connect();
        line.write(&request("ListTasks", &json!({"status": state, "pageSize": 1})));
        whole(line).result()["totalSize"].as_u64().expect("a number")
    }
}

/// Makes `count` faults of the upstream of one agent, given in the form of `--agent`.
#[cfg(feature = "gateway")]
fn soak_upstream(name: &str, agent: &str, faults: &[FaultCase], count: usize) {
    soak_while(name, agent, faults, count, None);
}

/// The same while `meanwhile` runs over and over.
#[cfg(feature = "gateway")]
fn soak_while(
    name: &str,
    agent: &str,
    faults: &[FaultCase],
    count: usize,
    meanwhile: Option<&(dyn Fn() + Sync)>,
) {
    let limits = SMALL_STORE.iter().flat_map(|limit| ["--limit", limit]);
    let flags: Vec<&str> = ["--agent", agent].into_iter().chain(limits).collect();
    let server = &SoakedServer::start(&format!("soak-{name}-{count}"), &flags);
    let (pooled_max, processes_max, marker) = (POOL_MAX, 0, "none");
    let soak = Soak { server, faults, pooled_max, processes_max, meanwhile, marker };
    soak.run(count);
}

/// A request with `Connection: close`.
fn request(method: &str, params: &Value) -> Vec<u8> {
    post("/", &[("A2A-Version", "1.0"), ("Connection", "close")], &rpc(method, params))
}

/// The whole reply.
fn whole(mut line: Tcp) -> Reply {
    let bytes = line.read_to_end();
    Reply::parse(&bytes, false, true).expect("a response").0
}

/// Sends a message, and returns the state in which its task ended, or `error`; `None`: the client
/// has disconnected before.
fn call(server: &Binary, word: &str, way: Way) -> Option<String> {
    let method = if way == Way::Send { V1.send() } else { V1.stream() };
    let mut line = if way == Way::Narrow { server.connect_narrow() } else { server.connect() };
    line.write(&request(method, &V1.params(say(word))));
    match way {
        Way::Send | Way::Stream => {}
        Way::Leave | Way::Narrow => {
            if way == Way::Leave {
                line.read();
            }
            return None;
        }
        Way::Cancel => {
            if let Some(id) = begun(&mut line) {
                let mut other = server.connect();
                other.write(&request(V1.cancel(), &json!({ "id": id })));
                // It may have ended already.
                assert_eq!(whole(other).status, 200);
            }
        }
        Way::Subscribe => {
            if let Some(id) = begun(&mut line) {
                let mut other = server.connect();
                other.write(&request(V1.subscribe(), &json!({ "id": id })));
                drop(line);
                let reply = whole(other);
                // It may have ended already.
                let has_ended = reply.field("content-type") != Some("text/event-stream");
                return Some(if has_ended { state_of(server, &id) } else { end_of(&reply) });
            }
        }
    }
    let reply = whole(line);
    match end_of(&reply) {
        end if end == "INPUT_REQUIRED" => Some(answer(server, &reply)),
        end => Some(end),
    }
}

/// Answers a task that waits for input until it has ended; where its agent cannot be reached, that
/// may take several messages.
fn answer(server: &Binary, reply: &Reply) -> String {
    let last = last_response(reply);
    let result = &last["result"];
    let id = result.pointer("/task/id").or(result.pointer("/statusUpdate/taskId"));
    let id = id.expect("a task").clone();
    let mut end = String::new();
    eventually("a task that waits for input ends", || {
        let mut line = server.connect();
        let message = OutgoingMessage { task: id.as_str(), ..say("1") };
        line.write(&request(V1.send(), &V1.params(message)));
        end = end_of(&whole(line));
        if end == "error" {
            // Its cancel may have come first.
            end = state_of(server, &id);
        }
        ["COMPLETED", "FAILED", "CANCELED"].contains(&&*end)
    });
    end
}

/// The state of a task.
fn state_of(server: &Binary, id: &Value) -> String {
    let mut line = server.connect();
    line.write(&request(V1.get(), &json!({ "id": id })));
    end_of(&whole(line))
}

/// The id of the task that a stream begins with; `None`: it begins with something else.
fn begun(line: &mut Tcp) -> Option<Value> {
    loop {
        if let Some(reply) = line.peek() {
            if reply.field("content-type") != Some("text/event-stream") {
                return None;
            }
            let mut blocks = reply.text().split_inclusive("\n\n");
            // If the agent is slow, a comment comes first.
            let first = blocks.find(|block| !block.starts_with(':') && block.ends_with("\n\n"));
            if let Some(first) = first {
                let data = Event::parse(first.trim_end()).data;
                return Some(data["result"]["task"]["id"].clone());
            }
        }
        if !line.read() {
            return None;
        }
    }
}

/// The JSON-RPC response, or the one in the last event.
fn last_response(reply: &Reply) -> Value {
    match reply.field("content-type") {
        Some("text/event-stream") => reply.events().pop().expect("an event").data,
        _ => reply.json(),
    }
}

/// The last state of a response, or `error`.
fn end_of(reply: &Reply) -> String {
    let last = last_response(reply);
    let result = &last["result"];
    let status = ["/task/status", "/statusUpdate/status", "/status"];
    match status.iter().find_map(|path| result.pointer(path)) {
        Some(status) => status["state"].as_str().expect("a state").replace("TASK_STATE_", ""),
        None if result["message"].is_object() => "message".to_owned(),
        None => {
            assert!(last["error"].is_object(), "{last}");
            "error".to_owned()
        }
    }
}

/// How many entries the kernel lists for a process: open files (`fd`), threads (`task`).
fn entries(server: &Binary, folder: &str) -> usize {
    fs::read_dir(format!("/proc/{}/{folder}", server.pid())).expect("a process").count()
}

/// Resident memory without file-backed pages.
fn kilobytes(server: &Binary) -> u64 {
    let line = server.status("RssAnon").expect("a line");
    line.trim_end_matches(" kB").parse().expect("a number")
}
