//! Callers that show a certificate of TLS, where nothing else is configured.

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

/// What cards call a certificate.
const CERTIFICATE: &str = "certificate";

/// Knows whoever TLS knows: by the name in the certificate and the name of who issued it. What they
/// may do is not told apart, and they are in no tenant.
#[derive(Debug, Default)]
pub struct CertificateCallers {
    grant: Arc<Grant>,
}

/// The name in a certificate and its issuer as one credential; the name has no control characters.
pub(super) fn presented(source: &CredentialSource<'_>) -> Option<Presented<'static>> {
    let name = source.identity?;
    let secret = format!("{name}\n{}", source.identity_issuer.unwrap_or_default());
    let secret = Cow::Owned(secret.into_bytes());
    Some(Presented { kind: CredentialKind::Certificate, secret })
}

/// Issuer and name of such a credential.
pub(super) fn names(secret: &[u8]) -> Option<(&str, &str)> {
    let (name, issuer) = str::from_utf8(secret).ok()?.split_once('\n')?;
    Some((issuer, name))
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
        let Some((issuer, name)) = names(&presented.secret) else {
            return Poll::Ready(Err(AuthRefusal::Wrong("the certificate has no name")));
        };
        let principal = Principal::new(PrincipalBuf {
            kind: CredentialKind::Certificate,
            issuer: issuer.to_owned(),
            name: name.to_owned(),
            tenants: TenantGrant::None,
            scopes: ScopeSet::default(),
            quota: None,
        });
        let (principal, grant) = (Arc::new(principal), Arc::clone(&self.grant));
        Poll::Ready(Ok(Admission { principal, expires_unix_ms: u64::MAX, grant }))
    }

    /// RFC 9110 §11.6.1 wants a challenge with every 401; there is no registered scheme for this.
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
