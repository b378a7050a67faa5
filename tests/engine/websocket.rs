//! JSON-RPC over WebSocket: the handshake, many calls on one connection, streams and their event
//! ids, pings, and each way in which a connection ends.

use std::sync::Arc;

use peregrine::{
    agent::{Agent, Profile, Turn},
    engine::{Mount, Next, Setup},
    model::{ArtifactBuf, PartsBuf, TaskState},
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{Gen, OutgoingMessage, V1, V03, post, rpc, rpc_id, say},
    ws::{Sent, frame, frames, text, upgrade},
};

fn send_id(id: &str, words: &str) -> String {
    rpc_id(id, "SendMessage", &V1.params(say(words)))
}

fn stream_id(id: &str, words: &str) -> String {
    rpc_id(id, "SendStreamingMessage", &V1.params(say(words)))
}

/// Asserts that the last frame of the connection is a close with this code.
fn assert_closed(lab: &mut Lab, peer: Peer, code: u16) -> Vec<Sent> {
    let mut sent = lab.frames(peer);
    let last = sent.pop().expect("a close frame");
    assert_eq!((last.close_code(), lab.next(peer)), (code, Next::Close), "{last:?}");
    assert!(lab.received(peer).is_empty());
    lab.write(peer, &text(&send_id("9", "more")));
    assert!(lab.received(peer).is_empty(), "nothing behind a close frame is read");
    lab.assert_lives();
    sent
}

// --- The handshake

#[test]
fn rfc6455_4_2_2_upgrade_gets_101_with_accept_key() {
    let mut lab = Lab::echo();
    for target in ["/", "/agents/echo", "/agents/echo/", "/tenants/acme", "/?x=1"] {
        let peer = lab.open();
        lab.write(peer, &upgrade(target, "Sec-WebSocket-Protocol: other, a2a\r\n"));
        let head = String::from_utf8(lab.take(peer)).unwrap();
        let (status, fields) = head.split_once("\r\n").unwrap();
        assert_eq!(status, "HTTP/1.1 101 Switching Protocols", "{target}");
        for line in [
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
            "Sec-WebSocket-Protocol: a2a",
        ] {
            assert_eq!(fields.lines().filter(|found| *found == line).count(), 1, "{head}");
        }
        assert!(!fields.contains("Content-Length") && head.ends_with("\r\n\r\n"));
        let answers = lab.say(peer, &send_id("1", "hello"));
        assert!(answers[0].to_string().contains("hello"), "{target}: {answers:?}");
    }
    let peer = lab.open();
    lab.write(peer, &upgrade("/", "Sec-WebSocket-Protocol: other\r\n"));
    assert!(!String::from_utf8(lab.take(peer)).unwrap().contains("Protocol:"));
}

#[test]
fn rfc6455_4_2_1_invalid_handshake_is_rejected() {
    let whole = String::from_utf8(upgrade("/", "")).unwrap();
    let cases: &[(&str, &str, u16)] = &[
        ("Connection: Upgrade\r\n", "Connection: keep-alive\r\n", 400),
        ("Sec-WebSocket-Version: 13\r\n", "", 426),
        ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8", 426),
        (
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Version: 13",
            426,
        ),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZWE=", 400),
        (
            "Sec-WebSocket-Key:",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key:",
            400,
        ),
        ("Upgrade: websocket", "Content-Length: 2\r\nUpgrade: websocket", 400),
        ("Upgrade: websocket", "Origin: https://evil.example\r\nUpgrade: websocket", 403),
        // RFC 9110 §7.8: an upgrade to another protocol, or over HTTP/1.0, is ignored.
        ("Upgrade: websocket", "Upgrade: h2c", 405),
        ("HTTP/1.1", "HTTP/1.0", 405),
        ("GET / ", "HEAD / ", 405),
        ("GET / ", "GET /nowhere ", 404),
        ("GET / ", "GET /agents/nobody ", 404),
    ];
    let mut lab = Lab::echo();
    for (from, to, status) in cases {
        let mut request = whole.replacen(from, to, 1).into_bytes();
        assert_ne!(request, whole.as_bytes(), "{from}");
        if to.contains("Content-Length") {
            request.extend_from_slice(b"{}");
        }
        let peer = lab.open();
        lab.write(peer, &request);
        let reply = if to.starts_with("HEAD") { lab.head_reply(peer) } else { lab.reply(peer) };
        assert_eq!(reply.status, *status, "{to}: {}", reply.text());
        if *status == 426 {
            assert_eq!(reply.field("sec-websocket-version"), Some("13"));
            assert_eq!(reply.field("upgrade"), Some("websocket"));
        }
        if matches!(status, 400 | 403 | 426) {
            assert_eq!(reply.code(), -32600);
            // The connection still serves HTTP, and may upgrade later.
            lab.write(peer, &upgrade("/", ""));
            assert!(lab.take(peer).starts_with(b"HTTP/1.1 101 "), "{to}");
        }
    }
    // A POST that names the protocol is a POST.
    let lines = [("Upgrade", "websocket"), ("Connection", "Upgrade")];
    let reply = lab.ask(&post("/", &lines, &send_id("1", "hi")));
    assert_eq!(reply.status, 200);
}

#[test]
fn rfc6455_10_2_unlisted_origin_is_rejected() {
    let status = |lab: &mut Lab, lines: &str| {
        let peer = lab.open();
        lab.write(peer, &upgrade("/", lines));
        String::from_utf8(lab.take(peer)).unwrap()[9..12].parse::<u16>().unwrap()
    };
    let mut configured = Lab::new(Setup {
        ws_origins: vec!["https://app.example:8443".to_owned()],
        public_url: Some("https://public.example/a2a".to_owned()),
        allow_hosts: vec!["a.example".to_owned()],
        ..Setup::default()
    });
    for (lines, expected) in [
        ("", 101),
        ("Origin: http://a.example\r\n", 101),
        ("Origin: https://A.EXAMPLE\r\n", 101),
        ("Origin: https://public.example\r\n", 101),
        ("Origin: https://app.example:8443\r\n", 101),
        ("Origin: https://app.example\r\n", 403),
        ("Origin: http://app.example:8443\r\n", 403),
        ("Origin: http://a.example.evil\r\n", 403),
        ("Origin: http://a.example:81\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Origin: a.example\r\n", 403),
        ("Origin:\r\n", 403),
        ("Origin: http://a.example\r\nOrigin: http://a.example\r\n", 400),
    ] {
        assert_eq!(status(&mut configured, lines), expected, "{lines}");
    }
    let any = vec!["*".to_owned()];
    let mut any = Lab::new(Setup { ws_origins: any, ..Setup::default() });
    assert_eq!(status(&mut any, "Origin: null\r\n"), 101);
    assert_eq!(status(&mut any, "Origin: https://evil.example\r\n"), 101);
    let wrong = Setup { ws_origins: vec!["app.example".to_owned()], ..Setup::default() };
    assert!(wrong.check().unwrap_err().to_string().contains("agent"));
    let wrong = Setup { agents: vec![crate::support::echo()], ..wrong };
    assert!(wrong.check().unwrap_err().to_string().contains("the origin \"app.example\""));
}

#[test]
fn messages_sent_with_the_upgrade_are_answered() {
    let mut lab = Lab::echo();
    let peer = lab.open();
    let both = [upgrade("/", ""), text(&send_id("1", "a")), text(&send_id("2", "b"))].concat();
    lab.write(peer, &both);
    let received = lab.take(peer);
    let end = received.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let (sent, used) = frames(&received[end..]);
    assert_eq!((sent.len(), used), (2, received.len() - end));
    assert_eq!((&sent[0].json()["id"], &sent[1].json()["id"]), (&json!(1), &json!(2)));
}

// --- Calls

#[test]
fn websocket_answer_equals_the_post_answer() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "");
    for generation in Gen::ALL {
        let made = lab.say(peer, &rpc("x", &Value::Null));
        assert_eq!(made[0]["error"]["code"], -32601);
        let params = generation.params(say("hello"));
        let answers = lab.say(peer, &rpc(generation.send(), &params));
        let id = generation.task(&answers[0]["result"])["id"].clone();
        let get = rpc_id("\"g\\u0065t\"", generation.get(), &json!({ "id": id }));
        let reply = lab.ask(&post("/", &[], &get));
        lab.write(peer, &text(&get));
        assert_eq!(lab.frames(peer), [Sent::Text(reply.text().to_owned())], "byte for byte");
    }
}

#[test]
fn invalid_message_gets_an_error_and_keeps_the_connection() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "");
    for (message, code) in [
        ("", -32700),
        ("{", -32700),
        ("[]", -32600),
        ("1", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"none"}}"#, -32001),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[1]}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#, -32600),
    ] {
        let answers = lab.say(peer, message);
        assert_eq!((answers.len(), &answers[0]["error"]["code"]), (1, &json!(code)), "{message}");
    }
    assert!(lab.say(peer, &send_id("1", "hi"))[0].get("result").is_some());
}

#[test]
fn batch_is_answered_in_one_message() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "");
    let batch = format!("[{},{}]", send_id("1", "a"), send_id("2", "hold:500:1"));
    assert_eq!(lab.say(peer, &batch), [Value::Null; 0]);
    // It does not delay later messages.
    assert_eq!(lab.say(peer, &send_id("3", "b"))[0]["id"], 3);
    lab.pass(500);
    let sent = lab.frames(peer);
    assert_eq!(sent.len(), 1);
    let ids: Vec<_> = sent[0].json().as_array().unwrap().iter().map(|a| a["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(2)]);
    // Only notifications: no answer.
    let notifications = r#"[{"jsonrpc":"2.0","method":"GetTask","params":{"id":"x"}}]"#;
    assert_eq!(lab.say(peer, notifications), [Value::Null; 0]);
    let streamed = lab.say(peer, &format!("[{}]", stream_id("4", "stream:3")));
    assert_eq!(streamed[0][0]["error"]["code"], -32600);
}

#[test]
fn calls_are_answered_as_they_finish() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "");
    let calls = [("1", "hold:900:1"), ("2", "hold:300:1"), ("3", "now"), ("4", "hold:600:1")];
    let calls: Vec<u8> = calls.iter().flat_map(|(id, words)| text(&send_id(id, words))).collect();
    lab.write(peer, &calls);
    let mut order = Vec::new();
    for _ in 0..10 {
        order.extend(lab.frames(peer).iter().map(|sent| sent.json()["id"].as_u64().unwrap()));
        lab.pass(100);
    }
    assert_eq!(order, [3, 2, 4, 1]);
    assert_eq!(lab.engine.running(), 0);
}

#[test]
fn upgrade_request_fields_apply_to_every_message() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "A2A-Version: 99.0\r\n");
    for _ in 0..2 {
        assert_eq!(lab.say(peer, &send_id("1", "hi"))[0]["error"]["code"], -32009);
    }
    let peer = lab.socket("/?A2A-Version=99.0", "");
    assert_eq!(lab.say(peer, &send_id("1", "hi"))[0]["error"]["code"], -32009);
    let mut strict = Lab::new(Setup { strict_version: true, ..Setup::default() });
    let peer = strict.socket("/", "");
    assert_eq!(strict.say(peer, &send_id("1", "hi"))[0]["error"]["code"], -32009);
    let peer = strict.socket("/", "A2A-Version: 1.0\r\n");
    assert!(strict.say(peer, &send_id("1", "hi"))[0].get("result").is_some());
    // With --strict a message needs its id as well.
    let mut strict = Lab::new(Setup { strict: true, ..Setup::default() });
    let peer = strict.socket("/", "A2A-Version: 1.0\r\n");
    assert!(strict.say(peer, &send_id("1", "hi"))[0].get("result").is_some());
    let bare = json!({"message": {"role": "ROLE_USER", "parts": [{"text": "hi"}]}});
    assert_eq!(strict.say(peer, &rpc("SendMessage", &bare))[0]["error"]["code"], -32602);
    // The extended card names the host and the path of the upgrade request.
    let mut lab = Lab::new(Setup { extended_card: true, ..Setup::default() });
    let peer = lab.socket("/agents/echo/", "");
    let card = lab.say(peer, &rpc("GetExtendedAgentCard", &Value::Null));
    let url = &card[0]["result"]["supportedInterfaces"][0]["url"];
    assert_eq!(url, "http://a.example/agents/echo");
}

#[test]
fn websocket_at_a_dialect_path_uses_that_dialect() {
    let mount = |path: &str, dialect: &str| Mount {
        path: path.to_owned(),
        dialect: dialect.to_owned(),
        agent: None,
    };
    let mounts = vec![mount("/rust", "a2a_rust"), mount("/tutorial", "tutorial")];
    let mut lab = Lab::new(Setup { mounts, ..Setup::default() });
    // Notifications of a2a_rust get no answer; LangSmith's rule on Accept applies to HTTP only.
    let peer = lab.socket("/rust", "");
    let notification = r#"{"jsonrpc":"2.0","method":"SendMessage","params":{}}"#;
    assert_eq!(lab.say(peer, notification), [Value::Null; 0]);
    let peer = lab.socket("/a2a/echo", "");
    let answers = lab.say(peer, &rpc("message/send", &V03.params(say("hi"))));
    assert_eq!(answers[0]["result"]["kind"], "task");
    let peer = lab.socket("/tutorial", "");
    let answers = lab.say(peer, &rpc("nothing", &json!({})));
    assert_eq!(answers[0]["error"]["code"], -32601);
}

// --- Streams

fn is_complete(message: &Value) -> bool {
    message["result"] == json!({"status": "stream_complete"})
}

#[test]
fn stream_sends_a_message_per_event_and_a_final_message() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "");
    for generation in Gen::ALL {
        let call = |id| {
            let params = generation.params(OutgoingMessage { id, ..say("stream:3") });
            rpc_id("\"s\"", generation.stream(), &params)
        };
        let http = lab.ask(&post("/", &[], &call("a"))).events();
        let sent = lab.say(peer, &call("b"));
        assert_eq!(sent.len(), http.len() + 1, "{generation:?}");
        for (sent, event) in sent.iter().zip(&http) {
            assert_eq!(sent["id"], "s");
            assert_eq!(sent.as_object().unwrap().len(), 3, "no member beside {sent}");
            let kinds = |value: &Value| -> Vec<String> {
                value["result"].as_object().unwrap().keys().cloned().collect()
            };
            assert_eq!(kinds(sent), kinds(&event.data));
        }
        assert!(is_complete(&sent[http.len()]) && sent[http.len()]["id"] == "s");
    }
    // A direct message is a stream of one.
    let sent = lab.say(peer, &stream_id("7", "ping"));
    assert_eq!(sent[0]["result"]["message"]["parts"][0]["text"], "pong");
    assert!(is_complete(&sent[1]) && sent.len() == 2);
    // A call that fails before its first event gets one error and no stream.
    let unknown_task = rpc_id("8", "tasks/resubscribe", &json!({"id": "none"}));
    let sent = lab.say(peer, &unknown_task);
    assert_eq!((sent.len(), &sent[0]["error"]["code"]), (1, &json!(-32001)));
    assert_eq!(lab.engine.running(), 0);
}

/// Publishes chunks of these sizes.
struct Chunks(&'static [usize]);

impl Agent for Chunks {
    fn start(&self, mut turn: Turn<'_>) {
        for (number, size) in self.0.iter().enumerate() {
            let text = char::from(b'a' + number as u8).to_string().repeat(*size);
            let chunk = ArtifactBuf::new("a", &PartsBuf::new().text(&text));
            turn.chunk(&chunk, number > 0, number + 1 == self.0.len());
        }
        turn.status(TaskState::Completed);
    }
}

#[test]
fn artifact_chunks_of_all_frame_lengths_arrive_whole() {
    const SIZES: &[usize] = &[10, 70_000, 20, 65_200, 65_300, 30, 90_000, 40];
    let agent: Arc<dyn Agent> = Arc::new(Chunks(SIZES));
    let agents = vec![(Profile::new("chunks", "Says chunks."), agent)];
    let mut lab = Lab::new(Setup { agents, ..Setup::default() });
    let peer = lab.socket("/", "");
    let mut sent = lab.say(peer, &stream_id("7", "hi"));
    while !sent.last().is_some_and(is_complete) {
        lab.pass(1);
        sent.extend(lab.frames(peer).iter().map(Sent::json));
    }
    let task = &sent[0]["result"]["task"]["id"];
    let chunks: Vec<&Value> = sent
        .iter()
        .map(|item| &item["result"]["artifactUpdate"])
        .filter(|u| u.is_object())
        .collect();
    assert_eq!(chunks.len(), SIZES.len());
    for (number, (chunk, size)) in chunks.iter().zip(SIZES).enumerate() {
        assert_eq!(&chunk["taskId"], task);
        let text = chunk["artifact"]["parts"][0]["text"].as_str().unwrap();
        assert_eq!((text.len(), text.as_bytes()[0]), (*size, b'a' + number as u8));
    }
}

#[test]
fn streams_and_calls_share_a_connection() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "");
    let first = lab.say(peer, &stream_id("1", "hold:400:3"));
    let id = first[0]["result"]["task"]["id"].clone();
    lab.say(peer, &stream_id("2", "hold:800:3"));
    let sub = lab.say(peer, &rpc_id("3", "SubscribeToTask", &json!({ "id": id })));
    assert_eq!((sub.len(), &sub[0]["result"]["task"]["id"]), (1, &id));
    assert_eq!(lab.say(peer, &send_id("4", "hi"))[0]["id"], 4);
    assert_eq!(lab.engine.running(), 3);
    lab.pass(1_000);
    let sent: Vec<Value> = lab.frames(peer).iter().map(Sent::json).collect();
    for id in 1..=3 {
        let own: Vec<_> = sent.iter().filter(|message| message["id"] == id).collect();
        assert!(own.len() >= 3 && is_complete(own[own.len() - 1]), "{id}: {own:?}");
        assert_eq!(own.iter().filter(|message| is_complete(message)).count(), 1);
    }
    let results = |id: u64| -> Vec<&Value> {
        let own = sent.iter().filter(|message| message["id"] == id);
        own.map(|message| &message["result"]).collect()
    };
    assert_eq!(results(1), results(3), "both subscribers see the same");
    assert_eq!(lab.engine.running(), 0);
}

#[test]
fn a_task_can_be_canceled_on_the_connection_that_streams_it() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "");
    let first = lab.say(peer, &stream_id("1", "hold:60000:3"));
    let id = first[0]["result"]["task"]["id"].clone();
    let sent = lab.say(peer, &rpc_id("2", "CancelTask", &json!({ "id": id })));
    assert_eq!(sent[0]["id"], 2);
    let rest: Vec<Value> = lab.frames(peer).iter().map(Sent::json).collect();
    let all: Vec<&Value> = sent.iter().chain(&rest).filter(|m| m["id"] == 1).collect();
    let last = &all[all.len() - 2]["result"]["statusUpdate"]["status"]["state"];
    assert!(last == "TASK_STATE_CANCELED" && is_complete(all[all.len() - 1]), "{all:?}");
}

#[test]
fn event_ids_are_sent_on_request_and_resume_a_stream() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/?eventIds=1", "");
    let call = |id: &Value, after: Value| {
        rpc_id("5", "SubscribeToTask", &json!({"id": id, "lastEventId": after}))
    };
    let first = lab.say(peer, &stream_id("1", "hold:500:4"));
    let task = first[0]["result"]["task"]["id"].clone();
    lab.pass(600);
    let mut events: Vec<Value> = first;
    events.extend(lab.frames(peer).iter().map(Sent::json));
    assert!(is_complete(&events.pop().unwrap()));
    let ids: Vec<u64> = events.iter().map(|event| event["eventId"].as_u64().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    // On another connection the events after each id are sent once; a string is accepted as the id.
    let made = lab.say(peer, &stream_id("1", "hold:60000:4"))[0]["result"]["task"]["id"].clone();
    let other = lab.socket("/?eventIds=1", "");
    let seen = lab.say(other, &call(&made, Value::Null));
    let upto = seen[0]["eventId"].as_u64().unwrap();
    assert_eq!(lab.say(other, &call(&made, json!(upto))), [Value::Null; 0], "nothing is new");
    let again = lab.say(other, &call(&made, json!((upto - 1).to_string())));
    assert!(again[0]["eventId"] == upto && again[0]["result"].get("task").is_none(), "{again:?}");
    for bad in [json!(-1), json!("x"), json!(1.5), json!({})] {
        assert_eq!(lab.say(other, &call(&made, bad))[0]["error"]["code"], -32602);
    }
    // The same on HTTP, where the header takes precedence.
    let line = [("Last-Event-ID", "0")];
    let peer = lab.open();
    lab.write(peer, &post("/", &line, &call(&made, json!(upto))));
    assert!(!lab.peek(peer).events().is_empty());
    let peer = lab.open();
    lab.write(peer, &post("/", &[], &call(&made, json!(upto))));
    assert!(lab.peek(peer).events().is_empty());
    // A finished task can be read to its end, as on HTTP.
    let rest = lab.say(other, &call(&task, json!(ids[0])));
    let numbers: Vec<u64> = rest.iter().filter_map(|event| event["eventId"].as_u64()).collect();
    assert!(numbers == ids[1..] && is_complete(&rest[rest.len() - 1]), "{rest:?}");
}

#[test]
fn evicted_task_ends_its_stream_with_an_error() {
    let mut lab = Lab::limited(|limits| {
        limits.tasks_max = 1;
        limits.output_bytes_max = 4_096;
    });
    let peer = lab.socket("/", "");
    lab.set_reads(peer, false);
    lab.write(peer, &text(&stream_id("1", "stream:100")));
    lab.result(V1.send(), &V1.params(say("another")));
    lab.set_reads(peer, true);
    let sent = lab.frames(peer);
    let last = sent.last().unwrap().json();
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(1), &json!(-32001)));
    assert!(lab.is_open(peer));
    assert!(lab.say(peer, &send_id("2", "hi"))[0].get("result").is_some());
}

#[test]
fn slow_reader_has_bounded_output_and_loses_no_message() {
    let mut lab = Lab::limited(|limits| limits.output_bytes_max = 16 * 1024);
    let peer = lab.socket("/", "");
    lab.set_reads(peer, false);
    lab.write(peer, &text(&stream_id("1", "stream:2000")));
    for _ in 0..200 {
        lab.write(peer, &text(&send_id("2", "hello")));
    }
    assert!(lab.unsent(peer) < 20 * 1024 && lab.unread(peer) > 0, "{}", lab.unsent(peer));
    lab.set_reads(peer, true);
    let sent: Vec<Value> = lab.frames(peer).iter().map(Sent::json).collect();
    let of = |id: u64| sent.iter().filter(|message| message["id"] == id).count();
    // The task, 2000 events, and the end.
    assert_eq!((of(1), of(2), lab.unread(peer)), (2002, 200, 0));
}

#[test]
fn call_is_answered_before_a_long_stream_ends() {
    let mut lab = Lab::limited(|limits| limits.output_bytes_max = 16 * 1024);
    let peer = lab.socket("/", "");
    lab.write(peer, &[text(&stream_id("1", "stream:5000")), text(&send_id("2", "hi"))].concat());
    let sent: Vec<Value> = lab.frames(peer).iter().map(Sent::json).collect();
    let call = sent.iter().position(|message| message["id"] == 2).unwrap();
    assert!(sent.len() == 5003 && call < 200, "{call} of {}", sent.len());
}

// --- Control frames and the end

#[test]
fn ping_between_fragments_is_answered() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "");
    let call = send_id("1", "frågment");
    let at = call.find('å').unwrap() + 1;
    let (first, rest) = call.as_bytes().split_at(at);
    lab.write(peer, &frame(0x01, first));
    lab.write(peer, &[frame(0x89, b"there?"), frame(0x8a, b"unasked")].concat());
    lab.write(peer, &[frame(0x00, b""), frame(0x80, rest)].concat());
    let sent = lab.frames(peer);
    assert_eq!(sent[0], Sent::Pong(b"there?".to_vec()));
    assert!(sent[1].json().to_string().contains("frågment") && sent.len() == 2);
}

#[test]
fn protocol_violation_closes_with_its_close_code() {
    let unmasked = vec![0x81, 0x02, b'{', b'}'];
    let open = stream_id("1", "hold:60000:3");
    for (bytes, code) in [
        (unmasked, 1002),
        (frame(0xc1, b"{}"), 1002),
        (frame(0x83, b""), 1002),
        (frame(0x80, b"{}"), 1002),
        ([frame(0x01, b"{"), frame(0x81, b"}")].concat(), 1002),
        (frame(0x09, b""), 1002),
        (vec![0x89, 0xfe], 1002),
        (frame(0x88, b"\x03"), 1002),
        (frame(0x88, b"\x03\xed"), 1002),
        (frame(0x88, b"\x03\xe8\xff"), 1007),
        (frame(0x82, b"{}"), 1003),
        (frame(0x02, b""), 1003),
        (frame(0x81, b"\"\xff\""), 1007),
        (frame(0x81, b"\"\xe2\x82"), 1007),
        (frame(0x01, b"\"\xed\xa0"), 1007),
    ] {
        let mut lab = Lab::echo();
        let peer = lab.socket("/", "");
        lab.say(peer, &open);
        lab.write(peer, &bytes);
        assert!(assert_closed(&mut lab, peer, code).is_empty(), "{bytes:x?}");
    }
}

#[test]
fn rfc6455_5_5_1_close_frame_is_echoed_with_its_code() {
    for (payload, echoed) in
        [(&b""[..], None), (b"\x03\xe8", Some(1000)), (b"\x0f\xa0bye", Some(4000))]
    {
        let mut lab = Lab::echo();
        let peer = lab.socket("/", "");
        lab.write(peer, &[frame(0x88, payload), text(&send_id("1", "late"))].concat());
        let sent = lab.frames(peer);
        assert_eq!(sent, [Sent::Close(echoed.map(|code| (code, String::new())))]);
        assert_eq!((lab.next(peer), lab.unread(peer)), (Next::Close, 0));
    }
}

#[test]
fn disconnected_peer_keeps_its_tasks_and_frees_its_slots() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "");
    let first = lab.say(peer, &stream_id("1", "hold:500:3"));
    lab.say(peer, &send_id("2", "hold:500:3"));
    assert_eq!(lab.engine.running(), 2);
    lab.end(peer);
    assert_eq!((lab.next(peer), lab.engine.running()), (Next::Abort, 0));
    lab.pass(600);
    let id = &first[0]["result"]["task"]["id"];
    let task = lab.result("GetTask", &json!({ "id": id }));
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
}

#[test]
fn shutdown_closes_websockets_with_code_1001() {
    let mut lab = Lab::echo();
    let (idle, busy) = (lab.socket("/", ""), lab.socket("/", ""));
    let (calling, half) = (lab.socket("/", ""), lab.socket("/", ""));
    lab.say(busy, &stream_id("1", "hold:60000:3"));
    lab.say(calling, &send_id("2", "hold:500:1"));
    lab.write(half, &frame(0x01, b"{"));
    lab.engine.drain();
    lab.settle_all();
    assert!(assert_closed(&mut lab, idle, 1001).is_empty());
    // Running calls may finish; then the connection closes as well.
    assert!(lab.is_open(busy) && lab.is_open(calling) && lab.is_open(half));
    lab.pass(600);
    let sent = assert_closed(&mut lab, calling, 1001);
    assert_eq!(sent[0].json()["id"], 2);
    lab.engine.cut();
    lab.settle_all();
    let sent = assert_closed(&mut lab, busy, 1001);
    assert_eq!(sent[0].json()["error"]["code"], -32000);
    assert_closed(&mut lab, half, 1001);
    let late = lab.open();
    lab.write(late, &upgrade("/", ""));
    assert_eq!(lab.reply(late).status, 503);
}

#[test]
fn an_idle_socket_holds_no_buffer() {
    let mut lab = Lab::echo();
    let peer = lab.socket("/", "");
    lab.say(peer, &stream_id("1", "stream:100"));
    lab.write(peer, &[frame(0x01, b"{\"a\":"), frame(0x80, b"1}")].concat());
    assert!(lab.held_bytes(peer) < 300, "{}", lab.held_bytes(peer));
    lab.write(peer, &frame(0x01, &[b' '; 5000]));
    assert!(lab.held_bytes(peer) >= 5000);
}

#[test]
fn echo_endpoint_returns_every_message() {
    let setup = || Setup { test_echo: Some("/echo".to_owned()), ..Setup::default() };
    let mut lab = Lab::new(setup());
    let peer = lab.socket("/echo/ws", "");
    lab.write(peer, &[frame(0x82, &[0xff, 0]), text("héllo"), text("")].concat());
    let expected =
        [Sent::Binary(vec![0xff, 0]), Sent::Text("héllo".to_owned()), Sent::Text(String::new())];
    assert_eq!(lab.frames(peer), expected);
    let large = vec![b'x'; 70_000];
    lab.write(peer, &frame(0x82, &large));
    assert_eq!(lab.frames(peer), [Sent::Binary(large)]);
}
