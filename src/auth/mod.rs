//! Authentication: reads credentials and returns a principal.
//!
//! Invariant: a request is authenticated when its head is complete, before its body is read. A
//! credential that cannot be verified is rejected. The authenticator determines how long its answer
//! is valid, and revokes the answer through [`Grant`].

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

#[cfg(feature = "embed")]
pub(crate) use self::jwt::is_name;
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
    remote_keys::{FetchedDocument, KeyFetch, KeyLocation, KeyLocationError, KeyStatus, NextFetch},
    rules::{
        AuthRules, AuthRulesError, CertificateRule, IssuerRule, KeyRule, KeySource, KnownCaller,
        ProxyRule, SecretDigest,
    },
    token_keys::{TokenKeys, TokenKeysError},
};
pub(crate) use crate::service::quota::{
    CallerAccount, CallerPermit, PermitKind, RemainingRate, UsedUp,
};
pub use crate::service::{
    Grant,
    principal::{CredentialKind, Principal, PrincipalBuf, ScopeSet, TenantGrant},
    quota::{Quota, Quotas, Rate},
};

/// The credentials of a request, none of them verified.
#[derive(Clone, Copy, Default)]
pub struct CredentialSource<'a> {
    /// The value of `Authorization`, unparsed.
    pub authorization: Option<&'a [u8]>,
    /// The value of `X-API-Key`, unparsed.
    pub api_key: Option<&'a [u8]>,
    /// A bearer token from another field: a browser page that opens a WebSocket sends its token
    /// among the subprotocols.
    pub bearer: Option<&'a [u8]>,
    /// The header fields of the request.
    pub fields: RequestFields<'a>,
    /// The name in the client's verified certificate.
    pub identity: Option<&'a str>,
    /// The other fields of the client's certificate.
    pub certificate: Option<&'a PeerCertificate>,
    /// The address of the connection's peer.
    pub remote: Option<IpAddr>,
    /// Proxies that are trusted to name their client in `X-Forwarded-For`.
    pub trusted_proxies: &'a [Network],
}

impl CredentialSource<'_> {
    /// The client address of the request; behind trusted proxies, the forwarded address.
    pub fn address(&self) -> Option<IpAddr> {
        let connection = self.remote?;
        if self.trusted_proxies.is_empty() {
            return Some(connection);
        }
        // A client may have written entries in front of the proxy's entry, in the same field value
        // or in another one.
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

/// The effective credential of a request: the first one in the order bearer token, API key, header
/// of a trusted proxy, certificate.
#[derive(Clone)]
pub struct Presented<'a> {
    /// The kind of the credential. A bearer token that looks like a JWT is [`CredentialKind::Jwt`].
    pub kind: CredentialKind,
    /// The key, the token or the name, unparsed. Of a proxy, all its fields about the caller, so
    /// that a cached caller never matches a request with other scopes.
    pub secret: Cow<'a, [u8]>,
    /// The client address, if known.
    pub address: Option<IpAddr>,
}

impl fmt::Debug for Presented<'_> {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A verified credential, and how long it is valid.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The caller.
    pub principal: Arc<Principal>,
    /// When the credential itself expires, in ms since the Unix epoch; `u64::MAX`: never.
    pub expires_unix_ms: u64,
    /// The grant that the admission depends on.
    pub grant: Arc<Grant>,
}

impl Admission {
    /// When the credential ends, in ms of the monotonic clock.
    pub fn expires_mono_ms(&self, now: Now) -> u64 {
        now.mono_ms.saturating_add(self.expires_unix_ms.saturating_sub(now.unix_ms))
    }

    /// Whether the admission is valid now.
    pub fn holds(&self, now: Now) -> bool {
        now.unix_ms < self.expires_unix_ms && !self.grant.is_withdrawn()
    }
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthRefusal {
    /// The request has no credential: 401.
    Missing,
    /// The credential is wrong: 401. The reason contains no secret. The refusal counts as a guess
    /// of the peer.
    Wrong(&'static str),
    /// The credential has expired or is not valid yet: 401. Does not count as a guess.
    Expired(&'static str),
    /// The server cannot check the credential now: 503. Does not count as a guess.
    Unavailable {
        /// The reason.
        why: &'static str,
        /// Seconds until the client should retry.
        retry_s: u32,
    },
    /// Too many answers to wrong keys and tokens are delayed: 429.
    TooMany {
        /// Seconds until the client should retry.
        retry_s: u32,
    },
}

/// Authenticates callers.
///
/// Its methods run on worker threads and must not block: the authenticator fetches elsewhere, and
/// wakes `wake` when the result is available.
pub trait Authenticator: Send + Sync {
    /// The effective credential of a request; `None`: the request has none.
    fn find<'a>(&self, source: &CredentialSource<'a>) -> Option<Presented<'a>>;

    /// Checks a credential. The answer is cached until the admission expires, its grant is
    /// withdrawn or, for [`CredentialKind::Jwt`], five minutes have passed.
    ///
    /// # Errors
    /// [`AuthRefusal::Wrong`], [`AuthRefusal::Expired`] and [`AuthRefusal::Unavailable`].
    fn check(
        &self,
        presented: &Presented<'_>,
        now: Now,
        wake: &Waker,
    ) -> Poll<Result<Admission, AuthRefusal>>;

    /// Rejects a JWT that would be invalid even with a right signature, such as an expired one.
    /// Called instead of a verification, for peers with a budget of verifications.
    ///
    /// # Errors
    /// [`AuthRefusal::Wrong`] and [`AuthRefusal::Expired`], as [`Authenticator::check`].
    fn check_claims(&self, _presented: &Presented<'_>, _now: Now) -> Result<(), AuthRefusal> {
        Ok(())
    }

    /// The challenges of a 401: the value of `WWW-Authenticate` (RFC 9110 §11.6.1), which names
    /// each accepted kind, and for a rejected bearer token the reason (RFC 6750 §3).
    fn challenge(&self, refusal: &AuthRefusal) -> String;

    /// Whether an owner of tasks ([`Principal::owner`]) may still be called back. False once no
    /// valid credential can name the owner any more, which ends the owner's webhooks. An expired
    /// token alone does not make the answer false.
    fn vouches_for(&self, _owner: &str, _now: Now) -> bool {
        true
    }

    /// A counter that increases when the answer of [`Authenticator::vouches_for`] may have changed
    /// for many owners; `wake` is woken when the counter increases.
    fn changes(&self, _wake: &Waker) -> u64 {
        0
    }

    /// The security schemes on cards, unless the server
    /// ([`Setup::security`](crate::engine::Setup::security)) or the agent sets its own.
    fn security(&self) -> CardSecurity;
}
