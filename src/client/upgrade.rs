//! The opening handshake of WebSocket, on the client's side (RFC 6455 §4.1).
//!
//! Invariant: a 101 is accepted only if it proves that its server has read the key of this
//! handshake, and agrees only to offered options. The client offers no extensions.

use std::fmt;

use crate::{
    http::{FieldLinesBuf, list},
    ws::client::is_accept_of,
};

use super::HttpResponse;

/// Why a response does not open a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeError {
    /// The status is not 101: the server does not speak WebSocket here, or rejects this request.
    Status(u16),
    /// `Upgrade` is not `websocket`.
    Upgrade,
    /// `Connection` does not name `Upgrade`.
    Connection,
    /// `Sec-WebSocket-Accept` does not match the key.
    Accept,
    /// The server agreed to an extension, and none was offered.
    Extension,
    /// The server agreed to a subprotocol that was not offered.
    Subprotocol,
}

/// Appends the fields of a GET that requests a WebSocket; `key` is 16 random bytes in base64.
pub fn upgrade_fields(fields: &mut FieldLinesBuf, key: &[u8; 24], subprotocol: Option<&str>) {
    fields.push("Upgrade", "websocket");
    fields.push("Connection", "Upgrade");
    fields.push("Sec-WebSocket-Version", "13");
    fields.push("Sec-WebSocket-Key", str::from_utf8(key).unwrap_or_default());
    if let Some(subprotocol) = subprotocol {
        fields.push("Sec-WebSocket-Protocol", subprotocol);
    }
}

/// Checks the server's response by each rule of RFC 6455 §4.1. A server may omit the subprotocol.
///
/// # Errors
/// [`UpgradeError`].
pub fn check_upgrade(
    response: &impl HttpResponse,
    key: &[u8; 24],
    subprotocol: Option<&str>,
) -> Result<(), UpgradeError> {
    // RFC 6455 §4.1 (1): any other status is an HTTP response, which the caller reads as such.
    if response.status() != 101 {
        return Err(UpgradeError::Status(response.status()));
    }
    let has = |name: &str, token: &[u8]| {
        let value = response.field(name).unwrap_or_default();
        list(value).any(|element| element.eq_ignore_ascii_case(token))
    };
    // RFC 6455 §4.1 (2): the value is exactly this word.
    let upgrade = response.field("upgrade").unwrap_or_default();
    if !upgrade.eq_ignore_ascii_case(b"websocket") {
        return Err(UpgradeError::Upgrade);
    }
    // RFC 6455 §4.1 (3): a token among others.
    if !has("connection", b"upgrade") {
        return Err(UpgradeError::Connection);
    }
    // RFC 6455 §4.1 (4).
    if !is_accept_of(key, response.field("sec-websocket-accept").unwrap_or_default()) {
        return Err(UpgradeError::Accept);
    }
    // RFC 6455 §4.1 (5): an empty list agrees on nothing.
    if response.field("sec-websocket-extensions").is_some_and(|value| list(value).next().is_some())
    {
        return Err(UpgradeError::Extension);
    }
    // RFC 6455 §4.1 (6): case-sensitive.
    match response.field("sec-websocket-protocol") {
        Some(agreed) if subprotocol.map(str::as_bytes) != Some(agreed) => {
            Err(UpgradeError::Subprotocol)
        }
        Some(_) | None => Ok(()),
    }
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpgradeError::Status(status) => {
                write!(f, "the server answered {status} and opened no WebSocket")
            }
            UpgradeError::Upgrade => f.write_str("the 101 does not upgrade to websocket"),
            UpgradeError::Connection => f.write_str("the 101 lacks Connection: Upgrade"),
            UpgradeError::Accept => f.write_str("Sec-WebSocket-Accept does not match the key"),
            UpgradeError::Extension => f.write_str("the 101 has an extension that was not offered"),
            UpgradeError::Subprotocol => {
                f.write_str("the 101 has a subprotocol that was not offered")
            }
        }
    }
}

impl std::error::Error for UpgradeError {}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use super::*;
    use crate::{client::TransportError, ws};

    struct Fields(u16, Vec<(&'static str, &'static str)>);

    impl HttpResponse for Fields {
        fn status(&self) -> u16 {
            self.0
        }

        fn field(&self, name: &str) -> Option<&[u8]> {
            self.1.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_bytes())
        }

        fn poll_read(
            &mut self,
            _: &mut Context<'_>,
            _: &mut Vec<u8>,
            _: usize,
        ) -> Poll<Result<bool, TransportError>> {
            Poll::Pending
        }

        fn poll_write(
            &mut self,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<Result<usize, TransportError>> {
            Poll::Pending
        }
    }

    const KEY: &[u8; 24] = b"dGhlIHNhbXBsZSBub25jZQ==";

    fn good() -> Vec<(&'static str, &'static str)> {
        vec![
            ("upgrade", "WebSocket"),
            ("connection", "keep-alive, upgrade"),
            ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ]
    }

    #[test]
    fn rfc6455_4_1_invalid_upgrade_response_is_rejected() {
        let with = |name: &'static str, value: &'static str| {
            let mut fields = good();
            fields.retain(|(n, _)| *n != name);
            fields.push((name, value));
            check_upgrade(&Fields(101, fields), KEY, Some("a2a"))
        };
        assert_eq!(check_upgrade(&Fields(101, good()), KEY, Some("a2a")), Ok(()));
        assert_eq!(check_upgrade(&Fields(101, good()), KEY, None), Ok(()));
        assert_eq!(check_upgrade(&Fields(426, good()), KEY, None), Err(UpgradeError::Status(426)));
        assert_eq!(with("sec-websocket-protocol", "a2a"), Ok(()));
        assert_eq!(with("sec-websocket-extensions", ""), Ok(()));
        for (name, value, error) in [
            ("upgrade", "", UpgradeError::Upgrade),
            ("upgrade", "h2c", UpgradeError::Upgrade),
            ("upgrade", "websocket, h2c", UpgradeError::Upgrade),
            ("connection", "close", UpgradeError::Connection),
            ("sec-websocket-accept", "", UpgradeError::Accept),
            ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xO0=", UpgradeError::Accept),
            ("sec-websocket-extensions", "permessage-deflate", UpgradeError::Extension),
            ("sec-websocket-protocol", "A2A", UpgradeError::Subprotocol),
            ("sec-websocket-protocol", "a2a, b", UpgradeError::Subprotocol),
        ] {
            assert_eq!(with(name, value), Err(error), "{name}: {value}");
        }
        let mut unasked = good();
        unasked.push(("sec-websocket-protocol", "a2a"));
        let refused = check_upgrade(&Fields(101, unasked), KEY, None);
        assert_eq!(refused, Err(UpgradeError::Subprotocol));
    }

    #[test]
    fn upgrade_request_has_required_fields() {
        let mut fields = FieldLinesBuf::default();
        let key = ws::client::key(u128::from_be_bytes(*b"the sample nonce"));
        upgrade_fields(&mut fields, &key, Some("a2a"));
        let expected = [
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("Sec-WebSocket-Protocol", "a2a"),
        ];
        assert_eq!(fields.get().iter().collect::<Vec<_>>(), expected);
    }
}
