//! A server in the test's own process: no socket, no thread, and a clock that the test advances.
//!
//! A [`Lab`] drives connections exactly as the driver in `net` does: it advances a connection on
//! new input, a wake-up, sent output, the peer's end or a passed deadline, and at no other time. So
//! a wake-up or a deadline that the engine misses fails a test here as well.

#![allow(dead_code, reason = "no test uses all of it")]

pub mod ask;
#[cfg(feature = "net")]
pub mod binary;
pub mod by_hand;
pub mod callers;
#[cfg(feature = "net")]
pub mod configured;
pub mod holding;
pub mod reply;
pub mod ws;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Wake, Waker},
};

use peregrine::{
    agent::{Agent, Profile, echo::Echo},
    engine::{Conn, Cx, Engine, Next, Progress, Setup, Start, Worker},
    json::Source,
    limits::Limits,
    service::{self, Entropy, Now},
};
use serde_json::Value;

use self::reply::Reply;

/// The start time of each lab.
pub const BEGIN: Now = Now { mono_ms: 1_000, unix_ms: 1_790_000_000_000 };

/// The same bits in each run.
pub struct Counter(pub u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        self.0
    }
}

/// Counts its wake-ups.
#[derive(Default)]
pub struct Bell {
    rung: AtomicUsize,
    total: AtomicUsize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Relaxed);
        self.total.fetch_add(1, Relaxed);
    }
}

impl Bell {
    fn take(&self) -> bool {
        self.rung.swap(0, Relaxed) > 0
    }
}

/// Identifies a connection of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(usize);

struct Line {
    conn: Conn,
    /// Bytes that the server has not read yet.
    socket: Vec<u8>,
    /// Bytes that it has read but not consumed.
    input: Vec<u8>,
    /// Bytes that the peer has not read yet.
    unsent: Vec<u8>,
    /// Bytes that the peer has read and the test has not taken.
    received: Vec<u8>,
    reads: bool,
    eof: bool,
    due: bool,
    /// The last handled deadline, so that a past one is handled once.
    handled_ms: Option<u64>,
    bell: Arc<Bell>,
    peer: service::Peer<'static>,
    progress: Progress,
}

/// A server, its clock and its connections.
pub struct Lab {
    /// The engine under test.
    pub engine: Arc<Engine>,
    /// The time.
    pub now: Now,
    worker: Worker,
    lines: Vec<Line>,
    ticker: Arc<Bell>,
    tick_ms: Option<u64>,
}

/// The echo agent as the default one.
pub fn echo() -> (Profile, Arc<dyn Agent>) {
    (Echo::profile(), Arc::new(Echo))
}

/// An agent that follows a script.
#[cfg(feature = "script")]
pub fn script(name: &str, toml: &str) -> (Profile, Arc<dyn Agent>) {
    let script = peregrine::agent::script::Script::parse(toml)
        .unwrap_or_else(|error| panic!("{error}\n{toml}"));
    let mut profile = script.profile().clone();
    profile.name = name.to_owned();
    (profile, Arc::new(script))
}

/// A server with webhooks, if the crate has them.
pub fn with_push() -> Setup {
    Setup {
        #[cfg(feature = "push")]
        push: Some(peregrine::engine::PushSettings::default()),
        ..Setup::default()
    }
}

impl Lab {
    /// A lab with the echo agent.
    pub fn echo() -> Lab {
        Lab::new(Setup::default())
    }

    /// A lab with the echo agent and other limits.
    pub fn limited(change: impl FnOnce(&mut Limits)) -> Lab {
        let mut setup = Setup::default();
        change(&mut setup.limits);
        Lab::new(setup)
    }

    /// A lab with a scripted default agent.
    #[cfg(feature = "script")]
    pub fn scripted(toml: &str) -> Lab {
        Lab::new(Setup { agents: vec![script("script", toml)], ..Setup::default() })
    }

    /// A lab with this setup; without agents and a service it has the echo agent.
    pub fn new(setup: Setup) -> Lab {
        Lab::worker(Lab::engine(setup, 1), 0)
    }

    /// Two workers of one engine, for two threads.
    pub fn pair(setup: Setup) -> [Lab; 2] {
        let engine = Lab::engine(setup, 2);
        [0, 1].map(|worker| Lab::worker(Arc::clone(&engine), worker))
    }

    fn engine(mut setup: Setup, workers: usize) -> Arc<Engine> {
        if setup.agents.is_empty() && setup.service.is_none() {
            setup.agents.push(echo());
        }
        let base_url = "http://127.0.0.1:3000".to_owned();
        let start = Start { secret: 7, unix_ms: Arc::new(|| BEGIN.unix_ms), workers, base_url };
        setup.build(start).expect("a setup without contradictions")
    }

    fn worker(engine: Arc<Engine>, worker: usize) -> Lab {
        let entropy = Box::new(Counter(1 + worker as u128));
        let worker = Worker::new(worker, engine.limits(), entropy);
        let ticker = Arc::default();
        Lab { engine, now: BEGIN, worker, lines: Vec::new(), ticker, tick_ms: Some(0) }
    }

    /// Opens a connection.
    pub fn open(&mut self) -> Peer {
        self.open_to(service::Peer::default())
    }

    /// Opens a connection to a peer with these properties.
    pub fn open_to(&mut self, peer: service::Peer<'static>) -> Peer {
        let progress = Progress {
            consumed: 0,
            need: 0,
            deadline_ms: Some(self.now.mono_ms + self.engine.limits().keep_alive_idle_ms),
            read: true,
            next: Next::Open,
            record: 0,
        };
        self.lines.push(Line {
            conn: Conn::new(self.now),
            socket: Vec::new(),
            input: Vec::new(),
            unsent: Vec::new(),
            received: Vec::new(),
            reads: true,
            eof: false,
            due: false,
            handled_ms: None,
            bell: Arc::default(),
            peer,
            progress,
        });
        Peer(self.lines.len() - 1)
    }

    /// The peer sends bytes, and the lab runs until no connection can progress.
    pub fn write(&mut self, peer: Peer, bytes: &[u8]) {
        self.lines[peer.0].socket.extend_from_slice(bytes);
        self.settle();
    }

    /// The peer closes its side.
    pub fn end(&mut self, peer: Peer) {
        self.lines[peer.0].eof = true;
        self.lines[peer.0].due = true;
        self.settle();
    }

    /// The peer stops or resumes reading.
    pub fn set_reads(&mut self, peer: Peer, reads: bool) {
        let line = &mut self.lines[peer.0];
        line.reads = reads;
        if reads && !line.unsent.is_empty() {
            line.received.append(&mut line.unsent);
            line.due = true;
        }
        self.settle();
    }

    /// Lets time pass, and handles each deadline on the way.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.mono_ms + ms;
        loop {
            self.settle();
            let now = self.now.mono_ms;
            let deadlines = self.lines.iter().filter_map(|line| line.progress.deadline_ms);
            let next = deadlines.chain(self.tick_ms).filter(|at| *at > now).min();
            let next = next.map_or(end, |at| at.min(end));
            self.now.mono_ms = next;
            self.now.unix_ms += next - now;
            if next == end {
                return self.settle();
            }
        }
    }

    /// Sets the wall clock forward or back; the monotonic clock is unchanged.
    pub fn jump(&mut self, ms: i64) {
        self.now.unix_ms = self.now.unix_ms.saturating_add_signed(ms);
    }

    /// True while the server keeps the connection open.
    pub fn is_open(&self, peer: Peer) -> bool {
        self.lines[peer.0].progress.next == Next::Open
    }

    /// The engine's next action for the connection.
    pub fn next(&self, peer: Peer) -> Next {
        self.lines[peer.0].progress.next
    }

    /// The result of the last advance.
    pub fn progress(&self, peer: Peer) -> Progress {
        self.lines[peer.0].progress
    }

    /// How often the engine woke the connection.
    pub fn wakes(&self, peer: Peer) -> usize {
        self.lines[peer.0].bell.total.load(Relaxed)
    }

    /// The number of bytes that wait for a peer that does not read.
    pub fn unsent(&self, peer: Peer) -> usize {
        self.lines[peer.0].unsent.len()
    }

    /// The bytes that wait for a peer that does not read.
    pub fn unsent_bytes(&self, peer: Peer) -> &[u8] {
        &self.lines[peer.0].unsent
    }

    /// The number of bytes that wait for the server, in the socket and in its input.
    pub fn unread(&self, peer: Peer) -> usize {
        self.lines[peer.0].socket.len() + self.lines[peer.0].input.len()
    }

    /// All received bytes that the test has not taken.
    pub fn received(&self, peer: Peer) -> &[u8] {
        &self.lines[peer.0].received
    }

    /// Takes all received bytes.
    pub fn take(&mut self, peer: Peer) -> Vec<u8> {
        std::mem::take(&mut self.lines[peer.0].received)
    }

    /// Takes one complete response, if there is one.
    pub fn try_reply(&mut self, peer: Peer) -> Option<Reply> {
        let ended = !self.is_open(peer);
        let received = &mut self.lines[peer.0].received;
        let (reply, used) = Reply::parse(received, false, ended)?;
        if !reply.complete {
            return None;
        }
        received.drain(..used);
        Some(reply)
    }

    /// Takes one complete response.
    pub fn reply(&mut self, peer: Peer) -> Reply {
        let reply = self.try_reply(peer);
        reply.unwrap_or_else(|| panic!("no reply in {}", self.received(peer).escape_ascii()))
    }

    /// Takes the response to HEAD.
    pub fn head_reply(&mut self, peer: Peer) -> Reply {
        let received = &mut self.lines[peer.0].received;
        let (reply, used) = Reply::parse(received, true, false).expect("a head");
        received.drain(..used);
        reply
    }

    /// The response that is arriving, without taking it.
    pub fn peek(&self, peer: Peer) -> Reply {
        let parsed = Reply::parse(self.received(peer), false, !self.is_open(peer));
        parsed.unwrap_or_else(|| panic!("no head in {}", self.received(peer).escape_ascii())).0
    }

    /// Sends one request on a new connection and takes its one response.
    pub fn ask(&mut self, request: &[u8]) -> Reply {
        let peer = self.open();
        self.write(peer, request);
        let reply = self.reply(peer);
        assert!(self.received(peer).is_empty(), "{}", self.received(peer).escape_ascii());
        reply
    }

    /// Calls a method at `/` and takes the whole JSON-RPC response.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.ask(&ask::post("/", &[], &ask::rpc(method, params))).json()
    }

    /// Calls a method at `/` and takes its result.
    pub fn result(&mut self, method: &str, params: &Value) -> Value {
        let mut answer = self.call(method, params);
        assert!(answer.get("error").is_none(), "{method} {params}: {answer}");
        answer["result"].take()
    }

    /// Calls a method at `/` and takes the code of its error.
    pub fn code(&mut self, method: &str, params: &Value) -> i64 {
        let answer = self.call(method, params);
        let code = answer["error"]["code"].as_i64();
        code.unwrap_or_else(|| panic!("{method} {params}: {answer}"))
    }

    /// Opens a stream at `/` on a new connection.
    pub fn stream(&mut self, method: &str, params: &Value) -> Peer {
        let peer = self.open();
        self.write(peer, &ask::post("/", &[], &ask::rpc(method, params)));
        peer
    }

    /// Opens a WebSocket with more field lines in the request.
    pub fn socket(&mut self, target: &str, lines: &str) -> Peer {
        let peer = self.open();
        self.write(peer, &ws::upgrade(target, lines));
        let head = self.take(peer);
        assert!(head.starts_with(b"HTTP/1.1 101 ") && head.ends_with(b"\r\n\r\n"));
        peer
    }

    /// Takes each whole frame received on a WebSocket.
    pub fn frames(&mut self, peer: Peer) -> Vec<ws::Sent> {
        let received = &mut self.lines[peer.0].received;
        let (frames, used) = ws::frames(received);
        received.drain(..used);
        frames
    }

    /// Sends a text message and takes all answers available now, as JSON.
    pub fn say(&mut self, peer: Peer, text: &str) -> Vec<Value> {
        self.write(peer, &ws::text(text));
        self.frames(peer).iter().map(ws::Sent::json).collect()
    }

    /// The size of the buffers that a connection holds.
    pub fn held_bytes(&self, peer: Peer) -> usize {
        self.lines[peer.0].conn.held_bytes()
    }

    /// Advances each connection, as the driver does when the server starts to drain.
    pub fn settle_all(&mut self) {
        self.lines.iter_mut().for_each(|line| line.due = true);
        self.settle();
    }

    /// Panics unless the server still answers.
    pub fn assert_lives(&mut self) {
        let reply = self.ask(&ask::get("/.well-known/agent-card.json"));
        assert_eq!(reply.status, 200);
    }

    /// Runs until no connection can progress.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 1_000_000, "the engine keeps itself busy");
            let mut moved = self.tick();
            for at in 0..self.lines.len() {
                moved |= self.advance(at);
            }
            if !moved {
                return;
            }
        }
    }

    fn tick(&mut self) -> bool {
        let is_due = self.tick_ms.is_some_and(|at| at <= self.now.mono_ms);
        if !self.ticker.take() && !is_due {
            return false;
        }
        let wake = Waker::from(Arc::clone(&self.ticker));
        self.tick_ms = self.engine.tick(&mut self.worker, self.now, &wake);
        true
    }

    /// Advances a connection as `net::drive` does.
    fn advance(&mut self, at: usize) -> bool {
        let line = &mut self.lines[at];
        if line.progress.next != Next::Open {
            return false;
        }
        let mut due = std::mem::take(&mut line.due);
        due |= line.bell.take();
        if line.progress.read && !line.socket.is_empty() {
            line.input.append(&mut line.socket);
            due = true;
        }
        let is_hungry = line.progress.need > line.input.len();
        due &= !is_hungry || line.eof;
        let deadline = line.progress.deadline_ms.filter(|at| *at <= self.now.mono_ms);
        if deadline.is_some() && line.handled_ms != deadline {
            (line.handled_ms, due) = (deadline, true);
        }
        if !due {
            return false;
        }
        let wake = Waker::from(Arc::clone(&line.bell));
        let mut out = Vec::new();
        let mut cx = Cx {
            engine: &self.engine,
            worker: &mut self.worker,
            now: self.now,
            wake: &wake,
            out: &mut out,
            unsent: line.unsent.len(),
            peer: line.peer,
        };
        // As in the driver, the buffer has room after the input.
        let length = line.input.len();
        line.input.resize(length + 64, b'"');
        let input = Source::roomy(&mut line.input, length);
        let progress = line.conn.advance(&mut cx, input, line.eof);
        line.input.truncate(length);
        assert!(progress.consumed <= length, "{progress:?}");
        line.input.drain(..progress.consumed);
        line.progress = progress;
        let high_water = self.engine.limits().output_bytes_max;
        let stopped = !progress.read || out.len() >= high_water / 2;
        let has_output = !out.is_empty();
        line.unsent.append(&mut out);
        if line.reads {
            line.received.append(&mut line.unsent);
        }
        line.due |= has_output && stopped && line.unsent.len() < high_water;
        true
    }
}
