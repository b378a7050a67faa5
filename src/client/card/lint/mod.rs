//! Checks a card strictly against its specification.
//!
//! Invariant: the reader is lenient, the linter is not. An error breaks a rule of the
//! specification; a warning marks an allowed form that some clients reject. Each finding names the
//! member and the clause. A card is checked as its own generation: 0.1, 0.3, 1.0, or a hybrid for
//! clients of 0.3 and 1.0.
//!
//! Every error that a2a-lint 0.1.1 reports on a card of 0.3, its only generation, is an error here,
//! too. In addition, `tags` of a skill are required, as in the schema of 0.3. a2a-lint also rejects
//! every card of 1.0, because `url` and the `type` of schemes are missing, and every binding with a
//! URI as its name (A2A 1.0 §5.8): these are not errors here.

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

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingLevel {
    /// Allowed, or only discouraged, but some clients reject it.
    Warning,
    /// The specification forbids it.
    Error,
}

/// One problem of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardFinding {
    /// The severity.
    pub level: FindingLevel,
    /// The path of the member, such as `skills[0].id`; empty: the card.
    pub member: String,
    /// The problem, in one sentence.
    pub message: String,
    /// The clause of the specification: `A2A 1.0 §4.4.1`.
    pub clause: &'static str,
    /// True: the card breaks the schema, which covers only members and their types.
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
    /// The finding without its level: `name: required and missing (A2A 1.0 §4.4.1)`.
    pub fn sentence(&self) -> String {
        let member = if self.member.is_empty() { "card" } else { &self.member };
        format!("{member}: {} ({})", self.message, self.clause)
    }
}

/// The generation that a card is checked as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LintForm {
    V01,
    V03,
    V1,
    /// 1.0 with the members that clients of 0.3 need (wire §7.3).
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

/// The findings so far, without duplicates: at most [`FINDINGS_MAX`] of each level.
#[derive(Default)]
struct Findings {
    list: Vec<CardFinding>,
    reported: BTreeSet<(String, String)>,
    errors: usize,
}

impl Findings {
    fn add(&mut self, finding: CardFinding) {
        let count = match finding.level {
            FindingLevel::Error => self.errors,
            FindingLevel::Warning => self.list.len() - self.errors,
        };
        let key = (finding.member.clone(), finding.message.clone());
        if count < FINDINGS_MAX && self.reported.insert(key) {
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

/// Maximum findings of each level; more would not help the reader.
const FINDINGS_MAX: usize = 1_000;

/// All findings of a card: errors first, then warnings, each in the order of the checks.
///
/// `json` is the document, within the limits of [`AgentCard::read`]; `card_url` is the URL of the
/// card, if any.
pub fn lint(json: &[u8], card_url: Option<&HttpUrl>) -> Vec<CardFinding> {
    let mut findings = Findings::default();
    if without_mark(json).len() < json.len() {
        const MARK: &str = "starts with a byte order mark (EF BB BF), which some clients reject";
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

/// Errors of the schema of the card's generation: required members that are missing, and members of
/// another type. Empty: the card is valid.
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
    // A card that cannot be read has an error, even if no rule has found one.
    if let Err(error) = AgentCard::read(json)
        && findings.errors == 0
    {
        findings.schema(&error.member, "A2A 1.0 §4.4.1", error.to_string());
    }
}
