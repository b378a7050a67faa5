//! Makes a call of a service: as it is, or with what a log and a trace tell of it noted beside.

use crate::{
    fault::Fault,
    model::{Call, Reply},
    service::{
        Answer, CallCx, Caller, Outcome, RequestFields, Service, observe::CallDetails,
        trace::SpanFields,
    },
};

/// Makes a call, and notes which task its answer shows where an observer needs it. One that is
/// traced shows the agent its span.
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
    let span = details.span;
    let answer = &mut |reply: Reply<'_>| {
        details.note_reply(&reply);
        answer(reply);
    };
    let Some(span) = span else { return service.call(cx, *call, answer) };
    let fields = SpanFields::new(cx.caller.fields, span, span.span_id);
    let caller = Caller { fields: RequestFields::of(&fields), ..cx.caller };
    let mut traced = CallCx {
        caller,
        now: cx.now,
        wake: cx.wake,
        entropy: &mut *cx.entropy,
        events: &mut *cx.events,
        shared: cx.shared,
        record: cx.record,
    };
    let outcome = service.call(&mut traced, *call, answer);
    cx.record = traced.record;
    outcome
}
