//! The server side of framing tests: a request gets its own body as the answer, and a GET that
//! accepts an event stream gets the stream of a real task. Off unless a prefix is configured.

use crate::{
    binding::{
        CallContext, Handled, UpgradeSlot, answer::AnswerFormat, envelope::Envelope, http_error,
        responder::Content, stream::EventFraming, ws,
    },
    dialect::{STANDARD, WriteCx},
    http::{Field, FieldLines, Head, Method, field_lines, media},
    model::{Call, Generation, MessageBuf, Op, PartsBuf, Send, SendMode},
    rpc,
};

const ALLOW: FieldLines<'static> = field_lines!("Allow": "GET, HEAD, POST, OPTIONS");

/// Answers all requests below the prefix.
pub fn answer(
    cx: &mut CallContext<'_>,
    head: &Head<'_>,
    body: &[u8],
    upgrade: UpgradeSlot<'_>,
) -> Handled {
    if let Some(slot) = upgrade
        && ws::is_upgrade(head)
    {
        *slot = ws::upgrade(cx, head).map(|mut session| {
            session.echo();
            session
        });
        return Handled::Answered;
    }
    let accept = head.value(Field::Accept);
    let wants_events =
        accept.is_some_and(|accept| accept.starts_with(media::EVENT_STREAM.as_bytes()));
    if head.method() == Method::Get && wants_events {
        return stream(cx, head);
    }
    cx.writer.begin(200, "application/octet-stream", ALLOW, Content::Whole);
    cx.writer.out.extend_from_slice(body);
    cx.writer.finish();
    Handled::Answered
}

/// Streams five events of the default agent, or the events after `Last-Event-ID`.
fn stream(cx: &mut CallContext<'_>, head: &Head<'_>) -> Handled {
    let mut methods = STANDARD.methods.iter();
    let Some(method) = methods.find(|method| method.op == Op::Stream) else {
        http_error::answer(cx, 404, "there is no stream");
        return Handled::Answered;
    };
    let message = MessageBuf::agent(&PartsBuf::new().text("stream:5")).id("echo-stream");
    let send = Send {
        message: message.view(),
        has_own_id: false,
        task_id: None,
        client_chooses_id: false,
        context_id: None,
        mode: SendMode::Stream,
        history: Some(0),
        accepted_output_modes: None,
        metadata: None,
        push: None,
        generation: Generation::V1,
    };
    let text = |value| std::str::from_utf8(value).ok();
    let after = head.value(Field::LastEventId).and_then(text).and_then(|text| text.parse().ok());
    let format = AnswerFormat {
        envelope: Envelope::Rpc(rpc::NULL_ID),
        method: Some(method),
        encode: &method.wire.encode,
        write: WriteCx::new(Op::Stream),
        media: media::JSON,
        fields: &FieldLines::NONE,
        status: |_| 500,
        events: EventFraming::Sse,
        refuses_by_stream: false,
    };
    let mut handled = cx.answer(&Call::Send(send), &format);
    if let (Handled::Stream(stream), Some(after)) = (&mut handled, after) {
        stream.resume_after(after);
    }
    handled
}
