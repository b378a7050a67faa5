//! The report as one page of HTML.

use super::{
    LoadReport, Quantiles, SliceReport, TargetReport,
    plot::{Axis, AxisScale, LinePlot, PlotLine, escaped},
    text::{millis, times},
};

const STYLE: &str = include_str!("report.css");

/// What a reader has to know that no figure says.
const NOT_CONTROLLED: &str = "Other load on the machines, their power management, and the network \
    between them were not controlled. Where the generator and the server share a machine, they \
    also share its memory and caches.";

/// The report as one page that needs no network.
pub(super) fn html(report: &LoadReport) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>Load report · {title}</title><style>{STYLE}</style></head><body><main>\
         <h1>Load report</h1>",
        title = escaped(&names(report).join(" and "))
    );
    for target in &report.targets {
        page.push_str(&summary(target));
    }
    for (plot, caption) in plots(report) {
        page.push_str(&format!(
            "<figure>{}<figcaption>{}</figcaption></figure>",
            plot.svg(),
            escaped(caption)
        ));
    }
    for target in &report.targets {
        page.push_str(&table(target));
    }
    page.push_str(&conditions(report));
    page.push_str("</main></body></html>\n");
    page
}

fn names(report: &LoadReport) -> Vec<&str> {
    report.targets.iter().map(|target| target.url.as_str()).collect()
}

fn summary(target: &TargetReport) -> String {
    let failed: u64 = target.errors.values().sum();
    let operations: Vec<&str> = target.operations.iter().map(|one| one.name.as_str()).collect();
    let wanted = match target.rate.wanted {
        Some(wanted) => format!("of {wanted} calls/s wanted"),
        None => format!("calls/s with {} at once", target.plan.in_flight_max),
    };
    let mut cards = vec![
        (format!("{:.0}", target.rate.reached), wanted),
        (millis(target.latency_us.p50), "ms p50".to_owned()),
        (millis(target.latency_us.p99), "ms p99".to_owned()),
        (failed.to_string(), format!("errors in {} calls", target.requests)),
    ];
    if let Some(server) = &target.server {
        cards.push((format!("{:.1}", server.cpu_us_per_call), "µs of CPU a call".to_owned()));
    }
    let cards: String = cards
        .iter()
        .map(|(value, what)| {
            format!("<div class=\"card\"><b>{}</b><span>{}</span></div>", value, escaped(what))
        })
        .collect();
    let warnings: String = target
        .warnings
        .iter()
        .map(|warning| format!("<p class=\"warning\">{}</p>", escaped(warning)))
        .collect();
    let errors: String = target
        .errors
        .iter()
        .map(|(kind, count)| {
            let example = target.error_examples.get(kind).map_or("", String::as_str);
            format!("<li><b>{count}</b> × {}: {}</li>", escaped(kind), escaped(example))
        })
        .collect();
    let errors = if errors.is_empty() { errors } else { format!("<ul>{errors}</ul>") };
    format!(
        "<section><h2>{}</h2><p>{} · {} · {:.1} s</p><div class=\"cards\">{cards}</div>\
         {warnings}{errors}</section>",
        escaped(&target.url),
        escaped(&target.interface),
        escaped(&operations.join(", ")),
        target.seconds,
    )
}

/// The plots that have something to show, each with its sentence.
fn plots(report: &LoadReport) -> Vec<(LinePlot<'static>, &'static str)> {
    let curve = |name: &str, of: &Quantiles| PlotLine {
        name: name.to_owned(),
        points: of.curve.iter().map(|(share, us)| (*share, us / 1e3)).collect(),
    };
    let mut plots = Vec::new();
    let lines: Vec<PlotLine> = match report.targets.as_slice() {
        [one] => times(one)
            .into_iter()
            .take(2)
            .filter(|(_, of)| of.count > 0)
            .map(|(name, of)| curve(name, of))
            .collect(),
        many => many.iter().map(|target| curve(&target.url, &target.latency_us)).collect(),
    };
    plots.push((
        LinePlot {
            title: "Latency by percentile",
            x: Axis { label: "percentile of calls", scale: AxisScale::Nines },
            y: Axis { label: "ms", scale: AxisScale::Log },
            lines,
        },
        "How long calls took, from the median on the left to the slowest on the right; latency \
         counts from when a call was due, so waiting for a slow server is part of it.",
    ));
    plots.push((
        over_time(report, ("calls/s", "Calls a second over time"), |slice| Some(slice.rate)),
        "Calls that were over in each second, the warm-up included; a dip is a server that did \
         not answer for a while.",
    ));
    plots.push((
        over_time(report, ("ms, p99", "Latency over time"), |slice| {
            (slice.p99_us > 0.0).then_some(slice.p99_us / 1e3)
        }),
        "The latency that 99 of 100 calls of each second stayed within.",
    ));
    plots
}

/// A plot of what `value` has of each slice.
fn over_time(
    report: &LoadReport,
    (label, title): (&'static str, &'static str),
    value: impl Fn(&SliceReport) -> Option<f64>,
) -> LinePlot<'static> {
    let line = |target: &TargetReport| PlotLine {
        name: target.url.clone(),
        points: whole_slices(target)
            .filter_map(|slice| Some((slice.at_s, value(slice)?)))
            .collect(),
    };
    LinePlot {
        title,
        x: Axis { label: "seconds", scale: AxisScale::Linear },
        y: Axis { label, scale: AxisScale::Linear },
        lines: report.targets.iter().map(line).collect(),
    }
}

/// The slices in which calls were begun from beginning to end.
fn whole_slices(target: &TargetReport) -> impl Iterator<Item = &SliceReport> {
    let end_s = target.plan.warmup_s + target.seconds;
    target.slices.iter().filter(move |slice| slice.at_s <= end_s + 1e-6)
}

fn table(target: &TargetReport) -> String {
    let rows: String = times(target)
        .into_iter()
        .filter(|(_, of)| of.count > 0)
        .map(|(name, of)| {
            let values = [of.mean, of.p50, of.p90, of.p99, of.p999, of.p9999, of.max];
            let values: String =
                values.iter().map(|value| format!("<td>{}</td>", millis(*value))).collect();
            format!("<tr><th>{name}</th><td>{}</td>{values}</tr>", of.count)
        })
        .collect();
    format!(
        "<section><h2>{}</h2><div class=\"wide\"><table><thead><tr><th>ms</th><th>values</th>\
         <th>mean</th><th>p50</th><th>p90</th><th>p99</th><th>p99.9</th><th>p99.99</th>\
         <th>max</th></tr></thead><tbody>{rows}</tbody></table></div></section>",
        escaped(&target.url)
    )
}

fn conditions(report: &LoadReport) -> String {
    let machine = &report.machine;
    let rows = [
        ("Command", report.command.clone()),
        ("Begun", report.started_at.clone()),
        ("Generator", report.generator.clone()),
        ("System", machine.system.clone()),
        ("Processor", format!("{} ({} threads)", machine.processor, machine.cpus)),
        ("Memory", format!("{:.1} GiB", machine.memory_bytes as f64 / f64::from(1 << 30))),
    ];
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("<tr><th>{name}</th><td>{}</td></tr>", escaped(value)))
        .collect();
    format!(
        "<section><h2>How it was measured</h2><div class=\"wide\"><table class=\"facts\">{rows}\
         </table></div><p>{NOT_CONTROLLED}</p></section>"
    )
}
