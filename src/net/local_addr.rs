//! The local addresses of connections, and their listeners.
//!
//! A connection does not store an address. It stores an index into a list of its worker, which is
//! short: a machine has few addresses.

use std::{cell::RefCell, net::IpAddr};

use tokio::net::{TcpListener, TcpStream};

use crate::service::Peer;

/// The local address of a connection, and whether a loopback or an admin listener accepted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LocalAddr {
    local: Option<IpAddr>,
    is_loopback: bool,
    is_admin: bool,
}

impl LocalAddr {
    /// Our side of connections of this listener; an unspecified address counts as no address.
    pub(super) fn of(listener: &TcpListener) -> LocalAddr {
        // If its address is unknown, the listener does not count as a loopback listener.
        let bound = listener.local_addr().ok().map(|addr| addr.ip().to_canonical());
        let is_loopback = bound.is_some_and(|address| address.is_loopback());
        let local = bound.filter(|address| !address.is_unspecified());
        LocalAddr { local, is_loopback, is_admin: false }
    }

    /// The local address of a Unix socket, which only this machine can reach.
    pub(super) fn of_machine() -> LocalAddr {
        LocalAddr { local: None, is_loopback: true, is_admin: false }
    }

    /// Whether the listener has a loopback address, or is a Unix socket.
    pub(super) fn is_loopback(self) -> bool {
        self.is_loopback
    }

    /// Whether the listener is for the operator.
    #[cfg(feature = "tls")]
    pub(super) fn is_admin(self) -> bool {
        self.is_admin
    }

    /// The same address, of a listener for the operator.
    pub(super) fn of_admin(self) -> LocalAddr {
        LocalAddr { is_admin: true, ..self }
    }

    /// Our side of one connection; the address is read from the socket only if it can matter.
    pub(super) fn accepted(self, stream: &TcpStream, is_checked: bool) -> LocalAddr {
        if self.local.is_some() || !is_checked {
            return self;
        }
        LocalAddr { local: stream.local_addr().ok().map(|addr| addr.ip().to_canonical()), ..self }
    }

    /// Adds this address to the engine's description of a connection.
    #[inline]
    pub(super) fn add_to<'a>(self, peer: Peer<'a>) -> Peer<'a> {
        let LocalAddr { local, is_loopback, is_admin } = self;
        Peer { local, is_loopback, is_admin, ..peer }
    }
}

/// The addresses of a worker. The first four entries have no address: they are for connections
/// whose address does not fit into the list.
pub(super) struct LocalAddrs(RefCell<Vec<LocalAddr>>);

impl Default for LocalAddrs {
    fn default() -> LocalAddrs {
        let unknown = |(is_loopback, is_admin)| LocalAddr { local: None, is_loopback, is_admin };
        LocalAddrs(RefCell::new(
            [(false, false), (true, false), (false, true), (true, true)].map(unknown).to_vec(),
        ))
    }
}

impl LocalAddrs {
    /// The index of this address, which is added if it is new.
    pub(super) fn index_of(&self, local_addr: LocalAddr) -> u8 {
        let mut all = self.0.borrow_mut();
        let found = all.iter().position(|existing| *existing == local_addr);
        let index = u8::try_from(found.unwrap_or(all.len()));
        if found.is_none() && index.is_ok() {
            all.push(local_addr);
        }
        let unknown = u8::from(local_addr.is_loopback) + 2 * u8::from(local_addr.is_admin);
        index.unwrap_or(unknown)
    }

    /// The address at this index.
    #[inline]
    pub(super) fn at(&self, index: u8) -> LocalAddr {
        self.0.borrow().get(usize::from(index)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addr_index_is_stable_and_excess_addrs_are_unknown() {
        let local_addrs = LocalAddrs::default();
        let local_addr = |number: u32| LocalAddr {
            local: Some(IpAddr::from(number.to_be_bytes())),
            is_loopback: number % 2 == 1,
            is_admin: false,
        };
        for _ in 0..2 {
            for number in 0..300 {
                let stored = local_addrs.at(local_addrs.index_of(local_addr(number)));
                let local = local_addr(number).local.filter(|_| number < 252);
                assert_eq!(stored, LocalAddr { local, ..local_addr(number) });
            }
        }
    }
}
