//! The trace of a call.

use std::fmt;

use super::{Client, Transport};

/// Bytes of each `traceparent`: 2, 32, 16 and 2 digits, with hyphens between them.
const BYTES: usize = 55;

/// The field `traceparent` of a request: its trace and parent span (W3C Trace Context §3.2). A
/// tracer creates it; the client only passes it on.
///
/// ```
/// use peregrine::client::{SendRequest, TraceParent};
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let trace = TraceParent::parse(text).ok_or("no traceparent")?;
/// let request = SendRequest::text("hello").traceparent(trace);
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent([u8; BYTES]);

impl TraceParent {
    /// The name of the field.
    pub(super) const FIELD: &str = "traceparent";

    /// Reads `version-traceid-parentid-flags` (W3C Trace Context §3.2.2): 2, 32, 16 and 2 digits of
    /// lower-case hex. `None`: the text has another form, the version is ff, or an id is all zeros.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.split('-');
        let mut part = |digits: usize| {
            let is_hex = |part: &&str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            parts.next().filter(|part| part.len() == digits).filter(is_hex)
        };
        let (version, trace_id, parent_id) = (part(2)?, part(32)?, part(16)?);
        let _flags = part(2)?;
        let is_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
        let is_good = version != "ff" && !is_zero(trace_id) && !is_zero(parent_id);
        let bytes = text.as_bytes().try_into().ok();
        bytes.filter(|_| is_good).map(TraceParent)
    }

    /// The value of the field.
    pub fn as_str(&self) -> &str {
        // The bytes were UTF-8 when they were parsed.
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceParent({})", self.as_str())
    }
}

impl<T: Transport> Client<T> {
    /// The same client, with all of its operations in this trace: sends, streams with their
    /// resumptions, and every other call. The trace of a request overrides this trace, which
    /// replaces a `traceparent` among the fields of all calls.
    ///
    /// The trace is not sent over WebSocket, where calls have no heads and sessions are shared, nor
    /// with requests for the card.
    #[must_use]
    pub fn with_traceparent(&self, trace: TraceParent) -> Client<T> {
        self.with_terms(|terms| terms.trace = Some(trace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_traceparent_is_rejected() {
        for good in [
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-00000000000000000000000000000001-1000000000000000-ff",
        ] {
            let parsed = TraceParent::parse(good);
            assert_eq!(parsed.as_ref().map(TraceParent::as_str), Some(good));
        }
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b71-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473\n-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ] {
            assert!(TraceParent::parse(bad).is_none(), "{bad}");
        }
    }
}
