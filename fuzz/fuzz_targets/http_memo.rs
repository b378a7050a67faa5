//! A head means the same whether it is cached or not.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/http.rs"]
mod http;
#[cfg(not(fuzzing))]
use crate::http;

/// The property, for heads that are divided by NUL after the byte that says where they are cut.
pub fn property(bytes: &[u8]) {
    let Some((cut, heads)) = bytes.split_first() else { return };
    let heads: Vec<Vec<u8>> = heads.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    http::cached_heads_parse_like_fresh_ones(&heads, usize::from(*cut));
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
