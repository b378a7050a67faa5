//! A service in a setup: its agents, their cards, and the server's notifications.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Poll, Waker},
};

use peregrine::{
    agent::{Agent, Profile, echo::Echo},
    engine::{BuildError, Setup, Start, local_core},
    fault::{Fault, FaultKind},
    limits::Limits,
    model::{Call, MessageBuf, PartsBuf, RawText, Reply},
    net::Server,
    service::{
        AgentIndex, Answer, CallCx, Cursor, Each, Follow, Lifecycle, Outcome, Service, TickCx,
        WaitHandle,
    },
};
use serde_json::json;

use crate::support::{
    BEGIN, Lab,
    ask::{get, get_with, post, rpc},
};

/// Answers each message with a direct hello and stores no task.
struct Greeter {
    profiles: Mutex<Vec<Arc<Profile>>>,
    ticks: AtomicUsize,
    drains: AtomicUsize,
    cuts: AtomicUsize,
}

impl Greeter {
    fn new(names: &[&str]) -> Arc<Greeter> {
        let profiles = names.iter().map(|name| Arc::new(Profile::new(name, "Says hello.")));
        Arc::new(Greeter {
            profiles: Mutex::new(profiles.collect()),
            ticks: AtomicUsize::new(0),
            drains: AtomicUsize::new(0),
            cuts: AtomicUsize::new(0),
        })
    }

    fn describe(&self, agent: usize, description: &str) {
        let profile = &mut self.profiles.lock().unwrap()[agent];
        *profile =
            Arc::new(Profile { description: description.to_owned(), ..Profile::clone(profile) });
    }
}

impl Lifecycle for Greeter {
    fn tick(&self, cx: &mut TickCx<'_>, _: &Waker) -> Option<u64> {
        self.ticks.fetch_add(1, Relaxed);
        Some(cx.now.mono_ms + 10)
    }

    fn drain(&self) {
        self.drains.fetch_add(1, Relaxed);
    }

    fn cut(&self) {
        self.cuts.fetch_add(1, Relaxed);
    }

    fn unfinished_tasks(&self) -> usize {
        3
    }
}

impl Service for Greeter {
    fn call(
        &self,
        cx: &mut CallCx<'_>,
        call: Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Fault> {
        let Call::Send(_) = call else { return Err(FaultKind::TaskNotFound.into()) };
        let profile = self.profile(cx.caller.scope.agent).expect("an agent that was named");
        let text = format!("hello from {}", profile.name);
        let message = MessageBuf::agent(&PartsBuf::new().text(&text)).id("m-1");
        answer(Reply::Message { message: message.view(), context_id: RawText::default() });
        Ok(Outcome::Answered)
    }

    fn poll(
        &self,
        _: &mut WaitHandle,
        _: &Waker,
        _: &mut Answer<'_>,
    ) -> Poll<Result<Outcome, Fault>> {
        unreachable!("no call waits")
    }

    fn follow(&self, _: &mut Cursor, _: &Waker, _: &mut Each<'_>) -> Follow {
        unreachable!("nothing streams")
    }

    fn profile(&self, agent: AgentIndex) -> Option<Arc<Profile>> {
        self.profiles.lock().unwrap().get(usize::from(agent.0)).cloned()
    }
}

fn lab(service: &Arc<Greeter>) -> Lab {
    let service: Arc<dyn Service> = Arc::clone(service) as _;
    Lab::new(Setup { service: Some(service), ..Setup::default() })
}

fn build(setup: Setup) -> Option<BuildError> {
    let start = Start {
        secret: 7,
        unix_ms: Arc::new(|| BEGIN.unix_ms),
        workers: 1,
        base_url: String::new(),
    };
    setup.build(start).err()
}

#[test]
fn service_answers_calls_and_provides_agent_cards() {
    let mut lab = lab(&Greeter::new(&["first", "second"]));
    let message = json!({ "message": {
        "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } });
    let answer = lab.result("SendMessage", &message);
    assert_eq!(answer["message"]["parts"][0]["text"], "hello from first");
    let card = lab.ask(&get("/agents/second/.well-known/agent-card.json")).json();
    assert_eq!(card["name"], "second");
    assert_eq!(lab.ask(&get("/agents/third/.well-known/agent-card.json")).status, 404);
    assert_eq!(lab.code("GetTask", &json!({ "id": "t" })), -32001);
}

#[test]
fn build_rejects_service_with_agents_or_invalid_names() {
    let setup = |names: &[&str]| {
        let service: Arc<dyn Service> = Greeter::new(names);
        Setup { service: Some(service), ..Setup::default() }
    };
    let mut both = setup(&["a"]);
    both.agents.push((Echo::profile(), Arc::new(Echo)));
    assert_eq!(build(both), Some(BuildError::AgentsWithService));
    let numbered = Setup { node: Some(1), ..setup(&["a"]) };
    assert_eq!(build(numbered), Some(BuildError::AgentsWithService));
    assert_eq!(build(setup(&[])), Some(BuildError::NoAgent));
    assert_eq!(build(setup(&["a", "b", "a"])), Some(BuildError::SameName("a".to_owned())));
    assert_eq!(build(setup(&["a b"])), Some(BuildError::Name("a b".to_owned())));
    assert_eq!(build(setup(&["a", "b"])), None);
}

#[test]
fn changed_profile_changes_card_and_its_validators() {
    const CARD: &str = "/.well-known/agent-card.json";
    let service = Greeter::new(&["first", "second"]);
    let mut lab = lab(&service);
    let first = lab.ask(&get(CARD));
    let validators = |reply: &crate::support::reply::Reply| {
        ["ETag", "Last-Modified"].map(|name| reply.field(name).unwrap().to_owned())
    };
    let [etag, since] = validators(&first);
    lab.pass(10_000);
    for lines in [format!("If-None-Match: {etag}\r\n"), format!("If-Modified-Since: {since}\r\n")] {
        assert_eq!(lab.ask(&get_with(CARD, &lines)).status, 304);
    }
    // Another `Arc` with equal content does not change the card, but its time is unknown.
    service.describe(0, "Says hello.");
    let same = lab.ask(&get_with(CARD, &format!("If-None-Match: {etag}\r\n")));
    assert_eq!(same.status, 304);

    service.describe(0, "Says good bye.");
    for lines in [format!("If-None-Match: {etag}\r\n"), format!("If-Modified-Since: {since}\r\n")] {
        let second = lab.ask(&get_with(CARD, &lines));
        assert_eq!((second.status, &second.json()["description"]), (200, &json!("Says good bye.")));
        let [other_etag, other_since] = validators(&second);
        assert!(other_etag != etag && other_since != since);
    }
    // The validators of the other agent are unchanged.
    let other = lab.ask(&get("/agents/second/.well-known/agent-card.json"));
    assert_eq!(validators(&other)[1], since);
}

#[test]
fn agent_added_to_a_running_service_is_served() {
    const CARD: &str = "/agents/third/.well-known/agent-card.json";
    let service = Greeter::new(&["first", "second"]);
    let mut lab = lab(&service);
    assert_eq!(lab.ask(&get(CARD)).status, 404);
    let third = Arc::new(Profile::new("third", "Says hello."));
    service.profiles.lock().unwrap().push(third);
    assert_eq!(lab.ask(&get(CARD)).json()["name"], "third");
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
    let body = rpc("SendMessage", &json!({ "message": message }));
    let answer = lab.ask(&post("/agents/third", &[("A2A-Version", "1.0")], &body)).json();
    assert_eq!(answer["result"]["message"]["parts"][0]["text"], "hello from third");
}

#[test]
fn service_receives_ticks_drain_and_cut() {
    let service = Greeter::new(&["a"]);
    let mut lab = lab(&service);
    lab.pass(100);
    assert!(service.ticks.load(Relaxed) >= 10, "{}", service.ticks.load(Relaxed));
    assert_eq!(lab.engine.unfinished_tasks(), 3);
    assert_eq!((service.drains.load(Relaxed), service.cuts.load(Relaxed)), (0, 0));
    lab.engine.drain();
    lab.engine.cut();
    assert_eq!((service.drains.load(Relaxed), service.cuts.load(Relaxed)), (1, 1));
}

#[test]
fn server_starts_with_a_service_and_a_secret() {
    let start = peregrine::net::start(1).unwrap();
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(Echo::profile(), Arc::new(Echo))];
    let (core, _) = local_core(&Limits::default(), agents, None, &start, None).unwrap();
    let server = Server::new().service(core).secret(start.secret).listen("127.0.0.1:0").workers(1);
    let running = server.start().unwrap();
    assert_eq!(running.addrs().len(), 1);
}

#[test]
fn local_core_rejects_invalid_agents_and_limits() {
    let start = peregrine::net::start(1).unwrap();
    let refused = |profiles: Vec<Profile>, limits: &Limits| {
        let each = profiles.into_iter().map(|profile| (profile, Arc::new(Echo) as Arc<dyn Agent>));
        local_core(limits, each.collect(), None, &start, None).err()
    };
    let limits = Limits::default();
    let shows = |name: &str| Profile { fields: vec![name.to_owned()], ..Echo::profile() };
    for name in ["x-key\r\nx-other", "x key", "", "transfer-encoding"] {
        let error = BuildError::Field(name.to_owned());
        assert_eq!(refused(vec![shows(name)], &limits), Some(error));
    }
    assert_eq!(refused(vec![shows("x-key")], &limits), None);
    assert_eq!(refused(vec![], &limits), Some(BuildError::NoAgent));
    let named = |name: &str| Profile::new(name, "");
    let name = "a\r\nb".to_owned();
    assert_eq!(refused(vec![named(&name)], &limits), Some(BuildError::Name(name)));
    let same = BuildError::SameName("a".to_owned());
    assert_eq!(refused(vec![named("a"), named("a")], &limits), Some(same));
    let few = Limits { agents_max: 1, ..Limits::default() };
    assert_eq!(refused(vec![named("a"), named("b")], &few), Some(BuildError::TooManyAgents));
    let none = Limits { tasks_max: 0, ..Limits::default() };
    assert_eq!(refused(vec![named("a")], &none), Some(BuildError::Limit("tasks_max")));
}
