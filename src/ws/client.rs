//! The client's side of WebSocket: the key of a handshake, and masked frames (RFC 6455 §4.1, §5.3).
//!
//! Invariant: random bits are arguments, from a generator that the peer cannot predict: a page or
//! an intermediate proxy that can guess a key can choose the bytes of a frame. A payload is
//! rendered into the output buffer, and masked there.

use super::{
    OpCode,
    accept::{accept, encode},
    frame::CONTROL_BYTES_MAX,
    mask::MaskingKey,
};

/// Bytes reserved for a header: 4 bytes for payloads from 126 bytes to 64 KiB, and the key.
const ROOM: usize = 8;

/// `Sec-WebSocket-Key`: 16 random bytes in base64 (RFC 6455 §4.1 (7)).
///
/// ```
/// let key = peregrine::ws::client::key(0x7468_6520_7361_6d70_6c65_206e_6f6e_6365);
/// assert_eq!(&key, b"dGhlIHNhbXBsZSBub25jZQ==");
/// ```
pub fn key(bits: u128) -> [u8; 24] {
    let mut padded = [0; 18];
    padded[..16].copy_from_slice(&bits.to_be_bytes());
    let mut text = [0; 24];
    encode(&padded, &mut text);
    // The last group has one byte: two letters, and `==`.
    text[22..].copy_from_slice(b"==");
    text
}

/// Whether a server's `Sec-WebSocket-Accept` is the one for `key` (RFC 6455 §4.1, of the response,
/// (4)). `value` has no white space around it.
pub fn is_accept_of(key: &[u8; 24], value: &[u8]) -> bool {
    accept(key).is_some_and(|expected| value == expected)
}

/// An open frame: pass it to [`finish`] or [`cancel`].
#[derive(Debug)]
#[must_use = "finish the frame or cancel it"]
pub struct MaskedMark {
    start: usize,
}

/// Begins a frame; the caller appends its payload to `out`.
pub fn begin(out: &mut Vec<u8>) -> MaskedMark {
    let start = out.len();
    out.extend_from_slice(&[0; ROOM]);
    MaskedMark { start }
}

/// Masks the payload with `key`, which must be new for each frame, and fills in the header of a
/// whole message of this kind.
pub fn finish(out: &mut Vec<u8>, mark: MaskedMark, opcode: OpCode, key: [u8; 4]) {
    let Some(length) = out.len().checked_sub(mark.start + ROOM) else {
        debug_assert!(false, "the buffer shrank below the mark");
        return;
    };
    MaskingKey::new(key).apply(&mut out[mark.start + ROOM..]);
    let first = 0x80 | opcode.bits();
    let [a, b, c, d] = key;
    if let (126.., Ok(short)) = (length, u16::try_from(length)) {
        let [high, low] = short.to_be_bytes();
        let header = [first, 0x80 | 126, high, low, a, b, c, d];
        out[mark.start..mark.start + ROOM].copy_from_slice(&header);
        return;
    }
    let mut wide = [first, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d];
    wide[2..10].copy_from_slice(&(length as u64).to_be_bytes());
    let narrow = [first, 0x80 | length as u8, a, b, c, d];
    let header = if length < 126 { &narrow[..] } else { &wide[..] };
    out.splice(mark.start..mark.start + ROOM, header.iter().copied());
}

/// Removes everything since [`begin`].
#[cfg_attr(not(feature = "internals"), allow(dead_code))]
pub fn cancel(out: &mut Vec<u8>, mark: MaskedMark) {
    out.truncate(mark.start);
}

/// Writes a control frame, such as a ping or a pong. A payload beyond 125 bytes is truncated.
pub fn control(out: &mut Vec<u8>, opcode: OpCode, payload: &[u8], key: [u8; 4]) {
    let mark = begin(out);
    out.extend_from_slice(&payload[..payload.len().min(CONTROL_BYTES_MAX)]);
    finish(out, mark, opcode, key);
}

/// Writes a close frame; without a code it is empty (RFC 6455 §7.1.5: 1005).
///
/// RFC 6455 §5.5.1: no frame may follow. A server's close frame is answered with a close frame of
/// the same code, unless the client has already sent a close frame. §7.1.1: the server closes the
/// connection, and the client waits for this.
pub fn close(out: &mut Vec<u8>, code: Option<u16>, key: [u8; 4]) {
    let code = code.map(u16::to_be_bytes);
    control(out, OpCode::Close, code.as_ref().map_or(&[], |code| &code[..]), key);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ws::{Reader, ReaderRules, WsError, WsEvent};

    const RULES: ReaderRules = ReaderRules {
        frame_bytes_max: 1 << 20,
        message_bytes_max: 1 << 20,
        binary: true,
        masked: true,
    };

    #[test]
    fn rfc6455_5_7_masked_hello_example_is_written() {
        let mut out = b"before".to_vec();
        let mark = begin(&mut out);
        out.extend_from_slice(b"Hello");
        finish(&mut out, mark, OpCode::Text, [0x37, 0xfa, 0x21, 0x3d]);
        let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(out, [&b"before"[..], &hello].concat());
        let mark = begin(&mut out);
        out.extend_from_slice(b"half");
        cancel(&mut out, mark);
        assert_eq!(out, [&b"before"[..], &hello].concat());
    }

    #[test]
    fn messages_of_every_length_are_read_by_a_server() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536] {
            let payload = vec![b'x'; length];
            let mut out = Vec::new();
            let mark = begin(&mut out);
            out.extend_from_slice(&payload);
            finish(&mut out, mark, OpCode::Text, [1, 2, 3, length as u8]);
            let shortest =
                length + 6 + [0, 2, 8][usize::from(length > 125) + usize::from(length > 65_535)];
            assert_eq!(out.len(), shortest);
            let mut scratch = Vec::new();
            let read = Reader::default().advance(&out, &mut scratch, &RULES);
            assert_eq!((read, &scratch), (Ok((out.len(), WsEvent::Text)), &payload));
        }
    }

    #[test]
    fn control_frames_are_masked_and_truncated_to_125_bytes() {
        let mut scratch = Vec::new();
        let mut out = Vec::new();
        control(&mut out, OpCode::Pong, &[1; 200], [9; 4]);
        let read = Reader::default().advance(&out, &mut scratch, &RULES);
        assert_eq!((read, &scratch[..]), (Ok((131, WsEvent::Pong)), &[1; 125][..]));
        for code in [None, Some(1000)] {
            out.clear();
            close(&mut out, code, [7; 4]);
            let read = Reader::default().advance(&out, &mut scratch, &RULES);
            assert_eq!(read, Ok((out.len(), WsEvent::Close(code))));
        }
    }

    #[test]
    fn client_rejects_a_masked_frame() {
        let rules = ReaderRules { masked: false, ..RULES };
        let mut out = Vec::new();
        control(&mut out, OpCode::Ping, b"", [0; 4]);
        let read = Reader::default().advance(&out, &mut Vec::new(), &rules);
        assert_eq!(read, Err(WsError::Masked));
        let mut scratch = Vec::new();
        let read = Reader::default().advance(&[0x81, 2, b'h', b'i'], &mut scratch, &rules);
        assert_eq!((read, &scratch[..]), (Ok((4, WsEvent::Text)), &b"hi"[..]));
    }

    #[test]
    fn rfc6455_1_3_accept_key_must_match_the_sent_key() {
        let key = key(u128::from_be_bytes(*b"the sample nonce"));
        assert_eq!(&key, b"dGhlIHNhbXBsZSBub25jZQ==");
        assert!(is_accept_of(&key, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(!is_accept_of(&key, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo"));
        assert!(!is_accept_of(&key, b""));
        assert_eq!(super::key(0), *b"AAAAAAAAAAAAAAAAAAAAAA==");
        assert_eq!(super::key(u128::MAX), *b"/////////////////////w==");
    }
}
