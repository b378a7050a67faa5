//! The name in a client's certificate, after rustls has verified where it comes from.

use std::net::IpAddr;

use x509_cert::{
    Certificate,
    der::Decode,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

/// Bytes of a name; X.520 allows 64 for a common name, URIs are longer.
const NAME_BYTES_MAX: usize = 256;

/// Whose a certificate is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CertificateNames {
    /// Its owner's.
    pub(super) name: Box<str>,
    /// That of who has issued it, as RFC 4514 writes it.
    pub(super) issuer: Box<str>,
}

/// The first common name of the subject, else the first alternative name that is a URI, a host, a
/// mail address or an IP address (RFC 5280 §4.1.2.6, §4.2.1.6).
///
/// `None`: there is none, or it is empty, longer than 256 bytes or holds a control character; who
/// is known by a name that nobody can read is not known by another one.
pub(super) fn of_certificate(der: &[u8]) -> Option<CertificateNames> {
    let certificate = Certificate::from_der(der).ok()?;
    let certificate = certificate.tbs_certificate();
    let name = match certificate.subject().common_name().ok()? {
        Some(name) => name.value().into_owned(),
        None => {
            let (_, names) = certificate.get_extension::<SubjectAltName>().ok().flatten()?;
            names.0.iter().find_map(text)?
        }
    };
    let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
    let issuer = certificate.issuer().to_string().into();
    (fits && !name.contains(char::is_control))
        .then(|| CertificateNames { name: name.into(), issuer })
}

fn text(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(text)
        | GeneralName::Rfc822Name(text)
        | GeneralName::UniformResourceIdentifier(text) => Some(text.as_str().to_owned()),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        GeneralName::OtherName(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EdiPartyName(_)
        | GeneralName::RegisteredId(_) => None,
    }
}
