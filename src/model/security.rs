//! Security requirements for callers, in the form of cards (A2A 1.0 §4.5). They are enforced
//! elsewhere.

use super::JsonObjectBuf;

/// The security schemes, and the requirements.
///
/// ```
/// use peregrine::model::{CardRequirement, CardScheme, CardSecurity};
///
/// let security = CardSecurity {
///     schemes: vec![CardScheme::api_key("key", "X-API-Key"), CardScheme::bearer("token", "JWT")],
///     // Either of them is enough.
///     requirements: vec![CardRequirement::of("key", []), CardRequirement::of("token", ["chat"])],
/// };
/// assert_eq!(security.wrong(), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardSecurity {
    /// The schemes, each with a unique name.
    pub schemes: Vec<CardScheme>,
    /// The requirements: one of these is enough; empty: authentication is not required.
    pub requirements: Vec<CardRequirement>,
}

/// One security scheme (A2A 1.0 §4.5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardScheme {
    /// Its name on the card.
    pub name: String,
    /// Description for humans; may be empty.
    pub description: String,
    /// The kind of scheme.
    pub kind: CardSchemeKind,
}

/// The kind of a security scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardSchemeKind {
    /// A key in this header field (A2A 1.0 §4.5.2).
    ApiKey {
        /// The field.
        header: String,
    },
    /// An HTTP authentication scheme (A2A 1.0 §4.5.3).
    Http {
        /// Its name: `Bearer`, `Basic`.
        scheme: String,
        /// The format of bearer tokens, for humans; may be empty.
        bearer_format: String,
    },
    /// OpenID Connect (A2A 1.0 §4.5.5).
    OpenIdConnect {
        /// The URL of the issuer's configuration.
        url: String,
    },
    /// OAuth 2.0 (A2A 1.0 §4.5.4), as configured by the operator.
    OAuth2 {
        /// The flows, each by its name on cards and its JSON object; the preferred one first,
        /// because 1.0 allows only one.
        flows: Vec<(String, JsonObjectBuf)>,
        /// The URL of the authorization server's metadata (RFC 8414); may be empty.
        metadata_url: String,
    },
    /// A client certificate (A2A 1.0 §4.5.6).
    MutualTls,
}

/// Schemes that are required together, each by its name and with its scopes; empty: no
/// authentication is required.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardRequirement {
    /// Name and scopes of each scheme.
    pub schemes: Vec<(String, Vec<String>)>,
}

impl CardScheme {
    fn of(name: &str, kind: CardSchemeKind) -> CardScheme {
        CardScheme { name: name.to_owned(), description: String::new(), kind }
    }

    /// A key in a header field.
    pub fn api_key(name: &str, header: &str) -> CardScheme {
        CardScheme::of(name, CardSchemeKind::ApiKey { header: header.to_owned() })
    }

    /// A bearer token (RFC 6750) of this format, which may be empty.
    pub fn bearer(name: &str, format: &str) -> CardScheme {
        let (scheme, bearer_format) = ("Bearer".to_owned(), format.to_owned());
        CardScheme::of(name, CardSchemeKind::Http { scheme, bearer_format })
    }

    /// OpenID Connect, with the URL of the issuer's configuration.
    pub fn open_id_connect(name: &str, url: &str) -> CardScheme {
        CardScheme::of(name, CardSchemeKind::OpenIdConnect { url: url.to_owned() })
    }

    /// A client certificate.
    pub fn mutual_tls(name: &str) -> CardScheme {
        CardScheme::of(name, CardSchemeKind::MutualTls)
    }
}

impl CardRequirement {
    /// This scheme only, with these scopes.
    pub fn of<'s>(name: &str, scopes: impl IntoIterator<Item = &'s str>) -> CardRequirement {
        let scopes = scopes.into_iter().map(str::to_owned).collect();
        CardRequirement { schemes: vec![(name.to_owned(), scopes)] }
    }
}

impl CardSecurity {
    /// The first invalid name: empty, duplicate, or required and undefined.
    pub fn wrong(&self) -> Option<&str> {
        let names = || self.schemes.iter().map(|scheme| scheme.name.as_str());
        let is_wrong = |(at, name): &(usize, &str)| {
            name.is_empty() || names().take(*at).any(|before| before == *name)
        };
        let wrong = names().enumerate().find(is_wrong).map(|(_, name)| name);
        wrong.or_else(|| self.unknown(&self.requirements))
    }

    /// The first name in `requirements` that is undefined, or duplicate within a requirement.
    pub fn unknown<'r>(&self, requirements: &'r [CardRequirement]) -> Option<&'r str> {
        requirements.iter().find_map(|requirement| {
            let required = || requirement.schemes.iter().map(|(name, _)| name.as_str());
            let is_defined = |name: &str| self.schemes.iter().any(|scheme| scheme.name == name);
            let is_wrong = |(at, name): &(usize, &str)| {
                !is_defined(name) || required().take(*at).any(|b| b == *name)
            };
            required().enumerate().find(is_wrong).map(|(_, name)| name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_unknown_and_empty_scheme_names_are_reported() {
        let two = || vec![CardScheme::api_key("a", "X"), CardScheme::mutual_tls("b")];
        let wrong = |schemes: Vec<CardScheme>, requirements: Vec<CardRequirement>| {
            CardSecurity { schemes, requirements }.wrong().map(str::to_owned)
        };
        assert_eq!(wrong(two(), vec![CardRequirement::default()]), None);
        assert_eq!(wrong(two(), vec![CardRequirement::of("c", [])]).as_deref(), Some("c"));
        assert_eq!(wrong(vec![CardScheme::mutual_tls("")], Vec::new()).as_deref(), Some(""));
        let twice = [two(), two()].concat();
        assert_eq!(wrong(twice, Vec::new()).as_deref(), Some("a"));
        let schemes = vec![("b".to_owned(), Vec::new()); 2];
        assert_eq!(wrong(two(), vec![CardRequirement { schemes }]).as_deref(), Some("b"));
    }
}
