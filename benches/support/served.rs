//! The real binary, or another program, as a process of its own on core 0, and its CPU time.

#![allow(dead_code)]

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread::{JoinHandle, sleep, spawn},
    time::{Duration, Instant},
};

pub const SERVER: &str = env!("CARGO_BIN_EXE_peregrine");

/// The prefix of a program for counting its user-space instructions.
pub const VALGRIND: [&str; 3] = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];

/// Keeps this process, which is the load, off the core of the servers.
pub fn pin_load() {
    // With one core there is nothing to separate.
    let pin = ["-pc", "1", &std::process::id().to_string()].map(str::to_owned);
    let _ = Command::new("taskset").args(pin).output();
}

/// A process that listens on a port of loopback; it ends with this value.
pub struct Served {
    child: Child,
    /// Collects its standard error, so that the process never waits for a reader.
    stderr: Option<JoinHandle<String>>,
    pub port: u16,
}

impl Served {
    /// Starts a program; `PORT` in its arguments becomes the port.
    pub fn start(words: &[&str]) -> Served {
        Served::start_on("0", words)
    }

    /// Starts a program on a core.
    pub fn start_on(core: &str, words: &[&str]) -> Served {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Served::listening(core, port, words)
    }

    /// Starts a program that listens on this port.
    pub fn start_at(port: u16, words: &[&str]) -> Served {
        Served::listening("0", port, words)
    }

    fn listening(core: &str, port: u16, words: &[&str]) -> Served {
        let words = words.iter().map(|word| word.replace("PORT", &port.to_string()));
        let mut command = Command::new("taskset");
        command.args(["-c", core]).args(words).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("taskset");
        let mut pipe = child.stderr.take().unwrap();
        let stderr = Some(spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        }));
        let served = Served { child, stderr, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "{} does not listen", SERVER);
            sleep(Duration::from_millis(10));
        }
        served
    }

    pub fn server(prefix: &[&str]) -> Served {
        Served::program(SERVER, prefix)
    }

    /// Another build of the server.
    pub fn program(path: &str, prefix: &[&str]) -> Served {
        Served::program_with(path, prefix, &[])
    }

    /// Another build of the server, with flags.
    pub fn program_with(path: &str, prefix: &[&str], flags: &[&str]) -> Served {
        let words = [path, "serve", "--workers", "1", "--listen", "127.0.0.1:PORT"];
        Served::start(&[prefix, &words, flags].concat())
    }

    /// Starts or stops the count of callgrind, which was started with `--instr-atstart=no`.
    pub fn count_instructions(&self, is_on: bool) {
        let (id, word) = (self.child.id().to_string(), if is_on { "on" } else { "off" });
        let done = Command::new("callgrind_control").args(["-i", word, &id]).output();
        assert!(done.expect("callgrind_control").status.success());
    }

    /// Nanoseconds of CPU that all threads have used.
    pub fn cpu_ns(&self) -> u64 {
        let folder = format!("/proc/{}/task", self.child.id());
        let threads = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let spent = |path: std::path::PathBuf| -> u64 {
            let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        threads.map(spent).sum()
    }

    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// The whole answer to one request, read until nothing more arrives.
    pub fn request(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let (mut answer, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
        let first = stream.read(&mut buffer).unwrap();
        answer.extend_from_slice(&buffer[..first]);
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            answer.extend_from_slice(&buffer[..length]);
        }
        answer
    }

    /// Ends it, and returns its standard error.
    pub fn end(mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.stderr.take().unwrap().join().unwrap()
    }

    /// Ends it, and returns the instructions that callgrind counted.
    pub fn end_counted(self) -> u64 {
        let log = self.end();
        let line = log.lines().find(|line| line.contains("Collected :")).expect(&log);
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
