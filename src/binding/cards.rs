//! Agent cards over HTTP: one body and one validator for each agent and base URL.
//!
//! A card contains the URL under which it was requested, so it is rendered for each `Host`. The
//! most recent cards are cached, and a request copies the cached card. A card is rendered again
//! when its agent's profile has changed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    binding::{
        CallContext, Endpoint, ServerConfig,
        answer::AnswerFormat,
        card_signer::{self, DetachedSignature},
        envelope::Envelope,
        http_error,
        interfaces::Urls,
        origin::Origin,
        responder::Content,
    },
    dialect::{
        self, Dialect,
        card::{self, CardForm, CardOptions},
        card_security,
    },
    fault::{Fault, FaultKind},
    http::{Field, FieldLinesBuf, Head, ReadyResponse, date, entity_tag, query},
    model::{CardSecurity, Generation, Op, Profile},
    service::{AgentIndex, Service, principal::ScopeSet},
};

/// The path of an endpoint's card, below the endpoint.
pub const WELL_KNOWN: &str = "/.well-known/agent-card.json";

/// Cards that a worker caches; a further card evicts the oldest.
const CARDS_MAX: usize = 16;

/// The cards that a worker rendered recently.
#[derive(Default)]
pub struct CardCache {
    cards: Vec<Card>,
    next: usize,
}

/// The modification times of each agent's cards, for all workers.
#[derive(Default)]
pub struct CardTimes(Mutex<HashMap<AgentIndex, (CardSource, u64)>>);

/// The inputs of a rendered card.
#[derive(Clone)]
struct CardSource {
    profile: Arc<Profile>,
    /// The security schemes, if callers are authenticated.
    security: Option<CardSecurity>,
}

impl CardSource {
    fn of(config: &ServerConfig, profile: Arc<Profile>) -> CardSource {
        let security = config.access.gate.as_ref();
        let security = security.map(|_| config.security_of(&profile).into_owned());
        CardSource { profile, security }
    }

    fn is(&self, other: &CardSource) -> bool {
        Arc::ptr_eq(&self.profile, &other.profile) && self.security == other.security
    }
}

impl CardTimes {
    /// Seconds since the Unix epoch: `started_s` for the first source, then the time of the first
    /// card from the current source.
    fn of(&self, agent: AgentIndex, source: &CardSource, started_s: u64, now_s: u64) -> u64 {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (previous, since_s) = times.entry(agent).or_insert_with(|| (source.clone(), started_s));
        if !previous.is(source) {
            (*previous, *since_s) = (source.clone(), now_s);
        }
        *since_s
    }
}

struct Card {
    source: CardSource,
    /// The dialect of the endpoint: two dialects may share a path, one by a mount and one by a
    /// query.
    dialect: &'static Dialect,
    agent: AgentIndex,
    form: CardForm,
    /// Scheme, host, port, forwarded prefix and path of the URL in the card.
    is_secure: bool,
    host: Vec<u8>,
    port: Option<u16>,
    prefix: String,
    base: String,
    validators: Validators,
    /// The answer with its body.
    answer: ReadyResponse,
}

/// The endpoint of a card, as a client sees it.
#[derive(Clone, Copy)]
pub struct CardEndpoint<'a> {
    /// The server's settings.
    pub config: &'a ServerConfig,
    /// The server's address in the request.
    pub origin: &'a Origin<'a>,
    /// The dialect and the agent of the endpoint.
    pub endpoint: Endpoint,
    /// The path of the endpoint.
    pub base: &'a str,
}

/// Seconds that clients and proxies may cache a card (A2A 1.0 §8.6).
const MAX_AGE_S: u32 = 300;

/// Answers GET and HEAD for a public card.
#[inline(always)]
pub fn answer<'x>(cx: &mut CallContext<'x>, head: &'x Head<'x>, by_query: bool) {
    let form = cx.config.card;
    let Some((dialect, prefix, name)) = by_query.then(|| queried_agent(head)).flatten() else {
        return send(cx, head, cx.base, form);
    };
    match cx.service.agent(&name) {
        Some(agent) => {
            cx.endpoint = Endpoint::own(dialect, agent);
            send(cx, head, &format!("{prefix}{name}"), form);
        }
        None => http_error::answer(cx, 404, "no agent has this name"),
    }
}

/// The error for a disabled extended card, with the setting that enables it.
pub(super) const NO_EXTENDED: &str = "the extended card is disabled; --extended-card \
                                      (Setup::extended_card) serves it to every client";

/// The agent that the client of a platform names in the query: its dialect, the prefix of its
/// endpoint, and its name.
fn queried_agent(head: &Head<'_>) -> Option<(&'static Dialect, &'static str, String)> {
    query::pairs(head.query()?).filter_map(Result::ok).find_map(|(key, name)| {
        let matches = |dialect: &&&Dialect| dialect.routes.card_query == Some(&*key);
        let dialect = dialect::ALL.iter().find(matches)?;
        Some((*dialect, dialect.routes.by_name?, name.into_owned()))
    })
}

fn send(cx: &mut CallContext<'_>, head: &Head<'_>, base: &str, form: CardForm) {
    let endpoint = cx.endpoint;
    let origin = Origin::of(cx.config, cx.peer, head);
    let Some(profile) = cx.service.profile(endpoint.agent) else {
        return http_error::answer(cx, 404, "no such agent");
    };
    let source = CardSource::of(cx.config, profile);
    let cards = &cx.scratch.cards;
    let index = match cards.find(endpoint, form, &origin, base) {
        Some(index) if cards.cards[index].source.is(&source) => index,
        stale => {
            let card = render(cx, source, &origin, base, form);
            cx.scratch.cards.keep(card, stale)
        }
    };
    if cx.config.cors.is_on() {
        cx.writer.fields = cx.config.cors.fields_without_vary(cx.config.cors.of(head));
    }
    let Card { validators, answer, .. } = &cx.scratch.cards.cards[index];
    if validators.match_request(head) {
        return cx.writer.empty(304, validators.fields.get());
    }
    cx.writer.ready(answer, validators.fields.get());
}

/// Answers GET and HEAD with content of this media type, or with 304 if the client has the content.
pub(super) fn send_validated(
    cx: &mut CallContext<'_>,
    head: &Head<'_>,
    validators: &Validators,
    media: &'static str,
    content: &[u8],
) {
    if cx.config.cors.is_on() {
        cx.writer.fields = cx.config.cors.fields_without_vary(cx.config.cors.of(head));
    }
    if validators.match_request(head) {
        return cx.writer.empty(304, validators.fields.get());
    }
    cx.writer.begin(200, media, validators.fields.get(), Content::Whole);
    cx.writer.out.extend_from_slice(content);
    cx.writer.finish();
}

/// Validators and cache lifetime of an answer.
pub(super) struct Validators {
    etag: [u8; 34],
    /// The modification time in seconds since the Unix epoch; `None`: the answer has no
    /// `Last-Modified`.
    modified_s: Option<u64>,
    /// The header fields of the answer.
    pub(super) fields: FieldLinesBuf,
}

impl Validators {
    /// The validators of content with this tag and modification time.
    pub(super) fn new(config: &ServerConfig, etag: [u8; 34], modified_s: u64) -> Validators {
        let modified = date::imf_fixdate(modified_s);
        let mut fields = FieldLinesBuf::default();
        fields.push("ETag", &String::from_utf8_lossy(&etag));
        fields.push("Last-Modified", &String::from_utf8_lossy(&modified));
        fields.push("Cache-Control", &format!("public, max-age={MAX_AGE_S}"));
        fields.extend(Origin::vary(config));
        Validators { etag, modified_s: Some(modified_s), fields }
    }

    /// The validators of per-caller content: `Cache-Control: private, no-cache`.
    pub(super) fn of_caller(config: &ServerConfig, etag: [u8; 34]) -> Validators {
        let mut fields = FieldLinesBuf::default();
        fields.push("ETag", &String::from_utf8_lossy(&etag));
        fields.push("Cache-Control", "private, no-cache");
        fields.extend(Origin::vary(config));
        Validators { etag, modified_s: None, fields }
    }

    /// Whether the client has the content. RFC 9110 §13.2.2: with `If-None-Match`, other conditions
    /// are ignored.
    fn match_request(&self, head: &Head<'_>) -> bool {
        if let Some(tags) = head.value(Field::IfNoneMatch) {
            return entity_tag::none_match_names(tags, &self.etag);
        }
        let since = head.value(Field::IfModifiedSince).and_then(date::parse);
        self.modified_s.zip(since).is_some_and(|(modified_s, since)| modified_s <= since)
    }
}

impl CardCache {
    fn find(
        &self,
        endpoint: Endpoint,
        form: CardForm,
        at: &Origin<'_>,
        base: &str,
    ) -> Option<usize> {
        let host = at.host.unwrap_or_default();
        self.cards.iter().position(|card| {
            card.agent == endpoint.agent
                && std::ptr::eq(card.dialect, endpoint.dialect)
                && card.form == form
                && card.is_secure == at.is_secure
                && card.host == host
                && card.port == at.port
                && card.prefix.len() == at.prefix.len()
                && (at.prefix.is_empty() || card.prefix == at.prefix)
                && card.base == base
        })
    }

    /// Caches a card, in the slot of the stale card if there is one.
    fn keep(&mut self, card: Card, stale: Option<usize>) -> usize {
        if let Some(stale) = stale {
            self.cards[stale] = card;
            return stale;
        }
        if self.cards.len() < CARDS_MAX {
            self.cards.push(card);
            return self.cards.len() - 1;
        }
        self.next = (self.next + 1) % CARDS_MAX;
        self.cards[self.next] = card;
        self.next
    }
}

fn render(
    cx: &CallContext<'_>,
    source: CardSource,
    origin: &Origin<'_>,
    base: &str,
    form: CardForm,
) -> Card {
    let (config, endpoint, now_s) = (cx.config, cx.endpoint, cx.now.unix_ms / 1000);
    let at = CardEndpoint { config, origin, endpoint, base };
    let body = body(&source.profile, None, at, form);
    let Endpoint { dialect, agent, .. } = endpoint;
    let modified_s = config.card_times.of(agent, &source, config.started_s, now_s);
    let validators = Validators::new(config, entity_tag::etag(&body), modified_s);
    let Origin { is_secure, host, port, prefix } = *origin;
    let (host, prefix) = (host.unwrap_or_default().to_vec(), prefix.to_owned());
    let (base, answer) = (base.to_owned(), ReadyResponse::new(validators.fields.get(), &body));
    Card { source, dialect, agent, form, is_secure, host, port, prefix, base, validators, answer }
}

/// A2A 1.0 §3.1.11: the card in the format of the caller's generation alone, for a caller with
/// these scopes.
///
/// # Errors
/// If the extended card is disabled: `UnsupportedOperation`, before 1.0
/// `ExtendedAgentCardNotConfigured`. If the agent does not exist: `ExtendedAgentCardNotConfigured`.
pub fn extended(
    service: &dyn Service,
    scopes: Option<&ScopeSet>,
    at: CardEndpoint<'_>,
    format: &AnswerFormat<'_>,
) -> Result<Vec<u8>, Fault> {
    let generation = format.encode.generation;
    if !at.config.extended_card {
        let kind = match generation {
            // A2A 1.0 §3.1.11: the error if the card does not declare the extended card.
            Generation::V1 => FaultKind::UnsupportedOperation,
            // A2A 0.3 §8.2: -32007 was introduced with the method.
            Generation::V01 | Generation::V03 => FaultKind::ExtendedAgentCardNotConfigured,
        };
        return Err(Fault::because(kind, NO_EXTENDED));
    }
    let form = match (generation, &format.envelope) {
        (Generation::V1, _) => CardForm::V1,
        (Generation::V01 | Generation::V03, Envelope::Bare) => CardForm::ExtendedV03,
        (Generation::V01 | Generation::V03, _) => CardForm::V03,
    };
    let profile = service.profile(at.endpoint.agent);
    let profile = profile.ok_or(FaultKind::ExtendedAgentCardNotConfigured)?;
    Ok(body(&profile, scopes, at, form))
}

/// Renders the card of an agent at this endpoint, for a caller with these scopes or for all
/// callers, and signs it unless the path has a tenant.
pub fn body(
    profile: &Profile,
    scopes: Option<&ScopeSet>,
    at: CardEndpoint<'_>,
    form: CardForm,
) -> Vec<u8> {
    let CardEndpoint { config, origin, endpoint, base } = at;
    let dialect = endpoint.dialect;
    let urls = Urls::new(config, origin, endpoint, &profile.name, base);
    let interfaces = urls.interfaces(dialect);
    // An endpoint that only supports 1.0 must not have a card for 0.3.
    let is_v1_alone = dialect.lists(Generation::V1) && !dialect.lists(Generation::V03);
    let form = match form {
        CardForm::Hybrid | CardForm::V03 | CardForm::ExtendedV03 if is_v1_alone => CardForm::V1,
        form => form,
    };
    let security = config.security_of(profile);
    let options = CardOptions {
        extended: config.extended_card && dialect.offers(Op::ExtendedCard),
        extended_v1_alone: !dialect
            .methods
            .iter()
            .any(|method| method.op == Op::ExtendedCard && method.generation() != Generation::V1),
        security: Some(&security),
        idempotent_send: config.idempotent_send,
        long_poll_s: config.long_poll.then_some(config.limits.long_poll_ms_max / 1000),
        push: config.push && dialect.offers(Op::PushSet),
        scopes,
    };
    let mut card = card::render(profile, &interfaces, form, options);
    // Cards of 0.1 have no field for signatures.
    let allows_signatures =
        !matches!(form, CardForm::V03 | CardForm::ExtendedV03) || !card::is_v01_alone(&interfaces);
    if allows_signatures && card_signer::tenant_in(config, endpoint, &profile.name, base).is_none()
    {
        let signatures = card_signer::signatures(config, origin, &card);
        card_security::push_signatures(&mut card, signatures.iter().map(DetachedSignature::pair));
    }
    card
}
