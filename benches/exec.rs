//! The server's cost of a turn of a line-protocol program; the program's own time is not counted.
//!
//! `cargo bench --bench exec`: the server with an `exec+jsonl` agent on core 0; the agent, which is
//! this program, and the load on core 1. 16 connections send in turns. CPU time of the server for a
//! turn, the median of rounds. Needs Linux and `taskset`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/load.rs"]
mod load;
#[path = "support/served.rs"]
mod served;
mod support;

use std::io::{BufRead, Write, stdin, stdout};

use load::Load;
use served::{SERVER, Served};
use support::{TEXT, post, send};

const CONNECTIONS: usize = 16;
const ROUNDS: usize = 9;

/// What the agent writes for a turn: a direct message, or a task with one artifact.
const FORMS: [(&str, &str, &[&str]); 2] = [
    ("turn", "the words that were asked for", &[r#""message":"the words that were asked for""#]),
    (
        "task",
        "TASK_STATE_COMPLETED",
        &[r#""artifact":{"text":"the words that were asked for"}"#, r#""status":"completed""#],
    ),
];

/// The agent: answers each turn with lines of this form.
fn answer_turns(lines: &[&str]) {
    let (mut input, mut line, mut output) = (stdin().lock(), String::new(), stdout().lock());
    while input.read_line(&mut line).unwrap() > 0 {
        let (_, rest) = line.split_once(r#""turn":""#).expect("a turn");
        let (number, _) = rest.split_once('"').expect("a number");
        let events = lines.iter().map(|event| format!("{{\"turn\":\"{number}\",{event}}}\n"));
        output.write_all(events.collect::<String>().as_bytes()).unwrap();
        output.flush().unwrap();
        line.clear();
    }
}

/// Prints the cost of a turn.
fn measure(name: &str, found: &str) {
    let me = std::env::current_exe().unwrap();
    let agent = format!("exec+jsonl:taskset -c 1 {} agent {name}", me.to_str().expect("a path"));
    let serve = [SERVER, "serve", "--workers", "1", "--listen", "127.0.0.1:PORT"];
    let server = Served::start(&[&serve[..], &["--agent", &agent]].concat());
    let request = post(&send("SendMessage", TEXT));
    let answer = server.request(&request);
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains(found), "{name}: {text}");
    let mut load = Load::new(&server, CONNECTIONS, 1, &request, answer.len());
    load.turn();
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| load.slice(&server)).collect();
    rounds.sort_by(f64::total_cmp);
    println!("exec {name} {:.2} us", rounds[ROUNDS / 2] / 1_000.0);
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [agent, form] = &words[..]
        && agent == "agent"
    {
        let entry = FORMS.iter().find(|(name, _, _)| name == form);
        return answer_turns(entry.expect("a form").2);
    }
    served::pin_load();
    FORMS.iter().for_each(|(name, found, _)| measure(name, found));
}
