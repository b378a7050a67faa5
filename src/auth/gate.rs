//! The gate of a server: a cached credential passes at once; other credentials are verified.
//!
//! Invariants: a credential is cached only as a keyed hash of 128 bits. A right credential passes
//! regardless of earlier failures of its peer. The cost of a peer's wrong credentials is bounded:
//! after `PEER_FAILURES_MAX` of them, the peer has a budget of verifications for its JWTs, and
//! further JWTs are [`AuthRefusal::Unavailable`]; its wrong keys are answered after
//! [`WRONG_KEY_DELAY_MS`]. Certificates and names from a proxy cannot be guessed and are not
//! counted. Each worker has its own cache of the last second ([`RecentCallers`]).

use std::{
    fmt,
    net::IpAddr,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

use siphasher::sip128::SipHasher24;

use super::{
    Accounts, Admission, AuthRefusal, Authenticator, CallerAccount, CredentialKind,
    CredentialSource, Grant, Presented,
    peers::FailingPeers,
    recent::{GateEntry, RecentCallers},
    table::FixedTable,
};
#[cfg(feature = "embed")]
use super::{CertificateCallers, Principal};
use crate::{
    limits::callers::{WRONG_KEY_DELAY_MS, WRONG_KEYS_WAITING_MAX},
    model::CardSecurity,
    service::{GrantWatch, Now, Service},
};

/// How long a token counts as verified.
const TOKEN_MS: u64 = 300_000;
/// Bytes that each cached credential may hold in addition to its slot, see `limits/memory.rs`.
pub(crate) const CREDENTIAL_HELD_BYTES: usize = 576;
/// The part of a connection's memory estimate for its caller; further bytes count with its buffers.
const CALLER_BYTES: usize = 512;

/// The answer to a JWT beyond the budget of its peer.
pub(crate) const OVER_BUDGET: AuthRefusal = AuthRefusal::Unavailable {
    why: "too many pending tokens from this address; retry later",
    retry_s: 1,
};

/// Authenticates the callers of a server.
pub struct Gate {
    authenticator: Arc<dyn Authenticator>,
    accounts: Arc<Accounts>,
    cached: FixedTable<CachedCredential>,
    peers: FailingPeers,
    /// The number of wrong keys with a delayed answer.
    waiting: Arc<AtomicUsize>,
    /// One hasher for each kind of credential, so that credentials of different kinds never match.
    hashers: [SipHasher24; CredentialKind::ALL.len()],
}

/// An admitted caller and its account.
#[derive(Clone)]
pub struct AdmittedCaller {
    admission: Admission,
    account: Arc<CallerAccount>,
    authenticator: Arc<dyn Authenticator>,
    /// The authorities of the caller's certificate, if the certificate authenticated the caller.
    authorities: Option<Arc<Grant>>,
    /// The size of the caller in bytes, without shared scopes.
    held_bytes: usize,
}

impl AdmittedCaller {
    /// A caller that the embedding program has authenticated.
    #[cfg(feature = "embed")]
    pub(crate) fn vouched(
        principal: Principal,
        accounts: &Accounts,
        now: Now,
    ) -> Arc<AdmittedCaller> {
        let account = accounts.of_owner(principal.owner(), now);
        let held_bytes = size_of::<AdmittedCaller>() + principal.held_bytes(false);
        let (principal, grant) = (Arc::new(principal), Arc::default());
        let admission = Admission { principal, expires_unix_ms: u64::MAX, grant };
        // Used only for challenges, and this credential is never refused.
        let authenticator = Arc::new(CertificateCallers::default());
        Arc::new(AdmittedCaller {
            admission,
            account,
            authenticator,
            authorities: None,
            held_bytes,
        })
    }

    /// Whether the caller is still admitted.
    pub fn holds(&self, now: Now) -> bool {
        let is_believed = !self.authorities.as_ref().is_some_and(|by| by.is_withdrawn());
        is_believed && self.admission.holds(now)
    }

    /// As [`AdmittedCaller::holds`], for a call, stream or connection that waits: `wake` is woken
    /// when the credential is withdrawn.
    pub(crate) fn holds_or_wakes(
        &self,
        watch: &mut Option<Box<CallerWatch>>,
        now: Now,
        wake: &Waker,
    ) -> bool {
        if !watch.as_ref().is_some_and(|watch| watch.of_grant.will_wake(wake)) {
            let watch_of = |grant| GrantWatch::new(grant, wake);
            *watch = Some(Box::new(CallerWatch {
                of_grant: watch_of(&self.admission.grant),
                _of_authorities: self.authorities.as_ref().map(watch_of),
            }));
        }
        self.holds(now)
    }

    /// Bytes of the caller that a waiting call counts with its buffers: 0 for most callers.
    pub(crate) fn counted_bytes(&self) -> usize {
        self.held_bytes.saturating_sub(CALLER_BYTES)
    }

    /// The size of the caller in bytes, without shared scopes.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The account that the caller's calls are charged to.
    pub(crate) fn account(&self) -> &Arc<CallerAccount> {
        &self.account
    }

    /// The value of `WWW-Authenticate` for a later refusal.
    pub(crate) fn challenge(&self, refusal: &AuthRefusal) -> String {
        self.authenticator.challenge(refusal)
    }
}

/// Wakes a call or connection of an admitted caller when its credential is withdrawn.
pub struct CallerWatch {
    of_grant: GrantWatch,
    _of_authorities: Option<GrantWatch>,
}

impl fmt::Debug for AdmittedCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmittedCaller").field("admission", &self.admission).finish_non_exhaustive()
    }
}

impl Deref for AdmittedCaller {
    type Target = Admission;

    fn deref(&self) -> &Admission {
        &self.admission
    }
}

/// A cached right credential.
struct CachedCredential {
    caller: Arc<AdmittedCaller>,
    /// When the credential must be verified again, in ms of the monotonic clock.
    until_ms: u64,
    used_ms: u64,
    /// [`RequiredScopes::number`] when the caller's scopes were filtered; 0: they are complete.
    scopes: u64,
}

/// A request that is not admitted.
#[derive(Debug)]
pub struct NotAdmitted {
    /// The reason.
    pub refusal: AuthRefusal,
    /// `Some`: the answer is delayed, and the connection closes after it.
    pub delay: Option<RefusalDelay>,
    /// `Some`: with this wrong credential the address has reached the limit of failures, so it is
    /// slowed.
    pub slowed: Option<IpAddr>,
}

impl From<AuthRefusal> for NotAdmitted {
    fn from(refusal: AuthRefusal) -> NotAdmitted {
        NotAdmitted { refusal, delay: None, slowed: None }
    }
}

/// A slot among the delayed answers to wrong keys, released on drop.
#[derive(Debug)]
pub struct RefusalDelay {
    /// When to answer, in ms of the monotonic clock.
    pub due_ms: u64,
    waiting: Arc<AtomicUsize>,
}

impl RefusalDelay {
    fn new(waiting: &Arc<AtomicUsize>, now: Now) -> Option<RefusalDelay> {
        let delay = RefusalDelay {
            due_ms: now.mono_ms.saturating_add(WRONG_KEY_DELAY_MS),
            waiting: Arc::clone(waiting),
        };
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        (before < WRONG_KEYS_WAITING_MAX).then_some(delay)
    }
}

impl Drop for RefusalDelay {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The cache key of a credential.
#[derive(Clone, Copy)]
struct CredentialKey {
    kind: CredentialKind,
    hash: u128,
}

/// A request to authenticate.
#[derive(Clone, Copy)]
pub struct GateRequest<'r> {
    /// The credentials of the request.
    pub source: &'r CredentialSource<'r>,
    /// The service interface.
    pub service: &'r dyn Service,
    /// The time.
    pub now: Now,
    /// Woken when a pending answer is ready.
    pub wake: &'r Waker,
}

/// The cache state of a credential.
enum Standing {
    Good(Arc<AdmittedCaller>, GateEntry),
    /// The credential was right earlier, and must be verified again.
    Stale,
    Unknown,
}

impl Gate {
    /// A gate that caches `credentials_max` credentials and tracks as many peers; `secret` must be
    /// used for nothing else.
    pub fn new(
        authenticator: Arc<dyn Authenticator>,
        accounts: Arc<Accounts>,
        credentials_max: usize,
        secret: u128,
    ) -> Gate {
        let cached = FixedTable::new(credentials_max);
        let keyed = |key: u128| SipHasher24::new_with_keys(key as u64, (key >> 64) as u64);
        let peer_hasher = keyed(secret);
        let hashers =
            CredentialKind::ALL.map(|kind| keyed(peer_hasher.hash(&[kind as u8]).as_u128()));
        let peers = FailingPeers::new(credentials_max, peer_hasher);
        Gate { authenticator, accounts, cached, peers, waiting: Arc::default(), hashers }
    }

    /// Admits the caller of a request; `None`: the request has no credential. Pending: `wake` is
    /// woken when the authenticator has answered.
    ///
    /// # Errors
    /// [`AuthRefusal`], but never [`AuthRefusal::Missing`].
    pub fn admit(
        &self,
        recent: &mut RecentCallers,
        request: GateRequest<'_>,
    ) -> Poll<Result<Option<Arc<AdmittedCaller>>, NotAdmitted>> {
        let GateRequest { source, service, now, .. } = request;
        let Some(presented) = self.authenticator.find(source) else { return Poll::Ready(Ok(None)) };
        let key = CredentialKey { kind: presented.kind, hash: self.hash(&presented) };
        if let Some(caller) = recent.find(key.hash, || service.scopes_number(), now) {
            return Poll::Ready(Ok(Some(Arc::clone(caller))));
        }
        let check = |presented| self.check(presented, key, request);
        match self.standing(key.hash, service, now) {
            Standing::Good(caller, gate) => {
                Poll::Ready(Ok(Some(recent.keep(key.hash, caller, gate, now))))
            }
            Standing::Stale => check(presented),
            Standing::Unknown if presented.kind == CredentialKind::Jwt => {
                let address = source.address();
                let Some(address) = address.filter(|from| self.peers.has_failed(*from, now)) else {
                    return check(presented);
                };
                // A token with invalid claims does not use the budget of verifications.
                if let Err(refusal) = self.authenticator.check_claims(&presented, now) {
                    let refused = self.refused(key, Some(address), refusal, now);
                    return Poll::Ready(Err(refused));
                }
                if !self.peers.may_check(address, now) {
                    return Poll::Ready(Err(OVER_BUDGET.into()));
                }
                let checked = check(presented);
                let refusal = match &checked {
                    Poll::Pending => return checked,
                    Poll::Ready(Ok(_)) => None,
                    Poll::Ready(Err(refused)) => Some(refused.refusal),
                };
                // If the issuer's keys are not available, no signature was verified.
                if !matches!(refusal, Some(AuthRefusal::Unavailable { .. })) {
                    self.peers.count_check(address, now);
                }
                checked
            }
            Standing::Unknown => check(presented),
        }
    }

    /// The authenticator, which decides whether credentials are right.
    #[cfg(feature = "push")]
    pub fn authenticator(&self) -> &Arc<dyn Authenticator> {
        &self.authenticator
    }

    /// The value of `WWW-Authenticate` for a refusal.
    pub fn challenge(&self, refusal: &AuthRefusal) -> String {
        self.authenticator.challenge(refusal)
    }

    /// The current security schemes for cards.
    pub fn security(&self) -> CardSecurity {
        self.authenticator.security()
    }

    #[cold]
    fn check(
        &self,
        presented: Presented<'_>,
        key: CredentialKey,
        request: GateRequest<'_>,
    ) -> Poll<Result<Option<Arc<AdmittedCaller>>, NotAdmitted>> {
        let GateRequest { source, service, now, wake } = request;
        let address = source.address().filter(|_| is_guessed(presented.kind));
        let is_certificate = presented.kind == CredentialKind::Certificate;
        let shown = source.certificate.filter(|_| is_certificate);
        let presented = Presented { address, ..presented };
        let Poll::Ready(checked) = self.authenticator.check(&presented, now, wake) else {
            return Poll::Pending;
        };
        Poll::Ready(match checked {
            Ok(admission) if admission.holds(now) => {
                let account = self.accounts.of_owner(admission.principal.owner(), now);
                let authenticator = Arc::clone(&self.authenticator);
                let authorities = shown.map(|shown| Arc::clone(&shown.authorities));
                let (admission, scopes) = retain_scopes(admission, presented.kind, service);
                let held_bytes =
                    size_of::<AdmittedCaller>() + admission.principal.held_bytes(scopes.are_shared);
                let caller = Arc::new(AdmittedCaller {
                    admission,
                    account,
                    authenticator,
                    authorities,
                    held_bytes,
                });
                self.remember(key, &caller, scopes.number, now);
                Ok(Some(caller))
            }
            Ok(_) => {
                let refusal = AuthRefusal::Expired("the credential has expired");
                Err(self.refused(key, address, refusal, now))
            }
            Err(refusal) => Err(self.refused(key, address, refusal, now)),
        })
    }

    /// Handles a refused credential: a wrong one is removed from the cache, and counted.
    fn refused(
        &self,
        key: CredentialKey,
        address: Option<IpAddr>,
        refusal: AuthRefusal,
        now: Now,
    ) -> NotAdmitted {
        if let AuthRefusal::Wrong(_) | AuthRefusal::Expired(_) = refusal {
            self.cached.remove(key.hash);
        }
        match (refusal, address) {
            (AuthRefusal::Wrong(_), Some(address)) => self.wrong(key.kind, address, refusal, now),
            (refusal, _) => refusal.into(),
        }
    }

    /// Counts a wrong credential of a peer. After too many failures the answer to a wrong key is
    /// delayed; the check itself costs only a hash, so the answer to a right key is never delayed.
    fn wrong(
        &self,
        kind: CredentialKind,
        address: IpAddr,
        refusal: AuthRefusal,
        now: Now,
    ) -> NotAdmitted {
        let has_failed = self.peers.has_failed(address, now);
        let slowed = self.peers.count_failure(address, now).then_some(address);
        if kind == CredentialKind::Jwt || !has_failed {
            return NotAdmitted { refusal, delay: None, slowed };
        }
        match RefusalDelay::new(&self.waiting, now) {
            Some(delay) => NotAdmitted { refusal, delay: Some(delay), slowed },
            None => AuthRefusal::TooMany { retry_s: 1 }.into(),
        }
    }

    fn standing(&self, hash: u128, service: &dyn Service, now: Now) -> Standing {
        let look = |cached: &mut CachedCredential| {
            cached.used_ms = now.mono_ms;
            let has_scopes = cached.scopes == 0 || cached.scopes == service.scopes_number();
            match has_scopes && now.mono_ms < cached.until_ms && cached.caller.holds(now) {
                true => {
                    let CachedCredential { until_ms, scopes, .. } = *cached;
                    Standing::Good(Arc::clone(&cached.caller), GateEntry { until_ms, scopes })
                }
                false => Standing::Stale,
            }
        };
        self.cached.look(hash, look).unwrap_or(Standing::Unknown)
    }

    /// Caches a right credential, unless its retained data is too large.
    fn remember(&self, key: CredentialKey, caller: &Arc<AdmittedCaller>, scopes: u64, now: Now) {
        let until_ms = match key.kind {
            CredentialKind::Jwt => now.mono_ms.saturating_add(TOKEN_MS),
            CredentialKind::ApiKey
            | CredentialKind::Bearer
            | CredentialKind::Certificate
            | CredentialKind::Proxy => u64::MAX,
        };
        let caller = Arc::clone(caller);
        let cached = CachedCredential { caller, until_ms, used_ms: now.mono_ms, scopes };
        let weight = |cached: &CachedCredential| cached.caller.held_bytes;
        self.cached.put(key.hash, cached, CREDENTIAL_HELD_BYTES, |cached| cached.used_ms, weight);
    }

    fn hash(&self, presented: &Presented<'_>) -> u128 {
        self.hashers[presented.kind as usize].hash(&presented.secret).as_u128()
    }
}

/// How a caller's scopes were filtered.
struct RetainedScopes {
    /// [`RequiredScopes::number`] when the scopes were filtered; 0: complete.
    number: u64,
    /// True: their texts are shared with the configuration.
    are_shared: bool,
}

/// Drops the scopes that no agent requires, unless the configuration holds their texts.
fn retain_scopes(
    admission: Admission,
    kind: CredentialKind,
    service: &dyn Service,
) -> (Admission, RetainedScopes) {
    let is_external = matches!(kind, CredentialKind::Jwt | CredentialKind::Proxy);
    match service.required_scopes().filter(|_| is_external) {
        None => (admission, RetainedScopes { number: 0, are_shared: !is_external }),
        Some(required) if required.all => {
            (admission, RetainedScopes { number: required.number, are_shared: false })
        }
        Some(required) => {
            let principal = Arc::unwrap_or_clone(admission.principal);
            let principal = Arc::new(principal.with_scopes_in(&required.names));
            let retained = RetainedScopes { number: required.number, are_shared: true };
            (Admission { principal, ..admission }, retained)
        }
    }
}

/// Whether a peer can guess a credential of this kind.
const fn is_guessed(kind: CredentialKind) -> bool {
    match kind {
        CredentialKind::ApiKey | CredentialKind::Bearer | CredentialKind::Jwt => true,
        CredentialKind::Certificate | CredentialKind::Proxy => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        borrow::Cow,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;
    use crate::{
        auth::{
            CertificateCallers, Grant, Principal, PrincipalBuf, Quota, Quotas, ScopeSet,
            TenantGrant, recent::RECENT_MS,
        },
        fault::Fault,
        limits::callers::{PEER_CHECKS_MAX, PEER_FAILURES_MAX},
        model::{Call, CardSecurity, Profile},
        service::{
            AgentIndex, Answer, CallCx, Cursor, Each, Follow, Lifecycle, Outcome, PeerCertificate,
            RequiredScopes, WaitHandle,
        },
    };

    /// Accepts tokens that begin with `right`, and counts the checks.
    #[derive(Default)]
    struct One {
        checks: AtomicUsize,
        grant: Arc<Grant>,
    }

    impl Authenticator for One {
        fn find<'a>(&self, source: &CredentialSource<'a>) -> Option<Presented<'a>> {
            if let Some(name) = source.identity {
                let secret = Cow::Borrowed(name.as_bytes());
                let kind = CredentialKind::Certificate;
                return Some(Presented { kind, secret, address: None });
            }
            if let Some(key) = source.api_key {
                let (kind, secret) = (CredentialKind::ApiKey, Cow::Borrowed(key));
                return Some(Presented { kind, secret, address: None });
            }
            let secret = Cow::Borrowed(source.authorization?);
            Some(Presented { kind: CredentialKind::Jwt, secret, address: None })
        }

        fn check(
            &self,
            presented: &Presented<'_>,
            _now: Now,
            _wake: &Waker,
        ) -> Poll<Result<Admission, AuthRefusal>> {
            self.checks.fetch_add(1, Ordering::Relaxed);
            if presented.secret.starts_with(b"unknown") {
                let (why, retry_s) = ("not now", 9);
                return Poll::Ready(Err(AuthRefusal::Unavailable { why, retry_s }));
            }
            if presented.secret.starts_with(b"expired") {
                return Poll::Ready(Err(AuthRefusal::Expired("late")));
            }
            if self.grant.is_withdrawn() || !presented.secret.starts_with(b"right") {
                return Poll::Ready(Err(AuthRefusal::Wrong("no")));
            }
            let principal = Arc::new(Principal::new(PrincipalBuf {
                kind: presented.kind,
                issuer: "i".to_owned(),
                name: "n".to_owned(),
                tenants: TenantGrant::None,
                scopes: str::from_utf8(&presented.secret).map(words).unwrap(),
                quota: None,
            }));
            let grant = Arc::clone(&self.grant);
            Poll::Ready(Ok(Admission { principal, expires_unix_ms: 10_000_000, grant }))
        }

        fn check_claims(&self, presented: &Presented<'_>, _now: Now) -> Result<(), AuthRefusal> {
            match presented.secret.starts_with(b"expired") {
                true => Err(AuthRefusal::Expired("late")),
                false => Ok(()),
            }
        }

        fn challenge(&self, _refusal: &AuthRefusal) -> String {
            String::new()
        }

        fn security(&self) -> CardSecurity {
            CardSecurity::default()
        }
    }

    /// All words after the first are scopes.
    fn words(token: &str) -> ScopeSet {
        ScopeSet::new(token.split(' ').skip(1))
    }

    /// Requires these scopes.
    #[derive(Default)]
    struct RequiringService(RequiredScopes);

    impl Lifecycle for RequiringService {}

    impl Service for RequiringService {
        fn call(
            &self,
            _cx: &mut CallCx<'_>,
            _call: Call<'_>,
            _answer: &mut Answer<'_>,
        ) -> Result<Outcome, Fault> {
            panic!("there are no calls")
        }

        fn poll(
            &self,
            _wait: &mut WaitHandle,
            _wake: &Waker,
            _answer: &mut Answer<'_>,
        ) -> Poll<Result<Outcome, Fault>> {
            panic!("no call waits")
        }

        fn follow(&self, _: &mut Cursor, _: &Waker, _: &mut Each<'_>) -> Follow {
            panic!("no stream follows")
        }

        fn profile(&self, _agent: AgentIndex) -> Option<Arc<Profile>> {
            None
        }

        fn required_scopes(&self) -> Option<Arc<RequiredScopes>> {
            (self.0.number > 0).then(|| Arc::new(self.0.clone()))
        }

        fn scopes_number(&self) -> u64 {
            self.0.number
        }
    }

    /// The result of a gate that does not make a request wait, at this time.
    fn admit(
        gate: &Gate,
        recent: &mut RecentCallers,
        source: &CredentialSource<'_>,
        service: &RequiringService,
        ms: u64,
    ) -> Result<Option<Arc<AdmittedCaller>>, NotAdmitted> {
        let now = Now { mono_ms: ms, unix_ms: ms };
        match gate.admit(recent, GateRequest { source, service, now, wake: Waker::noop() }) {
            Poll::Ready(admitted) => admitted,
            Poll::Pending => panic!("the gate does not make a request wait"),
        }
    }

    #[test]
    fn only_required_scopes_are_retained() {
        let (gate, one) = gate();
        let show = |secret: &str, number: u64, names: &[&str], all: bool| {
            let authorization = Some(secret.as_bytes());
            let source = CredentialSource { authorization, ..CredentialSource::default() };
            let service = RequiringService(RequiredScopes {
                number,
                names: ScopeSet::new(names.to_vec()),
                all,
            });
            let caller =
                admit(&gate, &mut RecentCallers::default(), &source, &service, 1).unwrap().unwrap();
            let scopes = caller.principal.scopes().names().collect::<Vec<_>>();
            (scopes.join(" "), one.checks.load(Ordering::Relaxed))
        };
        let token = "right with c b a";
        assert_eq!(show(token, 1, &["b", "x"], false), ("b".to_owned(), 1));
        assert_eq!(show(token, 1, &["b", "x"], false), ("b".to_owned(), 1));
        // The required scopes have changed: the credential is verified again.
        assert_eq!(show(token, 2, &["a", "c"], false), ("a c".to_owned(), 2));
        assert_eq!(show(token, 3, &[], true), ("a b c with".to_owned(), 3));
        assert_eq!(show(token, 4, &[], false), (String::new(), 4));
        // The service does not list its required scopes.
        assert_eq!(show("right d", 0, &[], false), ("d".to_owned(), 5));
    }

    #[test]
    fn a_credential_is_cached_unless_it_is_too_large() {
        let (gate, one) = gate();
        let checks_after = |secret: &str| {
            assert!(admit_token(&gate, secret, "192.0.2.1", 1).is_ok());
            one.checks.load(Ordering::Relaxed)
        };
        let of = |scopes: usize| {
            let names: Vec<String> = (0..scopes).map(|n| format!("scope-{n}")).collect();
            format!("right {}", names.join(" "))
        };
        let (small, large) = (of(20), of(200));
        assert_eq!((checks_after(&small), checks_after(&small)), (1, 1));
        assert_eq!((checks_after(&large), checks_after(&large), checks_after(&small)), (2, 3, 3));
    }

    fn admit_token(
        gate: &Gate,
        secret: &str,
        address: &str,
        ms: u64,
    ) -> Result<Option<Arc<AdmittedCaller>>, AuthRefusal> {
        let authorization = Some(secret.as_bytes());
        let remote = Some(address.parse().unwrap());
        let source = CredentialSource { authorization, remote, ..CredentialSource::default() };
        admit(gate, &mut RecentCallers::default(), &source, &RequiringService::default(), ms)
            .map_err(|refused| refused.refusal)
    }

    fn gate() -> (Gate, Arc<One>) {
        let one = Arc::new(One::default());
        let accounts = Arc::new(Accounts::new(100, Quotas::default(), Quota::default(), 7));
        (Gate::new(Arc::clone(&one) as Arc<dyn Authenticator>, accounts, 100, 7), one)
    }

    #[test]
    fn token_is_reverified_after_five_minutes_and_at_expiry() {
        let (gate, one) = gate();
        for (ms, checks) in [(0, 1), (1, 1), (TOKEN_MS - 1, 1), (TOKEN_MS, 2), (TOKEN_MS + 1, 2)] {
            assert!(admit_token(&gate, "right", "192.0.2.1", ms).unwrap().is_some());
            assert_eq!(one.checks.load(Ordering::Relaxed), checks, "{ms}");
        }
        let late = admit_token(&gate, "right", "192.0.2.1", 10_000_000);
        assert!(matches!(late, Err(AuthRefusal::Expired(_))), "{late:?}");
    }

    #[test]
    fn worker_cache_ends_on_withdrawal_or_recheck() {
        let (gate, one) = gate();
        let mut recent = RecentCallers::default();
        let mut admit_at = |ms| {
            let source =
                CredentialSource { authorization: Some(b"right"), ..CredentialSource::default() };
            admit(&gate, &mut recent, &source, &RequiringService::default(), ms).map(Option::unwrap)
        };
        let checked = admit_at(0).unwrap();
        let [copied, again] = [1, RECENT_MS].map(|ms| admit_at(ms).unwrap());
        assert!(Arc::ptr_eq(&copied, &again) && !Arc::ptr_eq(&checked, &copied));
        // The gate reads its entry each second, so that the entry is never the least recently used.
        let from_gate = admit_at(1 + RECENT_MS).unwrap();
        assert!(!Arc::ptr_eq(&copied, &from_gate));
        assert!(Arc::ptr_eq(copied.account(), from_gate.account()));
        assert_eq!(one.checks.load(Ordering::Relaxed), 1);
        // A cached copy does not outlast the five minutes of the gate's entry.
        admit_at(TOKEN_MS - 1).unwrap();
        admit_at(TOKEN_MS).unwrap();
        assert_eq!(one.checks.load(Ordering::Relaxed), 2);
        admit_at(TOKEN_MS + 1).unwrap();
        one.grant.withdraw();
        assert!(matches!(admit_at(TOKEN_MS + 2).unwrap_err().refusal, AuthRefusal::Wrong(_)));
    }

    #[test]
    fn withdrawn_grant_rejects_cached_token_at_once() {
        let (gate, one) = gate();
        assert!(admit_token(&gate, "right", "192.0.2.1", 0).is_ok());
        one.grant.withdraw();
        assert!(matches!(admit_token(&gate, "right", "192.0.2.1", 1), Err(AuthRefusal::Wrong(_))));
    }

    #[test]
    fn peer_over_check_budget_still_uses_cached_tokens() {
        let (gate, one) = gate();
        for n in 0..2 * PEER_FAILURES_MAX {
            // Each second has a budget, so no wrong token gets another answer.
            let wrong =
                admit_token(&gate, &format!("wrong {n}"), "2001:db8::2", u64::from(n) * 100);
            assert!(matches!(wrong, Err(AuthRefusal::Wrong(_))), "{n} {wrong:?}");
        }
        // Addresses in the same network of 64 bits belong to the same peer.
        assert!(admit_token(&gate, "right and new", "2001:db8::3", 2_000).is_ok());
        assert!(matches!(
            admit_token(&gate, "wrong", "2001:db8:1::", 2_000),
            Err(AuthRefusal::Wrong(_))
        ));
        let checks = one.checks.load(Ordering::Relaxed);
        let over = (0..PEER_CHECKS_MAX)
            .map(|n| admit_token(&gate, &format!("wrong {n}"), "2001:db8::2", 2_001))
            .filter(|refused| matches!(refused, Err(AuthRefusal::Unavailable { retry_s: 1, .. })));
        assert_eq!(over.count(), 1);
        assert_eq!(one.checks.load(Ordering::Relaxed), checks + PEER_CHECKS_MAX as usize - 1);
        // Beyond the budget a cached token passes, and a new token is not rejected as wrong; an
        // expired token is rejected as expired, and does not use the budget.
        for _ in 0..2 * PEER_CHECKS_MAX {
            let refused = admit_token(&gate, "expired", "2001:db8::2", 2_002).unwrap_err();
            assert_eq!(refused, AuthRefusal::Expired("late"));
        }
        assert!(admit_token(&gate, "right and new", "2001:db8::2", 2_002).is_ok());
        let refused = admit_token(&gate, "right and newer", "2001:db8::2", 2_002).unwrap_err();
        assert!(matches!(refused, AuthRefusal::Unavailable { .. }), "{refused:?}");
        assert!(admit_token(&gate, "right and newer", "2001:db8::2", 3_001).is_ok());
    }

    #[test]
    fn expired_or_unverified_tokens_do_not_count_as_failures() {
        let (gate, _) = gate();
        for n in 0..10 * PEER_FAILURES_MAX {
            let refused = admit_token(&gate, &format!("expired {n}"), "192.0.2.1", 0).unwrap_err();
            assert_eq!(refused, AuthRefusal::Expired("late"));
            let refused = admit_token(&gate, &format!("unknown {n}"), "192.0.2.1", 0).unwrap_err();
            assert_eq!(refused, AuthRefusal::Unavailable { why: "not now", retry_s: 9 });
        }
        assert!(admit_token(&gate, "right", "192.0.2.1", 0).is_ok());
    }

    #[test]
    fn wrong_keys_waiting_max() {
        let (gate, _) = gate();
        let key = |secret: &'static str| {
            let (key, remote) = (secret.as_bytes(), Some("192.0.2.1".parse().unwrap()));
            let source = CredentialSource { api_key: Some(key), remote, ..Default::default() };
            admit(&gate, &mut RecentCallers::default(), &source, &RequiringService::default(), 5)
        };
        for _ in 0..PEER_FAILURES_MAX {
            assert!(key("wrong").unwrap_err().delay.is_none());
        }
        let mut waiting: Vec<NotAdmitted> =
            (0..WRONG_KEYS_WAITING_MAX).map(|_| key("wrong").unwrap_err()).collect();
        for refused in &waiting {
            assert_eq!(refused.refusal, AuthRefusal::Wrong("no"));
            let due_ms = refused.delay.as_ref().map(|delay| delay.due_ms);
            assert_eq!(due_ms, Some(5 + WRONG_KEY_DELAY_MS));
        }
        let beyond = key("wrong").unwrap_err();
        assert_eq!(beyond.refusal, AuthRefusal::TooMany { retry_s: 1 });
        // A right key always passes.
        assert!(key("right").unwrap().is_some());
        waiting.pop();
        assert!(key("wrong").unwrap_err().delay.is_some());
        waiting.clear();
        assert_eq!(gate.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn wrong_certificates_do_not_count_as_peer_failures() {
        let (gate, _) = gate();
        let remote = Some("192.0.2.1".parse().unwrap());
        let show = |name: &'static str| {
            let source =
                CredentialSource { identity: Some(name), remote, ..CredentialSource::default() };
            admit(&gate, &mut RecentCallers::default(), &source, &RequiringService::default(), 1)
        };
        for _ in 0..2 * PEER_FAILURES_MAX {
            let refused = show("a wrong one").unwrap_err();
            assert!(matches!(refused.refusal, AuthRefusal::Wrong(_)) && refused.delay.is_none());
        }
        let address = "192.0.2.1".parse().unwrap();
        assert!(!gate.peers.has_failed(address, Now::default()));
        assert!(show("right by certificate").unwrap().is_some());
    }

    #[test]
    fn certificate_needs_validity_and_trusted_authorities() {
        let by = Arc::new(CertificateCallers::default());
        let accounts = Arc::new(Accounts::new(100, Quotas::default(), Quota::default(), 7));
        let gate = Gate::new(by, accounts, 100, 7);
        let shown = |ends_unix_ms| PeerCertificate {
            issuer: "CN=ca".into(),
            ends_unix_ms,
            authorities: Arc::default(),
        };
        let show = |certificate: &PeerCertificate, ms: u64| {
            let (identity, certificate) = (Some("alice"), Some(certificate));
            let source = CredentialSource { identity, certificate, ..CredentialSource::default() };
            admit(&gate, &mut RecentCallers::default(), &source, &RequiringService::default(), ms)
        };
        let short = shown(1_000);
        let caller = show(&short, 0).unwrap().unwrap();
        assert!(show(&short, 999).unwrap().is_some() && caller.holds(Now::default()));
        let ended = show(&short, 1_000).unwrap_err();
        assert!(matches!(ended.refusal, AuthRefusal::Expired(_)), "{ended:?}");
        // Another certificate of the same name with a later end.
        let long = shown(2_000);
        let caller = show(&long, 1_000).unwrap().unwrap();
        assert_eq!(caller.expires_unix_ms, 2_000);
        long.authorities.withdraw();
        assert!(!caller.holds(Now::default()) && show(&long, 1_000).unwrap().is_none());
        // The same certificate, over a connection with trusted authorities.
        assert!(show(&shown(2_000), 1_000).unwrap().is_some());
    }
}
