//! The trace of a call (W3C Trace Context), and its spans: one for the call, and one for each turn
//! of an agent.
//!
//! Invariant: whether a call is traced is decided once, when the call begins: by the caller's flag,
//! or by a fresh trace id if the request has no trace. The agent of a traced call sees the span of
//! its turn, so that its own calls become children of that span.

use std::net::IpAddr;

use super::{Entropy, FieldSource, RequestFields, upstream::UpstreamLog};
use crate::model::TaskState;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Bytes of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;

/// Receives spans. It is called on the threads that serve and on threads of agents, so it never
/// blocks.
pub trait Tracer: Send + Sync {
    /// The time in nanoseconds on the monotonic clock of the call observer.
    fn clock_ns(&self) -> u64;

    /// Whether to trace a call with this fresh trace id, if its request has no trace.
    fn samples(&self, trace_id: u128) -> bool;

    /// Called when a turn has ended: its agent has dropped it.
    fn turn_ended(&self, turn: TurnRecord);
}

/// The span from which a call was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentSpan {
    /// The trace.
    pub trace_id: u128,
    /// The span.
    pub span_id: u64,
    /// Whether the caller records the span.
    pub is_sampled: bool,
}

impl ParentSpan {
    /// The parent span in the fields of a call; if the call is traced, its own span.
    pub fn of(fields: RequestFields<'_>) -> Option<ParentSpan> {
        ParentSpan::parse(&fields.value(TRACEPARENT)?)
    }

    /// The value of `traceparent`, in version 00.
    pub fn text(&self) -> [u8; PARENT_BYTES] {
        let ParentSpan { trace_id, span_id, is_sampled } = *self;
        let text = format!("00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(is_sampled));
        let mut bytes = [0; PARENT_BYTES];
        bytes.copy_from_slice(text.as_bytes());
        bytes
    }

    /// Reads a `traceparent`: `version-traceid-parentid-flags` in lower-case hex (W3C Trace Context
    /// §3.2.2). `None`: invalid, so its trace ends here.
    pub fn parse(text: &str) -> Option<ParentSpan> {
        let mut parts = text.splitn(5, '-');
        let is_hex = |part: &&str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let mut part = |digits| parts.next().filter(|part| part.len() == digits).filter(is_hex);
        let (version, trace_id, span_id) = (part(2)?, part(32)?, part(16)?);
        let flags = u8::from_str_radix(part(2)?, 16).ok()?;
        // W3C Trace Context §4.3: later versions may have further fields after the flags, version
        // 00 may not.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace_id = u128::from_str_radix(trace_id, 16).ok().filter(|id| *id != 0)?;
        let span_id = u64::from_str_radix(span_id, 16).ok().filter(|id| *id != 0)?;
        Some(ParentSpan { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }
}

/// The span of a traced call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpan {
    /// The trace.
    pub trace_id: u128,
    /// The span.
    pub span_id: u64,
    /// The span of the caller; `None`: this span is the first of its trace.
    pub parent_id: Option<u64>,
}

impl CallSpan {
    /// Begins the span of a call, if the call is traced. `fields` contains the caller's span, if
    /// the caller may decide about tracing.
    pub fn begin(
        fields: Option<RequestFields<'_>>,
        entropy: &mut dyn Entropy,
        tracer: &dyn Tracer,
    ) -> Option<CallSpan> {
        let parent = fields.and_then(|fields| fields.value(TRACEPARENT));
        let parent = parent.and_then(|text| ParentSpan::parse(&text));
        match parent {
            Some(ParentSpan { trace_id, span_id, is_sampled }) => is_sampled.then(|| CallSpan {
                trace_id,
                span_id: fresh_id(entropy),
                parent_id: Some(span_id),
            }),
            None => {
                let trace_id = entropy.bits().max(1);
                let span_id = fresh_id(entropy);
                tracer.samples(trace_id).then_some(CallSpan { trace_id, span_id, parent_id: None })
            }
        }
    }

    /// The trace id in lower-case hex.
    pub fn trace_hex(&self) -> [u8; 32] {
        let mut hex = [0; 32];
        hex.copy_from_slice(format!("{:032x}", self.trace_id).as_bytes());
        hex
    }
}

/// A fresh span id: any bits except all zeros.
pub(crate) fn fresh_id(entropy: &mut dyn Entropy) -> u64 {
    (entropy.bits() as u64).max(1)
}

/// The record of an agent's turn.
#[derive(Clone, Debug)]
pub struct TurnRecord {
    /// The span of the call.
    pub call: CallSpan,
    /// The span of the turn.
    pub span_id: u64,
    /// The name of the agent.
    pub agent: std::sync::Arc<str>,
    /// Scheme, host and port of the agent's upstream, if it has a URL.
    pub upstream: Option<std::sync::Arc<str>>,
    /// When the turn began, on [`Tracer::clock_ns`].
    pub began_ns: u64,
    /// The outcome of the turn.
    pub end: TurnEnd,
}

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// A direct message.
    Replied,
    /// A task, new or continued; with the last state that the turn has published, if any.
    Task(Option<TaskState>),
    /// The agent wants to resume later.
    Resumes,
    /// The agent has rejected the message, for this reason.
    Refused(&'static str),
    /// No outcome: the agent has panicked, or has dropped the turn without an answer.
    Lost,
}

impl TurnEnd {
    /// The name of the outcome in traces.
    pub const fn word(self) -> &'static str {
        match self {
            TurnEnd::Replied => "replied",
            TurnEnd::Task(_) => "task",
            TurnEnd::Resumes => "resumes",
            TurnEnd::Refused(_) => "refused",
            TurnEnd::Lost => "lost",
        }
    }
}

/// The fields of a request as the agent of a traced call sees them: `traceparent` names a span of
/// this server, and `tracestate` is unchanged.
pub struct SpanFields<'f> {
    fields: RequestFields<'f>,
    call: CallSpan,
    parent: [u8; PARENT_BYTES],
}

impl<'f> SpanFields<'f> {
    /// The fields of a call with this span, for an agent in the inner span `span_id`.
    pub fn new(fields: RequestFields<'f>, call: CallSpan, span_id: u64) -> SpanFields<'f> {
        let parent = ParentSpan { trace_id: call.trace_id, span_id, is_sampled: true }.text();
        SpanFields { fields, call, parent }
    }
}

impl FieldSource for SpanFields<'_> {
    fn each_value<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
        if name.eq_ignore_ascii_case(TRACEPARENT) {
            return each(&self.parent);
        }
        // W3C Trace Context §3.3: without a valid traceparent, tracestate is dropped.
        if self.call.parent_id.is_some() || !name.eq_ignore_ascii_case(TRACESTATE) {
            self.fields.each_value(name, &mut |value| each(value));
        }
    }

    fn address(&self) -> Option<IpAddr> {
        self.fields.address()
    }

    fn span(&self) -> Option<CallSpan> {
        Some(self.call)
    }

    fn upstream_log(&self) -> Option<&UpstreamLog> {
        self.fields.upstream_log()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    struct Counted(u128);

    impl Entropy for Counted {
        fn bits(&mut self) -> u128 {
            self.0 += 1;
            self.0
        }
    }

    struct Fields(&'static [(&'static str, String)]);

    impl FieldSource for Fields {
        fn each_value<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
            let named = self.0.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
            named.for_each(|(_, value)| each(value.as_bytes()));
        }
    }

    fn fields(all: &[(&'static str, &str)]) -> Fields {
        let own: Vec<_> = all.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Fields(own.leak())
    }

    struct Half;

    impl Tracer for Half {
        fn clock_ns(&self) -> u64 {
            0
        }

        fn samples(&self, trace_id: u128) -> bool {
            trace_id.is_multiple_of(2)
        }

        fn turn_ended(&self, _: TurnRecord) {}
    }

    fn begin(all: &[(&'static str, &str)], bits: u128) -> Option<CallSpan> {
        CallSpan::begin(Some(RequestFields::of(&fields(all))), &mut Counted(bits), &Half)
    }

    #[test]
    fn traceparent_is_parsed_and_invalid_values_are_rejected() {
        let parse = |text: &str| ParentSpan::parse(text).map(|parent| parent.is_sampled);
        assert_eq!(parse(&format!("00-{TRACE}-00f067aa0ba902b7-01")), Some(true));
        assert_eq!(parse(&format!("00-{TRACE}-00f067aa0ba902b7-00")), Some(false));
        assert_eq!(parse(&format!("00-{TRACE}-00f067aa0ba902b7-fe")), Some(false));
        assert_eq!(parse(&format!("cc-{TRACE}-00f067aa0ba902b7-03-more-to-come")), Some(true));
        for bad in [
            String::new(),
            "00".to_owned(),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("00-{TRACE}-00f067aa0ba902b7-1"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "+".repeat(32)),
            // Two fields in one request.
            format!("00-{TRACE}-00f067aa0ba902b7-01, 00-{TRACE}-00f067aa0ba902b7-01"),
        ] {
            assert_eq!(parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn sampling_follows_the_caller_or_else_the_trace_id() {
        let sampled = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let unsampled = format!("00-{TRACE}-00f067aa0ba902b7-00");
        let span = begin(&[("traceparent", &sampled)], 7).unwrap();
        assert_eq!(span.trace_hex(), *TRACE.as_bytes());
        assert_eq!((span.span_id, span.parent_id), (8, Some(0x00f0_67aa_0ba9_02b7)));
        assert_eq!(begin(&[("traceparent", &unsampled)], 7), None);
        let root = begin(&[], 7).unwrap();
        assert_eq!((root.trace_id, root.span_id, root.parent_id), (8, 9, None));
        assert_eq!(begin(&[], 8), None);
        // An invalid traceparent counts as absent.
        assert_eq!(begin(&[("traceparent", "hush")], 7), Some(root));
    }

    #[test]
    fn agent_sees_its_own_span_and_its_callers_tracestate() {
        let sampled = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let all = [("traceparent", &*sampled), ("tracestate", "a=1"), ("X-Shop", "7")];
        let requested = fields(&all);
        let call = begin(&all, 7).unwrap();
        let shown = SpanFields::new(RequestFields::of(&requested), call, 0xab);
        let shown = RequestFields::of(&shown);
        let expected = format!("00-{TRACE}-00000000000000ab-01");
        assert_eq!(shown.value("Traceparent").as_deref(), Some(&*expected));
        assert_eq!(shown.value("TraceState").as_deref(), Some("a=1"));
        assert_eq!(shown.value("x-shop").as_deref(), Some("7"));
        assert_eq!(shown.span(), Some(call));
        let all = [("traceparent", "hush"), ("tracestate", "a=1")];
        let (requested, call) = (fields(&all), begin(&all, 7).unwrap());
        let shown = SpanFields::new(RequestFields::of(&requested), call, 0xab);
        assert_eq!(RequestFields::of(&shown).value("tracestate"), None);
    }
}
