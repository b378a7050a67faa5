//! Requests and a server without sockets, for the benches.

#![allow(dead_code)]

use std::{sync::Arc, task::Waker};

use peregrine::{
    agent::{Agent, Profile, echo::Echo},
    engine::{Conn, Cx, Engine, Setup, Start, Worker},
    service::{Entropy, Now, Peer},
};

pub const NOW: Now = Now { mono_ms: 1, unix_ms: 1_790_000_000_000 };

/// A user's text: a hundred bytes, as in the load tests.
pub const TEXT: &str = "Please summarise the attached quarterly numbers and tell me which region \
                        grew the fastest this year.";

pub const CARD: &[u8] = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: 127.0.0.1:3000\r\n\
                          Accept: application/json\r\n\r\n";

pub struct Counter(pub u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        self.0
    }
}

/// The JSON of one call.
pub fn call(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

/// The JSON of one message to the agent.
pub fn send(method: &str, text: &str) -> String {
    let message = format!(
        r#"{{"messageId":"0123456789abcdef","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}"#
    );
    call(method, &format!(r#"{{"message":{message}}}"#))
}

/// The request with this body.
pub fn post(body: &str) -> Vec<u8> {
    format!(
        "POST / HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nContent-Type: application/json\r\nAccept: \
         application/json, text/event-stream\r\nA2A-Version: 1.0\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The engine that connections share.
pub struct Server {
    engine: Arc<Engine>,
    worker: Worker,
}

impl Server {
    pub fn new(agent: Arc<dyn Agent>) -> Server {
        let profile = Profile { name: "bench".to_owned(), ..Echo::profile() };
        let setup = Setup { agents: vec![(profile, agent)], ..Setup::default() };
        let base_url = "http://127.0.0.1:3000".to_owned();
        let start = Start { secret: 7, unix_ms: Arc::new(|| NOW.unix_ms), workers: 1, base_url };
        let engine = setup.build(start).expect("a sound setup");
        let worker = Worker::new(0, engine.limits(), Box::new(Counter(1)));
        Server { engine, worker }
    }

    /// One `advance` with all of `input`; writes the output to `out`.
    pub fn advance(&mut self, conn: &mut Conn, input: &[u8], wake: &Waker, out: &mut Vec<u8>) {
        out.clear();
        let (engine, worker) = (&self.engine, &mut self.worker);
        let peer = Peer::default();
        let mut cx = Cx { engine, worker, now: NOW, wake, out, unsent: 0, peer };
        let progress = conn.advance(&mut cx, input, false);
        assert_eq!(progress.consumed, input.len());
    }
}

/// How often `what` occurs in `bytes`.
pub fn count(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).filter(|found| *found == what).count()
}

/// The id of the task in an answer of 1.0.
pub fn task_id(answer: &[u8]) -> String {
    let text = str::from_utf8(answer).expect("UTF-8");
    let at = text.find(r#""task":{"id":""#).expect("a task") + 14;
    text[at..at + 36].to_owned()
}
