//! Chooses the interface of a card to call, and its version (A2A 1.0 §5.2, §8.3.2).
//!
//! Invariant: the caller's options come first, then the newest version, then the card's order. An
//! interface with an unknown binding or version, or with a URL that cannot be called, is skipped.
//! An interface below the floor is never chosen silently: if no other remains, the error states how
//! to allow it.

use std::fmt;

use crate::{
    binding::interfaces::Binding,
    dialect::{self, version::ProtocolVersion},
    model::Generation,
};

use super::{
    super::{HttpOrigin, HttpUrl, format::push_encoded},
    AgentCard, CardError, CardInterface, CardProblem,
};

/// The caller's options for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// Bindings, the preferred one first. If the card has none of them, the card's order decides.
    pub transports: Vec<Binding>,
    /// The version to speak, even below the floor; `None`: the newest common one.
    pub version: Option<ProtocolVersion>,
    /// The oldest version to speak; 1.0 by default.
    pub floor: ProtocolVersion,
    /// The name of the dialect to speak, instead of the detected one.
    pub dialect: Option<&'static str>,
    /// The tenant to call, instead of the interface's; an interface without a position for a tenant
    /// is skipped.
    pub tenant: Option<String>,
    /// The allowed origins, an interface at another origin is skipped; `None`: any.
    pub origins: Option<Vec<HttpOrigin>>,
}

impl Default for Preferences {
    fn default() -> Preferences {
        Preferences {
            transports: Vec::new(),
            version: None,
            floor: ProtocolVersion::V1_0,
            dialect: None,
            tenant: None,
            origins: None,
        }
    }
}

/// An interface of a card, with the terms of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenInterface {
    /// The URL.
    pub url: HttpUrl,
    /// The binding.
    pub binding: Binding,
    /// The value of `A2A-Version`: the version on the card, or the newest known version with its
    /// major number.
    pub version: ProtocolVersion,
    /// The generation of the version.
    pub generation: Generation,
    /// The `tenant` of each call; `None`: calls have none, or the URL's path names the tenant.
    pub tenant: Option<String>,
    /// The name of the dialect.
    pub dialect: &'static str,
    /// True: credentials may be sent to the interface, because it has the origin of the card, or
    /// because the caller provided the card without a URL. False: another origin, or the card was
    /// redirected from another origin (other than from http to https on the same host).
    pub is_card_origin: bool,
}

/// Why no interface of a card can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChooseError {
    /// Every interface that could be called speaks a version below the floor.
    BelowFloor {
        /// The newest version of these interfaces.
        newest: ProtocolVersion,
        /// The floor.
        floor: ProtocolVersion,
    },
    /// The version that the caller wants is unknown.
    UnknownVersion(ProtocolVersion),
    /// The interface has no position for the tenant that the caller wants: messages of its version
    /// have no tenant, and its URL does not end with `/tenants/NAME`; or, over gRPC, its tenant is
    /// the name of the card, by which the server selects the agent.
    NoTenant {
        /// The version of the interface.
        version: ProtocolVersion,
        /// The URL of the interface.
        url: String,
    },
    /// The caller does not allow the origin of the interface with this URL.
    OtherOrigin(String),
    /// No interface has a known binding, a known version (the wanted version, if the caller wants
    /// one) and a URL that can be called.
    NoInterface {
        /// The version that the caller wants.
        wanted: Option<ProtocolVersion>,
        /// The interfaces of the card, in words.
        offered: String,
    },
}

impl fmt::Display for ChooseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChooseError::BelowFloor { newest, floor } => write!(
                f,
                "the agent speaks A2A {newest}, but the oldest allowed version is {floor}; allow \
                 {newest} with ClientBuilder::version or ClientBuilder::floor"
            ),
            ChooseError::UnknownVersion(wanted) => {
                write!(
                    f,
                    "A2A {wanted} is not supported; supported versions: 1.0, 0.3, 0.2 and 0.1"
                )
            }
            ChooseError::NoTenant { version, url } => write!(
                f,
                "the interface of A2A {version} at {url} cannot name a tenant: before 1.0 its \
                 URL must end with /tenants/NAME, and over gRPC its tenant on the card must not be \
                 the name of the agent"
            ),
            ChooseError::OtherOrigin(url) => write!(
                f,
                "the interface at {url} has an origin that is not allowed; allow it with \
                 ClientBuilder::origins"
            ),
            ChooseError::NoInterface { wanted, offered } => {
                match wanted {
                    Some(wanted) => write!(f, "no interface of the card speaks A2A {wanted}")?,
                    None => write!(f, "no interface of the card can be called")?,
                }
                write!(f, "; it offers {offered}")
            }
        }
    }
}

impl std::error::Error for ChooseError {}

/// Chooses the interface to call. `card_url` is the URL of the card, if any.
///
/// Considers the interfaces with the first preferred transport that the card has, or else all.
/// Chooses the newest version, and of this version the first interface on the card.
///
/// # Errors
/// [`ChooseError`].
pub fn choose(
    card: &AgentCard,
    card_url: Option<&HttpUrl>,
    wants: &Preferences,
) -> Result<ChosenInterface, ChooseError> {
    let all = choose_all(card, card_url, wants)?;
    Ok(all.into_iter().next().unwrap_or_else(|| unreachable!("choose_all returns at least one")))
}

/// The interfaces that can be called, first the choice of [`choose`]. If some have a preferred
/// transport, the others are omitted.
///
/// # Errors
/// [`ChooseError`]; `Ok` has at least one interface.
pub(in crate::client) fn choose_all(
    card: &AgentCard,
    card_url: Option<&HttpUrl>,
    wants: &Preferences,
) -> Result<Vec<ChosenInterface>, ChooseError> {
    if let Some(wanted) = wants.version.filter(|wanted| wanted.generation().is_none()) {
        return Err(ChooseError::UnknownVersion(wanted));
    }
    let callable = || {
        let all = card.interfaces.iter();
        all.filter_map(|one| callable(card, one, card_url, wants))
    };
    let is_allowed = |one: &ChosenInterface| wants.version.is_some() || one.version >= wants.floor;
    let rank = |one: &ChosenInterface| {
        let preferred = wants.transports.iter().position(|binding| *binding == one.binding);
        preferred.unwrap_or(usize::MAX)
    };
    let mut all: Vec<ChosenInterface> = callable().filter(is_allowed).collect();
    // The sort is stable: interfaces of equal rank keep the card's order.
    all.sort_by(|a, b| rank(a).cmp(&rank(b)).then(b.version.cmp(&a.version)));
    if all.first().is_some_and(|first| rank(first) < usize::MAX) {
        all.retain(|one| rank(one) < usize::MAX);
    }
    let best = all.first();
    if best.is_none() && wants.tenant.is_some() {
        // A choice without the tenant returns the interface to report, or the actual error.
        let ChosenInterface { version, url, .. } =
            choose(card, card_url, &Preferences { tenant: None, ..wants.clone() })?;
        return Err(ChooseError::NoTenant { version, url: url.to_string() });
    }
    if best.is_none() && wants.origins.is_some() {
        let ChosenInterface { url, .. } =
            choose(card, card_url, &Preferences { origins: None, ..wants.clone() })?;
        return Err(ChooseError::OtherOrigin(url.to_string()));
    }
    if best.is_some() {
        return Ok(all);
    }
    Err(match callable().map(|one| one.version).max() {
        Some(newest) if wants.version.is_none() => {
            ChooseError::BelowFloor { newest, floor: wants.floor }
        }
        Some(_) | None => {
            ChooseError::NoInterface { wanted: wants.version, offered: offered(card, card_url) }
        }
    })
}

/// The interface with the terms of its calls; `None`: it cannot be called as wanted.
fn callable(
    card: &AgentCard,
    interface: &CardInterface,
    card_url: Option<&HttpUrl>,
    wants: &Preferences,
) -> Option<ChosenInterface> {
    let binding = interface.binding()?;
    let version = match wants.version {
        Some(wanted) => wanted_version(interface, wanted)?,
        None => interface.version()?.spoken()?,
    };
    let generation = version.generation()?;
    if !is_binding_of(binding, generation) {
        return None;
    }
    let url = interface.target(card_url).ok()?;
    if wants.origins.as_ref().is_some_and(|allowed| !allowed.contains(&url.origin)) {
        return None;
    }
    let dialect = wants.dialect.unwrap_or_else(|| dialect_at(&url, card_url, binding, generation));
    let own = Some(&interface.tenant).filter(|tenant| !tenant.is_empty()).cloned();
    // Over gRPC the tenant names the agent, because no path does: another tenant is another agent.
    let names_agent = binding == Binding::Grpc && own.as_ref() == Some(&card.name);
    let (url, tenant) = match &wants.tenant {
        None => (url, own),
        Some(named) => {
            let by_path = own.is_none() && binding != Binding::Grpc;
            match by_path.then(|| path_with_tenant(&url.path, named)).flatten() {
                Some(path) => (HttpUrl { path, ..url }, None),
                None if names_agent && own.as_ref() != Some(named) => return None,
                None if generation == Generation::V1 => (url, Some(named.clone())),
                None => return None,
            }
        }
    };
    Some(ChosenInterface {
        is_card_origin: card_url.is_none_or(|card| card.origin == url.origin),
        tenant,
        url,
        binding,
        version,
        generation,
        dialect,
    })
}

/// Replaces the tenant in a path that ends with `/tenants/NAME`; `None`: one of them does not fit.
fn path_with_tenant(path: &str, tenant: &str) -> Option<String> {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let (before, name) = path.strip_suffix('/').unwrap_or(path).rsplit_once('/')?;
    if !before.ends_with("/tenants") || name.is_empty() || matches!(tenant, "." | "..") {
        return None;
    }
    let mut replaced = format!("{before}/");
    push_encoded(&mut replaced, tenant);
    Some(replaced + query)
}

/// Returns `wanted` if the interface speaks it. A card of 0.2 or 0.3 may name either, because they
/// are one generation; a card of 0.x without a version matches every 0.x.
fn wanted_version(interface: &CardInterface, wanted: ProtocolVersion) -> Option<ProtocolVersion> {
    let declared = interface.version()?.spoken();
    let is_same = declared.and_then(ProtocolVersion::generation) == wanted.generation();
    let is_open = interface.is_version_assumed
        && declared.is_some_and(|declared| declared.major == wanted.major);
    (is_same || is_open).then_some(wanted)
}

/// Whether the binding exists in the generation. 0.1 has only JSON-RPC, over HTTP or WebSocket.
fn is_binding_of(binding: Binding, generation: Generation) -> bool {
    match (binding, generation) {
        (Binding::JsonRpc | Binding::WebSocket, _) => true,
        (Binding::HttpJson | Binding::Grpc, Generation::V03 | Generation::V1) => true,
        (Binding::HttpJson | Binding::Grpc, Generation::V01) => false,
    }
}

/// The dialect at a URL: that of a platform if the URL has its form, otherwise the standard.
///
/// LangSmith serves `/a2a/` and a UUID, and its cards by `assistant_id` (wire §8); other servers
/// also use that path, but not with such ids. Evo AI serves `/api/v1/a2a/` and an id.
fn dialect_at(
    url: &HttpUrl,
    card_url: Option<&HttpUrl>,
    binding: Binding,
    generation: Generation,
) -> &'static str {
    let standard = dialect::STANDARD.name;
    if binding != Binding::JsonRpc || generation != Generation::V03 {
        return standard;
    }
    let path = url.path.split('?').next().unwrap_or_default();
    let card_query = card_url.and_then(|card| card.path.split_once('?')).map(|(_, query)| query);
    // Of two matching prefixes the longer one decides.
    let of_path = dialect::ALL.iter().filter_map(|one| {
        let prefix = one.routes.by_name?;
        let (_, id) = path.split_once(prefix)?;
        Some((prefix.len(), one, id.trim_end_matches('/')))
    });
    let Some((_, found, id)) = of_path.max_by_key(|(len, _, _)| *len) else { return standard };
    let is_named = match found.routes.card_query {
        None => !id.is_empty() && !id.contains('/'),
        Some(parameter) => {
            let mut parts = card_query.into_iter().flat_map(|query| query.split('&'));
            let names = |part: &str| part.split('=').next() == Some(parameter);
            is_uuid(id) || parts.any(names)
        }
    };
    if is_named { found.name } else { standard }
}

fn is_uuid(id: &str) -> bool {
    let bytes = id.as_bytes();
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The interfaces of a card, for people: at most eight.
fn offered(card: &AgentCard, card_url: Option<&HttpUrl>) -> String {
    const SHOWN_MAX: usize = 8;
    let one = |interface: &CardInterface| {
        let CardInterface { url, binding_name, version_text, .. } = interface;
        let version = if version_text.is_empty() { "without a version" } else { version_text };
        let why = match interface.target(card_url) {
            Err(CardError { problem: CardProblem::Url(why), .. }) => format!(" ({why})"),
            Ok(_) | Err(_) => String::new(),
        };
        format!("{binding_name:?} {version} at {url:?}{why}")
    };
    let shown = card.interfaces.iter().take(SHOWN_MAX).map(one).collect::<Vec<_>>().join(", ");
    match card.interfaces.len().checked_sub(SHOWN_MAX) {
        Some(more) if more > 0 => format!("{shown}, and {more} more"),
        Some(_) | None => shown,
    }
}

/// The version in which to repeat a call after VersionNotSupported for `rejected`: the newest
/// version in `named` that the caller's options allow. `named` are texts that contain versions: the
/// error's message, or entries of its data.
///
/// # Errors
/// [`ChooseError::BelowFloor`] if only versions below the floor remain, and
/// [`ChooseError::NoInterface`] if none remains.
pub fn next_version<'t>(
    rejected: ProtocolVersion,
    named: impl IntoIterator<Item = &'t str>,
    wants: &Preferences,
) -> Result<ProtocolVersion, ChooseError> {
    let versions: Vec<ProtocolVersion> = named.into_iter().flat_map(versions_in).collect();
    let usable = |one: &ProtocolVersion| {
        one.generation().is_some()
            && *one != rejected
            && wants.version.is_none_or(|wanted| wanted.generation() == one.generation())
    };
    let newest = versions.iter().copied().filter(usable).max();
    match newest {
        Some(newest) if wants.version.is_some() || newest >= wants.floor => Ok(newest),
        Some(newest) => Err(ChooseError::BelowFloor { newest, floor: wants.floor }),
        None => {
            let listed: Vec<String> = versions.iter().map(ProtocolVersion::to_string).collect();
            let offered = match listed.as_slice() {
                [] => "no other version".to_owned(),
                _ => listed.join(", "),
            };
            Err(ChooseError::NoInterface { wanted: wants.version.or(Some(rejected)), offered })
        }
    }
}

/// The versions in a text: digits and dots, separated by other characters.
fn versions_in(text: &str) -> impl Iterator<Item = ProtocolVersion> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.filter_map(|word| ProtocolVersion::parse(word.trim_matches('.')))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::super::HttpOrigin, *};

    const UUID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    /// A card with these interfaces: URL, binding, version.
    fn card(interfaces: &[(&str, &str, &str)]) -> AgentCard {
        let listed: Vec<String> = interfaces
            .iter()
            .map(|(url, binding, version)| {
                let rest =
                    format!(r#""protocolBinding":"{binding}","protocolVersion":"{version}""#);
                format!(r#"{{"url":"{url}",{rest}}}"#)
            })
            .collect();
        let json = format!(r#"{{"name":"A","supportedInterfaces":[{}]}}"#, listed.join(","));
        AgentCard::read(json.as_bytes()).unwrap()
    }

    fn chosen(card: &AgentCard, wants: &Preferences) -> String {
        let url = HttpOrigin::parse("https://h/.well-known/agent-card.json").unwrap();
        let one = choose(card, Some(&url), wants).unwrap();
        format!("{} {} {}", one.url, one.binding.word(), one.version)
    }

    fn version(text: &str) -> ProtocolVersion {
        ProtocolVersion::parse(text).unwrap()
    }

    fn wants(transports: &[Binding], version: Option<&str>, floor: &str) -> Preferences {
        Preferences {
            transports: transports.to_vec(),
            version: version.map(self::version),
            floor: self::version(floor),
            dialect: None,
            tenant: None,
            origins: None,
        }
    }

    const MIXED: &[(&str, &str, &str)] = &[
        ("https://h/mqtt", "https://x.example/mqtt", "1.0"),
        ("https://h/old", "JSONRPC", "0.3"),
        ("https://h/bad", "JSONRPC", "one"),
        ("not a url", "JSONRPC", "1.0"),
        ("https://h/rest", "HTTP+JSON", "1.0"),
        ("h:1", "GRPC", "0.3.0"),
        ("https://h/rpc", "JSONRPC", "1.0.1"),
        ("https://h/next", "JSONRPC", "2.0"),
    ];

    #[test]
    fn preference_wins_over_version_and_version_over_card_order() {
        use Binding::{Grpc, HttpJson, JsonRpc, WebSocket};
        let card = card(MIXED);
        for (transports, version, floor, expected) in [
            (&[][..], None, "1.0", "https://h/rest http+json 1.0"),
            (&[JsonRpc], None, "1.0", "https://h/rpc jsonrpc 1.0"),
            (&[WebSocket, JsonRpc, HttpJson], None, "1.0", "https://h/rpc jsonrpc 1.0"),
            // gRPC is below the floor, and no other binding is preferred: the card's order decides.
            (&[Grpc], None, "1.0", "https://h/rest http+json 1.0"),
            (&[Grpc], None, "0.3", "https://h:1/ grpc 0.3"),
            (&[], None, "0.3", "https://h/rest http+json 1.0"),
            (&[JsonRpc], None, "0.1", "https://h/rpc jsonrpc 1.0"),
            (&[], Some("0.3"), "1.0", "https://h/old jsonrpc 0.3"),
            (&[Grpc], Some("0.3"), "1.0", "https://h:1/ grpc 0.3"),
            (&[], Some("0.2"), "1.0", "https://h/old jsonrpc 0.2"),
        ] {
            let wants = wants(transports, version, floor);
            assert_eq!(chosen(&card, &wants), expected, "{wants:?}");
        }
    }

    #[test]
    fn interface_below_version_floor_is_rejected() {
        let old = card(&[("https://h/a", "JSONRPC", "0.2.5"), ("https://h/b", "GRPC", "0.3")]);
        let error = choose(&old, None, &Preferences::default()).unwrap_err();
        let (newest, floor) = (version("0.3"), version("1.0"));
        assert_eq!(error, ChooseError::BelowFloor { newest, floor });
        let message = error.to_string();
        assert!(
            message.contains("A2A 0.3") && message.contains("ClientBuilder::floor"),
            "{message}"
        );
        let allowed = chosen(&old, &wants(&[], None, "0.2"));
        assert_eq!(allowed, "https://h:443/b grpc 0.3".replace(":443", ""));
    }

    #[test]
    fn unsupported_card_error_lists_offered_interfaces() {
        let card = card(&[("https://h/m", "urn:mqtt", "1.0"), ("https://h/n", "JSONRPC", "9.0")]);
        let error = choose(&card, None, &Preferences::default()).unwrap_err().to_string();
        assert!(error.contains(r#""urn:mqtt" 1.0 at "https://h/m""#), "{error}");
        assert!(error.contains(r#""JSONRPC" 9.0"#), "{error}");
        let error = choose(&card, None, &wants(&[], Some("0.3"), "1.0")).unwrap_err();
        assert!(
            error.to_string().starts_with("no interface of the card speaks A2A 0.3; it offers")
        );
        let error = choose(&card, None, &wants(&[], Some("2.0"), "1.0")).unwrap_err();
        assert_eq!(error, ChooseError::UnknownVersion(version("2.0")));
        let many = self::card(&[("https://h/m", "urn:mqtt", "1.0"); 9]);
        let error = choose(&many, None, &Preferences::default()).unwrap_err().to_string();
        assert!(error.ends_with(", and 1 more"), "{error}");
    }

    #[test]
    fn newer_minor_version_is_called_with_newest_supported() {
        let newer = card(&[("https://h/a", "JSONRPC", "1.4")]);
        assert_eq!(chosen(&newer, &Preferences::default()), "https://h/a jsonrpc 1.0");
    }

    #[test]
    fn card_without_version_uses_requested_0_x_version() {
        let json = r#"{"name":"A","url":"https://h/a"}"#;
        let card = AgentCard::read(json.as_bytes()).unwrap();
        assert_eq!(chosen(&card, &wants(&[], None, "0.1")), "https://h/a jsonrpc 0.3");
        assert_eq!(chosen(&card, &wants(&[], Some("0.1"), "1.0")), "https://h/a jsonrpc 0.1");
        assert!(choose(&card, None, &wants(&[], Some("1.0"), "1.0")).is_err());
        let versioned = r#"{"name":"A","url":"https://h/a","protocolVersion":"0.3.0"}"#;
        let versioned = AgentCard::read(versioned.as_bytes()).unwrap();
        assert!(choose(&versioned, None, &wants(&[], Some("0.1"), "1.0")).is_err());
    }

    #[test]
    fn requested_tenant_is_set_in_field_or_url_path() {
        let address = |url: &str, own: &str, binding: &str, protocol_version: &str, named: &str| {
            let json = format!(
                r#"{{"name":"A","supportedInterfaces":[{{"url":"{url}","tenant":"{own}",
                "protocolBinding":"{binding}","protocolVersion":"{protocol_version}"}}]}}"#
            );
            let card = AgentCard::read(json.as_bytes()).unwrap();
            let floor = version("0.1");
            let tenant = Some(named.to_owned());
            let one = choose(&card, None, &Preferences { floor, tenant, ..Preferences::default() });
            one.map(|one| format!("{} {}", one.url.path, one.tenant.unwrap_or_default()))
        };
        for (url, own, binding, protocol_version, named, called) in [
            ("https://h/a", "", "JSONRPC", "1.0", "t/1", Some("/a t/1")),
            ("https://h/a", "own", "HTTP+JSON", "1.0", "t", Some("/a t")),
            ("https://h/tenants/x", "own", "JSONRPC", "1.0", "t", Some("/tenants/x t")),
            ("https://h/tenants/x", "", "GRPC", "1.0", "t", Some("/tenants/x t")),
            ("https://h/tenants/x", "", "JSONRPC", "1.0", "t/1", Some("/tenants/t%2F1 ")),
            ("https://h/a/tenants/x/?k=v", "", "HTTP+JSON", "0.3", "t", Some("/a/tenants/t?k=v ")),
            ("https://h/tenants/x", "", "JSONRPC", "0.3", "..", None),
            ("https://h/tenants/x/y", "", "JSONRPC", "0.3", "t", None),
            ("https://h/tenants/", "", "JSONRPC", "0.3", "t", None),
            ("https://h/tenants/x", "", "GRPC", "0.3", "t", None),
            ("https://h/a", "", "JSONRPC", "0.1", "t", None),
            // The tenant is the card's name: this server names all agents but the default one so.
            ("https://h/", "A", "GRPC", "1.0", "t", None),
            ("https://h/", "A", "GRPC", "1.0", "A", Some("/ A")),
        ] {
            let got = address(url, own, binding, protocol_version, named);
            assert_eq!(got.as_deref().ok(), called, "{url} {binding} {protocol_version}");
            let refused = matches!(got, Err(ChooseError::NoTenant { .. }));
            assert_eq!(refused, called.is_none(), "{got:?}");
        }
        // An interface without a position for the tenant is skipped.
        let card =
            card(&[("https://h/old", "JSONRPC", "0.3"), ("https://h/new", "JSONRPC", "1.0")]);
        let floor = version("0.3");
        let wants = Preferences { floor, tenant: Some("t".to_owned()), ..Preferences::default() };
        assert_eq!(chosen(&card, &wants), "https://h/new jsonrpc 1.0");
    }

    #[test]
    fn interface_of_other_origin_is_marked_and_keeps_tenant() {
        let json = r#"{"name":"A","supportedInterfaces":[{"url":"https://other/",
            "protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":"t/1"}]}"#;
        let card = AgentCard::read(json.as_bytes()).unwrap();
        let at = |url: &str| {
            let url = HttpOrigin::parse(url).unwrap();
            choose(&card, Some(&url), &Preferences::default()).unwrap()
        };
        assert!(at("https://other:443/card").is_card_origin);
        assert!(!at("http://other/card").is_card_origin);
        assert!(!at("https://h/card").is_card_origin);
        assert_eq!(at("https://h/card").tenant.as_deref(), Some("t/1"));
        assert!(choose(&card, None, &Preferences::default()).unwrap().is_card_origin);
    }

    #[test]
    fn dialect_is_chosen_by_url_path_unless_configured() {
        let dialect =
            |path: &str, version: &str, card_path: &str, configured: Option<&'static str>| {
                let card = card(&[(&format!("https://h{path}"), "JSONRPC", version)]);
                let url = HttpOrigin::parse(&format!("https://h{card_path}")).unwrap();
                let floor = ProtocolVersion::V0_1;
                let wants = Preferences { floor, dialect: configured, ..Preferences::default() };
                choose(&card, Some(&url), &wants).unwrap().dialect
            };
        let langsmith = format!("/a2a/{UUID}");
        assert_eq!(dialect(&langsmith, "0.3", "/", None), "langsmith");
        assert_eq!(dialect("/a2a/x", "0.3", "/card?assistant_id=x", None), "langsmith");
        // ADK serves its agents at such paths.
        assert_eq!(dialect("/a2a/weather", "0.3", "/", None), "standard");
        assert_eq!(dialect(&langsmith, "1.0", "/", None), "standard");
        assert_eq!(dialect("/api/v1/a2a/7", "0.3", "/", None), "evo_ai");
        assert_eq!(dialect(&format!("/api/v1/a2a/{UUID}"), "0.3", "/", None), "evo_ai");
        assert_eq!(dialect("/api/v1/a2a/", "0.3", "/", None), "standard");
        assert_eq!(dialect(&langsmith, "0.3", "/", Some("standard")), "standard");
    }

    #[test]
    fn retry_uses_a_version_that_the_server_named() {
        let default = Preferences::default();
        let (v1, v03) = (version("1.0"), version("0.3"));
        let v11 = version("1.1");
        assert_eq!(next_version(v11, ["versions 0.1, 0.3 and 1.0 are served."], &default), Ok(v1));
        assert_eq!(
            next_version(v1, ["0.3", "0.3.0"], &default),
            Err(ChooseError::BelowFloor { newest: v03, floor: v1 })
        );
        assert_eq!(next_version(v1, ["0.3,0.1"], &wants(&[], None, "0.1")), Ok(v03));
        // The same version, an unknown and an unwanted version are not used.
        for named in ["1.0", "2.0", "", "no version", "1.0.0.0", "..."] {
            let error = next_version(v1, [named], &default).unwrap_err();
            assert!(matches!(error, ChooseError::NoInterface { .. }), "{named}");
        }
        assert!(next_version(v03, ["1.0"], &wants(&[], Some("0.3"), "0.1")).is_err());
    }
}
