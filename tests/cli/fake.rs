//! A small agent that answers as a test says, for behaviour that no correct agent has.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

/// A request as received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: String,
    pub target: String,
    /// The fields, names in lower case.
    pub fields: Vec<(String, String)>,
    pub body: Value,
}

impl ReceivedRequest {
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The JSON-RPC method.
    pub fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// A JSON-RPC response.
    pub fn result(&self, result: &Value) -> Vec<u8> {
        let body = json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result });
        ok("application/json", &body.to_string())
    }

    /// The beginning of a stream, which then breaks.
    pub fn events(&self, results: &[Value]) -> Vec<u8> {
        let mut text = String::new();
        for result in results {
            let event = json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result });
            text.push_str(&format!("data: {event}\n\n"));
        }
        // Announces more content than it sends.
        let length = text.len() + 1000;
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n{text}"
        )
        .into_bytes()
    }
}

pub fn ok(media_type: &str, body: &str) -> Vec<u8> {
    status("200 OK", media_type, body)
}

pub fn status(status: &str, media_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A card with one JSON-RPC interface at `url`, and these additional members.
pub fn card(url: &str, more: &Value) -> String {
    let mut card = json!({
        "name": "fake", "description": "", "version": "1",
        "supportedInterfaces": [{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        "capabilities": {}, "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
    });
    for (name, value) in more.as_object().unwrap() {
        card[name] = value.clone();
    }
    card.to_string()
}

/// The agent; its thread ends with the test's process.
pub struct Fake {
    pub url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Fake {
    /// Answers every request with `answer` of the request, its number and the agent's URL.
    pub fn start(
        answer: impl Fn(&ReceivedRequest, usize, &str) -> Vec<u8> + Send + 'static,
    ) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (recorded, base) = (Arc::clone(&requests), url.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(request) = read(&stream) else { continue };
                let number = {
                    let mut recorded = recorded.lock().unwrap();
                    recorded.push(request.clone());
                    recorded.len() - 1
                };
                // A client that has disconnected needs no answer.
                let _ = (&stream).write_all(&answer(&request, number, &base));
            }
        });
        Fake { url, requests }
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<ReceivedRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut fields = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = fields.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(ReceivedRequest { method, target, fields, body })
}
