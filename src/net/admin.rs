//! The listener for the operator: health, readiness and metrics, and no agent.
//!
//! Its connections are no callers': they do not count among `connections_max`, so that a server
//! that is full can still be asked why, and no drain waits for them; it is there until the drain is
//! over. A listener that other machines reach speaks TLS where the server does; one of loopback,
//! or a unix socket, does not.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use super::{
    bind::{self, resolve},
    drive::Drive,
    error::ServerError,
    local_addr::LocalAddr,
    worker_state::{ConnectionPermit, WorkerState},
};

/// How an address begins that is the path of a socket.
pub(super) const UNIX: &str = "unix:";

/// How long accepting pauses when the system has no more to give.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens, and is not served yet.
pub(super) enum AdminSocket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

/// The file of a socket, which goes with it.
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Says what [`listen`] would refuse whatever else runs on this machine.
///
/// # Errors
/// [`ServerError::Address`], [`ServerError::Admin`]: the path of the socket is none, or its folder
/// is not there.
pub(super) fn check(text: &str) -> Result<(), ServerError> {
    let Some(path) = text.strip_prefix(UNIX) else { return resolve(text).map(drop) };
    let fail = |source| ServerError::Admin { address: text.to_owned(), source };
    SockAddr::unix(path).map_err(fail)?;
    let folder = match Path::new(path).parent() {
        Some(folder) if folder == Path::new("") => Path::new("."),
        Some(folder) => folder,
        None => return Err(fail(io::ErrorKind::InvalidFilename.into())),
    };
    std::fs::read_dir(folder).map(drop).map_err(fail)
}

/// Listens on an address and a port, or on `unix:PATH`; also says where that is.
///
/// # Errors
/// [`ServerError::Address`], [`ServerError::Bind`], [`ServerError::Admin`].
pub(super) fn listen(
    text: &str,
    stall_ms: u64,
    has_tls: bool,
) -> Result<(AdminSocket, String), ServerError> {
    if text.starts_with(UNIX) {
        return Ok((listen_unix(text)?, text.to_owned()));
    }
    let addr: SocketAddr = resolve(text)?;
    let mut listeners = bind::bind(addr, 1, stall_ms)?;
    let scheme = if has_tls && !listeners.addr.ip().is_loopback() { "https" } else { "http" };
    let at = format!("{scheme}://{}", listeners.addr);
    Ok((AdminSocket::Tcp(listeners.sockets.remove(0)), at))
}

/// Listens on `unix:PATH`.
///
/// # Errors
/// [`ServerError::Admin`], also where another process listens there.
pub(super) fn listen_unix(text: &str) -> Result<AdminSocket, ServerError> {
    let path = text.strip_prefix(UNIX).unwrap_or(text);
    let fail = |source| ServerError::Admin { address: text.to_owned(), source };
    unix(PathBuf::from(path)).map_err(fail)
}

/// A socket that only the user of this process may connect to. Until it listens no client can,
/// so there is no moment in which others could.
fn unix(path: PathBuf) -> io::Result<AdminSocket> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let address = SockAddr::unix(&path)?;
    let is_socket = std::fs::symlink_metadata(&path).is_ok_and(|file| file.file_type().is_socket());
    // One without a listener was left by a server that had no time to remove it.
    if is_socket && Socket::new(Domain::UNIX, Type::STREAM, None)?.connect(&address).is_err() {
        std::fs::remove_file(&path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&address)?;
    let file = SocketFile(path);
    std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o600))?;
    socket.set_nonblocking(true)?;
    socket.listen(128)?;
    Ok(AdminSocket::Unix(socket.into(), file))
}

/// The same, within a runtime.
pub(super) enum AdminListener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl AdminListener {
    /// Must be called within a runtime.
    ///
    /// # Errors
    /// When the system does not take it.
    pub(super) fn new(socket: AdminSocket) -> io::Result<AdminListener> {
        Ok(match socket {
            AdminSocket::Tcp(socket) => AdminListener::Tcp(TcpListener::from_std(socket)?),
            AdminSocket::Unix(socket, file) => {
                AdminListener::Unix(UnixListener::from_std(socket)?, file)
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
                // A socket that refuses the option is closed already.
                let _ = stream.set_nodelay(true);
                let local_addr = local.local_addrs.place(local_addr.accepted(&stream, true));
                match tls {
                    Some(tls) => tls.serve(stream, permit, local_addr),
                    None => drop(tokio::task::spawn_local(Drive::new(stream, permit, local_addr))),
                }
            }
        }
        AdminListener::Unix(listener, _file) => {
            let local_addr = local.local_addrs.place(LocalAddr::of_machine().of_admin());
            loop {
                let accepted = listener.accept().await.map(|(stream, _)| (stream, None));
                let Some((stream, permit)) = admit(accepted, &local).await else { continue };
                tokio::task::spawn_local(Drive::new(stream, permit, local_addr));
            }
        }
    }
}

/// A connection with its place, if it is one and there is a place.
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
