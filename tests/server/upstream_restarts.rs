//! A remote agent that restarts while calls are in flight: with its tasks the restart is a delay,
//! without them the tasks end with a reason.

mod door;

use std::{thread::sleep, time::Duration};

use peregrine::binding::interfaces::Binding;
use serde_json::{Value, json};

use crate::support::{
    ask::{self, Gen, OutgoingMessage, V01, V1, V03, post, rpc, say},
    binary::{Binary, Tcp, eventually},
    reply::Reply,
};

pub use door::Restarted;

const BINDINGS: [Binding; 3] = [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc];

fn call(server: &Binary, generation: Gen, method: &str, params: &Value) -> Tcp {
    let version = match generation {
        V01 => "0.1",
        V03 => "0.3",
        V1 => "1.0",
    };
    let mut line = server.connect();
    line.write(&post("/", &[("A2A-Version", version)], &rpc(method, params)));
    line
}

fn get(server: &Binary, id: &Value) -> Value {
    call(server, V1, V1.get(), &json!({"id": id})).reply().result()
}

/// The state of a task, and the text of its artifacts and of its status.
fn shown(task: &Value) -> String {
    let texts = |holder: &Value| {
        let parts = holder["parts"].as_array().into_iter().flatten();
        parts.map(|part| part["text"].as_str().unwrap_or("?")).collect::<Vec<_>>().join(" ")
    };
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    let artifacts: Vec<String> = artifacts.map(texts).collect();
    let state = task["status"]["state"].as_str().unwrap().trim_start_matches("TASK_STATE_");
    format!("{state} [{}] {}", artifacts.join(","), texts(&task["status"]["message"]))
}

/// The task of a stream that has begun with its first chunk.
fn begun(stream: &mut Tcp) -> Value {
    stream.read_until("\"one\"");
    let events = stream.peek().expect("events").events();
    let first = events[0].result();
    let id = [&first["task"]["id"], &first["id"]].into_iter().find(|id| id.is_string());
    id.expect("a task").clone()
}

/// The calls in flight while the agent is down.
struct Away {
    server: Binary,
    remote: Restarted,
    /// Calls of each generation that wait for their tasks, in their own form.
    waiting: Vec<(Gen, Tcp)>,
    /// A call that waits for the head of its answer.
    late: Tcp,
    stream: Tcp,
    subscriber: Tcp,
    /// The task of the stream.
    streamed: Value,
    /// A task that waits for input, and a task to cancel.
    paused: Value,
    paused_too: Value,
    canceled: Value,
    cancel: Tcp,
}

impl Away {
    fn new(binding: Binding) -> Away {
        let mut remote = Restarted::new(binding);
        let server = Binary::start(&["--agent", &remote.agent()]);
        let held = |text, id| OutgoingMessage { id, ..say(text) };
        let waiting: Vec<(Gen, Tcp)> = [(V1, "1"), (V03, "2"), (V01, "3")]
            .map(|(generation, id)| {
                let params = generation.params(held("hold", id));
                (generation, call(&server, generation, generation.send(), &params))
            })
            .into();
        let mut stream = call(&server, V1, V1.stream(), &V1.params(held("hold", "4")));
        let streamed = begun(&mut stream);
        let mut to_cancel = call(&server, V1, V1.stream(), &V1.params(held("hold", "5")));
        let canceled = begun(&mut to_cancel);
        let mut subscriber = call(&server, V1, V1.subscribe(), &json!({"id": streamed}));
        subscriber.read_until("\"one\"");
        let [paused, paused_too] = ["6", "7"].map(|id| {
            let params = V1.params(held("ask", id));
            let task = call(&server, V1, V1.send(), &params).reply().result()["task"].take();
            assert_eq!(shown(&task), "INPUT_REQUIRED [] what?");
            task["id"].clone()
        });
        let late = call(&server, V1, V1.send(), &V1.params(held("late", "8")));
        eventually("the call is outstanding", || {
            let mut line = server.connect();
            line.write(&ask::get("/metrics"));
            line.reply().text().contains("upstream_outstanding{agent=\"remote\"} 1\n")
        });
        eventually("each task has begun", || {
            let mut list = call(&server, V1, "ListTasks", &json!({"status": "TASK_STATE_WORKING"}));
            list.reply().result()["totalSize"] == 5
        });
        remote.stop();
        // A read of a stored task needs no agent.
        assert_eq!(shown(&get(&server, &streamed)), "WORKING [one] ");
        let cancel = call(&server, V1, V1.cancel(), &json!({"id": canceled}));
        sleep(Duration::from_millis(5));
        Away {
            server,
            remote,
            waiting,
            late,
            stream,
            subscriber,
            streamed,
            paused,
            paused_too,
            canceled,
            cancel,
        }
    }

    /// Whether the agent got the message is unknown: it is not sent again.
    fn late_is_lost(&mut self) {
        let reply = self.late.reply();
        assert_eq!(reply.code(), -32000, "{}", reply.text());
        assert!(reply.text().contains("the upstream agent cannot be reached"), "{}", reply.text());
    }

    /// Cancels the other task that waits for input.
    fn cancel_waiting(&self) -> Reply {
        call(&self.server, V1, V1.cancel(), &json!({"id": self.paused_too})).reply()
    }

    /// Answers the task that waits for input.
    fn answer(&self, generation: Gen, id: &Value) -> Reply {
        let message = OutgoingMessage { id: "answer", task: id.as_str(), ..say("that") };
        call(&self.server, generation, generation.send(), &generation.params(message)).reply()
    }
}

/// The events of a stream: states, and what each adds to artifacts.
fn events(reply: &Reply) -> Vec<String> {
    let event = |result: &Value| {
        let text = &result["artifactUpdate"]["artifact"]["parts"][0]["text"];
        let states = [&result["task"], &result["statusUpdate"]].map(|one| &one["status"]["state"]);
        let state = states.into_iter().find_map(Value::as_str);
        state
            .or(text.as_str())
            .expect("a state or a text")
            .trim_start_matches("TASK_STATE_")
            .to_owned()
    };
    reply.events().iter().map(|one| event(one.result())).collect()
}

/// The task of an answer to a send, asserted to have `state` in this form.
fn task_in(generation: Gen, state: &str, reply: &Reply) -> String {
    let result = reply.result();
    let task = generation.task(&result);
    assert_eq!(task["status"]["state"], generation.state(state), "{}", reply.text());
    shown(task)
}

#[test]
fn tasks_resume_after_agent_restarts_with_its_tasks() {
    for binding in BINDINGS {
        let mut away = Away::new(binding);
        away.remote.come_back();
        let canceled = away.cancel.reply();
        assert_eq!(shown(&canceled.result()), "CANCELED [one] ", "{binding:?}");
        away.remote.open_gate();
        away.late_is_lost();
        for (generation, line) in &mut away.waiting {
            let task = task_in(*generation, "completed", &line.reply());
            assert!(task.ends_with("[one two] done"), "{binding:?} {generation:?}: {task}");
        }
        let stream = events(&away.stream.reply());
        assert_eq!(stream, ["SUBMITTED", "WORKING", "one", "two", "COMPLETED"], "{binding:?}");
        let subscriber = events(&away.subscriber.reply());
        assert_eq!(subscriber, ["WORKING", "two", "COMPLETED"], "{binding:?}");
        let answered = task_in(V03, "completed", &away.answer(V03, &away.paused));
        assert!(answered.ends_with("[one two] done"), "{binding:?}: {answered}");
        let canceled = away.cancel_waiting();
        assert_eq!(canceled.result()["status"]["state"], "TASK_STATE_CANCELED", "{binding:?}");
        // Connections from before the restart are unusable.
        let next = call(&away.server, V1, V1.send(), &V1.params(say("next"))).reply();
        task_in(V1, "completed", &next);
    }
}

#[test]
fn tasks_fail_after_agent_restarts_without_them() {
    for binding in BINDINGS {
        let mut away = Away::new(binding);
        away.remote.replace();
        let canceled = away.cancel.reply();
        // Or its stream has found first that the task is gone.
        let ended = match canceled.json()["error"].is_object() {
            true => {
                assert_eq!(canceled.code(), -32002, "{}", canceled.text());
                "FAILED"
            }
            false => "CANCELED",
        };
        let end = shown(&get(&away.server, &away.canceled));
        assert!(end.starts_with(&format!("{ended} [one]")), "{binding:?}: {end}");
        away.late_is_lost();
        for (generation, line) in &mut away.waiting {
            let task = task_in(*generation, "failed", &line.reply());
            assert!(task.ends_with("Task not found"), "{binding:?} {generation:?}: {task}");
        }
        let stream = events(&away.stream.reply());
        assert_eq!(stream, ["SUBMITTED", "WORKING", "one", "FAILED"], "{binding:?}");
        let subscriber = events(&away.subscriber.reply());
        assert_eq!(subscriber, ["WORKING", "FAILED"], "{binding:?}");
        let failed = shown(&get(&away.server, &away.streamed));
        assert!(failed.starts_with("FAILED [one] the stream of the upstream agent"), "{failed}");
        // Tasks without an open stream end with the next call.
        task_in(V03, "failed", &away.answer(V03, &away.paused));
        let paused = shown(&get(&away.server, &away.paused));
        assert!(paused.starts_with("FAILED [] ") && paused.ends_with("Task not found"), "{paused}");
        let canceled = away.cancel_waiting();
        assert_eq!(canceled.result()["status"]["state"], "TASK_STATE_CANCELED", "{binding:?}");
        let next = call(&away.server, V1, V1.send(), &V1.params(say("next"))).reply();
        task_in(V1, "completed", &next);
    }
}

#[test]
fn answer_to_task_canceled_upstream_ends_it_as_canceled() {
    for binding in BINDINGS {
        let remote = Restarted::new(binding);
        let server = Binary::start(&["--agent", &remote.agent()]);
        let task = call(&server, V1, V1.send(), &V1.params(say("ask"))).reply().result();
        let id = &task["task"]["id"];
        remote.end_waiting();
        let message = OutgoingMessage { id: "answer", task: id.as_str(), ..say("that") };
        let reply = call(&server, V1, V1.stream(), &V1.params(message)).reply();
        assert_eq!(events(&reply).last().unwrap(), "CANCELED", "{}", reply.text());
        assert!(shown(&get(&server, id)).starts_with("CANCELED"), "{binding:?}");
    }
}
