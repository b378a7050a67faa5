//! JSON-RPC over WebSocket: each text message is one call or batch; answers are sent when they are
//! ready, in any order.
//!
//! Messages are handled like POST bodies, and calls wait in the same way; only the framing of
//! answers differs, and a connection may have many calls in flight. The version and extensions in
//! the head of the upgrade apply to every message (A2A 1.0 §3.6).

mod handshake;
mod session;

use std::net::IpAddr;

use crate::{
    binding::{
        CallContext, Endpoint, admission::Admitted, extensions, negotiation::version_of,
        origin::Origin,
    },
    http::{Head, query},
    service::FieldSource,
};

pub use handshake::{is_origin, is_upgrade, upgrade};
pub use session::{Session, SessionCx};

/// Name and value of a header field.
type StoredField = (Box<str>, Box<[u8]>);

/// The data in the head of the upgrade, which applies to all messages.
pub struct Upgrade {
    endpoint: Endpoint,
    tenant: Option<Box<str>>,
    version: Option<Box<[u8]>>,
    extensions: Option<Box<str>>,
    path: Box<str>,
    is_secure: bool,
    host: Option<Box<[u8]>>,
    port: Option<u16>,
    prefix: Box<str>,
    event_ids: bool,
    /// Header fields that the agent's profile names.
    fields: Box<[StoredField]>,
    /// The client address, if trusted proxies forwarded it.
    forwarded: Option<IpAddr>,
    /// The caller that opened the WebSocket.
    admission: Admitted,
}

impl Upgrade {
    /// The data in the head of an upgrade request.
    fn of(cx: &CallContext<'_>, head: &Head<'_>) -> Upgrade {
        let mut pairs = query::pairs(head.query().unwrap_or_default()).filter_map(Result::ok);
        let event_ids = pairs.any(|(key, value)| key == "eventIds" && value == "1");
        let Origin { is_secure, host, port, prefix } = Origin::of(cx.config, cx.peer, head);
        Upgrade {
            endpoint: cx.endpoint,
            tenant: cx.outside_tenant.map(Into::into),
            version: version_of(head).map(Into::into),
            extensions: extensions::joined(head).map(Into::into),
            path: head.path().into(),
            is_secure,
            host: host.map(Into::into),
            port,
            prefix: prefix.into(),
            event_ids,
            fields: agent_fields(cx, head),
            forwarded: cx.forwarded_address(head),
            admission: cx.admission.clone(),
        }
    }

    /// The dialect and the agent.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The requested version.
    pub fn version_of(&self) -> Option<&[u8]> {
        self.version.as_deref()
    }

    /// The requested extensions, comma separated.
    pub fn extensions(&self) -> Option<&str> {
        self.extensions.as_deref()
    }

    /// The tenant in the path.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The path, without a trailing slash.
    pub fn base(&self) -> &str {
        self.path.strip_suffix('/').unwrap_or(&self.path)
    }

    /// The origin to which the client sent the upgrade.
    pub fn origin(&self) -> Origin<'_> {
        let (host, prefix) = (self.host.as_deref(), &*self.prefix);
        Origin { is_secure: self.is_secure, host, port: self.port, prefix }
    }

    /// True: the messages of a stream contain the numbers of their events.
    pub fn event_ids(&self) -> bool {
        self.event_ids
    }

    /// The client address, if trusted proxies forwarded it.
    pub fn forwarded(&self) -> Option<IpAddr> {
        self.forwarded
    }

    /// The caller that opened the WebSocket.
    pub fn admission(&self) -> &Admitted {
        &self.admission
    }

    /// Bytes on the heap.
    fn held_bytes(&self) -> usize {
        let version = self.version.as_ref().map_or(0, |text| text.len());
        let extensions = self.extensions.as_ref().map_or(0, |text| text.len());
        let host = self.host.as_ref().map_or(0, |text| text.len());
        let field = |(name, value): &StoredField| name.len() + value.len();
        let fields: usize = self.fields.iter().map(field).sum();
        version + extensions + host + self.prefix.len() + self.path.len() + fields
    }
}

/// The header fields that the agent sees with every message.
fn agent_fields(cx: &CallContext<'_>, head: &Head<'_>) -> Box<[StoredField]> {
    let Some(profile) = cx.service.profile(cx.endpoint.agent) else { return Box::default() };
    let values = |name: &String| -> Vec<StoredField> {
        head.values(name).map(|value| (name.as_str().into(), value.into())).collect()
    };
    profile.fields.iter().flat_map(values).collect()
}

impl FieldSource for Upgrade {
    fn each_value<'s>(&'s self, name: &str, each: &mut dyn FnMut(&'s [u8])) {
        let named = self.fields.iter().filter(|(stored, _)| stored.eq_ignore_ascii_case(name));
        named.for_each(|(_, value)| each(value));
    }

    fn address(&self) -> Option<IpAddr> {
        self.forwarded
    }
}
