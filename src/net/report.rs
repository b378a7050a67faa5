//! What the operator of a server is told on stderr while it runs and when it ends: one line each,
//! and only under `Server::run`.

use std::{
    fmt::Display,
    io::{self, Write},
    sync::atomic::Ordering,
};

use crate::engine::Waiting;

use super::{server_state::ServerState, slow_turn::SlowTurn};

/// Says one line.
pub(super) fn say(line: &dyn Display) {
    // Without stderr nobody wants to know.
    let _ = writeln!(io::stderr(), "peregrine: {line}");
}

/// Lines that the log could not take.
#[cfg(feature = "metrics")]
pub(super) fn lost_lines() -> u64 {
    0
}

/// Says that an agent has held up its worker.
pub(super) fn slow_turn(slow: &SlowTurn) {
    let SlowTurn { agent, ms } = slow;
    say(&format_args!(
        "the agent {agent:?} has held up a worker for {ms} ms: it blocks, and others wait for it"
    ));
}

/// Says what a drain that begins waits for.
pub(super) fn draining(server: &ServerState) {
    let engine = &server.engine;
    let open = server.open.load(Ordering::Relaxed);
    let (tasks, seconds) = (engine.unfinished_tasks(), seconds(server.live.drain_ms()));
    say(&format_args!(
        "draining, for {seconds} at most: {}, {}; {}",
        list(&engine.waiting()),
        count(open, "open connection"),
        count(tasks, "unfinished task"),
    ));
}

/// Says what a drain that is over has cut, and what is lost with the process.
pub(super) fn drained(server: &ServerState) {
    let cut = server.cut.get().copied().unwrap_or_default();
    let seconds = seconds(server.live.drain_ms());
    let lost = count(server.engine.unfinished_tasks(), "unfinished task");
    if cut == Waiting::default() {
        say(&format_args!("drained; {lost} in memory"));
    } else {
        say(&format_args!("{seconds} were not enough: {} cut; {lost} in memory", list(&cut)));
    }
}

fn list(waiting: &Waiting) -> String {
    let (calls, streams) = (count(waiting.calls, "waiting call"), count(waiting.streams, "stream"));
    format!("{calls}, {streams}")
}

fn count(number: usize, name: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {name}{plural}")
}

fn seconds(ms: u64) -> String {
    format!("{} s", ms as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let waiting = Waiting { calls: 1, streams: 2 };
        assert_eq!(list(&waiting), "1 waiting call, 2 streams");
        assert_eq!((seconds(10_000), seconds(200)), ("10 s".to_owned(), "0.2 s".to_owned()));
    }
}
