//! The real binary on a port of its own, for what only a socket shows.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::reply::Reply;

/// No wait in a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server in a process; dropping it kills it.
pub struct Binary {
    child: Child,
    addr: SocketAddr,
}

impl Binary {
    /// Starts a server of one worker with these limits, each `name=value`.
    pub fn limited(limits: &[&str]) -> Binary {
        let flags: Vec<&str> = limits.iter().flat_map(|limit| ["--limit", *limit]).collect();
        Binary::start(&flags)
    }

    /// Starts a server of one worker with these flags.
    pub fn start(flags: &[&str]) -> Binary {
        Binary::start_with(flags, Stdio::inherit())
    }

    /// Starts a server of one worker with these flags, and says where its stderr goes.
    pub fn start_with(flags: &[&str], stderr: Stdio) -> Binary {
        let mut child = Command::new(env!("CARGO_BIN_EXE_peregrine"))
            .args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("the binary starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let url = stdout
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.trim().strip_prefix("url ").map(str::to_owned))
            .expect("a line with the URL");
        let (_, addr) = url.trim().split_once("://").expect("a URL");
        let addr = addr.trim_end_matches('/');
        Binary { addr: addr.parse().expect(addr), child }
    }

    /// Opens a connection.
    pub fn connect(&self) -> Tcp {
        let stream = TcpStream::connect(self.addr).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Tcp { stream, received: Vec::new() }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Tells the process to end.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends the process a signal, as `kill` names it.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status().expect("kill");
        assert!(status.success());
    }

    /// Waits until the process has ended, and says whether it ended well.
    pub fn wait(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.success();
            }
            assert!(Instant::now() < until, "the process does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Panics unless the server answers on a new connection.
    pub fn assert_lives(&self) {
        let mut tcp = self.connect();
        tcp.write(&super::ask::get("/.well-known/agent-card.json"));
        assert_eq!(tcp.reply().status, 200);
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client's side of a connection.
pub struct Tcp {
    /// The socket.
    pub stream: TcpStream,
    received: Vec<u8>,
}

impl Tcp {
    /// Sends bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes it");
    }

    /// Reads once; false at the end of the stream or on a reset.
    pub fn read(&mut self) -> bool {
        let mut some = [0; 16 * 1024];
        match self.stream.read(&mut some) {
            Ok(0) => false,
            Ok(count) => {
                self.received.extend_from_slice(&some[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error} after {}", self.received.escape_ascii()),
        }
    }

    /// Takes a complete response that has arrived already.
    pub fn reply_at_hand(&mut self) -> Option<Reply> {
        let (reply, used) = Reply::parse(&self.received, false, false)?;
        self.received.drain(..used);
        Some(reply)
    }

    /// Reads one complete response.
    pub fn reply(&mut self) -> Reply {
        loop {
            if let Some((reply, used)) = Reply::parse(&self.received, false, false)
                && reply.complete
            {
                self.received.drain(..used);
                return reply;
            }
            assert!(self.read(), "no reply in {}", self.received.escape_ascii());
        }
    }

    /// Reads one response of known length, if the server lets us, and says its status.
    pub fn read_first(&mut self) -> Option<u16> {
        while self.read() {
            let text = String::from_utf8_lossy(&self.received);
            if let Some(status) = text.get(9..12) {
                return status.parse().ok();
            }
        }
        None
    }

    /// Reads until what has arrived holds `needle`.
    pub fn read_until(&mut self, needle: &str) {
        while !self.received.windows(needle.len()).any(|some| some == needle.as_bytes()) {
            assert!(self.read(), "no {needle} in {}", self.received.escape_ascii());
        }
    }

    /// Reads to the end of the stream, and takes everything.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        while self.read() {}
        std::mem::take(&mut self.received)
    }
}
