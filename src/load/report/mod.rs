//! What a run is reported as: one document, which is the JSON report, and from which the others are
//! written.

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

/// The number of the document's shape; it changes when a reader of the old one would be misled.
pub const REPORT_SCHEMA: u32 = 1;

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
    /// Ratios of targets to the first one, if they were loaded in rounds.
    #[serde(default)]
    pub comparisons: Vec<ComparisonReport>,
}

/// A figure of one target by that of another, which was loaded in rounds with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// What was done.
    pub phase: String,
    /// The target.
    pub url: String,
    /// What it is compared with.
    pub baseline: String,
    /// Which figure, as `latency p99`.
    pub figure: String,
    /// The target's by the baseline's: the geometric mean of the rounds.
    pub ratio: f64,
    /// The lower end of the 95 % interval (bootstrap over the rounds).
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Rounds.
    pub rounds: usize,
}

/// How the run of a target was made, in a report that was joined from several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceReport {
    /// The file that its report was read from.
    pub file: String,
    /// As `peregrine 0.1.0`.
    pub generator: String,
    /// When the run began, in RFC 3339.
    pub started_at: String,
    /// Its command line, without secrets.
    pub command: String,
    /// Where its generator ran.
    pub machine: MachineReport,
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
    /// Calls that were unanswered when the user ended the run.
    pub unanswered: u64,
    /// How long the oldest of them had been due then.
    pub oldest_unanswered_us: f64,
    /// The user has ended the run early.
    pub interrupted: bool,
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
    /// Between the end of the first and of the last stream of one task (`subscribe`).
    pub spread_us: Quantiles,
    /// From the last event of a stream to its webhook (`push`).
    pub delivery_us: Quantiles,
    /// Between due and sent, where there was room: the error of the generator.
    pub lag_us: Quantiles,
    /// The same of each operation.
    pub operations: Vec<OperationReport>,
    /// What happened over time, the warm-up included.
    pub slices: Vec<SliceReport>,
    /// What was measured at each rate of a sweep; empty: there was one rate.
    #[serde(default)]
    pub sweep: Vec<SweepPoint>,
    /// What the generator took.
    pub generator: ProcessReport,
    /// What the server took, where its process is known.
    pub server: Option<ProcessReport>,
    /// What makes these figures doubtful, in sentences.
    pub warnings: Vec<String>,
    /// The histograms of this target, as a log of HdrHistogram (V2, deflated, base64), in
    /// nanoseconds; each has its name as tag.
    pub histograms: String,
    /// How its run was made, where that differs from what the report says; `None`: it does not.
    #[serde(default)]
    pub source: Option<SourceReport>,
}

/// What was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanReport {
    /// `open` or `closed`.
    pub pace: String,
    /// `constant`, `poisson`, `gamma` or `recorded`; empty in a closed loop.
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
    /// What it is called: a phase of a workload, or the names of its operations.
    pub name: String,
    /// The version of that workload; 0: there is none. Figures of different versions are not
    /// comparable.
    #[serde(default)]
    pub workload_version: u32,
}

/// Calls a second.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RateReport {
    /// What the plan wanted; `None`: as many as possible (closed loop).
    pub wanted: Option<f64>,
    /// Calls that were over as they should be, while calls counted.
    pub reached: f64,
    /// Those of them within all limits of `--slo`; `None`: there are no limits.
    pub goodput: Option<f64>,
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

/// What was measured at one rate of a sweep.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Calls a second that the plan wanted.
    pub wanted: f64,
    /// Calls a second that were answered as they should be.
    pub reached: f64,
    /// Latency from due, in microseconds.
    pub p50_us: f64,
    /// The same.
    pub p99_us: f64,
    /// Calls that failed.
    pub errors: u64,
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

impl TargetReport {
    /// The report of a run against one target.
    pub fn of(target: &LoadedTarget) -> TargetReport {
        from_run::target_report(target)
    }
}

impl LoadReport {
    /// The report of targets, whose first began at `started_at`. `command`: as the user has called
    /// it, without secrets.
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
        // Numbers, texts and lists always can be written.
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

    /// As one page of HTML that needs no network.
    pub fn html(&self) -> String {
        html::html(self)
    }
}

/// A time as RFC 3339 has it, in UTC.
fn rfc3339_of(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    String::from_utf8_lossy(&rfc3339(since.as_millis() as u64)).into_owned()
}
