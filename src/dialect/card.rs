//! The wire formats of an agent card.
//!
//! Invariant: the strict forms have only fields of their own schema; the hybrid form is the 1.0
//! card with the keys of 0.3, which never collide (wire §7.3), so that clients of every generation
//! can read it. Interfaces of 1.0 come first. A card only declares what the server does.

use crate::{
    dialect::card_security::{SecurityWords, skill_requirements},
    json::write::{push_string, push_u64},
    model::{CardRequirement, CardSecurity, Extension, Profile, Provider, Skill},
    service::principal::ScopeSet,
};

/// The bindings with event filters in push configurations: those with JSON messages.
const PUSH_EVENTS_BINDINGS: &str =
    r#"["JSONRPC","HTTP+JSON","https://a2a-protocol.org/bindings/websocket"]"#;

/// The generations for which a card is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardForm {
    /// Strictly 1.0 (A2A 1.0 §4.4.1).
    V1,
    /// Strictly 0.3 (A2A 0.3 §5.5).
    V03,
    /// For the well-known paths: 1.0 with the keys that clients of 0.1 to 0.3 look for.
    Hybrid,
    /// The answer of `GetExtendedAgentCard`: strictly 1.0, independent of the form of the
    /// well-known paths, because clients parse it strictly.
    ExtendedV1,
    /// The answer of `GET /v1/card`: 0.3, with each scheme also in the form of its proto, because
    /// clients of that binding read either form.
    ExtendedV03,
}

/// An interface of the agent (A2A 1.0 §4.4.6, `AgentInterface`); texts are ordinary text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentInterface<'a> {
    /// Absolute URL.
    pub url: &'a str,
    /// `JSONRPC`, `GRPC`, `HTTP+JSON`, or the URI of a custom binding.
    pub binding: &'a str,
    /// Protocol version, `1.0`, `0.3` or [`V01`].
    pub version: &'a str,
    /// The `tenant` that clients must send; 1.0 only.
    pub tenant: Option<&'a str>,
}

impl AgentInterface<'_> {
    fn is_v0(&self) -> bool {
        self.version.starts_with("0.")
    }
}

/// The server's settings on an agent's card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardOptions<'a> {
    /// True: the extended card is served.
    pub extended: bool,
    /// True: only a method of 1.0 returns the extended card.
    pub extended_v1_alone: bool,
    /// The security schemes; `None`: none.
    pub security: Option<&'a CardSecurity>,
    /// The callers for which repeated sends are recognised, as a value of
    /// [`Extension::IDEMPOTENT_SEND`].
    pub idempotent_send: Option<&'static str>,
    /// Maximum seconds that a reader may wait for news of a task; `None`: waiting is off.
    pub long_poll_s: Option<u64>,
    /// True: push notifications are served.
    pub push: bool,
    /// The scopes of the caller that requested the card; `None`: the card is public.
    pub scopes: Option<&'a ScopeSet>,
}

/// The skills visible with these scopes; `None`: the public skills.
pub fn skills<'p>(
    profile: &'p Profile,
    scopes: Option<&ScopeSet>,
) -> impl Iterator<Item = &'p Skill> {
    let has = move |scope: &String| scopes.is_some_and(|scopes| scopes.has(scope));
    profile.skills.iter().filter(move |skill| skill.scopes.iter().all(has))
}

/// The input and output media types of a skill: its own, or else those of its agent. Cards always
/// list them, since some clients reject a skill without them (Pydantic AI).
pub fn modes_of<'p>(skill: &'p Skill, profile: &'p Profile) -> [&'p Vec<String>; 2] {
    let own_or = |own: &'p Vec<String>, agents| if own.is_empty() { agents } else { own };
    [
        own_or(&skill.input_modes, &profile.input_modes),
        own_or(&skill.output_modes, &profile.output_modes),
    ]
}

/// The interface version for clients of 0.1 only.
pub const V01: &str = "0.1";

/// The version on cards for 0.3 clients.
pub const V03: &str = "0.3.0";

/// The interfaces in the order for 1.0: those of 1.0 first, then those of 0.x.
pub fn newest_first<'e, 'a>(
    interfaces: &'e [AgentInterface<'a>],
) -> impl Iterator<Item = &'e AgentInterface<'a>> {
    let newest = interfaces.iter().filter(|interface| !interface.is_v0());
    newest.chain(interfaces.iter().filter(|interface| interface.is_v0()))
}

/// The interfaces for clients of 0.3: those of 0.x, or all if 0.x has none.
pub fn for_v03<'e, 'a>(
    interfaces: &'e [AgentInterface<'a>],
) -> impl Iterator<Item = &'e AgentInterface<'a>> {
    let none = !interfaces.iter().any(AgentInterface::is_v0);
    interfaces.iter().filter(move |interface| none || interface.is_v0())
}

/// Whether 0.1 is the only generation for 0.x clients.
pub fn is_v01_alone(interfaces: &[AgentInterface<'_>]) -> bool {
    for_v03(interfaces).all(|interface| interface.version == V01)
}

/// Writes the card of an agent as one JSON object.
///
/// `interfaces` are in the server's order of preference. Clients of 0.x get those of 0.x, or all if
/// 0.x has none. At least one is required, because every generation needs one.
pub fn render(
    profile: &Profile,
    interfaces: &[AgentInterface<'_>],
    form: CardForm,
    options: CardOptions<'_>,
) -> Vec<u8> {
    let (is_v1, is_v03) = match form {
        CardForm::V1 | CardForm::ExtendedV1 => (true, false),
        CardForm::V03 | CardForm::ExtendedV03 => (false, true),
        CardForm::Hybrid => (true, true),
    };
    let mut card = CardWriter(Vec::with_capacity(1024));
    card.0.push(b'{');
    card.text("name", profile.shown_name());
    card.text("description", &profile.description);
    card.text("version", &profile.version);
    if let Some(provider) = &profile.provider {
        card.provider(provider);
    }
    card.text_some("documentationUrl", profile.documentation_url.as_deref());
    card.text_some("iconUrl", profile.icon_url.as_deref());
    if is_v1 {
        card.supported_interfaces(interfaces);
    }
    if is_v03 {
        card.v03_interfaces(interfaces);
    }
    card.open("capabilities", b'{');
    card.flag("streaming", profile.streaming);
    card.flag("pushNotifications", options.push);
    if is_v03 {
        card.flag("stateTransitionHistory", false);
    }
    if is_v1 {
        card.flag("extendedAgentCard", options.extended);
    }
    card.extensions(&profile.extensions, options);
    card.0.push(b'}');
    if is_v03 && options.extended && !options.extended_v1_alone {
        card.flag("supportsAuthenticatedExtendedCard", true);
    }
    // A client of 0.1 also reads the hybrid form.
    let is_v01 = is_v03 && (is_v1 || is_v01_alone(interfaces));
    let words = SecurityWords {
        is_v1,
        is_v03: is_v03 && !is_v01_alone(interfaces),
        is_v01,
        is_proto_v03: form == CardForm::ExtendedV03,
    };
    if let Some(security) = options.security {
        card.security(security, words);
    }
    card.texts("defaultInputModes", &profile.input_modes);
    card.texts("defaultOutputModes", &profile.output_modes);
    card.open("skills", b'[');
    for skill in skills(profile, options.scopes) {
        let requirements = skill_requirements(skill, options.security);
        card.skill(skill, &requirements, profile, words);
    }
    card.0.extend_from_slice(b"]}");
    card.0
}

/// A card being written.
pub(super) struct CardWriter(pub(super) Vec<u8>);

impl CardWriter {
    fn supported_interfaces(&mut self, interfaces: &[AgentInterface<'_>]) {
        self.open("supportedInterfaces", b'[');
        for interface in newest_first(interfaces) {
            self.element(b'{');
            self.text("url", interface.url);
            self.text("protocolBinding", interface.binding);
            self.text("protocolVersion", interface.version);
            if let Some(tenant) = interface.tenant {
                self.text("tenant", tenant);
            }
            self.0.push(b'}');
        }
        self.0.push(b']');
    }

    fn v03_interfaces(&mut self, interfaces: &[AgentInterface<'_>]) {
        let old = || for_v03(interfaces);
        // 0.1 only has a URL; the other two members would declare 0.3.
        if is_v01_alone(interfaces) {
            if let Some(only) = old().next() {
                self.text("url", only.url);
            }
            return;
        }
        self.text("protocolVersion", V03);
        if let Some(preferred) = old().next() {
            self.text("url", preferred.url);
            self.text("preferredTransport", preferred.binding);
        }
        // A2A 0.3 §5.5.5: the list SHOULD include the main URL.
        self.open("additionalInterfaces", b'[');
        for interface in old() {
            self.element(b'{');
            self.text("url", interface.url);
            self.text("transport", interface.binding);
            self.0.push(b'}');
        }
        self.0.push(b']');
    }

    fn provider(&mut self, provider: &Provider) {
        self.open("provider", b'{');
        self.text("organization", &provider.organization);
        self.text("url", &provider.url);
        self.0.push(b'}');
    }

    /// The extensions of the agent, then those of the server. An agent may declare an extension of
    /// the server itself.
    fn extensions(&mut self, extensions: &[Extension], options: CardOptions) {
        let is_open = |uri: &&str| extensions.iter().all(|extension| extension.uri != **uri);
        let once = Some(Extension::IDEMPOTENT_SEND).filter(is_open).zip(options.idempotent_send);
        let poll = Some(Extension::LONG_POLL).filter(is_open).zip(options.long_poll_s);
        let push = Some(Extension::PUSH_EVENTS).filter(is_open).filter(|_| options.push);
        if extensions.is_empty() && once.is_none() && poll.is_none() && push.is_none() {
            return;
        }
        self.open("extensions", b'[');
        for extension in extensions {
            self.element(b'{');
            self.text("uri", &extension.uri);
            if !extension.description.is_empty() {
                self.text("description", &extension.description);
            }
            self.flag("required", extension.required);
            if let Some(params) = &extension.params {
                self.raw("params", params.view().raw());
            }
            self.0.push(b'}');
        }
        if let Some((uri, callers)) = once {
            self.own_extension(uri, "A message that is sent again is not executed again");
            self.text("callers", callers);
            self.0.extend_from_slice(b"}}");
        }
        if let Some((uri, seconds)) = poll {
            self.own_extension(uri, "A client that reads a task may wait for its next change");
            self.key("waitSecondsMax");
            push_u64(&mut self.0, seconds);
            self.0.extend_from_slice(b"}}");
        }
        if let Some(uri) = push {
            self.own_extension(uri, "A webhook may select the events it receives");
            self.key("events");
            self.0.extend_from_slice(br#"["status","artifacts","final"],"bindings":"#);
            self.0.extend_from_slice(PUSH_EVENTS_BINDINGS.as_bytes());
            self.0.extend_from_slice(b"}}");
        }
        self.0.push(b']');
    }

    /// Begins an extension of the server, up to its params.
    fn own_extension(&mut self, uri: &str, description: &str) {
        self.element(b'{');
        self.text("uri", uri);
        self.text("description", description);
        self.flag("required", false);
        self.open("params", b'{');
    }

    fn skill<'p>(
        &mut self,
        skill: &'p Skill,
        requirements: &[CardRequirement],
        profile: &'p Profile,
        words: SecurityWords,
    ) {
        self.element(b'{');
        self.text("id", &skill.id);
        self.text("name", &skill.name);
        self.text("description", &skill.description);
        self.texts("tags", &skill.tags);
        let [input_modes, output_modes] = modes_of(skill, profile);
        let lists = [
            ("examples", &skill.examples),
            ("inputModes", input_modes),
            ("outputModes", output_modes),
        ];
        for (key, texts) in lists.into_iter().filter(|(_, texts)| !texts.is_empty()) {
            self.texts(key, texts);
        }
        self.requirements(requirements, words);
        self.0.push(b'}');
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        push_string(&mut self.0, value);
    }

    pub(super) fn text_some(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    pub(super) fn text_unless_empty(&mut self, key: &str, value: &str) {
        self.text_some(key, Some(value).filter(|value| !value.is_empty()));
    }

    /// Appends a member with unchanged JSON as its value.
    pub(super) fn raw(&mut self, key: &str, json: &[u8]) {
        self.key(key);
        self.0.extend_from_slice(json);
    }

    pub(super) fn close(&mut self, bracket: u8) {
        self.0.push(bracket);
    }

    pub(super) fn texts(&mut self, key: &str, values: &[String]) {
        self.open(key, b'[');
        for value in values {
            self.comma();
            push_string(&mut self.0, value);
        }
        self.0.push(b']');
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.key(key);
        self.0.extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub(super) fn open(&mut self, key: &str, bracket: u8) {
        self.key(key);
        self.0.push(bracket);
    }

    pub(super) fn element(&mut self, bracket: u8) {
        self.comma();
        self.0.push(bracket);
    }

    pub(super) fn key(&mut self, key: &str) {
        self.comma();
        push_string(&mut self.0, key);
        self.0.push(b':');
    }

    /// Appends a comma, unless an object or array was just opened: values end with a quote, a
    /// letter, a digit or a closing bracket.
    pub(super) fn comma(&mut self) {
        if !matches!(self.0.last(), Some(b'{' | b'[')) {
            self.0.push(b',');
        }
    }
}
