//! The values of `--agent-card`: a host or origin, the URL of a card, or a file.

use std::path::PathBuf;

use peregrine::client::HttpOrigin;

use super::failure::CommandFailure;

/// The location of the agent's card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardReference {
    /// At the well-known path of this origin.
    Origin(String),
    /// At this URL, or at a well-known path below it.
    Url(String),
    /// In a file.
    File(PathBuf),
}

impl CardReference {
    /// Reads a reference. A bare host is requested over https, or over http if it is this machine.
    ///
    /// # Errors
    /// A [`CommandFailure`] of usage: a scheme other than http, https and file.
    pub fn parse(text: &str) -> Result<CardReference, CommandFailure> {
        if let Some(path) = text.strip_prefix("file://") {
            let path = path.strip_prefix("localhost").unwrap_or(path);
            return Ok(CardReference::File(PathBuf::from(unescape(path))));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            if !["http", "https"].iter().any(|other| scheme.eq_ignore_ascii_case(other)) {
                let shown = shown(text);
                let line = format!("--agent-card {shown:?} must be an http, https or file URL");
                return Err(CommandFailure::usage(line));
            }
            if let Err(error) = HttpOrigin::parse(text) {
                let line = format!("--agent-card {:?}: {error}", shown(text));
                return Err(CommandFailure::usage(line));
            }
            return Ok(match rest.split_once('/') {
                None | Some((_, "")) if !rest.contains('?') => {
                    CardReference::Origin(text.trim_end_matches('/').to_owned())
                }
                _ => CardReference::Url(text.to_owned()),
            });
        }
        // Only the text decides: a file with the name of a host must not replace the host.
        if text.starts_with(['/', '.', '~']) || text.ends_with(".json") {
            return Ok(CardReference::File(PathBuf::from(text)));
        }
        if text.is_empty() || text.contains(char::is_whitespace) {
            let line = format!("--agent-card {:?} must be a host, a URL or a file", shown(text));
            return Err(CommandFailure::usage(line));
        }
        let host = text.split('/').next().unwrap_or(text);
        let scheme = if is_loopback(host) { "http" } else { "https" };
        CardReference::parse(&format!("{scheme}://{text}"))
    }
}

/// The part of a rejected reference that cannot contain a secret: no user, password or query.
pub fn shown(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or(text);
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, suffix))) => format!("{scheme}://...@{suffix}"),
        (None, Some((_, suffix))) => format!("...@{suffix}"),
        (_, None) => text.to_owned(),
    }
}

/// Whether a host, with or without a port, is this machine; only its name is checked.
pub fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(inner) => inner.split(']').next().unwrap_or(inner),
        None => host.split(':').next().unwrap_or(host),
    };
    let name = name.to_ascii_lowercase();
    let address = name.parse::<std::net::IpAddr>();
    name == "localhost"
        || name.ends_with(".localhost")
        || address.is_ok_and(|address| address.is_loopback())
}

/// Percent-decodes a path; an invalid escape remains unchanged.
fn unescape(path: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = digits.filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte = byte.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_reference_is_an_origin_url_or_file() {
        let origin = |text: &str| CardReference::Origin(text.to_owned());
        let url = |text: &str| CardReference::Url(text.to_owned());
        let file = |text: &str| CardReference::File(PathBuf::from(text));
        for (text, reference) in [
            ("agents.example", origin("https://agents.example")),
            ("agents.example:8443", origin("https://agents.example:8443")),
            ("localhost:3000", origin("http://localhost:3000")),
            ("127.0.0.1:3000/", origin("http://127.0.0.1:3000")),
            ("[::1]:3000", origin("http://[::1]:3000")),
            ("http://a.example/", origin("http://a.example")),
            ("https://a.example/agents/bob", url("https://a.example/agents/bob")),
            ("https://a.example/?x=1", url("https://a.example/?x=1")),
            ("a.example/bob/card", url("https://a.example/bob/card")),
            ("file:///a%20b/card.json", file("/a b/card.json")),
            ("./card", file("./card")),
            // A file of this name exists when tests run.
            ("README.md", origin("https://README.md")),
            ("card.json", file("card.json")),
            ("/a/b", file("/a/b")),
        ] {
            assert_eq!(CardReference::parse(text), Ok(reference), "{text}");
        }
        for text in ["ftp://a.example", "", "two words", "http://a b", "https://"] {
            assert!(CardReference::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rejected_reference_is_shown_without_secrets() {
        for (text, named) in [
            ("http://host:port/x?key=hidden", "http://host:port/x"),
            ("https://me:hidden@a.example/x", "https://...@a.example/x"),
            ("https://me:hid@den@a.example", "https://...@a.example"),
            ("me:hidden@a.example", "https://...@a.example"),
            ("ftp://me:hidden@a.example?hidden", "ftp://...@a.example"),
            ("two words@x hidden?", "...@x hidden"),
        ] {
            let failure = CardReference::parse(text).unwrap_err();
            assert!(failure.message.contains(named), "{}", failure.message);
            let shows = failure.message.replace("x hidden", "").contains("hid");
            assert!(!shows, "{}", failure.message);
        }
    }
}
