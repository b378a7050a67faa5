//! A client that writes the same bytes again and again, and searches for the end of an answer: the
//! minimum of a client's work.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

use rustix::event::epoll;

struct Line {
    stream: TcpStream,
    /// The end of the input so far, where the sign may begin.
    input: Vec<u8>,
    filled: usize,
}

/// Connections with one request in flight each.
pub struct Bare {
    poll: std::os::fd::OwnedFd,
    lines: Vec<Line>,
    request: Vec<u8>,
    sign: &'static [u8],
}

impl Bare {
    pub fn connect(port: u16, count: usize, request: &[u8], sign: &'static str) -> Bare {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let lines: Vec<Line> = (0..count)
            .map(|at| {
                let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_nonblocking(true).unwrap();
                let data = epoll::EventData::new_u64(at as u64);
                epoll::add(&poll, &stream, data, epoll::EventFlags::IN).unwrap();
                Line { stream, input: vec![0; 1 << 17], filled: 0 }
            })
            .collect();
        Bare { poll, lines, request: request.to_vec(), sign: sign.as_bytes() }
    }

    /// Runs until this many answers.
    pub fn run(&mut self, calls: usize) {
        let (mut begun, mut done) = (0, 0);
        for line in &mut self.lines {
            line.stream.write_all(&self.request).unwrap();
            begun += 1;
        }
        let mut events = Vec::with_capacity(64);
        while done < begun {
            events.clear();
            epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
            for event in &events {
                let line = &mut self.lines[event.data.u64() as usize];
                if !line.is_answered(self.sign) {
                    continue;
                }
                done += 1;
                if begun < calls {
                    line.stream.write_all(&self.request).unwrap();
                    begun += 1;
                }
            }
        }
    }
}

impl Line {
    /// Reads once; true: the read ended an answer.
    fn is_answered(&mut self, sign: &[u8]) -> bool {
        let before = self.filled;
        match self.stream.read(&mut self.input[before..]) {
            Ok(0) => panic!("the server closed"),
            Ok(length) => self.filled += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        // An answer is one read here, except for the long streams.
        let from = before.saturating_sub(sign.len());
        let is_end = memchr::memmem::find(&self.input[from..self.filled], sign).is_some();
        if is_end {
            self.filled = 0;
        }
        is_end
    }
}
