//! From a value to a call: envelope, method, version, then the parameters; and what heads say.

use std::borrow::Cow;

use super::{Desk, Ready, fault::Known};
use crate::{
    dialect::{Dialect, Method, ReadCx, version},
    fault::{Fault, FaultKind},
    http::{self, Field, Head, query},
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
        let dialect = self.place.dialect;
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
        if !self.source.accepts(dialect, method.op) {
            let detail = "Accept must name the media type of the answer";
            return Err(refused(Fault::because(FaultKind::InvalidRequest, detail)));
        }
        if self.source.is_full() && can_wait(method.op) {
            let detail = "as many requests of this connection wait as may";
            return Err(refused(Fault::because(FaultKind::Overloaded, detail)));
        }
        let cx = ReadCx {
            op: method.op,
            limits: &self.site.limits,
            fresh_id: &self.fresh_id[..],
            after: (method.op == Op::Subscribe).then(|| self.source.last_event_id()).flatten(),
        };
        let call = (method.wire.read)(&cx, request.params, pack).map_err(refused)?;
        if let Call::Send(send) = &call {
            debug_assert_eq!(send.mode == SendMode::Stream, method.op == Op::Stream);
            if send.message.message_id() == self.fresh_id {
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

/// A2A 1.0 §3.6.1: the version is a header, or else a query parameter of the same name.
pub fn asked_version<'h>(head: &Head<'h>) -> Option<Cow<'h, [u8]>> {
    if let Some(value) = head.value(Field::A2aVersion) {
        return Some(Cow::Borrowed(value));
    }
    let mut pairs = query::pairs(head.query()?).filter_map(Result::ok);
    let (_, value) = pairs.find(|(key, _)| key.eq_ignore_ascii_case("a2a-version"))?;
    Some(match value {
        Cow::Borrowed(value) => Cow::Borrowed(value.as_bytes()),
        Cow::Owned(value) => Cow::Owned(value.into_bytes()),
    })
}

/// `application/json`, with parameters, or a type with the `+json` suffix (RFC 6839 §3.1).
pub(super) fn is_json(value: &[u8]) -> bool {
    if value == b"application/json" {
        return true;
    }
    let media = value.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    media.eq_ignore_ascii_case(b"application/json")
        || (media.len() > 17
            && media[..12].eq_ignore_ascii_case(b"application/")
            && media[media.len() - 5..].eq_ignore_ascii_case(b"+json"))
}

/// RFC 9110 §5.3: repeated extension headers are one list (wire §1.8).
pub fn joined_extensions<'h>(head: &Head<'h>) -> Option<Cow<'h, str>> {
    head.value(Field::A2aExtensions).or(head.value(Field::XA2aExtensions))?;
    let values = head.values("a2a-extensions").chain(head.values("x-a2a-extensions"));
    let values: Vec<_> = values.map(String::from_utf8_lossy).collect();
    Some(Cow::Owned(values.join(",")))
}

/// True for a request without id that is left without an answer.
///
/// In a batch, and for a dialect that keeps to JSON-RPC 2.0, that is every one. A2A itself has no
/// notifications, and its servers answer one with a null id; only what no A2A client sends, an
/// unknown method without parameters by name, is taken for a real notification.
fn is_notification(
    dialect: &Dialect,
    request: &rpc::Request<'_>,
    method: Option<&Method>,
    in_batch: bool,
) -> bool {
    in_batch
        || dialect.quirks.silent_notifications
        || (method.is_none() && request.params.is_none())
}

/// LangSmith (wire §8): `Accept` must name the type of the answer, or a range that holds it.
pub(super) fn accepts(accept: Option<&[u8]>, op: Op) -> bool {
    names(accept, if op.is_streaming() { b"text/event-stream" } else { b"application/json" })
}

/// Whether `Accept` names a media type or a range that holds it (RFC 9110 §12.5.1).
pub(super) fn names(accept: Option<&[u8]>, wanted: &[u8]) -> bool {
    http::list(accept.unwrap_or_default()).any(|range| {
        let range = range.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let kind = wanted.split(|b| *b == b'/').next().unwrap_or_default();
        range.eq_ignore_ascii_case(wanted)
            || range == b"*/*"
            || range.strip_suffix(b"/*").is_some_and(|r| r.eq_ignore_ascii_case(kind))
    })
}

/// The last event a returning subscriber has seen: the header, or `lastEventId` in the query.
pub(super) fn last_event_id(head: &Head<'_>) -> Option<u64> {
    if let Some(value) = head.value(Field::LastEventId) {
        return std::str::from_utf8(value).ok()?.trim().parse().ok();
    }
    let mut pairs = query::pairs(head.query()?).filter_map(Result::ok);
    let (_, value) = pairs.find(|(key, _)| key == "lastEventId")?;
    value.parse().ok()
}
