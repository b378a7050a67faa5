//! What a call that is made on behalf of another one passes on of it.

use std::sync::Arc;

use crate::{agent::RequestInfo, http::FieldLinesBuf, service::Now};

use super::{Client, TraceParent, Transport, credentials::Secret};

/// The terms of a call; `None`, as of nearly all: it carries nothing beside what its client adds to
/// all calls.
pub(crate) type CallTerms = Option<Arc<OutgoingTerms>>;

/// These, and from `others` what they do not say.
pub(super) fn merged(own: &CallTerms, others: &CallTerms) -> CallTerms {
    match (own, others) {
        (Some(own), Some(others)) => Some(Arc::new(own.or(others))),
        (own, others) => own.as_ref().or(others.as_ref()).cloned(),
    }
}

/// What a call carries beside those that its client adds to all calls: the trace, the hops and the
/// deadline of the call on whose behalf it is made, the `Authorization` of its caller where that is
/// passed on, a tenant, and extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutgoingTerms {
    /// The trace, with the span that calls.
    pub trace: Option<TraceParent>,
    /// Agents that the request has come through, ours included; 0: it is made for no other call.
    pub hops: u32,
    /// When the caller no longer wants the answer, in ms since the Unix epoch.
    pub deadline_unix_ms: Option<u64>,
    /// The extensions to ask for, comma separated.
    pub extensions: Option<Arc<str>>,
    /// Sent by clients that pass it on alone.
    pub authorization: Option<Secret>,
    /// The tenant to call, in place of that of the interface.
    pub tenant: Option<Arc<str>>,
}

impl OutgoingTerms {
    /// What a request passes on.
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

    /// Milliseconds until the deadline; `now` is called only if there is one.
    pub fn left_ms(&self, now: impl FnOnce() -> Now) -> Option<u64> {
        self.deadline_unix_ms.map(|deadline| deadline.saturating_sub(now().unix_ms))
    }

    /// Appends the fields of a request; `is_grpc`: as metadata of gRPC; `left_ms`: what
    /// [`OutgoingTerms::left_ms`] returned.
    pub fn write(&self, left_ms: Option<u64>, is_grpc: bool, fields: &mut FieldLinesBuf) {
        if let Some(trace) = &self.trace {
            fields.push(TraceParent::FIELD, trace.as_str());
        }
        if self.hops > 0 {
            fields.push("A2A-Hops", &self.hops.to_string());
        }
        match left_ms {
            // gRPC over HTTP/2, "Timeout": at most eight digits.
            Some(left_ms) if is_grpc => {
                fields.push("grpc-timeout", &format!("{}m", left_ms.min(99_999_999)));
            }
            // Whole seconds; the server may wait up to a second longer than the caller does.
            Some(left_ms) => fields.push("Request-Timeout", &left_ms.div_ceil(1000).to_string()),
            None => {}
        }
    }
}

impl<T: Transport> Client<T> {
    /// The same client, whose calls are made on behalf of this request: they carry its trace, if
    /// the agent is shown `traceparent`, the number of agents that it has come through
    /// (`A2A-Hops`), and the time that its caller still waits (`Request-Timeout` in seconds,
    /// `grpc-timeout`), beyond which no call lasts. Over WebSocket nothing of it is sent.
    ///
    /// An agent that calls others with it cannot be part of an endless loop: a server refuses a
    /// request that has come through more than `hops_max` agents.
    #[must_use]
    pub fn within(&self, request: &RequestInfo) -> Client<T> {
        let terms = Some(Arc::new(OutgoingTerms::of(request)));
        Client { inner: Arc::clone(&self.inner), terms: merged(&terms, &self.terms) }
    }

    /// Whether its calls have the `Authorization` of the callers on whose behalf they are made.
    #[cfg(feature = "gateway")]
    pub(crate) fn passes_authorization(&self) -> bool {
        self.inner.built.credentials.passes_authorization
    }

    /// The same client, whose calls have this `Authorization` where its credentials pass one on.
    #[cfg(feature = "gateway")]
    pub(crate) fn with_authorization(&self, authorization: Secret) -> Client<T> {
        self.with_terms(|terms| terms.authorization = Some(authorization))
    }

    /// The same client, whose calls name this tenant in place of that of the interface (A2A 1.0
    /// §8.3.2). A call that cannot name a tenant, before 1.0, is `NotExpressible`.
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
    fn a_call_says_hops_and_the_time_that_is_left() {
        let now = || Now { unix_ms: 10_000, ..Now::default() };
        let deadline_unix_ms = Some(11_500);
        let terms = OutgoingTerms { hops: 3, deadline_unix_ms, ..OutgoingTerms::default() };
        for (is_grpc, expected) in [
            (false, [("A2A-Hops", "3"), ("Request-Timeout", "2")]),
            (true, [("A2A-Hops", "3"), ("grpc-timeout", "1500m")]),
        ] {
            let mut fields = FieldLinesBuf::default();
            terms.write(terms.left_ms(now), is_grpc, &mut fields);
            assert!(fields.get().iter().eq(expected), "{is_grpc}");
        }
        assert_eq!(terms.left_ms(|| Now { unix_ms: 99_000, ..now() }), Some(0));
        let own = OutgoingTerms { hops: 1, ..OutgoingTerms::default() };
        assert_eq!(own.or(&terms), terms);
    }
}
