//! What a gRPC call keeps of its head: a few plain values, whose bytes are counted.
//!
//! The fields of a head, and the buffer that its path points into, take several times the bytes
//! that came. They are let go before anything is waited for.

use http::{HeaderMap, HeaderValue, request::Parts};

use crate::binding::grpc::{Rpc, rpc};

use super::host::authority;

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
    pub(super) version: Option<Box<[u8]>>,
    /// `a2a-extensions`, as one list.
    pub(super) extensions: Option<Box<str>>,
    /// `:authority`, or `Host`.
    pub(super) authority: Option<Box<str>>,
}

impl Metadata {
    /// Reads what is needed, and drops the rest.
    pub(super) fn read(head: Parts) -> Metadata {
        let authority = authority(&head).and_then(|authority| std::str::from_utf8(authority).ok());
        let authority = authority.map(Box::from);
        let Parts { uri, headers, .. } = head;
        // A path with a query is the name of no rpc.
        let path = uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
        let version = headers.get("a2a-version").map(HeaderValue::as_bytes);
        Metadata {
            rpc: rpc(path),
            fields: headers.len(),
            timeout_ms: timeout(&headers),
            after: after(&headers),
            version: version.map(Box::from),
            extensions: extensions(&headers),
            authority,
        }
    }

    /// Bytes that it holds.
    pub(super) fn held_bytes(&self) -> usize {
        let texts = [self.extensions.as_deref(), self.authority.as_deref()];
        let version = self.version.as_ref().map_or(0, |version| version.len());
        texts.iter().flatten().fold(version, |sum, text| sum + text.len())
    }
}

/// `grpc-timeout` in milliseconds, rounded up (gRPC over HTTP/2, "Requests"): at most eight digits
/// and a unit. What is none of that is no deadline.
fn timeout(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get("grpc-timeout")?.to_str().ok()?;
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

/// Repeated extension metadata is one list (wire §1.8).
fn extensions(headers: &HeaderMap) -> Option<Box<str>> {
    let all = ["a2a-extensions", "x-a2a-extensions"];
    let values = all.iter().flat_map(|name| headers.get_all(*name));
    let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(",").into())
}

fn after(headers: &HeaderMap) -> Option<u64> {
    headers.get("a2a-last-event-id")?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn timeouts_have_a_unit() {
        let ms = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_str(text).unwrap());
            timeout(&headers)
        };
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
            .header("a2a-last-event-id", "7")
            .header("padding", "x".repeat(1000));
        let metadata = Metadata::read(head.body(()).unwrap().into_parts().0);
        assert!(matches!(metadata.rpc, Some(Rpc::A2a(_))));
        assert_eq!((metadata.fields, metadata.after), (5, Some(7)));
        assert_eq!(metadata.extensions.as_deref(), Some("a,bc"));
        assert_eq!(metadata.authority.as_deref(), Some("x:1"));
        assert_eq!(metadata.held_bytes(), "1.0".len() + "a,bc".len() + "x:1".len());
        let asked = Request::post("http://x:1/lf.a2a.v1.A2AService/GetTask?x").body(()).unwrap();
        assert!(Metadata::read(asked.into_parts().0).rpc.is_none());
    }
}
