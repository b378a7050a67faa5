//! A listening Unix socket: `unix:PATH`. Only the user of the process may connect to it.

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

/// A listening socket that is not served yet.
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
        // Another process may have replaced the file, and may listen there.
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
    /// [`ServerError::UnixSocket`]: the path is empty or invalid, its folder does not exist, or
    /// another kind of file exists there.
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

    /// Listens at a path. A socket file without a listener is replaced: its server had no time to
    /// remove the file.
    ///
    /// # Errors
    /// [`ServerError::UnixSocket`], also if another process listens there.
    pub(super) fn listen(address: &str) -> Result<UnixSocket, ServerError> {
        with_path(address, |path| {
            let at = SockAddr::unix(path)?;
            if is_socket(path)? {
                let client = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                // A listener with a full backlog must not block the start.
                client.set_nonblocking(true)?;
                // Only this error proves that there is no listener: sockets of other users, and
                // sockets for datagrams, return other errors.
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
            // No client can connect before the socket listens, so other users can never connect.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            socket.set_nonblocking(true)?;
            socket.listen(128)?;
            Ok(UnixSocket { socket: socket.into(), file })
        })
    }

    /// Registers the socket with the runtime. Dropping the second result removes the file.
    ///
    /// # Errors
    /// The system does not register the socket.
    pub(super) fn into_listener(self) -> io::Result<(UnixListener, SocketFile)> {
        Ok((UnixListener::from_std(self.socket)?, self.file))
    }
}

/// Whether a socket exists at a path; false: no file exists.
///
/// # Errors
/// Another kind of file exists there, or the system does not allow access to it.
fn is_socket(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(file) if file.file_type().is_socket() => Ok(true),
        Ok(_) => {
            let text = "a file exists there that is not a socket";
            Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
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
