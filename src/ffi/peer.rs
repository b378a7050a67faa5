//! The peer of a request or a connection, as the program describes it.

use std::net::IpAddr;

use crate::service::Peer;

use super::{
    buffers::text,
    status::{FfiFailure, PeregrineStatus},
};

/// The connection is encrypted: URLs on cards begin with `https`.
pub const PEREGRINE_SECURE: u32 = 1;
/// The listener is reachable only from this machine: requests for other host names are refused, so
/// that web pages cannot use it (`docs/guide/proxy.md`).
pub const PEREGRINE_LOOPBACK: u32 = 2;
/// A body follows the head; it may be empty.
pub const PEREGRINE_BODY: u32 = 4;
/// The answer may have trailers, as in HTTP/2; gRPC needs trailers.
pub const PEREGRINE_TRAILERS: u32 = 8;

/// The peer of a request or a connection.
pub(super) struct PeerDescription {
    pub(super) flags: u32,
    address: Option<IpAddr>,
}

impl PeerDescription {
    /// Reads a peer: its IP address as text, null with length 0 if unknown, and its flags, which
    /// must be in `allowed`.
    ///
    /// # Safety
    /// As for [`text`].
    pub unsafe fn read(
        data: *const u8,
        len: usize,
        flags: u32,
        allowed: u32,
    ) -> Result<PeerDescription, FfiFailure> {
        let wrong = |why: String| Err(FfiFailure::new(PeregrineStatus::Value, why));
        let unknown = flags & !allowed;
        if unknown != 0 {
            return wrong(format!("unknown flags: {unknown:#x}"));
        }
        if data.is_null() && len == 0 {
            return Ok(PeerDescription { flags, address: None });
        }
        // SAFETY: upheld by the caller.
        match unsafe { text(data, len) }?.parse() {
            Ok(address) => Ok(PeerDescription { flags, address: Some(address) }),
            Err(_) => wrong("the address of the peer is not an IP address".to_owned()),
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
