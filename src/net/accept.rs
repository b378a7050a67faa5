//! Accepts connections within `connections_max` and the available file descriptors.
//!
//! At `connections_max`, a new connection takes the slot of a connection of the peer with the most
//! connections, see `peer_table`. If no connection can be ended for it, the new connection gets 503
//! and is closed; with TLS it gets no answer, which would need a handshake. When the system runs
//! out of descriptors or memory, accepting pauses: connections in the backlog are served
//! afterwards.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    rc::Rc,
    time::Duration,
};

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream, UnixListener};

use super::{
    drive::Drive,
    local_addr::LocalAddr,
    unix_socket::SocketFile,
    worker_state::{ConnectionPermit, WorkerState},
};

/// How long accepting pauses when the system is out of resources.
const PAUSE: Duration = Duration::from_millis(100);

/// The answer to a connection beyond the limit.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\
    retry-after: 1\r\nconnection: close\r\n\r\n";

/// Accepts connections until the future is dropped.
pub(super) async fn accept(listener: TcpListener, local: Rc<WorkerState>) {
    let (local_addr, _listening) = (LocalAddr::of(&listener), local.server.listens());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => admit(stream, peer.ip(), local_addr, &local),
            Err(error) if concerns_one_connection(&error) => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Accepts connections on a Unix socket until the future is dropped together with `_file`. The
/// clients run as the user of this process: they count as one peer, that of the loopback interface,
/// and use no TLS.
pub(super) async fn accept_unix(listener: UnixListener, _file: SocketFile, local: Rc<WorkerState>) {
    let (address, _listening) = (IpAddr::V4(Ipv4Addr::LOCALHOST), local.server.listens());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some(permit) = ConnectionPermit::take(&local, address) else {
                    let _ = SockRef::from(&stream).send(REFUSAL);
                    continue;
                };
                let local_addr = local.local_addrs.index_of(LocalAddr::of_machine());
                drop(tokio::task::spawn_local(Drive::new(stream, permit, local_addr)));
            }
            Err(error) if concerns_one_connection(&error) => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn admit(stream: TcpStream, address: IpAddr, local_addr: LocalAddr, local: &Rc<WorkerState>) {
    let Some(permit) = ConnectionPermit::take(local, address) else {
        if local.server.tls.is_none() {
            // Best effort: a peer that does not read the answer sees a closed connection.
            let _ = SockRef::from(&stream).send(REFUSAL);
        }
        return;
    };
    // The option fails only on a closed socket; the first read reports the close.
    let _ = stream.set_nodelay(true);
    let is_checked = local.server.engine.config.hosts.are_checked(false);
    let local_addr = local.local_addrs.index_of(local_addr.accepted(&stream, is_checked));
    match &local.server.tls {
        None => drop(tokio::task::spawn_local(Drive::new(stream, permit, local_addr))),
        Some(tls) => tls.serve(stream, permit, local_addr),
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
