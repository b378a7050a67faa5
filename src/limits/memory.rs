//! The worst case of resident memory as a sum of labelled terms, each of which follows from limits.

use super::Limits;

/// Memory that one connection holds beside its buffers; measured, see `docs/perf.md`.
const CONNECTION_BYTES: u64 = 1024;
/// Memory that one TLS session holds at most: rustls lets a handshake message of 64 KiB arrive, and
/// later a record each way and what was read of another; beside its state.
const TLS_SESSION_BYTES: u64 = 80 * 1024;
/// What a peer may send on one HTTP/2 stream before it is read, and on all streams of a connection:
/// more than the protocol's 64 KiB, so that a body of some megabytes does not wait for a round trip
/// every 64 KiB. What comes is read at once and counted in `buffers_bytes_max`.
#[cfg(feature = "grpc")]
pub(crate) const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// See [`HTTP2_STREAM_WINDOW_BYTES`].
#[cfg(feature = "grpc")]
pub(crate) const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Memory of one HTTP/2 connection at most: what one turn reads (128 KiB with its buffers), a slab
/// for the 2,056 frames of a byte that h2 takes before they are read (1.5 MiB), the CONTINUATION
/// frames of a small head (192 KiB), and its state.
#[cfg(feature = "grpc")]
const HTTP2_CONNECTION_BYTES: u64 = 2 * 1024 * 1024;
/// Memory of the table of a connection's fields (RFC 7541 §4.1: 4,096 bytes, of which an entry
/// takes 37 or more): each of its paths keeps the buffer alive in which it came, which is one of
/// 16 KiB, or one of 26 KiB where Huffman's code was undone.
#[cfg(feature = "grpc")]
const HTTP2_TABLE_BYTES: u64 = 110 * 28 * 1024;
/// Memory of one call beside what it keeps of its request: its task, its stream in h2, the head and
/// the trailers of its answer; measured, and twice that, since a call that was reset can still be
/// there when the next one comes.
#[cfg(feature = "grpc")]
const HTTP2_CALL_BYTES: u64 = 8 * 1024;
/// A head of fields as short as can be takes five times its bytes, and more while its map grows.
#[cfg(feature = "grpc")]
const HTTP2_HEAD_FACTOR: u64 = 6;
/// Memory of the heads that one turn of a connection can bring: 80 KiB of one byte a field.
#[cfg(feature = "grpc")]
const HTTP2_HEADS_BYTES: u64 = 16 * 1024 * 1024;
/// Memory that one task holds beside its log: slot, order entry, context entry.
const TASK_OVERHEAD_BYTES: u64 = 320;

/// Memory that the JSON parser holds for each byte of a body and for each of its tokens; see
/// `Parser::shrink`.
const PARSER_BYTES_PER_BYTE: u64 = 9;
const PARSER_BYTES_PER_TOKEN: u64 = 16;

/// Memory of one agent's wish to be called again; see `op/timer.rs`.
const WISH_BYTES: u64 = 40;

/// Memory that a worker's buffer pools keep; see `net/pool.rs`.
const WORKER_POOL_BYTES: u64 = 2 * 32 * 1024 * 1024;

impl Limits {
    /// The worst case of resident memory as labelled terms, in bytes, for `workers` threads.
    ///
    /// The sum bounds what peers can make the server hold at one moment; it is a ceiling, not an
    /// estimate.
    pub fn memory_bytes_terms(&self, workers: usize) -> Vec<(&'static str, u64)> {
        let (connections, workers) = (self.connections_max as u64, workers as u64);
        let message = self.ws_message_bytes_max as u64;
        let request = self.head_bytes_max as u64 + message.max(self.body_bytes_max as u64);
        // A batch passes its bound by one page, a page by one task.
        let answer = 2 * self.answer_bytes_max + self.task_bytes_max;
        let reply = (self.output_bytes_max + answer) as u64;
        let terms = [
            ("store: task logs", self.store_bytes_max as u64),
            ("store: slots and indexes", self.tasks_max as u64 * TASK_OVERHEAD_BYTES),
            ("connections: state", connections * CONNECTION_BYTES),
            ("connections: partial requests and unsent output", self.buffers_bytes_max as u64),
            ("workers: the request and the answer at hand", workers * (request + reply)),
            ("workers: a message of a WebSocket, unmasked", workers * 2 * message),
            ("workers: parser", workers * self.parser_bytes(request)),
            ("workers: buffers kept for reuse", workers * WORKER_POOL_BYTES),
            ("workers: agents to be called again", workers * self.tasks_max as u64 * WISH_BYTES),
        ];
        #[cfg(feature = "grpc")]
        return terms.into_iter().chain(self.http2_bytes_terms(workers)).collect();
        #[cfg(not(feature = "grpc"))]
        terms.to_vec()
    }

    /// A document of `length` bytes, at most as many tokens as bytes.
    fn parser_bytes(&self, length: u64) -> u64 {
        let tokens = (self.json_tokens_max as u64).min(length);
        PARSER_BYTES_PER_BYTE * length + PARSER_BYTES_PER_TOKEN * tokens
    }

    /// A head is as large as h2 makes it until its call is started, which one connection of a
    /// worker does at a time, and while CONTINUATION frames are missing, for one call of each
    /// connection; then little is kept of it, which is counted in `buffers_bytes_max`.
    #[cfg(feature = "grpc")]
    fn http2_bytes_terms(&self, workers: u64) -> [(&'static str, u64); 2] {
        let (streams, head) = (self.http2_streams_max as u64, self.head_bytes_max as u64);
        let calls = streams.saturating_mul(HTTP2_CALL_BYTES);
        // Half as much again for its CONTINUATION frames, which are joined.
        let partial = head.saturating_mul(HTTP2_HEAD_FACTOR + HTTP2_HEAD_FACTOR / 2);
        let fixed = HTTP2_CONNECTION_BYTES + HTTP2_TABLE_BYTES;
        let connection = calls.saturating_add(partial).saturating_add(fixed);
        let connections = self.http2_connections_max.min(self.connections_max) as u64;
        let heads = streams.saturating_mul(head).saturating_mul(HTTP2_HEAD_FACTOR);
        let heads = heads.min(HTTP2_HEADS_BYTES.max(head.saturating_mul(HTTP2_HEAD_FACTOR)));
        [
            ("connections: calls and tables of HTTP/2", connections.saturating_mul(connection)),
            ("workers: the heads of HTTP/2 at hand", workers.saturating_mul(heads)),
        ]
    }

    /// What TLS adds to [`Limits::memory_bytes_terms`], where connections are accepted with it.
    pub fn tls_bytes_term(&self) -> (&'static str, u64) {
        let sessions = self.connections_max as u64;
        ("connections: TLS sessions", sessions.saturating_mul(TLS_SESSION_BYTES))
    }

    /// The sum of [`Limits::memory_bytes_terms`].
    pub fn memory_bytes_max(&self, workers: usize) -> u64 {
        self.memory_bytes_terms(workers).iter().fold(0, |sum, (_, b)| sum.saturating_add(*b))
    }
}

#[cfg(all(test, feature = "grpc"))]
mod tests {
    use super::*;

    #[test]
    fn http2_is_in_the_worst_case() {
        let term = |limits: &Limits, label: &str| {
            let terms = limits.memory_bytes_terms(2);
            terms.iter().find(|(name, _)| *name == label).map(|(_, bytes)| *bytes)
        };
        let connections = |limits: &Limits| term(limits, "connections: calls and tables of HTTP/2");
        let workers = |limits: &Limits| term(limits, "workers: the heads of HTTP/2 at hand");
        let mut limits = Limits { http2_connections_max: 10, ..Limits::default() };
        limits.http2_streams_max = 100;
        limits.head_bytes_max = 1000;
        let fixed = (2048 + 110 * 28) * 1024;
        assert_eq!(connections(&limits), Some(10 * (100 * 8192 + 9 * 1000 + fixed)));
        assert_eq!(workers(&limits), Some(2 * 100 * 6 * 1000));
        limits.connections_max = 3;
        assert_eq!(connections(&limits), Some(3 * (100 * 8192 + 9 * 1000 + fixed)));
        // One turn cannot bring more.
        limits.http2_streams_max = 100_000;
        assert_eq!(workers(&limits), Some(2 * 16 * 1024 * 1024));
        let names =
            ["connections_max", "http2_connections_max", "http2_streams_max", "head_bytes_max"];
        for name in names {
            assert_eq!(limits.set(name, &super::super::ceiling(name).to_string()), Ok(()));
        }
        assert_eq!(connections(&limits), Some(u64::MAX));
        assert_eq!(limits.memory_bytes_max(1), u64::MAX);
    }
}
