//! Any bytes after an upgrade, cut anywhere: no panic, an end, bounded output, the same messages.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/conn.rs"]
mod conn;
#[cfg(not(fuzzing))]
use crate::conn;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    conn::websocket_output_is_the_same_however_cut(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
