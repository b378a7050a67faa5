//! Refusals by limits over real sockets: each is counted once, under the name of the limit.
//!
//! The list of limits comes from the code: from the tables of faults and rejects, and from each
//! line of `src` that names the limit of a refusal.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::Path,
};

use peregrine::{
    agent::echo::Echo,
    auth::{Quota, Quotas, Rate},
    engine::Setup,
    limits::Limits,
    net::{Running, Server},
};
use serde_json::json;

use crate::{
    http2::{GET, PREFACE, SETTINGS, frame as http2_frame},
    support::{
        ask::{V1, get, post, post_chunked, rpc, say},
        binary::{Tcp, eventually},
        ws::{frame, text, upgrade},
    },
};

/// A server under small limits.
struct Small {
    running: Running,
    admin: SocketAddr,
}

impl Small {
    fn start(limits: Limits, anonymous: Quota) -> Small {
        let quotas = Quotas { anonymous, ..Quotas::default() };
        let setup = Setup { limits, quotas, ..Setup::default() };
        let server = Server::with(setup).agent(Echo::profile(), Echo).allow_host("*").workers(1);
        let server = server.metrics().admin("127.0.0.1:0").listen("127.0.0.1:0");
        let running = server.start().unwrap();
        let admin = running.admin().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
        Small { running, admin }
    }

    fn connect(&self) -> Tcp {
        Tcp::to(self.running.addrs()[0])
    }

    /// Sends bytes on a connection of their own, and waits for the answer.
    fn exchange(&self, bytes: &[u8]) {
        let mut tcp = self.connect();
        tcp.write(bytes);
        tcp.read_first();
    }

    /// Refusals so far, by limit.
    fn refused(&self) -> BTreeMap<String, u64> {
        let mut tcp = Tcp::to(self.admin);
        tcp.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let reply = tcp.reply();
        let line = |line: &str| {
            let rest = line.strip_prefix("peregrine_refused_total{limit=\"")?;
            let (limit, count) = rest.split_once("\"} ")?;
            Some((limit.to_owned(), count.parse::<f64>().unwrap() as u64))
        };
        reply.text().lines().filter_map(line).filter(|(_, count)| *count > 0).collect()
    }

    /// Asserts that `provoke` causes one refusal by this limit, and no other.
    fn assert_counted(&self, limit: &str, provoke: &dyn Fn(&Small)) {
        let mut expected = self.refused();
        *expected.entry(limit.to_owned()).or_default() += 1;
        provoke(self);
        eventually(limit, || self.refused().get(limit) == expected.get(limit));
        assert_eq!(self.refused(), expected, "{limit}");
    }
}

type Case = (&'static str, Box<dyn Fn(&Small)>);

fn case(limit: &'static str, provoke: impl Fn(&Small) + 'static) -> Case {
    (limit, Box::new(provoke))
}

fn bytes(limit: &'static str, bytes: impl Into<Vec<u8>>) -> Case {
    let bytes = bytes.into();
    case(limit, move |small| small.exchange(&bytes))
}

fn send(body: &str) -> Vec<u8> {
    post("/", &[("A2A-Version", "1.0")], body)
}

fn hold() -> Vec<u8> {
    send(&rpc(V1.send(), &V1.params(say("hold:600000:1"))))
}

fn hold_stream() -> Vec<u8> {
    send(&rpc(V1.stream(), &V1.params(say("hold:600000:1"))))
}

/// Limits that one request exceeds.
fn requests() -> (Limits, Vec<Case>) {
    let limits = Limits {
        head_bytes_max: 2_048,
        head_fields_max: 20,
        target_bytes_max: 512,
        query_bytes_max: 128,
        body_bytes_max: 4_096,
        evo_ai_body_bytes_max: 4_096,
        ws_frame_bytes_max: 4_096,
        ws_message_bytes_max: 6_000,
        chunk_line_bytes_max: 64,
        trailer_bytes_max: 128,
        batch_calls_max: 2,
        json_depth_max: 8,
        json_tokens_max: 200,
        rpc_id_bytes_max: 16,
        identifier_bytes_max: 32,
        string_bytes_max: 64,
        parts_max: 2,
        references_max: 2,
        hops_max: 2,
        task_bytes_max: 16_384,
        ..Limits::default()
    };
    let fields = |count: usize| "X-A: b\r\n".repeat(count);
    let list = |method: &str| format!("[{}]", vec![rpc(method, &json!({"id": "x"})); 3].join(","));
    let nested = format!("{}{}", "[".repeat(20), "]".repeat(20));
    let message = |member: &str| {
        let base = r#""messageId":"m","role":"ROLE_USER""#;
        send(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{{{base},{member}}}}}}}"#
        ))
    };
    let part = r#"{"text":"a"}"#;
    let cases = vec![
        bytes("head_bytes_max", format!("GET / HTTP/1.1\r\nX-A: {}\r\n", "b".repeat(3_000))),
        bytes("head_fields_max", format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", fields(30))),
        bytes("method_bytes_max", format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(40))),
        bytes("target_bytes_max", get(&format!("/{}", "a".repeat(600)))),
        bytes("query_bytes_max", get(&format!("/?a={}", "a".repeat(200)))),
        bytes("body_bytes_max", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n"),
        bytes("body_bytes_max", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500000000\r\n\r\n"),
        bytes("body_bytes_max", post_chunked("/", &"x".repeat(5_000), 5_000)),
        bytes(
            "chunk_line_bytes_max",
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;{}\r\n",
                "a".repeat(200)
            ),
        ),
        bytes(
            "trailer_bytes_max",
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-A: {}\r\n\r\n",
                "a".repeat(300)
            ),
        ),
        bytes("batch_calls_max", send(&list("GetTask"))),
        bytes("json_depth_max", send(&nested)),
        bytes("json_tokens_max", send(&format!("[{}0]", "0,".repeat(300)))),
        bytes(
            "rpc_id_bytes_max",
            send(
                r#"{"jsonrpc":"2.0","id":"0123456789abcdefghij","method":"GetTask","params":{"id":"x"}}"#,
            ),
        ),
        bytes("hops_max", post("/", &[("A2A-Hops", "3")], &rpc("GetTask", &json!({"id": "x"})))),
        bytes("parts_max", message(&format!(r#""parts":[{part},{part},{part}]"#))),
        bytes(
            "references_max",
            message(&format!(r#""parts":[{part}],"referenceTaskIds":["a","b","c"]"#)),
        ),
        case("ws_frame_bytes_max", |small| {
            let mut socket = small.connect();
            socket.write(&upgrade("/", "A2A-Version: 1.0\r\n"));
            socket.read_until("\r\n\r\n");
            socket.write(&text(&"x".repeat(5_000)));
            socket.read_to_end();
        }),
        case("ws_message_bytes_max", |small| {
            let mut socket = small.connect();
            socket.write(&upgrade("/", "A2A-Version: 1.0\r\n"));
            socket.read_until("\r\n\r\n");
            socket.write(&frame(0x01, "x".repeat(4_000).as_bytes()));
            socket.write(&frame(0x00, "x".repeat(4_000).as_bytes()));
            socket.read_to_end();
        }),
    ];
    (limits, cases)
}

/// Limits of HTTP/2: concurrent calls, and resets.
fn http2() -> (Limits, Vec<Case>) {
    let limits = Limits { http2_streams_max: 3, http2_resets_max: 5, ..Limits::default() };
    let open = |n: u32| http2_frame(1, 4, 2 * n + 1, &[&[0x83], &GET[1..]].concat());
    let reset = |n: u32| http2_frame(3, 0, 2 * n + 1, &8_u32.to_be_bytes());
    let calls = (0..4).flat_map(open).collect::<Vec<_>>();
    let resets = (0..50).flat_map(|n| [open(n), reset(n)].concat()).collect::<Vec<_>>();
    let cases = [("http2_streams_max", calls), ("http2_resets_max", resets)];
    let cases = cases.map(|(limit, sent)| bytes(limit, [PREFACE, SETTINGS, &sent].concat()));
    (limits, cases.into())
}

/// Limits that need another request in flight.
fn held() -> Vec<(Limits, Quota, Vec<u8>, Case)> {
    let (limits, quota) = (Limits::default(), Quota::default());
    let again = |limit, request: Vec<u8>| bytes(limit, request);
    let of = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        limits
    };
    vec![
        (of(|l| l.tasks_max = 1), quota, hold(), again("tasks_max", hold())),
        (of(|l| l.streams_max = 1), quota, hold_stream(), again("streams_max", hold_stream())),
        (
            limits.clone(),
            Quota { streams: Some(1), ..quota },
            hold_stream(),
            again("quotas.streams", hold_stream()),
        ),
        (
            limits.clone(),
            Quota { waiting_calls: Some(1), ..quota },
            hold(),
            again("quotas.waiting_calls", hold()),
        ),
        (
            limits.clone(),
            Quota { calls: Some(Rate::per_minute(1)), ..quota },
            hold(),
            again("quotas.calls", hold()),
        ),
        (of(|l| l.connections_max = 1), quota, get("/healthz"), again("connections_max", get("/"))),
        (
            of(|l| l.head_timeout_ms = 50),
            quota,
            get("/healthz"),
            again("head_timeout_ms", b"GET / HT".to_vec()),
        ),
        (
            of(|l| l.body_idle_ms = 50),
            quota,
            get("/healthz"),
            again(
                "body_idle_ms",
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n".to_vec(),
            ),
        ),
        (
            of(|l| l.ws_in_flight_max = 1),
            quota,
            get("/healthz"),
            case("ws_in_flight_max", |small| {
                let mut socket = small.connect();
                socket.write(&upgrade("/", "A2A-Version: 1.0\r\n"));
                socket.read_until("\r\n\r\n");
                let call = rpc(V1.send(), &V1.params(say("hold:600000:1")));
                socket.write(&text(&call));
                socket.write(&text(&call));
                socket.read_until("ws_in_flight_max");
            }),
        ),
    ]
}

#[test]
fn every_refusal_by_a_limit_is_counted_once() {
    for (limits, cases) in [requests(), http2()] {
        let small = Small::start(limits, Quota::default());
        for (limit, provoke) in &cases {
            small.assert_counted(limit, &**provoke);
        }
    }
    for (limits, quota, first, (limit, provoke)) in held() {
        let small = Small::start(limits, quota);
        let mut busy = small.connect();
        busy.write(&first);
        if first != get("/healthz") {
            eventually("the first is there", || {
                let mut tcp = Tcp::to(small.admin);
                tcp.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
                let text = tcp.reply().text().to_owned();
                text.contains("peregrine_tasks{state=\"submitted\"} 1\n")
            });
        } else {
            busy.reply();
        }
        small.assert_counted(limit, &*provoke);
    }
}

/// Limits with refusals that other tests provoke, or that take too much for a test: the code counts
/// each refusal named here.
const ELSEWHERE: [&str; 25] = [
    "admin_connections_max",
    "answer_bytes_max",
    "async_futures_max",
    "blocking_queue_max",
    "deferred_calls_max",
    "http2_connections_max",
    "http2_control_frames_max",
    "idempotency_entries_max",
    "output_bytes_max",
    "owner_share",
    // Faults of these kinds without a limit of their own.
    "overload",
    "quotas",
    "owners_max",
    "turns_queued_max",
    "push_bytes_max",
    "push_configs_owner_max",
    "push_scopes_max",
    "push_scopes_owner_max",
    "quotas.deferred",
    "quotas.running_bytes",
    "quotas.running_tasks",
    "store_bytes_max",
    "task_bytes_max",
    "tenants_max",
    "upstream_streams_max",
];

/// Names of limits in the code: as `at_limit("name")`.
fn named_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            named_in(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for begin in [
            "at_limit(\"",
            "of_limit(\"",
            "limit: Some(\"",
            "limit = Some(\"",
            "refused(local.worker, \"",
            "refused(permit.worker, \"",
        ] {
            for (at, _) in text.match_indices(begin) {
                let name = text[at + begin.len()..].split('"').next().unwrap();
                found.insert(name.to_owned());
            }
        }
    }
}

#[test]
#[cfg(feature = "internals")]
fn every_refusing_limit_has_a_test_case() {
    use peregrine::{fault::FaultKind, http::Reject};
    let mut names = BTreeSet::new();
    named_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
    names.extend(FaultKind::ALL.iter().filter_map(|kind| kind.limit()).map(str::to_owned));
    names.extend(Reject::ALL.iter().filter_map(|reject| reject.limit()).map(str::to_owned));
    let cases = [requests(), http2()].map(|(_, cases)| cases).into_iter().flatten();
    let cases: Vec<_> = cases.collect();
    let held = held();
    let provoked = cases.iter().chain(held.iter().map(|(.., case)| case)).map(|(limit, _)| *limit);
    let tested: BTreeSet<String> = provoked.chain(ELSEWHERE).map(str::to_owned).collect();
    let missing: Vec<_> = names.difference(&tested).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
