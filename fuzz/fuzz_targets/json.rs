//! A document is accepted if and only if serde_json accepts it; each node is its verbatim text.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/json.rs"]
mod json;
#[cfg(not(fuzzing))]
use crate::json;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    json::agrees_with_serde(bytes);
    json::spans_are_verbatim(bytes);
    json::reuse_changes_nothing(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
