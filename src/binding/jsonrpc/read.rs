//! From a value to a call: envelope, method, version, then the parameters.

use std::cell::Cell;

use super::{Desk, Ready, fault::Known};
use crate::{
    binding::asked::names,
    dialect::{Dialect, Method, ReadCx, version},
    fault::{Fault, FaultKind},
    http::media,
    json::Value,
    model::{Call, Op, SendMode, uuid},
    rpc,
};

/// Why there is nothing to call.
pub(super) enum Unready<'p> {
    /// A notification: nobody hears what is wrong with it.
    Silent,
    /// What to answer instead.
    Refused(Known<'p>, Fault),
}

impl Desk<'_> {
    /// From a value to a call: envelope, method, version, then the parameters.
    pub(super) fn read<'p>(
        &mut self,
        value: Value<'p>,
        in_batch: bool,
        pack: &'p mut Vec<u8>,
    ) -> Result<Ready<'p>, Unready<'p>> {
        let dialect = self.endpoint.dialect;
        let request = rpc::read(value, &self.site.limits).map_err(|invalid| {
            Unready::Refused(Known { id: invalid.id, ..Known::NOTHING }, invalid.fault)
        })?;
        let name = &*request.method;
        let method = dialect.method(name);
        let id = request.id.unwrap_or(rpc::NULL_ID);
        let is_silent =
            request.id.is_none() && is_notification(dialect, &request, method, in_batch);
        let Some(method) = method else {
            let known = Known { id, wire: Some(dialect.fault_wire(name)), op: Op::Send };
            let refused = Unready::Refused(known, FaultKind::MethodNotFound.into());
            return Err(if is_silent { Unready::Silent } else { refused });
        };
        let known = Known { id, wire: Some(method.wire), op: method.op };
        let refused = |fault| match is_silent {
            true => Unready::Silent,
            false => Unready::Refused(known, fault),
        };
        version::check(self.asked.as_deref(), method, self.site.strict_version).map_err(refused)?;
        if request.by_position {
            return Err(refused(Fault::param("params", "parameters go by name")));
        }
        if in_batch && method.op.is_streaming() {
            let detail = "streams cannot be part of a batch";
            return Err(refused(Fault::because(FaultKind::InvalidRequest, detail)));
        }
        if !self.beside.accepts(dialect, method.op) {
            let detail = "Accept must name the media type of the answer";
            return Err(refused(Fault::because(FaultKind::InvalidRequest, detail)));
        }
        if self.beside.is_full() && can_wait(method.op) {
            let detail = "as many requests of this connection wait as may (ws_in_flight_max)";
            return Err(refused(Fault::because(FaultKind::Overloaded, detail)));
        }
        let cx = ReadCx {
            op: method.op,
            limits: &self.site.limits,
            fresh_id: self.site.fresh_id(dialect, method.wire.generation, self.fresh_id),
            after: (method.op == Op::Subscribe).then(|| self.beside.last_event_id()).flatten(),
            task: None,
            tokens: Cell::default(),
        };
        let call = (method.wire.read)(&cx, request.params, pack).map_err(refused)?;
        if let Call::Send(send) = &call {
            debug_assert_eq!(send.mode == SendMode::Stream, method.op == Op::Stream);
            if send.message.message_id().raw() == self.fresh_id {
                *self.fresh_id = uuid(self.entropy.bits());
            }
        }
        Ok(Ready { id, is_silent, method, call })
    }
}

/// Whether a call of this operation can be left waiting for its task.
fn can_wait(op: Op) -> bool {
    matches!(op, Op::Send | Op::Stream | Op::Subscribe)
}

/// `application/json`, with parameters, or a type with the `+json` suffix (RFC 6839 §3.1).
pub(super) fn is_json(value: &[u8]) -> bool {
    if value == media::JSON.as_bytes() {
        return true;
    }
    let name = value.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    name.eq_ignore_ascii_case(media::JSON.as_bytes())
        || (name.len() > 17
            && name[..12].eq_ignore_ascii_case(b"application/")
            && name[name.len() - 5..].eq_ignore_ascii_case(b"+json"))
}

/// True for a request without id that is left without an answer.
///
/// In a batch, and for a dialect that keeps to JSON-RPC 2.0, that is every one. A2A itself has no
/// notifications, and its servers answer one with a null id; only what no A2A client sends, an
/// unknown method without parameters by name, is taken for a real notification.
fn is_notification(
    dialect: &Dialect,
    request: &rpc::RpcRequest<'_>,
    method: Option<&Method>,
    in_batch: bool,
) -> bool {
    in_batch
        || dialect.quirks.silent_notifications
        || (method.is_none() && request.params.is_none())
}

/// LangSmith (wire §8): `Accept` must name the type of the answer, or a range that holds it.
pub(super) fn accepts(accept: Option<&[u8]>, op: Op) -> bool {
    names(accept, if op.is_streaming() { media::EVENT_STREAM } else { media::JSON })
}
