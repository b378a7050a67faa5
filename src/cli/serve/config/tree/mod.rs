//! A configuration as a tree: a table of keys for each section, and a source for each value.
//!
//! Invariant: this module does not read files, the environment or the clock. A [`ConfigSection`]
//! has only keys of its table, each with a value of its shape; any other input is a [`Wrong`].

mod document;
mod environment;
mod expand;
mod section;
mod shape;

pub use document::read;
pub use environment::{Variables, with_variables};
pub use section::{
    ConfigEntry, ConfigSection, ConfigSource, ConfigValue, Item, SourcedValue, Wrong,
};
pub use shape::{Key, Shape, key};

use super::nearest::nearest;

/// The text `; did you mean …?`; empty if no known word is similar.
pub fn hint<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    nearest(word, candidates).map_or(String::new(), |near| format!("; did you mean {near}?"))
}
