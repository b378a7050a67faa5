//! Checks the form of signatures (A2A 1.0 §8.4, RFC 7515) without verifying them.

use serde_json::{Map, Value};

use crate::json::base64;

use super::{super::object::CardObject, Findings, LintForm};

pub(super) fn all(card: &Map<String, Value>, form: LintForm, findings: &mut Findings) {
    let clause = if form.is_v1() { "A2A 1.0 §8.4.2" } else { "A2A 0.3 §5.5.6" };
    let list = card.get("signatures").and_then(Value::as_array).into_iter().flatten();
    for (index, value) in list.enumerate() {
        let at = format!("signatures[{index}]");
        let Some(signature) = CardObject::of(&at, value) else { continue };
        let bytes = |name: &str| signature.text(name).and_then(|text| decode(&text));
        if signature.get("signature").is_some() && bytes("signature").is_none() {
            findings.error(&signature.path("signature"), clause, "not base64url");
        }
        let Some(text) = signature.text("protected").filter(|text| !text.is_empty()) else {
            continue;
        };
        let member = signature.path("protected");
        let header = decode(&text).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let Some(header) = header.filter(Value::is_object) else {
            findings.error(&member, clause, "not base64url of a JSON object");
            continue;
        };
        let text = |name: &str| header.get(name).and_then(Value::as_str);
        match text("alg") {
            None => findings.error(&member, clause, "its header has no alg"),
            Some(alg) if alg == "none" || alg.starts_with("HS") => {
                let message = format!("alg {alg} proves nothing, because it uses no key pair");
                findings.error(&member, clause, message);
            }
            Some(_) => {}
        }
        if text("kid").is_none() {
            findings.error(&member, clause, "its header has no kid");
        }
        if text("typ").is_none() {
            findings.warn(&member, clause, "its header should have typ \"JOSE\"");
        }
    }
}

/// RFC 7515 §2: the alphabet for URLs, without padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    let is_plain = !text.is_empty() && !text.contains(['=', '+', '/']);
    is_plain.then(|| base64::decode(text)).flatten()
}
