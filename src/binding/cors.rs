//! CORS: the other origins with pages that may read answers (Fetch, §3.3 "CORS protocol").
//!
//! Invariant: CORS is off by default, and always off for the pages about the server. If CORS is on,
//! each answer about an agent, to a request for an accepted host, states whether the requesting
//! page may read the answer, and which of its header fields. Origins are compared byte by byte; an
//! origin that may send credentials is named explicitly, never by `*`. The handler of each path
//! answers its preflight requests.

use std::fmt;

use crate::{
    binding::{CallContext, ServerConfig, ws},
    http::{Field, FieldLines, FieldLinesBuf, Head, Method, field_lines},
    limits::CORS_ORIGINS_MAX,
    model::CardSchemeKind,
};

/// The origins with pages that may read answers; by default no other origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// Origins as browsers send them, `https://app.example`, compared exactly; or `*` for any.
    /// Empty: CORS is off. At most [`CORS_ORIGINS_MAX`].
    pub origins: Vec<String>,
    /// Pages may send cookies, client certificates and credentials of HTTP authentication; not
    /// allowed with `*`. A page that sets `Authorization` or a key itself does not need this.
    pub credentials: bool,
    /// Seconds for which a browser may cache the answer to a preflight; 0: no caching.
    pub max_age_s: u32,
    /// Header fields that pages may send, in addition to those that the server reads, those that
    /// agents see, and those with API keys in the card's security schemes.
    pub headers: Vec<String>,
}

impl Default for Cors {
    fn default() -> Cors {
        // Chromium caches a preflight for at most two hours.
        Cors { origins: Vec::new(), credentials: false, max_age_s: 7_200, headers: Vec::new() }
    }
}

/// Why a CORS setting is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsError {
    /// A value that browsers never send as `Origin`.
    Origin(String),
    /// Credentials with `*` or `null`, or without any origin.
    Credentials,
    /// More origins than [`CORS_ORIGINS_MAX`].
    TooMany,
    /// Not the name of a header field.
    Header(String),
}

impl fmt::Display for CorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CorsError::Origin(text) => write!(
                f,
                "the CORS origin {text:?} must be * or scheme://host[:port], in lower case, \
                 without the default port and without a path"
            ),
            CorsError::Credentials => {
                f.write_str("CORS with credentials needs named origins, not * or null")
            }
            CorsError::TooMany => write!(f, "more than {CORS_ORIGINS_MAX} CORS origins"),
            CorsError::Header(name) => write!(f, "{name:?} is not the name of a header field"),
        }
    }
}

const ANY: &str = "*";

impl std::error::Error for CorsError {}

impl Cors {
    /// Checks the setting.
    ///
    /// # Errors
    /// [`CorsError`].
    pub fn check(&self) -> Result<(), CorsError> {
        if let Some(wrong) = self.origins.iter().find(|text| !is_sent(text)) {
            return Err(CorsError::Origin(wrong.clone()));
        }
        if self.origins.len() > CORS_ORIGINS_MAX {
            return Err(CorsError::TooMany);
        }
        let is_open = |text: &String| text == ANY || text == "null";
        if self.credentials && (self.origins.is_empty() || self.origins.iter().any(is_open)) {
            return Err(CorsError::Credentials);
        }
        let is_token = |name: &&String| !name.is_empty() && name.bytes().all(is_token_byte);
        match self.headers.iter().find(|name| !is_token(name)) {
            Some(wrong) => Err(CorsError::Header(wrong.clone())),
            None => Ok(()),
        }
    }
}

/// RFC 9110 §5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a browser can send this as `Origin`; any other value would never match.
fn is_sent(text: &str) -> bool {
    let usual = [("http://", ":80"), ("https://", ":443")];
    let has_usual_port =
        usual.iter().any(|(scheme, port)| text.starts_with(scheme) && text.ends_with(port));
    ws::is_origin(text) && !has_usual_port && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Header fields that the server reads, and that a page may send only with permission (Fetch,
/// §4.8).
const HEADERS: &str = "Accept, Content-Type, Authorization, A2A-Version, A2A-Extensions, \
    X-A2A-Extensions, Last-Event-ID, X-API-Key, Idempotency-Key, Prefer, Request-Timeout, \
    If-None-Match, If-Modified-Since, traceparent, tracestate";

/// Header fields of answers that pages may read, in addition to the safelisted fields.
const EXPOSED: &str = "A2A-Version, A2A-Extensions, X-A2A-Extensions, WWW-Authenticate, \
    Retry-After, RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, \
    X-RateLimit-Reset, Location, ETag, Last-Modified, Link, Allow, Date";

impl CallContext<'_> {
    /// Adds the CORS fields for the requesting page to all answers.
    #[inline(always)]
    pub fn note_page(&mut self, head: &Head<'_>) {
        if self.config.cors.is_on() {
            self.writer.fields = self.config.cors.fields(self.config.cors.of(head));
        }
    }
}

/// The methods that a preflight allows at a path without a resource, so that the page can read the
/// 404.
const NOTHING_THERE: FieldLines<'static> =
    field_lines!("Allow": "GET, HEAD, POST, DELETE, OPTIONS");

/// The CORS fields of answers, computed once.
#[derive(Default)]
pub struct CorsPolicy {
    origins: Vec<String>,
    /// The CORS fields: first for origins that are not allowed, then for each origin; empty: CORS
    /// is off.
    answers: Vec<FieldLinesBuf>,
    max_age_s: u32,
    headers: String,
}

/// The CORS fields of one request, as an index from 1; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CorsAnswer(u16);

impl CorsAnswer {
    /// No CORS fields.
    pub const NONE: CorsAnswer = CorsAnswer(0);
    /// CORS is on, but the page of the request is not allowed.
    const OTHER: CorsAnswer = CorsAnswer(1);

    /// True: the page may read the answer.
    fn is_allowed(self) -> bool {
        self.0 > CorsAnswer::OTHER.0
    }
}

impl CorsPolicy {
    /// `cors` has passed [`Cors::check`].
    pub fn new(cors: Cors) -> CorsPolicy {
        let Cors { mut origins, credentials, max_age_s, headers } = cors;
        if origins.is_empty() {
            return CorsPolicy::default();
        }
        if origins.iter().any(|origin| origin == ANY) {
            origins = vec![ANY.to_owned()];
        }
        let of = |origin: Option<&String>| {
            let mut fields = FieldLinesBuf::default();
            if let Some(origin) = origin {
                fields.push("Access-Control-Allow-Origin", origin);
                if credentials {
                    fields.push("Access-Control-Allow-Credentials", "true");
                }
                fields.push("Access-Control-Expose-Headers", EXPOSED);
            }
            fields
        };
        let answers = std::iter::once(None).chain(origins.iter().map(Some)).map(of).collect();
        let mut allowed = HEADERS.to_owned();
        headers.iter().for_each(|name| push_name(&mut allowed, name));
        CorsPolicy { origins, answers, max_age_s, headers: allowed }
    }

    /// True: pages of other origins may read answers.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The answer for the request with this head.
    #[inline]
    pub fn of(&self, head: &Head<'_>) -> CorsAnswer {
        if self.is_on() { self.of_origin(head.value(Field::Origin)) } else { CorsAnswer::NONE }
    }

    /// The answer for a request with this value of `Origin`.
    #[cold]
    pub fn of_origin(&self, origin: Option<&[u8]>) -> CorsAnswer {
        if !self.is_on() {
            return CorsAnswer::NONE;
        }
        let is_it = |named: &String| named == ANY || Some(named.as_bytes()) == origin;
        let found = origin.and_then(|_| self.origins.iter().position(is_it));
        let index = found.and_then(|at| u16::try_from(at + 2).ok());
        index.map_or(CorsAnswer::OTHER, CorsAnswer)
    }

    /// The answer for a rejected request with the unparsed head `bytes`, for example if the head or
    /// the body is too large. The origin counts only if exactly one line has an `Origin` field.
    #[cold]
    pub fn of_refused(&self, bytes: &[u8]) -> CorsAnswer {
        const NAME: &[u8] = b"origin:";
        let mut origins = bytes
            .split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.split_at_checked(NAME.len()))
            .filter_map(|(name, value)| name.eq_ignore_ascii_case(NAME).then_some(value));
        let only = origins.next().filter(|_| origins.next().is_none());
        self.of_origin(only.map(<[u8]>::trim_ascii))
    }

    /// The fields of the answer.
    #[cold]
    pub fn fields(&self, answer: CorsAnswer) -> FieldLinesBuf {
        let mut fields = self.fields_without_vary(answer);
        if answer != CorsAnswer::NONE {
            // Fetch, §3.3.5: a cache must not return the answer for one origin to another.
            fields.extend(field_lines!("Vary": "Origin"));
        }
        fields
    }

    /// As [`CorsPolicy::fields`], for an answer with its own `Vary`, which includes `Origin`.
    #[cold]
    pub fn fields_without_vary(&self, answer: CorsAnswer) -> FieldLinesBuf {
        let at = usize::from(answer.0).checked_sub(1);
        at.and_then(|at| self.answers.get(at)).cloned().unwrap_or_default()
    }
}

/// Appends a name to a list of names, unless the list has it.
fn push_name(list: &mut String, name: &str) {
    if !list.split(", ").any(|listed| listed.eq_ignore_ascii_case(name)) {
        list.push_str(", ");
        list.push_str(name);
    }
}

/// True: the request is a preflight (Fetch, §3.3.2), and CORS is on.
pub fn is_preflight(config: &ServerConfig, head: &Head<'_>) -> bool {
    config.cors.is_on()
        && head.method() == Method::Options
        && config.cors.of(head).is_allowed()
        && head.values("access-control-request-method").next().is_some()
}

/// Answers OPTIONS at a path with these methods, including the preflight of an allowed page.
pub fn options(cx: &mut CallContext<'_>, head: &Head<'_>, allow: FieldLines<'_>) {
    if is_preflight(cx.config, head) {
        permit(cx, head, allow);
    }
    cx.writer.empty(204, allow);
}

/// Answers a preflight at a path without a resource; false: the request is not a preflight.
#[cold]
pub fn is_answered_at_nothing(cx: &mut CallContext<'_>, head: &Head<'_>) -> bool {
    let is_preflight = is_preflight(cx.config, head);
    if is_preflight {
        options(cx, head, NOTHING_THERE);
    }
    is_preflight
}

/// Adds the permissions in the answer to a preflight.
#[cold]
fn permit(cx: &mut CallContext<'_>, head: &Head<'_>, allow: FieldLines<'_>) {
    let policy = &cx.config.cors;
    let mut headers = policy.headers.clone();
    if let Some(profile) = cx.service.profile(cx.agent) {
        profile.fields.iter().for_each(|name| push_name(&mut headers, name));
        for scheme in &cx.config.security_of(&profile).schemes {
            if let CardSchemeKind::ApiKey { header } = &scheme.kind {
                push_name(&mut headers, header);
            }
        }
    }
    let fields = &mut cx.writer.fields;
    for (_, methods) in allow.iter() {
        fields.push("Access-Control-Allow-Methods", methods);
    }
    fields.push("Access-Control-Allow-Headers", &headers);
    fields.push("Access-Control-Max-Age", &policy.max_age_s.to_string());
    // Private Network Access, §3.1: browsers ask if the page is public and this server is in a
    // private network.
    let mut private_network = head.values("access-control-request-private-network");
    if private_network.any(|value| value.eq_ignore_ascii_case(b"true")) {
        fields.push("Access-Control-Allow-Private-Network", "true");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str], credentials: bool) -> Cors {
        let origins = origins.iter().map(|&origin| origin.to_owned()).collect();
        Cors { origins, credentials, ..Cors::default() }
    }

    #[test]
    fn origin_not_in_browser_form_is_rejected() {
        for origin in ["*", "null", "https://a", "http://a.example:8080", "http://[::1]:3000"] {
            assert_eq!(cors(&[origin], false).check(), Ok(()), "{origin}");
        }
        for origin in [
            "",
            "a.example",
            "https://",
            "https://a/",
            "https://A.example",
            "https://a:443",
            "http://a:80",
            "https://*.a",
            "https://a b",
        ] {
            let wrong = CorsError::Origin(origin.to_owned());
            assert_eq!(cors(&[origin], false).check(), Err(wrong), "{origin}");
        }
    }

    #[test]
    fn cors_credentials_require_named_origins() {
        for origins in [&[][..], &["*"], &["https://a", "*"], &["null"]] {
            assert_eq!(cors(origins, true).check(), Err(CorsError::Credentials), "{origins:?}");
        }
        assert_eq!(cors(&["https://a"], true).check(), Ok(()));
    }

    #[test]
    fn too_many_origins_or_invalid_header_name_is_rejected() {
        let many = vec!["https://a"; CORS_ORIGINS_MAX + 1];
        assert_eq!(cors(&many, false).check(), Err(CorsError::TooMany));
        assert_eq!(cors(&many[1..], false).check(), Ok(()));
        let headers = vec!["X-Y".to_owned(), "a\r\nb".to_owned()];
        let wrong = Cors { headers, ..Cors::default() }.check();
        assert_eq!(wrong, Err(CorsError::Header("a\r\nb".to_owned())));
    }

    #[test]
    fn rejected_head_uses_origin_only_if_sent_once() {
        let policy = CorsPolicy::new(cors(&["https://a", "https://b"], false));
        let of = |bytes: &[u8]| policy.of_refused(bytes);
        assert_eq!(of(b"POST / HTTP/1.1\r\norigin: https://b \r\nX: y"), CorsAnswer(3));
        for none in [
            &b"POST / HTTP/1.1\r\nX: y\r\n\r\nOrigin: https://a\r\n"[..],
            b"\r\nOrigin: https://a\r\nOrigin: https://b\r\n\r\n",
            b"POST / HTTP/1.1\r\nOrigin: https://a\r\nOrigin: https://a\r\n",
            b"POST / HTTP/1.1\r\nX-Origin: https://a\r\n",
            b"POST / HTTP/1.1\r\nOrigin: https://a.evil\r\n",
        ] {
            assert_eq!(of(none), CorsAnswer::OTHER, "{}", none.escape_ascii());
        }
        assert_eq!(CorsPolicy::default().of_refused(b"Origin: https://a"), CorsAnswer::NONE);
    }

    #[test]
    fn wildcard_policy_answers_any_origin_with_asterisk() {
        let policy = CorsPolicy::new(cors(&["https://a", "*"], false));
        let fields = policy.fields(policy.of_origin(Some(b"https://evil")));
        let named = fields.get().iter().find(|(name, _)| *name == "Access-Control-Allow-Origin");
        assert_eq!(named, Some(("Access-Control-Allow-Origin", "*")));
        assert!(!policy.of_origin(None).is_allowed());
    }
}
