//! The forms of a card that a signature may cover: that of the specification, and those of the SDKs
//! (wire §7.4).

use std::fmt;

use serde_json::Value;

use crate::model::Generation;

use super::super::AgentCard;

/// A form of a card, in the order of the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedForm {
    /// The members of 1.0 under its rules of presence (A2A 1.0 §8.4.1).
    Strict,
    /// All members, as received.
    AsServed,
    /// Without empty members, as the SDKs write it.
    Cleaned,
    /// The same with escapes for non-ASCII characters, as the Python SDK wrote it up to 1.1.
    CleanedEscaped,
}

impl fmt::Display for SignedForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SignedForm::Strict => "the form of the specification",
            SignedForm::AsServed => "the document as received",
            SignedForm::Cleaned => "the form without empty members",
            SignedForm::CleanedEscaped => "the form without empty members, escaped",
        })
    }
}

/// The payloads of a card: each form with a payload that differs from the previous ones.
pub(super) fn payloads(card: &AgentCard) -> Vec<(SignedForm, Vec<u8>)> {
    let unsigned = |json: &str| {
        let mut value: Value = serde_json::from_str(json).unwrap_or_default();
        if let Some(members) = value.as_object_mut() {
            members.remove("signatures");
        }
        value
    };
    let (strict, served) = (unsigned(&card.to_v1_json()), unsigned(card.raw_json()));
    // A2A 0.3 does not specify the signed form: the document itself is used.
    let base = if card.generation == Generation::V1 { &strict } else { &served };
    let cleaned = jcs(&cleaned(base).unwrap_or_default());
    let escaped = escaped(&cleaned);
    let mut payloads: Vec<(SignedForm, Vec<u8>)> = Vec::with_capacity(4);
    for (form, payload) in [
        (SignedForm::Strict, jcs(&strict)),
        (SignedForm::AsServed, jcs(&served)),
        (SignedForm::Cleaned, cleaned),
        (SignedForm::CleanedEscaped, escaped),
    ] {
        if !payloads.iter().any(|(_, other)| *other == payload) {
            payloads.push((form, payload));
        }
    }
    payloads
}

/// Serializes by RFC 8785. Cannot fail: all numbers are finite and all keys are strings.
fn jcs(value: &Value) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).unwrap_or_default()
}

/// The value without empty texts, arrays and objects, and without `null`; `None`: nothing remains.
///
/// Recursion depth: at most the depth of a card, 64.
fn cleaned(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Bool(_) | Value::Number(_) => Some(value.clone()),
        Value::String(text) => (!text.is_empty()).then(|| value.clone()),
        Value::Array(entries) => {
            let entries: Vec<Value> = entries.iter().filter_map(cleaned).collect();
            (!entries.is_empty()).then_some(Value::Array(entries))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members: serde_json::Map<String, Value> =
                members.filter_map(|(name, value)| Some((name.clone(), cleaned(value)?))).collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
    }
}

/// Escapes like Python's `json.dumps`: other characters than ASCII as UTF-16 code units.
fn escaped(canonical: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(canonical);
    let mut out = Vec::with_capacity(canonical.len());
    for letter in text.chars() {
        if (' '..='~').contains(&letter) {
            out.push(letter as u8);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
        }
    }
    out
}
