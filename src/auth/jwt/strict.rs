//! Strict readers with one accepted form: canonical base64url, and JSON without repeated members.
//!
//! Invariant: text that two readers could understand differently is rejected.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use zeroize::Zeroizing;

use crate::json::base64;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// RFC 7515 §2: base64url without padding or white space, and without set bits after the last byte
/// (RFC 4648 §3.5).
pub fn base64url(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |byte: &u8| DIGITS.iter().position(|known| known == byte);
    let last = digit(text.as_bytes().last()?)?;
    let unused = match text.len() % 4 {
        0 => 0,
        2 => 0b1111,
        3 => 0b11,
        _ => return None,
    };
    if last & unused != 0 || !text.bytes().all(|byte| digit(&byte).is_some()) {
        return None;
    }
    base64::decode(text).map(Zeroizing::new)
}

/// Why bytes are not a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoObject {
    /// The bytes are not JSON in UTF-8, or not an object.
    Unreadable,
    /// An object repeats a member, in any escaped form.
    Twice,
}

/// Reads an object without repeated members at any depth (RFC 7515 §4: "must be unique"; RFC 7519
/// §4 requires the same).
///
/// # Errors
/// [`NoObject`]
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, NoObject> {
    match serde_json::from_slice::<UniqueValue>(bytes) {
        Ok(UniqueValue(Value::Object(members))) => Ok(members),
        Ok(UniqueValue(_)) => Err(NoObject::Unreadable),
        // The visitor itself returns no other error.
        Err(error) if error.is_data() => Err(NoObject::Twice),
        Err(_) => Err(NoObject::Unreadable),
    }
}

/// A value without repeated members in its objects. serde_json limits its depth to 128.
struct UniqueValue(Value);

impl<'de> Deserialize<'de> for UniqueValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UniqueValue, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(UniqueValue)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(UniqueValue(entry)) = entries.next_element()? {
            list.push(entry);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, UniqueValue(value))) = members.next_entry::<String, UniqueValue>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a member appears twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn non_canonical_base64url_is_rejected() {
        for (text, bytes) in [("AA", &b"\0"[..]), ("AAA", b"\0\0"), ("-_-_", b"\xfb\xff\xbf")] {
            assert_eq!(&**base64url(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "A", "AA==", "AB", "AAB", "AAAAA", "+/+/", "AA A", "A\nA", "AA\0A", "Ä"] {
            assert!(base64url(text).is_none(), "{text:?}");
        }
        // Of the possible last digits, one in 16, or one in 4, is canonical.
        let read = |head: &str| {
            let spell = |digit: &u8| format!("{head}{}", char::from(*digit));
            DIGITS.iter().filter(|digit| base64url(&spell(digit)).is_some()).count()
        };
        assert_eq!((read("A"), read("AA"), read("AAA")), (4, 16, 64));
    }

    #[test]
    fn repeated_members_and_malformed_json_are_rejected() {
        let members = object(br#"{"a":[1,-1,1.5,null,true,"x"],"b":{"a":{}}}"#).unwrap();
        assert_eq!(
            Value::from(members).to_string(),
            r#"{"a":[1,-1,1.5,null,true,"x"],"b":{"a":{}}}"#
        );
        for twice in [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":1}"#, r#"{"b":[{"a":1,"a":2}]}"#] {
            assert_eq!(object(twice.as_bytes()), Err(NoObject::Twice), "{twice}");
        }
        for bad in ["", "[]", "7", "{} {}", "{\"a\":1", "\u{feff}{}", "{\"a\":\"\\ud800\"}"] {
            assert_eq!(object(bad.as_bytes()), Err(NoObject::Unreadable), "{bad}");
        }
        assert_eq!(object(b"{\"a\":\"\xff\"}"), Err(NoObject::Unreadable));
        assert_eq!(object("{\"a\":".repeat(200).as_bytes()), Err(NoObject::Unreadable));
    }
}
