//! The terms of agents, waiting calls and repeated sends; and that every term has a test.

use std::sync::{Mutex, PoisonError};

use peregrine::{
    agent::{Agent, Deferred, Profile, Turn},
    limits::Limits,
    net::Server,
};

use super::watched::{BatchCaller, SLACK_BYTES, Watched, assert_within, limits_of};
use crate::support::{
    ask::{OutgoingMessage, V1, rpc, say},
    binary::{Binary, Tcp},
    ws,
};

/// All tests of terms.
const SOURCES: [&str; 4] = [
    include_str!("../memory.rs"),
    include_str!("terms.rs"),
    include_str!("callers.rs"),
    include_str!("webhooks.rs"),
];

/// A test names a term by a quoted part of its label.
#[test]
fn every_memory_term_is_named_by_a_test() {
    for (label, _) in Limits::default().memory_bytes_terms(1) {
        let texts = SOURCES.iter().flat_map(|source| source.split('"'));
        let mut named = texts.filter(|text| text.len() > 10 && label.contains(text));
        assert!(named.next().is_some(), "no test under tests/server/memory drives: {label}");
    }
    assert!(SOURCES[0].contains(".tls_bytes_term()"));
}

/// The memory without the executable's code, of which a debug build has more.
#[test]
fn idle_server_stays_within_memory_bound() {
    let watched = Watched::new(&[]);
    assert_within(watched.held(), watched.bound(&["process, and stacks and scratch"]));
}

/// Tasks that get message after message, each of which adds a timer.
#[test]
fn agent_resume_timers_stay_within_memory_bound() {
    let count = 32_000;
    let mut watched = Watched::new(&[&format!("tasks_max={count}"), "store_bytes_max=6_000_000"]);
    let mut caller = BatchCaller::anonymous(&watched.server);
    let hold = |task, id: &str| {
        let message =
            OutgoingMessage { task, id, at_once: true, history: Some(0), ..say("hold:600000:1") };
        rpc(V1.send(), &V1.params(message))
    };
    let warm: Vec<String> = (0..500).map(|n| hold(None, &format!("w-{n}"))).collect();
    let answers = caller.call_well(&warm);
    let tasks = answers.split(r#""task":{"id":""#).skip(1);
    let tasks: Vec<&str> = tasks.map(|rest| &rest[..rest.find('"').unwrap()]).collect();
    watched.begin();
    let calls = |from: usize, to: usize| -> Vec<String> {
        (from..to).map(|n| hold(Some(tasks[n % 100]), &format!("m-{n}"))).collect()
    };
    caller.call_well(&calls(500, count));
    let grown = watched.grown();
    let bound = watched.bound(&["resume timers of agents", "store: task logs"]);
    assert_within(grown, bound + SLACK_BYTES / 2);
    assert!(grown > 30 * count as u64, "{grown}");
    // A message that would add one timer more ends its task.
    let beyond = caller.call(&calls(count, count + 200));
    assert!(beyond.contains("terminal state"));
}

/// The variable that turns the next test's process into a server.
const DEFERRED_CALLS: &str = "PEREGRINE_TEST_DEFERRED_CALLS";

/// Its name.
const DEFERRING: &str = "memory::terms::a_process_with_an_agent_that_defers_every_call";

/// Defers each call, and answers none.
struct Deferring(Mutex<Vec<Deferred>>);

impl Agent for Deferring {
    fn start(&self, turn: Turn<'_>) {
        if let Ok(deferred) = turn.defer() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(deferred);
        }
    }
}

/// The limits of that server.
fn deferring_limits(count: &str) -> Limits {
    let rows = [format!("deferred_calls_max={count}"), "tasks_max=10_000".to_owned()];
    limits_of(&rows.each_ref().map(String::as_str))
}

/// The server of the next test, in a process of its own; without the variable it does nothing.
#[test]
fn a_process_with_an_agent_that_defers_every_call() {
    let Ok(count) = std::env::var(DEFERRED_CALLS) else { return };
    let limits = deferring_limits(&count);
    let agent = Deferring(Mutex::default());
    let server = Server::new().agent(Profile::new("deferring", "Answers later."), agent);
    let server = server.allow_host("*").workers(1).limits(limits).listen("127.0.0.1:0");
    let running = server.start().unwrap();
    println!("\nurl http://{}/\n--limit", running.addrs()[0]);
    running.join();
}

#[test]
fn deferred_calls_stay_within_memory_bound() {
    let (count, of_socket) = (6_000, 60);
    let text = count.to_string();
    let server = Binary::start_test(DEFERRING, DEFERRED_CALLS, &text);
    let watched = Watched::of(server, deferring_limits(&text));
    let mut all: Vec<Tcp> = (0..count / of_socket).map(|_| watched.server.connect()).collect();
    for (socket, tcp) in all.iter_mut().enumerate() {
        tcp.write(&ws::upgrade("/", ""));
        tcp.read_until("\r\n\r\n");
        let _ = tcp.take();
        for n in 0..of_socket {
            let id = format!("m-{socket}-{n}");
            tcp.write(&ws::text(&rpc(
                V1.send(),
                &V1.params(OutgoingMessage { id: &id, ..say("x") }),
            )));
        }
    }
    watched.wait_until_read(&all);
    let grown = watched.grown();
    // Each has a task's slot, and its content counts as bytes of the store.
    let labels = ["calls waiting for their agents", "slots and indexes", "connections: state"];
    let held = 1_024 * count as u64;
    assert_within(grown, watched.bound(&labels) + held + SLACK_BYTES);
    assert!(grown > 512 * count as u64, "{grown}");
    // They all wait.
    assert!(all[0].is_silent());
    all[0].write(&ws::text(&rpc(V1.send(), &V1.params(say("one more")))));
    all[0].read_until("deferred_calls_max");
}

/// Detects repeated sends even though no call activates the extension.
#[cfg(feature = "auth")]
const ALL_REPEATS: &str = "idempotent_send = \"everybody\"\n";

/// A caller's key.
#[cfg(feature = "auth")]
const ONE_KEY: &str = "[[auth.api_keys]]\nname = \"a\"\nkey = \"key-a-0123456789\"\n";

#[cfg(feature = "auth")]
#[test]
fn idempotency_entries_stay_within_memory_bound() {
    let count = 24_000;
    let rows = [&*format!("idempotency_entries_max={count}"), "idempotency_bytes_max=4_000_000"];
    let config = [ALL_REPEATS, ONE_KEY].concat();
    let mut watched = Watched::configured("memory_repeated.toml", &config, &rows);
    let mut caller = BatchCaller::of_key(&watched.server, "/", "key-a-0123456789");
    let ping = |id: &str| rpc(V1.send(), &V1.params(OutgoingMessage { id, ..say("ping") }));
    let calls =
        |from, to| -> Vec<String> { (from..to).map(|n| ping(&format!("message-{n}"))).collect() };
    caller.call_well(&calls(0, 500));
    watched.begin();
    // Direct messages, which no task stores.
    caller.call_well(&calls(500, count + count / 4));
    let grown = watched.grown();
    let bound = watched.bound(&["messages remembered to detect repeats"]);
    assert_within(grown, bound + SLACK_BYTES / 2);
    assert!(grown > 128 * count, "{grown}");
}

/// Answers every message with a direct message of 4 KiB.
#[cfg(all(feature = "auth", feature = "script"))]
fn large_answers() -> String {
    let text = "x".repeat(4_096);
    format!("[[rule]]\n[[rule.step]]\nmessage = [{{ text = \"{text}\" }}]\n")
}

#[cfg(all(feature = "auth", feature = "script"))]
#[test]
fn large_idempotent_answers_stay_within_memory_bound() {
    let script = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory_large.toml");
    std::fs::write(&script, large_answers()).unwrap();
    let agent = format!("{ALL_REPEATS}[agents.a]\nscript = {:?}\n{ONE_KEY}", script.display());
    let rows = ["idempotency_entries_max=65_536", "idempotency_bytes_max=16_000_000"];
    let mut watched = Watched::configured("memory_large_answers.toml", &agent, &rows);
    let mut caller = BatchCaller::of_key(&watched.server, "/", "key-a-0123456789");
    let calls = |from, to| -> Vec<String> {
        let params = |n| V1.params(OutgoingMessage { id: &format!("message-{n}"), ..say("x") });
        (from..to).map(|n| rpc(V1.send(), &params(n))).collect()
    };
    caller.call_well(&calls(0, 100));
    watched.begin();
    caller.call_well(&calls(100, 6_000));
    let grown = watched.grown();
    // The entries are small here.
    let entries = watched.bound(&["messages remembered to detect repeats"]) - 16_000_000;
    assert_within(grown, 16_000_000 + entries / 8 + SLACK_BYTES);
    assert!(grown > 8_000_000, "{grown}");
}
