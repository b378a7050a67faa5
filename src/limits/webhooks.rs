//! What a receiver of webhooks may take of the server that posts to it, and what a configuration
//! may say.

/// Bytes of the URL of a configuration, as it was written.
pub const PUSH_URL_BYTES_MAX: usize = 2_048;

/// Bytes of a token, and of credentials: JWTs are shorter.
pub const PUSH_SECRET_BYTES_MAX: usize = 4 * 1_024;

/// Bytes of the name of a scheme.
pub const PUSH_SCHEME_BYTES_MAX: usize = 64;

/// Bytes of the id of a configuration.
pub const PUSH_ID_BYTES_MAX: usize = 256;

/// Header fields of its own that a configuration may have (Evo AI).
pub const PUSH_HEADERS_MAX: usize = 16;

/// Their bytes, names and values.
pub const PUSH_HEADER_BYTES_MAX: usize = 4 * 1_024;

/// Milliseconds of one post, from the name of its receiver to the end of the answer. A receiver is
/// to answer first and work then; GitHub gives 10 s as well.
pub const WEBHOOK_POST_MS: u64 = 10_000;

/// Milliseconds for which the rest of an answer is read, of which the status is known: its
/// connection is then used again, and no delivery waits for it.
pub const WEBHOOK_REST_MS: u64 = 1_000;

/// Answers that are read so at a time; the connections of others are closed.
pub const WEBHOOK_RESTS_MAX: usize = 64;

/// Bytes of an answer that are read, for the connection to be used again. Their content is ignored,
/// and most receivers say nothing, or `ok`.
pub const WEBHOOK_ANSWER_BYTES_MAX: usize = 4 * 1024;

/// Idle connections that are kept for one origin: as many as posts go to a host at a time.
pub const WEBHOOK_IDLE_PER_ORIGIN_MAX: usize = 8;

/// Origins of which connections are kept. Callers choose them, and each connection has a descriptor
/// and, with TLS, some 14 KiB: 7 MiB for 8 of each origin.
pub const WEBHOOK_ORIGINS_MAX: usize = 64;
