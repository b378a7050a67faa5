//! Between the source of posts and the courier: requests that are ready, and what
//! became of them.

use std::{net::IpAddr, task::Waker};

use super::{PostPlace, TargetError};
use crate::{http::FieldLinesBuf, service::Now};

/// A request that is ready to be sent: a `POST`, or the `GET` of a challenge.
#[derive(Debug, Default)]
pub struct PostRequest {
    /// Its webhook.
    pub place: PostPlace,
    /// Its owner; 0: all anonymous callers.
    pub owner: u32,
    /// Where it goes, as [`WebhookUrl`](super::WebhookUrl) has written it.
    pub url: String,
    /// Header fields without `Host` and `Content-Length`.
    pub fields: FieldLinesBuf,
    /// The content.
    pub body: Vec<u8>,
    /// The content of the answer by which a challenged receiver shows that it wants posts; empty:
    /// this is a post, and no challenge.
    pub expects: String,
    /// The last event that it tells of.
    pub upto: u64,
    /// True: when it has arrived there is another one.
    pub has_more: bool,
}

impl PostRequest {
    /// What it says: URL, fields and content.
    pub fn bytes(&self) -> usize {
        self.url.len() + self.fields.get().lines().len() + self.body.len()
    }

    /// Another request may be made in its place.
    pub fn clear(&mut self) {
        let PostRequest { url, fields, body, expects, .. } = self;
        url.clear();
        fields.clear();
        body.clear();
        expects.clear();
    }
}

/// When there is something to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRequest {
    /// Now: the request is made.
    Post,
    /// Not before then, in ms of the monotonic clock, unless the waker is woken.
    At(u64),
    /// Not before the waker is woken.
    Never,
}

/// What became of a post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostOutcome {
    /// A status of 2xx, in time, and to a challenge the answer that it expects.
    Delivered,
    /// 410: the receiver wants no more of it.
    Gone,
    /// A status by which the receiver does not take this post, though its host is there: 3xx, and
    /// 4xx but 408, 410 and 429; or a wrong answer to a challenge.
    Refused {
        /// Why, in one line and without what is secret of the URL.
        why: String,
        /// For how long the receiver wants to be left alone, in ms.
        retry_after_ms: Option<u64>,
    },
    /// 408, 429, 5xx: its host answers, and says that it is not well.
    Unwell {
        /// Why, in one line and without what is secret of the URL.
        why: String,
        /// For how long the receiver wants to be left alone, in ms.
        retry_after_ms: Option<u64>,
    },
    /// Anything else: no connection, or no answer in time.
    Failed {
        /// Why, in one line and without what is secret of the URL.
        why: String,
        /// For how long the receiver wants to be left alone, in ms.
        retry_after_ms: Option<u64>,
    },
}

/// The source of posts. A courier asks it, posts, and says what came of it; a webhook
/// has one post under way at most.
pub trait Outbox: Send + Sync {
    /// Makes the next request, in place of what was in `request`. `wake` is woken when there may be
    /// one earlier than this says.
    fn next(&self, now: Now, wake: &Waker, request: &mut PostRequest) -> NextRequest;

    /// Takes what became of a request that [`Outbox::next`] has made, as it was made: once for
    /// each, since its bytes are under way until then. Where its webhook is gone or was replaced
    /// meanwhile, nothing follows from it. `random`: fresh bits.
    fn done(&self, request: &PostRequest, outcome: PostOutcome, now: Now, random: u64);

    /// Whether a host may be connected to at an address: asked at each connect, of each address
    /// that the host has; `is_own` says whether an address is one of this machine.
    ///
    /// # Errors
    /// [`TargetError`]: why not.
    fn check_address(
        &self,
        host: &str,
        address: IpAddr,
        is_own: &dyn Fn(IpAddr) -> bool,
    ) -> Result<(), TargetError>;
}
