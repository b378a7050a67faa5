//! A head means what a naive reader of RFC 9112 says it means, wherever it is cut.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/http.rs"]
mod http;
#[cfg(not(fuzzing))]
use crate::http;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    http::head_end_is_the_same_however_cut(bytes);
    http::heads_parse_like_the_simple_reader(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
