//! Any configuration is read or refused in one line, with a line that the file has.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/config.rs"]
mod config;
#[cfg(not(fuzzing))]
use crate::config;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    config::config_is_read_or_refused_in_one_line(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
