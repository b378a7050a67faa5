//! Latencies that are fixed in advance are reported exactly.

use std::time::Duration;

use peregrine::load::{
    Arrivals, CallLimits, LoadMeasures, LoadOperation, LoadPace, LoadPlan, PlannedCall, RateSpan,
};

use crate::simulated::{AnsweredAt, measure};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn plan(pace: LoadPace, seconds: u64) -> LoadPlan {
    let calls = vec![PlannedCall::new(LoadOperation::Send)];
    LoadPlan {
        warmup: Duration::ZERO,
        in_flight_max: if pace == LoadPace::Closed { 1 } else { 10_000 },
        seed: 7,
        ..LoadPlan::new(calls, pace, Duration::from_secs(seconds))
    }
}

fn open(rate: f64, arrivals: Arrivals) -> LoadPace {
    LoadPace::Rate(RateSpan::steady(rate, arrivals))
}

/// The latency that this share of the calls does not exceed, by definition.
fn exact(mut latencies: Vec<u64>, share: f64) -> u64 {
    latencies.sort_unstable();
    let rank = (share * latencies.len() as f64).ceil() as usize;
    latencies[rank.clamp(1, latencies.len()) - 1]
}

/// Checks p50, p99 and p99.9 against the latencies of calls that are due each millisecond.
fn is_true(measures: &LoadMeasures, calls: u64, answered_at: AnsweredAt) {
    let total = measures.total();
    assert_eq!((total.good, total.failed(), measures.never_sent), (calls, 0, 0));
    let latencies: Vec<u64> = (0..calls).map(|n| answered_at(n * MS) - n * MS).collect();
    for share in [0.5, 0.99, 0.999] {
        let (reported, true_ns) =
            (total.latency.value_at_quantile(share), exact(latencies.clone(), share));
        let error = (reported as f64 - true_ns as f64).abs() / true_ns as f64;
        assert!(error < 0.02, "{share}: {reported} ns, and {true_ns} ns is right");
    }
}

fn fixed(at_ns: u64) -> u64 {
    at_ns + 5 * MS
}

/// Each tenth call takes long.
fn bimodal(at_ns: u64) -> u64 {
    at_ns + if (at_ns / MS).is_multiple_of(10) { 80 * MS } else { 2 * MS }
}

/// No call is answered in the last second of each ten.
fn stalling(at_ns: u64) -> u64 {
    let done = at_ns + 2 * MS;
    if done % (10 * SECOND) < 9 * SECOND { done } else { done.next_multiple_of(10 * SECOND) + MS }
}

#[test]
fn fixed_latency_is_measured_correctly() {
    let measures = measure(&plan(open(1_000.0, Arrivals::Constant), 10), fixed);
    is_true(&measures, 10_000, fixed);
}

#[test]
fn bimodal_latency_is_measured_correctly() {
    let measures = measure(&plan(open(1_000.0, Arrivals::Constant), 10), bimodal);
    is_true(&measures, 10_000, bimodal);
}

#[test]
fn stall_counts_in_latency_of_every_call_due_during_it() {
    let measures = measure(&plan(open(1_000.0, Arrivals::Constant), 60), stalling);
    is_true(&measures, 60_000, stalling);
    assert_eq!((measures.held_back, measures.late), (0, 0));
}

/// With at most ten calls at once a stall holds others back; their latency still counts from their
/// due time.
#[test]
fn latency_of_held_back_calls_counts_from_their_due_time() {
    let plan = LoadPlan { in_flight_max: 10, ..plan(open(1_000.0, Arrivals::Constant), 20) };
    let measures = measure(&plan, stalling);
    let total = measures.total();
    assert_eq!((total.good, measures.never_sent), (20_000, 0));
    assert!(measures.held_back > 1_900, "{} held back", measures.held_back);
    // The first call that was due in the stall waited a second.
    assert!(total.latency.max() >= 990 * MS);
    assert!(total.service.value_at_quantile(0.99) < 10 * MS);
}

/// From the fifth second on each answer takes 20 s.
fn ending(at_ns: u64) -> u64 {
    if at_ns < 5 * SECOND { at_ns + 2 * MS } else { at_ns + 20 * SECOND }
}

#[test]
fn calls_never_sent_are_reported() {
    let plan = LoadPlan { in_flight_max: 10, ..plan(open(1_000.0, Arrivals::Constant), 10) };
    let measures = measure(&plan, ending);
    assert_eq!((measures.total().good, measures.never_sent), (5_010, 4_990));
    assert_eq!(measures.done_in_time, 5_000);
}

/// The same server in a closed loop: few calls meet a stall, so the figures hide it.
#[test]
fn a_closed_loop_hides_a_stall() {
    let measures = measure(&plan(LoadPace::Closed, 60), stalling);
    let total = measures.total();
    assert!(total.good > 20_000);
    assert!(total.latency.value_at_quantile(0.999) < 3 * MS);
    assert!(total.latency.max() > 990 * MS);
}

#[test]
fn arrivals_have_the_requested_rate_and_variation() {
    for (arrivals, variation) in [
        (Arrivals::Constant, 0.0),
        (Arrivals::Poisson, 1.0),
        (Arrivals::Gamma(0.25), 2.0),
        (Arrivals::Gamma(4.0), 0.5),
    ] {
        let measures = measure(&plan(open(200.0, arrivals), 60), fixed);
        let calls = measures.total().good as f64;
        assert!((calls - 12_000.0).abs() < 12_000.0 * 0.03, "{arrivals:?}: {calls} calls");
        // The number of calls per second varies as much as the gaps, by the square root of the
        // number.
        let counts: Vec<f64> =
            measures.slices.iter().take(60).map(|slice| slice.calls as f64).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let spread = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>();
        let reported = (spread / counts.len() as f64).sqrt() / mean.sqrt();
        assert!((reported - variation).abs() < 0.1 + variation * 0.3, "{arrivals:?}: {reported}");
    }
}

/// A ramp from 100 to 300 calls a second: each second has two more than the previous one, for a
/// hundred seconds.
#[test]
fn ramp_raises_the_rate_linearly() {
    let pace = LoadPace::Rate(RateSpan { from: 100.0, to: 300.0, arrivals: Arrivals::Constant });
    let measures = measure(&plan(pace, 100), fixed);
    assert!(measures.total().good.abs_diff(20_000) < 10);
    for (second, slice) in measures.slices.iter().enumerate().take(100) {
        let wanted = 101 + 2 * second as u64;
        assert!(slice.calls.abs_diff(wanted) < 4, "second {second}: {}", slice.calls);
    }
}

#[test]
fn goodput_counts_the_calls_within_the_limits() {
    let limits = CallLimits { latency_ns: Some(10 * MS), ..CallLimits::default() };
    let plan = LoadPlan { limits, ..plan(open(1_000.0, Arrivals::Constant), 5) };
    // One call in ten takes 80 ms.
    let total = measure(&plan, bimodal).total();
    assert_eq!((total.good, total.within_limits), (5_000, 4_500));
}

#[test]
fn the_same_seed_makes_the_same_calls() {
    let of = |seed| {
        let plan = LoadPlan { seed, ..plan(open(500.0, Arrivals::Poisson), 10) };
        let measures = measure(&plan, fixed);
        measures.slices.iter().map(|slice| slice.calls).collect::<Vec<u64>>()
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn requests_max_limits_the_number_of_calls() {
    let plan = LoadPlan { requests_max: Some(17), ..plan(open(100.0, Arrivals::Constant), 10) };
    assert_eq!(measure(&plan, fixed).total().good, 17);
    let plan = LoadPlan { requests_max: Some(17), ..plan };
    let closed = LoadPlan { pace: LoadPace::Closed, in_flight_max: 4, ..plan };
    assert_eq!(measure(&closed, fixed).total().good, 17);
}

#[test]
fn calls_of_the_warmup_are_not_counted() {
    let plan =
        LoadPlan { warmup: Duration::from_secs(2), ..plan(open(100.0, Arrivals::Constant), 3) };
    assert_eq!(measure(&plan, fixed).total().good, 300);
}
