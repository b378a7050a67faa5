//! A client of a real server cannot evict another client's tasks: its own tasks make room for the
//! ones it stores.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::id,
};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::support::{
    ask::{OutgoingMessage, V1, get_with, post, rpc, say},
    binary::{Binary, PATIENCE},
};

const LIMITS: [&str; 4] = ["--limit", "tasks_max=200", "--limit", "idempotency_entries_max=64"];

/// A connection from a loopback address of its own, and the key that it shows.
struct Client<'k> {
    tcp: TcpStream,
    path: &'static str,
    key: Option<&'k str>,
    sent: usize,
}

impl<'k> Client<'k> {
    fn new(server: &Binary, from: [u8; 4], path: &'static str, key: Option<&'k str>) -> Client<'k> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&server.addr().into()).unwrap();
        let tcp = TcpStream::from(socket);
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { tcp, path, key, sent: 0 }
    }

    /// The status and the body of an answer.
    fn send(&mut self, body: &str) -> (u16, String) {
        let key = self.key.map(|key| ("X-API-Key", key));
        self.tcp.write_all(&post(self.path, key.as_slice(), body)).unwrap();
        self.answer()
    }

    fn answer(&mut self) -> (u16, String) {
        let mut all = Vec::new();
        loop {
            let mut bytes = [0; 64 * 1024];
            let read = self.tcp.read(&mut bytes).unwrap();
            assert!(read > 0, "closed");
            all.extend_from_slice(&bytes[..read]);
            let text = str::from_utf8(&all).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let head = head.to_ascii_lowercase();
            let (_, length) = head.split_once("content-length:").unwrap();
            let length: usize = length.split("\r\n").next().unwrap().trim().parse().unwrap();
            if body.len() == length {
                return (head[9..12].parse().unwrap(), body.to_owned());
            }
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        serde_json::from_str(&self.send(&rpc(method, params)).1).unwrap()
    }

    /// Params of a message with a new id.
    fn params(&mut self, text: &str) -> Value {
        self.sent += 1;
        let id = format!("{}-{}", self.tcp.local_addr().unwrap(), self.sent);
        V1.params(OutgoingMessage { id: &id, ..say(text) })
    }

    fn make(&mut self, text: &str) -> Value {
        let params = self.params(text);
        let made = self.call(V1.send(), &params);
        assert!(made["result"]["task"]["id"].is_string(), "{made}");
        made["result"]["task"]["id"].clone()
    }

    fn flood(&mut self, text: &str, count: usize) {
        for _ in 0..count / 50 {
            let calls: Vec<String> = (0..50).map(|_| rpc(V1.send(), &self.params(text))).collect();
            self.send(&format!("[{}]", calls.join(",")));
        }
    }

    fn has(&mut self, id: &Value) -> bool {
        self.call(V1.get(), &json!({ "id": id }))["result"]["id"] == *id
    }
}

/// A folder with a configuration, deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, agents: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("peregrine-fair-{name}-{}", id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("peregrine.toml"), agents).unwrap();
        fs::write(path.join("ask.toml"), SCRIPT).unwrap();
        Folder(path)
    }

    fn start(&self) -> Binary {
        let config = self.0.join("peregrine.toml");
        let flags: Vec<&str> =
            ["--config", config.to_str().unwrap()].into_iter().chain(LIMITS).collect();
        Binary::start(&flags)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const KEYS: &str = r#"
[[auth.api_keys]]
name = "a"
key = "key-a-0123456789abcdef"
[[auth.api_keys]]
name = "v"
key = "key-v-0123456789abcdef"
[agents.echo]
kind = "echo"
[agents.ask]
script = "ask.toml"
[agents.open]
script = "ask.toml"
anonymous = true
"#;

const OPEN: &str = "[agents.ask]\nscript = 'ask.toml'\n";

/// Completes a text that begins with "done", and asks for input otherwise.
const SCRIPT: &str = "[agent]\nname = 'ask'\n[[rule]]\ntext = 'done'\n[[rule.step]]\n\
                      status = 'completed'\n[[rule]]\n[[rule.step]]\nstatus = 'input-required'\n\
                      text = '?'\n";

const A: Option<&str> = Some("key-a-0123456789abcdef");
const V: Option<&str> = Some("key-v-0123456789abcdef");
const HOME: [u8; 4] = [127, 0, 0, 1];

#[test]
fn flood_by_one_api_key_evicts_no_other_keys_tasks() {
    let folder = Folder::new("keys", KEYS);
    let server = folder.start();
    let mut victim = Client::new(&server, HOME, "/agents/echo", V);
    let made: Vec<Value> = (0..20).map(|_| victim.make("mine")).collect();
    let mut flood = Client::new(&server, HOME, "/agents/echo", A);
    let first = flood.make("first");
    flood.flood("x", 2_000);
    assert!(made.iter().all(|id| victim.has(id)) && !flood.has(&first));
    // Unanswered questions get no more than the client's share either.
    let mut client = Client::new(&server, HOME, "/agents/ask", A);
    client.flood("x", 2_000);
    assert!(made.iter().all(|id| victim.has(id)));
    client.make("done");
}

#[test]
fn flood_by_one_address_evicts_no_other_addresses_tasks() {
    let folder = Folder::new("peers", OPEN);
    let server = folder.start();
    let mut victim = Client::new(&server, [127, 0, 0, 3], "/", None);
    let made: Vec<Value> = (0..20).map(|_| victim.make("done")).collect();
    let mut flood = Client::new(&server, [127, 0, 0, 2], "/", None);
    flood.flood("done", 2_000);
    flood.flood("x", 2_000);
    assert!(made.iter().all(|id| victim.has(id)));
    // The server is ready: waiting tasks make room.
    let mut page = Client::new(&server, HOME, "/", None);
    page.tcp.write_all(&get_with("/readyz", "")).unwrap();
    assert_eq!(page.answer().0, 200);
    let waiting = flood.make("x");
    assert!(flood.has(&waiting));
    let more: Vec<Value> = (0..80).map(|_| victim.make("x")).collect();
    assert!(more.iter().all(|id| victim.has(id)));
}

#[test]
fn anonymous_flood_evicts_no_authenticated_callers_tasks() {
    let folder = Folder::new("strangers", KEYS);
    let server = folder.start();
    for last in 2..12 {
        let mut stranger = Client::new(&server, [127, 0, 0, last], "/agents/open", None);
        stranger.flood("x", 200);
    }
    let mut authenticated = Client::new(&server, HOME, "/agents/ask", V);
    let made: Vec<Value> = (0..100).map(|_| authenticated.make("done")).collect();
    let mut stranger = Client::new(&server, [127, 0, 0, 2], "/agents/open", None);
    stranger.flood("done", 1_000);
    assert!(made.iter().all(|id| authenticated.has(id)));
}
