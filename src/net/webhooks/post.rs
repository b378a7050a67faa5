//! One post: a request, and what its receiver says to it.
//!
//! Laws: a post ends by its deadline, with everything that belongs to it. What counts is the
//! status; a redirect is not followed, and what else a receiver says is thrown away. No word of an
//! error is one of the path or query of the URL, which may be secret.

use std::{future::poll_fn, task::Poll, time::Duration};

use tokio::time::{Instant, timeout_at};

use crate::{
    client::{
        HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpUrl, HttpVersion, Transport,
        UrlError, retry::retry_after_ms,
    },
    limits::webhooks::WEBHOOK_ANSWER_BYTES_MAX,
    net::{HttpClient, HttpClientResponse},
    push::outbox::{PostOutcome, PostRequest},
};

/// Bytes of buffers that are kept for another post.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// What one post needs. The outbox fills in the request.
#[derive(Default)]
pub(super) struct PostBuffers {
    pub(super) request: PostRequest,
    /// What the receiver has answered.
    answer: Vec<u8>,
    /// Where the last one went: most often the next one goes there, too.
    known: Option<KnownOrigin>,
}

/// An origin, and what URLs of it begin with.
struct KnownOrigin {
    /// Up to the path; empty where the URL was not in the parser's spelling.
    text: Box<str>,
    url: HttpUrl,
}

impl KnownOrigin {
    fn read(url: &str) -> Result<KnownOrigin, UrlError> {
        let read = HttpOrigin::parse(url)?;
        let text = url.strip_suffix(&*read.path).unwrap_or_default().into();
        Ok(KnownOrigin { text, url: read })
    }

    /// What is asked of the origin, if a URL is one of it.
    fn target<'u>(&self, url: &'u str) -> Option<&'u str> {
        url.strip_prefix(&*self.text).filter(|rest| rest.starts_with('/'))
    }
}

impl PostBuffers {
    /// Whether they are of a size to be kept.
    pub(super) fn are_small(&self) -> bool {
        let PostRequest { url, fields, body, .. } = &self.request;
        let request = url.capacity() + fields.held_bytes() + body.capacity();
        request + self.answer.capacity() <= KEPT_BYTES_MAX
    }

    /// Posts the request, and says what came of it within so many ms.
    pub(super) async fn post(&mut self, client: &HttpClient, post_ms: u64) -> PostOutcome {
        let due = Instant::now() + Duration::from_millis(post_ms);
        match self.ask(client, post_ms).await {
            Err(why) => PostOutcome::Failed { why, retry_after_ms: None },
            Ok(mut response) => {
                let outcome = outcome(&response, client);
                self.answer.clear();
                // What is left unread costs the connection and nothing else.
                let _ = timeout_at(due, read_away(&mut response, &mut self.answer)).await;
                match outcome {
                    PostOutcome::Delivered if !self.is_answered() => {
                        let why = "the challenge was not answered with its token".to_owned();
                        PostOutcome::Refused { why, retry_after_ms: None }
                    }
                    outcome => outcome,
                }
            }
        }
    }

    /// Whether a challenge got the answer that it expects; nothing else expects any.
    fn is_answered(&self) -> bool {
        let expects = self.request.expects.as_bytes();
        expects.is_empty() || self.answer.trim_ascii() == expects
    }

    /// Sends the request, until the head of the answer has come.
    async fn ask(
        &mut self,
        client: &HttpClient,
        post_ms: u64,
    ) -> Result<HttpClientResponse, String> {
        let PostRequest { url, fields, body, expects, .. } = &self.request;
        let known = match self.known.take().filter(|known| known.target(url).is_some()) {
            Some(known) => known,
            None => KnownOrigin::read(url).map_err(|error| error.to_string())?,
        };
        let known = &*self.known.insert(known);
        let request = HttpRequest {
            method: if expects.is_empty() { HttpMethod::Post } else { HttpMethod::Get },
            origin: &known.url.origin,
            target: known.target(url).unwrap_or(&known.url.path),
            fields: fields.get(),
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
fn outcome(response: &HttpClientResponse, client: &HttpClient) -> PostOutcome {
    match response.status() {
        200..=299 => PostOutcome::Delivered,
        410 => PostOutcome::Gone,
        status => {
            let asked = response.field("retry-after");
            let asked_ms = asked.and_then(|text| retry_after_ms(text, client.now().unix_ms));
            // Who wants it at once asks for nothing: the pause is the outbox's own.
            let retry_after_ms = asked_ms.filter(|ms| *ms > 0);
            let why = format!("HTTP status {status}");
            match status {
                408 | 429 => PostOutcome::Failed { why, retry_after_ms },
                300..=499 => PostOutcome::Refused { why, retry_after_ms },
                _ => PostOutcome::Failed { why, retry_after_ms },
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
