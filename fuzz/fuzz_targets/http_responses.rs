//! A response means what a slow reading of RFC 9112 says, however it is cut.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/http_client.rs"]
mod http_client;
#[cfg(not(fuzzing))]
use crate::http_client;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    http_client::response_parses_the_same_however_cut(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
