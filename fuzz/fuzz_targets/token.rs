//! Whatever the bytes, only a token that the issuer has signed is accepted.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/tokens.rs"]
mod tokens;
#[cfg(not(fuzzing))]
use crate::tokens;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    tokens::only_signed_tokens_are_accepted(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
