//! The plots of a report. A plot without values is omitted.

use super::{
    LoadReport, Quantiles, SampleReport, SliceReport, SweepPoint, TargetReport,
    axis::{Axis, AxisScale},
    plot::{DrawnPoint, LinePlot, LineStyle, PlotLine},
};

const BY_PERCENTILE: &str = "percentile";
const OVER_TIME: &str = "seconds since the beginning";

/// The targets of a report, each with its name.
#[derive(Clone, Copy)]
struct NamedTargets<'r> {
    targets: &'r [TargetReport],
    names: &'r [String],
}

impl<'r> NamedTargets<'r> {
    fn each(self) -> impl Iterator<Item = (usize, &'r TargetReport, &'r str)> {
        let named = self.targets.iter().zip(self.names).enumerate();
        named.map(|(index, (target, name))| (index, target, name.as_str()))
    }

    fn is_one(self) -> bool {
        self.targets.len() == 1
    }

    /// The name of a line: the figure and, if the report has several targets, the target.
    fn line_name(self, name: &str, what: &str) -> String {
        if self.is_one() { what.to_owned() } else { format!("{name}: {what}") }
    }

    /// The warm-up of the targets, if all targets have the same.
    fn warmup_s(self) -> f64 {
        let mut warmups = self.targets.iter().map(|target| target.plan.warmup_s);
        let first = warmups.next().unwrap_or_default();
        if warmups.all(|one| one == first) { first } else { 0.0 }
    }
}

/// The plots with values. `names`: the names of the targets.
pub(super) fn plots(report: &LoadReport, names: &[String]) -> Vec<LinePlot<'static>> {
    let all = NamedTargets { targets: &report.targets, names };
    let mut plots = vec![latency(all)];
    plots.extend(sweeps(all));
    plots.extend([latency_over_time(all), rate_over_time(all)]);
    plots.extend([errors_over_time(all), events_over_time(all)]);
    plots.extend([cpu(all), memory(all), first_events(all)]);
    plots.extend(CURVES.iter().map(|one| one.plot(all)));
    plots.retain(LinePlot::has_values);
    plots
}

fn curve(name: String, style: LineStyle, of: &Quantiles) -> PlotLine {
    let points = of.curve.iter().map(|(share, us)| (*share, us / 1e3));
    PlotLine { name, style, points: if of.count > 0 { points.collect() } else { Vec::new() } }
}

fn by_percentile(
    title: &'static str,
    caption: &'static str,
    lines: impl Iterator<Item = PlotLine>,
) -> LinePlot<'static> {
    LinePlot {
        title,
        caption,
        x: Axis { label: BY_PERCENTILE, scale: AxisScale::Nines },
        y: Axis { label: "ms", scale: AxisScale::Log },
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
        shaded_to: 0.0,
        has_dots: false,
    }
}

fn latency(all: NamedTargets<'_>) -> LinePlot<'static> {
    let lines = all.each().flat_map(|(index, target, name)| {
        let sent = all.is_one() && target.plan.pace == "open";
        let sent = sent.then(|| {
            curve("from when a call was sent".to_owned(), LineStyle::Dashed(1), &target.service_us)
        });
        let due = if sent.is_some() { "from when a call was due" } else { "latency" };
        let name = if all.is_one() { due } else { name };
        [Some(curve(name.to_owned(), LineStyle::Solid(index), &target.latency_us)), sent]
    });
    by_percentile(
        "Latency by percentile",
        "Duration of calls, from the fastest on the left to the slowest on the right; latency \
         counts from the due time, so waiting for a slow server is included.",
        lines.flatten(),
    )
}

fn first_events(all: NamedTargets<'_>) -> LinePlot<'static> {
    let lines = all.each().flat_map(|(index, target, name)| {
        let of = |what, style, of| curve(all.line_name(name, what), style, of);
        [
            of("first event", LineStyle::Solid(index), &target.first_event_us),
            of("second event", LineStyle::Dashed(index), &target.second_event_us),
        ]
    });
    by_percentile(
        "First events of streams by percentile",
        "Time from the due time of a stream to its first and second event: what a user waits \
         before anything is shown.",
        lines,
    )
}

/// A plot of times with one curve for each target.
struct CurvePlot {
    title: &'static str,
    caption: &'static str,
    /// The name of a line.
    what: &'static str,
    of: fn(&TargetReport) -> &Quantiles,
}

const CURVES: [CurvePlot; 3] = [
    CurvePlot {
        title: "Gaps between events by percentile",
        caption: "Time from one event of a stream to the next; a steep end on the right means \
                  that streams stalled now and then.",
        what: "gap",
        of: |target| &target.gap_us,
    },
    CurvePlot {
        title: "Spread of subscribers by percentile",
        caption: "Time from the end seen by the first subscriber of a task to the end seen by the \
                  last.",
        what: "spread",
        of: |target| &target.spread_us,
    },
    CurvePlot {
        title: "Delay of webhooks by percentile",
        caption: "Time from the last event of a stream to its webhook.",
        what: "delay",
        of: |target| &target.delivery_us,
    },
];

impl CurvePlot {
    fn plot(&self, all: NamedTargets<'_>) -> LinePlot<'static> {
        let lines = all.each().map(|(index, target, name)| {
            curve(all.line_name(name, self.what), LineStyle::Solid(index), (self.of)(target))
        });
        by_percentile(self.title, self.caption, lines)
    }
}

/// A plot over the time of a run.
fn over_time(
    all: NamedTargets<'_>,
    title: &'static str,
    label: &'static str,
    caption: &'static str,
) -> LinePlot<'static> {
    LinePlot {
        title,
        caption,
        x: Axis { label: OVER_TIME, scale: AxisScale::Exact },
        y: Axis { label, scale: AxisScale::Linear },
        lines: Vec::new(),
        shaded_to: all.warmup_s(),
        has_dots: false,
    }
}

/// A line with the `value` of each slice; NaN interrupts the line.
fn slices_line(
    name: String,
    style: LineStyle,
    target: &TargetReport,
    value: impl Fn(&SliceReport) -> f64,
) -> PlotLine {
    let whole = target.slices.iter().filter(|slice| is_whole(target, slice));
    let half_s = slice_seconds(target) / 2.0;
    let points = whole.map(|slice| (slice.at_s - half_s, value(slice))).collect();
    PlotLine { name, style, points }
}

fn latency_over_time(all: NamedTargets<'_>) -> LinePlot<'static> {
    // Without a completed call a slice has no latency, so the line has a hole.
    let ms = |us: f64| if us > 0.0 { us / 1e3 } else { f64::NAN };
    let mut plot = over_time(
        all,
        "Latency over time",
        "ms",
        "The latency of 50 and 99 of 100 calls that ended in each slice of time; a hole means \
         that no call ended, and the shaded warm-up is not counted.",
    );
    plot.lines.extend(all.each().flat_map(|(index, target, name)| {
        let name = |what| all.line_name(name, what);
        let [p99, p50] = [LineStyle::Solid(index), LineStyle::Dashed(index)];
        [
            slices_line(name("p99"), p99, target, move |slice| ms(slice.p99_us)),
            slices_line(name("p50"), p50, target, move |slice| ms(slice.p50_us)),
        ]
    }));
    plot
}

fn rate_over_time(all: NamedTargets<'_>) -> LinePlot<'static> {
    let mut plot = over_time(
        all,
        "Calls a second over time",
        "calls/s",
        "Calls that ended in each slice of time; a dip means that the server answered fewer calls \
         than were due, and the peak after it is the calls that had waited.",
    );
    let line = |(index, target, name)| {
        let name = all.line_name(name, "reached");
        slices_line(name, LineStyle::Solid(index), target, |slice| slice.rate)
    };
    plot.lines.extend(all.each().map(line));
    if plot.has_values()
        && let [TargetReport { rate, .. }, ..] = all.targets
        && let Some(wanted) = rate.wanted
        && all.targets.iter().all(|target| target.rate.wanted == Some(wanted))
        && all.targets.iter().all(|target| target.sweep.is_empty())
    {
        let end_s = plot.lines.iter().filter_map(|line| line.points.last()).map(|(x, _)| *x);
        let points = vec![(0.0, wanted), (end_s.fold(0.0, f64::max), wanted)];
        let name = "wanted".to_owned();
        plot.lines.push(PlotLine { name, style: LineStyle::Wanted, points });
    }
    plot
}

fn errors_over_time(all: NamedTargets<'_>) -> LinePlot<'static> {
    let plot = over_time(
        all,
        "Errors a second over time",
        "errors/s",
        "Calls that failed or were answered wrongly, in each slice of time.",
    );
    counted_over_time(plot, all, "errors", |slice| slice.errors)
}

fn events_over_time(all: NamedTargets<'_>) -> LinePlot<'static> {
    let plot = over_time(
        all,
        "Events a second over time",
        "events/s",
        "Events of streams that arrived in each slice of time.",
    );
    counted_over_time(plot, all, "events", |slice| slice.events)
}

/// The plot of a count per slice, for the targets with a count above 0.
fn counted_over_time(
    mut plot: LinePlot<'static>,
    all: NamedTargets<'_>,
    what: &str,
    count: fn(&SliceReport) -> u64,
) -> LinePlot<'static> {
    for (index, target, name) in all.each() {
        if target.slices.iter().any(|slice| count(slice) > 0) {
            let seconds = slice_seconds(target);
            let value = |slice: &SliceReport| count(slice) as f64 / seconds;
            let name = all.line_name(name, what);
            plot.lines.push(slices_line(name, LineStyle::Solid(index), target, value));
        }
    }
    plot
}

/// Whether calls began during the whole slice. The last call of a run ends shortly before the end
/// of the run.
pub(super) fn is_whole(target: &TargetReport, slice: &SliceReport) -> bool {
    let end_s = target.plan.warmup_s + target.seconds;
    slice.at_s <= end_s + 0.1 * slice_seconds(target)
}

/// The length of a slice: the end of the first one.
fn slice_seconds(target: &TargetReport) -> f64 {
    target.slices.first().map_or(1.0, |slice| slice.at_s).max(1e-9)
}

/// The lines of process resources: of the servers and, with one target, of the generator.
fn process_lines(all: NamedTargets<'_>, value: impl Fn(&SampleReport) -> f64) -> Vec<PlotLine> {
    let points = |samples: &[SampleReport]| -> Vec<DrawnPoint> {
        samples.iter().map(|sample| (sample.at_s, value(sample))).collect()
    };
    let has_servers = all.targets.iter().any(|target| target.server.is_some());
    let mut lines = Vec::new();
    for (index, target, name) in all.each() {
        if let Some(server) = &target.server {
            let (name, style) = (all.line_name(name, "server"), LineStyle::Solid(index));
            lines.push(PlotLine { name, style, points: points(&server.samples) });
        }
        if all.is_one() || !has_servers {
            let (name, style) = (all.line_name(name, "generator"), LineStyle::Dashed(index + 1));
            lines.push(PlotLine { name, style, points: points(&target.generator.samples) });
        }
    }
    lines
}

fn cpu(all: NamedTargets<'_>) -> LinePlot<'static> {
    let mut plot = over_time(
        all,
        "CPU over time",
        "% of a core",
        "CPU time of each process over time: 100 % is one core; a generator at the limit of its \
         cores measures itself.",
    );
    plot.lines = process_lines(all, |sample| sample.cpu_share * 100.0);
    plot
}

fn memory(all: NamedTargets<'_>) -> LinePlot<'static> {
    let mut plot = over_time(
        all,
        "Memory over time",
        "MiB",
        "Resident memory of each process; a line that rises to the end of a long run deserves a \
         second look.",
    );
    plot.lines = process_lines(all, |sample| sample.rss_bytes as f64 / f64::from(1 << 20));
    plot
}

/// The results of a sweep at each rate.
fn sweeps(all: NamedTargets<'_>) -> [LinePlot<'static>; 2] {
    let line = |target: &TargetReport, name: String, style, value: fn(&SweepPoint) -> f64| {
        let points = target.sweep.iter().map(|point| (point.wanted, value(point))).collect();
        PlotLine { name, style, points }
    };
    let swept = || all.each().filter(|(_, target, _)| !target.sweep.is_empty());
    let plot = |title, caption, y, lines| LinePlot {
        title,
        caption,
        x: Axis { label: "calls/s wanted", scale: AxisScale::Exact },
        y,
        lines,
        shaded_to: 0.0,
        has_dots: true,
    };
    let latencies = swept().flat_map(|(index, target, name)| {
        let name = |what| all.line_name(name, what);
        let [p99, p50] = [LineStyle::Solid(index), LineStyle::Dashed(index)];
        [
            line(target, name("p99"), p99, |point| point.p99_us / 1e3),
            line(target, name("p50"), p50, |point| point.p50_us / 1e3),
        ]
    });
    let mut rates: Vec<PlotLine> = swept()
        .map(|(index, target, name)| {
            let name = all.line_name(name, "reached");
            line(target, name, LineStyle::Solid(index), |point| point.reached)
        })
        .collect();
    let wanted = swept().flat_map(|(_, target, _)| target.sweep.iter().map(|point| point.wanted));
    let most = wanted.fold(0.0, f64::max);
    if most > 0.0 {
        let points = vec![(0.0, 0.0), (most, most)];
        rates.push(PlotLine { name: "wanted".to_owned(), style: LineStyle::Wanted, points });
    }
    [
        plot(
            "Latency by rate",
            "The latency at each rate of the sweep; where the curve bends upwards the server \
             begins to queue.",
            Axis { label: "ms", scale: AxisScale::Log },
            latencies.collect(),
        ),
        plot(
            "Reached rate against wanted rate",
            "Calls per second answered correctly, by the rate wanted; where the line leaves the \
             dashed one, the server has reached its limit.",
            Axis { label: "calls/s", scale: AxisScale::Linear },
            rates,
        ),
    ]
}
