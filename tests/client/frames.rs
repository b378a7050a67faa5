//! HTTP/2 servers that write their answers frame by frame.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Flags, grouped by the frames that have them.
pub const END_STREAM: u8 = 1;
const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// A frame of HTTP/2.
pub fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [head.as_slice(), &stream.to_be_bytes(), content].concat()
}

/// Fields as literals that are never indexed (RFC 7541 §6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "a length of one byte");
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// A complete head, or complete trailers.
pub fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, &block(fields))
}

/// Serves a connection: `answer` answers each complete request, and returns whether the connection
/// stays open. `None`: one side has closed.
pub fn serve(
    stream: &mut TcpStream,
    mut answer: impl FnMut(u32, &mut TcpStream) -> bool,
) -> Option<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).ok()?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).ok()?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).ok()?;
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut content = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut content).ok()?;
        let is_answer = match kind {
            SETTINGS | PING if flags & ACK == 0 => {
                let payload = if kind == PING { &content[..] } else { &[] };
                stream.write_all(&frame(kind, ACK, 0, payload)).ok()?;
                false
            }
            DATA | HEADERS => flags & END_STREAM != 0,
            _ => false,
        };
        if is_answer && !answer(u32::from_be_bytes(id), stream) {
            return None;
        }
    }
}
