//! The interface between the source of webhook requests and the webhook worker: prepared requests
//! and their outcomes.

use std::{net::IpAddr, task::Waker};

use super::{TargetError, WebhookSlot};
use crate::{http::FieldLinesBuf, service::Now};

/// A prepared request: a `POST`, or the `GET` of a challenge.
#[derive(Debug, Default)]
pub struct PostRequest {
    /// The webhook of the request.
    pub slot: WebhookSlot,
    /// The owner of the webhook; 0: all anonymous callers.
    pub owner: u32,
    /// The URL as normalised by [`WebhookUrl`](super::WebhookUrl).
    pub url: String,
    /// Header fields except `Host` and `Content-Length`.
    pub fields: FieldLinesBuf,
    /// The content.
    pub body: Vec<u8>,
    /// The content with which a challenged receiver confirms that it wants posts; empty: the
    /// request is a post, not a challenge.
    pub expects: String,
    /// The last event in the content.
    pub upto: u64,
    /// True: another request follows after this one is delivered.
    pub has_more: bool,
}

impl PostRequest {
    /// Bytes of URL, fields and content.
    pub fn bytes(&self) -> usize {
        self.url.len() + self.fields.get().lines().len() + self.body.len()
    }

    /// Clears the request for the next one.
    pub fn clear(&mut self) {
        let PostRequest { url, fields, body, expects, .. } = self;
        url.clear();
        fields.clear();
        body.clear();
        expects.clear();
    }
}

/// When the next request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRequest {
    /// Now: the request is prepared.
    Post,
    /// Not before then, in ms of the monotonic clock, unless the waker is woken.
    At(u64),
    /// Not before the waker is woken.
    Never,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    /// A 2xx status in time; for a challenge also the expected content.
    Delivered,
    /// 410: the receiver wants no more posts.
    Gone,
    /// The receiver refuses this post, but its host responds: 3xx, or 4xx except 408, 410 and 429;
    /// or the wrong content in answer to a challenge.
    Refused {
        /// The reason, in one line and without secret parts of the URL.
        why: String,
        /// The receiver's `Retry-After`, in ms.
        retry_after_ms: Option<u64>,
    },
    /// 408, 429, 5xx: the host responds with a temporary error.
    Unwell {
        /// The reason, in one line and without secret parts of the URL.
        why: String,
        /// The receiver's `Retry-After`, in ms.
        retry_after_ms: Option<u64>,
    },
    /// Any other failure: no connection, or no response in time.
    Failed {
        /// The reason, in one line and without secret parts of the URL.
        why: String,
        /// The receiver's `Retry-After`, in ms.
        retry_after_ms: Option<u64>,
    },
}

/// The source of webhook requests. A webhook worker takes them, sends them, and reports their
/// outcomes; each webhook has at most one request in flight.
pub trait Outbox: Send + Sync {
    /// Writes the next request into `request`, replacing its content. `wake` is woken when a
    /// request may be ready earlier than the returned time.
    fn next(&self, now: Now, wake: &Waker, request: &mut PostRequest) -> NextRequest;

    /// Reports the outcome of a request of [`Outbox::next`], exactly once for each unchanged
    /// request, since its bytes count as in flight until then. The outcome is ignored if the
    /// webhook was deleted or replaced meanwhile. `random`: fresh bits.
    fn done(&self, request: &PostRequest, outcome: PostOutcome, now: Now, random: u64);

    /// Checks whether a host may be connected to at an address. The driver calls this at each
    /// connect, for each address of the host; `is_own` returns whether an address belongs to this
    /// machine.
    ///
    /// # Errors
    /// [`TargetError`]: why the address is refused.
    fn check_address(
        &self,
        host: &str,
        address: IpAddr,
        is_own: &dyn Fn(IpAddr) -> bool,
    ) -> Result<(), TargetError>;
}
