//! The bodies of webhook deliveries, by the dialect of the configuration (wire §6).

use crate::{
    http::media,
    model::{Op, PushForm, Reply, TaskView},
    service::StreamResponse,
};

use super::{WriteCx, json_out, v01, v1, v03};

/// The media type of a delivery, and its `A2A-Version`, if it has one.
pub fn push_head(form: PushForm) -> (&'static str, Option<&'static str>) {
    match form {
        // A2A 1.0.1 §4.3.3.
        PushForm::StreamResponse => ("application/a2a+json", Some("1.0")),
        PushForm::Task03 => (media::JSON, Some("0.3")),
        PushForm::Task01 => (media::JSON, Some("0.1")),
        PushForm::EvoAi => (media::JSON, None),
    }
}

/// Appends the body for this item: in 1.0 the item itself; before 1.0 a task, so the item must be a
/// snapshot.
pub fn push_body(out: &mut Vec<u8>, form: PushForm, item: &StreamResponse<'_>, unix_ms: u64) {
    let cx = WriteCx { unix_ms, ..WriteCx::new(Op::Stream) };
    let StreamResponse::Snapshot(view) = *item else {
        if form == PushForm::StreamResponse {
            (v1::WIRE.encode.event)(out, item, &cx);
        }
        return;
    };
    let reply = Reply::Task { view, history: None };
    match form {
        PushForm::StreamResponse => _ = (v1::WIRE.encode.event)(out, item, &cx),
        PushForm::Task03 => (v03::WIRE.encode.reply)(out, &reply, &cx),
        PushForm::Task01 => (v01::WIRE.encode.reply)(out, &reply, &cx),
        PushForm::EvoAi => evo_ai(out, &view),
    }
}

/// `{taskId, status, timestamp}` (wire §8).
fn evo_ai(out: &mut Vec<u8>, view: &TaskView<'_>) {
    let status = view.status();
    json_out::text(out, b"{\"taskId\":\"", view.id().raw());
    json_out::text(out, b",\"status\":\"", v01::state_name(status.state));
    json_out::timestamp(out, status.at_ms);
    out.push(b'}');
}
