//! Tasks without events: they fail after their timeout, and each stream and webhook is notified.

use std::sync::{Arc, Mutex};

use peregrine::{
    agent::{Agent, Job, Profile, Turn},
    engine::{AgentChange, Outbox, Setup},
    limits::Limits,
    model::TaskState,
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{OutgoingMessage, V1, V03, get_with, post, rpc, say},
    echo, with_push,
};

const IDLE: &str = "failed: no event for 60 s (unfinished_idle_ms)";
const UNANSWERED: &str = "failed: no event for 600 s (input_required_ttl_ms)";

/// Keeps the jobs of its turns, and requests input if the message says so.
#[derive(Clone, Default)]
struct Waits(Arc<Mutex<Vec<Job>>>);

impl Agent for Waits {
    fn start(&self, mut turn: Turn<'_>) {
        match turn.message.parts().next().and_then(|part| part.as_text()).map(|text| text.raw()) {
            Some(b"ask") => turn.status(TaskState::InputRequired),
            Some(b"auth") => turn.status(TaskState::AuthRequired),
            Some(b"work") => turn.status(TaskState::Working),
            _ => self.0.lock().unwrap().extend(turn.detach().ok()),
        }
    }
}

fn limits() -> Limits {
    Limits {
        unfinished_idle_ms: 60_000,
        input_required_ttl_ms: 600_000,
        keep_alive_idle_ms: 1 << 40,
        ..Limits::default()
    }
}

fn setup(waits: &Waits) -> Setup {
    let profile = Profile::new("waits", "Waits for its client or for nothing.");
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile, Arc::new(waits.clone())), echo()];
    Setup { agents, limits: limits(), ..with_push() }
}

fn lab() -> (Lab, Waits) {
    let waits = Waits::default();
    (Lab::new(setup(&waits)), waits)
}

/// Creates a task with this text, and returns its id.
fn begin(lab: &mut Lab, text: &str) -> Value {
    let mut params = V1.params(say(text));
    params["configuration"]["returnImmediately"] = json!(true);
    lab.result(V1.send(), &params)["task"]["id"].clone()
}

/// The state of a task and the text of its status.
fn status(lab: &mut Lab, id: &Value) -> (String, String) {
    let task = lab.result(V1.get(), &json!({ "id": id }));
    let status = &task["status"];
    let text = status["message"]["parts"][0]["text"].as_str().unwrap_or_default();
    (status["state"].as_str().unwrap().to_owned(), text.to_owned())
}

fn failed(text: &str) -> (String, String) {
    ("TASK_STATE_FAILED".to_owned(), text.to_owned())
}

#[test]
fn an_idle_task_fails_and_its_job_is_closed() {
    let (mut lab, waits) = lab();
    let [working, detached] = ["work", "detach"].map(|text| begin(&mut lab, text));
    let mut job = waits.0.lock().unwrap().pop().unwrap();
    lab.pass(59_000);
    assert_eq!(status(&mut lab, &working).0, "TASK_STATE_WORKING");
    assert!(!job.is_closed());
    lab.pass(3_000);
    assert_eq!(status(&mut lab, &working), failed(IDLE));
    assert_eq!(status(&mut lab, &detached), failed(IDLE));
    assert!(job.is_closed() && job.status(TaskState::Completed, None).is_err());
    // It is evicted like every finished task.
    lab.pass(3_605_000);
    assert_eq!(lab.code(V1.get(), &json!({ "id": working })), -32001);
}

#[test]
fn unanswered_task_fails_after_input_required_ttl_ms() {
    let (mut lab, _waits) = lab();
    let tasks = ["ask", "auth"].map(|text| begin(&mut lab, text));
    lab.pass(599_000);
    for id in &tasks {
        assert!(status(&mut lab, id).0.ends_with("REQUIRED"));
    }
    lab.pass(3_000);
    for id in &tasks {
        assert_eq!(status(&mut lab, id), failed(UNANSWERED));
    }
}

#[test]
fn events_and_messages_restart_the_idle_timeout() {
    let (mut lab, waits) = lab();
    let paused = begin(&mut lab, "ask");
    let detached = begin(&mut lab, "detach");
    let mut job = waits.0.lock().unwrap().pop().unwrap();
    for _ in 0..3 {
        lab.pass(50_000);
        // Only the sweep checks the time of jobs.
        job.status(TaskState::Working, None).unwrap();
    }
    lab.pass(400_000);
    assert!(job.is_closed());
    assert_eq!(status(&mut lab, &detached), failed(IDLE));
    let answer =
        OutgoingMessage { task: paused.as_str(), text: "ask", ..OutgoingMessage::default() };
    lab.result(V1.send(), &V1.params(answer));
    lab.pass(590_000);
    assert_eq!(status(&mut lab, &paused).0, "TASK_STATE_INPUT_REQUIRED");
    lab.pass(15_000);
    assert_eq!(status(&mut lab, &paused), failed(UNANSWERED));
}

#[test]
fn agent_profile_overrides_the_idle_timeouts() {
    let waits = Waits::default();
    let mut setup = setup(&waits);
    setup.agents[0].0.unfinished_idle_ms = Some(5_500);
    setup.agents[0].0.input_required_ttl_ms = Some(20_000);
    let mut lab = Lab::new(setup);
    let [paused, working] = ["ask", "work"].map(|text| begin(&mut lab, text));
    lab.pass(5_000);
    assert_eq!(status(&mut lab, &working).0, "TASK_STATE_WORKING");
    lab.pass(3_000);
    assert_eq!(
        status(&mut lab, &working),
        failed("failed: no event for 5500 ms (unfinished_idle_ms)")
    );
    assert_eq!(status(&mut lab, &paused).0, "TASK_STATE_INPUT_REQUIRED");
    lab.pass(15_000);
    let why = "failed: no event for 20 s (input_required_ttl_ms)";
    assert_eq!(status(&mut lab, &paused), failed(why));
    // The timeout of an agent may change while the server runs.
    let mut profile = Profile::new("waits", "Waits.");
    profile.unfinished_idle_ms = Some(1_000);
    lab.engine.agents().unwrap().change(vec![AgentChange::Describe(profile)]).unwrap();
    let working = begin(&mut lab, "work");
    lab.pass(3_000);
    assert_eq!(status(&mut lab, &working).0, "TASK_STATE_FAILED");
}

#[test]
fn streams_and_waiting_calls_see_the_end_of_an_idle_task() {
    let (mut lab, _waits) = lab();
    let stream = lab.stream(V1.stream(), &V1.params(say("detach")));
    let older = lab.stream(V03.stream(), &V03.params(say("detach")));
    let blocking = lab.open();
    lab.write(blocking, &post("/", &[], &rpc(V1.send(), &V1.params(say("detach")))));
    let paused = begin(&mut lab, "ask");
    let subscriber = lab.stream(V1.subscribe(), &json!({ "id": paused }));
    lab.pass(62_000);
    let last = |lab: &mut Lab, peer| lab.reply(peer).events().last().unwrap().result().clone();
    let seen = last(&mut lab, stream)["statusUpdate"]["status"].clone();
    assert_eq!(seen["state"], "TASK_STATE_FAILED");
    assert_eq!(seen["message"]["parts"][0]["text"], IDLE);
    let seen = last(&mut lab, older);
    assert_eq!((&seen["status"]["state"], &seen["final"]), (&json!("failed"), &json!(true)));
    let seen = lab.reply(blocking).result()["task"]["status"].clone();
    assert_eq!(seen["state"], "TASK_STATE_FAILED");
    // A reader that waits for the next event.
    let working = begin(&mut lab, "work");
    let (poll, path) = (lab.open(), format!("/tasks/{}", working.as_str().unwrap()));
    lab.pass(30_000);
    lab.write(poll, &get_with(&path, "A2A-Version: 1.0\r\nPrefer: wait=60\r\n"));
    assert!(lab.received(poll).is_empty());
    lab.pass(40_000);
    assert_eq!(lab.reply(poll).json()["status"]["state"], "TASK_STATE_FAILED");
    lab.pass(475_000);
    let seen = last(&mut lab, subscriber)["statusUpdate"]["status"].clone();
    assert_eq!(seen["message"]["parts"][0]["text"], UNANSWERED);
}

#[cfg(feature = "push")]
#[test]
fn webhook_is_notified_when_an_idle_task_fails() {
    use std::task::Waker;

    use peregrine::engine::{NextRequest, PostOutcome, PostRequest};

    let (mut lab, _waits) = lab();
    let mut params = V1.params(say("ask"));
    params["configuration"]["taskPushNotificationConfig"] = json!({"url": "https://a.example/"});
    lab.result(V1.send(), &params);
    let outbox: Arc<dyn Outbox> = lab.engine.outbox().unwrap();
    let posts = |lab: &Lab| {
        let mut bodies = Vec::new();
        let mut request = PostRequest::default();
        while let NextRequest::Post = outbox.next(lab.now, Waker::noop(), &mut request) {
            bodies.push(serde_json::from_slice::<Value>(&request.body).unwrap());
            outbox.done(&request, PostOutcome::Delivered, lab.now, 1 << 60);
        }
        bodies
    };
    assert!(!posts(&lab).is_empty());
    lab.pass(602_000);
    let bodies = posts(&lab);
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    let status = &bodies[0]["statusUpdate"]["status"];
    assert_eq!(status["message"]["parts"][0]["text"], UNANSWERED);
}

#[test]
fn store_full_of_unanswered_tasks_accepts_tasks_after_ttl() {
    let waits = Waits::default();
    let mut setup = setup(&waits);
    setup.limits.tasks_max = 3_000;
    let mut lab = Lab::new(setup);
    let params = V1.params(say("ask"));
    for _ in 0..3_000 {
        lab.result(V1.send(), &params);
    }
    lab.pass(605_000);
    for _ in 0..3_000 {
        lab.result(V1.send(), &params);
    }
    let stats = lab.engine.stats().unwrap();
    assert_eq!((stats.ended, stats.count()), ([0, 3_000, 0], 3_000));
}
