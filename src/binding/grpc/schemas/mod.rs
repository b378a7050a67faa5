//! Converts messages of gRPC to ProtoJSON and back, by the schemas of the proto files; mainly for
//! the client.
//!
//! Invariant: the client reads a server's protocol buffers with its JSON readers, and writes
//! requests with its JSON writers, so that all bindings carry the same content. A schema has the
//! numbers, names and types of a message's fields. Schemas nest only as deeply as the proto files;
//! `Struct` has unbounded nesting, and is converted without recursion.

mod from_proto;
mod to_proto;

// Generated in full, also for messages that this client never uses.
#[allow(dead_code, missing_docs)]
pub mod v03;
#[allow(dead_code, missing_docs)]
pub mod v1;

#[cfg(any(feature = "client", feature = "internals"))]
pub use from_proto::push_json;
#[cfg(any(feature = "client", feature = "internals"))]
pub use to_proto::NoField;
pub use to_proto::push_message;

/// The fields of a message.
#[derive(Debug)]
pub struct Schema(&'static [SchemaField]);

/// One field.
#[derive(Debug)]
struct SchemaField {
    number: u32,
    /// The name in ProtoJSON.
    name: &'static str,
    kind: FieldType,
    is_repeated: bool,
}

/// The type of a field, or of each of its elements.
#[derive(Debug)]
enum FieldType {
    Text,
    /// In JSON: base64.
    Bytes,
    Flag,
    Int32,
    /// In JSON: a name.
    Enum(&'static [(i32, &'static str)]),
    Message(&'static Schema),
    /// A map from strings to this type.
    Map(&'static FieldType),
    /// `google.protobuf.Struct`
    Struct,
    /// `google.protobuf.Value`
    Value,
    /// `google.protobuf.Timestamp`; in JSON as in RFC 3339.
    Timestamp,
}

const fn one(number: u32, name: &'static str, kind: FieldType) -> SchemaField {
    SchemaField { number, name, kind, is_repeated: false }
}

const fn many(number: u32, name: &'static str, kind: FieldType) -> SchemaField {
    SchemaField { number, name, kind, is_repeated: true }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{
        binding::grpc::structs::{Bounds, NotJson},
        json::Parser,
    };

    fn bytes_of(schema: &Schema, json: &str) -> Result<Vec<u8>, NoField> {
        let (mut parser, mut out) = (Parser::new(), Vec::new());
        push_message(&mut out, schema, parser.parse(json.as_bytes(), 64).unwrap())?;
        Ok(out)
    }

    fn json_of(schema: &Schema, message: &[u8]) -> Result<String, NotJson> {
        let mut out = Vec::new();
        let tokens = Cell::new(usize::MAX);
        push_json(&mut out, schema, message, Bounds { depth_max: 8, tokens: &tokens })?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn json_round_trips_through_protobuf() {
        for json in [
            "{}",
            r#"{"tenant":"a","message":{"messageId":"m\n","role":"ROLE_USER","parts":[{"text":""},
                {"raw":"AP8="},{"url":"u"},{"data":[1,null,{"a":true}],"metadata":{"b":"c"}}],
                "extensions":["x","y"]},"configuration":{"acceptedOutputModes":["text/plain"],
                "historyLength":0,"returnImmediately":true},"metadata":{"a":{"b":[1.5]}}}"#,
        ] {
            let json: String = json.lines().map(str::trim).collect();
            let bytes = bytes_of(&v1::SEND_MESSAGE_REQUEST, &json).unwrap();
            assert_eq!(json_of(&v1::SEND_MESSAGE_REQUEST, &bytes), Ok(json));
        }
        let json = r#"{"contextId":"c","status":"TASK_STATE_WORKING","pageSize":5,
            "statusTimestampAfter":"2026-01-02T03:04:05.678Z"}"#;
        let json: String = json.lines().map(str::trim).collect();
        let bytes = bytes_of(&v1::LIST_TASKS_REQUEST, &json).unwrap();
        assert_eq!(json_of(&v1::LIST_TASKS_REQUEST, &bytes), Ok(json));
    }

    #[test]
    fn protobuf_map_is_converted_to_json_object() {
        let flow = [
            &[0x1a, 8, 0x0a, 1, b'a', 0x12, 3, b'"', b'x', b'"'][..],
            &[0x1a, 3, 0x0a, 1, b'b'],
            &[0x0a, 1, b't'],
        ]
        .concat();
        let json = json_of(&v1::CLIENT_CREDENTIALS_O_AUTH_FLOW, &flow);
        let text = r#"{"tokenUrl":"t","scopes":{"a":"\"x\"","b":""}}"#;
        assert_eq!(json, Ok(text.to_owned()));
        let again = bytes_of(&v1::CLIENT_CREDENTIALS_O_AUTH_FLOW, text).unwrap();
        assert_eq!(json_of(&v1::CLIENT_CREDENTIALS_O_AUTH_FLOW, &again), Ok(text.to_owned()));
        for wrong in [r#"{"scopes":{"a":1}}"#, r#"{"scopes":[]}"#] {
            assert!(bytes_of(&v1::CLIENT_CREDENTIALS_O_AUTH_FLOW, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unconvertible_json_member_is_named_in_error() {
        for (json, name) in [
            (r#"{"unknown":1}"#, "unknown"),
            (r#"{"id":1}"#, "id"),
            (r#"{"historyLength":"x"}"#, "historyLength"),
        ] {
            assert_eq!(bytes_of(&v1::GET_TASK_REQUEST, json), Err(NoField(name.to_owned())));
        }
        assert_eq!(bytes_of(&v1::GET_TASK_REQUEST, r#"{"id":null}"#), Ok(Vec::new()));
    }

    #[test]
    fn malformed_protobuf_is_rejected() {
        for bytes in [
            &[0x0a, 2, b'a'][..],
            &[0x0a, 1, 0xff],
            &[0x08, 1],
            &[0x1a, 2, 0x1a, 1],
            &[0x1a, 4, 0x1a, 2, 0x08, 0x80],
        ] {
            assert_eq!(json_of(&v1::TASK, bytes), Err(NotJson::Malformed), "{bytes:x?}");
        }
        // Of several values the last is used, unknown fields are skipped, and an enum number
        // without a name stays a number.
        let bytes = [0x0a, 1, b'a', 0x0a, 1, b'b', 0x7a, 1, 0, 0x1a, 2, 0x08, 99];
        let json = r#"{"id":"b","status":{"state":99}}"#;
        assert_eq!(json_of(&v1::TASK, &bytes), Ok(json.to_owned()));
        assert!(bytes_of(&v1::TASK, json).is_ok());
    }

    #[test]
    fn protobuf_nesting_depth_is_bounded() {
        let deep = |levels: usize| {
            format!("{{\"metadata\":{}1{}}}", "{\"a\":".repeat(levels), "}".repeat(levels))
        };
        let bytes = |levels| bytes_of(&v1::MESSAGE, &deep(levels)).unwrap();
        assert_eq!(json_of(&v1::MESSAGE, &bytes(8)), Ok(deep(8)));
        assert_eq!(json_of(&v1::MESSAGE, &bytes(9)), Err(NotJson::Depth));
    }
}
