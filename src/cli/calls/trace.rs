//! `--debug`: what goes over the wire, on stderr.
//!
//! Law: no secret is ever shown, however much is asked for. Fields that carry credentials are
//! masked by their names, and what the user gave as a secret is masked where it belongs and, unless
//! it is as short as a part of a word, wherever else it stands. What comes is shown by whole lines,
//! so that a secret cannot hide in a cut.

mod line;

use std::{
    task::{Context, Poll},
    time::Instant,
};

use peregrine::{
    client::{HttpRequest, HttpResponse, Tick, Transport, TransportError},
    service::Now,
};
use url::form_urlencoded::byte_serialize;

use super::super::{tell, text::one_line};
use line::{OpenLine, shown};

/// What stands for a secret.
const MASK: &str = "***";
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
/// Members of JSON, and names in a form, whose values are credentials.
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
/// Fields of a response that are shown.
const SHOWN_FIELDS: &[&str] = &[
    "content-type",
    "a2a-extensions",
    "a2a-version",
    "cache-control",
    "etag",
    "grpc-message",
    "grpc-status",
    "location",
    "retry-after",
    "www-authenticate",
];
/// The shortest secret that is masked wherever it stands: a shorter one is a part of other words.
const ANYWHERE_BYTES_MIN: usize = 6;

/// What must not be shown.
#[derive(Clone, Default)]
pub struct Redaction {
    /// What is masked wherever it stands, in each form that it may have.
    secrets: Vec<String>,
    /// What is masked where it is all that a field or a parameter says.
    values: Vec<String>,
    /// Fields that the user adds, whatever they say.
    fields: Vec<String>,
}

impl Redaction {
    /// Masks these wherever they stand, as they are and as they stand in URLs and in JSON, and all
    /// that `fields` say. A short one is masked in its places alone: elsewhere its masks would make
    /// the text unreadable, and would show it by what is not there.
    pub fn of<'s>(
        secrets: impl Iterator<Item = &'s str>,
        fields: impl Iterator<Item = &'s str>,
    ) -> Redaction {
        let (mut all, mut values): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        // A key goes out without the white space around it.
        let secrets = secrets.flat_map(|secret| [secret, secret.trim()]);
        for secret in secrets.filter(|secret| !secret.is_empty()) {
            let in_url: String = url_form(secret);
            let in_form: String = byte_serialize(secret.as_bytes()).collect();
            let in_json = serde_json::Value::from(secret).to_string();
            let in_json = in_json[1..in_json.len() - 1].to_owned();
            if secret.len() >= ANYWHERE_BYTES_MIN {
                all.extend([secret.to_owned(), in_url.clone(), in_form.clone(), in_json]);
            }
            values.extend([secret.to_owned(), in_url, in_form]);
        }
        // The longest first: one may be a part of another.
        all.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        all.dedup();
        let fields = fields.map(|name| name.trim().to_owned()).collect();
        Redaction { secrets: all, values, fields }
    }

    /// The text without the user's secrets, whatever else stands in it.
    pub fn without_secrets(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), MASK);
        }
        text
    }

    /// The text without secrets, on one line.
    pub fn clean(&self, text: &str) -> String {
        one_line(&self.masked(text))
    }

    fn masked(&self, text: &str) -> String {
        let mut text = self.without_secrets(text);
        for member in SECRET_MEMBERS {
            text = masked_member(&text, &format!("\"{member}\""), ':');
            text = masked_member(&text, member, '=');
        }
        text
    }

    /// A URL, or the part of one that is asked for: no parameter of it is a secret.
    fn target(&self, target: &str) -> String {
        let Some((path, query)) = target.split_once('?') else { return self.clean(target) };
        let masked = |parameter: &str| match parameter.split_once('=') {
            Some((name, value)) if self.is_value(value) => format!("{name}={MASK}"),
            Some(_) | None => parameter.to_owned(),
        };
        let query: Vec<String> = query.split('&').map(masked).collect();
        self.clean(&format!("{path}?{}", query.join("&")))
    }

    /// The value of a field of a request, masked where its name says that it is a credential, or
    /// where it is one.
    fn field(&self, name: &str, value: &str) -> String {
        let names = SECRET_FIELDS.iter().copied().chain(self.fields.iter().map(String::as_str));
        let is_secret = names.into_iter().any(|secret| secret.eq_ignore_ascii_case(name));
        if is_secret || self.is_value(value) { MASK.to_owned() } else { self.clean(value) }
    }

    fn is_value(&self, text: &str) -> bool {
        self.values.iter().any(|value| value == text)
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

/// Masks the value behind each `name` and `sign`: a JSON string, or a value of a form.
fn masked_member(text: &str, name: &str, sign: char) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(name) {
        let begins = sign == ':' || rest[..at].ends_with(['&', '?']) || (at == 0 && out.is_empty());
        let behind = &rest[at + name.len()..];
        let value = behind.trim_start().strip_prefix(sign).map(str::trim_start);
        let Some(value) = value.filter(|_| begins) else {
            out.push_str(&rest[..at + name.len()]);
            rest = behind;
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

/// Where a JSON string ends whose quote was read.
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

/// A transport that shows what passes it.
pub struct TracedTransport<T> {
    inner: T,
    /// `None`: it shows nothing.
    redaction: Option<Redaction>,
}

/// A response that shows what is read of it.
pub struct TracedResponse<R> {
    inner: R,
    redaction: Option<Redaction>,
    /// True: credentials stand in it where no name tells them, so that its bytes are counted alone.
    is_hidden: bool,
    line: OpenLine,
}

impl<T> TracedTransport<T> {
    /// Shows what passes `inner`, if there is a redaction.
    pub fn new(inner: T, redaction: Option<Redaction>) -> TracedTransport<T> {
        TracedTransport { inner, redaction }
    }
}

impl<T: Transport> Transport for TracedTransport<T> {
    type Response = TracedResponse<T::Response>;

    async fn request(
        &self,
        request: HttpRequest<'_>,
    ) -> Result<TracedResponse<T::Response>, TransportError> {
        let began = Instant::now();
        let is_hidden = is_hidden(&request);
        if let Some(redaction) = &self.redaction {
            show_request(redaction, &request);
        }
        let response = self.inner.request(request).await;
        if let Some(redaction) = &self.redaction {
            let ms = began.elapsed().as_millis();
            match &response {
                Ok(response) => tell(&shown_head(redaction, response, ms)),
                Err(error) => {
                    let why = redaction.clean(&error.to_string());
                    tell(&format!("< no response after {ms} ms: {why}\n"));
                }
            }
        }
        let (redaction, line) = (self.redaction.clone(), OpenLine::default());
        Ok(TracedResponse { inner: response?, redaction, is_hidden, line })
    }

    async fn sleep_until(&self, due_ms: u64) {
        self.inner.sleep_until(due_ms).await;
    }

    fn now(&self) -> Now {
        self.inner.now()
    }

    fn random(&self) -> u128 {
        self.inner.random()
    }

    fn every(&self, ms: u64, tick: Tick) {
        self.inner.every(ms, tick);
    }
}

/// True for what gRPC says of push configurations: members of protobuf have no names.
fn is_hidden(request: &HttpRequest<'_>) -> bool {
    let mut fields = request.fields.iter();
    request.target.contains("PushNotificationConfig")
        && fields.any(|(name, value)| {
            name.eq_ignore_ascii_case("content-type") && value.starts_with("application/grpc")
        })
}

fn show_request(redaction: &Redaction, request: &HttpRequest<'_>) {
    let (method, target) = (request.method.name(), redaction.target(request.target));
    let mut text = format!("> {method} {}{target}\n", request.origin);
    for (name, value) in request.fields.iter() {
        let value = redaction.field(name, value);
        text.push_str(&format!("> {}: {value}\n", one_line(name)));
    }
    if is_hidden(request) {
        text.push_str(&format!("> {MASK} {} bytes\n", request.body.len()));
    } else if !request.body.is_empty() {
        for line in request.body.split(|byte| *byte == b'\n') {
            text.push_str(&format!("> {}\n", shown(redaction, line, 0)));
        }
    }
    tell(&text);
}

/// The head of a response, as far as it matters to A2A: a transport gives fields by their names.
fn shown_head<R: HttpResponse>(redaction: &Redaction, response: &R, ms: u128) -> String {
    let mut text = format!("< {} after {ms} ms\n", response.status());
    for name in SHOWN_FIELDS {
        if let Some(value) = response.field(name) {
            let value = String::from_utf8_lossy(value);
            let value = match *name {
                "location" => redaction.target(&value),
                _ => redaction.clean(&value),
            };
            text.push_str(&format!("< {name}: {value}\n"));
        }
    }
    text
}

impl<R> TracedResponse<R> {
    /// Shows the lines that these bytes end.
    fn take_in(&mut self, bytes: &[u8]) {
        let Some(redaction) = &self.redaction else { return };
        if self.is_hidden {
            return self.line.count(bytes);
        }
        for (index, piece) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if index > 0 {
                let line = std::mem::take(&mut self.line);
                tell(&format!("< {}\n", line.shown(redaction)));
            }
            self.line.push(piece);
        }
    }

    /// Shows what has come since the last line.
    fn end(&mut self) {
        let Some(redaction) = &self.redaction else { return };
        let line = std::mem::take(&mut self.line);
        match (line.len(), self.is_hidden) {
            (0, _) => {}
            (count, true) => tell(&format!("< {MASK} {count} bytes\n")),
            (_, false) => tell(&format!("< {}\n", line.shown(redaction))),
        }
    }
}

impl<R> Drop for TracedResponse<R> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<R: HttpResponse> HttpResponse for TracedResponse<R> {
    fn status(&self) -> u16 {
        self.inner.status()
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.inner.field(name)
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<bool, TransportError>> {
        let before = out.len();
        let read = self.inner.poll_read(cx, out, room);
        if self.redaction.is_some() {
            self.take_in(out.get(before..).unwrap_or_default());
            if matches!(read, Poll::Ready(Ok(false) | Err(_))) {
                self.end();
            }
        }
        read
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, TransportError>> {
        let written = self.inner.poll_write(cx, bytes);
        if let (Some(redaction), Poll::Ready(Ok(count))) = (&self.redaction, &written) {
            let bytes = bytes.get(..*count).unwrap_or_default();
            match unmasked(bytes) {
                Some(message) => tell(&format!("> {}\n", shown(redaction, &message, 0))),
                None => tell(&format!("> {MASK} {count} bytes\n")),
            }
        }
        written
    }
}

/// The payload of a whole frame of a WebSocket's client (RFC 6455 §5.2), whose key would uncover
/// every secret in it.
fn unmasked(frame: &[u8]) -> Option<Vec<u8>> {
    let (head, rest) = frame.split_at_checked(2)?;
    let (length, rest) = match head[1] & 0x7f {
        126 => rest.split_first_chunk().map(|(n, rest)| (u16::from_be_bytes(*n).into(), rest))?,
        127 => rest.split_first_chunk().map(|(n, rest)| (u64::from_be_bytes(*n), rest))?,
        length => (length.into(), rest),
    };
    let (key, payload) = rest.split_first_chunk::<4>()?;
    let is_whole = head[1] & 0x80 != 0 && payload.len() as u64 == length;
    is_whole.then(|| payload.iter().zip(key.iter().cycle()).map(|(b, k)| b ^ k).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_wherever_they_stand() {
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
    fn a_short_secret_is_masked_in_its_places_alone() {
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
    fn what_a_websocket_carries_is_shown_without_secrets() {
        let redaction = Redaction::default();
        let text = br#"{"token":"abc"}"#;
        let key = [1, 2, 3, 4];
        let mut frame = vec![0x81, 0x80 | text.len() as u8];
        frame.extend_from_slice(&key);
        frame.extend(text.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
        assert_eq!(unmasked(&frame).as_deref(), Some(&text[..]));
        for end in 0..frame.len() {
            assert_eq!(unmasked(&frame[..end]), None);
        }
        let received = [&[0x81, text.len() as u8][..], text].concat();
        let line = shown(&redaction, &received, 0);
        assert!(line.contains(r#"{"token":"***"}"#), "{line}");
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
