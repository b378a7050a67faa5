//! What the operator sees of the agents' upstreams: `/metrics`.

use std::{fs, io::Write, net::TcpListener};

use serde_json::{Value, json};

use crate::support::{
    ask::{V1, post, rpc, say},
    binary::{Binary, Tcp, eventually},
    by_hand::{ByHand, answer},
    configured::Configured,
};

/// A server with upstreams, and its metrics.
struct Server(Configured);

impl Server {
    fn new(test: &str, text: &str) -> Server {
        Server(Configured::new(test, text))
    }

    fn call(&self, agent: &str, method: &str, params: &Value) -> Tcp {
        let mut line = self.0.server.connect();
        let path = format!("/agents/{agent}");
        line.write(&post(&path, &[("A2A-Version", "1.0")], &rpc(method, params)));
        line
    }

    fn send(&self, agent: &str, text: &str) -> String {
        self.call(agent, V1.send(), &V1.params(say(text))).reply().text().to_owned()
    }

    /// The lines about upstreams, without the common part of their names.
    fn metrics(&self) -> Vec<String> {
        let mut line = self.0.server.connect();
        line.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let reply = line.reply();
        let lines =
            reply.text().lines().filter_map(|line| line.strip_prefix("peregrine_upstream_"));
        lines.map(str::to_owned).collect()
    }

    /// Waits until these lines are there.
    fn counts(&self, expected: &[&str]) {
        for line in expected {
            eventually(line, || self.metrics().iter().any(|one| one == line));
        }
    }
}

/// An HTTP server that answers each request with these bytes.
fn fixed(answer: String) -> ByHand {
    ByHand::new(move |_, stream| drop(stream.write_all(answer.as_bytes())))
}

fn upstream(agent: &str, url: &str, more: &str) -> String {
    format!("[agents.{agent}]\n{more}\n[agents.{agent}.upstream]\nurl = \"{url}\"\n")
}

#[test]
fn calls_of_a_remote_agent_are_counted_by_outcome() {
    let remote = Binary::start(&[]);
    let url = format!("http://{}", remote.addr());
    let server = Server::new("counted", &(upstream("up", &url, "") + "streams = 1\n"));
    assert!(server.send("up", "ping").contains("pong"));
    assert!(server.send("up", "hello").contains("TASK_STATE_COMPLETED"));
    let held = V1.params(say("hold:600000:1"));
    let mut stream = server.call("up", V1.stream(), &held);
    stream.read_until("TASK_STATE_SUBMITTED");
    server.counts(&[
        "requests_total{agent=\"up\",call=\"message\",outcome=\"ok\"} 3",
        "requests_total{agent=\"up\",call=\"stream\",outcome=\"ok\"} 1",
        "streams{agent=\"up\"} 1",
        "outstanding{agent=\"up\"} 0",
        "answer_seconds_count{agent=\"up\"} 3",
    ]);
    assert!(server.send("up", "hi").contains("upstream_streams_max"));
    let id = stream.peek().expect("a task").events()[0].result()["task"]["id"].clone();
    let canceled = server.call("up", V1.cancel(), &json!({ "id": id })).reply();
    assert!(canceled.text().contains("TASK_STATE_CANCELED"), "{}", canceled.text());
    server.counts(&[
        "requests_total{agent=\"up\",call=\"message\",outcome=\"limit\"} 1",
        "requests_total{agent=\"up\",call=\"cancel\",outcome=\"ok\"} 1",
        "streams{agent=\"up\"} 0",
        "queued{agent=\"up\"} 0",
        "answer_seconds_count{agent=\"up\"} 4",
    ]);
}

#[test]
fn reasons_of_failed_upstream_calls_are_counted() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}/turn", silent.local_addr().unwrap());
    let gone_url = format!("http://{}", Binary::start(&[]).addr());
    let functions = [
        ("broken", answer("500 Internal Server Error", "text/plain", "oh"), "fault"),
        ("strict", answer("401 Unauthorized", "text/plain", ""), "unauthorized"),
        ("garbled", answer("200 OK", "text/html", "<html>"), "invalid_answer"),
        ("fine", answer("200 OK", "application/json", "\"hello\""), "ok"),
    ];
    let functions = functions.map(|(name, answer, outcome)| (name, fixed(answer), outcome));
    let url = |function: &ByHand| format!("http://{}/turn", function.addr);
    let kind = "kind = \"http\"";
    let mut text = upstream("silent", &silent_url, kind) + "call_ms = 50\n";
    text += &upstream("gone", &gone_url, "");
    for (name, function, _) in &functions {
        text += &upstream(name, &url(function), kind);
    }
    let server = Server::new("unanswered", &text);
    let others = [("silent", "timeout"), ("gone", "unreachable")];
    for (name, outcome) in functions.iter().map(|(name, _, end)| (*name, *end)).chain(others) {
        server.send(name, "hello");
        let labels = format!("agent=\"{name}\",call=\"message\",outcome=\"{outcome}\"");
        server.counts(&[&format!("requests_total{{{labels}}} 1")]);
    }
}

#[cfg(feature = "exec")]
#[test]
fn messages_and_processes_of_programs_are_counted() {
    let text = "[agents.upper]\ncommand = \"tr a-z A-Z\"\n[agents.false]\ncommand = \"false\"\n\
                [agents.lines]\nkind = \"exec+jsonl\"\ncommand = \"false\"\n\
                [agents.echo]\nkind = \"echo\"\n";
    let server = Server::new("programs", text);
    for agent in ["upper", "upper", "false", "lines", "echo"] {
        server.send(agent, "hello");
    }
    server.counts(&[
        "requests_total{agent=\"upper\",call=\"message\",outcome=\"ok\"} 2",
        "requests_total{agent=\"false\",call=\"message\",outcome=\"fault\"} 1",
        "requests_total{agent=\"lines\",call=\"message\",outcome=\"invalid_answer\"} 1",
        "processes_total{agent=\"upper\"} 2",
        "answer_seconds_count{agent=\"upper\"} 2",
    ]);
    // An agent without an upstream has no line.
    assert!(!server.metrics().iter().any(|line| line.contains("agent=\"echo\"")));
}

/// The guide's table lists each name on the page.
#[test]
fn the_guide_lists_the_metrics_of_upstreams() {
    let guide = include_str!("../../docs/guide/operating.md");
    let server = Server::new("listed", &upstream("up", "http://127.0.0.1:1", ""));
    server.send("up", "hello");
    let lines = server.metrics();
    assert!(lines.len() > 4, "{lines:?}");
    for line in lines {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(guide.contains(&format!("`peregrine_upstream_{name}`")), "{name}");
    }
}

#[cfg(feature = "logs")]
#[test]
fn access_log_line_has_upstream_and_its_duration() {
    let remote = Binary::start(&[]);
    let origin = format!("http://{}", remote.addr());
    let log = std::env::temp_dir().join(format!("peregrine-upstream-{}", std::process::id()));
    let agents =
        ["echo".to_owned(), format!("up=a2a:{origin}"), "upper=exec:tr a-z A-Z".to_owned()];
    let [echo, up, upper] = agents.each_ref().map(String::as_str);
    let flags = ["--access-log", "--agent", echo, "--agent", up, "--agent", upper];
    let mut server = Binary::start_with(&flags, fs::File::create(&log).unwrap().into());
    let version = [("A2A-Version", "1.0")];
    for (path, method) in [
        ("/", V1.send()),
        ("/agents/up", V1.send()),
        ("/agents/up", V1.stream()),
        ("/agents/upper", V1.send()),
    ] {
        let mut line = server.connect();
        line.write(&post(path, &version, &rpc(method, &V1.params(say("hello")))));
        line.read_until("TASK_STATE_COMPLETED");
    }
    server.terminate();
    assert!(server.wait());
    let text = fs::read_to_string(&log).unwrap();
    fs::remove_file(log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let calls: Vec<Value> = lines.filter(|line| line["target"] == "peregrine::access").collect();
    let shown = calls.iter().map(|call| (call["upstream"].as_str(), call["upstream_us"].is_u64()));
    let mut shown: Vec<_> = shown.collect();
    shown.sort_unstable();
    let up = Some(&*origin);
    assert_eq!(shown, [(None, false), (None, true), (up, true), (up, true)], "{text}");
    for call in calls.iter().filter(|call| call["upstream_us"].is_u64()) {
        assert!(call["upstream_us"].as_u64() <= call["us"].as_u64(), "{call}");
    }
}
