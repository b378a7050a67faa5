//! Callers with a TLS client certificate, for a server without other credentials.

use std::{
    borrow::Cow,
    sync::Arc,
    task::{Poll, Waker},
};

use super::{
    Admission, AuthRefusal, Authenticator, CredentialKind, CredentialSource, Grant, Presented,
    Principal, PrincipalBuf, ScopeSet, TenantGrant,
};
use crate::{
    model::{CardRequirement, CardScheme, CardSecurity},
    service::Now,
};

/// The name of the certificate scheme on cards.
const CERTIFICATE: &str = "certificate";

/// Authenticates the clients that TLS has verified, by the name in the certificate and the name of
/// its issuer. All these callers have the same rights and no tenant.
#[derive(Debug, Default)]
pub struct CertificateCallers {
    grant: Arc<Grant>,
}

/// The fields of a client certificate.
pub(super) struct ShownCertificate<'a> {
    pub(super) name: &'a str,
    pub(super) issuer: &'a str,
    pub(super) ends_unix_ms: u64,
}

/// The certificate of a connection as one credential, so that a cached caller is valid until the
/// certificate ends. `None`: no certificate, or one without a trusted issuer.
pub(super) fn presented(source: &CredentialSource<'_>) -> Option<Presented<'static>> {
    let name = source.identity?;
    let (issuer, ends_unix_ms) = match source.certificate {
        Some(shown) if shown.authorities.is_withdrawn() => return None,
        Some(shown) => (&*shown.issuer, shown.ends_unix_ms),
        None => ("", u64::MAX),
    };
    let secret = Cow::Owned(format!("{name}\n{ends_unix_ms}\n{issuer}").into_bytes());
    Some(Presented { kind: CredentialKind::Certificate, secret, address: None })
}

/// Reads a credential that `presented` has written; a name with a line break is invalid.
pub(super) fn read(secret: &[u8]) -> Option<ShownCertificate<'_>> {
    let mut texts = str::from_utf8(secret).ok()?.splitn(3, '\n');
    let (name, ends, issuer) = (texts.next()?, texts.next()?, texts.next()?);
    Some(ShownCertificate { name, issuer, ends_unix_ms: ends.parse().ok()? })
}

impl Authenticator for CertificateCallers {
    fn find<'a>(&self, source: &CredentialSource<'a>) -> Option<Presented<'a>> {
        presented(source)
    }

    fn check(
        &self,
        presented: &Presented<'_>,
        _now: Now,
        _wake: &Waker,
    ) -> Poll<Result<Admission, AuthRefusal>> {
        let Some(shown) = read(&presented.secret) else {
            let why = "the name in the certificate contains a line break";
            return Poll::Ready(Err(AuthRefusal::Wrong(why)));
        };
        let principal = Principal::new(PrincipalBuf {
            kind: CredentialKind::Certificate,
            issuer: shown.issuer.to_owned(),
            name: shown.name.to_owned(),
            tenants: TenantGrant::None,
            scopes: ScopeSet::default(),
            quota: None,
        });
        let (principal, grant) = (Arc::new(principal), Arc::clone(&self.grant));
        Poll::Ready(Ok(Admission { principal, expires_unix_ms: shown.ends_unix_ms, grant }))
    }

    /// RFC 9110 §11.6.1 requires a challenge with every 401; no scheme is registered for
    /// certificates.
    fn challenge(&self, _refusal: &AuthRefusal) -> String {
        "Certificate realm=\"a2a\"".to_owned()
    }

    fn security(&self) -> CardSecurity {
        CardSecurity {
            schemes: vec![CardScheme::mutual_tls(CERTIFICATE)],
            requirements: vec![CardRequirement::of(CERTIFICATE, [])],
        }
    }
}
