//! Connection properties: the scheme of URLs on cards, and the caller's identity.

use std::sync::Arc;

use peregrine::{
    agent::{Agent, Profile, Turn},
    engine::Setup,
    model::{MessageBuf, PartsBuf},
    service::Peer,
};
use serde_json::Value;

use crate::support::{
    Lab,
    ask::{get, post},
};

const SEND: &str = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":
    {"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#;

/// Answers with the caller's identity.
struct IdentityAgent;

impl Agent for IdentityAgent {
    fn start(&self, turn: Turn<'_>) {
        let text = turn.request.identity.unwrap_or("nobody").to_owned();
        turn.reply(MessageBuf::agent(&PartsBuf::new().text(&text)));
    }
}

#[test]
fn agent_receives_the_caller_identity() {
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("tell", "Tells."), Arc::new(IdentityAgent))];
    let mut lab = Lab::new(Setup { agents, ..Setup::default() });
    for (identity, expected) in [(Some("alice"), "alice"), (None, "nobody")] {
        let client = lab.open_to(Peer { is_secure: true, identity, ..Peer::default() });
        lab.write(client, &post("/", &[], SEND));
        let answer: Value = lab.reply(client).json();
        assert_eq!(answer["result"]["message"]["parts"][0]["text"], expected);
    }
}

#[test]
fn card_urls_use_the_scheme_of_the_connection() {
    let mut lab = Lab::new(Setup { extended_card: true, ..Setup::default() });
    let extended = r#"{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}"#;
    // The worker caches cards: the card of one scheme must not be returned for the other.
    for is_secure in [false, true, false, true] {
        let client = lab.open_to(Peer { is_secure, ..Peer::default() });
        lab.write(client, &get("/.well-known/agent-card.json"));
        let public = lab.reply(client).json();
        lab.write(client, &post("/", &[("A2A-Version", "1.0")], extended));
        let extended = lab.reply(client).json();
        let scheme = if is_secure { "https://" } else { "http://" };
        for url in [
            &public["url"],
            &public["supportedInterfaces"][0]["url"],
            &extended["result"]["supportedInterfaces"][0]["url"],
        ] {
            assert!(url.as_str().unwrap().starts_with(scheme), "{url}");
        }
    }
}

#[test]
fn a_public_url_keeps_its_scheme() {
    let public_url = Some("http://a.example/x".to_owned());
    let mut lab = Lab::new(Setup { public_url, ..Setup::default() });
    let client = lab.open_to(Peer { is_secure: true, ..Peer::default() });
    lab.write(client, &get("/.well-known/agent-card.json"));
    assert_eq!(lab.reply(client).json()["url"], "http://a.example/x/");
}
