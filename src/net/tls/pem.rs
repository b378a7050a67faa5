//! Certificates and keys from PEM files, for servers and clients alike.

use std::{
    fmt::Display,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};

/// Maximum bytes of a file: four times a bundle of all public authorities.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A file that cannot be used.
pub(in crate::net) struct UnusableFile {
    pub file: PathBuf,
    /// The reason, in one line.
    pub reason: String,
}

impl UnusableFile {
    pub fn new(file: &Path, reason: &dyn Display) -> UnusableFile {
        UnusableFile { file: file.to_owned(), reason: one_line(reason) }
    }
}

/// The certificates of a file, in the order of the file; at least one.
///
/// # Errors
/// [`UnusableFile`].
pub(in crate::net) fn certificates(
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, UnusableFile> {
    let text = read(file)?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| UnusableFile::new(file, &error))?;
    if all.is_empty() {
        return Err(UnusableFile::new(file, &"no certificate in PEM form"));
    }
    Ok(all)
}

/// The first unencrypted private key of a file.
///
/// # Errors
/// [`UnusableFile`].
pub(in crate::net) fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, UnusableFile> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            let reason = "no unencrypted private key in PEM form";
            UnusableFile::new(file, &reason)
        }
        error => UnusableFile::new(file, &error),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, UnusableFile> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| UnusableFile::new(file, &error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(UnusableFile::new(file, &"it is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// Turns a library's error into one line.
pub(in crate::net) fn one_line(reason: &dyn Display) -> String {
    reason.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
