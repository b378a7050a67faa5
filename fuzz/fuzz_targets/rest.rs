//! Any target and body of HTTP+JSON is answered, and a body means what it means as params.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/rest.rs"]
mod rest;
#[cfg(not(fuzzing))]
use crate::rest;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    rest::any_request_gets_a_valid_response(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
