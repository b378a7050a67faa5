//! The families of metrics, and their text: names after OpenTelemetry, in the format of Prometheus.

use std::{
    collections::BTreeMap,
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text},
    metrics::MetricType,
    registry::Registry,
};

use crate::{
    fault::FaultKind,
    histogram::Sums,
    service::{
        AgentIndex,
        observe::{AuthOutcome, CallBinding, CallEnd},
    },
};

use super::{
    GENERATION_NAMES, OP_NAMES, OTHER,
    counters::{RefusalKey, WorkerCounters},
};

/// Labels and their values.
type Labels = Vec<(&'static str, String)>;

/// The kind of a family's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::net) enum FamilyKind {
    /// A value that only grows.
    Counter,
    /// A current value.
    Gauge,
    /// Durations in nanoseconds, which are shown as seconds.
    Times,
    /// Numbers of items.
    Sizes,
}

/// One number, or a histogram.
#[derive(Clone, Debug)]
enum Sample {
    Number(u64),
    Histogram(Sums),
}

/// The samples of one metric name.
#[derive(Debug)]
pub(in crate::net) struct Family {
    name: &'static str,
    help: &'static str,
    kind: FamilyKind,
    samples: Vec<(Labels, Sample)>,
}

impl Family {
    /// A family of numbers.
    pub(in crate::net) fn new(kind: FamilyKind, name: &'static str, help: &'static str) -> Family {
        Family { name, help, kind, samples: Vec::new() }
    }

    /// A family of one number.
    pub(in crate::net) fn one(
        kind: FamilyKind,
        name: &'static str,
        help: &'static str,
        number: u64,
    ) -> Family {
        Family::new(kind, name, help).with(Vec::new(), number)
    }

    /// Adds one number.
    pub(in crate::net) fn with(mut self, labels: Labels, number: u64) -> Family {
        self.samples.push((labels, Sample::Number(number)));
        self
    }

    /// Adds a histogram, if it has counted anything.
    pub(in crate::net) fn with_sums(mut self, labels: Labels, sums: Sums) -> Family {
        if sums.count() > 0 {
            self.samples.push((labels, Sample::Histogram(sums)));
        }
        self
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            FamilyKind::Counter => MetricType::Counter,
            FamilyKind::Gauge => MetricType::Gauge,
            FamilyKind::Times | FamilyKind::Sizes => MetricType::Histogram,
        };
        let mut encoder = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for (labels, sample) in &self.samples {
            if labels.is_empty() {
                self.encode_sample(&mut encoder, sample)?;
            } else {
                self.encode_sample(&mut encoder.encode_family(labels)?, sample)?;
            }
        }
        Ok(())
    }

    fn encode_sample(&self, encoder: &mut MetricEncoder<'_>, sample: &Sample) -> fmt::Result {
        let unit = if self.kind == FamilyKind::Times { 1e9 } else { 1.0 };
        match (self.kind, sample) {
            (FamilyKind::Counter, Sample::Number(number)) => {
                encoder.encode_counter::<NoLabelSet, u64, f64>(number, None)
            }
            (_, Sample::Number(number)) => encoder.encode_gauge(number),
            (_, Sample::Histogram(sums)) => {
                // The total count stands for the last bucket, which has no bound.
                let bounded = sums.buckets.iter().filter(|(bound, _)| *bound < u64::MAX);
                let buckets: Vec<(f64, u64)> =
                    bounded.map(|(bound, count)| (*bound as f64 / unit, *count)).collect();
                let sum = sums.sum as f64 / unit;
                encoder.encode_histogram::<NoLabelSet>(sum, sums.count(), &buckets, None)
            }
        }
    }
}

/// Families that are rendered as text.
#[derive(Debug)]
struct MetricsPage(Vec<Family>);

impl Collector for MetricsPage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

/// The text of families in the format of Prometheus.
pub(in crate::net) fn text(families: Vec<Family>) -> String {
    let (mut registry, mut text) = (Registry::default(), String::new());
    registry.register_collector(Box::new(MetricsPage(families)));
    // Writing to a String never fails.
    let _ = prometheus_text::encode(&mut text, &registry);
    text
}

/// The families of calls.
pub(super) fn of_calls<'m, I: Iterator<Item = &'m WorkerCounters>>(
    workers: impl Fn() -> I,
    name: &impl Fn(AgentIndex) -> Option<String>,
) -> Vec<Family> {
    let sum = |of: fn(&WorkerCounters) -> &AtomicU64| -> u64 {
        workers().map(|worker| of(worker).load(Relaxed)).sum()
    };
    let mut families = vec![
        calls(&workers, name),
        durations(&workers, name),
        Family::one(
            FamilyKind::Counter,
            "peregrine_calls_waited",
            "Calls that were not answered at once, including streams",
            sum(|worker| &worker.waited),
        ),
        Family::one(
            FamilyKind::Counter,
            "peregrine_call_request_bytes",
            "Bytes of the bodies and messages of calls",
            sum(|worker| &worker.bytes_in),
        ),
        Family::one(
            FamilyKind::Counter,
            "peregrine_call_response_bytes",
            "Bytes of the answers of calls",
            sum(|worker| &worker.bytes_out),
        ),
        Family::one(
            FamilyKind::Counter,
            "peregrine_stream_events",
            "Events written, counted when their stream ends",
            sum(|worker| &worker.events),
        ),
        Family::one(
            FamilyKind::Counter,
            "peregrine_streams_resumed",
            "Streams that resumed after an event id of the subscriber, counted when they end",
            sum(|worker| &worker.resumed),
        ),
    ];
    let mut ends =
        Family::new(FamilyKind::Counter, "peregrine_streams_ended", "Streams by their end");
    for end in CallEnd::ALL {
        let count = workers().map(|worker| worker.ends[end as usize].load(Relaxed)).sum();
        ends = ends.with(vec![("reason", end.word().to_owned())], count);
    }
    families.push(ends);
    let (mut first_event, mut lag) = (Sums::default(), Sums::default());
    for worker in workers() {
        first_event.add(&worker.first_event);
        lag.add(&worker.lag);
    }
    let help = "Time from the call to the first event of its stream";
    let family = Family::new(FamilyKind::Times, "peregrine_time_to_first_event_seconds", help);
    families.push(family.with_sums(Vec::new(), first_event));
    let help = "Largest number of events that a stream was behind its task";
    let family = Family::new(FamilyKind::Sizes, "peregrine_stream_lag_events", help);
    families.push(family.with_sums(Vec::new(), lag));
    families.push(callers(&workers));
    families
}

fn calls<'m, I: Iterator<Item = &'m WorkerCounters>>(
    workers: &impl Fn() -> I,
    name: &impl Fn(AgentIndex) -> Option<String>,
) -> Family {
    // By name: agents that have no name, or no longer have one, are added up.
    let mut sums: BTreeMap<(String, [usize; 3], &str), u64> = BTreeMap::new();
    let mut names: BTreeMap<u16, String> = BTreeMap::new();
    let mut named = |agent: AgentIndex| -> String {
        let name = || name(agent).unwrap_or_else(|| OTHER.to_owned());
        names.entry(agent.0).or_insert_with(name).clone()
    };
    for worker in workers() {
        worker.each_answered(|agent, numbers, count| {
            *sums.entry((named(agent), numbers, "ok")).or_default() += count;
        });
        for (RefusalKey { agent, numbers }, count) in worker.refusals() {
            let [op, binding, generation, kind] = numbers.map(usize::from);
            let reason = FaultKind::ALL[kind].row().reason;
            let key = (named(AgentIndex(agent)), [op, binding, generation], reason);
            *sums.entry(key).or_default() += count;
        }
    }
    let mut family = Family::new(
        FamilyKind::Counter,
        "peregrine_calls",
        "Finished calls, by operation, binding, version, agent and outcome",
    );
    for ((agent, [op, binding, generation], outcome), count) in sums {
        let labels = vec![
            ("rpc_method", OP_NAMES[op].to_owned()),
            ("rpc_system", CallBinding::ALL[binding].word().to_owned()),
            ("version", GENERATION_NAMES[generation].to_owned()),
            ("agent", agent),
            ("outcome", outcome.to_owned()),
        ];
        family = family.with(labels, count);
    }
    family
}

fn durations<'m, I: Iterator<Item = &'m WorkerCounters>>(
    workers: &impl Fn() -> I,
    name: &impl Fn(AgentIndex) -> Option<String>,
) -> Family {
    // By name: agents that have no name, or no longer have one, are added up.
    let mut sums: BTreeMap<(usize, usize, String), Sums> = BTreeMap::new();
    for worker in workers() {
        worker.each_duration(|agent, durations| {
            let name = name(agent).unwrap_or_else(|| OTHER.to_owned());
            for (op, of_op) in durations.iter().enumerate() {
                for (binding, durations) in of_op.iter().enumerate() {
                    sums.entry((op, binding, name.clone())).or_default().add(durations);
                }
            }
        });
    }
    let help = "Time from the decoding of a call to its end; a stream ends with its last event";
    let mut family = Family::new(FamilyKind::Times, "rpc_server_call_duration_seconds", help);
    for ((op, binding, agent), sums) in sums {
        let labels = vec![
            ("rpc_method", OP_NAMES[op].to_owned()),
            ("rpc_system", CallBinding::ALL[binding].word().to_owned()),
            ("agent", agent),
        ];
        family = family.with_sums(labels, sums);
    }
    family
}

fn callers<'m, I: Iterator<Item = &'m WorkerCounters>>(workers: &impl Fn() -> I) -> Family {
    let help = "Requests by the result of authentication, where callers are authenticated";
    let mut family = Family::new(FamilyKind::Counter, "peregrine_callers", help);
    for outcome in AuthOutcome::all() {
        let count = workers().map(|worker| worker.callers[outcome.index()].load(Relaxed)).sum();
        let (word, kind) = outcome.words();
        let labels = vec![("outcome", word.to_owned()), ("kind", kind.to_owned())];
        family = family.with(labels, count);
    }
    family
}
