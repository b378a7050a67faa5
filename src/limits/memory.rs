//! The worst case of resident memory as a sum of labelled terms, each of which follows from limits.

use super::{LARGE_BODY_BYTES, Limits, callers::RECENT_CALLERS};

/// Memory of one connection in addition to its buffers; measured, see `docs/perf.md`.
const CONNECTION_BYTES: u64 = 1024;
/// Maximum memory of one TLS session: its state, a handshake message of up to 64 KiB (the maximum
/// of rustls), and later a record in each direction and the read bytes of another record.
const TLS_SESSION_BYTES: u64 = 80 * 1024;
/// Flow-control window of an HTTP/2 stream: larger than the protocol's 64 KiB, so that a body of
/// some megabytes does not wait for a round trip every 64 KiB. Arriving bytes are read at once and
/// counted in `buffers_bytes_max`.
#[cfg(feature = "grpc")]
pub(crate) const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Flow-control window of all streams of an HTTP/2 connection together.
#[cfg(feature = "grpc")]
pub(crate) const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// The limit of h2 on a head (counted as in RFC 9113 §10.5.1) as a multiple of `head_bytes_max`: h2
/// itself refuses a larger head, without a gRPC status.
#[cfg(feature = "grpc")]
pub(crate) const HTTP2_HEAD_LIST_FACTOR: usize = 4;
/// Milliseconds for which the server reads and discards the rest of a request that was answered
/// early: at most [`HTTP2_STREAM_WINDOW_BYTES`], since the window is not increased.
#[cfg(feature = "grpc")]
pub(crate) const HTTP2_UNREAD_MS: u64 = 1_000;
/// Maximum memory of one HTTP/2 connection: the bytes of one read (128 KiB with its buffers), a
/// slab for 2,056 one-byte frames, which h2 accepts before they are read (1.5 MiB), the
/// CONTINUATION frames of a small head (192 KiB), and its state.
#[cfg(feature = "grpc")]
const HTTP2_CONNECTION_BYTES: u64 = 2 * 1024 * 1024;
/// Memory of a connection's HPACK table (RFC 7541 §4.1: 4,096 bytes, at least 37 for an entry).
/// Each path in it retains the buffer in which it arrived: 16 KiB, or 26 KiB after Huffman
/// decoding.
#[cfg(feature = "grpc")]
const HTTP2_TABLE_BYTES: u64 = 110 * 28 * 1024;
/// Memory of one call in addition to its retained request: its tokio task, its stream in h2, and
/// the head and the trailers of its answer. Twice the measured value, since a reset call can still
/// exist when the next call arrives.
#[cfg(feature = "grpc")]
const HTTP2_CALL_BYTES: u64 = 8 * 1024;
/// The memory of a head as a multiple of its bytes: five for the shortest possible fields, and more
/// while its map grows.
#[cfg(feature = "grpc")]
const HTTP2_HEAD_FACTOR: u64 = 6;
/// Memory of the heads that one poll of a connection can yield: 80 KiB with one byte for each
/// field.
#[cfg(feature = "grpc")]
const HTTP2_HEADS_BYTES: u64 = 16 * 1024 * 1024;
/// Memory of a slot for a task; see `store/slab.rs`.
pub(crate) const SLOT_BYTES: u64 = 184;
/// Memory of the number of a task's last record; each slot has it if the server has a journal hook.
pub(crate) const RECORD_NUMBER_BYTES: u64 = 8;
/// Memory that one task holds in addition to its log and its slot: order entry, context entry, and
/// its entry in the list of running tasks (32 bytes while the list grows).
const TASK_OVERHEAD_BYTES: u64 = 160;
/// Additional memory of each worker's shards for each of `tasks_max`, in quarters of a byte: lists
/// of chunks in 16 shards, with 8 bytes for each chunk of 32 slots, and a sixteenth more while they
/// grow.
const SHARDS_QUARTER_BYTES_PER_TASK: u64 = 17;
/// Memory of the free slots that each worker's shards retain: three chunks in each shard.
const SHARDS_BYTES: u64 = 16 * 3 * 32 * (SLOT_BYTES + RECORD_NUMBER_BYTES);
/// Memory of the charge of an anonymous caller with tasks in all shards of a group: 300 bytes in
/// the group, and 130 in each of 16 shards; half of the maps and lists may be empty.
const CHARGE_BYTES: u64 = 300 + 16 * 130;

/// Memory of one timer that resumes an agent: 32 bytes, and slightly more than half of the heap may
/// be empty; see `op/timer.rs`.
pub(crate) const RESUME_TIMER_BYTES: u64 = 80;

/// Memory of a deferred call, without its message and the data of its request, which the store
/// counts; see `op/defer.rs`.
pub(crate) const DEFERRED_CALL_BYTES: u64 = 1024;
/// Memory of an idempotency entry: a slot of 112 bytes, its chain, an owner with no other entry,
/// and a direct message in a tree; see `op/idempotency/table.rs`.
pub(crate) const IDEMPOTENCY_ENTRY_BYTES: u64 = 512;
/// Bytes of `store_bytes_max` that a shard needs for a scope with a tenant or an owner: an order
/// for each state, with room for a few tasks, and a charge.
pub const SCOPE_BYTES: usize = 3 * 1024;
/// Memory of the counters of one owner, once and in each group of shards; see `store/running.rs`.
pub(crate) const RUNNING_OWNER_BYTES: u64 = 24;
pub(crate) const RUNNING_GROUP_BYTES: u64 = 16;
/// Memory of a search for displaceable owners, for each owner: an entry of a map and an entry of a
/// list.
const OWNER_LOOK_BYTES: u64 = 56;
/// Memory of a name of 256 bytes with its number and its part of a tree.
const NAME_BYTES: u64 = 448;
/// Memory of a cached credential: its slot, the slot of a failing peer, and `CREDENTIAL_HELD_BYTES`
/// (`auth/gate.rs`) for its authentication result and its principal. A larger principal evicts
/// others from the cache.
const CREDENTIAL_BYTES: u64 = 768;
/// The number of slots of the tables of credentials and peers is a multiple of this; see
/// `auth/table.rs`.
const CREDENTIAL_SLOTS: usize = 512;
/// Memory of a worker's own copies of cached credentials, each with `CREDENTIAL_HELD_BYTES`.
const RECENT_CALLERS_BYTES: u64 = RECENT_CALLERS as u64 * 640;
/// Names of each kind that a worker caches.
const CACHED_NAMES: u64 = 256;

/// Memory of the webhook of a scope, with the longest URL and header fields.
const PUSH_SCOPE_BYTES: u64 = 16 * 1024;

/// Memory that the JSON parser holds for each byte of a body and for each of its tokens; see
/// `Parser::bounded`.
const PARSER_BYTES_PER_BYTE: u64 = 9;
const PARSER_BYTES_PER_TOKEN: u64 = 16;

/// Memory for the message of a body and the agent's output, for each byte of the body: two buffers
/// that double when they grow.
const PACK_BYTES_PER_BYTE: u64 = 4;

/// Memory of a process before its first connection.
const PROCESS_BYTES: u64 = 16 * 1024 * 1024;

/// Memory of a worker with its stack and buffers, in addition to its memory for small bodies.
const WORKER_BYTES: u64 = 1024 * 1024;

/// Anonymous callers with their own charge in the smallest store.
const CHARGED_PEERS_LEAST: usize = 64;

/// Maximum number of anonymous callers with their own charge in a group of shards with this many
/// tasks: one for each 128 tasks.
pub(crate) fn charged_peers_max(tasks: usize) -> usize {
    (tasks / 128).max(CHARGED_PEERS_LEAST)
}

impl Limits {
    /// The worst case of resident memory as labelled terms, in bytes, for `workers` threads. A
    /// label names the limits that determine its term.
    ///
    /// The sum bounds the memory that peers can make the server hold at one moment; it is a
    /// ceiling, not an estimate.
    pub fn memory_bytes_terms(&self, workers: usize) -> Vec<(&'static str, u64)> {
        let times = |count: usize, bytes: u64| (count as u64).saturating_mul(bytes);
        let body = self.largest_body_bytes().max(self.largest_message_bytes()) as u64;
        let message = self.largest_message_bytes() as u64;
        let request = message.max(self.head_bytes_max as u64 + self.largest_body_bytes() as u64);
        // A batch exceeds its bound by at most one page, a page by at most one task.
        let answer = 2 * self.answer_bytes_max as u64 + self.task_bytes_max as u64;
        let at_hand = request + self.output_bytes_max as u64 + answer;
        let base = PROCESS_BYTES
            + times(workers, WORKER_BYTES + self.handling_bytes(LARGE_BODY_BYTES as u64));
        let terms = [
            ("store: task logs (store_bytes_max)", self.store_bytes_max as u64),
            ("store: slots and indexes (tasks_max)", self.slots_bytes(workers)),
            ("tenants and owners: names (tenants_max, owners_max)", self.names_bytes(workers)),
            (
                "callers: credentials and peers (credentials_max)",
                times(
                    self.credentials_max.max(1).next_multiple_of(CREDENTIAL_SLOTS),
                    CREDENTIAL_BYTES,
                ) + times(workers, RECENT_CALLERS_BYTES),
            ),
            ("resume timers of agents (tasks_max)", times(self.tasks_max, RESUME_TIMER_BYTES)),
            (
                "calls waiting for their agents (deferred_calls_max)",
                times(self.deferred_calls_max, DEFERRED_CALL_BYTES),
            ),
            (
                "messages remembered to detect repeats (idempotency_entries_max, \
                 idempotency_bytes_max)",
                times(self.idempotency_entries_max, IDEMPOTENCY_ENTRY_BYTES)
                    .saturating_add(self.idempotency_bytes_max as u64),
            ),
            (
                "webhooks: configurations (push_bytes_max, push_scopes_max)",
                (self.push_bytes_max as u64)
                    .saturating_add(times(self.push_scopes_max, PUSH_SCOPE_BYTES)),
            ),
            (
                "webhooks: tasks of dead letters (push_dead_bytes_max)",
                self.push_dead_bytes_max as u64,
            ),
            (
                "webhooks: posts in flight (push_posts_bytes_max, task_bytes_max)",
                (self.push_posts_bytes_max as u64).saturating_add(self.task_bytes_max as u64),
            ),
            ("connections: state (connections_max)", times(self.connections_max, CONNECTION_BYTES)),
            (
                "connections: partial requests and unsent output (buffers_bytes_max)",
                self.buffers_bytes_max as u64,
            ),
            (
                "large bodies: parser and scratch (large_bodies_max, body_bytes_max, \
                 evo_ai_body_bytes_max)",
                times(self.large_bodies_max.min(workers), self.handling_bytes(body)),
            ),
            (
                "workers: the current request and answer (answer_bytes_max, task_bytes_max)",
                times(workers, at_hand),
            ),
            ("workers: buffers kept for reuse (reuse_bytes_max)", self.reuse_bytes_max as u64),
            ("process, and stacks and scratch of workers", base),
        ];
        #[cfg(feature = "grpc")]
        return terms.into_iter().chain(self.http2_bytes_terms(workers as u64)).collect();
        #[cfg(not(feature = "grpc"))]
        terms.to_vec()
    }

    /// Bytes of the largest body that any path accepts.
    pub(crate) fn largest_body_bytes(&self) -> usize {
        self.body_bytes_max.max(self.evo_ai_body_bytes_max)
    }

    /// Bytes of the largest message that any WebSocket accepts.
    pub(crate) fn largest_message_bytes(&self) -> usize {
        self.ws_message_bytes_max.max(self.evo_ai_body_bytes_max)
    }

    /// Memory of the slots. There is a group of shards for each worker, rounded up to a power of
    /// two, at most 64.
    fn slots_bytes(&self, workers: usize) -> u64 {
        let (tasks, groups) = (self.tasks_max as u64, workers.clamp(1, 64).next_power_of_two());
        let fixed = (groups as u64).saturating_mul(SHARDS_BYTES);
        let lists = (groups as u64 * SHARDS_QUARTER_BYTES_PER_TASK).div_ceil(4);
        // Half a slot more, since slots are allocated and freed in chunks.
        let slots = (SLOT_BYTES + RECORD_NUMBER_BYTES) * 3 / 2;
        let each = lists + slots + TASK_OVERHEAD_BYTES;
        // The factor of two covers peers with several callers each.
        let peers = 2 * charged_peers_max(self.tasks_max / groups) as u64;
        let charges = (groups as u64).saturating_mul(peers).saturating_mul(CHARGE_BYTES);
        tasks.saturating_mul(each).saturating_add(fixed).saturating_add(charges)
    }

    /// Memory of the names of all tenants and owners, of each worker's cached names, and of the
    /// counters and lists of each owner. `store_bytes_max` includes the store's data of each scope.
    fn names_bytes(&self, workers: usize) -> u64 {
        let groups = workers.clamp(1, 64).next_power_of_two() as u64;
        let names = (self.tenants_max as u64).saturating_add(self.owners_max as u64);
        let cached = 2 * CACHED_NAMES * workers as u64;
        let names = names.saturating_add(cached).saturating_mul(NAME_BYTES);
        let each = RUNNING_OWNER_BYTES + groups * RUNNING_GROUP_BYTES + OWNER_LOOK_BYTES;
        names.saturating_add((self.owners_max as u64).saturating_mul(each))
    }

    /// Memory to parse and answer a body of `length` bytes, with at most as many tokens as bytes.
    fn handling_bytes(&self, length: u64) -> u64 {
        let tokens = (self.json_tokens_max as u64).min(length);
        let bytes = (PARSER_BYTES_PER_BYTE + PACK_BYTES_PER_BYTE).saturating_mul(length);
        bytes.saturating_add(PARSER_BYTES_PER_TOKEN.saturating_mul(tokens))
    }

    /// Memory of HTTP/2. A head has its size in h2 until its call starts (one call of a worker at a
    /// time), and while CONTINUATION frames are missing (one call of each connection). After that
    /// the retained part is small and counted in `buffers_bytes_max`.
    #[cfg(feature = "grpc")]
    fn http2_bytes_terms(&self, workers: u64) -> [(&'static str, u64); 2] {
        let streams = self.http2_streams_max as u64;
        let head = (self.head_bytes_max as u64).saturating_mul(HTTP2_HEAD_LIST_FACTOR as u64);
        let calls = streams.saturating_mul(HTTP2_CALL_BYTES);
        // Half as much in addition for the CONTINUATION frames of the head, which are joined.
        let partial = head.saturating_mul(HTTP2_HEAD_FACTOR + HTTP2_HEAD_FACTOR / 2);
        let fixed = HTTP2_CONNECTION_BYTES + HTTP2_TABLE_BYTES;
        let connection = calls.saturating_add(partial).saturating_add(fixed);
        let connections = self.http2_connections_max.min(self.connections_max) as u64;
        let heads = streams.saturating_mul(head).saturating_mul(HTTP2_HEAD_FACTOR);
        let heads = heads.min(HTTP2_HEADS_BYTES.max(head.saturating_mul(HTTP2_HEAD_FACTOR)));
        [
            (
                "connections: calls and tables of HTTP/2 (http2_connections_max)",
                connections.saturating_mul(connection),
            ),
            ("workers: current HTTP/2 heads (head_bytes_max)", workers.saturating_mul(heads)),
        ]
    }

    /// The term that is added to [`Limits::memory_bytes_terms`] if connections use TLS.
    pub fn tls_bytes_term(&self) -> (&'static str, u64) {
        let sessions = self.connections_max as u64;
        ("connections: TLS sessions (connections_max)", sessions.saturating_mul(TLS_SESSION_BYTES))
    }

    /// The sum of [`Limits::memory_bytes_terms`], with the term of TLS sessions if `is_secure`.
    pub fn memory_bytes_max(&self, workers: usize, is_secure: bool) -> u64 {
        let terms = self.memory_bytes_terms(workers).into_iter();
        let terms = terms.chain(is_secure.then(|| self.tls_bytes_term()));
        terms.fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
    }
}

#[cfg(all(test, feature = "grpc"))]
mod tests {
    use super::*;

    #[test]
    fn http2_memory_is_counted_in_the_worst_case() {
        let term = |limits: &Limits, label: &str| {
            let terms = limits.memory_bytes_terms(2);
            terms.iter().find(|(name, _)| *name == label).map(|(_, bytes)| *bytes)
        };
        let connections = |limits: &Limits| {
            term(limits, "connections: calls and tables of HTTP/2 (http2_connections_max)")
        };
        let workers =
            |limits: &Limits| term(limits, "workers: current HTTP/2 heads (head_bytes_max)");
        let mut limits = Limits { http2_connections_max: 10, ..Limits::default() };
        limits.http2_streams_max = 100;
        limits.head_bytes_max = 1000;
        let fixed = (2048 + 110 * 28) * 1024;
        assert_eq!(connections(&limits), Some(10 * (100 * 8192 + 4 * 9 * 1000 + fixed)));
        assert_eq!(workers(&limits), Some(2 * 100 * 6 * 4 * 1000));
        limits.connections_max = 3;
        assert_eq!(connections(&limits), Some(3 * (100 * 8192 + 4 * 9 * 1000 + fixed)));
        // One poll cannot yield more.
        limits.http2_streams_max = 100_000;
        assert_eq!(workers(&limits), Some(2 * 16 * 1024 * 1024));
        let names =
            ["connections_max", "http2_connections_max", "http2_streams_max", "head_bytes_max"];
        for name in names {
            assert_eq!(limits.set(name, &super::super::ceiling(name).to_string()), Ok(()));
        }
        assert_eq!(connections(&limits), Some(u64::MAX));
        assert_eq!(limits.memory_bytes_max(1, false), u64::MAX);
    }
}
