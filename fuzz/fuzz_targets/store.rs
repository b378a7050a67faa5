//! The store does what a naive list of tasks does, and no limit is ever exceeded.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/store.rs"]
mod store;
#[cfg(not(fuzzing))]
use crate::store;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    store::store_matches_the_naive_twin(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
