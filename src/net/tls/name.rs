//! The name in a client's certificate, after rustls has verified the certificate.

use std::{net::IpAddr, sync::Arc};

use x509_cert::{
    Certificate,
    der::Decode,
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use crate::service::{Grant, PeerCertificate};

/// Maximum bytes of a name; X.520 allows 64 for a common name, URIs are longer.
const NAME_BYTES_MAX: usize = 256;

/// The names and the expiry of a certificate.
pub(super) struct CertificateNames {
    /// The name of the certificate's owner.
    pub(super) name: Box<str>,
    /// The other properties.
    pub(super) certificate: PeerCertificate,
}

/// Prefixes of alternative names, so that no alternative name equals the common name of another
/// client.
const KINDS: [&str; 4] = ["DNS:", "email:", "URI:", "IP:"];

/// The first common name of the subject, else the first alternative name that is a URI, a host, a
/// mail address or an IP address (RFC 5280 §4.1.2.6, §4.2.1.6), prefixed with its kind:
/// `DNS:agent.example`, `URI:spiffe://a/b`.
///
/// `None`: there is no name, or it is empty, is longer than 256 bytes, has a control character, or
/// is a common name with the prefix of an alternative name. An unusable name is not replaced by
/// another one.
pub(super) fn of_certificate(der: &[u8], authorities: &Arc<Grant>) -> Option<CertificateNames> {
    let certificate = Certificate::from_der(der).ok()?;
    let certificate = certificate.tbs_certificate();
    let name = match certificate.subject().common_name().ok()? {
        Some(name) => {
            let name = name.value().into_owned();
            if KINDS.iter().any(|kind| name.starts_with(kind)) {
                return None;
            }
            name
        }
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
    let of_kind = |kind: &str, text: &str| Some(format!("{kind}{text}"));
    match name {
        GeneralName::DnsName(text) => of_kind("DNS:", text.as_str()),
        GeneralName::Rfc822Name(text) => of_kind("email:", text.as_str()),
        GeneralName::UniformResourceIdentifier(text) => of_kind("URI:", text.as_str()),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
            of_kind("IP:", &address.ok()?.to_string())
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
    fn certificate_yields_name_issuer_and_expiry() {
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

    #[test]
    fn common_name_cannot_imitate_an_alternative_name() {
        let name = |common: Option<&str>, alternative: &[&str]| {
            let alternative: Vec<String> = alternative.iter().map(|&name| name.into()).collect();
            let mut params = CertificateParams::new(alternative).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            if let Some(common) = common {
                params.distinguished_name.push(DnType::CommonName, common);
            }
            let shown = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            of_certificate(shown.der(), &Arc::default()).map(|names| names.name.into_string())
        };
        assert_eq!(name(Some("alice"), &["bob"]).as_deref(), Some("alice"));
        assert_eq!(name(None, &["alice"]).as_deref(), Some("DNS:alice"));
        assert_eq!(name(None, &["192.0.2.1"]).as_deref(), Some("IP:192.0.2.1"));
        for common in ["DNS:alice", "URI:spiffe://a", "email:a@b", "IP:192.0.2.1"] {
            assert_eq!(name(Some(common), &[]), None, "{common}");
        }
    }
}
