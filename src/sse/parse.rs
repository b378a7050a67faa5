//! Reads an event stream (WHATWG HTML §9.2.5–9.2.6) that may be cut at any byte.
//!
//! Invariants: the events do not depend on where the stream was cut. Memory is bounded by one limit
//! on a line and on the data of an event; a stream beyond it ends with an error. An event without a
//! final blank line is never delivered. Data is returned as unchecked bytes, since a JSON parser
//! checks whether it is UTF-8.

use std::mem;

use memchr::memchr2;

/// Why a stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SseError {
    /// A line, or the data of an event, is longer than the parser's limit.
    TooLarge,
}

impl std::fmt::Display for SseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge => f.write_str("event exceeds the size limit"),
        }
    }
}

impl std::error::Error for SseError {}

/// An event; it is valid until the parser is advanced again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'p> {
    /// The event type, `message` when the stream names none.
    pub kind: &'p str,
    /// The data lines joined by LF; possibly invalid UTF-8.
    pub data: &'p [u8],
    /// The last event id that the stream has set, empty when none; possibly invalid UTF-8.
    pub id: &'p [u8],
    /// True: the id has changed since the previous event.
    pub is_new_id: bool,
}

/// Maximum digits of a numeric id, which is the usual kind.
const ID_DIGITS_MAX: usize = 20;

/// The result of [`SseParser::advance`].
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedStep<'p> {
    /// Consumed bytes of the input; all bytes if no event is complete.
    pub ate: usize,
    /// The event that these bytes completed.
    pub event: Option<SseEvent<'p>>,
}

/// An incremental event-stream parser.
///
/// ```
/// let mut parser = peregrine::sse::SseParser::new(1024);
/// let step = parser.advance(b"id: 1\ndata: a\ndata: b\n\nda")?;
/// let event = step.event.unwrap();
/// assert_eq!((event.kind, event.data, event.id), ("message", &b"a\nb"[..], &b"1"[..]));
/// assert!(event.is_new_id);
/// assert_eq!(step.ate, 23);
/// # Ok::<(), peregrine::sse::SseError>(())
/// ```
#[derive(Debug)]
pub struct SseParser {
    bytes_max: usize,
    /// The beginning of an incomplete line.
    line: Vec<u8>,
    data: Vec<u8>,
    kind: String,
    /// Set by `id` fields; takes effect when an event ends.
    id_next: Vec<u8>,
    sets_id: bool,
    id: Vec<u8>,
    /// True: the id has changed since the last event.
    is_new_id: bool,
    retry_ms: Option<u64>,
    /// True: the previous byte was a CR; an LF now belongs to the same line end.
    after_cr: bool,
    /// True: no line has ended yet, so a byte order mark may come first.
    at_start: bool,
    /// True: the event in the buffers was delivered, and the next step clears it.
    delivered: bool,
    failed: bool,
}

impl SseParser {
    /// Makes a parser for one stream. `bytes_max` limits each line, and the data of each event.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Vec::new(),
            data: Vec::new(),
            kind: String::new(),
            id_next: Vec::new(),
            sets_id: false,
            id: Vec::new(),
            is_new_id: false,
            retry_ms: None,
            after_cr: false,
            at_start: true,
            delivered: false,
            failed: false,
        }
    }

    /// Reads until an event is complete or `input` is consumed. An event with one data line is not
    /// copied if it is whole in `input`.
    ///
    /// # Errors
    ///
    /// [`SseError::TooLarge`], also in every later call.
    pub fn advance<'p>(&'p mut self, input: &'p [u8]) -> Result<ParsedStep<'p>, SseError> {
        if mem::take(&mut self.delivered) {
            self.forget();
            self.is_new_id = false;
        }
        if self.is_between_events()
            && let Some((ate, data)) = self.plain_event(input)
        {
            self.delivered = true;
            return Ok(ParsedStep { ate, event: Some(self.event(Some(data))) });
        }
        let mut ate = 0;
        // The only data of the event so far, if it lies in `input`.
        let mut only: Option<&'p [u8]> = None;
        while !self.failed {
            let rest = input.get(ate..).unwrap_or_default();
            if rest.is_empty() {
                self.keep(only);
                return Ok(ParsedStep { ate, event: None });
            }
            if mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
                ate += 1;
                continue;
            }
            let len = memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
            let (part, after) = rest.split_at(len);
            if self.line.len() + part.len() > self.bytes_max {
                break;
            }
            ate += part.len();
            let Some(end) = after.first() else {
                self.line.extend_from_slice(part);
                continue;
            };
            self.after_cr = *end == b'\r';
            ate += 1;
            let is_ready = match self.line.is_empty() {
                true => self.line(part, &mut only),
                false => self.end_line(part, &mut only),
            };
            if is_ready {
                self.delivered = true;
                return Ok(ParsedStep { ate, event: Some(self.event(only)) });
            }
        }
        self.failed = true;
        Err(SseError::TooLarge)
    }

    /// True: no part of an event has been read.
    fn is_between_events(&self) -> bool {
        let is_fresh = !(self.at_start || self.after_cr || self.sets_id || self.failed);
        is_fresh && self.line.is_empty() && self.data.is_empty() && self.kind.is_empty()
    }

    /// Fast path for the common event: an optional numeric id and one line of data, each with LF,
    /// all of it in the input. Returns the length and the data of the event.
    #[inline]
    fn plain_event<'p>(&mut self, input: &'p [u8]) -> Option<(usize, &'p [u8])> {
        let (id, after_id) = match input.strip_prefix(b"id: ") {
            Some(rest) => {
                let digits = rest.iter().take(ID_DIGITS_MAX).take_while(|b| b.is_ascii_digit());
                let (id, after_id) = rest.split_at(digits.count());
                (id, after_id.strip_prefix(b"\n").filter(|_| !id.is_empty())?)
            }
            None => (&b""[..], input),
        };
        let line = after_id.strip_prefix(b"data: ")?;
        let (data, end) = line.split_at(memchr2(b'\r', b'\n', line)?);
        let rest = end.strip_prefix(b"\n\n")?;
        let (id_line, data_line) = (id.len() + b"id: ".len(), data.len() + b"data: ".len());
        if id_line.max(data_line) > self.bytes_max {
            return None;
        }
        if !id.is_empty() && id != self.id {
            self.id.clear();
            self.id.extend_from_slice(id);
            self.is_new_id = true;
        }
        Some((input.len() - rest.len(), data))
    }

    /// The current last event id, for `Last-Event-ID` when reconnecting.
    #[must_use]
    #[cfg_attr(not(feature = "internals"), allow(dead_code))]
    pub fn last_event_id(&self) -> &[u8] {
        &self.id
    }

    /// The last reconnection time that the stream requested, in milliseconds.
    #[must_use]
    #[cfg_attr(not(feature = "internals"), allow(dead_code))]
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Completes a line that arrived in pieces; returns whether an event is ready.
    #[cold]
    fn end_line(&mut self, part: &[u8], only: &mut Option<&[u8]>) -> bool {
        let mut line = mem::take(&mut self.line);
        line.extend_from_slice(part);
        // The data of this line is not in the input.
        let mut copied = None;
        self.keep(only.take());
        let is_ready = self.line(&line, &mut copied);
        self.keep(copied);
        line.clear();
        self.line = line;
        is_ready
    }

    /// Interprets one line; returns whether an event is ready.
    fn line<'p>(&mut self, line: &'p [u8], only: &mut Option<&'p [u8]>) -> bool {
        let mut line = line;
        if mem::take(&mut self.at_start) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.blank(only.is_some());
        }
        // "If value starts with a U+0020 SPACE character, remove it from value."
        let value = |after_colon: &'p [u8]| after_colon.strip_prefix(b" ").unwrap_or(after_colon);
        // Fast path for nearly every line.
        if let Some(after_colon) = line.strip_prefix(b"data:") {
            self.data(value(after_colon), only);
            return false;
        }
        match line.iter().position(|&b| b == b':') {
            // "If the line starts with a U+003A COLON character (:): Ignore the line."
            Some(0) => {}
            Some(at) => self.field(&line[..at], value(&line[at + 1..])),
            None if line == b"data" => self.data(b"", only),
            None => self.field(line, b""),
        }
        false
    }

    /// "Append the field value to the data buffer, then append a single U+000A LINE FEED."
    fn data<'p>(&mut self, value: &'p [u8], only: &mut Option<&'p [u8]>) {
        if self.data.is_empty() && only.is_none() {
            *only = Some(value);
            return;
        }
        self.keep(only.take());
        self.keep(Some(value));
        // The LF after the last line is not part of the data.
        self.failed |= self.data.len() - 1 > self.bytes_max;
    }

    /// Copies data before its input buffer changes.
    fn keep(&mut self, only: Option<&[u8]>) {
        if let Some(data) = only {
            self.data.extend_from_slice(data);
            self.data.push(b'\n');
        }
    }

    /// "Process the field"; names are case-sensitive, unknown names are ignored.
    fn field(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"event" => replace(&mut self.kind, value),
            // "If the field value does not contain U+0000 NULL"
            b"id" if !value.contains(&0) => {
                self.sets_id = true;
                value.clone_into(&mut self.id_next);
            }
            // "If the field value consists of only ASCII digits"
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                let number = str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                self.retry_ms = number.or(self.retry_ms);
            }
            _ => {}
        }
    }

    /// "Dispatch the event"; returns whether an event is ready.
    fn blank(&mut self, has_data: bool) -> bool {
        if mem::take(&mut self.sets_id) && self.id != self.id_next {
            mem::swap(&mut self.id, &mut self.id_next);
            self.is_new_id = true;
        }
        if self.data.is_empty() && !has_data {
            self.forget();
            return false;
        }
        true
    }

    fn event<'p>(&'p self, only: Option<&'p [u8]>) -> SseEvent<'p> {
        SseEvent {
            kind: if self.kind.is_empty() { "message" } else { &self.kind },
            data: only.unwrap_or(self.data.strip_suffix(b"\n").unwrap_or(&self.data)),
            id: &self.id,
            is_new_id: self.is_new_id,
        }
    }

    fn forget(&mut self) {
        self.data.clear();
        self.kind.clear();
    }
}

/// Replaces `text` by `value`; bytes that are not UTF-8 become U+FFFD.
fn replace(text: &mut String, value: &[u8]) {
    text.clear();
    match str::from_utf8(value) {
        Ok(value) => text.push_str(value),
        Err(_) => text.push_str(&String::from_utf8_lossy(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type SeenEvent = (String, String, String);

    /// All events of a stream fed in pieces of `size` bytes, and the error that ended it.
    fn events(stream: &[u8], size: usize, bytes_max: usize) -> (Vec<SeenEvent>, Option<SseError>) {
        let mut parser = SseParser::new(bytes_max);
        let mut seen = Vec::new();
        for piece in stream.chunks(size) {
            let mut remaining = piece;
            while !remaining.is_empty() {
                match parser.advance(remaining) {
                    Ok(ParsedStep { ate, event }) => {
                        seen.extend(event.map(|e| {
                            let data = String::from_utf8_lossy(e.data).into_owned();
                            let id = String::from_utf8_lossy(e.id).into_owned();
                            (e.kind.into(), data, id)
                        }));
                        remaining = &remaining[ate..];
                    }
                    Err(error) => return (seen, Some(error)),
                }
            }
        }
        (seen, None)
    }

    fn check(stream: &[u8], expected: &[(&str, &str, &str)]) {
        for size in 1..=stream.len() {
            let (seen, error) = events(stream, size, 64);
            let seen: Vec<_> = seen.iter().map(|(k, d, i)| (&**k, &**d, &**i)).collect();
            assert_eq!((&seen[..], error), (expected, None), "{stream:?} by {size}");
        }
    }

    #[test]
    fn examples_of_the_whatwg_standard_are_parsed() {
        check(b"data: YHOO\ndata: +2\ndata: 10\n\n", &[("message", "YHOO\n+2\n10", "")]);
        check(
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n\
              data:  third event\n\ndata: open",
            &[
                ("message", "first event", "1"),
                ("message", "second event", ""),
                ("message", " third event", ""),
            ],
        );
        check(b"data\n\ndata\ndata\n\ndata:", &[("message", "", ""), ("message", "\n", "")]);
        check(b"data:test\n\ndata: test\n\n", &[("message", "test", ""), ("message", "test", "")]);
    }

    #[test]
    fn all_three_line_endings_are_accepted() {
        check(
            b"data: a\r\rdata: b\n\ndata: c\r\n\r\n",
            &[("message", "a", ""), ("message", "b", ""), ("message", "c", "")],
        );
        check(b"data: a\r\ndata: b\rdata: c\ndata: d\r\n\n", &[("message", "a\nb\nc\nd", "")]);
        check(b"data: a\n\rdata: b\r\n\r", &[("message", "a", ""), ("message", "b", "")]);
    }

    #[test]
    fn event_id_persists_and_event_type_resets() {
        check(
            b"event: x\nid: 7\ndata: 1\n\ndata: 2\n\nid: 9\x000\ndata: 3\n\nid: 8\n\ndata: 4\n\n",
            &[("x", "1", "7"), ("message", "2", "7"), ("message", "3", "7"), ("message", "4", "8")],
        );
        check(b"event: x\n\ndata: 1\n\n", &[("message", "1", "")]);
        check(b"Data: 1\n data: 2\ndata : 3\n\n", &[]);
    }

    #[test]
    fn event_id_is_new_if_changed_since_the_previous_event() {
        let stream = b"id: 1\ndata: a\n\ndata: b\n\nid: 1\ndata: c\n\nid: 2\n\nid: 1\n\n\
            data: d\n\nid: 2\ndata: e\n\nid\ndata: f\n\n";
        for size in 1..=stream.len() {
            let (mut parser, mut seen, mut before) = (SseParser::new(64), String::new(), vec![]);
            for piece in stream.chunks(size) {
                let mut remaining = piece;
                while !remaining.is_empty() {
                    let step = parser.advance(remaining).unwrap();
                    if let Some(event) = step.event {
                        let is_new = event.id != before;
                        assert!(event.is_new_id || !is_new, "{seen} by {size}");
                        seen.push(if event.is_new_id { 'n' } else { '-' });
                        before = event.id.to_vec();
                    }
                    remaining = &remaining[step.ate..];
                }
            }
            // The id changed between c and d.
            assert_eq!(seen, "n--nnn", "by {size}");
        }
    }

    #[test]
    fn only_one_leading_byte_order_mark_is_skipped() {
        check(b"\xef\xbb\xbfdata: 1\n\n", &[("message", "1", "")]);
        check(b"\xef\xbb\xbf\xef\xbb\xbfdata: 1\n\n", &[]);
        check(b"data: \xff\xc3\n\n", &[("message", "\u{fffd}\u{fffd}", "")]);
    }

    #[test]
    fn single_line_event_is_not_copied() {
        let stream =
            b": hi\nid: 1\ndata: {}\nretry: 5\n\nevent: x\r\ndata:[]\r\n\r\ndata: a\ndata: b\n\n";
        let mut parser = SseParser::new(64);
        let mut at = 0;
        for expected in [b"{}", b"[]"] {
            let step = parser.advance(&stream[at..]).unwrap();
            let data = step.event.unwrap().data;
            assert_eq!(data, expected);
            let is_copy = !stream.as_ptr_range().contains(&data.as_ptr());
            assert!(!is_copy, "{}", data.escape_ascii());
            at += step.ate;
        }
        let step = parser.advance(&stream[at..]).unwrap();
        assert_eq!(step.event.map(|event| event.data), Some(&b"a\nb"[..]));
        assert_eq!(parser.retry_ms(), Some(5));
    }

    #[test]
    fn retry_field_accepts_only_digits() {
        let mut parser = SseParser::new(64);
        for (line, retry) in [
            (&b"retry: 1500\n"[..], Some(1500)),
            (b"retry: 15x\n", Some(1500)),
            (b"retry: -1\n", Some(1500)),
            (b"retry\n", Some(1500)),
            (b"retry: 99999999999999999999999\n", Some(1500)),
            (b"retry:0\n", Some(0)),
        ] {
            assert_eq!(parser.advance(line), Ok(ParsedStep { ate: line.len(), event: None }));
            assert_eq!(parser.retry_ms(), retry);
        }
        assert_eq!(parser.last_event_id(), b"");
    }

    #[test]
    fn size_limit_applies_to_lines_and_event_data() {
        for size in [1, 3, 100] {
            assert_eq!(events(b"data: 45678\n\n", size, 11).1, None);
            assert_eq!(events(b"data: 456789\n\n", size, 11).1, Some(SseError::TooLarge));
            assert_eq!(events(b": a very long comment", size, 11).1, Some(SseError::TooLarge));
            assert_eq!(events(b"data: 1234\ndata: 123456\n\n", size, 12).1, None);
            let (seen, error) = events(b"data: a\n\ndata: 123456\ndata: 123456\n\n", size, 12);
            assert_eq!((seen.len(), error), (1, Some(SseError::TooLarge)));
        }
        let mut parser = SseParser::new(2);
        assert_eq!(parser.advance(b"data"), Err(SseError::TooLarge));
        assert_eq!(parser.advance(b""), Err(SseError::TooLarge));
    }
}
