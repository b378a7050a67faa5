//! TLS of the client: its trusted authorities, its certificate, and its ALPN protocols.
//!
//! rustls implements the protocol. Files are read when the client is created, which reports their
//! errors. The first request that needs the system's authorities reads them once.

mod insecure;

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};

use crate::{
    client::{HttpOrigin, HttpVersion, TransportError},
    net::tls::pem::{UnusableFile, certificates, one_line, private_key},
};

use super::HttpClientError;

/// The authorities that a client trusts, and its certificate. All files are PEM. The default trusts
/// the authorities of the system (`SSL_CERT_FILE` and `SSL_CERT_DIR` may set their location) and
/// sends no certificate.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    authorities: Vec<PathBuf>,
    without_system: bool,
    identity: Option<(PathBuf, PathBuf)>,
    is_insecure: bool,
}

impl ClientTls {
    /// Trusts the authorities in `file` as well.
    #[must_use]
    pub fn authority(mut self, file: impl Into<PathBuf>) -> ClientTls {
        self.authorities.push(file.into());
        self
    }

    /// Trusts only the authorities of [`ClientTls::authority`].
    #[must_use]
    pub fn without_system_authorities(mut self) -> ClientTls {
        self.without_system = true;
        self
    }

    /// Sends a certificate to servers that request one. `cert` contains the certificate, followed
    /// by the certificates up to its root; `key` contains its private key (PKCS #8, PKCS #1 or SEC
    /// 1, not encrypted).
    #[must_use]
    pub fn identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> ClientTls {
        self.identity = Some((cert.into(), key.into()));
        self
    }

    /// Accepts every certificate: any host on the path can read and change everything. For tests
    /// against your own machines.
    #[must_use]
    pub fn insecure(mut self) -> ClientTls {
        self.is_insecure = true;
        self
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`HttpClientError::File`], [`HttpClientError::System`].
    pub(super) fn load(&self) -> Result<TlsSetup, HttpClientError> {
        let mut authorities = Vec::new();
        for file in &self.authorities {
            authorities.extend(certificates(file)?);
        }
        let setup = TlsSetup {
            authorities,
            with_system: !self.without_system,
            identity: self.identity.as_ref().map(|(cert, key)| identity(cert, key)).transpose()?,
            is_insecure: self.is_insecure,
            configs: OnceLock::new(),
        };
        // Checks that the files match each other, which needs no authorities of the system.
        setup.build(setup.roots(&[])).map_err(|error| match &self.identity {
            Some((_, key)) => unusable(key, &error),
            None => HttpClientError::System(error.to_string()),
        })?;
        Ok(setup)
    }
}

/// A certificate with its chain up to the root, and its key.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// The contents of the files, and the configurations once they are built.
pub(super) struct TlsSetup {
    authorities: Vec<CertificateDer<'static>>,
    with_system: bool,
    identity: Option<Identity>,
    is_insecure: bool,
    configs: OnceLock<Result<TlsConfigs, TransportError>>,
}

/// The configuration for each list of ALPN protocols. They share resumable sessions.
struct TlsConfigs {
    any: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl TlsSetup {
    /// The configuration of a connection. The first call reads the authorities of the system, which
    /// takes some 10 ms: call it on a blocking thread.
    ///
    /// # Errors
    /// [`TransportError::Tls`]: no authority is trusted.
    pub(super) fn config(&self, version: HttpVersion) -> Result<Arc<ClientConfig>, TransportError> {
        let configs = self.configs.get_or_init(|| self.configs()).as_ref().map_err(Clone::clone)?;
        let config = match version {
            HttpVersion::Any => &configs.any,
            HttpVersion::Http1 => &configs.http1,
            HttpVersion::Http2 => &configs.http2,
        };
        Ok(Arc::clone(config))
    }

    /// True: [`TlsSetup::config`] no longer reads files.
    pub(super) fn is_ready(&self) -> bool {
        self.configs.get().is_some()
    }

    fn configs(&self) -> Result<TlsConfigs, TransportError> {
        let (mut system, mut reason) = (Vec::new(), String::new());
        if self.with_system && !self.is_insecure {
            let found = rustls_native_certs::load_native_certs();
            reason = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
            system = found.certs;
        }
        let roots = self.roots(&system);
        if roots.is_empty() && !self.is_insecure {
            let what =
                format!("no certificate authority is trusted: the system provides none{reason}");
            return Err(TransportError::Tls(one_line(&what)));
        }
        let config = self.build(roots).map_err(|e| TransportError::Tls(one_line(&e)))?;
        let with = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Arc::new(config)
        };
        Ok(TlsConfigs {
            any: with(&[b"h2", b"http/1.1"]),
            http1: with(&[b"http/1.1"]),
            http2: with(&[b"h2"]),
        })
    }

    /// The authorities of the files and of the system; unsupported authorities are skipped.
    fn roots(&self, system: &[CertificateDer<'static>]) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.authorities.iter().chain(system).cloned());
        roots
    }

    fn build(&self, roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match self.is_insecure {
            true => builder.dangerous().with_custom_certificate_verifier(insecure::all(&provider)),
            false => builder.with_root_certificates(roots),
        };
        match &self.identity {
            Some(Identity { chain, key }) => {
                builder.with_client_auth_cert(chain.clone(), key.clone_key())
            }
            None => Ok(builder.with_no_client_auth()),
        }
    }
}

/// The name that a server's certificate must have: the host name or address.
///
/// # Errors
/// [`TransportError::Tls`].
pub(super) fn server_name(origin: &HttpOrigin) -> Result<ServerName<'static>, TransportError> {
    // Certificates have names without the final dot (RFC 6066 §3).
    let name = origin.host_name();
    let name = name.strip_suffix('.').unwrap_or(name);
    ServerName::try_from(name.to_owned())
        .map_err(|_| TransportError::Tls(format!("{name} cannot be the name in a certificate")))
}

/// The transport's error for an I/O error, which may contain a TLS error.
pub(super) fn transport_error(error: &io::Error) -> TransportError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => TransportError::Tls(tls_reason(error)),
        None => TransportError::Io(one_line(error)),
    }
}

/// The reason of a TLS error; frequent errors have their own sentences.
fn tls_reason(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(error) = error else { return one_line(error) };
    match error {
        CertificateError::UnknownIssuer => {
            "the certificate was issued by an untrusted authority".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate has expired: {}", one_line(error))
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("the certificate is for another name: {}", one_line(error))
        }
        other => format!("the certificate cannot be used: {}", one_line(other)),
    }
}

fn identity(cert: &Path, key: &Path) -> Result<Identity, HttpClientError> {
    Ok(Identity { chain: certificates(cert)?, key: private_key(key)? })
}

fn unusable(file: &Path, reason: &dyn Display) -> HttpClientError {
    UnusableFile::new(file, reason).into()
}

impl From<UnusableFile> for HttpClientError {
    fn from(UnusableFile { file, reason }: UnusableFile) -> HttpClientError {
        HttpClientError::File { file, reason }
    }
}
