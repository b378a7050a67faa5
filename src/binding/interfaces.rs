//! The interfaces on cards: bindings, versions and URLs, in order of preference.
//!
//! The operator configures the bindings in cards, their order and, for clients that need another
//! URL, their URLs (`docs/adr/0013`). A card lists those bindings that its endpoint serves. Every
//! generation has an entry: if the endpoint serves none of the bindings for a generation, the card
//! lists JSON-RPC, which every endpoint has.

use std::fmt;

use smallvec::SmallVec;

use crate::{
    binding::{Endpoint, ServerConfig, card_signer, origin::Origin},
    dialect::{
        self, Dialect,
        card::{self, AgentInterface, CardForm},
    },
    model::Generation,
};

/// A protocol binding that a card can list (A2A 1.0 §4.4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// JSON-RPC over HTTP.
    JsonRpc,
    /// HTTP+JSON.
    HttpJson,
    /// gRPC.
    Grpc,
    /// JSON-RPC over WebSocket.
    WebSocket,
}

impl Binding {
    /// All bindings.
    pub const ALL: [Binding; 4] =
        [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc, Binding::WebSocket];

    /// The name of the binding on cards. A2A 1.0 §5.8: the name of a custom binding is a URI; for
    /// WebSocket, the URI in the guide of the specification.
    pub const fn name(self) -> &'static str {
        match self {
            Binding::JsonRpc => "JSONRPC",
            Binding::HttpJson => "HTTP+JSON",
            Binding::Grpc => "GRPC",
            Binding::WebSocket => "https://a2a-protocol.org/bindings/websocket",
        }
    }

    /// The name of the binding in `--interfaces`.
    pub const fn word(self) -> &'static str {
        match self {
            Binding::JsonRpc => "jsonrpc",
            Binding::HttpJson => "http+json",
            Binding::Grpc => "grpc",
            Binding::WebSocket => "websocket",
        }
    }

    /// The allowed schemes of URLs; empty: any.
    const fn schemes(self) -> &'static [&'static str] {
        match self {
            Binding::JsonRpc | Binding::HttpJson => &["http://", "https://"],
            Binding::Grpc => &[],
            Binding::WebSocket => &["ws://", "wss://"],
        }
    }
}

/// An entry of the operator's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The binding.
    pub binding: Binding,
    /// The URL of the default agent, which its card contains unchanged. For other agents their path
    /// is appended, except for gRPC, for which `tenant` names the agent. `None`: the URL is built
    /// from the request or from the public URL, for gRPC as `host:port`.
    pub url: Option<String>,
}

/// Why a list of interfaces is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceError {
    /// The list is empty, but every generation requires an interface.
    None,
    /// The list has the same entry twice.
    Twice(Binding),
    /// This build does not support the binding.
    NotBuilt(Binding),
    /// A URL that is invalid for the binding.
    Url(Binding, String),
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceError::None => write!(f, "cards need at least one interface"),
            InterfaceError::Twice(binding) => {
                write!(f, "the interface {} is listed twice", binding.word())
            }
            InterfaceError::NotBuilt(binding) => {
                write!(f, "this build of peregrine does not support {}", binding.word())
            }
            InterfaceError::Url(binding, url) => {
                let word = binding.word();
                write!(f, "the interface {word} cannot have the URL {url:?}")?;
                match binding.schemes() {
                    [] => Ok(()),
                    schemes => write!(f, ": it must begin with {}", schemes.join(" or ")),
                }
            }
        }
    }
}

impl Interface {
    /// A binding with the URL that the server builds.
    pub const fn of(binding: Binding) -> Interface {
        Interface { binding, url: None }
    }

    /// The default list: JSON-RPC and HTTP+JSON.
    pub fn defaults() -> Vec<Interface> {
        vec![Interface::of(Binding::JsonRpc), Interface::of(Binding::HttpJson)]
    }

    /// Checks a list.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn check(list: &[Interface]) -> Result<(), InterfaceError> {
        if list.is_empty() {
            return Err(InterfaceError::None);
        }
        for (at, one) in list.iter().enumerate() {
            let binding = one.binding;
            if list[..at].contains(one) {
                return Err(InterfaceError::Twice(binding));
            }
            if cfg!(not(feature = "grpc")) && binding == Binding::Grpc {
                return Err(InterfaceError::NotBuilt(binding));
            }
            if let Some(url) = one.url.as_deref().filter(|url| !is_url(url, binding.schemes())) {
                return Err(InterfaceError::Url(binding, url.to_owned()));
            }
        }
        Ok(())
    }
}

/// Whether a URL has one of the schemes and a non-empty rest without characters that JSON would
/// escape.
fn is_url(text: &str, schemes: &[&str]) -> bool {
    let plain = |b: u8| b.is_ascii_graphic() && !b"\"\\<>".contains(&b);
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
    let rest = if schemes.is_empty() { Some(text) } else { rest };
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(plain))
}

/// The URLs of an agent, for each binding of the operator's list.
pub(super) struct Urls<'s> {
    /// The URLs in the operator's order.
    listed: SmallVec<[(Binding, String); 4]>,
    /// The URL of JSON-RPC, even if the operator does not list this binding.
    rpc: String,
    /// The `tenant` that gRPC clients must send to reach this agent, or a tenant of the default
    /// agent.
    tenant: Option<&'s str>,
    /// True: the path has a tenant and an agent other than the default agent, and gRPC cannot name
    /// both.
    is_beyond_grpc: bool,
}

impl<'s> Urls<'s> {
    /// The URLs of the endpoint at path `base`, for the agent with this name.
    pub(super) fn new(
        config: &'s ServerConfig,
        origin: &Origin<'_>,
        endpoint: Endpoint,
        name: &'s str,
        base: &'s str,
    ) -> Urls<'s> {
        let server = origin.url(config);
        let is_v03 = config.card == CardForm::V03;
        let listed = config.interfaces.iter().map(|one| {
            let url = url(one, &server, base);
            match one.binding {
                Binding::Grpc if is_v03 => (one.binding, with_scheme(url, &server)),
                binding => (binding, url),
            }
        });
        let listed: SmallVec<[(Binding, String); 4]> = listed.collect();
        let rpc = listed.iter().find(|(binding, _)| *binding == Binding::JsonRpc);
        let rpc = match rpc {
            Some((_, url)) => url.clone(),
            None => url(&Interface::of(Binding::JsonRpc), &server, base),
        };
        let agent = (endpoint.agent.0 > 0).then_some(name);
        let tenant = card_signer::tenant_in(config, endpoint, name, base);
        let is_beyond_grpc = agent.is_some() && tenant.is_some();
        Urls { listed, rpc, tenant: agent.or(tenant), is_beyond_grpc }
    }

    /// The URL of JSON-RPC, which every endpoint has.
    pub(super) fn rpc(&self) -> &str {
        &self.rpc
    }

    /// The listed and served interfaces in order of preference (A2A 1.0 §8.3.1), one for each
    /// binding and version: the newest version first, and within a version in the operator's order.
    pub(super) fn interfaces(&self, dialect: &Dialect) -> SmallVec<[AgentInterface<'_>; 8]> {
        let rpc = |version| AgentInterface {
            url: &self.rpc,
            binding: Binding::JsonRpc.name(),
            version,
            tenant: None,
        };
        let mut interfaces = SmallVec::new();
        for (generation, version) in [(Generation::V1, "1.0"), (Generation::V03, "0.3")] {
            if !dialect.lists(generation) {
                continue;
            }
            let before = interfaces.len();
            let served = self.listed.iter();
            let served = served.filter(|(binding, _)| self.serves(*binding, dialect, generation));
            interfaces.extend(served.map(|(binding, url)| AgentInterface {
                url,
                binding: binding.name(),
                version,
                tenant: self.tenant.filter(|_| *binding == Binding::Grpc),
            }));
            if interfaces.len() == before {
                interfaces.push(rpc(version));
            }
        }
        // 0.1 is listed only if no newer version is, because clients of 0.1 do not read this list.
        if interfaces.is_empty() {
            interfaces.push(rpc(card::V01));
        }
        interfaces
    }

    fn serves(&self, binding: Binding, dialect: &Dialect, generation: Generation) -> bool {
        match binding {
            Binding::JsonRpc | Binding::WebSocket => true,
            Binding::HttpJson => {
                dialect.routes.rest.iter().any(|rest| rest.generation == generation)
            }
            // Over gRPC only the tenant can name another agent, and cards of 0.3 have no tenant.
            Binding::Grpc => {
                dialect.name == dialect::STANDARD.name
                    && !self.is_beyond_grpc
                    && (self.tenant.is_none() || generation == Generation::V1)
            }
        }
    }
}

/// The URL of a binding at the endpoint with path `base`, on the server with the URL `server`.
fn url(interface: &Interface, server: &str, base: &str) -> String {
    match (interface.binding, interface.url.as_deref()) {
        (Binding::Grpc, None) => authority(server),
        (Binding::Grpc, Some(url)) => url.to_owned(),
        (_, Some(url)) if base.is_empty() => url.to_owned(),
        (_, Some(url)) => format!("{}{base}", url.trim_end_matches('/')),
        // Clients append their paths, clients of 0.3 with `/v1`. The URL has no trailing slash,
        // because not every client removes it.
        (Binding::HttpJson, None) => format!("{server}{base}"),
        (Binding::JsonRpc, None) => posted(server, base),
        // `http` becomes `ws`, and `https` becomes `wss`.
        (Binding::WebSocket, None) => posted(server, base).replacen("http", "ws", 1),
    }
}

/// A gRPC URL for clients of 0.3: with the scheme of the server, unless it has a scheme. The 0.3
/// SDK needs a scheme to find the host; 1.0 requires a URL without a scheme.
fn with_scheme(url: String, server: &str) -> String {
    let has_scheme = url.contains("://");
    let scheme = server.split_once("://").map_or("http", |(scheme, _)| scheme);
    if has_scheme { url } else { format!("{scheme}://{url}") }
}

/// The URL to which clients send requests.
fn posted(server: &str, base: &str) -> String {
    if base.is_empty() { format!("{server}/") } else { format!("{server}{base}") }
}

/// The authority of a URL with its port, to which gRPC clients connect (A2A 1.0 §8.3).
fn authority(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split('/').next().unwrap_or_default();
    let host_end = authority.rfind(']').unwrap_or(0);
    let has_port = authority[host_end..].contains(':');
    let port = match (has_port, scheme) {
        (true, _) => "",
        (false, "https") => ":443",
        (false, _) => ":80",
    };
    format!("{authority}{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(list: &[(Binding, Option<&str>)]) -> Option<String> {
        let own = |(binding, url): &(Binding, Option<&str>)| Interface {
            binding: *binding,
            url: url.map(str::to_owned),
        };
        let list: Vec<Interface> = list.iter().map(own).collect();
        Interface::check(&list).err().map(|error| error.to_string())
    }

    #[test]
    fn invalid_interface_list_is_rejected() {
        assert_eq!(error(&[]).as_deref(), Some("cards need at least one interface"));
        for (list, reason) in [
            ([(Binding::JsonRpc, None), (Binding::JsonRpc, None)], "jsonrpc is listed twice"),
            ([(Binding::JsonRpc, None), (Binding::HttpJson, Some("h:1"))], "begin with http://"),
            (
                [(Binding::JsonRpc, Some("http://")), (Binding::HttpJson, None)],
                "the URL \"http://\"",
            ),
            ([(Binding::JsonRpc, None), (Binding::WebSocket, Some("http://h"))], "ws:// or wss://"),
            ([(Binding::JsonRpc, Some("http://a b")), (Binding::HttpJson, None)], "a b"),
        ] {
            let line = error(&list).unwrap_or_default();
            assert!(line.contains(reason), "{line}");
        }
        // A binding may be listed twice with different URLs, for different clients.
        let two = [(Binding::JsonRpc, Some("https://h/a")), (Binding::JsonRpc, None)];
        assert_eq!(error(&two), None);
    }

    #[test]
    fn grpc_url_accepts_host_port_http_and_dns_forms() {
        for url in ["h:1", "http://h:1", "dns:///h:1"] {
            assert_eq!(error(&[(Binding::Grpc, Some(url))]).is_none(), cfg!(feature = "grpc"));
        }
        for (url, bare) in [
            ("http://h", "h:80"),
            ("https://h/x/y", "h:443"),
            ("http://[::1]", "[::1]:80"),
            ("http://[::1]:9/x", "[::1]:9"),
        ] {
            assert_eq!(authority(url), bare);
        }
        for (url, server, shown) in [
            ("h:1", "http://h:1", "http://h:1"),
            ("h:443", "https://h", "https://h:443"),
            ("dns:///h:1", "http://h", "dns:///h:1"),
        ] {
            assert_eq!(with_scheme(url.to_owned(), server), shown);
        }
    }
}
