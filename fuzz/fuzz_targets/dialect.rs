//! Any params of any method are read as a call that every dialect can write, or refused.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/dialect.rs"]
mod dialect;
#[cfg(not(fuzzing))]
use crate::dialect;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    dialect::params_are_read_or_refused(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
