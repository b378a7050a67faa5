//! Jobs: agents that detach their task from the turn.

use std::sync::{Arc, Mutex};

use peregrine::{
    agent::{Agent, Job, Profile, Turn},
    engine::{BuildError, Setup},
    limits::Limits,
    model::TaskState,
    service::Peer,
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{post, rpc},
};

/// Keeps the job of each turn for the test.
#[derive(Clone, Default)]
struct Keep(Arc<Mutex<Vec<Job>>>);

impl Agent for Keep {
    fn start(&self, turn: Turn<'_>) {
        if let Ok(job) = turn.detach() {
            self.0.lock().unwrap().push(job);
        }
    }
}

fn lab(limits: Limits) -> (Lab, Keep) {
    let keep = Keep::default();
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("keep", "Keeps its jobs."), Arc::new(keep.clone()))];
    (Lab::new(Setup { agents, limits, ..Setup::default() }), keep)
}

fn message_params(text: &str) -> Value {
    json!({
        "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] },
        "configuration": { "returnImmediately": true },
    })
}

/// Makes the server store its task in the middle of a turn.
struct Early;

impl Agent for Early {
    fn start(&self, mut turn: Turn<'_>) {
        turn.artifact_of_message("0");
        turn.host.commit(turn.events).unwrap();
        turn.artifact_of_message("1");
        turn.status(TaskState::Completed);
    }
}

#[test]
fn artifact_of_message_works_after_a_commit_in_the_turn() {
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("early", "Has its task stored early."), Arc::new(Early))];
    let mut lab = Lab::new(Setup { agents, ..Setup::default() });
    for text in ["x".repeat(10), "x".repeat(200)] {
        let task = lab.result("SendMessage", &message_params(&text))["task"].clone();
        for (at, id) in ["0", "1"].into_iter().enumerate() {
            let artifact = json!({ "artifactId": id, "parts": [{ "text": text }] });
            assert_eq!(task["artifacts"][at], artifact);
        }
    }
}

/// Publishes `states`, drops the job, and returns the state of its task.
fn state_after(states: &[TaskState]) -> Value {
    let (mut lab, keep) = lab(Limits::default());
    let task = lab.result("SendMessage", &message_params("go"))["task"].clone();
    let mut job = keep.0.lock().unwrap().pop().unwrap();
    for state in states {
        job.status(*state, None).unwrap();
    }
    drop(job);
    lab.result("GetTask", &json!({ "id": task["id"] }))["status"]["state"].clone()
}

#[test]
fn dropped_job_fails_its_task_unless_finished_or_paused() {
    for (states, state) in [
        (&[][..], "TASK_STATE_FAILED"),
        (&[TaskState::Working], "TASK_STATE_FAILED"),
        (&[TaskState::Working, TaskState::Completed], "TASK_STATE_COMPLETED"),
        (&[TaskState::InputRequired], "TASK_STATE_INPUT_REQUIRED"),
        (&[TaskState::AuthRequired, TaskState::Working], "TASK_STATE_FAILED"),
    ] {
        assert_eq!(state_after(states), state, "{states:?}");
    }
}

#[test]
fn detached_task_is_rejected_when_the_store_is_full() {
    let mut limits = Limits::default();
    (limits.store_bytes_max, limits.task_bytes_max) = (40_000, 20_000);
    let (mut lab, keep) = lab(limits);
    // Larger than the limit for any task: the client's fault.
    assert_eq!(lab.code("SendMessage", &message_params(&"x".repeat(30_000))), -32602);
    let text = "x".repeat(9_000);
    let codes: Vec<Value> = (0..9)
        .map(|_| lab.call("SendMessage", &message_params(&text))["error"]["code"].clone())
        .collect();
    let refused = codes.iter().filter(|code| **code == json!(-32000)).count();
    let held = keep.0.lock().unwrap().len();
    assert!(refused > 0 && held > 0 && refused + held == 9, "{codes:?}");
    // A stream that cannot start is an ordinary error.
    assert_eq!(lab.code("SendStreamingMessage", &message_params(&text)), -32000);
    lab.assert_lives();
}

#[test]
fn job_exposes_its_request_and_the_profile_header_fields() {
    let keep = Keep::default();
    let mut profile = Profile::new("keep", "Keeps its jobs.");
    profile.fields = ["traceparent", "X-List"].map(str::to_owned).into();
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile, Arc::new(keep.clone()))];
    let mut lab = Lab::new(Setup { agents, ..Setup::default() });
    let mut params = message_params("go");
    params["metadata"] = json!({ "a": 1 });
    params["message"]["metadata"] = json!({ "b": 2 });
    let body = rpc("SendMessage", &params);
    let fields = [
        ("Traceparent", "00-ab"),
        ("x-list", "x"),
        ("X-LIST", "y"),
        ("Authorization", "Bearer secret"),
        ("Cookie", "secret"),
        ("A2A-Extensions", "urn:e"),
    ];
    let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let socket = lab.socket("/", &lines);
    let peer = lab.open_to(Peer { identity: Some("me"), ..Peer::default() });
    lab.write(peer, &post("/", &fields, &body));
    lab.say(socket, &body);
    for identity in [None, Some("me")] {
        let job = keep.0.lock().unwrap().pop().unwrap();
        let request = job.request();
        assert_eq!(request.header("TRACEPARENT"), Some("00-ab"));
        assert_eq!(request.header("x-list"), Some("x, y"));
        let unasked = ["cookie", "host", "authorization"];
        assert!(unasked.iter().all(|name| request.header(name).is_none()));
        assert_eq!((request.identity(), request.extensions()), (identity, Some("urn:e")));
        assert_eq!(request.metadata().unwrap().as_str(), r#"{"a":1}"#);
        assert_eq!(job.message().metadata().unwrap().as_str(), r#"{"b":2}"#);
        assert_eq!((request.state(), job.state()), (None, Some(TaskState::Submitted)));
        let mut history = 0;
        assert!(job.read(&mut |task| history = task.history(None).count()));
        assert_eq!(history, 1);
    }
}

#[test]
fn profile_with_invalid_or_connection_fields_is_rejected() {
    for (fields, refused) in [
        (vec!["Connection"], true),
        (vec!["transfer-encoding"], true),
        (vec!["not a name"], true),
        (vec![""], true),
        (vec!["x"; 17], true),
        (vec!["x"; 16], false),
    ] {
        let mut profile = Profile::new("a", "b");
        profile.fields = fields.iter().map(|name| (*name).to_owned()).collect();
        let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile, Arc::new(Keep::default()))];
        let checked = Setup { agents, ..Setup::default() }.check();
        assert_eq!(matches!(checked, Err(BuildError::Field(_))), refused, "{fields:?}");
    }
}
