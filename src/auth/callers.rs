//! The callers in a configuration: the [`Authenticator`] of a server.
//!
//! Invariants: credentials are hashed before the lookup, so the time of the lookup reveals nothing
//! about configured credentials. Rules are replaced as a whole, and callers that a removed rule
//! admitted are released.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker, ready},
};

use crossbeam_utils::sync::ShardedLock;

use crate::{
    model::CardSecurity,
    service::{
        Now,
        principal::{Principal, PrincipalBuf, ScopeSet, TenantGrant},
    },
};

use super::{
    Admission, AuthRefusal, Authenticator, CredentialKind, CredentialSource, Grant, Presented,
    certificates,
    challenge::{AcceptedKinds, KEY_EXPIRED, KEY_UNKNOWN, NAME_REFUSED, challenge},
    jwt::{TokenRefusal, UnverifiedToken, is_name},
    remote_keys::{KeyStatus, KeyWaiter, NextFetch},
    rules::{AuthRules, AuthRulesError, ProxyRule, SecretDigest},
    rules_in_use::{IssuerKeys, RulesInUse, TrustedIssuer},
};

/// How often the newest keys of an issuer are tried for one token. More than one try is needed only
/// if keys change between two tries.
const KEY_LOOKS_MAX: usize = 3;

/// The callers in a configuration.
///
/// A driver with sockets, such as `net::KeyFetcher`, fetches the keys of issuers with a URL through
/// [`Callers::next_fetch`].
///
/// ```
/// use peregrine::auth::{
///     AuthRules, Callers, IssuerRule, KeyLocation, KeyRule, KeySource, KnownCaller, ScopeSet,
///     SecretDigest, TokenRules,
/// };
///
/// let robot = KnownCaller {
///     name: "robot".to_owned(),
///     scopes: ScopeSet::new([ScopeSet::READ, ScopeSet::SEND]),
///     ..KnownCaller::default()
/// };
/// let digest = SecretDigest::take("a long secret".to_owned());
/// let tokens = TokenRules {
///     audiences: vec!["https://agent.example".to_owned()],
///     ..TokenRules::new("https://issuer.example")
/// };
/// let keys = KeySource::Remote { location: KeyLocation::OpenId, refresh_ms: 600_000 };
/// let callers = Callers::new(AuthRules {
///     api_keys: vec![KeyRule { digest, caller: robot, expires_unix_ms: None }],
///     issuers: vec![IssuerRule { tokens, keys }],
///     ..AuthRules::default()
/// })?;
/// assert_eq!(callers.key_status()[0].issuer, "https://issuer.example");
/// # Ok::<(), peregrine::auth::AuthRulesError>(())
/// ```
pub struct Callers {
    /// Sharded, because each request reads the rules.
    rules: ShardedLock<Arc<RulesInUse>>,
    /// Locked while the rules are replaced, which takes longer than readers may wait.
    replacing: Mutex<()>,
    /// Wakes the fetcher.
    fetcher: Mutex<Option<Waker>>,
    /// The number of replacements, and the wakers for the next one.
    changes: Mutex<RuleChanges>,
}

#[derive(Default)]
struct RuleChanges {
    count: u64,
    watcher: Option<Waker>,
}

impl fmt::Debug for Callers {
    /// The number of entries of each kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules();
        f.debug_struct("Callers")
            .field("api_keys", &rules.api_keys.len())
            .field("bearer_tokens", &rules.bearer_tokens.len())
            .field("issuers", &rules.issuers.len())
            .finish_non_exhaustive()
    }
}

impl Callers {
    /// Callers according to these rules.
    ///
    /// # Errors
    /// [`AuthRulesError`]
    pub fn new(rules: AuthRules) -> Result<Callers, AuthRulesError> {
        let rules = ShardedLock::new(Arc::new(RulesInUse::new(rules, None)?));
        let (replacing, fetcher, changes) = Default::default();
        Ok(Callers { rules, replacing, fetcher, changes })
    }

    /// Replaces the rules. A caller stays admitted if the rule that admitted it (for its key,
    /// token, issuer's key, proxy or certificate) is unchanged; all other callers are released.
    ///
    /// # Errors
    /// [`AuthRulesError`]; the old rules stay in force.
    pub fn replace(&self, rules: AuthRules) -> Result<(), AuthRulesError> {
        let alone = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.rules();
        let new = Arc::new(RulesInUse::new(rules, Some(&old))?);
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&new);
        old.withdraw_but(&new);
        drop(alone);
        let fetcher = self.fetcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        let watcher = {
            let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            changes.count += 1;
            changes.watcher.take()
        };
        fetcher.into_iter().chain(watcher).for_each(Waker::wake);
        Ok(())
    }

    /// The status of fetched keys, for each issuer with a URL.
    pub fn key_status(&self) -> Vec<KeyStatus> {
        self.rules().remote_keys().map(|keys| keys.status()).collect()
    }

    /// Whether the keys of each issuer are available, fresh or stale. An issuer authenticates no
    /// caller before its first fetch.
    ///
    /// # Errors
    /// The first issuer without keys, and the reason why they could not be fetched, in one
    /// sentence.
    pub fn have_keys(&self) -> Result<(), String> {
        let Some(status) = self.key_status().into_iter().find(|status| status.keys.is_none())
        else {
            return Ok(());
        };
        let why = status.problem.unwrap_or_else(|| "the keys are still being fetched".to_owned());
        Err(format!("the keys of {} are missing: {why}", status.issuer))
    }

    /// The next step of the key fetcher; `wake` is woken when the step changes.
    pub fn next_fetch(&self, now: Now, wake: &Waker) -> NextFetch {
        // Registered before the rules are read, so that no change is missed.
        *self.fetcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake.clone());
        let mut next_ms = u64::MAX;
        for keys in self.rules().remote_keys() {
            match keys.next_fetch(now, wake) {
                NextFetch::Fetch(fetch) => return NextFetch::Fetch(fetch),
                NextFetch::Wait(until_ms) => next_ms = next_ms.min(until_ms),
            }
        }
        NextFetch::Wait(next_ms)
    }

    fn rules(&self) -> Arc<RulesInUse> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Authenticator for Callers {
    /// Ignores kinds of credentials without a rule. A bearer token with three parts is a JWT if the
    /// rules have issuers; a proxy's fields count only if it is trusted.
    fn find<'a>(&self, source: &CredentialSource<'a>) -> Option<Presented<'a>> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let field = source.authorization.and_then(token_of_field).or(source.bearer);
        field
            .and_then(|token| bearer(&rules, token))
            .or_else(|| api_key(&rules, source))
            .or_else(|| by_proxy(rules.configured.proxy.as_ref()?, source))
            .or_else(|| {
                let accepts_certificates = rules.configured.certificates.is_some();
                accepts_certificates.then(|| certificates::presented(source)).flatten()
            })
    }

    fn check(
        &self,
        presented: &Presented<'_>,
        now: Now,
        wake: &Waker,
    ) -> Poll<Result<Admission, AuthRefusal>> {
        match check(&self.rules(), presented, now, wake) {
            // The rules or keys were replaced during the check: check against the new ones.
            Poll::Ready(Ok(admitted)) if admitted.grant.is_withdrawn() => {
                check(&self.rules(), presented, now, wake)
            }
            checked => checked,
        }
    }

    fn check_claims(&self, presented: &Presented<'_>, now: Now) -> Result<(), AuthRefusal> {
        if presented.kind != CredentialKind::Jwt {
            return Ok(());
        }
        let rules = self.rules();
        let token = UnverifiedToken::read(&presented.secret).map_err(AuthRefusal::Wrong)?;
        match issuer_of(&rules, &token)?.rules.check_unverified(&token, now.unix_ms) {
            Ok(_) | Err(TokenRefusal::UnknownKey) => Ok(()),
            Err(TokenRefusal::Expired(reason)) => Err(AuthRefusal::Expired(reason)),
            Err(TokenRefusal::Wrong(reason)) => Err(AuthRefusal::Wrong(reason)),
        }
    }

    fn challenge(&self, refusal: &AuthRefusal) -> String {
        let rules = self.rules();
        let bearer = !rules.bearer_tokens.is_empty() || !rules.issuers.is_empty();
        let accepted = AcceptedKinds { bearer, api_key: !rules.api_keys.is_empty() };
        challenge(&rules.configured, accepted, refusal)
    }

    fn vouches_for(&self, owner: &str, now: Now) -> bool {
        self.rules().vouches_for(owner, now)
    }

    /// Only the webhook worker registers a waker.
    fn changes(&self, wake: &Waker) -> u64 {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.watcher = Some(wake.clone());
        changes.count
    }

    fn security(&self) -> CardSecurity {
        self.rules().security.clone()
    }
}

const TOKEN_UNKNOWN: &str = "the token is unknown";
const TOKEN_EXPIRED: &str = "the token has expired";

fn check(
    rules: &RulesInUse,
    presented: &Presented<'_>,
    now: Now,
    wake: &Waker,
) -> Poll<Result<Admission, AuthRefusal>> {
    let (kind, secret) = (presented.kind, &*presented.secret);
    Poll::Ready(match kind {
        CredentialKind::Jwt => {
            let waiter = KeyWaiter { wake, address: presented.address };
            ready!(check_token(rules, secret, now, waiter))
        }
        CredentialKind::ApiKey | CredentialKind::Bearer => {
            let (registered, unknown, expired) = match kind == CredentialKind::ApiKey {
                true => (&rules.api_keys, KEY_UNKNOWN, KEY_EXPIRED),
                false => (&rules.bearer_tokens, TOKEN_UNKNOWN, TOKEN_EXPIRED),
            };
            match registered.get(&SecretDigest::of(secret)) {
                None => Err(AuthRefusal::Wrong(unknown)),
                Some(key) if now.unix_ms >= key.admission.expires_unix_ms => {
                    Err(AuthRefusal::Expired(expired))
                }
                Some(key) => Ok(key.admission.clone()),
            }
        }
        CredentialKind::Certificate => check_certificate(rules, secret),
        CredentialKind::Proxy => check_proxy(rules, secret),
    })
}

/// RFC 6750 §2.1; RFC 9110 §11.1: the case of the scheme does not matter.
fn token_of_field(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn bearer<'a>(rules: &RulesInUse, token: &'a [u8]) -> Option<Presented<'a>> {
    if rules.bearer_tokens.is_empty() && rules.issuers.is_empty() {
        return None;
    }
    let is_jwt = || token.iter().filter(|byte| **byte == b'.').count() == 2;
    let kind = match (rules.issuers.is_empty(), rules.bearer_tokens.is_empty()) {
        (true, _) => CredentialKind::Bearer,
        (false, true) => CredentialKind::Jwt,
        (false, false) if is_jwt() => CredentialKind::Jwt,
        (false, false) => CredentialKind::Bearer,
    };
    Some(Presented { kind, secret: Cow::Borrowed(token), address: None })
}

fn api_key<'a>(rules: &RulesInUse, source: &CredentialSource<'a>) -> Option<Presented<'a>> {
    if rules.api_keys.is_empty() {
        return None;
    }
    let secret = match rules.reads_x_api_key {
        true => Cow::Borrowed(source.api_key?),
        false => match source.fields.value(&rules.configured.api_key_field)? {
            Cow::Borrowed(key) => Cow::Borrowed(key.as_bytes()),
            Cow::Owned(key) => Cow::Owned(key.into_bytes()),
        },
    };
    Some(Presented { kind: CredentialKind::ApiKey, secret, address: None })
}

/// The fields of a trusted proxy, one per line. The name is empty if a field occurs twice, because
/// the client may have sent one of the two.
fn by_proxy<'a>(rule: &ProxyRule, source: &CredentialSource<'a>) -> Option<Presented<'a>> {
    let address = source.remote?;
    if !rule.networks.iter().any(|network| network.contains(address)) {
        return None;
    }
    let fields = [Some(&rule.name_field), rule.scopes_field.as_ref(), rule.tenants_field.as_ref()];
    let count = |field: Option<&String>| field.map_or(0, |field| source.fields.count(field));
    let value = |field: Option<&String>| field.and_then(|field| source.fields.value(field));
    let mut texts = fields.map(|field| value(field).unwrap_or_default());
    if fields.iter().any(|field| count(*field) > 1) {
        texts[0] = Cow::Borrowed("");
    } else if texts[0].is_empty() {
        return None;
    }
    // RFC 9110 §5.5: no value contains a line end.
    let lines = texts.join("\n");
    let (kind, secret) = (CredentialKind::Proxy, Cow::Owned(lines.into_bytes()));
    Some(Presented { kind, secret, address: None })
}

fn check_token(
    rules: &RulesInUse,
    token: &[u8],
    now: Now,
    waiter: KeyWaiter<'_>,
) -> Poll<Result<Admission, AuthRefusal>> {
    let token = match UnverifiedToken::read(token) {
        Ok(token) => token,
        Err(reason) => return Poll::Ready(Err(AuthRefusal::Wrong(reason))),
    };
    let issuer = match issuer_of(rules, &token) {
        Ok(issuer) => issuer,
        Err(refusal) => return Poll::Ready(Err(refusal)),
    };
    let mut keys = match &issuer.keys {
        IssuerKeys::Local(keys) => Arc::clone(keys),
        IssuerKeys::Remote(remote) => match ready!(remote.poll(now, waiter)) {
            Ok(keys) => keys,
            Err(refusal) => return Poll::Ready(Err(refusal)),
        },
    };
    for _ in 0..KEY_LOOKS_MAX {
        match (issuer.rules.verify(&token, &keys, now.unix_ms), &issuer.keys) {
            (Ok(verified), _) => {
                return Poll::Ready(Ok(Admission {
                    principal: Arc::new(Principal::new(verified.principal)),
                    expires_unix_ms: verified.expires_unix_ms,
                    grant: verified.grant,
                }));
            }
            (Err(TokenRefusal::Wrong(reason)), _) => {
                return Poll::Ready(Err(AuthRefusal::Wrong(reason)));
            }
            (Err(TokenRefusal::Expired(reason)), _) => {
                return Poll::Ready(Err(AuthRefusal::Expired(reason)));
            }
            (Err(TokenRefusal::UnknownKey), IssuerKeys::Local(_)) => break,
            (Err(TokenRefusal::UnknownKey), IssuerKeys::Remote(remote)) => {
                let kid = token.kid().unwrap_or_default();
                match ready!(remote.poll_newer(&keys, kid, now, waiter)) {
                    Ok(newer) => keys = newer,
                    Err(refusal) => return Poll::Ready(Err(refusal)),
                }
            }
        }
    }
    Poll::Ready(Err(AuthRefusal::Wrong("no key of the issuer has the token's kid")))
}

fn issuer_of<'r>(
    rules: &'r RulesInUse,
    token: &UnverifiedToken<'_>,
) -> Result<&'r TrustedIssuer, AuthRefusal> {
    let issuer = token.issuer().and_then(|issuer| rules.issuers.get(issuer));
    issuer.ok_or(AuthRefusal::Wrong("the issuer of the token is not trusted here"))
}

fn check_certificate(rules: &RulesInUse, shown: &[u8]) -> Result<Admission, AuthRefusal> {
    let rule = rules.configured.certificates.as_ref().ok_or(AuthRefusal::Missing)?;
    let shown = certificates::read(shown).filter(|shown| is_name(shown.name));
    let shown = shown.ok_or(AuthRefusal::Wrong(NAME_REFUSED))?;
    let principal = PrincipalBuf {
        kind: CredentialKind::Certificate,
        issuer: shown.issuer.to_owned(),
        name: shown.name.to_owned(),
        tenants: rule.tenants.clone(),
        scopes: rule.scopes.clone(),
        quota: rule.quota.clone(),
    };
    Ok(admit(principal, &rules.certificate_grant, shown.ends_unix_ms))
}

fn check_proxy(rules: &RulesInUse, lines: &[u8]) -> Result<Admission, AuthRefusal> {
    let rule = rules.configured.proxy.as_ref().ok_or(AuthRefusal::Missing)?;
    let mut texts = str::from_utf8(lines).unwrap_or_default().split('\n');
    let mut text = || texts.next().unwrap_or_default();
    let (name, scopes, tenants) = (text(), text(), text());
    if !is_name(name) {
        return Err(AuthRefusal::Wrong(NAME_REFUSED));
    }
    let words = |text: &'_ str| {
        let words = text.split([' ', ',']).filter(|word| !word.is_empty());
        words.map(Into::into).collect::<Vec<Box<str>>>()
    };
    let scopes = match rule.scopes_field {
        Some(_) => ScopeSet::new(words(scopes)),
        None => rule.scopes.clone(),
    };
    let tenants = match (&rule.tenants_field, words(tenants)) {
        (None, _) => rule.tenants.clone(),
        (Some(_), names) if names.is_empty() => TenantGrant::None,
        (Some(_), names) => TenantGrant::Named(names),
    };
    let (kind, quota) = (CredentialKind::Proxy, rule.quota.clone());
    let (issuer, name) = (String::new(), name.to_owned());
    let principal = PrincipalBuf { kind, issuer, name, tenants, scopes, quota };
    Ok(admit(principal, &rules.proxy_grant, u64::MAX))
}

fn admit(principal: PrincipalBuf, grant: &Arc<Grant>, expires_unix_ms: u64) -> Admission {
    Admission {
        principal: Arc::new(Principal::new(principal)),
        expires_unix_ms,
        grant: Arc::clone(grant),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
