//! Substitutes for TLS without the feature `tls`: types without values.

use tokio::net::TcpStream;

use super::{error::ServerError, worker_state::ConnectionPermit};

/// The files of TLS: never present.
#[derive(Clone)]
pub(super) enum Tls {}

impl Tls {
    pub(super) fn verifies_clients(&self) -> bool {
        match *self {}
    }

    pub(super) fn with_optional_certificates(self) -> Tls {
        self
    }

    pub(super) fn load(self) -> Result<Current, ServerError> {
        match self {}
    }
}

/// The loaded TLS state: never present.
pub(super) enum Current {}

impl Current {
    pub(super) fn reload(&self) -> Result<(), ServerError> {
        match *self {}
    }

    pub(super) fn serve(&self, _stream: TcpStream, _permit: ConnectionPermit, _local_addr: u8) {
        match *self {}
    }

    pub(super) fn failed(&self) -> u64 {
        match *self {}
    }
}
