//! Properties of a connection for any bytes, cut in any way.
//!
//! Each property is a function of bytes that panics if the property fails, so that a fuzz target
//! can call it. The bytes are dice: they choose requests, cuts and limits.

use peregrine::{engine::Setup, limits::Limits};
use proptest::{
    prelude::*,
    test_runner::{TestError, TestRunner},
};
use serde_json::{Value, json};

use crate::support::{
    Lab, Peer,
    ask::{Gen, OutgoingMessage, V01, V1, get, post, post_chunked, rpc, rpc_id, say},
    echo,
    reply::Reply,
    script,
};

/// An agent that answers at once, waits, requests input, streams and grows.
const SCRIPT: &str = r#"
    [[rule]]
    [[rule.step]]
    status = "completed"
    text = "done"
    [[rule]]
    text = "ask"
    [[rule.step]]
    status = "input-required"
    [[rule]]
    text = "slow"
    [[rule.step]]
    delay_ms = 100
    artifact = "a"
    repeat = 3
    append = true
    parts = [{ text = "x" }]
    [[rule.step]]
    status = "completed"
    [[rule]]
    text = "pile"
    [[rule.step]]
    artifact = "a"
    repeat = 40
    append = true
    payload_bytes = 100
    [[rule.step]]
    status = "completed"
    [[rule]]
    text = "grow"
    [[rule.step]]
    artifact = "a"
    repeat = 40
    payload_bytes = 100
    [[rule.step]]
    status = "completed"
"#;

/// Bytes as a source of choices; 0 after the last one.
struct Dice<'d>(&'d [u8]);

impl Dice<'_> {
    fn roll(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, most: usize) -> usize {
        usize::from(self.roll()) % most
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

fn lab(limits: Limits) -> Lab {
    let agents = vec![script("script", SCRIPT), echo()];
    Lab::new(Setup { limits, agents, ..Setup::default() })
}

// ---- requests

/// The body of one call; task ids are fixed, so that later calls can name them.
fn call(dice: &mut Dice<'_>) -> String {
    let generation = dice.one_of(&Gen::ALL);
    let task = dice.one_of(&["t0", "t1", "t2", "nowhere"]);
    let id = dice.one_of(&["1", "\"a\\u00e9\"", "null", "-0", "1e400", "{}", "true"]);
    let long = "x".repeat(1_200);
    let text = dice.one_of(&["hi", "ask", "slow", "grow", "pile", "\u{1f980} \"q\"", "", &long]);
    match dice.below(14) {
        0..=2 => {
            rpc_id(id, V01.send(), &V01.params(OutgoingMessage { task: Some(task), ..say(text) }))
        }
        3 => rpc_id(id, generation.send(), &generation.params(say(text))),
        4 => rpc_id(
            id,
            generation.send(),
            &generation.params(OutgoingMessage { task: Some(task), ..say(text) }),
        ),
        5 => rpc_id(id, generation.stream(), &generation.params(say(text))),
        6 => rpc_id(id, generation.get(), &json!({"id": task, "historyLength": dice.roll()})),
        7 => rpc_id(id, generation.cancel(), &json!({"id": task})),
        8 => rpc_id(id, generation.subscribe(), &json!({"id": task})),
        9 => rpc_id(id, "ListTasks", &json!({"pageSize": dice.below(5), "includeArtifacts": true})),
        10 => rpc(dice.one_of(&["NoSuch", "no/such", "GetExtendedAgentCard"]), &Value::Null),
        11 | 12 => rpc_id(id, generation.stream(), &generation.params(say("grow"))),
        _ => {
            let text = format!("{}", dice.roll());
            json!({"jsonrpc": "2.0", "method": V1.send(), "params": V1.params(say(&text))})
                .to_string()
        }
    }
}

/// The body of one POST: a call, a batch, or an almost valid one.
fn body(dice: &mut Dice<'_>) -> String {
    match dice.below(8) {
        0..=3 => call(dice),
        4 => {
            let calls: Vec<_> = (0..dice.below(6)).map(|_| call(dice)).collect();
            format!("[{}]", calls.join(","))
        }
        5 => {
            let whole = call(dice);
            let end = dice.below(whole.len() + 1);
            whole.chars().take(end).collect()
        }
        6 => format!("{}{}", "[".repeat(dice.below(80)), call(dice)),
        _ => dice.one_of(&["", "{}", "[]", "[1,2]", "nul", "\u{feff}{}", "\"\\ud800\""]).to_owned(),
    }
}

/// One request, or bytes close to one. Never HEAD: its answer cannot be distinguished from others.
fn request(dice: &mut Dice<'_>) -> Vec<u8> {
    let path = dice.one_of(&["/", "/", "/agents/echo", "/a2a/echo", "/api/v1/a2a/script", "/x"]);
    match dice.below(14) {
        0..=4 => post(path, &[], &body(dice)),
        5 => post(path, &[("Accept", "*/*"), ("A2A-Version", "1.0")], &body(dice)),
        6 => post(path, &[("Expect", "100-continue")], &body(dice)),
        7 => post_chunked(path, &body(dice), 1 + dice.below(40)),
        8 => get(dice.one_of(&["/.well-known/agent.json", "/", "/%2e%2e", "/?q"])),
        9 => {
            post(path, &[dice.one_of(&[("Connection", "close"), ("Content-Type", "text/x")])], "{}")
        }
        10 => {
            let text = String::from_utf8(post(path, &[], &body(dice))).unwrap();
            text.replace("HTTP/1.1", dice.one_of(&["HTTP/1.0", "HTTP/2.0", "HTTP/1.2"]))
                .into_bytes()
        }
        11 => dice.one_of(&[&b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"[..], b"\r\n\r\n"]).to_vec(),
        12 => {
            // One byte of a valid request is changed.
            let mut bytes = post(path, &[], &body(dice));
            let at = dice.below(bytes.len());
            bytes[at] = dice.roll();
            bytes
        }
        _ => (0..dice.below(20)).map(|_| dice.roll()).collect(),
    }
}

fn requests(dice: &mut Dice<'_>) -> Vec<u8> {
    (0..1 + dice.below(6)).flat_map(|_| request(dice)).collect()
}

// ---- the properties

/// Input at once, cut anywhere and one byte at a time gives the same answers.
pub fn answers_are_the_same_however_requests_are_cut(bytes: &[u8]) {
    let mut dice = Dice(bytes);
    let cuts = [dice.roll(), dice.roll(), dice.roll(), dice.roll()];
    let input = requests(&mut dice);
    let whole = answers(&[&input]);
    let bytewise: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(whole, answers(&bytewise), "bytewise: {}", input.escape_ascii());
    let mut ends = cuts.map(|cut| usize::from(cut) * (input.len() + 1) / 256);
    ends.sort_unstable();
    let (mut pieces, mut at) = (Vec::new(), 0);
    for end in ends.into_iter().chain([input.len()]) {
        pieces.push(&input[at..end]);
        at = end;
    }
    assert_eq!(whole, answers(&pieces), "cut at {ends:?}: {}", input.escape_ascii());
}

/// Bytes before an event: the size line of its chunk.
const CHUNK_SIZE_LINE: usize = 10;

/// A peer that does not read gets answers up to the output limit; no answer begins beyond it. When
/// the peer reads again, it gets the same bytes as any other peer.
pub fn slow_reader_gets_the_same_bytes_as_others(bytes: &[u8]) {
    let mut dice = Dice(bytes);
    let limits = Limits { output_bytes_max: 1_024 + 16 * dice.below(256), ..Limits::default() };
    let mark = limits.output_bytes_max;
    let input = requests(&mut dice).repeat(1 + dice.below(4));
    let expected = answers_of(&mut lab(limits.clone()), &[&input]);
    let mut lab = lab(limits);
    let peer = lab.open();
    lab.set_reads(peer, false);
    lab.write(peer, &input);
    let waiting = lab.unsent_bytes(peer);
    let mut at = 0;
    while let Some((reply, used)) = Reply::parse(&waiting[at..], false, false) {
        assert!(at <= mark, "an answer is begun at {at}, behind {mark}");
        // An answer is written as a whole, and so is an event; a stream begins no event beyond the
        // limit.
        let last = waiting[at..at + used].windows(4).rposition(|bytes| bytes == b"id: ");
        let is_stream = reply.field("content-type") == Some("text/event-stream");
        let begun = at + last.filter(|_| is_stream).unwrap_or_default();
        assert!(begun <= mark + CHUNK_SIZE_LINE, "an event is begun at {begun}, behind {mark}");
        at += used;
        if !reply.complete || at == waiting.len() {
            break;
        }
    }
    lab.set_reads(peer, true);
    assert_eq!(settled(&mut lab, peer), expected, "{}", input.escape_ascii());
}

/// The server's answers to pieces that arrive at one moment, and whether the connection stays open.
fn answers(pieces: &[&[u8]]) -> (Vec<Reply>, bool) {
    answers_of(&mut lab(Limits::default()), pieces)
}

fn answers_of(lab: &mut Lab, pieces: &[&[u8]]) -> (Vec<Reply>, bool) {
    let peer = lab.open();
    for piece in pieces {
        lab.write(peer, piece);
    }
    settled(lab, peer)
}

fn settled(lab: &mut Lab, peer: Peer) -> (Vec<Reply>, bool) {
    // A call waits at most 300 ms, and there are fewer than thirty.
    lab.pass(9_000);
    let ended = !lab.is_open(peer);
    let mut replies = Reply::parse_all(lab.received(peer), ended);
    // RFC 9110 §10.1.1: the interim answer may be omitted if the body has already arrived.
    replies.retain(|reply| reply.status != 100);
    (replies, ended)
}

/// For any bytes: no panic, the connection ends, and the output stays within a fixed bound.
pub fn any_input_ends_with_bounded_output(bytes: &[u8]) {
    let body_head =
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", bytes.len());
    let chunk_head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let prefixes = ["", &body_head, chunk_head, "GET /", "GET / HTTP/1.1\r\nHost: a\r\nX: "];
    let mut lab = lab(small());
    for prefix in prefixes {
        let peer = lab.open();
        lab.set_reads(peer, false);
        lab.write(peer, prefix.as_bytes());
        for piece in bytes.chunks(1 + bytes.len() / 3) {
            lab.write(peer, piece);
            assert_bounded(&lab, peer);
        }
        lab.end(peer);
        assert_bounded(&lab, peer);
        lab.set_reads(peer, true);
        // A connection is not retained after its peer has closed it.
        lab.pass(1_000);
        assert!(!lab.is_open(peer));
    }
    lab.assert_lives();
}

/// Each connection ends by itself, for any input of any age.
pub fn idle_connections_are_closed(bytes: &[u8]) {
    let mut lab = lab(Limits::default());
    let (raw, near) = (lab.open(), lab.open());
    lab.write(raw, bytes);
    lab.write(near, &requests(&mut Dice(bytes)));
    let limits = lab.engine.limits();
    let patience = limits.head_timeout_ms.max(limits.body_idle_ms).max(limits.keep_alive_idle_ms);
    lab.pass(2 * patience + 10_000);
    assert!(!lab.is_open(raw) && !lab.is_open(near), "{}", bytes.escape_ascii());
    assert_eq!(lab.engine.running(), 0);
}

/// Each limit holds while several connections send requests, read or do not read, and disconnect.
pub fn limits_hold_for_concurrent_connections(bytes: &[u8]) {
    let mut dice = Dice(bytes);
    let limits = Limits {
        streams_max: 1 + dice.below(3),
        tasks_max: 1 + dice.below(12),
        batch_calls_max: 1 + dice.below(5),
        task_bytes_max: 600 + 10 * dice.below(256),
        store_bytes_max: 3_000 + 50 * dice.below(256),
        history_max: 1 + dice.below(4),
        event_ring_max: 1 + dice.below(10) as u64,
        ..small()
    };
    let most = limits.clone();
    let (mut lab, long) = (lab(limits), "x".repeat(1_500));
    let mut peers = [(); 8].map(|()| lab.open());
    for _ in 0..16 {
        let peer = &mut peers[dice.below(8)];
        match dice.below(8) {
            0 => lab.set_reads(*peer, false),
            1 => lab.set_reads(*peer, true),
            2 => {
                lab.end(*peer);
                *peer = lab.open();
            }
            3 => lab.pass(u64::from(dice.roll())),
            // Load that fills the server: long streams and large tasks.
            4 => lab.write(*peer, &post("/", &[], &rpc(V1.stream(), &V1.params(say("slow"))))),
            5 => {
                let large = &long[..long.len().min(8 * usize::from(dice.roll()))];
                lab.write(
                    *peer,
                    &post("/agents/echo", &[], &rpc(V1.send(), &V1.params(say(large)))),
                );
            }
            _ => lab.write(*peer, &requests(&mut dice)),
        }
        if !lab.is_open(*peer) {
            *peer = lab.open();
        }
        peers.iter().for_each(|peer| assert_bounded(&lab, *peer));
        let open = peers.iter().filter(|peer| is_streaming(&lab, **peer)).count();
        assert!(open <= most.streams_max, "{open} streams");
        assert_store_bounded(&mut lab, &most);
    }
}

/// True if the last answer of a connection is an open stream.
fn is_streaming(lab: &Lab, peer: Peer) -> bool {
    let all = [lab.received(peer), lab.unsent_bytes(peer)].concat();
    Reply::parse_all(&all, false).last().is_some_and(|reply| !reply.complete)
}

/// The readable size of all tasks is within the limits of the store and of each task.
fn assert_store_bounded(lab: &mut Lab, most: &Limits) {
    let (mut count, mut held) = (0, 0);
    for path in ["/", "/agents/echo"] {
        let params = json!({"includeArtifacts": true, "historyLength": 100, "pageSize": 100});
        let page = lab.ask(&post(path, &[], &rpc("ListTasks", &params))).result();
        for task in page["tasks"].as_array().expect("tasks") {
            count += 1;
            held += content(task);
            assert!(content(task) <= most.task_bytes_max, "{task}");
            let history = task["history"].as_array().map_or(0, Vec::len);
            assert!(history <= most.history_max, "{task}");
        }
    }
    assert!(count <= most.tasks_max, "{count} tasks");
    assert!(held <= most.store_bytes_max, "{held} bytes of text in the store");
}

/// Bytes of the texts of a task: less than the store holds for them.
fn content(task: &Value) -> usize {
    match task {
        Value::String(text) => text.len(),
        Value::Array(all) => all.iter().map(content).sum(),
        Value::Object(all) => {
            all.iter().filter(|(key, _)| *key == "text").map(|(_, v)| content(v)).sum::<usize>()
                + all.values().filter(|v| v.is_object() || v.is_array()).map(content).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Small enough that random requests reach every limit.
fn small() -> Limits {
    Limits {
        head_bytes_max: 512,
        head_fields_max: 6,
        target_bytes_max: 64,
        query_bytes_max: 16,
        body_bytes_max: 2_000,
        json_depth_max: 8,
        parts_max: 4,
        output_bytes_max: 4_096,
        task_bytes_max: 4_096,
        answer_bytes_max: 4_096,
        store_bytes_max: 64 * 1024,
        tasks_max: 8,
        artifacts_max: 4,
        batch_calls_max: 4,
        ..Limits::default()
    }
}

/// The output for a peer is at most the output limit and one answer; a connection requests at most
/// one request's bytes.
fn assert_bounded(lab: &Lab, peer: Peer) {
    let limits = lab.engine.limits();
    // A part of a few bytes gets some fifty bytes of JSON, a refused call an error of its own.
    let held = 2 * limits.answer_bytes_max + limits.task_bytes_max;
    let answer = 16 * held + 1_000 * limits.batch_calls_max;
    let most = limits.output_bytes_max + answer;
    assert!(lab.unsent(peer) <= most, "{} bytes of output", lab.unsent(peer));
    let progress = lab.progress(peer);
    assert!(progress.need <= limits.head_bytes_max + limits.body_bytes_max, "{progress:?}");
}

/// A canary: the property is false, and a runner that does not refute it is broken.
pub fn every_request_gets_status_200(bytes: &[u8]) {
    let (replies, _) = answers(&[&requests(&mut Dice(bytes))]);
    assert!(replies.iter().all(|reply| reply.status == 200));
}

/// Another canary: no two answers of a connection are equal.
pub fn no_two_answers_are_equal(bytes: &[u8]) {
    let (replies, _) = answers(&[&requests(&mut Dice(bytes))]);
    assert!(replies.windows(2).all(|two| two[0] != two[1]));
}

fn dice() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

/// Bytes, mostly typical bytes of requests.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let likely = prop::sample::select(&b"GETPOST /:\r\n\r\n HTTP/1.1{}[]\",0123456789abcdef;"[..]);
    prop::collection::vec(prop_oneof![4 => likely, 1 => any::<u8>()], 0..600)
}

mod with_seeds {
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn answers_are_the_same_however_requests_are_cut(dice in dice()) {
            super::answers_are_the_same_however_requests_are_cut(&dice);
        }

        #[test]
        fn slow_reader_gets_the_same_bytes_as_others(dice in dice()) {
            super::slow_reader_gets_the_same_bytes_as_others(&dice);
        }

        #[test]
        fn any_input_ends_with_bounded_output(bytes in bytes()) {
            super::any_input_ends_with_bounded_output(&bytes);
        }

        #[test]
        fn idle_connections_are_closed(bytes in bytes(), dice in dice()) {
            super::idle_connections_are_closed(&bytes);
            super::idle_connections_are_closed(&dice);
        }

        #[test]
        fn limits_hold_for_concurrent_connections(dice in dice()) {
            super::limits_hold_for_concurrent_connections(&dice);
        }
    }
}

/// A runner that cannot fail proves nothing: it must refute false properties and shrink the input.
#[test]
fn proptest_runner_refutes_false_properties() {
    for wrong in [every_request_gets_status_200, no_two_answers_are_equal] {
        let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
        let outcome = TestRunner::new(config).run(&dice(), |dice| {
            wrong(&dice);
            Ok(())
        });
        let Err(TestError::Fail(_, dice)) = outcome else { panic!("a canary lives: {outcome:?}") };
        let again = std::panic::catch_unwind(|| wrong(&dice));
        assert!(again.is_err(), "the smallest input fails, too");
    }
}
