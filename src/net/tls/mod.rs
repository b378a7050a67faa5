//! TLS: which files a server speaks it with, and how they are exchanged while it runs.
//!
//! The protocol is rustls'. A connection keeps the configuration that it was accepted with, so new
//! files concern new connections alone, and files that cannot be used change nothing. But where an
//! authority of clients is gone, no older connection shows its certificate any more.

mod files;
mod name;
pub(super) mod pem;
mod session;

use std::{
    path::PathBuf,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::net::TcpStream;
use tokio_rustls::rustls::{ServerConfig, pki_types::CertificateDer};

use crate::service::Grant;

use super::{error::ServerError, worker_state::ConnectionPermit};

/// The files of a server that speaks TLS 1.2 and 1.3, all of them PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    /// True: a client may show no certificate, since it can show something else.
    are_clients_free: bool,
}

impl Tls {
    /// `cert` holds the server's certificate, and behind it those that lead to its root; `key` the
    /// private key of the first one (PKCS #8, PKCS #1 or SEC 1, not encrypted).
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Tls {
        Tls { cert: cert.into(), key: key.into(), client_ca: None, are_clients_free: false }
    }

    /// Demands of every client a certificate that leads to one of those in `file`; with a
    /// [`Setup::authenticator`](crate::engine::Setup::authenticator) clients may show one. The
    /// client's name reaches agents as [`crate::agent::RequestView::identity`]: the common name of
    /// its subject, else its first alternative name. Its tasks are its own.
    #[must_use]
    pub fn client_ca(mut self, file: impl Into<PathBuf>) -> Tls {
        self.client_ca = Some(file.into());
        self
    }

    /// Whether every client must show a certificate.
    pub(super) fn knows_clients(&self) -> bool {
        self.client_ca.is_some()
    }

    /// The same, of clients that may show something else.
    pub(super) fn of_known_callers(self) -> Tls {
        Tls { are_clients_free: true, ..self }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`ServerError::Tls`].
    pub(super) fn load(self) -> Result<Current, ServerError> {
        let usable = RwLock::new(UsableTls::read(self)?);
        Ok(Current { usable, failed: AtomicU64::new(0) })
    }
}

/// Files that were read, and fit each other.
pub struct UsableTls {
    files: Tls,
    config: Arc<ServerConfig>,
    /// What certificates of clients lead to.
    roots: Vec<CertificateDer<'static>>,
    /// Withdrawn when one of those is gone.
    authorities: Arc<Grant>,
}

impl UsableTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`ServerError::Tls`].
    pub(super) fn read(files: Tls) -> Result<UsableTls, ServerError> {
        let (config, roots) = files::load(&files)?;
        Ok(UsableTls { files, config: Arc::new(config), roots, authorities: Arc::default() })
    }
}

/// What new connections are accepted with.
pub(super) struct Current {
    usable: RwLock<UsableTls>,
    failed: AtomicU64,
}

impl Current {
    /// Reads the files again, for the connections that come from now on.
    ///
    /// # Errors
    /// [`ServerError::Tls`]; everything stays as it was.
    pub(super) fn reload(&self) -> Result<(), ServerError> {
        let files = self.usable.read().unwrap_or_else(PoisonError::into_inner).files.clone();
        self.replace(UsableTls::read(files)?);
        Ok(())
    }

    /// Whether clients may show no certificate.
    pub(super) fn are_clients_free(&self) -> bool {
        self.usable.read().unwrap_or_else(PoisonError::into_inner).files.are_clients_free
    }

    /// Takes these for the connections that come from now on.
    pub(super) fn replace(&self, mut usable: UsableTls) {
        let mut current = self.usable.write().unwrap_or_else(PoisonError::into_inner);
        match current.roots.iter().all(|root| usable.roots.contains(root)) {
            true => usable.authorities = Arc::clone(&current.authorities),
            false => current.authorities.withdraw(),
        }
        *current = usable;
    }

    /// Serves a connection that was just accepted on this side.
    pub(super) fn serve(&self, stream: TcpStream, permit: ConnectionPermit, local_addr: u8) {
        let usable = self.usable.read().unwrap_or_else(PoisonError::into_inner);
        let with = (Arc::clone(&usable.config), Arc::clone(&usable.authorities));
        drop(usable);
        tokio::task::spawn_local(session::serve(stream, with, permit, local_addr));
    }

    /// Counts a handshake that came to nothing.
    fn note_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Handshakes that came to nothing.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}
