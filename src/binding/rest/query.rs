//! Converts query parameters to params, a JSON object for the readers of the dialects.
//!
//! So a parameter has the same type, limits and faults as in a body. Names unknown to the operation
//! are skipped; of repeated names the last is used, as in an object.

use std::borrow::Cow;

use crate::{
    fault::Fault,
    http,
    json::write::{push_escaped, push_string},
    model::{Op, Params},
};

/// The JSON type of a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    /// A string; ProtoJSON also accepts numbers, enums and timestamps as strings.
    Text,
    /// `true` or `false`, in any case.
    Bool,
    /// A timestamp, as a string.
    Time,
}

/// The parameter of all operations (A2A 1.0 §8.3.2).
const TENANT: (&str, Type) = ("tenant", Type::Text);

const ANY: &[(&str, Type)] = &[TENANT];

const GET: &[(&str, Type)] = &[
    TENANT,
    ("historyLength", Type::Text),
    ("history_length", Type::Text),
    ("wait", Type::Text),
    ("afterEvent", Type::Text),
    ("after_event", Type::Text),
];

const LIST: &[(&str, Type)] = &[
    TENANT,
    ("contextId", Type::Text),
    ("context_id", Type::Text),
    ("status", Type::Text),
    ("pageSize", Type::Text),
    ("page_size", Type::Text),
    ("pageToken", Type::Text),
    ("page_token", Type::Text),
    ("historyLength", Type::Text),
    ("history_length", Type::Text),
    ("statusTimestampAfter", Type::Time),
    ("status_timestamp_after", Type::Time),
    ("includeArtifacts", Type::Bool),
    ("include_artifacts", Type::Bool),
];

const PAGE: &[(&str, Type)] = &[
    TENANT,
    ("pageSize", Type::Text),
    ("page_size", Type::Text),
    ("pageToken", Type::Text),
    ("page_token", Type::Text),
];

/// Clears `out` and writes the params of a query into it, as a JSON object; false: the query has no
/// params, and `out` is empty.
///
/// # Errors
/// `InvalidParams` when the query is not percent-encoded UTF-8.
pub fn params(out: &mut Vec<u8>, op: Op, query: Option<&str>) -> Result<bool, Fault> {
    out.clear();
    let accepted = match op.params() {
        Params::Get => GET,
        Params::List => LIST,
        Params::Push if op == Op::PushList => PAGE,
        Params::Send | Params::Target(_) | Params::Push | Params::Nothing => ANY,
    };
    for pair in http::query::pairs(query.unwrap_or_default()) {
        let broken = |_| Fault::param("query", "must be percent-encoded UTF-8");
        let (name, value) = pair.map_err(broken)?;
        let Some((name, kind)) = accepted.iter().find(|(parameter, _)| *parameter == name) else {
            continue;
        };
        out.extend_from_slice(if out.is_empty() { b"{\"" } else { b",\"" });
        push_escaped(out, name);
        out.extend_from_slice(b"\":");
        match kind {
            Type::Bool if value.eq_ignore_ascii_case("true") => out.extend_from_slice(b"true"),
            Type::Bool if value.eq_ignore_ascii_case("false") => out.extend_from_slice(b"false"),
            Type::Time => push_string(out, &with_offset(&value)),
            Type::Bool | Type::Text => push_string(out, &value),
        }
    }
    if !out.is_empty() {
        out.push(b'}');
    }
    Ok(!out.is_empty())
}

/// A timestamp with a `+` before its offset; decoding turns an unescaped `+` into a space.
fn with_offset(time: &str) -> Cow<'_, str> {
    const OFFSET: usize = " 02:00".len();
    match time.len().checked_sub(OFFSET).and_then(|at| time.split_at_checked(at)) {
        Some((time, offset)) if offset.starts_with(' ') => {
            Cow::Owned(format!("{time}+{}", &offset[1..]))
        }
        _ => Cow::Borrowed(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(op: Op, query: &str) -> Option<String> {
        let mut out = b"old".to_vec();
        let is_some = params(&mut out, op, Some(query)).ok()?;
        assert_eq!(is_some, !out.is_empty());
        String::from_utf8(out).ok()
    }

    #[test]
    fn query_parameters_are_converted_to_json_members() {
        let cases = [
            (Op::Get, "historyLength=3&x=1", r#"{"historyLength":"3"}"#),
            (Op::Get, "status=x", ""),
            (Op::Get, "", ""),
            (
                Op::List,
                "includeArtifacts=TRUE&contextId=a%22b",
                r#"{"includeArtifacts":true,"contextId":"a\"b"}"#,
            ),
            (Op::List, "include_artifacts=1", r#"{"include_artifacts":"1"}"#),
            (Op::List, "pageSize=1&pageSize=2", r#"{"pageSize":"1","pageSize":"2"}"#),
            (
                Op::List,
                "statusTimestampAfter=2026-11-27T10:00:00+02:00",
                r#"{"statusTimestampAfter":"2026-11-27T10:00:00+02:00"}"#,
            ),
            (
                Op::List,
                "status_timestamp_after=2026-11-27T10:00:00%2B02:00",
                r#"{"status_timestamp_after":"2026-11-27T10:00:00+02:00"}"#,
            ),
            (Op::Cancel, "metadata=x", ""),
            (Op::Subscribe, "tenant=acme&x=1", r#"{"tenant":"acme"}"#),
        ];
        for (op, query, json) in cases {
            assert_eq!(read(op, query).as_deref(), Some(json), "{query}");
        }
        assert_eq!(read(Op::Get, "x=%"), None);
    }
}
