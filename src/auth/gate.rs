//! The gate of a server: who is known is let in at once, who is not is checked, and who is wrong
//! too often is sent away.
//!
//! Law: a credential is remembered by a keyed hash of 128 bits and by nothing else. One that was
//! right passes whatever its peer has done; one that is not known costs no check once its peer has
//! failed [`FAILURES_MAX`] times in [`FAILURE_WINDOW_MS`]. That holds for what can be guessed: who
//! comes with the word of a proxy, or with a certificate, pays for nobody's guesses.

use std::{
    fmt,
    hash::Hasher,
    net::IpAddr,
    ops::Deref,
    sync::Arc,
    task::{Poll, Waker},
};

use siphasher::sip128::{Hasher128, SipHasher24};

use super::{
    Accounts, Admission, AuthRefusal, Authenticator, CallerAccount, CredentialKind,
    CredentialSource, Grant, Presented, peer_bits, table::FixedTable,
};
use crate::{model::CardSecurity, service::Now};

/// How long a token counts as verified.
const TOKEN_MS: u64 = 300_000;
/// Wrong credentials of one peer, after which it is sent away.
const FAILURES_MAX: u32 = 10;
/// The time in which they are counted.
const FAILURE_WINDOW_MS: u64 = 300_000;
/// Credentials of one peer that could not be checked, after which none is for a while: each may
/// have cost as much as one that was wrong.
const UNCHECKED_MAX: u32 = 10;
/// The time in which they are counted: short, since they may have been right.
const UNCHECKED_WINDOW_MS: u64 = 10_000;
/// What a peer hears then.
const UNCHECKED: AuthRefusal =
    AuthRefusal::Unavailable("too many credentials from here cannot be checked for now");

/// What is counted of a peer.
#[derive(Clone, Copy)]
struct Throttle {
    /// What tells its count from others of the same peer.
    tag: u8,
    most: u32,
    window_ms: u64,
}

const WRONG: Throttle = Throttle { tag: u8::MAX, most: FAILURES_MAX, window_ms: FAILURE_WINDOW_MS };
const NOT_CHECKED: Throttle =
    Throttle { tag: u8::MAX - 1, most: UNCHECKED_MAX, window_ms: UNCHECKED_WINDOW_MS };

/// What a server asks of its callers, and whom it knows.
pub struct Gate {
    authenticator: Arc<dyn Authenticator>,
    accounts: Arc<Accounts>,
    known: FixedTable<KnownCredential>,
    failures: FixedTable<Failures>,
    /// Of credentials, for each kind of them: none is ever taken for one of another kind.
    hashers: [SipHasher24; CredentialKind::ALL.len()],
    peer_hasher: SipHasher24,
}

/// A caller that is let in, and its account.
pub struct AdmittedCaller {
    admission: Admission,
    account: Arc<CallerAccount>,
    authenticator: Arc<dyn Authenticator>,
    /// What its certificate leads to, if it is known by one.
    authorities: Option<Arc<Grant>>,
}

impl AdmittedCaller {
    /// Whether it is let in now.
    pub fn holds(&self, now: Now) -> bool {
        let is_believed = !self.authorities.as_ref().is_some_and(|by| by.is_withdrawn());
        is_believed && self.admission.holds(now)
    }

    /// On which account it takes its share.
    pub(crate) fn account(&self) -> &Arc<CallerAccount> {
        &self.account
    }

    /// The value of `WWW-Authenticate` when it is refused after all.
    pub(crate) fn challenge(&self, refusal: &AuthRefusal) -> String {
        self.authenticator.challenge(refusal)
    }
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

/// A credential that was right.
struct KnownCredential {
    caller: Arc<AdmittedCaller>,
    /// Until then it need not be checked again, in ms of the monotonic clock.
    until_ms: u64,
    used_ms: u64,
}

/// The wrong credentials of one peer.
struct Failures {
    count: u32,
    since_ms: u64,
}

/// How a credential stands.
enum Standing {
    Good(Arc<AdmittedCaller>),
    /// It was right once.
    Stale,
    Unknown,
}

impl Gate {
    /// A gate that remembers so many credentials, and as many peers; `secret` is nobody's else.
    pub fn new(
        authenticator: Arc<dyn Authenticator>,
        accounts: Arc<Accounts>,
        credentials_max: usize,
        secret: u128,
    ) -> Gate {
        let (known, failures) =
            (FixedTable::new(credentials_max), FixedTable::new(credentials_max));
        let keyed = |key: u128| SipHasher24::new_with_keys(key as u64, (key >> 64) as u64);
        let peer_hasher = keyed(secret);
        let hashers =
            CredentialKind::ALL.map(|kind| keyed(peer_hasher.hash(&[kind as u8]).as_u128()));
        Gate { authenticator, accounts, known, failures, hashers, peer_hasher }
    }

    /// Who makes a request; `None`: it shows no credential.
    ///
    /// # Errors
    /// [`AuthRefusal`], but never [`AuthRefusal::Missing`].
    pub fn admit(
        &self,
        source: &CredentialSource<'_>,
        now: Now,
        wake: &Waker,
    ) -> Poll<Result<Option<Arc<AdmittedCaller>>, AuthRefusal>> {
        let Some(presented) = self.authenticator.find(source) else { return Poll::Ready(Ok(None)) };
        let hash = self.hash(&presented);
        match self.standing(hash, now) {
            Standing::Good(caller) => return Poll::Ready(Ok(Some(caller))),
            Standing::Stale => {}
            Standing::Unknown => {
                if is_guessed(presented.kind)
                    && let Some(refusal) = self.sent_away(source.address(), now)
                {
                    return Poll::Ready(Err(refusal));
                }
            }
        }
        self.check(presented, hash, source, now, wake)
    }

    /// The value of `WWW-Authenticate` for a refusal.
    pub fn challenge(&self, refusal: &AuthRefusal) -> String {
        self.authenticator.challenge(refusal)
    }

    /// What cards say that callers have to show, as it is now.
    pub fn security(&self) -> CardSecurity {
        self.authenticator.security()
    }

    #[cold]
    fn check(
        &self,
        presented: Presented<'_>,
        hash: u128,
        source: &CredentialSource<'_>,
        now: Now,
        wake: &Waker,
    ) -> Poll<Result<Option<Arc<AdmittedCaller>>, AuthRefusal>> {
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
                let caller = AdmittedCaller { admission, account, authenticator, authorities };
                let caller = Arc::new(caller);
                self.remember(presented.kind, hash, &caller, now);
                Ok(Some(caller))
            }
            Ok(_) => Err(self.failed(
                hash,
                address,
                now,
                AuthRefusal::Wrong("the credential has expired"),
            )),
            Err(refusal @ AuthRefusal::Wrong(_)) => Err(self.failed(hash, address, now, refusal)),
            Err(refusal) => {
                if let (AuthRefusal::Unavailable(_), Some(address)) = (refusal, address) {
                    self.count(NOT_CHECKED, address, now);
                }
                Err(refusal)
            }
        })
    }

    fn standing(&self, hash: u128, now: Now) -> Standing {
        let look = |known: &mut KnownCredential| {
            known.used_ms = now.mono_ms;
            match now.mono_ms < known.until_ms && known.caller.holds(now) {
                true => Standing::Good(Arc::clone(&known.caller)),
                false => Standing::Stale,
            }
        };
        self.known.look(hash, look).unwrap_or(Standing::Unknown)
    }

    fn remember(&self, kind: CredentialKind, hash: u128, caller: &Arc<AdmittedCaller>, now: Now) {
        let until_ms = match kind {
            CredentialKind::Jwt => now.mono_ms.saturating_add(TOKEN_MS),
            CredentialKind::ApiKey
            | CredentialKind::Bearer
            | CredentialKind::Certificate
            | CredentialKind::Proxy => u64::MAX,
        };
        let make =
            || KnownCredential { caller: Arc::clone(caller), until_ms, used_ms: now.mono_ms };
        // An entry of worth 0 is an empty place.
        let worth = |known: &KnownCredential| known.used_ms.saturating_add(1);
        self.known.change(hash, make, worth, |known| *known = make());
    }

    /// Whether the peer has failed too often.
    fn sent_away(&self, address: Option<IpAddr>, now: Now) -> Option<AuthRefusal> {
        let address = address?;
        match self.used_up(WRONG, address, now) {
            Some(retry_s) => Some(AuthRefusal::TooMany { retry_s }),
            None => self.used_up(NOT_CHECKED, address, now).map(|_| UNCHECKED),
        }
    }

    /// Seconds until a peer may try again; `None`: it may.
    fn used_up(&self, throttle: Throttle, address: IpAddr, now: Now) -> Option<u32> {
        let retry = |failures: &mut Failures| {
            let end_ms = failures.since_ms + throttle.window_ms;
            let is_over = failures.count < throttle.most || now.mono_ms >= end_ms;
            (!is_over).then(|| (end_ms - now.mono_ms).div_ceil(1000) as u32)
        };
        self.failures.look(self.peer(throttle, address), retry).flatten()
    }

    fn count(&self, throttle: Throttle, address: IpAddr, now: Now) {
        let make = || Failures { count: 0, since_ms: now.mono_ms };
        let worth = |failures: &Failures| failures.since_ms.saturating_add(1);
        self.failures.change(self.peer(throttle, address), make, worth, |failures| {
            if now.mono_ms >= failures.since_ms + throttle.window_ms {
                *failures = make();
            }
            failures.count = failures.count.saturating_add(1);
        });
    }

    /// Counts a failure of a peer; a credential that is wrong now is known no longer.
    fn failed(
        &self,
        hash: u128,
        address: Option<IpAddr>,
        now: Now,
        refusal: AuthRefusal,
    ) -> AuthRefusal {
        self.known.remove(hash);
        if let Some(address) = address {
            self.count(WRONG, address, now);
        }
        refusal
    }

    fn hash(&self, presented: &Presented<'_>) -> u128 {
        self.hashers[presented.kind as usize].hash(&presented.secret).as_u128()
    }

    fn peer(&self, throttle: Throttle, address: IpAddr) -> u128 {
        let mut hasher = self.peer_hasher;
        hasher.write_u8(throttle.tag);
        hasher.write_u128(peer_bits(address));
        hasher.finish128().as_u128()
    }
}

/// Whether strangers can try what it is until it is right.
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
            TenantGrant,
        },
        model::CardSecurity,
        service::{PeerCertificate, Remote},
    };

    /// Knows whoever says `right`, and counts how often it is asked.
    #[derive(Default)]
    struct One {
        asked: AtomicUsize,
        grant: Arc<Grant>,
    }

    impl Authenticator for One {
        fn find<'a>(&self, source: &CredentialSource<'a>) -> Option<Presented<'a>> {
            if let Some(name) = source.identity {
                let secret = Cow::Borrowed(name.as_bytes());
                let kind = CredentialKind::Certificate;
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
            self.asked.fetch_add(1, Ordering::Relaxed);
            if presented.secret.starts_with(b"unknown") {
                return Poll::Ready(Err(AuthRefusal::Unavailable("not now")));
            }
            if self.grant.is_withdrawn() || !presented.secret.starts_with(b"right") {
                return Poll::Ready(Err(AuthRefusal::Wrong("no")));
            }
            let principal = Arc::new(Principal::new(PrincipalBuf {
                kind: presented.kind,
                issuer: "i".to_owned(),
                name: "n".to_owned(),
                tenants: TenantGrant::None,
                scopes: ScopeSet::default(),
                quota: None,
            }));
            let grant = Arc::clone(&self.grant);
            Poll::Ready(Ok(Admission { principal, expires_unix_ms: 10_000_000, grant }))
        }

        fn challenge(&self, _refusal: &AuthRefusal) -> String {
            String::new()
        }

        fn security(&self) -> CardSecurity {
            CardSecurity::default()
        }
    }

    fn ask(
        gate: &Gate,
        secret: &str,
        address: &str,
        ms: u64,
    ) -> Result<Option<Arc<AdmittedCaller>>, AuthRefusal> {
        let authorization = Some(secret.as_bytes());
        let remote = Remote::Known(address.parse().unwrap());
        let source = CredentialSource { authorization, remote, ..CredentialSource::default() };
        match gate.admit(&source, Now { mono_ms: ms, unix_ms: ms }, Waker::noop()) {
            Poll::Ready(admitted) => admitted,
            Poll::Pending => panic!("it never waits"),
        }
    }

    fn gate() -> (Gate, Arc<One>) {
        let one = Arc::new(One::default());
        let accounts = Arc::new(Accounts::new(100, Quotas::default(), Quota::default(), 7));
        (Gate::new(Arc::clone(&one) as Arc<dyn Authenticator>, accounts, 100, 7), one)
    }

    #[test]
    fn a_token_is_checked_again_after_five_minutes_and_at_its_end() {
        let (gate, one) = gate();
        for (ms, asked) in [(0, 1), (1, 1), (TOKEN_MS - 1, 1), (TOKEN_MS, 2), (TOKEN_MS + 1, 2)] {
            assert!(ask(&gate, "right", "192.0.2.1", ms).unwrap().is_some());
            assert_eq!(one.asked.load(Ordering::Relaxed), asked, "{ms}");
        }
        let late = ask(&gate, "right", "192.0.2.1", 10_000_000);
        assert!(matches!(late, Err(AuthRefusal::Wrong(_))), "{late:?}");
    }

    #[test]
    fn what_is_withdrawn_is_refused_at_once() {
        let (gate, one) = gate();
        assert!(ask(&gate, "right", "192.0.2.1", 0).is_ok());
        one.grant.withdraw();
        assert!(matches!(ask(&gate, "right", "192.0.2.1", 1), Err(AuthRefusal::Wrong(_))));
    }

    #[test]
    fn a_peer_that_fails_too_often_is_sent_away_but_what_is_known_passes() {
        let (gate, one) = gate();
        assert!(ask(&gate, "right", "2001:db8::1", 0).is_ok());
        for n in 0..FAILURES_MAX {
            let wrong = ask(&gate, &format!("wrong {n}"), "2001:db8::2", 1_000);
            assert!(matches!(wrong, Err(AuthRefusal::Wrong(_))), "{n} {wrong:?}");
        }
        let asked = one.asked.load(Ordering::Relaxed);
        // The same network of 64 bits is the same peer.
        for secret in ["wrong", "right and new"] {
            let refused = ask(&gate, secret, "2001:db8::3", 2_000);
            assert_eq!(refused.unwrap_err(), AuthRefusal::TooMany { retry_s: 299 }, "{secret}");
        }
        assert_eq!(one.asked.load(Ordering::Relaxed), asked);
        assert!(ask(&gate, "right", "2001:db8::3", 2_000).is_ok());
        assert!(matches!(ask(&gate, "wrong", "2001:db8:1::", 2_000), Err(AuthRefusal::Wrong(_))));
        // What was known has to be checked again, and passes.
        assert!(ask(&gate, "right", "2001:db8::1", TOKEN_MS).is_ok());
        let end_ms = 1_000 + FAILURE_WINDOW_MS;
        assert!(ask(&gate, "right and new", "2001:db8::3", end_ms).is_ok());
    }

    #[test]
    fn a_peer_that_shows_too_much_that_nobody_can_check_is_not_asked_for_a_while() {
        let (gate, one) = gate();
        assert!(ask(&gate, "right", "192.0.2.1", 0).is_ok());
        for n in 0..UNCHECKED_MAX {
            let refused = ask(&gate, &format!("unknown {n}"), "192.0.2.1", 0).unwrap_err();
            assert_eq!(refused, AuthRefusal::Unavailable("not now"));
        }
        let asked = one.asked.load(Ordering::Relaxed);
        let refused = ask(&gate, "right and new", "192.0.2.1", UNCHECKED_WINDOW_MS - 1);
        assert_eq!(refused.unwrap_err(), UNCHECKED);
        assert_eq!(one.asked.load(Ordering::Relaxed), asked);
        // Others are, it is again soon, and what is known passes.
        assert!(ask(&gate, "right and new", "192.0.2.2", 0).is_ok());
        assert!(ask(&gate, "right", "192.0.2.1", 0).is_ok());
        assert!(ask(&gate, "right and newer", "192.0.2.1", UNCHECKED_WINDOW_MS).is_ok());
    }

    #[test]
    fn what_nobody_guesses_pays_for_no_guesses_and_counts_as_none() {
        let (gate, one) = gate();
        let at = Now { mono_ms: 1, unix_ms: 1 };
        let remote = Remote::Known("192.0.2.1".parse().unwrap());
        let show = |name: &'static str| {
            let source =
                CredentialSource { identity: Some(name), remote, ..CredentialSource::default() };
            match gate.admit(&source, at, Waker::noop()) {
                Poll::Ready(admitted) => admitted,
                Poll::Pending => panic!("it never waits"),
            }
        };
        for _ in 0..FAILURES_MAX {
            assert!(matches!(show("a wrong one"), Err(AuthRefusal::Wrong(_))));
        }
        assert!(ask(&gate, "right at first", "192.0.2.1", 1).is_ok());
        for n in 0..FAILURES_MAX {
            assert!(ask(&gate, &format!("wrong {n}"), "192.0.2.1", 1).is_err());
        }
        let refused = ask(&gate, "right and new", "192.0.2.1", 1).unwrap_err();
        assert!(matches!(refused, AuthRefusal::TooMany { .. }), "{refused:?}");
        let asked = one.asked.load(Ordering::Relaxed);
        assert!(show("right by certificate").unwrap().is_some());
        assert_eq!(one.asked.load(Ordering::Relaxed), asked + 1);
    }

    #[test]
    fn a_certificate_is_good_until_it_ends_and_while_its_authorities_are_believed() {
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
            match gate.admit(&source, Now { mono_ms: ms, unix_ms: ms }, Waker::noop()) {
                Poll::Ready(admitted) => admitted,
                Poll::Pending => panic!("it never waits"),
            }
        };
        let short = shown(1_000);
        let caller = show(&short, 0).unwrap().unwrap();
        assert!(show(&short, 999).unwrap().is_some() && caller.holds(Now::default()));
        assert!(matches!(show(&short, 1_000), Err(AuthRefusal::Wrong(_))));
        // Another one of the same name is good for longer.
        let long = shown(2_000);
        let caller = show(&long, 1_000).unwrap().unwrap();
        assert_eq!(caller.expires_unix_ms, 2_000);
        long.authorities.withdraw();
        assert!(!caller.holds(Now::default()) && show(&long, 1_000).unwrap().is_none());
        // The same one, over a connection that leads to those that are believed now.
        assert!(show(&shown(2_000), 1_000).unwrap().is_some());
    }

    #[test]
    fn a_credential_that_was_right_and_is_wrong_now_is_unknown() {
        let (gate, one) = gate();
        assert!(ask(&gate, "right", "192.0.2.1", 0).is_ok());
        one.grant.withdraw();
        for _ in 0..FAILURES_MAX {
            assert!(matches!(ask(&gate, "right", "192.0.2.1", 1), Err(AuthRefusal::Wrong(_))));
        }
        let refused = ask(&gate, "right", "192.0.2.1", 2).unwrap_err();
        assert!(matches!(refused, AuthRefusal::TooMany { .. }), "{refused:?}");
    }
}
