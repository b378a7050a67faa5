//! What a gRPC call keeps of its head: a few plain values, whose bytes are counted.
//!
//! The fields of a head, and the buffer that its path points into, take several times the bytes
//! that came. They are let go before anything is waited for.

use std::rc::Rc;

use http::{HeaderValue, request::Parts, uri::PathAndQuery};
use smallvec::SmallVec;

use crate::{
    binding::{
        grpc::{self, Rpc, rpc},
        origin::Origin,
    },
    service::RequestFields,
};

/// What the head of a call says.
pub(super) struct Metadata {
    /// Which call; `None`: there is no such rpc.
    pub(super) rpc: Option<Rpc>,
    /// How many fields there were.
    pub(super) fields: usize,
    /// `grpc-timeout`.
    pub(super) timeout_ms: Option<u64>,
    /// `a2a-last-event-id`.
    pub(super) after: Option<u64>,
    /// `a2a-version`.
    pub(super) version: Option<SmallVec<[u8; 16]>>,
    /// `a2a-tenant`, as text; what is none names nobody.
    pub(super) tenant: Option<String>,
    /// `a2a-extensions`; repeated, it is one list (wire §1.8).
    pub(super) extensions: Option<String>,
    /// `:authority`, or `Host`, once it is known to be served; nothing until then.
    pub(super) authority: Option<Rc<str>>,
}

impl Metadata {
    /// Reads what is needed, and drops the rest. Of what may be said once, the first counts.
    pub(super) fn read(head: Parts) -> Metadata {
        let Parts { uri, headers, .. } = head;
        // A path with a query is the name of no rpc.
        let rpc = rpc(uri.path_and_query().map_or("", PathAndQuery::as_str));
        let (mut timeout_ms, mut after, mut version, mut extensions) = (None, None, None, None);
        let mut tenant = None;
        for (name, value) in &headers {
            match name.as_str() {
                "grpc-timeout" => timeout_ms = timeout_ms.or_else(|| timeout(value)),
                "a2a-last-event-id" => after = after.or_else(|| number(value)),
                "a2a-version" => {
                    version.get_or_insert_with(|| SmallVec::from_slice(value.as_bytes()));
                }
                "a2a-tenant" => {
                    tenant.get_or_insert_with(|| {
                        String::from_utf8_lossy(value.as_bytes()).into_owned()
                    });
                }
                "a2a-extensions" | "x-a2a-extensions" => list(&mut extensions, value),
                _ => {}
            }
        }
        let (fields, authority) = (headers.len(), None);
        Metadata { rpc, fields, timeout_ms, after, version, tenant, extensions, authority }
    }

    /// What the binding is told of it.
    pub(super) fn said(&self, is_secure: bool) -> grpc::Metadata<'_> {
        let host = self.authority.as_deref().map(str::as_bytes);
        grpc::Metadata {
            version: self.version.as_deref(),
            last_event_id: self.after,
            tenant: self.tenant.as_deref(),
            origin: Origin { is_secure, host, prefix: "" },
            // The head is gone by then.
            fields: RequestFields::default(),
        }
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        let version = self.version.as_ref().map_or(0, SmallVec::len);
        let extensions = self.extensions.as_ref().map_or(0, String::capacity);
        let tenant = self.tenant.as_ref().map_or(0, String::capacity);
        version
            + tenant
            + extensions
            + self.authority.as_ref().map_or(0, |authority| authority.len())
    }
}

/// `grpc-timeout` in milliseconds, rounded up (gRPC over HTTP/2, "Requests"): at most eight digits
/// and a unit. What is none of that is no deadline.
fn timeout(value: &HeaderValue) -> Option<u64> {
    let value = value.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => count * 3_600_000,
        "M" => count * 60_000,
        "S" => count * 1000,
        "m" => count,
        "u" => count.div_ceil(1000),
        "n" => count.div_ceil(1_000_000),
        _ => return None,
    })
}

fn number(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.trim().parse().ok()
}

fn list(extensions: &mut Option<String>, value: &HeaderValue) {
    let Ok(value) = value.to_str() else { return };
    match extensions {
        None => *extensions = Some(value.to_owned()),
        Some(list) => list.extend([",", value]),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn timeouts_have_a_unit() {
        let ms = |text: &str| timeout(&HeaderValue::from_str(text).unwrap());
        for (text, expected) in [
            ("1H", Some(3_600_000)),
            ("2M", Some(120_000)),
            ("3S", Some(3_000)),
            ("99999999m", Some(99_999_999)),
            ("1u", Some(1)),
            ("1500000n", Some(2)),
            ("0m", Some(0)),
            ("100000000m", None),
            ("m", None),
            ("1", None),
            ("1s", None),
            ("-1m", None),
            ("", None),
        ] {
            assert_eq!(ms(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_kept_is_counted() {
        let head = Request::post("http://x:1/lf.a2a.v1.A2AService/GetTask")
            .header("a2a-version", "1.0")
            .header("a2a-extensions", "a")
            .header("x-a2a-extensions", "bc")
            .header("a2a-version", "0.3")
            .header("a2a-last-event-id", "7")
            .header("padding", "x".repeat(1000));
        let mut metadata = Metadata::read(head.body(()).unwrap().into_parts().0);
        metadata.authority = Some("x:1".into());
        assert!(matches!(metadata.rpc, Some(Rpc::A2a(_))));
        assert_eq!((metadata.fields, metadata.after), (6, Some(7)));
        assert_eq!(metadata.version.as_deref(), Some(&b"1.0"[..]));
        assert_eq!(metadata.extensions.as_deref(), Some("a,bc"));
        let extensions = metadata.extensions.as_ref().unwrap().capacity();
        assert_eq!(metadata.held_bytes(), "1.0".len() + extensions + "x:1".len());
        let asked = Request::post("http://x:1/lf.a2a.v1.A2AService/GetTask?x").body(()).unwrap();
        assert!(Metadata::read(asked.into_parts().0).rpc.is_none());
    }
}
