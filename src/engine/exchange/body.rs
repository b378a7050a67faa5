//! The body of a request in progress: limits on its size and its speed.

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

/// The error text for a body with a length other than the declared length.
const LENGTH_DIFFERS: &str = "the length of the body differs from Content-Length";

/// The size limit of a request's body. The path is examined only if the limit may depend on it.
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

/// The state after a valid head: waiting for the body, unless it is too long.
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
    /// True: the body is needed. False: the driver may drop its data.
    pub fn wants_body(&self) -> bool {
        matches!(self.state, ExchangeState::Body { is_whole: false, .. })
    }

    /// Appends a piece of the body. A request above `body_bytes_max`, or the limit of its path, is
    /// refused. A gRPC message has the same limit, and is refused as soon as its length has
    /// arrived.
    pub fn push(&mut self, limits: &Limits, piece: &[u8]) {
        let ExchangeState::Body { head, is_whole, .. } = &mut self.state else { return };
        if *is_whole {
            return;
        }
        let length = self.body.len() + piece.len();
        match head.head().body() {
            BodyFraming::Length(declared) if length as u64 > declared => {
                self.state = ExchangeState::Refused(RequestRefusal::new(400, LENGTH_DIFFERS));
            }
            _ if !self.is_grpc && length > self.limit.bytes_max => {
                self.state = ExchangeState::Refused(self.limit.too_large());
            }
            BodyFraming::Length(declared) => {
                // The reserved memory grows with the bytes received, up to the declared length.
                let room = (declared as usize).min(2 * length).max(length);
                self.body.reserve_exact(room - self.body.len());
                self.body.extend_from_slice(piece);
            }
            BodyFraming::None | BodyFraming::Chunked => self.body.extend_from_slice(piece),
        }
        match &mut self.state {
            ExchangeState::Body { head, is_whole, .. } if self.is_grpc => {
                let bytes_max = grpc::message_bytes_max(head.head().path(), limits);
                // The message is malformed or too long: do not wait for the rest.
                *is_whole = frame::is_hopeless(&self.body, bytes_max);
            }
            ExchangeState::Body { .. } => {}
            _ => self.body = Vec::new(),
        }
    }

    /// Whether this is the complete body, which can be handled without a copy.
    pub(super) fn accepts_whole(&self, cx: &Cx<'_>, body: &[u8]) -> bool {
        let ExchangeState::Body { head, is_whole: false, caller: Some(_) } = &self.state else {
            return false;
        };
        let fits = match head.head().body() {
            BodyFraming::Length(declared) => declared == body.len() as u64,
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

    /// Ends the body.
    pub fn end(&mut self) {
        let ExchangeState::Body { head, is_whole: is_whole @ false, .. } = &mut self.state else {
            return;
        };
        *is_whole = true;
        if let BodyFraming::Length(declared) = head.head().body()
            && declared != self.body.len() as u64
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
