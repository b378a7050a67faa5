//! Flags, which override the environment and the file.

use std::{ffi::OsString, path::PathBuf};

use clap::ArgMatches;
use peregrine::limits::{LimitError, Limits};

use super::{
    UsageError,
    tree::{
        ConfigEntry, ConfigSection, ConfigSource, ConfigValue, Item, Key, Shape, SourcedValue, hint,
    },
};

/// Switches that negate or repeat a key: the flag, the section of the key (empty: the root), the
/// key, and its value.
const SWITCHES: &[(&str, &str, &str, bool)] = &[
    ("no-streaming", "", "streaming", false),
    ("no-extended-card", "", "extended_card", false),
    ("no-push", "push", "enabled", false),
];

/// Sections with keys that have flags.
const SECTIONS: &[&str] = &["tls", "logs", "push"];

/// Sets the values of the flags.
///
/// # Errors
/// [`UsageError`].
pub fn with_flags(root: &mut ConfigSection, flags: &ArgMatches) -> Result<(), UsageError> {
    set_from_flags(root, flags)?;
    for (at, key) in root.keys.iter().enumerate() {
        if let (Some(ConfigEntry::Section(section)), true) =
            (root.entries[at].as_mut(), SECTIONS.contains(&key.name))
        {
            set_from_flags(section, flags)?;
        }
    }
    for (flag, section, name, is_on) in SWITCHES {
        if flags.get_flag(flag) {
            let sourced = SourcedValue {
                value: ConfigValue::Switch(*is_on),
                source: ConfigSource::Flag(flag),
            };
            let index = root.keys.iter().position(|key| key.name == *section);
            match index.map(|at| root.entries[at].as_mut()) {
                Some(Some(ConfigEntry::Section(section))) => {
                    section.set(name, ConfigEntry::Value(sourced));
                }
                _ => root.set(name, ConfigEntry::Value(sourced)),
            }
        }
    }
    all(flags, "limit").try_for_each(|text| limit(root, text))
}

fn set_from_flags(section: &mut ConfigSection, flags: &ArgMatches) -> Result<(), UsageError> {
    for key in section.keys.iter().filter(|key| !key.flag.is_empty()) {
        if let Some(value) = value(key, flags)? {
            let source = ConfigSource::Flag(key.flag);
            section.set(key.name, ConfigEntry::Value(SourcedValue { value, source }));
        }
    }
    Ok(())
}

/// The value of a key's flag.
fn value(key: &Key, flags: &ArgMatches) -> Result<Option<ConfigValue>, UsageError> {
    let wrong = |message| UsageError(format!("--{}: {message}", key.flag));
    match &key.shape {
        Shape::Switch => Ok(flags.get_flag(key.flag).then_some(ConfigValue::Switch(true))),
        Shape::Path => {
            let last = flags.get_many::<OsString>(key.flag).and_then(|mut all| all.next_back());
            Ok(last.map(|path| ConfigValue::Path(PathBuf::from(path))))
        }
        // A list in one value, separated by commas.
        Shape::Texts if key.flag == "interfaces" => Ok(last(flags, key.flag).map(split)),
        Shape::TextsOr(word) => Ok(last(flags, key.flag).map(|text| match text {
            text if text == *word => ConfigValue::Text(text.to_owned()),
            text => split(text),
        })),
        Shape::Texts | Shape::Paths | Shape::Sections(_) | Shape::Named(_) => {
            let items: Vec<Item> = all(flags, key.flag).map(Item::from).collect();
            Ok((!items.is_empty()).then_some(ConfigValue::Texts(items)))
        }
        shape => last(flags, key.flag).map(|text| shape.read(text).map_err(wrong)).transpose(),
    }
}

/// Splits a list at commas; an empty item is retained, so that it is reported as invalid.
fn split(text: &str) -> ConfigValue {
    ConfigValue::Texts(text.split(',').map(Item::from).collect())
}

/// Sets a limit from `NAME=VALUE`.
fn limit(root: &mut ConfigSection, text: &str) -> Result<(), UsageError> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(UsageError(format!("--limit {text:?} must be NAME=VALUE")));
    };
    let names = Limits::NAMES.iter().copied();
    if Limits::default().set(name, "1") == Err(LimitError::Name) {
        let hint = hint(name, names);
        return Err(UsageError(format!("unknown limit {name:?}{hint}")));
    }
    let index = root.keys.iter().position(|key| key.name == "limits");
    if let Some(Some(ConfigEntry::Section(limits))) = index.map(|at| root.entries[at].as_mut()) {
        let value = ConfigValue::Text(value.to_owned());
        limits.set(
            name,
            ConfigEntry::Value(SourcedValue { value, source: ConfigSource::Flag("limit") }),
        );
    }
    Ok(())
}

/// The values of a flag, in order.
fn all<'m>(flags: &'m ArgMatches, name: &str) -> impl Iterator<Item = &'m str> + use<'m> {
    flags.get_many::<String>(name).into_iter().flatten().map(String::as_str)
}

/// The last value of a flag.
fn last<'m>(flags: &'m ArgMatches, name: &str) -> Option<&'m str> {
    all(flags, name).last()
}
