//! What an agent says of itself on its cards.

use super::{CardRequirement, CardSecurity, JsonObjectBuf};
use crate::limits::AGENT_FIELDS_MAX;

/// What the agent's card says; texts are ordinary text.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Name in `/agents/{name}`, and on the card unless there is a title.
    pub name: String,
    /// Name on the card where it is another one; any text.
    pub title: Option<String>,
    /// One paragraph for humans.
    pub description: String,
    /// Version of the agent; [`Profile::new`] puts that of this crate.
    pub version: String,
    /// Its provider.
    pub provider: Option<Provider>,
    /// Absolute URL of what there is to read about it.
    pub documentation_url: Option<String>,
    /// Absolute URL of a picture of it.
    pub icon_url: Option<String>,
    /// Media types it reads; a message part that declares another one is refused (-32005).
    /// `*/*` accepts anything.
    pub input_modes: Vec<String>,
    /// Media types it writes.
    pub output_modes: Vec<String>,
    /// What it can do; at least one.
    pub skills: Vec<Skill>,
    /// True: streaming operations are served.
    pub streaming: bool,
    /// Extensions of the protocol that it supports.
    pub extensions: Vec<Extension>,
    /// What its callers have to show; `None`: what the server says of all its agents
    /// (`Setup::security`).
    pub security: Option<CardSecurity>,
    /// Names of the header fields of a request that the agent is shown, such as `traceparent`; no
    /// others are. Over gRPC they are the metadata. Cards do not name them. At most
    /// [`AGENT_FIELDS_MAX`], and none that belongs to the connection.
    pub fields: Vec<String>,
    /// True: anonymous callers may call it, also where the server authenticates callers.
    pub anonymous: bool,
    /// Scopes that a caller needs for each of its operations.
    pub scopes: Vec<String>,
    /// True: the agent sees all scopes of its callers. Else the server retains of a JWT, and of
    /// what a proxy says, only the scopes that some agent or skill asks for, and its own
    /// (`a2a:read` and so on). Cached tokens take more room then, so fewer are cached.
    pub reads_all_scopes: bool,
    /// The name of a quota among `Quotas::named`: each caller may take no more of this agent than
    /// that says, whatever else it may take. `None`, or a name that is not there: no less.
    pub quota: Option<String>,
    /// Milliseconds without an event after which a submitted or working task of the agent fails;
    /// `None`: the limit of the same name holds.
    pub unfinished_idle_ms: Option<u64>,
    /// Milliseconds without an event after which a task of the agent in input-required or
    /// auth-required fails; `None`: the limit of the same name holds.
    pub input_required_ttl_ms: Option<u64>,
}

/// Whether an agent can be called so: its name is a segment of paths, without escapes, and does not
/// begin with a dot.
pub fn is_agent_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= 128 && name.bytes().all(plain) && !name.starts_with('.')
}

/// The provider of an agent (A2A 1.0 §4.4.2).
#[derive(Clone, Debug)]
pub struct Provider {
    /// Name of the organization.
    pub organization: String,
    /// Absolute URL of its pages.
    pub url: String,
}

/// One entry of a card's `capabilities.extensions` (A2A 1.0 §4.4.4).
#[derive(Clone, Debug, Default)]
pub struct Extension {
    /// Names it, its version included.
    pub uri: String,
    /// What the agent does with it, for humans; may be empty.
    pub description: String,
    /// True: a message of a client that does not name it in `A2A-Extensions` is refused with
    /// `ExtensionSupportRequired` (A2A 1.0 §3.3.4).
    pub required: bool,
    /// What the extension wants a client to know.
    pub params: Option<JsonObjectBuf>,
}

impl Extension {
    /// Names what servers of this crate declare by themselves that know a send again when it is
    /// repeated (`docs/guide/calls.md`). Its `params` say whose sends: `{"callers": "all"}`, or
    /// `"authenticated"`.
    pub const IDEMPOTENT_SEND: &'static str = "urn:peregrine:idempotent-send:1";
    /// Names what servers of this crate declare by themselves whose readers of a task may wait for
    /// news of it (`docs/guide/calls.md`). Its `params` say how long: `{"waitSecondsMax": 60}`.
    pub const LONG_POLL: &'static str = "urn:peregrine:long-poll:1";

    /// Names the kinds of events that a webhook gets: members `events` and `coalesce` of its
    /// configuration (`docs/guide/webhooks.md`). Its `params` name those kinds, and the bindings
    /// over which a configuration may have these members.
    pub const PUSH_EVENTS: &'static str = "urn:peregrine:push-events:1";

    /// Those that servers of this crate declare by themselves, which are about calls made to them.
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
    /// Media types it reads, where they are not those of the agent; empty: they are. The card says
    /// so, and a message is checked against those of the agent alone: it names no skill.
    pub input_modes: Vec<String>,
    /// Media types it writes, where they are not those of the agent; empty: they are.
    pub output_modes: Vec<String>,
    /// What it asks for beside the agent: one of these is enough; empty: nothing, or `scopes`.
    pub security: Vec<CardRequirement>,
    /// Scopes that a caller needs to be shown it, on the extended card alone; empty: it is on every
    /// card. A message names no skill, so a caller of the agent may ask it for anything.
    pub scopes: Vec<String>,
}

impl Profile {
    /// The name that cards show.
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

    /// The first name among its own words on security that cannot be said; what its server says of
    /// all its agents is `of_server`, `None` where that is not known.
    pub(crate) fn wrong_security(&self, of_server: Option<&CardSecurity>) -> Option<&str> {
        let own = self.security.as_ref();
        let schemes = own.or(of_server)?;
        let skills = || self.skills.iter().find_map(|skill| schemes.unknown(&skill.security));
        own.and_then(CardSecurity::wrong).or_else(skills)
    }

    /// The first header field that the agent cannot be shown.
    pub(crate) fn wrong_field(&self) -> Option<&str> {
        let mut names = self.fields.iter().enumerate();
        let wrong = names.find(|(at, name)| *at >= AGENT_FIELDS_MAX || !is_of_request(name));
        wrong.map(|(_, name)| name.as_str())
    }
}

/// RFC 9110 §7.6.1: fields of the connection end with it.
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
