//! A date is read back as the second it was written for, and no text panics.
#![cfg_attr(fuzzing, no_main)]

#[path = "../../tests/props/http.rs"]
mod http;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    http::dates_round_trip(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
