//! Tasks in input-required do not count towards the share of running tasks.

use std::sync::{Arc, Mutex};

use peregrine::{
    agent::{Agent, Job, Profile, Turn},
    auth::{Authenticator, Quota, Quotas},
    engine::Setup,
    model::TaskState,
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{OutgoingMessage, V1, post, rpc, say},
    callers::ByName,
    reply::Reply,
};

/// Acts on the message.
#[derive(Clone, Default)]
struct InputAgent(Arc<Mutex<Vec<Job>>>);

impl Agent for InputAgent {
    fn start(&self, mut turn: Turn<'_>) {
        match turn.message.parts().next().and_then(|part| part.as_text()).map(|text| text.raw()) {
            Some(b"ask") => turn.status(TaskState::InputRequired),
            Some(b"auth") => turn.status(TaskState::AuthRequired),
            Some(b"work") => turn.status(TaskState::Working),
            Some(b"done") => turn.status(TaskState::Completed),
            // Requests input, and continues when the test does.
            _ => {
                turn.status(TaskState::InputRequired);
                self.0.lock().unwrap().extend(turn.detach().ok());
            }
        }
    }
}

/// A lab, its caller, and the number of messages sent.
struct Client {
    lab: Lab,
    token: &'static str,
    sent: u32,
}

impl Client {
    fn call(&mut self, method: &str, params: &Value) -> Reply {
        let bearer = format!("Bearer {}", self.token);
        let fields = [("A2A-Version", "1.0"), ("Authorization", &*bearer)];
        let sent_fields = if self.token.is_empty() { &fields[..1] } else { &fields };
        self.lab.ask(&post("/", sent_fields, &rpc(method, params)))
    }

    fn send(&mut self, text: &str, task: Option<&str>) -> Reply {
        self.sent += 1;
        let id = format!("m{}", self.sent);
        let message = OutgoingMessage { text, task, id: &id, at_once: true, ..say(text) };
        self.call(V1.send(), &V1.params(message))
    }

    /// Sends a message that is accepted, and returns the id of its task.
    fn begin(&mut self, text: &str) -> String {
        let reply = self.send(text, None);
        assert_eq!(reply.status, 200, "{text}: {}", reply.text());
        reply.result()["task"]["id"].as_str().unwrap().to_owned()
    }

    fn assert_refused(&mut self, text: &str, task: Option<&str>) {
        let reply = self.send(text, task);
        assert_eq!((reply.status, reply.code()), (429, -32000), "{}", reply.text());
        // The server cannot know when a task will end.
        assert_eq!(reply.field("retry-after"), Some("1"));
        assert!(reply.text().contains("too many running tasks"));
    }

    fn status(&mut self, id: &str) -> Value {
        self.call(V1.get(), &json!({ "id": id })).result()["status"].clone()
    }
}

/// An authenticated caller and an anonymous one, each with three running tasks.
fn clients() -> [(Client, InputAgent); 2] {
    clients_with(Quota { running_tasks: Some(3), ..Quota::default() })
}

fn clients_with(quota: Quota) -> [(Client, InputAgent); 2] {
    ["alice", ""].map(|token| {
        let agent = InputAgent::default();
        let profile = Profile { anonymous: true, ..Profile::new("asks", "Asks for input.") };
        let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile, Arc::new(agent.clone()))];
        let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
        let quotas = Quotas { known: quota, anonymous: quota, ..Quotas::default() };
        let lab = Lab::new(Setup { agents, authenticator, quotas, ..Setup::default() });
        (Client { lab, token, sent: 0 }, agent)
    })
}

#[test]
fn tasks_waiting_for_input_or_auth_do_not_count_as_running() {
    for (mut client, _agent) in clients() {
        for text in ["ask", "auth"] {
            (0..1_000).for_each(|_| drop(client.begin(text)));
        }
        let id = client.begin("done");
        assert_eq!(client.status(&id)["state"], "TASK_STATE_COMPLETED");
        // Running tasks may still take all slots, and no more.
        (0..3).for_each(|_| drop(client.begin("work")));
        client.assert_refused("ask", None);
    }
}

#[test]
fn answer_to_input_required_takes_a_slot_or_is_refused() {
    for (mut client, _agent) in clients() {
        let paused = client.begin("ask");
        let working: Vec<String> = (0..3).map(|_| client.begin("work")).collect();
        client.assert_refused("done", Some(&paused));
        assert_eq!(client.status(&paused)["state"], "TASK_STATE_INPUT_REQUIRED");
        let history = client.call(V1.get(), &json!({ "id": paused })).result()["history"].clone();
        assert_eq!(history.as_array().unwrap().len(), 1, "the message was not taken");
        client.call("CancelTask", &json!({ "id": working[0] }));
        assert_eq!(client.send("work", Some(&paused)).status, 200);
        assert_eq!(client.status(&paused)["state"], "TASK_STATE_WORKING");
        client.assert_refused("done", None);
        // It requests input once more, which frees the slot.
        assert_eq!(client.send("ask", Some(&paused)).status, 200);
        let last = client.begin("work");
        client.assert_refused("done", Some(&paused));
        for id in [&working[1], &working[2], &last] {
            client.call("CancelTask", &json!({ "id": id }));
        }
        assert_eq!(client.send("done", Some(&paused)).status, 200);
        (0..3).for_each(|_| drop(client.begin("work")));
        client.assert_refused("work", None);
    }
}

#[test]
fn task_resumed_by_its_agent_takes_a_slot_or_fails() {
    for (mut client, agent) in clients() {
        let [first, second] = ["on", "on"].map(|text| client.begin(text));
        let mut jobs = std::mem::take(&mut *agent.0.lock().unwrap());
        let working: Vec<String> = (0..2).map(|_| client.begin("work")).collect();
        jobs[0].status(TaskState::Working, None).unwrap();
        client.assert_refused("work", None);
        // No slot is free: the event fails its task, like each event beyond a share.
        assert!(jobs[1].status(TaskState::Working, None).is_err());
        let status = client.status(&second);
        assert_eq!(status["state"], "TASK_STATE_FAILED");
        let why = status["message"]["parts"][0]["text"].as_str().unwrap();
        assert!(why.contains("too many running tasks"), "{why}");
        assert_eq!(client.status(&first)["state"], "TASK_STATE_WORKING");
        jobs[0].status(TaskState::Completed, None).unwrap();
        client.call("CancelTask", &json!({ "id": working[0] }));
        (0..2).for_each(|_| drop(client.begin("work")));
        client.assert_refused("work", None);
    }
}

#[test]
fn bytes_of_input_required_tasks_do_not_count_as_running() {
    let quota = Quota { running_kib: Some(128), ..Quota::default() };
    for (mut client, agent) in clients_with(quota) {
        let waiting: Vec<String> = (0..20).map(|_| client.begin(&"x".repeat(20_000))).collect();
        // An answer takes the bytes of its task again, while the share allows.
        let answers = waiting.iter().map(|id| client.send("work", Some(id)));
        let answers: Vec<Reply> = answers.collect();
        let accepted = answers.iter().filter(|reply| reply.status == 200).count();
        assert!((1..=6).contains(&accepted), "{accepted}");
        let refused = answers.last().unwrap();
        assert_eq!(refused.status, 429);
        assert!(refused.text().contains("bytes"), "{}", refused.text());
        assert_eq!(client.status(&waiting[19])["state"], "TASK_STATE_INPUT_REQUIRED");
        drop(agent);
    }
}
