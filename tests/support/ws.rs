//! A client's frames, and a strict reader of the server's.

use serde_json::Value;

/// The key of RFC 6455 §1.3.
pub const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// An upgrade request, with more field lines.
pub fn upgrade(target: &str, lines: &str) -> Vec<u8> {
    format!(
        "GET {target} HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n{lines}\r\n"
    )
    .into_bytes()
}

/// A masked frame; `first` holds the final bit and the opcode.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = match payload.len() {
        short @ 0..126 => vec![first, 0x80 | short as u8],
        long @ 126..0x1_0000 => vec![first, 0xfe, (long >> 8) as u8, long as u8],
        long => [&[first, 0xff][..], &(long as u64).to_be_bytes()].concat(),
    };
    bytes.extend_from_slice(&MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// A text message in one frame.
pub fn text(text: &str) -> Vec<u8> {
    frame(0x81, text.as_bytes())
}

/// One frame of the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Sent {
    /// A message of text.
    Text(String),
    /// A message of bytes.
    Binary(Vec<u8>),
    /// A close frame: code and reason.
    Close(Option<(u16, String)>),
    /// A ping.
    Ping(Vec<u8>),
    /// A pong.
    Pong(Vec<u8>),
}

impl Sent {
    /// The JSON of a text message.
    pub fn json(&self) -> Value {
        let Sent::Text(text) = self else { panic!("no text: {self:?}") };
        serde_json::from_str(text).expect(text)
    }

    /// The code of a close frame.
    pub fn close_code(&self) -> u16 {
        let Sent::Close(Some((code, _))) = self else { panic!("no close with a code: {self:?}") };
        *code
    }
}

/// The whole frames in `bytes`, and their length in bytes. A server neither masks nor sets reserved
/// bits, and ours never fragments.
pub fn frames(bytes: &[u8]) -> (Vec<Sent>, usize) {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some((sent, used)) = one(&bytes[at..]) {
        found.push(sent);
        at += used;
    }
    (found, at)
}

fn one(bytes: &[u8]) -> Option<(Sent, usize)> {
    let [first, second] = *bytes.first_chunk()?;
    assert_eq!((first & 0xf0, second & 0x80), (0x80, 0), "{first:x} {second:x}");
    let (length, start) = match second {
        126 => (u64::from(u16::from_be_bytes(*bytes[2..].first_chunk()?)), 4),
        127 => (u64::from_be_bytes(*bytes[2..].first_chunk()?), 10),
        short => (u64::from(short), 2),
    };
    let shortest = if length < 126 { 2 } else { 4 + 6 * usize::from(length > 0xffff) };
    assert_eq!(start, shortest, "the shortest header for {length}");
    let end = start + length as usize;
    let payload = bytes.get(start..end)?;
    let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let sent = match first & 0x0f {
        1 => Sent::Text(utf8(payload)),
        2 => Sent::Binary(payload.to_vec()),
        8 => Sent::Close(payload.split_first_chunk().map(|(code, reason)| {
            assert!(payload.len() <= 125);
            (u16::from_be_bytes(*code), utf8(reason))
        })),
        9 => Sent::Ping(payload.to_vec()),
        10 => Sent::Pong(payload.to_vec()),
        other => panic!("opcode {other}"),
    };
    Some((sent, end))
}
