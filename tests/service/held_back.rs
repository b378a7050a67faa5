//! A journal hook (`Tap`) holds back exactly the answers and events that show a task whose last
//! record is not durable.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use peregrine::{
    agent::{Agent, Profile, echo::Echo, script::Script},
    engine::{
        Cx, Engine, Exchange, FieldLines, HeadParts, RequestParts, ResponseSink, Setup, Worker,
    },
    net::{self, Running, Server},
    service::{Entropy, Now, Peer, tap::Tap as _},
};
use serde_json::{Value, json};

use crate::{
    grpc_client::{V1, run, v1},
    journal::Journal,
    support::{
        ask::{Gen, OutgoingMessage, get, post, rpc, rpc_id, say},
        binary::{PATIENCE, Tcp},
        ws,
    },
};

/// An agent that works until its task is canceled.
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

/// A message that creates a task and is answered at once.
fn go() -> Value {
    Gen::V1.params(OutgoingMessage { at_once: true, ..say("go") })
}

/// The protocol of a connection.
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

    fn send(&mut self, method: &str, params: &Value) -> &mut Client {
        let body = rpc(method, params);
        self.line.write(&match self.over {
            Over::Http => post("/", &[("A2A-Version", "1.0")], &body),
            Over::WebSocket => ws::text(&body),
        });
        self
    }

    /// Waits for an answer.
    fn answer(&mut self) -> Value {
        match self.over {
            Over::Http => self.line.reply().json(),
            Over::WebSocket => self.messages(1).remove(0),
        }
    }

    /// Waits for so many WebSocket messages, and returns them.
    fn messages(&mut self, count: usize) -> Vec<Value> {
        let mut received = self.line.take();
        loop {
            let (frames, used) = ws::frames(&received);
            if frames.len() >= count && used == received.len() {
                return frames.iter().map(ws::Sent::json).collect();
            }
            assert!(self.line.read());
            received.append(&mut self.line.take());
        }
    }

    /// Asserts that no answer arrives after the next wait for the hook.
    fn is_held(&mut self, journal: &Journal, method: &str, params: &Value) {
        let wait_count = journal.wait_count();
        self.send(method, params);
        journal.until_wait_count(wait_count + 1);
        assert!(self.line.peek().is_none() && self.line.is_silent(), "{:?} {method}", self.over);
    }
}

/// Two tasks, of which the second has records that are not durable, and an unknown one.
struct Tasks {
    durable: Value,
    context: Value,
    held: Value,
}

/// Creates both tasks, each over its own connection; the second call has no answer yet.
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
fn answers_showing_only_durable_tasks_are_sent_at_once() {
    for over in [Over::Http, Over::WebSocket] {
        let journal = Arc::new(Journal::default());
        let (_running, addr) = serve(&journal);
        let (tasks, _first) = make(&journal, addr, over);
        let mut client = Client::to(addr, over);
        // A task with durable records, alone and in a list.
        let shown = client.send("GetTask", &tasks.durable).answer();
        assert_eq!(shown["result"]["id"], tasks.durable["id"]);
        let list = json!({ "contextId": tasks.context });
        let shown = client.send("ListTasks", &list).answer();
        assert_eq!(shown["result"]["tasks"].as_array().unwrap().len(), 1);
        // No task.
        let list = json!({ "contextId": "nobody's" });
        assert_eq!(client.send("ListTasks", &list).answer()["result"]["totalSize"], 0);
        let missing = client.send("GetTask", &json!({ "id": "missing" })).answer();
        assert_eq!(missing["error"]["code"], -32001);
        assert!(client.send("NoSuchMethod", &json!({})).answer()["error"].is_object());
        let mut line = Tcp::to(addr);
        line.write(&get("/.well-known/agent-card.json"));
        assert_eq!(line.reply().status, 200);
        // A stream without held-back events.
        client.send("SubscribeToTask", &tasks.durable);
        client.line.read_until("TASK_STATE_WORKING");
    }
}

#[test]
fn answers_and_events_are_held_until_their_task_is_durable() {
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
        // An event of a stream that is sent otherwise, and the answer to the call that caused it.
        let mut stream = Client::to(addr, over);
        stream.send("SubscribeToTask", &tasks.durable).line.read_until("TASK_STATE_WORKING");
        stream.line.take();
        let wait_count = journal.wait_count();
        let mut cancels = Client::to(addr, over);
        cancels.send("CancelTask", &tasks.durable);
        journal.until_wait_count(wait_count + 2);
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
fn replayed_events_are_held_only_for_their_own_task() {
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
    let wait_count = journal.wait_count();
    let mut line = Tcp::to(addr);
    line.write(&resumed(&tasks.held));
    journal.until_wait_count(wait_count + 1);
    assert!(line.peek().is_none() && line.is_silent());
    journal.confirm(journal.recorded());
    line.read_until("TASK_STATE_WORKING");
}

#[test]
fn batch_answer_is_held_until_all_its_tasks_are_durable() {
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
    let wait_count = journal.wait_count();
    line.write(&batch(&[call(1, &tasks.held), call(2, &tasks.durable)]));
    journal.until_wait_count(wait_count + 1);
    assert!(line.peek().is_none() && line.is_silent());
    journal.confirm(journal.recorded());
    assert_eq!(line.reply().json().as_array().unwrap().len(), 2);
}

/// One JSON-RPC call over HTTP/2; `None`: no answer arrives after the next wait for the hook.
async fn call_http2(
    client: &mut SendRequest<Bytes>,
    journal: &Journal,
    method: &str,
    params: &Value,
) -> Option<Value> {
    let wait_count = journal.wait_count();
    let request = Request::post("http://test.example/").header("content-type", "application/json");
    let request = request.header("a2a-version", "1.0").body(()).unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from(rpc(method, params)), true).unwrap();
    let held = async {
        while journal.wait_count() == wait_count {
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
fn http2_calls_are_held_only_for_their_own_tasks() {
    let journal = Arc::new(Journal::default());
    let (_running, addr) = serve(&journal);
    let (tasks, _first) = make(&journal, addr, Over::Http);
    run(async {
        let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        for _ in 0..2 {
            let held = call_http2(&mut client, &journal, "GetTask", &tasks.held).await;
            assert_eq!(held, None);
            assert_eq!(call_http2(&mut client, &journal, "ListTasks", &json!({})).await, None);
            let shown = call_http2(&mut client, &journal, "GetTask", &tasks.durable).await;
            assert_eq!(shown.unwrap()["result"]["id"], tasks.durable["id"]);
            let missing = json!({ "id": "missing" });
            let missing = call_http2(&mut client, &journal, "GetTask", &missing).await;
            assert_eq!(missing.unwrap()["error"]["code"], -32001);
        }
        journal.confirm(journal.recorded());
        let shown = call_http2(&mut client, &journal, "GetTask", &tasks.held).await;
        assert_eq!(shown.unwrap()["result"]["id"], tasks.held["id"]);
    });
}

/// A call over WebSocket with this id.
fn numbered(id: usize, method: &str, params: &Value) -> Vec<u8> {
    ws::text(&rpc_id(&id.to_string(), method, params))
}

#[test]
fn websocket_answers_are_sent_in_order_once_durable() {
    let journal = Arc::new(Journal::default());
    let (_running, addr) = serve(&journal);
    let mut client = Client::to(addr, Over::WebSocket);
    // Each is handled before the next one is sent: two records, created and working.
    for id in 0..4 {
        client.line.write(&numbered(id, "SendMessage", &go()));
        journal.until_recorded(2 * (id as u64 + 1));
    }
    client.line.write(&numbered(4, "SendStreamingMessage", &Gen::V1.params(say("go"))));
    journal.until_recorded(10);
    // The worker has handled the call when it answers another one.
    let mut other = Tcp::to(addr);
    other.write(&get("/.well-known/agent-card.json"));
    assert_eq!(other.reply().status, 200);
    // An answer without a task waits for the earlier ones.
    client.line.write(&numbered(5, "GetTask", &json!({ "id": "missing" })));
    client.line.write(&ws::frame(0x89, b"ping"));
    journal.confirm(1);
    assert!(client.line.is_silent());
    journal.confirm(2);
    let first = client.messages(1);
    assert_eq!((first.len(), &first[0]["id"]), (1, &json!(0)));
    // The others were written meanwhile, and wait for the newest record of them.
    journal.confirm(9);
    assert!(client.line.is_silent());
    journal.confirm(10);
    client.line.read_until("ping");
    let received = client.line.take();
    let (frames, used) = ws::frames(&received);
    assert_eq!(used, received.len());
    let (ping, answers) = frames.split_last().unwrap();
    assert_eq!(*ping, ws::Sent::Pong(b"ping".to_vec()));
    let ids: Vec<u64> = answers.iter().map(|sent| sent.json()["id"].as_u64().unwrap()).collect();
    let of_stream = ids.iter().filter(|id| **id == 4).count();
    assert!(of_stream >= 2, "{ids:?}");
    // Stream events are written after answers, which may overtake them.
    let others: Vec<u64> = ids.into_iter().filter(|id| *id != 4).collect();
    assert_eq!(others, [1, 2, 3, 5]);
}

#[test]
fn websocket_messages_show_only_durable_task_events() {
    const CALLS: usize = 20;
    let journal = Arc::new(Journal::default());
    let server = Server::new().agent(Echo::profile(), Echo).workers(2).allow_host("*");
    let server = server.tap(Arc::clone(&journal) as _).listen("127.0.0.1:0");
    let running = server.start().unwrap();
    let addr = running.addrs()[0];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A batch has the records that arrived during the previous batch.
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let batch = journal.recorded();
                std::thread::sleep(Duration::from_millis(3));
                journal.confirm(batch);
            }
        });
        let clients: Vec<_> =
            (0..4).map(|_| scope.spawn(|| exchange(&journal, addr, CALLS))).collect();
        let ends: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        is_over.store(true, Relaxed);
        assert!(ends.iter().all(Result::is_ok));
    });
}

/// Keeps many calls in flight on one socket, each second one a stream, and reads all answers: a
/// task is durable when it is shown.
fn exchange(journal: &Journal, addr: SocketAddr, calls: usize) {
    let mut client = Client::to(addr, Over::WebSocket);
    let method = |id| if id % 2 == 0 { "SendMessage" } else { "SendStreamingMessage" };
    for id in 0..calls {
        client.line.write(&numbered(id, method(id), &Gen::V1.params(say("hello"))));
    }
    let mut over = HashSet::new();
    while over.len() < calls {
        for sent in client.messages(1) {
            let (id, result) = (sent["id"].as_u64().unwrap(), &sent["result"]);
            let pointers = ["/task/id", "/statusUpdate/taskId", "/artifactUpdate/taskId"];
            if let Some(task) = pointers.iter().find_map(|pointer| result.pointer(pointer)) {
                // An echo has ended when it is shown.
                let last = journal.last_record_of(task.as_str().unwrap());
                assert!(journal.durable() >= last, "{sent}");
            }
            if id % 2 == 0 || result["status"] == "stream_complete" {
                assert!(over.insert(id), "{sent}");
            }
        }
    }
}

/// The result of a gRPC call; `None`: no answer arrives after the next wait for the hook.
async fn grpc_result<T>(journal: &Journal, call: impl Future<Output = T>) -> Option<T> {
    let wait_count = journal.wait_count();
    let held = async {
        while journal.wait_count() == wait_count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let either = async {
        tokio::select! {
            () = held => None,
            result = call => Some(result),
        }
    };
    tokio::time::timeout(PATIENCE, either).await.unwrap()
}

#[test]
fn grpc_calls_are_held_only_for_their_own_tasks() {
    let journal = Arc::new(Journal::default());
    let (_running, addr) = serve(&journal);
    let (tasks, _first) = make(&journal, addr, Over::Http);
    let id = |task: &Value| task["id"].as_str().unwrap().to_owned();
    let get = |id: String| v1::GetTaskRequest { id, ..Default::default() };
    let follow = |id: String| v1::SubscribeToTaskRequest { id, ..Default::default() };
    run(async {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{addr}")).unwrap();
        let mut client = V1::new(channel.connect().await.unwrap());
        for _ in 0..2 {
            let call = client.get_task(get(id(&tasks.held)));
            assert!(grpc_result(&journal, call).await.is_none());
            let call = client.subscribe_to_task(follow(id(&tasks.held)));
            assert!(grpc_result(&journal, call).await.is_none());
            let call = client.list_tasks(v1::ListTasksRequest::default());
            assert!(grpc_result(&journal, call).await.is_none());
            let call = client.get_task(get(id(&tasks.durable)));
            let shown = grpc_result(&journal, call).await.unwrap().unwrap();
            assert_eq!(shown.into_inner().id, id(&tasks.durable));
            let call = client.subscribe_to_task(follow(id(&tasks.durable)));
            assert!(grpc_result(&journal, call).await.unwrap().is_ok());
            let call = client.get_task(get("missing".to_owned()));
            let missing = grpc_result(&journal, call).await.unwrap().unwrap_err();
            assert_eq!(missing.code(), tonic::Code::NotFound);
        }
        journal.confirm(journal.recorded());
        let shown = client.get_task(get(id(&tasks.held))).await.unwrap();
        assert_eq!(shown.into_inner().id, id(&tasks.held));
    });
}

struct Counter(u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 += 1;
        self.0
    }
}

/// The content of a response.
#[derive(Default)]
struct ResponseBody(Vec<u8>);

impl ResponseSink for ResponseBody {
    fn head(&mut self, _head: &HeadParts) {}

    fn content(&mut self, bytes: &mut Vec<u8>) {
        self.0.append(bytes);
    }

    fn end(&mut self, _trailers: FieldLines<'_>) {}
}

/// One call above bytes, and the received part of its answer.
struct Above {
    exchange: Exchange,
    body: ResponseBody,
}

impl Above {
    fn call(engine: &Engine, worker: &mut Worker, method: &str, params: &Value) -> Above {
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
        let mut above = Above { exchange, body: ResponseBody::default() };
        above.poll(engine, worker);
        above
    }

    /// The answer, if it is complete.
    fn poll(&mut self, engine: &Engine, worker: &mut Worker) -> Option<Value> {
        let mut out = Vec::new();
        let polled = self.exchange.poll(&mut cx(engine, worker, &mut out), &mut self.body);
        match polled {
            Poll::Ready(()) => Some(serde_json::from_slice(&self.body.0).unwrap()),
            Poll::Pending => {
                assert!(self.body.0.is_empty());
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
fn exchange_is_pending_until_shown_tasks_are_durable() {
    let journal = Arc::new(Journal::default());
    let agents: Vec<(_, Arc<dyn Agent>)> =
        vec![(Profile::new("works", "Works."), Arc::new(works()))];
    let setup = Setup { agents, tap: Some(Arc::clone(&journal) as _), ..Setup::default() };
    let engine = setup.build(net::start(1).unwrap()).unwrap();
    let mut worker = Worker::new(0, engine.limits(), Box::new(Counter(1)));
    let mut call = |method: &str, params: &Value| {
        let mut above = Above::call(&engine, &mut worker, method, params);
        let answer = above.poll(&engine, &mut worker);
        (above, answer)
    };
    assert!(call("SendMessage", &go()).1.is_none());
    let durable = json!({ "id": journal.last_id() });
    journal.confirm(journal.recorded());
    let (mut first, answer) = call("SendMessage", &go());
    let held = json!({ "id": journal.last_id() });
    assert!(answer.is_none() && call("GetTask", &held).1.is_none());
    assert!(call("ListTasks", &json!({})).1.is_none());
    assert_eq!(call("GetTask", &durable).1.unwrap()["result"]["id"], durable["id"]);
    let missing = call("GetTask", &json!({ "id": "missing" })).1.unwrap();
    assert_eq!(missing["error"]["code"], -32001);
    journal.confirm(journal.recorded());
    assert_eq!(first.poll(&engine, &mut worker).unwrap()["result"]["task"]["id"], held["id"]);
}
