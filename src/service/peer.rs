//! The other side of a connection: what its transport knows of it, and its address.

use std::{fmt, net::IpAddr, sync::Arc};

use super::Grant;

/// What a certificate says beside its owner's name, and what it was verified by.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    /// The name of who has issued it, as RFC 4514 writes it.
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
    /// The address of the other side.
    pub remote: Remote<'a>,
}

/// Whoever can tell the address of the other side of a connection.
pub trait AddressSource {
    /// The address; one of IPv4 is told as such. `None`: it is gone, or has none.
    fn address(&self) -> Option<IpAddr>;
}

/// The address of the other side of a connection: known, or known to the system, which a request
/// seldom has to ask.
#[derive(Clone, Copy, Default)]
pub enum Remote<'a> {
    /// Nobody knows it.
    #[default]
    Unknown,
    /// It is this one.
    Known(IpAddr),
    /// The transport can tell.
    Asked(&'a (dyn AddressSource + Sync)),
}

impl Remote<'_> {
    /// The address.
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Remote::Unknown => None,
            Remote::Known(address) => Some(address),
            Remote::Asked(source) => source.address(),
        }
    }
}

impl fmt::Debug for Remote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}
