//! `peregrine bench` against the real server.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{
    files::Folder,
    support::binary::{Binary, PATH, eventually},
};

/// The report of a run of this scenario with these flags.
pub fn bench(server: &Binary, flags: &[&str]) -> Value {
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
    let scenarios = ["send", "get", "stream", "subscribe", "batch", "list", "cancel", "resume"];
    for scenario in scenarios {
        let flags = ["--scenario", scenario, "--rate", "100", "--hold", "2s"];
        let report = bench(&server, &flags);
        let target = &report["targets"][0];
        assert_eq!(target["requests"], 50, "{scenario}: {target:#}");
        assert_eq!(target["errors"], json!({}));
        assert_eq!(target["rate"]["wanted"], 100.0);
        let [p50, max] = ["p50", "max"].map(|name| target["latency_us"][name].as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= max, "{scenario}: {p50} {max}");
        assert_eq!(target["latency_us"]["count"], 50);
        // A stream begins with the task; a resumed one begins at its position.
        let events = match scenario {
            "stream" | "resume" => 50 * 23,
            "subscribe" => 50 * 10 * 23,
            _ => 0,
        };
        assert_eq!(target["events"], events, "{scenario}");
    }
}

#[test]
fn report_files_are_written_and_html_is_self_contained() {
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
fn push_scenario_waits_for_webhook_deliveries() {
    let server = Binary::start(&["--push-allow", "localhost"]);
    let report = bench(&server, &["--scenario", "push", "--rate", "50"]);
    let target = &report["targets"][0];
    assert_eq!((&target["requests"], &target["errors"]), (&25.into(), &json!({})));
    assert_eq!(target["delivery_us"]["count"], 25);
}

#[test]
fn scenario_mixture_follows_its_weights() {
    let server = Binary::start(&[]);
    let report = bench(&server, &["--scenario", "send=3,get=1", "--rate", "800"]);
    let operations = report["targets"][0]["operations"].as_array().unwrap();
    let [sends, gets] = [0, 1].map(|index| operations[index]["requests"].as_u64().unwrap());
    assert_eq!(sends + gets, 400);
    assert!((240..=350).contains(&sends), "{sends} of 400");
}

#[test]
fn the_standard_workload_runs() {
    let server = Binary::start(&[]);
    let report = bench(&server, &["--workload", "a2a-bench-1"]);
    let targets = report["targets"].as_array().unwrap();
    let names = targets.iter().map(|target| target["plan"]["name"].as_str().unwrap());
    let phases = ["unary", "stream", "fan-out", "resume", "mixed"];
    assert!(names.eq(phases.map(|phase| format!("a2a-bench-1: {phase}"))));
    for target in targets {
        assert_eq!(target["errors"], json!({}), "{}", target["plan"]["name"]);
        assert!(target["requests"].as_u64().unwrap() > 0);
    }
    assert_eq!(targets[2]["spread_us"]["count"], targets[2]["requests"]);
    assert!(targets.iter().all(|target| target["plan"]["workload_version"] == 1));
}

#[test]
fn sweep_measures_each_rate() {
    let server = Binary::start(&[]);
    let report = bench(&server, &["--sweep", "50:150:3"]);
    let points = report["targets"][0]["sweep"].as_array().unwrap();
    let wanted: Vec<f64> = points.iter().map(|point| point["wanted"].as_f64().unwrap()).collect();
    assert_eq!(wanted, [50.0, 100.0, 150.0]);
}

/// Each call is held for 100 ms, at most 10 at once: at most 100 calls a second can succeed.
#[test]
fn find_max_does_not_exceed_the_servers_capacity() {
    let server = Binary::start(&[]);
    let flags = ["--scenario", "resume", "--hold", "100ms", "--in-flight", "10", "--rate", "20"];
    let times = ["--warmup", "300ms", "--find-max", "--slo", "errors=0"];
    let report = bench(&server, &[&flags[..], &times].concat());
    let rate = report["targets"][0]["rate"]["wanted"].as_f64().unwrap();
    // A busy machine reaches less.
    assert!(rate > 0.0 && rate <= 110.0, "{rate}");
    assert!(report["targets"][0]["sweep"].as_array().unwrap().len() > 3);
}

#[test]
fn find_max_that_starts_too_high_ends_below_the_objective() {
    let server = Binary::start(&[]);
    let flags = ["--rate", "40", "--warmup", "0s", "--find-max", "--slo", "rate<30"];
    let report = bench(&server, &flags);
    let rate = report["targets"][0]["rate"]["wanted"].as_f64().unwrap();
    assert!(rate < 31.0, "{rate}");
}

#[test]
fn compare_reports_all_agents_and_the_floor() {
    let (one, other) = (Binary::start(&[]), Binary::start(&[]));
    let url = format!("http://{}", other.addr());
    let flags = ["--rate", "200", "--rounds", "3", "--floor", "--compare", &url];
    let report = bench(&one, &flags);
    let targets = report["targets"].as_array().unwrap();
    let urls: Vec<&str> = targets.iter().map(|target| target["url"].as_str().unwrap()).collect();
    assert_eq!((urls.len(), urls[1]), (3, url.as_str()));
    for target in targets {
        assert_eq!(target["errors"], json!({}));
        assert!(target["requests"].as_u64().unwrap().abs_diff(100) < 4, "{target:#}");
    }
    // The floor is a process with a known CPU time.
    assert!(targets[2]["server"]["cpu_us_per_call"].as_f64().unwrap() > 0.0);
    let comparisons = report["comparisons"].as_array().unwrap();
    let p50 =
        comparisons.iter().find(|one| one["url"] == urls[2] && one["figure"] == "latency p50");
    let [low, ratio, high] =
        ["low", "ratio", "high"].map(|name| p50.unwrap()[name].as_f64().unwrap());
    assert!(0.0 < low && low <= ratio && ratio <= high && ratio < 2.0, "{p50:?}");
}

/// Each round has all calls of the recording.
#[test]
fn replay_runs_the_whole_recording_in_each_round() {
    let (one, other) = (Binary::start(&[]), Binary::start(&[]));
    let folder = Folder::new("bench-rounds");
    let file = folder.file("calls.jsonl");
    let lines: String = (0..30)
        .map(|n| {
            let operation = if n < 20 { "send" } else { "list" };
            format!("{{\"at_ms\":{},\"operation\":\"{operation}\"}}\n", n * 10)
        })
        .collect();
    std::fs::write(&file, lines).unwrap();
    let urls = [&one, &other].map(|server| format!("http://{}", server.addr()));
    let output = Command::new(PATH)
        .args(["bench", &urls[0], "-o", "json", "--replay", &file, "--warmup", "0s"])
        .args(["--rounds", "3", "--compare", &urls[1]])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for target in report["targets"].as_array().unwrap() {
        let made = target["operations"].as_array().unwrap().iter();
        let made: Vec<_> = made.map(|of| (of["name"].clone(), of["requests"].clone())).collect();
        assert_eq!(made, [(json!("send"), json!(60)), (json!("list"), json!(30))]);
    }
}

#[test]
fn replay_repeats_the_recorded_calls() {
    let server = Binary::start(&[]);
    let folder = Folder::new("bench-recording");
    let file = folder.file("calls.jsonl");
    let mixture = ["--scenario", "send=2,get=1", "--payload", "10..90", "--arrivals", "poisson"];
    bench(&server, &[&mixture[..], &["--rate", "200", "--record", &file]].concat());
    let lines = std::fs::read_to_string(&file).unwrap();
    assert!((50..150).contains(&lines.lines().count()), "{lines}");
    let again = folder.file("again.jsonl");
    let output = Command::new(PATH)
        .args(["bench", &format!("http://{}", server.addr()), "-o", "json", "--warmup", "0s"])
        .args(["--replay", &file, "--record", &again])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["targets"][0]["requests"], lines.lines().count());
    assert_eq!(report["targets"][0]["errors"], json!({}));
    assert_eq!(std::fs::read_to_string(&again).unwrap(), lines);
}

#[test]
fn self_test_reports_the_timer_error() {
    let output = Command::new(PATH).args(["bench", "--self-test"]).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The head, three lines for the timer, three for each of three servers, the closed loop, and the
    // verdict.
    assert_eq!(stdout.lines().count(), 15, "{stdout}");
    // The measured deviation is not tested: other processes delay this one.
    assert!(stdout.lines().skip(1).all(|line| line.split_whitespace().count() > 3), "{stdout}");
    assert!(stdout.lines().last().unwrap().contains("timer error p99"), "{stdout}");
}

#[test]
fn failed_assertion_exits_with_code_1() {
    let server = Binary::start(&[]);
    let url = format!("http://{}", server.addr());
    let run = |assertion: &str| {
        let flags = ["--rate", "50", "--duration", "200ms", "--warmup", "0s"];
        Command::new(PATH)
            .args(["bench", &url, "--assert", "errors=0", "--assert", assertion])
            .args(flags)
            .output()
            .unwrap()
    };
    let held = run("p99<20s");
    assert_eq!(held.status.code(), Some(0), "{}", String::from_utf8_lossy(&held.stderr));
    let broken = run("p50<1us");
    assert_eq!(broken.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&broken.stderr).contains("p50<1us is not met: measured"));
}

/// A user ends a run while calls are held: unanswered calls are reported, and assertions are not
/// checked.
#[test]
fn interrupted_run_reports_unanswered_calls() {
    let server = Binary::start(&[]);
    let url = format!("http://{}", server.addr());
    let flags = ["--scenario", "resume", "--hold", "60s", "--rate", "50", "--duration", "60s"];
    let child = Command::new(PATH)
        .args(["bench", &url, "-o", "json", "--warmup", "0s", "--assert", "errors=0"])
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let idle = descriptors(server.pid());
    eventually("calls are held", || descriptors(server.pid()) > idle + 10);
    let ended = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(ended.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let [report, error] = &documents(&output.stdout)[..] else { panic!("{output:?}") };
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("the run was ended early"), "{message}");
    let target = &report["targets"][0];
    assert_eq!(target["interrupted"], true);
    assert!(target["unanswered"].as_u64().unwrap() > 5, "{target:#}");
    assert!(target["oldest_unanswered_us"].as_f64().unwrap() > 0.0);
}

/// The report, and the error if an assertion failed.
fn documents(stdout: &[u8]) -> Vec<Value> {
    serde_json::Deserializer::from_slice(stdout).into_iter().map(Result::unwrap).collect()
}

#[test]
fn requests_flag_counts_every_call_unless_warmup_is_set() {
    let server = Binary::start(&[]);
    let url = format!("http://{}", server.addr());
    let bench = |flags: &[&str]| {
        let output = Command::new(PATH).args(["bench", &url, "-o", "json"]).args(flags).output();
        let output = output.unwrap();
        let report = documents(&output.stdout).swap_remove(0);
        (output.status.code(), report["targets"][0]["requests"].as_u64())
    };
    assert_eq!(bench(&["--requests", "20", "--rate", "500"]), (Some(0), Some(20)));
    // Without counted calls no assertion can be checked.
    let none = ["--requests", "2", "--warmup", "5s", "--assert", "errors=0"];
    assert_eq!(bench(&none), (Some(1), Some(0)));
}

#[test]
fn scenario_unsupported_by_the_agent_fails() {
    let server = Binary::start(&["--agent", "exec:cat"]);
    let url = format!("http://{}", server.addr());
    let flags = ["bench", &url, "--scenario", "cancel", "-o", "json"];
    let output = Command::new(PATH).args(flags).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("UnsupportedOperationError"), "{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
}

#[test]
fn unwritable_report_path_is_rejected_before_the_run() {
    let url = "http://127.0.0.1:9";
    let output =
        Command::new(PATH).args(["bench", url, "--out", "/no/such/folder/r.html"]).output();
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("cannot write"), "{stderr}");
}

/// The server's descriptors while six calls are held: one HTTP/2 connection for each of three
/// clients, in addition to those it has when idle.
#[test]
fn calls_share_the_requested_connections() {
    let server = Binary::start(&["--interfaces", "jsonrpc,grpc"]);
    let idle = descriptors(server.pid());
    let flags = ["--transport", "grpc", "--scenario", "resume", "--hold", "300ms"];
    let at_once = ["--concurrency", "2", "--connections", "3", "--duration", "2s"];
    let pid = server.pid().to_string();
    let report = bench(&server, &[&flags[..], &at_once, &["--pid", &pid]].concat());
    let target = &report["targets"][0];
    assert_eq!((&target["plan"]["in_flight_max"], &target["errors"]), (&6.into(), &json!({})));
    let most = target["server"]["descriptors_max"].as_u64().unwrap();
    assert_eq!(most - idle, 3 + 2, "three clients, and those of the card and the first calls");
}

fn descriptors(pid: u32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64
}

#[test]
fn wrong_options_are_refused_before_a_call_is_made() {
    for (flags, expected) in [
        (&["--rate", "0"][..], "--rate"),
        (&["--rate", "x"], "--rate"),
        (&["--rate", "5", "--concurrency", "3"], "--concurrency"),
        (&["--scenario", "sned"], "--scenario"),
        (&["--scenario", "send=0"], "--scenario"),
        (&["--workload", "a2a-bench-0"], "--workload"),
        (&["--workload", "a2a-bench-1", "--payload", "5"], "--payload"),
        (&["--ramp", "5"], "--ramp"),
        (&["--sweep", "5:6:1"], "--sweep"),
        (&["--find-max"], "--slo"),
        (&["--slo", "p98<5ms"], "--slo"),
        (&["--slo", "p99<5"], "--slo"),
        (&["--assert", "errors"], "--assert"),
        (&["--payload", "9..3"], "--payload"),
        (&["--webhook-listen", "here"], "--webhook-listen"),
        (&["--replay", "no-such-file"], "--replay"),
        (&["--floor", "--scenario", "stream"], "--floor"),
        (&["--compare", "http://127.0.0.1:9", "--sweep", "5:6:2"], "--compare"),
        (&["--record", "x", "--concurrency", "2"], "--record"),
        (&["--rounds", "0"], "--rounds"),
        (&["--rounds", "2"], "--rounds"),
        (&["--rounds", "4294967296"], "--rounds"),
        (&["--rate", "inf"], "--rate"),
        (&["--rate", "5", "--ramp", "1:2"], "--ramp"),
        (&["--in-flight", "5", "--concurrency", "2"], "--concurrency"),
        (&["--burstiness", "1e-300"], "--burstiness"),
        (&["--batch", "1000000000"], "--batch"),
        (&["--subscribers", "1000000000"], "--subscribers"),
        (&["--connections", "100000000"], "--connections"),
        (&["--workers", "100000"], "--workers"),
        (&["--workers", "2", "--webhook-listen", "127.0.0.1:7361"], "--webhook-listen"),
        (&["--duration", "999999999h"], "--duration"),
        (&["--pid", "4294967295"], "--pid"),
        (&["--pid", "me"], "--pid"),
        (&["--arrivals", "weekly"], "--arrivals"),
        (&["--burstiness", "-1"], "--burstiness"),
        (&["--duration", "soon"], "--duration"),
        (&["--check", "some"], "--check"),
        (&["--out", "report.pdf"], "--out"),
        (&["--workers", "0"], "--workers"),
        (&["--live", "maybe"], "--live"),
    ] {
        let output =
            Command::new(PATH).args(["bench", "http://127.0.0.1:9"]).args(flags).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {stderr}");
        assert!(stderr.contains(expected), "{flags:?}: {stderr}");
    }
}

/// With a fixed limit of 100 descriptors, fewer calls run at once than requested, and none fails
/// for lack of a descriptor.
#[cfg(target_os = "linux")]
#[test]
fn concurrency_is_lowered_to_the_descriptor_limit() {
    let server = Binary::start(&[]);
    let url = format!("http://{}", server.addr());
    let command = format!("ulimit -n 100 && exec {PATH:?} \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &command, "sh", "bench", &url, "-o", "json", "--concurrency", "400"])
        .args(["--duration", "500ms", "--warmup", "0s"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let target = &report["targets"][0];
    assert_eq!(target["errors"], json!({}));
    let at_once = target["plan"]["in_flight_max"].as_u64().unwrap();
    assert!((10..100).contains(&at_once), "{at_once} at once");
}
