//! `--endpoint`: an interface that is called without a card.

use serde_json::json;

use crate::{
    agent::echo,
    fake::{Fake, ok},
    run::User,
};

/// An agent that answers every call with a message, and has no card.
fn cardless() -> Fake {
    Fake::start(|request, _, _| match request.rpc() {
        "" => ok("text/plain", "no card"),
        _ => request.result(&json!({ "message": {
            "messageId": "m-1", "role": "ROLE_AGENT", "parts": [{ "text": "hello" }],
        } })),
    })
}

#[test]
fn every_transport_is_called_without_a_card() {
    let (_server, url) = echo(&["--interfaces", "jsonrpc,http+json,grpc,websocket"]);
    for transport in ["jsonrpc", "http+json", "grpc", "websocket"] {
        let user = User::new();
        let output = user.ok(&["send", "-e", &url, "--transport", transport, "hello"]);
        assert!(output.out.contains("hello"), "{transport}: {}", output.out);
        let output = user.ok(&["task", "list", "--endpoint", &url, "--transport", transport]);
        assert!(output.out.contains("COMPLETED"), "{transport}: {}", output.out);
    }
}

#[test]
fn an_endpoint_gets_no_request_for_a_card() {
    let fake = cardless();
    User::of("http://other.example").ok(&["send", "-e", &fake.url, "--transport", "jsonrpc", "x"]);
    assert!(fake.requests().iter().all(|request| request.method == "POST"));
}

#[test]
fn endpoint_credentials_use_the_default_fields() {
    let fake = cardless();
    let user = User::new();
    let send = ["send", "-e", &fake.url, "--transport", "jsonrpc", "x"];
    for (flags, field, value) in [
        (["--bearer", "t-1"], "authorization", "Bearer t-1"),
        (["--basic", "me:pass"], "authorization", "Basic bWU6cGFzcw=="),
        (["--api-key", "k-1"], "x-api-key", "k-1"),
    ] {
        user.ok(&[&send[..], &flags].concat());
        assert_eq!(fake.requests().last().unwrap().field(field), Some(value));
    }
}

#[test]
fn endpoint_needs_one_transport_and_no_other_agent() {
    let user = User::new();
    for words in [
        &["send", "-e", "http://127.0.0.1:9", "x"][..],
        &["send", "-e", "http://127.0.0.1:9", "--transport", "grpc", "--transport", "jsonrpc", "x"],
        &["send", "-e", "127.0.0.1:9", "--transport", "jsonrpc", "x"],
        &["send", "-e", "http://127.0.0.1:9", "--transport", "jsonrpc", "-a", "h.example", "x"],
        &["send", "-e", "http://127.0.0.1:9", "--transport", "jsonrpc", "h.example", "x"],
        &["card", "get", "-e", "http://127.0.0.1:9", "--transport", "jsonrpc"],
    ] {
        let output = user.run(words);
        assert_eq!(output.code, Some(2), "{words:?}: {}", output.err);
        assert!(["endpoint", "-e"].iter().any(|name| output.err.contains(name)), "{words:?}");
    }
}
