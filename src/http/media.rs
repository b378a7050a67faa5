//! The media types that several modules use (RFC 9110 §8.3.1).

/// JSON (RFC 8259 §11).
pub const JSON: &str = "application/json";

/// gRPC (gRPC over HTTP/2, "Requests").
pub const GRPC: &str = "application/grpc";

/// Server-sent events (HTML §9.2).
pub const EVENT_STREAM: &str = "text/event-stream";
