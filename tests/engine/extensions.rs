//! Extensions that a client requests in `A2A-Extensions` reach the agent (wire §1.8), and an
//! agent's required extensions are enforced (A2A 1.0 §3.3.4).

use std::sync::Arc;

use peregrine::{
    agent::{Agent, Extension, Profile, Turn, echo::Echo, script::Script},
    auth::Authenticator,
    engine::Setup,
    model::{Idempotency, MessageBuf, PartsBuf},
};
use serde_json::{Value, json};

use crate::support::{
    Lab,
    ask::{get, get_with, post, rpc},
    callers::ByName,
    echo,
    reply::Reply,
};

/// An agent that requires the extension of this URI.
fn requiring() -> (Lab, &'static str) {
    let script = Script::parse(include_str!("../data/conformance-1.0-extension.toml")).unwrap();
    let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(script.profile().clone(), Arc::new(script))];
    (Lab::new(Setup { agents, ..Setup::default() }), "urn:a2a:tck:required-extension")
}

/// Answers with the requested extensions.
struct ExtensionsAgent;

impl Agent for ExtensionsAgent {
    fn start(&self, turn: Turn<'_>) {
        let text = turn.request.extensions.unwrap_or("none").to_owned();
        turn.reply(MessageBuf::agent(&PartsBuf::new().text(&text)));
    }
}

#[test]
fn extension_headers_are_joined_for_the_agent() {
    let agents: Vec<(Profile, Arc<dyn Agent>)> =
        vec![(Profile::new("tell", "Tells."), Arc::new(ExtensionsAgent))];
    let mut lab = Lab::new(Setup { agents, ..Setup::default() });
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":
        {"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#;
    let bare = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#;
    let mut received = |fields: &[(&str, &str)]| -> Value {
        let text = |answer: &Value| answer["message"]["parts"][0]["text"].clone();
        let rpc = lab.ask(&post("/", fields, body)).result();
        let rest = lab.ask(&post("/message:send", fields, bare)).json();
        assert_eq!(text(&rest), text(&rpc));
        text(&rest)
    };
    assert_eq!(received(&[]), "none");
    assert_eq!(received(&[("A2A-Extensions", "https://a")]), "https://a");
    let both = [("A2A-Extensions", "https://a,https://b"), ("X-A2A-Extensions", "https://c")];
    assert_eq!(received(&both), "https://a,https://b,https://c");
}

#[test]
fn response_lists_server_extensions_active_for_the_caller() {
    const POLL: &str = Extension::LONG_POLL;
    const ONCE: &str = Extension::IDEMPOTENT_SEND;
    let requested = format!("{ONCE}, urn:nobody:1, {POLL}");
    let named = |lab: &mut Lab, token: &str| {
        let fields =
            [("Authorization", token), ("A2A-Extensions", &requested), ("A2A-Version", "1.0")];
        let body = rpc("ListTasks", &json!({}));
        let reply = lab.ask(&post("/", &fields, &body));
        assert_eq!(reply.status, 200);
        reply.field("a2a-extensions").map(str::to_owned)
    };
    let mut open = Lab::echo();
    assert_eq!(named(&mut open, "Bearer alice").as_deref(), Some(POLL), "the caller is anonymous");
    let everybody = Setup { idempotency: Idempotency::Everybody, ..Setup::default() };
    let mut lab = Lab::new(Setup { agents: vec![echo()], ..everybody });
    let both = format!("{ONCE}, {POLL}");
    assert_eq!(named(&mut lab, "Bearer alice").as_deref(), Some(&*both));
    let authenticator = Some(Arc::new(ByName::default()) as Arc<dyn Authenticator>);
    let mut authenticated =
        Lab::new(Setup { agents: vec![echo()], authenticator, ..Setup::default() });
    assert_eq!(named(&mut authenticated, "Bearer alice").as_deref(), Some(&*both));
}

#[test]
fn call_without_a_required_extension_is_rejected() {
    let (mut lab, uri) = requiring();
    let card = lab.ask(&get("/.well-known/agent-card.json")).json();
    let listed = &card["capabilities"]["extensions"][0];
    assert_eq!((&listed["uri"], &listed["required"]), (&Value::from(uri), &Value::from(true)));
    let bare = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#;
    let rpc = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{bare}}}"#);
    for named in ["", "urn:a2a:tck:required-extension-2", "urn:other,urn:a2a:tck"] {
        let fields = [("A2A-Extensions", named)];
        let reply = lab.ask(&post("/", &fields, &rpc));
        assert_eq!(reply.code(), -32008, "{named}");
        let reply = lab.ask(&post("/message:send", &fields, bare));
        assert_eq!(reply.status, 400, "{named}");
        let error = &reply.json()["error"];
        assert_eq!(error["status"], "FAILED_PRECONDITION");
        assert_eq!(error["details"][0]["reason"], "EXTENSION_SUPPORT_REQUIRED");
    }
    for (field, named) in
        [("A2A-Extensions", format!("urn:other, {uri}")), ("X-A2A-Extensions", uri.to_owned())]
    {
        let task = lab.ask(&post("/", &[(field, &named)], &rpc)).result();
        assert_eq!(task["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    }
    let old = r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":
        {"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}}}"#;
    assert_eq!(lab.ask(&post("/", &[], old)).code(), -32008);
}

/// Wire §1.8: exactly the active extensions are echoed.
#[test]
fn activated_extensions_are_named_in_the_answer() {
    let (mut lab, uri) = requiring();
    let all = format!("urn:x, {uri},{uri}");
    let message = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}"#;
    let rpc = |method: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{message}}}"#)
    };
    for (path, body) in [
        ("/", rpc("SendMessage")),
        ("/", rpc("SendStreamingMessage")),
        ("/", rpc("GetTask")),
        ("/message:send", message.to_owned()),
        ("/message:stream", message.to_owned()),
    ] {
        let mut activated = |fields: &[(&str, &str)]| {
            let fields = [&[("A2A-Version", "1.0")], fields].concat();
            let reply = lab.ask(&post(path, &fields, &body));
            let named = |name| reply.field(name).map(str::to_owned);
            (named("a2a-extensions"), named("x-a2a-extensions"))
        };
        let uri = || Some(uri.to_owned());
        assert_eq!(activated(&[("A2A-Extensions", &all)]), (uri(), None), "{path} {body}");
        assert_eq!(activated(&[("X-A2A-Extensions", &all)]), (None, uri()), "{path} {body}");
        let both = [("A2A-Extensions", "urn:x"), ("X-A2A-Extensions", &all)];
        assert_eq!(activated(&both), (None, uri()), "{path} {body}");
        assert_eq!(activated(&[("A2A-Extensions", "urn:x")]), (None, None), "{path} {body}");
        assert_eq!(activated(&[]), (None, None), "{path} {body}");
    }
    // A card request is not a call.
    let card = get_with("/.well-known/agent-card.json", &format!("A2A-Extensions: {uri}\r\n"));
    assert_eq!(lab.ask(&card).field("a2a-extensions"), None);
}

#[test]
fn deferred_response_lists_activated_extensions() {
    let extension = Extension { uri: "urn:x".to_owned(), ..Extension::default() };
    let profile = Profile { extensions: vec![extension], ..Profile::new("echo", "Echoes.") };
    let mut lab = Lab::new(Setup { agents: vec![(profile, Arc::new(Echo))], ..Setup::default() });
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":
        {"messageId":"m","role":"ROLE_USER","parts":[{"text":"hold:500:2"}]}}}"#;
    let peer = lab.open();
    lab.write(peer, &post("/", &[("A2A-Extensions", "urn:x,urn:y")], body));
    assert!(lab.received(peer).is_empty());
    lab.pass(1_000);
    let reply = Reply::parse_all(lab.received(peer), false).remove(0);
    assert_eq!((reply.status, reply.field("a2a-extensions")), (200, Some("urn:x")));
}
