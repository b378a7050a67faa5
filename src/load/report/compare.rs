//! Compares several targets: a table of the most important figures, and their bars.

use std::fmt::Write;

use super::{
    ComparisonReport, LoadReport, TargetReport,
    plot::{COLOURS, escaped},
    text::millis,
};

/// A compared figure.
struct ComparedValue {
    name: &'static str,
    /// The number; `None`: unknown for this target.
    value: fn(&TargetReport) -> Option<f64>,
    /// The text of the number.
    shown: fn(f64) -> String,
    /// True: the figure also has bars.
    has_bars: bool,
}

const fn compared(
    name: &'static str,
    value: fn(&TargetReport) -> Option<f64>,
    shown: fn(f64) -> String,
) -> ComparedValue {
    ComparedValue { name, value, shown, has_bars: false }
}

const fn drawn(value: ComparedValue) -> ComparedValue {
    ComparedValue { has_bars: true, ..value }
}

const COMPARED: [ComparedValue; 16] = [
    compared("calls/s wanted", |one| one.rate.wanted, whole),
    drawn(compared("calls/s reached", |one| Some(one.rate.reached), whole)),
    drawn(compared("calls/s within limits", |one| one.rate.goodput, whole)),
    drawn(compared("latency p50, ms", |one| positive(one.latency_us.p50), millis)),
    compared("latency p90, ms", |one| positive(one.latency_us.p90), millis),
    drawn(compared("latency p99, ms", |one| positive(one.latency_us.p99), millis)),
    compared("latency p99.9, ms", |one| positive(one.latency_us.p999), millis),
    compared("latency max, ms", |one| positive(one.latency_us.max), millis),
    drawn(compared("first event p99, ms", |one| positive(one.first_event_us.p99), millis)),
    drawn(compared("webhook p99, ms", |one| positive(one.delivery_us.p99), millis)),
    drawn(compared("events/s", |one| positive(one.events_per_s), whole)),
    drawn(compared("errors", |one| Some(one.errors.values().sum::<u64>() as f64), whole)),
    drawn(compared(
        "server CPU per call, µs",
        |one| one.server.as_ref().map(|server| server.cpu_us_per_call),
        tenths,
    )),
    drawn(compared(
        "server memory, MiB",
        |one| one.server.as_ref().map(|server| mebibytes(server.rss_bytes_max)),
        tenths,
    )),
    compared("generator lag p99, ms", |one| positive(one.lag_us.p99), millis),
    compared("generator CPU, % of a core", |one| Some(one.generator.cpu_share * 100.0), whole),
];

fn positive(value: f64) -> Option<f64> {
    Some(value).filter(|value| *value > 0.0)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

impl ComparedValue {
    /// The figure for each target; `None`: no target has the figure.
    fn of(&self, report: &LoadReport) -> Option<Vec<Option<f64>>> {
        let values: Vec<_> = report.targets.iter().map(self.value).collect();
        values.iter().any(Option::is_some).then_some(values)
    }

    fn text_of(&self, value: Option<f64>) -> String {
        value.map_or_else(|| "–".to_owned(), self.shown)
    }
}

/// The section of the page.
pub(super) fn html(report: &LoadReport, names: &[String]) -> String {
    let heads: String = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let class = format!("s{}", index % COLOURS);
            format!("<th class=\"name\"><i class=\"{class}\"></i>{}</th>", escaped(name))
        })
        .collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
    let (mut rows, mut bars) = (String::new(), String::new());
    for one in &COMPARED {
        let Some(values) = one.of(report) else { continue };
        let cells: String =
            values.iter().map(|value| format!("<td>{}</td>", one.text_of(*value))).collect();
        let _ = write!(rows, "<tr><th>{}</th>{cells}</tr>", one.name);
        if one.has_bars {
            bars.push_str(&bars_of(one, &values, names));
        }
    }
    format!(
        "<section><h2>Side by side</h2><div class=\"scrolled\"><table><thead><tr><th></th>{heads}\
         </tr></thead><tbody>{rows}</tbody></table></div>\
         <figure class=\"bars\" style=\"--names:{longest}ch\">{bars}\
         <figcaption>The same as bars, each group in proportion to its largest value; less is \
         better, but for calls and events a second.</figcaption></figure>{}</section>\n",
        ratios(report)
    )
}

/// The bars of one figure; empty if all values are 0.
fn bars_of(one: &ComparedValue, values: &[Option<f64>], names: &[String]) -> String {
    let most = values.iter().flatten().fold(0.0, |most: f64, value| most.max(*value));
    if most <= 0.0 {
        return String::new();
    }
    let bars: String = values
        .iter()
        .zip(names)
        .enumerate()
        .map(|(index, (value, name))| {
            let (name, colour) = (escaped(name), index % COLOURS);
            let length = value.map_or_else(String::new, |value| {
                let percent = value / most * 100.0;
                format!("<i class=\"s{colour}\" style=\"width:{percent:.2}%\"></i>")
            });
            format!(
                "<div class=\"bar\"><span>{name}</span><div class=\"track\">{length}</div>\
                 <b>{}</b></div>",
                one.text_of(*value)
            )
        })
        .collect();
    format!("<div class=\"group\"><h3>{}</h3>{bars}</div>", one.name)
}

/// The table of ratios, if targets were loaded in rounds.
fn ratios(report: &LoadReport) -> String {
    if report.comparisons.is_empty() {
        return String::new();
    }
    let row = |one: &ComparisonReport| {
        let texts = [&one.figure, &one.phase, &one.url, &one.baseline].map(|text| escaped(text));
        let [figure, phase, url, baseline] = texts;
        format!(
            "<tr><th>{figure}</th><td>{phase}</td><td class=\"name\">{url}</td>\
             <td class=\"name\">{baseline}</td><td>{:.3}</td><td>{:.3} to {:.3}</td>\
             <td>{}</td></tr>",
            one.ratio, one.low, one.high, one.rounds
        )
    };
    let rows: String = report.comparisons.iter().map(row).collect();
    format!(
        "<h3>Ratios</h3><div class=\"scrolled\"><table><thead><tr><th>figure</th><th>phase</th>\
         <th>of</th><th>to</th><th>ratio</th><th>95 % interval</th><th>rounds</th></tr></thead>\
         <tbody>{rows}</tbody></table></div><p>The targets were loaded in rounds, and each \
         ratio is the mean of the rounds; where its interval holds 1, the run has shown no \
         difference.</p>"
    )
}

/// The comparison as text.
pub(super) fn text(report: &LoadReport, names: &[String]) -> String {
    let mut out = "side by side\n\n".to_owned();
    for (index, name) in names.iter().enumerate() {
        let _ = writeln!(out, "  [{}] {name}", index + 1);
    }
    let _ = write!(out, "\n  {:<28}", "");
    for index in 1..=names.len() {
        let _ = write!(out, "{:>12}", format!("[{index}]"));
    }
    out.push('\n');
    for one in &COMPARED {
        let Some(values) = one.of(report) else { continue };
        let _ = write!(out, "  {:<28}", one.name);
        for value in values {
            let _ = write!(out, "{:>12}", one.text_of(value));
        }
        out.push('\n');
    }
    out.push('\n');
    out
}
