//! Selects the proxy of a request.
//!
//! Invariants: only [`Proxies::from_environment`] reads the environment, once for each call.
//! Credentials in a proxy's URL are sent only to the proxy.

mod exempt;

use std::{env, sync::Arc};

use ::url::Url;

use crate::{client::HttpOrigin, http::FieldLinesBuf, json::base64};

use super::HttpClientError;
use exempt::Exempt;

/// The default port of a proxy's URL, as in curl.
const PORT_DEFAULT: u16 = 1080;

/// The proxies of a client.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<Arc<ProxyServer>>,
    https: Option<Arc<ProxyServer>>,
    exempt: Exempt,
}

/// One proxy.
#[derive(PartialEq, Eq)]
pub(super) struct ProxyServer {
    /// The origin of the proxy.
    pub(super) origin: HttpOrigin,
    /// `Proxy-Authorization`, or no field.
    pub(super) authorization: FieldLinesBuf,
}

/// Omits the password.
impl std::fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyServer").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Proxies {
    /// No proxies.
    pub fn none() -> Proxies {
        Proxies::default()
    }

    /// Reads the environment as curl does: `http_proxy` is for plain http, `https_proxy` for https,
    /// `all_proxy` for schemes without their own variable, and `no_proxy` lists hosts without a
    /// proxy (names with all names below them, addresses, networks such as `10.0.0.0/8`; `*` is
    /// every host). A variable in capitals is read if the one in small letters is not set.
    /// `HTTP_PROXY` is ignored if `REQUEST_METHOD` is set, because its value then comes from a
    /// client's request.
    ///
    /// The default scheme of a URL is http, the default port 1080. User and password are sent to
    /// the proxy as `Proxy-Authorization: Basic`. Proxies of other schemes are not supported.
    ///
    /// # Errors
    /// [`HttpClientError::Proxy`].
    pub fn from_environment() -> Result<Proxies, HttpClientError> {
        // Text that is not Unicode is neither a URL nor a list of hosts.
        Proxies::from_variables(|name| env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    /// As [`Proxies::from_environment`], with another source of variables.
    ///
    /// # Errors
    /// [`HttpClientError::Proxy`].
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Proxies, HttpClientError> {
        let first = |names: &[&'static str]| {
            let found = names.iter().find_map(|name| Some((*name, variable(name)?)));
            found.filter(|(_, value)| !value.trim().is_empty())
        };
        let proxy = |names: &[&'static str]| match first(names) {
            Some((name, url)) => ProxyServer::parse(name, url.trim()).map(Some),
            None => Ok(None),
        };
        let is_cgi = variable("REQUEST_METHOD").is_some();
        let http_names: &[_] = if is_cgi { &["http_proxy"] } else { &["http_proxy", "HTTP_PROXY"] };
        let all = proxy(&["all_proxy", "ALL_PROXY"])?;
        Ok(Proxies {
            http: proxy(http_names)?.or_else(|| all.clone()),
            https: proxy(&["https_proxy", "HTTPS_PROXY"])?.or(all),
            exempt: first(&["no_proxy", "NO_PROXY"])
                .map(|(_, list)| Exempt::parse(&list))
                .unwrap_or_default(),
        })
    }

    /// The proxy of a request to this origin.
    pub(super) fn of(&self, origin: &HttpOrigin) -> Option<&Arc<ProxyServer>> {
        let proxy = if origin.is_secure() { &self.https } else { &self.http };
        proxy.as_ref().filter(|_| !self.exempt.has(origin.host_name()))
    }
}

impl ProxyServer {
    /// Reads a proxy's URL.
    fn parse(variable: &str, text: &str) -> Result<Arc<ProxyServer>, HttpClientError> {
        let unusable = |reason: &str| HttpClientError::Proxy {
            variable: variable.to_owned(),
            reason: reason.to_owned(),
        };
        let spelt = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&spelt).map_err(|error| unusable(&error.to_string()))?;
        if url.scheme() != "http" {
            return Err(unusable("only http proxies are supported"));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| unusable("the URL has no host"))?;
        // The URL parser drops a default port: whether it was present is checked in the text.
        let authority = spelt.split("://").nth(1).unwrap_or_default();
        let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
        let port = url
            .port()
            .unwrap_or_else(|| if authority.ends_with(":80") { 80 } else { PORT_DEFAULT });
        let origin = HttpOrigin::parse(&format!("http://{host}:{port}/"));
        let origin = origin.map_err(|error| unusable(&error.to_string()))?.origin;
        let mut authorization = FieldLinesBuf::default();
        if !url.username().is_empty() || url.password().is_some() {
            let user = [url.username(), ":", url.password().unwrap_or_default()].concat();
            let credentials = base64::encode(&percent_decoded(&user));
            authorization.push("Proxy-Authorization", &format!("Basic {credentials}"));
        }
        Ok(Arc::new(ProxyServer { origin, authorization }))
    }
}

/// RFC 3986 §2.1: decodes escapes; a per cent sign without two digits stays unchanged.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| str::from_utf8(two).ok());
        let digits = digits.filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
        let decoded = digits.filter(|_| *first == b'%');
        match decoded.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, HttpClientError> {
        Proxies::from_variables(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    /// The proxy of requests to `url`.
    fn route(variables: &[(&str, &str)], url: &str) -> Option<String> {
        let origin = HttpOrigin::parse(url).unwrap().origin;
        proxies(variables).unwrap().of(&origin).map(|proxy| proxy.origin.to_string())
    }

    #[test]
    fn proxy_is_selected_by_scheme_and_lower_case_wins() {
        let both = [("http_proxy", "a:1"), ("HTTP_PROXY", "b:1"), ("HTTPS_PROXY", "http://c:2")];
        assert_eq!(route(&both, "http://x/"), Some("http://a:1".to_owned()));
        assert_eq!(route(&both, "https://x/"), Some("http://c:2".to_owned()));
        let all = [("ALL_PROXY", "all"), ("http_proxy", "")];
        assert_eq!(route(&all, "https://x/"), Some("http://all:1080".to_owned()));
        assert_eq!(route(&all, "http://x/"), Some("http://all:1080".to_owned()));
        assert_eq!(route(&[], "http://x/"), None);
        assert_eq!(
            route(&[("http_proxy", "http://a:80/")], "http://x/"),
            Some("http://a".to_owned())
        );
    }

    #[test]
    fn upper_case_http_proxy_is_ignored_under_cgi() {
        let cgi = [("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "http://evil:1")];
        assert_eq!(route(&cgi, "http://x/"), None);
        let chosen = [("REQUEST_METHOD", "GET"), ("http_proxy", "http://a:1")];
        assert_eq!(route(&chosen, "http://x/"), Some("http://a:1".to_owned()));
    }

    #[test]
    fn no_proxy_hosts_bypass_the_proxy() {
        let with = |list| [("http_proxy", "http://a:1"), ("no_proxy", list)];
        assert_eq!(route(&with("localhost, .example.org"), "http://www.example.org/"), None);
        assert!(route(&with("example.org"), "http://notexample.org/").is_some());
    }

    #[test]
    fn proxy_credentials_are_sent_as_basic_and_hidden_in_debug() {
        let proxies = proxies(&[("http_proxy", "http://al%3Ain:s%20secret@a:1/")]).unwrap();
        let proxy = proxies.http.as_ref().unwrap();
        let expected = format!("Basic {}", base64::encode(b"al:in:s secret"));
        let fields: Vec<_> = proxy.authorization.get().iter().collect();
        assert_eq!(fields, [("Proxy-Authorization", expected.as_str())]);
        assert!(!format!("{proxies:?}").contains("secret"));
    }

    #[test]
    fn invalid_proxy_error_hides_the_password() {
        for url in
            ["socks5://u:secret@a:1", "https://u:secret@a:1", "http://u:secret@:1", "http://"]
        {
            let error = proxies(&[("all_proxy", url)]).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("all_proxy") && !text.contains("secret"), "{text}");
        }
    }
}
