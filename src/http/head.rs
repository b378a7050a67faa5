//! A complete request head as borrowed views.
//!
//! httparse reads the fields once, one pass over them keeps what an engine asks for, and the
//! rules of RFC 9112 that httparse leaves to its caller are applied on top. A [`Head`] that
//! exists is valid: one Host, one framing, a clean path. Nothing is copied or allocated.

use httparse::{EMPTY_HEADER, Header, Status};

use super::framing::{self, Body};
use super::line::{self, Line};
use super::target::{self, Target, TargetForm};
use super::{Fields, HeadLimits, Method, Reject, Version, authority, fields, scan};

/// No head has more fields than this, whatever `HeadLimits::fields_max` says.
pub const FIELDS_CEILING: usize = 128;

/// Fields for which the first attempt has room; clearing more slots costs time on every head.
const FIELDS_TYPICAL: usize = 24;

/// A valid request head. Named values are the first of their name, without outer white space.
#[derive(Clone, Debug)]
pub struct Head<'b> {
    /// The method.
    pub method: Method,
    /// The method as it was spelt.
    pub method_text: &'b str,
    /// The path without the query, still percent-encoded, passed by [`super::path::check`];
    /// `*` for the asterisk form, empty for the authority form.
    pub path: &'b str,
    /// What follows the first `?`, still percent-encoded.
    pub query: Option<&'b str>,
    /// The form of the request target.
    pub form: TargetForm,
    /// The version that governs the message.
    pub version: Version,
    /// How the body is delimited.
    pub body: Body,
    /// Whether the connection may serve another request afterwards (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends a body (RFC 9110 §10.1.1).
    pub expect_continue: bool,
    /// Whether `Connection` names `upgrade` (RFC 9110 §7.8).
    pub connection_upgrade: bool,
    /// The authority: of an absolute target, else of Host; `None` on HTTP/1.0 only.
    pub host: Option<&'b str>,
    /// `Accept`
    pub accept: Option<&'b [u8]>,
    /// `A2A-Version`
    pub a2a_version: Option<&'b [u8]>,
    /// `A2A-Extensions`; it may repeat, see [`Head::values`].
    pub a2a_extensions: Option<&'b [u8]>,
    /// `X-A2A-Extensions`; it may repeat, see [`Head::values`].
    pub x_a2a_extensions: Option<&'b [u8]>,
    /// `Authorization`; a second one is refused.
    pub authorization: Option<&'b [u8]>,
    /// `Content-Type`
    pub content_type: Option<&'b [u8]>,
    /// `If-Modified-Since`
    pub if_modified_since: Option<&'b [u8]>,
    /// `If-None-Match`
    pub if_none_match: Option<&'b [u8]>,
    /// `Last-Event-ID`
    pub last_event_id: Option<&'b [u8]>,
    /// `Origin`
    pub origin: Option<&'b [u8]>,
    /// `Sec-WebSocket-Key`
    pub sec_websocket_key: Option<&'b [u8]>,
    /// `Sec-WebSocket-Protocol`
    pub sec_websocket_protocol: Option<&'b [u8]>,
    /// `Sec-WebSocket-Version`
    pub sec_websocket_version: Option<&'b [u8]>,
    /// `Upgrade`
    pub upgrade: Option<&'b [u8]>,
    /// `X-API-Key`
    pub x_api_key: Option<&'b [u8]>,
    /// `X-Forwarded-For`
    pub x_forwarded_for: Option<&'b [u8]>,
    /// `X-Forwarded-Host`
    pub x_forwarded_host: Option<&'b [u8]>,
    /// `X-Forwarded-Prefix`
    pub x_forwarded_prefix: Option<&'b [u8]>,
    /// `X-Forwarded-Proto`
    pub x_forwarded_proto: Option<&'b [u8]>,
    section: &'b [u8],
}

impl<'b> Head<'b> {
    /// All fields in their order.
    pub fn fields(&self) -> Fields<'b> {
        Fields { section: self.section }
    }

    /// Every value of the fields called `name`, in their order.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        self.fields().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Parses the head that [`super::find_head`] measured: `buf[..head_len]`.
///
/// Line ends and control bytes were judged there and are not judged again here.
///
/// # Errors
/// Any [`Reject`] but those of chunked bodies.
pub fn parse_head<'b>(head: &'b [u8], limits: &HeadLimits) -> Result<Head<'b>, Reject> {
    let start = scan::skip_empty_lines(head)?.ok_or(Reject::RequestLine)?;
    let line_end = scan::next_control(head, start);
    let line = line::parse(&head[start..line_end], limits)?;
    let target = target::parse(line.method, line.target, limits)?;
    let section = head.get(line_end + 2..).ok_or(Reject::RequestLine)?;
    // The final CRLF belongs to no field line; `parse_fields` proves that it is there.
    let lines = &section[..section.len().saturating_sub(2)];
    let mut out = Head::begin(&line, &target, lines);
    let mut pass = Pass::default();
    let fields_max = limits.fields_max.min(FIELDS_CEILING);
    let mut few = [EMPTY_HEADER; FIELDS_TYPICAL];
    let slots = fields_max.min(FIELDS_TYPICAL);
    match parse_fields(section, &mut few[..slots]) {
        Ok(fields) => take_all(&mut out, &mut pass, fields)?,
        Err(Reject::TooManyFields) if slots < fields_max => {
            let mut many = [EMPTY_HEADER; FIELDS_CEILING];
            let fields = parse_fields(section, &mut many[..fields_max])?;
            take_all(&mut out, &mut pass, fields)?;
        }
        Err(reject) => return Err(reject),
    }
    pass.finish(&mut out, target.authority, limits)?;
    Ok(out)
}

/// Lets httparse cut the fields, and says in our words what it refused.
fn parse_fields<'b, 's>(
    section: &'b [u8],
    slots: &'s mut [Header<'b>],
) -> Result<&'s [Header<'b>], Reject> {
    match httparse::parse_headers(section, slots) {
        Ok(Status::Complete((len, fields))) if len == section.len() => Ok(fields),
        Ok(_) => Err(Reject::FieldName),
        Err(httparse::Error::TooManyHeaders) => Err(Reject::TooManyFields),
        Err(httparse::Error::HeaderValue) => Err(Reject::FieldValue),
        // RFC 9112 §5.2: a server MUST refuse obs-fold or replace it; we refuse.
        Err(_) if section.split(|&b| b == b'\n').any(|l| matches!(l, [b' ' | b'\t', ..])) => {
            Err(Reject::FieldFolded)
        }
        // RFC 9112 §5.1: no white space between name and colon.
        Err(_) => Err(Reject::FieldName),
    }
}

fn take_all<'b>(
    out: &mut Head<'b>,
    pass: &mut Pass<'b>,
    fields: &[Header<'b>],
) -> Result<(), Reject> {
    fields.iter().try_for_each(|field| pass.take(out, field.name.as_bytes(), field.value))
}

/// What the pass over the fields remembers for the rules that need several fields.
#[derive(Default)]
struct Pass<'b> {
    host: Option<&'b [u8]>,
    content_length: Option<&'b [u8]>,
    transfer_encoding: Option<&'b [u8]>,
    close: bool,
    persist: bool,
    expects: bool,
}

impl<'b> Pass<'b> {
    /// Files one field: a switch on length and first byte, then one comparison.
    fn take(&mut self, out: &mut Head<'b>, name: &[u8], value: &'b [u8]) -> Result<(), Reject> {
        let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
        let slot = match (name.len(), name.first().map(u8::to_ascii_lowercase)) {
            (4, Some(b'h')) if is("host") => {
                return once(&mut self.host, value, Reject::HostRepeated);
            }
            (14, Some(b'c')) if is("content-length") => {
                return once(&mut self.content_length, value, Reject::LengthRepeated);
            }
            (17, Some(b't')) if is("transfer-encoding") => {
                return once(&mut self.transfer_encoding, value, Reject::EncodingRepeated);
            }
            (13, Some(b'a')) if is("authorization") => {
                return once(&mut out.authorization, value, Reject::FieldRepeated);
            }
            (10, Some(b'c')) if is("connection") => {
                self.connection(out, value);
                return Ok(());
            }
            (6, Some(b'e')) if is("expect") => return self.expect(out.version, value),
            (6, Some(b'a')) if is("accept") => &mut out.accept,
            (6, Some(b'o')) if is("origin") => &mut out.origin,
            (7, Some(b'u')) if is("upgrade") => &mut out.upgrade,
            (9, Some(b'x')) if is("x-api-key") => &mut out.x_api_key,
            (11, Some(b'a')) if is("a2a-version") => &mut out.a2a_version,
            (12, Some(b'c')) if is("content-type") => &mut out.content_type,
            (13, Some(b'i')) if is("if-none-match") => &mut out.if_none_match,
            (13, Some(b'l')) if is("last-event-id") => &mut out.last_event_id,
            (14, Some(b'a')) if is("a2a-extensions") => &mut out.a2a_extensions,
            (15, Some(b'x')) if is("x-forwarded-for") => &mut out.x_forwarded_for,
            (16, Some(b'x')) if is("x-a2a-extensions") => &mut out.x_a2a_extensions,
            (16, Some(b'x')) if is("x-forwarded-host") => &mut out.x_forwarded_host,
            (17, Some(b'i')) if is("if-modified-since") => &mut out.if_modified_since,
            (17, Some(b's')) if is("sec-websocket-key") => &mut out.sec_websocket_key,
            (17, Some(b'x')) if is("x-forwarded-proto") => &mut out.x_forwarded_proto,
            (18, Some(b'x')) if is("x-forwarded-prefix") => &mut out.x_forwarded_prefix,
            (21, Some(b's')) if is("sec-websocket-version") => &mut out.sec_websocket_version,
            (22, Some(b's')) if is("sec-websocket-protocol") => &mut out.sec_websocket_protocol,
            _ => return Ok(()),
        };
        slot.get_or_insert(value);
        Ok(())
    }

    /// RFC 9110 §7.6.1: a list of case-insensitive tokens, over any number of lines.
    fn connection(&mut self, out: &mut Head<'b>, value: &[u8]) {
        for option in fields::list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.persist |= option.eq_ignore_ascii_case(b"keep-alive");
            out.connection_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    /// RFC 9110 §10.1.1: 417 for what we cannot meet; HTTP/1.0 knows no expectations.
    fn expect(&mut self, version: Version, value: &[u8]) -> Result<(), Reject> {
        if version == Version::Http11 && !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Reject::ExpectationUnknown);
        }
        self.expects = version == Version::Http11;
        Ok(())
    }

    /// Applies the rules that need the whole head.
    fn finish(
        self,
        out: &mut Head<'b>,
        authority: Option<&'b str>,
        limits: &HeadLimits,
    ) -> Result<(), Reject> {
        out.host = match self.host {
            Some(host) => Some(valid_host(host)?),
            // RFC 9112 §3.2: 400 to any HTTP/1.1 request that lacks a Host field.
            None if out.version == Version::Http11 => return Err(Reject::HostMissing),
            None => None,
        };
        // RFC 9112 §3.2.2: the authority of an absolute target replaces Host.
        out.host = authority.or(out.host);
        out.body = framing::body(
            out.version,
            self.transfer_encoding,
            self.content_length,
            limits.body_bytes_max,
        )?;
        // RFC 9112 §9.3: close wins; then 1.1 persists, and 1.0 only if it asks.
        out.keep_alive = !self.close && (out.version == Version::Http11 || self.persist);
        out.expect_continue = self.expects && out.body.is_expected();
        Ok(())
    }
}

fn once<'b>(slot: &mut Option<&'b [u8]>, value: &'b [u8], repeated: Reject) -> Result<(), Reject> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(repeated),
    }
}

fn valid_host(host: &[u8]) -> Result<&str, Reject> {
    std::str::from_utf8(host)
        .ok()
        .filter(|host| authority::is_valid(host))
        .ok_or(Reject::HostInvalid)
}

impl<'b> Head<'b> {
    /// The head as far as the request line tells it.
    fn begin(line: &Line<'b>, target: &Target<'b>, section: &'b [u8]) -> Self {
        Head {
            method: line.method,
            method_text: line.method_text,
            path: target.path,
            query: target.query,
            form: target.form,
            version: line.version,
            body: Body::None,
            keep_alive: false,
            expect_continue: false,
            connection_upgrade: false,
            host: None,
            accept: None,
            a2a_version: None,
            a2a_extensions: None,
            x_a2a_extensions: None,
            authorization: None,
            content_type: None,
            if_modified_since: None,
            if_none_match: None,
            last_event_id: None,
            origin: None,
            sec_websocket_key: None,
            sec_websocket_protocol: None,
            sec_websocket_version: None,
            upgrade: None,
            x_api_key: None,
            x_forwarded_for: None,
            x_forwarded_host: None,
            x_forwarded_prefix: None,
            x_forwarded_proto: None,
            section,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::TEST_LIMITS as LIMITS;

    fn with(fields: &str) -> String {
        format!("POST /a?b HTTP/1.1\r\nHost: a:1\r\n{fields}\r\n")
    }

    fn parse(text: &str) -> Result<Head<'_>, Reject> {
        parse_head(text.as_bytes(), &LIMITS)
    }

    fn refusal(fields: &str) -> Option<Reject> {
        parse(&with(fields)).err()
    }

    #[test]
    fn every_named_field_is_found_in_any_case() -> Result<(), Reject> {
        type Named = for<'h, 'b> fn(&'h Head<'b>) -> Option<&'b [u8]>;
        let named: [(&str, Named); 19] = [
            ("Accept", |h| h.accept),
            ("A2A-Version", |h| h.a2a_version),
            ("A2A-Extensions", |h| h.a2a_extensions),
            ("X-A2A-Extensions", |h| h.x_a2a_extensions),
            ("Authorization", |h| h.authorization),
            ("Content-Type", |h| h.content_type),
            ("If-Modified-Since", |h| h.if_modified_since),
            ("If-None-Match", |h| h.if_none_match),
            ("Last-Event-ID", |h| h.last_event_id),
            ("Origin", |h| h.origin),
            ("Sec-WebSocket-Key", |h| h.sec_websocket_key),
            ("Sec-WebSocket-Protocol", |h| h.sec_websocket_protocol),
            ("Sec-WebSocket-Version", |h| h.sec_websocket_version),
            ("Upgrade", |h| h.upgrade),
            ("X-API-Key", |h| h.x_api_key),
            ("X-Forwarded-For", |h| h.x_forwarded_for),
            ("X-Forwarded-Host", |h| h.x_forwarded_host),
            ("X-Forwarded-Prefix", |h| h.x_forwarded_prefix),
            ("X-Forwarded-Proto", |h| h.x_forwarded_proto),
        ];
        for (name, value) in named {
            for name in [name.to_string(), name.to_uppercase(), name.to_lowercase()] {
                let text = with(&format!("{name}: \tv w \r\n"));
                let head = parse(&text)?;
                assert_eq!(value(&head), Some(&b"v w"[..]), "{name}");
                let hits = named.iter().filter(|(_, other)| other(&head).is_some()).count();
                assert_eq!(hits, 1, "{name} is filed once");
            }
        }
        Ok(())
    }

    #[test]
    fn the_first_value_is_named_and_all_can_be_walked() -> Result<(), Reject> {
        let text = with("A2A-Extensions: x\r\nB: c\r\na2a-extensions: y\r\n");
        let head = parse(&text)?;
        assert_eq!(head.a2a_extensions, Some(&b"x"[..]));
        assert_eq!(head.values("A2A-Extensions").collect::<Vec<_>>(), [b"x", b"y"]);
        let names: Vec<_> = head.fields().map(|(name, _)| name).collect();
        assert_eq!(names, ["Host", "A2A-Extensions", "B", "a2a-extensions"]);
        Ok(())
    }

    #[test]
    fn rfc9112_3_2_host() {
        let get = |fields: &str| {
            parse(&format!("GET / HTTP/1.1\r\n{fields}\r\n")).map(|h| h.host.map(str::to_string))
        };
        assert_eq!(get("Host: a:1\r\n"), Ok(Some("a:1".to_string())));
        assert_eq!(get(""), Err(Reject::HostMissing));
        assert_eq!(get("Host: \r\n"), Err(Reject::HostInvalid));
        assert_eq!(get("Host: a\r\nhOST: a\r\n"), Err(Reject::HostRepeated));
        assert_eq!(parse("GET / HTTP/1.0\r\n\r\n").map(|h| h.host), Ok(None));
        // RFC 9112 §3.2.2: the target's authority wins.
        let absolute = "GET http://t/ HTTP/1.1\r\nHost: h\r\n\r\n";
        assert_eq!(parse(absolute).map(|h| h.host), Ok(Some("t")));
    }

    #[test]
    fn rfc9112_9_3_persistence() {
        let keeps = |version: &str, fields: &str| {
            parse(&format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n")).map(|h| h.keep_alive)
        };
        assert_eq!(keeps("1.1", ""), Ok(true));
        assert_eq!(keeps("1.1", "Connection: x, Close\r\n"), Ok(false));
        assert_eq!(keeps("1.1", "Connection: keep-alive\r\nConnection: close\r\n"), Ok(false));
        assert_eq!(keeps("1.0", ""), Ok(false));
        assert_eq!(keeps("1.0", "Connection: Keep-Alive\r\n"), Ok(true));
        assert_eq!(keeps("1.0", "Connection: keep-alive, close\r\n"), Ok(false));
    }

    #[test]
    fn rfc9110_10_1_1_expectations() {
        let waits = |fields: &str| parse(&with(fields)).map(|h| h.expect_continue);
        assert_eq!(waits("Expect: 100-Continue\r\nContent-Length: 1\r\n"), Ok(true));
        assert_eq!(waits("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"), Ok(true));
        assert_eq!(waits("Expect: 100-continue\r\nContent-Length: 0\r\n"), Ok(false));
        assert_eq!(waits("Expect: 100-continue\r\n"), Ok(false));
        assert_eq!(waits("Expect: more\r\n"), Err(Reject::ExpectationUnknown));
        let old = "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
        assert_eq!(parse(old).map(|h| h.expect_continue), Ok(false));
    }

    #[test]
    fn rfc9110_7_8_upgrade() {
        let upgrades = |fields: &str| parse(&with(fields)).map(|h| h.connection_upgrade);
        assert_eq!(upgrades("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"), Ok(true));
        assert_eq!(upgrades("Upgrade: websocket\r\n"), Ok(false));
    }

    #[test]
    fn rfc9112_5_field_lines() {
        assert_eq!(refusal("X : y\r\n"), Some(Reject::FieldName));
        assert_eq!(refusal("X\r\n"), Some(Reject::FieldName));
        assert_eq!(refusal("X: a\x7fb\r\n"), Some(Reject::FieldValue));
        assert_eq!(refusal("X: a\r\n b\r\n"), Some(Reject::FieldFolded));
        assert_eq!(
            refusal("Authorization: a\r\nauthorization: b\r\n"),
            Some(Reject::FieldRepeated)
        );
        assert_eq!(refusal("X: y\r\n\r\nZ: z\r\n"), Some(Reject::FieldName));
    }

    #[test]
    fn fields_are_counted_exactly() {
        for fields_max in [1, 2, FIELDS_TYPICAL, FIELDS_TYPICAL + 1, 100, FIELDS_CEILING] {
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
    fn a_head_that_nobody_measured_is_no_crash() {
        let text = with("X: y\r\n");
        for len in 0..text.len() {
            assert!(parse(&text[..len]).is_err(), "{len}");
        }
    }
}
