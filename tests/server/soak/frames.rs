//! Faults of HTTP/2 and gRPC between a gateway and its upstream agent.
//!
//! All calls share one connection, so one fault breaks off many calls.

use super::{ERROR, FaultCase, soak_upstream};
use crate::upstream_frames::{FAULTS, misbehaving};

/// A call without an answer yet when another call's fault ended the connection.
const FAILED_OR_ERROR: &[&str] = &["FAILED", "error"];
/// It completes if its stream resumes before the next fault.
const ANY: &[&str] = &["COMPLETED", "FAILED", "error"];

fn soak(count: usize) {
    let faults = FAULTS.iter().map(|fault| {
        let ends = match fault.end {
            "COMPLETED" => ANY,
            "FAILED" => FAILED_OR_ERROR,
            _ => ERROR,
        };
        FaultCase { word: fault.word, ends }
    });
    let agent = format!("a2a:http://{}", misbehaving());
    soak_upstream("frames", &agent, &faults.collect::<Vec<_>>(), count);
}

#[test]
fn hundreds_of_frame_faults_leak_no_resources() {
    soak(500);
}

#[test]
#[ignore = "minutes; the nightly run has it"]
fn ten_thousand_frame_faults_leak_no_resources() {
    soak(10_000);
}
