//! Parses the bytes of a head into its layout.
//!
//! httparse splits the fields; one pass records the fields that the engine uses, and the rules that
//! need the whole head are applied last. Nothing is copied or allocated.

use httparse::{EMPTY_HEADER, Header, Status};

use super::head::{Field, HEAD_BYTES_CEILING, HeadLayout, Span};
use super::kept_parts::PartLine;
use super::line;
use super::{HeadLimits, Reject, Version, authority, fields, framing, scan, target};

/// Maximum fields of a head, independent of `HeadLimits::fields_max`.
pub const FIELDS_CEILING: usize = 128;

/// Maximum fields in the first attempt; clearing more slots would cost time on every head.
const FIELDS_TYPICAL: usize = 24;

/// Parses the head that [`super::find_head`] measured: `buf[..head_len]`.
///
/// # Errors
/// Any [`Reject`] except those of chunked bodies.
#[cfg(any(test, feature = "internals"))]
pub fn parse_head(head: &[u8], limits: &HeadLimits) -> Result<HeadLayout, Reject> {
    parse_head_of(b"", head, limits, None)
}

/// The name of a field line, and the position of its value without outer white space.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldLine {
    pub(super) known: Option<KnownField>,
    pub(super) value: Span,
}

/// As [`parse_head`], but a host that equals `accepted_host` (empty or valid) is not checked again;
/// the layout records the match. Appends the lines of a valid head to `lines`.
///
/// # Errors As [`parse_head`].
#[inline]
pub(super) fn parse_head_of(
    accepted_host: &[u8],
    head: &[u8],
    limits: &HeadLimits,
    lines: Option<&mut Vec<FieldLine>>,
) -> Result<HeadLayout, Reject> {
    if head.len() > HEAD_BYTES_CEILING {
        return Err(Reject::HeadTooLarge);
    }
    let start = scan::skip_empty_lines(head)?.ok_or(Reject::RequestLine)?;
    let line_end = scan::next_control(head, start);
    let line = line::parse(&head[start..line_end], limits)?;
    let target = target::parse(line.method, line.target, limits)?;
    let target_at = start + line.method_len + 1;
    let mut out = HeadLayout::begin(line.method, line.version, target.form);
    out.head_len = head.len() as u16;
    out.method_text = Span::new(start, start + line.method_len);
    out.path = target.path.offset_by(target_at);
    out.query = target.query.offset_by(target_at);
    let mut pass = Pass::new(head, out, lines);
    pass.fields(line_end + 2, limits.fields_max.min(FIELDS_CEILING))?;
    pass.finish(target.authority.offset_by(target_at), accepted_host, limits)
}

/// The pass over the fields, with the data for rules about several fields.
pub(super) struct Pass<'b, 'l> {
    head: &'b [u8],
    out: HeadLayout,
    lines: Option<&'l mut Vec<FieldLine>>,
    length: Option<&'b [u8]>,
    encoding: Option<&'b [u8]>,
    close: bool,
    persist: bool,
}

impl<'b, 'l> Pass<'b, 'l> {
    /// An empty pass.
    #[inline]
    pub(super) fn new(
        head: &'b [u8],
        out: HeadLayout,
        lines: Option<&'l mut Vec<FieldLine>>,
    ) -> Pass<'b, 'l> {
        let (length, encoding) = (None, None);
        Pass { head, out, lines, length, encoding, close: false, persist: false }
    }

    /// Records lines that are already split.
    pub(super) fn take_lines(&mut self, lines: &[PartLine]) -> Result<(), Reject> {
        lines.iter().try_for_each(|&PartLine { known, value, .. }| match (known, value.range()) {
            (Some(known), Some(value)) => {
                self.take(known, trimmed(self.head, value.start, value.end))
            }
            _ => Ok(()),
        })
    }

    /// Records that a body follows; if its length is unknown, the driver detects its end.
    pub(super) fn expect_body(&mut self) {
        if self.length.is_none() {
            self.encoding = Some(b"chunked");
        }
    }

    /// Records the field lines from `from`, up to the empty line that must end the head.
    fn fields(&mut self, from: usize, fields_max: usize) -> Result<(), Reject> {
        let section = self.head.get(from..).unwrap_or_default();
        let mut few = [EMPTY_HEADER; FIELDS_TYPICAL];
        let slots = fields_max.min(FIELDS_TYPICAL);
        match cut(section, &mut few[..slots]) {
            Ok(fields) => self.take_all(fields)?,
            Err(Reject::TooManyFields) if slots < fields_max => {
                let mut many = [EMPTY_HEADER; FIELDS_CEILING];
                self.take_all(cut(section, &mut many[..fields_max])?)?;
            }
            Err(reject) => return Err(reject),
        }
        self.out.section = Span::new(from, self.head.len().saturating_sub(2));
        Ok(())
    }

    fn take_all(&mut self, fields: &[Header<'_>]) -> Result<(), Reject> {
        let from = self.head.as_ptr().addr();
        let offset = |bytes: &[u8]| bytes.as_ptr().addr() - from;
        for field in fields {
            let known = known(field.name.as_bytes());
            if known.is_none() && self.lines.is_none() {
                continue;
            }
            // An empty value may not point into the head; its position is directly after the colon.
            let start = match field.value {
                [] => offset(field.name.as_bytes()) + field.name.len() + 1,
                value => offset(value),
            };
            let value = trimmed(self.head, start, start + field.value.len());
            if let Some(lines) = &mut self.lines {
                lines.push(FieldLine { known, value });
            }
            if let Some(known) = known {
                self.take(known, value)?;
            }
        }
        Ok(())
    }

    /// Records one field.
    fn take(&mut self, known: KnownField, span: Span) -> Result<(), Reject> {
        let value = span.of(self.head).unwrap_or_default();
        match known {
            KnownField::Host => {
                let is_first = self.out.host.is_absent();
                self.out.host = span;
                if is_first { Ok(()) } else { Err(Reject::HostRepeated) }
            }
            KnownField::ContentLength => {
                self.out.length = span;
                once(&mut self.length, value, Reject::LengthRepeated)
            }
            KnownField::TransferEncoding => {
                once(&mut self.encoding, value, Reject::EncodingRepeated)
            }
            KnownField::Connection => {
                self.connection(value);
                Ok(())
            }
            KnownField::Expect => self.expect(value),
            KnownField::Named(field) => {
                self.out.has_terms |= field.is_term();
                let slot = &mut self.out.named[field as usize];
                if slot.is_absent() {
                    *slot = span;
                } else if matches!(field, Field::Authorization | Field::Origin | Field::XApiKey) {
                    // Two hops could identify two callers, or two pages, for one head.
                    return Err(Reject::FieldRepeated);
                }
                Ok(())
            }
        }
    }

    /// RFC 9110 §7.6.1: a list of case-insensitive tokens, over any number of lines.
    fn connection(&mut self, value: &[u8]) {
        for option in fields::list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.persist |= option.eq_ignore_ascii_case(b"keep-alive");
            self.out.connection_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    /// RFC 9110 §10.1.1: 417 for an expectation that is not supported; HTTP/1.0 has no
    /// expectations.
    fn expect(&mut self, value: &[u8]) -> Result<(), Reject> {
        let is_new = self.out.version == Version::Http11;
        if is_new && !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Reject::ExpectationUnknown);
        }
        self.out.expects = is_new;
        Ok(())
    }

    /// Applies the rules that need the whole head.
    pub(super) fn finish(
        self,
        authority: Span,
        accepted_host: &[u8],
        limits: &HeadLimits,
    ) -> Result<HeadLayout, Reject> {
        let Pass { head, mut out, length, encoding, close, persist, .. } = self;
        match out.host.of(head) {
            Some(host) if !host.is_empty() && host == accepted_host => {
                out.has_known_hosts = authority.is_absent();
            }
            Some(host) if authority::is_valid(host) => {}
            Some(_) => return Err(Reject::HostInvalid),
            // RFC 9112 §3.2: 400 for any HTTP/1.1 request without a Host field.
            None if out.version == Version::Http11 => return Err(Reject::HostMissing),
            None => {}
        }
        // RFC 9112 §3.2.2: the authority of an absolute target replaces Host.
        if !authority.is_absent() {
            out.host = authority;
        }
        out.body = framing::body(out.version, encoding, length, limits.body_bytes_max)?;
        // RFC 9112 §9.3: `close` takes precedence; otherwise 1.1 persists, and 1.0 only with
        // `keep-alive`.
        out.keep_alive = !close && (out.version == Version::Http11 || persist);
        Ok(out)
    }
}

/// The fields that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownField {
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    Expect,
    Named(Field),
}

/// The field of this name: a switch on length and first byte, then one comparison.
#[inline]
pub(super) fn known(name: &[u8]) -> Option<KnownField> {
    let field = match (name.len(), name.first().map(u8::to_ascii_lowercase)?) {
        (3, b'v') if is(name, b"via") => Field::Via,
        (4, b'h') if is(name, b"host") => return Some(KnownField::Host),
        (6, b'e') if is(name, b"expect") => return Some(KnownField::Expect),
        (10, b'c') if is(name, b"connection") => return Some(KnownField::Connection),
        (14, b'c') if is(name, b"content-length") => return Some(KnownField::ContentLength),
        (17, b't') if is(name, b"transfer-encoding") => return Some(KnownField::TransferEncoding),
        (6, b'a') if is(name, b"accept") => Field::Accept,
        (6, b'o') if is(name, b"origin") => Field::Origin,
        (6, b'p') if is(name, b"prefer") => Field::Prefer,
        (7, b'u') if is(name, b"upgrade") => Field::Upgrade,
        (8, b'a') if is(name, b"a2a-hops") => Field::A2aHops,
        (9, b'x') if is(name, b"x-api-key") => Field::XApiKey,
        (10, b'a') if is(name, b"a2a-tenant") => Field::A2aTenant,
        (11, b'a') if is(name, b"a2a-version") => Field::A2aVersion,
        (12, b'c') if is(name, b"content-type") => Field::ContentType,
        (12, b'g') if is(name, b"grpc-timeout") => Field::GrpcTimeout,
        (13, b'a') if is(name, b"authorization") => Field::Authorization,
        (13, b'i') if is(name, b"if-none-match") => Field::IfNoneMatch,
        (13, b'l') if is(name, b"last-event-id") => Field::LastEventId,
        (14, b'a') if is(name, b"a2a-extensions") => Field::A2aExtensions,
        (15, b'i') if is(name, b"idempotency-key") => Field::IdempotencyKey,
        (15, b'r') if is(name, b"request-timeout") => Field::RequestTimeout,
        (15, b'x') if is(name, b"x-forwarded-for") => Field::XForwardedFor,
        (16, b'c') if is(name, b"content-encoding") => Field::ContentEncoding,
        (16, b'x') if is(name, b"x-a2a-extensions") => Field::XA2aExtensions,
        (16, b'x') if is(name, b"x-forwarded-host") => Field::XForwardedHost,
        (16, b'x') if is(name, b"x-forwarded-port") => Field::XForwardedPort,
        (17, b'a') if is(name, b"a2a-last-event-id") => Field::A2aLastEventId,
        (17, b'i') if is(name, b"if-modified-since") => Field::IfModifiedSince,
        (17, b's') if is(name, b"sec-websocket-key") => Field::SecWebSocketKey,
        (17, b'x') if is(name, b"x-forwarded-proto") => Field::XForwardedProto,
        (18, b'x') if is(name, b"x-forwarded-prefix") => Field::XForwardedPrefix,
        (20, b'g') if is(name, b"grpc-accept-encoding") => Field::GrpcAcceptEncoding,
        (21, b's') if is(name, b"sec-websocket-version") => Field::SecWebSocketVersion,
        (22, b's') if is(name, b"sec-websocket-protocol") => Field::SecWebSocketProtocol,
        _ => return None,
    };
    Some(KnownField::Named(field))
}

/// Whether `name` is `lower` in any case, without a branch for each byte.
#[inline(always)]
fn is<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    let case = |byte: u8| if byte.is_ascii_lowercase() { 0x20 } else { 0 };
    let differ = |(a, b): (&u8, &u8)| (a | case(*b)) ^ b;
    name.len() == N && name.iter().zip(lower).map(differ).fold(0, |sum, bits| sum | bits) == 0
}

/// Splits the fields with httparse, and translates its errors.
///
/// Bare CR, bare LF and control bytes were already refused by the scan.
fn cut<'b, 's>(section: &'b [u8], slots: &'s mut [Header<'b>]) -> Result<&'s [Header<'b>], Reject> {
    match httparse::parse_headers(section, slots) {
        Ok(Status::Complete((len, fields))) if len == section.len() => Ok(fields),
        Ok(_) => Err(Reject::FieldName),
        Err(httparse::Error::TooManyHeaders) => Err(Reject::TooManyFields),
        Err(httparse::Error::HeaderValue) => Err(Reject::FieldValue),
        // RFC 9112 §5.2: a server MUST refuse obs-fold or replace it; here it is refused.
        Err(_) if section.split(|&b| b == b'\n').any(|l| matches!(l, [b' ' | b'\t', ..])) => {
            Err(Reject::FieldFolded)
        }
        // RFC 9112 §5.1: no white space between name and colon.
        Err(_) => Err(Reject::FieldName),
    }
}

/// The span `start..end` of `head` without optional white space at both ends (RFC 9110 §5.6.3).
/// Only white space results in an empty value at its start.
pub(super) fn trimmed(head: &[u8], mut start: usize, mut end: usize) -> Span {
    let is_blank = |at: usize| matches!(head.get(at), Some(b' ' | b'\t'));
    while start < end && is_blank(end - 1) {
        end -= 1;
    }
    while start < end && is_blank(start) {
        start += 1;
    }
    Span::new(start, end)
}

fn once<'b>(slot: &mut Option<&'b [u8]>, value: &'b [u8], repeated: Reject) -> Result<(), Reject> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(repeated),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Head, TEST_LIMITS as LIMITS};

    fn with(fields: &str) -> String {
        format!("POST /a?b HTTP/1.1\r\nHost: a:1\r\n{fields}\r\n")
    }

    /// The result of `view` for the head.
    fn parse<T>(text: &str, view: impl Fn(Head<'_>) -> T) -> Result<T, Reject> {
        parse_head(text.as_bytes(), &LIMITS).map(|layout| view(layout.head(text.as_bytes())))
    }

    fn refusal(fields: &str) -> Option<Reject> {
        parse(&with(fields), |_| ()).err()
    }

    #[test]
    fn every_named_field_is_found_in_any_case() {
        let named = [
            ("Accept", Field::Accept),
            ("A2A-Version", Field::A2aVersion),
            ("A2A-Last-Event-ID", Field::A2aLastEventId),
            ("A2A-Tenant", Field::A2aTenant),
            ("grpc-accept-encoding", Field::GrpcAcceptEncoding),
            ("grpc-timeout", Field::GrpcTimeout),
            ("A2A-Extensions", Field::A2aExtensions),
            ("X-A2A-Extensions", Field::XA2aExtensions),
            ("Authorization", Field::Authorization),
            ("Content-Encoding", Field::ContentEncoding),
            ("Content-Type", Field::ContentType),
            ("If-Modified-Since", Field::IfModifiedSince),
            ("If-None-Match", Field::IfNoneMatch),
            ("Last-Event-ID", Field::LastEventId),
            ("Origin", Field::Origin),
            ("Sec-WebSocket-Key", Field::SecWebSocketKey),
            ("Sec-WebSocket-Protocol", Field::SecWebSocketProtocol),
            ("Sec-WebSocket-Version", Field::SecWebSocketVersion),
            ("Upgrade", Field::Upgrade),
            ("X-API-Key", Field::XApiKey),
            ("X-Forwarded-For", Field::XForwardedFor),
            ("X-Forwarded-Host", Field::XForwardedHost),
            ("X-Forwarded-Port", Field::XForwardedPort),
            ("X-Forwarded-Prefix", Field::XForwardedPrefix),
            ("X-Forwarded-Proto", Field::XForwardedProto),
        ];
        for (name, field) in named {
            for name in [name.to_string(), name.to_uppercase(), name.to_lowercase()] {
                let text = with(&format!("{name}: \tv w \r\n"));
                let filed = parse(&text, |head| {
                    assert_eq!(head.value(field), Some(&b"v w"[..]), "{name}");
                    named.iter().filter(|(_, other)| head.value(*other).is_some()).count()
                });
                assert_eq!(filed, Ok(1), "{name} is filed once");
            }
        }
    }

    #[test]
    fn value_returns_first_and_values_returns_all_fields() -> Result<(), Reject> {
        let text = with("A2A-Extensions: x\r\nB: c\r\na2a-extensions: y\r\n");
        let layout = parse_head(text.as_bytes(), &LIMITS)?;
        let head = layout.head(text.as_bytes());
        assert_eq!(head.value(Field::A2aExtensions), Some(&b"x"[..]));
        assert_eq!(head.values("A2A-Extensions").collect::<Vec<_>>(), [b"x", b"y"]);
        let names: Vec<_> = head.fields().map(|(name, _)| name).collect();
        assert_eq!(names, ["Host", "A2A-Extensions", "B", "a2a-extensions"]);
        Ok(())
    }

    #[test]
    fn rfc9112_3_2_http_1_1_requires_one_valid_host() {
        let get = |fields: &str| {
            parse(&format!("GET / HTTP/1.1\r\n{fields}\r\n"), |h| h.host().map(str::to_string))
        };
        assert_eq!(get("Host: a:1\r\n"), Ok(Some("a:1".to_string())));
        assert_eq!(get(""), Err(Reject::HostMissing));
        assert_eq!(get("Host: \r\n"), Err(Reject::HostInvalid));
        assert_eq!(get("Host: a\r\nhOST: a\r\n"), Err(Reject::HostRepeated));
        assert_eq!(parse("GET / HTTP/1.0\r\n\r\n", |h| h.host().is_none()), Ok(true));
        // RFC 9112 §3.2.2: the target's authority takes precedence.
        let absolute = "GET http://t/ HTTP/1.1\r\nHost: h\r\n\r\n";
        assert_eq!(parse(absolute, |h| h.host() == Some("t")), Ok(true));
    }

    #[test]
    fn rfc9112_9_3_keep_alive_follows_version_and_fields() {
        let keeps = |version: &str, fields: &str| {
            let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
            parse(&head, |h| h.keep_alive())
        };
        assert_eq!(keeps("1.1", ""), Ok(true));
        assert_eq!(keeps("1.1", "Connection: x, Close\r\n"), Ok(false));
        assert_eq!(keeps("1.1", "Connection: keep-alive\r\nConnection: close\r\n"), Ok(false));
        assert_eq!(keeps("1.0", ""), Ok(false));
        assert_eq!(keeps("1.0", "Connection: Keep-Alive\r\n"), Ok(true));
        assert_eq!(keeps("1.0", "Connection: keep-alive, close\r\n"), Ok(false));
    }

    #[test]
    fn rfc9110_10_1_1_expect_continue_requires_a_body() {
        let waits = |fields: &str| parse(&with(fields), |h| h.expect_continue());
        assert_eq!(waits("Expect: 100-Continue\r\nContent-Length: 1\r\n"), Ok(true));
        assert_eq!(waits("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"), Ok(true));
        assert_eq!(waits("Expect: 100-continue\r\nContent-Length: 0\r\n"), Ok(false));
        assert_eq!(waits("Expect: 100-continue\r\n"), Ok(false));
        assert_eq!(waits("Expect: more\r\n"), Err(Reject::ExpectationUnknown));
        let old = "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
        assert_eq!(parse(old, |h| h.expect_continue()), Ok(false));
    }

    #[test]
    fn rfc9110_7_8_upgrade_requires_connection_option() {
        let upgrades = |fields: &str| parse(&with(fields), |h| h.connection_upgrade());
        assert_eq!(upgrades("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"), Ok(true));
        assert_eq!(upgrades("Upgrade: websocket\r\n"), Ok(false));
    }

    #[test]
    fn rfc9112_5_invalid_field_lines_are_rejected() {
        assert_eq!(refusal("X : y\r\n"), Some(Reject::FieldName));
        assert_eq!(refusal("X\r\n"), Some(Reject::FieldName));
        assert_eq!(refusal("X: a\x7fb\r\n"), Some(Reject::FieldValue));
        assert_eq!(refusal("X: a\r\n b\r\n"), Some(Reject::FieldFolded));
        assert_eq!(
            refusal("Authorization: a\r\nauthorization: b\r\n"),
            Some(Reject::FieldRepeated)
        );
        assert_eq!(refusal("X-API-Key: a\r\nx-api-key: a\r\n"), Some(Reject::FieldRepeated));
        assert_eq!(
            refusal("Origin: https://a\r\nOrigin: https://a\r\n"),
            Some(Reject::FieldRepeated)
        );
        assert_eq!(refusal("X: y\r\n\r\nZ: z\r\n"), Some(Reject::FieldName));
    }

    #[test]
    fn field_count_limit_is_exact() {
        for fields_max in [1, 2, 24, 100, FIELDS_CEILING] {
            let limits = HeadLimits { fields_max, ..LIMITS };
            let count = |n: usize| with(&"X: y\r\n".repeat(n - 1));
            let fits = count(fields_max);
            assert!(parse_head(fits.as_bytes(), &limits).is_ok(), "{fields_max}");
            let more = count(fields_max + 1);
            let got = parse_head(more.as_bytes(), &limits).err();
            assert_eq!(got, Some(Reject::TooManyFields), "{fields_max}");
        }
    }

    #[test]
    fn rfc9110_4_2_3_an_empty_path_is_a_slash() {
        let path = |target: &str| {
            parse(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), |h| h.path().to_string())
        };
        for (target, want) in [("http://a", "/"), ("http://a?b", "/"), ("/", "/"), ("/a?b", "/a")] {
            assert_eq!(path(target).as_deref(), Ok(want), "{target}");
        }
        let connect = parse("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", |h| h.path().len());
        assert_eq!(connect, Ok(0));
    }

    #[test]
    fn head_beyond_offset_range_is_rejected() {
        let limits = HeadLimits { head_bytes_max: usize::MAX, ..LIMITS };
        let fits = with(&format!("X: {}\r\n", "x".repeat(HEAD_BYTES_CEILING - 38)));
        assert_eq!(fits.len(), HEAD_BYTES_CEILING);
        assert!(parse_head(fits.as_bytes(), &limits).is_ok());
        let long = fits.replace("X: ", "XX: ");
        assert_eq!(parse_head(long.as_bytes(), &limits), Err(Reject::HeadTooLarge));
        assert_eq!(scan::find_head(long.as_bytes(), 0, &limits), Err(Reject::HeadTooLarge));
    }

    #[test]
    fn truncated_head_is_rejected_without_panic() {
        let text = with("X: y\r\n");
        for len in 0..text.len() {
            assert!(parse(&text[..len], |_| ()).is_err(), "{len}");
        }
    }
}
