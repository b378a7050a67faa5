//! gRPC above bytes: a request already parsed by the caller, answered in parts.

use std::{
    sync::Arc,
    task::{Poll, Waker},
};

use peregrine::{
    agent::{Agent, Profile, TaskLookup, Turn, Wanted},
    auth::Authenticator,
    binding::grpc::fields::v1,
    engine::{
        Cx, Engine, Exchange, FieldLines, HeadParts, RequestParts, ResponseSink, Setup, Worker,
    },
    model::{Generation, TaskBuf, TaskState},
    pb::{Fields, Writer},
    service::{Now, Peer, Start},
};

use crate::support::{BEGIN, Counter, callers::ByName, echo, script};

/// The response to a call.
#[derive(Debug, Default)]
struct Response {
    status: u16,
    /// The fields of the head, and the trailers.
    fields: [Vec<(String, String)>; 2],
    content: Vec<u8>,
    is_over: bool,
}

impl ResponseSink for Response {
    fn head(&mut self, head: &HeadParts) {
        assert_eq!(self.status, 0, "a second head");
        self.status = head.status;
        head.for_each_field(|name, value| {
            self.fields[0].push((name.to_ascii_lowercase(), value.to_owned()));
        });
    }

    fn content(&mut self, bytes: &mut Vec<u8>) {
        assert!(self.status != 0 && !self.is_over);
        self.content.append(bytes);
    }

    fn end(&mut self, trailers: FieldLines<'_>) {
        assert!(self.status != 0 && !self.is_over);
        self.is_over = true;
        self.fields[1] =
            trailers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    }
}

impl Response {
    fn field(&self, name: &str) -> Option<&str> {
        let all = self.fields.iter().flatten();
        all.into_iter().find(|field| field.0 == name).map(|field| &*field.1)
    }

    /// The messages, without their frames.
    fn messages(&self) -> Vec<&[u8]> {
        let (mut rest, mut messages) = (&self.content[..], Vec::new());
        while let Some((prefix, after)) = rest.split_first_chunk::<5>() {
            let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
            let (message, after) = after.split_at(length as usize);
            messages.push(message);
            rest = after;
        }
        assert!(rest.is_empty());
        messages
    }

    /// The first field number of each message, which tells the kind of event.
    fn kinds(&self) -> Vec<u32> {
        let first = |message: &&[u8]| Fields(message).next().unwrap().unwrap().0;
        self.messages().iter().map(first).collect()
    }
}

struct Server {
    engine: Arc<Engine>,
    worker: Worker,
    now: Now,
}

impl Server {
    fn new(change: impl FnOnce(&mut Setup)) -> Server {
        let mut setup = Setup { agents: vec![echo()], ..Setup::default() };
        change(&mut setup);
        let base_url = "http://a".to_owned();
        let start = Start { secret: 7, unix_ms: Arc::new(|| BEGIN.unix_ms), workers: 1, base_url };
        let engine = setup.build(start).unwrap();
        let worker = Worker::new(0, engine.limits(), Box::new(Counter(1)));
        Server { engine, worker, now: BEGIN }
    }

    fn cx<'a>(&'a mut self, out: &'a mut Vec<u8>, unsent: usize) -> Cx<'a> {
        let peer = Peer::default();
        let (engine, worker) = (&*self.engine, &mut self.worker);
        Cx { engine, worker, now: self.now, wake: Waker::noop(), out, unsent, peer }
    }

    fn begin(&mut self, rpc: &str, takes_trailers: bool, body: &[u8]) -> Exchange {
        let mut exchange = self.open(rpc, takes_trailers);
        exchange.push(self.engine.limits(), body);
        exchange.end();
        exchange
    }

    /// A call by alice without its body yet.
    fn open(&mut self, rpc: &str, takes_trailers: bool) -> Exchange {
        let target = format!("/lf.a2a.v1.A2AService/{rpc}");
        self.open_by(&target, "Bearer alice", takes_trailers)
    }

    fn open_by(&mut self, target: &str, authorization: &str, takes_trailers: bool) -> Exchange {
        let fields = [
            (&b"a2a-version"[..], &b"1.0"[..]),
            (b"Content-Type", b"application/grpc+proto"),
            (b"te", b"trailers"),
            (b"authorization", authorization.as_bytes()),
        ];
        let request = RequestParts {
            method: b"POST",
            target: target.as_bytes(),
            authority: Some(b"a:1"),
            fields: fields.into_iter(),
            has_body: true,
            takes_trailers,
        };
        Exchange::new(&mut self.cx(&mut Vec::new(), 0), request)
    }

    fn poll(&mut self, exchange: &mut Exchange, response: &mut Response, unsent: usize) {
        let mut out = Vec::new();
        let polled = exchange.poll(&mut self.cx(&mut out, unsent), response);
        assert_eq!(polled == Poll::Ready(()), response.is_over);
    }

    fn pass(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.engine.tick(&mut self.worker, self.now, Waker::noop());
    }

    fn call(&mut self, rpc: &str, body: &[u8]) -> Response {
        let (mut exchange, mut response) = (self.begin(rpc, true, body), Response::default());
        self.poll(&mut exchange, &mut response, 0);
        response
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

fn send_body(text: &str) -> Vec<u8> {
    let (mut part, mut message, mut request) = (Vec::new(), Vec::new(), Vec::new());
    Writer(&mut part).bytes(v1::part::TEXT, text.as_bytes());
    let mut writer = Writer(&mut message);
    writer.bytes(v1::message::MESSAGE_ID, b"m");
    writer.number(v1::message::ROLE, 1);
    writer.bytes(v1::message::PARTS, &part);
    Writer(&mut request).bytes(v1::send_message_request::MESSAGE, &message);
    framed(&request)
}

fn get(id: &str) -> Vec<u8> {
    let mut request = Vec::new();
    Writer(&mut request).bytes(v1::get_task_request::ID, id.as_bytes());
    framed(&request)
}

#[test]
fn unary_call_returns_one_message_and_a_status_trailer() {
    let mut server = Server::new(|_| ());
    let response = server.call("SendMessage", &send_body("hi"));
    assert_eq!((response.status, response.is_over, response.messages().len()), (200, true, 1));
    assert_eq!(response.field("content-type"), Some("application/grpc"));
    assert!(response.field("grpc-accept-encoding").is_some());
    assert_eq!(response.fields[1], [("grpc-status".to_owned(), "0".to_owned())]);
}

#[test]
fn rejected_call_returns_a_trailers_only_response() {
    let mut server = Server::new(|setup| setup.limits.body_bytes_max = 1024);
    let (two, large) = ([get("x"), get("y")].concat(), get(&"x".repeat(2000)));
    let compressed = [&[1][..], &get("x")[1..]].concat();
    for (rpc, body, code) in [
        ("GetTask", &get("nothing")[..], "5"),
        ("GetTask", &get(""), "3"),
        ("GetTask", &framed(b"\xff"), "3"),
        ("GetTask", &two, "3"),
        ("GetTask", b"", "3"),
        ("GetTask", b"\0\0\0\0\x09x", "3"),
        ("GetTask", &large, "8"),
        ("GetTask", b"\0\0\0\xff\xffx", "8"),
        ("GetTask", &compressed, "13"),
        ("Nothing", &get("x"), "12"),
        ("GetExtendedAgentCard", &framed(b""), "9"),
        ("SubscribeToTask", &get("nothing"), "5"),
    ] {
        let response = server.call(rpc, body);
        assert_eq!((response.status, response.is_over), (200, true), "{rpc} {body:?}");
        assert_eq!(response.field("grpc-status"), Some(code), "{rpc} {body:?}: {response:?}");
        assert!(
            response.content.is_empty() && response.fields[1].is_empty(),
            "{rpc}: {response:?}"
        );
        assert!(response.field("content-length").is_none_or(|length| length == "0"));
    }
    // A foreign host is refused before the call is read.
    let mut server = Server::new(|setup| setup.allow_hosts = vec!["b".to_owned()]);
    assert_eq!(server.call("GetTask", &get("x")).field("grpc-status"), Some("7"));
}

#[test]
fn grpc_call_without_trailer_support_is_404() {
    let mut server = Server::new(|_| ());
    let (mut exchange, mut response) =
        (server.begin("GetTask", false, &get("x")), Response::default());
    server.poll(&mut exchange, &mut response, 0);
    assert_eq!((response.status, response.field("grpc-status")), (404, None));
}

#[test]
fn stream_head_carries_the_id_of_the_first_event() {
    let mut server = Server::new(|_| ());
    let response = server.call("SendStreamingMessage", &send_body("stream:3"));
    assert_eq!(response.field("a2a-event-id"), Some("1"), "{response:?}");
    use v1::stream_response as kind;
    let update = [kind::STATUS_UPDATE, kind::ARTIFACT_UPDATE];
    assert_eq!(response.kinds(), [kind::TASK, update[0], update[1], update[0]]);
    assert_eq!(response.field("grpc-status"), Some("0"));
    // A direct message is a stream of one item, without an event id.
    let response = server.call("SendStreamingMessage", &send_body("ping"));
    assert_eq!((response.kinds(), response.field("a2a-event-id")), (vec![kind::MESSAGE], None));
}

#[test]
fn waiting_call_sends_no_head_before_its_answer() {
    let mut server = Server::new(|_| ());
    let body = send_body("hold:1000:1");
    let (mut exchange, mut response) =
        (server.begin("SendMessage", true, &body), Response::default());
    server.poll(&mut exchange, &mut response, 0);
    assert_eq!(response.status, 0, "{response:?}");
    server.pass(1_000);
    server.poll(&mut exchange, &mut response, 0);
    assert_eq!((response.messages().len(), response.field("grpc-status")), (1, Some("0")));
}

#[test]
fn body_completed_after_credential_withdrawal_is_rejected() {
    for is_whole in [false, true] {
        let by = Arc::new(ByName::default());
        let authenticator: Arc<dyn Authenticator> = Arc::clone(&by) as _;
        let mut server = Server::new(|setup| setup.authenticator = Some(authenticator));
        let (mut exchange, mut response) = (server.open("SendMessage", true), Response::default());
        let body = send_body("hi");
        if !is_whole {
            exchange.push(server.engine.limits(), &body[..9]);
            server.poll(&mut exchange, &mut response, 0);
        }
        by.grant.withdraw();
        let mut out = Vec::new();
        match is_whole {
            true => _ = exchange.poll_whole(&mut server.cx(&mut out, 0), &body, &mut response),
            false => {
                exchange.push(server.engine.limits(), &body[9..]);
                exchange.end();
                server.poll(&mut exchange, &mut response, 0);
            }
        }
        assert_eq!(response.field("grpc-status"), Some("16"), "{is_whole} {response:?}");
        assert!(response.is_over && response.messages().is_empty());
        assert!(response.field("www-authenticate").is_some());
    }
}

#[test]
fn anonymous_body_is_read_only_for_health_up_to_4_kib() {
    let authenticator: Arc<dyn Authenticator> = Arc::new(ByName::default());
    let mut server = Server::new(|setup| setup.authenticator = Some(authenticator));
    for target in ["/lf.a2a.v1.A2AService/Nothing", "/grpc.health.v1.Health/Nothing"] {
        let (mut exchange, mut response) = (server.open_by(target, "", true), Response::default());
        assert!(!exchange.wants_body(), "{target}");
        server.poll(&mut exchange, &mut response, 0);
        assert_eq!(response.field("grpc-status"), Some("12"), "{target}");
    }
    // The length prefix alone shows that the message is too large.
    for (length, code) in [(4_096_u32, None), (4_097, Some("8"))] {
        let target = "/grpc.health.v1.Health/Check";
        let (mut exchange, mut response) = (server.open_by(target, "", true), Response::default());
        let prefix = [&[0][..], &length.to_be_bytes()].concat();
        exchange.push(server.engine.limits(), &prefix);
        server.poll(&mut exchange, &mut response, 0);
        assert_eq!(response.field("grpc-status"), code, "{length}");
    }
    let target = "/grpc.health.v1.Health/Check";
    let (mut exchange, mut response) = (server.open_by(target, "", true), Response::default());
    exchange.push(server.engine.limits(), &framed(b""));
    exchange.end();
    server.poll(&mut exchange, &mut response, 0);
    assert_eq!(response.field("grpc-status"), Some("0"), "{response:?}");
}

/// Has each task elsewhere, and returns it at once.
struct Elsewhere;

impl Agent for Elsewhere {
    fn start(&self, _: Turn<'_>) {}

    fn missing(&self, lookup: TaskLookup<'_>) {
        let id = lookup.task_id.to_str().into_owned();
        let mut task = TaskBuf::new(&*id, "c", Generation::V1).unwrap();
        let is_canceled = lookup.wanted == Wanted::Cancel;
        let state = if is_canceled { TaskState::Canceled } else { TaskState::Working };
        task.status(state, 1, None).unwrap();
        if let Ok(lookup) = lookup.defer() {
            lookup.found(task);
        }
    }
}

#[test]
fn unstored_task_can_be_read_canceled_and_subscribed() {
    let mut server = Server::new(|setup| {
        setup.agents = vec![(Profile::new("elsewhere", "Has tasks."), Arc::new(Elsewhere))];
    });
    for rpc in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let response = server.call(rpc, &get("old"));
        assert_eq!(response.field("grpc-status"), Some("0"), "{rpc} {response:?}");
        let kind = if rpc == "SubscribeToTask" { v1::stream_response::TASK } else { v1::task::ID };
        assert_eq!(response.kinds(), [kind], "{rpc}");
        assert!(response.content.windows(3).any(|bytes| bytes == b"old"));
    }
}

#[test]
fn server_shutdown_ends_a_stream_with_unavailable() {
    let mut server = Server::new(|_| ());
    let body = send_body("hold:60000:1");
    let begun = server.begin("SendStreamingMessage", true, &body);
    let (mut exchange, mut response) = (begun, Response::default());
    server.poll(&mut exchange, &mut response, 0);
    assert_eq!((response.messages().len(), response.is_over), (1, false));
    // Time alone sends nothing: gRPC messages have no keep-alive comment.
    server.pass(59_000);
    server.poll(&mut exchange, &mut response, 0);
    assert_eq!((response.messages().len(), response.is_over), (1, false));
    server.engine.drain();
    server.engine.cut();
    server.poll(&mut exchange, &mut response, 0);
    assert_eq!(
        (response.field("grpc-status"), response.is_over),
        (Some("14"), true),
        "{response:?}"
    );
}

#[test]
fn stream_of_a_slow_reader_ends_with_unavailable() {
    // An artifact that is replaced repeatedly: the ring alone retains the old versions.
    let toml = r#"
        [[rule]]
        [[rule.step]]
        status = "working"
        [[rule.step]]
        delay_ms = 1000
        status = "working"
        [[rule.step]]
        artifact = "a"
        repeat = 200
        payload_bytes = 500
        [[rule.step]]
        delay_ms = 60000
        status = "completed"
    "#;
    let mut server = Server::new(|setup| {
        setup.agents = vec![script("a", toml)];
        setup.limits.event_ring_max = 20;
    });
    let body = send_body("hi");
    let begun = server.begin("SendStreamingMessage", true, &body);
    let (mut exchange, mut response) = (begun, Response::default());
    server.poll(&mut exchange, &mut response, 0);
    // The client does not read, and more events are published than the task can replay.
    let full = server.engine.limits().output_bytes_max;
    server.poll(&mut exchange, &mut response, full);
    server.pass(1_000);
    server.poll(&mut exchange, &mut response, full);
    assert_eq!((response.messages().len(), response.is_over), (2, false));
    server.poll(&mut exchange, &mut response, 0);
    assert_eq!((response.messages().len(), response.field("grpc-status")), (2, Some("14")));
    assert!(response.field("grpc-message").unwrap().contains("fell behind"));
}
