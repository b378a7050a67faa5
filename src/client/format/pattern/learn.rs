//! Learns which texts of a document may vary, and where readers store them.

use smallvec::SmallVec;

use crate::{
    json::{Kind, Value},
    model::{Received, received::TEXTS_MAX, time},
};

use super::{
    super::read::is_id, AROUND_BYTES_MAX, AnswerPattern, AnswerPatterns, AnswerSource, GAPS_MAX,
    GapText, PATTERNS_MAX, TextGap, TextRule,
};

/// Members with texts that readers copy unchanged, unless they are empty.
const NAMES: [&[u8]; 22] = [
    b"id",
    b"taskId",
    b"task_id",
    b"contextId",
    b"context_id",
    b"sessionId",
    b"session_id",
    b"messageId",
    b"message_id",
    b"artifactId",
    b"artifact_id",
    b"name",
    b"description",
    b"filename",
    b"url",
    b"uri",
    b"fileWithUri",
    b"file_with_uri",
    b"mediaType",
    b"media_type",
    b"mimeType",
    b"mime_type",
];

/// Members that identify the artifacts of a task.
const ARTIFACT_IDS: [&[u8]; 2] = [b"artifactId", b"artifact_id"];

/// Members that readers store as JSON.
const OPAQUE: [&[u8]; 2] = [b"metadata", b"data"];

/// Maximum strings of a document to learn.
const STRINGS_MAX: usize = 2 * GAPS_MAX;

/// Maximum digits of numbers that readers convert into texts.
const NUMBER_DIGITS_MAX: usize = 10;

/// A string of a document.
struct FoundString<'p> {
    /// The offset of the content, after the quote.
    at: usize,
    string: &'p [u8],
    name: &'p [u8],
    role: StringRole,
}

/// The role of a string for its reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StringRole {
    RpcId,
    Time,
    Text(TextRule),
    /// Any other string: it must stay the same.
    Fixed,
}

/// All strings of a document except names of members, in their order.
struct Strings<'p> {
    found: SmallVec<[FoundString<'p>; 32]>,
    /// The time of the status change, if it may vary.
    at_ms: Option<u64>,
    rpc_id: Option<u64>,
    /// True: a reader may have changed the form of a string.
    is_respelled: bool,
}

impl AnswerPatterns {
    /// Remembers a parsed document without its texts.
    pub fn learn(
        &mut self,
        source: AnswerSource<'_>,
        data: &[u8],
        document: Value<'_>,
        received: &Received,
    ) {
        let at_ms = match received.status_update() {
            Some(update) => Some(update.at_ms),
            None => received.task().map(|task| task.status().at_ms),
        };
        let at_ms = at_ms.filter(|at_ms| *at_ms != 0);
        let AnswerSource { format, answers, rpc_id } = source;
        let rpc_id = format.rpc_id(rpc_id);
        let mut strings = Strings { found: SmallVec::new(), at_ms, rpc_id, is_respelled: false };
        strings.visit(document, b"", 0, false);
        if strings.is_respelled || strings.found.len() > STRINGS_MAX {
            return;
        }
        strings.settle();
        if self.patterns.len() < PATTERNS_MAX {
            self.oldest = self.patterns.len();
            self.patterns.push(AnswerPattern::default());
        }
        let (at, pattern) = (self.oldest, &mut self.patterns[self.oldest]);
        pattern.of = None;
        if pattern.learn(&strings.found, data, received).is_some() {
            pattern.of = Some((*format, answers));
            (self.latest, self.oldest) = (at, (at + 1) % PATTERNS_MAX);
        }
    }
}

impl<'p> Strings<'p> {
    fn visit(&mut self, value: Value<'p>, name: &'p [u8], depth: usize, is_opaque: bool) {
        if self.found.len() > STRINGS_MAX {
            return;
        }
        match value.kind() {
            Kind::String => self.string(value, name, depth, is_opaque),
            Kind::Object => {
                for (key, member) in value.members() {
                    self.is_respelled |= key.plain().is_none();
                    let name = key.plain().unwrap_or_default();
                    let is_opaque = is_opaque || OPAQUE.contains(&name);
                    self.visit(member, name, depth + 1, is_opaque);
                }
            }
            Kind::Array => {
                value.elements().for_each(|element| self.visit(element, b"", depth + 1, is_opaque));
            }
            Kind::Null | Kind::Bool(_) | Kind::Number => {}
        }
    }

    fn string(&mut self, value: Value<'p>, name: &'p [u8], depth: usize, is_opaque: bool) {
        let string = value.string_raw().unwrap_or_default();
        let is_number = string.len() <= NUMBER_DIGITS_MAX && string.iter().all(u8::is_ascii_digit);
        self.is_respelled |= value.has_escapes() && name != b"text" && !is_opaque;
        let role = match (name, self.rpc_id) {
            (b"id", Some(rpc_id)) if depth == 1 && is_id(value, rpc_id) => StringRole::RpcId,
            _ if is_opaque || string.is_empty() || is_number => StringRole::Fixed,
            (b"text", _) => StringRole::Text(TextRule::Any),
            (b"timestamp", _) if self.is_time(value) => StringRole::Time,
            (name, _) if NAMES.contains(&name) => StringRole::Text(TextRule::Name),
            _ => StringRole::Fixed,
        };
        let name = if is_opaque { b"" } else { name };
        self.found.push(FoundString { at: value.span().start + 1, string, name, role });
    }

    fn is_time(&self, value: Value<'_>) -> bool {
        self.at_ms.is_some() && value.string_raw_str().and_then(time::parse_rfc3339) == self.at_ms
    }

    /// If one of several equal strings is fixed, all become fixed: it is unknown which of them a
    /// reader copied. Times and ids of artifacts become fixed if there are several.
    fn settle(&mut self) {
        let count = |names: [&[u8]; 2]| {
            self.found.iter().filter(|found| names.contains(&found.name)).count()
        };
        let (times, artifacts) = (count([b"timestamp"; 2]), count(ARTIFACT_IDS));
        for found in &mut self.found {
            let is_artifact = ARTIFACT_IDS.contains(&found.name);
            if is_artifact && artifacts > 1 || found.role == StringRole::Time && times > 1 {
                found.role = StringRole::Fixed;
            }
        }
        for index in 0..self.found.len() {
            let FoundString { string, role, .. } = self.found[index];
            let rule = match role {
                StringRole::Fixed => StringRole::Fixed,
                StringRole::Text(TextRule::Name) => role,
                StringRole::Text(TextRule::Any) | StringRole::RpcId | StringRole::Time => continue,
            };
            for same in self.found.iter_mut().filter(|found| found.string == string) {
                if matches!(same.role, StringRole::Text(_)) {
                    same.role = rule;
                }
            }
        }
    }
}

impl AnswerPattern {
    /// `None`: the document has no gap, or is too large.
    fn learn(&mut self, found: &[FoundString<'_>], data: &[u8], received: &Received) -> Option<()> {
        let mut texts: SmallVec<[&[u8]; TEXTS_MAX]> = SmallVec::new();
        for found in found.iter().filter(|found| matches!(found.role, StringRole::Text(_))) {
            if !texts.contains(&found.string) && texts.len() < TEXTS_MAX {
                texts.push(found.string);
            }
        }
        let number =
            |string: &[u8]| texts.iter().position(|text| *text == string).map(|at| at as u8);
        if !self.received.split(received, number) {
            return None;
        }
        self.around.clear();
        self.gaps.clear();
        let span = received.span();
        let (mut from, mut has_occurred) = (0, [false; TEXTS_MAX]);
        self.span = [(span.start, 0), (span.end, 0)];
        for FoundString { at, string, role, .. } in found {
            let text = match role {
                StringRole::RpcId => GapText::RpcId,
                StringRole::Time => GapText::Time,
                StringRole::Fixed => continue,
                StringRole::Text(rule) => {
                    match number(string).filter(|text| self.received.uses(*text)) {
                        None => continue,
                        Some(text)
                            if std::mem::replace(&mut has_occurred[usize::from(text)], true) =>
                        {
                            GapText::Again(text)
                        }
                        Some(text) => GapText::First(text, *rule),
                    }
                }
            };
            self.around.extend_from_slice(&data[from..*at]);
            from = at + string.len();
            self.gaps.push(TextGap { at: self.around.len(), text, len: string.len() });
            for (edge, offset) in [span.start, span.end].into_iter().zip(&mut self.span) {
                if from <= edge {
                    *offset = (offset.0 - string.len(), offset.1 + 1);
                }
            }
        }
        self.around.extend_from_slice(&data[from..]);
        self.only_text = self.only_text();
        let around = self.around.len() + self.received.around_bytes();
        let is_small = around <= AROUND_BYTES_MAX && self.gaps.len() <= GAPS_MAX;
        (is_small && !self.gaps.is_empty()).then_some(())
    }

    /// The unrestricted text, if there is exactly one, and it occurs once.
    fn only_text(&self) -> Option<u8> {
        let any = |gap: &TextGap| match gap.text {
            GapText::First(text, TextRule::Any) => Some(text),
            GapText::First(..) | GapText::Again(_) | GapText::RpcId | GapText::Time => None,
        };
        let mut texts = self.gaps.iter().filter_map(any);
        let (text, None) = (texts.next()?, texts.next()) else { return None };
        let is_again = |gap: &TextGap| matches!(gap.text, GapText::Again(again) if again == text);
        (!self.gaps.iter().any(is_again)).then_some(text)
    }
}
