//! The peer of a connection, as the transport knows it.

use std::{net::IpAddr, sync::Arc};

use super::Grant;

/// The fields of a client certificate, except the name of its owner, and its authorities.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    /// The name of the issuer, in the format of RFC 4514.
    pub issuer: Box<str>,
    /// When the certificate expires, in ms since the Unix epoch.
    pub ends_unix_ms: u64,
    /// The grant of the authorities of its chain: withdrawn when they are no longer trusted.
    pub authorities: Arc<Grant>,
}

/// The facts about a connection that its transport knows before any request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer<'a> {
    /// True: the connection is encrypted, and URLs for this peer begin with `https`.
    pub is_secure: bool,
    /// The name in the peer's verified certificate; `None`: no certificate.
    pub identity: Option<&'a str>,
    /// The other fields of that certificate.
    pub certificate: Option<&'a PeerCertificate>,
    /// The local address of the connection, at which the peer reached the server; `None`: unknown.
    pub local: Option<IpAddr>,
    /// True: the listener is reachable only from this machine, and accepts known hosts only, see
    /// `docs/guide/proxy.md`.
    pub is_loopback: bool,
    /// True: the listener serves only the pages about the server, not agents; it accepts known
    /// hosts and IP addresses.
    pub is_admin: bool,
    /// The address of the peer; `None`: unknown.
    pub remote: Option<IpAddr>,
}
