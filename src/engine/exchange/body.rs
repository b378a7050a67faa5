//! The body of a request on its way: how much of it may come, and how slowly.

use super::{Exchange, ExchangeState};
use crate::{
    binding::{
        body_limit::{BodyLimit, RequestRefusal},
        grpc::{self, frame},
        large::LARGE_BODY_BYTES,
    },
    engine::{Cx, request},
    http::{BodyFraming, Head, HeadBuf},
    limits::Limits,
};

/// What is refused whose length is not the one that its head names.
const LENGTH_DIFFERS: &str = "the length of the body differs from Content-Length";

/// How large the body of a request may be. Its path is looked at only if that matters.
pub(super) fn limit(cx: &Cx<'_>, head: &Head<'_>, is_grpc: bool) -> BodyLimit {
    let limits = cx.engine.limits();
    match head.body() {
        BodyFraming::None => BodyLimit::ordinary(limits),
        BodyFraming::Length(length) if length <= BodyLimit::least(limits) as u64 => {
            BodyLimit::ordinary(limits)
        }
        BodyFraming::Length(_) | BodyFraming::Chunked if is_grpc => BodyLimit::ordinary(limits),
        BodyFraming::Length(_) | BodyFraming::Chunked => request::body_limit(cx.engine, head),
    }
}

/// A request whose head is in order: its body is to come, unless it is too long.
pub(super) fn begin(head: HeadBuf, has_body: bool, limit: BodyLimit) -> ExchangeState {
    let refusal = match head.head().body() {
        BodyFraming::Length(length) => limit.refusal(length),
        BodyFraming::None | BodyFraming::Chunked => None,
    };
    match refusal {
        Some(refusal) => ExchangeState::Refused(refusal),
        None => ExchangeState::Body { head, is_whole: !has_body, caller: None },
    }
}

impl Exchange {
    /// True: the body is wanted. What comes of one that is not may be thrown away.
    pub fn wants_body(&self) -> bool {
        matches!(self.state, ExchangeState::Body { is_whole: false, .. })
    }

    /// Appends a piece of the body. Beyond `body_bytes_max`, or what its path has in place of it,
    /// the request is refused; over gRPC the message is that large at most, and is refused as soon
    /// as its length has come.
    pub fn push(&mut self, limits: &Limits, piece: &[u8]) {
        let ExchangeState::Body { head, is_whole, .. } = &mut self.state else { return };
        if *is_whole {
            return;
        }
        let length = self.body.len() + piece.len();
        match head.head().body() {
            BodyFraming::Length(said) if length as u64 > said => {
                self.state = ExchangeState::Refused(RequestRefusal::new(400, LENGTH_DIFFERS));
            }
            _ if !self.is_grpc && length > self.limit.bytes_max => {
                self.state = ExchangeState::Refused(self.limit.too_large());
            }
            BodyFraming::Length(said) => {
                // What is announced is made room for when some of it has come.
                let room = (said as usize).min(2 * length).max(length);
                self.body.reserve_exact(room - self.body.len());
                self.body.extend_from_slice(piece);
            }
            BodyFraming::None | BodyFraming::Chunked => self.body.extend_from_slice(piece),
        }
        match &mut self.state {
            ExchangeState::Body { head, is_whole, .. } if self.is_grpc => {
                let bytes_max = grpc::message_bytes_max(head.head().path(), limits);
                // Then there is nothing to wait for.
                *is_whole = frame::is_hopeless(&self.body, bytes_max);
            }
            ExchangeState::Body { .. } => {}
            _ => self.body = Vec::new(),
        }
    }

    /// Whether this is the whole body, and can be handled as it is.
    pub(super) fn takes_whole(&self, cx: &Cx<'_>, body: &[u8]) -> bool {
        let ExchangeState::Body { head, is_whole: false, caller: Some(_) } = &self.state else {
            return false;
        };
        let fits = match head.head().body() {
            BodyFraming::Length(said) => said == body.len() as u64,
            BodyFraming::Chunked => body.len() <= self.limit.bytes_max,
            BodyFraming::None => false,
        };
        let is_coded = match self.is_grpc {
            true => frame::is_compressed(body),
            false => head.head().is_coded(),
        };
        let is_small = body.len() <= LARGE_BODY_BYTES && !is_coded;
        fits && is_small && self.body.is_empty() && !self.is_late(cx.now)
    }

    /// Refuses a request that is not handled yet.
    #[cfg(feature = "grpc")]
    pub(crate) fn refuse(&mut self, refusal: RequestRefusal) {
        if let ExchangeState::Body { .. } = self.state {
            self.state = ExchangeState::Refused(refusal);
            self.body = Vec::new();
        }
    }

    /// Says that the body is there.
    pub fn end(&mut self) {
        let ExchangeState::Body { head, is_whole: is_whole @ false, .. } = &mut self.state else {
            return;
        };
        *is_whole = true;
        if let BodyFraming::Length(said) = head.head().body()
            && said != self.body.len() as u64
        {
            self.state = ExchangeState::Refused(RequestRefusal::new(400, LENGTH_DIFFERS));
        }
    }

    /// True when a window of `body_idle_ms` passed without enough of the body.
    pub(super) fn body_stalls(&mut self, cx: &Cx<'_>) -> bool {
        let limits = cx.engine.limits();
        if cx.now.mono_ms.saturating_sub(self.since_ms) < limits.body_idle_ms {
            return false;
        }
        let progress = self.body.len() - self.seen;
        (self.since_ms, self.seen) = (cx.now.mono_ms, self.body.len());
        progress < limits.body_progress_bytes_min
    }
}
