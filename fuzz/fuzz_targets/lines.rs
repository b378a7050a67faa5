//! A line of an agent is an event or refused, and its message means the same in a turn.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/lines.rs"]
mod lines;
#[cfg(not(fuzzing))]
use crate::lines;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    lines::message_round_trips_through_a_turn_line(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
