//! The report of a run: one document, from which all formats are written.

mod axis;
mod compare;
mod csv;
mod from_run;
mod html;
mod join;
mod plot;
mod plots;
mod text;

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::model::time::rfc3339;

use super::{LoadedTarget, MachineFacts};

/// The schema number of the document; it changes if readers of the old schema would be misled.
pub const REPORT_SCHEMA: u32 = 1;

/// The results of runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadReport {
    /// [`REPORT_SCHEMA`].
    pub schema: u32,
    /// The name and the version of the generator, such as `peregrine 0.1.0`.
    pub generator: String,
    /// The start time, in RFC 3339.
    pub started_at: String,
    /// The command line, without secrets.
    pub command: String,
    /// The generator's machine.
    pub machine: MachineReport,
    /// The results, by target.
    pub targets: Vec<TargetReport>,
    /// Ratios of targets to the first target, if they were loaded in rounds.
    #[serde(default)]
    pub comparisons: Vec<ComparisonReport>,
}

/// The ratio of a figure of one target to that of the baseline, which was loaded in the same
/// rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// The name of the plan.
    pub phase: String,
    /// The target.
    pub url: String,
    /// The URL of the baseline.
    pub baseline: String,
    /// The figure, such as `latency p99`.
    pub figure: String,
    /// The target's figure divided by the baseline's: the geometric mean of the rounds.
    pub ratio: f64,
    /// The lower end of the 95 % interval (bootstrap over the rounds).
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// The number of rounds.
    pub rounds: usize,
}

/// The circumstances of a target's run, in a report that was joined from several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceReport {
    /// The file of the joined report.
    pub file: String,
    /// The name and the version of the generator, such as `peregrine 0.1.0`.
    pub generator: String,
    /// When the run started, in RFC 3339.
    pub started_at: String,
    /// The command line of the run, without secrets.
    pub command: String,
    /// The generator's machine.
    pub machine: MachineReport,
}

/// The generator's machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineReport {
    /// The operating system and the release of its kernel.
    pub system: String,
    /// The name of the processor.
    pub processor: String,
    /// Threads that can run concurrently.
    pub cpus: usize,
    /// Bytes of memory; 0: unknown.
    pub memory_bytes: u64,
}

/// The results of one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetReport {
    /// The URL that the user named.
    pub url: String,
    /// The called binding and version.
    pub interface: String,
    /// The plan.
    pub plan: PlanReport,
    /// Calls per second.
    pub rate: RateReport,
    /// Seconds during which calls were counted.
    pub seconds: f64,
    /// Completed calls, good or failed.
    pub requests: u64,
    /// Failed calls, by kind.
    pub errors: BTreeMap<String, u64>,
    /// One example of each kind of error.
    pub error_examples: BTreeMap<String, String>,
    /// Calls that waited because the maximum number of calls was in flight.
    pub held_back: u64,
    /// Calls that began more than 1 ms late although the maximum number was not in flight.
    pub late: u64,
    /// Scheduled calls that did not begin.
    pub never_sent: u64,
    /// Calls in flight when the user ended the run.
    pub unanswered: u64,
    /// The time since the oldest of these calls was due.
    pub oldest_unanswered_us: f64,
    /// True: the user ended the run early.
    pub interrupted: bool,
    /// Events of streams.
    pub events: u64,
    /// Events per second.
    pub events_per_s: f64,
    /// From the due time to completion.
    pub latency_us: Quantiles,
    /// From sending to completion.
    pub service_us: Quantiles,
    /// From the due time to the head of the response.
    pub first_byte_us: Quantiles,
    /// From the due time to the first event of a stream.
    pub first_event_us: Quantiles,
    /// From the due time to the second event.
    pub second_event_us: Quantiles,
    /// Between two events of a stream.
    pub gap_us: Quantiles,
    /// Between the end of the first and the end of the last stream of one task (`subscribe`).
    pub spread_us: Quantiles,
    /// From the last event of a stream to its webhook (`push`).
    pub delivery_us: Quantiles,
    /// From the due time to sending, of calls that no limit held back: the generator's error.
    pub lag_us: Quantiles,
    /// The results of each operation.
    pub operations: Vec<OperationReport>,
    /// The results over time, the warm-up included.
    pub slices: Vec<SliceReport>,
    /// The results at each rate of a sweep; empty: the run had one rate.
    #[serde(default)]
    pub sweep: Vec<SweepPoint>,
    /// Resources of the generator.
    pub generator: ProcessReport,
    /// Resources of the server, if its process is known.
    pub server: Option<ProcessReport>,
    /// Reasons to doubt these figures, in sentences.
    pub warnings: Vec<String>,
    /// The histograms of this target, as a log of HdrHistogram (V2, deflated, base64), in
    /// nanoseconds; the tag of each histogram is its name.
    pub histograms: String,
    /// The circumstances of the run, if they differ from those of the report.
    #[serde(default)]
    pub source: Option<SourceReport>,
}

/// The plan of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanReport {
    /// `open` or `closed`.
    pub pace: String,
    /// `constant`, `poisson`, `gamma` or `recorded`; empty in a closed loop.
    pub arrivals: String,
    /// Maximum calls in flight.
    pub in_flight_max: usize,
    /// Threads of the generator.
    pub workers: usize,
    /// The seed.
    pub seed: u64,
    /// `full`, `sample` or `off`.
    pub check: String,
    /// Seconds of the warm-up, in which calls are not counted.
    pub warmup_s: f64,
    /// The name of the plan: a phase of a workload, or the names of the operations.
    pub name: String,
    /// The version of the workload; 0: none. Figures of different versions are not comparable.
    #[serde(default)]
    pub workload_version: u32,
}

/// Calls per second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RateReport {
    /// The wanted rate; `None`: unlimited (closed loop).
    pub wanted: Option<f64>,
    /// Good calls that completed while calls were counted.
    pub reached: f64,
    /// Good calls within all limits of `--slo`; `None`: the plan has no limits.
    pub goodput: Option<f64>,
}

/// The distribution of a time, in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Quantiles {
    /// The number of values; 0: all other members are 0.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The minimum.
    pub min: f64,
    /// 50 % are at most this.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// 99.9 % are at most this.
    pub p999: f64,
    /// 99.99 % are at most this.
    pub p9999: f64,
    /// The maximum.
    pub max: f64,
    /// The whole curve: shares from 0 to 1, each with the time that this share does not exceed.
    pub curve: Vec<(f64, f64)>,
}

/// The results at one rate of a sweep.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SweepPoint {
    /// The wanted calls per second.
    pub wanted: f64,
    /// The good calls per second.
    pub reached: f64,
    /// The median latency from the due time, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the latency from the due time, in microseconds.
    pub p99_us: f64,
    /// Failed calls.
    pub errors: u64,
}

/// The results of one operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationReport {
    /// The name of the operation.
    pub name: String,
    /// Completed calls.
    pub requests: u64,
    /// Failed calls, by kind.
    pub errors: BTreeMap<String, u64>,
    /// From the due time to completion.
    pub latency_us: Quantiles,
    /// From the due time to the first event.
    pub first_event_us: Quantiles,
}

/// The results in a time slice.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SliceReport {
    /// Seconds from the start to the end of the slice.
    pub at_s: f64,
    /// Completed calls per second.
    pub rate: f64,
    /// Failed calls.
    pub errors: u64,
    /// Events of streams.
    pub events: u64,
    /// The median latency from the due time, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the latency.
    pub p99_us: f64,
    /// The maximum latency.
    pub max_us: f64,
}

/// The resources of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessReport {
    /// Microseconds of CPU time for each call of the run, the warm-up included.
    pub cpu_us_per_call: f64,
    /// CPU time per elapsed time: 1 is one core.
    pub cpu_share: f64,
    /// Maximum resident bytes.
    pub rss_bytes_max: u64,
    /// Maximum open descriptors; 0: unknown.
    pub descriptors_max: u64,
    /// The samples over time.
    pub samples: Vec<SampleReport>,
}

/// The resources of a process at one time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SampleReport {
    /// Seconds since the start.
    pub at_s: f64,
    /// CPU time per elapsed time since the previous sample.
    pub cpu_share: f64,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Open descriptors; 0: unknown.
    pub descriptors: u64,
}

impl TargetReport {
    /// The report of a run against one target.
    pub fn of(target: &LoadedTarget) -> TargetReport {
        from_run::target_report(target)
    }
}

impl LoadReport {
    /// The report of targets, of which the first started at `started_at`. `command`: the command
    /// line, without secrets.
    pub fn new(targets: Vec<TargetReport>, started_at: SystemTime, command: &str) -> LoadReport {
        let facts = MachineFacts::here();
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
            targets,
            comparisons: Vec::new(),
        }
    }

    /// As JSON, on several lines.
    pub fn json(&self) -> String {
        // Serialization of numbers, texts and lists does not fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// As text for a terminal or a file.
    pub fn text(&self) -> String {
        text::text(self)
    }

    /// As CSV: one line for each slice of time of each target.
    pub fn csv(&self) -> String {
        csv::csv(self)
    }

    /// As one HTML page that needs no network.
    pub fn html(&self) -> String {
        html::html(self)
    }
}

/// A time in the format of RFC 3339, in UTC.
fn rfc3339_of(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    String::from_utf8_lossy(&rfc3339(since.as_millis() as u64)).into_owned()
}
