//! Agents that decide whether a task may be canceled.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use peregrine::{
    agent::{Adopted, Agent, CancelRequest, DeferredCancel, Job, Profile, Turn},
    auth::{Authenticator, Quota, Quotas},
    engine::{Agents, Setup},
    limits::Limits,
    model::TaskState,
    service,
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{Gen, OutgoingMessage, post, rpc, say},
    callers::ByName,
};

/// Long enough for every event that happens at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// Keeps its jobs and handles a cancel as the message of the task says.
#[derive(Clone, Default)]
struct Careful(Arc<Mutex<(Vec<Job>, Vec<DeferredCancel>)>>);

impl Agent for Careful {
    fn start(&self, turn: Turn<'_>) {
        self.0.lock().unwrap().0.extend(turn.detach());
    }

    fn cancel(&self, request: CancelRequest<'_>) {
        let mut words = String::new();
        request.read(&mut |task| {
            words = task.last_user_message().map(|message| message.text()).unwrap_or_default();
        });
        match words.as_str() {
            "refuse" => request.refuse("it has been paid for"),
            "defer" => self.0.lock().unwrap().1.extend(request.defer()),
            _ => {}
        }
    }
}

fn lab(limits: Limits) -> (Lab, Careful) {
    let careful = Careful::default();
    let fields = vec!["x-key".to_owned()];
    let profile = Profile { fields, ..Profile::new("careful", "Is asked.") };
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile, Arc::new(careful.clone()))];
    (Lab::new(Setup { agents, limits, ..Setup::default() }), careful)
}

/// Begins a task and returns its id.
fn begin(lab: &mut Lab, words: &str) -> Value {
    let params = Gen::V1.params(OutgoingMessage { at_once: true, ..say(words) });
    lab.result("SendMessage", &params)["task"]["id"].clone()
}

/// Sends a cancel that the agent decides later.
fn cancel(lab: &mut Lab, id: &Value) -> Peer {
    let peer = lab.open();
    lab.write(peer, &post("/", &[], &rpc("CancelTask", &json!({ "id": id }))));
    assert!(lab.received(peer).is_empty(), "{}", lab.received(peer).escape_ascii());
    peer
}

/// A cancel notification: a batch member without an id.
fn cancel_notification(id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": "CancelTask", "params": { "id": id } })
}

fn state(lab: &mut Lab, id: &Value) -> Value {
    lab.result("GetTask", &json!({ "id": id }))["status"]["state"].clone()
}

#[test]
fn cancel_callback_without_a_decision_accepts_the_cancel() {
    let (mut lab, _) = lab(Limits::default());
    let id = begin(&mut lab, "agree");
    let task = lab.result("CancelTask", &json!({ "id": id }));
    assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED");
}

#[test]
fn refused_cancel_keeps_task_and_has_a_reason_in_each_format() {
    let (mut lab, _) = lab(Limits::default());
    let id = begin(&mut lab, "refuse");
    for generation in Gen::ALL {
        let answer = lab.call(generation.cancel(), &json!({ "id": id }));
        let error = &answer["error"];
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(-32002), &json!("it has been paid for"))
        );
    }
    let path = format!("/tasks/{}:cancel", id.as_str().unwrap());
    let refused = lab.ask(&post(&path, &[], "{}"));
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("it has been paid for"), "{}", refused.text());
    assert_eq!(state(&mut lab, &id), "TASK_STATE_SUBMITTED");
}

type Decide = fn(DeferredCancel);

/// The ways an agent decides later, and the text of a refusal.
const DECISIONS: [(Decide, &str); 3] = [
    (DeferredCancel::agree, ""),
    (|cancel| cancel.refuse("too late"), "too late"),
    (drop, "the agent did not decide whether the task may be canceled"),
];

#[test]
fn deferred_cancel_waits_for_the_agent_decision() {
    let (mut lab, careful) = lab(Limits::default());
    for (end, text) in DECISIONS {
        let id = begin(&mut lab, "defer");
        let peer = cancel(&mut lab, &id);
        assert_eq!(state(&mut lab, &id), "TASK_STATE_SUBMITTED");
        let deferred = careful.0.lock().unwrap().1.pop().unwrap();
        assert_eq!(*deferred.task_id().to_str(), *id.as_str().unwrap());
        thread::spawn(move || end(deferred)).join().unwrap();
        lab.settle();
        let answer = lab.reply(peer).json();
        if text.is_empty() {
            assert_eq!(answer["result"]["status"]["state"], "TASK_STATE_CANCELED");
            assert_eq!(state(&mut lab, &id), "TASK_STATE_CANCELED");
        } else {
            assert_eq!(
                (&answer["error"]["code"], &answer["error"]["message"]),
                (&json!(-32002), &json!(text))
            );
            assert_eq!(state(&mut lab, &id), "TASK_STATE_SUBMITTED");
        }
    }
}

#[test]
fn deferred_cancel_is_answered_when_its_task_ends() {
    for (end, is_canceled) in [(TaskState::Canceled, true), (TaskState::Completed, false)] {
        let (mut lab, careful) = lab(Limits::default());
        let id = begin(&mut lab, "defer");
        let peer = cancel(&mut lab, &id);
        let mut job = careful.0.lock().unwrap().0.pop().unwrap();
        job.status(TaskState::Working, None).unwrap();
        lab.settle();
        assert!(lab.received(peer).is_empty());
        job.status(end, None).unwrap();
        lab.settle();
        let answer = lab.reply(peer).json();
        match is_canceled {
            true => assert_eq!(answer["result"]["status"]["state"], "TASK_STATE_CANCELED"),
            false => assert_eq!(answer["error"]["code"], -32002),
        }
        careful.0.lock().unwrap().1.pop().unwrap().agree();
        assert_eq!(lab.engine.waiting().calls, 0);
    }
}

#[test]
fn replaced_agent_cannot_decide_a_pending_cancel() {
    let (mut lab, careful) = lab(Limits::default());
    let id = begin(&mut lab, "defer");
    let peer = cancel(&mut lab, &id);
    let next = Adopts::default();
    let agents = lab.engine.agents().unwrap().clone();
    let profile = || Profile::new("careful", "Goes on.");
    agents.replace(profile(), Arc::new(next.clone())).unwrap();
    careful.0.lock().unwrap().1.pop().unwrap().agree();
    lab.settle();
    let error = lab.reply(peer).json()["error"].take();
    assert_eq!(error["code"], -32002);
    assert!(error["message"].as_str().unwrap().contains("ask again"), "{error}");
    assert_eq!(state(&mut lab, &id), "TASK_STATE_SUBMITTED");
    // The same if the agent agrees at once and is replaced meanwhile.
    let last = Adopts::default();
    *next.0.lock().unwrap() = (None, Some((agents, last.clone())));
    let id = begin(&mut lab, "go");
    assert_eq!(lab.code("CancelTask", &json!({ "id": id })), -32002);
    assert_eq!(state(&mut lab, &id), "TASK_STATE_SUBMITTED");
    let task = lab.result("CancelTask", &json!({ "id": id }));
    assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED");
}

/// Adopts tasks and keeps them; replaces itself by another program in the middle of a cancel.
#[derive(Clone, Default)]
struct Adopts(Arc<Mutex<Adopting>>);

type Adopting = (Option<Adopted>, Option<(Agents, Adopts)>);

impl Agent for Adopts {
    fn start(&self, mut turn: Turn<'_>) {
        turn.status(TaskState::Submitted);
        turn.resume_after(1_000_000, 1);
    }

    fn adopt(&self, task: Adopted) {
        self.0.lock().unwrap().0 = Some(task);
    }

    fn cancel(&self, _: CancelRequest<'_>) {
        let next = self.0.lock().unwrap().1.take();
        if let Some((agents, next)) = next {
            agents.replace(Profile::new("careful", "Goes on."), Arc::new(next)).unwrap();
        }
    }
}

#[test]
fn deferred_cancels_count_as_deferred_calls_and_end_with_server() {
    let limits = Limits { deferred_calls_max: 1, ..Limits::default() };
    let (mut lab, careful) = lab(limits);
    let (id, other) = (begin(&mut lab, "defer"), begin(&mut lab, "defer"));
    let peer = cancel(&mut lab, &id);
    assert_eq!(lab.code("CancelTask", &json!({ "id": other })), -32000);
    lab.end(peer);
    drop(std::mem::take(&mut careful.0.lock().unwrap().1));
    let peer = cancel(&mut lab, &id);
    lab.engine.drain();
    lab.engine.cut();
    lab.settle_all();
    assert_eq!(lab.reply(peer).json()["error"]["code"], -32000);
}

#[test]
fn deferred_cancels_hold_caller_permits_until_the_agent_decides() {
    let careful = Careful::default();
    let profile = Profile::new("careful", "Is asked.");
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile, Arc::new(careful.clone()))];
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    // One caller may hold an eighth of them.
    let limits = Limits { deferred_calls_max: 16, ..Limits::default() };
    let mut lab = Lab::new(Setup { agents, authenticator, limits, ..Setup::default() });
    let fields = |bearer: &'static str| [("Authorization", bearer), ("A2A-Version", "1.0")];
    let begin = |lab: &mut Lab, bearer| {
        let params = Gen::V1.params(OutgoingMessage { at_once: true, ..say("defer") });
        let sent = lab.ask(&post("/", &fields(bearer), &rpc("SendMessage", &params)));
        sent.result()["task"]["id"].clone()
    };
    let ids = [begin(&mut lab, "Bearer alice"), begin(&mut lab, "Bearer bob")];
    let send_cancel = |lab: &mut Lab, of: usize| {
        let (peer, bearer) = (lab.open(), ["Bearer alice", "Bearer bob"][of]);
        let cancel = rpc("CancelTask", &json!({ "id": ids[of] }));
        lab.write(peer, &post("/", &fields(bearer), &cancel));
        peer
    };
    // The permit of a client that disconnects stays with the agent's pending cancel.
    for _ in 0..2 {
        let peer = send_cancel(&mut lab, 0);
        assert!(lab.received(peer).is_empty());
        lab.end(peer);
    }
    let refused = send_cancel(&mut lab, 0);
    let refused = lab.reply(refused);
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.text().contains("RATE_LIMIT_EXCEEDED"), "{}", refused.text());
    let other = send_cancel(&mut lab, 1);
    assert!(lab.received(other).is_empty());
    careful.0.lock().unwrap().1.clear();
    lab.settle();
    let again = send_cancel(&mut lab, 0);
    assert!(lab.received(again).is_empty());
}

#[test]
fn anonymous_caller_at_its_task_quota_can_cancel_its_task() {
    let careful = Careful::default();
    let profile = Profile::new("careful", "Is asked.");
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(profile, Arc::new(careful.clone()))];
    let one = Quota { running_tasks: Some(1), running_kib: Some(1), ..Quota::default() };
    let quotas = Quotas { anonymous: one, ..Quotas::default() };
    let mut lab = Lab::new(Setup { agents, quotas, ..Setup::default() });
    let id = begin(&mut lab, "defer");
    let params = Gen::V1.params(OutgoingMessage { at_once: true, id: "second", ..say("defer") });
    assert_eq!(lab.ask(&post("/", &[], &rpc("SendMessage", &params))).status, 429);
    // The bytes of a waiting cancel have their own limit.
    let params = json!({ "id": id, "metadata": { "why": "x".repeat(2_000) } });
    let refused = lab.ask(&post("/", &[], &rpc("CancelTask", &params)));
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.text().contains("KiB"), "{}", refused.text());
    let peer = cancel(&mut lab, &id);
    let decisions = std::mem::take(&mut careful.0.lock().unwrap().1);
    decisions.into_iter().for_each(DeferredCancel::agree);
    lab.settle();
    assert_eq!(lab.reply(peer).result()["status"]["state"], "TASK_STATE_CANCELED");
}

#[test]
fn waiting_cancel_on_a_websocket_counts_as_in_flight() {
    let limits = Limits { ws_in_flight_max: 1, ..Limits::default() };
    let (mut lab, careful) = lab(limits);
    let (id, other) = (begin(&mut lab, "defer"), begin(&mut lab, "agree"));
    let socket = lab.socket("/", "");
    let idle = lab.held_bytes(socket);
    let cancel_body = |id: &Value| rpc("CancelTask", &json!({ "id": id }));
    assert!(lab.say(socket, &cancel_body(&id)).is_empty());
    // A waiting request counts towards the held bytes.
    assert!(lab.held_bytes(socket) >= idle + 200, "{idle}");
    for refused in [cancel_body(&id), format!("[{}]", cancel_body(&id))] {
        let answers = lab.say(socket, &refused);
        let answer = answers[0].as_array().map_or(&answers[0], |batch| &batch[0]);
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.contains("ws_in_flight_max"), "{text}");
    }
    // A cancel that is decided at once is answered.
    let answers = lab.say(socket, &cancel_body(&other));
    assert_eq!(answers[0]["result"]["status"]["state"], "TASK_STATE_CANCELED");
    careful.0.lock().unwrap().1.drain(..).for_each(DeferredCancel::agree);
    lab.settle();
    assert_eq!(lab.frames(socket)[0].json()["result"]["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(lab.engine.waiting().calls, 0);
}

#[test]
fn deferred_cancel_sees_caller_disconnect_and_task_end() {
    let (mut lab, careful) = lab(Limits::default());
    let id = begin(&mut lab, "defer");
    let peer = cancel(&mut lab, &id);
    let deferred = careful.0.lock().unwrap().1.pop().unwrap();
    let is_signaled = |deferred: &DeferredCancel| {
        let cx = &mut Context::from_waker(Waker::noop());
        let is_ready = pin!(deferred.caller_gone()).poll(cx).is_ready();
        assert_eq!(is_ready, deferred.is_caller_gone());
        is_ready
    };
    assert!(!is_signaled(&deferred));
    lab.end(peer);
    assert!(is_signaled(&deferred));
    let peer = cancel(&mut lab, &id);
    let deferred = careful.0.lock().unwrap().1.pop().unwrap();
    assert!(!is_signaled(&deferred));
    careful.0.lock().unwrap().0[0].status(TaskState::Completed, None).unwrap();
    lab.settle();
    assert_eq!(lab.reply(peer).json()["error"]["code"], -32002);
    assert!(is_signaled(&deferred));
}

#[test]
fn later_cancels_of_a_task_wait_for_the_same_decision() {
    let limits = Limits { deferred_calls_max: 1, ..Limits::default() };
    for (end, text) in DECISIONS {
        let (mut lab, careful) = lab(limits.clone());
        let id = begin(&mut lab, "defer");
        let mut peers: Vec<Peer> = (0..20).map(|_| cancel(&mut lab, &id)).collect();
        // The same over HTTP+JSON.
        let rest = lab.open();
        lab.write(rest, &post(&format!("/tasks/{}:cancel", id.as_str().unwrap()), &[], "{}"));
        assert_eq!((careful.0.lock().unwrap().1.len(), lab.engine.waiting().calls), (1, 21));
        lab.end(peers.remove(0));
        let deferred = careful.0.lock().unwrap().1.pop().unwrap();
        thread::spawn(move || end(deferred)).join().unwrap();
        lab.settle();
        for peer in peers {
            let answer = lab.reply(peer).json();
            match text {
                "" => assert_eq!(answer["result"]["status"]["state"], "TASK_STATE_CANCELED"),
                text => assert_eq!(answer["error"]["message"], text),
            }
        }
        let rest_text = lab.reply(rest).text().to_owned();
        assert!(
            rest_text.contains(if text.is_empty() { "TASK_STATE_CANCELED" } else { text }),
            "{rest_text}"
        );
        if !text.is_empty() {
            // The agent is called again for the next cancel.
            cancel(&mut lab, &id);
            assert_eq!(careful.0.lock().unwrap().1.len(), 1);
        }
    }
}

#[test]
fn caller_gone_is_set_after_the_last_joined_caller_leaves() {
    let (mut lab, careful) = lab(Limits::default());
    let id = begin(&mut lab, "defer");
    let peers = [(); 3].map(|()| cancel(&mut lab, &id));
    let deferred = careful.0.lock().unwrap().1.pop().unwrap();
    for peer in peers {
        assert!(!deferred.is_caller_gone());
        lab.end(peer);
    }
    assert!(deferred.is_caller_gone());
    // A new cancel does not join a cancel without callers.
    let peer = cancel(&mut lab, &id);
    let next = careful.0.lock().unwrap().1.pop().unwrap();
    drop(deferred);
    assert!(lab.received(peer).is_empty() && !next.is_caller_gone());
    next.agree();
    lab.settle();
    assert_eq!(lab.reply(peer).json()["result"]["status"]["state"], "TASK_STATE_CANCELED");
}

#[test]
fn cancels_with_different_callers_or_fields_are_not_joined() {
    let (mut lab, careful) = lab(Limits::default());
    let id = begin(&mut lab, "defer");
    let body = rpc("CancelTask", &json!({ "id": id }));
    let send_cancel = |lab: &mut Lab, identity: Option<&'static str>, key: &str| {
        let peer = lab.open_to(service::Peer { identity, ..service::Peer::default() });
        lab.write(peer, &post("/", &[("X-Key", key)], &body));
        assert!(lab.received(peer).is_empty());
        peer
    };
    let peers = [
        send_cancel(&mut lab, None, "guest"),
        send_cancel(&mut lab, None, "owner"),
        send_cancel(&mut lab, Some("owner"), "guest"),
        send_cancel(&mut lab, Some("owner"), "guest"),
    ];
    let deferred = std::mem::take(&mut careful.0.lock().unwrap().1);
    assert_eq!(deferred.len(), 3);
    let mut deferred = deferred.into_iter();
    deferred.next().unwrap().refuse("who are you?");
    lab.settle();
    assert_eq!(lab.reply(peers[0]).code(), -32002);
    assert!(peers[1..].iter().all(|peer| lab.received(*peer).is_empty()));
    deferred.next().unwrap().agree();
    lab.settle();
    for peer in &peers[1..] {
        let task = lab.reply(*peer).json()["result"].take();
        assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED");
    }
}

#[test]
fn joined_cancels_count_towards_store_bytes() {
    let mut limits = Limits::default();
    (limits.store_bytes_max, limits.task_bytes_max) = (20_000, 10_000);
    let (mut lab, careful) = lab(limits);
    let id = begin(&mut lab, "defer");
    let refused = (0..200).find_map(|_| {
        let peer = lab.open();
        lab.write(peer, &post("/", &[], &rpc("CancelTask", &json!({ "id": id }))));
        lab.try_reply(peer)
    });
    assert!(refused.unwrap().text().contains("store_bytes_max"));
    // All of the bytes are released.
    for _ in 0..2 {
        let joined = lab.engine.waiting().calls;
        assert!((20..200).contains(&joined), "{joined}");
        careful.0.lock().unwrap().1.pop().unwrap().refuse("no");
        lab.settle();
        assert_eq!(lab.engine.waiting().calls, 0);
        (0..joined).for_each(|_| {
            cancel(&mut lab, &id);
        });
    }
}

#[test]
fn cancel_notifications_joining_a_cancel_take_no_store_bytes() {
    let mut limits = Limits::default();
    (limits.store_bytes_max, limits.task_bytes_max) = (20_000, 10_000);
    let (mut lab, careful) = lab(limits);
    let id = begin(&mut lab, "defer");
    let first = cancel(&mut lab, &id);
    let batch = Value::from(vec![cancel_notification(&id); 100]).to_string();
    for _ in 0..3 {
        let peer = lab.open();
        lab.write(peer, &post("/", &[], &batch));
        assert_eq!(lab.reply(peer).status, 204);
    }
    let last = cancel(&mut lab, &id);
    careful.0.lock().unwrap().1.pop().unwrap().agree();
    lab.settle();
    for peer in [first, last] {
        assert_eq!(lab.reply(peer).json()["result"]["status"]["state"], "TASK_STATE_CANCELED");
    }
}

/// Sends a cancel notification on a connection that ends.
fn cancel_silently(lab: &mut Lab, id: &Value) {
    let peer = lab.open();
    lab.write(peer, &post("/", &[], &Value::from(vec![cancel_notification(id)]).to_string()));
    assert_eq!(lab.reply(peer).status, 204);
    lab.end(peer);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn cancel_notification_stays_pending_until_its_task_ends() {
    let (mut lab, careful) = lab(Limits::default());
    let woken = Arc::new(Woken::default());
    let wake = Waker::from(Arc::clone(&woken));
    let cx = &mut Context::from_waker(&wake);
    // It is carried out after its connection has ended.
    let id = begin(&mut lab, "defer");
    cancel_silently(&mut lab, &id);
    let deferred = careful.0.lock().unwrap().1.pop().unwrap();
    assert!(!deferred.is_caller_gone());
    deferred.agree();
    assert_eq!(state(&mut lab, &id), "TASK_STATE_CANCELED");
    // The task ends by itself.
    let id = begin(&mut lab, "defer");
    let waiting = cancel(&mut lab, &id);
    cancel_silently(&mut lab, &id);
    let deferred = careful.0.lock().unwrap().1.pop().unwrap();
    let mut caller_gone = pin!(deferred.caller_gone());
    assert!(caller_gone.as_mut().poll(cx).is_pending() && !deferred.is_caller_gone());
    lab.end(waiting);
    assert_eq!(woken.0.swap(0, Relaxed), 1);
    assert!(caller_gone.as_mut().poll(cx).is_pending() && !deferred.is_caller_gone());
    careful.0.lock().unwrap().0[1].status(TaskState::Completed, None).unwrap();
    assert_eq!(woken.0.swap(0, Relaxed), 1);
    assert!(caller_gone.as_mut().poll(cx).is_ready() && deferred.is_caller_gone());
    // Another program has adopted the task.
    let id = begin(&mut lab, "defer");
    cancel_silently(&mut lab, &id);
    let deferred = careful.0.lock().unwrap().1.pop().unwrap();
    let mut caller_gone = pin!(deferred.caller_gone());
    assert!(caller_gone.as_mut().poll(cx).is_pending() && !deferred.is_caller_gone());
    let agents = lab.engine.agents().unwrap().clone();
    agents.replace(Profile::new("careful", "Goes on."), Arc::new(Adopts::default())).unwrap();
    assert_eq!(woken.0.swap(0, Relaxed), 1);
    assert!(caller_gone.as_mut().poll(cx).is_ready() && deferred.is_caller_gone());
}

#[test]
fn caller_gone_is_not_set_before_the_cancel_is_answered() {
    let (mut lab, careful) = lab(Limits::default());
    let id = begin(&mut lab, "defer");
    let waiting = cancel(&mut lab, &id);
    cancel_silently(&mut lab, &id);
    let deferred = careful.0.lock().unwrap().1.pop().unwrap();
    careful.0.lock().unwrap().0[0].status(TaskState::Canceled, None).unwrap();
    // An agent that reads the flag now would refuse a cancel that has succeeded.
    assert!(!deferred.is_caller_gone());
    lab.settle();
    assert_eq!(lab.reply(waiting).json()["result"]["status"]["state"], "TASK_STATE_CANCELED");
    assert!(deferred.is_caller_gone());
}

/// During the first call of `cancel`, lets a second cancel of the task arrive.
#[derive(Default)]
struct Interrupted {
    careful: Careful,
    calls: AtomicUsize,
    meanwhile: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Agent for Interrupted {
    fn start(&self, turn: Turn<'_>) {
        self.careful.start(turn);
    }

    fn cancel(&self, request: CancelRequest<'_>) {
        self.calls.fetch_add(1, Relaxed);
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some((start_sender, done_receiver)) = meanwhile {
            start_sender.send(()).unwrap();
            done_receiver.recv_timeout(PATIENCE).unwrap();
        }
        self.careful.cancel(request);
    }
}

fn pair(agent: &Arc<Interrupted>) -> [Lab; 2] {
    let (profile, agent) = (Profile::new("careful", "Is asked."), Arc::clone(agent));
    Lab::pair(Setup { agents: vec![(profile, agent)], ..Setup::default() })
}

#[test]
fn cancel_during_a_cancel_callback_waits_for_its_decision() {
    for words in ["agree", "refuse", "defer"] {
        let agent = Arc::new(Interrupted::default());
        let [mut lab, mut other] = pair(&agent);
        let id = begin(&mut lab, words);
        let (start_sender, start_receiver) = channel();
        let (done_sender, done_receiver) = channel();
        *agent.meanwhile.lock().unwrap() = Some((start_sender, done_receiver));
        let peers = thread::scope(|scope| {
            let (other, id) = (&mut other, &id);
            let second = scope.spawn(move || {
                start_receiver.recv_timeout(PATIENCE).unwrap();
                let peer = cancel(other, id);
                done_sender.send(()).unwrap();
                peer
            });
            let first = lab.open();
            lab.write(first, &post("/", &[], &rpc("CancelTask", &json!({ "id": id }))));
            [first, second.join().unwrap()]
        });
        assert_eq!(agent.calls.load(Relaxed), 1, "{words}");
        agent.careful.0.lock().unwrap().1.drain(..).for_each(DeferredCancel::agree);
        lab.settle();
        other.settle();
        for answer in [lab.reply(peers[0]).json(), other.reply(peers[1]).json()] {
            match words {
                "refuse" => assert_eq!(answer["error"]["message"], "it has been paid for"),
                _ => assert_eq!(answer["result"]["status"]["state"], "TASK_STATE_CANCELED"),
            }
        }
        assert_eq!(lab.engine.waiting().calls, 0);
        // The agent is called again for the next cancel if the task is still running.
        lab.call("CancelTask", &json!({ "id": id }));
        assert_eq!(agent.calls.load(Relaxed), if words == "refuse" { 2 } else { 1 });
    }
}

#[test]
fn simultaneous_cancels_call_the_agent_once() {
    for words in ["agree", "defer"] {
        let agent = Arc::new(Interrupted::default());
        let mut labs = pair(&agent);
        let ids: Vec<Value> = (0..500).map(|_| begin(&mut labs[0], words)).collect();
        let together = Barrier::new(2);
        let send_cancels = |lab: &mut Lab| -> Vec<Peer> {
            let each = ids.iter().map(|id| {
                let peer = lab.open();
                let request = post("/", &[], &rpc("CancelTask", &json!({ "id": id })));
                together.wait();
                lab.write(peer, &request);
                peer
            });
            each.collect()
        };
        let peers = thread::scope(|scope| {
            let both = labs.each_mut().map(|lab| scope.spawn(|| send_cancels(lab)));
            both.map(|one| one.join().unwrap())
        });
        assert_eq!(agent.calls.load(Relaxed), ids.len(), "{words}");
        agent.careful.0.lock().unwrap().1.drain(..).for_each(DeferredCancel::agree);
        for (lab, peers) in labs.iter_mut().zip(peers) {
            lab.settle();
            for peer in peers {
                let task = lab.reply(peer).json()["result"].take();
                assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED");
            }
        }
    }
}
