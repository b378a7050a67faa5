//! What a tap holds back: the answers and events that show a task whose last record is not durable,
//! and no others.

use std::{
    net::SocketAddr,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use peregrine::{
    agent::{Agent, Profile, script::Script},
    engine::{
        Cx, Engine, Exchange, HeadParts, RequestParts, ResponseFields, ResponseSink, Setup, Worker,
    },
    net::{self, Running, Server},
    service::{Entropy, Now, Peer, tap::Tap as _},
};
use serde_json::{Value, json};

use crate::{
    grpc_client::run,
    journal::Journal,
    support::{
        ask::{Gen, Say, get, post, rpc, say},
        binary::{PATIENCE, Tcp},
        ws,
    },
};

/// A task of it runs until it is cancelled.
fn works() -> Script {
    Script::parse("[[rule]]\n[[rule.step]]\nstatus = \"working\"").unwrap()
}

fn serve(journal: &Arc<Journal>) -> (Running, SocketAddr) {
    let server = Server::new().agent(Profile::new("works", "Works."), works()).workers(1);
    let server = server.allow_host("*").tap(Arc::clone(journal) as _);
    let running = server.listen("127.0.0.1:0").start().unwrap();
    let addr = running.addrs()[0];
    (running, addr)
}

/// A message that makes a task, and is answered at once.
fn go() -> Value {
    Gen::V1.params(Say { at_once: true, ..say("go") })
}

/// How calls travel on a connection of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Over {
    Http,
    WebSocket,
}

struct Client {
    line: Tcp,
    over: Over,
}

impl Client {
    fn to(addr: SocketAddr, over: Over) -> Client {
        let mut line = Tcp::to(addr);
        if over == Over::WebSocket {
            line.write(&ws::upgrade("/", "A2A-Version: 1.0\r\n"));
            line.read_until("\r\n\r\n");
            line.take();
        }
        Client { line, over }
    }

    fn ask(&mut self, method: &str, params: &Value) -> &mut Client {
        let body = rpc(method, params);
        self.line.write(&match self.over {
            Over::Http => post("/", &[("A2A-Version", "1.0")], &body),
            Over::WebSocket => ws::text(&body),
        });
        self
    }

    /// Waits for an answer.
    fn answer(&mut self) -> Value {
        if self.over == Over::Http {
            return self.line.reply().json();
        }
        let mut received = Vec::new();
        loop {
            assert!(self.line.read());
            received.append(&mut self.line.take());
            if let (frames, used) = ws::frames(&received)
                && used == received.len()
                && let Some(sent) = frames.first()
            {
                return sent.json();
            }
        }
    }

    /// Nothing comes, since the tap was asked once more.
    fn is_held(&mut self, journal: &Journal, method: &str, params: &Value) {
        let asked = journal.asked();
        self.ask(method, params);
        journal.until_asked(asked + 1);
        assert!(self.line.peek().is_none() && self.line.is_silent(), "{:?} {method}", self.over);
    }
}

/// Two tasks, of which the records of the second are not durable, and an unknown one.
struct Tasks {
    durable: Value,
    context: Value,
    held: Value,
}

/// Makes them, each over a connection of its own; the second is left without its answer.
fn make(journal: &Journal, addr: SocketAddr, over: Over) -> (Tasks, Client) {
    let mut client = Client::to(addr, over);
    client.is_held(journal, "SendMessage", &go());
    journal.confirm(journal.recorded());
    let made = client.answer();
    let task = &made["result"]["task"];
    let (durable, context) = (json!({ "id": task["id"] }), task["contextId"].clone());
    client.is_held(journal, "SendMessage", &go());
    (Tasks { durable, context, held: json!({ "id": journal.last_id() }) }, client)
}

#[test]
fn what_shows_no_task_that_waits_for_the_tap_leaves_at_once() {
    for over in [Over::Http, Over::WebSocket] {
        let journal = Arc::new(Journal::default());
        let (_running, addr) = serve(&journal);
        let (tasks, _first) = make(&journal, addr, over);
        let mut client = Client::to(addr, over);
        // A task whose records are durable, alone and in a list.
        let shown = client.ask("GetTask", &tasks.durable).answer();
        assert_eq!(shown["result"]["id"], tasks.durable["id"]);
        let list = json!({ "contextId": tasks.context });
        let shown = client.ask("ListTasks", &list).answer();
        assert_eq!(shown["result"]["tasks"].as_array().unwrap().len(), 1);
        // No task at all.
        let list = json!({ "contextId": "nobody's" });
        assert_eq!(client.ask("ListTasks", &list).answer()["result"]["totalSize"], 0);
        let missing = client.ask("GetTask", &json!({ "id": "missing" })).answer();
        assert_eq!(missing["error"]["code"], -32001);
        assert!(client.ask("NoSuchMethod", &json!({})).answer()["error"].is_object());
        let mut line = Tcp::to(addr);
        line.write(&get("/.well-known/agent-card.json"));
        assert_eq!(line.reply().status, 200);
        // A stream, of which nothing new is held back.
        client.ask("SubscribeToTask", &tasks.durable);
        client.line.read_until("TASK_STATE_WORKING");
    }
}

#[test]
fn what_shows_a_task_that_waits_for_the_tap_waits_with_it() {
    for over in [Over::Http, Over::WebSocket] {
        let journal = Arc::new(Journal::default());
        let (_running, addr) = serve(&journal);
        let (tasks, mut first) = make(&journal, addr, over);
        let all = json!({});
        let calls =
            [("GetTask", &tasks.held), ("SubscribeToTask", &tasks.held), ("ListTasks", &all)];
        let mut held = calls.map(|(method, params)| {
            let mut client = Client::to(addr, over);
            client.is_held(&journal, method, params);
            client
        });
        // An event of a stream that leaves otherwise, and the answer to what brought it.
        let mut stream = Client::to(addr, over);
        stream.ask("SubscribeToTask", &tasks.durable).line.read_until("TASK_STATE_WORKING");
        stream.line.take();
        let asked = journal.asked();
        let mut cancels = Client::to(addr, over);
        cancels.ask("CancelTask", &tasks.durable);
        journal.until_asked(asked + 2);
        for client in [&mut stream, &mut cancels, &mut first].into_iter().chain(&mut held) {
            assert!(client.line.peek().is_none() && client.line.is_silent());
        }
        journal.confirm(journal.recorded());
        for client in [&mut stream, &mut cancels] {
            client.line.read_until("TASK_STATE_CANCELED");
        }
        for client in [&mut first].into_iter().chain(&mut held) {
            client.line.read_until("TASK_STATE_WORKING");
        }
    }
}

#[test]
fn old_events_wait_for_the_task_that_they_show_and_for_no_other() {
    let journal = Arc::new(Journal::default());
    let (_running, addr) = serve(&journal);
    let (tasks, _first) = make(&journal, addr, Over::Http);
    let resumed = |params: &Value| {
        let fields = [("A2A-Version", "1.0"), ("Last-Event-ID", "1")];
        post("/", &fields, &rpc("SubscribeToTask", params))
    };
    let mut line = Tcp::to(addr);
    line.write(&resumed(&tasks.durable));
    line.read_until("TASK_STATE_WORKING");
    let asked = journal.asked();
    let mut line = Tcp::to(addr);
    line.write(&resumed(&tasks.held));
    journal.until_asked(asked + 1);
    assert!(line.peek().is_none() && line.is_silent());
    journal.confirm(journal.recorded());
    line.read_until("TASK_STATE_WORKING");
}

#[test]
fn a_batch_waits_for_the_newest_of_what_it_shows() {
    let journal = Arc::new(Journal::default());
    let (_running, addr) = serve(&journal);
    let (tasks, _first) = make(&journal, addr, Over::Http);
    let call = |id: u32, task: &Value| json!({ "jsonrpc": "2.0", "id": id, "method": "GetTask", "params": task });
    let batch = |calls: &[Value]| {
        let calls = Value::from(calls.to_vec()).to_string();
        post("/", &[("A2A-Version", "1.0")], &calls)
    };
    let mut line = Tcp::to(addr);
    line.write(&batch(&[call(1, &tasks.durable), call(2, &tasks.durable)]));
    assert_eq!(line.reply().json().as_array().unwrap().len(), 2);
    let asked = journal.asked();
    line.write(&batch(&[call(1, &tasks.held), call(2, &tasks.durable)]));
    journal.until_asked(asked + 1);
    assert!(line.peek().is_none() && line.is_silent());
    journal.confirm(journal.recorded());
    assert_eq!(line.reply().json().as_array().unwrap().len(), 2);
}

/// One JSON-RPC call over HTTP/2; `None`: no answer comes, since the tap was asked once more.
async fn ask_http2(
    client: &mut SendRequest<Bytes>,
    journal: &Journal,
    (method, params): (&str, &Value),
) -> Option<Value> {
    let asked = journal.asked();
    let request = Request::post("http://test.example/").header("content-type", "application/json");
    let request = request.header("a2a-version", "1.0").body(()).unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from(rpc(method, params)), true).unwrap();
    let held = async {
        while journal.asked() == asked {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let answer = async {
        let mut body = response.await.unwrap().into_body();
        let mut bytes = Vec::new();
        while let Some(piece) = body.data().await {
            bytes.extend_from_slice(&piece.unwrap());
        }
        serde_json::from_slice(&bytes).unwrap()
    };
    let either = async {
        tokio::select! {
            () = held => None,
            answer = answer => Some(answer),
        }
    };
    tokio::time::timeout(PATIENCE, either).await.unwrap()
}

#[test]
fn calls_on_one_connection_of_http2_wait_each_for_its_own_task() {
    let journal = Arc::new(Journal::default());
    let (_running, addr) = serve(&journal);
    let (tasks, _first) = make(&journal, addr, Over::Http);
    run(async {
        let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        for _ in 0..2 {
            let held = ask_http2(&mut client, &journal, ("GetTask", &tasks.held)).await;
            assert_eq!(held, None);
            assert_eq!(ask_http2(&mut client, &journal, ("ListTasks", &json!({}))).await, None);
            let shown = ask_http2(&mut client, &journal, ("GetTask", &tasks.durable)).await;
            assert_eq!(shown.unwrap()["result"]["id"], tasks.durable["id"]);
            let missing = json!({ "id": "missing" });
            let missing = ask_http2(&mut client, &journal, ("GetTask", &missing)).await;
            assert_eq!(missing.unwrap()["error"]["code"], -32001);
        }
        journal.confirm(journal.recorded());
        let shown = ask_http2(&mut client, &journal, ("GetTask", &tasks.held)).await;
        assert_eq!(shown.unwrap()["result"]["id"], tasks.held["id"]);
    });
}

struct Counter(u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 += 1;
        self.0
    }
}

/// What came of an exchange.
#[derive(Default)]
struct Given(Vec<u8>);

impl ResponseSink for Given {
    fn head(&mut self, _head: &HeadParts) {}

    fn content(&mut self, bytes: &mut Vec<u8>) {
        self.0.append(bytes);
    }

    fn end(&mut self, _trailers: ResponseFields<'_>) {}
}

/// One call above bytes, and what was given of its answer.
struct Above {
    exchange: Exchange,
    given: Given,
}

impl Above {
    fn ask(engine: &Engine, worker: &mut Worker, method: &str, params: &Value) -> Above {
        let fields = [("content-type", "application/json"), ("a2a-version", "1.0")];
        let request = RequestParts {
            method: b"POST",
            target: b"/",
            authority: Some(b"localhost"),
            fields: fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())),
            has_body: true,
            takes_trailers: false,
        };
        let mut out = Vec::new();
        let mut exchange = Exchange::new(&mut cx(engine, worker, &mut out), request);
        exchange.push(engine.limits(), rpc(method, params).as_bytes());
        exchange.end();
        let mut above = Above { exchange, given: Given::default() };
        above.poll(engine, worker);
        above
    }

    /// The answer, if all of it was given.
    fn poll(&mut self, engine: &Engine, worker: &mut Worker) -> Option<Value> {
        let mut out = Vec::new();
        let polled = self.exchange.poll(&mut cx(engine, worker, &mut out), &mut self.given);
        match polled {
            Poll::Ready(()) => Some(serde_json::from_slice(&self.given.0).unwrap()),
            Poll::Pending => {
                assert!(self.given.0.is_empty());
                None
            }
        }
    }
}

fn cx<'a>(engine: &'a Engine, worker: &'a mut Worker, out: &'a mut Vec<u8>) -> Cx<'a> {
    let now = Now { mono_ms: 1, unix_ms: 1_790_000_000_000 };
    Cx { engine, worker, now, wake: Waker::noop(), out, unsent: 0, peer: Peer::default() }
}

#[test]
fn an_exchange_waits_for_the_tasks_that_its_answer_shows() {
    let journal = Arc::new(Journal::default());
    let agents: Vec<(_, Arc<dyn Agent>)> =
        vec![(Profile::new("works", "Works."), Arc::new(works()))];
    let setup = Setup { agents, tap: Some(Arc::clone(&journal) as _), ..Setup::default() };
    let engine = setup.build(net::start(1).unwrap()).unwrap();
    let mut worker = Worker::new(0, engine.limits(), Box::new(Counter(1)));
    let mut ask = |method: &str, params: &Value| {
        let mut above = Above::ask(&engine, &mut worker, method, params);
        let answer = above.poll(&engine, &mut worker);
        (above, answer)
    };
    assert!(ask("SendMessage", &go()).1.is_none());
    let durable = json!({ "id": journal.last_id() });
    journal.confirm(journal.recorded());
    let (mut first, answer) = ask("SendMessage", &go());
    let held = json!({ "id": journal.last_id() });
    assert!(answer.is_none() && ask("GetTask", &held).1.is_none());
    assert!(ask("ListTasks", &json!({})).1.is_none());
    assert_eq!(ask("GetTask", &durable).1.unwrap()["result"]["id"], durable["id"]);
    let missing = ask("GetTask", &json!({ "id": "missing" })).1.unwrap();
    assert_eq!(missing["error"]["code"], -32001);
    journal.confirm(journal.recorded());
    assert_eq!(first.poll(&engine, &mut worker).unwrap()["result"]["task"]["id"], held["id"]);
}
