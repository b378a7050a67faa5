//! Limits of webhook deliveries and of their configurations.

/// Bytes of the URL of a configuration, as received.
pub const PUSH_URL_BYTES_MAX: usize = 2_048;

/// Bytes of a token, and of credentials: JWTs are shorter.
pub const PUSH_SECRET_BYTES_MAX: usize = 4 * 1_024;

/// Bytes of the name of a scheme.
pub const PUSH_SCHEME_BYTES_MAX: usize = 64;

/// Bytes of the id of a configuration.
pub const PUSH_ID_BYTES_MAX: usize = 256;

/// Header fields of a configuration (Evo AI).
pub const PUSH_HEADERS_MAX: usize = 16;

/// Bytes of these header fields, names and values.
pub const PUSH_HEADER_BYTES_MAX: usize = 4 * 1_024;

/// Milliseconds of one delivery attempt, from resolving the receiver's name to the end of the
/// answer. A receiver should answer before it processes the event; GitHub allows 10 s as well.
pub const WEBHOOK_POST_MS: u64 = 10_000;

/// Milliseconds for which the rest of an answer is read after its status, so that its connection
/// can be reused. No delivery waits for this.
pub const WEBHOOK_REST_MS: u64 = 1_000;

/// Concurrent reads of the rest of an answer; the connections of other answers are closed.
pub const WEBHOOK_RESTS_MAX: usize = 64;

/// Bytes of an answer that are read so that its connection can be reused. The content is ignored;
/// most receivers send nothing, or `ok`.
pub const WEBHOOK_ANSWER_BYTES_MAX: usize = 4 * 1024;

/// Idle connections of one origin: as many as there are concurrent deliveries to a host.
pub const WEBHOOK_IDLE_PER_ORIGIN_MAX: usize = 8;

/// Origins with idle connections. Callers choose the origins, and each connection has a descriptor
/// and, with TLS, about 14 KiB: 7 MiB for 8 connections of each origin.
pub const WEBHOOK_ORIGINS_MAX: usize = 64;
