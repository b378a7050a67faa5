//! TLS: the files of a server, and their replacement while the server runs.
//!
//! rustls implements the protocol. A connection keeps the configuration that it was accepted with,
//! so new files affect only new connections, and unusable files change nothing. But if a client
//! authority is removed, client certificates of older connections are no longer accepted.

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

/// The PEM files of a server with TLS 1.2 and 1.3.
#[derive(Clone, Debug)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    /// True: a client may send no certificate, since other credentials are accepted.
    are_certificates_optional: bool,
}

impl Tls {
    /// `cert` holds the server's certificate, followed by the certificates up to its root; `key`
    /// holds the private key of the server's certificate (PKCS #8, PKCS #1 or SEC 1, not
    /// encrypted).
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Tls {
        Tls {
            cert: cert.into(),
            key: key.into(),
            client_ca: None,
            are_certificates_optional: false,
        }
    }

    /// Requires of every client a certificate that an authority in `file` has issued; with a
    /// [`Setup::authenticator`](crate::engine::Setup::authenticator) the certificate is optional.
    /// Agents receive the client's name as [`crate::agent::RequestView::identity`]: the common name
    /// of the certificate's subject, else its first alternative name. The client owns its tasks.
    #[must_use]
    pub fn client_ca(mut self, file: impl Into<PathBuf>) -> Tls {
        self.client_ca = Some(file.into());
        self
    }

    /// Whether every client must send a certificate.
    pub(super) fn verifies_clients(&self) -> bool {
        self.client_ca.is_some()
    }

    /// Makes client certificates optional.
    pub(super) fn with_optional_certificates(self) -> Tls {
        Tls { are_certificates_optional: true, ..self }
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

/// Loaded files that match each other.
pub struct UsableTls {
    files: Tls,
    config: Arc<ServerConfig>,
    /// The authorities of clients' certificates.
    roots: Vec<CertificateDer<'static>>,
    /// Revoked when an authority is removed.
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

/// The configuration of new connections.
pub(super) struct Current {
    usable: RwLock<UsableTls>,
    failed: AtomicU64,
}

impl Current {
    /// Reads the files again, for new connections.
    ///
    /// # Errors
    /// [`ServerError::Tls`]; the current files stay in use.
    pub(super) fn reload(&self) -> Result<(), ServerError> {
        let files = self.usable.read().unwrap_or_else(PoisonError::into_inner).files.clone();
        self.replace(UsableTls::read(files)?);
        Ok(())
    }

    /// Whether clients may send no certificate.
    pub(super) fn are_certificates_optional(&self) -> bool {
        self.usable.read().unwrap_or_else(PoisonError::into_inner).files.are_certificates_optional
    }

    /// Uses these files for new connections.
    pub(super) fn replace(&self, mut usable: UsableTls) {
        let mut current = self.usable.write().unwrap_or_else(PoisonError::into_inner);
        match current.roots.iter().all(|root| usable.roots.contains(root)) {
            true => usable.authorities = Arc::clone(&current.authorities),
            false => current.authorities.withdraw(),
        }
        *current = usable;
    }

    /// Serves a connection that was just accepted.
    pub(super) fn serve(&self, stream: TcpStream, permit: ConnectionPermit, local_addr: u8) {
        let usable = self.usable.read().unwrap_or_else(PoisonError::into_inner);
        let (config, authorities) = (Arc::clone(&usable.config), Arc::clone(&usable.authorities));
        drop(usable);
        let session = session::serve(stream, config, authorities, permit, local_addr);
        tokio::task::spawn_local(session);
    }

    /// Counts a failed handshake.
    fn note_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Failed handshakes.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}
