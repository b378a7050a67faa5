//! Traces: what an OpenTelemetry collector gets of calls, and that no call waits for a collector
//! that is down, slow or full.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind},
};
use peregrine::{
    agent::{Agent, Deferred, Job, Profile, echo::Echo},
    binding::interfaces::{Binding, Interface},
    client::{Client, ClientBuilder, SendRequest, TraceParent},
    engine::Setup,
    limits::{SPANS_ANSWER_BYTES_MAX, SPANS_TRIES_MAX},
    model::{MessageBuf, PartsBuf, TaskState},
    net::{self, Running, Server, TraceCollector},
};
use prost::Message;

use crate::support::{
    ask::{V1, post, rpc, say, text_of},
    binary::{Binary, PATIENCE, Tcp, eventually},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const OK: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
/// Rejects a message for now, with an immediate retry.
const NOT_NOW: &str = "HTTP/1.1 503 Not Now\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n";
/// Rejects a message for good.
const NO: &str = "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";

/// A collector that gives scripted answers, each once and the last one from then on; empty: no
/// answer.
struct Collector {
    addr: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    spans: Arc<Mutex<Vec<Span>>>,
    received: Receiver<()>,
}

impl Collector {
    fn answering(answers: &[&'static str]) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (heads, spans) = (Arc::<Mutex<Vec<String>>>::default(), Arc::default());
        let (sender, received) = channel();
        let answers = Arc::new(Mutex::new(answers.to_vec()));
        let (own_heads, own_spans) = (Arc::clone(&heads), Arc::clone(&spans));
        thread::spawn(move || {
            for peer in listener.incoming() {
                let (answers, sender) = (Arc::clone(&answers), Sender::clone(&sender));
                let (heads, spans) = (Arc::clone(&own_heads), Arc::clone(&own_spans));
                thread::spawn(move || serve(peer.unwrap(), &answers, &heads, &spans, &sender));
            }
        });
        Collector { addr, heads, spans, received }
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }
}

fn serve(
    mut peer: TcpStream,
    answers: &Mutex<Vec<&'static str>>,
    heads: &Mutex<Vec<String>>,
    spans: &Mutex<Vec<Span>>,
    sender: &Sender<()>,
) {
    loop {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            match peer.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let length = lines.clone().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let mut body = vec![0; length.unwrap().1.parse().unwrap()];
        peer.read_exact(&mut body).unwrap();
        let answer = {
            let mut answers = answers.lock().unwrap();
            if answers.len() > 1 { answers.remove(0) } else { answers[0] }
        };
        if answer == OK {
            let message = ExportTraceServiceRequest::decode(&*body).unwrap();
            let scopes = message.resource_spans.into_iter().flat_map(|one| one.scope_spans);
            spans.lock().unwrap().extend(scopes.flat_map(|one| one.spans));
        }
        heads.lock().unwrap().push(head);
        // The test may have ended.
        let _ = sender.send(());
        if answer.is_empty() {
            // Until the server closes.
            while let Ok(1..) = peer.read(&mut byte) {}
            return;
        }
        let _ = peer.write_all(answer.as_bytes());
    }
}

fn send(addr: SocketAddr, flags: &str, text: &str) -> serde_json::Value {
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-{flags}");
    let fields = [("A2A-Version", "1.0"), ("traceparent", &*parent)];
    let mut tcp = Tcp::to(addr);
    tcp.write(&post("/", &fields, &rpc(V1.send(), &V1.params(say(text)))));
    tcp.reply().result()
}

/// A server in this process that accepts the host of the requests.
fn start(collector: TraceCollector, server: Server) -> Running {
    let server = server.allow_host("*").workers(1).listen("127.0.0.1:0").metrics();
    server.traces(collector).start().unwrap()
}

fn end(running: Running) {
    running.shutdown();
    running.join();
}

/// The number of a metric.
fn count(running: &Running, line: &str) -> u64 {
    let mut tcp = Tcp::to(running.addrs()[0]);
    tcp.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let reply = tcp.reply();
    let mut lines = reply.text().lines();
    let number = lines.find_map(|one| one.strip_prefix(line)?.strip_prefix(' '));
    number.unwrap_or_else(|| panic!("{line}")).parse().unwrap()
}

fn kinds(spans: &[Span]) -> [Vec<&Span>; 2] {
    [SpanKind::Server, SpanKind::Internal]
        .map(|kind| spans.iter().filter(|span| span.kind == kind as i32).collect())
}

fn text<'s>(attributes: &'s [KeyValue], key: &str) -> &'s str {
    let found = attributes.iter().find(|one| one.key == key);
    match &found.unwrap_or_else(|| panic!("{key}")).value.as_ref().unwrap().value {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn spans_of_calls_and_turns_are_sent_before_exit() {
    let collector = Collector::answering(&[OK]);
    let mut server = Binary::start_with_variable("PEREGRINE_TRACES_ENDPOINT", &collector.url());
    let mut tcp = server.connect();
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let mut ids = Vec::new();
    for (flags, text) in [("01", "kept"), ("00", "unkept")] {
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-{flags}");
        let fields = [
            ("A2A-Version", "1.0"),
            ("traceparent", &*parent),
            ("Authorization", "Bearer hush-hush"),
        ];
        tcp.write(&post("/", &fields, &rpc(V1.send(), &V1.params(say(text)))));
        ids.push(tcp.reply().result()["task"]["id"].as_str().unwrap().to_owned());
    }
    let fields = [("A2A-Version", "1.0"), ("traceparent", &*parent)];
    tcp.write(&post("/", &fields, &rpc("Nothing", &serde_json::Value::Null)));
    tcp.reply();
    // A call with a trace of its own.
    tcp.write(&post("/", &[("A2A-Version", "1.0")], &rpc(V1.stream(), &V1.params(say("hi")))));
    tcp.reply();
    drop(tcp);
    server.terminate();
    assert!(server.wait());
    let spans = collector.spans();
    // Spans contain no text of a caller, and no ids except trace ids.
    let printed = format!("{spans:?}");
    assert!(!printed.contains("hush") && ids.iter().all(|id| !printed.contains(id)), "{printed}");
    let [calls, turns] = kinds(&spans);
    let [sent, nothing, streamed] = calls[..] else { panic!("{calls:?}") };
    let [turn, of_stream] = turns[..] else { panic!("{turns:?}") };
    assert_eq!(sent.trace_id, u128::from_str_radix(TRACE, 16).unwrap().to_be_bytes());
    assert_eq!(sent.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert_eq!((&sent.name, &turn.name), (&"SendMessage".to_owned(), &"invoke_agent echo".into()));
    assert_eq!((&turn.trace_id, &turn.parent_span_id), (&sent.trace_id, &sent.span_id));
    assert_eq!(text(&sent.attributes, "a2a.agent"), "echo");
    assert!(sent.start_time_unix_nano <= turn.start_time_unix_nano);
    assert!(turn.end_time_unix_nano <= sent.end_time_unix_nano);
    assert_eq!(text(&nothing.attributes, "error.type"), "METHOD_NOT_FOUND");
    assert!(streamed.parent_span_id.is_empty() && streamed.trace_id != sent.trace_id);
    assert_eq!(of_stream.parent_span_id, streamed.span_id);
    assert_eq!(streamed.events.len(), 1);
    let heads = collector.heads.lock().unwrap();
    assert!(heads[0].starts_with("POST /v1/traces HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].contains("Content-Type: application/x-protobuf\r\n"), "{heads:?}");
}

#[test]
fn spans_of_jobs_and_deferred_turns_record_the_outcome() {
    let collector = Collector::answering(&[OK]);
    let to = TraceCollector::new(&collector.url()).unwrap();
    let to = to.field("Authorization", "Bearer hush-hush").unwrap().service_name("shop");
    let words = || MessageBuf::agent(&PartsBuf::new().text("here it is"));
    let shown = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&shown);
    let defers = net::async_agent(move |deferred: Deferred| {
        let trace = deferred.request().header("traceparent").unwrap().to_owned();
        seen.lock().unwrap().push(trace);
        async move {
            net::sleep(std::time::Duration::from_millis(5)).await;
            deferred.reply(words());
        }
    });
    let blocks = net::blocking_agent(|mut job: Job| {
        job.status(TaskState::Working, None)?;
        job.status(TaskState::Failed, None)
    });
    let server = Server::new().agent(profile("defers"), defers);
    let running = start(to, server.agent(Profile::new("blocks", "Blocks."), blocks));
    let addr = running.addrs()[0];
    assert_eq!(text_of(&send(addr, "01", "hi")["message"]), "here it is");
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let fields = [("A2A-Version", "1.0"), ("traceparent", &*parent)];
    let mut tcp = Tcp::to(addr);
    tcp.write(&post("/agents/blocks", &fields, &rpc(V1.send(), &V1.params(say("hi")))));
    assert_eq!(tcp.reply().result()["task"]["status"]["state"], "TASK_STATE_FAILED");
    drop(tcp);
    end(running);
    let spans = collector.spans();
    let [calls, turns] = kinds(&spans);
    assert_eq!((calls.len(), turns.len()), (2, 2));
    for (agent, outcome, is_error) in [("defers", "replied", false), ("blocks", "task", true)] {
        let of = |span: &&&Span| text(&span.attributes, "a2a.agent") == agent;
        let (call, turn) = (calls.iter().find(of).unwrap(), turns.iter().find(of).unwrap());
        assert_eq!(turn.parent_span_id, call.span_id);
        assert_eq!(text(&turn.attributes, "a2a.outcome"), outcome);
        assert_eq!(turn.status.is_some(), is_error, "{turn:?}");
        if agent == "defers" {
            let id = u64::from_be_bytes(turn.span_id[..].try_into().unwrap());
            assert_eq!(*shown.lock().unwrap(), [format!("00-{TRACE}-{id:016x}-01")]);
        }
    }
    assert!(collector.heads.lock().unwrap()[0].contains("Authorization: Bearer hush-hush\r\n"));
}

#[test]
fn spans_of_agent_calls_are_children_of_the_turn_span() {
    for binding in [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc] {
        let collector = Collector::answering(&[OK]);
        let to = || TraceCollector::new(&collector.url()).unwrap();
        let agents: Vec<(Profile, Arc<dyn Agent>)> = vec![(Echo::profile(), Arc::new(Echo))];
        let interfaces = vec![Interface::of(binding)];
        let setup = Setup { agents, interfaces, ..Setup::default() };
        let callee = start(to(), Server::with(setup));
        let caller =
            start(to(), Server::new().agent(profile("asks"), relaying_agent(callee.base_url())));
        let answer = send(caller.addrs()[0], "01", "hi");
        assert_eq!(text_of(&answer["message"]), "it was asked", "{binding:?}");
        end(caller);
        end(callee);
        let spans = collector.spans();
        assert!(spans.iter().all(|span| span.trace_id == spans[0].trace_id), "{spans:?}");
        let [calls, turns] = kinds(&spans);
        let of = |spans: &[&Span], agent| {
            let is_it = |span: &&&Span| text(&span.attributes, "a2a.agent") == agent;
            Span::clone(spans.iter().find(is_it).unwrap())
        };
        let (turn, below) = (of(&turns, "asks"), of(&calls, "echo"));
        assert_eq!(turn.parent_span_id, of(&calls, "asks").span_id, "{binding:?}");
        assert_eq!(below.parent_span_id, turn.span_id, "{binding:?}");
        assert_eq!(of(&turns, "echo").parent_span_id, below.span_id, "{binding:?}");
        let system = match binding {
            Binding::Grpc => "grpc",
            Binding::HttpJson => "http+json",
            Binding::JsonRpc | Binding::WebSocket => "jsonrpc",
        };
        assert_eq!(text(&below.attributes, "rpc.system.name"), system);
    }
}

#[cfg(feature = "gateway")]
#[test]
fn relayed_call_span_is_child_of_gateway_client_span() {
    let collector = Collector::answering(&[OK]);
    let to = || TraceCollector::new(&collector.url()).unwrap();
    let upstream = start(to(), Server::new().agent(Echo::profile(), Echo));
    let options = net::HttpClientOptions::default();
    let remote = net::RemoteAgent::new(upstream.base_url(), ClientBuilder::new(), options).unwrap();
    let gateway = start(to(), Server::new().agent(profile("remote"), remote));
    send(gateway.addrs()[0], "01", "hi");
    end(gateway);
    end(upstream);
    let spans = collector.spans();
    let [calls, _] = kinds(&spans);
    let of = |agent| calls.iter().find(|span| text(&span.attributes, "a2a.agent") == agent);
    let (call, below) = (of("remote").unwrap(), of("echo").unwrap());
    let turn = spans.iter().find(|span| span.kind == SpanKind::Client as i32).unwrap();
    assert_eq!((&turn.trace_id, &turn.parent_span_id), (&call.trace_id, &call.span_id));
    assert_eq!((&below.trace_id, &below.parent_span_id), (&turn.trace_id, &turn.span_id));
    assert_eq!(text(&turn.attributes, "server.address"), "127.0.0.1");
    assert_eq!(text(&turn.attributes, "a2a.task.state"), "completed");
}

/// An agent that calls another one in the trace of its own turn.
fn relaying_agent(url: &str) -> impl Agent + use<> {
    let url = url.to_owned();
    net::async_agent(move |deferred: Deferred| {
        let trace = deferred.request().header("traceparent").and_then(TraceParent::parse);
        let url = url.clone();
        async move {
            let client = Client::discover(&url).await.unwrap();
            let request = SendRequest::text("hi").traceparent(trace.unwrap());
            client.send(&request).await.unwrap();
            deferred.reply(MessageBuf::agent(&PartsBuf::new().text("it was asked")));
        }
    })
}

/// The profile of an agent that gets its trace.
fn profile(name: &str) -> Profile {
    let mut profile = Profile::new(name, "Does what it is told.");
    profile.fields = vec!["traceparent".to_owned()];
    profile
}

#[test]
fn unreachable_collector_is_logged_without_credentials() {
    let down = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let path = |name| std::env::temp_dir().join(format!("peregrine-{name}-{}", std::process::id()));
    let (config, log) = (path("down.toml"), path("down.log"));
    let section = "headers = [\"Authorization: Bearer hush-hush\"]";
    std::fs::write(&config, format!("[traces]\nendpoint = \"http://{down}\"\n{section}\n"))
        .unwrap();
    let stderr = std::fs::File::create(&log).unwrap();
    let mut server = Binary::start_with(&["--config", config.to_str().unwrap()], stderr.into());
    let lost = || {
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(!text.contains("hush"), "{text}");
        text.lines()
            .filter(|line| line.contains("the collector of traces did not accept spans"))
            .count()
    };
    send(server.addr(), "01", "hi");
    server.terminate();
    assert!(server.wait());
    // All lost spans were in one message.
    assert_eq!(lost(), 1);
    std::fs::remove_file(config).unwrap();
    std::fs::remove_file(log).unwrap();
}

#[test]
fn spans_are_resent_after_503_with_retry_after() {
    let collector = Collector::answering(&[NOT_NOW, NOT_NOW, OK]);
    let to = TraceCollector::new(&collector.url()).unwrap();
    let running = start(to, Server::new().agent(Echo::profile(), Echo));
    send(running.addrs()[0], "01", "hi");
    let server = (running.addrs()[0], collector.spans().len());
    assert_eq!(server.1, 0);
    end(running);
    assert_eq!(collector.spans().len(), 2);
    assert_eq!(collector.heads.lock().unwrap().len(), 3);
}

#[test]
fn spans_are_not_resent_after_max_tries_or_large_answer() {
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n{}", "a".repeat(70_000));
    for (answer, messages) in [(NOT_NOW, SPANS_TRIES_MAX), (&*long.leak(), 1)] {
        let collector = Collector::answering(&[answer]);
        let to = TraceCollector::new(&collector.url()).unwrap();
        let running = start(to, Server::new().agent(Echo::profile(), Echo));
        send(running.addrs()[0], "01", "hi");
        end(running);
        assert_eq!(collector.heads.lock().unwrap().len(), messages);
    }
    const { assert!(SPANS_ANSWER_BYTES_MAX < 70_000) };
}

#[test]
fn spans_lost_to_failing_collector_are_counted() {
    let refuses = Collector::answering(&[NO]);
    let down = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (url, reason) in [(refuses.url(), "refused"), (format!("http://{down}"), "failed")] {
        let to = TraceCollector::new(&url).unwrap();
        let running = start(to, Server::new().agent(Echo::profile(), Echo));
        // More than fits into a message, so it is sent at once.
        for _ in 0..300 {
            send(running.addrs()[0], "01", "hi");
        }
        let line = format!("peregrine_spans_lost_total{{reason=\"{reason}\"}}");
        eventually("spans are lost", || count(&running, &line) >= 512);
        assert_eq!(count(&running, "peregrine_spans_sent_total"), 0);
        end(running);
    }
}

#[test]
fn silent_collector_blocks_no_call_or_shutdown() {
    let collector = Collector::answering(&[""]);
    let to = TraceCollector::new(&collector.url()).unwrap();
    let running = start(to, Server::new().agent(Echo::profile(), Echo));
    let addr = running.addrs()[0];
    let one = {
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let fields = [("A2A-Version", "1.0"), ("traceparent", &*parent)];
        post("/", &fields, &rpc(V1.get(), &serde_json::json!({ "id": "none" })))
    };
    let mut tcp = Tcp::to(addr);
    for _ in 0..60 {
        tcp.write(&one.repeat(50));
        for _ in 0..50 {
            tcp.reply();
        }
    }
    // The first message is in flight, and the queue after it is full.
    collector.received.recv_timeout(PATIENCE).unwrap();
    let lost = count(&running, "peregrine_spans_lost_total{reason=\"queue\"}");
    assert!((300..1_000).contains(&lost), "{lost}");
    drop(tcp);
    end(running);
    assert!(collector.spans().is_empty());
}

#[test]
fn remote_collector_without_tls_is_rejected_at_startup() {
    let output = std::process::Command::new(crate::support::binary::PATH)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("PEREGRINE_TRACES_ENDPOINT", "http://192.0.2.1:4318")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("PEREGRINE_TRACES_ENDPOINT") && stderr.contains("plain_http"),
        "{stderr}"
    );
}
