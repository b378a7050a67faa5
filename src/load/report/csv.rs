//! The report as CSV (RFC 4180): a line of column names, then one line for each time slice of each
//! target.

use std::fmt::Write;

use super::{super::measures::shown, LoadReport, ProcessReport, SampleReport, plots::is_whole};

/// The columns, in order. `counted` is 1 in counted slices, 0 in the warm-up and after the end.
/// Unknown CPU and memory are empty.
const COLUMNS: &str = "target,url,interface,from_s,to_s,counted,calls_per_s,errors,events,\
    latency_p50_us,latency_p99_us,latency_max_us,generator_cpu_share,generator_rss_bytes,\
    server_cpu_share,server_rss_bytes";

/// The report as CSV, with the line breaks of RFC 4180.
pub(super) fn csv(report: &LoadReport) -> String {
    let mut out = format!("{COLUMNS}\r\n");
    for (target, name) in report.targets.iter().zip(report.names()) {
        let mut from = 0.0;
        for slice in &target.slices {
            let is_counted = from >= target.plan.warmup_s - 1e-6 && is_whole(target, slice);
            let generator = process_cells(Some(&target.generator), from, slice.at_s);
            let server = process_cells(target.server.as_ref(), from, slice.at_s);
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "{},{},{},{from},{},{},{},{},{},{},{},{},{generator},{server}\r\n",
                quoted(&name),
                quoted(&target.url),
                quoted(&target.interface),
                slice.at_s,
                u8::from(is_counted),
                slice.rate,
                slice.errors,
                slice.events,
                slice.p50_us,
                slice.p99_us,
                slice.max_us,
            );
            from = slice.at_s;
        }
    }
    out
}

/// The mean CPU and the maximum memory of the samples in a slice.
fn process_cells(process: Option<&ProcessReport>, from: f64, to: f64) -> String {
    let samples = process.map_or(&[][..], |process| &process.samples);
    let within = |sample: &&SampleReport| from < sample.at_s && sample.at_s <= to;
    let within: Vec<_> = samples.iter().filter(within).collect();
    if within.is_empty() {
        return ",".to_owned();
    }
    let cpu: f64 = within.iter().map(|sample| sample.cpu_share).sum();
    let rss = within.iter().map(|sample| sample.rss_bytes).max().unwrap_or_default();
    format!("{:.4},{rss}", cpu / within.len() as f64)
}

/// A text as one field.
fn quoted(text: &str) -> String {
    let text = shown(text);
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}
