//! Limits of callers, and of the issuers of their tokens.

/// Bytes of a token: half of a request head, and far more than issuers need (Azure AD: 200 groups
/// in 6 KiB).
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Bytes of the name of a caller, as of any other id: it is stored with each task's owner.
pub const CALLER_NAME_BYTES_MAX: usize = 256;

/// Keys that are tried for a token without `kid`; each costs a verification.
pub const TOKEN_KEYS_TRIED_MAX: usize = 8;

/// Seconds by which clocks of issuers may differ from the server's (RFC 7519 §4.1.4: "no more than
/// a few minutes").
pub const TOKEN_LEEWAY_S: u32 = 60;

/// Keys of an issuer. Issuers that rotate keys have 2 to 5.
pub const ISSUER_KEYS_MAX: usize = 100;

/// Bytes of an issuer's document (keys or metadata); usual documents have up to 10 KiB.
pub const ISSUER_DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// Milliseconds that a request, or a fetch, waits for the keys of an issuer.
pub const ISSUER_WAIT_MS: u64 = 5_000;

/// Requests that wait for the keys of one issuer, over all workers; the next is refused.
pub const ISSUER_WAITERS_MAX: usize = 1_024;

/// The part of [`ISSUER_WAITERS_MAX`] for one peer (an IPv4 address, or an IPv6 network of 64
/// bits), so that other peers get a slot.
pub const ISSUER_PEER_WAITERS_MAX: usize = 32;

/// Milliseconds between two fetches for an unknown `kid`, so that a client with invented key ids
/// causes little load at the issuer.
pub const ISSUER_KID_MS: u64 = 60_000;

/// Milliseconds after which keys are fetched again, unless the issuer sends a lifetime.
pub const ISSUER_REFRESH_MS: u64 = 600_000;

/// The lower bound of a lifetime from `Cache-Control`.
pub const ISSUER_REFRESH_MS_MIN: u64 = 60_000;

/// The upper bound of a lifetime from `Cache-Control`.
pub const ISSUER_REFRESH_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// Milliseconds until the first retry of a failed fetch; each further delay is twice as long.
pub const ISSUER_RETRY_MS: u64 = 1_000;

/// The upper bound of the delay of a retry.
pub const ISSUER_RETRY_MS_MAX: u64 = 60_000;

/// Redirects that the fetch of an issuer's document follows.
pub const ISSUER_REDIRECTS_MAX: usize = 3;

/// Issuers of one configuration.
pub const ISSUERS_MAX: usize = 64;

/// A caller's default share of the streams, running tasks, bytes of tasks and waiting calls of a
/// server is a fraction with this denominator: this many callers are needed to fill the server.
pub const CALLER_SHARES: usize = 8;

/// Keys and tokens of one configuration, of each kind.
pub const CALLER_KEYS_MAX: usize = 100_000;

/// Networks of trusted proxies.
pub const PROXY_NETWORKS_MAX: usize = 256;

/// Wrong credentials of one peer (an IPv4 address, or an IPv6 network of 64 bits) after which the
/// verification of its JWTs is limited and its wrong keys are refused with a delay.
pub const PEER_FAILURES_MAX: u32 = 10;

/// Milliseconds of the window in which [`PEER_FAILURES_MAX`] are counted.
pub const PEER_FAILURE_WINDOW_MS: u64 = 300_000;

/// JWTs that are verified per second for a peer with too many wrong credentials. A JWT that was
/// verified in the last five minutes does not count.
pub const PEER_CHECKS_MAX: u32 = 20;

/// JWTs that are verified per second for all failing peers without a slot in the table of peers.
pub const UNNOTED_CHECKS_MAX: u32 = 1_000;

/// Milliseconds until a wrong key of a peer with too many wrong credentials is refused.
pub const WRONG_KEY_DELAY_MS: u64 = 1_000;

/// Delayed refusals of wrong keys, over all workers; further wrong keys are refused at once.
pub const WRONG_KEYS_WAITING_MAX: usize = 1_024;

/// Unknown `kid`s of an issuer that wait for its next fetch.
pub const ISSUER_KIDS_ASKED_MAX: usize = 64;

/// Minimum bytes of a key or token that the configuration has as plain text.
pub const PLAIN_KEY_BYTES_MIN: usize = 16;

/// Maximum milliseconds that a request waits for the check of its credential.
pub const ADMISSION_MS_MAX: u64 = 5_000;

/// Callers that a worker caches: usually more than call it within a second.
pub const RECENT_CALLERS: usize = 64;
