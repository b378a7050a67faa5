//! `[traces]`: the collector of spans of calls and invocations.

use peregrine::net::{TraceCollector, TraceCollectorError};

use super::super::tree::{ConfigSection, Key, Shape, Wrong, key};

const ONE_OF: Shape = Shape::Whole { min: 0, max: u32::MAX as u64 };

const KEYS: &[Key] = &[
    key(
        "endpoint",
        Shape::Text,
        "",
        "URL of an OpenTelemetry collector (OTLP over HTTP), such as http://127.0.0.1:4318; \
         default: no traces",
    ),
    key(
        "headers",
        Shape::Texts,
        "",
        "Header fields for the collector, such as \"Authorization: Bearer ${VARIABLE}\"",
    )
    .secret(),
    key("service", Shape::Text, "\"peregrine\"", "Name of this service in traces"),
    key(
        "sample",
        ONE_OF,
        "1",
        "Traces one in N calls without a sampling decision; 1: all, 0: none",
    ),
    key(
        "plain_http",
        Shape::Switch,
        "false",
        "Allows a collector on another machine without TLS: hosts on the path can read spans and \
         headers",
    ),
];

/// The keys of the section.
pub fn keys() -> &'static [Key] {
    KEYS
}

/// The collector of spans; `None`: tracing is off.
///
/// # Errors
/// [`Wrong`].
pub fn read(root: &ConfigSection) -> Result<Option<TraceCollector>, Wrong> {
    let Some(section) = root.section("traces") else { return Ok(None) };
    let Some(endpoint) = section.text("endpoint").filter(|endpoint| !endpoint.is_empty()) else {
        return Ok(None);
    };
    let wrong = |name: &'static str| {
        move |error: TraceCollectorError| section.wrong(name, error.to_string())
    };
    let collector = match section.switch("plain_http") {
        Some(true) => TraceCollector::over_plain_http(endpoint),
        Some(false) | None => TraceCollector::new(endpoint),
    };
    let mut collector = collector.map_err(wrong("endpoint"))?;
    for (index, header) in section.texts("headers").unwrap_or_default().iter().enumerate() {
        let Some((name, value)) = header.text.split_once(':') else {
            // The error omits the value, which may be a secret.
            let line =
                "must be a name and a value, such as \"Authorization: Bearer ...\"".to_owned();
            return Err(section.wrong_item("headers", index, line));
        };
        let added = collector.field(name.trim(), value.trim());
        collector =
            added.map_err(|error| section.wrong_item("headers", index, error.to_string()))?;
    }
    if let Some(name) = section.text("service") {
        collector = collector.service_name(name);
    }
    // The shape has checked that the number fits.
    let one_of = section.whole("sample").and_then(|one_of| u32::try_from(one_of).ok());
    Ok(Some(collector.sample_one_of(one_of.unwrap_or(1))))
}
