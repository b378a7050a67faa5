//! The events that a server reports to metrics and logs: the end of each call, and the result of
//! each authentication.
//!
//! Invariant: each call is reported once, at its end, on the thread that answered it: immediately,
//! after waiting, or when its stream has ended. Reports contain no secrets. `Now` is read once per
//! poll, and most calls end in the poll in which they begin, so the observer has its own clock. The
//! server reads that clock when a call ends; the start of a call needs no reading
//! ([`CallObserver::turned_ns`]).

use std::{net::IpAddr, sync::Arc};

use super::{
    AgentIndex, Principal, StreamResponse, principal::CredentialKind, trace::CallSpan,
    upstream::LoggedUpstream,
};
use crate::{
    fault::{Fault, FaultKind},
    model::{Generation, Op, RawText, Reply},
};

/// Counts and logs calls. It is called on the threads that serve, so it never blocks.
pub trait CallObserver: Send + Sync {
    /// The time in nanoseconds on a monotonic clock of fine resolution.
    fn clock_ns(&self) -> u64;

    /// This worker's last reading of that clock, used as the start time of a call: the worker was
    /// polled, or has ended another call, just before.
    fn turned_ns(&self, _worker: usize) -> u64 {
        self.clock_ns()
    }

    /// Whether [`CallObserver::turned_ns`] of a worker stays the same from the beginning of a call
    /// until it is answered or starts to wait. The server then reads it at the end instead of at
    /// the beginning.
    fn keeps_turns(&self) -> bool {
        false
    }

    /// Whether the observer wants [`CallRecord::details`], which cost an allocation for each call.
    fn wants_details(&self) -> bool {
        false
    }

    /// Whether the observer wants [`CallRecord::details`] of refused calls even if
    /// [`CallObserver::wants_details`] is false, and calls of [`CallObserver::request_refused`].
    fn wants_refusals(&self) -> bool {
        false
    }

    /// Called for each refused request (status 400 or above) that is not a call.
    fn request_refused(&self, _refused: &RefusedRequest<'_>) {}

    /// Called when a call has ended.
    fn call_ended(&self, call: &CallRecord);

    /// Called instead of [`CallObserver::call_ended`] for an [`AnsweredCall`]. With
    /// [`CallObserver::keeps_turns`] the record has no start time, which is then
    /// [`CallObserver::turned_ns`].
    fn call_answered(&self, call: &AnsweredCall) {
        let mut record = CallRecord::from(call);
        if self.keeps_turns() {
            record.began_ns = self.turned_ns(call.worker);
        }
        self.call_ended(&record);
    }

    /// Called when a limit refuses a connection, or a request that is not a call. The record of a
    /// refused call names the limit ([`CallRefusal::limit`]).
    fn limit_hit(&self, _hit: &LimitHit<'_>) {}

    /// Called with the name of an unknown, ignored filter of ListTasks: once for each name, for a
    /// limited number of names.
    fn filter_ignored(&self, _name: &str) {}

    /// Called once each time an address has sent too many wrong credentials: its answers are then
    /// delayed.
    fn peer_slowed(&self, _address: IpAddr) {}

    /// Called with the result of authentication, if callers are authenticated: once for each
    /// request that may be a call, and for each refused request.
    fn caller_checked(&self, _worker: usize, _outcome: AuthOutcome) {}
}

/// The binding of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallBinding {
    /// JSON-RPC over HTTP.
    JsonRpc,
    /// HTTP+JSON.
    HttpJson,
    /// gRPC.
    Grpc,
    /// JSON-RPC over WebSocket.
    WebSocket,
}

impl CallBinding {
    /// All bindings, in order of their numbers.
    pub const ALL: [CallBinding; 4] =
        [CallBinding::JsonRpc, CallBinding::HttpJson, CallBinding::Grpc, CallBinding::WebSocket];

    /// The HTTP status, or the gRPC code, of success.
    pub const fn status_ok(self) -> u16 {
        match self {
            CallBinding::Grpc => 0,
            CallBinding::JsonRpc | CallBinding::HttpJson | CallBinding::WebSocket => 200,
        }
    }

    /// The name in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            CallBinding::JsonRpc => "jsonrpc",
            CallBinding::HttpJson => "http+json",
            CallBinding::Grpc => "grpc",
            CallBinding::WebSocket => "websocket",
        }
    }
}

/// Why a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallEnd {
    /// The answer was complete: a result, a fault, or the end of a stream.
    Complete,
    /// The client disconnected before the end of the answer.
    ClientLeft,
    /// The server terminated.
    Cut,
    /// The credential of the caller has expired or was withdrawn.
    Expired,
    /// The deadline of the call has passed.
    DeadlineExceeded,
    /// The task of the stream was evicted, or its subscriber fell behind the retained events.
    Gone,
}

impl CallEnd {
    /// All ends, in order of their numbers.
    pub const ALL: [CallEnd; 6] = [
        CallEnd::Complete,
        CallEnd::ClientLeft,
        CallEnd::Cut,
        CallEnd::Expired,
        CallEnd::DeadlineExceeded,
        CallEnd::Gone,
    ];

    /// The name in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            CallEnd::Complete => "complete",
            CallEnd::ClientLeft => "client_left",
            CallEnd::Cut => "cut",
            CallEnd::Expired => "expired",
            CallEnd::DeadlineExceeded => "deadline_exceeded",
            CallEnd::Gone => "gone",
        }
    }
}

/// A refusal by a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitHit<'a> {
    /// The worker that refused the request.
    pub worker: usize,
    /// The name of the limit, or of the share of a caller.
    pub limit: &'static str,
    /// The owner of the request, if known.
    pub owner: Option<&'a str>,
}

/// A refused request that is not a call: the caller is not admitted, the path is unknown, or the
/// head or body is rejected.
#[derive(Clone, Copy, Debug)]
pub struct RefusedRequest<'a> {
    /// The client address; `None`: unknown, as over a Unix socket.
    pub peer: Option<IpAddr>,
    /// The caller, if known.
    pub principal: Option<&'a Principal>,
    /// The HTTP status of the refusal, also over gRPC.
    pub status: u16,
    /// The reason, in one sentence.
    pub reason: &'a str,
    /// The limit that was reached, if any.
    pub limit: Option<&'static str>,
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRefusal {
    /// The fault in the answer.
    pub kind: FaultKind,
    /// The limit that was reached, if any.
    pub limit: Option<&'static str>,
}

impl From<&Fault> for CallRefusal {
    fn from(fault: &Fault) -> CallRefusal {
        CallRefusal { kind: fault.kind, limit: fault.limit_hit() }
    }
}

/// A call that was answered in the poll in which it arrived, without details.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredCall {
    /// The worker that answered the call.
    pub worker: usize,
    /// The binding.
    pub binding: CallBinding,
    /// The operation.
    pub op: Op,
    /// The generation.
    pub generation: Generation,
    /// The agent.
    pub agent: AgentIndex,
    /// When the call began, on [`CallObserver::clock_ns`]; 0 with [`CallObserver::keeps_turns`].
    pub began_ns: u64,
    /// Bytes of the body or message; for a batch, counted for its first call.
    pub bytes_in: u64,
    /// Bytes of the answer, over HTTP/1.1 including the head.
    pub bytes_out: u64,
}

impl From<&AnsweredCall> for CallRecord {
    fn from(call: &AnsweredCall) -> CallRecord {
        let AnsweredCall { worker, binding, op, generation, agent, .. } = *call;
        CallRecord {
            worker,
            binding,
            op: Some(op),
            generation,
            agent,
            refusal: None,
            status: binding.status_ok(),
            began_ns: call.began_ns,
            waited: false,
            bytes_in: call.bytes_in,
            bytes_out: call.bytes_out,
            stream: None,
            end: CallEnd::Complete,
            details: None,
            refused: None,
        }
    }
}

/// The record of an ended call.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// The worker that answered the call.
    pub worker: usize,
    /// The binding.
    pub binding: CallBinding,
    /// The operation; `None`: unknown.
    pub op: Option<Op>,
    /// The generation.
    pub generation: Generation,
    /// The agent.
    pub agent: AgentIndex,
    /// Why the call was refused; `None`: not refused.
    pub refusal: Option<CallRefusal>,
    /// The HTTP status of the answer, or the gRPC code.
    pub status: u16,
    /// When the call began, on [`CallObserver::clock_ns`].
    pub began_ns: u64,
    /// True: the call was not answered in the poll in which it arrived.
    pub waited: bool,
    /// Bytes of the body or message; for a batch, counted for its first call.
    pub bytes_in: u64,
    /// Bytes of the answer, over HTTP/1.1 including the head.
    pub bytes_out: u64,
    /// The record of the stream; `None`: the answer was not a stream.
    pub stream: Option<StreamRecord>,
    /// Why the call has ended.
    pub end: CallEnd,
    /// The log details, if an observer wants them.
    pub details: Option<Box<CallDetails>>,
    /// The caller of a call that a limit refused, if known.
    pub refused: Option<Arc<Principal>>,
}

/// The record of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamRecord {
    /// When the first event was written, on [`CallObserver::clock_ns`].
    pub first_event_ns: Option<u64>,
    /// The number of written events.
    pub events: u64,
    /// The largest value of `lag`.
    pub lag_max: u64,
    /// The number of events written since the stream had last caught up with its task.
    pub lag: u64,
    /// True: the subscriber resumed, and named the last event that it had received.
    pub resumed: bool,
}

impl StreamRecord {
    /// Adds the events of one poll; `has_all`: no event remains.
    pub fn wrote(&mut self, events: u64, has_all: bool, clock: impl FnOnce() -> u64) {
        if events > 0 {
            self.first_event_ns.get_or_insert_with(clock);
        }
        self.events += events;
        self.lag += events;
        self.lag_max = self.lag_max.max(self.lag);
        if has_all {
            self.lag = 0;
        }
    }
}

/// The log details of a call, in addition to its [`CallRecord`].
#[derive(Clone, Debug, Default)]
pub struct CallDetails {
    /// The raw JSON text of the task id; empty: unknown.
    pub task: Vec<u8>,
    /// The caller.
    pub principal: Option<Arc<Principal>>,
    /// The client address; `None`: unknown, as over a Unix socket.
    pub peer: Option<IpAddr>,
    /// Why the call was refused, in one sentence; empty: only [`CallRefusal::kind`] is known.
    pub reason: String,
    /// The trace id (W3C Trace Context §3.2.2.3), in lower-case hex.
    pub trace_id: Option<[u8; 32]>,
    /// The span, if the call is traced.
    pub span: Option<CallSpan>,
    /// The upstream to which the call was forwarded.
    pub upstream: Option<Arc<LoggedUpstream>>,
}

impl CallDetails {
    /// Records the task of an answer, if no task is recorded yet.
    pub fn note(&mut self, id: RawText<'_>) {
        if self.task.is_empty() {
            self.task.extend_from_slice(id.raw());
        }
    }

    /// Records the task of a reply.
    pub fn note_reply(&mut self, reply: &Reply<'_>) {
        if let Reply::Task { view, .. } = reply {
            self.note(view.id());
        }
    }

    /// Records the task of an item of a stream.
    pub fn note_item(&mut self, item: &StreamResponse<'_>) {
        match item {
            StreamResponse::Snapshot(view) => self.note(view.id()),
            StreamResponse::Event { task_id, .. } => self.note(*task_id),
            StreamResponse::Message { .. } => {}
        }
    }

    /// Records the trace that a `traceparent` names. An invalid value is omitted, since a log must
    /// not contain arbitrary text.
    pub fn note_trace(&mut self, traceparent: &str) {
        let mut parts = traceparent.split('-');
        let (Some(version), Some(trace)) = (parts.next(), parts.next()) else { return };
        let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        let is_zero = trace.bytes().all(|b| b == b'0');
        if version.len() == 2 && version != "ff" && trace.bytes().all(is_hex) && !is_zero {
            self.trace_id = trace.as_bytes().try_into().ok();
        }
    }
}

/// An outcome of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthOutcome {
    /// The caller is authenticated by this kind of credential.
    Admitted(CredentialKind),
    /// The caller is anonymous, and may call.
    Anonymous,
    /// The caller has no credential, and needs one.
    Missing,
    /// The credential is wrong.
    Wrong,
    /// The authenticator cannot decide now.
    Unavailable,
    /// Too many wrong credentials came from the caller's address.
    TooMany,
}

impl AuthOutcome {
    /// The number of outcomes.
    pub const COUNT: usize = CredentialKind::ALL.len() + 5;

    /// The number of the outcome, below [`AuthOutcome::COUNT`].
    pub const fn index(self) -> usize {
        match self {
            AuthOutcome::Anonymous => 0,
            AuthOutcome::Missing => 1,
            AuthOutcome::Wrong => 2,
            AuthOutcome::Unavailable => 3,
            AuthOutcome::TooMany => 4,
            AuthOutcome::Admitted(kind) => 5 + kind as usize,
        }
    }

    /// All outcomes, in order of their numbers.
    pub fn all() -> impl Iterator<Item = AuthOutcome> {
        let others = [
            AuthOutcome::Anonymous,
            AuthOutcome::Missing,
            AuthOutcome::Wrong,
            AuthOutcome::Unavailable,
            AuthOutcome::TooMany,
        ];
        others.into_iter().chain(CredentialKind::ALL.map(AuthOutcome::Admitted))
    }

    /// The name of the outcome in metrics, and the kind of credential.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            AuthOutcome::Admitted(kind) => ("admitted", kind.word()),
            AuthOutcome::Anonymous => ("anonymous", ""),
            AuthOutcome::Missing => ("missing", ""),
            AuthOutcome::Wrong => ("wrong", ""),
            AuthOutcome::Unavailable => ("unavailable", ""),
            AuthOutcome::TooMany => ("too_many", ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enum_indices_match_the_order_of_their_lists() {
        for (at, outcome) in AuthOutcome::all().enumerate() {
            assert_eq!(outcome.index(), at, "{outcome:?}");
        }
        assert_eq!(AuthOutcome::all().count(), AuthOutcome::COUNT);
        assert!(CallBinding::ALL.iter().enumerate().all(|(at, one)| *one as usize == at));
        assert!(CallEnd::ALL.iter().enumerate().all(|(at, one)| *one as usize == at));
    }

    #[test]
    fn stream_backlog_grows_until_all_events_are_written() {
        let mut stream = StreamRecord::default();
        for (events, has_all) in [(0, true), (2, false), (3, false), (1, true), (4, true)] {
            stream.wrote(events, has_all, || 7);
        }
        assert_eq!((stream.events, stream.lag_max, stream.lag), (10, 6, 0));
        assert_eq!(stream.first_event_ns, Some(7));
    }

    #[test]
    fn trace_id_is_recorded_only_from_a_valid_traceparent() {
        let trace = |text: &str| {
            let mut details = CallDetails::default();
            details.note_trace(text);
            details.trace_id.map(|id| String::from_utf8_lossy(&id).into_owned())
        };
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(trace(&format!("00-{id}-00f067aa0ba902b7-01")).as_deref(), Some(id));
        let zero = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        for text in ["", "00", "00-a-b-c", &zero, &format!("ff-{id}-0-1"), &id.to_uppercase()] {
            assert_eq!(trace(text), None, "{text}");
        }
        assert_eq!(trace(&format!("00-{}-00f067aa0ba902b7-01", id.to_uppercase())), None);
    }
}
