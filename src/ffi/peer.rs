//! The peer of a request or a connection, as the program describes it.

use std::net::IpAddr;

use crate::service::Peer;

use super::{
    buffers::text,
    status::{FfiFailure, PeregrineStatus},
};

/// The connection is encrypted: URLs on cards begin with `https`.
pub const PEREGRINE_SECURE: u32 = 1;
/// The listener can be reached from this machine alone: requests that name other hosts are refused,
/// so that no web page reaches it (`docs/guide/proxy.md`).
pub const PEREGRINE_LOOPBACK: u32 = 2;
/// A body follows, and be it empty.
pub const PEREGRINE_BODY: u32 = 4;
/// The answer may have trailers, as in HTTP/2: gRPC needs them.
pub const PEREGRINE_TRAILERS: u32 = 8;

/// The peer.
pub(super) struct PeerDescription {
    pub(super) flags: u32,
    address: Option<IpAddr>,
}

impl PeerDescription {
    /// A peer with this IP address as text; null or empty: unknown. Only the flags in `allowed` may
    /// be set.
    ///
    /// # Safety
    /// As for [`text`].
    pub unsafe fn read(
        data: *const u8,
        len: usize,
        flags: u32,
        allowed: u32,
    ) -> Result<PeerDescription, FfiFailure> {
        let wrong = |why| Err(FfiFailure::new(PeregrineStatus::Value, why));
        if flags & !allowed != 0 {
            return wrong("there is no such flag");
        }
        if data.is_null() && len == 0 {
            return Ok(PeerDescription { flags, address: None });
        }
        // SAFETY: as this function demands.
        match unsafe { text(data, len) }?.parse() {
            Ok(address) => Ok(PeerDescription { flags, address: Some(address) }),
            Err(_) => wrong("the address of the peer is no IP address"),
        }
    }

    /// The peer in the engine's type.
    pub fn peer(&self) -> Peer<'_> {
        Peer {
            is_secure: self.flags & PEREGRINE_SECURE != 0,
            is_loopback: self.flags & PEREGRINE_LOOPBACK != 0,
            remote: self.address,
            ..Peer::default()
        }
    }
}
