//! Heads that came before.
//!
//! A client that keeps its connection repeats its head byte for byte but for the digits of
//! Content-Length. What a head means depends on its bytes and the limits alone, so the last few
//! are kept with their layouts, and the same bytes are not parsed twice. Heads with credentials
//! are not kept: a secret does not outlive its request, and no answer is faster for guessing it.

use super::{
    Body, Field, Head, HeadLayout, HeadLimits, KEPT_HOST_BYTES_MAX, Method, Reject, Scan,
    TargetForm, Version, find_head, framing, parse::parse_head_of, target,
};

/// Heads that are kept; a further one pushes the oldest out.
const HEADS_KEPT: usize = 4;

/// Bytes of the largest head that is kept. Heads of A2A clients have 150 to 500.
const KEPT_BYTES_MAX: usize = 1024;

/// What [`HeadMemo::read`] knows so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'m> {
    /// No end yet; pass `scanned` to the next call.
    Partial {
        /// Bytes that need not be looked at again.
        scanned: usize,
    },
    /// The head is `buf[..layout.head_len()]`.
    Complete(&'m HeadLayout),
}

/// Finds and parses heads under fixed limits, and keeps the last few.
///
/// It answers exactly as [`find_head`] and [`parse_head`](super::parse_head) do, in constant
/// memory: at most four heads of one KiB.
#[derive(Debug)]
pub struct HeadMemo {
    limits: HeadLimits,
    kept: Vec<Kept>,
    /// Which one was asked for last.
    recent: usize,
    /// What is pushed out next.
    oldest: usize,
    /// The last head that was not kept.
    passing: HeadLayout,
    /// The host of the last head whose hosts were known; empty: none yet. Clients with another
    /// head for each request name the same one again and again.
    known_host: Vec<u8>,
}

#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    /// The digits of Content-Length are `bytes[length_at..tail_at]`; both are the end without.
    length_at: usize,
    tail_at: usize,
    layout: HeadLayout,
}

impl HeadMemo {
    /// Keeps nothing yet.
    pub const fn new(limits: HeadLimits) -> HeadMemo {
        let passing = HeadLayout::begin(Method::Other, Version::Http10, TargetForm::Origin);
        HeadMemo { limits, kept: Vec::new(), recent: 0, oldest: 0, passing, known_host: Vec::new() }
    }

    /// The limits that every head must keep.
    pub const fn limits(&self) -> &HeadLimits {
        &self.limits
    }

    /// Reads the head that begins at `buf[0]`; `scanned` is as for [`find_head`].
    ///
    /// `knows_hosts` says whether the server knows the hosts that a head names, and is told whether
    /// it has said so of the same `Host` before. It is asked once for each head that is parsed and
    /// must always say the same of the same hosts; the answer stays with the layout
    /// ([`HeadLayout::knows_hosts`]).
    ///
    /// # Errors
    /// Those of [`find_head`] and [`parse_head`](super::parse_head).
    pub fn read(
        &mut self,
        buf: &[u8],
        scanned: usize,
        knows_hosts: impl FnOnce(&Head<'_>, bool) -> bool,
    ) -> Result<Found<'_>, Reject> {
        if self.recall(buf) {
            return Ok(Found::Complete(&self.kept[self.recent].layout));
        }
        let head_len = match find_head(buf, scanned, &self.limits)? {
            Scan::Partial { scanned } => return Ok(Found::Partial { scanned }),
            Scan::Complete { head_len } => head_len,
        };
        let head = &buf[..head_len];
        let mut layout = parse_head_of(&self.known_host, head, &self.limits)?;
        let is_host_known = layout.knows_hosts;
        layout.knows_hosts = knows_hosts(&layout.head(head), is_host_known);
        if layout.knows_hosts && !is_host_known {
            self.note_host(layout.host.of(head).unwrap_or_default());
        }
        Ok(Found::Complete(self.keep(head, layout)))
    }

    /// Whether the head at the start of `buf` is kept; then it is the recent one.
    fn recall(&mut self, buf: &[u8]) -> bool {
        let most = self.limits.body_bytes_max;
        for at in (self.recent..self.kept.len()).chain(0..self.recent) {
            if self.kept[at].recall(buf, most) {
                self.recent = at;
                return true;
            }
        }
        false
    }

    #[cold]
    fn note_host(&mut self, host: &[u8]) {
        if host.len() <= KEPT_HOST_BYTES_MAX {
            host.clone_into(&mut self.known_host);
        }
    }

    fn keep(&mut self, head: &[u8], layout: HeadLayout) -> &HeadLayout {
        let is_there = |field| layout.head(head).value(field).is_some();
        let is_secret = is_there(Field::Authorization) || is_there(Field::XApiKey);
        // The key of a WebSocket's handshake never comes again.
        let is_once = is_there(Field::SecWebSocketKey);
        if is_secret || is_once || head.len() > KEPT_BYTES_MAX {
            self.passing = layout;
            return &self.passing;
        }
        let length = layout.length.range().unwrap_or(head.len()..head.len());
        let (length_at, tail_at) = (length.start, length.end);
        if self.kept.len() < HEADS_KEPT {
            self.recent = self.kept.len();
            self.kept.push(Kept { bytes: head.to_vec(), length_at, tail_at, layout });
        } else {
            self.recent = self.oldest;
            self.oldest = (self.oldest + 1) % HEADS_KEPT;
            let kept = &mut self.kept[self.recent];
            kept.bytes.clear();
            kept.bytes.extend_from_slice(head);
            (kept.length_at, kept.tail_at, kept.layout) = (length_at, tail_at, layout);
        }
        &self.kept[self.recent].layout
    }
}

impl Kept {
    /// Whether the head at the start of `buf` is this one, or becomes it by other digits of
    /// Content-Length.
    #[inline]
    fn recall(&mut self, buf: &[u8], body_bytes_max: u64) -> bool {
        let Some(head) = buf.get(..self.bytes.len()) else { return false };
        let (front, rest) = head.split_at(self.length_at);
        let (kept_front, kept_rest) = self.bytes.split_at(self.length_at);
        (front == kept_front || self.is_other_path(front))
            && (rest == kept_rest || self.adopt(rest, body_bytes_max))
    }

    /// Whether the front is the same but for a path that is as long, and plain: then the layout is
    /// the same, too. Tasks have names of one length, so reading one after the other by their paths
    /// is as cheap as reading one again.
    fn is_other_path(&self, front: &[u8]) -> bool {
        let (layout, kept) = (&self.layout, &self.bytes[..self.length_at]);
        let Some(path) = layout.path.range() else { return false };
        // Most fronts that differ do so elsewhere, and have the same path.
        layout.form == TargetForm::Origin
            && front[path.clone()] != kept[path.clone()]
            && front[..path.start] == kept[..path.start]
            && front[path.end..] == kept[path.end..]
            && target::is_plain_path(&front[path])
    }

    /// Takes over the length of a head that is the same but for as many other digits; `rest`
    /// begins with them.
    fn adopt(&mut self, rest: &[u8], body_bytes_max: u64) -> bool {
        let kept = &mut self.bytes[self.length_at..];
        let (kept_digits, kept_tail) = kept.split_at_mut(self.tail_at - self.length_at);
        let (digits, tail) = rest.split_at(kept_digits.len());
        let Body::Length(length) = &mut self.layout.body else { return false };
        if tail != kept_tail {
            return false;
        }
        // What is no length is looked at afresh, which says why.
        let Ok(value) = framing::content_length_value(digits, body_bytes_max) else { return false };
        *length = value;
        kept_digits.copy_from_slice(digits);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::TEST_LIMITS as LIMITS;

    fn post(field: &str, length: &str) -> String {
        format!("POST / HTTP/1.1\r\nHost: a\r\n{field}Content-Length: {length}\r\n\r\nbody")
    }

    /// Whether the memo knows the head without parsing it.
    fn knows(memo: &mut HeadMemo, text: &str) -> bool {
        memo.recall(text.as_bytes())
    }

    #[test]
    fn heads_are_kept_whatever_their_length_is() {
        let mut memo = HeadMemo::new(LIMITS);
        let (first, other) = (post("", "10"), post("", "42"));
        assert!(!knows(&mut memo, &first));
        assert!(memo.read(first.as_bytes(), 0, |_, _| false).is_ok());
        assert!(knows(&mut memo, &first) && knows(&mut memo, &other));
        let length = |found| match found {
            Ok(Found::Complete(layout)) => layout.body,
            Ok(Found::Partial { .. }) | Err(_) => Body::None,
        };
        assert_eq!(length(memo.read(other.as_bytes(), 0, |_, _| false)), Body::Length(42));
        for length in ["1", "123", "4x", " 4"] {
            assert!(!knows(&mut memo, &post("", length)), "{length}");
        }
        assert!(!knows(&mut memo, &first[..first.len() - 5]));
    }

    #[test]
    fn a_host_that_was_known_is_not_looked_at_again() {
        let mut memo = HeadMemo::new(LIMITS);
        let mut count = 0;
        let mut read = |target: &str, host: &str| {
            count += 1;
            let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nX: {count}\r\n\r\n");
            let mut told = None;
            let found = memo.read(head.as_bytes(), 0, |head, is_known| {
                told = Some(is_known);
                head.host() != Some("other")
            });
            let is_valid = found.is_ok();
            told.filter(|_| is_valid)
        };
        // Each head is a new one; what is told is of its host alone.
        for (target, host, told) in [
            ("/", "a:1", Some(false)),
            ("/", "a:1", Some(true)),
            ("/", "A:1", Some(false)),
            ("/", "A:1", Some(true)),
            ("/", "other", Some(false)),
            ("/", "other", Some(false)),
            ("/", "A:1", Some(true)),
            ("http://other/", "A:1", Some(false)),
            ("http://b/", "A:1", Some(false)),
            ("/", "b", Some(true)),
            ("/", "", None),
            ("/", "b@", None),
        ] {
            assert_eq!(read(target, host), told, "{target} {host}");
        }
        let mut fresh = HeadMemo::new(LIMITS);
        assert!(fresh.read(b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 0, |_, _| true).is_err());
    }

    #[test]
    fn another_path_of_the_same_length_needs_no_second_look_if_it_is_plain() {
        let mut memo = HeadMemo::new(LIMITS);
        let head = |path: &str| format!("GET {path}?a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(memo.read(head("/tasks/ab").as_bytes(), 0, |_, _| false).is_ok());
        for path in ["/tasks/cd", "/x/y/z/:-"] {
            assert!(knows(&mut memo, &head(path)), "{path}");
            let found = memo.read(head(path).as_bytes(), 0, |_, _| false);
            let Ok(Found::Complete(layout)) = found else { panic!("{path}") };
            assert_eq!(layout.head(head(path).as_bytes()).path(), path);
        }
        for path in [
            "/tasks/..",
            "/tasks/%4",
            "/tasks/a?",
            "/tasks/a#",
            "tasks/abc",
            "/tasks/a ",
            "/tasks/a",
        ] {
            assert!(!knows(&mut memo, &head(path)), "{path}");
        }
        let other = head("/tasks/ab").replace("GET", "PUT");
        assert!(!knows(&mut memo, &other));
    }

    #[test]
    fn the_oldest_is_pushed_out() {
        let mut memo = HeadMemo::new(LIMITS);
        let heads: Vec<_> = (0..=HEADS_KEPT).map(|i| post(&format!("X: {i}\r\n"), "1")).collect();
        for head in &heads {
            assert!(memo.read(head.as_bytes(), 0, |_, _| false).is_ok());
        }
        let known: Vec<_> = heads.iter().map(|head| knows(&mut memo, head)).collect();
        assert_eq!(known, [false, true, true, true, true]);
    }

    #[test]
    fn secrets_and_giants_are_not_kept() {
        let mut memo = HeadMemo::new(LIMITS);
        let giant = format!("X: {}\r\n", "x".repeat(KEPT_BYTES_MAX));
        for field in ["Authorization: Bearer x\r\n", "X-API-Key: x\r\n", &giant] {
            let head = post(field, "1");
            assert!(memo.read(head.as_bytes(), 0, |_, _| false).is_ok());
            assert!(!knows(&mut memo, &head), "{field}");
        }
    }
}
