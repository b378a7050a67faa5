//! A stream has the events that a naive reading of the standard finds, wherever it is cut.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/sse.rs"]
mod sse;
#[cfg(not(fuzzing))]
use crate::sse;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    sse::events_parse_the_same_however_cut(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
