//! Any bytes cut anywhere: no panic, an end, bounded output, and the same answers as uncut.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/conn.rs"]
mod conn;
#[cfg(not(fuzzing))]
use crate::conn;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    conn::responses_are_the_same_however_cut(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
