//! Escaping inverts unescaping, and base64 text stands for the bytes it was made of.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/json.rs"]
mod json;
#[cfg(not(fuzzing))]
use crate::json;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        json::escaping_round_trips(text);
    }
    json::base64_round_trips(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
