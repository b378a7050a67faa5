//! The engine without sockets: bytes go into a connection, bytes come out, and the test advances
//! the clock.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod agent_values;
mod agents;
mod callers;
mod cancels;
mod card_security;
mod cards;
mod catalogs;
mod changes;
mod cors;
mod deferred;
mod dialects;
#[cfg(feature = "auth")]
mod evo_ai;
mod extensions;
mod fair;
mod faults;
mod generations;
mod grpc;
mod identity;
mod idle;
mod jobs;
mod jsonrpc;
mod limits;
mod long_polls;
mod missing;
mod observed;
mod pages;
#[cfg(feature = "push")]
mod push;
mod quotas;
mod repeats;
mod rest;
mod scoped_skills;
mod sdk_pitfalls;
mod setup;
mod shares;
#[cfg(feature = "client")]
mod signed_cards;
mod smuggling;
mod terms;
mod traced;
mod transcripts;
mod waiting;
mod websocket;
mod well_known;
