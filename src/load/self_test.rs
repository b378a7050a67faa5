//! Measures the errors of the generator on this machine: of its timer, and of its report about a
//! server with known latencies.

use std::{
    fmt,
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
    /// True: the quantile is the 99th percentile.
    pub is_p99: bool,
}

/// Error of the timer in microseconds, p99, up to which the generator is accurate.
const TIMER_ERROR_US: f64 = 200.0;
/// Relative error of a reported latency up to which the generator is accurate.
const LATENCY_ERROR: f64 = 0.02;

/// The verdict on all figures of a self-test: its [`fmt::Display`] form is one sentence.
#[derive(Clone, Debug, Default)]
pub struct SelfTestVerdict {
    timer_error_us: f64,
    latency_error: f64,
}

impl SelfTestVerdict {
    /// Takes a figure into account.
    pub fn add(&mut self, line: &SelfTestLine) {
        let Some(true_us) = line.true_us else { return };
        if true_us > 0.0 {
            let error = (line.reported_us / true_us - 1.0).abs();
            self.latency_error = self.latency_error.max(error);
        } else if line.is_p99 {
            self.timer_error_us = line.reported_us;
        }
    }

    /// True: the timer and all latencies are within the errors that the generator aims at.
    pub fn is_accurate(&self) -> bool {
        self.timer_error_us <= TIMER_ERROR_US && self.latency_error <= LATENCY_ERROR
    }
}

impl fmt::Display for SelfTestVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verdict, cure) = match self.is_accurate() {
            true => ("accurate", ""),
            false => ("inaccurate on this machine now", "; end other programs, and repeat it"),
        };
        write!(
            f,
            "{verdict}: timer error p99 {:.0} us (at most {TIMER_ERROR_US:.0}), largest error of a \
             latency {:.1} % (at most {:.0} %){cure}",
            self.timer_error_us,
            self.latency_error * 100.0,
            LATENCY_ERROR * 100.0
        )
    }
}

/// The servers: names and delays.
const SERVERS: [(&str, AnswerDelay); 3] = [
    ("fixed 5 ms", fixed),
    ("80 ms for one in ten", bimodal),
    ("a stall of 0.2 s in 2 s", stalling),
];

fn fixed(at_ns: u64) -> u64 {
    at_ns + 5 * MS
}

/// Calls that arrive in every tenth millisecond take long.
fn bimodal(at_ns: u64) -> u64 {
    at_ns + if (at_ns / MS).is_multiple_of(10) { 80 * MS } else { 2 * MS }
}

/// The server stalls during the last fifth of a second of every two seconds.
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
            is_p99: share == 0.99,
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
                is_p99: share == 0.99,
            });
        }
    }
    let (closed, _) = load(Some(stalling), LoadPace::Closed, 4)?;
    report(&SelfTestLine {
        what: "p99 of the same stalls in a closed loop, which hides them".to_owned(),
        true_us: None,
        reported_us: closed.measures.total().latency.value_at_quantile(0.99) as f64 / 1e3,
        is_p99: true,
    });
    Ok(())
}

fn steady(rate: f64) -> LoadPace {
    LoadPace::Rate(RateSpan::steady(rate, Arrivals::Constant))
}

fn named(share: f64) -> String {
    format!("p{}", share * 100.0)
}

/// Puts load on a server with these delays. Returns the results, and the start of the server's
/// clock.
fn load(
    delay: Option<AnswerDelay>,
    pace: LoadPace,
    seconds: u64,
) -> Result<(LoadedTarget, Instant), String> {
    let began = Instant::now();
    let (sender, receiver) = mpsc::channel();
    // The thread ends with the process; after this test nothing connects to its server.
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let Ok(server) = FloorServer::bind(ANSWER_BYTES, delay, began).await else { return };
            if let Ok(addr) = server.addr()
                && sender.send(addr).is_ok()
            {
                let _ = server.serve().await;
            }
        });
    });
    let addr =
        receiver.recv().map_err(|_| "the server of the self-test cannot start".to_owned())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(lines: &[(Option<f64>, f64)]) -> SelfTestVerdict {
        let mut verdict = SelfTestVerdict::default();
        for (true_us, reported_us) in lines {
            let (what, reported_us) = (String::new(), *reported_us);
            verdict.add(&SelfTestLine { what, true_us: *true_us, reported_us, is_p99: true });
        }
        verdict
    }

    #[test]
    fn the_verdict_names_the_largest_errors() {
        let good = verdict(&[(Some(0.0), 150.0), (Some(5_000.0), 5_060.0), (None, 1e6)]);
        assert!(good.is_accurate());
        assert_eq!(
            good.to_string(),
            "accurate: timer error p99 150 us (at most 200), largest error of a latency 1.2 % (at \
             most 2 %)"
        );
        assert!(!verdict(&[(Some(0.0), 250.0)]).is_accurate());
        let low = verdict(&[(Some(0.0), 150.0), (Some(5_000.0), 4_800.0)]);
        assert!(low.to_string().starts_with("inaccurate on this machine now: "), "{low}");
    }
}
