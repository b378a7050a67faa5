//! The contents of reports, in each form, and how reports are joined.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::{
    command::bench,
    files::Folder,
    support::binary::{Binary, PATH},
};

/// The output of `bench report` with these arguments.
fn join(words: &[&str]) -> Output {
    Command::new(PATH).args(["bench", "report"]).args(words).output().unwrap()
}

/// The page of these reports.
fn page(folder: &Folder, reports: &[&Value]) -> String {
    let mut words = Vec::new();
    for (index, report) in reports.iter().enumerate() {
        let file = folder.file(&format!("run-{index}.json"));
        fs::write(&file, report.to_string()).unwrap();
        words.push(file);
    }
    let html = folder.file("joined.html");
    words.extend(["--out".to_owned(), html.clone()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = join(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(html).unwrap()
}

/// The titles of the plots of a page.
fn titles(page: &str) -> Vec<&str> {
    let figures = page.split("<figure><h3>").skip(1);
    figures.map(|figure| figure.split("</h3>").next().unwrap()).collect()
}

#[test]
fn plots_without_values_are_left_out() {
    let server = Binary::start(&[]);
    let folder = Folder::new("bench-plots");
    let sent = bench(&server, &["--rate", "50", "--duration", "1500ms"]);
    let always =
        ["Latency by percentile", "Latency over time", "Calls a second over time", "CPU over time"];
    let shown = page(&folder, &[&sent]);
    assert_eq!(titles(&shown), [&always[..], &["Memory over time"]].concat());
    let mut short = sent.clone();
    short["targets"][0]["slices"] = json!([]);
    let shown = page(&folder, &[&short]);
    assert_eq!(titles(&shown), ["Latency by percentile", "CPU over time", "Memory over time"]);
    let flags = ["--rate", "50", "--duration", "1500ms", "--scenario", "stream"];
    let mut streamed = bench(&server, &flags);
    let target = &mut streamed["targets"][0];
    target["slices"][0]["errors"] = json!(3);
    target["sweep"] = json!([
        { "wanted": 10.0, "reached": 10.0, "p50_us": 5.0, "p99_us": 9.0, "errors": 0 },
        { "wanted": 20.0, "reached": 15.0, "p50_us": 50.0, "p99_us": 90.0, "errors": 2 },
    ]);
    let shown = page(&folder, &[&streamed]);
    let all = [
        "Latency by percentile",
        "Latency by rate",
        "Reached rate against wanted rate",
        "Latency over time",
        "Calls a second over time",
        "Errors a second over time",
        "Events a second over time",
        "CPU over time",
        "Memory over time",
        "First events of streams by percentile",
        "Gaps between events by percentile",
    ];
    assert_eq!(titles(&shown), all);
    // One sentence under each, and each in two widths.
    assert_eq!(shown.matches("<figcaption>").count(), all.len());
    for class in ["on-wide", "on-narrow"] {
        assert_eq!(shown.matches(&format!("<svg class=\"{class}\"")).count(), all.len());
    }
    assert!(!shown.contains("NaN") && !shown.contains(">inf"));
}

#[test]
fn slice_without_answers_breaks_the_plot_line() {
    let server = Binary::start(&[]);
    let folder = Folder::new("bench-hole");
    let mut report = bench(&server, &["--rate", "20", "--duration", "5s"]);
    let pieces = |page: &str| {
        let plot = page.split("<h3>Latency over time</h3>").nth(1).unwrap();
        plot.split("</svg>").next().unwrap().matches("<polyline").count()
    };
    assert_eq!(pieces(&page(&folder, &[&report])), 2);
    report["targets"][0]["slices"][2]["p50_us"] = json!(0.0);
    report["targets"][0]["slices"][2]["p99_us"] = json!(0.0);
    assert_eq!(pieces(&page(&folder, &[&report])), 4);
}

#[test]
fn peer_texts_are_escaped_in_html() {
    let server = Binary::start(&[]);
    let folder = Folder::new("bench-markup");
    let mut report = bench(&server, &["--rate", "20"]);
    let target = &mut report["targets"][0];
    target["url"] = json!("http://h/<script>\"'&");
    target["errors"] = json!({ "<b>": 1 });
    target["error_examples"] = json!({ "<b>": "<script>alert(1)</script>" });
    let shown = page(&folder, &[&report, &report]);
    assert!(!shown.contains("<script") && !shown.contains("<b>:"));
    assert!(shown.contains("http://h/&lt;script&gt;&quot;&#39;&amp;"));
}

#[test]
fn reports_are_joined_side_by_side() {
    let server = Binary::start(&[]);
    let folder = Folder::new("bench-joined");
    let [slow, fast, html, both, text] =
        ["slow.json", "fast.json", "both.html", "both.json", "both.txt"]
            .map(|name| folder.file(name));
    bench(&server, &["--rate", "20", "--out", &slow]);
    bench(&server, &["--rate", "60", "--out", &fast]);
    let output =
        join(&[&slow, &fast, "--out", &html, "--out", &both, "--out", &text, "-o", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let joined: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(joined, serde_json::from_str::<Value>(&fs::read_to_string(&both).unwrap()).unwrap());
    let rates: Vec<_> = (0..2).map(|index| &joined["targets"][index]["rate"]["wanted"]).collect();
    assert_eq!(rates, [20.0, 60.0]);
    // Members that are equal in both do not distinguish them; their files do.
    let source = |index: usize| joined["targets"][index]["source"].clone();
    assert_eq!([source(0)["file"].clone(), source(1)["file"].clone()], ["slow", "fast"]);
    assert!(source(0)["command"].as_str().unwrap().contains("--rate 20"));
    assert!(joined["command"].as_str().unwrap().starts_with("peregrine bench report "));
    let html = fs::read_to_string(&html).unwrap();
    assert!(html.contains("<h2>Side by side</h2>") && html.contains("slow: generator"));
    assert!(html.contains("--rate 20") && html.contains("--rate 60"));
    let text = fs::read_to_string(&text).unwrap();
    assert!(text.contains("[1] slow\n") && text.contains("[2] fast\n"), "{text}");
    // A joined report is an ordinary report, and alone it stays unchanged.
    let again = join(&[&both, "-o", "json"]);
    assert_eq!(serde_json::from_slice::<Value>(&again.stdout).unwrap(), joined);
    let more = join(&[&both, &slow, "-o", "json"]);
    let more: Value = serde_json::from_slice(&more.stdout).unwrap();
    assert_eq!(more["targets"].as_array().unwrap().len(), 3);
    assert_eq!(more["targets"][1]["source"]["file"], "fast");
}

#[test]
fn invalid_report_files_are_rejected() {
    let server = Binary::start(&[]);
    let folder = Folder::new("bench-refused");
    let report = bench(&server, &["--rate", "20"]);
    let mut other = report.clone();
    other["schema"] = json!(2);
    let mut half = report;
    half["targets"][0].as_object_mut().unwrap().remove("latency_us");
    for (name, content, expected) in [
        ("text", "latency 5 ms".to_owned(), "it is not a JSON report of peregrine bench"),
        ("card", json!({ "name": "clerk" }).to_string(), "it is not a JSON report"),
        ("other", other.to_string(), "schema 2, but this version reads schema 1"),
        ("half", half.to_string(), "missing field `latency_us`"),
    ] {
        let file = folder.file(name);
        fs::write(&file, content).unwrap();
        let output = join(&[&file]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {stderr}");
        assert!(stderr.contains(expected) && stderr.contains(&file), "{name}: {stderr}");
    }
    let output = join(&[&folder.file("none.json")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot read "));
    assert_eq!(join(&[]).status.code(), Some(2));
}

#[test]
fn csv_has_a_documented_row_for_each_slice() {
    let server = Binary::start(&[]);
    let folder = Folder::new("bench-csv");
    let [csv, json] = ["report.csv", "report.json"].map(|name| folder.file(name));
    let flags = ["--rate", "50", "--duration", "2s", "--warmup", "1s"];
    let report = bench(&server, &[&flags[..], &["--out", &csv]].concat());
    let text = fs::read_to_string(&csv).unwrap();
    let rows: Vec<Vec<&str>> =
        text.split_terminator("\r\n").map(|line| line.split(',').collect()).collect();
    let slices = report["targets"][0]["slices"].as_array().unwrap();
    assert_eq!(rows.len(), slices.len() + 1);
    let page = include_str!("../../docs/bench-report.md");
    let table = page.split("| column | what it is |").nth(1).unwrap();
    let documented: Vec<&str> = table.lines().filter_map(|line| line.split('`').nth(1)).collect();
    assert_eq!(rows[0], documented);
    for (row, slice) in rows[1..].iter().zip(slices) {
        let cell = |name: &str| row[documented.iter().position(|one| *one == name).unwrap()];
        let number = |name: &str| cell(name).parse::<f64>().unwrap();
        assert_eq!(number("to_s"), slice["at_s"].as_f64().unwrap());
        assert_eq!(number("calls_per_s"), slice["rate"].as_f64().unwrap());
        assert_eq!(number("latency_p99_us"), slice["p99_us"].as_f64().unwrap());
        let (from, to) = (number("from_s"), number("to_s"));
        assert_eq!(number("counted") == 1.0, from >= 1.0 && to <= 3.0, "{row:?}");
        assert_eq!([cell("server_cpu_share"), cell("server_rss_bytes")], ["", ""]);
    }
    // A comma in a name is quoted.
    let mut odd = report;
    odd["targets"][0]["url"] = json!("http://h/a,\"b\"");
    fs::write(&json, odd.to_string()).unwrap();
    assert!(join(&[&json, "--out", &csv]).status.success());
    let text = fs::read_to_string(&csv).unwrap();
    let begin = "\"http://h/a,\"\"b\"\"\",\"http://h/a,\"\"b\"\"\",";
    assert!(text.split("\r\n").nth(1).unwrap().starts_with(begin), "{text}");
}
