//! A document is accepted if and only if serde_json accepts it; each node is its verbatim text.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/json.rs"]
mod json;
#[cfg(not(fuzzing))]
use crate::json;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    json::parses_like_serde_json(bytes);
    json::spans_are_verbatim(bytes);
    json::reused_parser_reads_like_a_new_one(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
