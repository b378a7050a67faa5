//! Calls of a remote agent that restarts continually, every fourth time without its tasks.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread::sleep,
    time::Duration,
};

use peregrine::binding::interfaces::Binding;

use super::{FaultCase, INPUT_REQUIRED, soak_while};
use crate::upstream_restarts::Restarted;

/// How long the agent is up, and how long it is down.
const THERE: Duration = Duration::from_millis(50);
const AWAY: Duration = Duration::from_millis(5);

/// The task is lost with its agent, or the message did not reach it.
const ANY: &[&str] = &["COMPLETED", "FAILED", "error"];

#[rustfmt::skip]
const WORDS: [FaultCase; 4] = [
    FaultCase { word: "1", ends: ANY },
    FaultCase { word: "30", ends: ANY },
    FaultCase { word: "100", ends: ANY },
    FaultCase { word: INPUT_REQUIRED, ends: ANY },
];

fn soak(name: &str, binding: Binding, count: usize) {
    let restarted = Restarted::new(binding);
    let agent = restarted.agent();
    let (restarted, times) = (Mutex::new(restarted), AtomicUsize::new(0));
    let restart = || {
        sleep(THERE);
        let mut restarted = restarted.lock().unwrap_or_else(PoisonError::into_inner);
        restarted.stop();
        sleep(AWAY);
        match times.fetch_add(1, Relaxed) % 4 {
            3 => restarted.replace(),
            _ => restarted.come_back(),
        }
    };
    soak_while(&format!("restarts-{name}"), &agent, &WORDS, count, Some(&restart));
    eprintln!("{} restarts", times.into_inner());
}

#[test]
fn hundreds_of_calls_during_restarts_leak_no_resources() {
    soak("jsonrpc", Binding::JsonRpc, 240);
    soak("grpc", Binding::Grpc, 240);
}

#[test]
#[ignore = "minutes; the nightly run has it"]
fn ten_thousand_calls_during_restarts_leak_no_resources() {
    soak("jsonrpc", Binding::JsonRpc, 5_000);
    soak("grpc", Binding::Grpc, 5_000);
}
