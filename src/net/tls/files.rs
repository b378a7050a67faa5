//! From PEM files to a configuration: every file that cannot be used is named with the reason.

use std::{fmt::Display, fs::File, io::Read, path::Path, sync::Arc};

use tokio_rustls::rustls::{
    Error, InconsistentKeys, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::{ServerError, Tls};

/// What a client may ask for by ALPN (RFC 7301), the favourite first. A client that asks for
/// nothing, or a first byte that says otherwise, is served as on a plain connection: the engine
/// looks at the bytes.
const ALPN: &[&[u8]] = if cfg!(feature = "grpc") { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };

/// Bytes of a file: a bundle of every public authority has a quarter of them.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the files and checks that they fit each other.
///
/// # Errors
/// [`ServerError::Tls`].
pub(super) fn load(tls: &Tls) -> Result<ServerConfig, ServerError> {
    let provider = Arc::new(ring::default_provider());
    let key = Arc::new(certified_key(tls, &provider)?);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&tls.cert, &error))?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => builder.with_client_cert_verifier(client_verifier(file, provider)?),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

fn certified_key(tls: &Tls, provider: &CryptoProvider) -> Result<CertifiedKey, ServerError> {
    let chain = certificates(&tls.cert)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&tls.key)?).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            unusable(&tls.key, &"there is no private key in PEM form that is not encrypted")
        }
        error => unusable(&tls.key, &error),
    })?;
    let key = provider.key_provider.load_private_key(key);
    let key = CertifiedKey::new(chain, key.map_err(|error| unusable(&tls.key, &error))?);
    match key.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(key),
        Err(Error::InconsistentKeys(_)) => {
            let whose = format!("the key is not that of the certificate in {}", tls.cert.display());
            Err(unusable(&tls.key, &whose))
        }
        Err(error) => Err(unusable(&tls.cert, &error)),
    }
}

/// RFC 8446 §4.4.2.4: who must show a certificate and shows none, or one that leads nowhere, is
/// sent away within the handshake.
fn client_verifier(
    file: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, ServerError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| unusable(file, &error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| unusable(file, &error))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let text = read(file)?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| unusable(file, &error))?;
    if all.is_empty() {
        return Err(unusable(file, &"there is no certificate in PEM form"));
    }
    Ok(all)
}

fn read(file: &Path) -> Result<Vec<u8>, ServerError> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| unusable(file, &error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(unusable(file, &"it is larger than 1 MiB"));
    }
    Ok(bytes)
}

fn unusable(file: &Path, reason: &dyn Display) -> ServerError {
    // Whatever a library says, it is one line.
    let reason = reason.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    ServerError::Tls { file: file.to_owned(), reason }
}
