//! `[limits]`: every limit by its name. `memory`: the budget for the limits that are not set.

use std::sync::LazyLock;

use peregrine::{
    limits::{LimitError, Limits, Unit},
    net::LIVE_LIMITS,
};

use super::super::tree::{ConfigSection, ConfigValue, Key, Shape, Wrong, key};

static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let rows = Limits::default().rows().into_iter().map(|(name, default)| {
        // Leaked once per process, since the table is static.
        let default: &'static str = default.to_string().leak();
        let key = key(name, Shape::Measure(Unit::of(name)), default, Limits::about(name));
        Key { is_live: LIVE_LIMITS.contains(&name), ..key }
    });
    rows.collect()
});

/// The keys of the section.
pub fn keys() -> &'static [Key] {
    &KEYS
}

/// The budget of memory, in bytes.
///
/// # Errors
/// [`Wrong`].
pub fn memory(root: &ConfigSection) -> Result<Option<u64>, Wrong> {
    let unit = Unit::Bytes;
    let Some(text) = root.text("memory") else { return Ok(None) };
    let wrong = |_| root.wrong("memory", format!("{text:?} is not {}", unit.examples()));
    unit.read(text).map(Some).map_err(wrong)
}

/// The configured limits; other limits are scaled so that all of them together fit the memory.
///
/// # Errors
/// [`Wrong`].
pub fn read(
    root: &ConfigSection,
    memory: Option<u64>,
    workers: usize,
    is_secure: bool,
) -> Result<Limits, Wrong> {
    let (mut limits, mut fixed) = (Limits::default(), Vec::new());
    for key in root.section("limits").into_iter().flat_map(|section| section.keys) {
        let Some(section) = root.section("limits") else { continue };
        let Some(sourced) = section.value(key.name) else { continue };
        let ConfigValue::Text(text) = &sourced.value else { continue };
        limits.set(key.name, text).map_err(|error| {
            section.wrong(
                key.name,
                match error {
                    LimitError::Unit => {
                        format!("{text:?} is not {}", Unit::of(key.name).examples())
                    }
                    LimitError::Name | LimitError::Value => {
                        format!(
                            "{text:?} must be a whole number above zero and within the range of \
                             this limit"
                        )
                    }
                },
            )
        })?;
        fixed.push(key.name);
    }
    match memory {
        None => Ok(limits.for_default_memory(workers, is_secure, &fixed)),
        Some(bytes) => limits
            .for_memory(bytes, workers, is_secure, &fixed)
            .map_err(|error| root.wrong("memory", error.to_string())),
    }
}
