//! The keys of a section, and what their values look like.

use peregrine::limits::Unit;

use super::{
    hint,
    section::{ConfigValue, Item},
};

/// One key of a section: a row of the table that the file, the environment, the schema, the list of
/// what holds and the example are made of.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value looks like.
    pub shape: Shape,
    /// The value in force when none is set, as TOML; empty: none that could be written.
    pub default: &'static str,
    /// What it is for, in one line.
    pub help: &'static str,
    /// Its flag, without dashes; empty: it has none.
    pub flag: &'static str,
    /// True: a reload changes it; otherwise it holds until the server is started again.
    pub is_live: bool,
    /// True: its value is never shown.
    pub is_secret: bool,
}

/// A key without a flag, which holds until the server is started again.
pub const fn key(
    name: &'static str,
    shape: Shape,
    default: &'static str,
    help: &'static str,
) -> Key {
    Key { name, shape, default, help, flag: "", is_live: false, is_secret: false }
}

impl Key {
    /// The same, with a flag.
    pub const fn flag(self, flag: &'static str) -> Key {
        Key { flag, ..self }
    }

    /// The same, whose value is never shown and kept no longer than it takes to read it.
    pub const fn secret(self) -> Key {
        Key { is_secret: true, ..self }
    }

    /// The same, which a reload changes.
    pub const fn live(self) -> Key {
        Key { is_live: true, ..self }
    }
}

/// What a value looks like.
#[derive(Debug)]
pub enum Shape {
    /// True or false.
    Switch,
    /// True, false, or this word.
    SwitchOr(&'static str),
    /// A whole number of these.
    Whole {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A number, or a string with a number and its unit.
    Measure(Unit),
    /// A string.
    Text,
    /// The path of a file; one in the file is from the folder of the file.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An array of strings.
    Texts,
    /// An array of paths of files, each of which may have more behind it; one in the file is from
    /// the folder of the file.
    Paths,
    /// An array of whole numbers, or of strings that are numbers.
    Numbers,
    /// This word, or an array of strings.
    TextsOr(&'static str),
    /// A table with these keys.
    Section(fn() -> &'static [Key]),
    /// Any number of tables with these keys.
    Sections(fn() -> &'static [Key]),
    /// A table of such tables, each under a name of its own.
    Named(fn() -> &'static [Key]),
}

impl Shape {
    /// Reads a value that stands alone, as a variable or a flag has it; lists have commas.
    ///
    /// # Errors
    /// What is wrong with it, without its key.
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
