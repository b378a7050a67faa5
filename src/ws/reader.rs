//! Messages (RFC 6455 §5.4 to §5.6, §8.1) from frames that may be cut at any byte.
//!
//! Invariants: the result does not depend on where the bytes were cut. A message that arrives in
//! one piece is unmasked once, into the caller's scratch; other messages are gathered here. Bytes
//! that cannot become valid text are refused at once.

use super::{Header, OpCode, WsError, is_close_code, mask::MaskingKey};

/// The rules for a peer's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderRules {
    /// Maximum payload bytes of a frame; beyond: 1009.
    pub frame_bytes_max: usize,
    /// Maximum bytes of a message over all its frames; beyond: 1009.
    pub message_bytes_max: usize,
    /// False: binary messages are refused with 1003.
    pub binary: bool,
    /// True: the peer is a client, which masks every frame; false: a server, which masks none (RFC
    /// 6455 §5.1).
    pub masked: bool,
}

/// The result of reading; payloads are in the caller's scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WsEvent {
    /// No complete event yet.
    Partial,
    /// A message of text, which is UTF-8.
    Text,
    /// A message of bytes.
    Binary,
    /// A ping, to be answered by a pong with the same payload.
    Ping,
    /// A pong, which shows that the peer is alive.
    Pong,
    /// The last frame of the peer, with its code. The reason is omitted.
    Close(Option<u16>),
}

/// Reads the messages of one peer from its frames.
#[derive(Debug, Default)]
pub struct Reader {
    /// The unmasked beginning of an incomplete message.
    message: Vec<u8>,
    /// Bytes of `message` that were validated as UTF-8: all except at most three.
    valid: usize,
    /// The kind of the incomplete message.
    kind: Option<MessageKind>,
    /// The data frame that the next byte belongs to.
    frame: Option<OpenFrame>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    Text,
    Binary,
}

#[derive(Clone, Copy, Debug)]
struct OpenFrame {
    /// Missing bytes of the payload.
    remaining: u64,
    key: MaskingKey,
    fin: bool,
}

impl Reader {
    /// Reads at most one event from `input`, which is all received and unconsumed bytes; returns
    /// the number of consumed bytes. After [`WsEvent::Partial`] more input is needed; otherwise
    /// call it again.
    ///
    /// `scratch` is cleared, and holds the payload of the event.
    ///
    /// # Errors
    /// [`WsError`]; nothing may be read after an error.
    pub fn advance(
        &mut self,
        input: &[u8],
        scratch: &mut Vec<u8>,
        rules: &ReaderRules,
    ) -> Result<(usize, WsEvent), WsError> {
        scratch.clear();
        let mut ate = 0;
        loop {
            let rest = &input[ate..];
            if let Some(frame) = self.frame {
                let (more, is_whole) = self.gather(rest, frame, rules)?;
                ate += more;
                if is_whole {
                    return Ok((ate, self.take(scratch)));
                }
                if self.frame.is_some() {
                    return Ok((ate, WsEvent::Partial));
                }
                continue;
            }
            let Some(header) = Header::read(rest, rules.masked)? else {
                return Ok((ate, WsEvent::Partial));
            };
            if header.opcode.is_control() {
                return match control(rest, &header, scratch)? {
                    WsEvent::Partial => Ok((ate, WsEvent::Partial)),
                    event => Ok((ate + header.header_len + header.length as usize, event)),
                };
            }
            let kind = self.begin(&header, rules)?;
            let length = header.length as usize;
            let body = &rest[header.header_len..];
            if header.fin && self.kind.is_none() && body.len() >= length {
                header.key.append(scratch, &body[..length]);
                if kind == MessageKind::Text && str::from_utf8(scratch).is_err() {
                    return Err(WsError::Utf8);
                }
                return Ok((ate + header.header_len + length, kind.event()));
            }
            self.kind = Some(kind);
            self.frame =
                Some(OpenFrame { remaining: header.length, key: header.key, fin: header.fin });
            ate += header.header_len;
        }
    }

    /// True in the middle of a message.
    pub fn is_inside(&self) -> bool {
        self.kind.is_some()
    }

    /// Gathered bytes of an incomplete message.
    pub fn gathered(&self) -> usize {
        self.message.len()
    }

    /// The size of the retained buffer in bytes.
    pub fn held_bytes(&self) -> usize {
        self.message.capacity()
    }

    /// RFC 6455 §5.4: whether a data frame is allowed here; returns the kind of its message.
    fn begin(&self, header: &Header, rules: &ReaderRules) -> Result<MessageKind, WsError> {
        let kind = match (header.opcode, self.kind) {
            (OpCode::Continuation, Some(kind)) => kind,
            (OpCode::Continuation, None) => return Err(WsError::NothingToContinue),
            (_, Some(_)) => return Err(WsError::Interleaved),
            (OpCode::Binary, None) if !rules.binary => return Err(WsError::Binary),
            (OpCode::Binary, None) => MessageKind::Binary,
            (OpCode::Text | OpCode::Close | OpCode::Ping | OpCode::Pong, None) => MessageKind::Text,
        };
        let room = rules.message_bytes_max.saturating_sub(self.message.len());
        if header.length > rules.frame_bytes_max as u64 {
            return Err(WsError::TooLarge { limit: "ws_frame_bytes_max" });
        }
        if header.length > room as u64 {
            return Err(WsError::TooLarge { limit: "ws_message_bytes_max" });
        }
        Ok(kind)
    }

    /// Unmasks the available part of a frame's payload; returns its length, and whether it
    /// completes the message.
    fn gather(
        &mut self,
        rest: &[u8],
        frame: OpenFrame,
        rules: &ReaderRules,
    ) -> Result<(usize, bool), WsError> {
        let count = usize::try_from(frame.remaining)
            .map_or(rest.len(), |remaining| remaining.min(rest.len()));
        let gathered = self.message.len();
        if gathered + count > self.message.capacity() {
            // The buffer doubles, and never exceeds the largest message.
            let room = (2 * (gathered + count)).min(rules.message_bytes_max);
            self.message.reserve_exact(room.saturating_sub(gathered));
        }
        frame.key.append(&mut self.message, &rest[..count]);
        let remaining = frame.remaining - count as u64;
        let is_whole = remaining == 0 && frame.fin;
        if self.kind == Some(MessageKind::Text) {
            self.check(is_whole)?;
        }
        let key = frame.key.after(count);
        self.frame = (remaining > 0).then_some(OpenFrame { remaining, key, ..frame });
        Ok((count, is_whole))
    }

    /// RFC 6455 §8.1: the whole text is UTF-8, but a fragment may end inside a character.
    fn check(&mut self, is_whole: bool) -> Result<(), WsError> {
        let fresh = &self.message[self.valid..];
        match str::from_utf8(fresh) {
            Ok(_) => self.valid = self.message.len(),
            // An incomplete character at the end; its rest may follow.
            Err(error) if error.error_len().is_none() && !is_whole => {
                self.valid += error.valid_up_to();
            }
            Err(_) => return Err(WsError::Utf8),
        }
        Ok(())
    }

    /// Moves the gathered message out, with its buffer.
    fn take(&mut self, scratch: &mut Vec<u8>) -> WsEvent {
        *scratch = std::mem::take(&mut self.message);
        self.valid = 0;
        self.kind.take().map_or(WsEvent::Partial, MessageKind::event)
    }
}

impl MessageKind {
    fn event(self) -> WsEvent {
        match self {
            MessageKind::Text => WsEvent::Text,
            MessageKind::Binary => WsEvent::Binary,
        }
    }
}

/// RFC 6455 §5.5: reads a control frame, once it is complete.
#[cold]
fn control(rest: &[u8], header: &Header, scratch: &mut Vec<u8>) -> Result<WsEvent, WsError> {
    let body = &rest[header.header_len..];
    let Some(payload) = body.get(..header.length as usize) else { return Ok(WsEvent::Partial) };
    header.key.append(scratch, payload);
    Ok(match header.opcode {
        OpCode::Ping => WsEvent::Ping,
        OpCode::Close => WsEvent::Close(close_code(scratch)?),
        OpCode::Pong | OpCode::Continuation | OpCode::Text | OpCode::Binary => WsEvent::Pong,
    })
}

/// RFC 6455 §5.5.1 and §7.4: the payload is empty, or a code that may be sent and a reason in
/// UTF-8.
fn close_code(payload: &[u8]) -> Result<Option<u16>, WsError> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() { Ok(None) } else { Err(WsError::CloseCode) };
    };
    let code = u16::from_be_bytes(*code);
    if !is_close_code(code) {
        return Err(WsError::CloseCode);
    }
    match str::from_utf8(reason) {
        Ok(_) => Ok(Some(code)),
        Err(_) => Err(WsError::Utf8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: ReaderRules =
        ReaderRules { frame_bytes_max: 100, message_bytes_max: 150, binary: true, masked: true };

    /// A masked frame.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let key = [0x11, 0x22, 0x33, 0x44];
        let mut bytes = vec![first, 0x80 | payload.len() as u8, 0x11, 0x22, 0x33, 0x44];
        MaskingKey::new(key).append(&mut bytes, payload);
        bytes
    }

    type SeenMessage = (Vec<(WsEvent, Vec<u8>)>, Option<WsError>);

    /// The events of bytes that are fed in pieces of `size`.
    fn read(bytes: &[u8], size: usize, rules: &ReaderRules) -> SeenMessage {
        let (mut reader, mut scratch, mut seen) = (Reader::default(), Vec::new(), Vec::new());
        let mut input = Vec::new();
        for piece in bytes.chunks(size) {
            input.extend_from_slice(piece);
            loop {
                match reader.advance(&input, &mut scratch, rules) {
                    Err(error) => return (seen, Some(error)),
                    Ok((ate, event)) => {
                        input.drain(..ate);
                        if event == WsEvent::Partial {
                            break;
                        }
                        seen.push((event, scratch.clone()));
                    }
                }
            }
        }
        (seen, None)
    }

    fn check(bytes: &[u8], expected: &[(WsEvent, &[u8])], error: Option<WsError>) {
        for size in 1..=bytes.len() {
            let (seen, end) = read(bytes, size, &RULES);
            let seen: Vec<_> = seen.iter().map(|(event, payload)| (*event, &**payload)).collect();
            assert_eq!((&seen[..], end), (expected, error), "{bytes:x?} by {size}");
        }
    }

    #[test]
    fn rfc6455_5_4_ping_between_fragments_is_delivered() {
        let bytes = [
            frame(0x01, b"Hel"),
            frame(0x89, b"are you there"),
            frame(0x00, b""),
            frame(0x80, b"lo"),
            frame(0x82, &[0xff, 0]),
            frame(0x81, b""),
        ];
        let (ping, text) = (WsEvent::Ping, WsEvent::Text);
        check(
            &bytes.concat(),
            &[
                (ping, b"are you there"),
                (text, b"Hello"),
                (WsEvent::Binary, &[0xff, 0]),
                (text, b""),
            ],
            None,
        );
    }

    #[test]
    fn fragment_buffer_never_exceeds_the_message_limit() {
        let (mut reader, mut scratch, mut input) = (Reader::default(), Vec::new(), Vec::new());
        let bytes = [frame(0x01, &[b'a'; 90]), frame(0x00, &[b'b'; 60])].concat();
        for piece in bytes.chunks(13) {
            input.extend_from_slice(piece);
            let (ate, _) = reader.advance(&input, &mut scratch, &RULES).unwrap();
            input.drain(..ate);
            assert!(reader.held_bytes() <= RULES.message_bytes_max, "{}", reader.held_bytes());
        }
        assert_eq!(reader.gathered(), 150);
    }

    #[test]
    fn rfc6455_5_4_fragments_out_of_order_are_rejected() {
        check(&frame(0x80, b"a"), &[], Some(WsError::NothingToContinue));
        check(&frame(0x00, b"a"), &[], Some(WsError::NothingToContinue));
        check(&[frame(1, b"a"), frame(0x81, b"b")].concat(), &[], Some(WsError::Interleaved));
        check(&[frame(1, b"a"), frame(0x02, b"b")].concat(), &[], Some(WsError::Interleaved));
        let ended = [frame(1, b"a"), frame(0x80, b"b"), frame(0x80, b"c")].concat();
        check(&ended, &[(WsEvent::Text, b"ab")], Some(WsError::NothingToContinue));
    }

    #[test]
    fn rfc6455_8_1_text_is_utf8_across_fragments() {
        let [a, b] = [&"aκ€𝄞".as_bytes()[..4], &"aκ€𝄞".as_bytes()[4..]];
        let whole = [frame(1, a), frame(0, b""), frame(0x80, b)].concat();
        check(&whole, &[(WsEvent::Text, "aκ€𝄞".as_bytes())], None);
        check(&[frame(1, a), frame(0x80, b"")].concat(), &[], Some(WsError::Utf8));
        check(&frame(0x81, a), &[], Some(WsError::Utf8));
        check(&frame(0x81, b"\xed\xa0\x80"), &[], Some(WsError::Utf8));
    }

    #[test]
    fn invalid_utf8_is_rejected_before_the_frame_ends() {
        let mut bytes = frame(0x01, b"a\xf4\x90 and more");
        // The header, and the three bytes that show the error.
        bytes.truncate(9);
        check(&bytes, &[], Some(WsError::Utf8));
        bytes.truncate(8);
        check(&bytes, &[], None);
    }

    #[test]
    fn rfc6455_7_4_invalid_close_codes_are_rejected() {
        for (payload, found) in [
            (&b""[..], Ok(None)),
            (b"\x03", Err(WsError::CloseCode)),
            (b"\x03\xe8", Ok(Some(1000))),
            (b"\x03\xe8bye", Ok(Some(1000))),
            (b"\x03\xe8\xff", Err(WsError::Utf8)),
            (b"\x03\xee", Err(WsError::CloseCode)),
            (b"\x0f\xa0", Ok(Some(4000))),
            (b"\x13\x88", Err(WsError::CloseCode)),
        ] {
            let (seen, error) = read(&frame(0x88, payload), 1000, &RULES);
            let found_here = match error {
                Some(error) => Err(error),
                None => Ok(seen[0].0),
            };
            assert_eq!(found_here, found.map(WsEvent::Close), "{payload:x?}");
        }
        let sendable = (0..=u16::MAX).filter(|code| is_close_code(*code)).count();
        assert_eq!(sendable, 4 + 8 + 2000);
    }

    #[test]
    fn size_limits_reject_a_frame_at_its_header() {
        check(&frame(0x81, &[b'a'; 100]), &[(WsEvent::Text, &[b'a'; 100])], None);
        check(
            &frame(0x81, &[b'a'; 101])[..6],
            &[],
            Some(WsError::TooLarge { limit: "ws_frame_bytes_max" }),
        );
        let both = [frame(1, &[b'a'; 100]), frame(0x80, &[b'a'; 50])].concat();
        check(&both, &[(WsEvent::Text, &[b'a'; 150])], None);
        let more = [frame(1, &[b'a'; 100]), frame(0x80, &[b'a'; 51])].concat();
        check(&more, &[], Some(WsError::TooLarge { limit: "ws_message_bytes_max" }));
    }

    #[test]
    fn binary_frame_is_rejected_at_its_header() {
        let rules = ReaderRules { binary: false, ..RULES };
        assert_eq!(read(&frame(2, b"abc")[..6], 1, &rules).1, Some(WsError::Binary));
        assert_eq!(read(&frame(2, b"abc"), 100, &rules).1, Some(WsError::Binary));
    }

    #[test]
    fn reader_holds_no_bytes_between_messages() {
        let (mut reader, mut scratch) = (Reader::default(), Vec::new());
        let bytes = [frame(1, b"ab"), frame(0x80, b"c")].concat();
        let read = reader.advance(&bytes, &mut scratch, &RULES);
        assert_eq!((read, &scratch[..]), (Ok((bytes.len(), WsEvent::Text)), &b"abc"[..]));
        assert_eq!((reader.held_bytes(), reader.is_inside()), (0, false));
    }
}
