//! JSON-RPC over WebSocket: one call or batch a text message, answered as they finish.
//!
//! The messages go the way of the bodies of POST, and what waits is kept as there; only the frame
//! around an answer differs, and that one connection holds many of them at once. What
//! the head of the upgrade said holds for every message (A2A 1.0 §3.6).

mod handshake;
mod session;

use crate::{
    binding::{CallContext, Endpoint, extensions, negotiation::version_of, origin::Origin},
    http::{Head, query},
};

pub use handshake::{is_origin, is_upgrade, upgrade};
pub use session::Session;

/// How a WebSocket was opened: what is beside its messages.
pub struct Upgrade {
    endpoint: Endpoint,
    asked: Option<Box<[u8]>>,
    extensions: Option<Box<str>>,
    path: Box<str>,
    is_secure: bool,
    host: Option<Box<[u8]>>,
    prefix: Box<str>,
    event_ids: bool,
}

impl Upgrade {
    /// What the request that asks for an upgrade says.
    fn of(cx: &CallContext<'_>, head: &Head<'_>) -> Upgrade {
        let mut pairs = query::pairs(head.query().unwrap_or_default()).filter_map(Result::ok);
        let event_ids = pairs.any(|(key, value)| key == "eventIds" && value == "1");
        let Origin { is_secure, host, prefix } = Origin::of(cx.config, cx.peer, head);
        Upgrade {
            endpoint: cx.endpoint,
            asked: version_of(head).map(Into::into),
            extensions: extensions::joined(head).map(Into::into),
            path: head.path().into(),
            is_secure,
            host: host.map(Into::into),
            prefix: prefix.into(),
            event_ids,
        }
    }

    /// Who speaks and who answers.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The version that was asked for.
    pub fn version_of(&self) -> Option<&[u8]> {
        self.asked.as_deref()
    }

    /// The extensions that were asked for, comma separated.
    pub fn extensions(&self) -> Option<&str> {
        self.extensions.as_deref()
    }

    /// The path, without a slash at its end.
    pub fn base(&self) -> &str {
        self.path.strip_suffix('/').unwrap_or(&self.path)
    }

    /// Where the client asked.
    pub fn origin(&self) -> Origin<'_> {
        let (host, prefix) = (self.host.as_deref(), &*self.prefix);
        Origin { is_secure: self.is_secure, host, prefix }
    }

    /// True: the messages of a stream name the numbers of their events.
    pub fn event_ids(&self) -> bool {
        self.event_ids
    }

    /// Bytes behind pointers.
    fn held_bytes(&self) -> usize {
        let asked = self.asked.as_ref().map_or(0, |text| text.len());
        let extensions = self.extensions.as_ref().map_or(0, |text| text.len());
        let host = self.host.as_ref().map_or(0, |text| text.len());
        asked + extensions + host + self.prefix.len() + self.path.len()
    }
}
