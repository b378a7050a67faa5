//! Measures the generator's own errors on this machine: of its timer, and of its report of a server
//! with known latencies.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    client::{CallOptions, ClientBuilder, ClientLimits, card::AgentCard, retry::Backoff},
    net::{HttpClient, HttpClientOptions},
};

use super::{
    AnswerDelay, Arrivals, CheckLevel, FloorServer, LoadOperation, LoadPace, LoadPlan, LoadRun,
    LoadedTarget, PlannedCall, ProbedTransport, RateSpan,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Bytes of an answer.
const ANSWER_BYTES: usize = 600;
/// Maximum calls in flight in an open loop.
const CALLS_MAX: usize = 4_096;

/// One figure of a self-test.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfTestLine {
    /// The measured quantity.
    pub what: String,
    /// The true value, in microseconds; `None`: there is nothing to compare with.
    pub true_us: Option<f64>,
    /// The generator's value, in microseconds.
    pub reported_us: f64,
}

/// The servers: their names, and their delays.
const SERVERS: [(&str, AnswerDelay); 3] =
    [("fixed 5 ms", fixed), ("one of ten 80 ms", bimodal), ("a stall of 0.2 s in 2 s", stalling)];

fn fixed(at_ns: u64) -> u64 {
    at_ns + 5 * MS
}

/// Calls of every tenth millisecond take long.
fn bimodal(at_ns: u64) -> u64 {
    at_ns + if (at_ns / MS).is_multiple_of(10) { 80 * MS } else { 2 * MS }
}

/// The server stalls in the last fifth of a second of every two seconds.
fn stalling(at_ns: u64) -> u64 {
    let done = at_ns + 2 * MS;
    let (period, open) = (2 * SECOND, 2 * SECOND - 200 * MS);
    if done % period < open { done } else { done.next_multiple_of(period) + MS }
}

/// Measures the generator on this machine in about 15 s. `report` receives each figure at once.
///
/// # Errors
/// A sentence: no threads or sockets are available.
pub fn self_test(report: &mut dyn FnMut(&SelfTestLine)) -> Result<(), String> {
    let timer = load(None, steady(10_000.0), 2)?;
    for share in [0.5, 0.99, 0.999] {
        report(&SelfTestLine {
            what: format!("error of the timer at 10,000 calls/s, {}", named(share)),
            true_us: Some(0.0),
            reported_us: timer.0.measures.lag.value_at_quantile(share) as f64 / 1e3,
        });
    }
    for (name, delay) in SERVERS {
        let pace = steady(1_000.0);
        let (target, began) = load(Some(delay), pace, 4)?;
        let latency = target.measures.total().latency;
        let offset_ns = target.start.saturating_duration_since(began).as_nanos() as u64;
        let dues = (0..4 * 1_000).map(|number| offset_ns + number * MS);
        let mut latencies: Vec<u64> = dues.map(|due_ns| delay(due_ns) - due_ns).collect();
        latencies.sort_unstable();
        for share in [0.5, 0.99, 0.999] {
            let rank = (share * latencies.len() as f64).ceil() as usize;
            report(&SelfTestLine {
                what: format!("{name}, open loop, {}", named(share)),
                true_us: Some(latencies[rank.clamp(1, latencies.len()) - 1] as f64 / 1e3),
                reported_us: latency.value_at_quantile(share) as f64 / 1e3,
            });
        }
    }
    let (closed, _) = load(Some(stalling), LoadPace::Closed, 4)?;
    report(&SelfTestLine {
        what: "the same stalls in a closed loop, which hides them, p99".to_owned(),
        true_us: None,
        reported_us: closed.measures.total().latency.value_at_quantile(0.99) as f64 / 1e3,
    });
    Ok(())
}

fn steady(rate: f64) -> LoadPace {
    LoadPace::Rate(RateSpan::steady(rate, Arrivals::Constant))
}

fn named(share: f64) -> String {
    format!("p{}", share * 100.0)
}

/// Puts load on a server with these delays; returns the results, and the start of the server's
/// time.
fn load(
    delay: Option<AnswerDelay>,
    pace: LoadPace,
    seconds: u64,
) -> Result<(LoadedTarget, Instant), String> {
    let began = Instant::now();
    let (tell, told) = mpsc::channel();
    // The thread ends with the process; nothing connects to it after this test.
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let Ok(server) = FloorServer::bind(ANSWER_BYTES, delay, began).await else { return };
            if let Ok(addr) = server.addr()
                && tell.send(addr).is_ok()
            {
                let _ = server.serve().await;
            }
        });
    });
    let addr = told.recv().map_err(|_| "the server of the self-test cannot start".to_owned())?;
    let card = FloorServer::card(addr);
    let client = move || {
        let limits = ClientLimits { pool_per_origin_max: CALLS_MAX, ..ClientLimits::default() };
        let options = HttpClientOptions { limits, ..HttpClientOptions::default() };
        let inner = HttpClient::new(options).map_err(|error| error.to_string())?;
        let card = AgentCard::read(card.as_bytes()).map_err(|error| error.to_string())?;
        let backoff = Backoff { attempts_max: 1, ..Backoff::default() };
        ClientBuilder::new()
            .options(CallOptions { backoff, ..CallOptions::default() })
            .connect_over(ProbedTransport { inner }, card, None)
            .map_err(|error| error.to_string())
    };
    let calls = vec![PlannedCall::new(LoadOperation::Send)];
    let plan = LoadPlan {
        warmup: Duration::ZERO,
        in_flight_max: if pace == LoadPace::Closed { 1 } else { CALLS_MAX },
        check: CheckLevel::Off,
        ..LoadPlan::new(calls, pace, Duration::from_secs(seconds))
    };
    let run = LoadRun::start(&plan, client, None, None)?;
    Ok((run.finish("", "")?, began))
}
