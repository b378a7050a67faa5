//! Whatever a server answers is understood, and then means the same when written anew, or refused.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/replies.rs"]
mod replies;
#[cfg(not(fuzzing))]
use crate::replies;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    replies::an_answer_is_understood_or_refused(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
