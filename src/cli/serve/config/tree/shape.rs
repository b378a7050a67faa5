//! The keys of a section, and the shapes of their values.

use peregrine::limits::Unit;

use super::{
    hint,
    section::{ConfigValue, Item},
};

/// One key of a section: a row of the table that defines the file, the environment, the schema,
/// `config show` and the example.
#[derive(Debug)]
pub struct Key {
    /// The name of the key.
    pub name: &'static str,
    /// The shape of the value.
    pub shape: Shape,
    /// The default value as TOML; empty: TOML cannot express the default.
    pub default: &'static str,
    /// The purpose in one line.
    pub help: &'static str,
    /// The name of the flag, without dashes; empty: the key has no flag.
    pub flag: &'static str,
    /// True: a reload applies a change of the key; otherwise a change needs a restart.
    pub is_live: bool,
    /// True: the value is never shown.
    pub is_secret: bool,
}

/// A key without a flag. A change of the key needs a restart.
pub const fn key(
    name: &'static str,
    shape: Shape,
    default: &'static str,
    help: &'static str,
) -> Key {
    Key { name, shape, default, help, flag: "", is_live: false, is_secret: false }
}

impl Key {
    /// Adds a flag.
    pub const fn flag(self, flag: &'static str) -> Key {
        Key { flag, ..self }
    }

    /// Marks the key as a secret: its value is never shown and is dropped after reading.
    pub const fn secret(self) -> Key {
        Key { is_secret: true, ..self }
    }

    /// Marks the key as live: a reload applies a change.
    pub const fn live(self) -> Key {
        Key { is_live: true, ..self }
    }
}

/// The shape of a value.
#[derive(Debug)]
pub enum Shape {
    /// True or false.
    Switch,
    /// True, false, or this word.
    SwitchOr(&'static str),
    /// A whole number in a range.
    Whole {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A number, or a string with a number and its unit.
    Measure(Unit),
    /// A string.
    Text,
    /// The path of a file. In the configuration file, it is relative to the folder of that file.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An array of strings.
    Texts,
    /// An array of paths of files, each of which may have a suffix. In the configuration file,
    /// paths are relative to the folder of that file.
    Paths,
    /// An array of whole numbers, or of strings that are numbers.
    Numbers,
    /// A given word, or an array of strings.
    TextsOr(&'static str),
    /// A table with these keys.
    Section(fn() -> &'static [Key]),
    /// Any number of tables with these keys.
    Sections(fn() -> &'static [Key]),
    /// A table of such tables, each with its name as key.
    Named(fn() -> &'static [Key]),
}

impl Shape {
    /// Reads the text of a variable or a flag; commas separate the items of a list.
    ///
    /// # Errors
    /// The error, without the key.
    pub fn read(&self, text: &str) -> Result<ConfigValue, String> {
        let list = || {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            ConfigValue::Texts(items.map(Item::from).collect())
        };
        match self {
            Shape::Switch => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Ok(ConfigValue::Switch(true)),
                "false" | "0" | "no" | "off" => Ok(ConfigValue::Switch(false)),
                _ => Err(format!("{text:?} is not true or false")),
            },
            Shape::SwitchOr(word) if text == *word => Ok(ConfigValue::Text(text.to_owned())),
            Shape::SwitchOr(word) => {
                let wrong = |_| format!("{text:?} must be true, false or {word}");
                Shape::Switch.read(text).map_err(wrong)
            }
            Shape::Whole { min, max } => {
                let number = text.parse().ok().filter(|number| (*min..=*max).contains(number));
                let wrong = || format!("{text:?} must be a number from {min} to {max}");
                number.map(ConfigValue::Whole).ok_or_else(wrong)
            }
            Shape::Measure(_) | Shape::Text | Shape::Path => Ok(ConfigValue::Text(text.to_owned())),
            Shape::Choice(words) => choice(words, text),
            Shape::Texts | Shape::Paths | Shape::Numbers => Ok(list()),
            Shape::TextsOr(word) if text == *word => Ok(ConfigValue::Text(text.to_owned())),
            Shape::TextsOr(_) => Ok(list()),
            Shape::Section(_) | Shape::Sections(_) | Shape::Named(_) => {
                Err("is a table and can only be set in the file".to_owned())
            }
        }
    }
}

/// One of the words.
pub(super) fn choice(words: &[&str], text: &str) -> Result<ConfigValue, String> {
    if words.contains(&text) {
        return Ok(ConfigValue::Text(text.to_owned()));
    }
    let hint = hint(text, words.iter().copied());
    Err(format!("{text:?} must be one of {}{hint}", words.join(", ")))
}
