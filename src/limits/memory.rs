//! The worst case of resident memory as a sum of labelled terms, each of which follows from limits.

use super::Limits;

/// Memory that one connection holds beside its buffers; measured, see `docs/perf.md`.
const CONNECTION_BYTES: u64 = 1024;
/// Memory that one TLS session holds at most: rustls lets a handshake message of 64 KiB arrive, and
/// later a record each way and what was read of another; beside its state.
const TLS_SESSION_BYTES: u64 = 80 * 1024;
/// What a peer may send on one HTTP/2 stream before it is read, and on all streams of a connection:
/// more than the protocol's 64 KiB, so that a body of some megabytes does not wait for a round trip
/// every 64 KiB. What came and is not yet read is held by h2, beside `buffers_bytes_max`.
#[cfg(feature = "grpc")]
pub(crate) const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// See [`HTTP2_STREAM_WINDOW_BYTES`].
#[cfg(feature = "grpc")]
pub(crate) const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
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
        return terms.into_iter().chain([self.http2_bytes_term()]).collect();
        #[cfg(not(feature = "grpc"))]
        terms.to_vec()
    }

    /// A document of `length` bytes, at most as many tokens as bytes.
    fn parser_bytes(&self, length: u64) -> u64 {
        let tokens = (self.json_tokens_max as u64).min(length);
        PARSER_BYTES_PER_BYTE * length + PARSER_BYTES_PER_TOKEN * tokens
    }

    /// Each call holds its head until it is answered, and shares the connection's window.
    #[cfg(feature = "grpc")]
    fn http2_bytes_term(&self) -> (&'static str, u64) {
        let (streams, head) = (self.http2_streams_max as u64, self.head_bytes_max as u64);
        let window = streams.saturating_mul(HTTP2_STREAM_WINDOW_BYTES.into());
        let window = window.min(HTTP2_CONNECTION_WINDOW_BYTES.into());
        let connection = streams.saturating_mul(head).saturating_add(window);
        let connections = self.http2_connections_max.min(self.connections_max) as u64;
        let sum = connections.saturating_mul(connection);
        ("connections: windows and heads of HTTP/2", sum)
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
        let label = "connections: windows and heads of HTTP/2";
        let term = |limits: &Limits| {
            let terms = limits.memory_bytes_terms(1);
            terms.iter().find(|(name, _)| *name == label).map(|(_, bytes)| *bytes)
        };
        let mut limits = Limits { http2_connections_max: 10, ..Limits::default() };
        limits.http2_streams_max = 100;
        limits.head_bytes_max = 1000;
        assert_eq!(term(&limits), Some(10 * (100 * 1000 + 1024 * 1024)));
        // So few streams cannot fill the connection's window.
        limits.http2_streams_max = 2;
        assert_eq!(term(&limits), Some(10 * 2 * (1000 + 256 * 1024)));
        limits.connections_max = 3;
        assert_eq!(term(&limits), Some(3 * 2 * (1000 + 256 * 1024)));
        let names =
            ["connections_max", "http2_connections_max", "http2_streams_max", "head_bytes_max"];
        for name in names {
            assert_eq!(limits.set(name, &super::super::ceiling(name).to_string()), Ok(()));
        }
        assert_eq!(term(&limits), Some(u64::MAX));
        assert_eq!(limits.memory_bytes_max(1), u64::MAX);
    }
}
