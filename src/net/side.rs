//! Our side of connections: the address at which each came in, and what listened there.
//!
//! A connection has no room for an address. It keeps the place of one in a list of its worker's,
//! which is short: a machine has few addresses.

use std::{cell::RefCell, net::IpAddr};

use tokio::net::{TcpListener, TcpStream};

use crate::service::Peer;

/// Our side of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Side {
    local: Option<IpAddr>,
    is_loopback: bool,
}

impl Side {
    /// Our side of what this listener accepts; an address that stands for all is none.
    pub(super) fn of(listener: &TcpListener) -> Side {
        // Without an address nothing is known of it, and nothing is let in by it.
        let bound = listener.local_addr().ok().map(|addr| addr.ip().to_canonical());
        let is_loopback = bound.is_some_and(|address| address.is_loopback());
        Side { local: bound.filter(|address| !address.is_unspecified()), is_loopback }
    }

    /// Our side of one connection; its address is asked for where that can matter.
    pub(super) fn accepted(self, stream: &TcpStream, is_checked: bool) -> Side {
        if self.local.is_some() || !is_checked {
            return self;
        }
        Side { local: stream.local_addr().ok().map(|addr| addr.ip().to_canonical()), ..self }
    }

    /// What the engine is told of a connection.
    #[inline]
    pub(super) fn known_to<'a>(self, peer: Peer<'a>) -> Peer<'a> {
        Peer { local: self.local, is_loopback: self.is_loopback, ..peer }
    }
}

/// The list of a worker. Its first two places know no address: that of a connection whose address
/// found no room.
pub(super) struct Sides(RefCell<Vec<Side>>);

impl Default for Sides {
    fn default() -> Sides {
        let unknown = |is_loopback| Side { local: None, is_loopback };
        Sides(RefCell::new([false, true].map(unknown).to_vec()))
    }
}

impl Sides {
    /// The place of this one.
    pub(super) fn place(&self, side: Side) -> u8 {
        let mut all = self.0.borrow_mut();
        let found = all.iter().position(|known| *known == side);
        let place = u8::try_from(found.unwrap_or(all.len()));
        if found.is_none() && place.is_ok() {
            all.push(side);
        }
        place.unwrap_or(u8::from(side.is_loopback))
    }

    /// What has this place.
    #[inline]
    pub(super) fn at(&self, place: u8) -> Side {
        self.0.borrow().get(usize::from(place)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_place_and_too_many_are_unknown() {
        let sides = Sides::default();
        let side = |number: u32| Side {
            local: Some(IpAddr::from(number.to_be_bytes())),
            is_loopback: number % 2 == 1,
        };
        for _ in 0..2 {
            for number in 0..300 {
                let known = sides.at(sides.place(side(number)));
                let local = side(number).local.filter(|_| number < 254);
                assert_eq!(known, Side { local, ..side(number) });
            }
        }
    }
}
