//! One post: a request, and what its receiver says to it.
//!
//! Laws: a post ends by its deadline, with everything that belongs to it. What counts is the
//! status; a redirect is not followed, and what else a receiver says is thrown away. No word of an
//! error is one of the path or query of the URL, which may be secret.

use std::{future::poll_fn, task::Poll, time::Duration};

use tokio::time::{Instant, timeout_at};

use crate::{
    client::{
        HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpVersion, Transport,
        retry::retry_after_ms,
    },
    http::FieldLines,
    limits::webhooks::WEBHOOK_ANSWER_BYTES_MAX,
    net::{HttpClient, HttpClientResponse},
    push::outbox::{PostOutcome, PostRequest},
};

/// Bytes of buffers that are kept for another post.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Content that is coded in an unknown way would hide the status of the answer, and all codings are
/// welcome where none is named (RFC 9110 §12.5.3).
const ACCEPT: (&str, &str) = ("Accept-Encoding", "identity");

/// What one post needs. The outbox fills in the request.
#[derive(Default)]
pub(super) struct PostBuffers {
    pub(super) request: PostRequest,
    fields: PostFields,
    /// What the receiver has answered.
    answer: Vec<u8>,
}

impl PostBuffers {
    /// Whether they are of a size to be kept.
    pub(super) fn are_small(&self) -> bool {
        let PostRequest { url, fields, body, .. } = &self.request;
        let request = url.capacity() + fields.capacity() + body.capacity();
        request + self.fields.held_bytes() + self.answer.capacity() <= KEPT_BYTES_MAX
    }

    /// Posts the request, and says what came of it within so many ms.
    pub(super) async fn post(&mut self, client: &HttpClient, post_ms: u64) -> PostOutcome {
        let due = Instant::now() + Duration::from_millis(post_ms);
        match self.ask(client, post_ms).await {
            Err(why) => PostOutcome::Failed { why, retry_after_ms: None },
            Ok(mut response) => {
                let outcome = outcome(&response, client.now().unix_ms);
                self.answer.clear();
                // What is left unread costs the connection and nothing else.
                let _ = timeout_at(due, read_away(&mut response, &mut self.answer)).await;
                outcome
            }
        }
    }

    /// Sends the request, until the head of the answer has come.
    async fn ask(
        &mut self,
        client: &HttpClient,
        post_ms: u64,
    ) -> Result<HttpClientResponse, String> {
        let PostRequest { url, fields, body, .. } = &self.request;
        let url = HttpOrigin::parse(url).map_err(|error| error.to_string())?;
        let fields = self.fields.read(fields).ok_or("its header fields cannot be sent")?;
        let request = HttpRequest {
            method: HttpMethod::Post,
            origin: &url.origin,
            target: &url.path,
            fields,
            body,
            version: HttpVersion::Any,
            head_due_ms: client.mono_ms().saturating_add(post_ms),
            body_idle_ms: post_ms,
            // A receiver knows a notification again by its id, so it may come once more where a
            // kept connection has closed instead of an answer.
            is_repeatable: true,
        };
        client.request(request).await.map_err(|error| error.to_string())
    }
}

/// What the head of an answer says.
fn outcome(response: &HttpClientResponse, unix_ms: u64) -> PostOutcome {
    match response.status() {
        200..=299 => PostOutcome::Delivered,
        410 => PostOutcome::Gone,
        status => {
            let asked = response.field("retry-after");
            let asked_ms = asked.and_then(|text| retry_after_ms(text, unix_ms));
            PostOutcome::Failed {
                why: format!("HTTP status {status}"),
                // Who wants it at once asks for nothing: the pause is the outbox's own.
                retry_after_ms: asked_ms.filter(|ms| *ms > 0),
            }
        }
    }
}

/// Reads the content to its end, or until it is too much.
async fn read_away(response: &mut HttpClientResponse, answer: &mut Vec<u8>) {
    const MOST: usize = WEBHOOK_ANSWER_BYTES_MAX;
    poll_fn(|cx| {
        loop {
            match response.poll_read(cx, answer, MOST - answer.len()) {
                Poll::Ready(Ok(true)) if answer.len() < MOST => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

/// The fields of a request: those of the outbox, and what the courier adds.
#[derive(Default)]
struct PostFields {
    lines: String,
    /// Bytes of each name and of each value.
    parts: Vec<(usize, usize)>,
}

impl PostFields {
    /// Reads lines, each with its CRLF; `None`: they are no field lines that can be sent.
    fn read(&mut self, lines: &[u8]) -> Option<FieldLines<'_>> {
        self.lines.clear();
        self.parts.clear();
        let mut rest = std::str::from_utf8(lines).ok()?;
        let mut accepts = false;
        while !rest.is_empty() {
            let (line, behind) = rest.split_once("\r\n")?;
            let (name, value) = line.split_once(": ")?;
            if !is_sendable(name, value) {
                return None;
            }
            accepts |= name.eq_ignore_ascii_case(ACCEPT.0);
            self.push(name, value);
            rest = behind;
        }
        if !accepts {
            self.push(ACCEPT.0, ACCEPT.1);
        }
        Some(FieldLines::of_lines(&self.lines, &self.parts))
    }

    fn push(&mut self, name: &str, value: &str) {
        self.lines.extend([name, ": ", value, "\r\n"]);
        self.parts.push((name.len(), value.len()));
    }

    fn held_bytes(&self) -> usize {
        self.lines.capacity() + self.parts.capacity() * size_of::<(usize, usize)>()
    }
}

/// RFC 9110 §5.1, §5.5: nothing ends a line inside of it.
fn is_sendable(name: &str, value: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    let is_value = |byte: u8| matches!(byte, b'\t' | b' '..=b'~');
    !name.is_empty() && name.bytes().all(is_name) && value.bytes().all(is_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_their_lines_and_nothing_else() {
        let mut fields = PostFields::default();
        for (lines, read) in [
            ("", vec![ACCEPT]),
            (
                "A: b\r\nC: \r\nD: e: f\tg\r\n",
                vec![("A", "b"), ("C", ""), ("D", "e: f\tg"), ACCEPT],
            ),
            ("accept-encoding: gzip\r\n", vec![("accept-encoding", "gzip")]),
        ] {
            let all: Vec<_> = fields.read(lines.as_bytes()).unwrap().iter().collect();
            assert_eq!(all, read, "{lines:?}");
        }
        for lines in ["A", "A: b", "A: b\n", "A:b\r\n", ": b\r\n", "A b: c\r\n", "A: b\rc\r\n"] {
            assert!(fields.read(lines.as_bytes()).is_none(), "{lines:?}");
        }
        for lines in [&b"A: \xff\r\n"[..], b"A: b\0\r\n", b"A: b\nC: d\r\n", b"\r\n"] {
            assert!(fields.read(lines).is_none(), "{lines:?}");
        }
        assert_eq!(
            fields.read(b"A: b\r\n").unwrap().lines(),
            b"A: b\r\nAccept-Encoding: identity\r\n"
        );
    }
}
