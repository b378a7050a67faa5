//! JSON of cards, within limits: as a tree, because cards are small and rare.
//!
//! Invariant: a document has a limit of bytes and of depth, and no object has a member twice:
//! otherwise two readers could see two different cards, and a signature would cover only one of
//! them.

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{CardError, CardProblem};
use crate::json::{without_lone_surrogates, without_mark};

/// Reads one JSON value. Half a surrogate pair becomes U+FFFD.
///
/// `bytes_max` bounds the text, `depth_max` the nesting of objects and arrays.
///
/// # Errors
/// [`CardProblem::TooLarge`], [`CardProblem::TooDeep`], [`CardProblem::Twice`],
/// [`CardProblem::NotJson`].
pub(super) fn read(json: &[u8], bytes_max: usize, depth_max: usize) -> Result<Value, CardError> {
    if json.len() > bytes_max {
        return Err(CardError::of("", CardProblem::TooLarge(bytes_max)));
    }
    let json = without_mark(json);
    read_bounded(json, depth_max).or_else(|error| match without_lone_surrogates(json) {
        Some(paired) => read_bounded(&paired, depth_max),
        None => Err(error),
    })
}

fn read_bounded(json: &[u8], depth_max: usize) -> Result<Value, CardError> {
    let found = Cell::new(None);
    let seed = BoundedValue { depth_remaining: depth_max, found: &found };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = seed.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| match found.into_inner() {
        Some(RefusedJson::TooDeep) => CardError::of("", CardProblem::TooDeep(depth_max)),
        Some(RefusedJson::Twice(member)) => CardError::of(&member, CardProblem::Twice),
        None => CardError::of("", CardProblem::NotJson(error.to_string())),
    })
}

/// Errors that serde does not have.
enum RefusedJson {
    TooDeep,
    Twice(String),
}

/// Reads a value with at most `depth_remaining` nested levels.
#[derive(Clone, Copy)]
struct BoundedValue<'f> {
    depth_remaining: usize,
    found: &'f Cell<Option<RefusedJson>>,
}

impl<'f> BoundedValue<'f> {
    fn inner<E: Error>(self) -> Result<BoundedValue<'f>, E> {
        let depth_remaining = self.depth_remaining.checked_sub(1);
        let Some(depth_remaining) = depth_remaining else {
            self.found.set(Some(RefusedJson::TooDeep));
            return Err(E::custom("too deep"));
        };
        Ok(BoundedValue { depth_remaining, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
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

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(inner)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if members.contains_key(&name) {
                self.found.set(Some(RefusedJson::Twice(name)));
                return Err(A::Error::custom("twice"));
            }
            let value = map.next_value_seed(inner)?;
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn problem(json: &str) -> CardProblem {
        read(json.as_bytes(), 100, 3).unwrap_err().problem
    }

    #[test]
    fn json_reader_agrees_with_serde_json() {
        for json in [r#"{"a":[1,-2,3.5,"x",true,null,{}]}"#, "[]", "7", "18446744073709551615"] {
            let value: Value = serde_json::from_str(json).unwrap();
            assert_eq!(read(json.as_bytes(), 100, 3).unwrap(), value);
        }
    }

    #[test]
    fn oversized_deep_or_repeated_json_is_rejected() {
        assert_eq!(problem(&" ".repeat(101)), CardProblem::TooLarge(100));
        assert!(read(b"[[{}]]", 100, 3).is_ok());
        assert_eq!(problem("[[{\"a\":[]}]]"), CardProblem::TooDeep(3));
        let error = read(br#"{"a":{"url":1,"url":2}}"#, 100, 3).unwrap_err();
        assert_eq!((error.problem, error.member.as_str()), (CardProblem::Twice, "url"));
        for json in ["", "{", "{}x", "nul", "1e999", "\"\u{1}\""] {
            assert!(matches!(problem(json), CardProblem::NotJson(_)), "{json}");
        }
    }

    #[test]
    fn deep_document_is_rejected_without_a_deep_stack() {
        let deep = "[".repeat(1 << 20);
        let error = read(deep.as_bytes(), 1 << 20, 64).unwrap_err();
        assert_eq!(error.problem, CardProblem::TooDeep(64));
    }
}
