//! Tasks without an event end on a server as its users start it: by the limits, and by the agent's
//! own times.

use std::{fs, path::PathBuf, process::id};

use serde_json::{Value, json};

use crate::support::{
    ask::{OutgoingMessage, V1, post, rpc, say},
    binary::{Binary, eventually},
};

const LOCAL: &str = "Host: localhost\r\n";

const AGENTS: &str = r#"
default_agent = "echo"
[agents.echo]
kind = "echo"
[agents.quick]
kind = "script"
script = "quick.toml"
unfinished_idle_ms = "1h"
input_required_ttl_ms = "100ms"
[limits]
unfinished_idle_ms = "200ms"
"#;

const SCRIPT: &str = "[[rule]]\n[[rule.step]]\nstatus = 'input-required'\ntext = 'Which one?'\n";

/// A folder with a configuration, deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("peregrine-idle-{}", id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("peregrine.toml"), AGENTS).unwrap();
        fs::write(path.join("quick.toml"), SCRIPT).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn call(server: &Binary, path: &str, method: &str, params: &Value) -> Value {
    let mut tcp = server.connect();
    tcp.write(&post(path, &[], &rpc(method, params)));
    tcp.reply().result()
}

#[test]
fn idle_task_fails_by_server_limit_or_agent_ttl() {
    let folder = Folder::new();
    let config = folder.0.join("peregrine.toml");
    let server = Binary::start(&["--config", config.to_str().unwrap()]);
    // The call waits for a task without an event for a minute.
    let task = call(&server, "/", V1.send(), &V1.params(say("hold:60000:1")))["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    let why = &task["status"]["message"]["parts"][0]["text"];
    assert_eq!(why, "failed: no event for 200 ms (unfinished_idle_ms)");
    let quick = "/agents/quick";
    let paused = call(&server, quick, V1.send(), &V1.params(say("hi")))["task"].clone();
    assert_eq!(paused["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let id = json!({ "id": paused["id"] });
    let state = || call(&server, quick, V1.get(), &id)["status"].clone();
    eventually("it fails", || state()["state"] == "TASK_STATE_FAILED");
    let why = "failed: no event for 100 ms (input_required_ttl_ms)";
    assert_eq!(state()["message"]["parts"][0]["text"], why);
    // A late message is refused like any message to a finished task.
    let late = OutgoingMessage {
        task: paused["id"].as_str(),
        text: "this one",
        ..OutgoingMessage::default()
    };
    let mut tcp = server.connect();
    tcp.write(&post(quick, &[], &rpc(V1.send(), &V1.params(late))));
    assert!(tcp.reply().json()["error"]["code"].is_number());
    let mut tcp = server.connect();
    tcp.write(format!("GET /metrics HTTP/1.1\r\n{LOCAL}\r\n").as_bytes());
    let text = tcp.reply().text().to_owned();
    for limit in ["unfinished_idle_ms", "input_required_ttl_ms"] {
        let line = format!("peregrine_tasks_ended_total{{limit=\"{limit}\"}} 1");
        assert!(text.lines().any(|one| one == line), "{line} in {text}");
    }
}
