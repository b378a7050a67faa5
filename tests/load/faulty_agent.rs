//! An A2A 1.0 server over JSON-RPC that is correct except for one fault in some of its answers.
//!
//! It follows the contract of docs/bench.md: it echoes texts and supports `stream:N` and
//! `hold:MS:N`. The calls with which `bench` probes the agent always get right answers; of the
//! others each third one has the fault, or two of four if the fault needs two calls.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::faults::{Fault, StreamItem};

/// How long a call waits for another one to exchange answers with.
const EXCHANGE: Duration = Duration::from_secs(5);
/// Longer than the call timeout of the tests.
pub const TOO_LONG: Duration = Duration::from_millis(5_000);
/// Tasks of a page.
const PAGE_TASKS: usize = 50;

/// The server, in threads of its own.
pub struct FaultyAgent {
    pub addr: SocketAddr,
    shared: Arc<AgentShared>,
}

/// The state that all connections share.
struct AgentShared {
    addr: SocketAddr,
    /// The method that gets faulty answers.
    method: &'static str,
    fault: Option<Fault>,
    /// Whether the events of streams have numbers.
    has_numbers: bool,
    calls: AtomicU64,
    wrong: AtomicU64,
    tasks: Mutex<Vec<HeldTask>>,
    /// An answer to exchange with the next one.
    exchange: Mutex<Option<ExchangedAnswer>>,
    /// The previous answer.
    old: Mutex<Value>,
}

/// An answer, and the channel for the other one.
struct ExchangedAnswer {
    answer: Value,
    other: Sender<Value>,
}

/// A task that exists.
#[derive(Clone)]
pub struct HeldTask {
    pub id: String,
    pub context_id: String,
    text: String,
    /// The number of events that its text requests; 0: it is an echo.
    events: u64,
    /// It waits for subscribers, including late ones on a busy machine.
    is_held: bool,
    due: Instant,
    is_canceled: bool,
}

/// A request as received.
struct AgentRequest {
    path: String,
    after: Option<u64>,
    body: Value,
}

impl FaultyAgent {
    /// A server that gives faulty answers to `method`; `None`: all answers are right.
    pub fn start(method: &'static str, fault: Option<Fault>, has_numbers: bool) -> FaultyAgent {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(AgentShared {
            addr,
            method,
            fault,
            has_numbers,
            calls: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            tasks: Mutex::default(),
            exchange: Mutex::default(),
            old: Mutex::default(),
        });
        let agent = FaultyAgent { addr, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                // An error on a connection affects its client alone.
                thread::spawn(move || drop(shared.serve(stream)));
            }
        });
        agent
    }

    /// The number of calls answered with the fault.
    pub fn wrong(&self) -> u64 {
        self.shared.wrong.load(SeqCst)
    }
}

impl HeldTask {
    /// The task as JSON, in this state.
    pub fn json(&self, state: &str) -> Value {
        let mut task =
            json!({ "id": self.id, "contextId": self.context_id, "status": status(state) });
        if state == "TASK_STATE_COMPLETED" {
            task["artifacts"] = json!([{ "artifactId": "a", "parts": [{ "text": self.text }] }]);
        }
        task
    }

    fn now(&self) -> Value {
        self.json(match self.is_canceled {
            true => "TASK_STATE_CANCELED",
            false if Instant::now() < self.due => "TASK_STATE_SUBMITTED",
            false => "TASK_STATE_COMPLETED",
        })
    }

    /// A change of the status, as a stream item.
    pub fn status_update(&self, state: &str) -> Value {
        let update = json!({
            "taskId": self.id, "contextId": self.context_id, "status": status(state),
        });
        json!({ "statusUpdate": update })
    }

    /// A chunk, as a stream item.
    pub fn chunk(&self, number: u64) -> Value {
        let artifact =
            json!({ "artifactId": "a", "parts": [{ "text": format!("chunk {number}") }] });
        let update = json!({
            "taskId": self.id, "contextId": self.context_id, "artifact": artifact,
            "append": number > 1, "lastChunk": number + 2 == self.events,
        });
        json!({ "artifactUpdate": update })
    }

    /// Its stream: the task, then the requested number of changes.
    fn items(&self) -> Vec<StreamItem> {
        let mut items = vec![json!({ "task": self.json("TASK_STATE_SUBMITTED") })];
        items.push(self.status_update("TASK_STATE_WORKING"));
        items.extend((1..self.events - 1).map(|number| self.chunk(number)));
        items.push(self.status_update("TASK_STATE_COMPLETED"));
        let numbered = items.into_iter().zip(1..);
        numbered.map(|(json, number)| StreamItem { number: Some(number), json }).collect()
    }
}

fn status(state: &str) -> Value {
    json!({ "state": state, "timestamp": "2026-01-01T00:00:00.000Z" })
}

fn envelope(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

impl AgentShared {
    /// Answers the requests of one connection.
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(request) = read_request(&mut reader)? {
            if request.path.contains("agent-card") {
                respond(&mut stream, "200 OK", "application/json", &self.card().to_string())?;
                continue;
            }
            if let Value::Array(calls) = &request.body {
                let answers = calls.iter().map(|call| self.answer(call)).collect();
                let answers = self.faulty(calls.first(), "Batch", answers);
                respond(&mut stream, "200 OK", "application/json", &answers.to_string())?;
                continue;
            }
            match request.body["method"].as_str() {
                Some("SendStreamingMessage" | "SubscribeToTask") => {
                    self.stream(&request, &mut stream)?;
                }
                _ => {
                    let answer = self.answer(&request.body);
                    self.respond(&request.body, answer, &mut stream)?;
                }
            }
        }
        Ok(())
    }

    fn card(&self) -> Value {
        json!({
            "name": "faulty", "description": "Right but for one fault", "version": "1",
            "supportedInterfaces": [{
                "url": format!("http://{}/", self.addr),
                "protocolBinding": "JSONRPC", "protocolVersion": "1.0",
            }],
            "capabilities": { "streaming": true, "pushNotifications": true },
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{ "id": "echo", "name": "echo", "description": "echo", "tags": ["echo"] }],
        })
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<HeldTask>> {
        self.tasks.lock().unwrap()
    }

    /// The right answer to a call without a stream.
    fn answer(&self, call: &Value) -> Value {
        let (id, params) = (&call["id"], &call["params"]);
        let wanted = params["id"].as_str().unwrap_or_default();
        let result = match call["method"].as_str() {
            Some("SendMessage") => {
                let task = self.make_task(&params["message"]);
                if params["configuration"]["returnImmediately"] != true {
                    thread::sleep(task.due.saturating_duration_since(Instant::now()));
                }
                json!({ "task": task.now() })
            }
            Some("ListTasks") => {
                let tasks = self.tasks();
                let page: Vec<Value> =
                    tasks.iter().rev().take(PAGE_TASKS).map(HeldTask::now).collect();
                json!({
                    "tasks": page, "nextPageToken": "", "pageSize": PAGE_TASKS,
                    "totalSize": tasks.len(),
                })
            }
            Some("CancelTask") => {
                let mut tasks = self.tasks();
                let task = tasks.iter_mut().find(|task| task.id == wanted).unwrap();
                task.is_canceled = true;
                task.now()
            }
            _ => self.tasks().iter().find(|task| task.id == wanted).unwrap().now(),
        };
        envelope(id, result)
    }

    fn make_task(&self, message: &Value) -> HeldTask {
        let text = message["parts"][0]["text"].as_str().unwrap_or_default();
        let numbers = |rest: &str| -> Vec<u64> {
            rest.split(':').filter_map(|number| number.parse().ok()).collect()
        };
        let (hold_ms, events) = match text.split_once(':') {
            Some(("stream", rest)) => (0, numbers(rest)[0]),
            Some(("hold", rest)) => (numbers(rest)[0], numbers(rest)[1]),
            _ => (0, 0),
        };
        let mut tasks = self.tasks();
        let number = tasks.len();
        let task = HeldTask {
            id: format!("task-{number}"),
            context_id: format!("context-{number}"),
            text: text.to_owned(),
            events,
            is_held: hold_ms > 0,
            due: Instant::now() + Duration::from_millis(hold_ms),
            is_canceled: false,
        };
        tasks.push(task.clone());
        task
    }

    /// The fault for the answer to this call, if any.
    fn fault_of(&self, call: &Value) -> Option<Fault> {
        let fault = self.fault?;
        let text = call["params"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
        // The first calls of `bench`, and the tasks it creates to read them.
        let is_first = ["peregrine", "stream:5", "hold:1:", "00000000000000"]
            .iter()
            .any(|begin| text.starts_with(begin));
        if is_first {
            return None;
        }
        let number = self.calls.fetch_add(1, SeqCst);
        let is_wrong = if fault.exchanges() { number % 4 >= 2 } else { number % 3 == 2 };
        is_wrong.then(|| {
            self.wrong.fetch_add(1, SeqCst);
            fault
        })
    }

    /// The answer, with its fault if the fault is one of the JSON.
    fn faulty(&self, call: Option<&Value>, method: &str, right: Value) -> Value {
        let fault = call.filter(|_| method == self.method).and_then(|call| self.fault_of(call));
        let old = std::mem::replace(&mut *self.old.lock().unwrap(), right.clone());
        match fault {
            None => right,
            Some(fault) if fault.exchanges() => {
                let other = self.exchanged(right.clone());
                fault.apply_to_answer(right, &other)
            }
            Some(fault) => fault.apply_to_answer(right, &old),
        }
    }

    /// Waits for the answer to another call and exchanges the two.
    fn exchanged(&self, answer: Value) -> Value {
        let mut waiting = self.exchange.lock().unwrap();
        if let Some(first) = waiting.take() {
            first.other.send(answer).unwrap();
            return first.answer;
        }
        let (other, received) = channel();
        *waiting = Some(ExchangedAnswer { answer, other });
        drop(waiting);
        received.recv_timeout(EXCHANGE).expect("a second call")
    }

    /// Writes an answer, with its fault if it gets one.
    fn respond(&self, call: &Value, right: Value, stream: &mut TcpStream) -> std::io::Result<()> {
        let method = call["method"].as_str().unwrap_or_default();
        let is_http = self.fault.is_some_and(Fault::is_of_http);
        if !is_http || method != self.method {
            let json = self.faulty(Some(call), method, right).to_string();
            return respond(stream, "200 OK", "application/json", &json);
        }
        let json = right.to_string();
        match self.fault_of(call) {
            Some(fault) => fault.respond(stream, &json),
            None => respond(stream, "200 OK", "application/json", &json),
        }
    }

    /// Streams a new task or an existing one.
    fn stream(&self, request: &AgentRequest, stream: &mut TcpStream) -> std::io::Result<()> {
        let (call, params) = (&request.body, &request.body["params"]);
        let method = call["method"].as_str().unwrap_or_default();
        let task = match method {
            "SubscribeToTask" => {
                let tasks = self.tasks();
                tasks.iter().find(|task| params["id"] == task.id).unwrap().clone()
            }
            _ => self.make_task(&params["message"]),
        };
        let fault = Some(call).filter(|_| method == self.method);
        let fault = fault.and_then(|call| self.fault_of(call));
        if method == "SubscribeToTask" && !task.is_held {
            let json = json!({
                "jsonrpc": "2.0", "id": call["id"],
                "error": { "code": -32004, "message": "the task has ended" },
            });
            return respond(stream, "200 OK", "application/json", &json.to_string());
        }
        if let Some(fault) = fault.filter(|fault| fault.is_of_http()) {
            return fault.respond(stream, &envelope(&call["id"], task.now()).to_string());
        }
        let mut items = task.items();
        let after = request.after.filter(|_| self.has_numbers).unwrap_or(0);
        items.retain(|item| item.number > Some(after));
        if let Some(fault) = fault {
            fault.apply_to_stream(&mut items, &task);
        }
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        )?;
        for item in items {
            if item.json.get("task").is_none() {
                thread::sleep(task.due.saturating_duration_since(Instant::now()));
            }
            let number = item.number.filter(|_| self.has_numbers);
            let mut event = number.map(|number| format!("id: {number}\n")).unwrap_or_default();
            let id = fault.map_or(call["id"].clone(), |fault| fault.stream_id(&call["id"]));
            event.push_str(&format!("data: {}\n\n", envelope(&id, item.json)));
            write!(stream, "{:x}\r\n{event}\r\n", event.len())?;
        }
        if let Some(fault) = fault {
            fault.before_end_of_stream(stream, &task)?;
        }
        write!(stream, "0\r\n\r\n")?;
        let config = &params["configuration"]["taskPushNotificationConfig"];
        match config["url"].as_str() {
            Some(url) => self.send_webhook(url, &task, fault),
            None => Ok(()),
        }
    }

    fn send_webhook(
        &self,
        url: &str,
        task: &HeldTask,
        fault: Option<Fault>,
    ) -> std::io::Result<()> {
        let mut end = task.status_update("TASK_STATE_COMPLETED");
        match fault {
            Some(Fault::NoWebhook) => return Ok(()),
            Some(Fault::WebhookOfAnotherTask) => end["statusUpdate"]["taskId"] = json!("task-x"),
            _ => {}
        }
        let (host, path) = url.trim_start_matches("http://").split_once('/').unwrap();
        let body = end.to_string();
        let mut stream = TcpStream::connect(host)?;
        write!(
            stream,
            "POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/a2a+json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )?;
        stream.read(&mut [0; 64]).map(drop)
    }
}

/// The next request; `None`: the client has closed the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<AgentRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut after) = (0, None);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "last-event-id" => after = value.trim().parse().ok(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(AgentRequest { path, after, body }))
}

/// Writes a whole response.
pub fn respond(
    stream: &mut TcpStream,
    status: &str,
    media: &str,
    body: &str,
) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
