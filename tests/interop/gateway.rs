//! A relayed agent compared with the agent itself: each client gets the same from both.

use std::{cell::Cell, collections::HashMap, fmt::Write as _, net::TcpListener};

use super::{
    client::{Client, Filter, Target},
    message_spec::{MessageSpec, text_spec},
    model::Numbered,
    place::Endpoint,
    server::Server,
    variants::{OBSERVER, Variant, every_way},
};
use crate::support::binary::Binary;

/// The debug form of a client's results, with a number for each id: the ids of two servers differ,
/// and a message's id may derive from its task's id.
#[derive(Default)]
struct Plain {
    ids: HashMap<String, usize>,
    text: String,
}

impl Plain {
    fn add(&mut self, seen: &impl std::fmt::Debug) {
        let seen = format!("{seen:#?}");
        for piece in seen.split_inclusive('"') {
            let uuid =
                piece.get(..36).filter(|uuid| uuid.bytes().filter(|b| *b == b'-').count() == 4);
            match uuid {
                None => self.text.push_str(piece),
                // The script derives the ids of its messages from its task.
                Some(_) if piece[36..].starts_with('-') => {
                    let _ = write!(self.text, "<message>{}", &piece[36..]);
                }
                Some(uuid) => {
                    let next = self.ids.len();
                    let number = *self.ids.entry(uuid.to_owned()).or_insert(next);
                    let _ = write!(self.text, "<{number}>{}", &piece[36..]);
                }
            }
        }
    }
}

/// A client's results with an agent, calls, streams and refusals, in one text.
fn seen_by(client: &mut Client, label: &str) -> String {
    let mut plain = Plain::default();
    // The same ids on both sides; a 0.1 task is named after its message.
    let next = Cell::new(0);
    let fresh = |text: &str| {
        next.set(next.get() + 1);
        MessageSpec { id: format!("{label}-{}", next.get()), ..text_spec(text) }
    };
    for text in ["done", "ping", "refuse", "fail", "slow", "no such scenario"] {
        if let Ok(answer) = client.send(&fresh(text)) {
            plain.add(&answer);
        }
        let stream: Vec<Numbered> =
            client.stream(&fresh(text)).map(|s| s.rest()).unwrap_or_default();
        plain.add(&stream);
    }
    // In 0.1 a stream does not end at auth-required.
    plain.add(&client.send(&fresh("sign in")));
    // A task that asks, and continues with the next message.
    let paused = client.send(&fresh("ask")).expect("an answer").task();
    plain.add(&paused);
    let stream = client.stream(&fresh("done").to(&paused)).expect("a stream").rest();
    plain.add(&stream);
    let target: Target = client.target(&paused);
    plain.add(&client.get(&target));
    plain.add(&client.cancel(&target).err());
    // A task that runs, is followed and canceled.
    if client.variant.can_return_at_once() {
        let held = client.send(&fresh("hold").at_once()).expect("an answer").task();
        let target = client.target(&held);
        let stream = client.subscribe(&target);
        plain.add(&client.cancel(&target));
        plain.add(&stream.map(|stream| stream.rest()).unwrap_or_default());
    }
    plain.text
}

/// The versions and transports in which an upstream agent is called.
const UPSTREAMS: [(&str, &str); 6] = [
    ("1.0", "jsonrpc"),
    ("1.0", "http+json"),
    ("1.0", "grpc"),
    ("0.3", "jsonrpc"),
    ("0.3", "http+json"),
    ("0.3", "grpc"),
];

/// Compares clients' results with an agent and through a gateway.
fn compare(upstreams: &[(&str, &str)], clients: impl Iterator<Item = Variant> + Clone) {
    let upstream = Server::start();
    for (version, transport) in upstreams {
        let gateway = Server::relaying(&upstream, version, transport);
        for variant in clients.clone() {
            let label = format!("{version}-{transport}-{variant:?}");
            let direct = seen_by(&mut upstream.client(variant), &label);
            let relayed = seen_by(&mut gateway.client(variant), &label);
            let differs = direct.lines().zip(relayed.lines()).position(|(one, other)| one != other);
            let around = |text: &str, at: usize| {
                text.lines().skip(at.saturating_sub(12)).take(24).collect::<Vec<_>>().join("\n")
            };
            if let Some(at) = differs {
                let (direct, relayed) = (around(&direct, at), around(&relayed, at));
                panic!("{label}\ndirect:\n{direct}\nrelayed:\n{relayed}");
            }
            assert_eq!(direct.lines().count(), relayed.lines().count(), "{label}");
        }
    }
}

#[test]
fn every_client_sees_a_relayed_agent_unchanged() {
    compare(&UPSTREAMS[..1], every_way());
}

#[test]
fn an_agent_is_relayed_over_each_of_its_interfaces() {
    compare(&UPSTREAMS[1..], std::iter::once(OBSERVER));
}

#[test]
#[ignore = "a minute; the nightly run has it"]
fn every_client_sees_no_change_over_any_upstream_interface() {
    compare(&UPSTREAMS[1..], every_way());
}

/// An address on which no server listens, and the flag that names an agent there.
fn unused_address() -> [String; 2] {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    [address.to_string(), format!("a2a:http://{address}")]
}

/// A server with these flags, for other agents than the scenarios' own.
fn started(flags: &[&str]) -> Server {
    let binary = Binary::start(&[&["--no-push"], flags].concat());
    let endpoint = Endpoint { addr: binary.addr(), trust: None, authority: None };
    Server { binary, endpoint }
}

#[test]
fn an_agent_that_calls_itself_is_refused_at_hops_max() {
    let [at, agent] = unused_address();
    let server = started(&["--listen", &at, "--agent", &agent, "--limit", "hops_max=4"]);
    let fault = server.observer().send(&text_spec("again")).unwrap_err();
    assert_eq!(fault.reason.as_deref(), Some("LOOP_DETECTED"), "{fault:?}");
    assert!(server.observer().list(&Filter::default()).unwrap().tasks.is_empty());
}

#[test]
fn an_unreachable_upstream_is_tried_again_at_the_next_message() {
    let [at, agent] = unused_address();
    let gateway = started(&["--agent", &agent]);
    let fault = gateway.observer().send(&text_spec("done")).unwrap_err();
    assert!(fault.message.starts_with("the upstream agent cannot be reached"), "{fault:?}");
    let script = concat!("script:", env!("CARGO_MANIFEST_DIR"), "/tests/data/interop.toml");
    let _upstream = Binary::start(&["--no-push", "--listen", &at, "--agent", script]);
    let task = gateway.observer().send(&text_spec("done")).expect("an answer").task();
    assert_eq!(task.state, "completed");
}

#[test]
fn a_cancel_reaches_the_upstream_task() {
    let upstream = Server::start();
    let gateway = Server::relaying(&upstream, "1.0", "jsonrpc");
    let mut client = gateway.observer();
    let held = client.send(&text_spec("hold").at_once()).expect("an answer").task();
    let running = Filter { state: Some("working"), ..Filter::default() };
    assert_eq!(upstream.observer().list(&running).unwrap().tasks.len(), 1);
    let target = client.target(&held);
    assert_eq!(client.cancel(&target).expect("a task").state, "canceled");
    assert!(upstream.observer().list(&running).unwrap().tasks.is_empty());
}

#[test]
fn messages_to_a_relayed_task_do_not_duplicate_its_chunks() {
    let upstream = Server::start();
    let gateway = Server::relaying(&upstream, "1.0", "jsonrpc");
    let mut client = gateway.observer();
    let held = client.send(&text_spec("hold").at_once()).expect("an answer").task();
    for text in ["chunk", "chunk more", "chunk last"] {
        client.send(&text_spec(text).to(&held).at_once()).expect("an answer");
    }
    let ended = client.send(&text_spec("end").to(&held)).expect("an answer").task();
    assert_eq!((ended.state.as_str(), ended.artifacts.len()), ("completed", 1));
    assert_eq!(ended.artifacts[0].parts.len(), 3, "{:?}", ended.artifacts);
}

#[test]
fn an_upstream_without_streams_is_polled_until_its_task_ends() {
    let upstream = Server::with(&["--no-streaming"]);
    let gateway = Server::relaying(&upstream, "1.0", "jsonrpc");
    let mut client = gateway.observer();
    for (text, artifacts) in [("done", 2), ("slow", 1)] {
        let task = client.send(&text_spec(text)).expect("an answer").task();
        assert_eq!((task.state.as_str(), task.artifacts.len()), ("completed", artifacts), "{text}");
    }
    let paused = client.send(&text_spec("ask")).expect("an answer").task();
    assert_eq!(paused.state, "input-required");
    let task = client.send(&text_spec("done").to(&paused)).expect("an answer").task();
    assert_eq!((task.state.as_str(), task.artifacts.len()), ("completed", 2));
    assert_eq!(task.shows(), ["ask", "What next?", "done"]);
}
