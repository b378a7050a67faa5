//! A path that is let through has no dot segment and no new slash at any depth of decoding.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/http.rs"]
mod http;
#[cfg(not(fuzzing))]
use crate::http;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    http::accepted_paths_hide_no_dots(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
