//! A listening socket with a path: `unix:PATH`. Only the user of the process may connect to it.

use std::{
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

use super::error::ServerError;

/// The prefix of an address that is the path of a socket.
const SCHEME: &str = "unix:";

/// A socket that listens, and is not served yet.
pub(super) struct UnixSocket {
    socket: std::os::unix::net::UnixListener,
    file: SocketFile,
}

/// The file of a socket; dropping it removes the file.
pub(super) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have replaced the file, and listen there.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether an address is the path of a socket.
pub(super) fn is_path(address: &str) -> bool {
    address.starts_with(SCHEME)
}

impl UnixSocket {
    /// Returns the errors of [`UnixSocket::listen`] that do not depend on the state of this
    /// machine.
    ///
    /// # Errors
    /// [`ServerError::UnixSocket`]: the path is empty or invalid, its folder does not exist, or it
    /// is another kind of file.
    pub(super) fn check(address: &str) -> Result<(), ServerError> {
        let check = |path: &Path| {
            SockAddr::unix(path)?;
            match path.parent() {
                Some(folder) if folder == Path::new("") => std::fs::read_dir("."),
                Some(folder) => std::fs::read_dir(folder),
                None => Err(io::ErrorKind::InvalidFilename.into()),
            }?;
            is_socket(path).map(drop)
        };
        with_path(address, check)
    }

    /// Listens at a path. A socket file without a listener was left by a server that had no time to
    /// remove it, and is replaced.
    ///
    /// # Errors
    /// [`ServerError::UnixSocket`], also if another process listens there.
    pub(super) fn listen(address: &str) -> Result<UnixSocket, ServerError> {
        with_path(address, |path| {
            let at = SockAddr::unix(path)?;
            if is_socket(path)? {
                let client = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                // A listener with a full backlog does not block the start.
                client.set_nonblocking(true)?;
                // No other error proves that there is no listener: a socket of another user refuses
                // the connection, and so does a socket for datagrams.
                match client.connect(&at) {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        std::fs::remove_file(path)?;
                    }
                    Ok(()) | Err(_) => return Err(io::ErrorKind::AddrInUse.into()),
                }
            }
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.bind(&at)?;
            let inode = std::fs::symlink_metadata(path)?.ino();
            let file = SocketFile { path: path.to_owned(), inode };
            // No client can connect before it listens, so other users never can.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            socket.set_nonblocking(true)?;
            socket.listen(128)?;
            Ok(UnixSocket { socket: socket.into(), file })
        })
    }

    /// Registers the socket with the runtime. Dropping the second result removes the file.
    ///
    /// # Errors
    /// The system does not register it.
    pub(super) fn into_listener(self) -> io::Result<(UnixListener, SocketFile)> {
        Ok((UnixListener::from_std(self.socket)?, self.file))
    }
}

/// Whether a socket is at a path; false: no file is.
///
/// # Errors
/// Another kind of file is there, or the system does not show it.
fn is_socket(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(file) if file.file_type().is_socket() => Ok(true),
        Ok(_) => {
            let said = "a file exists there that is not a socket";
            Err(io::Error::new(io::ErrorKind::AlreadyExists, said))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn with_path<T>(address: &str, use_it: impl Fn(&Path) -> io::Result<T>) -> Result<T, ServerError> {
    let path = address.strip_prefix(SCHEME).unwrap_or(address);
    use_it(Path::new(path))
        .map_err(|source| ServerError::UnixSocket { address: address.to_owned(), source })
}
