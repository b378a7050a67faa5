//! Any bytes cut anywhere give the same messages as a slow reading of RFC 6455.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/ws.rs"]
mod ws;
#[cfg(not(fuzzing))]
use crate::ws;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    ws::server_reads_frames_the_same_however_cut(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
