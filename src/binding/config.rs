//! The configuration of a server: its mounts, and the settings that its answers depend on.

use std::{borrow::Cow, sync::Arc};

use crate::{
    auth::Gate,
    binding::{
        admission::Access,
        card_signer::{CardSigner, SignedCards},
        cards::CardTimes,
        catalog::CatalogTimes,
        cors::CorsPolicy,
        hosts::Hosts,
        ignored_filters::IgnoredFilters,
        interfaces::Interface,
        tenant::Tenants,
    },
    dialect::{self, Dialect, card::CardForm},
    http,
    limits::Limits,
    model::{CardRequirement, CardSecurity, Generation, Profile},
    permits::Permits,
    service::{
        SharedByCalls,
        observe::{CallObserver, LimitHit, RefusedRequest},
        pages::PageSource,
        trace::Tracer,
    },
};

use super::{Endpoint, LargeBodies};

/// An endpoint at a path that the operator configured.
#[derive(Clone)]
pub struct MountedEndpoint {
    /// The path, without a slash at its end; empty for the root.
    pub path: String,
    /// The served endpoint.
    pub endpoint: Endpoint,
}

/// Everything about a server that does not change while it runs.
pub struct ServerConfig {
    /// All limits.
    pub limits: Limits,
    /// Which callers are admitted.
    pub access: Access,
    /// The observer of calls.
    pub observer: Option<Arc<dyn CallObserver>>,
    /// True: the observer keeps no per-poll clock, so the time is read when a call begins.
    pub asks_begins: bool,
    /// The tracer of calls.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// The source of the pages about the server; `None`: they are off.
    pub pages: Option<Arc<dyn PageSource>>,
    /// Mounts in addition to the standard ones; an earlier one wins.
    pub mounts: Vec<MountedEndpoint>,
    /// Which names tenants may have.
    pub tenants: Tenants,
    /// The form of the cards at the well-known paths.
    pub card: CardForm,
    /// The interfaces that cards list, the preferred first.
    pub interfaces: Vec<Interface>,
    /// The URL that cards name, without a slash at its end; `None`: it is built from `Host`.
    pub public_url: Option<String>,
    /// The accepted hosts, if they are checked.
    pub hosts: Hosts,
    /// Which pages of other origins may read answers.
    pub cors: CorsPolicy,
    /// The security schemes on the cards of agents without their own.
    pub security: CardSecurity,
    /// Used when a request names no host.
    pub base_url: String,
    /// True: `X-Forwarded-Proto`, `-Host` and `-Prefix` are trusted; see [`super::origin`].
    pub trust_forwarded: bool,
    /// True: a 1.0 method without `A2A-Version` is rejected, as the specification requires.
    pub strict_version: bool,
    /// True: a message without `messageId` is rejected, as the specification requires.
    pub strict: bool,
    /// True: the extended card is served and announced; always if callers are authenticated.
    pub extended_card: bool,
    /// Which callers' sends are recognised when repeated, as cards state it; `None`: none.
    pub idempotent_send: Option<&'static str>,
    /// True: cards announce that readers may wait for news of a task.
    pub long_poll: bool,
    /// True: push notifications are served, and announced on cards; otherwise push requests are
    /// rejected before their params are read.
    pub push: bool,
    /// Other origins that may open WebSockets; `*` allows all of them.
    pub ws_origins: Vec<String>,
    /// The path prefix of the echo for framing tests.
    #[cfg(feature = "test-echo")]
    pub test_echo: Option<String>,
    /// When the server started, in seconds since the Unix epoch: `Last-Modified` of the cards.
    pub started_s: u64,
    /// Open streams.
    pub streams: Permits,
    /// Open streams of gRPC health and reflection.
    #[cfg(feature = "grpc")]
    pub service_streams: Permits,
    /// Calls that wait.
    pub waiting: Permits,
    /// State that calls share; the driver counts the bytes that connections hold.
    pub shared: SharedByCalls,
    /// The buffers for parsing large bodies.
    pub large: Arc<LargeBodies>,
    /// The signer of cards.
    pub card_signer: Option<Arc<dyn CardSigner>>,
    /// The signatures of cards.
    pub signed_cards: SignedCards,
    /// The public keys of everything that is signed here, as a JWK set; `None`: nothing is signed.
    pub jwks: Option<Box<[u8]>>,
    /// The modification times of the cards.
    pub card_times: CardTimes,
    /// The modification time of the catalog.
    pub catalog_times: CatalogTimes,
    /// Unknown filters of ListTasks that were already reported.
    pub ignored_filters: IgnoredFilters,
}

/// Whether `text` can be the base URL of a card: `http` or `https`, a host, and optionally a path
/// (RFC 3986 §3), without a query or fragment and without characters that JSON would escape.
pub fn is_public_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let (host, path) = rest.map_or(("", ""), |rest| match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    });
    let clean = path.bytes().all(|b| b.is_ascii_graphic() && !b"\"\\?#<>".contains(&b));
    clean && http::is_authority(host.as_bytes())
}

impl ServerConfig {
    /// The security schemes of an agent; the authenticator may change them.
    pub fn security_of<'s>(&'s self, profile: &'s Profile) -> Cow<'s, CardSecurity> {
        match (&profile.security, &self.access.gate) {
            (Some(own), _) => Cow::Borrowed(own),
            (None, Some(gate)) if profile.anonymous => {
                Cow::Owned(or_nothing(self.security_of_server(gate).into_owned()))
            }
            (None, None) if profile.anonymous => Cow::Owned(CardSecurity::default()),
            (None, Some(gate)) => self.security_of_server(gate),
            (None, None) => Cow::Borrowed(&self.security),
        }
    }

    /// The security schemes of the server for all its agents.
    fn security_of_server(&self, gate: &Gate) -> Cow<'_, CardSecurity> {
        match self.security == CardSecurity::default() {
            true => Cow::Owned(gate.security()),
            false => Cow::Borrowed(&self.security),
        }
    }

    /// The id for a message that comes without one; empty: the message is rejected.
    ///
    /// A2A 1.0 §5.7: required fields must be present. 0.1 has no message ids, and some platforms'
    /// clients omit them.
    #[inline]
    pub fn fresh_id<'i>(
        &self,
        dialect: &Dialect,
        generation: Generation,
        fresh_id: &'i [u8; 36],
    ) -> &'i [u8] {
        let has_ids = !matches!(generation, Generation::V01);
        if self.strict && has_ids && dialect.name == dialect::STANDARD.name {
            return b"";
        }
        fresh_id
    }
}

impl ServerConfig {
    /// Reports to the observer that a limit rejected a request before any call of it began;
    /// `owner`: its owner, if known.
    #[cold]
    pub fn tell_limit(&self, worker: usize, limit: Option<&'static str>, owner: Option<&str>) {
        if let (Some(observer), Some(limit)) = (&self.observer, limit) {
            observer.limit_hit(&LimitHit { worker, limit, owner });
        }
    }

    /// Reports to the observer that a request which is not a call was rejected.
    #[cold]
    pub fn tell_refused(&self, refused: &RefusedRequest<'_>) {
        let observer = self.observer.iter().filter(|observer| observer.wants_refusals());
        observer.for_each(|observer| observer.request_refused(refused));
    }
}

/// Adds an empty requirement in front, for agents that admit anonymous callers: an authenticated
/// caller may do more, such as read the extended card (A2A 1.0 §13.3).
fn or_nothing(mut security: CardSecurity) -> CardSecurity {
    let is_said = security.requirements.iter().any(|one| one.schemes.is_empty());
    if !is_said && !security.requirements.is_empty() {
        security.requirements.insert(0, CardRequirement::default());
    }
    security
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_is_a_scheme_a_host_and_a_path() {
        for url in ["http://a", "https://a.example:8443/x/y/", "https://[::1]:1", "http://a/%41"] {
            assert!(is_public_url(url), "{url}");
        }
        for url in [
            "",
            "a.example",
            "ftp://a",
            "http://",
            "https:///x",
            "http://u:p@a",
            "http://a?x",
            "http://a/?x",
            "http://a/#x",
            "http://a/ b",
            "http://a/\"",
            "http://a:x",
            "HTTP//a",
        ] {
            assert!(!is_public_url(url), "{url}");
        }
    }
}
