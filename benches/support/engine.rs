//! The pure engine with the echo agent, and one connection to it.

use std::{sync::Arc, task::Waker};

use peregrine::{
    agent::echo::Echo,
    engine::{Conn, Cx, Engine, Setup, Start, Worker},
    json::Source,
    service::{Entropy, Now, Peer},
};

pub const TEXT: &str = "Please summarise the attached quarterly numbers and tell me which region grew \
                    the fastest this year.";

struct Counter(u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        self.0
    }
}

pub fn post(body: &str) -> Vec<u8> {
    format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nContent-Type: application/json\r\nAccept: \
         application/json, text/event-stream\r\nA2A-Version: 1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub fn send(method: &str, text: &str) -> Vec<u8> {
    post(&message(method, text))
}

pub fn message(method: &str, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"message":{{"messageId":"0123456789abcdef","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}}}"#
    )
}

pub const CARD: &[u8] = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: 127.0.0.1:3000\r\n\
    Accept: application/json\r\n\r\n";

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Version: 13\r\nA2A-Version: 1.0\r\n\r\n";

pub struct Bench {
    engine: Arc<Engine>,
    worker: Worker,
    conn: Conn,
    out: Vec<u8>,
    /// The beginning of every answer.
    begins: &'static [u8],
}

const NOW: Now = Now { mono_ms: 1, unix_ms: 1_790_000_000_000 };

impl Bench {
    pub fn new() -> Bench {
        Bench::with(Setup::default())
    }

    /// The same with another setup.
    pub fn with(setup: Setup) -> Bench {
        let agents: Vec<(_, Arc<dyn peregrine::agent::Agent>)> =
            vec![(Echo::profile(), Arc::new(Echo))];
        let setup = Setup { agents, ..setup };
        let base_url = "http://127.0.0.1:3000".to_owned();
        let start =
            Start { secret: 7, unix_ms: Arc::new(|| 1_790_000_000_000), workers: 1, base_url };
        let engine = setup.build(start).unwrap();
        let worker = Worker::new(0, engine.limits(), Box::new(Counter(1)));
        let (conn, out) = (Conn::new(NOW), Vec::with_capacity(1 << 20));
        Bench { engine, worker, conn, out, begins: b"HTTP/1.1 200 OK\r\n" }
    }

    /// The engine, which outlives its connection.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The same on a WebSocket.
    pub fn upgrade(&mut self) {
        self.begins = b"HTTP/1.1 101 ";
        let (mut input, length) = with_room(UPGRADE.to_vec());
        self.round(&mut input, length);
        // An unmasked, final text frame.
        self.begins = b"\x81";
    }

    /// One `advance` with the first `length` bytes of `input`; there is room after them, as in the
    /// driver's buffers.
    pub fn round(&mut self, input: &mut [u8], length: usize) {
        self.out.clear();
        let mut cx = Cx {
            engine: &self.engine,
            worker: &mut self.worker,
            now: NOW,
            wake: Waker::noop(),
            out: &mut self.out,
            unsent: 0,
            peer: Peer::default(),
        };
        let progress = self.conn.advance(&mut cx, Source::roomy(input, length), false);
        assert_eq!(progress.consumed, length);
        assert!(self.out.starts_with(self.begins), "{}", self.text());
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Makes a task by a message with these lines in its head.
    pub fn task_id(&mut self, lines: &str) -> String {
        let plain = String::from_utf8(send("SendMessage", TEXT)).unwrap();
        let request = plain.replacen("Content-Length", &format!("{lines}Content-Length"), 1);
        let (mut input, length) = with_room(request.into_bytes());
        self.round(&mut input, length);
        let text = self.text();
        let at = text.find(r#""task":{"id":""#).expect("a task") + 14;
        text[at..at + 36].to_owned()
    }
}

/// The input with a block of room after it, and its length.
pub fn with_room(mut input: Vec<u8>) -> (Vec<u8>, usize) {
    let length = input.len();
    input.resize(length + 64, 0);
    (input, length)
}

pub fn get(method: &str, id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{{"id":"{id}"}}}}"#)
}
