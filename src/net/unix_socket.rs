//! A socket that has a path, on which a server listens: `unix:PATH`. The user of the process alone
//! may connect to it.

use std::{
    io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

use super::error::ServerError;

/// How an address begins that is the path of a socket.
const SCHEME: &str = "unix:";

/// A socket that listens, and is not served yet.
pub(super) struct UnixSocket {
    socket: std::os::unix::net::UnixListener,
    file: SocketFile,
}

/// The file of a socket, which goes with it.
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether an address is the path of a socket.
pub(super) fn is_path(address: &str) -> bool {
    address.starts_with(SCHEME)
}

impl UnixSocket {
    /// Says what [`UnixSocket::listen`] would refuse whatever else runs on this machine.
    ///
    /// # Errors
    /// [`ServerError::UnixSocket`]: the path is none, or its folder is not there.
    pub(super) fn check(address: &str) -> Result<(), ServerError> {
        let check = |path: &Path| {
            SockAddr::unix(path)?;
            match path.parent() {
                Some(folder) if folder == Path::new("") => std::fs::read_dir("."),
                Some(folder) => std::fs::read_dir(folder),
                None => Err(io::ErrorKind::InvalidFilename.into()),
            }
        };
        with_path(address, |path| check(path).map(drop))
    }

    /// Listens at a path. A socket without a listener was left by a server that had no time to
    /// remove it, and is replaced.
    ///
    /// # Errors
    /// [`ServerError::UnixSocket`], also where another process listens there.
    pub(super) fn listen(address: &str) -> Result<UnixSocket, ServerError> {
        with_path(address, |path| {
            let at = SockAddr::unix(path)?;
            let file = std::fs::symlink_metadata(path);
            let is_socket = file.is_ok_and(|file| file.file_type().is_socket());
            if is_socket && Socket::new(Domain::UNIX, Type::STREAM, None)?.connect(&at).is_err() {
                std::fs::remove_file(path)?;
            }
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.bind(&at)?;
            let file = SocketFile(path.to_owned());
            // Until it listens no client can connect, so there is no moment in which others could.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            socket.set_nonblocking(true)?;
            socket.listen(128)?;
            Ok(UnixSocket { socket: socket.into(), file })
        })
    }

    /// The same, within a runtime. The file goes with the second.
    ///
    /// # Errors
    /// When the system does not take it.
    pub(super) fn into_listener(self) -> io::Result<(UnixListener, SocketFile)> {
        Ok((UnixListener::from_std(self.socket)?, self.file))
    }
}

fn with_path<T>(address: &str, use_it: impl Fn(&Path) -> io::Result<T>) -> Result<T, ServerError> {
    let path = address.strip_prefix(SCHEME).unwrap_or(address);
    use_it(Path::new(path))
        .map_err(|source| ServerError::UnixSocket { address: address.to_owned(), source })
}
