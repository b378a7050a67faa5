//! JSON-RPC 2.0 envelopes: requests read from a parsed document, responses written around a body.
//!
//! An id is stored as its received text and returned unchanged. An invalid request is answered with
//! its id, if the id could be read.

use std::borrow::Cow;

use crate::{
    fault::{Fault, FaultKind},
    json::{Kind, Value, ValueSlot},
    limits::Limits,
};

/// The id of a response to a request without a readable id (JSON-RPC 2.0 §5).
pub const NULL_ID: &[u8] = b"null";

/// A valid request object.
pub struct RpcRequest<'p> {
    /// The id as received; `None` for a notification.
    pub id: Option<&'p [u8]>,
    /// The method, unescaped.
    pub method: Cow<'p, [u8]>,
    /// The parameters, if there are any: absent, null and `[]` all mean none.
    pub params: Option<Value<'p>>,
    /// True for a non-empty array: A2A takes parameters by name only.
    pub by_position: bool,
}

/// An invalid request, and the id for its answer.
pub struct Invalid<'p> {
    /// The error.
    pub fault: Fault,
    /// The id, or [`NULL_ID`].
    pub id: &'p [u8],
}

/// Reads one request object (JSON-RPC 2.0 §4).
///
/// # Errors
/// [`Invalid`] with [`FaultKind::InvalidRequest`].
pub fn read<'p>(value: Value<'p>, limits: &Limits) -> Result<RpcRequest<'p>, Invalid<'p>> {
    if value.kind() != Kind::Object {
        return Err(refuse(NULL_ID, "the request must be an object"));
    }
    let mut slots = [ValueSlot::default(); OTHER + 1];
    // One bit per slot in each: the member is present, or present twice.
    let (mut seen, mut twice) = (0u8, 0u8);
    for (key, member) in value.members() {
        let index = match key.plain() {
            Some(name) => index(name),
            // A member name with escapes is still the same name.
            None => index(&key.text()),
        };
        let Some(slot) = slots.get_mut(index) else { continue };
        *slot = member.slot();
        twice |= seen & 1 << index;
        seen |= 1 << index;
    }
    let [version, id, method, params, _] = slots;
    let [version, id, method, params] = [version, id, method, params].map(|slot| value.at(slot));
    let id = match id.map(|id: Value<'p>| (id.kind(), id.raw())) {
        None => None,
        Some((Kind::String | Kind::Number | Kind::Null, raw)) => Some(raw),
        Some((Kind::Bool(_) | Kind::Array | Kind::Object, _)) => {
            return Err(refuse(NULL_ID, "id must be a string, a number or null"));
        }
    };
    if id.is_some_and(|id| id.len() > limits.rpc_id_bytes_max) {
        let mut invalid = refuse(NULL_ID, "the id is too long");
        invalid.fault.limit = Some("rpc_id_bytes_max");
        return Err(invalid);
    }
    let answer = if twice & 1 << ID != 0 { NULL_ID } else { id.unwrap_or(NULL_ID) };
    // Parsers disagree on which of two equal members counts, so both are refused.
    if twice & !(1 << OTHER) != 0 {
        return Err(refuse(answer, "a member of the request appears twice"));
    }
    if !version.is_some_and(|version: Value<'_>| version.str_eq("2.0")) {
        return Err(refuse(answer, "jsonrpc must be \"2.0\""));
    }
    let Some(method) = method.and_then(|method| method.text()) else {
        return Err(refuse(answer, "method must be a string"));
    };
    let (params, by_position) = match params.map(|params: Value<'p>| (params.kind(), params)) {
        None | Some((Kind::Null, _)) => (None, false),
        Some((Kind::Object, params)) => (Some(params), false),
        Some((Kind::Array, params)) => (None, !params.is_empty()),
        Some((Kind::Bool(_) | Kind::Number | Kind::String, _)) => {
            return Err(refuse(answer, "params must be an object"));
        }
    };
    Ok(RpcRequest { id, method, params, by_position })
}

/// The slot of the id.
const ID: usize = 1;
/// The slot of unknown members.
const OTHER: usize = 4;

/// The slot of a member.
#[inline]
fn index(name: &[u8]) -> usize {
    // `==` compares whole words; a pattern compares byte by byte.
    match name.len() {
        7 if name == b"jsonrpc" => 0,
        2 if name == b"id" => ID,
        6 if name == b"method" => 2,
        6 if name == b"params" => 3,
        _ => OTHER,
    }
}

#[cold]
fn refuse<'p>(id: &'p [u8], detail: &'static str) -> Invalid<'p> {
    Invalid { fault: Fault::because(FaultKind::InvalidRequest, detail), id }
}

/// Opens a response with a result; append the result, then call [`close`].
pub fn open_result(out: &mut Vec<u8>, id: &[u8]) {
    open(out, id, b",\"result\":");
}

/// Opens a response with an error; append the error object, then call [`close`].
pub fn open_error(out: &mut Vec<u8>, id: &[u8]) {
    open(out, id, b",\"error\":");
}

/// Ends a response.
pub fn close(out: &mut Vec<u8>) {
    out.push(b'}');
}

fn open(out: &mut Vec<u8>, id: &[u8], member: &[u8]) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id);
    out.extend_from_slice(member);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Parser;

    fn owned(text: &[u8]) -> String {
        String::from_utf8_lossy(text).into_owned()
    }

    fn read_text(text: &str) -> Result<(Option<String>, String, bool), (String, String)> {
        let mut parser = Parser::new();
        let value = parser.parse(text.as_bytes(), 64).expect("valid JSON");
        match read(value, &Limits::default()) {
            Ok(request) => {
                Ok((request.id.map(owned), owned(&request.method), request.params.is_some()))
            }
            Err(invalid) => Err((owned(invalid.id), invalid.fault.message().to_owned())),
        }
    }

    #[test]
    fn request_id_is_stored_as_received_text() {
        for id in ["0", "-0", "1.0", "1e400", "9007199254740993", "\"a\\u0062\\/\"", "null"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            assert_eq!(read_text(&text), Ok((Some(id.into()), "m".into(), false)));
        }
    }

    #[test]
    fn id_of_an_invalid_type_is_rejected() {
        for id in ["{}", "[]", "true"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            assert_eq!(read_text(&text).unwrap_err().0, "null");
        }
    }

    #[test]
    fn params_may_be_absent_null_or_empty() {
        for params in ["", r#","params":null"#, r#","params":[]"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m"{params}}}"#);
            assert_eq!(read_text(&text), Ok((Some("1".into()), "m".into(), false)));
        }
    }

    #[test]
    fn duplicate_member_is_rejected_with_the_request_id() {
        let text = r#"{"jsonrpc":"2.0","id":7,"method":"a","m\u0065thod":"b"}"#;
        assert_eq!(read_text(text).unwrap_err().0, "7");
    }

    #[test]
    fn duplicate_id_is_rejected_with_a_null_id() {
        let text = r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#;
        assert_eq!(read_text(text).unwrap_err().0, "null");
    }

    #[test]
    fn wrong_version_or_missing_method_is_rejected_with_the_id() {
        for rest in [r#""jsonrpc":"1.0","method":"m""#, r#""method":"m""#, r#""jsonrpc":"2.0""#] {
            let text = format!(r#"{{"id":"x",{rest}}}"#);
            assert_eq!(read_text(&text).unwrap_err().0, "\"x\"");
        }
    }
}
