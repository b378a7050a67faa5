//! One delivery attempt: a request, and its receiver's answer.
//!
//! Invariants: an attempt ends with the head of the answer, or at its deadline. The status decides:
//! a receiver that sends more occupies only its connection, for a short time. Ignored content is
//! not decoded, and may have any length and any coding. A redirect is not followed, and the rest of
//! an answer is discarded. No error text contains the path or query of the URL, which may be
//! secret.

use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use crate::{
    client::{
        HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpUrl, HttpVersion, Transport,
        UrlError, retry::retry_after_ms,
    },
    limits::webhooks::{WEBHOOK_ANSWER_BYTES_MAX, WEBHOOK_REST_MS},
    net::{HttpClient, HttpClientResponse},
    push::outbox::{PostOutcome, PostRequest},
};

/// Maximum bytes of buffers that are retained for another attempt.
const RETAINED_BYTES_MAX: usize = 64 * 1024;

/// The buffers of one attempt. The outbox fills in the request.
#[derive(Default)]
pub(super) struct PostBuffers {
    pub(super) request: PostRequest,
    /// The receiver's answer.
    answer: Vec<u8>,
    /// The origin of the last attempt; the next attempt usually has the same origin.
    cached: Option<CachedOrigin>,
}

/// An origin, and the beginning of its URLs.
struct CachedOrigin {
    /// The URL up to the path; empty if the URL was not in the parser's canonical form.
    text: Box<str>,
    url: HttpUrl,
}

impl CachedOrigin {
    fn read(url: &str) -> Result<CachedOrigin, UrlError> {
        let read = HttpOrigin::parse(url)?;
        let text = url.strip_suffix(&*read.path).unwrap_or_default().into();
        Ok(CachedOrigin { text, url: read })
    }

    /// The request target, if the URL has this origin.
    fn target<'u>(&self, url: &'u str) -> Option<&'u str> {
        url.strip_prefix(&*self.text).filter(|rest| rest.starts_with('/'))
    }
}

impl PostBuffers {
    /// Whether the buffers are small enough to be retained.
    pub(super) fn are_small(&self) -> bool {
        let PostRequest { url, fields, body, .. } = &self.request;
        let request = url.capacity() + fields.held_bytes() + body.capacity();
        request + self.answer.capacity() <= RETAINED_BYTES_MAX
    }

    /// Sends the request, and returns its outcome within `post_ms`, and the rest of the answer.
    pub(super) async fn post(
        &mut self,
        client: &HttpClient,
        post_ms: u64,
    ) -> (PostOutcome, Option<AnswerRest>) {
        let due = Instant::now() + Duration::from_millis(post_ms);
        let mut response = match self.send_request(client, post_ms).await {
            Err(why) => return (PostOutcome::Failed { why, retry_after_ms: None }, None),
            Ok(response) => response,
        };
        let outcome = outcome(&response, client);
        self.answer.clear();
        if self.request.expects.is_empty() {
            // Most answers have arrived completely, and their connections are free at once.
            let is_read = poll_fn(|cx| {
                Poll::Ready(poll_read_away(&mut response, &mut self.answer, cx).is_ready())
            });
            let is_read = is_read.await;
            let bytes = self.answer.len();
            return (outcome, (!is_read).then_some(AnswerRest { response, bytes }));
        }
        // If the rest is not read in time, only the connection is lost.
        let answer = poll_fn(|cx| poll_read_away(&mut response, &mut self.answer, cx));
        let _ = timeout_at(due, answer).await;
        match outcome {
            PostOutcome::Delivered if !self.is_answered() => {
                let why = "the response to the challenge lacks its token".to_owned();
                (PostOutcome::Refused { why, retry_after_ms: None }, None)
            }
            outcome => (outcome, None),
        }
    }

    /// Whether a challenge got the expected answer.
    fn is_answered(&self) -> bool {
        self.answer.trim_ascii() == self.request.expects.as_bytes()
    }

    /// Sends the request, and waits for the head of the answer.
    async fn send_request(
        &mut self,
        client: &HttpClient,
        post_ms: u64,
    ) -> Result<HttpClientResponse, String> {
        let PostRequest { url, fields, body, expects, .. } = &self.request;
        let cached = match self.cached.take().filter(|cached| cached.target(url).is_some()) {
            Some(cached) => cached,
            None => CachedOrigin::read(url).map_err(|error| error.to_string())?,
        };
        let cached = &*self.cached.insert(cached);
        let request = HttpRequest {
            method: if expects.is_empty() { HttpMethod::Post } else { HttpMethod::Get },
            origin: &cached.url.origin,
            target: cached.target(url).unwrap_or(&cached.url.path),
            fields: fields.get(),
            body,
            version: HttpVersion::Any,
            head_due_ms: client.mono_ms().saturating_add(post_ms),
            body_idle_ms: post_ms,
            // A receiver recognises a notification by its id, so the notification may be sent again
            // if an idle connection was closed before an answer.
            is_repeatable: true,
        };
        let response = if expects.is_empty() {
            client.request_undecoded(request).await
        } else {
            client.request(request).await
        };
        response.map_err(|error| error.to_string())
    }
}

/// The outcome that the head of an answer determines.
fn outcome(response: &HttpClientResponse, client: &HttpClient) -> PostOutcome {
    match response.status() {
        200..=299 => PostOutcome::Delivered,
        410 => PostOutcome::Gone,
        status => {
            let retry_after = response.field("retry-after");
            let requested_ms =
                retry_after.and_then(|text| retry_after_ms(text, client.now().unix_ms));
            // A delay of 0 is ignored: the outbox has its own pause.
            let retry_after_ms = requested_ms.filter(|ms| *ms > 0);
            let why = format!("HTTP status {status}");
            match status {
                408 | 429 => PostOutcome::Unwell { why, retry_after_ms },
                300..=499 => PostOutcome::Refused { why, retry_after_ms },
                _ => PostOutcome::Unwell { why, retry_after_ms },
            }
        }
    }
}

/// The rest of an answer after its status.
pub(super) struct AnswerRest {
    response: HttpClientResponse,
    /// Bytes that were read.
    bytes: usize,
}

impl AnswerRest {
    /// Reads and discards the rest for a short time, so that the connection can be reused.
    pub(super) async fn read_away(mut self) {
        let mut answer = vec![0; self.bytes];
        let read = poll_fn(|cx| poll_read_away(&mut self.response, &mut answer, cx));
        let _ = timeout_at(Instant::now() + Duration::from_millis(WEBHOOK_REST_MS), read).await;
    }
}

/// Reads the content to its end, or to the limit.
fn poll_read_away(
    response: &mut HttpClientResponse,
    answer: &mut Vec<u8>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    const MOST: usize = WEBHOOK_ANSWER_BYTES_MAX;
    loop {
        match response.poll_read(cx, answer, MOST - answer.len()) {
            Poll::Ready(Ok(true)) if answer.len() < MOST => {}
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
}
