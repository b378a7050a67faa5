//! The report as one HTML page without scripts, which works without a network.

use super::{
    LoadReport, SourceReport, TargetReport, compare,
    plot::escaped,
    plots::plots,
    text::{millis, plan_line, times},
};

const STYLE: &str = include_str!("report.css");

/// A note about influences that no figure shows.
const NOT_CONTROLLED: &str = "Other load on the machines, their power management, and the network \
    between them were not controlled. Where the generator and the server share a machine, they \
    also share its memory and caches.";

/// A note about joined reports.
const JOINED: &str = "These runs were made one after the other, so differences between them may \
    also come from what else the machines did at those times.";

/// The report as one page.
pub(super) fn html(report: &LoadReport) -> String {
    let names = report.names();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>Load report · {title}</title><style>{STYLE}</style></head><body><main>\
         <h1>Load report</h1>",
        title = escaped(&names.join(" and "))
    );
    if report.targets.len() > 1 {
        page.push_str(&compare::html(report, &names));
    }
    for (target, name) in report.targets.iter().zip(&names) {
        page.push_str(&summary(target, name));
    }
    for plot in plots(report, &names) {
        page.push_str(&plot.figure());
    }
    for (target, name) in report.targets.iter().zip(&names) {
        page.push_str(&times_table(target, name));
    }
    page.push_str(&conditions(report, &names));
    page.push_str("</main></body></html>\n");
    page
}

fn summary(target: &TargetReport, name: &str) -> String {
    let failed: u64 = target.errors.values().sum();
    let wanted = match target.rate.wanted {
        Some(wanted) => format!("of {wanted} calls/s wanted"),
        None => format!("calls/s with {} concurrent calls", target.plan.in_flight_max),
    };
    let mut cards = vec![
        (format!("{:.0}", target.rate.reached), wanted),
        (millis(target.latency_us.p50), "ms p50".to_owned()),
        (millis(target.latency_us.p99), "ms p99".to_owned()),
        (failed.to_string(), format!("errors in {} calls", target.requests)),
    ];
    if let Some(goodput) = target.rate.goodput {
        cards.push((format!("{goodput:.0}"), "calls/s within all limits".to_owned()));
    }
    if target.events > 0 {
        cards.push((format!("{:.0}", target.events_per_s), "events/s".to_owned()));
    }
    if let Some(server) = &target.server {
        cards.push((format!("{:.1}", server.cpu_us_per_call), "µs of CPU per call".to_owned()));
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
        "<section><h2>{}</h2><p>{}{} · {}</p><div class=\"cards\">{cards}</div>\
         {warnings}{errors}</section>\n",
        escaped(name),
        if name == target.url { String::new() } else { escaped(&target.url) + " · " },
        escaped(&target.interface),
        escaped(&plan_line(target)),
    )
}

/// The times of a target, and of its operations if there are several operations.
fn times_table(target: &TargetReport, name: &str) -> String {
    let mut rows: Vec<_> =
        times(target).into_iter().map(|(name, of)| (name.to_owned(), of)).collect();
    if target.operations.len() > 1 {
        for operation in &target.operations {
            rows.push((operation.name.clone(), &operation.latency_us));
            rows.push((format!("{}, first event", operation.name), &operation.first_event_us));
        }
    }
    rows.push(("generator's lag".to_owned(), &target.lag_us));
    let rows: String = rows
        .into_iter()
        .filter(|(_, of)| of.count > 0)
        .map(|(name, of)| {
            let values = [of.mean, of.p50, of.p90, of.p99, of.p999, of.p9999, of.max];
            let values: String =
                values.iter().map(|value| format!("<td>{}</td>", millis(*value))).collect();
            format!("<tr><th>{}</th><td>{}</td>{values}</tr>", escaped(&name), of.count)
        })
        .collect();
    format!(
        "<section><h2>Times of {}</h2><div class=\"scrolled\"><table><thead><tr><th>ms</th>\
         <th>values</th><th>mean</th><th>p50</th><th>p90</th><th>p99</th><th>p99.9</th>\
         <th>p99.99</th><th>max</th></tr></thead><tbody>{rows}</tbody></table></div></section>\n",
        escaped(name)
    )
}

fn conditions(report: &LoadReport, names: &[String]) -> String {
    let is_joined = report.targets.iter().any(|target| target.source.is_some());
    let mut out = "<section><h2>How it was measured</h2>".to_owned();
    if !is_joined {
        out.push_str(&facts(&report.source()));
    }
    for (target, name) in report.targets.iter().zip(names) {
        if let Some(source) = &target.source {
            out.push_str(&format!("<h3>{}</h3>{}", escaped(name), facts(source)));
        }
    }
    for (target, name) in report.targets.iter().zip(names) {
        let plan = &target.plan;
        let text = format!(
            "{name}: {} loop, {} thread(s) of the generator, at most {} calls unanswered, \
             checks {}, seed {}, {:.1} s of warm-up before {:.1} s that count.",
            plan.pace,
            plan.workers,
            plan.in_flight_max,
            plan.check,
            plan.seed,
            plan.warmup_s,
            target.seconds
        );
        out.push_str(&format!("<p>{}</p>", escaped(&text)));
        if plan.pace == "closed" {
            out.push_str(
                "<p>A closed loop makes the next call when the last one is answered, so its \
                 latencies leave out the time for which a slow server kept calls from being made. \
                 </p>",
            );
        }
    }
    out.push_str(&format!("<p>{NOT_CONTROLLED}</p>"));
    if is_joined {
        out.push_str(&format!("<p>{JOINED}</p>"));
    }
    out.push_str("</section>");
    out
}

fn facts(source: &SourceReport) -> String {
    let machine = &source.machine;
    let rows = [
        ("Command", source.command.clone()),
        ("Begun", source.started_at.clone()),
        ("Generator", source.generator.clone()),
        ("System", machine.system.clone()),
        ("Processor", format!("{} ({} threads)", machine.processor, machine.cpus)),
        ("Memory", format!("{:.1} GiB", machine.memory_bytes as f64 / f64::from(1 << 30))),
    ];
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("<tr><th>{name}</th><td>{}</td></tr>", escaped(value)))
        .collect();
    format!("<div class=\"scrolled\"><table class=\"facts\">{rows}</table></div>")
}
