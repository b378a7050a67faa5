//! Any gRPC bytes are read or refused, and a read message is written back unchanged.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
#[path = "../../tests/properties/grpc.rs"]
mod grpc;
#[cfg(not(fuzzing))]
use crate::grpc;

/// The property, for any bytes.
pub fn property(bytes: &[u8]) {
    grpc::requests_are_read_or_refused(bytes);
    grpc::answers_are_read_or_refused(bytes);
    grpc::json_and_structs_agree(bytes);
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property(bytes));
