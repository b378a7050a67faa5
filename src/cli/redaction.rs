//! Masks credentials in the output of the command line (the command line's specification, §12.2).
//!
//! Invariant: a credential is masked by its name if it has one, and in all other text unless it is
//! so short that it could be part of a word. A value that a call has sent as a credential is a
//! credential from then on, whatever its source. All parts of a call share the same credentials.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use url::form_urlencoded::byte_serialize;

use super::text::one_line;

/// The mask of a secret.
pub const MASK: &str = "***";
/// Fields that carry credentials, in lower case.
const SECRET_FIELDS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-api-key",
    "a2a-notification-token",
    "x-a2a-notification-token",
];
/// JSON members and form fields that hold credentials.
const SECRET_MEMBERS: &[&str] = &[
    "access_token",
    "refresh_token",
    "id_token",
    "client_secret",
    "device_code",
    "password",
    "credentials",
    "token",
];
/// Minimum bytes of a secret that is masked everywhere: a shorter secret could be part of a word.
const ANYWHERE_BYTES_MIN: usize = 6;

/// Maximum number of remembered credentials of requests; the oldest is removed first.
const SENT_MAX: usize = 64;

/// The credentials to mask. Clones share the credentials.
#[derive(Clone, Default)]
pub struct Redaction(Arc<Mutex<SecretSet>>);

#[derive(Default)]
struct SecretSet {
    /// Credentials from the settings.
    configured: Vec<String>,
    /// Credentials of sent requests.
    sent: VecDeque<String>,
    /// Fields that the user adds; their values are masked.
    fields: Vec<String>,
    /// Texts that are masked everywhere, in each encoding; the longest first, since a text may
    /// contain another text.
    anywhere: Vec<String>,
    /// Texts that are masked only if they are the whole value of a field or a parameter.
    values: Vec<String>,
}

impl SecretSet {
    /// Computes the encodings in which the secrets may appear.
    fn settle(&mut self) {
        (self.anywhere, self.values) = (Vec::new(), Vec::new());
        // A key is sent without leading and trailing white space.
        let secrets =
            self.configured.iter().chain(&self.sent).flat_map(|one| [one.as_str(), one.trim()]);
        for secret in secrets.filter(|secret| !secret.is_empty()) {
            let in_url = url_form(secret);
            let in_form: String = byte_serialize(secret.as_bytes()).collect();
            let in_json = serde_json::Value::from(secret).to_string();
            let in_json = in_json[1..in_json.len() - 1].to_owned();
            if secret.len() >= ANYWHERE_BYTES_MIN {
                let forms = [secret.to_owned(), in_url.clone(), in_form.clone(), in_json];
                self.anywhere.extend(forms);
            }
            self.values.extend([secret.to_owned(), in_url, in_form]);
        }
        self.anywhere.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.anywhere.dedup();
    }

    /// True: a field of this name carries a credential.
    fn is_secret_field(&self, name: &str) -> bool {
        let own = self.fields.iter().map(String::as_str);
        SECRET_FIELDS.iter().copied().chain(own).any(|one| one.eq_ignore_ascii_case(name))
    }
}

impl Redaction {
    /// Masks `secrets` everywhere, also in the encodings of URLs and of JSON, and all values of
    /// `fields`. A short secret is masked only as a whole value: in other text the masks would make
    /// the text unreadable and reveal the secret by the missing letters.
    pub fn of<'s>(
        secrets: impl Iterator<Item = &'s str>,
        fields: impl Iterator<Item = &'s str>,
    ) -> Redaction {
        let configured = secrets.map(str::to_owned).collect();
        let fields = fields.map(|name| name.trim().to_owned()).collect();
        let mut set = SecretSet { configured, fields, ..SecretSet::default() };
        set.settle();
        Redaction(Arc::new(Mutex::new(set)))
    }

    fn secrets(&self) -> MutexGuard<'_, SecretSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the credentials of a request, with and without their scheme.
    pub fn note<'f>(&self, fields: impl Iterator<Item = (&'f str, &'f str)>) {
        let mut set = self.secrets();
        let before = set.sent.back().cloned();
        for (name, value) in fields {
            if !set.is_secret_field(name) || name.eq_ignore_ascii_case("cookie") {
                continue;
            }
            let without_scheme = value.split_once(' ').map_or("", |(_, rest)| rest);
            for secret in [value, without_scheme] {
                let is_same = |one: &String| one == secret;
                let is_new = !set.configured.iter().chain(&set.sent).any(is_same);
                if is_new && !secret.is_empty() {
                    set.sent.push_back(secret.to_owned());
                }
            }
        }
        if set.sent.back() != before.as_ref() {
            let over = set.sent.len().saturating_sub(SENT_MAX);
            set.sent.drain(..over);
            set.settle();
        }
    }

    /// The text without the user's secrets.
    pub fn without_secrets(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets().anywhere {
            text = text.replace(secret.as_str(), MASK);
        }
        text
    }

    /// The text without secrets, on one line.
    pub fn clean(&self, text: &str) -> String {
        one_line(&self.masked(text))
    }

    /// The text without secrets, including secrets that only a name identifies.
    pub fn masked(&self, text: &str) -> String {
        let mut text = self.without_secrets(text);
        for member in SECRET_MEMBERS {
            text = masked_member(&text, &format!("\"{member}\""), ':');
            text = masked_member(&text, member, '=');
        }
        text
    }

    /// Bytes of the longest secret.
    pub fn longest(&self) -> usize {
        self.secrets().anywhere.first().map_or(0, String::len)
    }

    /// A URL or a request target, with secret parameters masked.
    pub fn target(&self, target: &str) -> String {
        let Some((path, query)) = target.split_once('?') else { return self.clean(target) };
        let masked = |parameter: &str| match parameter.split_once('=') {
            Some((name, value)) if self.is_value(value) => format!("{name}={MASK}"),
            Some(_) | None => parameter.to_owned(),
        };
        let query: Vec<String> = query.split('&').map(masked).collect();
        self.clean(&format!("{path}?{}", query.join("&")))
    }

    /// The value of a request field, masked if its name or its value identifies a credential.
    pub fn field(&self, name: &str, value: &str) -> String {
        let is_secret = self.secrets().is_secret_field(name);
        if is_secret || self.is_value(value) { MASK.to_owned() } else { self.clean(value) }
    }

    fn is_value(&self, text: &str) -> bool {
        self.secrets().values.iter().any(|value| value == text)
    }
}

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redaction(..)")
    }
}

fn url_form(secret: &str) -> String {
    let mut text = String::new();
    for byte in secret.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Masks the value after each `name` and `sign`: a JSON string, or a value of a form.
fn masked_member(text: &str, name: &str, sign: char) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(name) {
        let begins = sign == ':' || rest[..at].ends_with(['&', '?']) || (at == 0 && out.is_empty());
        let after = &rest[at + name.len()..];
        let value = after.trim_start().strip_prefix(sign).map(str::trim_start);
        let Some(value) = value.filter(|_| begins) else {
            out.push_str(&rest[..at + name.len()]);
            rest = after;
            continue;
        };
        let (skipped, end) = match (sign, value.strip_prefix('"')) {
            (':', Some(inner)) => (1, string_end(inner)),
            (':', None) => (0, 0),
            _ => (0, value.find(['&', ' ', '"']).unwrap_or(value.len())),
        };
        out.push_str(&rest[..rest.len() - value.len() + skipped]);
        if end > 0 {
            out.push_str(MASK);
        }
        rest = &value[skipped + end..];
    }
    out + rest
}

/// The end of a JSON string, for the text after its opening quote.
fn string_end(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return at,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_in_text_urls_json_and_headers() {
        let redaction = Redaction::of(["s3cr&t", "q\"to;p"].into_iter(), [].into_iter());
        for text in ["key s3cr&t end", "/x?key=s3cr%26t&a=b", "{\"a\":\"q\\\"to;p\"}"] {
            let clean = redaction.clean(text);
            assert!(clean.contains(MASK), "{clean}");
            assert!(!clean.contains("s3cr") && !clean.contains("to;p"), "{clean}");
        }
        assert_eq!(redaction.field("Authorization", "Bearer other"), MASK);
        assert_eq!(redaction.field("cookie", "a=b"), MASK);
        assert_eq!(redaction.field("A2A-Version", "1.0"), "1.0");
    }

    #[test]
    fn sent_credentials_are_masked_afterwards() {
        let redaction = Redaction::of(["given-secret"].into_iter(), ["X-Own"].into_iter());
        let shared = redaction.clone();
        assert_eq!(shared.clean("kept-token own-value"), "kept-token own-value");
        redaction
            .note([("Authorization", "Bearer kept-token"), ("x-own", "own-value")].into_iter());
        redaction.note([("Accept", "application/json")].into_iter());
        let clean = shared.clean("no: kept-token, own-value, given-secret, application/json");
        assert_eq!(clean, "no: ***, ***, ***, application/json");
        for number in 0..10 * SENT_MAX {
            redaction.note([("authorization", &*format!("Bearer {number:08}"))].into_iter());
        }
        assert_eq!(shared.secrets().sent.len(), SENT_MAX);
        let newest = format!("{:08} given-secret", 10 * SENT_MAX - 1);
        assert_eq!(shared.clean(&newest), "*** ***");
    }

    #[test]
    fn short_secret_is_masked_only_as_a_whole_value() {
        let redaction = Redaction::of(["a", "é&"].into_iter(), ["X-Own", "x-b"].into_iter());
        assert_eq!(redaction.clean("{\"parameters\":\"a\"}"), "{\"parameters\":\"a\"}");
        for (name, value, shown) in [
            ("x-key", "a", MASK),
            ("x-own", "1", MASK),
            ("X-B", "a b", MASK),
            ("Accept", "a/b", "a/b"),
            ("authorization", "Bearer a", MASK),
        ] {
            assert_eq!(redaction.field(name, value), shown, "{name}");
        }
        for (target, shown) in [
            ("/a?a=b&k=a&l=ab", "/a?a=b&k=***&l=ab"),
            ("/a/a?k=%C3%A9%26", "/a/a?k=***"),
            ("https://h/a?a", "https://h/a?a"),
        ] {
            assert_eq!(redaction.target(target), shown);
        }
    }

    #[test]
    fn members_that_carry_credentials_are_masked() {
        let redaction = Redaction::default();
        for (text, clean) in [
            (r#"{"access_token": "a\"b","n":1}"#, r#"{"access_token": "***","n":1}"#),
            (r#"{"refresh_token":"open"#, r#"{"refresh_token":"***"#),
            ("grant_type=x&client_secret=abc&scope=y", "grant_type=x&client_secret=***&scope=y"),
            ("client_secret=abc", "client_secret=***"),
            (r#"{"token":null,"pageToken":"p"}"#, r#"{"token":null,"pageToken":"p"}"#),
            (r#"{"text":"my token=5"}"#, r#"{"text":"my token=5"}"#),
        ] {
            assert_eq!(redaction.clean(text), clean);
        }
    }
}
