//! An answer is read the same after another answer with a different text.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/answers.rs"]
mod answers;
#[cfg(not(fuzzing))]
use crate::answers;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    answers::answer_parses_the_same_after_another(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
