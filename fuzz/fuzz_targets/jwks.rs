//! Any document gives keys or none, the same ones each time.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/tokens.rs"]
mod tokens;
#[cfg(not(fuzzing))]
use crate::tokens;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    tokens::jwks_document_reads_the_same_each_time(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
