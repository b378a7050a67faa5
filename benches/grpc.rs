//! gRPC over loopback, compared with a tonic server that answers with fixed messages of the same
//! size.
//!
//! `cargo bench --bench grpc [-- [engine | instructions | alone | json | one_by_one] CASE...]`:
//! `ratio` is the server's CPU time for a call divided by that of tonic, the median of interleaved
//! rounds. `instructions` counts user-space instructions of a whole server and of tonic, `alone`
//! those of the server, `json` those of JSON-RPC over HTTP/2, `engine` the time of a stream without
//! sockets, `one_by_one` shows the slowest of many calls that wait for each other. As in `server`,
//! CPU time is read from schedstat. Needs Linux, `taskset` and, for instructions, `valgrind`.
//! Results are asserted, times are not.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../tests/support/grpc.rs"]
mod client;
#[path = "support/grpc_load.rs"]
mod grpc_load;
#[path = "support/served.rs"]
mod served;
#[path = "support/tonic_floor.rs"]
mod tonic_floor;

mod support;

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

use bytes::Bytes;
use peregrine::{
    agent::echo::Echo,
    binding::{
        CallContext, Endpoint, Handled, LargeBodies, RequestSource, Scratch, ServerConfig,
        answer::ResponseWriter,
        grpc::{self, Rpc},
        interfaces::Interface,
        origin::Origin,
        responder::Transport,
        response_parts::ResponseParts,
    },
    dialect::card::CardForm,
    limits::Limits,
    model::{Idempotency, RepeatRules},
    op::Core,
    permits::Permits,
    service::{Follow, Peer, Start},
};
use prost::Message;

use client::{say, task, v1};
use grpc_load::{Load, Shape};
use served::Served;
use support::{NOW, TEXT, call, post, send, task_id};
use tonic_floor::{framed, messages};

/// The server's allocator, so that the allocators do not differ.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 7;

/// A case: the rpc, the number of connections, and the concurrent calls on each.
struct Case {
    name: &'static str,
    rpc: &'static str,
    shape: Shape,
    /// Messages of an answer.
    messages: usize,
    /// Calls of a slice.
    calls: usize,
}

const CASES: [Case; 6] = [
    case("get", "GetTask", Shape::new(4, 32), 1, 16_000),
    case("send", "SendMessage", Shape::new(4, 32), 1, 16_000),
    case("stream_100", "SendStreamingMessage", Shape::new(4, 4), 101, 800),
    case("get_16x1", "GetTask", Shape::new(16, 1), 1, 16_000),
    case("send_16x1", "SendMessage", Shape::new(16, 1), 1, 16_000),
    case("stream_100_1x1", "SendStreamingMessage", Shape::new(1, 1), 101, 800),
];

const fn case(
    name: &'static str,
    rpc: &'static str,
    shape: Shape,
    messages: usize,
    calls: usize,
) -> Case {
    Case { name, rpc, shape, messages, calls }
}

/// The tonic servers that a case is compared with.
const FLOORS: [&str; 2] = ["typed", "bytes"];

impl Case {
    fn load(&self, port: u16, id: &str) -> Load {
        let request = match self.rpc {
            "GetTask" => {
                v1::GetTaskRequest { id: id.to_owned(), ..Default::default() }.encode_to_vec()
            }
            "SendMessage" => say(TEXT).encode_to_vec(),
            _ => say("stream:100").encode_to_vec(),
        };
        Load::new(port, self.rpc, framed(&request), self.messages, self.shape)
    }

    /// A tonic server with the answer that `load` gets, and a load for it.
    fn floor(&self, kind: &str, id: &str, load: &mut Load, prefix: &[&str]) -> (Served, Load) {
        let answer = load.call_once();
        assert_eq!(messages(answer.clone()).len(), self.messages, "{}", self.name);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("grpc-bench");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{}-{kind}", self.name));
        fs::write(&path, &answer).unwrap();
        let (me, path) = (std::env::current_exe().unwrap(), path.to_str().unwrap().to_owned());
        let words = [me.to_str().unwrap(), "floor", "PORT", kind, self.rpc, &path];
        let floor = Served::start(&[prefix, &words].concat());
        let mut load = self.load(floor.port, id);
        // The same size; tonic may order the fields differently.
        assert_eq!(load.call_once().len(), answer.len(), "{}", self.name);
        (floor, load)
    }
}

/// The id of a task that the server has completed.
fn completed(server: &Served) -> String {
    let mut load = case("", "SendMessage", Shape::new(1, 1), 1, 1).load(server.port, "");
    let answer = messages(load.call_once()).remove(0);
    task(v1::SendMessageResponse::decode(answer).unwrap()).id
}

/// CPU nanoseconds of `served` for each call of one slice.
fn slice(case: &Case, load: &mut Load, served: &Served) -> f64 {
    let before = served.cpu_ns();
    load.run(case.calls);
    (served.cpu_ns() - before) as f64 / case.calls as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn ratios(wanted: &dyn Fn(&str) -> bool) {
    let server = Served::server(&[]);
    let id = completed(&server);
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        let mut ours = case.load(server.port, &id);
        let mut floors = FLOORS.map(|kind| case.floor(kind, &id, &mut ours, &[]));
        // Buffers grow before the count begins.
        ours.run(case.calls / 8);
        for (_, load) in &mut floors {
            load.run(case.calls / 8);
        }
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let below = floors.each_mut().map(|(floor, load)| slice(case, load, floor));
            rounds.push((below, slice(case, &mut ours, &server)));
        }
        let cost = median(rounds.iter().map(|(_, ours)| *ours).collect());
        print!("{:15} server {:7.2} us", case.name, cost / 1000.0);
        for (at, kind) in FLOORS.iter().enumerate() {
            let below = median(rounds.iter().map(|(below, _)| below[at]).collect()) / 1000.0;
            let ratio = median(rounds.iter().map(|(below, ours)| ours / below[at]).collect());
            print!("; tonic ({kind}) {below:.2} us, ratio {ratio:.2}");
        }
        if case.messages > 1 {
            let events = (case.messages - 1) as f64;
            print!("; {:.2} M events/s per core", events * 1000.0 / cost);
        }
        println!();
    }
}

/// User-space instructions for each call, of the server and of tonic: two runs, subtracted.
fn instructions(wanted: &dyn Fn(&str) -> bool) {
    count(wanted, &FLOORS);
}

/// The same of the server.
fn alone(wanted: &dyn Fn(&str) -> bool) {
    count(wanted, &[]);
}

fn count(wanted: &dyn Fn(&str) -> bool, floors: &[&str]) {
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        let (few, many) = (case.calls / 32, case.calls / 4);
        let ours = |calls: usize, floor: Option<&str>| -> u64 {
            let server = Served::server(if floor.is_none() { &served::VALGRIND } else { &[] });
            let id = completed(&server);
            let mut load = case.load(server.port, &id);
            let Some(kind) = floor else {
                load.run(calls);
                drop(load);
                return server.end_counted();
            };
            let (floor, mut load) = case.floor(kind, &id, &mut load, &served::VALGRIND);
            load.run(calls);
            drop(load);
            floor.end_counted()
        };
        let each = |floor| (ours(many, floor) - ours(few, floor)) as f64 / (many - few) as f64;
        let cost = each(None);
        print!("{:15} server {cost:.0} instructions", case.name);
        for kind in floors {
            let below = each(Some(*kind));
            print!("; tonic ({kind}) {below:.0}, ratio {:.2}", cost / below);
        }
        println!();
    }
}

/// User-space instructions for each call of JSON-RPC over HTTP/2: two runs, subtracted.
fn json_instructions(wanted: &dyn Fn(&str) -> bool) {
    let cases = [
        ("get", Shape::new(4, 32)),
        ("send", Shape::new(4, 32)),
        ("get_16x1", Shape::new(16, 1)),
        ("send_16x1", Shape::new(16, 1)),
    ];
    for (name, shape) in cases.into_iter().filter(|(name, _)| wanted(name)) {
        let run = |calls: usize| -> u64 {
            let server = Served::server(&served::VALGRIND);
            let body = match name.starts_with("get") {
                true => {
                    let id = task_id(&server.request(&post(&send("SendMessage", TEXT))));
                    call("GetTask", &format!(r#"{{"id":"{id}"}}"#))
                }
                false => send("SendMessage", TEXT),
            };
            let mut load = Load::json(server.port, body.into(), shape);
            load.run(calls);
            drop(load);
            server.end_counted()
        };
        let (few, many) = (500, 4_000);
        let cost = (run(many) - run(few)) as f64 / (many - few) as f64;
        println!("json_{name:10} server {cost:.0} instructions");
    }
}

/// Calls that wait for each other: a delayed acknowledgement would take 40 ms.
fn one_by_one(_: &dyn Fn(&str) -> bool) {
    let server = Served::server(&[]);
    let id = completed(&server);
    for (name, rpc, messages) in [
        ("get", "GetTask", 1),
        ("send", "SendMessage", 1),
        ("stream_100", "SendStreamingMessage", 101),
    ] {
        let calls = 5_000;
        let mut load = case(name, rpc, Shape::new(1, 1), messages, calls).load(server.port, &id);
        let durations = load.run(calls);
        let ms = |at: usize| durations[at].as_secs_f64() * 1000.0;
        let late = durations.iter().filter(|elapsed| elapsed.as_millis() >= 40).count();
        let (median, slowest) = (ms(calls / 2), ms(calls - 1));
        println!(
            "{name:15} one by one: median {median:.3} ms, slowest of {calls} {slowest:.1} ms, \
             {late} of 40 ms and more"
        );
    }
}

/// A stream without sockets: from the request message to the bytes of all messages.
struct Bare {
    core: Arc<Core>,
    config: ServerConfig,
    scratch: Scratch,
    out: Vec<u8>,
    request: Vec<u8>,
}

impl Bare {
    fn new() -> Bare {
        let start = Start {
            secret: 7,
            unix_ms: Arc::new(|| NOW.unix_ms),
            workers: 1,
            base_url: String::new(),
        };
        let limits = Limits::default();
        let core = Core::new(
            &limits,
            vec![(Echo::profile(), Arc::new(Echo))],
            None,
            RepeatRules { callers: Idempotency::Off, ..RepeatRules::default() },
            &start,
            None,
        );
        let large = LargeBodies::new(&Limits::default());
        let config = ServerConfig {
            access: Default::default(),
            observer: None,
            reads_begin_time: false,
            tracer: None,
            pages: None,
            streams: Permits::new(limits.streams_max, 1),
            service_streams: Permits::new(limits.service_streams_max, 1),
            waiting: Permits::new(limits.connections_max, 1),
            large,
            card_signer: None,
            signed_cards: Default::default(),
            jwks: None,
            card_times: Default::default(),
            ignored_filters: Default::default(),
            catalog_times: Default::default(),
            shared: Default::default(),
            limits,
            mounts: Vec::new(),
            tenants: Default::default(),
            card: CardForm::V1,
            interfaces: Interface::defaults(),
            public_url: None,
            hosts: Default::default(),
            cors: Default::default(),
            security: Default::default(),
            base_url: String::new(),
            trust_forwarded: false,
            strict_version: false,
            strict: false,
            extended_card: false,
            idempotent_send: None,
            long_poll: false,
            push: false,
            ws_origins: Vec::new(),
            test_echo: None,
            started_s: 0,
        };
        let scratch = Scratch::new(0, &Limits::default(), Box::new(support::Counter(1)));
        let request = say("stream:100").encode_to_vec();
        Bare { core, config, scratch, out: Vec::with_capacity(1 << 16), request }
    }

    fn stream(&mut self) {
        self.out.clear();
        let path = "/lf.a2a.v1.A2AService/SendStreamingMessage";
        let Some(Rpc::A2a(method)) = grpc::rpc(path) else { panic!("{path}") };
        let mut parts = ResponseParts::default();
        let Scratch { decode, call, .. } = &mut self.scratch;
        let metadata = grpc::Metadata {
            head: None,
            version: Some(b"1.0"),
            tenant: None,
            last_event_id: None,
            origin: Origin { is_secure: false, host: None, port: None, prefix: "" },
            fields: Default::default(),
        };
        let mut cx = CallContext {
            service: &*self.core,
            config: &self.config,
            scratch: call,
            writer: ResponseWriter::new(&mut self.out, Transport::Parts(&mut parts)),
            now: NOW,
            wake: Waker::noop(),
            peer: Peer::default(),
            endpoint: Endpoint::DEFAULT,
            base: "",
            outside_tenant: None,
            agent: Endpoint::DEFAULT.agent,
            source: RequestSource::Grpc(metadata),
            closes: false,
            extensions: None,
            admission: None,
            share: None,
            begin: Default::default(),
        };
        let handled = grpc::call(&mut cx, method, decode, &self.request);
        let Handled::Stream(mut stream) = handled else { panic!("no stream") };
        let (service, writer) = (&*self.core, &mut cx.writer);
        while stream.poll(service, Waker::noop(), writer, usize::MAX) != Follow::End {}
    }
}

fn engine(_: &dyn Fn(&str) -> bool) {
    let mut bare = Bare::new();
    bare.stream();
    assert_eq!(messages(Bytes::copy_from_slice(&bare.out)).len(), 101);
    let mut rounds: Vec<Duration> = (0..2_000)
        .map(|_| {
            let start = Instant::now();
            bare.stream();
            start.elapsed()
        })
        .collect();
    rounds.sort();
    let micros = rounds[rounds.len() / 2].as_secs_f64() * 1e6;
    let rate = 100.0 / micros;
    println!(
        "engine          stream of 100 events {micros:.2} us, {rate:.1} M events/s (at least 1)"
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if args.first().is_some_and(|word| word == "floor") {
        let port = args[1].parse().expect("a port");
        let body = fs::read(&args[4]).expect("an answer").into();
        return tonic_floor::serve(port, args[2] == "typed", &args[3], body);
    }
    let modes = [
        ("engine", engine as fn(&dyn Fn(&str) -> bool)),
        ("one_by_one", one_by_one),
        ("instructions", instructions),
        ("alone", alone),
        ("json", json_instructions),
    ];
    let is_mode = |word: &String| modes.iter().any(|(name, _)| name == word);
    let cases: Vec<&String> = args.iter().filter(|word| !is_mode(word)).collect();
    let wanted = |name: &str| cases.is_empty() || cases.iter().any(|case| *case == name);
    served::pin_load();
    if !args.iter().any(is_mode) {
        ratios(&wanted);
    }
    for (name, show) in modes {
        // The instructions of tonic are counted as well.
        if args.is_empty() && name != "alone" || args.iter().any(|word| word == name) {
            show(&wanted);
        }
    }
}
