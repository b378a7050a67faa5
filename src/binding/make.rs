//! Executes a call, and records the data that logs and traces need.

use std::net::IpAddr;

use crate::{
    binding::observed::note_reason,
    fault::Fault,
    model::{Call, Reply},
    service::{
        Answer, CallCx, Caller, FieldSource, Outcome, RequestFields, Service,
        observe::CallDetails,
        trace::{CallSpan, SpanFields},
        upstream::UpstreamLog,
    },
};

/// Executes a call. If an observer needs details, records the task in the answer and the upstream
/// of the call. The agent of a traced call sees the call's span.
#[inline(always)]
pub fn make(
    service: &dyn Service,
    cx: &mut CallCx<'_>,
    call: &Call<'_>,
    details: &mut Option<Box<CallDetails>>,
    answer: &mut Answer<'_>,
) -> Result<Outcome, Fault> {
    match details {
        None => service.call(cx, *call, answer),
        Some(details) => make_detailed(service, cx, call, details, answer),
    }
}

#[cold]
fn make_detailed(
    service: &dyn Service,
    cx: &mut CallCx<'_>,
    call: &Call<'_>,
    details: &mut CallDetails,
    answer: &mut Answer<'_>,
) -> Result<Outcome, Fault> {
    let logged = LoggedFields { fields: cx.caller.fields, upstream: UpstreamLog::new() };
    let span = details.span;
    let outcome = {
        let answer = &mut |reply: Reply<'_>| {
            details.note_reply(&reply);
            answer(reply);
        };
        let fields = RequestFields::of(&logged);
        match span {
            None => make_with(service, cx, call, fields, answer),
            Some(span) => {
                let fields = SpanFields::new(fields, span, span.span_id);
                make_with(service, cx, call, RequestFields::of(&fields), answer)
            }
        }
    };
    details.upstream = logged.upstream.into_inner();
    if let Err(fault) = &outcome {
        note_reason(details, fault);
    }
    outcome
}

/// Executes the call with these header fields.
fn make_with(
    service: &dyn Service,
    cx: &mut CallCx<'_>,
    call: &Call<'_>,
    fields: RequestFields<'_>,
    answer: &mut Answer<'_>,
) -> Result<Outcome, Fault> {
    let mut noted = CallCx {
        caller: Caller { fields, ..cx.caller },
        now: cx.now,
        wake: cx.wake,
        entropy: &mut *cx.entropy,
        events: &mut *cx.events,
        shared: cx.shared,
        record: cx.record,
    };
    let outcome = service.call(&mut noted, *call, answer);
    cx.record = noted.record;
    outcome
}

/// The fields of a request, with a slot for the log data of its upstream.
struct LoggedFields<'f> {
    fields: RequestFields<'f>,
    upstream: UpstreamLog,
}

impl FieldSource for LoggedFields<'_> {
    fn each_value<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
        self.fields.each_value(name, &mut |value| each(value));
    }

    fn address(&self) -> Option<IpAddr> {
        self.fields.address()
    }

    fn span(&self) -> Option<CallSpan> {
        self.fields.span()
    }

    fn upstream_log(&self) -> Option<&UpstreamLog> {
        Some(&self.upstream)
    }
}
