//! Why a server does not start: one line for its operator.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use crate::{engine::BuildError, limits::TooLittleMemory};

/// Why a server did not start. `Debug` is the same as `Display`, so that `main` can return it.
pub enum ServerError {
    /// Not an address and a port.
    Address(String),
    /// The address cannot be listened on.
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A socket with a path cannot be listened on.
    UnixSocket {
        /// `unix:PATH`, as configured.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file of certificates or keys cannot be used.
    Tls {
        /// The file.
        file: PathBuf,
        /// Why, in one line.
        reason: String,
    },
    /// Other machines reach the address, and this was not allowed: see
    /// [`Server::allow_anonymous`](super::Server::allow_anonymous).
    Public(String),
    /// The setup contradicts itself.
    Build(BuildError),
    /// The memory of [`Server::memory`](super::Server::memory) is not enough.
    Memory(TooLittleMemory),
    /// The collector of traces cannot be reached by a client of this machine.
    #[cfg(feature = "otlp")]
    Traces(super::HttpClientError),
    /// The system gives no thread, event queue or randomness.
    System(io::Error),
}

impl From<BuildError> for ServerError {
    fn from(error: BuildError) -> ServerError {
        ServerError::Build(error)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Address(text) => {
                write!(
                    f,
                    "cannot listen on {text:?}: not an address and a port, such as 127.0.0.1:3000"
                )
            }
            ServerError::Bind { addr, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "cannot listen on {addr}: the port is in use; choose another with --listen \
                     (Server::listen)"
                )
            }
            ServerError::Bind { addr, source } => write!(f, "cannot listen on {addr}: {source}"),
            ServerError::UnixSocket { address, source } => {
                write!(f, "cannot listen on {address}: {source}")
            }
            ServerError::Tls { file, reason } => {
                write!(f, "cannot use {}: {reason}", file.display())
            }
            ServerError::Public(text) => write!(
                f,
                "{text} is reachable from other machines, and callers are not authenticated; \
                 authenticate them with --config (Server::authenticator) or --tls-client-ca \
                 (Tls::client_ca), or add --allow-anonymous (Server::allow_anonymous) if every \
                 client may call the agents"
            ),
            ServerError::Build(error) => error.fmt(f),
            ServerError::Memory(error) => error.fmt(f),
            #[cfg(feature = "otlp")]
            ServerError::Traces(error) => write!(f, "cannot trace: {error}"),
            ServerError::System(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ServerError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line() {
        let addr = "127.0.0.1:3000".parse().unwrap();
        let source = io::Error::from(io::ErrorKind::AddrInUse);
        let error = ServerError::Bind { addr, source };
        let line = "cannot listen on 127.0.0.1:3000: the port is in use; choose another with \
                    --listen (Server::listen)";
        assert_eq!(format!("{error:?}"), line);
    }
}
