//! Agents that speak the line protocol: the real binary, and shell scripts that answer it.

use std::{fs, path::PathBuf};

use peregrine::gateway::lines::VERSION;
use serde_json::{Value, json};

use crate::support::{
    ask::{OutgoingMessage, V1, post, rpc, say, text_of},
    binary::{Binary, Tcp, eventually},
};

/// Answers by the text of a message; repeats the cancels that it got on request.
const PROGRAM: &str = r#"
while read -r line; do
  turn=${line#*'"turn":"'}
  turn=${turn%%'"'*}
  event() { printf '{"turn":"%s",%s}\n' "$turn" "$1"; }
  case $line in
  '{"type":"cancel"'*) canceled="$canceled turn $turn" ;;
  *'"state":"input-required"'*)
    event "\"artifact\":{\"parts\":[{\"data\":$line}]}"
    event '"status":"completed"' ;;
  *'"direct"'*) event '"message":"hello"' ;;
  *'"stream"'*)
    event '"status":"working","message":{"text":"on it"}'
    event '"artifact":{"artifactId":"a","text":"one "},"lastChunk":false'
    event '"artifact":{"artifactId":"a","text":"two"},"append":true,"lastChunk":true'
    event '"status":"completed"' ;;
  *'"ask"'*) event '"status":"input-required","message":"what size?"' ;;
  *'"data"'*) event '"artifact":{"parts":[{"data":{"n": 1.50, "n":2}}]}'; event '"status":"completed"' ;;
  *'"wait"'*) event '"status":"working"' ;;
  *'"canceled?"'*) event "\"message\":\"$canceled\"" ;;
  *'"pid"'*) event "\"message\":\"$$\"" ;;
  *'"noise"'*) echo Traceback; event '"message":"after noise"' ;;
  *'"wrong"'*) event '"status":"tired"' ;;
  *'"close"'*) exec >&-; sleep 600 ;;
  *'"die"'*) echo broken >&2; exit 3 ;;
  *'"silent"'*) ;;
  *) event "\"artifact\":{\"parts\":[{\"data\":$line}]}"; event '"status":"completed"' ;;
  esac
done
"#;

struct Program {
    server: Binary,
    file: PathBuf,
}

impl Program {
    /// A server of the program with these keys.
    fn start(test: &str, keys: &str) -> Program {
        let name = format!("peregrine-lines-{test}-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, PROGRAM).unwrap();
        let config = file.with_extension("toml");
        let command = format!("command = \"sh {}\"", file.display());
        let text = format!("[agents.lines]\nkind = \"exec+jsonl\"\n{command}\n{keys}\n");
        fs::write(&config, text).unwrap();
        let server = Binary::start(&["--config", config.to_str().expect("a path")]);
        fs::remove_file(config).unwrap();
        Program { server, file }
    }

    fn call(&self, method: &str, params: &Value) -> Tcp {
        let mut line = self.server.connect();
        line.write(&post("/", &[("A2A-Version", "1.0")], &rpc(method, params)));
        line
    }

    fn send(&self, message: OutgoingMessage<'_>) -> Value {
        self.call(V1.send(), &V1.params(message)).reply().result()
    }

    /// The direct message that answers this text.
    fn answer(&self, text: &str) -> String {
        text_of(&self.send(say(text))["message"]).to_owned()
    }

    /// The task that results from this text.
    fn task(&self, text: &str) -> Value {
        self.send(say(text))["task"].clone()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

fn status_text(task: &Value) -> &str {
    text_of(&task["status"]["message"])
}

#[test]
fn message_line_is_direct_reply_and_event_lines_make_task() {
    let program = Program::start("events", "");
    assert_eq!(program.answer("direct"), "hello");
    let task = program.task("stream");
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let artifact = json!({"artifactId": "a", "parts": [{"text": "one "}, {"text": "two"}]});
    assert_eq!(task["artifacts"], json!([artifact]));
}

#[test]
fn json_data_of_a_program_is_returned_byte_for_byte() {
    let program = Program::start("bytes", "");
    let reply = program.call(V1.send(), &V1.params(say("data"))).reply();
    assert!(reply.text().contains(r#"{"data":{"n": 1.50, "n":2}}"#), "{}", reply.text());
}

#[test]
fn turn_line_contains_ids_metadata_and_message_parts() {
    let program = Program::start("turn", "history = true");
    let params = json!({
        "message": {"messageId": "m", "contextId": "c", "role": "ROLE_USER",
            "parts": [{"text": "a\nb"}, {"raw": "aGk=", "filename": "f", "mediaType": "text/plain"}]},
        "metadata": {"k": [1]},
    });
    let task = program.call(V1.send(), &params).reply().result()["task"].clone();
    let turn = &task["artifacts"][0]["parts"][0]["data"];
    assert_eq!((&turn["type"], &turn["version"]), (&json!("turn"), &json!(VERSION)));
    assert_eq!((&turn["taskId"], &turn["contextId"]), (&task["id"], &json!("c")));
    assert_eq!(turn["metadata"], params["metadata"]);
    assert_eq!(turn["message"]["parts"], params["message"]["parts"]);
    assert!(turn.get("state").is_none() && turn.get("history").is_none(), "{turn}");
    assert_schema(turn);
}

fn assert_schema(line: &Value) {
    let schema = include_str!("../../docs/guide/any-language.schema.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("lines.json", schema).unwrap();
    let index = compiler.compile("lines.json", &mut schemas).unwrap();
    if let Err(error) = schemas.validate(line, index) {
        panic!("{line}: {error}");
    }
}

#[test]
fn example_lines_of_the_guide_match_the_schema() {
    let page = include_str!("../../docs/guide/any-language.md");
    let blocks = page.split("```json\n").skip(1).map(|text| text.split("```").next().unwrap());
    let lines: Vec<&str> = blocks.flat_map(str::lines).collect();
    assert!(lines.len() > 8, "{} lines", lines.len());
    for line in lines {
        assert_schema(&serde_json::from_str(line).expect(line));
    }
}

#[test]
fn user_answer_continues_the_input_required_task() {
    let program = Program::start("ask", "history = true");
    let task = program.task("ask");
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let id = task["id"].as_str();
    let task = program.send(OutgoingMessage { task: id, id: "m2", ..say("large") })["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let turn = &task["artifacts"][0]["parts"][0]["data"];
    assert_eq!((&turn["state"], &turn["taskId"]), (&json!("input-required"), &task["id"]));
    let history: Vec<&str> = turn["history"].as_array().unwrap().iter().map(text_of).collect();
    assert_eq!(history, ["ask", "what size?"]);
    assert_schema(turn);
}

#[test]
fn one_process_serves_many_turns_and_receives_cancels() {
    let program = Program::start("cancel", "");
    let first = program.answer("pid");
    let mut line = program.call(V1.stream(), &V1.params(say("wait")));
    line.read_until("TASK_STATE_WORKING");
    let id = line.peek().expect("events").events()[0].result()["task"]["id"].clone();
    assert_eq!(program.answer("pid"), first);
    program.call(V1.cancel(), &json!({ "id": id })).reply().result();
    eventually("the program hears of it", || program.answer("canceled?").contains("turn 2"));
}

#[test]
fn client_disconnect_before_answer_cancels_the_turn() {
    let program = Program::start("leave", "");
    program.answer("direct");
    let line = program.call(V1.send(), &V1.params(say("silent")));
    // The program has the turn once it answers the next one.
    eventually("it is sent", || {
        program.server.wait_until_read(&[&line.stream]);
        program.answer("direct") == "hello"
    });
    drop(line);
    eventually("the program hears of it", || program.answer("canceled?").contains("turn 2"));
}

#[test]
fn tasks_of_exited_program_fail_and_program_is_restarted() {
    let program = Program::start("die", "show_errors = true");
    let first = program.answer("pid");
    let mut line = program.call(V1.stream(), &V1.params(say("wait")));
    line.read_until("TASK_STATE_WORKING");
    let task = program.task("die");
    assert_eq!(status_text(&task), "the program ended with exit status: 3: broken");
    line.read_until("the program ended with exit status: 3: broken");
    assert_ne!(program.answer("pid"), first);
}

#[test]
fn each_task_of_crashing_program_fails_with_exit_status() {
    let server = Binary::start(&["--agent", "lines=exec+jsonl:false"]);
    let program = Program { server, file: PathBuf::new() };
    for _ in 0..3 {
        assert_eq!(status_text(&program.task("hi")), "the program ended with exit status: 1");
    }
}

#[test]
fn noise_lines_are_skipped_and_invalid_events_fail_task() {
    let program = Program::start("noise", "");
    assert_eq!(program.answer("noise"), "after noise");
    let text = status_text(&program.task("wrong")).to_owned();
    assert!(text.contains("unknown state \"tired\""), "{text}");
    assert_eq!(program.answer("direct"), "hello");
}

#[test]
fn silent_program_is_killed_only_during_a_turn() {
    let program = Program::start("silent", "silence_ms = \"100ms\"");
    let first = program.answer("pid");
    let task = program.task("silent");
    assert_eq!(status_text(&task), "the program wrote nothing for 100 ms");
    // Silence without a turn is fine: the process started since then answers.
    let second = program.answer("pid");
    assert_ne!(second, first);
    std::thread::sleep(std::time::Duration::from_millis(250));
    assert_eq!(program.answer("pid"), second);
}

#[test]
fn program_that_closes_its_output_is_replaced() {
    let program = Program::start("close", "");
    let first = program.answer("pid");
    assert_eq!(status_text(&program.task("close")), "the program closed its output");
    assert_ne!(program.answer("pid"), first);
}

#[test]
fn too_long_output_line_fails_the_task() {
    let long = "sh -c 'read -r line; head -c 5000000 /dev/zero; sleep 600'";
    let server = Binary::start(&["--agent", &format!("exec+jsonl:{long}")]);
    let program = Program { server, file: PathBuf::new() };
    let task = program.task("hi");
    assert_eq!(status_text(&task), "the program wrote a line of more than 4194304 bytes");
}

#[test]
fn programs_end_when_the_server_shuts_down() {
    let mut program = Program::start("drain", "");
    let pid = program.answer("pid");
    program.server.terminate();
    assert!(program.server.wait());
    eventually("the program ends", || has_ended(&pid));
}

#[test]
fn reload_ends_replaced_program_and_fails_its_turns() {
    let program = Program::start("reload", "");
    let first = program.answer("pid");
    let mut line = program.call(V1.stream(), &V1.params(say("wait")));
    line.read_until("TASK_STATE_WORKING");
    let config = program.file.with_extension("toml");
    let command = format!("command = \"sh {}\"", program.file.display());
    let text = format!("[agents.lines]\nkind = \"exec+jsonl\"\n{command}\nturns = 7\n");
    fs::write(&config, text).unwrap();
    program.server.signal("-HUP");
    line.read_until("TASK_STATE_FAILED");
    fs::remove_file(config).unwrap();
    assert_ne!(program.answer("pid"), first);
    eventually("the replaced program ends", || has_ended(&first));
}

/// Whether a process has ended; an unreaped zombie counts.
fn has_ended(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat"));
    status.map_or(true, |line| line.contains(") Z "))
}

/// Whether the interpreter of an example is installed.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[test]
fn example_agents_return_the_expected_output() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/agents");
    let file = json!([{"raw": "aGVsbG8=", "filename": "a.txt"}]);
    for (kind, interpreter, script, parts, expected) in [
        ("exec", "sh", "shout.sh", json!([{"text": "hi"}]), "HI!"),
        ("exec+jsonl", "sh", "lines.sh", json!([{"text": "hi"}]), "up for"),
        ("exec+jsonl", "python3", "stream.py", json!([{"text": "a b"}]), r#"{"text":"b "}"#),
        ("exec+jsonl", "python3", "files.py", file, "a.txt.sha256"),
        ("exec+jsonl", "python3", "cancel.py", json!([{"text": "1"}]), "lift-off"),
        ("exec+jsonl", "node", "ask.mjs", json!([{"text": "hi"}]), "What size?"),
    ] {
        if !has(interpreter) {
            continue;
        }
        let agent = format!("{kind}:{interpreter} '{folder}/{script}'");
        let (server, file) = (Binary::start(&["--agent", &agent]), PathBuf::new());
        let program = Program { server, file };
        let params = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}});
        let reply = program.call(V1.send(), &params).reply();
        assert!(reply.text().contains(expected), "{script}: {}", reply.text());
    }
}
