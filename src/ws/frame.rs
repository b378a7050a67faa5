//! Frames (RFC 6455 §5.2): reads headers, and writes frames after a mark.
//!
//! Output is all or nothing: a payload is rendered directly after the bytes reserved for its
//! header; then the header is filled in, or the whole frame is removed.

use super::{WsError, mask::MaskingKey};

/// The longest payload of a control frame (RFC 6455 §5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

/// Bytes reserved for a header: that of payloads from 126 bytes to 64 KiB, the usual ones.
const ROOM: usize = 4;

/// The opcode of a frame (RFC 6455 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpCode {
    /// A further part of a message.
    Continuation,
    /// A text message, or its first part.
    Text,
    /// A binary message, or its first part.
    Binary,
    /// The last frame of its sender.
    Close,
    /// A request for a pong.
    Ping,
    /// The answer to a ping, or an unsolicited sign of life.
    Pong,
}

impl OpCode {
    const fn of(bits: u8) -> Option<OpCode> {
        Some(match bits {
            0 => OpCode::Continuation,
            1 => OpCode::Text,
            2 => OpCode::Binary,
            8 => OpCode::Close,
            9 => OpCode::Ping,
            10 => OpCode::Pong,
            _ => return None,
        })
    }

    pub(super) const fn bits(self) -> u8 {
        match self {
            OpCode::Continuation => 0,
            OpCode::Text => 1,
            OpCode::Binary => 2,
            OpCode::Close => 8,
            OpCode::Ping => 9,
            OpCode::Pong => 10,
        }
    }

    /// True for close, ping and pong, which may stand between the fragments of a message.
    pub const fn is_control(self) -> bool {
        matches!(self, OpCode::Close | OpCode::Ping | OpCode::Pong)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// True: the message ends with this frame.
    pub fin: bool,
    /// The opcode.
    pub opcode: OpCode,
    /// Bytes of the payload.
    pub length: u64,
    /// The masking key of the payload; [`MaskingKey::NONE`] from a server.
    pub key: MaskingKey,
    /// Bytes of the header itself, from 2 to 14.
    pub header_len: usize,
}

impl Header {
    /// Reads the header at the start of `bytes`; `None`: the header is incomplete. `masked`: the
    /// frame is from a client, not from a server.
    ///
    /// # Errors
    /// [`WsError`], as soon as `bytes` show the error.
    #[inline]
    pub fn read(bytes: &[u8], masked: bool) -> Result<Option<Header>, WsError> {
        let Some(&[first, second]) = bytes.first_chunk() else { return Ok(None) };
        let (fin, short) = (first & 0x80 != 0, usize::from(second & 0x7f));
        if first & 0x70 != 0 {
            return Err(WsError::ReservedBit);
        }
        let opcode = OpCode::of(first & 0x0f).ok_or(WsError::OpCode)?;
        if opcode.is_control() && !fin {
            return Err(WsError::ControlFragment);
        }
        if opcode.is_control() && short > CONTROL_BYTES_MAX {
            return Err(WsError::ControlLength);
        }
        if (second & 0x80 != 0) != masked {
            return Err(if masked { WsError::Unmasked } else { WsError::Masked });
        }
        let (length, key_at) = match short {
            126 => match bytes[2..].first_chunk() {
                Some(length) => (u64::from(u16::from_be_bytes(*length)), 4),
                None => return Ok(None),
            },
            127 => match bytes[2..].first_chunk() {
                Some(length) => (u64::from_be_bytes(*length), 10),
                None => return Ok(None),
            },
            _ => (short as u64, 2),
        };
        // RFC 6455 §5.2: "the minimal number of bytes MUST be used", and the highest bit is 0.
        let is_minimal = match short {
            126 => length > 125,
            127 => length > 0xffff && length >> 63 == 0,
            _ => true,
        };
        if !is_minimal {
            return Err(WsError::Length);
        }
        let (key, header_len) = match bytes[key_at..].first_chunk() {
            Some(key) if masked => (MaskingKey::new(*key), key_at + key.len()),
            None if masked => return Ok(None),
            Some(_) | None => (MaskingKey::NONE, key_at),
        };
        Ok(Some(Header { fin, opcode, length, key, header_len }))
    }
}

/// An open frame: pass it to [`finish`] or [`cancel`].
#[derive(Debug)]
#[must_use = "finish the frame or cancel it"]
pub struct FrameMark {
    start: usize,
}

/// Begins a frame; the caller appends its payload to `out`.
#[inline]
pub fn begin(out: &mut Vec<u8>) -> FrameMark {
    let start = out.len();
    out.extend_from_slice(&[0; ROOM]);
    FrameMark { start }
}

/// Fills in the header of a whole, unmasked message of this kind.
///
/// False: the header does not have the usual length, so the payload was moved.
#[inline]
pub fn finish(out: &mut Vec<u8>, mark: FrameMark, opcode: OpCode) -> bool {
    let Some(length) = out.len().checked_sub(mark.start + ROOM) else {
        debug_assert!(false, "the buffer shrank below the mark");
        return false;
    };
    let first = 0x80 | opcode.bits();
    if let (126.., Ok(short)) = (length, u16::try_from(length)) {
        let [high, low] = short.to_be_bytes();
        out[mark.start..mark.start + ROOM].copy_from_slice(&[first, 126, high, low]);
        return true;
    }
    let mut wide = [first, 127, 0, 0, 0, 0, 0, 0, 0, 0];
    wide[2..].copy_from_slice(&(length as u64).to_be_bytes());
    let narrow = [first, length as u8];
    let header = if length < 126 { &narrow[..] } else { &wide[..] };
    out.splice(mark.start..mark.start + ROOM, header.iter().copied());
    false
}

/// Removes everything since [`begin`].
pub fn cancel(out: &mut Vec<u8>, mark: FrameMark) {
    out.truncate(mark.start);
}

/// Writes a control frame; a payload beyond [`CONTROL_BYTES_MAX`] is truncated.
pub fn control(out: &mut Vec<u8>, opcode: OpCode, payload: &[u8]) {
    let payload = &payload[..payload.len().min(CONTROL_BYTES_MAX)];
    out.extend_from_slice(&[0x80 | opcode.bits(), payload.len() as u8]);
    out.extend_from_slice(payload);
}

/// Writes a close frame; without a code it is empty (RFC 6455 §7.1.5: 1005). The reason is ASCII.
pub fn close(out: &mut Vec<u8>, code: Option<u16>, reason: &str) {
    debug_assert!(reason.is_ascii());
    let code = code.map(u16::to_be_bytes);
    let payload = code.map_or(Vec::new(), |code| [&code[..], reason.as_bytes()].concat());
    control(out, OpCode::Close, &payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc6455_5_7_examples_are_read_and_written() {
        let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        let header = Header::read(&hello, true).unwrap().unwrap();
        assert_eq!((header.fin, header.opcode, header.length), (true, OpCode::Text, 5));
        let mut payload = Vec::new();
        header.key.append(&mut payload, &hello[header.header_len..]);
        assert_eq!(payload, b"Hello");
        let mut out = Vec::new();
        let mark = begin(&mut out);
        out.extend_from_slice(b"Hello");
        finish(&mut out, mark, OpCode::Text);
        assert_eq!(out, [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
        for (length, header) in
            [(256, &[0x82, 0x7e, 1, 0][..]), (65536, &[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0])]
        {
            let mut out = b"before".to_vec();
            let mark = begin(&mut out);
            out.resize(out.len() + length, 7);
            finish(&mut out, mark, OpCode::Binary);
            assert_eq!(&out[..6 + header.len()], [b"before", header].concat());
            assert_eq!(out.len(), 6 + header.len() + length);
            assert!(out[6 + header.len()..].iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn payload_length_uses_the_shortest_encoding() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536] {
            let mut out = Vec::new();
            let mark = begin(&mut out);
            out.resize(out.len() + length, b'x');
            finish(&mut out, mark, OpCode::Text);
            let header = match length {
                0..126 => vec![0x81, length as u8],
                126..65_536 => vec![0x81, 126, (length >> 8) as u8, length as u8],
                _ => vec![0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0],
            };
            assert_eq!(out[..out.len() - length], header);
        }
    }

    #[test]
    fn malformed_frame_headers_are_rejected() {
        for (bytes, error) in [
            (&[0xc1, 0x80][..], WsError::ReservedBit),
            (&[0xa1, 0x80], WsError::ReservedBit),
            (&[0x91, 0x80], WsError::ReservedBit),
            (&[0x83, 0x80], WsError::OpCode),
            (&[0x8b, 0x80], WsError::OpCode),
            (&[0x81, 0x00], WsError::Unmasked),
            (&[0x09, 0x80], WsError::ControlFragment),
            (&[0x88, 0xfe], WsError::ControlLength),
            (&[0x81, 0xfe, 0, 125], WsError::Length),
            (&[0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff], WsError::Length),
            (&[0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0], WsError::Length),
        ] {
            assert_eq!(Header::read(bytes, true), Err(error), "{bytes:x?}");
            for cut in 0..bytes.len() - 1 {
                let early = Header::read(&bytes[..cut], true);
                assert!(early == Ok(None) || early == Err(error), "{bytes:x?} {cut}");
            }
        }
    }

    #[test]
    fn rfc6455_5_1_masked_server_frame_is_rejected() {
        assert_eq!(Header::read(&[0x81, 0x85], false), Err(WsError::Masked));
        for (bytes, length, header_len) in [
            (&[0x81, 5][..], 5, 2),
            (&[0x81, 126, 1, 0], 256, 4),
            (&[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0], 65_536, 10),
        ] {
            let header = Header::read(bytes, false).unwrap().unwrap();
            let read = (header.length, header.header_len, header.key);
            assert_eq!(read, (length, header_len, MaskingKey::NONE));
            assert_eq!(Header::read(&bytes[..header_len - 1], false), Ok(None));
        }
    }

    #[test]
    fn cancelled_frame_is_removed_from_the_output() {
        let mut out = b"before".to_vec();
        let mark = begin(&mut out);
        out.extend_from_slice(b"half");
        cancel(&mut out, mark);
        assert_eq!(out, b"before");
    }

    #[test]
    fn control_payload_is_truncated_to_125_bytes() {
        let mut out = Vec::new();
        control(&mut out, OpCode::Pong, &[1; 200]);
        assert_eq!((out.len(), out[0], out[1]), (127, 0x8a, 125));
        out.clear();
        close(&mut out, Some(1002), "no");
        assert_eq!(out, [0x88, 4, 3, 0xea, b'n', b'o']);
        out.clear();
        close(&mut out, None, "ignored");
        assert_eq!(out, [0x88, 0]);
    }
}
