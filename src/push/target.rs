//! Allowed targets of webhooks: conditions on a URL when it is configured, and on an address before
//! it is connected to.
//!
//! Invariants: only the parser of the URL Standard reads a URL, and the connecting driver uses the
//! result of this parser. Names are not resolved here. A target that the operator denies is refused
//! even if it is also allowed.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use url::{Host, Url};

use super::address::{AddressKind, carried, refused_kind};
use crate::{limits::webhooks::PUSH_URL_BYTES_MAX, network::Network};

/// A host or a network that the operator names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRule {
    /// A host name in lower case, in ASCII, without a final dot.
    Name(Box<str>),
    /// All names below a name, without the name itself: `*.example.com`.
    Below(Box<str>),
    /// Addresses.
    Network(Network),
}

/// The text is neither a host nor a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHostRule;

impl fmt::Display for NoHostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be a host, *.host, an address, or a network such as 10.0.0.0/8")
    }
}

impl std::error::Error for NoHostRule {}

impl FromStr for HostRule {
    type Err = NoHostRule;

    /// `hooks.example`, `*.example.com`, `192.0.2.7`, `2001:db8::/32`, `[::1]`.
    fn from_str(text: &str) -> Result<HostRule, NoHostRule> {
        let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(network) = address.unwrap_or(text).parse() {
            return Ok(HostRule::Network(network));
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        match Host::parse(name) {
            Ok(Host::Domain(name)) if !text.contains('/') && !name.contains('*') => {
                let name = Box::from(without_dot(&name));
                Ok(if below { HostRule::Below(name) } else { HostRule::Name(name) })
            }
            Ok(Host::Ipv4(address)) if !below => {
                Ok(HostRule::Network(Network::host(IpAddr::V4(address))))
            }
            _ => Err(NoHostRule),
        }
    }
}

impl HostRule {
    /// Whether a host name matches; the name `localhost` also matches addresses, see `has`.
    fn is_name(&self, host: &str) -> bool {
        match self {
            HostRule::Name(name) => **name == *host,
            HostRule::Below(name) => {
                host.strip_suffix(&**name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            HostRule::Network(_) => false,
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        match self {
            HostRule::Name(name) => **name == *"localhost" && is_loopback(address),
            HostRule::Below(_) => false,
            HostRule::Network(network) => network.contains(address),
        }
    }
}

/// 127.0.0.0/8 and ::1.
fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address == Ipv6Addr::LOCALHOST,
    }
}

/// The names that always mean loopback (RFC 6761 §6.3).
fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Allowed ports of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRule {
    /// 443, 80 and all above 1023.
    Usual,
    /// Only these ports.
    Only(Vec<u16>),
}

impl PortRule {
    fn allows(&self, port: u16) -> bool {
        match self {
            PortRule::Usual => matches!(port, 80 | 443 | 1024..),
            PortRule::Only(ports) => ports.contains(&port),
        }
    }
}

/// Allowed targets of webhooks; by default all public hosts, over https.
///
/// Ports are checked first, for all hosts. Then [`PushTargets::deny`] refuses matching targets,
/// even if they are also allowed, and [`PushTargets::allow`] accepts matching targets, public or
/// not. Other targets are all refused with [`PushTargets::only_allowed`]; otherwise public ones are
/// accepted. Names are checked when a webhook is configured, addresses also at each connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushTargets {
    /// Hosts that may have any address and use plain http, and addresses that may be connected to.
    /// A host in this list must not resolve to an address of [`PushTargets::deny`].
    pub allow: Vec<HostRule>,
    /// Hosts and addresses that are refused, even if they are also allowed.
    pub deny: Vec<HostRule>,
    /// True: only allowed hosts, by name or by the addresses that they resolve to.
    pub only_allowed: bool,
    /// True: plain http is accepted for every host, not only for allowed ones.
    pub plain_http: bool,
    /// Allowed ports.
    pub ports: PortRule,
    /// Networks of translators between IPv6 and IPv4 in addition to 64:ff9b::/96 (RFC 6052).
    pub translators: Vec<Network>,
}

impl Default for PushTargets {
    fn default() -> PushTargets {
        PushTargets {
            allow: Vec::new(),
            deny: Vec::new(),
            only_allowed: false,
            plain_http: false,
            ports: PortRule::Usual,
            translators: Vec::new(),
        }
    }
}

/// Why a webhook is refused, or its address is not connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// The text is not an absolute http or https URL, or has forbidden characters: white space,
    /// control characters, a backslash.
    NoUrl(&'static str),
    /// The URL is longer than [`PUSH_URL_BYTES_MAX`].
    Long,
    /// The URL is not https.
    PlainHttp,
    /// The URL has a user name or a password.
    UserInfo,
    /// The port is not allowed.
    Port(u16),
    /// The operator denies the target.
    Denied,
    /// The address is not allowed.
    Address(AddressKind),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetError::NoUrl(why) => f.write_str(why),
            TargetError::Long => write!(f, "must have at most {PUSH_URL_BYTES_MAX} bytes"),
            TargetError::PlainHttp => f.write_str("must be https"),
            TargetError::UserInfo => f.write_str("must have no user name and no password"),
            TargetError::Port(port) => {
                write!(f, "must not have the port {port}; the operator may allow it (push.ports)")
            }
            TargetError::Denied => f.write_str("has a host that this server may not send to"),
            TargetError::Address(kind) => {
                use AddressKind::{CloudMetadata, Documentation, Embedded, Own, SharedByProvider};
                let name = kind.name();
                match kind {
                    Own => return write!(f, "resolves to {name}"),
                    Embedded => write!(f, "resolves to {name}")?,
                    AddressKind::Unspecified => write!(f, "resolves to an {name} address")?,
                    SharedByProvider | Documentation | CloudMetadata => {
                        write!(f, "resolves to an address {name}")?;
                    }
                    _ => write!(f, "resolves to a {name} address")?,
                }
                f.write_str("; the operator can allow it with --push-allow")
            }
        }
    }
}

impl std::error::Error for TargetError {}

/// The parsed URL of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    url: Url,
    is_allowed: bool,
}

impl WebhookUrl {
    /// Whether the operator allows the host by name or address: then its deliveries have no rate
    /// limit.
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// The whole URL, normalized by the parser and without a fragment.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Scheme, host and port.
    pub fn origin(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        format!("{}://{}:{}", self.url.scheme(), without_dot(host), self.port())
    }

    /// True for https.
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The port, by default that of the scheme.
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(443)
    }

    fn host(&self) -> Option<HostView<'_>> {
        Some(match self.url.host()? {
            Host::Domain(name) => HostView::Name(without_dot(name)),
            Host::Ipv4(address) => HostView::Address(IpAddr::V4(address)),
            Host::Ipv6(address) => HostView::Address(IpAddr::V6(address)),
        })
    }
}

/// A host in the form that rules are compared with.
#[derive(Clone, Copy)]
enum HostView<'u> {
    Name(&'u str),
    Address(IpAddr),
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

impl PushTargets {
    /// Parses the URL of a webhook, and does all checks that need no connection.
    ///
    /// # Errors
    /// [`TargetError`]
    pub fn read(&self, text: &str) -> Result<WebhookUrl, TargetError> {
        if text.len() > PUSH_URL_BYTES_MAX {
            return Err(TargetError::Long);
        }
        // The parser of the URL Standard drops or converts these characters.
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte == b'\\') {
            return Err(TargetError::NoUrl("must not have white space, controls or backslashes"));
        }
        let mut url = Url::parse(text).map_err(|_| TargetError::NoUrl("must be a URL"))?;
        if !matches!(url.scheme(), "http" | "https") || !has_authority(text) {
            return Err(TargetError::NoUrl("must be an https URL"));
        }
        if !url.username().is_empty() || url.password().is_some() || has_user_info(text) {
            return Err(TargetError::UserInfo);
        }
        url.set_fragment(None);
        // The parser encodes non-ASCII characters, which makes the URL longer.
        if url.as_str().len() > 2 * PUSH_URL_BYTES_MAX {
            return Err(TargetError::Long);
        }
        let url = WebhookUrl { url, is_allowed: false };
        let host = url.host().ok_or(TargetError::NoUrl("must have a host"))?;
        if !self.ports.allows(url.port()) {
            return Err(TargetError::Port(url.port()));
        }
        let is_allowed = self.check_host(host)?;
        if !url.is_https() && !self.plain_http && !is_allowed {
            return Err(TargetError::PlainHttp);
        }
        Ok(WebhookUrl { is_allowed, ..url })
    }

    /// Checks a host; returns whether the operator allows it.
    fn check_host(&self, host: HostView<'_>) -> Result<bool, TargetError> {
        match host {
            HostView::Address(address) => {
                self.check_address(None, address, &|_| false)?;
                Ok(self.allow.iter().any(|rule| rule.has(address)))
            }
            HostView::Name(name) => {
                if name.is_empty() || name.len() > 253 {
                    return Err(TargetError::NoUrl("must have a host"));
                }
                if self.deny.iter().any(|rule| rule.is_name(name)) {
                    return Err(TargetError::Denied);
                }
                let is_allowed = self.allows_name(name);
                match is_allowed {
                    true => Ok(true),
                    false if self.only_allowed && !self.has_networks() => Err(TargetError::Denied),
                    false if is_localhost(name) => Err(TargetError::Address(AddressKind::Loopback)),
                    false => Ok(false),
                }
            }
        }
    }

    fn allows_name(&self, name: &str) -> bool {
        self.allow.iter().any(|rule| rule.is_name(name))
    }

    /// Whether a name may resolve to an allowed address.
    fn has_networks(&self) -> bool {
        self.allow.iter().any(|rule| matches!(rule, HostRule::Network(_)))
    }

    /// Checks an address before a connect for the host `name`; `None`: the URL has the address
    /// itself. `is_own` returns whether an address belongs to this machine, public or not; it is
    /// called only for addresses that pass the other checks. Denied and own addresses are also
    /// refused behind a translator.
    ///
    /// # Errors
    /// [`TargetError::Denied`], [`TargetError::Address`].
    pub fn check_address(
        &self,
        name: Option<&str>,
        address: IpAddr,
        is_own: &dyn Fn(IpAddr) -> bool,
    ) -> Result<(), TargetError> {
        let name = name.map(without_dot);
        let carried = carried(address, &self.translators);
        let mut reached = std::iter::once(address).chain(carried.into_iter().map(IpAddr::V4));
        if reached.clone().any(|address| self.deny.iter().any(|rule| rule.has(address))) {
            return Err(TargetError::Denied);
        }
        if name.is_some_and(|name| self.allows_name(name))
            || self.allow.iter().any(|rule| rule.has(address))
        {
            return Ok(());
        }
        match refused_kind(address, &self.translators) {
            Some(kind) => Err(TargetError::Address(kind)),
            None if self.only_allowed => Err(TargetError::Denied),
            None if reached.any(is_own) => Err(TargetError::Address(AddressKind::Own)),
            None => Ok(()),
        }
    }
}

/// Whether exactly two slashes precede the authority of a URL: the parser of the URL Standard
/// accepts any number of slashes.
fn has_authority(text: &str) -> bool {
    let after_slashes = text.split_once(':').and_then(|(_, rest)| rest.strip_prefix("//"));
    after_slashes.is_some_and(|rest| !rest.starts_with(['/', '?', '#']))
}

/// Whether the authority has an `@`, even with nothing before it.
fn has_user_info(text: &str) -> bool {
    let after_slashes = text.split_once("//").map_or("", |(_, rest)| rest);
    let authority = after_slashes.split(['/', '?', '#']).next().unwrap_or_default();
    authority.contains('@')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<HostRule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn allowing(texts: &[&str]) -> PushTargets {
        PushTargets { allow: rules(texts), ..PushTargets::default() }
    }

    #[test]
    fn public_webhook_urls_are_normalized_per_the_url_standard() {
        let targets = PushTargets::default();
        for (text, read) in [
            ("https://hooks.example/a?b=c#d", "https://hooks.example/a?b=c"),
            ("HTTPS://Hooks.Example:443", "https://hooks.example/"),
            ("https://hooks.example.:8443/", "https://hooks.example.:8443/"),
            ("https://b\u{fc}cher.example/", "https://xn--bcher-kva.example/"),
            ("https://h%6foks.example/", "https://hooks.example/"),
            ("https://8.8.8.8/", "https://8.8.8.8/"),
            ("https://0x08080808/", "https://8.8.8.8/"),
            ("https://[2606:4700::1111]:1024/", "https://[2606:4700::1111]:1024/"),
            ("https://[64:ff9b::808:808]/", "https://[64:ff9b::808:808]/"),
        ] {
            assert_eq!(targets.read(text).map(|url| url.as_str().to_owned()), Ok(read.to_owned()));
        }
    }

    #[test]
    fn invalid_webhook_urls_are_rejected_with_their_reason() {
        let targets = PushTargets::default();
        for text in [
            "",
            "hooks.example",
            "ftp://a.example/",
            "file:///etc/passwd",
            "gopher://a.example/",
            "https:",
            "https://",
            "https:a.example",
            "https:/a.example/",
            "https:///a.example/",
            "https:\\\\a.example/",
            "https://a.example\\@b.example/",
            " https://a.example/",
            "https://a.example/\r\nX: y",
            "https://a.\texample/",
            "https://a example/",
            "https://[::1/",
            "https://[fe80::1%25eth0]/",
            "https://1.2.3.4.5/",
            "https://./",
            "https://a.example:99999/",
            "//a.example/",
            "javascript:alert(1)",
            "https://256.256.256.256/",
            "https://%00.example/",
            "https://a%2fb.example/",
        ] {
            let error = targets.read(text).unwrap_err();
            assert!(matches!(error, TargetError::NoUrl(_)), "{text:?}: {error:?}");
        }
        for text in [
            "https://u@a.example/",
            "https://u:p@a.example",
            "https://@a.example/",
            "https://:@a.example/",
            "https://a.example@127.0.0.1/",
        ] {
            assert_eq!(targets.read(text), Err(TargetError::UserInfo), "{text}");
        }
        assert_eq!(targets.read("http://a.example/"), Err(TargetError::PlainHttp));
        assert_eq!(targets.read("https://a.example:22/"), Err(TargetError::Port(22)));
        assert_eq!(targets.read("https://a.example:1023/"), Err(TargetError::Port(1023)));
        assert!(targets.read("https://a.example:1024/").is_ok());
        assert!(targets.read("https://a.example:80/").is_ok());
    }

    #[test]
    fn allow_permits_http_and_private_hosts_and_deny_wins() {
        let targets = allowing(&["localhost", "hooks.corp", "10.1.0.0/16"]);
        for text in [
            "http://localhost:8080/",
            "http://127.0.0.1/",
            "http://127.8.8.8/",
            "http://[::1]/",
            "https://LOCALHOST./",
            "http://hooks.corp/",
            "https://10.1.2.3/",
            "http://10.1.2.3/",
            "http://2130706433/",
            "http://0177.1/",
        ] {
            assert!(targets.read(text).is_ok(), "{text}");
        }
        for text in [
            "http://a.hooks.corp/",
            "https://10.2.0.1/",
            "https://[::ffff:7f00:1]/",
            "http://0.0.0.0/",
            "https://a.localhost/",
        ] {
            assert!(targets.read(text).is_err(), "{text}");
        }
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(
            targets.check_address(Some("hooks.corp."), address("192.168.0.1"), &|_| false).is_ok()
        );
        assert!(
            targets.check_address(Some("x.example"), address("10.1.255.255"), &|_| false).is_ok()
        );
        assert!(
            targets.check_address(Some("x.example"), address("192.168.0.1"), &|_| false).is_err()
        );
        let deny = rules(&["*.evil.example", "hooks.corp", "8.8.0.0/16"]);
        let targets = PushTargets { deny, ..targets };
        for text in ["https://a.evil.example/", "http://hooks.corp/", "https://8.8.8.8/"] {
            assert_eq!(targets.read(text), Err(TargetError::Denied), "{text}");
        }
        assert!(targets.read("https://evil.example/").is_ok());
        for carrying in ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"] {
            assert_eq!(
                targets.check_address(Some("a.example"), address(carrying), &|_| false),
                Err(TargetError::Denied),
                "{carrying}"
            );
        }
    }

    #[test]
    fn only_allowed_refuses_all_other_targets() {
        let only_allowed = true;
        let targets = PushTargets { only_allowed, ..allowing(&["*.example.com", "8.8.8.8"]) };
        assert!(targets.read("https://a.example.com/").is_ok());
        assert!(targets.read("https://8.8.8.8/").is_ok());
        assert_eq!(targets.read("https://9.9.9.9/"), Err(TargetError::Denied));
        // The name may resolve to that address, which is checked at the connect.
        assert!(targets.read("https://other.example/").is_ok());
        let other = "9.9.9.9".parse().unwrap();
        assert_eq!(
            targets.check_address(Some("other.example"), other, &|_| false),
            Err(TargetError::Denied)
        );
        assert!(targets.check_address(Some("a.example.com"), other, &|_| false).is_ok());
        let targets = PushTargets { only_allowed, ..allowing(&["*.example.com"]) };
        assert_eq!(targets.read("https://example.com/"), Err(TargetError::Denied));
    }

    #[test]
    fn own_address_is_refused_unless_allowed() {
        let own: IpAddr = "9.9.9.9".parse().unwrap();
        let is_own = Err(TargetError::Address(AddressKind::Own));
        let targets = PushTargets::default();
        for name in [None, Some("a.example")] {
            assert_eq!(targets.check_address(name, own, &|_| true), is_own);
            assert!(targets.check_address(name, own, &|_| false).is_ok());
        }
        // An address behind a translator is refused, too.
        let translated = "64:ff9b::9.9.9.9".parse().unwrap();
        assert_eq!(targets.check_address(None, translated, &|address| address == own), is_own);
        let targets = allowing(&["a.example", "9.9.9.0/24"]);
        assert!(targets.check_address(Some("a.example"), own, &|_| true).is_ok());
        assert!(targets.check_address(Some("b.example"), own, &|_| true).is_ok());
        let other = "8.8.8.8".parse().unwrap();
        assert!(targets.check_address(Some("a.example."), other, &|_| true).is_ok());
        assert_eq!(targets.check_address(Some("b.example"), other, &|_| true), is_own);
        let targets = PushTargets { deny: rules(&["9.9.9.9"]), ..targets };
        let denied = targets.check_address(Some("a.example"), own, &|_| true);
        assert_eq!(denied, Err(TargetError::Denied));
        let private = "10.0.0.1".parse().unwrap();
        let refused = targets.check_address(None, private, &|_| true).unwrap_err();
        assert_eq!(refused, TargetError::Address(AddressKind::Private));
        let own = TargetError::Address(AddressKind::Own).to_string();
        assert!(own.ends_with("resolves to an address of this server"), "{own}");
        let text = refused.to_string();
        assert!(text.starts_with("resolves to a private address; "), "{text}");
    }

    #[test]
    fn host_rules_parse_names_wildcards_and_networks() {
        for (text, rule) in [
            ("Hooks.Example.", HostRule::Name("hooks.example".into())),
            ("*.Example.com", HostRule::Below("example.com".into())),
            ("10.0.0.0/8", HostRule::Network("10.0.0.0/8".parse().unwrap())),
            ("[::1]", HostRule::Network("::1".parse().unwrap())),
            ("127.1", HostRule::Network("127.0.0.1".parse().unwrap())),
        ] {
            assert_eq!(text.parse(), Ok(rule), "{text}");
        }
        for text in ["", "*", "*.", "a/b", "10.0.0.1/8", "a b", "https://a.example", "*.127.0.0.1"]
        {
            assert_eq!(text.parse::<HostRule>(), Err(NoHostRule), "{text}");
        }
    }
}
