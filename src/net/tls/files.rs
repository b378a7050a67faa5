//! Loads a configuration from PEM files; an error names the unusable file and the reason.

use std::{fmt::Display, path::Path, sync::Arc};

use tokio_rustls::rustls::{
    Error, InconsistentKeys, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::CertificateDer,
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::{
    ServerError, Tls,
    pem::{UnusableFile, certificates, private_key},
};

/// The ALPN protocols (RFC 7301), in order of preference. A client that offers no protocol, or
/// begins with another one, is served as on a plain connection: the engine detects the protocol.
const ALPN: &[&[u8]] = if cfg!(feature = "grpc") { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };

/// Reads the files and checks that they match; returns the authorities of clients' certificates.
///
/// # Errors
/// [`ServerError::Tls`].
pub(super) fn load(tls: &Tls) -> Result<(ServerConfig, Vec<CertificateDer<'static>>), ServerError> {
    let provider = Arc::new(ring::default_provider());
    let key = Arc::new(certified_key(tls, &provider)?);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&tls.cert, &error))?;
    let roots = tls.client_ca.as_deref().map(certificates).transpose()?;
    let builder = match (&tls.client_ca, &roots) {
        (Some(file), Some(roots)) => {
            builder.with_client_cert_verifier(client_verifier(tls, file, roots, provider)?)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
    if roots.is_some() {
        // A resumed session is not verified again, even if its certificate has expired meanwhile.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok((config, roots.unwrap_or_default()))
}

fn certified_key(tls: &Tls, provider: &CryptoProvider) -> Result<CertifiedKey, ServerError> {
    let chain = certificates(&tls.cert)?;
    let key = private_key(&tls.key)?;
    let key = provider.key_provider.load_private_key(key);
    let key = CertifiedKey::new(chain, key.map_err(|error| unusable(&tls.key, &error))?);
    match key.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(key),
        Err(Error::InconsistentKeys(_)) => {
            let mismatch =
                format!("the key does not belong to the certificate in {}", tls.cert.display());
            Err(unusable(&tls.key, &mismatch))
        }
        Err(error) => Err(unusable(&tls.cert, &error)),
    }
}

/// RFC 8446 §4.4.2.4: a client that must send a certificate and sends none, or an untrusted one, is
/// refused within the handshake.
fn client_verifier(
    tls: &Tls,
    file: &Path,
    certificates: &[CertificateDer<'static>],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, ServerError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).map_err(|error| unusable(file, &error))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = match tls.are_certificates_optional {
        true => verifier.allow_unauthenticated(),
        false => verifier,
    };
    verifier.build().map_err(|error| unusable(file, &error))
}

fn unusable(file: &Path, reason: &dyn Display) -> ServerError {
    UnusableFile::new(file, reason).into()
}

impl From<UnusableFile> for ServerError {
    fn from(UnusableFile { file, reason }: UnusableFile) -> ServerError {
        ServerError::Tls { file, reason }
    }
}
