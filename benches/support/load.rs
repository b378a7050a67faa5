//! Connections that send the same request again and again; every answer has the same length.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::served::Served;

const SLICE: Duration = Duration::from_millis(400);

pub struct Load {
    streams: Vec<TcpStream>,
    input: Vec<u8>,
    output: Vec<u8>,
    depth: u64,
}

impl Load {
    /// `depth` concurrent requests on each of these connections.
    pub fn new(
        served: &Served,
        connections: usize,
        depth: usize,
        request: &[u8],
        answer_bytes: usize,
    ) -> Load {
        Load {
            streams: (0..connections).map(|_| served.connect()).collect(),
            input: request.repeat(depth),
            output: vec![0; answer_bytes * depth],
            depth: depth as u64,
        }
    }

    /// One request, or one pipeline, on every connection; returns the number of requests.
    pub fn turn(&mut self) -> u64 {
        for stream in &mut self.streams {
            stream.write_all(&self.input).unwrap();
        }
        for stream in &mut self.streams {
            stream.read_exact(&mut self.output).unwrap();
            assert!(self.output.starts_with(b"HTTP/1.1 200 OK\r\n"));
        }
        self.streams.len() as u64 * self.depth
    }

    /// CPU nanoseconds of `served` for each request of one slice.
    pub fn slice(&mut self, served: &Served) -> f64 {
        let (start, before, mut requests) = (Instant::now(), served.cpu_ns(), 0);
        while start.elapsed() < SLICE {
            requests += self.turn();
        }
        (served.cpu_ns() - before) as f64 / requests as f64
    }
}
