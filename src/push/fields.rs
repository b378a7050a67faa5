//! Header fields of a configuration: which fields it may set, and their checks.
//!
//! Invariant: a configured value cannot end a line, and cannot set a field that determines the
//! target or the end of a request. All header fields of webhook posts are created here.

use std::borrow::Cow;

use zeroize::Zeroizing;

use super::standard_webhooks;
use crate::{
    http::FieldLinesBuf,
    json::write::unescape,
    limits::webhooks::{
        PUSH_HEADER_BYTES_MAX, PUSH_HEADERS_MAX, PUSH_ID_BYTES_MAX, PUSH_SCHEME_BYTES_MAX,
        PUSH_SECRET_BYTES_MAX,
    },
    model::{PushConfig, RawText},
};

/// Names in lower case that only the sender may set, in addition to names that begin with one of
/// [`OWN_PREFIXES`]. Many receivers treat `_` and `-` as the same.
const OWN: &[&str] = &[
    "host",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "forwarded",
    "traceparent",
    "tracestate",
];
const OWN_PREFIXES: &[&str] = &["content-", "proxy-", "x-forwarded-", "webhook-", "a2a-", "x-a2a-"];

/// The member of a configuration that cannot become a header field, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The name of the member in 1.0, or `headers` of Evo AI.
    pub member: &'static str,
    /// The requirement, as the end of an error message.
    pub must: &'static str,
}

const NO_CONTROL: &str = "must be visible ASCII and spaces";

/// Checks all members that become header fields.
///
/// # Errors
/// [`FieldError`]
pub fn check(config: PushConfig<'_>) -> Result<(), FieldError> {
    let value = |text: Option<RawText<'_>>, member| match text {
        Some(text) if text.raw().len() > PUSH_SECRET_BYTES_MAX => {
            Err(FieldError { member, must: "must have at most 4096 bytes" })
        }
        Some(text) if !is_value(&plain(text)) => Err(FieldError { member, must: NO_CONTROL }),
        Some(_) | None => Ok(()),
    };
    if config.id().is_some_and(|id| id.raw().len() > PUSH_ID_BYTES_MAX) {
        return Err(FieldError { member: "id", must: "must have at most 256 bytes" });
    }
    value(config.token(), "token")?;
    value(config.credentials(), "authentication.credentials")?;
    let is_scheme =
        |text: RawText<'_>| text.raw().len() <= PUSH_SCHEME_BYTES_MAX && is_token(&plain(text));
    if config.scheme().is_some_and(|scheme| !is_scheme(scheme)) {
        let must = "must be the name of a scheme, of at most 64 characters";
        return Err(FieldError { member: "authentication.scheme", must });
    }
    if is_standard_webhooks(config) {
        standard_webhooks::secret(&webhook_secret(config).unwrap_or_default())?;
    }
    check_headers(config)
}

fn check_headers(config: PushConfig<'_>) -> Result<(), FieldError> {
    let wrong = |must| Err(FieldError { member: "headers", must });
    let is_authorized = config.scheme().is_some() && config.credentials().is_some();
    if is_authorized && has(config, "authorization") {
        return wrong("must not have an Authorization header if authentication is set");
    }
    let (mut names, mut bytes) = (Vec::new(), 0);
    for (name, value) in config.headers() {
        let (name, value) = (plain(name), plain(value));
        if !is_token(&name) {
            return wrong("must have valid header field names");
        }
        let name = name.to_ascii_lowercase().replace('_', "-");
        if OWN.contains(&&*name) || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            return wrong("must not have a header that the server writes, such as Host or X-A2A-*");
        }
        if !is_value(&value) {
            return wrong("must have values of visible ASCII and spaces");
        }
        if names.contains(&name) {
            return wrong("must not have a field twice");
        }
        bytes += name.len() + value.len();
        names.push(name);
        if names.len() > PUSH_HEADERS_MAX {
            return wrong("must have at most 16 fields");
        }
    }
    if bytes > PUSH_HEADER_BYTES_MAX {
        return wrong("must have at most 4096 bytes");
    }
    Ok(())
}

/// Appends the fields of a configuration: `Authorization` according to its scheme, its token, and
/// its own header fields. Returns whether it has own header fields. A Standard Webhooks secret is
/// only used to sign ([`signature::put`](super::signature::put)).
pub fn put(out: &mut FieldLinesBuf, config: PushConfig<'_>) -> bool {
    let pair = (config.scheme(), config.credentials());
    if let (Some(scheme), Some(credentials), false) = (pair.0, pair.1, is_standard_webhooks(config))
    {
        let (scheme, credentials) = (plain(scheme), plain(credentials));
        out.push_pieces("Authorization", &[&scheme, " ", credentials.trim()]);
    }
    if let Some(token) = config.token() {
        out.push("X-A2A-Notification-Token", plain(token).trim());
    }
    let mut has_own = false;
    for (name, value) in config.headers() {
        out.push(&plain(name), plain(value).trim());
        has_own = true;
    }
    has_own
}

/// Whether a configuration sets a header field with this name. `_` and `-` count as the same, as
/// many receivers treat them.
pub fn has(config: PushConfig<'_>, name: &str) -> bool {
    config.headers().any(|(own, _)| plain(own).replace('_', "-").eq_ignore_ascii_case(name))
}

/// Whether a configuration authenticates the sender to the receiver: by a scheme with credentials,
/// or by its own `Authorization` field.
pub fn is_authenticated(config: PushConfig<'_>) -> bool {
    config.scheme().is_some() && config.credentials().is_some() || has(config, "authorization")
}

/// The signing secret of a configuration, which may be invalid if it was not checked; `None`: the
/// configuration has no signing secret.
pub fn webhook_secret(config: PushConfig<'_>) -> Option<Zeroizing<String>> {
    let credentials = config.credentials().filter(|_| is_standard_webhooks(config))?;
    Some(Zeroizing::new(plain(credentials).into_owned()))
}

/// Whether a configuration has a signing secret.
pub fn is_standard_webhooks(config: PushConfig<'_>) -> bool {
    let is_it = |scheme| plain(scheme).eq_ignore_ascii_case(standard_webhooks::SCHEME);
    config.scheme().is_some_and(is_it)
}

fn plain(text: RawText<'_>) -> Cow<'_, str> {
    unescape(text.raw_str())
}

/// RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    let is_special = |byte: u8| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || is_special(byte))
}

/// RFC 9110 §5.5, without obsolete forms and tabs.
fn is_value(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::PushConfigBuf;

    fn config() -> PushConfigBuf {
        PushConfigBuf::new("https://h.example/")
    }

    fn refused(config: &PushConfigBuf) -> &'static str {
        check(config.view()).unwrap_err().member
    }

    #[test]
    fn invalid_characters_are_refused_in_every_field() {
        for bad in ["a\r\nX: y", "a\tb", "a\n", "a\r", "a\0", "a\x7f", "caf\u{e9}", "\u{1b}[0m"] {
            assert_eq!(refused(&config().token(bad)), "token", "{bad:?}");
            assert_eq!(refused(&config().bearer(bad)), "authentication.credentials", "{bad:?}");
            assert_eq!(refused(&config().authentication(bad, "x")), "authentication.scheme");
            assert_eq!(refused(&config().header("X", bad)), "headers", "{bad:?}");
            assert_eq!(refused(&config().header(bad, "x")), "headers", "{bad:?}");
        }
        for bad in ["Bearer x", "a:b", "a/b", "(a)"] {
            assert_eq!(refused(&config().authentication(bad, "x")), "authentication.scheme");
        }
    }

    #[test]
    fn reserved_header_names_are_refused() {
        for own in [
            "Host",
            "host",
            "Content-Length",
            "content-type",
            "Content-Encoding",
            "Transfer-Encoding",
            "TRANSFER-ENCODING",
            "Connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Upgrade",
            "Expect",
            "Proxy-Authorization",
            "Proxy-Connection",
            "Forwarded",
            "X-Forwarded-For",
            "x-forwarded-host",
            "Webhook-Id",
            "webhook-signature",
            "x-a2a-notification-jwt",
            "X-A2A-Notification-Token",
            "A2A-Notification-Id",
            "a2a_version",
            "Traceparent",
            "tracestate",
            "Transfer_Encoding",
            "content_length",
            "X_Forwarded_For",
        ] {
            assert_eq!(refused(&config().header(own, "x")), "headers", "{own}");
        }
        for free in ["Authorization", "X-Api-Key", "Hosts", "Contents", "X-Forwarded", "Webhook"] {
            assert_eq!(check(config().header(free, "x").view()), Ok(()), "{free}");
        }
    }

    #[test]
    fn duplicate_header_fields_are_refused() {
        for again in ["X-Key", "x-key", "X_Key"] {
            assert_eq!(refused(&config().header("X-Key", "a").header(again, "b")), "headers");
        }
        let own = config().header("authorization", "Bearer a");
        assert_eq!(check(own.view()), Ok(()));
        assert_eq!(refused(&own.bearer("b")), "headers");
    }

    #[test]
    fn header_count_and_size_are_bounded() {
        let many = |count: usize| {
            (0..count).fold(config(), |config, at| config.header(&*format!("x{at}"), "b"))
        };
        assert_eq!(check(many(16).view()), Ok(()));
        assert_eq!(refused(&many(17)), "headers");
        let long = |bytes: usize| config().header("a", &*"x".repeat(bytes - 1));
        assert_eq!(check(long(4_096).view()), Ok(()));
        assert_eq!(refused(&long(4_097)), "headers");
    }

    #[test]
    fn token_credentials_id_and_scheme_lengths_are_bounded() {
        let text = |bytes: usize| "x".repeat(bytes);
        let long = config().token(&*text(4_096)).bearer(&*text(4_096)).id(&*text(256));
        assert_eq!(check(long.view()), Ok(()));
        assert_eq!(refused(&config().token(&*text(4_097))), "token");
        assert_eq!(refused(&config().bearer(&*text(4_097))), "authentication.credentials");
        assert_eq!(refused(&config().id(&*text(257))), "id");
        assert_eq!(check(config().authentication(&*text(64), "x").view()), Ok(()));
        assert_eq!(refused(&config().authentication(&*text(65), "x")), "authentication.scheme");
    }

    #[test]
    fn standard_webhooks_secret_is_checked_and_never_sent() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        for scheme in ["StandardWebhooks", "standardwebhooks", "STANDARDWEBHOOKS"] {
            for good in [secret, &secret[6..], &format!(" {secret} ")] {
                let config = config().authentication(scheme, good).token("k");
                assert_eq!(check(config.view()), Ok(()), "{good}");
                let mut out = FieldLinesBuf::default();
                put(&mut out, config.view());
                let lines = out.get().lines();
                assert_eq!(lines, b"X-A2A-Notification-Token: k\r\n", "{scheme}");
            }
            for bad in ["", "secret", &secret[..20], &secret.replace('9', "\u{e9}")] {
                let config = config().authentication(scheme, bad);
                assert_eq!(refused(&config), "authentication.credentials", "{bad}");
            }
        }
        // With another scheme the same text is an ordinary credential.
        assert_eq!(check(config().bearer("secret").view()), Ok(()));
    }

    #[test]
    fn config_values_are_written_unescaped_and_trimmed() {
        let mut out = FieldLinesBuf::default();
        let config = config().authentication("Bearer", " s\"\\ ").token("t k").header("X", "\"");
        assert_eq!(check(config.view()), Ok(()));
        put(&mut out, config.view());
        let lines = "Authorization: Bearer s\"\\\r\nX-A2A-Notification-Token: t k\r\nX: \"\r\n";
        assert_eq!(out.get().lines(), lines.as_bytes());
        out.clear();
        put(&mut out, PushConfigBuf::new("https://h").authentication("Basic", "").view());
        assert!(out.is_empty());
    }
}
