//! Listening sockets: one per worker and address, all on one port.
//!
//! `SO_REUSEPORT` lets the workers share a port, but would also let a second server share it. So
//! the port is first bound without this option: a port in use is an error, and the two servers
//! never share the connections.
//!
//! Sockets that the caller has bound keep the caller's options, except those of the next paragraph.
//!
//! The kernel's send buffer does not count towards our limits, so it is small here, and the kernel
//! frees it when the peer does not read: connections inherit both options from their listener.

#[cfg(target_os = "linux")]
use std::time::Duration;
use std::{
    io,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::ServerError;

/// Unsent bytes that the kernel queues for a peer whose receive window is full. The default is
/// megabytes, which costs more time than anything else when thousands of peers do not read.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 64 * 1024;

/// Connections that the kernel queues for a worker; `net.core.somaxconn` may lower it.
const BACKLOG: i32 = 4096;

/// The listeners of one address, at least one for each worker.
pub(super) struct Listeners {
    /// The address, with the port that the system chose for port 0.
    pub(super) addr: SocketAddr,
    /// The sockets, distributed to the workers round robin.
    pub(super) sockets: Vec<TcpListener>,
}

/// Listens on `addr`; the kernel also ends connections of peers that read nothing for `stall_ms`.
pub(super) fn bind(
    addr: SocketAddr,
    workers: usize,
    stall_ms: u64,
) -> Result<Listeners, ServerError> {
    let fail = |source| ServerError::Bind { addr, source };
    let probe = socket(addr, false, stall_ms).map_err(fail)?;
    if workers <= 1 {
        let addr = local_addr(&probe).map_err(fail)?;
        return Ok(Listeners { addr, sockets: vec![probe.into()] });
    }
    drop(probe);
    let mut listeners = Listeners { addr, sockets: Vec::with_capacity(workers) };
    for _ in 0..workers {
        let socket = socket(listeners.addr, true, stall_ms).map_err(fail)?;
        // Port 0: the first socket finds a port, the others use the same port.
        listeners.addr = local_addr(&socket).map_err(fail)?;
        listeners.sockets.push(socket.into());
    }
    Ok(listeners)
}

/// Listens on bound sockets. Each address gets at least one socket for each worker: if there are
/// fewer sockets, workers share them through duplicates.
pub(super) fn take_over(
    bound: Vec<TcpListener>,
    workers: usize,
    stall_ms: u64,
) -> io::Result<Vec<Listeners>> {
    let mut all: Vec<Listeners> = Vec::new();
    for socket in bound {
        socket.set_nonblocking(true)?;
        bound_queue(SockRef::from(&socket), stall_ms)?;
        SockRef::from(&socket).listen(BACKLOG)?;
        let addr = socket.local_addr()?;
        match all.iter_mut().find(|listeners| listeners.addr == addr) {
            Some(listeners) => listeners.sockets.push(socket),
            None => all.push(Listeners { addr, sockets: vec![socket] }),
        }
    }
    for Listeners { sockets, .. } in &mut all {
        let count = sockets.len();
        for index in count..workers {
            sockets.push(sockets[index % count].try_clone()?);
        }
    }
    Ok(all)
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

fn socket(addr: SocketAddr, reuse_port: bool, stall_ms: u64) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // An earlier server's connections in TIME_WAIT do not block the port; a listener does.
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        // IPv6 sockets accept no IPv4 connections: `[::]` is IPv6 only.
        socket.set_only_v6(true)?;
    }
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    bound_queue(SockRef::from(&socket), stall_ms)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn bound_queue(socket: SockRef<'_>, stall_ms: u64) -> io::Result<()> {
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    // Also applies after we have closed the connection, while the kernel still sends our output.
    let stall_ms = stall_ms.min(i32::MAX as u64);
    socket.set_tcp_user_timeout(Some(Duration::from_millis(stall_ms)))
}

#[cfg(not(target_os = "linux"))]
fn bound_queue(_: SockRef<'_>, _: u64) -> io::Result<()> {
    Ok(())
}

fn local_addr(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_a_port_and_a_second_bind_fails() {
        let first = bind("127.0.0.1:0".parse().unwrap(), 3, 30_000).unwrap();
        assert!(first.addr.port() != 0 && first.sockets.len() == 3);
        for socket in &first.sockets {
            assert_eq!(socket.local_addr().unwrap(), first.addr);
        }
        for workers in [1, 2] {
            let second = bind(first.addr, workers, 30_000);
            assert!(matches!(second, Err(ServerError::Bind { .. })));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn accepted_sockets_inherit_notsent_lowat_and_user_timeout() {
        for (stall_ms, timeout_ms) in [(7_000, 7_000), (u64::MAX, i32::MAX as u64)] {
            let listeners = bind("127.0.0.1:0".parse().unwrap(), 1, stall_ms).unwrap();
            let _client = std::net::TcpStream::connect(listeners.addr).unwrap();
            let socket = &listeners.sockets[0];
            socket.set_nonblocking(false).unwrap();
            let (accepted, _) = socket.accept().unwrap();
            let accepted = SockRef::from(&accepted);
            assert_eq!(accepted.tcp_notsent_lowat().unwrap(), UNSENT_BYTES);
            let timeout = accepted.tcp_user_timeout().unwrap();
            assert_eq!(timeout, Some(Duration::from_millis(timeout_ms)));
        }
    }

    #[test]
    fn an_address_must_name_host_and_port() {
        for text in ["", "3000", "127.0.0.1", "127.0.0.1:99999", "[::1:80"] {
            assert!(matches!(resolve(text), Err(ServerError::Address(_))), "{text}");
        }
    }
}
