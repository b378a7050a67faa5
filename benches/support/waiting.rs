//! Two servers with the same number of tasks: those of one have webhooks with a dead receiver,
//! those of the other have none.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread::sleep,
    time::Duration,
};

use crate::{
    engine, posts,
    served::{self, Served},
};

const TASKS: usize = 100_000;

const CONNECTIONS: usize = 16;
const ROUNDS: usize = 61;
/// Calls of a slice.
const SLICE: usize = 1_600;
const QUIET: Duration = Duration::from_secs(20);
/// Time until freed memory is returned, and the receiver counts as dead.
const SETTLED: Duration = Duration::from_secs(2);
/// Calls of a counted run.
const COUNTED: usize = 8_000;

struct Load {
    served: Served,
    streams: Vec<TcpStream>,
}

impl Load {
    fn start(prefix: &[&str]) -> Load {
        #[rustfmt::skip]
        let words = [
            served::SERVER, "serve", "--workers", "1", "--listen", "127.0.0.1:PORT",
            "--memory", "8G", "--push-allow", "localhost", "--limit", "push_bytes_max=128MiB",
            "--limit", "tasks_max=1000000",
        ];
        let served = Served::start(&[prefix, &words].concat());
        let streams = (0..CONNECTIONS).map(|_| served.connect()).collect();
        Load { served, streams }
    }

    /// Makes this many calls, each of which creates a task.
    fn run(&mut self, request: &[u8], count: usize) {
        let mut answer = [0; 1 << 14];
        for _ in 0..count / CONNECTIONS {
            for stream in &mut self.streams {
                stream.write_all(request).unwrap();
            }
            for stream in &mut self.streams {
                // Head and content come in one write.
                let length = stream.read(&mut answer).unwrap();
                let is_done = memchr::memmem::find(&answer[..length], b"TASK_STATE_COMPLETED");
                assert!(is_done.is_some(), "{}", String::from_utf8_lossy(&answer[..length]));
            }
        }
    }

    /// CPU microseconds of a call without a webhook.
    fn slice(&mut self) -> f64 {
        let before = self.served.cpu_ns();
        self.run(&plain(), SLICE);
        (self.served.cpu_ns() - before) as f64 / SLICE as f64 / 1_000.0
    }
}

fn plain() -> Vec<u8> {
    engine::send("SendMessage", engine::TEXT)
}

/// The same with a webhook that has only a URL.
fn hooked(url: &str) -> Vec<u8> {
    engine::post(&posts::hooked(engine::TEXT, url, ""))
}

/// A URL at a port without a listener.
fn dead_url() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://localhost:{port}/hooks/a2a")
}

fn pair(prefix: &[&str], tasks: usize) -> [Load; 2] {
    [plain(), hooked(&dead_url())].map(|request| {
        let mut load = Load::start(prefix);
        load.run(&request, tasks);
        load
    })
}

/// CPU time while idle, memory, and CPU time of a SendMessage.
pub fn cpu() {
    let [mut without, mut with] = pair(&[], TASKS);
    sleep(SETTLED);
    let grown = with.served.resident_bytes().saturating_sub(without.served.resident_bytes());
    let (bytes, url) = (grown / TASKS as u64, dead_url().len());
    println!("waiting  {bytes} bytes resident for each webhook, with its URL of {url}");
    let before = [&without, &with].map(|load| load.served.cpu_ns());
    sleep(QUIET);
    let after = [&without, &with].map(|load| load.served.cpu_ns());
    let [none, some] = [0, 1].map(|at| (after[at] - before[at]) as f64 / 1_000_000.0);
    println!("waiting  {some:.1} ms of CPU in 20 s, {none:.1} ms without webhooks");
    let mut rounds: Vec<[f64; 3]> = (0..ROUNDS)
        .map(|_| {
            let (none, some) = (without.slice(), with.slice());
            [some / none, none, some]
        })
        .collect();
    rounds.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let [ratio, none, some] = rounds[ROUNDS / 2];
    println!(
        "waiting  SendMessage ratio {ratio:.3} (at most 1.05), {some:.2} of {none:.2} us, {:.2} to \
         {:.2}",
        rounds[0][0],
        rounds[ROUNDS - 1][0]
    );
}

/// User-space instructions of the whole server for a SendMessage. The count starts late, since the
/// webhook worker's earlier work depends on the time.
pub fn instructions() {
    let prefix = [&served::VALGRIND[..], &["--instr-atstart=no"]].concat();
    let [none, some] = pair(&prefix, TASKS).map(|mut load| {
        sleep(SETTLED);
        load.served.count_instructions(true);
        load.run(&plain(), COUNTED);
        load.served.count_instructions(false);
        drop(load.streams);
        load.served.end_counted() / COUNTED as u64
    });
    println!("waiting  SendMessage {some} instructions beside {TASKS} webhooks, {none} without");
}
