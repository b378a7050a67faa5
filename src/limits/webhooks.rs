//! What a receiver of webhooks may take of the server that posts to it.

/// Milliseconds of one post, from the name of its receiver to the end of the answer. A receiver is
/// to answer first and work then; GitHub gives 10 s as well.
pub const WEBHOOK_POST_MS: u64 = 10_000;

/// Milliseconds for which the rest of an answer is read, of which the status is known: its
/// connection is then used again, and nobody waits for it.
pub const WEBHOOK_REST_MS: u64 = 1_000;

/// Answers that are read so at a time; the connections of others are closed.
pub const WEBHOOK_RESTS_MAX: usize = 64;

/// Bytes of an answer that are read, for the connection to be used again. Nobody looks at them, and
/// most receivers say nothing, or `ok`.
pub const WEBHOOK_ANSWER_BYTES_MAX: usize = 4 * 1024;

/// Idle connections that are kept for one origin: as many as posts go to a host at a time.
pub const WEBHOOK_IDLE_PER_ORIGIN_MAX: usize = 8;

/// Origins of which connections are kept. Callers choose them, and each connection has a
/// descriptor.
pub const WEBHOOK_ORIGINS_MAX: usize = 256;
