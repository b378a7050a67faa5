//! A cache of request heads.
//!
//! A client repeats its head except for the digits of Content-Length, the path, and the values of
//! fields without a meaning for this cache: traces, request names, credentials. The last few heads
//! are cached without these values ([`CachedHead`]); if a head matches, only these values are
//! checked. No secret is stored, and a correct guess of a secret does not make an answer faster.

use super::{
    CACHED_HOST_BYTES_MAX, HEAD_BYTES_CEILING, Head, HeadLayout, HeadLimits, Method, Reject, Scan,
    TargetForm, Version, find_head,
    kept::CachedHead,
    kept_parts::{CachedParts, PartLine},
    parse::{FieldLine, parse_head_of},
    request_parts::FiledHead,
};

/// Number of cached heads; a further head evicts the oldest.
const HEADS_MAX: usize = 4;

/// The result of [`HeadMemo::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'m> {
    /// The end was not found; pass `scanned` to the next call.
    Partial {
        /// Bytes that need not be scanned again.
        scanned: usize,
    },
    /// The head is `buf[..layout.head_len()]`.
    Complete(&'m HeadLayout),
}

/// Finds and parses heads under fixed limits, and caches the last few.
///
/// The results are those of [`find_head`] and [`parse_head`](super::parse_head). The memory is
/// constant: four heads of one KiB, and the positions of 128 lines of each.
#[derive(Debug)]
pub struct HeadMemo {
    pub(super) limits: HeadLimits,
    heads: Vec<CachedHead>,
    /// The index of the last head that was read.
    recent: usize,
    /// The index of the next head to evict.
    oldest: usize,
    /// The lines of the last head that was parsed.
    pub(super) lines: Vec<FieldLine>,
    /// The layout of the last head that was read, unless `heads` has it.
    found: HeadLayout,
    /// The last host that a head named and the server has; empty: none yet. A client that sends a
    /// new head with each request repeats its host.
    pub(super) accepted_host: Vec<u8>,
    /// Cached heads that came in parts.
    pub(super) parts: CachedParts,
    /// The lines of the last head in parts.
    pub(super) part_lines: Vec<PartLine>,
    /// Memory for the next head in parts.
    pub(super) spare_parts: Option<Box<FiledHead>>,
}

impl HeadMemo {
    /// An empty cache.
    pub const fn new(limits: HeadLimits) -> HeadMemo {
        let found = HeadLayout::begin(Method::Other, Version::Http10, TargetForm::Origin);
        HeadMemo {
            limits,
            heads: Vec::new(),
            recent: 0,
            oldest: 0,
            lines: Vec::new(),
            found,
            accepted_host: Vec::new(),
            parts: CachedParts::new(),
            part_lines: Vec::new(),
            spare_parts: None,
        }
    }

    /// Reads the head that begins at `buf[0]`; `scanned` is as for [`find_head`].
    ///
    /// `has_known_hosts` returns whether the server has the hosts that a head names; its argument
    /// is whether it has returned true for the same `Host` before. It is called once for each
    /// parsed head and must always return the same for the same hosts; the layout stores the result
    /// ([`HeadLayout::has_known_hosts`]).
    ///
    /// # Errors As [`find_head`] and [`parse_head`](super::parse_head).
    pub fn read(
        &mut self,
        buf: &[u8],
        scanned: usize,
        has_known_hosts: impl FnOnce(&Head<'_>, bool) -> bool,
    ) -> Result<Found<'_>, Reject> {
        // A head that arrives in pieces is compared only once, when it is complete.
        if scanned == 0 {
            let recent = self.heads.get_mut(self.recent);
            if recent.is_some_and(|head| head.recall_same(buf, &self.limits)) {
                return Ok(Found::Complete(self.heads[self.recent].layout()));
            }
            if self.recall(buf) {
                return Ok(Found::Complete(&self.found));
            }
        }
        let head_len = match find_head(buf, scanned, &self.limits)? {
            Scan::Partial { scanned } => return Ok(Found::Partial { scanned }),
            Scan::Complete { head_len } => head_len,
        };
        let head = &buf[..head_len];
        if scanned == 0 || !self.recall(head) {
            self.lines.clear();
            let lines = Some(&mut self.lines);
            let mut layout = parse_head_of(&self.accepted_host, head, &self.limits, lines)?;
            let is_host_accepted = layout.has_known_hosts;
            layout.has_known_hosts = has_known_hosts(&layout.head(head), is_host_accepted);
            if layout.has_known_hosts && !is_host_accepted {
                self.note_host(layout.host.of(head).unwrap_or_default());
            }
            self.keep(head, layout);
        }
        Ok(Found::Complete(&self.found))
    }

    /// Whether the head at the start of `buf` is cached; if so, it becomes the recent head.
    #[inline(never)] // Most heads equal the recent one, and skip this.
    fn recall(&mut self, buf: &[u8]) -> bool {
        let bytes_max = self.limits.head_bytes_max.min(HEAD_BYTES_CEILING);
        let view = &buf[..buf.len().min(bytes_max)];
        for at in (self.recent..self.heads.len()).chain(0..self.recent) {
            if self.heads[at].recall(view, &self.limits, &mut self.found) {
                self.recent = at;
                return true;
            }
        }
        false
    }

    #[cold]
    pub(super) fn note_host(&mut self, host: &[u8]) {
        if host.len() <= CACHED_HOST_BYTES_MAX {
            host.clone_into(&mut self.accepted_host);
        }
    }

    /// Caches a head of the parsed lines in place of the oldest one.
    #[cold]
    fn keep(&mut self, head: &[u8], layout: HeadLayout) {
        self.found = layout;
        let is_full = self.heads.len() == HEADS_MAX;
        if !is_full {
            self.oldest = self.heads.len();
            self.heads.push(CachedHead::new(layout));
        }
        if self.heads[self.oldest].keep(head, &layout, &self.lines) {
            self.recent = self.oldest;
            self.oldest = (self.oldest + 1) % HEADS_MAX;
        } else if !is_full {
            self.heads.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{BodyFraming, TEST_LIMITS as LIMITS, kept::TEXT_BYTES_MAX, parse_head};

    fn post(field: &str, length: &str) -> String {
        format!("POST / HTTP/1.1\r\nHost: a\r\n{field}Content-Length: {length}\r\n\r\nbody")
    }

    /// Whether the memo has the head and does not parse it.
    fn is_cached(memo: &mut HeadMemo, text: &str) -> bool {
        memo.recall(text.as_bytes())
    }

    fn layout(memo: &mut HeadMemo, text: &str) -> HeadLayout {
        match memo.read(text.as_bytes(), 0, |_, _| false) {
            Ok(Found::Complete(layout)) => *layout,
            other => panic!("{other:?}: {text}"),
        }
    }

    #[test]
    fn cached_head_matches_length_with_same_digit_count() {
        let mut memo = HeadMemo::new(LIMITS);
        let (first, other) = (post("", "10"), post("", "42"));
        assert!(!is_cached(&mut memo, &first));
        assert_eq!(layout(&mut memo, &first).body, BodyFraming::Length(10));
        assert!(is_cached(&mut memo, &first) && is_cached(&mut memo, &other));
        assert_eq!(layout(&mut memo, &other).body, BodyFraming::Length(42));
        assert_eq!(layout(&mut memo, &first).body, BodyFraming::Length(10));
        // A head without other gaps is compared bytewise, so each number of digits has its own
        // cached head.
        for length in ["1", "123", "4x", " 4"] {
            assert!(!is_cached(&mut memo, &post("", length)), "{length}");
        }
        assert!(!is_cached(&mut memo, &first[..first.len() - 5]));
    }

    #[test]
    fn cached_head_matches_changed_trace_and_token_values() {
        let mut memo = HeadMemo::new(LIMITS);
        let lines = |trace: &str, token: &str, id: &str| {
            format!("traceparent: {trace}\r\nAuthorization: {token}\r\nX-Request-Id:{id}\r\n")
        };
        let first = post(&lines("00-4bf92f", "Bearer abc", " 1"), "10");
        assert!(memo.read(first.as_bytes(), 0, |_, _| false).is_ok());
        for (trace, token, id, length) in [
            ("00-4bf92f", "Bearer abc", " 1", "10"),
            ("00-a00000", "Bearer abd", " 2", "11"),
            ("", "Bearer a longer one", " ", "1234567"),
            ("x\ty \u{e9}", "b\t ", " \t17 ", "0"),
            (&"t".repeat(2000), &"b".repeat(3000), &" r".repeat(2000), "5"),
        ] {
            let head = post(&lines(trace, token, id), length);
            assert!(is_cached(&mut memo, &head), "{head}");
            let fresh = parse_head(&head.as_bytes()[..head.len() - 4], &LIMITS);
            assert_eq!(Ok(layout(&mut memo, &head)), fresh, "{head}");
        }
        for (trace, token, id, length) in [
            ("a\x7f", "b", " ", "1"),
            ("a\r\n b", "b", " ", "1"),
            ("a\0", "b", " ", "1"),
            ("a", " ", " ", "1"),
            ("a", "b", " \r\nX: y", "1"),
            ("a", "b", " ", "4194305"),
            ("a", "b", " ", "1x"),
            ("a", "b", " ", ""),
            ("a", "b", "", "1"),
        ] {
            let head = post(&lines(trace, token, id), length);
            assert!(!is_cached(&mut memo, &head), "{head}");
        }
        assert!(!is_cached(&mut memo, &first.replace("traceparent", "Traceparent")));
        assert!(!is_cached(&mut memo, &first.replace("Host: a", "Host: b")));
    }

    #[test]
    fn accepted_host_is_reported_as_cached() {
        let mut memo = HeadMemo::new(LIMITS);
        let mut count = 0;
        let mut read = |target: &str, host: &str| {
            count += 1;
            let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nX{count}: 1\r\n\r\n");
            let mut reported = None;
            let found = memo.read(head.as_bytes(), 0, |head, is_accepted| {
                reported = Some(is_accepted);
                head.host() != Some("other")
            });
            let is_valid = found.is_ok();
            reported.filter(|_| is_valid)
        };
        // Each head is new, so the argument depends only on its host.
        for (target, host, expected) in [
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
            assert_eq!(read(target, host), expected, "{target} {host}");
        }
        let mut fresh = HeadMemo::new(LIMITS);
        assert!(fresh.read(b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 0, |_, _| true).is_err());
    }

    #[test]
    fn cached_head_matches_other_valid_targets() {
        let mut memo = HeadMemo::new(LIMITS);
        let head = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n");
        for first in ["/tasks/ab", "/tasks/ab?key=secret"] {
            assert!(memo.read(head(first).as_bytes(), 0, |_, _| false).is_ok());
            for target in ["/", "/tasks/cd", "/x/y/z/:-", "/tasks/%41?a=b", "/a?b#c"] {
                assert!(is_cached(&mut memo, &head(target)), "{target}");
                let fresh = parse_head(head(target).as_bytes(), &LIMITS);
                assert_eq!(Ok(layout(&mut memo, &head(target))), fresh, "{target}");
            }
            for target in
                ["/tasks/..", "/%4", "/a#", "tasks/abc", "/tasks/a ", "", "*", "http://a/"]
            {
                assert!(!is_cached(&mut memo, &head(target)), "{target}");
            }
        }
        assert!(!is_cached(&mut memo, &head("/tasks/ab").replace("GET", "PUT")));
    }

    #[test]
    fn oldest_cached_head_is_evicted() {
        let mut memo = HeadMemo::new(LIMITS);
        let heads: Vec<_> = (0..=HEADS_MAX).map(|i| post(&format!("X{i}: y\r\n"), "1")).collect();
        for head in &heads {
            assert!(memo.read(head.as_bytes(), 0, |_, _| false).is_ok());
        }
        let cached: Vec<_> = heads.iter().map(|head| is_cached(&mut memo, head)).collect();
        assert_eq!(cached, [false, true, true, true, true]);
    }

    #[test]
    fn cached_heads_contain_no_secrets() {
        let mut memo = HeadMemo::new(LIMITS);
        // The bytes as the memo's `Debug` output shows them.
        let shown = |text: &str| format!("{:?}", text.as_bytes()).replace(['[', ']'], "");
        for line in [
            "Authorization: Bearer <>",
            "Proxy-Authorization: <>",
            "X-API-Key:<>",
            "X-My-Own-Key: <>",
            "Cookie: session=<>; a=b",
            "Sec-WebSocket-Protocol: bearer, <>",
            "Last-Event-ID: <>",
        ] {
            let lines = |secret: &str| format!("{}\r\n", line.replace("<>", secret));
            for secret in ["hunter2hunter2", "correct horse battery staple"] {
                let head = post(&lines(secret), "1");
                assert!(memo.read(head.as_bytes(), 0, |_, _| false).is_ok());
                assert!(is_cached(&mut memo, &head), "{line}");
                assert!(is_cached(&mut memo, &post(&lines("another"), "1")), "{line}");
                assert!(!format!("{memo:?}").contains(&shown(secret)), "{line}");
            }
            let name = line.split(':').next().unwrap_or_default();
            assert!(format!("{memo:?}").contains(&shown(name)), "{line}");
        }
        let query = "GET /?key=hunter2hunter2 HTTP/1.1\r\nHost: a\r\n\r\n";
        assert!(memo.read(query.as_bytes(), 0, |_, _| false).is_ok());
        assert!(!format!("{memo:?}").contains(&shown("hunter2")), "a query");
    }

    #[test]
    fn limits_apply_to_cached_heads() {
        let head = |target: &str, value: &str, length: &str| {
            format!(
                "GET {target} HTTP/1.1\r\nHost: a\r\nX: {value}\r\nContent-Length: {length}\r\n\r\n"
            )
        };
        let limits = HeadLimits {
            head_bytes_max: head("/", "", "10").len() + 20,
            target_bytes_max: 10,
            query_bytes_max: 5,
            body_bytes_max: 500,
            ..LIMITS
        };
        let mut memo = HeadMemo::new(limits);
        assert!(memo.read(head("/", "1", "10").as_bytes(), 0, |_, _| false).is_ok());
        for (fits, above) in [
            (head("/aaaaaaaaa", "1", "10"), head("/aaaaaaaaaa", "1", "10")),
            (head("/a?bbbbb", "1", "10"), head("/a?bbbbbb", "1", "10")),
            (head("/", &"x".repeat(20), "10"), head("/", &"x".repeat(21), "10")),
            (head("/", "1", "500"), head("/", "1", "501")),
        ] {
            assert!(is_cached(&mut memo, &fits), "{fits}");
            assert!(!is_cached(&mut memo, &above), "{above}");
            assert!(memo.read(above.as_bytes(), 0, |_, _| false).is_err(), "{above}");
        }
    }

    #[test]
    fn head_beyond_offset_range_is_rejected() {
        let limits = HeadLimits { head_bytes_max: usize::MAX, ..LIMITS };
        let head = |first: usize, second: usize| {
            let (first, second) = ("x".repeat(first), "y".repeat(second));
            post(&format!("X: {first}\r\nAuthorization: {second}\r\n"), "1")
        };
        let mut memo = HeadMemo::new(limits);
        for (first, second) in [(1, 40_000), (40_000, 1), (1, 65_000), (65_000, 1), (9, 9)] {
            let head = head(first, second);
            let fresh = parse_head(&head.as_bytes()[..head.len() - 4], &limits);
            assert_eq!(Ok(layout(&mut memo, &head)), fresh, "{first} {second}");
        }
        assert!(memo.read(head(65_536, 1).as_bytes(), 0, |_, _| false).is_err());
    }

    #[test]
    fn head_above_cached_text_limit_is_not_cached() {
        let mut memo = HeadMemo::new(LIMITS);
        let accept = |len: usize| format!("Accept: {}\r\n", "x".repeat(len));
        for (lines, expected) in [
            (accept(TEXT_BYTES_MAX - 100), true),
            (accept(TEXT_BYTES_MAX), false),
            (format!("X: {}\r\n", "x".repeat(TEXT_BYTES_MAX)), true),
            ("x:\r\n".repeat(90), true),
            ("accept:\r\n".repeat(90), true),
            ("x-forwarded-prefix:\r\n".repeat(90), false),
        ] {
            let head = post(&lines, "1");
            assert!(memo.read(head.as_bytes(), 0, |_, _| false).is_ok());
            assert_eq!(is_cached(&mut memo, &head), expected, "{lines}");
        }
    }
}
