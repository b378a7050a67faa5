//! The real binary on its own port, for tests that need a socket.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::reply::Reply;

/// The longest wait in a test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until a condition holds, and panics if it never does.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The number of bytes that these connections have sent and the server has not read; Linux only.
///
/// `/proc/net/tcp` has a line for each side: addresses, state, `unsent:unread`.
pub fn unread(peers: &[&TcpStream]) -> u64 {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
    let side = |from: &TcpStream, is_ours: bool| {
        let [ours, theirs] =
            [from.local_addr(), from.peer_addr()].map(|addr| addr.expect("a name"));
        let (near, far) = if is_ours { (ours, theirs) } else { (theirs, ours) };
        let name = format!("0100007F:{:04X} 0100007F:{:04X} ", near.port(), far.port());
        let (_, line) = table.lines().find_map(|line| line.split_once(&name))?;
        let (unsent, unread) = line.split(' ').nth(1)?.split_once(':')?;
        u64::from_str_radix(if is_ours { unsent } else { unread }, 16).ok()
    };
    let waiting =
        |peer: &&TcpStream| side(peer, true).unwrap_or(0) + side(peer, false).unwrap_or(0);
    peers.iter().map(waiting).sum()
}

/// A server in a process; dropping it kills it.
pub struct Binary {
    child: Child,
    addr: SocketAddr,
    banner: String,
}

/// The executable.
pub const PATH: &str = env!("CARGO_BIN_EXE_peregrine");

/// Arguments that start a server on its own port, which accepts the host in the tests' requests.
const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--allow-host", "a.example"];

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

    /// Starts a server of one worker with these flags and this stderr.
    pub fn start_with(flags: &[&str], stderr: Stdio) -> Binary {
        let mut command = Command::new(PATH);
        command.args(SERVE).args(["--workers", "1"]).args(flags).stderr(stderr);
        // The server decides about huge pages, whatever the environment of the tests.
        command.env_remove("MIMALLOC_ALLOW_THP");
        Binary::of(command)
    }

    /// Starts a server with these flags and nothing else.
    pub fn start_plain(flags: &[&str]) -> Binary {
        let mut command = Command::new(PATH);
        command.args(SERVE).args(flags);
        Binary::of(command)
    }

    /// Starts a server of one worker at this address, with these flags and nothing else.
    pub fn start_at(listen: &str, flags: &[&str]) -> Binary {
        let mut command = Command::new(PATH);
        command.args(["serve", "--workers", "1", "--listen", listen]).args(flags);
        Binary::of(command)
    }

    /// Starts a server with another command than `serve`.
    pub fn start_command(name: &str, flags: &[&str]) -> Binary {
        Binary::start_command_with(name, flags, Stdio::inherit())
    }

    /// The same with this stderr.
    pub fn start_command_with(name: &str, flags: &[&str], stderr: Stdio) -> Binary {
        let mut command = Command::new(PATH);
        command.arg(name).args(flags).stderr(stderr);
        Binary::of(command)
    }

    /// Starts a server with a limit on open files.
    pub fn start_with_files(files: usize, flags: &[&str]) -> Binary {
        Binary::start_under(&format!("-n {files}"), flags)
    }

    /// Starts a server with a limit, named as for `ulimit`.
    pub fn start_under(limit: &str, flags: &[&str]) -> Binary {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\""), PATH]);
        command.args(SERVE).args(flags);
        Binary::of(command)
    }

    /// Starts a server with this variable in its environment.
    pub fn start_with_variable(name: &str, value: &str) -> Binary {
        let mut command = Command::new(PATH);
        command.args(SERVE).env(name, value);
        Binary::of(command)
    }

    /// Starts a server of one worker through another program, which gets its command as last
    /// arguments.
    pub fn start_in(program: &[&str], flags: &[&str]) -> Binary {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(PATH).args(SERVE).args(["--workers", "1"]).args(flags);
        Binary::of(command)
    }

    /// Starts the test executable again for the test of this name, which acts as a server and
    /// prints a banner if the variable is set.
    pub fn start_test(test: &str, variable: &str, value: &str) -> Binary {
        let mut command = Command::new(std::env::current_exe().expect("an executable"));
        command.args(["--exact", test, "--nocapture"]).env(variable, value);
        Binary::of(command)
    }

    fn of(mut command: Command) -> Binary {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut banner = String::new();
        // The banner's last line ends with the flag for limits.
        while !banner.contains("--limit") {
            assert!(stdout.read_line(&mut banner).expect("a banner") > 0, "no banner: {banner}");
        }
        let url = banner_value(&banner, "url");
        let (_, addr) = url.split_once("://").expect(url);
        let addr = addr.trim_end_matches('/');
        Binary { addr: addr.parse().expect(addr), child, banner }
    }

    /// The text after `label` in the banner.
    pub fn banner(&self, label: &str) -> &str {
        banner_value(&self.banner, label)
    }

    /// Opens a connection.
    pub fn connect(&self) -> Tcp {
        Tcp::to(self.addr)
    }

    /// Opens a connection with a small receive buffer in the kernel.
    pub fn connect_narrow(&self) -> Tcp {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        socket.connect(&self.addr.into()).expect("a connection");
        Tcp::of(socket.into())
    }

    /// The address on which it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks the process to end with SIGTERM.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends the process a signal, named as for `kill`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status().expect("kill");
        assert!(status.success());
    }

    /// Waits until the process has ended, and returns whether it succeeded.
    pub fn wait(&mut self) -> bool {
        self.exit_code() == Some(0)
    }

    /// Waits until the process has ended, and returns its exit code; `None`: a signal ended it.
    pub fn exit_code(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(Instant::now() < until, "the process does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// True while the process runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Processor time so far, in clock ticks of 10 ms.
    pub fn ticks(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).expect("a process");
        let after_name = stat.rsplit(") ").next().expect("fields");
        let fields: Vec<&str> = after_name.split(' ').collect();
        let [user, system] = [11, 12].map(|at| fields[at].parse::<u64>().expect("ticks"));
        user + system
    }

    /// This line of the process's `status` in `/proc`; Linux only.
    pub fn status(&self, name: &str) -> Option<String> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("a process");
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim().to_owned())
    }

    /// Waits until this many tasks are stored: their calls have arrived.
    pub fn wait_for_tasks(&self, total: u64) {
        let mut tcp = self.connect();
        eventually("the calls arrive", || {
            tcp.write(&super::ask::post("/", &[], &super::ask::rpc("ListTasks", &Value::Null)));
            tcp.reply().result()["totalSize"] == total
        });
    }

    /// Waits until connections are refused: the server drains.
    pub fn wait_until_refused(&self) {
        eventually("connections are refused", || {
            let refused = TcpStream::connect(self.addr).err();
            refused.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
    }

    /// Waits until the server has read and handled all bytes of these connections, if it has one
    /// worker; Linux only.
    pub fn wait_until_read(&self, peers: &[&TcpStream]) {
        eventually("everything is read", || unread(peers) == 0);
        // The worker handles read bytes before it answers another connection.
        self.assert_lives();
    }

    /// Panics unless the server answers on a new connection.
    pub fn assert_lives(&self) {
        let mut tcp = self.connect();
        tcp.write(&super::ask::get("/.well-known/agent-card.json"));
        assert_eq!(tcp.reply().status, 200);
    }
}

fn banner_value<'b>(banner: &'b str, label: &str) -> &'b str {
    let found = banner.lines().find_map(|line| line.trim_start().strip_prefix(label));
    found.unwrap_or_else(|| panic!("no {label} in {banner}")).trim()
}

impl Drop for Binary {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client's side of a connection, over any byte stream.
pub struct Line<S> {
    /// The socket.
    pub stream: S,
    received: Vec<u8>,
}

/// A plain TCP connection.
pub type Tcp = Line<TcpStream>;

impl Tcp {
    /// Opens a connection.
    pub fn to(addr: SocketAddr) -> Tcp {
        Tcp::of(TcpStream::connect(addr).expect("a connection"))
    }

    /// True if no unread bytes have arrived, and the connection is open.
    pub fn is_silent(&self) -> bool {
        let wait = |time| self.stream.set_read_timeout(Some(time)).expect("a timeout");
        wait(Duration::from_millis(20));
        let peeked = self.stream.peek(&mut [0]);
        wait(PATIENCE);
        matches!(peeked, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    fn of(stream: TcpStream) -> Tcp {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Line::over(stream)
    }
}

impl<S: Read + Write> Line<S> {
    /// A connection over an open stream.
    pub fn over(stream: S) -> Line<S> {
        Line { stream, received: Vec::new() }
    }

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

    /// The arrived part of the response, without taking it.
    pub fn peek(&self) -> Option<Reply> {
        Reply::parse(&self.received, false, false).map(|(reply, _)| reply)
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

    /// Reads one response of known length if possible, and returns its status.
    pub fn read_first(&mut self) -> Option<u16> {
        while self.read() {
            let text = String::from_utf8_lossy(&self.received);
            if let Some(status) = text.get(9..12) {
                return status.parse().ok();
            }
        }
        None
    }

    /// Reads until the received bytes contain `needle`.
    pub fn read_until(&mut self, needle: &str) {
        while !self.received.windows(needle.len()).any(|some| some == needle.as_bytes()) {
            assert!(self.read(), "no {needle} in {}", self.received.escape_ascii());
        }
    }

    /// Takes the received bytes.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Reads to the end of the stream, and takes all bytes.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        while self.read() {}
        std::mem::take(&mut self.received)
    }
}
