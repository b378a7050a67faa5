//! Authentication: credentials in, a principal out.
//!
//! Invariant: a request is asked for its credential when its head is complete, and nothing of its
//! body is read before the answer. What is not known to be right is refused; the authenticator says
//! how long its word holds, and takes it back through [`Grant`].

mod accounts;
#[cfg(feature = "auth")]
mod callers;
mod certificates;
#[cfg(feature = "auth")]
mod challenge;
mod gate;
#[cfg(feature = "client")]
pub(crate) mod jws;
#[cfg(feature = "auth")]
mod jwt;
mod origin;
mod peers;
mod recent;
#[cfg(feature = "auth")]
mod remote_keys;
#[cfg(feature = "auth")]
mod rules;
#[cfg(feature = "auth")]
mod rules_in_use;
mod table;
#[cfg(feature = "auth")]
mod token_keys;

use std::{
    borrow::Cow,
    fmt,
    net::IpAddr,
    sync::Arc,
    task::{Poll, Waker},
};

use crate::{
    model::CardSecurity,
    service::{Now, PeerCertificate, RequestFields},
};

pub use crate::network::{Network, NoNetwork};
pub(crate) use accounts::{AccountOf, Accounts, LateShares, NOWHERE};
pub use certificates::CertificateCallers;
pub(crate) use gate::{
    AdmittedCaller, CallerWatch, Gate, GateRequest, NotAdmitted, OVER_BUDGET, RefusalDelay,
};
use origin::{origin_of, peer_bits};
pub(crate) use recent::RecentCallers;

#[cfg(feature = "auth")]
pub use self::{
    callers::Callers,
    jws::JwsAlgorithm,
    jwt::{TokenRefusal, TokenRules, UnverifiedToken, VerifiedToken},
    remote_keys::{FetchedDocument, KeyFetch, KeyPlace, KeyPlaceError, KeyStatus, NextFetch},
    rules::{
        AuthRules, AuthRulesError, CertificateRule, IssuerRule, KeyRule, KeySource, KnownCaller,
        ProxyRule, SecretDigest,
    },
    token_keys::{TokenKeys, TokenKeysError},
};
pub(crate) use crate::service::quota::{CallerAccount, CallerPlace, PlaceKind, RateLeft, UsedUp};
pub use crate::service::{
    Grant,
    principal::{CredentialKind, Principal, PrincipalBuf, ScopeSet, TenantGrant},
    quota::{Quota, Quotas, Rate},
};

/// The credentials of a request, before any is verified.
#[derive(Clone, Copy, Default)]
pub struct CredentialSource<'a> {
    /// The value of `Authorization`, as it came.
    pub authorization: Option<&'a [u8]>,
    /// The value of `X-API-Key`, as it came.
    pub api_key: Option<&'a [u8]>,
    /// A bearer token that stands elsewhere: a page in a browser opens a WebSocket with one among
    /// the subprotocols.
    pub bearer: Option<&'a [u8]>,
    /// Its header fields.
    pub fields: RequestFields<'a>,
    /// The name in the client's verified certificate.
    pub identity: Option<&'a str>,
    /// What else that certificate says.
    pub certificate: Option<&'a PeerCertificate>,
    /// The address of the other side of the connection.
    pub remote: Option<IpAddr>,
    /// Hops that say the address of their client in `X-Forwarded-For`.
    pub trusted_proxies: &'a [Network],
}

impl CredentialSource<'_> {
    /// The address that the request came from: behind trusted hops the one that they forward.
    pub fn address(&self) -> Option<IpAddr> {
        let connection = self.remote?;
        if self.trusted_proxies.is_empty() {
            return Some(connection);
        }
        // A client may have written before what a hop has, in the same value or in another.
        let mut forwarded = Vec::new();
        self.fields.each_value("X-Forwarded-For", &mut |value| {
            forwarded.push(b',');
            forwarded.extend_from_slice(value);
        });
        let hops = forwarded.rsplit(|byte| *byte == b',');
        Some(origin_of(connection, hops, self.trusted_proxies))
    }
}

impl fmt::Debug for CredentialSource<'_> {
    /// `Authorization` is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialSource")
            .field("identity", &self.identity)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// The credential of a request that counts: the first that it shows, in the order bearer token, API
/// key, header of a trusted proxy, certificate.
#[derive(Clone)]
pub struct Presented<'a> {
    /// What it is. A bearer token that looks like a JWT is [`CredentialKind::Jwt`].
    pub kind: CredentialKind,
    /// The key, the token or the name, as it came; of a proxy all that it says of the caller, so
    /// that a caller remembered by it is never taken for one with other scopes.
    pub secret: Cow<'a, [u8]>,
    /// Where it comes from, as far as that is known when it is checked.
    pub address: Option<IpAddr>,
}

impl fmt::Debug for Presented<'_> {
    /// Not the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// That a credential is right, and how long that is known.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The caller.
    pub principal: Arc<Principal>,
    /// The credential itself ends then, in ms since the Unix epoch; `u64::MAX`: it does not.
    pub expires_unix_ms: u64,
    /// What it stands on.
    pub grant: Arc<Grant>,
}

impl Admission {
    /// When the credential ends, in ms of the monotonic clock.
    pub fn expires_mono_ms(&self, now: Now) -> u64 {
        now.mono_ms.saturating_add(self.expires_unix_ms.saturating_sub(now.unix_ms))
    }

    /// Whether it holds now.
    pub fn holds(&self, now: Now) -> bool {
        now.unix_ms < self.expires_unix_ms && !self.grant.is_withdrawn()
    }
}

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthRefusal {
    /// It shows no credential: 401.
    Missing,
    /// The credential is wrong, for this reason, which contains nothing of any secret: 401. It
    /// counts as a guess of its peer.
    Wrong(&'static str),
    /// The credential has expired, or is not valid yet: 401. It is not a guess.
    Expired(&'static str),
    /// The server cannot check the credential now: 503. It is not a guess.
    Unavailable {
        /// The reason.
        why: &'static str,
        /// Seconds after which the client is to try again.
        retry_s: u32,
    },
    /// Too many wrong keys and tokens wait for their answers: 429.
    TooMany {
        /// Seconds after which the client is to try again.
        retry_s: u32,
    },
}

/// Authenticates callers.
///
/// It is asked on the threads that serve, so it never blocks: what it has to fetch is fetched
/// elsewhere, and `wake` is woken when it is there.
pub trait Authenticator: Send + Sync {
    /// The credential of a request that counts; `None`: it shows none.
    fn find<'a>(&self, source: &CredentialSource<'a>) -> Option<Presented<'a>>;

    /// Whether a credential is right. What it says is remembered: until the admission ends, its
    /// grant is withdrawn or, where the kind is [`CredentialKind::Jwt`], five minutes have passed.
    ///
    /// # Errors
    /// [`AuthRefusal::Wrong`], [`AuthRefusal::Expired`] and [`AuthRefusal::Unavailable`].
    fn check(
        &self,
        presented: &Presented<'_>,
        now: Now,
        wake: &Waker,
    ) -> Poll<Result<Admission, AuthRefusal>>;

    /// Refuses a JWT that no signature could make right, such as one that has expired: without
    /// verifying it, for peers whose verifications have a budget.
    ///
    /// # Errors
    /// [`AuthRefusal::Wrong`] and [`AuthRefusal::Expired`], as [`Authenticator::check`].
    fn check_claims(&self, _presented: &Presented<'_>, _now: Now) -> Result<(), AuthRefusal> {
        Ok(())
    }

    /// The challenges of a 401: the value of `WWW-Authenticate` (RFC 9110 §11.6.1), which names
    /// each kind that is asked for, and for a refused bearer token why (RFC 6750 §3).
    fn challenge(&self, refusal: &AuthRefusal) -> String;

    /// Whether an owner of tasks ([`Principal::owner`]) may still be called back: false once no
    /// valid credential can name it any more, which ends its webhooks. A token that has expired is
    /// no reason.
    fn vouches_for(&self, _owner: &str, _now: Now) -> bool {
        true
    }

    /// How often that may have changed for many owners; `wake` is woken when it changes.
    fn changes(&self, _wake: &Waker) -> u64 {
        0
    }

    /// What cards say that callers have to show, where neither the server
    /// ([`Setup::security`](crate::engine::Setup::security)) nor the agent has words of its own.
    fn security(&self) -> CardSecurity;
}
