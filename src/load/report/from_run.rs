//! Creates the report of a run from its results.

use std::time::Duration;

use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, Tag},
};

use super::{
    super::{
        Arrivals, CallLimits, CheckLevel, LoadMeasures, LoadOperation, LoadPace, LoadedTarget,
        OperationMeasures, ProcessSample, measures::NsHistogram,
    },
    OperationReport, PlanReport, ProcessReport, Quantiles, RateReport, SampleReport, SliceReport,
    TargetReport,
};

/// Share of the generator's cores above which a warning calls the generator the bottleneck.
const BUSY_SHARE: f64 = 0.9;
/// Share of late calls above which a warning calls the generator too slow.
const LATE_SHARE: f64 = 0.01;
/// Maximum samples of a process in a report; in a longer run, each sample represents several.
const SAMPLES_MAX: usize = 600;
/// Minimum time between samples of a process.
const SAMPLE_TIME_MIN: Duration = Duration::from_millis(250);

/// The report of a run against one target.
pub(super) fn target_report(target: &LoadedTarget) -> TargetReport {
    let (measures, plan) = (&target.measures, &target.plan);
    let total = measures.total();
    let seconds = target.counted.as_secs_f64().max(1e-9);
    let all_calls = measures.all_calls;
    let generator = process_report(&target.own, target, all_calls);
    let operations = plan.calls.iter().zip(&measures.operations);
    let operations = operations.map(|(call, of)| operation_report(call.operation, of));
    let mut report = TargetReport {
        url: target.url.clone(),
        interface: target.interface.clone(),
        plan: plan_report(target),
        rate: RateReport {
            wanted: plan.wanted_rate(),
            reached: measures.done_in_time as f64 / seconds,
            goodput: (plan.limits != CallLimits::default())
                .then(|| total.within_limits as f64 / seconds),
        },
        seconds,
        requests: total.calls(),
        errors: total.errors.clone(),
        error_examples: total.examples.clone(),
        held_back: measures.held_back,
        late: measures.late,
        never_sent: measures.never_sent,
        unanswered: measures.unanswered,
        oldest_unanswered_us: micros(measures.oldest_unanswered_ns),
        interrupted: target.is_interrupted,
        events: total.events,
        events_per_s: total.events as f64 / seconds,
        latency_us: quantiles(&total.latency),
        service_us: quantiles(&total.service),
        first_byte_us: quantiles(&total.first_byte),
        first_event_us: quantiles(&total.first_event),
        second_event_us: quantiles(&total.second_event),
        gap_us: quantiles(&total.gaps),
        spread_us: quantiles(&total.spread),
        delivery_us: quantiles(&total.delivery),
        lag_us: quantiles(&measures.lag),
        operations: operations.collect(),
        slices: slices(measures),
        sweep: Vec::new(),
        generator,
        server: (!target.server.is_empty())
            .then(|| process_report(&target.server, target, all_calls)),
        warnings: Vec::new(),
        histograms: histogram_log(&total, measures, target),
        source: None,
    };
    report.warnings = warnings(&report);
    report
}

fn plan_report(target: &LoadedTarget) -> PlanReport {
    let plan = &target.plan;
    let (pace, arrivals) = match plan.pace {
        _ if plan.replay.is_some() => ("open", "recorded"),
        LoadPace::Closed => ("closed", ""),
        LoadPace::Rate(span) => match span.arrivals {
            Arrivals::Constant => ("open", "constant"),
            Arrivals::Poisson => ("open", "poisson"),
            Arrivals::Gamma(_) => ("open", "gamma"),
        },
    };
    let check = match plan.check {
        CheckLevel::Full => "full",
        CheckLevel::Sample => "sample",
        CheckLevel::Off => "off",
    };
    PlanReport {
        pace: pace.to_owned(),
        arrivals: arrivals.to_owned(),
        in_flight_max: plan.in_flight_max,
        workers: plan.workers,
        seed: plan.seed,
        check: check.to_owned(),
        warmup_s: plan.warmup.as_secs_f64(),
        name: plan.name.clone(),
        workload_version: plan.workload_version,
    }
}

fn operation_report(operation: LoadOperation, of: &OperationMeasures) -> OperationReport {
    OperationReport {
        name: operation.name().to_owned(),
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
    let step = samples.len().div_ceil(SAMPLES_MAX);
    let some: Vec<&ProcessSample> = samples.iter().step_by(step).collect();
    // The last sample may be too close to the previous sample to measure usage.
    let is_long = |pair: &&[&ProcessSample]| {
        pair[1].at.saturating_duration_since(pair[0].at) >= SAMPLE_TIME_MIN
    };
    let over_time = some.windows(2).filter(is_long).map(|pair| SampleReport {
        at_s: pair[1].at.saturating_duration_since(target.start).as_secs_f64(),
        cpu_share: share(pair[0], pair[1]),
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

/// Reasons to doubt the figures of a target.
fn warnings(report: &TargetReport) -> Vec<String> {
    let mut warnings = Vec::new();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cores = report.plan.workers.clamp(1, cpus) as f64;
    if report.interrupted {
        warnings.push(format!(
            "the run was ended early: {} calls had no answer, the oldest for {:.1} s; the \
             latencies do not include them",
            report.unanswered,
            report.oldest_unanswered_us / 1e6
        ));
    }
    if report.requests == 0 && !report.interrupted {
        warnings.push("no call was counted: no call was made after the warm-up".to_owned());
    }
    if report.generator.cpu_share > BUSY_SHARE * cores {
        warnings.push(format!(
            "the generator was the bottleneck: it used {:.0} % of its {cores} core(s); give it \
             more --workers, or a separate machine",
            report.generator.cpu_share * 100.0 / cores
        ));
    }
    if report.late as f64 > LATE_SHARE * report.requests as f64 {
        warnings.push(format!(
            "{} calls began more than 1 ms late because the generator was late; their latency \
             counts from the due time",
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
        let why = match report.late > report.held_back {
            true => "the generator was late",
            false => "the server did not keep up",
        };
        warnings.push(format!(
            "{} calls were due and never sent: {why}, so the latencies are better than users \
             would have seen",
            report.never_sent
        ));
    }
    warnings
}

fn micros(ns: u64) -> f64 {
    // Rounds to a tenth of a microsecond: no timer of a run is more precise.
    (ns as f64 / 100.0).round() / 10.0
}

fn quantiles(of: &NsHistogram) -> Quantiles {
    if of.is_empty() {
        return Quantiles::default();
    }
    let at = |share: f64| micros(of.value_at_quantile(share));
    let mut curve: Vec<(f64, f64)> = vec![(0.0, micros(of.min()))];
    // Nine steps for each further nine of the share, while the histogram has values for it.
    for step in 1.. {
        let tail = 10_f64.powf(-f64::from(step) / 9.0);
        if tail * (of.len() as f64) < 1.0 {
            break;
        }
        curve.push((1.0 - tail, at(1.0 - tail)));
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

/// The histograms as a log for HdrHistogram tools.
fn histogram_log(
    total: &OperationMeasures,
    measures: &LoadMeasures,
    target: &LoadedTarget,
) -> String {
    let mut log = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let named: [(&str, &NsHistogram); 9] = [
        ("latency", &total.latency),
        ("service", &total.service),
        ("first_byte", &total.first_byte),
        ("first_event", &total.first_event),
        ("second_event", &total.second_event),
        ("gap", &total.gaps),
        ("spread", &total.spread),
        ("delivery", &total.delivery),
        ("lag", &measures.lag),
    ];
    let writer = IntervalLogWriterBuilder::new()
        .with_start_time(target.started_at)
        .begin_log_with(&mut log, &mut serializer);
    if let Ok(mut writer) = writer {
        for (name, histogram) in named.into_iter().filter(|(_, one)| !one.is_empty()) {
            let from = target.plan.warmup;
            // Writing to memory cannot fail.
            let _ = writer.write_histogram(histogram, from, target.counted, Tag::new(name));
        }
    }
    String::from_utf8(log).unwrap_or_default()
}
