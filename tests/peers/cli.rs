//! The command line against each server over each binding: the real binary, its documents, its exit
//! codes.

use std::thread;

use peregrine::model::Generation;
use serde_json::Value;

use crate::{
    run::User,
    talk::{BINDINGS, SERVERS, Server, url_of},
    types::assert_type,
};

/// The values of `--transport` for [`BINDINGS`].
const TRANSPORTS: [&str; 3] = ["jsonrpc", "http+json", "grpc"];

/// The binary with a server and a binding.
struct Cli {
    server: &'static Server,
    transport: &'static str,
    user: User,
}

impl Cli {
    /// The arguments, with those for the agent, the binding and the version.
    fn words<'w>(&self, words: &[&'w str]) -> Vec<&'w str> {
        let mut words = [words, &["--transport", self.transport]].concat();
        if self.server.generation == Generation::V03 {
            words.extend(["--a2a-version", "0.3"]);
        }
        words
    }

    fn document(&self, name: &str, words: &[&str]) -> Value {
        let document = self.user.json(&self.words(words));
        assert_type(name, &document);
        document
    }

    fn lines(&self, words: &[&str]) -> Vec<Value> {
        let words = [self.words(words), vec!["--stream", "-o", "json"]].concat();
        let lines = self.user.ok(&words).lines();
        lines.iter().for_each(|line| assert_type("StreamResponse", line));
        assert_eq!(state_of(lines.last().unwrap()), "TASK_STATE_COMPLETED", "{lines:?}");
        lines
    }

    /// A task that works longer than the next command needs to start.
    fn begun(&self) -> String {
        let answer = self.document("SendMessageResponse", &["send", "slow 20", "--async"]);
        answer["task"]["id"].as_str().unwrap().to_owned()
    }
}

/// The state in a task, or in an event or answer with a task.
fn state_of(document: &Value) -> &Value {
    let inner = document.get("statusUpdate").or(document.get("task")).unwrap_or(document);
    &inner["status"]["state"]
}

/// Runs a case over each binding of each server, all in parallel.
fn at_each(case: impl Fn(&Cli) + Sync) {
    assert_eq!(TRANSPORTS.len(), BINDINGS.len());
    let failed: Vec<String> = thread::scope(|scope| {
        let mut running = Vec::new();
        for server in &SERVERS {
            for transport in TRANSPORTS {
                let user = User::of(&url_of(server.name, server.variant));
                let cli = Cli { server, transport, user };
                let label = format!("{} {} {transport}", server.name, server.variant);
                let case = &case;
                running.push((label, scope.spawn(move || case(&cli))));
            }
        }
        assert_eq!(running.len(), 18);
        // The output of the test already has the reason.
        running.into_iter().filter_map(|(label, run)| run.join().err().map(|_| label)).collect()
    });
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn cli_sends_and_reads_the_task() {
    at_each(|cli| {
        let sent = cli.document("SendMessageResponse", &["send", "echo größe 🦅"]);
        let task = &sent["task"];
        assert_eq!(state_of(task), "TASK_STATE_COMPLETED", "{task}");
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "größe 🦅", "{task}");
        let read = cli.document("Task", &["task", "get", task["id"].as_str().unwrap()]);
        assert_eq!((&read["id"], &read["artifacts"]), (&task["id"], &task["artifacts"]));
        let answer = cli.document("SendMessageResponse", &["send", "message hi"]);
        assert_eq!(answer["message"]["parts"][0]["text"], "hi", "{answer}");
        let failed = cli.document("SendMessageResponse", &["send", "fail"]);
        assert_eq!(state_of(&failed), "TASK_STATE_FAILED", "{failed}");
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn cli_prints_stream_events_in_order() {
    at_each(|cli| {
        let lines = cli.lines(&["send", "stream 3"]);
        let texts = lines.iter().filter_map(|line| {
            line.pointer("/artifactUpdate/artifact/parts/0/text").and_then(Value::as_str)
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["chunk 0 ", "chunk 1 ", "chunk 2 "], "{lines:?}");
        assert!(lines[0]["task"]["id"].is_string(), "{lines:?}");
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn cli_cancels_a_running_task() {
    at_each(|cli| {
        let canceled = cli.document("Task", &["task", "cancel", &cli.begun()]);
        assert_eq!(state_of(&canceled), "TASK_STATE_CANCELED", "{canceled}");
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn cli_subscribe_prints_events_of_a_running_task() {
    at_each(|cli| {
        let id = cli.begun();
        let lines = cli.lines(&["task", "subscribe", &id]);
        let is_of_task = |line: &Value| {
            let of = [&line["task"]["id"], &line["statusUpdate"]["taskId"]];
            of.contains(&&Value::from(&*id))
        };
        assert!(lines.len() > 1 && lines.iter().all(is_of_task), "{lines:?}");
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn cli_lists_the_tasks_of_a_context_in_1_0() {
    at_each(|cli| {
        let sent = cli.document("SendMessageResponse", &["send", "echo one"]);
        let context = sent["task"]["contextId"].as_str().unwrap();
        let words = ["task", "list", "--context-id", context];
        if cli.server.generation == Generation::V1 {
            let list = cli.document("ListTasksResponse", &words);
            assert_eq!(list["totalSize"], 1, "{list}");
            assert_eq!(list["tasks"][0]["id"], sent["task"]["id"], "{list}");
        } else if cli.transport != "http+json" {
            let error = cli.user.failure(&cli.words(&words), "UnsupportedOperationError", 1);
            assert!(error["message"].as_str().unwrap().contains("0.3"), "{error}");
        }
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn cli_reports_unknown_task_and_exits_with_1() {
    at_each(|cli| {
        let words = cli.words(&["task", "get", "nope"]);
        let error = cli.user.failure(&words, "TaskNotFoundError", 1);
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        assert!(!error["a2aCode"].is_null(), "{error}");
    });
}

#[test]
#[ignore = "needs the servers of tests/peers/run.sh"]
fn cli_error_suggests_version_flag_for_0_3_agent() {
    for name in ["py03", "js03"] {
        let user = User::of(&url_of(name, "plain"));
        let words = ["send", "echo hi"];
        let error = user.failure(&words, "VersionNotSupportedError", 1);
        let text = format!("{} {}", error["message"], error["hint"]);
        assert!(text.contains("--a2a-version 0.3"), "{error}");
        let output = user.run(&words);
        assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{output:?}");
        assert!(output.err.contains("--a2a-version 0.3"), "{output:?}");
    }
}
