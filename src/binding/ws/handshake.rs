//! The opening handshake of a server (RFC 6455 §4.2).
//!
//! The answer to an HTTP/1.1 GET with `Upgrade: websocket` is the upgrade or an error. The only
//! supported subprotocol is `a2a`; extensions are never negotiated.

use super::{Session, Upgrade};
use crate::{
    binding::{
        CallContext, ServerConfig, admission::bearers_offered, http_error, origin::Origin,
        responder::RETRY_AFTER,
    },
    http::{
        self, BodyFraming, Field, FieldLines, FieldLinesBuf, Head, Method, Version, field_lines,
    },
    ws,
};

/// The subprotocol; a client that does not name it uses the same protocol.
const SUBPROTOCOL: &[u8] = b"a2a";

/// The header fields that RFC 6455 §4.4 and RFC 9110 §15.5.22 require with status 426.
const UPGRADE_REQUIRED: FieldLines<'static> = field_lines!(
    "Sec-WebSocket-Version": "13",
    "Upgrade": "websocket",
    "Connection": "Upgrade"
);

/// True for a request for a WebSocket upgrade.
///
/// RFC 9110 §7.8: a server must ignore `Upgrade` in HTTP/1.0, and may ignore it in other requests.
pub fn is_upgrade(head: &Head<'_>) -> bool {
    let wanted = |protocol: &[u8]| protocol.eq_ignore_ascii_case(b"websocket");
    head.method() == Method::Get
        && head.version() == Version::Http11
        && head.value(Field::Upgrade).is_some()
        && head.values("upgrade").any(|value| http::list(value).any(wanted))
}

/// Answers a request for which [`is_upgrade`] holds.
#[cold]
pub fn upgrade(cx: &mut CallContext<'_>, head: &Head<'_>) -> Option<Box<Session>> {
    match accept(cx, head) {
        Ok(accept) => {
            cx.writer.empty(101, fields(head, &accept).get());
            Some(Box::new(Session::new(Upgrade::of(cx, head))))
        }
        Err((status, detail, fields)) => {
            http_error::refuse_under(cx, status, detail, fields);
            None
        }
    }
}

type HandshakeRefusal = (u16, &'static str, FieldLines<'static>);

/// Checks the rules of RFC 6455 §4.2.1, and returns the accept key.
fn accept(cx: &CallContext<'_>, head: &Head<'_>) -> Result<[u8; 28], HandshakeRefusal> {
    let bad = |detail| (400, detail, FieldLines::NONE);
    if !head.connection_upgrade() {
        return Err(bad("an upgrade needs the header Connection: Upgrade"));
    }
    if head.body() != BodyFraming::None {
        return Err(bad("an upgrade must not have a body"));
    }
    // RFC 6455 §4.4: the refusal lists the supported versions.
    if only(head, "sec-websocket-version") != Some(b"13") {
        return Err((426, "the WebSocket version must be 13", UPGRADE_REQUIRED));
    }
    let key = only(head, "sec-websocket-key").and_then(ws::accept);
    let key = key.ok_or(bad("Sec-WebSocket-Key must be 16 bytes in base64, once"))?;
    if bearers_offered(head).nth(1).is_some() {
        return Err(bad("at most one subprotocol may begin with a2a.bearer."));
    }
    let authority = Origin::of(cx.config, cx.peer, head).authority();
    if !is_origin_allowed(cx.config, head, authority.as_deref()) {
        return Err((403, "pages of this origin may not open WebSockets", FieldLines::NONE));
    }
    if cx.closes {
        return Err((503, "the connection is closing", RETRY_AFTER));
    }
    Ok(key)
}

/// The value of a field that occurs exactly once in the head.
fn only<'h>(head: &Head<'h>, name: &str) -> Option<&'h [u8]> {
    let mut values = head.values(name);
    values.next().filter(|_| values.next().is_none())
}

/// The header fields of the answer that opens a WebSocket.
fn fields(head: &Head<'_>, accept: &[u8; 28]) -> FieldLinesBuf {
    let mut fields = FieldLinesBuf::default();
    fields.push("Upgrade", "websocket");
    fields.push("Connection", "Upgrade");
    fields.push("Sec-WebSocket-Accept", std::str::from_utf8(accept).unwrap_or_default());
    let offered = head.values("sec-websocket-protocol");
    if offered.flat_map(http::list).any(|protocol| protocol == SUBPROTOCOL) {
        fields.push("Sec-WebSocket-Protocol", "a2a");
    }
    fields
}

/// RFC 6455 §10.2: a page of any origin can try to open a WebSocket, and the browser sends the
/// origin. A request without `Origin` is not from a browser. Pages of this `host`, or of the public
/// URL, are allowed; other origins must be configured, or `*` allows all. The host itself was
/// checked with the head ([`crate::binding::hosts`]).
fn is_origin_allowed(config: &ServerConfig, head: &Head<'_>, host: Option<&[u8]>) -> bool {
    let mut origins = head.values("origin");
    let Some(origin) = origins.next() else { return true };
    let Ok(origin) = str::from_utf8(origin) else { return false };
    if origins.next().is_some() {
        return false;
    }
    let is_ours = authority(origin).is_some_and(|from| {
        let public = config.public_url.as_deref().and_then(authority);
        let hosts = [host, public.map(str::as_bytes)];
        hosts.into_iter().flatten().any(|host| host.eq_ignore_ascii_case(from.as_bytes()))
    });
    let is_named = |named: &String| named == "*" || named.eq_ignore_ascii_case(origin);
    is_ours || config.ws_origins.iter().any(is_named)
}

/// The host and port of a URL.
fn authority(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split('/').next()
}

/// True for a valid value of `Origin` (RFC 6454 §6.2), and for `*`, which allows all origins.
pub fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else {
        return matches!(text, "*" | "null");
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
    !scheme.is_empty()
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        && !authority.is_empty()
        && authority.bytes().all(plain)
}
