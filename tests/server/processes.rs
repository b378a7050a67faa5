//! Agents that are programs: the real binary, and real processes.

use std::{fs, path::Path, process::Stdio};

use serde_json::json;

use crate::support::{
    ask::{V1, post, rpc, say, text_of},
    binary::{Binary, Tcp, eventually},
};

fn serve(command: &str) -> Binary {
    Binary::start(&["--agent", &format!("exec:{command}")])
}

/// A server with one agent of these keys in its configuration.
fn configured(test: &str, keys: &str) -> Binary {
    let file = std::env::temp_dir().join(format!("peregrine-{test}-{}.toml", std::process::id()));
    // A dollar sign begins the name of a variable there.
    let keys = keys.replace('$', "$$");
    fs::write(&file, format!("[agents.program]\n{keys}\n")).unwrap();
    let server = Binary::start(&["--config", file.to_str().expect("a path")]);
    fs::remove_file(file).unwrap();
    server
}

fn call(server: &Binary, method: &str, params: &serde_json::Value) -> Tcp {
    let mut line = server.connect();
    line.write(&post("/", &[("A2A-Version", "1.0")], &rpc(method, params)));
    line
}

/// The final task of a message.
fn task(server: &Binary, text: &str) -> serde_json::Value {
    let result = call(server, V1.send(), &V1.params(say(text))).reply().result();
    V1.task(&result).clone()
}

/// All text of the one artifact.
fn output(task: &serde_json::Value) -> String {
    let parts = task["artifacts"][0]["parts"].as_array().expect("an artifact");
    parts.iter().map(|part| part["text"].as_str().expect("text")).collect()
}

fn state(task: &serde_json::Value) -> &str {
    task["status"]["state"].as_str().expect("a state")
}

/// A stream of a program that runs a child, and the child's process id.
fn begun(server: &Binary) -> (Tcp, String, String) {
    let mut line = call(server, V1.stream(), &V1.params(say("hi")));
    line.read_until("pid=");
    line.read_until("\\n\"}]");
    let events = line.peek().expect("events").events();
    let id = events[0].result()["task"]["id"].as_str().expect("an id").to_owned();
    let text = text_of(&events.last().expect("an event").result()["artifactUpdate"]["artifact"])
        .trim()
        .to_owned();
    (line, id, text.strip_prefix("pid=").expect("a number").to_owned())
}

fn is_alive(pid: &str) -> bool {
    // An unreaped zombie, as in a container without an init, counts as dead.
    let status = fs::read_to_string(format!("/proc/{pid}/stat"));
    status.is_ok_and(|line| !line.contains(") Z "))
}

const SLEEPER: &str = "sh -c 'sleep 600 & echo pid=$!; wait'";

#[test]
fn program_input_is_message_text_and_output_is_artifact() {
    let server = serve("tr a-z A-Z");
    let task = task(&server, "hello");
    assert_eq!((state(&task), &*output(&task)), ("TASK_STATE_COMPLETED", "HELLO"), "{task}");
}

#[test]
fn output_arrives_before_the_program_ends() {
    let gate = std::env::temp_dir().join(format!("peregrine-gate-{}", std::process::id()));
    let wait = format!("while [ ! -e {0} ]; do sleep 0.01; done", gate.display());
    let server = serve(&format!("sh -c 'printf one; {wait}; printf two'"));
    let mut line = call(&server, V1.stream(), &V1.params(say("hi")));
    line.read_until("one");
    fs::write(&gate, "").unwrap();
    line.read_until("TASK_STATE_COMPLETED");
    fs::remove_file(gate).unwrap();
    let events = line.peek().expect("events").events();
    let updates = events.iter().map(|event| event.result()["artifactUpdate"].clone());
    let updates: Vec<_> = updates.filter(|update| update.is_object()).collect();
    let text: String = updates.iter().map(|update| text_of(&update["artifact"])).collect();
    assert_eq!(text, "onetwo");
    // The last chunk is one only if the program ends at once, which a busy machine may delay.
    let early = &updates[..updates.len() - 1];
    assert!(early.iter().all(|update| update["lastChunk"] != json!(true)), "{early:?}");
}

#[test]
fn program_output_has_no_empty_parts() {
    for command in ["sh -c 'echo olleh'", "sh -c 'echo olleh; sleep 0.3'"] {
        let server = serve(command);
        let result = task(&server, "hi");
        let parts = &result["artifacts"][0]["parts"];
        assert_eq!(*parts, json!([{ "text": "olleh\n" }]), "{command}: {result}");
        let mut line = call(&server, V1.stream(), &V1.params(say("hi")));
        line.read_until("TASK_STATE_COMPLETED");
        let events = line.peek().expect("events").events();
        let updates = events.iter().map(|event| event.result()["artifactUpdate"].clone());
        let updates: Vec<_> = updates.filter(|update| update.is_object()).collect();
        let texts: Vec<_> = updates.iter().map(|one| text_of(&one["artifact"])).collect();
        assert_eq!(texts, ["olleh\n"], "{command}");
    }
    let keys = r#"
        command = "printf a||b|"
        chunk = "|"
    "#;
    let result = task(&configured("empty", keys), "hi");
    let parts = &result["artifacts"][0]["parts"];
    assert_eq!(*parts, json!([{ "text": "a" }, { "text": "b" }]), "{result}");
}

#[test]
fn failed_program_fails_its_task_with_exit_status() {
    let server = serve("sh -c 'echo secret >&2; exit 3'");
    let task = task(&server, "hi");
    assert_eq!(state(&task), "TASK_STATE_FAILED");
    let text = text_of(&task["status"]["message"]);
    assert_eq!(text, "the program failed (exit status 3)");
}

#[test]
fn program_inherits_only_path_and_standard_streams() {
    let server = serve("sh -c 'env; ls /proc/self/fd'");
    let text = output(&task(&server, "hi"));
    // The shell sets some variables itself; `ls` opens the folder.
    let lines = text.lines().filter(|line| {
        !["PWD=", "OLDPWD=", "SHLVL=", "_="].iter().any(|own| line.starts_with(own))
    });
    let (variables, descriptors): (Vec<&str>, Vec<&str>) =
        lines.partition(|line| line.contains('='));
    assert!(matches!(*variables, [path] if path.starts_with("PATH=")), "{text}");
    assert_eq!(descriptors, ["0", "1", "2", "3"]);
}

#[test]
fn cancel_kills_the_processes_of_the_task() {
    let server = serve(SLEEPER);
    let (_line, id, pid) = begun(&server);
    assert!(is_alive(&pid));
    call(&server, V1.cancel(), &json!({ "id": id })).reply().result();
    eventually("the child ends", || !is_alive(&pid));
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    if Path::new(&children).exists() {
        eventually("the program is reaped", || {
            fs::read_to_string(&children).is_ok_and(|children| children.trim().is_empty())
        });
    }
}

#[test]
fn children_of_a_finished_program_are_killed() {
    let server = serve("sh -c 'sleep 600 & echo pid=$!'");
    let task = task(&server, "hi");
    assert_eq!(state(&task), "TASK_STATE_COMPLETED", "{task}");
    let text = output(&task);
    eventually("the child ends", || !is_alive(text.trim().trim_start_matches("pid=")));
}

#[test]
fn processes_are_killed_when_the_server_shuts_down() {
    let mut server = serve(SLEEPER);
    let (line, _, pid) = begun(&server);
    drop(line);
    server.terminate();
    assert!(server.wait());
    eventually("the child ends", || !is_alive(&pid));
}

#[test]
fn drain_logs_the_number_of_lost_tasks() {
    let log = std::env::temp_dir().join(format!("peregrine-lost-{}", std::process::id()));
    for (wait, lost) in [("sleep 600", "1 unfinished task lost"), ("true", "0 unfinished tasks")] {
        let stderr = fs::File::create(&log).unwrap();
        let agent = format!("exec:sh -c 'echo pid=$$; {wait}'");
        let mut server = Binary::start_with(&["--agent", &agent, "--workers", "2"], stderr.into());
        let mut line = call(&server, V1.stream(), &V1.params(say("hi")));
        line.read_until("pid=");
        if wait == "true" {
            line.read_until("TASK_STATE_COMPLETED");
        }
        drop(line);
        server.terminate();
        assert!(server.wait());
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains(&format!("drained; {lost}")), "{text}");
    }
    fs::remove_file(log).unwrap();
}

#[test]
fn config_sets_environment_chunks_and_shown_errors() {
    let keys = r#"
        command = "sh -c 'printf \"$HOME|b|\"; echo broken >&2; exit 3'"
        environment = ["HOME"]
        chunk = "|"
        show_errors = true
    "#;
    let task = task(&configured("keys", keys), "hi");
    let home = std::env::var("HOME").expect("a home");
    let parts = task["artifacts"][0]["parts"].as_array().expect("parts");
    let texts: Vec<&str> = parts.iter().map(|part| part["text"].as_str().expect("text")).collect();
    assert_eq!(texts[..2], [&home, "b"]);
    let text = text_of(&task["status"]["message"]);
    assert_eq!(text, "the program failed (exit status 3): broken");
}

#[test]
fn a_silent_program_is_killed() {
    let keys = "command = \"sh -c 'echo pid=$$; sleep 600'\"\nsilence_ms = \"50ms\"";
    let server = configured("silent", keys);
    let task = task(&server, "hi");
    assert_eq!(text_of(&task["status"]["message"]), "the program wrote nothing for 50 ms");
    let text = output(&task);
    assert!(!is_alive(text.trim().trim_start_matches("pid=")));
}

#[test]
fn program_output_above_task_bytes_max_fails_task() {
    let server = Binary::start(&["--agent", "exec:yes", "--limit", "task_bytes_max=200000"]);
    let task = task(&server, "hi");
    assert_eq!(state(&task), "TASK_STATE_FAILED");
    let text = text_of(&task["status"]["message"]);
    assert_eq!(
        text,
        "the task has reached a limit (task_bytes_max or artifacts_max) and was ended"
    );
}

#[test]
fn message_beyond_the_process_queue_is_refused() {
    let keys = "command = \"sh -c 'echo pid=$$; exec sleep 600'\"\nprocesses = 1\nqueue = 1";
    let server = configured("queue", keys);
    let (_first, id, _) = begun(&server);
    let mut second = call(&server, V1.stream(), &V1.params(say("second")));
    second.read_until("TASK_STATE_SUBMITTED");
    let refused = call(&server, V1.send(), &V1.params(say("third"))).reply();
    assert!(refused.text().contains("turns_queued_max"), "{}", refused.text());
    call(&server, V1.cancel(), &json!({ "id": id })).reply().result();
    second.read_until("pid=");
}

#[test]
fn a_second_message_to_a_running_program_is_refused() {
    let server = serve(SLEEPER);
    let (_line, id, _) = begun(&server);
    let params = V1.params(crate::support::ask::OutgoingMessage {
        task: Some(&id),
        id: "m2",
        ..say("more")
    });
    let reply = call(&server, V1.send(), &params).reply();
    assert!(reply.text().contains("one message per task"), "{}", reply.text());
}

#[test]
fn missing_program_is_a_usage_error() {
    let mut command = std::process::Command::new(crate::support::binary::PATH);
    command.args(["serve", "--listen", "127.0.0.1:0", "--agent", "exec:no-such-program x"]);
    let output = command.stdout(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(line.contains("the program \"no-such-program\""), "{line}");
}

/// A server of `peregrine server` with these flags.
fn official(flags: &[&str]) -> Binary {
    Binary::start_command("server", &[flags, &["--port", "0", "--allow-host", "*"]].concat())
}

#[test]
fn server_exec_runs_a_shell_and_shows_errors() {
    let command = "for i in 1 2 3; do echo $i; done; echo broken >&2; exit 2";
    let server = official(&["--exec", command, "--chunk", "\n"]);
    let task = task(&server, "hi");
    let parts = task["artifacts"][0]["parts"].as_array().expect("parts");
    let texts: Vec<&str> = parts.iter().map(|part| part["text"].as_str().expect("text")).collect();
    assert_eq!(texts[..3], ["1", "2", "3"]);
    let text = text_of(&task["status"]["message"]);
    assert_eq!(text, "the program failed (exit status 2): broken");
}

#[test]
fn server_command_echoes_and_proxies() {
    let echo = official(&["--echo", "--name", "parrot"]);
    let url = format!("http://{}", echo.addr());
    let proxy = official(&["--proxy", &url]);
    let other = official(&["--proxy", "-a", &url]);
    for server in [&echo, &proxy, &other] {
        let reply = call(server, V1.send(), &V1.params(say("hello"))).reply();
        assert!(reply.text().contains("hello"), "{}", reply.text());
        let mut line = server.connect();
        line.write(&crate::support::ask::get("/.well-known/agent-card.json"));
        assert!(line.reply().text().contains("parrot"));
    }
}

#[test]
fn server_command_exits_2_on_invalid_flags() {
    for flags in [
        &[][..],
        &["--echo", "--exec", "cat"],
        &["--chunk", " "],
        &["--echo", "--agent", "echo"],
        &["--proxy"],
        &["--echo", "--protocol", "0.2"],
        &["--echo", "--card", "no-such-card.json"],
    ] {
        let mut command = std::process::Command::new(crate::support::binary::PATH);
        let output = command.arg("server").args(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
    }
}

#[test]
fn server_command_serves_card_from_file() {
    let file = std::env::temp_dir().join(format!("peregrine-card-{}.json", std::process::id()));
    let interface = json!({
        "url": "http://elsewhere.example", "protocolBinding": "GRPC", "protocolVersion": "1.0",
    });
    let skill = json!({"id": "s", "name": "Squawk", "description": "It squawks.", "tags": ["s"]});
    let card = json!({
        "name": "The parrot", "description": "It repeats.", "version": "7.1",
        "supportedInterfaces": [interface], "capabilities": {}, "skills": [skill],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
    });
    fs::write(&file, card.to_string()).unwrap();
    let path = file.to_str().expect("a path");
    let shown = |flags: &[&str]| {
        let server = official(&[&["--echo", "--card", path][..], flags].concat());
        let mut line = server.connect();
        line.write(&crate::support::ask::get("/.well-known/agent-card.json"));
        line.reply().json()
    };
    let card = shown(&["--card-compat", "--serve-transport", "grpc"]);
    assert_eq!((&card["name"], &card["version"]), (&json!("The-parrot"), &json!("7.1")));
    assert_eq!(
        (&card["description"], &card["skills"][0]["id"]),
        (&json!("It repeats."), &json!("s"))
    );
    let interfaces = card["supportedInterfaces"].as_array().expect("interfaces");
    assert!(interfaces.iter().all(|one| one["protocolBinding"] == "GRPC"), "{card}");
    assert!(!card.to_string().contains("elsewhere"), "{card}");
    let card = shown(&["--protocol", "0.3", "--description", "Other.", "--name", "Other Agent"]);
    assert_eq!((&card["name"], &card["description"]), (&json!("Other-Agent"), &json!("Other.")));
    assert!(card["supportedInterfaces"].is_null() && card["url"].is_string(), "{card}");
    let card = shown(&["--advertise-address", "parrot.example:81"]);
    assert!(card.to_string().contains("http://parrot.example:81"), "{card}");
    fs::remove_file(file).unwrap();
}

#[test]
fn quiet_server_writes_nothing_to_stderr() {
    let log = std::env::temp_dir().join(format!("peregrine-quiet-{}", std::process::id()));
    for (flags, is_quiet) in [(&["--quiet"][..], true), (&[], false)] {
        let stderr = fs::File::create(&log).unwrap();
        let flags = [&["--echo", "--port", "0"], flags].concat();
        let mut server = Binary::start_command_with("server", &flags, stderr.into());
        server.terminate();
        assert!(server.wait());
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.is_empty(), is_quiet, "{text}");
    }
    fs::remove_file(log).unwrap();
}
