//! `--debug`: shows the traffic on stderr.
//!
//! Invariant: no secret is ever shown, at any level of detail. [`Redaction`] decides what is
//! secret; this module reports outgoing credentials to it. Responses are shown by whole lines, so
//! that a cut cannot hide a part of a secret from the redaction.

mod line;

use std::{
    task::{Context, Poll},
    time::Instant,
};

use peregrine::{
    client::{HttpRequest, HttpResponse, Tick, Transport, TransportError},
    service::Now,
};

use super::super::{
    eprint,
    redaction::{MASK, Redaction},
    text::one_line,
};
use line::{OpenLine, shown};

/// The shown fields of a response.
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

/// A transport that shows its traffic.
pub struct TracedTransport<T> {
    inner: T,
    redaction: Redaction,
    /// False: the transport reports outgoing credentials to the redaction, and shows nothing.
    shows: bool,
}

/// A response that shows the bytes read from it.
pub struct TracedResponse<R> {
    inner: R,
    /// `None`: the response is not shown.
    redaction: Option<Redaction>,
    /// True: the response contains credentials without names, so only its bytes are counted.
    is_hidden: bool,
    line: OpenLine,
}

impl<T> TracedTransport<T> {
    /// Reports outgoing credentials to the redaction and, if `shows` is true, prints the rest of
    /// the traffic.
    pub fn new(inner: T, redaction: Redaction, shows: bool) -> TracedTransport<T> {
        TracedTransport { inner, redaction, shows }
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
        self.redaction.note(request.fields.iter());
        let redaction = self.shows.then(|| self.redaction.clone());
        if let Some(redaction) = &redaction {
            show_request(redaction, &request);
        }
        let response = self.inner.request(request).await;
        if let Some(redaction) = &redaction {
            let ms = began.elapsed().as_millis();
            match &response {
                Ok(response) => eprint(&shown_head(redaction, response, ms)),
                Err(error) => {
                    let why = redaction.clean(&error.to_string());
                    eprint(&format!("< no response after {ms} ms: {why}\n"));
                }
            }
        }
        let line = OpenLine::default();
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

/// Whether a request is a gRPC call about push configurations: members of protobuf have no names.
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
    eprint(&text);
}

/// The response fields that matter to A2A, one by one: a transport returns fields only by their
/// names.
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
    /// Shows the lines that end in these bytes.
    fn take_in(&mut self, bytes: &[u8]) {
        let Some(redaction) = &self.redaction else { return };
        if self.is_hidden {
            return self.line.count(bytes);
        }
        for (index, piece) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if index > 0 {
                let line = std::mem::take(&mut self.line);
                eprint(&format!("< {}\n", line.shown(redaction)));
            }
            self.line.push(piece);
        }
    }

    /// Shows the bytes received since the last line.
    fn end(&mut self) {
        let Some(redaction) = &self.redaction else { return };
        let line = std::mem::take(&mut self.line);
        match (line.len(), self.is_hidden) {
            (0, _) => {}
            (count, true) => eprint(&format!("< {MASK} {count} bytes\n")),
            (_, false) => eprint(&format!("< {}\n", line.shown(redaction))),
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

    fn each_field(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        self.inner.each_field(name, each);
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
                Some(message) => eprint(&format!("> {}\n", shown(redaction, &message, 0))),
                None => eprint(&format!("> {MASK} {count} bytes\n")),
            }
        }
        written
    }
}

/// The payload of a whole frame from a WebSocket client (RFC 6455 §5.2). The frame itself is not
/// shown, because its masking key would uncover every secret in it.
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
    fn websocket_trace_masks_secrets() {
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
}
