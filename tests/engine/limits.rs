//! One test for each limit, with the limit's name: what the peer sees at the limit and one beyond,
//! and that the connection is in a defined state and the server still works.

use std::sync::{Arc, Mutex};

use peregrine::{
    agent::{Agent, Deferred, Profile, Turn},
    engine::{Next, Setup},
    limits::Limits,
    model::TaskState,
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{OutgoingMessage, V1, V03, get, get_with, post, post_chunked, rpc, rpc_id, say},
    reply::Reply,
    script,
    ws::{Sent, frame, text},
};

const CARD: &str = "/.well-known/agent-card.json";

/// Sends a request at the limit and one beyond: the former is served on a connection that stays
/// open, the latter is refused with `status` and closes its connection.
fn refused_beyond(lab: &mut Lab, at: &[u8], beyond: &[u8], status: u16) {
    let peer = lab.open();
    lab.write(peer, at);
    assert_eq!(lab.reply(peer).status, 200);
    assert!(lab.is_open(peer));
    lab.write(peer, beyond);
    let reply = lab.reply(peer);
    assert_eq!((reply.status, reply.closes(), lab.next(peer)), (status, true, Next::Close));
    assert_eq!(reply.code(), -32600);
    lab.write(peer, &get(CARD));
    assert!(lab.received(peer).is_empty(), "nothing behind a framing error is parsed");
    lab.assert_lives();
}

/// Sends a call at the limit and one beyond: the latter gets an error, and the connection stays
/// open.
fn error_beyond(lab: &mut Lab, at: &str, beyond: &str, code: i64) -> Value {
    error_under(200, lab, at, beyond, code)
}

/// The same for an error with another status.
fn error_under(status: u16, lab: &mut Lab, at: &str, beyond: &str, code: i64) -> Value {
    let peer = lab.open();
    lab.write(peer, &post("/", &[], at));
    assert!(!lab.reply(peer).text().contains("\"error\""));
    lab.write(peer, &post("/", &[], beyond));
    let reply = lab.reply(peer);
    assert_eq!((reply.status, reply.code()), (status, code));
    lab.write(peer, &post("/", &[], at));
    assert_eq!(lab.reply(peer).status, 200);
    assert!(lab.is_open(peer));
    reply.json()
}

fn message(parts: Value) -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}})
}

/// Asserts that the error names the limit.
fn assert_names(error: &Value, limit: &str) {
    let message = error["error"]["message"].as_str().unwrap_or_else(|| panic!("{error}"));
    assert!(error["error"]["code"] == -32000 && message.contains(limit), "{error}");
}

/// A message with one more member.
fn with(key: &str, value: Value) -> String {
    let mut params = message(json!([{"text": "hi"}]));
    params["message"][key] = value;
    rpc("SendMessage", &params)
}

// --- The head

#[test]
fn head_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.head_bytes_max = 300);
    let padded = |total: usize| {
        let bare = get_with(CARD, "X: \r\n").len();
        get_with(CARD, &format!("X: {}\r\n", "x".repeat(total - bare)))
    };
    assert_eq!(padded(300).len(), 300);
    refused_beyond(&mut lab, &padded(300), &padded(301), 431);
}

#[test]
fn head_fields_max() {
    let mut lab = Lab::limited(|limits| limits.head_fields_max = 3);
    let at = get_with(CARD, "A: 1\r\nB: 2\r\n");
    refused_beyond(&mut lab, &at, &get_with(CARD, "A: 1\r\nB: 2\r\nC: 3\r\n"), 431);
}

#[test]
fn method_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.method_bytes_max = 4);
    let at = post("/", &[], &rpc("ListTasks", &Value::Null));
    let beyond = b"PATCH / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    refused_beyond(&mut lab, &at, beyond, 400);
}

#[test]
fn target_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.target_bytes_max = 100);
    let target = |bytes: usize| get(&format!("{CARD}?{}", "q".repeat(bytes - CARD.len() - 1)));
    refused_beyond(&mut lab, &target(100), &target(101), 414);
}

#[test]
fn query_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.query_bytes_max = 10);
    let at = get(&format!("{CARD}?a=12345678"));
    refused_beyond(&mut lab, &at, &get(&format!("{CARD}?a=123456789")), 414);
}

// --- The body

#[test]
fn body_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.body_bytes_max = 200);
    let body = |bytes: usize| {
        let bare = rpc("ListTasks", &json!({"x": ""})).len();
        rpc("ListTasks", &json!({"x": "x".repeat(bytes - bare)}))
    };
    // Beyond the limit the head alone decides: no byte of the body is sent.
    let head_only = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 201\r\n\r\n";
    refused_beyond(&mut lab, &post("/", &[], &body(200)), head_only, 413);
    let (at, beyond) = (post_chunked("/", &body(200), 150), post_chunked("/", &body(201), 150));
    refused_beyond(&mut lab, &at, &beyond, 413);
    // With `Expect` the server does not wait for the body either.
    let expects =
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 201\r\n\r\n";
    assert_eq!(lab.ask(expects).status, 413);
}

#[test]
fn oversized_body_error_names_body_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.body_bytes_max = 200);
    let error_text = |lab: &mut Lab, request: &[u8]| {
        let answer = lab.ask(request).json();
        answer["error"]["message"].as_str().unwrap().to_owned()
    };
    // A length far above the limit is a probe (400); the error still names the limit.
    for length in ["201", "20001", "900000000", "18446744073709551616"] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let text = error_text(&mut lab, head.as_bytes());
        assert!(text.contains("large") && text.contains("body_bytes_max"), "{length}: {text}");
    }
    let chunked = post_chunked("/message:send", &" ".repeat(201), 150);
    assert!(error_text(&mut lab, &chunked).contains("body_bytes_max"));
}

#[test]
fn chunk_line_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.chunk_line_bytes_max = 20);
    let body = rpc("ListTasks", &Value::Null);
    let chunked = |line: usize| {
        let size = format!("{:x};", body.len());
        let size = format!("{size}{}", "e".repeat(line - size.len()));
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        format!("{head}{size}\r\n{body}\r\n0\r\n\r\n").into_bytes()
    };
    refused_beyond(&mut lab, &chunked(20), &chunked(21), 400);
}

#[test]
fn trailer_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.trailer_bytes_max = 40);
    let body = rpc("ListTasks", &Value::Null);
    let chunked = |trailers: usize| {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (size, value) = (body.len(), "t".repeat(trailers - 7));
        format!("{head}{size:x}\r\n{body}\r\n0\r\nT: {value}\r\n\r\n").into_bytes()
    };
    // The trailer section and the final CR; the last LF does not count.
    refused_beyond(&mut lab, &chunked(41), &chunked(42), 431);
}

#[test]
fn batch_calls_max() {
    let mut lab = Lab::limited(|limits| limits.batch_calls_max = 3);
    let batch =
        |calls: usize| format!("[{}]", vec![rpc("ListTasks", &Value::Null); calls].join(","));
    let error = error_beyond(&mut lab, &batch(3), &batch(4), -32600);
    assert_eq!(error["id"], Value::Null);
}

#[test]
fn json_depth_max() {
    let mut lab = Lab::limited(|limits| limits.json_depth_max = 10);
    // Params, message, metadata and seven more levels; the envelope and the brackets of a batch do
    // not count.
    let nested = |levels: usize| {
        let value = format!("{}{}", r#"{"a":"#.repeat(levels), "1");
        let value = format!("{value}{}", "}".repeat(levels));
        let message = format!(
            r#"{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"hi"}}],"metadata":{value}}}"#
        );
        format!(
            r#"[{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{message}}}}}]"#
        )
    };
    let error = error_beyond(&mut lab, &nested(8), &nested(9), -32600);
    assert_eq!(error["id"], Value::Null);
    // A much greater depth uses no stack.
    let deep = "[".repeat(100_000);
    assert!([-32600, -32700].contains(&lab.ask(&post("/", &[], &deep)).code()));
}

#[test]
fn json_tokens_max() {
    let mut lab = Lab::limited(|limits| limits.json_tokens_max = 1_000);
    let call = |numbers: usize| {
        let data = vec![1; numbers];
        rpc("SendMessage", &message(json!([{"data": data}])))
    };
    // The structural characters, strings, numbers and names of the whole document (RFC 8259 §2).
    let others = tokens(&call(0));
    let at = call((1_000 - others).div_ceil(2));
    let beyond = call((1_000 - others).div_ceil(2) + 1);
    assert!((999..=1_000).contains(&tokens(&at)) && tokens(&beyond) > 1_000);
    // RFC 9110 §15.5.14
    let error = error_under(413, &mut lab, &at, &beyond, -32600);
    assert_eq!(error["id"], Value::Null);
    assert!(error["error"]["message"].as_str().unwrap().contains("json_tokens_max"));
    // Invalid JSON after the last allowed token is not read, and a long text is one token.
    for broken in ["[1,".repeat(1_000), format!("{}\"\u{1}", "1,".repeat(1_000))] {
        assert_eq!(lab.ask(&post("/", &[], &broken)).code(), -32600);
    }
    let text = "a, [b]: {c}\n".repeat(1_000);
    let long = rpc("SendMessage", &message(json!([{"text": text}])));
    assert!(lab.ask(&post("/", &[], &long)).result().is_object());
    // In the connection's own buffer and in a copied one.
    assert_eq!(lab.ask(&post_chunked("/", &beyond, 100)).code(), -32600);
    // An embedding of a hundred thousand numbers is within the default.
    let mut lab = Lab::echo();
    assert!(lab.ask(&post("/", &[], &call(100_000))).result().is_object());
    assert_eq!(lab.ask(&post("/", &[], &call(270_000))).code(), -32600);
}

/// Tokens of a document without brackets, commas and colons in its strings.
fn tokens(document: &str) -> usize {
    let structural = |c: char| matches!(c, '{' | '}' | '[' | ']' | ':' | ',');
    let scalars = document.split(structural).filter(|text| !text.trim().is_empty());
    document.chars().filter(|c| structural(*c)).count() + scalars.count()
}

#[test]
fn rpc_id_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.rpc_id_bytes_max = 8);
    let list = |id: &str| rpc_id(id, "ListTasks", &Value::Null);
    let error = error_beyond(&mut lab, &list("\"123456\""), &list("\"1234567\""), -32600);
    assert_eq!(error["id"], Value::Null);
    error_beyond(&mut lab, &list("12345678"), &list("123456789"), -32600);
}

#[test]
fn identifier_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.identifier_bytes_max = 40);
    for key in ["messageId", "contextId"] {
        let (at, beyond) = (with(key, json!("i".repeat(40))), with(key, json!("i".repeat(41))));
        let error = error_beyond(&mut lab, &at, &beyond, -32602);
        assert_eq!(error["id"], 1);
    }
    let get_task = |id: String| rpc("GetTask", &json!({"id": id}));
    assert_eq!(lab.ask(&post("/", &[], &get_task("i".repeat(40)))).code(), -32001);
    assert_eq!(lab.ask(&post("/", &[], &get_task("i".repeat(41)))).code(), -32602);
}

#[test]
fn string_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.string_bytes_max = 50);
    let part = |key: &str, bytes: usize| {
        let mut part = json!({"text": "hi"});
        part[key] = json!("s".repeat(bytes));
        if key == "url" {
            part.as_object_mut().unwrap().remove("text");
        }
        rpc("SendMessage", &message(json!([part])))
    };
    for key in ["filename", "mediaType", "url"] {
        let error = error_beyond(&mut lab, &part(key, 50), &part(key, 51), -32602);
        assert_eq!(error["id"], 1, "{key}");
    }
    let uris = |bytes: usize| with("extensions", json!(["s".repeat(bytes)]));
    error_beyond(&mut lab, &uris(50), &uris(51), -32602);
    // A text is not an identifier: it may be as long as the body.
    let text = rpc("SendMessage", &message(json!([{"text": "t".repeat(5_000)}])));
    lab.ask(&post("/", &[], &text)).result();
}

#[test]
fn parts_max() {
    let mut lab = Lab::limited(|limits| limits.parts_max = 3);
    let parts = |count: usize| {
        rpc("SendMessage", &message(Value::Array(vec![json!({"text": "hi"}); count])))
    };
    error_beyond(&mut lab, &parts(3), &parts(4), -32602);
}

#[test]
fn references_max() {
    let mut lab = Lab::limited(|limits| limits.references_max = 2);
    for key in ["extensions", "referenceTaskIds"] {
        let list = |count: usize| with(key, Value::Array(vec![json!("r"); count]));
        error_beyond(&mut lab, &list(2), &list(3), -32602);
    }
}

// --- Time

/// Advances the clock by `ms` and returns the server's answer, if any.
fn after(lab: &mut Lab, peer: Peer, ms: u64) -> Option<Reply> {
    lab.pass(ms);
    lab.try_reply(peer)
}

#[test]
fn head_timeout_ms() {
    let mut lab = Lab::limited(|limits| limits.head_timeout_ms = 1_000);
    let peer = lab.open();
    // An idle connection is not slow; the timeout starts with the first byte.
    lab.pass(5_000);
    lab.write(peer, b"G");
    assert!(after(&mut lab, peer, 900).is_none() && lab.is_open(peer));
    // A further byte does not extend the timeout.
    lab.write(peer, b"ET / HT");
    let reply = after(&mut lab, peer, 100).expect("an answer");
    assert_eq!((reply.status, reply.closes(), lab.next(peer)), (408, true, Next::Close));
    let peer = lab.open();
    lab.write(peer, &get(CARD)[..20]);
    lab.pass(999);
    lab.write(peer, &get(CARD)[20..]);
    assert_eq!(lab.reply(peer).status, 200);
}

#[test]
fn body_idle_ms() {
    let mut lab = Lab::limited(|limits| limits.body_idle_ms = 2_000);
    for head in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
        let peer = lab.open();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n");
        lab.write(peer, head.as_bytes());
        assert!(after(&mut lab, peer, 1_999).is_none() && lab.is_open(peer), "{head}");
        let reply = after(&mut lab, peer, 1).expect("an answer");
        assert_eq!((reply.status, reply.closes(), lab.next(peer)), (408, true, Next::Close));
    }
}

#[test]
fn body_progress_bytes_min() {
    let mut lab = Lab::limited(|limits| {
        limits.body_idle_ms = 2_000;
        limits.body_progress_bytes_min = 1_000;
    });
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let (slow, steady) = (lab.open(), lab.open());
    lab.write(slow, head);
    lab.write(steady, head);
    for _ in 0..5 {
        lab.write(slow, &[b' '; 999]);
        lab.write(steady, &[b' '; 1_000]);
        lab.pass(2_000);
    }
    assert_eq!(lab.reply(slow).status, 408);
    assert!(lab.received(steady).is_empty() && lab.is_open(steady));
    lab.pass(2_000);
    assert_eq!(lab.reply(steady).status, 408);
}

#[test]
fn keep_alive_idle_ms() {
    let mut lab = Lab::limited(|limits| limits.keep_alive_idle_ms = 3_000);
    let peer = lab.open();
    lab.pass(2_999);
    lab.write(peer, &get(CARD));
    assert_eq!(lab.reply(peer).status, 200);
    lab.pass(2_999);
    assert!(lab.is_open(peer));
    lab.pass(1);
    assert_eq!(lab.next(peer), Next::Close);
    assert!(lab.received(peer).is_empty(), "an idle connection is closed without a word");
    // A connection that never sends a byte is closed as well.
    let peer = lab.open();
    lab.pass(3_000);
    assert_eq!(lab.next(peer), Next::Close);
}

#[test]
fn sse_keep_alive_ms() {
    let mut lab = Lab::limited(|limits| limits.sse_keep_alive_ms = 1_000);
    let peer = lab.stream(V1.stream(), &V1.params(say("hold:2500:1")));
    lab.pass(999);
    assert_eq!(lab.peek(peer).comments(), 0);
    lab.pass(1);
    assert_eq!(lab.peek(peer).comments(), 1);
    lab.pass(1_500);
    let reply = lab.reply(peer);
    assert_eq!((reply.comments(), reply.events().len()), (2, 2));
}

#[test]
fn task_ttl_ms() {
    let mut lab = Lab::limited(|limits| limits.task_ttl_ms = 10_000);
    let read = |lab: &mut Lab, id: &Value| lab.call("GetTask", &json!({"id": id}));
    let done = V1.task(&lab.result(V1.send(), &V1.params(say("hi"))))["id"].clone();
    let running = lab.stream(V1.stream(), &V1.params(say("hold:60000:1")));
    lab.pass(9_000);
    assert!(read(&mut lab, &done).get("result").is_some());
    lab.pass(3_000);
    assert_eq!(read(&mut lab, &done)["error"]["code"], -32001);
    // A jump of the wall clock neither evicts nor retains tasks.
    for jump in [86_400_000, -200_000_000] {
        let done = V1.task(&lab.result(V1.send(), &V1.params(say("hi"))))["id"].clone();
        lab.jump(jump);
        lab.pass(9_000);
        assert!(read(&mut lab, &done).get("result").is_some(), "{jump}");
        lab.pass(3_000);
        assert_eq!(read(&mut lab, &done)["error"]["code"], -32001, "{jump}");
    }
    // A running task is never evicted.
    lab.pass(26_000);
    let events = lab.reply(running).events();
    let id = events[0].result()["task"]["id"].clone();
    assert!(read(&mut lab, &id).get("result").is_some());
}

#[test]
fn unfinished_idle_ms() {
    let mut lab = Lab::limited(|limits| limits.unfinished_idle_ms = 10_000);
    let mut state = |wait_ms| {
        let running = lab.stream(V1.stream(), &V1.params(say("hold:60000:1")));
        lab.pass(wait_ms);
        let id = lab.peek(running).events()[0].result()["task"]["id"].clone();
        lab.result("GetTask", &json!({"id": id}))["status"].clone()
    };
    assert_eq!(state(9_000)["state"], "TASK_STATE_SUBMITTED");
    let failed = state(12_000);
    let why = "failed: no event for 10 s (unfinished_idle_ms)";
    assert_eq!(failed["state"], "TASK_STATE_FAILED");
    assert_eq!(failed["message"]["parts"][0]["text"], why);
}

#[test]
fn input_required_ttl_ms() {
    let toml = "[[rule]]\n[[rule.step]]\nstatus = 'input-required'\ntext = 'Which one?'\n";
    let limits = Limits { input_required_ttl_ms: 10_000, ..Limits::default() };
    let agents = vec![script("script", toml)];
    let mut lab = Lab::new(Setup { agents, limits, ..Setup::default() });
    let mut state = |wait_ms| {
        let id = V1.task(&lab.result(V1.send(), &V1.params(say("hi"))))["id"].clone();
        lab.pass(wait_ms);
        lab.result("GetTask", &json!({"id": id}))["status"].clone()
    };
    assert_eq!(state(9_000)["state"], "TASK_STATE_INPUT_REQUIRED");
    let failed = state(12_000);
    let why = "failed: no event for 10 s (input_required_ttl_ms)";
    assert_eq!(failed["state"], "TASK_STATE_FAILED");
    assert_eq!(failed["message"]["parts"][0]["text"], why);
}

// --- Connections and output

#[test]
fn streams_max() {
    let mut lab = Lab::limited(|limits| limits.streams_max = 2);
    let hold = V1.params(say("hold:1000:1"));
    let first = lab.stream(V1.stream(), &hold);
    let second = lab.stream(V03.stream(), &V03.params(say("hold:9000:1")));
    assert!(lab.peek(first).events().len() == 1 && lab.peek(second).events().len() == 1);
    assert_names(&lab.call(V1.stream(), &hold), "streams_max");
    assert_names(&lab.call(V03.stream(), &V03.params(say("hi"))), "streams_max");
    assert_names(&lab.call(V1.subscribe(), &json!({"id": "x"})), "streams_max");
    let rest = lab.ask(&post("/message:stream", &[], &hold.to_string()));
    assert!(rest.status == 429 && rest.text().contains("streams_max"), "{}", rest.text());
    // Other calls are not affected, and the refused call left no task.
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 2);
    // The end of a stream frees its slot, and so does a subscriber that disconnects.
    lab.pass(1_000);
    assert!(lab.reply(first).complete);
    let third = lab.stream(V1.stream(), &hold);
    assert_eq!(lab.peek(third).events().len(), 1);
    lab.end(second);
    let fourth = lab.stream(V1.stream(), &hold);
    assert_eq!(lab.peek(fourth).events().len(), 1);
    assert_eq!(lab.code(V1.stream(), &hold), -32000);
}

// --- WebSocket

/// A call of `bytes` bytes.
fn padded_call(bytes: usize) -> String {
    let bare = rpc("ListTasks", &Value::Null);
    format!("{}{bare}", " ".repeat(bytes - bare.len()))
}

/// The last two frames: the A2A error and the WebSocket close.
fn assert_too_large(lab: &mut Lab, peer: Peer, limit: &str) {
    let sent = lab.frames(peer);
    let [error, close] = &sent[..] else { panic!("{sent:?}") };
    assert_names(&error.json(), limit);
    assert_eq!(error.json()["id"], Value::Null);
    assert_eq!((close.close_code(), lab.next(peer)), (1009, Next::Close));
    lab.assert_lives();
}

#[test]
fn ws_frame_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.ws_frame_bytes_max = 300);
    let peer = lab.socket("/", "");
    assert!(lab.say(peer, &padded_call(300))[0].get("result").is_some());
    // Each of several frames may have that size.
    let call = padded_call(900);
    let (a, b, c) = (&call[..300], &call[300..600], &call[600..]);
    let frames = [frame(1, a.as_bytes()), frame(0, b.as_bytes()), frame(0x80, c.as_bytes())];
    lab.write(peer, &frames.concat());
    assert_eq!(lab.frames(peer).len(), 1);
    // The frame header suffices to refuse it.
    lab.write(peer, &text(&padded_call(301))[..8]);
    assert_too_large(&mut lab, peer, "ws_frame_bytes_max");
}

#[test]
fn ws_message_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.ws_message_bytes_max = 1_000);
    for beyond in [1_001, 5_000] {
        let peer = lab.socket("/", "");
        assert!(lab.say(peer, &padded_call(1_000))[0].get("result").is_some());
        let call = padded_call(beyond);
        let mut frames: Vec<u8> = frame(1, &call.as_bytes()[..999]);
        frames.extend(call.as_bytes()[999..].iter().flat_map(|byte| frame(0, &[*byte])));
        lab.write(peer, &frames);
        assert_too_large(&mut lab, peer, "ws_message_bytes_max");
    }
}

#[test]
fn ws_in_flight_max() {
    let mut lab = Lab::limited(|limits| limits.ws_in_flight_max = 3);
    let peer = lab.socket("/", "");
    let held = |id: &str, method: &str| rpc_id(id, method, &V1.params(say("hold:1000:1")));
    let batch = format!("[{},{}]", held("2", V1.send()), held("3", V1.send()));
    assert!(lab.say(peer, &held("1", V1.send())).is_empty());
    assert!(lab.say(peer, &batch).is_empty(), "a batch is one");
    let task = lab.say(peer, &held("4", V1.stream()))[0]["result"]["task"]["id"].clone();
    // Calls that could wait are refused before they start; all other calls are not affected.
    for method in [V1.send(), V1.stream()] {
        assert_eq!(lab.say(peer, &held("5", method))[0]["error"]["code"], -32000);
    }
    let sub = rpc_id("6", V1.subscribe(), &json!({ "id": task }));
    assert_names(&lab.say(peer, &sub)[0], "ws_in_flight_max");
    let inside = lab.say(peer, &format!("[{}]", held("7", V1.send())));
    assert_eq!(inside[0][0]["error"]["code"], -32000);
    assert_eq!(lab.say(peer, &rpc("ListTasks", &Value::Null))[0]["result"]["totalSize"], 4);
    assert!(lab.say(peer, &rpc("GetTask", &json!({ "id": task })))[0].get("result").is_some());
    // Other connections are not affected either; an answer frees its slot.
    assert!(lab.result(V1.send(), &V1.params(say("hi"))).get("task").is_some());
    lab.pass(1_000);
    assert!(lab.is_open(peer) && lab.frames(peer).len() >= 4);
    assert!(lab.say(peer, &held("8", V1.send())).is_empty());
}

#[test]
fn ws_ping_ms() {
    let mut lab = Lab::limited(|limits| limits.ws_ping_ms = 1_000);
    let (dead, alive) = (lab.socket("/", ""), lab.socket("/", ""));
    lab.pass(999);
    assert!(lab.frames(dead).is_empty());
    for _ in 0..5 {
        lab.pass(1);
        assert_eq!(lab.frames(alive), [Sent::Ping(Vec::new())]);
        lab.write(alive, &frame(0x8a, b""));
        lab.pass(999);
        assert!(lab.frames(alive).is_empty() && lab.is_open(alive));
    }
    assert_eq!((lab.frames(dead), lab.next(dead)), (vec![Sent::Ping(Vec::new())], Next::Abort));
    // A peer that sends gets no ping; a peer that waits for a call gets one.
    let caller = lab.socket("/", "");
    lab.say(caller, &rpc(V1.send(), &V1.params(say("hold:1500:1"))));
    lab.pass(600);
    lab.say(caller, &rpc("ListTasks", &Value::Null));
    lab.pass(900);
    assert_eq!(lab.frames(caller).len(), 1, "the answer, and no ping");
    lab.pass(100);
    assert_eq!(lab.frames(caller), [Sent::Ping(Vec::new())]);
}

#[test]
fn unsent_ping_does_not_start_the_pong_timeout() {
    let mut lab = Lab::limited(|limits| limits.ws_ping_ms = 1_000);
    let peer = lab.socket("/", "");
    // As if the output were held back until it is durable.
    lab.set_reads(peer, false);
    lab.pass(5_000);
    assert!(lab.is_open(peer) && lab.unsent(peer) > 0);
    lab.set_reads(peer, true);
    lab.pass(999);
    assert!(lab.is_open(peer));
    lab.pass(1_001);
    assert_eq!(lab.next(peer), Next::Abort);
}

#[test]
fn slow_websocket_message_is_closed_with_1008() {
    let mut lab = Lab::limited(|limits| {
        limits.body_idle_ms = 2_000;
        limits.body_progress_bytes_min = 1_000;
        limits.ws_ping_ms = 100_000;
    });
    let (slow, steady) = (lab.socket("/", ""), lab.socket("/", ""));
    let call = padded_call(60_000);
    let bytes = text(&call);
    let mut sent = 0;
    while sent < 8_000 {
        lab.write(slow, &bytes[sent / 2..(sent + 1_000) / 2]);
        lab.write(steady, &bytes[sent..sent + 1_000]);
        sent += 1_000;
        lab.pass(2_000);
    }
    let closed = lab.frames(slow);
    assert_eq!((closed.len(), closed[0].close_code(), lab.next(slow)), (1, 1008, Next::Close));
    lab.write(steady, &bytes[sent..]);
    assert_eq!(lab.frames(steady).len(), 1);
}

#[test]
fn control_and_empty_frames_do_not_count_as_body_progress() {
    let mut lab = Lab::limited(|limits| {
        limits.body_idle_ms = 2_000;
        limits.body_progress_bytes_min = 100;
        limits.ws_ping_ms = 100_000;
    });
    let begun = frame(1, b"{");
    let (ping, pong) = (frame(0x89, &[b'p'; 125]), frame(0x8a, &[b'p'; 125]));
    for more in [ping, pong, frame(0, b"").repeat(20), frame(0, b"a")] {
        // With any split of the first part, and any further bytes in each read.
        for first in [begun.clone(), [&begun[..], &more].concat()] {
            let peer = lab.socket("/", "");
            lab.write(peer, &first);
            for _ in 0..6 {
                lab.pass(500);
                lab.write(peer, &more);
            }
            let last = lab.frames(peer).pop().expect("a close frame");
            assert_eq!((last.close_code(), lab.next(peer)), (1008, Next::Close));
        }
    }
    // Complete messages in between do not count for the next one; a message that progresses may
    // take long.
    let (peer, call) = (lab.socket("/", ""), padded_call(1_000));
    let pieces: Vec<&[u8]> = call.as_bytes().chunks(100).collect();
    lab.write(peer, &[text(&call), frame(1, pieces[0])].concat());
    assert_eq!(lab.frames(peer).len(), 1);
    for piece in &pieces[1..] {
        lab.pass(1_900);
        lab.write(peer, &[frame(0x89, b""), frame(0, piece)].concat());
    }
    lab.write(peer, &frame(0x80, b""));
    assert_eq!(lab.frames(peer).len(), pieces.len());
}

#[test]
fn output_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.output_bytes_max = 10_000);
    // Pipelined requests of a peer that does not read: input is paused, nothing is lost.
    let (peer, request) = (lab.open(), get(CARD));
    lab.write(peer, &request);
    let one = lab.take(peer).len();
    lab.set_reads(peer, false);
    lab.write(peer, &request.repeat(100));
    assert!((10_000..=10_000 + one).contains(&lab.unsent(peer)), "{}", lab.unsent(peer));
    assert!(lab.unread(peer) > 0 && !lab.progress(peer).read);
    // Only output room resumes it: until then the engine sets no deadline.
    lab.pass(100_000);
    assert_eq!(lab.progress(peer).deadline_ms, None);
    lab.set_reads(peer, true);
    assert_eq!(Reply::parse_all(&lab.take(peer), false).len(), 100);
    assert_eq!(lab.unread(peer), 0);
    // A stream pauses at the limit and resumes there.
    let peer = lab.open();
    lab.set_reads(peer, false);
    lab.write(peer, &post("/", &[], &rpc(V1.stream(), &V1.params(say("stream:500")))));
    assert!((10_000..=11_000).contains(&lab.unsent(peer)), "{}", lab.unsent(peer));
    lab.pass(100_000);
    assert_eq!(lab.progress(peer).deadline_ms, None);
    lab.set_reads(peer, true);
    let reply = lab.reply(peer);
    let ids: Vec<_> = reply.events().iter().map(|event| event.id.unwrap()).collect();
    assert_eq!(ids, (1..=501).collect::<Vec<_>>());
}

#[test]
fn half_close_aborts_a_waiting_call_but_not_a_quick_call() {
    let mut lab = Lab::limited(|limits| limits.connections_max = 1);
    let hold = post("/", &[], &rpc(V1.send(), &V1.params(say("hold:60000:1"))));
    let waiting = lab.open();
    lab.write(waiting, &hold);
    lab.end(waiting);
    assert_eq!(lab.next(waiting), Next::Abort);
    // A client that closes its side after a call that need not wait gets its answer.
    let (quick, begun) = (lab.open(), lab.received(waiting).len());
    lab.write(quick, &post("/", &[], &rpc(V1.send(), &V1.params(say("hi")))));
    lab.end(quick);
    assert_eq!((lab.reply(quick).status, begun), (200, 0));
}

#[test]
fn connection_with_full_output_has_no_deadline() {
    let mut lab = Lab::limited(|limits| limits.output_bytes_max = 10_000);
    let (stream, pipeline) = (lab.open(), lab.open());
    lab.set_reads(stream, false);
    lab.write(stream, &post("/", &[], &rpc(V1.stream(), &V1.params(say("stream:500")))));
    lab.set_reads(pipeline, false);
    lab.write(pipeline, &get(CARD).repeat(100));
    lab.pass(80_000);
    // A deadline in the past would make the driver poll in a loop.
    for peer in [stream, pipeline] {
        assert_eq!(lab.progress(peer).deadline_ms, None);
        lab.set_reads(peer, true);
    }
    assert_eq!(lab.reply(stream).events().len(), 501);
    assert_eq!(Reply::parse_all(&lab.take(pipeline), false).len(), 100);
}

#[test]
fn answer_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.answer_bytes_max = 20_000);
    // Echoes of 6 kB show 12 kB but hold 6 kB: each second one exceeds the limit.
    let (text, mut ids) = ("x".repeat(6_000), Vec::new());
    for expected in [vec![1], vec![2], vec![2, 1], vec![2, 2], vec![2, 2, 1]] {
        let task = lab.result(V1.send(), &V1.params(say(&text)));
        ids.insert(0, V1.task(&task)["id"].clone());
        // A page ends early; the next page resumes there.
        let (mut sizes, mut seen, mut token) = (Vec::new(), Vec::new(), String::new());
        while sizes.is_empty() || !token.is_empty() {
            let params = json!({"includeArtifacts": true, "pageToken": token});
            let page = lab.result("ListTasks", &params);
            let tasks = page["tasks"].as_array().unwrap();
            sizes.push(tasks.len());
            seen.extend(tasks.iter().map(|task| task["id"].clone()));
            page["nextPageToken"].as_str().unwrap().clone_into(&mut token);
        }
        assert_eq!((sizes, &seen), (expected, &ids));
    }
    // Without artifacts and history in the request the size of a task does not count.
    assert_eq!(lab.result("ListTasks", &Value::Null)["tasks"].as_array().unwrap().len(), 5);
    // The calls of a batch beyond the limit are refused, each with its own error.
    let get_task = |id: &Value| rpc("GetTask", &json!({"id": id}));
    let body = format!("[{}]", ids.iter().map(get_task).collect::<Vec<_>>().join(","));
    let answers = lab.ask(&post("/", &[], &body)).json();
    let codes: Vec<_> = answers.as_array().unwrap().iter().map(|a| &a["error"]["code"]).collect();
    assert_eq!(codes, [&Value::Null, &Value::Null, &json!(-32000), &json!(-32000), &json!(-32000)]);
    assert!(answers.as_array().unwrap().iter().all(|answer| answer["id"] == 1));
    assert_names(&answers[4], "answer_bytes_max");
    // The same for calls that wait: they are executed, but their answers together are too large.
    let mut params = V1.params(say("hold:100:1"));
    params["message"]["metadata"] = json!({"weight": text});
    let body = format!("[{}]", vec![rpc(V1.send(), &params); 6].join(","));
    let peer = lab.open();
    lab.write(peer, &post("/", &[], &body));
    lab.pass(100);
    let answers = lab.reply(peer).json();
    let refused = answers.as_array().unwrap().iter().filter(|a| a["error"]["code"] == -32000);
    assert_eq!(refused.count(), 2);
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 11);
}

// --- Tasks

/// Defers and keeps each turn.
#[derive(Default)]
struct Later(Mutex<Vec<Deferred>>);

impl Agent for Later {
    fn start(&self, turn: Turn<'_>) {
        self.0.lock().unwrap().extend(turn.defer());
    }
}

#[test]
fn deferred_calls_max() {
    let later = Arc::new(Later::default());
    let mut setup = Setup::default();
    setup.limits.deferred_calls_max = 2;
    setup.agents.push((Profile::new("later", "Answers later."), Arc::clone(&later) as _));
    let mut lab = Lab::new(setup);
    let send = |lab: &mut Lab| {
        let peer = lab.open();
        lab.write(peer, &post("/", &[], &rpc("SendMessage", &V1.params(say("hi")))));
        lab.try_reply(peer)
    };
    assert!(send(&mut lab).is_none() && send(&mut lab).is_none());
    assert_names(&send(&mut lab).unwrap().json(), "deferred_calls_max");
    // A call that ends frees its slot.
    later.0.lock().unwrap().pop().unwrap().fail("no");
    assert!(send(&mut lab).is_none() && send(&mut lab).is_some());
}

#[test]
fn tasks_max() {
    let mut lab = Lab::limited(|limits| limits.tasks_max = 2);
    let mut send = |text: &str| {
        let mut params = V1.params(say(text));
        params["configuration"]["returnImmediately"] = json!(true);
        let answer = lab.call(V1.send(), &params);
        lab.pass(1);
        answer
    };
    let [first, second, third] = ["1", "2", "3"].map(&mut send);
    // Two running tasks evict the two finished ones; a third is refused.
    let running = ["hold:9000:1", "hold:9000:1"].map(&mut send);
    assert_names(&send("hold:9000:1"), "tasks_max");
    for (answer, is_there) in
        [(&first, false), (&second, false), (&third, false), (&running[0], true)]
    {
        let id = &V1.task(&answer["result"])["id"];
        let read = lab.call("GetTask", &json!({"id": id}));
        assert_eq!(read.get("result").is_some(), is_there, "{read}");
    }
    // Further tasks are accepted when the running ones have ended.
    lab.pass(9_000);
    lab.result(V1.send(), &V1.params(say("hi")));
    assert_eq!(lab.result("ListTasks", &Value::Null)["totalSize"], 2);
}

#[test]
fn store_bytes_max() {
    let mut lab = Lab::limited(|limits| {
        limits.store_bytes_max = 200_000;
        limits.task_bytes_max = 100_000;
    });
    // An echoed text is stored once, and shown as history and as artifact.
    let text = "x".repeat(40_000);
    for _ in 0..20 {
        lab.result(V1.send(), &V1.params(say(&text)));
        lab.pass(1);
    }
    let held = lab.result("ListTasks", &Value::Null)["totalSize"].as_u64().unwrap();
    assert!((3..=4).contains(&held), "{held} tasks of 40 kB in 200 kB");
    // Running tasks are not evicted: a further call is refused, and its connection stays open.
    let mut params = V1.params(say("hold:9000:1"));
    params["configuration"]["returnImmediately"] = json!(true);
    params["message"]["metadata"] = json!({"weight": "x".repeat(30_000)});
    let codes: Vec<_> = (0..10).map(|_| lab.call(V1.send(), &params)).collect();
    let refused = codes.iter().filter(|answer| answer["error"]["code"] == -32000).count();
    assert!((4..=5).contains(&refused), "{refused} of ten tasks of 30 kB in 200 kB");
    assert_names(&codes[9], "store_bytes_max");
    lab.assert_lives();
    lab.pass(9_000);
    lab.result(V1.send(), &V1.params(say("there is room again")));
}

#[test]
fn task_bytes_max() {
    let mut lab = Lab::limited(|limits| limits.task_bytes_max = 10_000);
    // The message alone is too large: the client's fault.
    assert_eq!(lab.code(V1.send(), &V1.params(say(&"x".repeat(10_000)))), -32602);
    // The task exceeds the limit with the agent's output: it fails with that reason.
    let result = lab.result(V1.send(), &V1.params(say(&"x".repeat(6_000))));
    let task = V1.task(&result);
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    assert!(task["status"]["message"]["parts"][0]["text"].as_str().unwrap().contains("limit"));
    // Half of it fits.
    let result = lab.result(V1.send(), &V1.params(say(&"x".repeat(4_000))));
    assert_eq!(V1.task(&result)["status"]["state"], "TASK_STATE_COMPLETED");
    // A stream of a task that grows too large ends with the same text.
    let stream = lab.stream(V1.stream(), &V1.params(say("stream:1000")));
    let events = lab.reply(stream).events();
    let last = &events.last().unwrap().result()["statusUpdate"]["status"];
    assert_eq!(last["state"], "TASK_STATE_FAILED");
}

#[test]
fn history_max() {
    let toml = "[[rule]]\n[[rule.step]]\nstatus = \"input-required\"\n";
    let mut setup = Setup { agents: vec![script("ask", toml)], ..Setup::default() };
    setup.limits.history_max = 3;
    let mut lab = Lab::new(setup);
    let first = lab.result(V1.send(), &V1.params(say("turn 0")));
    let id = V1.task(&first)["id"].as_str().unwrap().to_owned();
    for turn in 1..=5 {
        let text = format!("turn {turn}");
        let message = OutgoingMessage { text: &text, task: Some(&id), ..say("") };
        let result = lab.result(V1.send(), &V1.params(message));
        let history = V1.task(&result)["history"].as_array().unwrap().clone();
        assert_eq!(history.len(), (turn + 1).min(3));
        // The oldest messages are dropped first.
        assert_eq!(history.last().unwrap()["parts"][0]["text"], text);
    }
}

#[test]
fn artifacts_max() {
    let steps = |count: usize| {
        let step =
            |n: usize| format!("[[rule.step]]\nartifact = \"a{n}\"\nparts = [{{text = \"x\"}}]\n");
        let steps: String = (0..count).map(step).collect();
        format!("[[rule]]\n{steps}[[rule.step]]\nstatus = \"completed\"\n")
    };
    for (count, state) in [(4, "TASK_STATE_COMPLETED"), (5, "TASK_STATE_FAILED")] {
        let mut setup = Setup { agents: vec![script("a", &steps(count))], ..Setup::default() };
        setup.limits.artifacts_max = 4;
        let mut lab = Lab::new(setup);
        let result = lab.result(V1.send(), &V1.params(say("hi")));
        let task = V1.task(&result);
        assert_eq!(task["status"]["state"], state);
        assert_eq!(task["artifacts"].as_array().unwrap().len(), 4);
    }
}

#[test]
fn event_ring_max() {
    // An artifact that is replaced repeatedly: the ring alone retains the old versions.
    let toml = r#"
        [[rule]]
        [[rule.step]]
        artifact = "a"
        repeat = 200
        payload_bytes = 500
        [[rule.step]]
        status = "working"
        [[rule.step]]
        delay_ms = 60000
        status = "completed"
    "#;
    let mut setup = Setup { agents: vec![script("a", toml)], ..Setup::default() };
    setup.limits.event_ring_max = 20;
    let mut lab = Lab::new(setup);
    let first = lab.stream(V1.stream(), &V1.params(say("hi")));
    let events = lab.peek(first).events();
    let id = events[0].result()["task"]["id"].clone();
    let last = events.last().unwrap().id.unwrap();
    let mut back = |seen: u64| {
        let seen = seen.to_string();
        let body = rpc("SubscribeToTask", &json!({"id": id}));
        let peer = lab.open();
        lab.write(peer, &post("/", &[("Last-Event-ID", &seen)], &body));
        lab.peek(peer).events()
    };
    // Within the ring: each missed event once.
    let within = back(last - 20);
    let ids: Vec<_> = within.iter().map(|event| event.id.unwrap()).collect();
    assert_eq!(ids, (last - 19..=last).collect::<Vec<_>>());
    // Before the ring: the current task, then the later events.
    let outside = back(1);
    assert_eq!((outside.len(), outside[0].id), (1, Some(last)));
    assert!(outside[0].result().get("task").is_some());
}

#[test]
fn turn_events_max() {
    let mut lab = Lab::limited(|limits| limits.turn_events_max = 10);
    for (text, state) in [("stream:10", "TASK_STATE_COMPLETED"), ("stream:11", "TASK_STATE_FAILED")]
    {
        let result = lab.result(V1.send(), &V1.params(say(text)));
        assert_eq!(V1.task(&result)["status"]["state"], state, "{text}");
    }
    lab.assert_lives();
    // Events before the task is detached from the turn count as well.
    let mut setup = Setup::default();
    setup.limits.turn_events_max = 10;
    setup.agents = vec![(Profile::new("eager", "Says much."), Arc::new(Eager))];
    let mut lab = Lab::new(setup);
    for (text, states) in [
        ("10", ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"]),
        ("11", ["TASK_STATE_FAILED", "TASK_STATE_FAILED"]),
    ] {
        let result = lab.result(V1.send(), &V1.params(say(text)));
        let task = V1.task(&result);
        assert_eq!(task["status"]["state"], states[0], "{text}");
        // The second turn continues the task.
        let next = OutgoingMessage { task: task["id"].as_str(), ..say(text) };
        let answer = lab.call(V1.send(), &V1.params(next));
        let state = lab.result("GetTask", &json!({ "id": task["id"] }))["status"]["state"].take();
        assert_eq!(state, states[1], "{answer}");
    }
}

/// Publishes the number of events in the message, then detaches the task: to request input or to
/// end it.
struct Eager;

impl Agent for Eager {
    fn start(&self, mut turn: Turn<'_>) {
        let is_new = turn.state.is_none();
        let count: usize = turn.message.text().parse().unwrap();
        (0..count).for_each(|_| turn.status(TaskState::Working));
        let Ok(mut job) = turn.detach() else { return };
        let state = if is_new { TaskState::InputRequired } else { TaskState::Completed };
        job.status(state, None).unwrap();
    }
}

/// `tests/tidy` checks the names, this test the numbers: each limit can be set.
#[test]
fn every_limit_can_be_set() {
    let mut limits = Limits::default();
    for name in Limits::NAMES {
        assert_eq!(limits.set(name, "7"), Ok(()), "{name}");
    }
    assert!(limits.rows().iter().all(|(_, value)| *value == 7));
}

#[test]
fn tenants_max() {
    let mut lab = Lab::limited(|limits| {
        limits.tenants_max = 2;
        limits.task_ttl_ms = 60_000;
    });
    let send = |tenant: &str, text: &str| {
        let mut params = message(json!([{ "text": text }]));
        params["tenant"] = json!(tenant);
        params
    };
    // A direct message takes no tenant name, and neither does a read.
    for tenant in ["a", "b", "c", "d"] {
        assert_eq!(
            lab.result("SendMessage", &send(tenant, "ping"))["message"]["role"],
            "ROLE_AGENT"
        );
        assert_eq!(lab.code("GetTask", &json!({ "id": "x", "tenant": "e" })), -32001);
        lab.pass(1_000);
    }
    for tenant in ["one", "two"] {
        lab.result("SendMessage", &send(tenant, "hi"));
    }
    lab.pass(1_000);
    assert_names(&lab.call("SendMessage", &send("three", "hi")), "tenants_max");
    for tenant in ["one", "two"] {
        assert_eq!(lab.result("ListTasks", &json!({ "tenant": tenant }))["totalSize"], 1);
        lab.result("SendMessage", &send(tenant, "hi"));
    }
    assert_eq!(lab.result("ListTasks", &json!({ "tenant": "three" }))["totalSize"], 0);
    // A name is freed with its last task and can be replaced by another.
    lab.pass(50_000);
    lab.result("SendMessage", &send("two", "hi"));
    lab.pass(20_000);
    lab.result("SendMessage", &send("three", "hi"));
    assert_names(&lab.call("SendMessage", &send("one", "hi")), "tenants_max");
    for (tenant, tasks) in [("one", 0), ("two", 1), ("three", 1)] {
        assert_eq!(lab.result("ListTasks", &json!({ "tenant": tenant }))["totalSize"], tasks);
    }
    lab.assert_lives();
}
