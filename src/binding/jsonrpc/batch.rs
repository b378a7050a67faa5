//! Batches: every element is a separate call (JSON-RPC 2.0 §6).

use super::{
    read::{self, Rejected},
    unknown,
};
use crate::{
    binding::{
        CallContext, Handled,
        pending::{PendingBatch, PendingCall, too_large},
        responder::Content,
    },
    fault::{Fault, FaultKind},
    http::{FieldLines, media},
    json::Value,
    rpc,
};

/// The outcome of one element of a batch.
enum Element {
    /// The answer is written.
    Written,
    /// No answer is needed.
    Silent,
    /// The call waits.
    Waits(Box<PendingCall>),
}

/// Answers a batch (JSON-RPC 2.0 §6).
pub(super) fn answer(
    cx: &mut CallContext<'_>,
    pack: &mut Vec<u8>,
    version: Option<&[u8]>,
    value: Value<'_>,
) -> Handled {
    let most = cx.config.limits.batch_calls_max;
    let count = value.elements().take(most + 1).count();
    if count == 0 || count > most {
        let detail = match count {
            0 => "the batch is empty",
            _ => "the batch has too many calls (batch_calls_max)",
        };
        let fault = Fault::because(FaultKind::InvalidRequest, detail);
        let limit = (count > most).then_some("batch_calls_max");
        let fault = Fault { limit, ..fault };
        cx.refuse_call(None, &unknown(cx.endpoint), &fault);
        return Handled::Answered;
    }
    cx.writer.begin(200, media::JSON, FieldLines::NONE, Content::Whole);
    cx.writer.out.push(b'[');
    let (body_at, mut waiting) = (cx.writer.out.len(), Vec::new());
    let answer_bytes_max = cx.config.limits.answer_bytes_max;
    for value in value.elements() {
        let at = cx.writer.out.len();
        if at > body_at {
            cx.writer.out.push(b',');
        }
        let is_full = at - body_at > answer_bytes_max;
        match element(cx, pack, version, value, is_full) {
            Element::Written => {}
            Element::Silent => cx.writer.out.truncate(at),
            Element::Waits(call) => {
                cx.writer.out.truncate(at);
                waiting.push(*call);
            }
        }
    }
    if !waiting.is_empty() {
        let answers = cx.writer.out.split_off(body_at);
        cx.writer.rollback();
        let batch = PendingBatch { answers, answer_bytes_max, record: cx.writer.record };
        return cx.pend(&unknown(cx.endpoint), waiting, Some(batch));
    }
    if cx.writer.out.len() == body_at {
        cx.writer.rollback();
        cx.writer.empty(204, FieldLines::NONE);
        return Handled::Answered;
    }
    cx.writer.out.push(b']');
    cx.writer.finish();
    Handled::Answered
}

/// Answers one element. `is_full`: the answers have reached their limit, so calls are refused.
fn element(
    cx: &mut CallContext<'_>,
    pack: &mut Vec<u8>,
    version: Option<&[u8]>,
    value: Value<'_>,
    is_full: bool,
) -> Element {
    let at = cx.writer.out.len();
    cx.begin_next_call();
    let request = rpc::read(value, &cx.config.limits);
    let head = match &request {
        Ok(request) => read::head(cx, version, request, true),
        Err(invalid) => Err(read::invalid(cx.endpoint, invalid)),
    };
    let refused = match head {
        Err(refused) => refused,
        Ok(head) => match cx.decode(head.method, None, head.request.params, pack) {
            Err(fault) => head.refused(cx, fault),
            Ok(ref call) if head.is_silent => {
                cx.call_silently(call, &head.format(cx, call));
                Rejected::Silently
            }
            Ok(ref call) => {
                let format = head.format(cx, call);
                let pushed = match is_full {
                    true => Err(too_large()),
                    false => cx.push_answer(call, &format),
                };
                match pushed {
                    Ok(None) => return Element::Written,
                    Ok(Some(call)) => return Element::Waits(Box::new(call)),
                    Err(fault) => Rejected::With(Box::new((Some(format.write.op), format, fault))),
                }
            }
        },
    };
    match refused {
        Rejected::Silently => Element::Silent,
        Rejected::With(refused) => {
            let (op, format, fault) = *refused;
            cx.writer.out.truncate(at);
            format.push_fault(cx.writer.out, &fault);
            cx.report_refused_member(op, &format, &fault);
            Element::Written
        }
    }
}
