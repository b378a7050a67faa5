//! Converts ProtoJSON of Peregrine's own writers to messages.
//!
//! Invariant: the conversion is strict. A member without a field, or with a value of another type,
//! is an error that names the member.

use crate::{
    binding::grpc::{
        fields::{entry, other::timestamp},
        from_json::{struct_field, value_field},
    },
    json::{Kind, Value, base64},
    model::time,
    pb::Writer,
};

use super::{FieldType, Schema};

/// The name of a member that has no field, or a value of the wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoField(pub String);

/// Appends the message of this schema that a JSON object represents; `null` leaves a field unset.
///
/// # Errors
/// [`NoField`]; `out` then has partial output.
pub fn push_message(out: &mut Vec<u8>, schema: &Schema, json: Value<'_>) -> Result<(), NoField> {
    for (key, value) in json.members() {
        let none = || NoField(String::from_utf8_lossy(&key.text()).into_owned());
        let field = schema.0.iter().find(|field| key.eq(field.name)).ok_or_else(none)?;
        // `null` is a value only for a `Value`.
        if value.is_null() && !matches!(field.kind, FieldType::Value) {
            continue;
        }
        if !field.is_repeated {
            push_field(out, field.number, &field.kind, value)?.ok_or_else(none)?;
            continue;
        }
        if value.kind() != Kind::Array {
            return Err(none());
        }
        for element in value.elements() {
            push_field(out, field.number, &field.kind, element)?.ok_or_else(none)?;
        }
    }
    Ok(())
}

/// Appends one field; `None`: the value has the wrong type.
fn push_field(
    out: &mut Vec<u8>,
    number: u32,
    kind: &FieldType,
    value: Value<'_>,
) -> Result<Option<()>, NoField> {
    let is_object = value.kind() == Kind::Object;
    let mut writer = Writer(out);
    Ok(match kind {
        FieldType::Text => value.text().map(|text| writer.bytes(number, &text)),
        FieldType::Bytes => value.text().map(|text| {
            let nested = writer.open(number, text.len() * 3 / 4);
            base64::push_decoded(writer.0, &text);
            writer.close(nested);
        }),
        FieldType::Flag => value.as_bool().map(|flag| writer.number(number, flag.into())),
        FieldType::Int32 => value
            .as_i64()
            .and_then(|value| i32::try_from(value).ok())
            // A negative number is encoded as a varint of ten bytes.
            .map(|value| writer.number(number, i64::from(value) as u64)),
        FieldType::Enum(names) => {
            let named =
                names.iter().find(|(_, name)| value.str_eq(name)).map(|(number, _)| *number);
            let plain = || value.as_i64().and_then(|value| i32::try_from(value).ok());
            named.or_else(plain).map(|value| writer.number(number, i64::from(value) as u64))
        }
        FieldType::Message(schema) if is_object => {
            let nested = writer.open(number, value.raw().len());
            push_message(writer.0, schema, value)?;
            writer.close(nested);
            Some(())
        }
        FieldType::Struct if is_object => {
            struct_field(writer.0, number, value.raw());
            Some(())
        }
        FieldType::Value => {
            value_field(writer.0, number, value.raw());
            Some(())
        }
        FieldType::Timestamp => {
            let ms = value.as_str().and_then(|text| time::parse_rfc3339(&text));
            ms.map(|ms| {
                let nested = writer.open(number, 0);
                writer.number(timestamp::SECONDS, ms / 1000);
                writer.number(timestamp::NANOS, ms % 1000 * 1_000_000);
                writer.close(nested);
            })
        }
        FieldType::Map(kind) if is_object => {
            for (key, member) in value.members() {
                let nested = writer.open(number, member.raw().len());
                writer.bytes(entry::KEY, &key.text());
                let pushed = push_field(writer.0, entry::VALUE, kind, member)?;
                writer.close(nested);
                if pushed.is_none() {
                    return Ok(None);
                }
            }
            Some(())
        }
        FieldType::Message(_) | FieldType::Struct | FieldType::Map(_) => None,
    })
}
