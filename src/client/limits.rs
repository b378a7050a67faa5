//! Limits of the client on servers and cards.
//!
//! A limit is a number, a unit, a reason and a precedent; the error names the limit that was
//! reached.

/// Bytes of a card: 1 MiB. The largest public cards have 40 KiB.
pub const CARD_BYTES_MAX: usize = 1024 * 1024;
/// Levels of objects and arrays of a card: 64, as in a call. Only `params` of extensions are deep.
pub const CARD_DEPTH_MAX: usize = 64;
/// Interfaces of a card: 64. Each choice examines all of them; a card has up to four for each
/// version.
pub const CARD_INTERFACES_MAX: usize = 64;
/// Entries of any other list of a card: 1,024. Public cards have up to 60 skills.
pub const CARD_ENTRIES_MAX: usize = 1_024;

/// Limits on the resources that a server may use, with the defaults of [`ClientLimits::default`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Bytes of the head of a response, and of its trailers: 64 KiB. A head is buffered until it is
    /// complete; cookies and policies of public sites reach 20 KiB. curl allows 300 KiB.
    pub response_head_bytes_max: usize,
    /// Fields of the head of a response: 128. Each is checked; hyper allows 100.
    pub response_fields_max: usize,
    /// Bytes of a response that is buffered as a whole: 64 MiB, for a page of a hundred tasks with
    /// files.
    pub body_bytes_max: usize,
    /// Bytes of a card: 1 MiB. The largest public cards have 40 KiB.
    pub card_bytes_max: usize,
    /// Bytes of one event of a stream: 16 MiB, as in a2a-rust, for an artifact with a file.
    pub event_bytes_max: usize,
    /// Decoded bytes of a content coding: 64 MiB, as for a body without a coding.
    pub decoded_bytes_max: usize,
    /// Ratio of decoded to coded bytes, above [`decoded_bytes_free`]: 100. JSON of equal tasks
    /// compresses 40 times, zeros 1,030 times.
    ///
    /// [`decoded_bytes_free`]: ClientLimits::decoded_bytes_free
    pub decoded_ratio_max: usize,
    /// Decoded bytes below which the ratio is not checked: 64 KiB.
    pub decoded_bytes_free: usize,
    /// Milliseconds for a connection, from the name lookup to the end of the TLS handshake: 10 s;
    /// Go's dialer has 30 s, curl 300 s.
    pub connect_ms: u64,
    /// Milliseconds for an OAuth request, its answer included: 60 s, as nginx gives proxied
    /// requests. A call of the agent has [`CallOptions::call_ms`](super::CallOptions::call_ms).
    pub head_ms: u64,
    /// Milliseconds between two bytes of a body that is not a stream: 30 s; nginx has 60.
    pub idle_ms: u64,
    /// Milliseconds without a byte of a stream, after which it counts as broken: 5 min. Servers
    /// that send keep-alives do so every 15 to 30 s.
    pub stream_idle_ms: u64,
    /// Idle connections to one origin: 32; more are closed. Go keeps 2, hyper all.
    pub pool_per_origin_max: usize,
    /// Origins in the pool: 1,024; beyond that, origins without a connection are removed.
    pub pool_origins_max: usize,
    /// Milliseconds after which an idle connection is closed: 60 s, less than the 75 s of nginx and
    /// of Peregrine's server.
    pub pool_idle_ms: u64,
    /// Redirects that a GET of a card follows: 5; browsers follow 20.
    pub redirects_max: usize,
    /// Levels of nested JSON: 64, as in the server.
    pub json_depth_max: usize,
    /// Tokens of one JSON text: 8,388,608, sixteen times the limit of a request, because a page has
    /// a hundred tasks.
    pub json_tokens_max: usize,
    /// Bytes of an id: 1,024. UUIDs have 36; some platforms join several UUIDs.
    pub identifier_bytes_max: usize,
    /// Bytes of a name, media type, file URL or description: 1 MiB, since a URL may be a small
    /// file itself (RFC 2397).
    pub string_bytes_max: usize,
    /// Parts of a message or an artifact: 16,384; agents that write word by word create thousands.
    pub parts_max: usize,
    /// Extensions, and referenced tasks, of a message: 1,024.
    pub references_max: usize,
    /// Artifacts of a task: 512, twice the limit of our server. The cost of resuming a stream grows
    /// with the square of this number. A stream remembers how much of each artifact was received;
    /// resuming a task with more artifacts is an error.
    pub artifacts_max: usize,
    /// Tasks of a page: 1,024, ten times the maximum of 1.0, because some servers return all tasks.
    pub page_tasks_max: usize,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        const KIB: usize = 1024;
        const MIB: usize = 1024 * KIB;
        ClientLimits {
            response_head_bytes_max: 64 * KIB,
            response_fields_max: 128,
            body_bytes_max: 64 * MIB,
            card_bytes_max: CARD_BYTES_MAX,
            event_bytes_max: 16 * MIB,
            decoded_bytes_max: 64 * MIB,
            decoded_ratio_max: 100,
            decoded_bytes_free: 64 * KIB,
            connect_ms: 10_000,
            head_ms: 60_000,
            idle_ms: 30_000,
            stream_idle_ms: 300_000,
            pool_per_origin_max: 32,
            pool_origins_max: 1_024,
            pool_idle_ms: 60_000,
            redirects_max: 5,
            json_depth_max: 64,
            json_tokens_max: 8 * MIB,
            identifier_bytes_max: KIB,
            string_bytes_max: MIB,
            parts_max: 16 * KIB,
            references_max: KIB,
            artifacts_max: 512,
            page_tasks_max: KIB,
        }
    }
}
