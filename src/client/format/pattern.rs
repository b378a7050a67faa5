//! Answers and events that say again what was said before but for some texts, read by what they
//! repeat.
//!
//! Invariant: what is read the short way is what the long way reads. A document that has the bytes
//! of an earlier one around its texts, and in their places what can stand in quotes, is that
//! document with other texts, in whatever generation and dialect. Left out are only texts that
//! readers pack as they come; ids, and when a status changed, are checked as readers check them.

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

/// Bytes around the texts of a document that is remembered.
const AROUND_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a document that is read so: the texts in it stand in what is received several times.
const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Texts of a document that are left out, the same ones counted again.
const GAPS_MAX: usize = 32;

/// Documents that are remembered: the answers to two calls, and what a stream has.
const PATTERNS_MAX: usize = 8;

/// Documents that may be learned without one being of use; then it is one in so many.
const TRIALS: u32 = 8;

/// What a document answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// This operation, whole.
    Call(Op),
    /// A call, as one item of a stream.
    Item,
}

/// The documents that were read last.
#[derive(Default)]
pub(super) struct AnswerPatterns {
    patterns: Vec<AnswerPattern>,
    /// The one that was of use last.
    latest: usize,
    /// The one that is forgotten next.
    oldest: usize,
    /// Documents that were not known since one was.
    unknown: u32,
    last_item: LastItem,
}

/// A document but for some of its texts.
#[derive(Default)]
struct AnswerPattern {
    /// How the server is spoken to; `None`: there is no document.
    of: Option<(Format, Answers)>,
    /// The bytes around the texts.
    around: Vec<u8>,
    /// In their order.
    gaps: Vec<TextGap>,
    /// Where the result begins and ends in `around`, and how many texts stand before.
    span: [(usize, usize); 2],
    received: ReceivedTemplate,
    minute: LastMinute,
    /// The text that may be anything, if there is one and it stands once.
    only_text: Option<u8>,
    /// The document that came after it last: a stream has the same ones in the same order.
    next: usize,
}

/// A place where a text is left out.
struct TextGap {
    /// Where, in the bytes around the texts.
    at: usize,
    text: GapText,
    /// The length of the text that stood there last.
    len: usize,
}

/// What was found in a document that is known but for its texts.
struct FoundTexts<'d> {
    texts: [&'d [u8]; TEXTS_MAX],
    at_ms: Option<u64>,
    span: Range<usize>,
    /// Where the last text began that may be anything.
    text_at: usize,
}

/// What stands in a gap.
#[derive(Clone, Copy)]
enum GapText {
    /// The id of the call.
    RpcId,
    /// When the status changed.
    Time,
    /// The text of this number, for the first time.
    First(u8, TextRule),
    /// It once more.
    Again(u8),
}

/// What a text may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextRule {
    /// Anything: the text of a part.
    Any,
    /// Not empty, without escapes, and no longer than an identifier.
    Name,
}

impl AnswerPatterns {
    /// Reads a document that is known but for its texts; false: it has to be read whole, and
    /// nothing was received.
    pub fn read(
        &mut self,
        (format, answers, rpc_id): (&Format, Answers, u64),
        data: &[u8],
        values: &ValueLimits,
        received: &mut Received,
    ) -> bool {
        if data.len() > DOCUMENT_BYTES_MAX {
            return false;
        }
        let is_item = answers == Answers::Item;
        if is_item && self.last_item.read((format, rpc_id), data, received).is_some() {
            self.unknown = 0;
            return true;
        }
        let AnswerPatterns { patterns, latest, last_item, .. } = self;
        let (count, latest) = (patterns.len(), *latest);
        // The answer to a call is the same one again, most often.
        let first = match is_item {
            true => patterns.get(latest).map_or(0, |pattern| pattern.next),
            false => latest,
        };
        let is_known = |at: &usize| {
            let about = (format, answers, rpc_id);
            // One that comes twice in a row comes again, most often.
            let last_item = (is_item && *at == latest).then_some(&mut *last_item);
            patterns[*at].read(about, data, values, received, last_item).is_some()
        };
        let found = (first..count).chain(0..first).find(is_known);
        if let Some(found) = found {
            if is_item {
                patterns[latest].next = found;
            }
            (self.latest, self.unknown) = (found, 0);
        }
        found.is_some()
    }

    /// Whether the document that was just read whole is worth remembering: not each, where hardly
    /// any comes again.
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

    /// `None`: the document is another one.
    fn read(
        &mut self,
        (format, answers, rpc_id): (&Format, Answers, u64),
        data: &[u8],
        values: &ValueLimits,
        received: &mut Received,
        last_item: Option<&mut LastItem>,
    ) -> Option<()> {
        if !self.is_of(format, answers) {
            return None;
        }
        let found = self.find(rpc_id, data, values)?;
        received.fill(&mut self.received, &found.texts, found.at_ms, found.span.clone());
        if let (Some(last_item), Some(text)) = (last_item, self.only_text) {
            last_item.take((format, rpc_id), data, (&self.received, text), &found, received);
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
        // Most texts stand in the result, and few before or behind it.
        let [(start, before), (end, behind)] = self.span;
        let len = |gaps: &[TextGap]| gaps.iter().map(|gap| gap.len).sum::<usize>();
        let end = end + (data.len() - self.around.len()) - len(self.gaps.get(behind..)?);
        let span = start + len(self.gaps.get(..before)?)..end;
        Some(FoundTexts { texts, at_ms, span, text_at })
    }
}

/// The string whose content these bytes begin with; `None`: readers would not take it as it is.
/// Most often it is as long as the one before it, `len`.
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
    let is_taken = rule == TextRule::Any || (1..=most).contains(&string.len());
    is_taken.then_some(string)
}

/// The same for one of another length.
fn string_to_quote(rest: &[u8], rule: TextRule) -> Option<&[u8]> {
    let plain = json::plain_len(rest);
    match rest.get(plain) {
        Some(b'"') => Some(&rest[..plain]),
        Some(_) | None => odd_string(rest, plain, rule),
    }
}

/// The same for one with escapes, or with characters that are not of ASCII.
#[cold]
fn odd_string(rest: &[u8], plain: usize, rule: TextRule) -> Option<&[u8]> {
    let mut is_escaped = false;
    let is_end = |byte: &u8| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    };
    let string = &rest[..plain + rest[plain..].iter().position(is_end)?];
    let is_taken = rule == TextRule::Any || !string.contains(&b'\\');
    (is_taken && json::is_text(string)).then_some(string)
}

/// The id of a call as it is written, if these bytes begin with it.
#[inline]
fn rpc_id_of(rest: &[u8], rpc_id: u64) -> Option<&[u8]> {
    let len = rest.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
    let (id, behind) = rest.split_at(len);
    let number = id.iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    let is_spelled = id.first().is_some_and(|first| *first != b'0') || id == b"0";
    (is_spelled && number == Some(rpc_id) && behind.first() == Some(&b'"')).then_some(id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
