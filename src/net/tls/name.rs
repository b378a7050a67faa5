//! The name in a client's certificate, after rustls has verified where it comes from.

use std::{net::IpAddr, sync::Arc};

use x509_cert::{
    Certificate,
    der::Decode,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use crate::service::{Grant, PeerCertificate};

/// Bytes of a name; X.520 allows 64 for a common name, URIs are longer.
const NAME_BYTES_MAX: usize = 256;

/// Whose a certificate is, and until when.
pub(super) struct CertificateNames {
    /// Its owner's.
    pub(super) name: Box<str>,
    /// What else it says.
    pub(super) certificate: PeerCertificate,
}

/// The first common name of the subject, else the first alternative name that is a URI, a host, a
/// mail address or an IP address (RFC 5280 §4.1.2.6, §4.2.1.6).
///
/// `None`: there is none, or it is empty, longer than 256 bytes or holds a control character; who
/// is known by a name that nobody can read is not known by another one.
pub(super) fn of_certificate(der: &[u8], authorities: &Arc<Grant>) -> Option<CertificateNames> {
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
    let ends = certificate.validity().not_after.to_unix_duration();
    let certificate = PeerCertificate {
        issuer: certificate.issuer().to_string().into(),
        ends_unix_ms: u64::try_from(ends.as_millis()).unwrap_or(u64::MAX),
        authorities: Arc::clone(authorities),
    };
    (fits && !name.contains(char::is_control))
        .then(|| CertificateNames { name: name.into(), certificate })
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn a_certificate_says_whose_it_is_by_whom_and_until_when() {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.not_after = date_time_ymd(2100, 1, 1);
        let shown = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let authorities = Arc::default();
        let CertificateNames { name, certificate } =
            of_certificate(shown.der(), &authorities).unwrap();
        assert_eq!((&*name, certificate.ends_unix_ms), ("alice", 4_102_444_800_000));
        assert!(certificate.issuer.contains("CN=alice"), "{}", certificate.issuer);
        assert!(Arc::ptr_eq(&certificate.authorities, &authorities));
    }
}
