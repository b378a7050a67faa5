//! Any answer of a server is refused, or read and written anew with the same meaning.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/replies.rs"]
mod replies;
#[cfg(not(fuzzing))]
use crate::replies;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    replies::server_answer_is_read_or_refused(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
