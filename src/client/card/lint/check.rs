//! Compares a card with a table of its schema: missing members, wrong types, unknown members.

use serde_json::{Map, Value};

use super::{
    super::object::snake_case,
    Findings, LintForm,
    schema::{CardTable, LEGACY, MemberNeed, MemberRule, MemberType},
};

/// The path of a member.
pub(super) fn path(base: &str, name: &str) -> String {
    if base.is_empty() { name.to_owned() } else { format!("{base}.{name}") }
}

/// Checks the members of one object, and of the objects in it.
///
/// Recursion depth: the tables have at most three levels.
pub(super) fn object(
    base: &str,
    members: &Map<String, Value>,
    table: &CardTable,
    form: LintForm,
    findings: &mut Findings,
) {
    for member in table.members {
        let at = path(base, member.name);
        let proto_name = snake_case(member.name);
        let by_name = members.get(member.name).filter(|value| !value.is_null());
        let value = by_name.or_else(|| members.get(&*proto_name).filter(|value| !value.is_null()));
        if by_name.is_none() && value.is_some() {
            // A2A 1.0 §5.5: names in JSON are in camel case.
            let message = format!("must not be called {proto_name}, its name in the proto");
            findings.warn(&at, "A2A 1.0 §5.5", message);
        }
        match (value, member.need) {
            (None, MemberNeed::Free) => {}
            (None, MemberNeed::Filled | MemberNeed::There) => {
                findings.schema(&at, table.clause, "required and missing");
            }
            (Some(value), _) => value_of(&at, value, member, table, form, findings),
        }
    }
    if form.is_v1() {
        unknown(base, members, table, form, findings);
    }
}

fn value_of(
    at: &str,
    value: &Value,
    member: &MemberRule,
    table: &CardTable,
    form: LintForm,
    findings: &mut Findings,
) {
    let clause = table.clause;
    let is_needed = member.need != MemberNeed::Free;
    match (member.kind, value) {
        (MemberType::Text, Value::String(text)) => {
            if is_needed && text.trim().is_empty() {
                findings.schema(at, clause, "required and empty");
            }
        }
        (MemberType::Texts, Value::Array(entries)) => {
            empty(at, entries.is_empty(), member.need, clause, findings);
            for (index, entry) in entries.iter().enumerate() {
                if !entry.is_string() {
                    let at = format!("{at}[{index}]");
                    findings.schema(&at, clause, format!("{}, not a string", kind(entry)));
                }
            }
        }
        (MemberType::Inner(inner), Value::Object(members)) => {
            object(at, members, inner, form, findings);
        }
        (MemberType::List(inner), Value::Array(entries)) => {
            empty(at, entries.is_empty(), member.need, clause, findings);
            for (index, entry) in entries.iter().enumerate() {
                let at = format!("{at}[{index}]");
                match entry {
                    Value::Object(members) => object(&at, members, inner, form, findings),
                    _ => findings.schema(
                        &at,
                        inner.clause,
                        format!("{}, not an object", kind(entry)),
                    ),
                }
            }
        }
        (MemberType::Flag, Value::Bool(_))
        | (MemberType::Object, Value::Object(_))
        | (MemberType::Array, Value::Array(_)) => {}
        (wanted, _) => {
            let wanted = match wanted {
                MemberType::Text => "a string",
                MemberType::Flag => "true or false",
                MemberType::Texts => "an array of strings",
                MemberType::Object | MemberType::Inner(_) => "an object",
                MemberType::List(_) | MemberType::Array => "an array",
            };
            findings.schema(at, clause, format!("{}, not {wanted}", kind(value)));
        }
    }
}

/// A2A 1.0 §5.7: a required array has an entry. `skills` is empty in the example of §8.4.
fn empty(
    at: &str,
    is_empty: bool,
    need: MemberNeed,
    clause: &'static str,
    findings: &mut Findings,
) {
    match need {
        MemberNeed::Filled if is_empty => findings.schema(at, clause, "required and empty"),
        MemberNeed::There if is_empty => findings.warn(at, clause, "empty"),
        MemberNeed::Filled | MemberNeed::There | MemberNeed::Free => {}
    }
}

/// Strict clients reject members that 1.0 does not have (wire §10, trap 4).
fn unknown(
    base: &str,
    members: &Map<String, Value>,
    table: &CardTable,
    form: LintForm,
    findings: &mut Findings,
) {
    for name in members.keys() {
        let is_of = |known: &str| known == name || *snake_case(known) == **name;
        let is_legacy = form == LintForm::Hybrid && LEGACY.iter().any(|known| is_of(known));
        let is_known = table.members.iter().any(|member| is_of(member.name));
        // A hybrid card is also checked as 0.3, which has fewer members.
        let is_of_v1 = table.clause.starts_with(V1);
        if is_of_v1 && !is_known && !is_legacy {
            findings.warn(&path(base, name), table.clause, "not a member in A2A 1.0");
        }
    }
}

const V1: &str = "A2A 1.0";

/// The type of a value, for people.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a flag",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
