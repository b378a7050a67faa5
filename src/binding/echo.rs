//! The counterpart of framing tests: whatever comes goes back, and a GET that wants an event
//! stream gets one, from a real task through the real pump. Off unless a prefix is configured.

use crate::{
    binding::{
        Endpoint, Exchange, Handled,
        stream::{Framing, Pump},
        ws,
    },
    dialect::STANDARD,
    http::{Field, Method, Version, media, response},
    model::{Call, Generation, MessageBuf, Op, PartsBuf, Send, SendMode},
    rpc,
    service::{AgentIndex, CallCx, Caller, Outcome, Scope},
};

const ALLOW: &[u8] = b"Allow: GET, HEAD, POST, OPTIONS\r\n";

/// Answers any request below the prefix.
pub fn answer(x: &mut Exchange<'_>, body: &[u8]) -> Handled {
    if ws::is_upgrade(x.head) {
        let mut handled = ws::upgrade(x, Endpoint::DEFAULT);
        if let Handled::Upgraded(session) = &mut handled {
            session.echo();
        }
        return handled;
    }
    let wants_events = x
        .head
        .value(Field::Accept)
        .is_some_and(|accept| accept.starts_with(media::EVENT_STREAM.as_bytes()));
    if x.head.method() == Method::Get
        && wants_events
        && let Some(handled) = stream(x)
    {
        return handled;
    }
    let (date, kind) = (x.means.scratch.date(x.means.now), "application/octet-stream");
    let head_only = x.head.method() == Method::Head;
    response::simple(x.means.out, 200, kind, body, &date, ALLOW, x.close, head_only);
    Handled::Answered
}

/// Streams five events of the default agent, or those after `Last-Event-ID`.
fn stream(x: &mut Exchange<'_>) -> Option<Handled> {
    let method = STANDARD.methods.iter().find(|method| method.op == Op::Stream)?;
    let permit = x.means.site.streams.permit(x.means.scratch.worker)?;
    let message = MessageBuf::agent(&PartsBuf::new().text("stream:5")).id("echo-stream");
    let send = Send {
        message: message.view(),
        task_id: None,
        client_chooses_id: false,
        context_id: None,
        mode: SendMode::Stream,
        history: Some(0),
        accepted_output_modes: None,
        metadata: None,
        generation: Generation::V1,
    };
    let mut cx = CallCx {
        caller: Caller {
            scope: Scope::of(AgentIndex(0)),
            worker: x.means.scratch.worker,
            extensions: None,
            identity: x.means.peer.identity,
        },
        now: x.means.now,
        wake: x.means.wake,
        entropy: x.means.scratch.entropy.as_mut(),
        events: &mut x.means.scratch.events,
        held_bytes: &x.means.site.held_bytes,
    };
    let called = x.means.service.call(&mut cx, Call::Send(send), &mut |_| ());
    let Ok(Outcome::Stream { mut cursor, .. }) = called else { return None };
    let text = |value| std::str::from_utf8(value).ok();
    if let Some(after) =
        x.head.value(Field::LastEventId).and_then(text).and_then(|text| text.parse().ok())
    {
        (cursor.seq, cursor.snapshot) = (after, false);
    }
    let chunked = x.head.version() == Version::Http11;
    let date = x.means.scratch.date(x.means.now);
    response::stream_head(x.means.out, &date, x.close, !chunked, b"");
    Some(Handled::Stream(Box::new(Pump {
        cursor,
        id: Some(rpc::NULL_ID.into()),
        op: Op::Stream,
        history: Some(0),
        wire: method.wire,
        framing: if chunked { Framing::Chunked } else { Framing::Bare },
        close: x.close || !chunked,
        wrote_ms: x.means.now.mono_ms,
        permit,
    })))
}
