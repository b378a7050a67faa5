//! `peregrine bench` against the real server.

use std::{path::PathBuf, process::Command};

use serde_json::Value;

use crate::support::binary::{Binary, PATH};

/// A folder of its own for files of a test, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("peregrine-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The report of a run of this scenario with these flags.
fn bench(server: &Binary, flags: &[&str]) -> Value {
    let url = format!("http://{}", server.addr());
    let output = Command::new(PATH)
        .args(["bench", &url, "-o", "json", "--duration", "500ms", "--warmup", "0s"])
        .args(flags)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_scenario_runs_and_is_reported() {
    let server = Binary::start(&[]);
    for scenario in ["send", "get", "stream"] {
        let report = bench(&server, &["--scenario", scenario, "--rate", "100"]);
        let target = &report["targets"][0];
        assert_eq!(target["requests"], 50, "{scenario}: {target:#}");
        assert_eq!(target["errors"], serde_json::json!({}));
        assert_eq!(target["rate"]["wanted"], 100.0);
        let [p50, max] = ["p50", "max"].map(|name| target["latency_us"][name].as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= max, "{scenario}: {p50} {max}");
        assert_eq!(target["latency_us"]["count"], 50);
        let has_events = target["events"].as_u64().unwrap() > 50;
        assert_eq!(has_events, scenario == "stream");
    }
}

#[test]
fn reports_are_written_and_need_no_network() {
    let server = Binary::start(&[]);
    let folder = Folder::new("bench-reports");
    let files = ["report.json", "report.html", "report.txt"].map(|name| folder.file(name));
    let [json, html, text] = &files;
    bench(&server, &["--rate", "50", "--out", json, "--out", html, "--out", text]);
    let [json, html, text] = files.map(|file| std::fs::read_to_string(file).unwrap());
    let report: Value = serde_json::from_str(&json).unwrap();
    let log = report["targets"][0]["histograms"].as_str().unwrap();
    assert!(log.contains("Tag=latency,") && log.contains("HISTFAAA"));
    assert!(html.contains("<svg") && html.contains("p99.9") && html.ends_with("</html>\n"));
    for other in ["http-equiv", "<script", "<link", "@import", "src=", "url("] {
        assert!(!html.contains(other), "{other}");
    }
    assert!(text.contains("latency") && text.contains("calls/s"));
}

#[test]
fn wrong_options_are_refused_before_a_call_is_made() {
    for (flags, told) in [
        (&["--rate", "0"][..], "--rate"),
        (&["--rate", "x"], "--rate"),
        (&["--rate", "5", "--concurrency", "3"], "--concurrency"),
        (&["--scenario", "sned"], "--scenario"),
        (&["--arrivals", "weekly"], "--arrivals"),
        (&["--burstiness", "-1"], "--burstiness"),
        (&["--duration", "soon"], "--duration"),
        (&["--check", "some"], "--check"),
        (&["--out", "report.pdf"], "--out"),
        (&["--workers", "0"], "--workers"),
    ] {
        let output =
            Command::new(PATH).args(["bench", "http://127.0.0.1:9"]).args(flags).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {stderr}");
        assert!(stderr.contains(told), "{flags:?}: {stderr}");
    }
}
