//! A complete request head as borrowed views.
//!
//! A [`HeadLayout`] has the positions and meanings of a head's parts; a [`Head`] reads the parts
//! from the bytes. Both exist only for valid heads: exactly one Host (optional in HTTP/1.0),
//! unambiguous framing, a clean path. A layout borrows nothing, so it can be reused for the next
//! head.

use super::{BodyFraming, HeadFields, Method, TargetForm, Version};

/// The largest possible head in bytes, regardless of `HeadLimits::head_bytes_max`.
pub const HEAD_BYTES_CEILING: usize = u16::MAX as usize;

/// The fields that a layout records by name. Fields that determine framing or the connection are
/// recorded separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `Accept`
    Accept,
    /// `A2A-Hops`; it may repeat, see [`Head::values`].
    A2aHops,
    /// `A2A-Version`
    A2aVersion,
    /// `A2A-Last-Event-ID` of gRPC
    A2aLastEventId,
    /// `A2A-Tenant` of gRPC
    A2aTenant,
    /// `A2A-Extensions`; it may repeat, see [`Head::values`].
    A2aExtensions,
    /// `X-A2A-Extensions`; it may repeat, see [`Head::values`].
    XA2aExtensions,
    /// `Authorization`; a second one is refused.
    Authorization,
    /// `Content-Encoding`; it may repeat, see [`ContentCoding::of`](super::ContentCoding::of).
    ContentEncoding,
    /// `Content-Type`
    ContentType,
    /// `grpc-accept-encoding`
    GrpcAcceptEncoding,
    /// `grpc-timeout`
    GrpcTimeout,
    /// `Idempotency-Key`
    IdempotencyKey,
    /// `If-Modified-Since`
    IfModifiedSince,
    /// `If-None-Match`
    IfNoneMatch,
    /// `Last-Event-ID`
    LastEventId,
    /// `Origin`; a second one is refused.
    Origin,
    /// `Prefer`; it may repeat, see [`Head::values`].
    Prefer,
    /// `Request-Timeout`
    RequestTimeout,
    /// `Sec-WebSocket-Key`
    SecWebSocketKey,
    /// `Sec-WebSocket-Protocol`
    SecWebSocketProtocol,
    /// `Sec-WebSocket-Version`
    SecWebSocketVersion,
    /// `Upgrade`
    Upgrade,
    /// `Via`; it may repeat, see [`Head::values`].
    Via,
    /// `X-API-Key`; a second one is refused.
    XApiKey,
    /// `X-Forwarded-For`
    XForwardedFor,
    /// `X-Forwarded-Host`
    XForwardedHost,
    /// `X-Forwarded-Port`
    XForwardedPort,
    /// `X-Forwarded-Prefix`
    XForwardedPrefix,
    /// `X-Forwarded-Proto`
    XForwardedProto,
}

impl Field {
    /// Fields with conditions of a call, which most requests do not have.
    const TERMS: [Field; 5] =
        [Field::A2aHops, Field::IdempotencyKey, Field::Prefer, Field::RequestTimeout, Field::Via];

    /// Whether the field is one of [`Field::TERMS`].
    pub(super) fn is_term(self) -> bool {
        Field::TERMS.contains(&self)
    }
}

/// The number of variants of [`Field`].
const FIELD_COUNT: usize = Field::XForwardedProto as usize + 1;

/// Bytes `start..end` of a head; `start > end` means that the part is absent, which differs from an
/// empty value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    start: u16,
    end: u16,
}

impl Span {
    pub(super) const ABSENT: Span = Span { start: u16::MAX, end: 0 };

    /// The caller guarantees that both offsets are at most [`HEAD_BYTES_CEILING`].
    pub(super) fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end <= HEAD_BYTES_CEILING);
        Span { start: start as u16, end: end as u16 }
    }

    /// The span of the same bytes, with offsets that begin `base` bytes earlier.
    pub(super) fn offset_by(self, base: usize) -> Span {
        if self.is_absent() {
            return self;
        }
        Span::new(usize::from(self.start) + base, usize::from(self.end) + base)
    }

    /// The span after all bytes at or after `from` have moved by `by` bytes.
    #[inline(always)]
    fn moved(self, from: u16, by: u16) -> Span {
        // The start of ABSENT is above every valid offset, and does not change.
        let is_moved = |at: u16| at.wrapping_sub(from) < u16::MAX - from;
        let at = |at: u16| at.wrapping_add(if is_moved(at) { by } else { 0 });
        Span { start: at(self.start), end: at(self.end) }
    }

    pub(super) fn len(self) -> usize {
        self.end.saturating_sub(self.start).into()
    }

    pub(super) fn is_absent(self) -> bool {
        self.start > self.end
    }

    /// The offsets, unless the span is absent.
    pub(super) fn range(self) -> Option<std::ops::Range<usize>> {
        (!self.is_absent()).then(|| self.start.into()..self.end.into())
    }

    pub(super) fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        bytes.get(self.start.into()..self.end.into())
    }
}

/// The contents of a valid head, and their positions; read the head through [`HeadLayout::head`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLayout {
    pub(super) method: Method,
    pub(super) form: TargetForm,
    pub(super) version: Version,
    pub(super) keep_alive: bool,
    pub(super) expects: bool,
    pub(super) connection_upgrade: bool,
    pub(super) has_known_hosts: bool,
    /// True: one of [`Field::TERMS`] is present.
    pub(super) has_terms: bool,
    pub(super) head_len: u16,
    pub(super) body: BodyFraming,
    pub(super) method_text: Span,
    pub(super) path: Span,
    pub(super) query: Span,
    pub(super) host: Span,
    /// The digits of Content-Length.
    pub(super) length: Span,
    /// The field lines, each with its CRLF.
    pub(super) section: Span,
    pub(super) named: [Span; FIELD_COUNT],
}

impl HeadLayout {
    /// A layout of which only the request line is known.
    pub(super) const fn begin(method: Method, version: Version, form: TargetForm) -> HeadLayout {
        HeadLayout {
            method,
            form,
            version,
            keep_alive: false,
            expects: false,
            connection_upgrade: false,
            has_known_hosts: false,
            has_terms: false,
            head_len: 0,
            body: BodyFraming::None,
            method_text: Span::ABSENT,
            path: Span::ABSENT,
            query: Span::ABSENT,
            host: Span::ABSENT,
            length: Span::ABSENT,
            section: Span::ABSENT,
            named: [Span::ABSENT; FIELD_COUNT],
        }
    }

    /// Replaces `was` bytes at `at` by `now` bytes; spans of the replaced bytes become meaningless.
    /// False: offsets would overflow, and nothing has changed.
    #[inline]
    pub(super) fn make_room(&mut self, at: usize, was: usize, now: usize) -> bool {
        if now == was {
            return true;
        }
        let head_len = usize::from(self.head_len) + now - was;
        if head_len > HEAD_BYTES_CEILING {
            return false;
        }
        self.head_len = head_len as u16;
        let (from, by) = ((at + was) as u16, (now as u16).wrapping_sub(was as u16));
        self.path = self.path.moved(from, by);
        self.query = self.query.moved(from, by);
        self.host = self.host.moved(from, by);
        self.length = self.length.moved(from, by);
        self.section = self.section.moved(from, by);
        for span in &mut self.named {
            *span = span.moved(from, by);
        }
        true
    }

    /// Bytes of the head, including leading empty lines and the final empty line.
    pub fn head_len(&self) -> usize {
        self.head_len.into()
    }

    /// Whether the server has the hosts that the head names: the result that
    /// [`super::HeadMemo::read`] received when it parsed the head.
    pub fn has_known_hosts(&self) -> bool {
        self.has_known_hosts
    }

    /// Reads the head at the start of `bytes`, which must be the bytes of this layout. With other
    /// bytes the result is meaningless, but nothing panics.
    pub fn head<'b>(&'b self, bytes: &'b [u8]) -> Head<'b> {
        Head { bytes, layout: self }
    }
}

/// A valid request head.
#[derive(Clone, Copy, Debug)]
pub struct Head<'b> {
    bytes: &'b [u8],
    layout: &'b HeadLayout,
}

impl<'b> Head<'b> {
    /// Whether a field with conditions of the call is present: an idempotency key, a time for the
    /// answer, or the hops.
    #[inline(always)]
    pub fn has_terms(&self) -> bool {
        self.layout.has_terms
    }

    /// Bytes of the head.
    pub fn head_len(&self) -> usize {
        self.layout.head_len()
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.layout.method
    }

    /// The method as the client wrote it.
    #[cfg(feature = "internals")]
    pub fn method_text(&self) -> &'b str {
        self.text(self.layout.method_text).unwrap_or_default()
    }

    /// The path without the query, still percent-encoded; [`super::path::check`] has accepted it.
    /// `*` in asterisk form, empty in authority form.
    pub fn path(&self) -> &'b str {
        let path = self.layout.path;
        // Fast path: most paths are `/`.
        if path.of(self.bytes) == Some(b"/") {
            return "/";
        }
        match self.text(path) {
            // RFC 9110 §4.2.3: an empty path is the same as "/".
            None | Some("") if self.layout.form != TargetForm::Authority => "/",
            path => path.unwrap_or_default(),
        }
    }

    /// The path as bytes; empty if [`Head::path`] is empty, or is `/` because the target has no
    /// path.
    pub fn path_bytes(&self) -> &'b [u8] {
        self.layout.path.of(self.bytes).unwrap_or_default()
    }

    /// The text after the first `?`, still percent-encoded.
    pub fn query(&self) -> Option<&'b str> {
        self.text(self.layout.query)
    }

    /// The form of the request target.
    pub fn form(&self) -> TargetForm {
        self.layout.form
    }

    /// The version that governs the message.
    pub fn version(&self) -> Version {
        self.layout.version
    }

    /// How the body is delimited.
    pub fn body(&self) -> BodyFraming {
        self.layout.body
    }

    /// Whether the connection may be used for another request (RFC 9112 §9.3).
    pub fn keep_alive(&self) -> bool {
        self.layout.keep_alive
    }

    /// Whether the client waits for `100 Continue` before it sends a body (RFC 9110 §10.1.1).
    pub fn expect_continue(&self) -> bool {
        self.layout.expects && self.layout.body.is_expected()
    }

    /// Whether `Connection` names `upgrade` (RFC 9110 §7.8).
    pub fn connection_upgrade(&self) -> bool {
        self.layout.connection_upgrade
    }

    /// The authority of an absolute target, or else of Host; `None` only in HTTP/1.0.
    pub fn host(&self) -> Option<&'b str> {
        self.text(self.layout.host)
    }

    /// The same authority as bytes, which are ASCII.
    pub fn host_bytes(&self) -> Option<&'b [u8]> {
        self.layout.host.of(self.bytes)
    }

    /// The value of the first field of this name, without outer white space.
    pub fn value(&self, field: Field) -> Option<&'b [u8]> {
        self.layout.named[field as usize].of(self.bytes)
    }

    /// Whether the content has a coding (RFC 9110 §8.4), which may be `identity`.
    #[inline(always)]
    pub fn is_coded(&self) -> bool {
        !self.layout.named[Field::ContentEncoding as usize].is_absent()
    }

    /// All fields in order.
    pub fn fields(&self) -> HeadFields<'b> {
        HeadFields { section: self.layout.section.of(self.bytes).unwrap_or_default() }
    }

    /// Every value of the fields with this name, in order.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        self.fields().values(name)
    }

    fn text(&self, span: Span) -> Option<&'b str> {
        std::str::from_utf8(span.of(self.bytes)?).ok()
    }
}
