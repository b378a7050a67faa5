//! A head that another library has parsed: its parts are checked and recorded as in HTTP/1.1.
//!
//! Invariant: a head in parts is refused for the same reason as the same head in HTTP/1.1, except
//! for errors that only the syntax of HTTP/1.1 can have. Fields of a connection have no meaning
//! here (RFC 9113 §8.2.2) and are omitted.

use super::{
    HEAD_BYTES_CEILING, Head, HeadLayout, HeadLimits, HeadMemo, Method, Reject, TargetForm,
    Version,
    head::{Field, Span},
    kept_parts::{PartLine, PartsKey},
    line,
    parse::{FIELDS_CEILING, KnownField, Pass, known},
    scan,
    secret::wipe,
    target,
};

/// The head of a request, in parts.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'r, F> {
    /// The method.
    pub method: &'r [u8],
    /// Path and query, or `*`: the target in origin form or asterisk form.
    pub target: &'r [u8],
    /// `:authority` of HTTP/2, which replaces `Host` (RFC 9113 §8.3.1).
    pub authority: Option<&'r [u8]>,
    /// Names, in any case, and values of the fields, in order.
    pub fields: F,
    /// True: a body follows, possibly an empty one.
    pub has_body: bool,
    /// True: the answer may have trailers, as in HTTP/2.
    pub takes_trailers: bool,
}

/// A valid head, and the bytes from which it is read.
#[derive(Debug)]
pub struct HeadBuf(Box<FiledHead>);

/// A head, or memory for one.
#[derive(Debug)]
pub(super) struct FiledHead {
    pub(super) bytes: Vec<u8>,
    pub(super) layout: HeadLayout,
    /// True: the bytes are wiped after use.
    is_secret: bool,
}

impl HeadBuf {
    /// The head.
    #[inline]
    pub fn head(&self) -> Head<'_> {
        self.0.layout.head(&self.0.bytes)
    }

    /// Records that the head may contain a credential, so that it is wiped after use.
    pub fn hold_secret(&mut self) {
        self.0.is_secret = true;
    }

    /// Whether the server has the hosts that the head names; see [`HeadMemo::read`].
    pub fn has_known_hosts(&self) -> bool {
        self.0.layout.has_known_hosts()
    }

    /// Bytes on the heap.
    pub fn held_bytes(&self) -> usize {
        size_of::<FiledHead>() + self.0.bytes.capacity()
    }
}

impl FiledHead {
    /// Memory for a head of the usual size.
    #[cold]
    fn room() -> Box<FiledHead> {
        let layout = HeadLayout::begin(Method::Other, Version::Http11, TargetForm::Origin);
        let bytes = Vec::with_capacity(BYTES_TYPICAL);
        Box::new(FiledHead { bytes, layout, is_secret: false })
    }
}

impl Drop for FiledHead {
    fn drop(&mut self) {
        if self.is_secret {
            wipe(&mut self.bytes);
        }
    }
}

/// Why a head in parts is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartsReject {
    /// The reason for the same head in HTTP/1.1.
    pub reject: Reject,
    /// The `Content-Type`, if it was read: a gRPC client is answered in gRPC.
    pub content_type: Option<Box<[u8]>>,
    /// The `Origin`, if it was read: a browser's page may be allowed to read the answer.
    pub origin: Option<Box<[u8]>>,
}

impl From<Reject> for PartsReject {
    fn from(reject: Reject) -> PartsReject {
        PartsReject { reject, content_type: None, origin: None }
    }
}

/// Initial capacity for a head, in bytes.
const BYTES_TYPICAL: usize = 512;

/// Bytes of an HTTP/1.1 request line in addition to method and target; they count as if they were
/// present.
const LINE_BYTES: usize = " ".len() + line::VERSION_BYTES + END.len();

/// The separator between a field's name and its value, and the end of each line and of the head.
const SEPARATOR: &[u8] = b": ";
const END: &[u8] = b"\r\n";

impl HeadMemo {
    /// Reads a head in parts; `has_known_hosts` is as for [`HeadMemo::read`].
    ///
    /// # Errors As [`find_head`](super::find_head) and [`parse_head`](super::parse_head).
    pub fn read_parts<'r>(
        &mut self,
        parts: RequestParts<'r, impl Iterator<Item = (&'r [u8], &'r [u8])>>,
        has_known_hosts: impl FnOnce(&Head<'_>, bool) -> bool,
    ) -> Result<HeadBuf, PartsReject> {
        let RequestParts { method, target, authority, mut fields, has_body, .. } = parts;
        let key =
            PartsKey { method, target, authority, has_body, fields_min: fields.size_hint().0 };
        let HeadMemo { limits, accepted_host, parts, part_lines, spare_parts, .. } = self;
        let (mut begun, mut differs) = (None, None);
        let mut head = spare_parts.take().unwrap_or_else(FiledHead::room);
        if let Some(cached) = parts.find(key).map(|index| parts.at(index)) {
            // Each field decides whether the head still matches the cached one.
            head.bytes.extend_from_slice(cached.bytes());
            head.layout = *cached.layout();
            let mut index = cached.first_line();
            for (name, value) in fields.by_ref() {
                if !cached.recall(index, name, value, &mut head, limits) {
                    differs = Some((name, value));
                    break;
                }
                index += 1;
            }
            if differs.is_none() && index == cached.lines().len() {
                return Ok(HeadBuf(head));
            }
            head.bytes.truncate(cached.start_of(index));
            begun = Some(&cached.lines()[..index]);
        }
        let fields = differs.into_iter().chain(fields);
        let FiledHead { bytes, layout, .. } = &mut *head;
        let mut section = Section::begin(key, bytes, begun, part_lines, limits)?;
        let filed = file(key, fields, &mut section, accepted_host, limits);
        *layout = filed.map_err(|reject| section.refused(reject))?;
        let is_host_accepted = layout.has_known_hosts;
        layout.has_known_hosts = has_known_hosts(&layout.head(bytes), is_host_accepted);
        if layout.has_known_hosts && !is_host_accepted {
            self.note_host(layout.host.of(bytes).unwrap_or_default());
        }
        self.parts.keep(key, bytes, &self.part_lines, layout);
        Ok(HeadBuf(head))
    }

    /// Stores the memory of a head after use, for the next head.
    pub fn reuse(&mut self, mut head: HeadBuf) {
        if std::mem::take(&mut head.0.is_secret) {
            wipe(&mut head.0.bytes);
        }
        head.0.bytes.clear();
        if head.0.bytes.capacity() <= BYTES_TYPICAL {
            self.spare_parts = Some(head.0);
        }
    }
}

/// Combines the parts and checks them in the order in which a head of HTTP/1.1 is read: all of its
/// bytes, then the target, then the syntax of the fields, then their meaning.
fn file<'r>(
    key: PartsKey<'r>,
    fields: impl Iterator<Item = (&'r [u8], &'r [u8])>,
    section: &mut Section<'_>,
    accepted_host: &[u8],
    limits: &HeadLimits,
) -> Result<HeadLayout, Reject> {
    let PartsKey { method, target, authority, has_body, .. } = key;
    let (target_at, section_at) = (method.len(), method.len() + target.len());
    for (name, value) in fields {
        let known = known(name);
        let is_duplicate = authority.is_some() && matches!(known, Some(KnownField::Host));
        if !(is_connection_field(known) || is_duplicate) {
            section.push(known, name, value)?;
        }
    }
    let Section { bytes, lines, syntax, .. } = &*section;
    if target.is_empty() {
        return Err(Reject::RequestLine);
    }
    if target.len() > limits.target_bytes_max {
        return Err(Reject::TargetTooLong);
    }
    let kind = Method::of(method);
    let target = target::parse(kind, target, limits)?;
    (*syntax)?;
    let mut out = HeadLayout::begin(kind, Version::Http11, target.form);
    // The maximum is that of the layout.
    out.head_len = bytes.len() as u16;
    out.method_text = Span::new(0, target_at);
    out.path = target.path.offset_by(target_at);
    out.query = target.query.offset_by(target_at);
    out.section = Span::new(section_at, bytes.len());
    let mut pass = Pass::new(bytes, out, None);
    pass.take_lines(lines)?;
    if has_body {
        pass.expect_body();
    }
    pass.finish(target.authority.offset_by(target_at), accepted_host, limits)
}

/// Refuses a method or target that is invalid in a request line.
fn check_line(method: &[u8], target: &[u8], limits: &HeadLimits) -> Result<(), Reject> {
    let is_token = |method: &[u8]| method.iter().all(|&byte| line::is_token(byte));
    let looked_at = &method[..method.len().min(limits.method_bytes_max)];
    if method.is_empty() || !is_token(looked_at) {
        return Err(Reject::MethodInvalid);
    }
    if method.len() > limits.method_bytes_max {
        return Err(Reject::MethodTooLong);
    }
    let at = scan::next_control(target, 0);
    let head_bytes_max = limits.head_bytes_max.min(HEAD_BYTES_CEILING);
    let seen = line::bytes_max(limits).min(head_bytes_max.saturating_sub(1));
    match target.get(at) {
        // Bytes after the longest allowed line are not read.
        Some(_) if method.len() + " ".len() + at > seen => Err(Reject::TargetTooLong),
        Some(b'\t') => Err(Reject::RequestLine),
        Some(&byte) => Err(control(byte)),
        None if method.len() + target.len() + LINE_BYTES - END.len() > line::bytes_max(limits) => {
            Err(Reject::TargetTooLong)
        }
        None => Ok(()),
    }
}

fn control(byte: u8) -> Reject {
    match byte {
        b'\n' => Reject::BareLineFeed,
        b'\r' => Reject::BareCarriageReturn,
        _ => Reject::ControlByte,
    }
}

/// Whether a field belongs to the connection: such fields are generated for each connection.
fn is_connection_field(known: Option<KnownField>) -> bool {
    match known {
        Some(
            KnownField::Connection
            | KnownField::TransferEncoding
            | KnownField::Expect
            | KnownField::Named(Field::Upgrade),
        ) => true,
        Some(KnownField::Host | KnownField::ContentLength | KnownField::Named(_)) | None => false,
    }
}

/// The field lines of a head that is being read.
struct Section<'l> {
    /// The lines, after method and target.
    bytes: &'l mut Vec<u8>,
    bytes_max: usize,
    lines: &'l mut Vec<PartLine>,
    /// The number of further fields that are allowed.
    fields_remaining: usize,
    /// The first error in the syntax of a field.
    syntax: Result<(), Reject>,
}

impl<'l> Section<'l> {
    /// Begins a section with the line of the authority, or with lines that are already valid.
    fn begin(
        key: PartsKey<'_>,
        bytes: &'l mut Vec<u8>,
        begun: Option<&[PartLine]>,
        lines: &'l mut Vec<PartLine>,
        limits: &HeadLimits,
    ) -> Result<Section<'l>, Reject> {
        let PartsKey { method, target, authority, .. } = key;
        lines.clear();
        let head_bytes_max = limits.head_bytes_max.min(HEAD_BYTES_CEILING);
        let bytes_max = head_bytes_max.saturating_sub(LINE_BYTES + END.len());
        let (fields_remaining, syntax) = (limits.fields_max.min(FIELDS_CEILING), Ok(()));
        if let Some(begun_lines) = begun {
            lines.extend_from_slice(begun_lines);
            let fields_remaining = fields_remaining - begun_lines.len();
            return Ok(Section { bytes, bytes_max, lines, fields_remaining, syntax });
        }
        check_line(method, target, limits)?;
        if method.len() + target.len() + LINE_BYTES > head_bytes_max {
            return Err(Reject::TargetTooLong);
        }
        bytes.extend_from_slice(method);
        bytes.extend_from_slice(target);
        let mut section = Section { bytes, bytes_max, lines, fields_remaining, syntax };
        if let Some(authority) = authority {
            section.push(Some(KnownField::Host), b"host", authority)?;
        }
        Ok(section)
    }

    /// Creates the error for a refused head.
    #[cold]
    fn refused(&mut self, reject: Reject) -> PartsReject {
        let value = |field: Field| {
            let known = Some(KnownField::Named(field));
            let line = self.lines.iter().find(|line| line.known == known)?;
            Some(line.value.of(self.bytes)?.trim_ascii().into())
        };
        let (content_type, origin) = (value(Field::ContentType), value(Field::Origin));
        wipe(self.bytes);
        PartsReject { reject, content_type, origin }
    }

    fn push(&mut self, known: Option<KnownField>, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        let length = name.len() + SEPARATOR.len() + value.len() + END.len();
        if self.bytes.len() + length > self.bytes_max {
            return Err(Reject::HeadTooLarge);
        }
        let (is_name, is_value) = (is_name(name), scan::value_len(value) == value.len());
        if !(is_name && is_value) {
            check_controls(name)?;
            check_controls(value)?;
        }
        if self.syntax.is_ok() {
            // An invalid field does not count towards the limit of fields.
            self.syntax = match (is_name, is_value, self.fields_remaining.checked_sub(1)) {
                (false, ..) => Err(Reject::FieldName),
                (true, false, _) => Err(Reject::FieldValue),
                (true, true, None) => Err(Reject::TooManyFields),
                (true, true, Some(remaining)) => {
                    self.fields_remaining = remaining;
                    Ok(())
                }
            };
        }
        let start = self.bytes.len();
        let name_span = Span::new(start, start + name.len());
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(SEPARATOR);
        let value_span = Span::new(self.bytes.len(), self.bytes.len() + value.len());
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(END);
        self.lines.push(PartLine::new(known, name_span, value_span));
        Ok(())
    }
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| line::is_token(byte))
}

/// Rejects control bytes. In HTTP/1.1 the scan of the head rejects them before parsing.
#[cold]
fn check_controls(bytes: &[u8]) -> Result<(), Reject> {
    let seen = bytes.iter().find(|byte| **byte < b' ' && **byte != b'\t');
    seen.map_or(Ok(()), |byte| Err(control(*byte)))
}
