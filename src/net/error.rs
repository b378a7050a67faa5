//! The errors of a server's start: one line each for the operator.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use crate::{engine::BuildError, limits::TooLittleMemory};

/// Why a server did not start. `Debug` prints the same text as `Display`, so that `main` can return
/// the error.
pub enum ServerError {
    /// The text is not an address and a port.
    Address(String),
    /// The server cannot listen on the address.
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The server cannot listen on a Unix socket.
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
        /// The reason, in one line.
        reason: String,
    },
    /// Other machines can reach the address, and anonymous callers were not allowed: see
    /// [`Server::allow_anonymous`](super::Server::allow_anonymous).
    Public(String),
    /// The setup contradicts itself.
    Build(BuildError),
    /// The memory of [`Server::memory`](super::Server::memory) is not enough.
    Memory(TooLittleMemory),
    /// The HTTP client for the collector of traces cannot be created.
    #[cfg(feature = "otlp")]
    Traces(super::HttpClientError),
    /// The system provides no thread, event queue or random bits.
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
                    "cannot listen on {text:?}: must be an address and a port, such as \
                     127.0.0.1:3000"
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
            ServerError::Traces(error) => write!(f, "cannot send traces: {error}"),
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
    fn port_in_use_error_is_one_line() {
        let addr = "127.0.0.1:3000".parse().unwrap();
        let source = io::Error::from(io::ErrorKind::AddrInUse);
        let error = ServerError::Bind { addr, source };
        let line = "cannot listen on 127.0.0.1:3000: the port is in use; choose another with \
                    --listen (Server::listen)";
        assert_eq!(format!("{error:?}"), line);
    }
}
