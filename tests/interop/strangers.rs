//! Anonymous requests: which parts of them the server reads, and credentials that TLS and browser
//! pages send instead of a header field.

use std::{
    io::{Read, Write},
    sync::Arc,
};

use super::{
    access::{Attempt, Door, doors, tasks},
    client::{Call, Fault, Op},
    credentials::{Credential, Guarded, Kind, token},
    exchange::Approach,
    jsonrpc::request,
    model::V1,
    place::Endpoint,
    variants::Binding,
};
use crate::support::{binary::Line, reply::Reply, ws};

#[test]
fn bytes_after_an_anonymous_request_are_not_read() {
    let guarded = Guarded::start("access-behind");
    let fields = |credential: Credential| -> String {
        let (_, approach) = guarded.caller(Kind::Key, credential).expect("a caller");
        let line = |(name, value): (&str, String)| format!("{name}: {value}\r\n");
        approach.fields.into_iter().map(line).collect()
    };
    let mut tried = 0;
    for door in doors() {
        let path = match (door.variant.binding, door.variant.generation) {
            (Binding::JsonRpc, _) => "",
            (Binding::Rest, V1) => "/message:send",
            (Binding::Rest, _) => "/v1/message:send",
            (Binding::WebSocket | Binding::Grpc, _) => continue,
        };
        let call = Call::new(Op::Send, door.params("behind"));
        let body = match door.variant.binding {
            Binding::Rest => call.params,
            _ => request(1, &call, door.variant.generation),
        };
        let approach = door.approach(&Approach::default());
        let head = |credential: Credential, more: &str| {
            format!(
                "POST {}{path} HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\
                 Content-Type: application/json\r\n{}{more}\r\n",
                if approach.path.is_empty() && path.is_empty() { "/" } else { &approach.path },
                fields(credential),
            )
        };
        let length = format!("Content-Length: {}\r\n", body.to_string().len());
        // An authenticated request is served; so would be a second one, if the server read it.
        let right = format!("{}{body}", head(Credential::Right, &length));
        let mut line = guarded.plain.binary.connect();
        line.write(right.as_bytes());
        assert_eq!(line.reply().status, 200, "{door:?}");
        let before = tasks(&guarded, Kind::Key, Credential::Right);
        for stranger in [
            format!("{}{body}", head(Credential::Absent, &length)),
            // Its body never comes: the next request follows directly.
            head(Credential::Absent, &length),
            format!("{}5\r\n", head(Credential::Absent, "Transfer-Encoding: chunked\r\n")),
            head(Credential::Absent, &format!("Expect: 100-continue\r\n{length}")),
        ] {
            let mut line = guarded.plain.binary.connect();
            line.write(format!("{stranger}{right}").as_bytes());
            let replies = Reply::parse_all(&line.read_to_end(), true);
            let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
            assert_eq!(statuses, [401], "{door:?} {stranger}");
        }
        assert_eq!(tasks(&guarded, Kind::Key, Credential::Right), before, "{door:?}");
        tried += 1;
    }
    assert!(tried > 10, "{tried}");
}

#[test]
fn untrusted_client_certificate_gets_no_answer() {
    let guarded = Guarded::start("access-foreign");
    for (config, is_trusted) in guarded.certificates() {
        let endpoint =
            Endpoint { trust: Some(Arc::new(config)), ..guarded.secure.endpoint.clone() };
        let mut line = Line::over(endpoint.dial());
        // TLS 1.3 lets a client end its handshake before the server verifies its certificate.
        let card = "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let sent = line.stream.write_all(card.as_bytes()).is_ok();
        let mut first = [0; 12];
        let is_answered = sent && line.stream.read_exact(&mut first).is_ok();
        assert_eq!(is_answered, is_trusted);
    }
}

#[test]
fn websocket_subprotocol_can_carry_the_bearer_token() {
    let guarded = Guarded::start("access-page");
    let upgrade = |token: &str| {
        let (_, approach) =
            guarded.caller(Kind::Key, Credential::Absent).expect("an anonymous caller");
        let (_, from) = &approach.fields[0];
        let lines = format!(
            "X-Forwarded-For: {from}\r\nSec-WebSocket-Protocol: a2a, a2a.bearer.{token}\r\n"
        );
        let mut line = guarded.plain.binary.connect();
        line.write(&ws::upgrade("/", &lines));
        line.read_until("\r\n\r\n");
        String::from_utf8(line.take()).expect("a head")
    };
    let jwt = |lives_s| token("page", "a2a:read", &[], lives_s);
    for (token, is_right) in [
        ("token-of-caller-right", true),
        ("token-of-caller-wrong", false),
        ("token-of-caller-late", false),
        (&jwt(60), true),
        (&jwt(-61), false),
    ] {
        let head = upgrade(token);
        let status = if is_right { "HTTP/1.1 101 " } else { "HTTP/1.1 401 " };
        assert!(head.starts_with(status) && !head.contains(token), "{head}");
        assert!(!is_right || head.contains("\r\nSec-WebSocket-Protocol: a2a\r\n"), "{head}");
    }
}

#[test]
fn valid_keys_pass_at_every_endpoint_after_wrong_keys() {
    let guarded = Guarded::start("access-often");
    let (endpoint, valid) = guarded.caller(Kind::Key, Credential::Right).expect("a caller");
    let from = |key: Option<&str>| {
        let key = key.map(|key| ("X-API-Key", key.to_owned()));
        let address = ("X-Forwarded-For", "192.0.2.7".to_owned());
        Approach::with(&key.into_iter().chain([address]).collect::<Vec<_>>())
    };
    let all = doors();
    let send = |door: Door, approach: &Approach| {
        door.call(&endpoint, approach, Call::new(Op::Send, door.params("often")), "")
    };
    send(all[0], &valid).answer.expect("a caller authenticated elsewhere");
    for number in 0..10 {
        let wrong = from(Some(&format!("wrong-{number}")));
        assert_eq!(send(all[0], &wrong).reply.status, 401);
    }
    let mut tried = Vec::new();
    for door in all {
        // The delay after a wrong key applies to its connection, for every binding.
        let over = (door.variant.binding, door.variant.carrier);
        if !tried.contains(&over) {
            tried.push(over);
            let Attempt { answer, reply } = send(door, &from(Some("wrong")));
            answer.expect_err("a wrong key");
            match door.variant.binding {
                Binding::Grpc => assert_eq!(reply.field("grpc-status"), Some("16"), "{door:?}"),
                _ => assert_eq!(reply.status, 401, "{door:?}"),
            }
            assert!(reply.field("www-authenticate").is_some(), "{door:?}");
        }
        // A key that was not presented before, and one that was.
        for key in ["key-of-caller-reader", "key-of-caller-right"] {
            let answer = send(door, &from(Some(key))).answer;
            let is_reader = key.ends_with("reader");
            let forbidden = |fault: &Fault| fault.http.is_none_or(|status| status == 403);
            match answer {
                Ok(_) => assert!(!is_reader, "{door:?}"),
                Err(fault) => assert!(is_reader && forbidden(&fault), "{door:?} {fault:?}"),
            }
        }
        let fault = send(door, &from(None)).answer.expect_err("no key");
        assert!(fault.http.is_none_or(|status| status == 401), "{door:?} {fault:?}");
    }
}
