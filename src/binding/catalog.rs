//! Lists of the agents of a server: `/agents` for people and for Peregrine's own clients, and the
//! catalog of RFC 9727 for other programs; and the list of public keys.
//!
//! Invariant: an agent is listed from its addition to its removal, under the URL in its card, and a
//! list never exceeds the limits of agents and mounts. A list is rendered for every request, and
//! has validators like a card.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    binding::{
        CallContext, Endpoint, ServerConfig, cards, cors, http_error, interfaces::Urls,
        origin::Origin,
    },
    dialect::STANDARD,
    http::{FieldLines, Head, Method, entity_tag, field_lines, media},
    json::write::push_string,
    model::Profile,
    service::AgentIndex,
};

/// The kind of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Catalog {
    /// The agents, each with its card and its endpoint.
    Agents,
    /// The linkset of RFC 9727.
    Linkset,
    /// The public keys of signed cards and webhook deliveries (RFC 7517 §5).
    Keys,
}

const AGENTS: &str = "/agents";
const API_CATALOG: &str = "/.well-known/api-catalog";
const KEYS: &str = "/.well-known/jwks.json";
const METHODS: FieldLines<'static> = field_lines!("Allow": "GET, HEAD, OPTIONS");

/// RFC 9727 §4.2, RFC 9264 §4.2.
const LINKSET: &str =
    "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"";

/// RFC 7517 §8.5.2.
const JWK_SET: &str = "application/jwk-set+json";

/// The modification time of the list of agents, for all workers.
#[derive(Default)]
pub struct CatalogTimes(Mutex<Option<(Vec<Arc<Profile>>, u64)>>);

impl CatalogTimes {
    /// Seconds since the Unix epoch: `started_s` for the first list of agents, then the time at
    /// which its last change was first seen.
    fn of(&self, listed: &[ListedAgent], started_s: u64, now_s: u64) -> u64 {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |previous: &[Arc<Profile>]| {
            let pairs = || previous.iter().zip(listed);
            previous.len() == listed.len()
                && pairs().all(|(previous, listed)| Arc::ptr_eq(previous, &listed.profile))
        };
        let since_s = match &*times {
            Some((previous, since_s)) if is_same(previous) => return *since_s,
            Some(_) => now_s,
            None => started_s,
        };
        *times = Some((listed.iter().map(|one| Arc::clone(&one.profile)).collect(), since_s));
        since_s
    }
}

/// An endpoint, and the profile of its agent.
struct ListedAgent {
    endpoint: Endpoint,
    base: String,
    profile: Arc<Profile>,
    /// True: the operator has configured the path.
    is_mount: bool,
}

/// The list at a path.
#[inline]
pub fn at(config: &ServerConfig, path: &str) -> Option<Catalog> {
    match path {
        AGENTS => Some(Catalog::Agents),
        API_CATALOG => Some(Catalog::Linkset),
        KEYS if config.jwks.is_some() => Some(Catalog::Keys),
        _ => None,
    }
}

/// Answers a request for a list.
#[cold]
pub fn answer(cx: &mut CallContext<'_>, head: &Head<'_>, catalog: Catalog) {
    match head.method() {
        Method::Get | Method::Head => {}
        Method::Options => return cors::options(cx, head, METHODS),
        _ => return http_error::not_allowed(cx, METHODS),
    }
    if catalog == Catalog::Keys {
        return keys(cx, head);
    }
    let (listed, origin) = (listed(cx), Origin::of(cx.config, cx.peer, head));
    let modified_s =
        cx.config.catalog_times.of(&listed, cx.config.started_s, cx.now.unix_ms / 1000);
    let here = format!("{}{API_CATALOG}", origin.url(cx.config));
    let (media, body) = match catalog {
        Catalog::Linkset => (LINKSET, linkset(cx, &origin, &listed, &here)),
        Catalog::Agents | Catalog::Keys => (media::JSON, agents(cx, &origin, &listed)),
    };
    let mut validators = cards::Validators::new(cx.config, entity_tag::etag(&body), modified_s);
    if catalog == Catalog::Linkset {
        // RFC 9727 §2: the response to HEAD has a link to the catalog.
        validators.fields.push("Link", &format!("<{here}>; rel=\"api-catalog\""));
    }
    cards::send_validated(cx, head, &validators, media, &body);
}

/// Answers with the public keys of signed cards and webhook deliveries.
fn keys(cx: &mut CallContext<'_>, head: &Head<'_>) {
    let config = cx.config;
    let keys = config.jwks.as_deref().unwrap_or(b"{\"keys\":[]}");
    let validators = cards::Validators::new(config, entity_tag::etag(keys), config.started_s);
    cards::send_validated(cx, head, &validators, JWK_SET, keys);
}

/// All listed endpoints: the agents by their indexes, then the mounts.
fn listed(cx: &CallContext<'_>) -> Vec<ListedAgent> {
    let config = cx.config;
    let is_root_free = config.mounts.iter().all(|mount| !mount.path.is_empty());
    let count = u16::try_from(config.limits.agents_max).unwrap_or(u16::MAX);
    let agents = (0..count).map(AgentIndex).filter_map(|agent| {
        let profile = cx.service.profile(agent)?;
        let is_root = agent == Endpoint::DEFAULT.agent && is_root_free;
        let (endpoint, base) = match is_root {
            true => (Endpoint::DEFAULT, String::new()),
            false => (Endpoint::own(&STANDARD, agent), format!("{AGENTS}/{}", profile.name)),
        };
        Some(ListedAgent { endpoint, base, profile, is_mount: false })
    });
    let mounts = config.mounts.iter().filter_map(|mount| {
        let (endpoint, base) = (mount.endpoint, mount.path.clone());
        let profile = cx.service.profile(endpoint.agent)?;
        Some(ListedAgent { endpoint, base, profile, is_mount: true })
    });
    agents.chain(mounts).collect()
}

impl ListedAgent {
    /// The URLs of the endpoint and of its card.
    fn urls(&self, cx: &CallContext<'_>, origin: &Origin<'_>) -> (String, String) {
        let urls = Urls::new(cx.config, origin, self.endpoint, &self.profile.name, &self.base);
        let card = format!("{}{}{}", origin.url(cx.config), self.base, cards::WELL_KNOWN);
        (urls.rpc().to_owned(), card)
    }
}

fn agents(cx: &CallContext<'_>, origin: &Origin<'_>, listed: &[ListedAgent]) -> Vec<u8> {
    let mut out = b"{\"agents\":[".to_vec();
    for (at, one) in listed.iter().enumerate() {
        let (url, card) = one.urls(cx, origin);
        let ListedAgent { profile, endpoint, .. } = one;
        out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        text(&mut out, "name", &profile.name);
        text(&mut out, "description", &profile.description);
        text(&mut out, "version", &profile.version);
        text(&mut out, "url", &url);
        text(&mut out, "cardUrl", &card);
        if one.is_mount {
            text(&mut out, "dialect", endpoint.dialect.name);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    out
}

/// RFC 9264 §4.2: each endpoint links to its card as the service description (RFC 8631 §4), and the
/// catalog links to all endpoints (RFC 9727 §3.1).
fn linkset(
    cx: &CallContext<'_>,
    origin: &Origin<'_>,
    listed: &[ListedAgent],
    here: &str,
) -> Vec<u8> {
    let mut out = b"{\"linkset\":[{".to_vec();
    text(&mut out, "anchor", here);
    out.extend_from_slice(b",\"item\":[");
    for (at, one) in listed.iter().enumerate() {
        out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        text(&mut out, "href", &one.urls(cx, origin).0);
        text(&mut out, "title", one.profile.shown_name());
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    for one in listed {
        let (url, card) = one.urls(cx, origin);
        out.extend_from_slice(b",{");
        text(&mut out, "anchor", &url);
        link(&mut out, "service-desc", &card, media::JSON);
        link(&mut out, "service-meta", &card, media::JSON);
        if let Some(doc) = &one.profile.documentation_url {
            link(&mut out, "service-doc", doc, "");
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
    out
}

/// A relation with one target; `media` may be empty.
fn link(out: &mut Vec<u8>, relation: &str, href: &str, media: &str) {
    out.push(b',');
    push_string(out, relation);
    out.extend_from_slice(b":[{");
    text(out, "href", href);
    if !media.is_empty() {
        text(out, "type", media);
    }
    out.extend_from_slice(b"}]");
}

/// Appends a member, after a comma unless it is the first of its object.
fn text(out: &mut Vec<u8>, key: &str, value: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    push_string(out, key);
    out.push(b':');
    push_string(out, value);
}
