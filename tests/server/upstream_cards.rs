//! The cards of a gateway's upstream agents: fetched once, refreshed, verified, and served.

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use peregrine::{client::card::SigningKeys, engine::CardSigner};
use rcgen::{KeyPair, PKCS_ED25519};
use serde_json::{Value, json};

use super::upstream_credentials::{TestFile, configured, send};
use crate::support::{
    ask::get,
    binary::{Binary, eventually},
    by_hand::{ByHand, answer},
};

/// An agent's answer to a request for its card.
#[derive(Default)]
struct CardAnswer {
    /// The whole answer; empty: 503.
    answer: Mutex<String>,
    fetches: AtomicUsize,
}

/// An agent with a card that the test changes, and a message for every call.
struct CardAgent {
    server: ByHand,
    card: Arc<CardAnswer>,
}

impl CardAgent {
    fn new() -> CardAgent {
        let card = Arc::<CardAnswer>::default();
        let shared = Arc::clone(&card);
        let server = ByHand::new(move |request, stream| {
            let answered = match request.head.starts_with("GET ") {
                true => {
                    shared.fetches.fetch_add(1, Relaxed);
                    shared.answer.lock().unwrap().clone()
                }
                false => {
                    let path = request.head.split(' ').nth(1).unwrap();
                    let message = json!({"messageId": "m", "role": "ROLE_AGENT",
                        "parts": [{"text": format!("answer at {path}")}]});
                    let body = json!({"jsonrpc": "2.0", "id": request.body["id"],
                        "result": {"message": message}});
                    answer("200 OK", "application/json", &body.to_string())
                }
            };
            let unavailable = "HTTP/1.1 503 Gone\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            let answered = if answered.is_empty() { unavailable.to_owned() } else { answered };
            stream.write_all(answered.as_bytes()).unwrap();
        });
        CardAgent { server, card }
    }

    fn addr(&self) -> SocketAddr {
        self.server.addr
    }

    /// Its card with this description and the interface at this path.
    fn json(&self, description: &str, path: &str) -> Value {
        json!({"name": "up", "description": description, "version": "1",
            "capabilities": {"streaming": false}, "skills": [],
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "supportedInterfaces": [{"url": format!("http://{}{path}", self.addr()),
                "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]})
    }

    fn publish(&self, card: &Value) {
        let answered = answer("200 OK", "application/json", &card.to_string());
        *self.card.answer.lock().unwrap() = answered;
    }

    /// A gateway to it with these keys of `upstream`.
    fn gateway(&self, test: &str, keys: &str) -> Binary {
        configured(test, &text(self.addr(), keys), &["--workers", "2"])
    }
}

fn text(addr: SocketAddr, keys: &str) -> String {
    format!("[agents.up.upstream]\nurl = \"http://{addr}\"\n{keys}\n")
}

/// The description in the card of a server.
fn description(server: &Binary) -> String {
    card_of(server)["description"].as_str().unwrap().to_owned()
}

/// The card of a server.
fn card_of(server: &Binary) -> Value {
    let mut line = server.connect();
    line.write(&get("/.well-known/agent-card.json"));
    line.reply().json()
}

fn answered(server: &Binary) -> String {
    send(server, &[], "hi").text().to_owned()
}

#[test]
fn upstream_card_is_fetched_once_for_all_workers() {
    let agent = CardAgent::new();
    agent.publish(&agent.json("first", "/a"));
    let gateway = agent.gateway("card-once", "");
    for _ in 0..16 {
        let reply = answered(&gateway);
        assert!(reply.contains("answer at /a"), "{reply}");
    }
    assert_eq!(agent.card.fetches.load(Relaxed), 1);
}

#[test]
fn changed_card_is_used_and_retained_when_refresh_fails() {
    let agent = CardAgent::new();
    agent.publish(&agent.json("first", "/a"));
    let keys = "card_ms = 50";
    let file = TestFile::new("card-changed", &text(agent.addr(), keys));
    let gateway = Binary::start_plain(&["--config", file.path(), "--workers", "2"]);
    assert_eq!(description(&gateway), "first");
    // Each worker has a client of the first card.
    for _ in 0..8 {
        let reply = answered(&gateway);
        assert!(reply.contains("answer at /a"), "{reply}");
    }
    agent.publish(&agent.json("second", "/b"));
    eventually("the new card is served", || description(&gateway) == "second");
    for _ in 0..8 {
        let reply = answered(&gateway);
        assert!(reply.contains("answer at /b"), "{reply}");
    }
    // A card without a usable interface is rejected.
    let mut broken = agent.json("third", "/c");
    broken["supportedInterfaces"][0]["protocolBinding"] = json!("SMTP");
    agent.publish(&broken);
    let more = |after: usize| {
        eventually("it is asked again", || agent.card.fetches.load(Relaxed) > after + 1);
    };
    more(agent.card.fetches.load(Relaxed));
    agent.card.answer.lock().unwrap().clear();
    let before = agent.card.fetches.load(Relaxed);
    more(before);
    let reloaded = format!("[agents.up]\nversion = \"9\"\n{}", text(agent.addr(), keys));
    fs::write(&file.0, reloaded).unwrap();
    gateway.signal("-HUP");
    eventually("the file is read again", || card_of(&gateway)["version"] == "9");
    assert_eq!(description(&gateway), "second");
    let reply = answered(&gateway);
    assert!(reply.contains("answer at /b"), "{reply}");
}

#[test]
fn card_published_after_gateway_start_is_served() {
    let agent = CardAgent::new();
    let gateway = agent.gateway("card-later", "card_ms = 50");
    assert_eq!(description(&gateway), "A remote A2A agent.");
    agent.publish(&agent.json("here", "/a"));
    eventually("the card is served", || description(&gateway) == "here");
    assert!(answered(&gateway).contains("answer at /a"));
}

#[test]
fn card_is_used_only_if_signed_by_a_listed_key() {
    let [own, other] = [(); 2].map(|()| KeyPair::generate_for(&PKCS_ED25519).unwrap());
    let agent = CardAgent::new();
    let mut card = agent.json("signed", "/a");
    let unsigned = card.clone();
    let mut keys = SigningKeys::default();
    keys.add(own.serialize_pem().as_bytes(), Some("own")).unwrap();
    let signatures = keys.sign(card.to_string().as_bytes());
    let signatures = signatures
        .iter()
        .map(|one| json!({"protected": one.protected, "signature": one.signature}));
    card["signatures"] = signatures.collect();
    let file_of = |name: &str, pair: &KeyPair| TestFile::new(name, &pair.public_key_pem());
    let (own, other) = (file_of("card-own.pem", &own), file_of("card-other.pem", &other));
    let key = |file: &TestFile| format!("card_keys = \"{}\"", file.path());
    for (test, card, file, good) in [
        ("card-signed", &card, &own, true),
        ("card-signed-otherwise", &card, &other, false),
        ("card-unsigned", &unsigned, &own, false),
    ] {
        agent.publish(card);
        let gateway = agent.gateway(test, &key(file));
        let reply = answered(&gateway);
        assert_eq!(reply.contains("answer at /a"), good, "{test}: {reply}");
        assert_eq!(description(&gateway) == "signed", good, "{test}");
        if !good {
            assert!(reply.contains("sign"), "{test}: {reply}");
        }
        assert!(card_of(&gateway)["signatures"].is_null(), "{test}");
    }
}

#[test]
fn interface_at_another_origin_is_used_only_if_listed() {
    let (agent, other) = (CardAgent::new(), CardAgent::new());
    let mut card = agent.json("elsewhere", "/a");
    card["supportedInterfaces"] = other.json("", "/there")["supportedInterfaces"].clone();
    agent.publish(&card);
    let reply = answered(&agent.gateway("card-elsewhere", ""));
    assert!(reply.contains("has an origin that is not allowed"), "{reply}");
    assert!(!other.server.has_request());
    let keys = format!("origins = [\"http://{}\"]", other.addr());
    let reply = answered(&agent.gateway("card-listed", &keys));
    assert!(reply.contains("answer at /there"), "{reply}");
    // An interface at another origin, listed in addition to one at the same origin, is skipped.
    let home = agent.json("", "/own")["supportedInterfaces"][0].clone();
    card["supportedInterfaces"].as_array_mut().unwrap().push(home);
    agent.publish(&card);
    let reply = answered(&agent.gateway("card-both", ""));
    assert!(reply.contains("answer at /own"), "{reply}");
}

#[test]
fn a_redirect_of_the_card_is_not_followed() {
    let (agent, other) = (CardAgent::new(), CardAgent::new());
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0\r\n\
         Location: http://{}/card.json\r\n\r\n",
        other.addr()
    );
    *agent.card.answer.lock().unwrap() = redirect;
    let reply = answered(&agent.gateway("card-redirect", ""));
    assert!(reply.contains("the server redirects, and redirects are not followed"), "{reply}");
    assert!(!other.server.has_request());
}
