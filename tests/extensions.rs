//! What a client asks for in `A2A-Extensions` reaches the agent (wire §1.8).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::sync::Arc;

use peregrine::{
    agent::{Agent, Profile, Turn},
    engine::Setup,
    model::{MessageBuf, PartsBuf},
};
use serde_json::Value;
use support::{Lab, ask::post};

/// Says what it was asked for.
struct Tell;

impl Agent for Tell {
    fn start(&self, turn: Turn<'_>) {
        let text = turn.extensions.unwrap_or("none").to_owned();
        turn.reply(MessageBuf::agent("m", &PartsBuf::new().text(&text)));
    }
}

#[test]
fn every_extension_header_is_one_list_for_the_agent() {
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("tell", "Tells."), Arc::new(Tell))];
    let mut lab = Lab::new(Setup { agents, ..Setup::default() });
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":
        {"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#;
    let bare = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#;
    let mut told = |fields: &[(&str, &str)]| -> Value {
        let text = |answer: &Value| answer["message"]["parts"][0]["text"].clone();
        let rpc = lab.ask(&post("/", fields, body)).result();
        let rest = lab.ask(&post("/message:send", fields, bare)).json();
        assert_eq!(text(&rest), text(&rpc));
        text(&rest)
    };
    assert_eq!(told(&[]), "none");
    assert_eq!(told(&[("A2A-Extensions", "https://a")]), "https://a");
    let both = [("A2A-Extensions", "https://a,https://b"), ("X-A2A-Extensions", "https://c")];
    assert_eq!(told(&both), "https://a,https://b,https://c");
}
