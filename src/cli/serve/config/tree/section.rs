//! A section: the keys that were set, with their values and sources.

use std::path::PathBuf;

use ring::digest;
use zeroize::Zeroize;

use peregrine::limits::Unit;

use super::shape::Key;

/// Maximum time of a key, about 9,000 years.
const MILLIS_MAX: u64 = 1 << 48;

/// The source of a value; a later variant overrides an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The file; the number of the line.
    File(usize),
    /// A variable of the environment; its name.
    Variable(String),
    /// A flag; its name without dashes.
    Flag(&'static str),
}

/// An error and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The source of the error.
    pub source: ConfigSource,
    /// The key, such as `tls.cert`; empty: the error concerns the whole file.
    pub key: String,
    /// The error.
    pub message: String,
}

impl Wrong {
    /// The error in one line; `file` is the name of the file.
    pub fn line(&self, file: &str) -> String {
        let Wrong { source, key, message } = self;
        match source {
            // An argument of a command that reads no file.
            ConfigSource::File(_) if file.is_empty() => message.clone(),
            ConfigSource::File(line) if key.is_empty() => format!("{file}:{line}: {message}"),
            ConfigSource::File(line) => format!("{file}:{line}: {key}: {message}"),
            ConfigSource::Variable(name) => format!("{name}: {message}"),
            // The flag may be repeated; the name of the limit identifies the occurrence.
            ConfigSource::Flag("limit") => {
                let name = key.trim_start_matches("limits.");
                format!("--limit {name}: {message}")
            }
            ConfigSource::Flag(name) => format!("--{name}: {message}"),
        }
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigValue {
    /// True or false.
    Switch(bool),
    /// A number.
    Whole(u64),
    /// A string.
    Text(String),
    /// A path.
    Path(PathBuf),
    /// Strings.
    Texts(Vec<Item>),
}

/// One string of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The string.
    pub text: String,
    /// The line of the string, if it is from the file.
    pub line: Option<usize>,
}

impl From<&str> for Item {
    fn from(text: &str) -> Item {
        Item { text: text.to_owned(), line: None }
    }
}

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcedValue {
    /// The value.
    pub value: ConfigValue,
    /// The source of the value.
    pub source: ConfigSource,
}

/// The content of a key.
#[derive(Clone, Debug)]
pub enum ConfigEntry {
    /// A value.
    Value(SourcedValue),
    /// A section.
    Section(ConfigSection),
    /// Several sections.
    Sections(Vec<ConfigSection>),
    /// Several sections, each with its name, in the order of the file.
    Named(Vec<(String, ConfigSection)>),
}

/// A section: the entries of the keys in its table.
#[derive(Clone, Debug)]
pub struct ConfigSection {
    /// The table of keys.
    pub keys: &'static [Key],
    /// The prefix of the keys: `tls.` for the keys of `[tls]`.
    pub path: String,
    /// The first source of the section; `None`: the section was not set.
    pub source: Option<ConfigSource>,
    /// The entries in the order of `keys`; inner sections are always present.
    pub entries: Vec<Option<ConfigEntry>>,
}

impl ConfigSection {
    /// A section without entries.
    pub fn new(keys: &'static [Key], path: String, source: Option<ConfigSource>) -> ConfigSection {
        let entry = |key: &Key| match key.shape {
            super::Shape::Section(inner) => {
                let path = format!("{path}{}.", key.name);
                Some(ConfigEntry::Section(ConfigSection::new(inner(), path, None)))
            }
            _ => None,
        };
        let entries = keys.iter().map(entry).collect();
        ConfigSection { keys, path, source, entries }
    }

    /// The entry of a key.
    pub fn entry(&self, name: &str) -> Option<&ConfigEntry> {
        let index = self.keys.iter().position(|key| key.name == name)?;
        self.entries.get(index)?.as_ref()
    }

    /// Sets the entry of a key; the last call determines the entry.
    pub fn set(&mut self, name: &str, entry: ConfigEntry) {
        if let Some(index) = self.keys.iter().position(|key| key.name == name) {
            self.entries[index] = Some(entry);
        }
    }

    /// The value of a key.
    pub fn value(&self, name: &str) -> Option<&SourcedValue> {
        match self.entry(name)? {
            ConfigEntry::Value(sourced) => Some(sourced),
            ConfigEntry::Section(_) | ConfigEntry::Sections(_) | ConfigEntry::Named(_) => None,
        }
    }

    /// The section under a key.
    pub fn section(&self, name: &str) -> Option<&ConfigSection> {
        match self.entry(name)? {
            ConfigEntry::Section(section) => Some(section),
            ConfigEntry::Value(_) | ConfigEntry::Sections(_) | ConfigEntry::Named(_) => None,
        }
    }

    /// The sections under a key.
    pub fn sections(&self, name: &str) -> &[ConfigSection] {
        match self.entry(name) {
            Some(ConfigEntry::Sections(sections)) => sections,
            _ => &[],
        }
    }

    /// The named sections under a key.
    pub fn named(&self, name: &str) -> &[(String, ConfigSection)] {
        match self.entry(name) {
            Some(ConfigEntry::Named(sections)) => sections,
            _ => &[],
        }
    }

    /// The value of a switch.
    pub fn switch(&self, name: &str) -> Option<bool> {
        match self.value(name)?.value {
            ConfigValue::Switch(is_on) => Some(is_on),
            _ => None,
        }
    }

    /// The value of a number.
    pub fn whole(&self, name: &str) -> Option<u64> {
        match self.value(name)?.value {
            ConfigValue::Whole(number) => Some(number),
            _ => None,
        }
    }

    /// The value of a string.
    pub fn text(&self, name: &str) -> Option<&str> {
        match &self.value(name)?.value {
            ConfigValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a time in milliseconds, above zero.
    ///
    /// # Errors
    /// [`Wrong`]: the value is not a time above zero.
    pub fn millis(&self, name: &str) -> Result<Option<u64>, Wrong> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let read = Unit::Millis.read(text).ok().filter(|ms| (1..=MILLIS_MAX).contains(ms));
        let wrong = || self.wrong(name, format!("{text:?} must be a time above zero"));
        read.map(Some).ok_or_else(wrong)
    }

    /// The value of a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        match &self.value(name)?.value {
            ConfigValue::Path(path) => Some(path.clone()),
            ConfigValue::Text(text) => Some(PathBuf::from(text)),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn texts(&self, name: &str) -> Option<&[Item]> {
        match &self.value(name)?.value {
            ConfigValue::Texts(items) => Some(items),
            _ => None,
        }
    }

    /// The strings of a list, without their lines.
    pub fn strings(&self, name: &str) -> Option<Vec<String>> {
        self.texts(name).map(|items| items.iter().map(|item| item.text.clone()).collect())
    }

    /// Replaces every secret by a digest, which still shows whether the secret has changed.
    pub fn forget_secrets(&mut self) {
        for (key, entry) in self.keys.iter().zip(&mut self.entries) {
            match entry {
                Some(ConfigEntry::Value(sourced)) if key.is_secret => forget(&mut sourced.value),
                Some(ConfigEntry::Section(section)) => section.forget_secrets(),
                Some(ConfigEntry::Sections(all)) => {
                    all.iter_mut().for_each(ConfigSection::forget_secrets);
                }
                Some(ConfigEntry::Named(all)) => {
                    all.iter_mut().for_each(|(_, section)| section.forget_secrets());
                }
                Some(ConfigEntry::Value(_)) | None => {}
            }
        }
    }

    /// Whether the section was set, even if it is empty.
    pub fn is_set(&self) -> bool {
        self.source.is_some() || !self.is_empty()
    }

    /// True if no key and no inner section was set.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().flatten().all(|entry| match entry {
            ConfigEntry::Section(section) => !section.is_set(),
            ConfigEntry::Value(_) | ConfigEntry::Sections(_) | ConfigEntry::Named(_) => false,
        })
    }

    /// An error of a key, or of the section if the key was not set.
    pub fn wrong(&self, name: &str, message: impl Into<String>) -> Wrong {
        let source = match self.entry(name) {
            Some(ConfigEntry::Value(sourced)) => Some(sourced.source.clone()),
            Some(ConfigEntry::Section(section)) => section.source.clone(),
            Some(ConfigEntry::Sections(all)) => all.first().and_then(|first| first.source.clone()),
            Some(ConfigEntry::Named(all)) => {
                all.first().and_then(|(_, first)| first.source.clone())
            }
            None => None,
        };
        let source = source.or_else(|| self.source.clone()).unwrap_or(ConfigSource::File(1));
        Wrong { source, key: format!("{}{name}", self.path), message: message.into() }
    }

    /// An error of one string in a list.
    pub fn wrong_item(&self, name: &str, index: usize, message: impl Into<String>) -> Wrong {
        let line = self.texts(name).and_then(|items| items.get(index)?.line);
        let wrong = self.wrong(name, message);
        match line {
            Some(line) => Wrong { source: ConfigSource::File(line), ..wrong },
            None => wrong,
        }
    }
}

/// Replaces a secret, or each secret of a list, by its digest.
fn forget(value: &mut ConfigValue) {
    let forget_text = |text: &mut String| {
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        text.zeroize();
        *text = format!("{digest:?}");
    };
    match value {
        ConfigValue::Text(text) => forget_text(text),
        ConfigValue::Texts(items) => items.iter_mut().for_each(|item| forget_text(&mut item.text)),
        // Secrets are strings.
        ConfigValue::Switch(_) | ConfigValue::Whole(_) | ConfigValue::Path(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Shape, key},
        *,
    };

    #[test]
    fn forgotten_secrets_are_unreadable_but_comparable() {
        const KEYS: &[Key] = &[
            key("token", Shape::Text, "", "").secret(),
            key("headers", Shape::Texts, "", "").secret(),
            key("name", Shape::Text, "", ""),
        ];
        let forgotten = |token: &str, header: &str| {
            let mut section = ConfigSection::new(KEYS, String::new(), None);
            let mut set = |name: &str, value: ConfigValue| {
                let source = ConfigSource::File(1);
                section.set(name, ConfigEntry::Value(SourcedValue { value, source }));
            };
            set("token", ConfigValue::Text(token.to_owned()));
            set("headers", ConfigValue::Texts(vec![header.into(), "hush-2".into()]));
            set("name", ConfigValue::Text("plain".to_owned()));
            section.forget_secrets();
            format!("{:?}", section.entries)
        };
        let first = forgotten("hush-0", "hush-1");
        assert!(!first.contains("hush") && first.contains("plain"), "{first}");
        assert_eq!(first, forgotten("hush-0", "hush-1"));
        assert_ne!(first, forgotten("hush-0", "hush-3"));
        assert_ne!(first, forgotten("hush-4", "hush-1"));
    }
}
