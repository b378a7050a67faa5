//! A chunked body decodes to what a naive reader of RFC 9112 decodes, wherever it is cut.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/http.rs"]
mod http;
#[cfg(not(fuzzing))]
use crate::http;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    http::chunks_decode_the_same_however_cut(bytes);
    http::chunks_round_trip(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
