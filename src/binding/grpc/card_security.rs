//! The security and the signatures of a card, as fields of the card's message. They are converted
//! from ProtoJSON, which is slower but sufficient, because a card is rarely sent.
//!
//! Invariant: a scheme with an OAuth flow that the generation does not support is omitted
//! completely.

use crate::{
    dialect::card_security::proto_json,
    json::Parser,
    model::{CardRequirement, CardScheme, CardSecurity, Generation, JSON_DEPTH_MAX},
};

use super::schemas::{Schema, push_message, v1, v03};

/// Nesting depth of objects, including the operator's flows.
const DEPTH_MAX: usize = JSON_DEPTH_MAX + 8;

/// Appends the security of an agent to its card.
pub(super) fn push(out: &mut Vec<u8>, security: &CardSecurity, generation: Generation) {
    let (card, _, requirements) = words(generation);
    for scheme in &security.schemes {
        push_json(out, card, &schemes_json(scheme));
    }
    push_json(out, card, &proto_json(&[], &security.requirements, requirements));
}

/// Appends the security requirements of a skill.
pub(super) fn push_of_skill(
    out: &mut Vec<u8>,
    required: &[CardRequirement],
    generation: Generation,
) {
    let (_, skill, requirements) = words(generation);
    if !required.is_empty() {
        push_json(out, skill, &proto_json(&[], required, requirements));
    }
}

/// Appends the signatures of a card in JSON.
pub(super) fn push_signatures(out: &mut Vec<u8>, card: &[u8], generation: Generation) {
    let (schema, _, _) = words(generation);
    let mut parser = Parser::new();
    let Ok(card) = parser.parse(card, DEPTH_MAX) else { return };
    if let Some(signatures) = card.get("signatures") {
        let json = [b"{\"signatures\":", signatures.raw(), b"}"].concat();
        push_json(out, schema, &json);
    }
}

fn schemes_json(scheme: &CardScheme) -> Vec<u8> {
    proto_json(std::slice::from_ref(scheme), &[], "")
}

/// The schemas of a card and of a skill, and the name of their field for security requirements.
fn words(generation: Generation) -> (&'static Schema, &'static Schema, &'static str) {
    match generation {
        Generation::V1 => (&v1::AGENT_CARD, &v1::AGENT_SKILL, "securityRequirements"),
        Generation::V01 | Generation::V03 => (&v03::AGENT_CARD, &v03::AGENT_SKILL, "security"),
    }
}

/// Appends all fields of the message that this object represents, or no field if one is invalid.
fn push_json(out: &mut Vec<u8>, schema: &Schema, json: &[u8]) {
    let (before, mut parser) = (out.len(), Parser::new());
    let value = parser.parse(json, DEPTH_MAX);
    let is_pushed = value.is_ok_and(|value| push_message(out, schema, value).is_ok());
    if !is_pushed {
        out.truncate(before);
    }
}
