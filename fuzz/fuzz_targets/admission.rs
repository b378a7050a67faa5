//! A request is admitted exactly if its head has a credential that the rules accept.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/admission.rs"]
mod admission;
#[cfg(not(fuzzing))]
use crate::admission;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    admission::only_valid_credentials_are_accepted(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
