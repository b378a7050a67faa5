//! Listening sockets: one per worker and address, all on one port.
//!
//! `SO_REUSEPORT` lets the workers share a port, and would let a second server share it as well, so
//! a port is first tried without it: a taken port is an error and never half of the traffic.

use std::{
    io,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
};

use socket2::{Domain, Protocol, Socket, Type};

use super::ServerError;

/// Connections that the kernel queues for a worker; `net.core.somaxconn` may cut it.
const BACKLOG: i32 = 4096;

/// The listeners of one address, one for each worker.
pub(super) struct Listeners {
    /// The address, with the port that was chosen if 0 was asked for.
    pub(super) addr: SocketAddr,
    /// One socket per worker.
    pub(super) sockets: Vec<TcpListener>,
}

/// Listens on `addr`.
pub(super) fn bind(addr: SocketAddr, workers: usize) -> Result<Listeners, ServerError> {
    let fail = |source| ServerError::Bind { addr, source };
    let probe = socket(addr, false).map_err(fail)?;
    if workers <= 1 {
        let addr = local_addr(&probe).map_err(fail)?;
        return Ok(Listeners { addr, sockets: vec![probe.into()] });
    }
    drop(probe);
    let mut listeners = Listeners { addr, sockets: Vec::with_capacity(workers) };
    for _ in 0..workers {
        let socket = socket(listeners.addr, true).map_err(fail)?;
        // Port 0: the first socket finds a port, the others follow it.
        listeners.addr = local_addr(&socket).map_err(fail)?;
        listeners.sockets.push(socket.into());
    }
    Ok(listeners)
}

/// The socket address that `text` names, such as `127.0.0.1:3000`, `[::1]:0`, `localhost:80`: IP
/// address or host name, and port.
///
/// # Errors
/// [`ServerError::Address`].
pub(super) fn resolve(text: &str) -> Result<SocketAddr, ServerError> {
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| ServerError::Address(text.to_owned()))
}

fn socket(addr: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Connections of an earlier server in TIME_WAIT do not keep its port; a listener does.
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        // Each address is what it says: `[::]` takes no IPv4.
        socket.set_only_v6(true)?;
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn local_addr(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_a_port_that_nobody_else_gets() {
        let first = bind("127.0.0.1:0".parse().unwrap(), 3).unwrap();
        assert!(first.addr.port() != 0 && first.sockets.len() == 3);
        for socket in &first.sockets {
            assert_eq!(socket.local_addr().unwrap(), first.addr);
        }
        for workers in [1, 2] {
            let second = bind(first.addr, workers);
            assert!(matches!(second, Err(ServerError::Bind { .. })));
        }
    }

    #[test]
    fn an_address_must_name_host_and_port() {
        for text in ["", "3000", "127.0.0.1", "127.0.0.1:99999", "[::1:80"] {
            assert!(matches!(resolve(text), Err(ServerError::Address(_))), "{text}");
        }
    }
}
