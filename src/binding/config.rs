//! What a server offers and where: mounts and the settings that decide answers.

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

/// An endpoint at a path of the operator's.
#[derive(Clone)]
pub struct MountedEndpoint {
    /// The path, without a slash at its end; empty for the root.
    pub path: String,
    /// What is served there.
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
    /// True: it does not keep turns, so it is asked for the time when a call begins.
    pub asks_begins: bool,
    /// The tracer of calls.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// The source of the pages about the server; `None`: there are none.
    pub pages: Option<Arc<dyn PageSource>>,
    /// Mounts beside the standard ones; an earlier one wins.
    pub mounts: Vec<MountedEndpoint>,
    /// Which names tenants may have.
    pub tenants: Tenants,
    /// The form of the cards at the well-known paths.
    pub card: CardForm,
    /// What cards list, the preferred first.
    pub interfaces: Vec<Interface>,
    /// The URL that cards name, without a slash at its end; otherwise it is made of `Host`.
    pub public_url: Option<String>,
    /// The hosts that are answered to, where they are checked.
    pub hosts: Hosts,
    /// Which pages of other origins may read answers.
    pub cors: CorsPolicy,
    /// What callers have to show, as cards say it of agents that have no words of their own.
    pub security: CardSecurity,
    /// Used when a request names no host.
    pub base_url: String,
    /// True: `X-Forwarded-Proto`, `-Host` and `-Prefix` are believed; see [`super::origin`].
    pub trust_forwarded: bool,
    /// True: a 1.0 method without `A2A-Version` is refused, as the specification would have it.
    pub strict_version: bool,
    /// True: a message without `messageId` is refused, as the specification would have it.
    pub strict: bool,
    /// True: the extended card is served and announced: always where callers are known.
    pub extended_card: bool,
    /// Whose sends are known again, as cards say it; `None`: none are.
    pub idempotent_send: Option<&'static str>,
    /// True: cards say that readers may wait for news of a task.
    pub long_poll: bool,
    /// True: push notifications are served, and cards say so; otherwise what is about them is
    /// refused before it is read.
    pub push: bool,
    /// Origins whose pages may open WebSockets, beside our own; `*` stands for all of them.
    pub ws_origins: Vec<String>,
    /// Paths below this one give every body back; for framing tests.
    #[cfg(feature = "test-echo")]
    pub test_echo: Option<String>,
    /// When the server started, in seconds since the Unix epoch: `Last-Modified` of the cards.
    pub started_s: u64,
    /// Open streams.
    pub streams: Permits,
    /// Open streams of the services that every gRPC server has.
    #[cfg(feature = "grpc")]
    pub service_streams: Permits,
    /// Calls that wait.
    pub waiting: Permits,
    /// What calls use; their driver counts the bytes that connections hold.
    pub shared: SharedByCalls,
    /// What large bodies are parsed with.
    pub large: Arc<LargeBodies>,
    /// The signer of cards.
    pub card_signer: Option<Arc<dyn CardSigner>>,
    /// The signatures of cards.
    pub signed_cards: SignedCards,
    /// The public keys of whatever is signed here, as a JWK set; `None`: nothing is.
    pub jwks: Option<Box<[u8]>>,
    /// Since when the cards are as they are.
    pub card_times: CardTimes,
    /// Since when the agents are those that they are.
    pub catalog_times: CatalogTimes,
    /// Filters of ListTasks that are not known and were told of.
    pub ignored_filters: IgnoredFilters,
}

/// Whether `text` can stand before the paths of a card: `http` or `https`, a host, and a path or
/// none (RFC 3986 §3), which nothing ends or needs an escape in JSON.
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
    /// What callers of an agent have to show; the authenticator may change it.
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

    /// What the server says of all its agents.
    fn security_of_server(&self, gate: &Gate) -> Cow<'_, CardSecurity> {
        match self.security == CardSecurity::default() {
            true => Cow::Owned(gate.security()),
            false => Cow::Borrowed(&self.security),
        }
    }

    /// The id for a message that comes without one; empty: it is refused.
    ///
    /// A2A 1.0 §5.7: required fields must be present. 0.1 has no message ids, and a platform's
    /// clients are as they are.
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
    /// Tells the observer that a request was refused because of a limit, before any call of it
    /// began; `owner`: whose it is, where that is known.
    #[cold]
    pub fn tell_limit(&self, worker: usize, limit: Option<&'static str>, owner: Option<&str>) {
        if let (Some(observer), Some(limit)) = (&self.observer, limit) {
            observer.limit_hit(&LimitHit { worker, limit, owner });
        }
    }

    /// Tells the observer that a request was refused which is no call.
    #[cold]
    pub fn tell_refused(&self, refused: &RefusedRequest<'_>) {
        let observer = self.observer.iter().filter(|observer| observer.wants_refusals());
        observer.for_each(|observer| observer.request_refused(refused));
    }
}

/// The same, where callers may also show nothing, which is said first: an authenticated caller may
/// do more, such as read the extended card (A2A 1.0 §13.3).
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
