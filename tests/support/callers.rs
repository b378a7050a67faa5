//! An authenticator that reads the caller from the bearer token.

use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Poll, Waker},
};

use peregrine::{
    auth::{
        Admission, AuthRefusal, Authenticator, CredentialKind, CredentialSource, Grant, Presented,
        Principal, PrincipalBuf, ScopeSet, TenantGrant,
    },
    model::{CardRequirement, CardScheme, CardSecurity},
    service::Now,
};

/// Authenticates a caller whose bearer token or key is a name followed by scopes, tenants and a
/// quota: `alice a2a:read,a2a:send acme,other small`; `-` stands for none.
#[derive(Default)]
pub struct ByName {
    /// The number of checks.
    pub asked: AtomicUsize,
    /// The revocation handle of all tokens.
    pub grant: Arc<Grant>,
    /// True: checks wait until `go_on`.
    pub is_waiting: AtomicBool,
    /// The wakers of the waiting checks.
    pub waiting: Mutex<Vec<Waker>>,
    /// True: its tokens are JWTs, with a signature to verify.
    pub is_signed: bool,
    /// The expiry of all tokens.
    pub expires_unix_ms: Option<u64>,
}

impl ByName {
    /// Completes the waiting checks and all later ones.
    pub fn go_on(&self) {
        self.is_waiting.store(false, Relaxed);
        self.waiting.lock().unwrap().drain(..).for_each(Waker::wake);
    }
}

impl Authenticator for ByName {
    fn find<'a>(&self, source: &CredentialSource<'a>) -> Option<Presented<'a>> {
        let bearer = source.authorization.and_then(|value| value.strip_prefix(b"Bearer "));
        let secret = Cow::Borrowed(bearer.or(source.bearer).or(source.api_key)?);
        let kind = if self.is_signed { CredentialKind::Jwt } else { CredentialKind::Bearer };
        Some(Presented { kind, secret, address: None })
    }

    fn check(
        &self,
        presented: &Presented<'_>,
        _now: Now,
        wake: &Waker,
    ) -> Poll<Result<Admission, AuthRefusal>> {
        self.asked.fetch_add(1, Relaxed);
        if self.is_waiting.load(Relaxed) {
            self.waiting.lock().unwrap().push(wake.clone());
            return Poll::Pending;
        }
        let text = str::from_utf8(&presented.secret).unwrap_or("wrong");
        let mut words = text.split(' ');
        let name = words.next().unwrap_or_default();
        if name == "wrong" || self.grant.is_withdrawn() {
            return Poll::Ready(Err(AuthRefusal::Wrong("nobody has this token")));
        }
        let list = |text: Option<&str>| -> Vec<Box<str>> {
            let text = text.filter(|text| *text != "-");
            text.into_iter().flat_map(|list| list.split(',')).map(Into::into).collect()
        };
        let scopes = ScopeSet::new(list(words.next()));
        let tenants = match list(words.next()) {
            none if none.is_empty() => TenantGrant::None,
            names => TenantGrant::Named(names),
        };
        let (kind, issuer) = (CredentialKind::Bearer, String::new());
        let (name, quota) = (name.to_owned(), words.next().map(str::to_owned));
        let buf = PrincipalBuf { kind, issuer, name, tenants, scopes, quota };
        Poll::Ready(Ok(Admission {
            principal: Arc::new(Principal::new(buf)),
            expires_unix_ms: self.expires_unix_ms.unwrap_or(u64::MAX),
            grant: Arc::clone(&self.grant),
        }))
    }

    fn challenge(&self, refusal: &AuthRefusal) -> String {
        match refusal {
            AuthRefusal::Wrong(_) | AuthRefusal::Expired(_) => {
                "Bearer error=\"invalid_token\"".to_owned()
            }
            _ => "Bearer realm=\"a2a\"".to_owned(),
        }
    }

    fn security(&self) -> CardSecurity {
        CardSecurity {
            schemes: vec![CardScheme::bearer("token", ""), CardScheme::api_key("key", "X-API-Key")],
            requirements: vec![CardRequirement::of("token", []), CardRequirement::of("key", [])],
        }
    }
}
