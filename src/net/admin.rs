//! The listener for the operator: health, readiness and metrics, without agents.
//!
//! The connections of this listener do not count towards `connections_max`, so a full server can
//! still report its state, and a drain does not wait for them. The listener is open until the drain
//! ends. A listener that other machines can reach uses TLS if the server does; a listener on a
//! loopback address or a Unix socket does not.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use tokio::net::{TcpListener, UnixListener};

use super::{
    bind::{self, resolve},
    drive::Drive,
    error::ServerError,
    local_addr::LocalAddr,
    unix_socket::{SocketFile, UnixSocket, is_path},
    worker_state::{ConnectionPermit, WorkerState},
};

/// How long accepting pauses when the system is out of resources.
const PAUSE: Duration = Duration::from_millis(100);

/// A listening socket that is not served yet.
pub(super) enum AdminSocket {
    Tcp(std::net::TcpListener),
    Unix(UnixSocket),
}

/// Returns the errors of [`listen`] that do not depend on the state of this machine.
///
/// # Errors
/// [`ServerError::Address`], [`ServerError::UnixSocket`].
pub(super) fn check(text: &str) -> Result<(), ServerError> {
    if is_path(text) { UnixSocket::check(text) } else { resolve(text).map(drop) }
}

/// Listens on an address and a port, or on `unix:PATH`; also returns the actual address.
///
/// # Errors
/// [`ServerError::Address`], [`ServerError::Bind`], [`ServerError::UnixSocket`].
pub(super) fn listen(
    text: &str,
    stall_ms: u64,
    has_tls: bool,
) -> Result<(AdminSocket, String), ServerError> {
    if is_path(text) {
        return Ok((AdminSocket::Unix(UnixSocket::listen(text)?), text.to_owned()));
    }
    let addr: SocketAddr = resolve(text)?;
    let mut listeners = bind::bind(addr, 1, stall_ms)?;
    let scheme = if has_tls && !listeners.addr.ip().is_loopback() { "https" } else { "http" };
    let at = format!("{scheme}://{}", listeners.addr);
    Ok((AdminSocket::Tcp(listeners.sockets.remove(0)), at))
}

/// An [`AdminSocket`] within a runtime.
pub(super) enum AdminListener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl AdminListener {
    /// Must be called within a runtime.
    ///
    /// # Errors
    /// The system does not register the socket.
    pub(super) fn new(socket: AdminSocket) -> io::Result<AdminListener> {
        Ok(match socket {
            AdminSocket::Tcp(socket) => AdminListener::Tcp(TcpListener::from_std(socket)?),
            AdminSocket::Unix(socket) => {
                let (listener, file) = socket.into_listener()?;
                AdminListener::Unix(listener, file)
            }
        })
    }
}

/// Accepts until the worker ends.
pub(super) async fn accept(listener: AdminListener, local: Rc<WorkerState>) {
    match listener {
        AdminListener::Tcp(listener) => {
            let local_addr = LocalAddr::of(&listener).of_admin();
            let tls = local.server.tls.as_ref().filter(|_| !local_addr.is_loopback());
            loop {
                let accepted = listener.accept().await;
                let accepted = accepted.map(|(stream, peer)| (stream, Some(peer.ip())));
                let Some((stream, permit)) = admit(accepted, &local).await else { continue };
                // The option fails only on a closed socket.
                let _ = stream.set_nodelay(true);
                let local_addr = local.local_addrs.index_of(local_addr.accepted(&stream, true));
                match tls {
                    Some(tls) => tls.serve(stream, permit, local_addr),
                    None => drop(tokio::task::spawn_local(Drive::new(stream, permit, local_addr))),
                }
            }
        }
        AdminListener::Unix(listener, _file) => {
            let local_addr = local.local_addrs.index_of(LocalAddr::of_machine().of_admin());
            loop {
                let accepted = listener.accept().await.map(|(stream, _)| (stream, None));
                let Some((stream, permit)) = admit(accepted, &local).await else { continue };
                tokio::task::spawn_local(Drive::new(stream, permit, local_addr));
            }
        }
    }
}

/// Returns a connection with its permit; `None`: accepting failed, or no permit is free.
async fn admit<S>(
    accepted: io::Result<(S, Option<IpAddr>)>,
    local: &Rc<WorkerState>,
) -> Option<(S, ConnectionPermit)> {
    match accepted {
        Ok((stream, remote)) => {
            ConnectionPermit::take_admin(local, remote).map(|permit| (stream, permit))
        }
        Err(_) => {
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}
