//! The limits that an operator can set, and their defaults. A limit used by a single module is
//! defined in that module.
//!
//! A limit is a number, a unit, a reason, a precedent and a test with the same name under `tests/`;
//! `docs/limits.md` describes what a peer sees when a limit is reached.

mod budget;
pub mod callers;
mod memory;
mod units;
pub mod webhooks;

pub(crate) use memory::charged_peers_max;
#[cfg(test)]
pub(crate) use memory::{
    DEFERRED_CALL_BYTES, IDEMPOTENCY_ENTRY_BYTES, RECORD_NUMBER_BYTES, RESUME_TIMER_BYTES,
    RUNNING_GROUP_BYTES, RUNNING_OWNER_BYTES, SLOT_BYTES,
};
#[cfg(feature = "grpc")]
pub(crate) use memory::{
    HTTP2_CONNECTION_WINDOW_BYTES, HTTP2_HEAD_LIST_FACTOR, HTTP2_STREAM_WINDOW_BYTES,
    HTTP2_UNREAD_MS,
};

pub use budget::{
    MEMORY_BYTES_DEFAULT, MEMORY_BYTES_PER_WORKER, TooLittleMemory, WORKERS_INCLUDED,
    memory_bytes_default,
};
pub use memory::SCOPE_BYTES;
pub use units::Unit;

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $value:expr;)+) => {
        /// All limits, with the defaults of [`Limits::default`].
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits { $($(#[doc = $doc])+ pub $name: $type,)+ }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($name: $value,)+ }
            }
        }

        impl Limits {
            /// The name of every limit, in the order of declaration.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)+];

            /// Sets one limit by name, to a number, or to a size or a time in the form of
            /// [`Unit::read`]: `64KiB`, `5s`.
            ///
            /// # Errors
            /// [`LimitError`] when the name is unknown, the value is not a whole number from 1 to
            /// the limit's maximum, or its unit does not fit the limit.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), LimitError> {
                match name {
                    $(stringify!($name) => {
                        let value = Unit::of(name).read(value)?;
                        let fits = (1..=ceiling(name)).contains(&value);
                        let value = <$type>::try_from(value).ok().filter(|_| fits);
                        self.$name = value.ok_or(LimitError::Value)?;
                    })+
                    _ => return Err(LimitError::Name),
                }
                Ok(())
            }

            /// Checks limits that were set in code, like [`Limits::set`].
            ///
            /// # Errors
            /// The name of the first limit that is zero or above its maximum.
            pub fn check(&self) -> Result<(), &'static str> {
                let fits = |(name, value): &(&str, u64)| (1..=ceiling(name)).contains(value);
                match self.rows().into_iter().find(|row| !fits(row)) {
                    None => Ok(()),
                    Some((name, _)) => Err(name),
                }
            }

            /// The description of the limit with this name; empty for any other name.
            pub fn about(name: &str) -> &'static str {
                match name {
                    $(stringify!($name) => concat!($($doc),+).trim_ascii_start(),)+
                    _ => "",
                }
            }

            /// `(name, value)` of every limit.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name as u64),)+]
            }
        }
    };
}

/// Bytes of a body or message above which it counts in `large_bodies_max`. Smaller bodies are
/// parsed with the buffers of each worker.
pub const LARGE_BODY_BYTES: usize = 64 * 1024;

/// Bytes from which a gRPC response message is compressed for a client that accepts gzip. A longer
/// message does not fit into the first round trip of a new connection (RFC 6928: 14,600 bytes); a
/// shorter message costs more to compress than to send.
#[cfg(feature = "compression")]
pub const COMPRESSED_BYTES_MIN: usize = 16 * 1024;

/// Bytes of a message to gRPC's health or reflection service, which contains a name.
pub const SERVICE_MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// Remembered sends per lock; the number of locks is derived from it, at most 64.
pub(crate) const IDEMPOTENCY_SHARD_ENTRIES: usize = 1024;

/// Minimum bytes of direct messages that each lock retains for its sends.
pub(crate) const IDEMPOTENCY_SHARD_BYTES: usize = 64 * 1024;

/// Header fields that an agent's profile may name.
pub const AGENT_FIELDS_MAX: usize = 16;

/// Origins with pages that may read answers: one setting lists them all, and the origin of a
/// request is compared with each.
pub const CORS_ORIGINS_MAX: usize = 256;

/// Default number of threads of an agent with blocking code (`net::blocking_agent`): such code
/// waits more than it computes. tokio has 512 for a process.
pub const BLOCKING_THREADS_MAX: usize = 64;

/// Default queue of an agent with blocking code: messages that wait for a thread, 16 for each
/// thread. Each holds its message and its call.
pub const BLOCKING_QUEUE_MAX: usize = 1_024;

/// Concurrent processes of one agent: each has its own memory, which the memory bound of the server
/// does not count (an idle Python: 10 MiB).
pub const PROCESSES_MAX: usize = 16;

/// Turns of an agent in another language that wait for a process, or for an HTTP function; as many
/// as for blocking code ([`BLOCKING_QUEUE_MAX`]).
pub const AGENT_TURNS_QUEUED_MAX: usize = 1_024;

/// Concurrent turns in one process with the line protocol, or at an HTTP function: enough for an
/// agent of coroutines or threads.
pub const AGENT_TURNS_MAX: usize = 64;

/// Bytes of a line of an agent in another language: enough for a file of 3 MiB in base64.
pub const AGENT_LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Milliseconds of silence allowed to a process or an HTTP function in a turn: models often think
/// for minutes.
pub const AGENT_SILENCE_MS: u64 = 300_000;

/// Concurrent calls of one remote agent before the first byte of its answer; up to
/// [`AGENT_TURNS_QUEUED_MAX`] more wait. Running and waiting calls together are a quarter of the
/// default `deferred_calls_max`, so that an agent that does not respond does not delay calls of
/// other agents.
pub const UPSTREAM_CALLS_MAX: usize = 1_024;

/// Tasks of one remote agent that the gateway follows: a quarter of the default
/// `async_futures_max`.
pub const UPSTREAM_STREAMS_MAX: usize = 16_384;

/// Milliseconds after which the card of a remote agent is requested again if its response has no
/// lifetime.
pub const UPSTREAM_CARD_MS: u64 = 300_000;

/// Minimum milliseconds between two requests for the card of a remote agent.
pub const UPSTREAM_CARD_MS_MIN: u64 = 60_000;

/// Log lines that wait to be written; further ones are counted and dropped.
pub const LOG_LINES_MAX: usize = 8_192;

/// Access log lines for refused requests per second, over all workers; further ones are counted.
pub const REFUSED_LINES_MAX: u32 = 100;

/// Spans that wait to be sent, as in OpenTelemetry's SDKs (maxQueueSize); further ones are counted
/// and dropped.
pub const SPANS_QUEUED_MAX: usize = 2_048;

/// Spans of one message to the collector, as in OpenTelemetry's SDKs (maxExportBatchSize).
pub const SPANS_SENT_MAX: usize = 512;

/// Milliseconds that spans wait for others, as in OpenTelemetry's SDKs (scheduledDelayMillis).
pub const SPANS_WAIT_MS: u64 = 5_000;

/// Milliseconds that a message to the collector may take (OTLP exporter: 10 s).
pub const SPANS_SEND_MS: u64 = 10_000;

/// Milliseconds that a server waits on shutdown for its last spans to be sent.
pub const SPANS_FLUSH_MS: u64 = 3_000;

/// Maximum delay in milliseconds that a `Retry-After` of the collector may cause.
pub const SPANS_RETRY_MS_MAX: u64 = 60_000;

/// Maximum attempts to send a message for which the collector requests a retry.
pub const SPANS_TRIES_MAX: usize = 5;

/// Bytes that are read of the collector's answer.
pub const SPANS_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Spans of one agent that are stored until its turns resume.
pub const RESUMED_SPANS_MAX: usize = 1_024;

/// Earlier programs of one agent that may still have unfinished tasks
/// ([`AgentChange::Renew`](crate::engine::AgentChange::Renew)).
pub const OLDER_PROGRAMS_MAX: usize = 16;

/// Dead letters that are retained; the oldest is dropped first.
pub const PUSH_DEAD_LETTERS_MAX: usize = 1_024;

/// Push configurations on one page of a list: the default `push_configs_task_max`.
pub const PUSH_PAGE_CONFIGS_MAX: usize = 100;

/// Why a limit could not be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// There is no limit with this name.
    Name,
    /// The value is not a whole number from 1 to the limit's maximum.
    Value,
    /// The unit of the value does not fit the limit.
    Unit,
}

/// The maximum value of a limit: larger values do not fit the integers that count it.
pub(crate) fn ceiling(name: &str) -> u64 {
    match name {
        // Lengths of ids and numbers of artifacts in the log of a task, and indexes of agents.
        "identifier_bytes_max" | "artifacts_max" | "agents_max" => u16::MAX as u64,
        // The numbers of tenants start at 1, and the highest is unused.
        "tenants_max" => u16::MAX as u64 - 1,
        "owners_max" => 1 << 24,
        // Offsets in the log of a task, missing bytes of a request, bytes seen in a window.
        "task_bytes_max" | "body_bytes_max" | "write_progress_bytes_min" => i32::MAX as u64,
        "evo_ai_body_bytes_max" => i32::MAX as u64,
        // Offsets in parsed input have 31 bits, too.
        "ws_frame_bytes_max" | "ws_message_bytes_max" => i32::MAX as u64,
        // Sums of bytes, of milliseconds, and of the worst case of memory.
        _ => 1 << 48,
    }
}

limits! {
    /// Bytes of a request head. Browsers stay under 8 KiB; nginx allows 32 KiB, hyper 400 KiB.
    head_bytes_max: usize = 16 * 1024;
    /// Fields in a head. Apache and hyper allow 100.
    head_fields_max: usize = 100;
    /// Bytes of a method name. The longest registered one has 17.
    method_bytes_max: usize = 32;
    /// Bytes of a request target (RFC 9110 §4.1 asks for at least 8,000).
    target_bytes_max: usize = 8 * 1024;
    /// Bytes of a query: A2A has a handful of short parameters (dialect a2a-rust: 4 KiB).
    query_bytes_max: usize = 4 * 1024;
    /// Bytes of a request body (dialect a2a-rust and gRPC's default: 4 MiB).
    body_bytes_max: usize = 4 * 1024 * 1024;
    /// Bytes of a request body or a WebSocket message in the dialect evo_ai: a file of the largest
    /// size in base64, and a message. Other limits of bodies and messages do not apply there.
    evo_ai_body_bytes_max: usize = 8 * 1024 * 1024;
    /// Bytes of a file in a message of the dialect evo_ai, decoded (its documentation: 5 MB).
    evo_ai_file_bytes_max: usize = 5 * 1024 * 1024;
    /// Bytes of a message of the dialect evo_ai as received, without the base64 of its files (its
    /// documentation: 1 MB).
    evo_ai_message_bytes_max: usize = 1024 * 1024;
    /// Bodies and messages above 64 KiB that are parsed and answered concurrently, over all
    /// workers; others wait. Parsing takes many times the size of the input.
    large_bodies_max: usize = 4;
    /// Bytes of a chunk's size line with its extensions (hyper and nginx are close).
    chunk_line_bytes_max: usize = 256;
    /// Bytes of a chunked body's trailers, which are checked and dropped.
    trailer_bytes_max: usize = 8 * 1024;
    /// Calls in one JSON-RPC batch: the tasks of a page of 100 can be read with one batch.
    batch_calls_max: usize = 100;
    /// Nested arrays and objects in a body; real messages stay under 20 (serde_json: 128).
    json_depth_max: usize = 64;
    /// Tokens of JSON in a body (RFC 8259 §2): the cost of a body beyond its bytes. 250,000 numbers
    /// have twice as many tokens (Jackson's `maxTokenCount` counts the same).
    json_tokens_max: usize = 512 * 1024;
    /// Bytes of a JSON-RPC id in the body; every event of a stream repeats it.
    rpc_id_bytes_max: usize = 512;
    /// Bytes of a task, context, message or artifact id; UUIDs have 36.
    identifier_bytes_max: usize = 256;
    /// Bytes of a name, media type, extension URI, file URL or description.
    string_bytes_max: usize = 8 * 1024;
    /// Parts in one message.
    parts_max: usize = 1024;
    /// Extensions, and referenced tasks, in one message.
    references_max: usize = 64;
    /// Milliseconds from accepting a connection to the end of its TLS handshake (nginx: 60 s).
    tls_handshake_timeout_ms: u64 = 10_000;
    /// Milliseconds from a connection's first byte of a head to its last (slow loris).
    head_timeout_ms: u64 = 10_000;
    /// Milliseconds within which `body_progress_bytes_min` of a body must arrive.
    body_idle_ms: u64 = 30_000;
    /// Bytes of body that must arrive in every `body_idle_ms` (a slow body; Apache: 500 B/s).
    body_progress_bytes_min: usize = 16 * 1024;
    /// Milliseconds a connection may stay idle between requests (nginx: 75 s).
    keep_alive_idle_ms: u64 = 75_000;
    /// Milliseconds within which a peer must read `write_progress_bytes_min` of the waiting output.
    write_stall_ms: u64 = 30_000;
    /// Bytes of waiting output that a peer must read in every `write_stall_ms`, or all of it.
    write_progress_bytes_min: usize = 16 * 1024;
    /// Milliseconds between keep-alive comments on a quiet stream (proxies cut at 30 to 60 s).
    sse_keep_alive_ms: u64 = 15_000;
    /// Milliseconds after which the head of a stream and a comment are sent if the agent has not
    /// answered. An earlier refusal is a plain error, a later refusal an error event.
    stream_head_ms: u64 = 1_000;
    /// Bytes of the payload of a WebSocket frame (dialect a2a-rust: 4 MiB).
    ws_frame_bytes_max: usize = 4 * 1024 * 1024;
    /// Bytes of a WebSocket message over all its frames: as much as a body.
    ws_message_bytes_max: usize = 4 * 1024 * 1024;
    /// Messages of one WebSocket that wait for their answers; a batch counts as one (dialect
    /// a2a-rust: 64).
    ws_in_flight_max: usize = 64;
    /// Milliseconds of silence after which a WebSocket gets a ping, and after the same time again
    /// is closed (proxies cut at 30 to 60 s).
    ws_ping_ms: u64 = 20_000;
    /// Milliseconds for which a closing connection is still read, so that the answer arrives.
    linger_ms: u64 = 1_000;
    /// Milliseconds for running calls and streams to end on shutdown.
    drain_ms: u64 = 10_000;
    /// Open connections, over all workers; file descriptors are usually the lower bound.
    connections_max: usize = 65_536;
    /// Connections to the operator's listener (`--admin`), in addition to `connections_max`: enough
    /// for scrapers, probes and operators.
    admin_connections_max: usize = 32;
    /// Open streams, over all workers.
    streams_max: usize = 65_536;
    /// Open streams of gRPC's health and reflection, which need no caller, over all workers: they
    /// are counted separately, so that they take no slots of calls.
    service_streams_max: usize = 1_024;
    /// Such streams of one peer (an IPv4 address, or an IPv6 network of 64 bits): a health watcher
    /// has one or two.
    service_streams_peer_max: usize = 16;
    /// Bytes of unsent output above which a connection's input waits.
    output_bytes_max: usize = 256 * 1024;
    /// Bytes of partial requests and unsent output of all connections together; at the limit, the
    /// connections with the most are closed.
    buffers_bytes_max: usize = 1024 * 1024 * 1024;
    /// Bytes of free buffers that all workers together retain for reuse.
    reuse_bytes_max: usize = 64 * 1024 * 1024;
    /// Bytes of one answer beyond which a page of tasks ends and more calls of a batch are refused:
    /// it bounds the memory for the answer to a small request (gRPC's clients take 4 MiB).
    answer_bytes_max: usize = 2 * 1024 * 1024;
    /// HTTP/2 connections, which count among `connections_max` and may hold far more than others.
    http2_connections_max: usize = 512;
    /// Concurrent calls on one HTTP/2 connection (nginx 128, hyper 200).
    http2_streams_max: usize = 128;
    /// Calls on one HTTP/2 connection that were reset before they were processed; beyond that the
    /// connection ends (hyper 20).
    http2_resets_max: usize = 20;
    /// Frames without effect that one HTTP/2 connection may send in a burst, such as SETTINGS,
    /// PING, PRIORITY and unknown ones. The budget refills within 30 s, and by ten for each call
    /// and each data frame that the server sends (nghttp2: 1,000, and 33 a second; Envoy: ten
    /// WINDOW_UPDATE a frame). Also the number of errors in its lifetime for which the server
    /// resets a call (hyper 1,024).
    http2_control_frames_max: usize = 1_000;
    /// Names of agents, including removed ones, because an index is never reused. Each worker has
    /// memory for all of them.
    agents_max: usize = 1_024;
    /// Bytes that an agent may store with a task (`Job::keep`).
    kept_bytes_max: usize = 1_024;
    /// Tasks in memory, running and finished; the oldest finished ones are evicted first.
    tasks_max: usize = 1_048_576;
    /// Calls that wait for their agents: to answer a message, to decide on a cancel, to find a task
    /// that is not stored. Their memory counts in `store_bytes_max`.
    deferred_calls_max: usize = 8_192;
    /// Futures of async agents, over all workers; a future may outlive a canceled task.
    async_futures_max: usize = 65_536;
    /// Bytes of tasks in memory; the oldest finished ones are evicted first.
    store_bytes_max: usize = 1024 * 1024 * 1024;
    /// Milliseconds for which a finished task can still be read.
    task_ttl_ms: u64 = 3_600_000;
    /// Milliseconds without an event after which a submitted or working task fails.
    unfinished_idle_ms: u64 = 3_600_000;
    /// Milliseconds without an event after which a task in input-required or auth-required fails.
    input_required_ttl_ms: u64 = 86_400_000;
    /// Agents and proxies in the chain of a call (SIP's `Max-Forwards`: 70; mail: 30).
    hops_max: usize = 8;
    /// Maximum milliseconds that a reader can wait for new events of a task (proxies cut at 60 s).
    long_poll_ms_max: u64 = 60_000;
    /// Names of tenants that have tasks or calls: a caller that may name one can name many.
    tenants_max: usize = 100;
    /// Names of owners that have tasks or calls; a new owner displaces an owner that has only
    /// finished tasks.
    owners_max: usize = 10_000;
    /// Cached valid credentials, and peers that sent wrong ones.
    credentials_max: usize = 8_192;
    /// Sends that are recognized when repeated; the oldest are evicted first.
    idempotency_entries_max: usize = 65_536;
    /// Bytes of direct messages retained to answer repeated sends; the oldest are evicted first.
    idempotency_bytes_max: usize = 16 * 1024 * 1024;
    /// Milliseconds for which a repeated send is recognized (Stripe: 24 h).
    idempotency_ttl_ms: u64 = 86_400_000;
    /// Push configurations of one task.
    push_configs_task_max: usize = 100;
    /// Push configurations of one task at one host, over all ports, unless `push.allow` names the
    /// host.
    push_configs_task_host_max: usize = 8;
    /// Push configurations of the tasks of one owner.
    push_configs_owner_max: usize = 10_000;
    /// Push configurations with URLs of one host, over all ports.
    push_configs_host_max: usize = 250_000;
    /// Scopes (agent, tenant, owner) with a push configuration for all of their tasks (dialect
    /// evo_ai).
    push_scopes_max: usize = 1_024;
    /// Scopes of one owner with a push configuration for all of their tasks.
    push_scopes_owner_max: usize = 16;
    /// Bytes of all push configurations: 300 and the URL and data of its posts for each, and 700
    /// and three times its text for each origin (scheme, host and port); at most a quarter for one
    /// owner.
    push_bytes_max: usize = 64 * 1024 * 1024;
    /// Bytes of evicted tasks that are retained for their dead letters, each counted as at least a
    /// 1,024th of the limit; an owner above its equal share loses its oldest first.
    push_dead_bytes_max: usize = 16 * 1024 * 1024;
    /// Bytes of webhook deliveries in flight, half of them for small ones; a single delivery may
    /// exceed the limit.
    push_posts_bytes_max: usize = 32 * 1024 * 1024;
    /// Bytes of one task: a 4 MiB body twice, as history and artifact, and as much again.
    task_bytes_max: usize = 16 * 1024 * 1024;
    /// Messages in a task's history; the oldest are dropped first.
    history_max: usize = 1_000;
    /// Artifacts in a task.
    artifacts_max: usize = 256;
    /// Latest events of a task that can be replayed to a subscriber that reconnects.
    event_ring_max: u64 = 1_024;
    /// Events that one turn of an agent may publish before it yields.
    turn_events_max: usize = 16_384;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_limits_are_consistent() {
        let limits = Limits::default();
        assert!(limits.target_bytes_max < limits.head_bytes_max);
        assert!(limits.query_bytes_max < limits.target_bytes_max);
        assert!(2 * limits.body_bytes_max < limits.task_bytes_max);
        // The message with the largest file is also stored twice: as history and as artifact.
        let base64 = limits.evo_ai_file_bytes_max.div_ceil(3) * 4;
        let message = base64 + limits.evo_ai_message_bytes_max;
        assert!(message < limits.evo_ai_body_bytes_max);
        assert!(2 * message < limits.task_bytes_max);
        assert!(limits.task_bytes_max < limits.store_bytes_max);
        assert!(limits.output_bytes_max < limits.answer_bytes_max);
        assert!(limits.sse_keep_alive_ms < limits.write_stall_ms);
        assert!(limits.identifier_bytes_max < usize::from(u16::MAX));
    }

    #[test]
    fn limits_are_set_by_name() {
        let mut limits = Limits::default();
        assert_eq!(limits.set("tasks_max", "10_000"), Ok(()));
        assert_eq!(limits.tasks_max, 10_000);
        assert_eq!(limits.set("tasks", "1"), Err(LimitError::Name));
        assert_eq!(limits.set("tasks_max", "0"), Err(LimitError::Value));
        assert_eq!(limits.set("tasks_max", "many"), Err(LimitError::Value));
        assert_eq!(limits.set("tasks_max", "5s"), Err(LimitError::Unit));
        assert_eq!(limits.set("store_bytes_max", "512M"), Ok(()));
        assert_eq!(limits.set("drain_ms", "5s"), Ok(()));
        assert_eq!((limits.store_bytes_max, limits.drain_ms), (512 << 20, 5_000));
        // Such a value would wrap or be truncated in use.
        for name in Limits::NAMES {
            assert_eq!(limits.set(name, &u64::MAX.to_string()), Err(LimitError::Value), "{name}");
        }
        assert_eq!(limits.set("identifier_bytes_max", "65_536"), Err(LimitError::Value));
        assert_eq!(limits.set("identifier_bytes_max", "65_535"), Ok(()));
        assert_eq!(Limits::NAMES.len(), limits.rows().len());
        assert_eq!(Limits::default().check(), Ok(()));
        assert!(Limits::NAMES.iter().all(|name| Limits::about(name).ends_with('.')));
        assert!(Limits::about("head_bytes_max").starts_with("Bytes of a request head."));
        assert_eq!(Limits::about("none"), "");
    }
}
