//! The load generator reports true figures and catches wrong answers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod command;
mod documented;
mod faults;
mod faulty_agent;
mod files;
mod live;
mod report_schema;
mod reports;
mod simulated;
mod truth;
mod wrong_answers;
