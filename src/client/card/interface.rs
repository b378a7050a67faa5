//! The interfaces of an agent (A2A 1.0 §4.4.6), as its card lists them and as a client calls them.

use serde::Serialize;

use crate::{binding::interfaces::Binding, dialect::version::ProtocolVersion};

use super::{
    super::{HttpOrigin, HttpUrl, UrlError},
    CardError, CardProblem,
};

/// A way to reach an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CardInterface {
    /// The URL on the card; [`CardInterface::target`] resolves it.
    pub url: String,
    /// The binding on the card; [`CardInterface::binding`] reads it.
    #[serde(rename = "protocolBinding")]
    pub binding_name: String,
    /// The `tenant` that calls must send (A2A 1.0 §8.3.2); empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// The version on the card, or the one that cards of its generation imply;
    /// [`CardInterface::version`] reads it.
    #[serde(rename = "protocolVersion")]
    pub version_text: String,
    /// True: the card does not name the version.
    #[serde(skip)]
    pub is_version_assumed: bool,
}

/// Names of bindings on cards, and their meaning; compared without case, as in the JavaScript SDK
/// (wire §7.1).
const NAMES: &[(&str, Binding)] = &[
    ("JSONRPC", Binding::JsonRpc),
    ("JSON-RPC", Binding::JsonRpc),
    ("HTTP+JSON", Binding::HttpJson),
    ("HTTP_JSON", Binding::HttpJson),
    ("REST", Binding::HttpJson),
    ("GRPC", Binding::Grpc),
    ("WEBSOCKET", Binding::WebSocket),
    ("WS", Binding::WebSocket),
];

/// The binding of this name on a card: a name of the specification, a variant that cards use, or a
/// URI with the last segment `websocket` (A2A 1.0 §5.8 names other bindings by URIs).
pub fn binding_of(name: &str) -> Option<Binding> {
    let of_list = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let last = name.contains("://").then(|| name.trim_end_matches('/').rsplit('/').next());
    let is_websocket = last.flatten().is_some_and(|last| last.eq_ignore_ascii_case("websocket"));
    of_list.map(|(_, binding)| *binding).or(is_websocket.then_some(Binding::WebSocket))
}

/// Reads the version on a card; accepts also `v1.0`, and `1` for 1.0.
pub(super) fn version_of(text: &str) -> Option<ProtocolVersion> {
    let text = text.trim();
    let number = text.strip_prefix(['v', 'V']).unwrap_or(text);
    ProtocolVersion::parse(number).or((number == "1").then_some(ProtocolVersion::V1_0))
}

impl CardInterface {
    /// The binding; `None`: it is unknown.
    pub fn binding(&self) -> Option<Binding> {
        binding_of(&self.binding_name)
    }

    /// The version; `None`: the card's text is not a version.
    pub fn version(&self) -> Option<ProtocolVersion> {
        match self.version_text.is_empty() {
            // Only interfaces of 1.0 may have no version.
            true => Some(ProtocolVersion::V1_0),
            false => version_of(&self.version_text),
        }
    }

    /// The URL to call. `card` is the URL of the card, if any.
    ///
    /// A relative reference (RFC 3986 §4.2) is resolved against the card's URL, unless it could be
    /// a host. `ws` and `wss` become `http` and `https`. A gRPC interface may have a bare
    /// `host:port` (wire §4.1), which uses TLS if the card's URL does or, without this URL, if the
    /// host is not this machine.
    ///
    /// # Errors
    /// [`CardProblem::Url`], for the member `url`.
    pub fn target(&self, card: Option<&HttpUrl>) -> Result<HttpUrl, CardError> {
        let text = self.url.trim();
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let why = "the URL has white space or control characters";
            let problem = CardProblem::Url(why.to_owned());
            return Err(CardError::of("url", problem));
        }
        let target = match self.binding() {
            Some(Binding::Grpc) => grpc_target(text, card),
            Some(Binding::JsonRpc | Binding::HttpJson | Binding::WebSocket) | None => {
                absolute(text, card)
            }
        };
        target.map_err(|error| CardError::of("url", CardProblem::Url(error.to_string())))
    }
}

/// Schemes of URLs that carry A2A, and their HTTP schemes.
const SCHEMES: &[(&str, &str)] = &[
    ("http://", "http"),
    ("https://", "https"),
    ("ws://", "http"),
    ("wss://", "https"),
    ("grpc://", "http"),
    ("grpcs://", "https"),
];

fn absolute(text: &str, card: Option<&HttpUrl>) -> Result<HttpUrl, UrlError> {
    let scheme = SCHEMES.iter().find_map(|(prefix, scheme)| {
        let head = text.get(..prefix.len())?;
        head.eq_ignore_ascii_case(prefix).then(|| (*scheme, &text[prefix.len()..]))
    });
    match (scheme, card) {
        (Some((scheme, rest)), _) => HttpOrigin::parse(&format!("{scheme}://{rest}")),
        (None, Some(card)) if is_relative(text) => card.join(text),
        (None, _) => HttpOrigin::parse(text),
    }
}

/// Whether a reference cannot be a host: `/a2a`, `//host/a2a`, `./a2a`, `a2a/v1`.
fn is_relative(text: &str) -> bool {
    let first = text.split(['/', '?', '#']).next().unwrap_or_default();
    let is_name = !first.is_empty() && !first.contains(['.', ':', '@']) && first != "localhost";
    is_name || ["/", "./", "../"].iter().any(|start| text.starts_with(start))
}

fn grpc_target(text: &str, card: Option<&HttpUrl>) -> Result<HttpUrl, UrlError> {
    let text = text.strip_prefix("dns:").map_or(text, |rest| rest.trim_start_matches('/'));
    if text.contains("://") {
        return absolute(text, card);
    }
    if text.is_empty() || text.starts_with('/') {
        return Err(UrlError::NoHost);
    }
    let plain = HttpOrigin::parse(&format!("http://{text}"))?;
    let is_secure = card.map_or(!plain.origin.is_loopback(), |card| card.origin.is_secure());
    if is_secure { HttpOrigin::parse(&format!("https://{text}")) } else { Ok(plain) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn target(binding: &str, url: &str, card: Option<&str>) -> Option<String> {
        let card = card.map(|url| HttpOrigin::parse(url).unwrap());
        let interface = CardInterface {
            url: url.to_owned(),
            binding_name: binding.to_owned(),
            ..CardInterface::default()
        };
        interface.target(card.as_ref()).ok().map(|target| target.to_string())
    }

    #[test]
    fn binding_names_of_cards_are_parsed() {
        for (name, binding) in [
            ("JSONRPC", Some(Binding::JsonRpc)),
            ("jsonrpc", Some(Binding::JsonRpc)),
            ("HTTP+JSON", Some(Binding::HttpJson)),
            ("REST", Some(Binding::HttpJson)),
            ("grpc", Some(Binding::Grpc)),
            ("WEBSOCKET", Some(Binding::WebSocket)),
            ("https://a2a-protocol.org/bindings/websocket", Some(Binding::WebSocket)),
            ("https://x.example/WebSocket/", Some(Binding::WebSocket)),
            ("https://x.example/bindings/mqtt", None),
            ("", None),
        ] {
            assert_eq!(binding_of(name), binding, "{name}");
        }
        for binding in Binding::ALL {
            assert_eq!(binding_of(binding.name()), Some(binding));
        }
    }

    #[test]
    fn interface_url_is_resolved_against_card_url() {
        let card = Some("https://h:8443/.well-known/agent-card.json");
        for (url, called) in [
            ("http://a", Some("http://a/")),
            (" HTTPS://A/x?y#z ", Some("https://a/x?y")),
            ("/a2a/v1", Some("https://h:8443/a2a/v1")),
            ("../a2a", Some("https://h:8443/a2a")),
            ("a.example/a2a", None),
            ("/a b", None),
            ("http://a/\u{7f}", None),
            ("//other/x", Some("https://other/x")),
            ("wss://a/ws", Some("https://a/ws")),
            ("localhost:9999", None),
            ("mailto:a@b", None),
            ("ftp://a/", None),
            ("http://", None),
            ("https://u:p@a/", None),
        ] {
            assert_eq!(target("JSONRPC", url, card).as_deref(), called, "{url}");
        }
        assert_eq!(target("JSONRPC", "/a2a", None), None);
        let interface = CardInterface { url: "x y:".to_owned(), ..CardInterface::default() };
        let error = interface.target(None).unwrap_err();
        assert!(matches!((error.member.as_str(), error.problem), ("url", CardProblem::Url(_))));
    }

    #[test]
    fn grpc_interface_url_may_be_host_and_port() {
        let (plain, secure) = (Some("http://h/"), Some("https://h/"));
        for (url, card, called) in [
            ("a:50051", plain, Some("http://a:50051/")),
            ("a:50051", secure, Some("https://a:50051/")),
            ("a:50051", None, Some("https://a:50051/")),
            ("localhost:50051", None, Some("http://localhost:50051/")),
            ("[::1]:50051", None, Some("http://[::1]:50051/")),
            ("https://a", plain, Some("https://a/")),
            ("grpcs://a:1", plain, Some("https://a:1/")),
            ("dns:///a:1", secure, Some("https://a:1/")),
            ("a", secure, Some("https://a/")),
            ("", secure, None),
            ("/x", secure, None),
        ] {
            assert_eq!(target("GRPC", url, card).as_deref(), called, "{url}");
        }
    }
}
