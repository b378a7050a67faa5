//! `[tls]`: the files of a server with TLS.

use std::path::PathBuf;

use super::super::tree::{ConfigSection, Key, Shape, Wrong, key};

const KEYS: &[Key] = &[
    key("cert", Shape::Path, "", "The certificate chain (PEM)").flag("tls-cert").live(),
    key("key", Shape::Path, "", "The private key of the certificate (PEM)").flag("tls-key").live(),
    key(
        "client_ca",
        Shape::Path,
        "",
        "Clients must present a certificate issued by one of these authorities (PEM); it is \
         optional with callers in auth",
    )
    .flag("tls-client-ca")
    .live(),
];

/// The keys of the section.
pub fn keys() -> &'static [Key] {
    KEYS
}

/// The files of a server with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificate authorities of clients.
    pub client_ca: Option<PathBuf>,
}

/// Reads the paths of the files. A certificate needs its key, and certificates of clients need TLS.
///
/// # Errors
/// [`Wrong`].
pub fn read(root: &ConfigSection) -> Result<Option<TlsFiles>, Wrong> {
    let Some(tls) = root.section("tls") else { return Ok(None) };
    let [cert, key, client_ca] = ["cert", "key", "client_ca"].map(|name| tls.path(name));
    let (name, message) = match (cert, key, client_ca) {
        (None, None, None) => return Ok(None),
        (Some(_), ..) if cfg!(not(feature = "tls")) => ("cert", "this build has no TLS"),
        (Some(cert), Some(key), client_ca) => return Ok(Some(TlsFiles { cert, key, client_ca })),
        (Some(_), None, _) => ("cert", "needs its private key: add --tls-key FILE, or tls.key"),
        (None, Some(_), _) => ("key", "needs its certificate: add --tls-cert FILE, or tls.cert"),
        (None, None, Some(_)) => {
            ("client_ca", "needs TLS: add --tls-cert and --tls-key, or tls.cert and tls.key")
        }
    };
    Err(tls.wrong(name, message))
}
