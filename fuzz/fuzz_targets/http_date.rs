//! A date is read back as the second it was written for, and no text panics.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/http.rs"]
mod http;
#[cfg(not(fuzzing))]
use crate::http;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    http::dates_round_trip(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
