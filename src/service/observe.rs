//! What a server tells metrics and logs: how each call has ended, and which credentials came with
//! requests.
//!
//! Invariant: each call is told once, at its end, on the thread that has answered it: at once, when
//! it no longer waits, or when its stream has ended. Nothing that is told is a secret. `Now` is
//! read once a turn, and most calls end in the turn in which they begin, so the observer has a
//! clock of its own. It is read when a call ends; that one begins costs no reading
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
    /// The time in nanoseconds on a clock that never goes back, and is as fine as calls are short.
    fn clock_ns(&self) -> u64;

    /// The time that this worker has read last on that clock: when a call begins, it has just
    /// turned to it, or has just ended another one.
    fn turned_ns(&self, _worker: usize) -> u64 {
        self.clock_ns()
    }

    /// Whether what [`CallObserver::turned_ns`] says of a worker stays the same from where a call
    /// begins to where it is answered, or left waiting. It is then asked there, and not when the
    /// call begins.
    fn keeps_turns(&self) -> bool {
        false
    }

    /// Whether it wants [`CallRecord::details`], which cost an allocation for each call.
    fn wants_details(&self) -> bool {
        false
    }

    /// Whether it wants [`CallRecord::details`] of a call that is refused, also where
    /// [`CallObserver::wants_details`] was false, and [`CallObserver::request_refused`].
    fn wants_refusals(&self) -> bool {
        false
    }

    /// Is told of a request that was answered with a status of 400 or above, and that is no call.
    fn request_refused(&self, _refused: &RefusedRequest<'_>) {}

    /// Is told how a call has ended.
    fn call_ended(&self, call: &CallRecord);

    /// Is told of a call that has ended as most do; it is not told twice. One that keeps turns is
    /// not told when it began, and reads that from its own clock.
    fn call_answered(&self, call: &AnsweredCall) {
        let mut record = CallRecord::from(call);
        if self.keeps_turns() {
            record.began_ns = self.turned_ns(call.worker);
        }
        self.call_ended(&record);
    }

    /// Is told of a request or a connection that was refused because of a limit, and that is no
    /// call: what is told of a call says so itself ([`CallRefusal::limit`]).
    fn limit_hit(&self, _hit: &LimitHit<'_>) {}

    /// Is told the name of a filter of ListTasks that is not known, and was ignored: once for each
    /// name, and for few of them.
    fn filter_ignored(&self, _name: &str) {}

    /// Is told that an address has shown too many wrong credentials, and is slowed from now on:
    /// once each time.
    fn peer_slowed(&self, _address: IpAddr) {}

    /// Is told what a request has shown, where callers are known: once for each request that may
    /// be a call, and for each that is refused.
    fn caller_asked(&self, _worker: usize, _outcome: AuthOutcome) {}
}

/// The way by which a call has come.
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
    /// All of them, in the order of their numbers.
    pub const ALL: [CallBinding; 4] =
        [CallBinding::JsonRpc, CallBinding::HttpJson, CallBinding::Grpc, CallBinding::WebSocket];

    /// The status of HTTP, or the code of gRPC, of what is no refusal.
    pub const fn status_ok(self) -> u16 {
        match self {
            CallBinding::Grpc => 0,
            CallBinding::JsonRpc | CallBinding::HttpJson | CallBinding::WebSocket => 200,
        }
    }

    /// Its name in logs and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            CallBinding::JsonRpc => "jsonrpc",
            CallBinding::HttpJson => "http+json",
            CallBinding::Grpc => "grpc",
            CallBinding::WebSocket => "websocket",
        }
    }
}

/// Why nothing more is said of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallEnd {
    /// All was said: an answer, a fault, the end of a stream.
    Complete,
    /// Its client has left before that.
    ClientLeft,
    /// The server ends.
    Cut,
    /// The credential has ended by which the stream was opened.
    Expired,
    /// Its caller no longer wants it.
    DeadlineExceeded,
    /// The task of the stream has left the store, or its subscriber fell behind what is kept of it.
    Gone,
}

impl CallEnd {
    /// All of them, in the order of their numbers.
    pub const ALL: [CallEnd; 6] = [
        CallEnd::Complete,
        CallEnd::ClientLeft,
        CallEnd::Cut,
        CallEnd::Expired,
        CallEnd::DeadlineExceeded,
        CallEnd::Gone,
    ];

    /// Its name in logs and metrics.
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
    /// The worker that has refused it.
    pub worker: usize,
    /// The name of the limit, or of the share of a caller.
    pub limit: &'static str,
    /// Whose request it was, where that is known.
    pub owner: Option<&'a str>,
}

/// A request that was refused and that is no call: its caller is not admitted, its path names
/// nothing, or it is refused by its head or its body.
#[derive(Clone, Copy, Debug)]
pub struct RefusedRequest<'a> {
    /// The address that it came from; `None`: unknown, as over a Unix socket.
    pub peer: Option<IpAddr>,
    /// Its caller, where that is known.
    pub principal: Option<&'a Principal>,
    /// The status of HTTP that stands for the refusal, over gRPC as well.
    pub status: u16,
    /// The reason, in one sentence.
    pub reason: &'a str,
    /// The limit that was reached, where it was one.
    pub limit: Option<&'static str>,
}

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRefusal {
    /// The fault that it was answered with.
    pub kind: FaultKind,
    /// The limit that was reached, where it was one.
    pub limit: Option<&'static str>,
}

impl From<&Fault> for CallRefusal {
    fn from(fault: &Fault) -> CallRefusal {
        CallRefusal { kind: fault.kind, limit: fault.limit_hit() }
    }
}

/// A call that was answered in the turn in which it came, and of which no observer wants details.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredCall {
    /// The worker that has answered it.
    pub worker: usize,
    /// The way by which it came.
    pub binding: CallBinding,
    /// What was asked for.
    pub op: Op,
    /// In which generation.
    pub generation: Generation,
    /// The agent.
    pub agent: AgentIndex,
    /// When it began, on [`CallObserver::clock_ns`]; 0 where the observer keeps turns.
    pub began_ns: u64,
    /// Bytes of its body or message; those of a batch are its first call's.
    pub bytes_in: u64,
    /// Bytes of its answer, over HTTP/1.1 with the head.
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

/// How a call has ended.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// The worker that has answered it.
    pub worker: usize,
    /// The way by which it came.
    pub binding: CallBinding,
    /// What was asked for; `None`: nothing that there is.
    pub op: Option<Op>,
    /// In which generation.
    pub generation: Generation,
    /// The agent.
    pub agent: AgentIndex,
    /// Why it was refused; `None`: it was not.
    pub refusal: Option<CallRefusal>,
    /// The status of HTTP that its answer has, or the code of gRPC.
    pub status: u16,
    /// When it began, on [`CallObserver::clock_ns`].
    pub began_ns: u64,
    /// True: it was not answered in the turn in which it came.
    pub waited: bool,
    /// Bytes of its body or message; those of a batch are its first call's.
    pub bytes_in: u64,
    /// Bytes of its answer, over HTTP/1.1 with the head.
    pub bytes_out: u64,
    /// What was said on its stream; `None`: it asked for none, or got none.
    pub stream: Option<StreamRecord>,
    /// Why nothing more is said.
    pub end: CallEnd,
    /// What a log tells of it, if an observer wants details.
    pub details: Option<Box<CallDetails>>,
    /// The caller of a call that was refused because of a limit, where it is known.
    pub refused: Option<Arc<Principal>>,
}

/// What was said on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamRecord {
    /// When the first event was written, on [`CallObserver::clock_ns`].
    pub first_event_ns: Option<u64>,
    /// Events that were written.
    pub events: u64,
    /// The most events that it had to take at once until it had all there were.
    pub behind_max: u64,
    /// Events that it has taken since it had all there were.
    pub behind: u64,
    /// True: its subscriber has come back, and said which event it had last.
    pub resumed: bool,
}

impl StreamRecord {
    /// Takes into account what was written in one turn, and whether that was all there is.
    pub fn wrote(&mut self, events: u64, has_all: bool, clock: impl FnOnce() -> u64) {
        if events > 0 {
            self.first_event_ns.get_or_insert_with(clock);
        }
        self.events += events;
        self.behind += events;
        self.behind_max = self.behind_max.max(self.behind);
        if has_all {
            self.behind = 0;
        }
    }
}

/// What a log tells of a call beside its numbers.
#[derive(Clone, Debug, Default)]
pub struct CallDetails {
    /// The id of the task that it is about, as it stands in JSON; empty: none is known.
    pub task: Vec<u8>,
    /// Its caller.
    pub principal: Option<Arc<Principal>>,
    /// The address that it came from; `None`: unknown, as over a Unix socket.
    pub peer: Option<IpAddr>,
    /// Why it was refused, in one sentence; empty: its [`CallRefusal::kind`] is all that is known.
    pub reason: String,
    /// The trace that it belongs to (W3C Trace Context §3.2.2.3), in lower-case hex.
    pub trace_id: Option<[u8; 32]>,
    /// Its span, if it is traced.
    pub span: Option<CallSpan>,
    /// The upstream that it was passed to.
    pub upstream: Option<Arc<LoggedUpstream>>,
}

impl CallDetails {
    /// Notes the task that is shown, if none is known yet.
    pub fn note(&mut self, id: RawText<'_>) {
        if self.task.is_empty() {
            self.task.extend_from_slice(id.raw());
        }
    }

    /// Notes the task of an answer.
    pub fn note_reply(&mut self, reply: &Reply<'_>) {
        if let Reply::Task { view, .. } = reply {
            self.note(view.id());
        }
    }

    /// Notes the task of an item of a stream.
    pub fn note_item(&mut self, item: &StreamResponse<'_>) {
        match item {
            StreamResponse::Snapshot(view) => self.note(view.id()),
            StreamResponse::Event { task_id, .. } => self.note(*task_id),
            StreamResponse::Message { .. } => {}
        }
    }

    /// Notes the trace that a `traceparent` names. What is none is left out: it is not ours to
    /// write into a log.
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
    /// The caller is known, by this.
    Admitted(CredentialKind),
    /// It is anonymous, and may call.
    Anonymous,
    /// It shows nothing, and must.
    Missing,
    /// What it shows is wrong.
    Wrong,
    /// The authenticator cannot tell now.
    Unavailable,
    /// Too many wrong ones came from there.
    TooMany,
}

impl AuthOutcome {
    /// How many there are.
    pub const COUNT: usize = CredentialKind::ALL.len() + 5;

    /// Its number, below [`AuthOutcome::COUNT`].
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

    /// All of them, in the order of their numbers.
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

    /// Its name in metrics, and the kind of credential.
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
    fn numbers_follow_the_lists() {
        for (at, outcome) in AuthOutcome::all().enumerate() {
            assert_eq!(outcome.index(), at, "{outcome:?}");
        }
        assert_eq!(AuthOutcome::all().count(), AuthOutcome::COUNT);
        assert!(CallBinding::ALL.iter().enumerate().all(|(at, one)| *one as usize == at));
        assert!(CallEnd::ALL.iter().enumerate().all(|(at, one)| *one as usize == at));
    }

    #[test]
    fn a_stream_that_stops_for_room_falls_behind_until_it_has_all() {
        let mut stream = StreamRecord::default();
        for (events, has_all) in [(0, true), (2, false), (3, false), (1, true), (4, true)] {
            stream.wrote(events, has_all, || 7);
        }
        assert_eq!((stream.events, stream.behind_max, stream.behind), (10, 6, 0));
        assert_eq!(stream.first_event_ns, Some(7));
    }

    #[test]
    fn a_trace_is_noted_if_it_is_one() {
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
