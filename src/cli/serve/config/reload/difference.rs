//! The changed keys that need a restart of the server.

use super::{
    super::tree::{ConfigEntry, ConfigValue},
    ConfigSection,
};

/// The keys that differ and are not live, such as `limits.tasks_max`.
pub fn held_back(started: &ConfigSection, next: &ConfigSection) -> Vec<String> {
    let mut held = Vec::new();
    note(started, next, &mut held);
    // The listening sockets decide whether the server speaks TLS.
    let has_tls = |root: &ConfigSection| root.section("tls").is_some_and(|tls| !tls.is_empty());
    if has_tls(started) != has_tls(next) {
        held.push("tls".to_owned());
    }
    held
}

fn note(started: &ConfigSection, next: &ConfigSection, held: &mut Vec<String>) {
    for ((key, before), after) in next.keys.iter().zip(&started.entries).zip(&next.entries) {
        match (before, after) {
            (Some(ConfigEntry::Section(before)), Some(ConfigEntry::Section(after))) => {
                note(before, after, held);
            }
            _ if key.is_live || is_same(before.as_ref(), after.as_ref()) => {}
            _ => held.push(format!("{}{}", next.path, key.name)),
        }
    }
}

/// Whether two entries have the same value, from any source.
pub fn is_same(one: Option<&ConfigEntry>, other: Option<&ConfigEntry>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(ConfigEntry::Value(one)), Some(ConfigEntry::Value(other))) => {
            is_same_value(&one.value, &other.value)
        }
        (Some(ConfigEntry::Section(one)), Some(ConfigEntry::Section(other))) => {
            is_same_section(one, other)
        }
        (Some(ConfigEntry::Sections(one)), Some(ConfigEntry::Sections(other))) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| is_same_section(one, other))
        }
        (Some(ConfigEntry::Named(one)), Some(ConfigEntry::Named(other))) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len()
                && pairs.all(|((name, one), (other_name, other))| {
                    name == other_name && is_same_section(one, other)
                })
        }
        (_, _) => false,
    }
}

fn is_same_section(one: &ConfigSection, other: &ConfigSection) -> bool {
    let mut pairs = one.entries.iter().zip(&other.entries);
    pairs.all(|(one, other)| is_same(one.as_ref(), other.as_ref()))
}

fn is_same_value(one: &ConfigValue, other: &ConfigValue) -> bool {
    match (one, other) {
        (ConfigValue::Texts(one), ConfigValue::Texts(other)) => {
            one.iter().map(|item| &item.text).eq(other.iter().map(|item| &item.text))
        }
        (one, other) => one == other,
    }
}
