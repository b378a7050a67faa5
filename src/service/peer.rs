//! The other side of a connection: what its transport knows of it, and its address.

use std::{net::IpAddr, sync::Arc};

use super::Grant;

/// What a certificate says beside its owner's name, and what it was verified by.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    /// The name of its issuer, as RFC 4514 writes it.
    pub issuer: Box<str>,
    /// When it ends, in ms since the Unix epoch.
    pub ends_unix_ms: u64,
    /// The authorities that it leads to: withdrawn when they are not believed any more.
    pub authorities: Arc<Grant>,
}

/// What a connection's transport knows of it, before its other side has said anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer<'a> {
    /// True: the connection is encrypted, and URLs made for this peer begin with `https`.
    pub is_secure: bool,
    /// The name in the certificate that the peer has proved to own; `None`: it showed none.
    pub identity: Option<&'a str>,
    /// What else that certificate says.
    pub certificate: Option<&'a PeerCertificate>,
    /// Our own address of the connection, by which the peer may call us; `None`: unknown.
    pub local: Option<IpAddr>,
    /// True: the connection came to a listener that this machine alone can reach, which answers to
    /// known hosts and no others, see `docs/guide/proxy.md`.
    pub is_loopback: bool,
    /// True: the connection came to a listener on which the pages about the server are served, and
    /// no agent; it answers to known hosts, and to addresses.
    pub is_admin: bool,
    /// The address of the other side; `None`: unknown.
    pub remote: Option<IpAddr>,
}
