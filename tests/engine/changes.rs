//! Agents that are added, replaced and removed while the server runs, and the effect on their
//! tasks.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use peregrine::{
    agent::{Adopted, Agent, Closed, Deferred, Job, NotKept, Profile, Turn},
    engine::{AgentChange, AgentError, Agents, Setup},
    fault::FaultKind,
    limits::{Limits, OLDER_PROGRAMS_MAX},
    model::{ArtifactBuf, MessageBuf, PartsBuf, TaskState},
    service::AgentIndex,
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{Gen, OutgoingMessage, get, get_with, post, rpc, say, text_of},
    echo, script,
};

/// Answers with its name: in a direct message, or in a task if the message requests one.
struct Named(&'static str);

impl Agent for Named {
    fn start(&self, mut turn: Turn<'_>) {
        let message = MessageBuf::agent(&PartsBuf::new().text(self.0));
        match turn.message.parts().next().and_then(|part| part.as_text()).map(|text| text.raw()) {
            Some(b"task") => turn.status_with(TaskState::Completed, &message),
            Some(b"wait") => turn.status(TaskState::Working),
            Some(b"ask") => turn.status_with(TaskState::InputRequired, &message),
            Some(b"later") => {
                turn.status(TaskState::Working);
                turn.resume_after(5_000, 7);
            }
            _ => turn.reply(message),
        }
    }

    fn resume(&self, mut turn: Turn<'_>, _: u64) {
        turn.status_with(
            TaskState::Completed,
            &MessageBuf::agent(&PartsBuf::new().text("resumed")),
        );
    }
}

fn profile(name: &str, description: &str) -> Profile {
    Profile::new(name, description)
}

fn lab() -> (Lab, Agents) {
    lab_limited(Limits::default())
}

/// A lab with the agents `echo`, at the root, and `one`.
fn lab_limited(limits: Limits) -> (Lab, Agents) {
    let one: (Profile, Arc<dyn Agent>) = (profile("one", "First."), Arc::new(Named("first")));
    let setup = Setup { agents: vec![echo(), one], limits, ..Setup::default() };
    let lab = Lab::new(setup);
    let agents = lab.engine.agents().unwrap().clone();
    (lab, agents)
}

const CARD: &str = "/agents/one/.well-known/agent-card.json";

/// Calls a method of an agent and takes the whole answer.
fn at(lab: &mut Lab, agent: &str, method: &str, params: &Value) -> Value {
    lab.ask(&post(&format!("/agents/{agent}"), &[], &rpc(method, params))).json()
}

fn send(lab: &mut Lab, agent: &str, text: &str) -> Value {
    let params = Gen::V1.params(OutgoingMessage { at_once: true, ..say(text) });
    at(lab, agent, "SendMessage", &params)["result"].take()
}

/// The text of the agent's direct message.
fn reply_text(lab: &mut Lab, agent: &str) -> String {
    text_of(&send(lab, agent, "hi")["message"]).to_owned()
}

fn task(lab: &mut Lab, id: &Value) -> Value {
    at(lab, "one", "GetTask", &json!({ "id": id }))["result"].take()
}

/// The state of a task and the text of its status message.
fn status(lab: &mut Lab, id: &Value) -> (String, String) {
    let task = task(lab, id);
    let state = task["status"]["state"].as_str().unwrap_or_else(|| panic!("{task}")).to_owned();
    let message = &task["status"]["message"];
    (state, if message.is_null() { String::new() } else { text_of(message).to_owned() })
}

const WORKING: &str = "TASK_STATE_WORKING";
const FAILED: &str = "TASK_STATE_FAILED";
const REPLACED: &str = "the agent was replaced, and the new agent does not continue this task";
const REMOVED: &str = "the agent was removed before the task was done";

#[test]
fn added_agent_is_served_at_its_path() {
    let (mut lab, agents) = lab();
    let path = "/agents/two/.well-known/agent-card.json";
    assert_eq!(lab.ask(&get(path)).status, 404);
    assert_eq!(lab.ask(&post("/agents/two", &[], "{}")).status, 404);
    let added = agents.add(profile("two", "Second."), Arc::new(Named("second")));
    assert_eq!(added, Ok(AgentIndex(2)));
    assert_eq!(lab.ask(&get(path)).json()["description"], "Second.");
    assert_eq!(
        (reply_text(&mut lab, "one"), reply_text(&mut lab, "two")),
        ("first".into(), "second".into())
    );
    assert_eq!(agents.names(), ["echo", "one", "two"]);
}

#[test]
fn replaced_agent_changes_its_answers_and_card_at_once() {
    let (mut lab, agents) = lab();
    let before = lab.ask(&get(CARD));
    let [etag, since] = ["ETag", "Last-Modified"].map(|name| before.field(name).unwrap());
    let lines = [format!("If-None-Match: {etag}\r\n"), format!("If-Modified-Since: {since}\r\n")];
    assert!(lines.iter().all(|lines| lab.ask(&get_with(CARD, lines)).status == 304));
    lab.pass(10_000);
    assert_eq!(reply_text(&mut lab, "one"), "first");
    let replaced = agents.replace(profile("one", "Second."), Arc::new(Named("second")));
    assert_eq!(replaced, Ok(AgentIndex(1)));
    assert_eq!(reply_text(&mut lab, "one"), "second");
    for lines in lines {
        let after = lab.ask(&get_with(CARD, &lines));
        assert_eq!((after.status, &after.json()["description"]), (200, &json!("Second.")));
    }
    // The agent at the root as well.
    agents.replace(profile("echo", "Third."), Arc::new(Named("third"))).unwrap();
    assert_eq!(lab.ask(&get("/.well-known/agent-card.json")).json()["description"], "Third.");
    let direct = lab.result("SendMessage", &Gen::V1.params(say("hi")));
    assert_eq!(text_of(&direct["message"]), "third");
}

#[test]
fn replaced_agent_is_dropped() {
    let (mut lab, agents) = lab();
    let before: Arc<dyn Agent> = Arc::new(Named("second"));
    agents.replace(profile("one", "Second."), Arc::clone(&before)).unwrap();
    assert_eq!(reply_text(&mut lab, "one"), "second");
    assert!(Arc::strong_count(&before) > 1);
    agents.replace(profile("one", "Third."), Arc::new(Named("third"))).unwrap();
    assert_eq!(Arc::strong_count(&before), 1);
}

#[test]
fn invalid_agent_changes_are_rejected_with_a_reason() {
    let (mut lab, agents) = lab();
    let add = |name: &str| agents.add(profile(name, ""), Arc::new(Named("x"))).map(drop);
    let replace = |name: &str| agents.replace(profile(name, ""), Arc::new(Named("x"))).map(drop);
    for (change, error, words) in [
        (add("one"), AgentError::Taken("one".into()), "the agent name \"one\" is already in use"),
        (add("a/b"), AgentError::Name("a/b".into()), "the agent name \"a/b\" may only have"),
        (replace("two"), AgentError::Unknown("two".into()), "no agent is called \"two\""),
        (agents.remove("two"), AgentError::Unknown("two".into()), "no agent is called \"two\""),
        (agents.remove("echo"), AgentError::Default("echo".into()), "can only be replaced"),
    ] {
        assert_eq!(change, Err(error.clone()));
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(agents.remove("one"), Ok(()));
    assert_eq!(agents.remove("one"), Err(AgentError::Unknown("one".into())));
    assert_eq!(replace("one"), Err(AgentError::Unknown("one".into())));
    lab.assert_lives();
}

#[test]
fn one_change_call_adds_replaces_and_removes_agents() {
    let (mut lab, agents) = lab();
    let named = |name: &'static str| Arc::new(Named(name)) as Arc<dyn Agent>;
    agents.add(profile("two", ""), named("second")).unwrap();
    let changes = vec![
        AgentChange::Remove("two".into()),
        AgentChange::Replace(profile("one", "Another."), named("another")),
        AgentChange::Add(profile("three", ""), named("third")),
    ];
    assert_eq!(agents.change(changes), Ok(()));
    assert_eq!(agents.names(), ["echo", "one", "three"]);
    assert_eq!(
        (reply_text(&mut lab, "one"), reply_text(&mut lab, "three")),
        ("another".into(), "third".into())
    );
}

#[test]
fn agent_changes_are_applied_all_or_none() {
    let (mut lab, agents) = lab_limited(Limits { agents_max: 3, ..Limits::default() });
    let named = || Arc::new(Named("x")) as Arc<dyn Agent>;
    // This name is already a tenant's.
    let params = json!({ "tenant": "acme", "message": Gen::V1.params(say("hi"))["message"] });
    agents.remove("one").unwrap();
    let made = lab.ask(&post("/", &[], &rpc("SendMessage", &params))).json();
    assert!(made["result"]["task"].is_object(), "{made}");
    agents.add(profile("one", "First."), Arc::new(Named("first"))).unwrap();
    let add = |name: &str| AgentChange::Add(profile(name, ""), named());
    let field = Profile { fields: vec!["te".to_owned()], ..profile("two", "") };
    let tenant = AgentError::Tenant { name: "acme".to_owned(), tasks: 1, unfinished: 0 };
    for (change, error) in [
        (add("a/b"), AgentError::Name("a/b".into())),
        (add("echo"), AgentError::Taken("echo".into())),
        (AgentChange::Add(field, named()), AgentError::Field("te".into())),
        (AgentChange::Remove("echo".into()), AgentError::Default("echo".into())),
        (AgentChange::Remove("none".into()), AgentError::Unknown("none".into())),
        (AgentChange::Describe(profile("none", "")), AgentError::Unknown("none".into())),
        (AgentChange::Describe(profile("one", "")), AgentError::Taken("one".into())),
        (add("four"), AgentError::TooMany),
        (add("acme"), tenant),
    ] {
        let before = [add("two"), AgentChange::Replace(profile("one", "Second."), named())];
        let refused = agents.change(before.into_iter().chain([change]).collect());
        assert_eq!(refused, Err(error));
        assert_eq!(agents.names(), ["echo", "one"]);
        assert_eq!(reply_text(&mut lab, "one"), "first");
        assert_eq!(lab.ask(&get(CARD)).json()["description"], "First.");
    }
    // The refused changes have reserved no names.
    assert_eq!(agents.change(vec![add("three")]), Ok(()));
}

#[test]
fn change_after_runs_its_callback_only_before_valid_changes() {
    let (mut lab, agents) = lab();
    let add = |name| vec![AgentChange::Add(profile(name, ""), Arc::new(Named("x")) as Arc<_>)];
    let mut calls = 0;
    let refused = agents.change_after(add("echo"), || calls += 1);
    assert_eq!((refused, calls), (Err(AgentError::Taken("echo".into())), 0));
    let seen = lab.engine.agents().unwrap().clone();
    assert_eq!(agents.change_after(add("two"), || calls += 1), Ok(()));
    assert_eq!((calls, seen.names()), (1, vec!["echo".into(), "one".into(), "two".into()]));
    lab.assert_lives();
}

#[test]
fn card_change_keeps_the_agent_and_its_tasks() {
    let (mut lab, agents) = lab();
    let id = send(&mut lab, "one", "later")["task"]["id"].take();
    let describe = AgentChange::Describe(profile("one", "Another."));
    assert_eq!(agents.change(vec![describe]), Ok(()));
    assert_eq!(lab.ask(&get(CARD)).json()["description"], "Another.");
    assert_eq!(
        (reply_text(&mut lab, "one"), status(&mut lab, &id).0),
        ("first".into(), WORKING.into())
    );
    lab.pass(5_000);
    assert_eq!(status(&mut lab, &id), ("TASK_STATE_COMPLETED".into(), "resumed".into()));
}

#[test]
fn added_or_replaced_agent_with_bad_fields_is_rejected() {
    let (mut lab, agents) = lab();
    for (name, fields, wrong) in [
        ("two", vec!["traceparent", "Connection"], "Connection"),
        ("one", vec!["x"; 17], "x"),
        ("one", vec![""], ""),
    ] {
        let mut profile = profile(name, "");
        profile.fields = fields.into_iter().map(str::to_owned).collect();
        let error = AgentError::Field(wrong.to_owned());
        assert!(error.to_string().contains(&format!("the header field {wrong:?}")));
        let agent = Arc::new(Named("x"));
        assert_eq!(agents.replace(profile.clone(), agent.clone()), Err(error.clone()));
        profile.name = "two".to_owned();
        assert_eq!(agents.add(profile, agent), Err(error));
    }
    assert_eq!(agents.names(), ["echo", "one"]);
    lab.assert_lives();
}

#[test]
fn agents_max() {
    let limits = Limits { agents_max: 3, ..Limits::default() };
    let (mut lab, agents) = lab_limited(limits.clone());
    let add = |name: &str| agents.add(profile(name, ""), Arc::new(Named("added")));
    assert_eq!(add("two"), Ok(AgentIndex(2)));
    assert_eq!(add("three"), Err(AgentError::TooMany));
    // An index is never reused for another name; a name that is added again has its old index.
    agents.remove("two").unwrap();
    agents.remove("one").unwrap();
    assert_eq!(add("three"), Err(AgentError::TooMany));
    assert_eq!((add("two"), add("one")), (Ok(AgentIndex(2)), Ok(AgentIndex(1))));
    assert_eq!(reply_text(&mut lab, "one"), "added");
    let many = (0..4).map(|at| (profile(&at.to_string(), ""), echo().1)).collect();
    let setup = Setup { agents: many, limits, ..Setup::default() };
    assert_eq!(setup.check().unwrap_err().to_string(), "more agents than agents_max");
}

#[test]
fn removed_agent_path_refuses_messages_and_serves_its_tasks() {
    let (mut lab, agents) = lab();
    let done = send(&mut lab, "one", "task")["task"]["id"].take();
    let socket = lab.socket("/agents/one", "");
    agents.remove("one").unwrap();
    let card = lab.ask(&get(CARD));
    assert_eq!(
        (card.status, lab.ask(&get("/agents/one/.well-known/agent.json")).status),
        (404, 404)
    );
    let why = "the agent one was removed and accepts no more messages";
    for generation in Gen::ALL {
        for method in [generation.send(), generation.stream()] {
            let refused = at(&mut lab, "one", method, &generation.params(say("task")));
            let error = (&refused["error"]["code"], &refused["error"]["message"]);
            assert_eq!(error, (&json!(-32004), &json!(why)), "{method}");
        }
        let read = at(&mut lab, "one", generation.get(), &json!({ "id": done }));
        assert_eq!(read["result"]["id"], done);
        let cancel = at(&mut lab, "one", generation.cancel(), &json!({ "id": done }));
        assert_eq!(cancel["error"]["code"], -32002);
    }
    // A client that resumes gets the events it missed.
    let again = rpc("SubscribeToTask", &json!({ "id": done }));
    let again = post("/agents/one", &[("Last-Event-ID", "1")], &again);
    assert_eq!(lab.ask(&again).events().len(), 1);

    let body = Gen::V1.params(say("task")).to_string();
    let refused = lab.ask(&post("/agents/one/message:send", &[], &body));
    assert_eq!((refused.status, &refused.json()["error"]["message"]), (400, &json!(why)));
    assert_eq!(refused.json()["error"]["details"][0]["reason"], "UNSUPPORTED_OPERATION");
    let body = Gen::V03.params(say("task")).to_string();
    assert_eq!(lab.ask(&post("/agents/one/v1/message:send", &[], &body)).status, 501);
    let id = done.as_str().unwrap();
    assert_eq!(lab.ask(&get(&format!("/agents/one/tasks/{id}"))).json()["id"], done);
    assert_eq!(lab.ask(&get("/agents/one/tasks")).json()["totalSize"], 1);

    let answers = lab.say(socket, &rpc("SendMessage", &Gen::V1.params(say("task"))));
    assert_eq!(answers[0]["error"]["message"], why);
    let answers = lab.say(socket, &rpc("GetTask", &json!({ "id": done })));
    assert_eq!(answers[0]["result"]["id"], done);
}

#[test]
fn removed_agent_path_is_404_after_its_last_task() {
    let (mut lab, agents) = lab_limited(Limits { task_ttl_ms: 60_000, ..Limits::default() });
    let id = send(&mut lab, "one", "task")["task"]["id"].take();
    agents.remove("one").unwrap();
    lab.pass(30_000);
    assert_eq!(task(&mut lab, &id)["id"], id);
    lab.pass(40_000);
    let get_task = post("/agents/one", &[], &rpc("GetTask", &json!({ "id": id })));
    assert_eq!(lab.ask(&get_task).status, 404);
    // The agent is added again under its index.
    let added = agents.add(profile("one", "Again."), Arc::new(Named("again")));
    assert_eq!((added, reply_text(&mut lab, "one")), (Ok(AgentIndex(1)), "again".to_owned()));
    lab.pass(10_000);
    assert_eq!(reply_text(&mut lab, "one"), "again");
}

#[test]
fn agent_added_again_finds_its_tasks() {
    let (mut lab, agents) = lab();
    let id = send(&mut lab, "one", "task")["task"]["id"].take();
    agents.remove("one").unwrap();
    agents.add(profile("two", ""), Arc::new(Named("second"))).unwrap();
    agents.add(profile("one", "Again."), Arc::new(Named("again"))).unwrap();
    assert_eq!(
        (reply_text(&mut lab, "one"), task(&mut lab, &id)["id"].take()),
        ("again".into(), id)
    );
    assert_eq!(lab.ask(&get(CARD)).json()["description"], "Again.");
    assert_eq!(at(&mut lab, "two", "ListTasks", &json!({}))["result"]["totalSize"], 0);
}

#[test]
fn unfinished_tasks_of_a_replaced_agent_fail_with_a_reason() {
    let (mut lab, agents) = lab();
    let [working, later, paused] =
        ["wait", "later", "ask"].map(|text| send(&mut lab, "one", text)["task"]["id"].take());
    let stream = post("/agents/one", &[], &rpc("SubscribeToTask", &json!({ "id": working })));
    let watcher = lab.open();
    lab.write(watcher, &stream);
    agents.replace(profile("one", "Second."), Arc::new(Named("second"))).unwrap();
    lab.settle();
    for id in [&working, &later] {
        assert_eq!(status(&mut lab, id), (FAILED.to_owned(), REPLACED.to_owned()));
    }
    let events = lab.reply(watcher).events();
    assert_eq!(events.last().unwrap().data["result"]["statusUpdate"]["status"]["state"], FAILED);
    // A task in input-required passes to the new program with the client's next message.
    assert_eq!(status(&mut lab, &paused).0, "TASK_STATE_INPUT_REQUIRED");
    let more = OutgoingMessage { task: paused.as_str(), id: "m-2", ..say("task") };
    let more = at(&mut lab, "one", "SendMessage", &Gen::V1.params(more));
    assert_eq!(text_of(&more["result"]["task"]["status"]["message"]), "second");
    // A wake-up that the earlier program scheduled is discarded.
    let fresh = send(&mut lab, "one", "wait")["task"]["id"].take();
    lab.pass(10_000);
    assert_eq!(status(&mut lab, &later).0, FAILED);
    assert_eq!(status(&mut lab, &fresh).0, "TASK_STATE_WORKING");
}

fn renew(agents: &Agents, description: &str, agent: Arc<dyn Agent>) {
    agents.change(vec![AgentChange::Renew(profile("one", description), agent)]).unwrap();
}

#[test]
fn tasks_of_a_renewed_agent_stay_with_their_old_program() {
    let (mut lab, agents) = lab();
    let keep = Keep::default();
    renew(&agents, "Keeps.", Arc::new(keep.clone()));
    let working = send(&mut lab, "one", "wait")["task"]["id"].take();
    renew(&agents, "Second.", Arc::new(Named("second")));
    let [later, paused] =
        ["later", "ask"].map(|text| send(&mut lab, "one", text)["task"]["id"].take());
    let third: Arc<dyn Agent> = Arc::new(Named("third"));
    renew(&agents, "Third.", Arc::clone(&third));
    assert_eq!(lab.ask(&get(CARD)).json()["description"], "Third.");
    assert_eq!(reply_text(&mut lab, "one"), "third");
    // A change of the card alone keeps the older programs.
    agents.change(vec![AgentChange::Describe(profile("one", "Fourth."))]).unwrap();
    let more = OutgoingMessage { task: paused.as_str(), id: "m-2", ..say("task") };
    let more = at(&mut lab, "one", "SendMessage", &Gen::V1.params(more));
    assert_eq!(text_of(&more["result"]["task"]["status"]["message"]), "second");
    lab.pass(10_000);
    assert_eq!(status(&mut lab, &later), ("TASK_STATE_COMPLETED".into(), "resumed".into()));
    let mut job = keep.jobs.lock().unwrap().pop().unwrap();
    assert_eq!(job.status(TaskState::Working, None), Ok(()));
    let canceled = at(&mut lab, "one", "CancelTask", &json!({ "id": working }));
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
    // Programs without unfinished tasks are dropped at the next change.
    renew(&agents, "Fifth.", Arc::new(Named("fifth")));
    assert!(Arc::strong_count(&third) > 1);
    renew(&agents, "Sixth.", Arc::new(Named("sixth")));
    assert_eq!(Arc::strong_count(&third), 1);
}

#[test]
fn replacing_an_agent_fails_tasks_of_all_older_programs() {
    let (mut lab, agents) = lab();
    let first = send(&mut lab, "one", "wait")["task"]["id"].take();
    renew(&agents, "Second.", Arc::new(Named("second")));
    let second = send(&mut lab, "one", "wait")["task"]["id"].take();
    assert_eq!(status(&mut lab, &first).0, WORKING);
    agents.replace(profile("one", "Third."), Arc::new(Named("third"))).unwrap();
    for id in [&first, &second] {
        assert_eq!(status(&mut lab, id), (FAILED.to_owned(), REPLACED.to_owned()));
    }
}

/// `OLDER_PROGRAMS_MAX`
#[test]
fn tasks_of_programs_beyond_older_programs_max_fail() {
    let (mut lab, agents) = lab();
    let mut ids = Vec::new();
    for _ in 0..=OLDER_PROGRAMS_MAX {
        ids.push(send(&mut lab, "one", "wait")["task"]["id"].take());
        renew(&agents, "Next.", Arc::new(Named("next")));
    }
    let states: Vec<String> = ids.iter().map(|id| status(&mut lab, id).0).collect();
    assert_eq!((&*states[0], &*states[1]), (FAILED, WORKING));
    assert!(states[1..].iter().all(|state| state == WORKING));
    assert_eq!(status(&mut lab, &ids[0]).1, REPLACED);
}

#[test]
fn unfinished_tasks_of_a_removed_agent_fail_with_a_reason() {
    let (mut lab, agents) = lab();
    let texts = ["wait", "later", "ask"];
    let ids = texts.map(|text| send(&mut lab, "one", text)["task"]["id"].take());
    let waiting = lab.open();
    let more = OutgoingMessage { task: ids[0].as_str(), id: "m-2", ..say("wait") };
    lab.write(
        waiting,
        &post("/agents/one", &[], &rpc("SendStreamingMessage", &Gen::V1.params(more))),
    );
    agents.remove("one").unwrap();
    lab.pass(10_000);
    for id in &ids {
        assert_eq!(status(&mut lab, id), (FAILED.to_owned(), REMOVED.to_owned()));
    }
    assert!(lab.reply(waiting).complete);
    assert_eq!(lab.engine.unfinished_tasks(), 0);
}

/// Keeps its jobs and the tasks it may adopt for the test.
#[derive(Clone, Default)]
struct Keep {
    jobs: Arc<Mutex<Vec<Job>>>,
    adopted: Arc<Mutex<Vec<Adopted>>>,
}

impl Agent for Keep {
    fn start(&self, turn: Turn<'_>) {
        self.jobs.lock().unwrap().extend(turn.detach());
    }

    fn adopt(&self, task: Adopted) {
        self.adopted.lock().unwrap().push(task);
    }
}

fn keep(agents: &Agents) -> Keep {
    let keep = Keep::default();
    agents.replace(profile("one", "Keeps."), Arc::new(keep.clone())).unwrap();
    keep
}

#[test]
fn task_continues_only_with_the_program_that_adopts_it() {
    let (mut lab, agents) = lab();
    let before = keep(&agents);
    let id = send(&mut lab, "one", "go")["task"]["id"].take();
    let mut old = before.jobs.lock().unwrap().pop().unwrap();
    let artifact = |text: &str| ArtifactBuf::new(text, &PartsBuf::new().text(text));
    old.artifact(&artifact("old")).unwrap();
    assert_eq!((old.keep(b"step 1"), old.keep(b"step 2")), (Ok(()), Ok(())));
    assert_eq!((old.kept(), old.is_closed()), (b"step 2".to_vec(), false));

    let after = keep(&agents);
    assert_eq!(old.artifact(&artifact("late")), Err(Closed));
    assert_eq!((old.keep(b"late"), old.is_closed()), (Err(NotKept::Closed), true));
    assert_eq!(old.kept(), b"");
    drop(old);

    let adopted = after.adopted.lock().unwrap().pop().unwrap();
    let view = adopted.task();
    assert_eq!(view.id().raw(), id.as_str().unwrap().as_bytes());
    assert_eq!((view.status().state, view.history(None).count()), (TaskState::Submitted, 1));
    assert_eq!((view.artifacts().count(), adopted.kept()), (1, &b"step 2"[..]));
    let mut new = adopted.into_job();
    assert_eq!(new.message().parts().next().unwrap().as_text().unwrap().raw(), b"go");
    assert_eq!(new.kept(), b"step 2");
    new.artifact(&artifact("new")).unwrap();
    new.status(TaskState::Completed, Some(&MessageBuf::agent(&PartsBuf::new().text("done"))))
        .unwrap();
    assert_eq!(new.kept(), b"step 2");
    let task = task(&mut lab, &id);
    assert_eq!(task["artifacts"].as_array().unwrap().len(), 2);
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
}

#[test]
fn unadopted_task_fails_when_the_newest_program_drops_it() {
    let (mut lab, agents) = lab();
    let _before = keep(&agents);
    let id = send(&mut lab, "one", "go")["task"]["id"].take();
    let after = keep(&agents);
    assert_eq!(status(&mut lab, &id).0, "TASK_STATE_SUBMITTED");
    // A further change comes before the decision: the next program is offered the task.
    let last = keep(&agents);
    after.adopted.lock().unwrap().clear();
    assert_eq!(status(&mut lab, &id).0, "TASK_STATE_SUBMITTED");
    last.adopted.lock().unwrap().clear();
    assert_eq!(status(&mut lab, &id), (FAILED.to_owned(), REPLACED.to_owned()));
}

/// Panics when it is offered a task.
struct Panics;

impl Agent for Panics {
    fn start(&self, _: Turn<'_>) {}

    fn adopt(&self, _: Adopted) {
        panic!("as the test wants it");
    }
}

#[test]
fn panic_in_adopt_fails_the_offered_tasks() {
    let (mut lab, agents) = lab();
    let ids = [0, 1].map(|_| send(&mut lab, "one", "wait")["task"]["id"].take());
    agents.replace(profile("one", "Panics."), Arc::new(Panics)).unwrap();
    for id in &ids {
        assert_eq!(status(&mut lab, id).0, FAILED);
    }
}

/// Requests input, and panics when it arrives.
struct Breaks;

impl Agent for Breaks {
    fn start(&self, mut turn: Turn<'_>) {
        assert_eq!(turn.state, None, "as the test wants it");
        turn.status(TaskState::InputRequired);
    }
}

#[test]
fn panicking_turn_does_not_block_agent_replacement() {
    let (mut lab, agents) = lab();
    agents.replace(profile("one", "Breaks."), Arc::new(Breaks)).unwrap();
    let id = send(&mut lab, "one", "go")["task"]["id"].take();
    let more = Gen::V1.params(OutgoingMessage { task: id.as_str(), id: "m-2", ..say("more") });
    let more = post("/agents/one", &[], &rpc("SendMessage", &more));
    let peer = lab.open();
    lab.write(peer, &more);
    agents.replace(profile("one", "Second."), Arc::new(Named("second"))).unwrap();
    let (state, text) = status(&mut lab, &id);
    assert_eq!(state, FAILED);
    assert!(text.starts_with("the agent has failed (reference "), "{text}");
}

/// Is replaced in the middle of its turn.
#[derive(Default)]
struct Midway {
    agents: OnceLock<Agents>,
    next: Keep,
    jobs: Mutex<Vec<Job>>,
}

impl Agent for Midway {
    fn start(&self, mut turn: Turn<'_>) {
        let text =
            turn.message.parts().next().and_then(|part| part.as_text()).unwrap().raw().to_vec();
        if text == b"stay" {
            return turn.status(TaskState::InputRequired);
        }
        let agents = self.agents.get().unwrap();
        agents.replace(profile("one", "Next."), Arc::new(self.next.clone())).unwrap();
        match &text[..] {
            b"done" => turn.status(TaskState::Completed),
            b"later" => turn.resume_after(1_000, 1),
            _ => self.jobs.lock().unwrap().extend(turn.detach()),
        }
    }

    fn resume(&self, _: Turn<'_>, _: u64) {
        unreachable!("it was replaced");
    }
}

fn midway(agents: &Agents) -> Arc<Midway> {
    let midway = Arc::new(Midway::default());
    assert!(midway.agents.set(agents.clone()).is_ok());
    agents.replace(profile("one", "Midway."), Arc::clone(&midway) as Arc<dyn Agent>).unwrap();
    midway
}

#[test]
fn turn_completes_or_hands_over_its_task_on_replacement() {
    let (mut lab, agents) = lab();
    for text in ["done", "later", "job"] {
        let midway = midway(&agents);
        let id = send(&mut lab, "one", text)["task"]["id"].take();
        let mut adopted = std::mem::take(&mut *midway.next.adopted.lock().unwrap());
        if text == "done" {
            assert_eq!(
                (adopted.len(), status(&mut lab, &id).0.as_str()),
                (0, "TASK_STATE_COMPLETED")
            );
            continue;
        }
        assert_eq!(adopted.len(), 1, "{text}");
        for mut job in midway.jobs.lock().unwrap().drain(..) {
            assert_eq!(job.status(TaskState::Working, None), Err(Closed));
        }
        lab.pass(5_000);
        let mut job = adopted.pop().unwrap().into_job();
        job.status(TaskState::Completed, None).unwrap();
        assert_eq!(status(&mut lab, &id).0, "TASK_STATE_COMPLETED");
    }
}

#[test]
fn follow_up_turn_completes_or_hands_over_on_replacement() {
    let (mut lab, agents) = lab();
    for (text, state) in [("done", "TASK_STATE_COMPLETED"), ("later", "TASK_STATE_INPUT_REQUIRED")]
    {
        let midway = midway(&agents);
        let id = send(&mut lab, "one", "stay")["task"]["id"].take();
        let more = OutgoingMessage { task: id.as_str(), id: "m-2", at_once: true, ..say(text) };
        let more = at(&mut lab, "one", "SendMessage", &Gen::V1.params(more));
        assert_eq!(more["result"]["task"]["status"]["state"], state, "{more}");
        // A call that waits for the answer to its message gets one.
        assert_eq!(midway.next.adopted.lock().unwrap().len(), usize::from(text == "later"));
    }
}

/// Is replaced or removed in the middle of its second turn, which then fails.
struct Falls {
    agents: Agents,
    /// `None`: the agent is removed.
    next: Option<Keep>,
    ends: fn(Turn<'_>),
    held: Mutex<Vec<Deferred>>,
}

impl Falls {
    fn change_and_end(&self, turn: Turn<'_>) {
        match &self.next {
            Some(next) => drop(self.agents.replace(profile("one", ""), Arc::new(next.clone()))),
            None => self.agents.remove("one").unwrap(),
        }
        (self.ends)(turn);
    }
}

impl Agent for Falls {
    fn start(&self, mut turn: Turn<'_>) {
        match turn.message.parts().next().and_then(|part| part.as_text()).unwrap().raw() {
            b"stay" => turn.status(TaskState::Working),
            b"later" => turn.resume_after(1_000, 1),
            b"hold" => self.held.lock().unwrap().extend(turn.defer()),
            _ => self.change_and_end(turn),
        }
    }

    fn resume(&self, turn: Turn<'_>, _: u64) {
        self.change_and_end(turn);
    }
}

fn refuses(turn: Turn<'_>) {
    turn.refuse(FaultKind::UnsupportedOperation);
}

fn defers(turn: Turn<'_>) {
    assert!(turn.defer().is_err(), "there is no room");
}

fn panics(_: Turn<'_>) {
    panic!("as the test wants it");
}

/// Detaches its task, leaks the job and panics.
fn loses(turn: Turn<'_>) {
    std::mem::forget(turn.detach());
    panic!("as the test wants it");
}

#[test]
fn task_is_handed_over_after_a_refused_or_panicking_turn() {
    type Ends = fn(Turn<'_>);
    let ends: [(&str, &str, Ends); 5] = [
        ("stay", "more", refuses),
        ("stay", "more", defers),
        ("stay", "more", panics),
        ("later", "", panics),
        ("", "go", loses),
    ];
    for (case, (first, then, ends)) in ends.into_iter().enumerate() {
        for next in [Some(Keep::default()), None] {
            let limits = Limits { deferred_calls_max: 1, ..Limits::default() };
            let (mut lab, agents) = lab_limited(limits);
            let (all, held) = (agents.clone(), Mutex::default());
            let falls = Arc::new(Falls { agents: all, next: next.clone(), ends, held });
            agents.replace(profile("one", ""), Arc::clone(&falls) as Arc<dyn Agent>).unwrap();
            let waits = lab.open();
            let hold = post("/agents/one", &[], &rpc("SendMessage", &Gen::V1.params(say("hold"))));
            lab.write(waits, &hold);
            assert_eq!(falls.held.lock().unwrap().len(), 1);
            let mut id = Value::Null;
            if !first.is_empty() {
                id = send(&mut lab, "one", first)["task"]["id"].take();
            }
            match then {
                "" => lab.pass(5_000),
                "go" => {
                    let peer = lab.open();
                    lab.write(
                        peer,
                        &post("/agents/one", &[], &rpc("SendMessage", &Gen::V1.params(say(then)))),
                    );
                }
                then => {
                    let more = Gen::V1.params(OutgoingMessage {
                        task: id.as_str(),
                        id: "m-2",
                        ..say(then)
                    });
                    let answer = at(&mut lab, "one", "SendMessage", &more);
                    assert_eq!(answer["error"].is_null(), case > 1, "{case}: {answer}");
                }
            }
            // A panic fails the task, unless a job on another thread holds it.
            let continues = !matches!(case, 2 | 3);
            match next {
                Some(next) => {
                    assert_eq!(
                        next.adopted.lock().unwrap().len(),
                        usize::from(continues),
                        "{case}"
                    );
                }
                None => assert_eq!(lab.engine.unfinished_tasks(), 0, "{case}"),
            }
        }
    }
}

#[test]
fn name_of_a_removed_initial_agent_is_never_a_tenant() {
    let limits = Limits { task_ttl_ms: 60_000, ..Limits::default() };
    let (mut lab, agents) = lab_limited(limits);
    let id = send(&mut lab, "one", "task")["task"]["id"].take();
    agents.remove("one").unwrap();
    lab.pass(30_000);
    assert_eq!(task(&mut lab, &id)["id"], id);
    lab.pass(40_000);
    assert_eq!(lab.ask(&get(CARD)).status, 404);
    let mut params = Gen::V1.params(say("hi"));
    params["tenant"] = json!("one");
    assert_eq!(lab.code("SendMessage", &params), -32602);
    // A refused addition under the name does not change that.
    let wrong = Profile { fields: vec!["te".to_owned()], ..profile("one", "") };
    assert!(agents.add(wrong, Arc::new(Named("x"))).is_err());
    assert_eq!(lab.code("SendMessage", &params), -32602);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn job_of_a_replaced_program_wakes_its_canceled_future() {
    let (mut lab, agents) = lab();
    let before = keep(&agents);
    send(&mut lab, "one", "go");
    let job = before.jobs.lock().unwrap().pop().unwrap();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let (mut canceled, mut cx) = (pin!(job.canceled()), Context::from_waker(&waker));
    assert!(canceled.as_mut().poll(&mut cx).is_pending());
    let _after = keep(&agents);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(canceled.as_mut().poll(&mut cx).is_ready());
}

/// Another thread reads the agents' names while this is dropped.
struct ReadsNames(Agents, mpsc::Sender<bool>);

impl Agent for ReadsNames {
    fn start(&self, _: Turn<'_>) {}
}

impl Drop for ReadsNames {
    fn drop(&mut self) {
        let (sender, receiver) = mpsc::channel();
        let agents = self.0.clone();
        thread::spawn(move || sender.send(agents.names().len()));
        let _ = self.1.send(receiver.recv_timeout(Duration::from_secs(5)).is_ok());
    }
}

#[test]
fn rejected_agent_is_dropped_outside_the_lock() {
    let limits = Limits { agents_max: 2, ..Limits::default() };
    let (_lab, agents) = lab_limited(limits);
    let (sender, receiver) = mpsc::channel();
    let agent = || Arc::new(ReadsNames(agents.clone(), sender.clone()));
    assert_eq!(agents.add(profile("one", ""), agent()), Err(AgentError::Taken("one".into())));
    assert_eq!(agents.add(profile("two", ""), agent()), Err(AgentError::TooMany));
    assert_eq!(agents.replace(profile("two", ""), agent()), Err(AgentError::Unknown("two".into())));
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [true; 3]);
}

#[test]
fn kept_bytes_max() {
    let limits = Limits { kept_bytes_max: 10, ..Limits::default() };
    let (mut lab, agents) = lab_limited(limits);
    let keep = keep(&agents);
    send(&mut lab, "one", "go");
    let mut job = keep.jobs.lock().unwrap().pop().unwrap();
    assert_eq!((job.keep(&[1; 10]), job.keep(&[2; 11])), (Ok(()), Err(NotKept::TooLong)));
    assert_eq!(job.kept(), [1; 10]);
    for (refused, words) in [
        (NotKept::TooLong, "kept_bytes_max"),
        (NotKept::NoRoom, "no room"),
        (NotKept::Closed, "accepts no more"),
    ] {
        assert!(refused.to_string().contains(words));
    }
}

#[test]
fn kept_bytes_count_towards_store_bytes() {
    let mut limits = Limits { kept_bytes_max: 15_000, ..Limits::default() };
    (limits.store_bytes_max, limits.task_bytes_max) = (40_000, 20_000);
    let (mut lab, agents) = lab_limited(limits);
    let keep = keep(&agents);
    let mut jobs = Vec::new();
    for _ in 0..4 {
        send(&mut lab, "one", "go");
        jobs.append(&mut keep.jobs.lock().unwrap());
    }
    let store_all =
        |jobs: &mut Vec<Job>| jobs.iter_mut().map(|job| job.keep(&[7; 15_000])).collect();
    let first: Vec<_> = store_all(&mut jobs);
    assert_eq!(first, [Ok(()), Ok(()), Err(NotKept::NoRoom), Err(NotKept::NoRoom)]);
    // The bytes are released when the task ends.
    jobs.remove(0).status(TaskState::Completed, None).unwrap();
    assert_eq!(jobs[1].keep(&[7; 15_000]), Ok(()));
}

#[test]
fn agent_cannot_take_the_name_of_a_tenant_with_tasks() {
    let limits = Limits { task_ttl_ms: 60_000, ..Limits::default() };
    let setup = Setup { agents: vec![echo()], limits, ..Setup::default() };
    let mut lab = Lab::new(setup);
    let agents = lab.engine.agents().unwrap().clone();
    let add = |name: &str| agents.add(profile(name, ""), Arc::new(Named("agent")));
    let send = |tenant: &str| {
        let mut params = Gen::V1.params(say("task"));
        params["tenant"] = json!(tenant);
        params
    };
    lab.result("SendMessage", &send("acme"));
    let refused = AgentError::Tenant { name: "acme".to_owned(), tasks: 1, unfinished: 0 };
    assert_eq!(add("acme"), Err(refused));
    // A name that is refused for another reason stays free.
    assert_eq!(add("a b"), Err(AgentError::Name("a b".to_owned())));
    lab.result("SendMessage", &send("acme"));
    lab.pass(61_000);
    assert_eq!(add("acme"), Ok(AgentIndex(1)));
    let task = lab.result("SendMessage", &send("acme"))["task"].take();
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "agent");
    // With a second agent an unused name may be a typing error and is refused; with one agent it is
    // accepted.
    assert_eq!(lab.code("SendMessage", &send("acne")), -32602);
    agents.remove("acme").unwrap();
    lab.result("SendMessage", &send("acne"));
    assert_eq!(add("second"), Ok(AgentIndex(2)));
    assert_eq!(lab.code("SendMessage", &send("acne")), -32602);
}

#[test]
fn end_tenant_fails_its_tasks_and_frees_its_name() {
    let limits = Limits { task_ttl_ms: 60_000, ..Limits::default() };
    let works = script("works", "[[rule]]\n[[rule.step]]\nstatus = \"working\"");
    let mut lab = Lab::new(Setup { agents: vec![works], limits, ..Setup::default() });
    let agents = lab.engine.agents().unwrap().clone();
    let add = || agents.add(profile("x", ""), Arc::new(Named("agent")));
    let send = |tenant: &str| {
        let mut params = Gen::V1.params(OutgoingMessage { at_once: true, ..say("task") });
        params["tenant"] = json!(tenant);
        params
    };
    // The task of an anonymous caller never ends by itself.
    let id = lab.result("SendMessage", &send("x"))["task"]["id"].take();
    let other = lab.result("SendMessage", &send("y"))["task"]["id"].take();
    lab.pass(120_000);
    let refused = add().unwrap_err();
    assert_eq!(refused, AgentError::Tenant { name: "x".to_owned(), tasks: 1, unfinished: 1 });
    for words in ["\"x\" has 1 tasks, 1 of them unfinished", "Agents::end_tenant", "--tenants"] {
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert_eq!((agents.end_tenant("x"), agents.end_tenant("nobody")), (1, 0));
    // Its client gets the reason and cannot start a new task.
    let get = |tenant: &str, id: &Value| json!({ "tenant": tenant, "id": id });
    let status = lab.result("GetTask", &get("x", &id))["status"].take();
    assert_eq!(status["state"], "TASK_STATE_FAILED");
    let text = &status["message"]["parts"][0]["text"];
    assert!(text.as_str().unwrap().contains("operator"), "{text}");
    assert_eq!(lab.code("SendMessage", &send("x")), -32602);
    let status = lab.result("GetTask", &get("y", &other))["status"].take();
    assert_eq!(status["state"], "TASK_STATE_WORKING");
    let refused = add().unwrap_err();
    assert_eq!(refused, AgentError::Tenant { name: "x".to_owned(), tasks: 1, unfinished: 0 });
    lab.pass(61_000);
    assert_eq!(add(), Ok(AgentIndex(1)));
    let task = lab.result("SendMessage", &send("x"))["task"].take();
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "agent");
}
