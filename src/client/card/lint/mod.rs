//! What is wrong with a card, by the letter of its specification.
//!
//! Invariant: reading forgives, this does not. An error breaks a rule of the specification; a
//! warning is allowed and still goes wrong with some client. Each finding names its member and its
//! clause. A card is checked as what it is: one of 0.1, of 0.3, of 1.0, or one for clients of both.
//!
//! Every error of a2a-lint 0.1.1, which knows cards of 0.3, is one of these on a card of 0.3.
//! Beyond it, `tags` of a skill are required, as the schema of 0.3 has it. It also refuses every
//! card of 1.0, for want of `url` and because schemes have no `type`, and every binding that is
//! named by a URI (A2A 1.0 §5.8): these are no errors here.

mod check;
mod rules;
mod schema;
mod security;
mod signatures;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use crate::json::without_mark;

use super::{
    super::{
        HttpUrl,
        limits::{CARD_BYTES_MAX, CARD_DEPTH_MAX},
    },
    AgentCard, json,
};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingLevel {
    /// It is allowed, or only advised against, and some clients trip over it.
    Warning,
    /// The specification forbids it.
    Error,
}

/// One thing that is wrong with a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardFinding {
    /// How bad it is.
    pub level: FindingLevel,
    /// The member, as `skills[0].id`; empty: the card.
    pub member: String,
    /// What is wrong, in one sentence.
    pub message: String,
    /// Where that is written: `A2A 1.0 §4.4.1`.
    pub clause: &'static str,
    /// True: it breaks the schema, which knows members and their types alone.
    pub is_of_schema: bool,
}

impl fmt::Display for CardFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            FindingLevel::Error => "error",
            FindingLevel::Warning => "warning",
        };
        write!(f, "{level}: {}", self.sentence())
    }
}

impl CardFinding {
    /// It without its level: `name: it is missing (A2A 1.0 §4.4.1)`.
    pub fn sentence(&self) -> String {
        let member = if self.member.is_empty() { "card" } else { &self.member };
        format!("{member}: {} ({})", self.message, self.clause)
    }
}

/// What a card is checked as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LintForm {
    V01,
    V03,
    V1,
    /// 1.0 with the members that clients of 0.3 look for (wire §7.3).
    Hybrid,
}

impl LintForm {
    fn of(card: &Value) -> LintForm {
        let has = |name: &str| card.get(name).is_some_and(|value| !value.is_null());
        let is_v1 = has("supportedInterfaces") || has("supported_interfaces");
        match (is_v1, has("url")) {
            (true, true) => LintForm::Hybrid,
            (true, false) => LintForm::V1,
            (false, _) => {
                let is_newer = ["protocolVersion", "preferredTransport", "securitySchemes"];
                let is_v01 = has("authentication") && !is_newer.into_iter().any(has);
                if is_v01 { LintForm::V01 } else { LintForm::V03 }
            }
        }
    }

    fn is_v1(self) -> bool {
        match self {
            LintForm::V1 | LintForm::Hybrid => true,
            LintForm::V01 | LintForm::V03 => false,
        }
    }

    fn is_v0(self) -> bool {
        match self {
            LintForm::V01 | LintForm::V03 | LintForm::Hybrid => true,
            LintForm::V1 => false,
        }
    }
}

/// What has been found so far: nothing twice, and of each level at most [`FINDINGS_MAX`].
#[derive(Default)]
struct Findings {
    list: Vec<CardFinding>,
    said: BTreeSet<(String, String)>,
    errors: usize,
}

impl Findings {
    fn add(&mut self, finding: CardFinding) {
        let count = match finding.level {
            FindingLevel::Error => self.errors,
            FindingLevel::Warning => self.list.len() - self.errors,
        };
        let said = (finding.member.clone(), finding.message.clone());
        if count < FINDINGS_MAX && self.said.insert(said) {
            self.errors += usize::from(finding.level == FindingLevel::Error);
            self.list.push(finding);
        }
    }

    fn error(&mut self, member: &str, clause: &'static str, message: impl Into<String>) {
        let (level, message) = (FindingLevel::Error, message.into());
        let member = member.to_owned();
        self.add(CardFinding { level, member, message, clause, is_of_schema: false });
    }

    fn warn(&mut self, member: &str, clause: &'static str, message: impl Into<String>) {
        let (level, message) = (FindingLevel::Warning, message.into());
        let member = member.to_owned();
        self.add(CardFinding { level, member, message, clause, is_of_schema: false });
    }

    /// An error of the schema.
    fn schema(&mut self, member: &str, clause: &'static str, message: impl Into<String>) {
        let (level, message) = (FindingLevel::Error, message.into());
        let member = member.to_owned();
        self.add(CardFinding { level, member, message, clause, is_of_schema: true });
    }
}

/// At most so many findings of each level: a card of a thousand broken skills is broken.
const FINDINGS_MAX: usize = 1_000;

/// Everything that is wrong with a card, errors first, in the order of its members.
///
/// `json` is the document, within the limits of [`AgentCard::read`]; `card_url` where it came from,
/// if it came from a URL.
pub fn lint(json: &[u8], card_url: Option<&HttpUrl>) -> Vec<CardFinding> {
    let mut findings = Findings::default();
    if without_mark(json).len() < json.len() {
        const MARK: &str = "a byte order mark (EF BB BF) precedes it, which some clients reject";
        findings.warn("", "RFC 8259 §8.1", MARK);
    }
    match json::read(json, CARD_BYTES_MAX, CARD_DEPTH_MAX) {
        Err(error) => findings.schema(&error.member, JSON_CLAUSE, error.to_string()),
        Ok(card) => lint_card(&card, json, card_url, &mut findings),
    }
    let mut findings = findings.list;
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    findings
}

/// What breaks the schema of the card's generation: members that are required and not there, or
/// have another type. Empty: the card is valid.
pub fn validate(json: &[u8]) -> Vec<CardFinding> {
    let mut findings = lint(json, None);
    findings.retain(|finding| finding.is_of_schema);
    findings
}

const JSON_CLAUSE: &str = "RFC 8259";

fn lint_card(card: &Value, json: &[u8], card_url: Option<&HttpUrl>, findings: &mut Findings) {
    let Some(members) = card.as_object() else {
        return findings.schema("", "A2A 1.0 §4.4.1", "the card is not an object");
    };
    let form = LintForm::of(card);
    if form.is_v1() {
        check::object("", members, &schema::V1_CARD, form, findings);
        security::schemes_v1(members, form, findings);
    }
    if form.is_v0() {
        let table = if form == LintForm::V01 { &schema::V01_CARD } else { &schema::V03_CARD };
        check::object("", members, table, form, findings);
        security::schemes_v0(members, form, findings);
    }
    security::requirements(members, form, findings);
    rules::all(members, form, card_url, findings);
    signatures::all(members, form, findings);
    // What cannot be read is an error in every rule.
    if let Err(error) = AgentCard::read(json)
        && findings.errors == 0
    {
        findings.schema(&error.member, "A2A 1.0 §4.4.1", error.to_string());
    }
}
