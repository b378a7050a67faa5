//! A line of an agent is an event or refused, and its message means the same in a turn.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/lines.rs"]
mod lines;
#[cfg(not(fuzzing))]
use crate::lines;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    lines::a_message_means_the_same_in_a_turn(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
