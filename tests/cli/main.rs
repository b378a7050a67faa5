//! The client's command line as its users and their scripts run it: the real binary in pipes,
//! against the real server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/certificates.rs"]
mod certificates;
#[path = "../support/mod.rs"]
mod support;

mod agent;
mod cards;
mod chat;
mod config;
mod conformance;
mod credentials;
mod endpoint;
mod fake;
mod foreign;
mod hostile;
mod interrupts;
mod matrix;
mod nameless;
mod parse;
#[cfg(target_os = "linux")]
mod pseudo_terminal;
mod report;
mod run;
mod schema;
mod send;
mod settings;
mod shapes;
mod streams;
mod tasks;
mod tenants;
mod terminal;
mod types;
mod unix_socket;
mod usage;
mod waits;
