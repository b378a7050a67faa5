//! Properties of the JSON and SSE codecs; each body takes bytes, so fuzz targets share it.
#![allow(clippy::unwrap_used)]

#[path = "props/json.rs"]
mod json;
#[path = "props/sse.rs"]
mod sse;
