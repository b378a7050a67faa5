//! The JSON Schema of reports, against reports of every kind.

use std::{collections::BTreeSet, fs, process::Command};

use boon::{Compiler, Draft, Schemas};
use serde_json::{Value, json};

use crate::{
    command::bench,
    files::Folder,
    support::binary::{Binary, PATH},
};

fn schema() -> Value {
    serde_json::from_str(include_str!("../../docs/bench-report.schema.json")).unwrap()
}

/// The schema's error for a report, if any.
fn problem(report: &Value) -> Option<String> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.set_default_draft(Draft::V2020_12);
    compiler.add_resource("report.json", schema()).unwrap();
    let index = compiler.compile("report.json", &mut schemas).unwrap();
    schemas.validate(report, index).err().map(|error| format!("{error:#}"))
}

/// A value of a report, its path, and its part of the schema.
struct DescribedValue<'v> {
    path: String,
    value: &'v Value,
    schema: &'v Value,
}

/// Asserts that the members of a report and the properties of the schema are the same, and returns
/// the definitions of the schema in use.
fn compare<'s>(schema: &'s Value, report: &'s Value) -> BTreeSet<&'s str> {
    let mut used = BTreeSet::new();
    let mut open = vec![DescribedValue { path: "report".to_owned(), value: report, schema }];
    while let Some(DescribedValue { path, value, schema: mut part }) = open.pop() {
        let first = part["anyOf"].get(0).filter(|_| !value.is_null()).unwrap_or(part);
        if let Some(name) = first["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
            used.insert(name);
            part = &schema["$defs"][name];
        }
        assert!(part["description"].as_str().is_some_and(|text| text.ends_with('.')), "{path}");
        match value {
            Value::Object(members) if part["properties"].is_object() => {
                let described: BTreeSet<_> =
                    part["properties"].as_object().unwrap().keys().collect();
                assert_eq!(members.keys().collect::<BTreeSet<_>>(), described, "{path}");
                let required = part["required"].as_array().unwrap().iter();
                let required: BTreeSet<_> = required.map(|name| name.as_str().unwrap()).collect();
                assert_eq!(
                    required,
                    described.iter().map(|name| name.as_str()).collect(),
                    "{path}"
                );
                for (name, value) in members {
                    let path = format!("{path}.{name}");
                    open.push(DescribedValue { path, value, schema: &part["properties"][name] });
                }
            }
            Value::Array(items) if part["items"]["$ref"].is_string() => {
                let name = part["items"]["$ref"].as_str().unwrap();
                let name = name.strip_prefix("#/$defs/").unwrap();
                used.insert(name);
                for (index, value) in items.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    open.push(DescribedValue { path, value, schema: &schema["$defs"][name] });
                }
            }
            _ => {}
        }
    }
    used
}

#[test]
fn every_member_of_a_report_is_in_its_schema() {
    let server = Binary::start(&[]);
    let folder = Folder::new("bench-schema");
    let own = std::process::id().to_string();
    let flags = ["--scenario", "stream", "--rate", "40", "--duration", "1500ms", "--pid", &own];
    let streamed = bench(&server, &flags);
    assert_eq!(problem(&streamed), None);
    compare(&schema(), &streamed);
    // Members that only longer runs have are added by hand and passed through the program.
    let mut full = streamed.clone();
    full["targets"][0]["errors"] = json!({ "timeout": 2 });
    full["targets"][0]["error_examples"] = json!({ "timeout": "no answer within 30 s" });
    full["targets"][0]["sweep"] =
        json!([{ "wanted": 10.0, "reached": 10.0, "p50_us": 5.0, "p99_us": 9.0, "errors": 0 }]);
    full["comparisons"] = json!([{
        "phase": "stream", "url": "http://a", "baseline": "http://b", "figure": "latency p99",
        "ratio": 1.5, "low": 1.2, "high": 1.9, "rounds": 5,
    }]);
    let files = [("one.json", &full), ("two.json", &streamed)].map(|(name, report)| {
        let file = folder.file(name);
        fs::write(&file, report.to_string()).unwrap();
        file
    });
    let html = folder.file("both.html");
    let words = ["bench", "report", &files[0], &files[1], "-o", "json", "--out", &html];
    let output = Command::new(PATH).args(words).output().unwrap();
    let joined: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(problem(&joined), None);
    let schema = schema();
    let used = compare(&schema, &joined);
    let defined: BTreeSet<_> =
        schema["$defs"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(used, defined);
    assert_eq!(joined["comparisons"], full["comparisons"]);
    let html = fs::read_to_string(html).unwrap();
    assert!(html.contains("<td>1.500</td><td>1.200 to 1.900</td><td>5</td>"));
}

#[test]
fn schema_rejects_invalid_reports() {
    let server = Binary::start(&[]);
    let report = bench(&server, &["--rate", "20"]);
    for (path, wrong) in [
        ("/schema", json!(2)),
        ("/targets/0/requests", json!(-1)),
        ("/targets/0/plan/pace", json!("ajar")),
        ("/targets/0/latency_us/curve/0", json!([0.5])),
        ("/targets/0/errors", json!({ "timeout": 0 })),
    ] {
        let mut report = report.clone();
        *report.pointer_mut(path).unwrap() = wrong;
        assert!(problem(&report).is_some(), "{path}");
    }
}
