//! Any card is read or refused, and means the same in its canonical form.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/cards.rs"]
mod cards;
#[cfg(not(fuzzing))]
use crate::cards;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    cards::canonical_card_reads_as_the_same_card(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
