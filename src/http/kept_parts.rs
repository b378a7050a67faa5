//! Cached heads in parts: if a head matches a cached head, only its gaps are checked.
//!
//! The invariants are those of heads in text ([`super::kept`]): method, target, host, the names of
//! the fields in their order and a few of their values are compared. Every other value is a gap: it
//! is neither stored nor compared, and passes the same check as in a new head. A head matches only
//! if its gaps have the cached lengths.

use super::{
    BodyFraming, HeadLayout, HeadLimits, TargetForm,
    head::Span,
    kept::{self, TEXT_BYTES_MAX},
    parse::KnownField,
    request_parts::FiledHead,
    scan,
};

/// Number of cached heads; a further head evicts the oldest.
const HEADS_MAX: usize = 4;

/// A field of a head in parts, and its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartLine {
    pub(super) known: Option<KnownField>,
    pub(super) name: Span,
    /// The value as received, with white space.
    pub(super) value: Span,
    /// True: the value is compared and stored.
    is_compared: bool,
}

/// The key with which a cached head is found.
#[derive(Clone, Copy)]
pub(super) struct PartsKey<'r> {
    pub(super) method: &'r [u8],
    pub(super) target: &'r [u8],
    pub(super) authority: Option<&'r [u8]>,
    pub(super) has_body: bool,
    /// The minimal number of fields, by the size hint of their iterator.
    pub(super) fields_min: usize,
}

/// The last few heads.
#[derive(Debug)]
pub(super) struct CachedParts {
    heads: Vec<CachedPartsHead>,
    /// The index of the next head to evict.
    oldest: usize,
}

/// A valid head, with zeros in its gaps.
#[derive(Debug)]
pub(super) struct CachedPartsHead {
    bytes: Vec<u8>,
    method_len: usize,
    target_end: usize,
    has_authority: bool,
    has_body: bool,
    fields_min: usize,
    lines: Vec<PartLine>,
    layout: HeadLayout,
}

impl CachedParts {
    /// An empty cache.
    pub(super) const fn new() -> CachedParts {
        CachedParts { heads: Vec::new(), oldest: 0 }
    }

    /// The index of the cached head with this key.
    pub(super) fn find(&self, key: PartsKey<'_>) -> Option<usize> {
        self.heads.iter().position(|head| head.has(key))
    }

    /// The head at an index that `find` returned.
    pub(super) fn at(&self, index: usize) -> &CachedPartsHead {
        &self.heads[index]
    }

    /// Caches a valid head of these lines, in place of the head with the same key, or else of the
    /// oldest.
    #[cold]
    pub(super) fn keep(
        &mut self,
        key: PartsKey<'_>,
        bytes: &[u8],
        lines: &[PartLine],
        layout: &HeadLayout,
    ) {
        // A query may contain a key.
        let is_cacheable = layout.form == TargetForm::Origin && layout.query.is_absent();
        // The layout has values without white space, but a gap includes it.
        let is_filed = |line: &PartLine| line.known.is_some() && !line.is_compared;
        let is_plain = |line: &PartLine| line.value.of(bytes).is_some_and(is_plain);
        let has_space = lines.iter().any(|line| is_filed(line) && !is_plain(line));
        if !is_cacheable || has_space || bytes.len() > TEXT_BYTES_MAX {
            return;
        }
        let head = CachedPartsHead::new(key, bytes, lines, layout);
        match self.find(key) {
            Some(index) => self.heads[index] = head,
            None if self.heads.len() < HEADS_MAX => self.heads.push(head),
            None => {
                self.heads[self.oldest] = head;
                self.oldest = (self.oldest + 1) % HEADS_MAX;
            }
        }
    }
}

impl CachedPartsHead {
    fn new(
        key: PartsKey<'_>,
        bytes: &[u8],
        lines: &[PartLine],
        layout: &HeadLayout,
    ) -> CachedPartsHead {
        let PartsKey { method, target, authority, has_body, fields_min } = key;
        let mut bytes = bytes.to_vec();
        for line in lines.iter().filter(|line| !line.is_compared) {
            bytes[line.value.range().unwrap_or_default()].fill(0);
        }
        CachedPartsHead {
            bytes,
            method_len: method.len(),
            target_end: method.len() + target.len(),
            has_authority: authority.is_some(),
            has_body,
            fields_min,
            lines: lines.to_vec(),
            layout: *layout,
        }
    }

    fn has(&self, key: PartsKey<'_>) -> bool {
        let PartsKey { method, target, authority, has_body, fields_min } = key;
        let (method_len, target_end) = (self.method_len, self.target_end);
        let named = authority.is_none_or(|authority| self.value(0) == Some(authority));
        (self.fields_min, self.has_body) == (fields_min, has_body)
            && &self.bytes[..method_len] == method
            && &self.bytes[method_len..target_end] == target
            && self.has_authority == authority.is_some()
            && named
    }

    fn value(&self, line: usize) -> Option<&[u8]> {
        self.lines.get(line)?.value.of(&self.bytes)
    }

    /// The bytes of the head, with zeros in the gaps.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The layout of the head, without the length of a body.
    pub(super) fn layout(&self) -> &HeadLayout {
        &self.layout
    }

    /// The lines; another head may match only some of them, from the first.
    pub(super) fn lines(&self) -> &[PartLine] {
        &self.lines
    }

    /// The start of the line at this index, or the end of the head.
    pub(super) fn start_of(&self, index: usize) -> usize {
        let start = self.lines.get(index).and_then(|line| line.name.range());
        start.map_or(self.bytes.len(), |name| name.start)
    }

    /// The index of the first field: 1 if the first line is the authority.
    pub(super) fn first_line(&self) -> usize {
        usize::from(self.has_authority)
    }

    /// Whether a field equals the line at this index, except for its gap. If true, `head` receives
    /// the value of the gap, or the length of the body.
    pub(super) fn recall(
        &self,
        index: usize,
        name: &[u8],
        value: &[u8],
        head: &mut FiledHead,
        limits: &HeadLimits,
    ) -> bool {
        let Some(line) = self.lines.get(index) else { return false };
        if line.name.of(&self.bytes) != Some(name) {
            return false;
        }
        if line.is_compared {
            return line.value.of(&self.bytes) == Some(value);
        }
        match line.known {
            Some(KnownField::ContentLength) => match length(value) {
                Some(length) if length <= limits.body_bytes_max => {
                    head.layout.body = BodyFraming::Length(length);
                }
                _ => return false,
            },
            // Values are recorded without white space, and empty values are not recorded.
            Some(_) if !is_plain(value) => return false,
            Some(_) | None => {}
        }
        let gap = line.value.range().unwrap_or_default();
        if gap.len() != value.len() || scan::value_len(value) != value.len() {
            return false;
        }
        head.bytes[gap].copy_from_slice(value);
        true
    }
}

impl PartLine {
    pub(super) fn new(known: Option<KnownField>, name: Span, value: Span) -> PartLine {
        let is_compared = match known {
            Some(KnownField::Named(field)) => kept::is_compared(field),
            Some(KnownField::Host) => true,
            // A head in parts never has these fields.
            Some(KnownField::Connection | KnownField::TransferEncoding | KnownField::Expect) => {
                true
            }
            Some(KnownField::ContentLength) | None => false,
        };
        PartLine { known, name, value, is_compared }
    }
}

/// Whether a value neither begins nor ends with white space, and is not empty.
fn is_plain(value: &[u8]) -> bool {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    matches!((value.first(), value.last()), (Some(a), Some(b)) if !is_blank(a) && !is_blank(b))
}

/// The value of these digits. `None`: the head is parsed as a new head, which reports the reason.
fn length(digits: &[u8]) -> Option<u64> {
    // 19 digits fit 64 bits.
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0, |length: u64, byte| match byte.wrapping_sub(b'0') {
        digit @ 0..=9 => Some(length * 10 + u64::from(digit)),
        _ => None,
    })
}
