//! Reads answers and events that repeat an earlier document except for some texts, without parsing
//! them.
//!
//! Invariant: reading by a pattern gives the same result as parsing. If a document has the bytes of
//! an earlier one around its texts, and valid string contents in their positions, it is that
//! document with other texts, in every generation and dialect. Only texts that readers copy
//! unchanged may differ; ids and the time of a status change are checked as readers check them.

mod last_item;
mod learn;

use std::ops::Range;

use crate::{
    json,
    model::{
        Op, Received,
        received::{ReceivedTemplate, TEXTS_MAX},
        time::LastMinute,
    },
};

use last_item::LastItem;

use super::{Format, ValueLimits};

/// Maximum bytes around the texts of a remembered document.
const AROUND_BYTES_MAX: usize = 4 * 1024;

/// Maximum bytes of a document: the result may hold its texts several times.
const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Maximum gaps for texts in a document, including repeated texts.
const GAPS_MAX: usize = 32;

/// Maximum remembered documents: the answers to two calls, and the items of a stream.
const PATTERNS_MAX: usize = 8;

/// After this many documents in a row without a match, only one in as many is learned.
const TRIALS: u32 = 8;

/// The call that a document belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// The whole answer to this operation.
    Call(Op),
    /// One item of a stream.
    Item,
}

/// The format of a document, and the call that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct AnswerSource<'f> {
    pub format: &'f Format,
    pub answers: Answers,
    pub rpc_id: u64,
}

/// The remembered documents.
#[derive(Default)]
pub(super) struct AnswerPatterns {
    patterns: Vec<AnswerPattern>,
    /// The index of the last match.
    latest: usize,
    /// The index to overwrite next.
    oldest: usize,
    /// Documents without a match since the last match.
    unknown: u32,
    last_item: LastItem,
}

/// A document without some of its texts.
#[derive(Default)]
struct AnswerPattern {
    /// The format and the call; `None`: the entry is empty.
    of: Option<(Format, Answers)>,
    /// The bytes around the texts.
    around: Vec<u8>,
    /// The gaps, in their order.
    gaps: Vec<TextGap>,
    /// The start and the end of the result in `around`, each with the number of gaps before it.
    span: [(usize, usize); 2],
    received: ReceivedTemplate,
    minute: LastMinute,
    /// The unrestricted text, if there is exactly one, and it occurs once.
    only_text: Option<u8>,
    /// The document that last followed this one: a stream repeats documents in the same order.
    next: usize,
}

/// The position of a text.
struct TextGap {
    /// The offset in the bytes around the texts.
    at: usize,
    text: GapText,
    /// The length of the last text in this gap.
    len: usize,
}

/// The texts found in a matching document.
struct FoundTexts<'d> {
    texts: [&'d [u8]; TEXTS_MAX],
    at_ms: Option<u64>,
    span: Range<usize>,
    /// The offset of the last unrestricted text.
    text_at: usize,
}

/// The content of a gap.
#[derive(Clone, Copy)]
enum GapText {
    /// The id of the call.
    RpcId,
    /// The time of the status change.
    Time,
    /// The text with this number, at its first occurrence.
    First(u8, TextRule),
    /// The text with this number again.
    Again(u8),
}

/// The allowed content of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextRule {
    /// Anything: the text of a part.
    Any,
    /// Not empty, without escapes, and no longer than an identifier.
    Name,
}

impl AnswerPatterns {
    /// Reads a document that matches a remembered one; false: the document must be parsed, and
    /// nothing was received.
    pub fn read(
        &mut self,
        source: AnswerSource<'_>,
        data: &[u8],
        values: &ValueLimits,
        received: &mut Received,
    ) -> bool {
        if data.len() > DOCUMENT_BYTES_MAX {
            return false;
        }
        let AnswerSource { format, answers, rpc_id } = source;
        let is_item = answers == Answers::Item;
        if is_item && self.last_item.read(format, rpc_id, data, received).is_some() {
            self.unknown = 0;
            return true;
        }
        let AnswerPatterns { patterns, latest, last_item, .. } = self;
        let (count, latest) = (patterns.len(), *latest);
        // Most often the same call is repeated.
        let first = match is_item {
            true => patterns.get(latest).map_or(0, |pattern| pattern.next),
            false => latest,
        };
        let is_match = |at: &usize| {
            // An item that occurs twice in a row usually occurs again.
            let last_item = (is_item && *at == latest).then_some(&mut *last_item);
            patterns[*at].read(source, data, values, received, last_item).is_some()
        };
        let found = (first..count).chain(0..first).find(is_match);
        if let Some(found) = found {
            if is_item {
                patterns[latest].next = found;
            }
            (self.latest, self.unknown) = (found, 0);
        }
        found.is_some()
    }

    /// Whether to remember the document that was just parsed: if documents hardly ever match, only
    /// a sample is remembered.
    pub fn wants(&mut self, data: &[u8]) -> bool {
        self.unknown = self.unknown.saturating_add(1);
        let is_tried = self.unknown <= TRIALS || self.unknown.is_multiple_of(TRIALS);
        is_tried && data.len() <= DOCUMENT_BYTES_MAX
    }
}

impl AnswerPattern {
    fn is_of(&self, format: &Format, answers: Answers) -> bool {
        self.of.as_ref().is_some_and(|(of, what)| *what == answers && of.is_same(format))
    }

    /// `None`: the document does not match.
    fn read(
        &mut self,
        source: AnswerSource<'_>,
        data: &[u8],
        values: &ValueLimits,
        received: &mut Received,
        last_item: Option<&mut LastItem>,
    ) -> Option<()> {
        if !self.is_of(source.format, source.answers) {
            return None;
        }
        let found = self.find(source.rpc_id, data, values)?;
        received.fill(&mut self.received, &found.texts, found.at_ms, found.span.clone());
        if let Some(last_item) = last_item {
            last_item.take(source, data, self, &found, received);
        }
        Some(())
    }

    fn find<'d>(
        &mut self,
        rpc_id: u64,
        data: &'d [u8],
        values: &ValueLimits,
    ) -> Option<FoundTexts<'d>> {
        let mut texts: [&[u8]; TEXTS_MAX] = [b""; TEXTS_MAX];
        let (mut at_ms, mut rest, mut from, mut text_at) = (None, data, 0, 0);
        let gaps = self.gaps.len();
        for (index, gap) in self.gaps.iter_mut().enumerate() {
            rest = rest.strip_prefix(self.around.get(from..gap.at)?)?;
            from = gap.at;
            let string = match gap.text {
                GapText::RpcId => rpc_id_of(rest, rpc_id)?,
                GapText::Time => {
                    let string = &rest[..json::plain_len(rest)];
                    at_ms = Some(self.minute.parse(string)?);
                    string
                }
                GapText::First(number, TextRule::Any) if index + 1 == gaps => {
                    let string = rest.strip_suffix(&self.around[from..])?;
                    text_at = data.len() - rest.len();
                    texts[usize::from(number) % TEXTS_MAX] = string;
                    json::is_text(string).then_some(string)?
                }
                GapText::First(number, rule) => {
                    let string = string_of(rest, rule, gap.len, values)?;
                    if rule == TextRule::Any {
                        text_at = data.len() - rest.len();
                    }
                    texts[usize::from(number) % TEXTS_MAX] = string;
                    string
                }
                GapText::Again(number) => {
                    let string = texts[usize::from(number) % TEXTS_MAX];
                    rest.starts_with(string).then_some(string)?
                }
            };
            (rest, gap.len) = (&rest[string.len()..], string.len());
        }
        if rest != self.around.get(from..)? {
            return None;
        }
        // Most texts are inside the result, and few before or after it.
        let [(start, before), (end, after)] = self.span;
        let len = |gaps: &[TextGap]| gaps.iter().map(|gap| gap.len).sum::<usize>();
        let end = end + (data.len() - self.around.len()) - len(self.gaps.get(after..)?);
        let span = start + len(self.gaps.get(..before)?)..end;
        Some(FoundTexts { texts, at_ms, span, text_at })
    }
}

/// The content of the string at the start of `rest`; `None`: readers would not copy it unchanged.
/// Most often it has the length of the previous string, `len`.
#[inline]
fn string_of<'d>(
    rest: &'d [u8],
    rule: TextRule,
    len: usize,
    values: &ValueLimits,
) -> Option<&'d [u8]> {
    let string = match rest.get(len) {
        Some(b'"') if json::is_all_plain(&rest[..len]) => &rest[..len],
        Some(_) | None => string_to_quote(rest, rule)?,
    };
    let limits = &values.limits;
    let most = limits.identifier_bytes_max.min(limits.string_bytes_max);
    let is_accepted = rule == TextRule::Any || (1..=most).contains(&string.len());
    is_accepted.then_some(string)
}

/// The same for a string of another length.
fn string_to_quote(rest: &[u8], rule: TextRule) -> Option<&[u8]> {
    let plain = json::plain_len(rest);
    match rest.get(plain) {
        Some(b'"') => Some(&rest[..plain]),
        Some(_) | None => odd_string(rest, plain, rule),
    }
}

/// The same for a string with escapes or non-ASCII characters.
#[cold]
fn odd_string(rest: &[u8], plain: usize, rule: TextRule) -> Option<&[u8]> {
    let mut is_escaped = false;
    let is_end = |byte: &u8| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    };
    let string = &rest[..plain + rest[plain..].iter().position(is_end)?];
    let is_accepted = rule == TextRule::Any || !string.contains(&b'\\');
    (is_accepted && json::is_text(string)).then_some(string)
}

/// The id of a call as the client writes it, if these bytes begin with it.
#[inline]
fn rpc_id_of(rest: &[u8], rpc_id: u64) -> Option<&[u8]> {
    let len = rest.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
    let (id, after) = rest.split_at(len);
    let number = id.iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    let is_canonical = id.first().is_some_and(|first| *first != b'0') || id == b"0";
    (is_canonical && number == Some(rpc_id) && after.first() == Some(&b'"')).then_some(id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
