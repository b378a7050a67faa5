//! One cached head, without the parts that the next head may change.
//!
//! The request line, the names of the fields in their order and a few of their values determine the
//! meaning of a head. These are stored and compared. Every other value is a gap: it is neither
//! stored nor compared, and the next head's value at this position passes the same check as in a
//! new head. So no secret is stored after its request.

use super::head::Field;
use super::parse::{FieldLine, KnownField, trimmed};
use super::{BodyFraming, HeadLayout, HeadLimits, TargetForm, line, scan, target};

/// Maximum bytes of a cached head, without its gaps. Heads of A2A clients have 150 to 500.
pub(super) const TEXT_BYTES_MAX: usize = 1024;

/// A valid head without the contents of its gaps.
#[derive(Debug)]
pub(super) struct CachedHead {
    text: Vec<u8>,
    /// The end of the text before the first gap.
    front_end: usize,
    /// The start of the target, in the text and in the head.
    target_at: usize,
    /// The end of the target in the text.
    target_end: usize,
    /// Bytes of the target in the head.
    target_len: usize,
    /// False: the text does not have the target, because its query may contain a key.
    keeps_target: bool,
    /// True: the text is complete.
    is_whole: bool,
    gaps: Vec<Gap>,
    layout: HeadLayout,
}

/// A part that the next head may change.
#[derive(Debug)]
struct Gap {
    holds: GapKind,
    /// Bytes of the last value.
    len: u16,
    /// The end of the text after the gap, where the next gap begins.
    to: u16,
}

/// The contents of a gap.
#[derive(Clone, Copy, Debug)]
enum GapKind {
    /// The digits of Content-Length, which are stored.
    Length,
    /// A value, and the white space after it.
    Value,
    /// A value that is recorded by its name, and the white space after it.
    Filed(Field),
}

impl CachedHead {
    /// The layout of the cached head.
    pub(super) fn layout(&self) -> &HeadLayout {
        &self.layout
    }

    /// An empty slot; call `keep` before you read it.
    pub(super) const fn new(layout: HeadLayout) -> CachedHead {
        CachedHead {
            text: Vec::new(),
            front_end: 0,
            target_at: 0,
            target_end: 0,
            target_len: 0,
            keeps_target: false,
            is_whole: false,
            gaps: Vec::new(),
            layout,
        }
    }

    /// Whether this head is stored completely, and `buf` begins with it, except for other digits of
    /// Content-Length of the same number. This is the cheapest check.
    #[inline]
    pub(super) fn recall_same(&mut self, buf: &[u8], limits: &HeadLimits) -> bool {
        if !self.is_whole {
            return false;
        }
        let (front, tail) = self.text.split_at(self.front_end);
        let Some(rest) = buf.strip_prefix(front) else { return false };
        rest.starts_with(tail) || self.recall_length(rest, limits)
    }

    /// Whether `buf` begins with this head, except for its gaps and its target. If true, `found` is
    /// the layout of the head in `buf`; otherwise `found` is unspecified.
    pub(super) fn recall(
        &mut self,
        buf: &[u8],
        limits: &HeadLimits,
        found: &mut HeadLayout,
    ) -> bool {
        let has_same_target = self.keeps_target && buf.starts_with(&self.text[..=self.target_end]);
        if self.is_whole && has_same_target {
            let is_same = self.recall_same(buf, limits);
            *found = self.layout;
            return is_same;
        }
        if !has_same_target {
            let at = self.recall_target(buf, limits, found);
            return at.is_some_and(|at| self.recall_gaps(buf, at, limits, found));
        }
        if !buf[self.target_end..].starts_with(&self.text[self.target_end..self.front_end]) {
            return false;
        }
        *found = self.layout;
        self.recall_gaps(buf, self.front_end, limits, found)
    }

    /// Reads the length of a head that differs only in the digits of the length, but not in their
    /// number; `rest` is the text after the front.
    fn recall_length(&mut self, rest: &[u8], limits: &HeadLimits) -> bool {
        let [Gap { len, .. }] = self.gaps[..] else { return false };
        let (cached, cached_tail) = self.text[self.front_end..].split_at_mut(len.into());
        let Some((length, digits)) = length(rest, limits) else { return false };
        if digits != cached.len() || !rest[digits..].starts_with(cached_tail) {
            return false;
        }
        self.layout.body = BodyFraming::Length(length);
        cached.copy_from_slice(&rest[..digits]);
        true
    }

    /// Reads the gaps of a head from `at`, the end of its front, and compares the text between the
    /// gaps.
    fn recall_gaps(
        &self,
        buf: &[u8],
        mut at: usize,
        limits: &HeadLimits,
        found: &mut HeadLayout,
    ) -> bool {
        let mut from = self.front_end;
        for gap in &self.gaps {
            let (value, was) = (&buf[at..], usize::from(gap.len));
            let now = match gap.holds {
                GapKind::Value | GapKind::Filed(_) => scan::value_len(value),
                GapKind::Length => {
                    let Some((length, digits)) = length(value, limits) else { return false };
                    found.body = BodyFraming::Length(length);
                    from += was;
                    digits
                }
            };
            if !found.make_room(at, was, now) {
                return false;
            }
            if let GapKind::Filed(field) = gap.holds {
                let span = trimmed(buf, at, at + now);
                // An empty value would begin directly after the colon, at another position.
                if span.len() == 0 {
                    return false;
                }
                found.named[field as usize] = span;
            }
            let text = &self.text[from..usize::from(gap.to)];
            // The text begins with the CRLF that must end the value.
            if !value[now..].starts_with(text) {
                return false;
            }
            at += now + text.len();
            from = usize::from(gap.to);
        }
        true
    }

    /// Reads a different target and compares the text up to the first gap; returns the end of the
    /// front in `buf`.
    fn recall_target(
        &self,
        buf: &[u8],
        limits: &HeadLimits,
        found: &mut HeadLayout,
    ) -> Option<usize> {
        let rest = buf.strip_prefix(&self.text[..self.target_at])?;
        let (target, rest) = rest.split_at(scan::target_len(rest));
        let text = &self.text[self.target_end..self.front_end];
        if !rest.starts_with(text) || target.len() > limits.target_bytes_max {
            return None;
        }
        // A refused target is parsed again as a new head, which reports the reason.
        let parts = target::parse(self.layout.method, target, limits).ok()?;
        if parts.form != TargetForm::Origin {
            return None;
        }
        *found = self.layout;
        if !found.make_room(self.target_at, self.target_len, target.len()) {
            return None;
        }
        found.path = parts.path.offset_by(self.target_at);
        found.query = parts.query.offset_by(self.target_at);
        Some(self.target_at + target.len() + text.len())
    }

    /// Stores a valid head of these `lines` in place of the previous one. False: the head cannot be
    /// cached, and nothing has changed.
    pub(super) fn keep(&mut self, head: &[u8], layout: &HeadLayout, lines: &[FieldLine]) -> bool {
        let (Some(method), Some(section)) = (layout.method_text.range(), layout.section.range())
        else {
            return false;
        };
        let (target_at, target_end) = (method.end + 1, section.start - 2 - line::VERSION_BYTES);
        let keeps_target = layout.query.is_absent();
        let omitted_len = |line: &FieldLine| match GapKind::of(line, layout) {
            Some(GapKind::Value | GapKind::Filed(_)) => line.value.len(),
            Some(GapKind::Length) | None => 0,
        };
        let text_len = head.len() - lines.iter().map(omitted_len).sum::<usize>();
        // In origin form only Host identifies the server.
        if layout.form != TargetForm::Origin || text_len > TEXT_BYTES_MAX {
            return false;
        }
        self.text.clear();
        self.gaps.clear();
        self.layout = *layout;
        (self.target_at, self.target_len) = (target_at, target_end - target_at);
        (self.keeps_target, self.is_whole) = (keeps_target, keeps_target);
        self.take(&head[..if keeps_target { target_end } else { target_at }]);
        self.target_end = self.text.len();
        let mut copied = target_end;
        for line in lines {
            let (Some(holds), Some(value)) = (GapKind::of(line, layout), line.value.range()) else {
                continue;
            };
            self.take(&head[copied..value.start]);
            self.gaps.push(Gap { holds, len: value.len() as u16, to: 0 });
            let is_length = matches!(holds, GapKind::Length);
            self.is_whole &= is_length;
            copied = if is_length { value.start } else { value.end };
        }
        self.take(&head[copied..]);
        true
    }

    /// Appends to the text before the next gap.
    fn take(&mut self, piece: &[u8]) {
        self.text.extend_from_slice(piece);
        match self.gaps.last_mut() {
            Some(gap) => gap.to = self.text.len() as u16,
            None => self.front_end = self.text.len(),
        }
    }
}

impl GapKind {
    /// The gap in this line, if any.
    fn of(line: &FieldLine, layout: &HeadLayout) -> Option<GapKind> {
        match line.known {
            None => Some(GapKind::Value),
            Some(KnownField::ContentLength) => Some(GapKind::Length),
            Some(
                KnownField::Host
                | KnownField::TransferEncoding
                | KnownField::Connection
                | KnownField::Expect,
            ) => None,
            Some(KnownField::Named(field)) if is_compared(field) => None,
            Some(KnownField::Named(field)) if layout.named[field as usize] == line.value => {
                Some(GapKind::Filed(field))
            }
            // Only the first field of this name is recorded.
            Some(KnownField::Named(_)) => Some(GapKind::Value),
        }
    }
}

/// Whether the value of a field is compared: clients repeat it, and it is not secret.
///
/// A layout records whether the server has the named hosts, so `X-Forwarded-Host` must be compared.
pub(super) const fn is_compared(field: Field) -> bool {
    match field {
        Field::Accept
        | Field::A2aVersion
        | Field::A2aExtensions
        | Field::XA2aExtensions
        | Field::ContentType
        | Field::Origin
        | Field::SecWebSocketVersion
        | Field::Upgrade
        | Field::XForwardedHost
        | Field::XForwardedPort
        | Field::XForwardedPrefix
        | Field::XForwardedProto => true,
        Field::A2aLastEventId
        | Field::A2aTenant
        | Field::Authorization
        | Field::ContentEncoding
        | Field::GrpcAcceptEncoding
        | Field::GrpcTimeout
        | Field::IdempotencyKey
        | Field::IfModifiedSince
        | Field::IfNoneMatch
        | Field::LastEventId
        | Field::A2aHops
        | Field::Prefer
        | Field::RequestTimeout
        | Field::Via
        | Field::SecWebSocketKey
        | Field::SecWebSocketProtocol
        | Field::XApiKey
        | Field::XForwardedFor => false,
    }
}

/// The length in the digits at the start of `text`, and their number. `None`: the head is parsed as
/// a new head, which reports the reason.
fn length(text: &[u8], limits: &HeadLimits) -> Option<(u64, usize)> {
    let mut length = 0;
    // 19 digits fit 64 bits.
    for (count, byte) in text.iter().take(19).enumerate() {
        match byte.wrapping_sub(b'0') {
            digit @ 0..=9 => length = length * 10 + u64::from(digit),
            _ => return (count > 0 && length <= limits.body_bytes_max).then_some((length, count)),
        }
    }
    None
}
