//! Calls of the C interface in any order, with any handles and lengths: no panic, no memory error.
#![cfg_attr(fuzzing, no_main)]

/// The property, for any bytes. Without the feature there is no such interface.
pub fn property(bytes: &[u8]) {
    #[cfg(any(fuzzing, feature = "ffi"))]
    peregrine::ffi::random::drive(bytes);
    let _ = bytes;
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
