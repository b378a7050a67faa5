//! Event frames: `id` and one `data` line, rendered in place, ended by a blank line.
//!
//! The caller opens a frame, appends its payload, then finishes or cancels the frame. The payload
//! is JSON; JSON of a peer may have line breaks between its tokens.

use crate::json::write::push_u64;

/// A comment that keeps a quiet connection open; receivers ignore it (WHATWG HTML §9.2.6).
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Bytes that are scanned together.
const BLOCK: usize = 64;

/// An open frame: the positions of its start and of its payload.
#[derive(Debug)]
#[must_use = "finish the frame or cancel it"]
pub struct EventMark {
    start: usize,
    payload: usize,
}

/// Opens a frame; append the payload to `out`, then [`finish`] or [`cancel`] it.
///
/// ```
/// use peregrine::sse::{begin, finish};
/// let mut out = Vec::new();
/// let mark = begin(&mut out, Some(7));
/// out.extend_from_slice(b"{}");
/// finish(&mut out, mark);
/// assert_eq!(out, b"id: 7\ndata: {}\n\n");
/// ```
#[inline]
pub fn begin(out: &mut Vec<u8>, id: Option<u64>) -> EventMark {
    let start = out.len();
    open(out, start, id)
}

/// Opens a frame of the event type `error`; otherwise like [`begin`].
pub fn error_event(out: &mut Vec<u8>, id: Option<u64>) -> EventMark {
    let start = out.len();
    out.extend_from_slice(b"event: error\n");
    open(out, start, id)
}

/// Closes the frame.
///
/// Line breaks in the payload become spaces. The payload is JSON, which has line breaks only
/// between two tokens, where a space means the same.
#[inline]
pub fn finish(out: &mut Vec<u8>, mark: EventMark) {
    debug_assert!(mark.start < mark.payload && mark.payload <= out.len());
    blank_line_breaks(&mut out[mark.payload..]);
    out.extend_from_slice(b"\n\n");
}

/// As [`finish`], for a payload without line breaks.
#[inline(always)] // Called for every piece of text.
pub fn finish_line(out: &mut Vec<u8>, mark: EventMark) {
    debug_assert!(!out[mark.payload..].iter().any(|byte| matches!(byte, b'\r' | b'\n')));
    out.extend_from_slice(b"\n\n");
}

/// Replaces every line break by a space; most payloads have no control character.
#[inline]
fn blank_line_breaks(payload: &mut [u8]) {
    if has_controls(payload) {
        for byte in payload.iter_mut().filter(|byte| matches!(**byte, b'\r' | b'\n')) {
            *byte = b' ';
        }
    }
}

/// Scans whole blocks, and finally the last 64 bytes once more, so that every step is vectorized.
#[inline]
fn has_controls(payload: &[u8]) -> bool {
    let Some(last) = payload.last_chunk::<BLOCK>() else {
        return payload.iter().any(|byte| *byte < b' ');
    };
    let mut least = *last;
    for block in payload.as_chunks::<BLOCK>().0 {
        for (least, byte) in least.iter_mut().zip(block) {
            *least = (*least).min(*byte);
        }
    }
    least.iter().fold(u8::MAX, |least, byte| least.min(*byte)) < b' '
}

/// Removes the frame: `out` is as it was before [`begin`].
pub fn cancel(out: &mut Vec<u8>, mark: EventMark) {
    out.truncate(mark.start);
}

#[inline(always)] // Most heads are one copy.
fn open(out: &mut Vec<u8>, start: usize, id: Option<u64>) -> EventMark {
    let digit = |value: u64| b'0' + (value % 10) as u8;
    match id {
        // Most streams are short: their heads are one copy.
        Some(id @ 0..=9) => {
            let mut head = *b"id: 0\ndata: ";
            head[4] = digit(id);
            out.extend_from_slice(&head);
        }
        Some(id @ 10..=99) => {
            let mut head = *b"id: 00\ndata: ";
            (head[4], head[5]) = (digit(id / 10), digit(id));
            out.extend_from_slice(&head);
        }
        Some(id @ 100..=999) => {
            let mut head = *b"id: 000\ndata: ";
            (head[4], head[5], head[6]) = (digit(id / 100), digit(id / 10), digit(id));
            out.extend_from_slice(&head);
        }
        Some(id) => {
            out.extend_from_slice(b"id: ");
            push_u64(out, id);
            out.extend_from_slice(b"\ndata: ");
        }
        None => out.extend_from_slice(b"data: "),
    }
    let payload = out.len();
    EventMark { start, payload }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_id_data_and_a_blank_line() {
        let mut out = Vec::new();
        let mark = begin(&mut out, None);
        out.extend_from_slice(b"[1]");
        finish(&mut out, mark);
        let mark = error_event(&mut out, Some(u64::MAX));
        out.extend_from_slice(b"{}");
        finish(&mut out, mark);
        let expected = "data: [1]\n\nevent: error\nid: 18446744073709551615\ndata: {}\n\n";
        assert_eq!(out, expected.as_bytes());
    }

    #[test]
    fn line_breaks_in_a_payload_become_spaces() {
        for length in 0..200usize {
            let mut payload = vec![b'x'; length];
            if let Some(byte) = payload.get_mut(length * 7 % 199) {
                *byte = [b'\n', b'\r', b'\t', 7][length % 4];
            }
            let mut out = Vec::new();
            let mark = begin(&mut out, None);
            out.extend_from_slice(&payload);
            finish(&mut out, mark);
            let is_break = |byte: u8| byte == b'\n' || byte == b'\r';
            let twin = payload.iter().map(|&byte| if is_break(byte) { b' ' } else { byte });
            let twin: Vec<u8> = twin.collect();
            assert_eq!(out, [b"data: ", &twin[..], b"\n\n"].concat());
        }
    }

    #[test]
    fn event_ids_of_every_length_are_decimal() {
        for id in (0..1100).chain([9_999, u64::MAX]) {
            let mut out = Vec::new();
            let mark = begin(&mut out, Some(id));
            finish(&mut out, mark);
            assert_eq!(out, format!("id: {id}\ndata: \n\n").as_bytes());
        }
    }

    #[test]
    fn cancelled_frame_is_removed_from_the_output() {
        let mut out = b"before".to_vec();
        for mark in [begin, error_event] {
            let mark = mark(&mut out, Some(1));
            out.extend_from_slice(b"half");
            cancel(&mut out, mark);
            assert_eq!(out, b"before");
        }
    }
}
