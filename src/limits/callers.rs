//! Limits of callers, and of the issuers that vouch for them.

/// Bytes of a token: half of a request head, and far more than issuers make (Azure AD: 200 groups
/// in 6 KiB).
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Bytes of the name of a caller, as of any other id: it is stored with each task's owner.
pub const CALLER_NAME_BYTES_MAX: usize = 256;

/// Keys that a token without `kid` is tried against; each costs a verification.
pub const TOKEN_KEYS_TRIED_MAX: usize = 8;

/// Seconds that clocks of issuers may differ from ours (RFC 7519 §4.1.4: "no more than a few
/// minutes").
pub const TOKEN_LEEWAY_S: u32 = 60;

/// Keys of an issuer. Issuers that rotate keys have 2 to 5.
pub const ISSUER_KEYS_MAX: usize = 100;

/// Bytes of an issuer's document (keys or metadata); usual ones have up to 10 KiB.
pub const ISSUER_DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// Milliseconds that a request, or a fetch, waits for the keys of an issuer.
pub const ISSUER_WAIT_MS: u64 = 5_000;

/// Requests that wait for the keys of one issuer, over all workers; the next is refused.
pub const ISSUER_WAITERS_MAX: usize = 1_024;

/// The part of them for one peer (an address, 64 bits of one of IPv6), so that others get a slot.
pub const ISSUER_PEER_WAITERS_MAX: usize = 32;

/// Milliseconds between two fetches for an unknown `kid`, so that a client that invents key ids
/// costs the issuer nothing.
pub const ISSUER_KID_MS: u64 = 60_000;

/// Milliseconds after which keys are fetched again, unless the issuer sends a lifetime.
pub const ISSUER_REFRESH_MS: u64 = 600_000;

/// The lower bound of a lifetime from `Cache-Control`.
pub const ISSUER_REFRESH_MS_MIN: u64 = 60_000;

/// The upper bound of a lifetime from `Cache-Control`.
pub const ISSUER_REFRESH_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// Milliseconds until the first retry of a failed fetch; they double each time.
pub const ISSUER_RETRY_MS: u64 = 1_000;

/// The upper bound of that.
pub const ISSUER_RETRY_MS_MAX: u64 = 60_000;

/// Redirects that the fetch of an issuer's document follows.
pub const ISSUER_REDIRECTS_MAX: usize = 3;

/// Issuers of one configuration.
pub const ISSUERS_MAX: usize = 64;

/// A caller's default share of the streams, running tasks, bytes of tasks and waiting calls of a
/// server is one of so many parts: so many callers are needed to fill it.
pub const CALLER_SHARES: usize = 8;

/// Keys and tokens of one configuration, of each kind.
pub const CALLER_KEYS_MAX: usize = 100_000;

/// Networks of trusted proxies.
pub const PROXY_NETWORKS_MAX: usize = 256;

/// Wrong credentials of one peer (an address, 64 bits of one of IPv6), after which its JWTs have a
/// budget and its wrong keys are answered slowly.
pub const PEER_FAILURES_MAX: u32 = 10;

/// Milliseconds of the window in which they are counted.
pub const PEER_FAILURE_WINDOW_MS: u64 = 300_000;

/// JWTs that are verified in a second for such a peer; a JWT that was verified in the last five
/// minutes needs no verification.
pub const PEER_CHECKS_MAX: u32 = 20;

/// The same for all failing peers together that the table of peers has no slot for.
pub const UNNOTED_CHECKS_MAX: u32 = 1_000;

/// Milliseconds until a wrong key of such a peer is answered.
pub const WRONG_KEY_DELAY_MS: u64 = 1_000;

/// Wrong keys that wait for their answers at a time, over all workers; further ones are refused at
/// once.
pub const WRONG_KEYS_WAITING_MAX: usize = 1_024;

/// Unknown `kid`s of an issuer that wait for its next fetch.
pub const ISSUER_KIDS_ASKED_MAX: usize = 64;

/// Bytes of a key or token in the configuration as plain text, at least.
pub const PLAIN_KEY_BYTES_MIN: usize = 16;

/// Milliseconds that a request waits at most until its credential is checked.
pub const ADMISSION_MS_MAX: u64 = 5_000;

/// Callers that a worker caches: mostly more than call one worker within a second.
pub const RECENT_CALLERS: usize = 64;
