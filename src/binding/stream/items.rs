//! Writes the items and the end of a stream, in the envelope and framing of its binding.

use std::ops::Range;

use super::EventFraming;
use crate::{
    binding::{answer::AnswerFormat, envelope::Envelope},
    dialect::EncodeText,
    fault::Fault,
    json::write::push_u64,
    model::{RawText, TaskEvent},
    service::StreamResponse,
    sse,
    ws::{self, OpCode},
};

/// Writes a stream of one error, as an ordinary event, since the client requested a stream.
pub(in crate::binding) fn push_only_fault(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    fault: &Fault,
) {
    let frame = sse::begin(out, None);
    format.push_fault(out, fault);
    sse::finish(out, frame);
}

/// Writes a stream of one item.
pub(in crate::binding) fn push_only_item(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    item: &StreamResponse<'_>,
) {
    push_item(out, format, item, &mut None);
    push_last(out, format);
}

/// Writes one item in its envelope, without further framing, if `write` supports the item.
#[inline(always)]
pub(super) fn push_message(
    out: &mut Vec<u8>,
    envelope: Envelope<'_>,
    write: impl FnOnce(&mut Vec<u8>) -> bool,
) {
    let start = out.len();
    envelope.open_result(out);
    match write(out) {
        true => envelope.close(out, start),
        false => out.truncate(start),
    }
}

/// The event number of an item, if it has one.
#[inline(always)]
pub(super) fn number(item: &StreamResponse<'_>) -> Option<u64> {
    match item {
        StreamResponse::Snapshot(view) => Some(view.seq()),
        StreamResponse::Event { seq, .. } => Some(*seq),
        StreamResponse::Message { .. } => None,
    }
}

/// The position in the output of the head of the latest text chunk in this poll; the next chunk of
/// the same artifact copies that head.
pub(super) struct TextHead {
    /// The head, from the envelope to the text.
    at: Range<usize>,
    artifact_id: Range<usize>,
}

/// Writes one item, if the dialect supports the item.
#[inline(always)]
pub(super) fn push_item(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    item: &StreamResponse<'_>,
    text_head: &mut Option<TextHead>,
) {
    let (number, start) = (number(item), out.len());
    let AnswerFormat { envelope, encode, .. } = *format;
    match format.events {
        EventFraming::Grpc => {
            push_message(out, envelope, |out| (encode.event)(out, item, &format.write));
        }
        EventFraming::Sse => {
            let frame = sse::begin(out, number);
            match push_result(out, format, item, text_head) {
                Pushed::Nothing => sse::cancel(out, frame),
                Pushed::Text => {
                    envelope.close(out, start);
                    // Raw text has no line breaks.
                    sse::finish_line(out, frame);
                }
                Pushed::Json => {
                    envelope.close(out, start);
                    sse::finish(out, frame);
                }
            }
        }
        EventFraming::Messages { event_ids } => {
            let frame = ws::begin(out);
            if let Pushed::Nothing = push_result(out, format, item, text_head) {
                return ws::cancel(out, frame);
            }
            if let Some(number) = number.filter(|_| event_ids) {
                out.extend_from_slice(b",\"eventId\":");
                push_u64(out, number);
            }
            envelope.close(out, start);
            if !ws::finish(out, frame, OpCode::Text) {
                // The head has moved in the output.
                *text_head = None;
            }
        }
    }
}

/// The kind of a written item.
enum Pushed {
    /// No output: the dialect does not support the item.
    Nothing,
    /// A text chunk.
    Text,
    /// Any other item.
    Json,
}

/// Opens the envelope and writes an item into it.
#[inline(always)]
fn push_result(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    item: &StreamResponse<'_>,
    text_head: &mut Option<TextHead>,
) -> Pushed {
    if let StreamResponse::Event { event, task_id, context_id, .. } = item
        && let TaskEvent::Artifact { artifact, append, last_chunk, metadata: None } = *event
        && let Some(encode) = &format.encode.text
        && let Some((id, text)) = artifact.as_text()
    {
        let at = out.len();
        match text_head {
            Some(before) if out[before.artifact_id.clone()] == *id.raw() => {
                let by = at - before.at.start;
                out.extend_from_within(before.at.clone());
                before.at = at..out.len();
                before.artifact_id = before.artifact_id.start + by..before.artifact_id.end + by;
            }
            _ => {
                let (task_id, context_id) = (*task_id, *context_id);
                let ids = ArtifactIds { task_id, context_id, artifact_id: id };
                *text_head = Some(push_text_head(out, format, encode, ids));
            }
        }
        out.extend_from_slice(text.raw());
        out.extend_from_slice(encode.tail(append, last_chunk));
        return Pushed::Text;
    }
    format.envelope.open_result(out);
    match (format.encode.event)(out, item, &format.write) {
        true => Pushed::Json,
        false => Pushed::Nothing,
    }
}

/// The ids in the head of a text chunk.
struct ArtifactIds<'a> {
    task_id: RawText<'a>,
    context_id: RawText<'a>,
    artifact_id: RawText<'a>,
}

#[inline(never)]
fn push_text_head(
    out: &mut Vec<u8>,
    format: &AnswerFormat<'_>,
    encode: &EncodeText,
    ids: ArtifactIds<'_>,
) -> TextHead {
    let start = out.len();
    format.envelope.open_result(out);
    (encode.head)(out, ids.task_id, ids.context_id);
    let id = out.len();
    out.extend_from_slice(ids.artifact_id.raw());
    let artifact_id = id..out.len();
    out.extend_from_slice(encode.between);
    TextHead { at: start..out.len(), artifact_id }
}

/// Writes the error that ends a stream: an `event: error` frame, or a message.
pub(in crate::binding) fn push_fault(out: &mut Vec<u8>, format: &AnswerFormat<'_>, fault: &Fault) {
    match format.events {
        EventFraming::Sse => {
            let frame = sse::error_event(out, None);
            format.push_fault(out, fault);
            sse::finish(out, frame);
        }
        EventFraming::Messages { .. } => {
            let frame = ws::begin(out);
            format.push_fault(out, fault);
            ws::finish(out, frame, OpCode::Text);
        }
        // Over gRPC the error is in the trailers.
        EventFraming::Grpc => {}
    }
}

/// Writes the end of a complete stream: on a WebSocket a result that marks the end
/// (docs/dialects.md, a2a_rust).
pub(super) fn push_last(out: &mut Vec<u8>, format: &AnswerFormat<'_>) {
    match format.events {
        EventFraming::Sse | EventFraming::Grpc => {}
        EventFraming::Messages { .. } => {
            let frame = ws::begin(out);
            let start = out.len();
            format.envelope.open_result(out);
            out.extend_from_slice(b"{\"status\":\"stream_complete\"}");
            format.envelope.close(out, start);
            ws::finish(out, frame, OpCode::Text);
        }
    }
}
