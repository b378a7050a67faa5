//! Recognises the addresses of this host.
//!
//! Invariant: the system is queried at the time of the connection, since addresses change, and no
//! packet is sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Addresses of documentation (RFC 5737, RFC 3849), which no host has.
const UNASSIGNED_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const UNASSIGNED_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

/// An arbitrary port, because nothing is sent.
const DISCARD: u16 = 9;

/// Whether an address belongs to this host.
pub(super) fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    // Linux also treats the unspecified address as this host.
    if address.is_loopback() || address.is_unspecified() {
        return true;
    }
    let unassigned = if address.is_ipv4() { UNASSIGNED_V4 } else { UNASSIGNED_V6 };
    // Some hosts can bind foreign addresses (ip_nonlocal_bind): there, a successful bind proves
    // nothing. The first test does not find a second address of the same network.
    is_reached_from_itself(address) || can_bind(address) && !can_bind(unassigned)
}

/// Whether a socket that is connected to the address has the same local address.
fn is_reached_from_itself(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, DISCARD))?;
        socket.local_addr()
    });
    local.is_ok_and(|local| local.ip() == address)
}

fn can_bind(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_host_and_the_internet_is_not() {
        for own in ["127.0.0.1", "127.8.8.8", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"] {
            assert!(is_own(own.parse().unwrap()), "{own}");
        }
        for other in ["8.8.8.8", "192.0.2.1", "2606:4700::1111", "2001:db8::1"] {
            assert!(!is_own(other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn local_address_of_default_route_is_own() {
        let Ok(socket) = UdpSocket::bind("0.0.0.0:0") else { return };
        // A host without a network has no route.
        if socket.connect("8.8.8.8:9").is_ok() {
            assert!(is_own(socket.local_addr().unwrap().ip()));
        }
    }
}
