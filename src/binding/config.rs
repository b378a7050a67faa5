//! The configuration of a server: its mounts, and the settings that affect its answers.

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
    /// The path, without a trailing slash; empty for the root.
    pub path: String,
    /// The served endpoint.
    pub endpoint: Endpoint,
}

/// The settings of a server, which do not change while it runs, and the state that its calls share.
pub struct ServerConfig {
    /// All limits.
    pub limits: Limits,
    /// Which callers are admitted.
    pub access: Access,
    /// The observer of calls.
    pub observer: Option<Arc<dyn CallObserver>>,
    /// True: the time is read when a call begins, because [`CallObserver::keeps_turns`] is false.
    pub reads_begin_time: bool,
    /// The tracer of calls.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// The source of the pages about the server; `None`: no pages.
    pub pages: Option<Arc<dyn PageSource>>,
    /// Mounts in addition to the standard paths; the first match is used.
    pub mounts: Vec<MountedEndpoint>,
    /// The allowed names of tenants.
    pub tenants: Tenants,
    /// The format of the cards at the well-known paths.
    pub card: CardForm,
    /// The interfaces in cards, in order of preference.
    pub interfaces: Vec<Interface>,
    /// The URL in cards, without a trailing slash; `None`: the URL is built from `Host`.
    pub public_url: Option<String>,
    /// The accepted hosts, if they are checked.
    pub hosts: Hosts,
    /// The other origins with pages that may read answers.
    pub cors: CorsPolicy,
    /// The security schemes in the cards of agents without their own schemes.
    pub security: CardSecurity,
    /// The URL in cards if a request has no host.
    pub base_url: String,
    /// True: `X-Forwarded-Proto`, `-Host` and `-Prefix` are trusted; see [`super::origin`].
    pub trust_forwarded: bool,
    /// True: a 1.0 method without `A2A-Version` is rejected, as the specification requires.
    pub strict_version: bool,
    /// True: a message without `messageId` is rejected, as the specification requires.
    pub strict: bool,
    /// True: the extended card is served and announced; always if callers are authenticated.
    pub extended_card: bool,
    /// The callers with recognition of repeated sends, in the form for cards; `None`: no callers.
    pub idempotent_send: Option<&'static str>,
    /// True: cards announce that readers may wait for new events of a task (long poll).
    pub long_poll: bool,
    /// True: push notifications are served, and announced on cards; otherwise push requests are
    /// rejected before their params are read.
    pub push: bool,
    /// Other origins with pages that may open WebSockets; `*` allows all.
    pub ws_origins: Vec<String>,
    /// The path prefix of the echo endpoint for framing tests.
    #[cfg(feature = "test-echo")]
    pub test_echo: Option<String>,
    /// When the server started, in seconds since the Unix epoch: `Last-Modified` of the cards.
    pub started_s: u64,
    /// Permits for open streams.
    pub streams: Permits,
    /// Permits for open streams of gRPC health and reflection.
    #[cfg(feature = "grpc")]
    pub service_streams: Permits,
    /// Permits for waiting calls.
    pub waiting: Permits,
    /// State that calls share; the driver counts the bytes of connections in it.
    pub shared: SharedByCalls,
    /// The buffers for parsing large bodies.
    pub large: Arc<LargeBodies>,
    /// The signer of cards.
    pub card_signer: Option<Arc<dyn CardSigner>>,
    /// The signatures of cards.
    pub signed_cards: SignedCards,
    /// The public keys of all signers, as a JWK set; `None`: no signers.
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
    /// The security schemes of an agent; they may change with the authenticator.
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

    /// The security schemes of the server for agents without their own schemes.
    fn security_of_server(&self, gate: &Gate) -> Cow<'_, CardSecurity> {
        match self.security == CardSecurity::default() {
            true => Cow::Owned(gate.security()),
            false => Cow::Borrowed(&self.security),
        }
    }

    /// The id for a message without an id; empty: such a message is rejected.
    ///
    /// A2A 1.0 §5.7: required fields must be present. 0.1 has no message ids, and clients of some
    /// platforms omit them.
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
    /// Reports to the observer that a limit rejected a request before its first call began;
    /// `owner`: the owner of the request, if known.
    #[cold]
    pub fn report_limit(&self, worker: usize, limit: Option<&'static str>, owner: Option<&str>) {
        if let (Some(observer), Some(limit)) = (&self.observer, limit) {
            observer.limit_hit(&LimitHit { worker, limit, owner });
        }
    }

    /// Reports to the observer the rejection of a request that is not a call.
    #[cold]
    pub fn report_refused(&self, refused: &RefusedRequest<'_>) {
        let observer = self.observer.iter().filter(|observer| observer.wants_refusals());
        observer.for_each(|observer| observer.request_refused(refused));
    }
}

/// Inserts an empty requirement first, for agents that admit anonymous callers. The other
/// requirements remain, since an authenticated caller may do more, such as read the extended card
/// (A2A 1.0 §13.3).
fn or_nothing(mut security: CardSecurity) -> CardSecurity {
    let has_empty = security.requirements.iter().any(|one| one.schemes.is_empty());
    if !has_empty && !security.requirements.is_empty() {
        security.requirements.insert(0, CardRequirement::default());
    }
    security
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_url_allows_only_scheme_host_port_and_path() {
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
