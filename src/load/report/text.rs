//! The report as text.

use std::fmt::Write;

use super::{
    super::measures::shown, ComparisonReport, LoadReport, Quantiles, TargetReport, compare,
};

/// The report as text, with a final line break.
pub(super) fn text(report: &LoadReport) -> String {
    let mut out = String::new();
    for target in &report.targets {
        write_target(&mut out, target);
    }
    if report.targets.len() > 1 {
        out.push_str(&compare::text(report, &report.names()));
    }
    for one in &report.comparisons {
        let ComparisonReport { url, baseline, figure, ratio, low, high, .. } = one;
        let figures = format!("{ratio:.3} ({low:.3} to {high:.3})");
        line(&mut out, &format!("{figure} of {url} divided by that of {baseline}: {figures}"));
    }
    out
}

fn write_target(out: &mut String, target: &TargetReport) {
    let TargetReport { rate, requests, .. } = target;
    line(out, &shown(&format!("{} · {}", target.url, target.interface)));
    line(out, &shown(&plan_line(target)));
    line(out, "");
    if let Some(wanted) = rate.wanted {
        line(out, &format!("  wanted   {wanted:>12.1} calls/s"));
    }
    let failed: u64 = target.errors.values().sum();
    line(
        out,
        &format!("  reached  {:>12.1} calls/s   {requests} calls, {failed} errors", rate.reached),
    );
    if let Some(goodput) = rate.goodput {
        line(out, &format!("  goodput  {goodput:>12.1} calls/s   within all limits of --slo"));
    }
    if target.events > 0 {
        let per_second = target.events_per_s;
        line(out, &format!("  events   {per_second:>12.1} /s        {} events", target.events));
    }
    line(out, "");
    line(
        out,
        &format!(
            "  {:<13}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "ms", "p50", "p90", "p99", "p99.9", "p99.99", "max"
        ),
    );
    for (name, of) in times(target) {
        if of.count > 0 {
            let values = [of.p50, of.p90, of.p99, of.p999, of.p9999, of.max].map(millis);
            let values: String = values.iter().map(|value| format!("{value:>10}")).collect();
            line(out, &format!("  {name:<13}{values}"));
        }
    }
    line(out, "");
    for (kind, count) in &target.errors {
        let example = target.error_examples.get(kind).map_or("", String::as_str);
        line(out, &shown(&format!("  error    {count} × {kind}: {example}")));
    }
    let generator = &target.generator;
    line(
        out,
        &format!(
            "  generator  CPU {:.0} % of a core, lag p99 {} ms, {} calls late by more than 1 ms",
            generator.cpu_share * 100.0,
            millis(target.lag_us.p99),
            target.late
        ),
    );
    if let Some(server) = &target.server {
        line(
            out,
            &format!(
                "  server     CPU {:.0} % of a core, {:.1} µs per call; memory {:.1} MiB, {} \
                 descriptors at most",
                server.cpu_share * 100.0,
                server.cpu_us_per_call,
                server.rss_bytes_max as f64 / f64::from(1 << 20),
                server.descriptors_max
            ),
        );
    }
    for warning in &target.warnings {
        line(out, &shown(&format!("  WARNING  {warning}")));
    }
    line(out, "");
}

/// The plan, such as `send: 100 calls/s, constant, for 10.0 s`.
pub(super) fn plan_line(target: &TargetReport) -> String {
    let pace = match target.rate.wanted {
        Some(wanted) => format!("{wanted} calls/s, {}", target.plan.arrivals),
        None => format!("{} concurrent calls", target.plan.in_flight_max),
    };
    let phase = match target.plan.workload_version {
        0 => String::new(),
        version => format!("{} (version {version}), ", target.plan.name),
    };
    format!("{phase}{}: {pace}, for {:.1} s", target.operations_line(), target.seconds)
}

impl TargetReport {
    /// The names of the target's operations.
    pub(super) fn operations_line(&self) -> String {
        let names: Vec<&str> = self.operations.iter().map(|one| one.name.as_str()).collect();
        names.join(", ")
    }
}

/// The times of a target with their names, the most important first.
pub(super) fn times(target: &TargetReport) -> [(&'static str, &Quantiles); 8] {
    [
        ("latency", &target.latency_us),
        ("from sent", &target.service_us),
        ("first byte", &target.first_byte_us),
        ("first event", &target.first_event_us),
        ("second event", &target.second_event_us),
        ("event gap", &target.gap_us),
        ("spread", &target.spread_us),
        ("delivery", &target.delivery_us),
    ]
}

/// Microseconds as milliseconds, with significant digits only.
pub(super) fn millis(micros: f64) -> String {
    match micros / 1e3 {
        ms if ms < 10.0 => format!("{ms:.3}"),
        ms if ms < 100.0 => format!("{ms:.2}"),
        ms if ms < 1_000.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}
