//! Reads the tables of a script with serde, with precise errors.
//!
//! Invariant: no key is ignored and no value is converted; a value that was read is valid by
//! itself. [`super::rules`] checks the conditions on several keys. Every error names the line, and
//! the rule, step and part, counted from 1.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_path_to_error::{Path, Segment};
use toml::Spanned;

use super::{ScriptError, suggest::suggest, tables::File};

/// Reads the tables of the file.
pub(super) fn file(text: &str) -> Result<File, ScriptError> {
    let error = |error: &toml::de::Error, message| ScriptError {
        line: error.span().map(|span| line_of(text, span.start)),
        message,
    };
    let toml = toml::Deserializer::parse(text);
    let toml = toml.map_err(|syntax| error(&syntax, syntax.message().to_owned()))?;
    let read = serde_path_to_error::deserialize(toml);
    read.map_err(|wrong| error(wrong.inner(), sentence(wrong.path(), wrong.inner().message())))
}

/// A table in an array, with its position.
pub(super) type TomlElement<T> = Spanned<TomlTable<T>>;

/// A table. Without this type, serde would read an array as the values of a table's keys, in order.
pub(super) struct TomlTable<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TomlTable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TomlKeys<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for TomlKeys<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(TABLE)
            }

            fn visit_map<A: MapAccess<'de>>(self, keys: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(keys))
            }
        }

        deserializer.deserialize_map(TomlKeys(std::marker::PhantomData)).map(TomlTable)
    }
}

/// A whole number in this range.
#[derive(Clone, Copy)]
pub(super) struct Whole<const MIN: u64, const MAX: u64>(pub u64);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer).ok();
        let number = number.filter(|number| (MIN..=MAX).contains(number));
        let wrong = || D::Error::custom(format!("must be a whole number from {MIN} to {MAX}"));
        number.map(Whole).ok_or_else(wrong)
    }
}

/// An array of strings.
pub(super) fn texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    let texts = Vec::deserialize(deserializer);
    texts.map(Some).map_err(|_| D::Error::custom("must be an array of strings"))
}

/// The position of a table, and its name in errors.
pub(super) struct Location<'s> {
    source: &'s str,
    start: usize,
    name: String,
}

impl<'s> Location<'s> {
    pub fn root(source: &'s str) -> Location<'s> {
        Location { source, start: 0, name: String::new() }
    }

    /// The location of a table in an array; `index` counts from 0.
    pub fn of<T>(&self, noun: &str, index: usize, table: &Spanned<T>) -> Location<'s> {
        let name = join(&self.name, &format!("{noun} {}", index + 1));
        Location { source: self.source, start: table.span().start, name }
    }

    /// An error about the value of `key`, or about the table if the value is absent.
    pub fn wrong<T>(&self, key: &str, value: &Option<Spanned<T>>, message: &str) -> ScriptError {
        let start = value.as_ref().map_or(self.start, |value| value.span().start);
        self.error(start, &format!("`{key}` {message}"))
    }

    /// An error about an unknown key of this table, at position `start`.
    pub fn unknown(&self, key: &str, start: usize, known: &[&str]) -> ScriptError {
        self.error(start, &unknown(key, known))
    }

    /// An error about the table as a whole.
    pub fn fail(&self, message: &str) -> ScriptError {
        self.error(self.start, message)
    }

    fn error(&self, start: usize, message: &str) -> ScriptError {
        let message = prefixed(&self.name, message);
        ScriptError { line: Some(line_of(self.source, start)), message }
    }
}

/// What serde reports as expected for [`TomlTable`].
const TABLE: &str = "a table";

/// An error of serde, or of a type that it reads, in the terms of a script: the key, then the error
/// in its value.
fn sentence(path: &Path, message: &str) -> String {
    let mut steps: Vec<&Segment> = path.iter().filter(|step| !is_wrapper(step)).collect();
    if let Some(key) = message.strip_prefix("missing field ") {
        return prefixed(&location(&steps), &format!("{key} must be a non-empty string"));
    }
    let in_array = matches!(steps.last(), Some(Segment::Seq { .. }));
    if in_array {
        steps.pop();
    }
    let key = match steps.pop() {
        Some(Segment::Map { key }) => key.as_str(),
        Some(_) | None => return message.to_owned(),
    };
    let location = location(&steps);
    if message.starts_with("unknown field ") {
        // The first quoted name is the unknown key.
        let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        return prefixed(&location, &unknown(key, &known));
    }
    let what = match message.rsplit_once(", expected ") {
        Some((_, TABLE)) if in_array => "must be an array of tables".to_owned(),
        Some((_, TABLE)) => format!("must be one table, written [{key}]"),
        Some((_, "a sequence")) => "must be an array of tables".to_owned(),
        Some((_, "a boolean")) => "must be true or false".to_owned(),
        Some((_, other)) => format!("must be {other}"),
        None => message.to_owned(),
    };
    prefixed(&location, &format!("`{key}` {what}"))
}

/// Whether [`Spanned`] has inserted this step between a key and its value.
fn is_wrapper(step: &Segment) -> bool {
    matches!(step, Segment::Map { key } if key.starts_with("$__"))
}

/// `rule 1, step 2` for `rule[0].step[1]`.
fn location(steps: &[&Segment]) -> String {
    let mut name = String::new();
    for (at, step) in steps.iter().enumerate() {
        let Segment::Map { key } = step else { continue };
        let noun = match key.as_str() {
            "message" | "parts" => "part",
            "skills" => "skill",
            "extensions" => "extension",
            other => other,
        };
        name = match steps.get(at + 1) {
            Some(Segment::Seq { index }) => join(&name, &format!("{noun} {}", index + 1)),
            Some(_) | None => join(&name, noun),
        };
    }
    name
}

fn unknown(key: &str, known: &[&str]) -> String {
    format!("unknown key `{key}`; {}", suggest(key, known))
}

fn join(location: &str, name: &str) -> String {
    if location.is_empty() { name.to_owned() } else { format!("{location}, {name}") }
}

fn prefixed(location: &str, message: &str) -> String {
    if location.is_empty() { message.to_owned() } else { format!("{location}: {message}") }
}

fn line_of(source: &str, offset: usize) -> usize {
    1 + source.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count()
}
