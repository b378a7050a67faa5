//! The properties of the HTTP codec, with seeds, and the table of requests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "props/http.rs"]
mod http;
