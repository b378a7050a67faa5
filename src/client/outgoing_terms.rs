//! The terms that a call to an agent takes from the call that it serves.

use std::sync::Arc;

use crate::{agent::RequestInfo, http::FieldLinesBuf, service::Now};

use super::{Client, TraceParent, Transport, credentials::Secret};

/// The terms of a call; `None`, as for nearly all calls: the call has only the fields that its
/// client adds to all calls.
pub(crate) type CallTerms = Option<Arc<OutgoingTerms>>;

/// The terms of `own`, with missing ones from `others`.
pub(super) fn merged(own: &CallTerms, others: &CallTerms) -> CallTerms {
    match (own, others) {
        (Some(own), Some(others)) => Some(Arc::new(own.or(others))),
        (own, others) => own.as_ref().or(others.as_ref()).cloned(),
    }
}

/// The terms of a call in addition to those of its client: the trace, the hops, the deadline and,
/// if passed on, the `Authorization` of the call that it serves; a tenant; and extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutgoingTerms {
    /// The trace, with the calling span.
    pub trace: Option<TraceParent>,
    /// Agents that the request has passed, including this one; 0: the call serves no other call.
    pub hops: u32,
    /// When the caller stops waiting for the answer, in ms since the Unix epoch.
    pub deadline_unix_ms: Option<u64>,
    /// The extensions to request, comma separated.
    pub extensions: Option<Arc<str>>,
    /// The caller's `Authorization`, sent only by clients that pass it on.
    pub authorization: Option<Secret>,
    /// The tenant to call, instead of the interface's.
    pub tenant: Option<Arc<str>>,
}

impl OutgoingTerms {
    /// The terms that a request passes on.
    pub fn of(request: &RequestInfo) -> OutgoingTerms {
        OutgoingTerms {
            trace: request.header(TraceParent::FIELD).and_then(TraceParent::parse),
            hops: request.hops().saturating_add(1),
            deadline_unix_ms: request.deadline_unix_ms(),
            extensions: None,
            authorization: None,
            tenant: None,
        }
    }

    fn or(&self, others: &OutgoingTerms) -> OutgoingTerms {
        OutgoingTerms {
            trace: self.trace.or(others.trace),
            hops: self.hops.max(others.hops),
            deadline_unix_ms: self.deadline_unix_ms.or(others.deadline_unix_ms),
            extensions: self.extensions.as_ref().or(others.extensions.as_ref()).cloned(),
            authorization: self.authorization.as_ref().or(others.authorization.as_ref()).cloned(),
            tenant: self.tenant.as_ref().or(others.tenant.as_ref()).cloned(),
        }
    }

    /// Milliseconds until the deadline; `now` is called only if a deadline is set.
    pub fn remaining_ms(&self, now: impl FnOnce() -> Now) -> Option<u64> {
        self.deadline_unix_ms.map(|deadline| deadline.saturating_sub(now().unix_ms))
    }

    /// Appends the fields of a request; `is_grpc`: as gRPC metadata; `remaining_ms`: the result of
    /// [`OutgoingTerms::remaining_ms`].
    pub fn write(&self, remaining_ms: Option<u64>, is_grpc: bool, fields: &mut FieldLinesBuf) {
        if let Some(trace) = &self.trace {
            fields.push(TraceParent::FIELD, trace.as_str());
        }
        if self.hops > 0 {
            fields.push("A2A-Hops", &self.hops.to_string());
        }
        match remaining_ms {
            // gRPC over HTTP/2, "Timeout": at most eight digits.
            Some(remaining_ms) if is_grpc => {
                fields.push("grpc-timeout", &format!("{}m", remaining_ms.min(99_999_999)));
            }
            // Whole seconds, rounded up: the server may wait up to a second longer than the caller.
            Some(remaining_ms) => {
                fields.push("Request-Timeout", &remaining_ms.div_ceil(1000).to_string())
            }
            None => {}
        }
    }
}

impl<T: Transport> Client<T> {
    /// The same client, for calls that serve this request. They carry the trace of the request, if
    /// the agent receives `traceparent`, the number of agents that the request has passed
    /// (`A2A-Hops`), and the time that its caller still waits (`Request-Timeout` in seconds,
    /// `grpc-timeout`), which also bounds each call. Over WebSocket none of these is sent.
    ///
    /// An agent that calls others with this client cannot be part of an endless loop: a server
    /// rejects a request that has passed more than `hops_max` agents.
    #[must_use]
    pub fn within(&self, request: &RequestInfo) -> Client<T> {
        let terms = Some(Arc::new(OutgoingTerms::of(request)));
        Client { inner: Arc::clone(&self.inner), terms: merged(&terms, &self.terms) }
    }

    /// Whether calls of this client carry the `Authorization` of the original callers.
    #[cfg(feature = "gateway")]
    pub(crate) fn passes_authorization(&self) -> bool {
        self.inner.built.credentials.passes_authorization
    }

    /// The same client, with this `Authorization` in its calls if the credentials pass one on.
    #[cfg(feature = "gateway")]
    pub(crate) fn with_authorization(&self, authorization: Secret) -> Client<T> {
        self.with_terms(|terms| terms.authorization = Some(authorization))
    }

    /// The same client, with this tenant in its calls instead of the interface's (A2A 1.0 §8.3.2).
    /// A call that cannot name a tenant, before 1.0, is `NotExpressible`.
    #[must_use]
    pub fn with_tenant(&self, tenant: &str) -> Client<T> {
        self.with_terms(|terms| terms.tenant = Some(tenant.into()))
    }

    /// The same client with other terms.
    pub(super) fn with_terms(&self, change: impl FnOnce(&mut OutgoingTerms)) -> Client<T> {
        let mut client = self.clone();
        change(Arc::make_mut(client.terms.get_or_insert_default()));
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outgoing_call_sends_hops_and_remaining_time() {
        let now = || Now { unix_ms: 10_000, ..Now::default() };
        let deadline_unix_ms = Some(11_500);
        let terms = OutgoingTerms { hops: 3, deadline_unix_ms, ..OutgoingTerms::default() };
        for (is_grpc, expected) in [
            (false, [("A2A-Hops", "3"), ("Request-Timeout", "2")]),
            (true, [("A2A-Hops", "3"), ("grpc-timeout", "1500m")]),
        ] {
            let mut fields = FieldLinesBuf::default();
            terms.write(terms.remaining_ms(now), is_grpc, &mut fields);
            assert!(fields.get().iter().eq(expected), "{is_grpc}");
        }
        assert_eq!(terms.remaining_ms(|| Now { unix_ms: 99_000, ..now() }), Some(0));
        let own = OutgoingTerms { hops: 1, ..OutgoingTerms::default() };
        assert_eq!(own.or(&terms), terms);
    }
}
