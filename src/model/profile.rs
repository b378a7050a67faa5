//! The data of an agent for its cards.

use super::{CardRequirement, CardSecurity, JsonObjectBuf};
use crate::limits::AGENT_FIELDS_MAX;

/// The data for an agent's card; strings are ordinary text.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Name in `/agents/{name}`, and on the card unless there is a title.
    pub name: String,
    /// Name on the card if it differs; any text.
    pub title: Option<String>,
    /// One paragraph for humans.
    pub description: String,
    /// Version of the agent; [`Profile::new`] sets that of this crate.
    pub version: String,
    /// Its provider.
    pub provider: Option<Provider>,
    /// Absolute URL of its documentation.
    pub documentation_url: Option<String>,
    /// Absolute URL of a picture of the agent.
    pub icon_url: Option<String>,
    /// Media types it reads; a message part with another declared type is refused (-32005). `*/*`
    /// accepts anything.
    pub input_modes: Vec<String>,
    /// Media types it writes.
    pub output_modes: Vec<String>,
    /// Its skills; at least one.
    pub skills: Vec<Skill>,
    /// True: streaming operations are served.
    pub streaming: bool,
    /// Extensions of the protocol that it supports.
    pub extensions: Vec<Extension>,
    /// Its security requirements; `None`: those of the server for all agents (`Setup::security`).
    pub security: Option<CardSecurity>,
    /// Names of the header fields of a request that the agent sees, such as `traceparent`. For gRPC
    /// they are metadata. Cards do not list them. At most [`AGENT_FIELDS_MAX`]; fields of the
    /// connection are not allowed.
    pub fields: Vec<String>,
    /// True: anonymous callers may call it, even if the server authenticates callers.
    pub anonymous: bool,
    /// Scopes that a caller needs for each of its operations.
    pub scopes: Vec<String>,
    /// True: the agent sees all scopes of its callers. Otherwise the server retains only those
    /// scopes of a JWT or a proxy's header that an agent or skill requires, and the server's own
    /// scopes (`a2a:read` and so on). With this setting cached tokens take more room, so fewer are
    /// cached.
    pub reads_all_scopes: bool,
    /// The name of a quota in `Quotas::named`, which limits each caller's use of this agent in
    /// addition to other quotas. `None`, or an unknown name: no such limit.
    pub quota: Option<String>,
    /// Milliseconds without an event after which a submitted or working task of the agent fails;
    /// `None`: the limit of the same name applies.
    pub unfinished_idle_ms: Option<u64>,
    /// Milliseconds without an event after which a task of the agent in input-required or
    /// auth-required fails; `None`: the limit of the same name applies.
    pub input_required_ttl_ms: Option<u64>,
}

/// Whether an agent can have this name: a path segment without escapes that does not begin with a
/// dot.
pub fn is_agent_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= 128 && name.bytes().all(plain) && !name.starts_with('.')
}

/// The provider of an agent (A2A 1.0 §4.4.2).
#[derive(Clone, Debug)]
pub struct Provider {
    /// Name of the organization.
    pub organization: String,
    /// Absolute URL of its website.
    pub url: String,
}

/// One entry of a card's `capabilities.extensions` (A2A 1.0 §4.4.4).
#[derive(Clone, Debug, Default)]
pub struct Extension {
    /// Its URI, version included.
    pub uri: String,
    /// Description for humans; may be empty.
    pub description: String,
    /// True: a client's message without it in `A2A-Extensions` is refused with
    /// `ExtensionSupportRequired` (A2A 1.0 §3.3.4).
    pub required: bool,
    /// Parameters for clients.
    pub params: Option<JsonObjectBuf>,
}

impl Extension {
    /// Declared by servers of this crate that recognize repeated sends (`docs/guide/calls.md`). Its
    /// `params` name the callers: `{"callers": "all"}`, or `"authenticated"`.
    pub const IDEMPOTENT_SEND: &'static str = "urn:peregrine:idempotent-send:1";
    /// Declared by servers of this crate that let readers of a task wait for new events
    /// (`docs/guide/calls.md`). Its `params` limit the wait: `{"waitSecondsMax": 60}`.
    pub const LONG_POLL: &'static str = "urn:peregrine:long-poll:1";

    /// Selects the kinds of events that a webhook gets: members `events` and `coalesce` of its
    /// configuration (`docs/guide/webhooks.md`). Its `params` list those kinds, and the bindings in
    /// which a configuration may have these members.
    pub const PUSH_EVENTS: &'static str = "urn:peregrine:push-events:1";

    /// The extensions that servers of this crate declare themselves.
    #[cfg(feature = "gateway")]
    pub(crate) const OF_SERVERS: [&'static str; 3] =
        [Extension::IDEMPOTENT_SEND, Extension::LONG_POLL, Extension::PUSH_EVENTS];
}

/// One entry of a card's `skills` (A2A 1.0 §4.4.5).
///
/// ```
/// use peregrine::model::Skill;
///
/// let skill = Skill {
///     id: "draw".to_owned(),
///     name: "Draw".to_owned(),
///     output_modes: vec!["image/png".to_owned()],
///     ..Skill::default()
/// };
/// ```
#[derive(Clone, Debug, Default)]
pub struct Skill {
    /// Identifier.
    pub id: String,
    /// Title.
    pub name: String,
    /// One paragraph for humans.
    pub description: String,
    /// Keywords.
    pub tags: Vec<String>,
    /// Messages that show what it does.
    pub examples: Vec<String>,
    /// Media types it reads; empty: those of the agent. The card shows them, but messages are
    /// checked against the media types of the agent, since a message names no skill.
    pub input_modes: Vec<String>,
    /// Media types it writes; empty: those of the agent.
    pub output_modes: Vec<String>,
    /// Its additional security requirements: one of these is enough; empty: only `scopes`, if any.
    pub security: Vec<CardRequirement>,
    /// Scopes that a caller needs to see the skill, which is then on the extended card only; empty:
    /// the skill is on every card. A message names no skill, so any caller of the agent may request
    /// it.
    pub scopes: Vec<String>,
}

impl Profile {
    /// The name on cards.
    pub fn shown_name(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    /// A profile with one skill, any media type, streaming on.
    pub fn new(name: &str, description: &str) -> Profile {
        Profile {
            name: name.to_owned(),
            title: None,
            description: description.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            provider: None,
            documentation_url: None,
            icon_url: None,
            input_modes: vec!["*/*".to_owned()],
            output_modes: vec!["text/plain".to_owned(), "application/json".to_owned()],
            skills: vec![Skill {
                id: name.to_owned(),
                name: name.to_owned(),
                description: description.to_owned(),
                tags: vec![name.to_owned()],
                ..Skill::default()
            }],
            streaming: true,
            extensions: Vec::new(),
            security: None,
            fields: Vec::new(),
            anonymous: false,
            scopes: Vec::new(),
            reads_all_scopes: false,
            quota: None,
            unfinished_idle_ms: None,
            input_required_ttl_ms: None,
        }
    }

    /// The first invalid name in its own security settings; `of_server` are the settings of the
    /// server, `None` if unknown.
    pub(crate) fn wrong_security(&self, of_server: Option<&CardSecurity>) -> Option<&str> {
        let own = self.security.as_ref();
        let schemes = own.or(of_server)?;
        let skills = || self.skills.iter().find_map(|skill| schemes.unknown(&skill.security));
        own.and_then(CardSecurity::wrong).or_else(skills)
    }

    /// The first header field that agents may not see.
    pub(crate) fn wrong_field(&self) -> Option<&str> {
        let mut names = self.fields.iter().enumerate();
        let wrong = names.find(|(at, name)| *at >= AGENT_FIELDS_MAX || !is_of_request(name));
        wrong.map(|(_, name)| name.as_str())
    }
}

/// RFC 9110 §7.6.1: fields of the connection are not forwarded.
fn is_of_request(name: &str) -> bool {
    const OF_CONNECTION: [&str; 9] = [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let is_token = !name.is_empty() && name.bytes().all(is_plain);
    is_token && !OF_CONNECTION.iter().any(|other| name.eq_ignore_ascii_case(other))
}
