//! Converts messages to ProtoJSON.
//!
//! Invariant: as lenient as proto3: unknown fields are skipped, and of repeated singular fields the
//! last is used. A set field is written even if it has the default value.

use crate::{
    binding::grpc::{
        fields::{entry, other::timestamp},
        structs::{self, Bounds, NotJson},
    },
    json::{
        base64,
        write::{push_i64, push_string},
    },
    model::time,
    pb::{Fields, Value},
};

use super::{FieldType, Schema, SchemaField};

/// Appends the JSON object that a message of this schema represents.
///
/// # Errors
/// [`NotJson`]; `out` then has partial output.
pub fn push_json(
    out: &mut Vec<u8>,
    schema: &Schema,
    message: &[u8],
    bounds: Bounds<'_>,
) -> Result<(), NotJson> {
    // The whole message is validated before its fields are read.
    if Fields(message).any(|field| field.is_err()) {
        return Err(NotJson::Malformed);
    }
    out.push(b'{');
    for field in schema.0 {
        let mut found = Fields(message)
            .filter_map(Result::ok)
            .filter(|(number, _)| *number == field.number)
            .map(|(_, value)| value);
        let first = match field {
            SchemaField { is_repeated: true, .. } => found.next(),
            SchemaField { kind: FieldType::Map(_), .. } => found.next(),
            SchemaField { .. } => found.by_ref().last(),
        };
        let Some(first) = first else { continue };
        if out.last() != Some(&b'{') {
            out.push(b',');
        }
        push_string(out, field.name);
        out.push(b':');
        let brackets = match (&field.kind, field.is_repeated) {
            (FieldType::Map(_), _) => Some([b'{', b'}']),
            (_, true) => Some([b'[', b']']),
            (_, false) => None,
        };
        out.extend(brackets.map(|[open, _]| open));
        push_value(out, &field.kind, first, bounds)?;
        for value in found {
            out.push(b',');
            push_value(out, &field.kind, value, bounds)?;
        }
        out.extend(brackets.map(|[_, close]| close));
    }
    out.push(b'}');
    Ok(())
}

fn push_value(
    out: &mut Vec<u8>,
    kind: &FieldType,
    value: Value<'_>,
    bounds: Bounds<'_>,
) -> Result<(), NotJson> {
    match kind {
        FieldType::Text => push_string(out, value.text()?),
        FieldType::Bytes => {
            out.push(b'"');
            base64::push_encoded(out, value.bytes()?);
            out.push(b'"');
        }
        FieldType::Flag => {
            let text: &[u8] = if value.varint()? != 0 { b"true" } else { b"false" };
            out.extend_from_slice(text);
        }
        FieldType::Int32 => push_i64(out, value.int32()?.into()),
        FieldType::Enum(names) => {
            let number = value.int32()?;
            match names.iter().find(|(value_number, _)| *value_number == number) {
                Some((_, name)) => push_string(out, name),
                None => push_i64(out, number.into()),
            }
        }
        FieldType::Message(schema) => push_json(out, schema, value.bytes()?, bounds)?,
        FieldType::Map(kind) => push_entry(out, kind, value.bytes()?, bounds)?,
        FieldType::Struct => structs::push_struct(out, value.bytes()?, None, bounds)?,
        FieldType::Value => structs::push_value(out, value.bytes()?, bounds)?,
        FieldType::Timestamp => push_time(out, value.bytes()?)?,
    }
    Ok(())
}

/// Appends a member of a map; an unset value becomes the default of its type.
fn push_entry(
    out: &mut Vec<u8>,
    kind: &FieldType,
    message: &[u8],
    bounds: Bounds<'_>,
) -> Result<(), NotJson> {
    let (mut key, mut item) = ("", Value::Bytes(b""));
    for field in Fields(message) {
        match field? {
            (entry::KEY, value) => key = value.text()?,
            (entry::VALUE, value) => item = value,
            _ => {}
        }
    }
    push_string(out, key);
    out.push(b':');
    push_value(out, kind, item, bounds)
}

/// Appends a timestamp, truncated to milliseconds; a time before 1970 becomes 1970.
fn push_time(out: &mut Vec<u8>, message: &[u8]) -> Result<(), NotJson> {
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    for field in Fields(message) {
        match field? {
            (timestamp::SECONDS, value) => seconds = value.varint()? as i64,
            (timestamp::NANOS, value) => nanos = value.int32()?,
            _ => {}
        }
    }
    // The last year of RFC 3339, and of the type, is 9999.
    if seconds > 253_402_300_799 || !(0..1_000_000_000).contains(&nanos) {
        return Err(NotJson::Malformed);
    }
    let ms = seconds.saturating_mul(1000).saturating_add(i64::from(nanos / 1_000_000));
    out.push(b'"');
    out.extend_from_slice(&time::rfc3339(u64::try_from(ms).unwrap_or(0)));
    out.push(b'"');
    Ok(())
}
