//! The driver of `docs/guide/engine.md`, which explains it: the pure engine on blocking sockets.
//!
//! `cargo run --no-default-features --example engine` serves the echo agent on 127.0.0.1:3000 with
//! only the standard library: one thread for each connection, one that reads for it, and one for
//! timers.

#![allow(clippy::expect_used)]
// The server needs random bits.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    task::{Wake, Waker},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use peregrine::{
    agent::echo::Echo,
    engine::{Conn, Cx, Engine, Next, Setup, Start, Worker},
    service::{Entropy, Now, Peer},
};

/// Connections at a time, each of which has two threads.
const CONNECTIONS_MAX: usize = 256;

/// Random bits of the operating system.
struct Urandom(File);

impl Urandom {
    fn open() -> io::Result<Urandom> {
        File::open("/dev/urandom").map(Urandom)
    }
}

impl Entropy for Urandom {
    fn bits(&mut self) -> u128 {
        let mut bytes = [0; 16];
        // Ids that can be guessed would be worse than no server.
        self.0.read_exact(&mut bytes).expect("/dev/urandom gives as much as one wants");
        u128::from_ne_bytes(bytes)
    }
}

/// The only clock, by its start.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Now {
        Now { mono_ms: self.0.elapsed().as_millis() as u64, unix_ms: unix_ms() }
    }

    /// The time until `due_ms`; a second if there is nothing to wait for.
    fn until(self, due_ms: Option<u64>) -> Duration {
        let wait_ms = due_ms.map_or(1_000, |due| due.saturating_sub(self.now().mono_ms));
        Duration::from_millis(wait_ms)
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// What a connection waits for.
enum Event {
    Input(Vec<u8>),
    End,
    Wake,
}

/// Wakes a connection; if its events are full, it will look up anyway.
struct Ring(SyncSender<Event>);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        let _ = self.0.try_send(Event::Wake);
    }
}

/// Wakes the thread that calls agents again.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Serves every connection of `listener`.
///
/// # Errors
/// Returns the listener's errors.
pub fn serve(listener: &TcpListener) -> io::Result<()> {
    let mut random = Urandom::open()?;
    let base_url = format!("http://{}", listener.local_addr()?);
    let start = Start { secret: random.bits(), unix_ms: Arc::new(unix_ms), workers: 1, base_url };
    let setup = Setup { agents: vec![(Echo::profile(), Arc::new(Echo))], ..Setup::default() };
    let engine = setup.build(start).map_err(io::Error::other)?;
    let clock = Clock(Instant::now());
    let ticking = Arc::clone(&engine);
    let worker = Worker::new(0, engine.limits(), Box::new(random));
    thread::spawn(move || tick(&ticking, worker, clock));
    let seats = Arc::new(());
    for stream in listener.incoming() {
        let (stream, engine, seat) = (stream?, Arc::clone(&engine), Arc::clone(&seats));
        if Arc::strong_count(&seats) > CONNECTIONS_MAX + 1 {
            continue;
        }
        let worker = Worker::new(0, engine.limits(), Box::new(Urandom::open()?));
        thread::spawn(move || {
            // A connection that breaks concerns no other; its reader ends with the socket.
            let _ = converse(&engine, worker, clock, &stream);
            let _ = stream.shutdown(Shutdown::Both);
            drop(seat);
        });
    }
    Ok(())
}

/// Calls agents again that asked for it, and evicts expired tasks.
fn tick(engine: &Engine, mut worker: Worker, clock: Clock) {
    let wake = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        let due_ms = engine.tick(&mut worker, clock.now(), &wake);
        thread::park_timeout(clock.until(due_ms));
    }
}

/// Drives one connection from its first byte to its last.
fn converse(
    engine: &Engine,
    mut worker: Worker,
    clock: Clock,
    mut stream: &TcpStream,
) -> io::Result<()> {
    let limits = engine.limits();
    let ahead_bytes_max = 2 * (limits.head_bytes_max + limits.body_bytes_max);
    let (events, arrived) = sync_channel(1);
    let wake = Waker::from(Arc::new(Ring(events.clone())));
    let reader = stream.try_clone()?;
    thread::spawn(move || read(reader, &events));
    stream.set_write_timeout(Some(Duration::from_millis(limits.write_stall_ms)))?;
    let local = stream.local_addr()?.ip();
    // A page that resolves its name to this machine is refused, since it names another host.
    let peer = Peer { local: Some(local), is_loopback: local.is_loopback(), ..Peer::default() };
    let mut conn = Conn::new(clock.now());
    let (mut input, mut out, mut eof) = (Vec::new(), Vec::new(), false);
    loop {
        let mut cx = Cx {
            engine,
            worker: &mut worker,
            now: clock.now(),
            wake: &wake,
            out: &mut out,
            unsent: 0,
            peer,
        };
        let progress = conn.advance(&mut cx, &input, eof);
        input.drain(..progress.consumed);
        stream.write_all(&out)?;
        let has_output = !out.is_empty();
        out.clear();
        match progress.next {
            Next::Open if has_output => continue,
            // A client that pipelines without end is disconnected.
            Next::Open if input.len() > ahead_bytes_max => return Ok(()),
            Next::Open => wait(&arrived, clock.until(progress.deadline_ms), &mut input, &mut eof),
            Next::Close => {
                stream.shutdown(Shutdown::Write)?;
                return linger(&arrived, limits.linger_ms);
            }
            // HTTP/2 is spoken by `net::Server`.
            Next::Abort | Next::Http2 => return Ok(()),
        }
    }
}

/// Reads the socket, one piece ahead of the connection.
fn read(mut stream: TcpStream, events: &SyncSender<Event>) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        if events.send(Event::Input(piece[..length].to_vec())).is_err() {
            return;
        }
    }
    // If this fails, the client is gone.
    let _ = events.send(Event::End);
}

/// Waits for an event, or until the deadline.
fn wait(arrived: &Receiver<Event>, most: Duration, input: &mut Vec<u8>, eof: &mut bool) {
    match arrived.recv_timeout(most) {
        Ok(Event::Input(piece)) => input.extend_from_slice(&piece),
        Ok(Event::End) => *eof = true,
        Ok(Event::Wake) | Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => *eof = true,
    }
}

/// Discards further input, so that the peer reads our last answer before it sees a reset.
fn linger(arrived: &Receiver<Event>, most_ms: u64) -> io::Result<()> {
    let until = Instant::now() + Duration::from_millis(most_ms);
    while let Ok(Event::Input(_) | Event::Wake) =
        arrived.recv_timeout(until.saturating_duration_since(Instant::now()))
    {}
    Ok(())
}

fn main() -> io::Result<()> {
    serve(&TcpListener::bind("127.0.0.1:3000")?)
}
