//! What a run is reported as: one document, which is the JSON report, and from which the others are
//! written.

mod html;
mod plot;
mod text;

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, Tag},
};
use serde::{Deserialize, Serialize};

use crate::model::time::rfc3339;

use super::{
    Arrivals, CheckLevel, LoadMeasures, LoadPace, LoadedTarget, MachineFacts, OperationMeasures,
    ProcessSample, measures::NsHistogram,
};

/// The number of the document's shape; it changes when a reader of the old one would be misled.
pub const REPORT_SCHEMA: u32 = 1;

/// A share of the generator's core above which it is said to have been the bottleneck.
const BUSY_SHARE: f64 = 0.9;
/// A share of late calls above which the generator is said not to have been in time.
const LATE_SHARE: f64 = 0.01;

/// What runs have measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadReport {
    /// [`REPORT_SCHEMA`].
    pub schema: u32,
    /// As `peregrine 0.1.0`.
    pub generator: String,
    /// When it began, in RFC 3339.
    pub started_at: String,
    /// The command line, without secrets.
    pub command: String,
    /// Where the generator ran.
    pub machine: MachineReport,
    /// What was measured, by target.
    pub targets: Vec<TargetReport>,
}

/// Where the generator ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineReport {
    /// The operating system and the release of its kernel.
    pub system: String,
    /// What the processor calls itself.
    pub processor: String,
    /// Threads that may run at once.
    pub cpus: usize,
    /// Bytes of memory; 0: unknown.
    pub memory_bytes: u64,
}

/// What was measured at one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetReport {
    /// What the user has named.
    pub url: String,
    /// The binding and version that was called.
    pub interface: String,
    /// What was done.
    pub plan: PlanReport,
    /// Calls a second.
    pub rate: RateReport,
    /// Seconds in which calls were counted.
    pub seconds: f64,
    /// Calls that were over, well or not.
    pub requests: u64,
    /// Calls that failed, by kind.
    pub errors: BTreeMap<String, u64>,
    /// One example of each kind.
    pub error_examples: BTreeMap<String, String>,
    /// Calls that waited because as many as allowed were unanswered.
    pub held_back: u64,
    /// Calls that began more than 1 ms after they were due, though there was room.
    pub late: u64,
    /// Calls that were due and never began.
    pub never_sent: u64,
    /// Events of streams.
    pub events: u64,
    /// The same by second.
    pub events_per_s: f64,
    /// From when calls were due to when they were over.
    pub latency_us: Quantiles,
    /// From when calls were sent to when they were over.
    pub service_us: Quantiles,
    /// From when calls were due to the head of the response.
    pub first_byte_us: Quantiles,
    /// From when streams were due to their first event.
    pub first_event_us: Quantiles,
    /// The same to their second event.
    pub second_event_us: Quantiles,
    /// Between two events of a stream.
    pub gap_us: Quantiles,
    /// Between due and sent, where there was room: the error of the generator.
    pub lag_us: Quantiles,
    /// The same of each operation.
    pub operations: Vec<OperationReport>,
    /// What happened over time, the warm-up included.
    pub slices: Vec<SliceReport>,
    /// What the generator took.
    pub generator: ProcessReport,
    /// What the server took, where its process is known.
    pub server: Option<ProcessReport>,
    /// What makes these figures doubtful, in sentences.
    pub warnings: Vec<String>,
    /// The histograms of this target, as a log of HdrHistogram (V2, deflated, base64), in
    /// nanoseconds; each has its name as tag.
    pub histograms: String,
}

/// What was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanReport {
    /// `open` or `closed`.
    pub pace: String,
    /// `constant`, `poisson` or `gamma`; empty in a closed loop.
    pub arrivals: String,
    /// Calls unanswered at one time, at most.
    pub in_flight_max: usize,
    /// Threads of the generator.
    pub workers: usize,
    /// The seed.
    pub seed: u64,
    /// `full`, `sample` or `off`.
    pub check: String,
    /// Seconds before calls count.
    pub warmup_s: f64,
    /// Bytes of the text of a message.
    pub payload_bytes: usize,
}

/// Calls a second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RateReport {
    /// What the plan wanted; `None`: as many as possible (closed loop).
    pub wanted: Option<f64>,
    /// Calls that were answered as they should be.
    pub reached: f64,
}

/// The distribution of a time, in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many values there are; without any, all others are 0.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// Half are at most this.
    pub p50: f64,
    /// 90 % are.
    pub p90: f64,
    /// 99 % are.
    pub p99: f64,
    /// 99.9 % are.
    pub p999: f64,
    /// 99.99 % are.
    pub p9999: f64,
    /// The most.
    pub max: f64,
    /// The whole curve: shares from 0 to 1, and the time that so many are at most.
    pub curve: Vec<(f64, f64)>,
}

/// What was measured of one operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationReport {
    /// Its name.
    pub name: String,
    /// Calls that were over.
    pub requests: u64,
    /// Calls that failed, by kind.
    pub errors: BTreeMap<String, u64>,
    /// From due to over.
    pub latency_us: Quantiles,
    /// From due to the first event.
    pub first_event_us: Quantiles,
}

/// What happened in a slice of time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SliceReport {
    /// Seconds since the beginning, at its end.
    pub at_s: f64,
    /// Calls a second that were over.
    pub rate: f64,
    /// Calls that failed.
    pub errors: u64,
    /// Events of streams.
    pub events: u64,
    /// Latency from due, in microseconds.
    pub p50_us: f64,
    /// The same.
    pub p99_us: f64,
    /// The same.
    pub max_us: f64,
}

/// What a process took.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessReport {
    /// Microseconds of CPU time for each call of the run, the warm-up included.
    pub cpu_us_per_call: f64,
    /// CPU time by time: 1 is one core.
    pub cpu_share: f64,
    /// Resident bytes at most.
    pub rss_bytes_max: u64,
    /// Open descriptors at most; 0: unknown.
    pub descriptors_max: u64,
    /// The same over time.
    pub samples: Vec<SampleReport>,
}

/// What a process took at one time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SampleReport {
    /// Seconds since the beginning.
    pub at_s: f64,
    /// CPU time by time since the sample before.
    pub cpu_share: f64,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Open descriptors; 0: unknown.
    pub descriptors: u64,
}

impl LoadReport {
    /// The report of targets. `command`: as the user has called it, without secrets.
    pub fn new(targets: &[LoadedTarget], command: &str) -> LoadReport {
        let facts = MachineFacts::here();
        let started_at = targets.first().map_or_else(SystemTime::now, |target| target.started_at);
        LoadReport {
            schema: REPORT_SCHEMA,
            generator: concat!("peregrine ", env!("CARGO_PKG_VERSION")).to_owned(),
            started_at: rfc3339_of(started_at),
            command: command.to_owned(),
            machine: MachineReport {
                system: facts.system,
                processor: facts.processor,
                cpus: facts.cpus,
                memory_bytes: facts.memory_bytes,
            },
            targets: targets.iter().map(target_report).collect(),
        }
    }

    /// As JSON, on several lines.
    pub fn json(&self) -> String {
        // Numbers, texts and lists always can be written.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// As text for a terminal or a file.
    pub fn text(&self) -> String {
        text::text(self)
    }

    /// As one page of HTML that needs no network.
    pub fn html(&self) -> String {
        html::html(self)
    }
}

fn target_report(target: &LoadedTarget) -> TargetReport {
    let (measures, plan) = (&target.measures, &target.plan);
    let total = measures.total();
    let seconds = target.counted.as_secs_f64().max(1e-9);
    let wanted = match plan.pace {
        LoadPace::Rate { rate, .. } => Some(rate),
        LoadPace::Concurrency(_) => None,
    };
    let all_calls = measures.slices.iter().map(|slice| slice.calls).sum();
    let generator = process_report(&target.own, target, all_calls);
    let names = plan.operations.iter().map(|(operation, _)| operation.name());
    let mut report = TargetReport {
        url: target.url.clone(),
        interface: target.interface.clone(),
        plan: plan_report(target),
        rate: RateReport { wanted, reached: total.good as f64 / seconds },
        seconds,
        requests: total.calls(),
        errors: total.errors.clone(),
        error_examples: total.examples.clone(),
        held_back: measures.held_back,
        late: measures.late,
        never_sent: measures.never_sent,
        events: total.events,
        events_per_s: total.events as f64 / seconds,
        latency_us: quantiles(&total.latency),
        service_us: quantiles(&total.service),
        first_byte_us: quantiles(&total.first_byte),
        first_event_us: quantiles(&total.first_event),
        second_event_us: quantiles(&total.second_event),
        gap_us: quantiles(&total.gaps),
        lag_us: quantiles(&measures.lag),
        operations: names.zip(&measures.operations).map(operation_report).collect(),
        slices: slices(measures),
        generator,
        server: (!target.server.is_empty())
            .then(|| process_report(&target.server, target, all_calls)),
        warnings: Vec::new(),
        histograms: histogram_log(&total, measures, target),
    };
    report.warnings = warnings(&report);
    report
}

fn plan_report(target: &LoadedTarget) -> PlanReport {
    let plan = &target.plan;
    let (pace, arrivals) = match plan.pace {
        LoadPace::Concurrency(_) => ("closed", ""),
        LoadPace::Rate { arrivals: Arrivals::Constant, .. } => ("open", "constant"),
        LoadPace::Rate { arrivals: Arrivals::Poisson, .. } => ("open", "poisson"),
        LoadPace::Rate { arrivals: Arrivals::Gamma(_), .. } => ("open", "gamma"),
    };
    let check = match plan.check {
        CheckLevel::Full => "full",
        CheckLevel::Sample => "sample",
        CheckLevel::Off => "off",
    };
    let in_flight_max = match plan.pace {
        LoadPace::Rate { .. } => plan.in_flight_max,
        LoadPace::Concurrency(calls) => calls,
    };
    PlanReport {
        pace: pace.to_owned(),
        arrivals: arrivals.to_owned(),
        in_flight_max,
        workers: plan.workers,
        seed: plan.seed,
        check: check.to_owned(),
        warmup_s: plan.warmup.as_secs_f64(),
        payload_bytes: plan.payload_bytes,
    }
}

fn operation_report((name, of): (&'static str, &OperationMeasures)) -> OperationReport {
    OperationReport {
        name: name.to_owned(),
        requests: of.calls(),
        errors: of.errors.clone(),
        latency_us: quantiles(&of.latency),
        first_event_us: quantiles(&of.first_event),
    }
}

fn slices(measures: &LoadMeasures) -> Vec<SliceReport> {
    let seconds = measures.slice.as_secs_f64();
    let slices = measures.slices.iter().enumerate();
    let report = slices.map(|(index, slice)| SliceReport {
        at_s: (index + 1) as f64 * seconds,
        rate: slice.calls as f64 / seconds,
        errors: slice.errors,
        events: slice.events,
        p50_us: micros(slice.latency.value_at_quantile(0.5)),
        p99_us: micros(slice.latency.value_at_quantile(0.99)),
        max_us: micros(slice.latency.max()),
    });
    report.collect()
}

fn process_report(samples: &[ProcessSample], target: &LoadedTarget, calls: u64) -> ProcessReport {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return ProcessReport::default();
    };
    let share = |from: &ProcessSample, to: &ProcessSample| {
        let time = to.at.saturating_duration_since(from.at).as_nanos() as f64;
        to.cpu_ns.saturating_sub(from.cpu_ns) as f64 / time.max(1.0)
    };
    let cpu_ns = last.cpu_ns.saturating_sub(first.cpu_ns);
    let over_time = samples.windows(2).map(|pair| SampleReport {
        at_s: pair[1].at.saturating_duration_since(target.start).as_secs_f64(),
        cpu_share: share(&pair[0], &pair[1]),
        rss_bytes: pair[1].rss_bytes,
        descriptors: pair[1].descriptors.unwrap_or_default(),
    });
    ProcessReport {
        cpu_us_per_call: cpu_ns as f64 / 1e3 / calls.max(1) as f64,
        cpu_share: share(first, last),
        rss_bytes_max: samples.iter().map(|sample| sample.rss_bytes).max().unwrap_or_default(),
        descriptors_max: samples.iter().filter_map(|one| one.descriptors).max().unwrap_or_default(),
        samples: over_time.collect(),
    }
}

/// What makes the figures of a target doubtful.
fn warnings(report: &TargetReport) -> Vec<String> {
    let mut warnings = Vec::new();
    let cores = report.plan.workers.max(1) as f64;
    if report.generator.cpu_share > BUSY_SHARE * cores {
        warnings.push(format!(
            "the generator was the bottleneck: it used {:.0} % of its {cores} core(s); give it \
             more --workers, or a machine of its own",
            report.generator.cpu_share * 100.0 / cores
        ));
    }
    if report.late as f64 > LATE_SHARE * report.requests as f64 {
        warnings.push(format!(
            "{} calls began more than 1 ms late because the generator was not in time; their \
             latency counts from when they were due",
            report.late
        ));
    }
    if report.held_back > 0 {
        warnings.push(format!(
            "{} calls were held back because {} were unanswered (--in-flight)",
            report.held_back, report.plan.in_flight_max
        ));
    }
    if report.never_sent > 0 {
        warnings.push(format!(
            "{} calls were due and never sent: the server did not keep up, and the latencies below \
             are better than what users would have seen",
            report.never_sent
        ));
    }
    warnings
}

fn micros(ns: u64) -> f64 {
    // A tenth of a microsecond is finer than any timer here.
    (ns as f64 / 100.0).round() / 10.0
}

fn quantiles(of: &NsHistogram) -> Quantiles {
    if of.is_empty() {
        return Quantiles::default();
    }
    let at = |share: f64| micros(of.value_at_quantile(share));
    let mut curve: Vec<(f64, f64)> = vec![(0.0, micros(of.min()))];
    // Nine steps for each further nine, as far as there are values for it.
    for step in 1.. {
        let left = 10_f64.powf(-f64::from(step) / 9.0);
        if left * (of.len() as f64) < 1.0 {
            break;
        }
        curve.push((1.0 - left, at(1.0 - left)));
    }
    curve.push((1.0, micros(of.max())));
    Quantiles {
        count: of.len(),
        mean: (of.mean() / 100.0).round() / 10.0,
        min: micros(of.min()),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: micros(of.max()),
        curve,
    }
}

/// The histograms as a log that the tools of HdrHistogram read.
fn histogram_log(
    total: &OperationMeasures,
    measures: &LoadMeasures,
    target: &LoadedTarget,
) -> String {
    let mut log = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let named: [(&str, &NsHistogram); 7] = [
        ("latency", &total.latency),
        ("service", &total.service),
        ("first_byte", &total.first_byte),
        ("first_event", &total.first_event),
        ("second_event", &total.second_event),
        ("gap", &total.gaps),
        ("lag", &measures.lag),
    ];
    let writer = IntervalLogWriterBuilder::new()
        .with_start_time(target.started_at)
        .begin_log_with(&mut log, &mut serializer);
    if let Ok(mut writer) = writer {
        for (name, histogram) in named.into_iter().filter(|(_, one)| !one.is_empty()) {
            let from = target.plan.warmup;
            // Into memory it always can be written.
            let _ = writer.write_histogram(histogram, from, target.counted, Tag::new(name));
        }
    }
    String::from_utf8(log).unwrap_or_default()
}

/// A time as RFC 3339 has it, in UTC.
fn rfc3339_of(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    String::from_utf8_lossy(&rfc3339(since.as_millis() as u64)).into_owned()
}
