//! A receiver of webhooks on a thread of its own, which accepts every post. It never sleeps, since
//! the sender pays for waking a sleeping receiver.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
};

use memchr::memmem::find;

/// The answer to every post.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[derive(Default)]
struct Shared {
    is_stopped: AtomicBool,
    connections: AtomicUsize,
    /// The first posts, up to a limit.
    recorded: Mutex<Vec<Vec<u8>>>,
    recorded_max: usize,
}

/// See the module.
pub struct Receiver {
    pub port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// A receiver that records this many posts.
    pub fn new(recorded_max: usize) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { recorded_max, ..Shared::default() });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || receive(&listener, &theirs));
        Receiver { port, shared, thread: Some(thread) }
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// The first posts, each complete.
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        self.shared.recorded.lock().unwrap().clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn receive(listener: &TcpListener, shared: &Shared) {
    listener.set_nonblocking(true).unwrap();
    let mut peers: Vec<(TcpStream, Vec<u8>)> = Vec::new();
    let mut turns = 0_u64;
    while !shared.is_stopped.load(Ordering::Relaxed) {
        turns += 1;
        // Rarely if there are connections: accepting is a system call.
        if (peers.is_empty() || turns.is_multiple_of(64))
            && let Ok((stream, _)) = listener.accept()
        {
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
            shared.connections.fetch_add(1, Ordering::Relaxed);
            peers.push((stream, Vec::with_capacity(1 << 16)));
        }
        peers.retain_mut(|(stream, input)| is_served(stream, input, shared));
    }
}

/// Answers the available posts; false: the peer has closed.
fn is_served(stream: &mut TcpStream, input: &mut Vec<u8>, shared: &Shared) -> bool {
    let mut some = [0; 1 << 14];
    match stream.read(&mut some) {
        Ok(0) => return false,
        Ok(count) => input.extend_from_slice(&some[..count]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
        Err(_) => return false,
    }
    while let Some(end) = post_end(input) {
        let mut recorded = shared.recorded.lock().unwrap();
        if recorded.len() < shared.recorded_max {
            recorded.push(input[..end].to_vec());
        }
        drop(recorded);
        input.drain(..end);
        if stream.write_all(ANSWER).is_err() {
            return false;
        }
    }
    true
}

/// The end of the first post, if it is complete.
fn post_end(input: &[u8]) -> Option<usize> {
    let head = find(input, b"\r\n\r\n")? + 4;
    let at = find(&input[..head], b"Content-Length: ").expect("a length") + 16;
    let digits = input[at..].split(|byte| *byte == b'\r').next()?;
    let length: usize = str::from_utf8(digits).ok()?.parse().ok()?;
    (input.len() >= head + length).then_some(head + length)
}
