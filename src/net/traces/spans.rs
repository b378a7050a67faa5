//! OpenTelemetry spans: names and attributes follow its conventions for RPC; other attributes are
//! named `a2a.*`.

use std::sync::Weak;

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{
        ResourceSpans, ScopeSpans, Span, SpanFlags, Status,
        span::{Event, SpanKind},
        status::StatusCode,
    },
};

use crate::{
    client::{HttpOrigin, HttpUrl},
    engine::Engine,
    fault::{CanonicalCode, FaultKind, grpc_code_name},
    model::TaskState,
    service::{
        observe::{CallBinding, CallEnd, CallRecord, StreamRecord},
        trace::{TurnEnd, TurnRecord},
    },
};

use super::{
    super::metrics::{generation_name, op_name},
    EndedSpan, SpanRecord,
};

/// The readings of both clocks at one moment.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    /// Nanoseconds since the Unix epoch.
    pub(super) unix_ns: u64,
    /// Nanoseconds of the observer's clock.
    pub(super) now_ns: u64,
}

impl Clocks {
    /// Converts a time of the observer's clock to nanoseconds since the Unix epoch.
    fn unix(self, at_ns: u64) -> u64 {
        self.unix_ns.saturating_sub(self.now_ns.saturating_sub(at_ns))
    }
}

/// The context for writing spans.
pub(super) struct SpanWriter<'w> {
    pub(super) service: &'w str,
    pub(super) clocks: Clocks,
    /// Provides the names of agents.
    pub(super) engine: &'w Weak<Engine>,
}

impl SpanWriter<'_> {
    /// A message with these spans.
    pub(super) fn message(&self, spans: &[EndedSpan]) -> ExportTraceServiceRequest {
        let spans = spans.iter().map(|span| match &span.record {
            SpanRecord::Call(call) => self.call(call, span.ended_ns),
            SpanRecord::Turn(turn) => self.turn(turn, span.ended_ns),
        });
        let scope = InstrumentationScope {
            name: "peregrine".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let spans = spans.collect();
        let scoped = ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() };
        let attributes = vec![text("service.name", self.service)];
        let resource = Some(Resource { attributes, ..Resource::default() });
        let spans =
            ResourceSpans { resource, scope_spans: vec![scoped], schema_url: String::new() };
        ExportTraceServiceRequest { resource_spans: vec![spans] }
    }

    /// The span of a call; empty for a call without details.
    fn call(&self, call: &CallRecord, ended_ns: u64) -> Span {
        let Some(details) = call.details.as_deref() else { return Span::default() };
        let Some(span) = details.span else { return Span::default() };
        let (system, method) = (call.binding.word(), op_name(call.op));
        let mut attributes = vec![
            text("rpc.system.name", system),
            text("rpc.method", method),
            text("a2a.protocol.version", generation_name(call.generation)),
            text("a2a.outcome", call.refusal.map_or("ok", |by| by.kind.row().reason)),
            text("a2a.end", call.end.word()),
        ];
        let name = self.engine.upgrade().and_then(|engine| engine.agent_name(call.agent));
        attributes.extend(name.map(|name| text("a2a.agent", name)));
        attributes.push(match call.binding {
            // OpenTelemetry, "gRPC server spans": the code by its name.
            CallBinding::Grpc => {
                text("rpc.response.status_code", grpc_code_name(Some(call.status.into())))
            }
            CallBinding::JsonRpc | CallBinding::HttpJson | CallBinding::WebSocket => {
                number("http.response.status_code", u64::from(call.status))
            }
        });
        let events = call.stream.map(|stream| self.stream(stream, &mut attributes));
        let status = status_of(call);
        if let Some(why) = why_of(call) {
            attributes.push(text("error.type", why));
        }
        Span {
            name: call.op.map_or(system, |_| method).to_owned(),
            kind: SpanKind::Server as i32,
            attributes,
            events: events.unwrap_or_default(),
            status,
            // The parent span belongs to another process.
            flags: flags(span.parent_id.is_some()),
            parent_span_id: span.parent_id.map_or(Vec::new(), |id| id.to_be_bytes().to_vec()),
            ..self.span(span.trace_id, span.span_id, call.began_ns, ended_ns)
        }
    }

    /// Adds the attributes of a stream, and returns its events.
    fn stream(&self, stream: StreamRecord, attributes: &mut Vec<KeyValue>) -> Vec<Event> {
        attributes.push(number("a2a.stream.events", stream.events));
        attributes.push(switch("a2a.stream.resumed", stream.resumed));
        let first = stream.first_event_ns.map(|at_ns| Event {
            time_unix_nano: self.clocks.unix(at_ns),
            name: "a2a.stream.first_event".to_owned(),
            ..Event::default()
        });
        first.into_iter().collect()
    }

    /// The span of a turn.
    fn turn(&self, turn: &TurnRecord, ended_ns: u64) -> Span {
        let mut attributes = vec![
            text("gen_ai.operation.name", "invoke_agent"),
            text("gen_ai.agent.name", &*turn.agent),
            text("a2a.agent", &*turn.agent),
            text("a2a.outcome", turn.end.word()),
        ];
        // OpenTelemetry, "GenAI agent spans": an agent that runs elsewhere is called by a client.
        let upstream = turn.upstream.as_deref().and_then(|url| HttpOrigin::parse(url).ok());
        let kind = if upstream.is_some() { SpanKind::Client } else { SpanKind::Internal };
        if let Some(HttpUrl { origin, .. }) = upstream {
            attributes.push(text("server.address", origin.host_name()));
            attributes.push(number("server.port", u64::from(origin.port())));
        }
        let why = match turn.end {
            TurnEnd::Replied | TurnEnd::Resumes | TurnEnd::Task(None) => None,
            TurnEnd::Task(Some(state)) => {
                attributes.push(text("a2a.task.state", state.word()));
                (state == TaskState::Failed).then_some("failed")
            }
            TurnEnd::Refused(reason) => Some(reason),
            TurnEnd::Lost => Some("lost"),
        };
        attributes.extend(why.map(|why| text("error.type", why)));
        Span {
            name: format!("invoke_agent {}", turn.agent),
            kind: kind as i32,
            attributes,
            status: why.map(failed),
            flags: flags(false),
            parent_span_id: turn.call.span_id.to_be_bytes().to_vec(),
            ..self.span(turn.call.trace_id, turn.span_id, turn.began_ns, ended_ns)
        }
    }

    /// A span with only these identifiers and times.
    fn span(&self, trace_id: u128, span_id: u64, began_ns: u64, ended_ns: u64) -> Span {
        Span {
            trace_id: trace_id.to_be_bytes().to_vec(),
            span_id: span_id.to_be_bytes().to_vec(),
            start_time_unix_nano: self.clocks.unix(began_ns),
            end_time_unix_nano: self.clocks.unix(ended_ns),
            ..Span::default()
        }
    }
}

/// The flags of W3C Trace Context, and whether the parent is in another process.
fn flags(is_remote: bool) -> u32 {
    const SAMPLED: u32 = 1;
    let remote = if is_remote { SpanFlags::ContextIsRemoteMask as u32 } else { 0 };
    SAMPLED | SpanFlags::ContextHasIsRemoteMask as u32 | remote
}

/// Why a call has failed, or why its answer is not complete.
fn why_of(call: &CallRecord) -> Option<&'static str> {
    match (call.refusal, call.end) {
        (Some(refusal), _) => Some(refusal.kind.row().reason),
        (None, CallEnd::Complete | CallEnd::ClientLeft) => None,
        (None, end) => Some(end.word()),
    }
}

/// OpenTelemetry, "gRPC server spans", "HTTP server spans": a caller's error is not an error of the
/// server.
fn status_of(call: &CallRecord) -> Option<Status> {
    match (call.refusal, call.end) {
        (Some(refusal), _) => is_ours(refusal.kind).then(|| failed(refusal.kind.row().reason)),
        (None, CallEnd::Cut | CallEnd::DeadlineExceeded) => Some(failed(call.end.word())),
        (None, CallEnd::Complete | CallEnd::ClientLeft | CallEnd::Expired | CallEnd::Gone) => None,
    }
}

fn is_ours(kind: FaultKind) -> bool {
    match kind.row().status {
        CanonicalCode::Internal | CanonicalCode::Unavailable | CanonicalCode::DeadlineExceeded => {
            true
        }
        CanonicalCode::InvalidArgument
        | CanonicalCode::NotFound
        | CanonicalCode::AlreadyExists
        | CanonicalCode::ResourceExhausted
        | CanonicalCode::FailedPrecondition
        | CanonicalCode::Unauthenticated
        | CanonicalCode::PermissionDenied => false,
    }
}

fn failed(why: &str) -> Status {
    Status { message: why.to_owned(), code: StatusCode::Error as i32 }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn switch(key: &str, value: bool) -> KeyValue {
    attribute(key, Value::BoolValue(value))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use prost::Message;

    use super::*;
    use crate::{
        model::{Generation, Op},
        service::{
            AgentIndex, Principal,
            observe::{CallDetails, CallRefusal},
            principal::{CredentialKind, PrincipalBuf, ScopeSet, TenantGrant},
            trace::CallSpan,
        },
    };

    const SPAN: CallSpan = CallSpan { trace_id: 0x0a0b, span_id: 0x0c, parent_id: Some(0x0d) };

    fn record() -> CallRecord {
        let details =
            CallDetails { task: br#"a\"b"#.to_vec(), span: Some(SPAN), ..CallDetails::default() };
        CallRecord {
            worker: 0,
            binding: CallBinding::JsonRpc,
            op: Some(Op::Stream),
            generation: Generation::V1,
            agent: AgentIndex(0),
            refusal: None,
            refused: None,
            status: 200,
            began_ns: 1_000,
            waited: true,
            bytes_in: 1,
            bytes_out: 2,
            stream: None,
            end: CallEnd::Complete,
            details: Some(Box::new(details)),
        }
    }

    /// The span as a collector decodes it.
    fn read(record: SpanRecord) -> Span {
        let engine = Weak::new();
        let clocks = Clocks { unix_ns: 1_000_000, now_ns: 9_000 };
        let writer = SpanWriter { service: "shop", clocks, engine: &engine };
        let bytes = writer.message(&[EndedSpan { record, ended_ns: 5_000 }]).encode_to_vec();
        let mut read = ExportTraceServiceRequest::decode(&*bytes).unwrap().resource_spans;
        let resource = read[0].resource.as_ref().unwrap();
        assert_eq!(texts(&resource.attributes)["service.name"], "shop");
        read[0].scope_spans[0].spans.remove(0)
    }

    fn of_call(call: CallRecord) -> Span {
        read(SpanRecord::Call(Box::new(call)))
    }

    fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
        let value = |one: &KeyValue| match one.value.clone().and_then(|any| any.value) {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            Some(Value::BoolValue(switch)) => switch.to_string(),
            other => format!("{other:?}"),
        };
        attributes.iter().map(|one| (one.key.clone(), value(one))).collect()
    }

    #[test]
    fn a_call_is_a_server_span_with_its_ids_and_times() {
        let span = of_call(record());
        assert_eq!((&*span.name, span.kind), ("SendStreamingMessage", SpanKind::Server as i32));
        assert_eq!(span.trace_id, SPAN.trace_id.to_be_bytes());
        assert_eq!(span.span_id, SPAN.span_id.to_be_bytes());
        assert_eq!(span.parent_span_id, 0x0d_u64.to_be_bytes());
        assert_eq!(span.flags, 0x301);
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (992_000, 996_000));
        assert_eq!((span.status.clone(), span.events.len()), (None, 0));
        let attributes = texts(&span.attributes);
        for (key, value) in [
            ("rpc.system.name", "jsonrpc"),
            ("rpc.method", "SendStreamingMessage"),
            ("a2a.protocol.version", "1.0"),
            ("a2a.outcome", "ok"),
            ("a2a.end", "complete"),
            ("http.response.status_code", "200"),
        ] {
            assert_eq!(attributes[key], value, "{key}");
        }
        assert!(!attributes.contains_key("error.type"));
    }

    #[test]
    fn span_contains_no_task_id_or_caller_identity() {
        let mut call = record();
        let principal = Principal::new(PrincipalBuf {
            kind: CredentialKind::ApiKey,
            issuer: "hush-issuer".to_owned(),
            name: "hush-name".to_owned(),
            tenants: TenantGrant::default(),
            scopes: ScopeSet::default(),
            quota: None,
        });
        let details = call.details.as_mut().unwrap();
        details.task = b"hush-task".to_vec();
        details.principal = Some(Arc::new(principal));
        assert!(!format!("{:?}", of_call(call)).contains("hush"));
    }

    #[test]
    fn span_of_a_stream_has_event_count_and_first_event_time() {
        let stream = StreamRecord {
            first_event_ns: Some(3_000),
            events: 7,
            resumed: true,
            ..StreamRecord::default()
        };
        let span = of_call(CallRecord { stream: Some(stream), ..record() });
        let attributes = texts(&span.attributes);
        assert_eq!(attributes["a2a.stream.events"], "7");
        assert_eq!(attributes["a2a.stream.resumed"], "true");
        assert_eq!(span.events[0].name, "a2a.stream.first_event");
        assert_eq!(span.events[0].time_unix_nano, 994_000);
    }

    #[test]
    fn span_status_is_error_only_for_server_faults() {
        for kind in FaultKind::ALL {
            let refusal = Some(CallRefusal { kind, limit: None });
            let span = of_call(CallRecord { refusal, ..record() });
            let is_error = span.status.is_some_and(|status| status.code == 2);
            let is_ours = [500, 503, 504].contains(&kind.row().status.http());
            assert_eq!(is_error, is_ours, "{kind:?}");
            assert_eq!(texts(&span.attributes)["error.type"], kind.row().reason);
        }
        for (end, is_error) in [(CallEnd::Cut, true), (CallEnd::ClientLeft, false)] {
            let span = of_call(CallRecord { end, ..record() });
            assert_eq!(span.status.is_some(), is_error, "{end:?}");
        }
    }

    #[test]
    fn unknown_grpc_call_has_the_bindings_name_and_a_named_code() {
        let call = CallRecord { binding: CallBinding::Grpc, op: None, status: 12, ..record() };
        let span = of_call(call);
        assert_eq!(span.name, "grpc");
        let attributes = texts(&span.attributes);
        assert_eq!(attributes["rpc.method"], "_OTHER");
        assert_eq!(attributes["rpc.response.status_code"], "UNIMPLEMENTED");
        assert!(!attributes.contains_key("http.response.status_code"));
    }

    fn turn(end: TurnEnd) -> TurnRecord {
        let (agent, upstream) = ("echo".into(), None);
        TurnRecord { call: SPAN, span_id: 0xee, agent, upstream, began_ns: 2_000, end }
    }

    #[test]
    fn a_turn_of_an_upstream_is_a_client_span_with_its_address() {
        let upstream = Some("https://[2001:db8::1]:9000".into());
        let turn = TurnRecord { upstream, ..turn(TurnEnd::Replied) };
        let span = read(SpanRecord::Turn(Box::new(turn)));
        assert_eq!(span.kind, SpanKind::Client as i32);
        let attributes = texts(&span.attributes);
        assert_eq!(attributes["server.address"], "2001:db8::1");
        assert_eq!(attributes["server.port"], "9000");
    }

    #[test]
    fn turn_is_an_internal_child_span_of_its_call() {
        for (end, error) in [
            (TurnEnd::Replied, None),
            (TurnEnd::Task(Some(TaskState::Completed)), None),
            (TurnEnd::Task(Some(TaskState::Failed)), Some("failed")),
            (TurnEnd::Refused("UNSUPPORTED_OPERATION"), Some("UNSUPPORTED_OPERATION")),
            (TurnEnd::Lost, Some("lost")),
        ] {
            let turn = turn(end);
            let span = read(SpanRecord::Turn(Box::new(turn)));
            assert_eq!((&*span.name, span.kind), ("invoke_agent echo", SpanKind::Internal as i32));
            assert_eq!(span.trace_id, SPAN.trace_id.to_be_bytes());
            assert_eq!(span.parent_span_id, SPAN.span_id.to_be_bytes());
            assert_eq!((span.span_id, span.flags), (0xee_u64.to_be_bytes().to_vec(), 0x101));
            assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (993_000, 996_000));
            assert_eq!(span.status.as_ref().map(|status| &*status.message), error);
            let attributes = texts(&span.attributes);
            assert_eq!(attributes["a2a.outcome"], end.word());
            assert_eq!(attributes.get("error.type").map(String::as_str), error);
        }
    }
}
