//! A head in parts means the same after any other head, and the same as in HTTP/1.1.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/http_parts.rs"]
mod http_parts;
#[cfg(not(fuzzing))]
use crate::http_parts;

/// The property, for heads that are divided by NUL.
pub fn property(bytes: &[u8]) {
    let heads = http_parts::heads_of(bytes);
    http_parts::heads_parse_the_same_after_earlier_heads(&heads);
    heads.iter().for_each(http_parts::head_parts_parse_like_http1_text);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
