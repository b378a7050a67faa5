//! The report of a run: one document, which is the JSON report and the source of the other formats.

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

/// The schema number of the document; it changes if a reader of the old one would be misled.
pub const REPORT_SCHEMA: u32 = 1;

/// The results of runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadReport {
    /// [`REPORT_SCHEMA`].
    pub schema: u32,
    /// As `peregrine 0.1.0`.
    pub generator: String,
    /// When it started, in RFC 3339.
    pub started_at: String,
    /// The command line, without secrets.
    pub command: String,
    /// The generator's machine.
    pub machine: MachineReport,
    /// The results, by target.
    pub targets: Vec<TargetReport>,
    /// Ratios of targets to the first one, if they were loaded in rounds.
    #[serde(default)]
    pub comparisons: Vec<ComparisonReport>,
}

/// The ratio of one target's figure to another's, which was loaded in rounds with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// The name of the plan.
    pub phase: String,
    /// The target.
    pub url: String,
    /// The URL of the baseline.
    pub baseline: String,
    /// The figure, as `latency p99`.
    pub figure: String,
    /// The target's figure divided by the baseline's: the geometric mean of the rounds.
    pub ratio: f64,
    /// The lower end of the 95 % interval (bootstrap over the rounds).
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Rounds.
    pub rounds: usize,
}

/// The circumstances of a target's run, in a report that was joined from several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceReport {
    /// The file of its report.
    pub file: String,
    /// As `peregrine 0.1.0`.
    pub generator: String,
    /// When the run started, in RFC 3339.
    pub started_at: String,
    /// Its command line, without secrets.
    pub command: String,
    /// Its generator's machine.
    pub machine: MachineReport,
}

/// The generator's machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineReport {
    /// The operating system and the release of its kernel.
    pub system: String,
    /// The name of the processor.
    pub processor: String,
    /// Threads that can run at once.
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
    /// One example of each kind.
    pub error_examples: BTreeMap<String, String>,
    /// Calls that waited because the maximum was in flight.
    pub held_back: u64,
    /// Calls that began more than 1 ms after they were due, although there was room.
    pub late: u64,
    /// Scheduled calls that never began.
    pub never_sent: u64,
    /// Calls in flight when the user ended the run.
    pub unanswered: u64,
    /// The age of the oldest of them since it was due.
    pub oldest_unanswered_us: f64,
    /// The user ended the run early.
    pub interrupted: bool,
    /// Events of streams.
    pub events: u64,
    /// Events per second.
    pub events_per_s: f64,
    /// From due to completed.
    pub latency_us: Quantiles,
    /// From sent to completed.
    pub service_us: Quantiles,
    /// From due to the head of the response.
    pub first_byte_us: Quantiles,
    /// From due to the first event of a stream.
    pub first_event_us: Quantiles,
    /// From due to the second event.
    pub second_event_us: Quantiles,
    /// Between two events of a stream.
    pub gap_us: Quantiles,
    /// Between the end of the first and of the last stream of one task (`subscribe`).
    pub spread_us: Quantiles,
    /// From the last event of a stream to its webhook (`push`).
    pub delivery_us: Quantiles,
    /// From due to sent, of calls for which there was room: the generator's error.
    pub lag_us: Quantiles,
    /// The results of each operation.
    pub operations: Vec<OperationReport>,
    /// The results over time, the warm-up included.
    pub slices: Vec<SliceReport>,
    /// The results at each rate of a sweep; empty: there was one rate.
    #[serde(default)]
    pub sweep: Vec<SweepPoint>,
    /// Resources of the generator.
    pub generator: ProcessReport,
    /// Resources of the server, if its process is known.
    pub server: Option<ProcessReport>,
    /// Reasons to doubt these figures, in sentences.
    pub warnings: Vec<String>,
    /// The histograms of this target, as a log of HdrHistogram (V2, deflated, base64), in
    /// nanoseconds; each has its name as tag.
    pub histograms: String,
    /// The circumstances of its run, if they differ from the report's; `None`: they do not.
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
    /// Seconds before calls count.
    pub warmup_s: f64,
    /// Its name: a phase of a workload, or the names of its operations.
    pub name: String,
    /// The version of that workload; 0: none. Figures of different versions are not comparable.
    #[serde(default)]
    pub workload_version: u32,
}

/// Calls per second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RateReport {
    /// The wanted rate; `None`: unlimited (closed loop).
    pub wanted: Option<f64>,
    /// Good calls that completed while calls counted.
    pub reached: f64,
    /// Good calls within all limits of `--slo`; `None`: there are no limits.
    pub goodput: Option<f64>,
}

/// The distribution of a time, in microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Quantiles {
    /// The number of values; without any, all others are 0.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The minimum.
    pub min: f64,
    /// 50 % are at most this.
    pub p50: f64,
    /// 90 % are.
    pub p90: f64,
    /// 99 % are.
    pub p99: f64,
    /// 99.9 % are.
    pub p999: f64,
    /// 99.99 % are.
    pub p9999: f64,
    /// The maximum.
    pub max: f64,
    /// The whole curve: shares from 0 to 1, each with the time that it does not exceed.
    pub curve: Vec<(f64, f64)>,
}

/// The results at one rate of a sweep.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SweepPoint {
    /// The wanted calls per second.
    pub wanted: f64,
    /// The good calls per second.
    pub reached: f64,
    /// The median latency from due, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the latency from due, in microseconds.
    pub p99_us: f64,
    /// Failed calls.
    pub errors: u64,
}

/// The results of one operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationReport {
    /// Its name.
    pub name: String,
    /// Completed calls.
    pub requests: u64,
    /// Failed calls, by kind.
    pub errors: BTreeMap<String, u64>,
    /// From due to completed.
    pub latency_us: Quantiles,
    /// From due to the first event.
    pub first_event_us: Quantiles,
}

/// The results in a time slice.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SliceReport {
    /// Seconds from the start to its end.
    pub at_s: f64,
    /// Completed calls per second.
    pub rate: f64,
    /// Failed calls.
    pub errors: u64,
    /// Events of streams.
    pub events: u64,
    /// The median latency from due, in microseconds.
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
    /// CPU time per time: 1 is one core.
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
    /// CPU time per time since the previous sample.
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
    /// The report of targets, the first of which started at `started_at`. `command`: the command
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
        // Numbers, texts and lists can always be written.
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
