//! An object of a card and its path, so that an error can name a member.
//!
//! Invariant: a member is found by its JSON name or its proto name (A2A 1.0 §5.5, wire §1.7).
//! `null` counts as absent, and an empty array as an empty object, as PHP writes it. Numbers and
//! flags can be read as text.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{super::limits::CARD_ENTRIES_MAX, CardError, CardProblem};

/// An object, and the path to it.
pub(super) struct CardObject<'v> {
    path: String,
    /// `None`: the JSON was an empty array.
    members: Option<&'v Map<String, Value>>,
}

impl<'v> CardObject<'v> {
    /// `path` is empty for the card itself.
    pub fn of(path: &str, value: &'v Value) -> Option<CardObject<'v>> {
        let members = match value {
            Value::Object(members) => Some(members),
            Value::Array(list) if list.is_empty() => None,
            _ => return None,
        };
        Some(CardObject { path: path.to_owned(), members })
    }

    /// False: the JSON was an empty array.
    pub fn is_object(&self) -> bool {
        self.members.is_some()
    }

    /// Names and values of all members.
    pub fn members(&self) -> impl Iterator<Item = (&'v String, &'v Value)> + use<'v> {
        self.members.into_iter().flatten()
    }

    /// The path of a member.
    pub fn path(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    /// The error for a missing member.
    pub fn missing(&self, name: &str) -> CardError {
        CardError::of(&self.path(name), CardProblem::Missing)
    }

    /// The error for a member with another type than `wanted`.
    pub fn wrong_type(&self, name: &str, wanted: &'static str) -> CardError {
        CardError::of(&self.path(name), CardProblem::Type(wanted))
    }

    /// The member with this JSON name, unless it is `null`.
    pub fn get(&self, name: &str) -> Option<&'v Value> {
        let members = self.members?;
        let value = members.get(name).or_else(|| match snake_case(name) {
            Cow::Borrowed(_) => None,
            Cow::Owned(name) => members.get(&name),
        });
        value.filter(|value| !value.is_null())
    }

    /// A member as text; `None` for arrays and objects.
    pub fn text(&self, name: &str) -> Option<String> {
        as_text(self.get(name)?)
    }

    /// The text of the first present member.
    pub fn text_of(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.text(name))
    }

    /// A text that is not blank.
    pub fn required_text(&self, name: &str) -> Result<String, CardError> {
        let value = self.get(name).ok_or_else(|| self.missing(name))?;
        let text = value.as_str().ok_or_else(|| self.wrong_type(name, "a string"))?;
        if text.trim().is_empty() {
            return Err(self.missing(name));
        }
        Ok(text.to_owned())
    }

    /// A flag: `true` or `false`, also as a text.
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.get(name)? {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) => text.to_ascii_lowercase().parse().ok(),
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// A member that is an object.
    pub fn object(&self, name: &str) -> Option<CardObject<'v>> {
        CardObject::of(&self.path(name), self.get(name)?)
    }

    /// A member that is an object of any content.
    pub fn map(&self, name: &str) -> Option<Map<String, Value>> {
        self.get(name)?.as_object().cloned()
    }

    /// The entries of an array, each with its path; empty for any other value.
    pub fn list(&self, name: &str) -> Result<Vec<(String, &'v Value)>, CardError> {
        self.list_max(name, CARD_ENTRIES_MAX)
    }

    /// The same with a limit other than `CARD_ENTRIES_MAX`.
    pub fn list_max(&self, name: &str, max: usize) -> Result<Vec<(String, &'v Value)>, CardError> {
        let Some(entries) = self.get(name).and_then(Value::as_array) else {
            return Ok(Vec::new());
        };
        let path = self.path(name);
        if entries.len() > max {
            return Err(CardError::of(&path, CardProblem::TooMany(max)));
        }
        let numbered = entries.iter().enumerate();
        Ok(numbered.map(|(index, value)| (format!("{path}[{index}]"), value)).collect())
    }

    /// The texts of an array; a single text is one entry, and other values are omitted.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, CardError> {
        if let Some(Value::String(only)) = self.get(name) {
            return Ok(vec![only.clone()]);
        }
        Ok(self.list(name)?.into_iter().filter_map(|(_, value)| as_text(value)).collect())
    }
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The proto name of a JSON name: `tokenUrl` is `token_url`; borrowed if both are equal.
pub(super) fn snake_case(name: &str) -> Cow<'_, str> {
    if !name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Borrowed(name);
    }
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    Cow::Owned(snake)
}
