//! Any body is answered once, and a batch once for each call, with the original id.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/conn.rs"]
mod conn;
#[cfg(not(fuzzing))]
use crate::conn;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    conn::each_call_gets_one_response(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
