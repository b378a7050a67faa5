//! A receiver of webhooks that follows a plan, post by post, and records every post.

use std::{
    collections::{BTreeMap, HashMap},
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use socket2::SockRef;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

const COMPLETED: &[u8] = b"TASK_STATE_COMPLETED";

/// What a receiver does with a post that it has read.
#[derive(Clone, Debug)]
pub enum Does {
    /// Answers with this; the connection stays open.
    Responds(String),
    /// Answers with 200 after a while.
    Later(Duration),
    /// Sends nothing until the server closes.
    Hangs,
    /// Closes with a reset instead of an answer.
    Resets,
    /// Closes without an answer.
    Closes,
    /// Closes within the head of its answer.
    Breaks,
    /// Sends its head at one byte a second.
    DripsHead,
    /// Sends 200, and then its content at one byte a second.
    DripsBody,
    /// Sends 200, and then content without end.
    Floods,
}

/// The usual answer.
pub fn responds(status: &str) -> Does {
    Does::Responds(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"))
}

/// A post as received.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// Path and query; with `GET ` in front for a challenge, which has no ids.
    pub path: String,
    /// `A2A-Notification-Id`
    pub id: String,
    /// `A2A-Event-Id`
    pub event: u64,
    /// All fields, with names in lower case.
    pub fields: BTreeMap<String, String>,
    /// The content.
    pub body: Vec<u8>,
    /// True: the answer was a success, as far as it was sent.
    pub is_accepted: bool,
}

impl Received {
    /// The content as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Plan = Box<dyn Fn(usize, &Received) -> Does + Send + Sync>;

struct Shared {
    /// What the receiver does with the n-th post of a path.
    plan: Plan,
    tls: Mutex<Option<Arc<ServerConfig>>>,
    connections: AtomicUsize,
    completed: AtomicUsize,
    posts: Mutex<Vec<Received>>,
    /// Posts of each path so far.
    counts: Mutex<HashMap<String, usize>>,
    is_stopped: AtomicBool,
    open: Mutex<Vec<Weak<TcpStream>>>,
}

/// See the module. Dropping it closes all connections.
pub struct Receiver {
    /// Where it listens.
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Receiver {
    /// A receiver on 127.0.0.1 that follows a plan: what it does with the n-th post of a path, from
    /// 0.
    pub fn new(plan: impl Fn(usize, &Received) -> Does + Send + Sync + 'static) -> Receiver {
        Receiver::bound("127.0.0.1:0".parse().unwrap(), plan)
    }

    /// The same at another address.
    pub fn bound(
        addr: SocketAddr,
        plan: impl Fn(usize, &Received) -> Does + Send + Sync + 'static,
    ) -> Receiver {
        Receiver::at(addr, Receiver::shared(Box::new(plan)))
    }

    /// A receiver that accepts everything.
    pub fn willing() -> Receiver {
        Receiver::new(|_, _| responds("204 No Content"))
    }

    /// A receiver over TLS.
    pub fn over_tls(config: ServerConfig) -> Receiver {
        let shared = Receiver::shared(Box::new(|_, _| responds("200 OK")));
        *shared.tls.lock().unwrap() = Some(Arc::new(config));
        Receiver::at("127.0.0.1:0".parse().unwrap(), shared)
    }

    fn shared(plan: Plan) -> Arc<Shared> {
        Arc::new(Shared {
            plan,
            tls: Mutex::default(),
            connections: AtomicUsize::new(0),
            completed: AtomicUsize::new(0),
            posts: Mutex::default(),
            counts: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            open: Mutex::default(),
        })
    }

    fn at(addr: SocketAddr, shared: Arc<Shared>) -> Receiver {
        let mut receiver = Receiver { addr, shared, thread: None };
        receiver.listen();
        receiver
    }

    fn listen(&mut self) {
        let listener = TcpListener::bind(self.addr).unwrap();
        self.addr = listener.local_addr().unwrap();
        // Polls whether it is to end.
        listener.set_nonblocking(true).unwrap();
        let shared = Arc::clone(&self.shared);
        self.thread = Some(thread::spawn(move || accept(&listener, &shared)));
    }

    /// Stops, and closes all its connections.
    fn die(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        for stream in self.shared.open.lock().unwrap().drain(..) {
            // The other side may have closed.
            stream.upgrade().map(|stream| stream.shutdown(Shutdown::Both));
        }
    }

    /// Stops, and returns at another address with the same port after `meanwhile`.
    pub fn moves(&mut self, to: IpAddr, meanwhile: impl FnOnce()) {
        self.die();
        meanwhile();
        self.shared.is_stopped.store(false, Ordering::Relaxed);
        self.addr.set_ip(to);
        self.listen();
    }

    /// Uses another certificate from now on.
    pub fn shows(&self, config: ServerConfig) {
        *self.shared.tls.lock().unwrap() = Some(Arc::new(config));
    }

    /// Its URL, under the name `localhost`.
    pub fn url(&self, path: &str) -> String {
        let is_tls = self.shared.tls.lock().unwrap().is_some();
        format!("{}://localhost:{}{path}", if is_tls { "https" } else { "http" }, self.addr.port())
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.shared.open.lock().unwrap().iter().filter(|open| open.strong_count() > 0).count()
    }

    /// All posts of a path so far, repeated ones included.
    pub fn all(&self, path: &str) -> Vec<Received> {
        let posts = self.shared.posts.lock().unwrap();
        posts.iter().filter(|post| post.path == path).cloned().collect()
    }

    /// Posts so far, of all paths.
    pub fn count(&self) -> usize {
        self.shared.posts.lock().unwrap().len()
    }

    /// How many accepted posts have reported the end of a task.
    pub fn completed(&self) -> usize {
        self.shared.completed.load(Ordering::Relaxed)
    }

    /// Posts of all paths, in their order.
    pub fn by_path(&self) -> HashMap<String, Vec<Received>> {
        let mut paths = HashMap::<String, Vec<Received>>::new();
        for post in &*self.shared.posts.lock().unwrap() {
            paths.entry(post.path.clone()).or_default().push(post.clone());
        }
        paths
    }

    /// Waits until this many different posts of a path were accepted.
    pub fn wait_for(&self, path: &str, count: usize) {
        patiently(&format!("{count} posts to {path}"), || {
            let posts = self.all(path);
            let mut accepted: Vec<&str> =
                posts.iter().filter(|post| post.is_accepted).map(|post| &*post.id).collect();
            accepted.dedup();
            accepted.len() >= count
        });
    }

    /// Waits for these events, and asserts that nothing else came, that the order is right, and
    /// that repeats are the same. Returns the number of posts.
    #[track_caller]
    pub fn assert_received(&self, path: &str, events: &[Value]) -> usize {
        self.wait_for(path, events.len());
        let posts = self.all(path);
        let received = distinct(&posts);
        let bodies: Vec<Value> = received.iter().map(|post| post.json()).collect();
        assert_eq!(bodies, events, "{path}");
        posts.len()
    }
}

/// Each post once; panics if one was repeated with other content, or after a later one.
#[track_caller]
pub fn distinct(posts: &[Received]) -> Vec<&Received> {
    let mut seen: Vec<&Received> = Vec::new();
    for post in posts {
        match seen.last() {
            Some(last) if last.id == post.id => {
                assert_eq!(post.body, last.body, "repeated with another body");
                assert_eq!(post.event, last.event);
            }
            _ => {
                assert!(seen.iter().all(|one| one.id != post.id), "repeated out of order");
                assert!(seen.last().is_none_or(|last| last.event < post.event), "out of order");
                seen.push(post);
            }
        }
    }
    seen
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.die();
    }
}

/// Waits until `is_so`, for longer than anything may take.
#[track_caller]
pub fn patiently(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(150);
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.is_stopped.load(Ordering::Relaxed) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(2));
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        stream.set_nonblocking(false).unwrap();
        stream.set_nodelay(true).unwrap();
        let stream = Arc::new(stream);
        shared.open.lock().unwrap().push(Arc::downgrade(&stream));
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let tls = shared.tls.lock().unwrap().clone();
            match tls {
                None => serve(Peer(Arc::clone(&stream)), &stream, &shared),
                Some(config) => {
                    let session = ServerConnection::new(config).unwrap();
                    let peer = Peer(Arc::clone(&stream));
                    serve(StreamOwned::new(session, peer), &stream, &shared);
                }
            }
        });
    }
}

/// A connection that closes when its thread drops it.
struct Peer(Arc<TcpStream>);

impl Read for Peer {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        (&*self.0).read(buffer)
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        (&*self.0).flush()
    }
}

/// Until either side ends; the last bytes written may be lost.
fn serve(mut peer: impl Read + Write, stream: &TcpStream, shared: &Shared) {
    while let Some(mut post) = read_post(&mut peer) {
        let does = {
            // Posts are numbered and stored one at a time, so that both have the same order.
            let mut posts = shared.posts.lock().unwrap();
            let mut counts = shared.counts.lock().unwrap();
            let count = counts.entry(post.path.clone()).or_default();
            let does = (shared.plan)(*count, &post);
            *count += 1;
            post.is_accepted = match &does {
                Does::Responds(text) => text.starts_with("HTTP/1.1 2"),
                Does::Later(_) | Does::DripsBody | Does::Floods => true,
                Does::Hangs | Does::Resets | Does::Closes | Does::Breaks | Does::DripsHead => false,
            };
            let is_last = post.body.windows(COMPLETED.len()).any(|some| some == COMPLETED);
            let is_last = usize::from(is_last && post.is_accepted);
            shared.completed.fetch_add(is_last, Ordering::Relaxed);
            posts.push(post);
            does
        };
        if matches!(does, Does::Resets) {
            SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        let done = act(&mut peer, &does);
        let stays_open = matches!(does, Does::Responds(_) | Does::Later(_)) && done.is_ok();
        if !stays_open {
            return;
        }
    }
}

fn act(peer: &mut (impl Read + Write), does: &Does) -> std::io::Result<()> {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\n";
    match does {
        Does::Responds(text) => peer.write_all(text.as_bytes())?,
        Does::Later(pause) => {
            thread::sleep(*pause);
            peer.write_all(OK)?;
            peer.write_all(b"Content-Length: 0\r\n\r\n")?;
        }
        Does::Hangs => while let 1.. = peer.read(&mut [0; 64])? {},
        Does::Resets | Does::Closes => {}
        Does::Breaks => peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Le")?,
        Does::DripsHead => drip(peer, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?,
        Does::DripsBody => {
            peer.write_all(OK)?;
            peer.write_all(b"Content-Length: 40\r\n\r\n")?;
            drip(peer, &[b'x'; 40])?;
        }
        Does::Floods => {
            peer.write_all(OK)?;
            peer.write_all(b"Transfer-Encoding: chunked\r\n\r\n")?;
            loop {
                peer.write_all(b"400\r\n")?;
                peer.write_all(&[b'x'; 0x400])?;
                peer.write_all(b"\r\n")?;
            }
        }
    }
    peer.flush()
}

fn drip(peer: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    for byte in bytes {
        peer.write_all(&[*byte])?;
        peer.flush()?;
        thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// One post; its connection sends no further bytes before the answer.
fn read_post(peer: &mut impl Read) -> Option<Received> {
    let (mut bytes, mut some) = (Vec::new(), [0; 4096]);
    let mut more = |bytes: &mut Vec<u8>| match peer.read(&mut some) {
        Ok(count @ 1..) => {
            bytes.extend_from_slice(&some[..count]);
            Some(())
        }
        _ => None,
    };
    let end = loop {
        match bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            Some(end) => break end,
            None => more(&mut bytes)?,
        }
    };
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let start = lines.next()?;
    let target = start.strip_suffix(" HTTP/1.1")?;
    let is_challenge = target.starts_with("GET ");
    let path = target.strip_prefix("POST ").unwrap_or(target).to_owned();
    let fields: BTreeMap<String, String> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let field = |name: &str| if is_challenge { "0" } else { &*fields[name] };
    let length: usize = field("content-length").parse().unwrap();
    while bytes.len() < end + 4 + length {
        more(&mut bytes)?;
    }
    assert_eq!(bytes.len(), end + 4 + length, "more than a post");
    let body = bytes.split_off(end + 4);
    let id = field("a2a-notification-id").to_owned();
    let event = field("a2a-event-id").parse().unwrap();
    Some(Received { path, id, event, fields, body, is_accepted: false })
}
