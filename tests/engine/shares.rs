//! The share of each caller of tasks that run, streams and bytes, by default and in every way in
//! which a turn can go.

use std::sync::{Arc, Mutex};

use peregrine::{
    agent::{Agent, Deferred, Profile, Turn},
    auth::{Authenticator, Quota, Quotas},
    engine::Setup,
    fault::{Fault, FaultKind},
    limits::Limits,
    model::{MessageBuf, PartsBuf, TaskState},
    service::{self, Remote},
};
use serde_json::json;

use crate::support::{
    Lab, Peer,
    ask::{Say, V1, post, rpc, say},
    callers::ByName,
};

/// Keeps every turn, to go on with it later, or ends it as the message says.
#[derive(Clone, Default)]
struct Keep(Arc<Mutex<Vec<Deferred>>>);

impl Agent for Keep {
    fn start(&self, mut turn: Turn<'_>) {
        match &*turn.message.text() {
            "refuse" => turn.refuse(Fault::because(FaultKind::UnsupportedOperation, "not today")),
            "reply" => turn.reply(MessageBuf::agent(&PartsBuf::new().text("hello"))),
            "done" => turn.status(TaskState::Completed),
            _ => {
                if let Ok(deferred) = turn.defer() {
                    self.0.lock().unwrap().push(deferred);
                }
            }
        }
    }
}

impl Keep {
    fn take(&self) -> Deferred {
        self.0.lock().unwrap().pop().expect("a deferred turn")
    }
}

fn setup(keep: &Keep, quotas: Quotas) -> Setup {
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("keep", "Answers later."), Arc::new(keep.clone()))];
    Setup { agents, quotas, ..Setup::default() }
}

/// Sends a message that was not sent before.
fn send(lab: &mut Lab, peer: Peer, text: &str) {
    let params = V1.params(Say { id: &format!("{text}{peer:?}"), ..say(text) });
    let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
    lab.write(peer, &post("/", &fields, &rpc("SendMessage", &params)));
}

/// Two tasks may run: every way in which a turn ends gives its place back, and none gives two.
fn each_turn_gives_its_place_back(lab: &mut Lab, keep: &Keep, open: impl Fn(&mut Lab) -> Peer) {
    let mut first = open(lab);
    send(lab, first, "wait");
    let ends: [fn(Deferred); 6] = [
        drop,
        |deferred| deferred.reply(MessageBuf::agent(&PartsBuf::new().text("hello"))),
        |deferred| deferred.refuse(Fault::because(FaultKind::UnsupportedOperation, "no")),
        |deferred| deferred.into_job().unwrap().status(TaskState::Completed, None).unwrap(),
        |deferred| deferred.into_job().unwrap().status(TaskState::Failed, None).unwrap(),
        |deferred| {
            let mut job = deferred.into_job().unwrap();
            job.status(TaskState::Working, None).unwrap();
            job.status(TaskState::Completed, None).unwrap();
        },
    ];
    for end in ends {
        for text in ["refuse", "reply", "done"] {
            let peer = open(lab);
            send(lab, peer, text);
            assert_ne!(lab.reply(peer).status, 429, "{text}");
        }
        let second = open(lab);
        send(lab, second, "wait");
        assert!(lab.received(second).is_empty());
        // A place is taken as soon as there is a turn.
        let third = open(lab);
        send(lab, third, "wait");
        let refused = lab.reply(third);
        assert_eq!(refused.status, 429, "{}", refused.text());
        assert!(refused.text().contains("tasks"), "{}", refused.text());
        end(keep.take());
        lab.settle();
        lab.reply(second);
    }
    // Who leaves gives nothing back that its agent still has.
    lab.end(first);
    let second = open(lab);
    send(lab, second, "wait");
    first = open(lab);
    send(lab, first, "wait");
    assert_eq!(lab.reply(first).status, 429);
    drop((keep.take(), keep.take()));
    for _ in 0..2 {
        let peer = open(lab);
        send(lab, peer, "wait");
        assert!(lab.received(peer).is_empty());
    }
}

fn two_tasks() -> Quota {
    Quota { running_tasks: Some(2), ..Quota::default() }
}

#[test]
fn turns_of_a_known_caller_take_its_share() {
    let keep = Keep::default();
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let quotas = Quotas { known: two_tasks(), ..Quotas::default() };
    let mut lab = Lab::new(Setup { authenticator, ..setup(&keep, quotas) });
    each_turn_gives_its_place_back(&mut lab, &keep, Lab::open);
}

#[test]
fn without_quotas_a_caller_has_an_eighth_of_what_there_is() {
    let keep = Keep::default();
    let limits =
        Limits { streams_max: 24, tasks_max: 100, deferred_calls_max: 16, ..Limits::default() };
    let setup = || Setup { limits: limits.clone(), ..setup(&keep, Quotas::default()) };
    let authenticator = || Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let mut lab = Lab::new(Setup { authenticator: authenticator(), ..setup() });
    each_turn_gives_its_place_back(&mut lab, &keep, Lab::open);
    // A quota that says another number holds, and what it does not say is the share.
    let quotas =
        Quotas { known: Quota { running_tasks: Some(9), ..Quota::default() }, ..Quotas::default() };
    let mut lab = Lab::new(Setup { authenticator: authenticator(), quotas, ..setup() });
    for n in 0..4 {
        let peer = lab.open();
        let params = V1.params(Say { id: &n.to_string(), ..say("wait") });
        let fields = [("Authorization", "Bearer alice"), ("A2A-Version", "1.0")];
        lab.write(peer, &post("/", &fields, &rpc("SendStreamingMessage", &params)));
        assert_eq!(lab.received(peer).is_empty(), n < 3, "{n}");
    }
    // Where nobody is known nobody has a share.
    let mut lab = Lab::new(setup());
    for _ in 0..16 {
        let peer = lab.open();
        send(&mut lab, peer, "wait");
        assert!(lab.received(peer).is_empty());
    }
}

#[test]
fn a_batch_is_told_once_which_credentials_are_asked_for() {
    let keep = Keep::default();
    let open = Profile { anonymous: true, ..Profile::new("open", "Anybody's.") };
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![
        (open, Arc::new(keep.clone())),
        (Profile::new("closed", "Not anybody's."), Arc::new(keep.clone())),
    ];
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let mut lab = Lab::new(Setup { agents, authenticator, ..Setup::default() });
    let mut closed = V1.params(say("done"));
    closed["tenant"] = json!("closed");
    let (waits, closed) =
        (rpc("SendMessage", &V1.params(say("wait"))), rpc("SendMessage", &closed));
    let peer = lab.open();
    let body = format!("[{waits},{closed},{closed},{closed}]");
    lab.write(peer, &post("/", &[("A2A-Version", "1.0")], &body));
    drop(keep.take());
    lab.settle();
    let bytes = lab.received(peer).to_ascii_lowercase();
    let head = String::from_utf8_lossy(&bytes);
    assert_eq!(head.matches("www-authenticate").count(), 1, "{head}");
}

/// A connection from this address.
fn from(lab: &mut Lab, address: &str) -> Peer {
    let remote = Remote::Known(address.parse().unwrap());
    lab.open_to(service::Peer { remote, ..service::Peer::default() })
}

#[test]
fn turns_of_strangers_take_the_share_of_their_address() {
    let keep = Keep::default();
    let quotas = Quotas { anonymous: two_tasks(), ..Quotas::default() };
    let mut lab = Lab::new(setup(&keep, quotas));
    each_turn_gives_its_place_back(&mut lab, &keep, |lab| from(lab, "2001:db8::1"));
    // The same network of 64 bits is the same stranger; another is not.
    for (address, is_refused) in [("2001:db8::2", true), ("2001:db8:1::1", false)] {
        let peer = from(&mut lab, address);
        send(&mut lab, peer, "wait");
        assert_eq!(!lab.received(peer).is_empty(), is_refused, "{address}");
    }
}
