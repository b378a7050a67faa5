//! A stream of 100 events over sockets, compared with a floor that writes the same bytes.
//!
//! `cargo bench --bench streams`: CPU time of a stream while the store fills and once it is full,
//! and user-space instructions of an event (with `valgrind`); `-- filling`, `full` or
//! `instructions` runs only that part. `-- against PATH` measures another build of the server in
//! the same rounds, and prints this one's share of its CPU time, the median of the rounds. Sixteen
//! connections, one worker on core 0, the load on core 1. The load never sleeps, since the sender
//! pays for waking a sleeping receiver. Needs Linux and `taskset`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/floor.rs"]
mod floor;
#[path = "support/served.rs"]
mod served;
mod support;

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

use served::Served;
use support::{count, post, send};

const EVENTS: u64 = 100;
const CONNECTIONS: usize = 16;
/// Streams of one slice: a small part of a store.
const SLICE: u64 = 1_600;
const ROUNDS: usize = 31;
/// Streams that more than fill a store of the default limits, 1 GiB.
const FILL: u64 = 260_000;

/// Connections that request one stream after another; all streams have the same length.
struct Load {
    served: Served,
    streams: Vec<TcpStream>,
    request: Vec<u8>,
    output: Vec<u8>,
}

impl Load {
    fn new(served: Served, answer_bytes: usize) -> Load {
        let (streams, request) = (Vec::new(), request());
        Load { served, streams, request, output: vec![0; answer_bytes] }
    }

    fn connect(&mut self) {
        self.streams = (0..CONNECTIONS).map(|_| self.served.connect()).collect();
        self.streams.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    }

    /// Runs at least this many streams; returns the number.
    fn run(&mut self, least: u64) -> u64 {
        let mut done = 0;
        while done < least {
            for stream in &mut self.streams {
                stream.write_all(&self.request).unwrap();
            }
            for stream in &mut self.streams {
                read_exact(stream, &mut self.output);
                assert!(self.output.starts_with(b"HTTP/1.1 200 OK\r\n"));
            }
            done += CONNECTIONS as u64;
        }
        done
    }

    /// CPU microseconds of a stream.
    fn slice(&mut self) -> f64 {
        let before = self.served.cpu_ns();
        let done = self.run(SLICE);
        (self.served.cpu_ns() - before) as f64 / done as f64 / 1_000.0
    }
}

/// Like [`Read::read_exact`], for a stream that does not block.
fn read_exact(stream: &mut TcpStream, mut output: &mut [u8]) {
    while !output.is_empty() {
        match stream.read(output) {
            Ok(0) => panic!("the server closed the connection"),
            Ok(count) => output = &mut output[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn request() -> Vec<u8> {
    post(&send("SendStreamingMessage", &format!("stream:{EVENTS}")))
}

/// The length of an answer, asserted to have all events.
fn answer_bytes(served: &Served) -> usize {
    let answer = served.request(&request());
    // The snapshot that opens the stream is not an event of the agent.
    assert_eq!(count(&answer, b"\ndata: "), EVENTS as usize + 1);
    answer.len()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Each round measures all of them, one slice each.
fn compare(name: &str, fill: u64, against: Option<&str>) {
    let mut servers = vec![Served::server(&[])];
    servers.extend(against.map(|path| Served::program(path, &[])));
    let lengths: Vec<usize> = servers.iter().map(answer_bytes).collect();
    servers.push(floor::start(request().len(), lengths[0]));
    let lengths = lengths.iter().copied().chain([lengths[0]]);
    let mut loads: Vec<Load> =
        servers.into_iter().zip(lengths).map(|(s, n)| Load::new(s, n)).collect();
    let last = loads.len() - 1;
    for (at, load) in loads.iter_mut().enumerate() {
        // While another store is filled, a server ends idle connections.
        load.connect();
        load.run(if at == last { SLICE } else { fill.max(SLICE) });
    }
    loads.iter_mut().for_each(Load::connect);
    let rounds: Vec<Vec<f64>> =
        (0..ROUNDS).map(|_| loads.iter_mut().map(Load::slice).collect()).collect();
    let of = |f: &dyn Fn(&Vec<f64>) -> f64| median(rounds.iter().map(f).collect());
    let (ours, floor) = (of(&|round| round[0]), of(&|round| round[last]));
    let ratio = of(&|round| round[last] / round[0]);
    println!(
        "stream_100 {name:8} ratio {ratio:.2}; floor {floor:.2} us, server {ours:.2} us a stream"
    );
    if against.is_some() {
        let (other, share) = (of(&|round| round[1]), of(&|round| round[0] / round[1]));
        println!("stream_100 {name:8} share {share:.2} of the other build's {other:.2} us");
    }
}

/// User-space instructions of the whole server for an event: two runs, subtracted.
fn instructions(program: Option<&str>) {
    let run = |streams: u64| {
        let served = match program {
            Some(path) => Served::program(path, &served::VALGRIND),
            None => Served::server(&served::VALGRIND),
        };
        let length = answer_bytes(&served);
        let mut load = Load::new(served, length);
        load.connect();
        let done = load.run(streams);
        drop(load.streams);
        (done, load.served.end_counted())
    };
    let ((few, before), (many, after)) = (run(160), run(960));
    let each = (after - before) / (many - few);
    let build = if program.is_some() { "other build" } else { "this build" };
    println!("stream_100 {build}: {each} instructions, {} an event", each / EVENTS);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if floor::is_requested(&args) {
        return;
    }
    served::pin_load();
    let (words, against) = match args.iter().position(|word| word == "against") {
        Some(at) => (&args[..at], Some(args[at + 1].as_str())),
        None => (&args[..], None),
    };
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    if wanted("filling") {
        compare("filling", 0, against);
    }
    if wanted("full") {
        compare("full", FILL, against);
    }
    if wanted("instructions") {
        instructions(None);
        against.into_iter().for_each(|path| instructions(Some(path)));
    }
}
