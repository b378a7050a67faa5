//! Checks whether JSON of an agent of 1.0 has the shape that 1.0 requires, so that it can be passed
//! on unchanged.
//!
//! Invariant: JSON has the shape if it contains, member by member, everything that our own writer
//! produces for the same answer. Additional members are passed on; members with another name or
//! wrapper are not accepted.

use crate::json::{Kind, Parser, Value};

/// The reader rejects deeper JSON.
const DEPTH_MAX: usize = 1024;

/// Whether `json` contains everything in `canonical`, the JSON of 1.0 of the same answer.
pub(super) fn has_v1_shape(json: &[u8], canonical: &[u8]) -> bool {
    let (mut of_json, mut of_canonical) = (Parser::new(), Parser::new());
    of_json.accept_lone_surrogates(true);
    of_canonical.accept_lone_surrogates(true);
    let canonical = of_canonical.parse(canonical, DEPTH_MAX);
    let (Ok(actual), Ok(wanted)) = (of_json.parse(json, DEPTH_MAX), canonical) else {
        return false;
    };
    let mut open = vec![(wanted, actual)];
    while let Some((wanted, actual)) = open.pop() {
        // JSON of users is copied, so equal bytes need no check.
        let holds = wanted.raw() == actual.raw()
            || match (wanted.kind(), actual.kind()) {
                (Kind::Object, Kind::Object) => has_members(wanted, actual, &mut open),
                (Kind::Array, Kind::Array) => {
                    let (mut ours, mut theirs) = (wanted.elements(), actual.elements());
                    loop {
                        match (ours.next(), theirs.next()) {
                            (Some(wanted), Some(actual)) => open.push((wanted, actual)),
                            (None, None) => break true,
                            (Some(_), None) | (None, Some(_)) => break false,
                        }
                    }
                }
                // Texts may differ: a time may have other digits, an unknown state becomes another
                // state.
                (wanted, actual) => wanted == actual,
            };
        if !holds {
            return false;
        }
    }
    true
}

/// Whether an object has the wanted members; their values are checked later.
fn has_members<'p>(
    wanted: Value<'p>,
    actual: Value<'p>,
    open: &mut Vec<(Value<'p>, Value<'p>)>,
) -> bool {
    // The discriminating members of generations before 1.0 (wire §1).
    let is_older = |name| actual.get(name).is_some() && wanted.get(name).is_none();
    if ["kind", "type"].into_iter().any(is_older) {
        return false;
    }
    wanted.members().all(|(key, wanted)| {
        let name = key.text();
        let name = str::from_utf8(&name).unwrap_or_default();
        let Some(actual) = actual.get(name).filter(|actual| !actual.is_null()) else {
            return is_default(wanted);
        };
        open.push((wanted, actual));
        let text = actual.text().unwrap_or_default();
        match name {
            "state" => text.starts_with(b"TASK_STATE_"),
            "role" => text.starts_with(b"ROLE_"),
            _ => true,
        }
    })
}

/// Whether a member with this value may be omitted (ProtoJSON).
fn is_default(value: Value<'_>) -> bool {
    match value.kind() {
        Kind::Null | Kind::Bool(false) => true,
        Kind::Bool(true) => false,
        Kind::Number => value.as_i64() == Some(0),
        Kind::String => value.string_raw().is_some_and(<[u8]>::is_empty),
        Kind::Array | Kind::Object => value.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_shape_allows_extra_members_but_no_other_names() {
        const TASK: &str = r#"{"task":{"id":"t","contextId":"c","artifacts":[],"status":
            {"state":"TASK_STATE_WORKING","timestamp":"2026-01-01T00:00:00.000Z"}}}"#;
        for (json, holds) in [
            (TASK, true),
            (
                r#"{"task":{"novel":1,"contextId":"c","id":"t","status":
                {"state":"TASK_STATE_NEW","timestamp":"2026-01-01T00:00:00Z"}},"more":[]}"#,
                true,
            ),
            (&TASK.replace("TASK_STATE_WORKING", "working"), false),
            (&TASK.replace("contextId", "context_id"), false),
            (&TASK.replace("\"id\"", "\"kind\":\"task\",\"id\""), false),
            (&TASK.replace("[]", "{}"), false),
            (&TASK.replace("[]", "null"), true),
            (&TASK[8..TASK.len() - 1], false),
            ("{}", false),
            ("", false),
        ] {
            assert_eq!(has_v1_shape(json.as_bytes(), TASK.as_bytes()), holds, "{json}");
        }
    }
}
