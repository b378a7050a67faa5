//! Authentication of a request: started when its head has arrived, and polled until it is decided.

#[cfg(feature = "grpc")]
use std::net::IpAddr;
use std::task::Poll;

use super::{Exchange, ExchangeState};
use crate::{
    binding::admission::LATE,
    engine::{
        Cx,
        request::{self, RequestCx},
    },
    limits::callers::ADMISSION_MS_MAX,
    service::Now,
};
#[cfg(feature = "grpc")]
use crate::{engine::Engine, service::Peer};

impl Exchange {
    /// True: the credential of the request is not checked yet, or the refusal is delayed. The body
    /// is not read until then.
    #[cfg(feature = "grpc")]
    pub(crate) fn is_admitting(&self) -> bool {
        match &self.state {
            ExchangeState::Body { caller: None, .. } => true,
            ExchangeState::NotAdmitted(_, refused) => refused.delay.is_some(),
            _ => false,
        }
    }

    /// True: the connection of the request must close after the answer.
    #[cfg(feature = "grpc")]
    pub(crate) fn closes_connection(&self) -> bool {
        self.closes
    }

    /// True: the refusal of the request is delayed.
    pub(super) fn refusal_waits(&self, now: Now) -> bool {
        match &self.state {
            ExchangeState::NotAdmitted(_, refused) => {
                refused.delay.as_ref().is_some_and(|delay| now.mono_ms < delay.due_ms)
            }
            _ => false,
        }
    }

    /// The client's address, until the request is handled.
    #[cfg(feature = "grpc")]
    pub(crate) fn address(&self, engine: &Engine, peer: Peer<'_>) -> Option<IpAddr> {
        let ExchangeState::Body { head, .. } = &self.state else { return None };
        request::asking(engine, peer, true).address(&head.head())
    }

    /// The client that trusted proxies name, until the request is handled.
    #[cfg(feature = "grpc")]
    pub(crate) fn forwarded(&self, engine: &Engine, peer: Peer<'_>) -> Option<IpAddr> {
        let (ExchangeState::Body { head, .. } | ExchangeState::NotAdmitted(head, _)) = &self.state
        else {
            return None;
        };
        request::asking(engine, peer, true).forwarded(&head.head())
    }

    /// True: the request was admitted, and its caller is authenticated.
    #[cfg(feature = "grpc")]
    pub(crate) fn has_caller(&self) -> bool {
        matches!(&self.state, ExchangeState::Body { caller: Some(Some(_)), .. })
    }

    /// Authenticates the caller of the request, or refuses the request; false: not decided yet.
    pub(super) fn admit(&mut self, cx: &mut Cx<'_>) -> bool {
        let ExchangeState::Body { head, is_whole, caller: caller @ None } = &mut self.state else {
            return true;
        };
        let asking = request::asking(cx.engine, cx.peer, self.parts.takes_trailers());
        let recent = &mut cx.worker.scratch.callers;
        let refusal = match asking.admit(&head.head(), recent, cx.now, cx.wake) {
            Poll::Ready(Ok(admission)) => {
                if asking.ignores_body(&head.head(), &admission) {
                    (*is_whole, self.body) = (true, Vec::new());
                }
                *caller = Some(admission);
                // The time limit of the body starts now.
                self.since_ms = cx.now.mono_ms;
                return true;
            }
            Poll::Ready(Err(refusal)) => refusal,
            Poll::Pending if cx.now.mono_ms < self.since_ms + ADMISSION_MS_MAX => return false,
            Poll::Pending => LATE.into(),
        };
        let state = std::mem::replace(&mut self.state, ExchangeState::Written);
        if let ExchangeState::Body { head, .. } = state {
            self.state = ExchangeState::NotAdmitted(head, refusal);
        }
        self.body = Vec::new();
        true
    }

    /// Answers a request that is not admitted.
    pub(super) fn refuse_caller(&mut self, cx: &mut Cx<'_>) {
        let state = std::mem::replace(&mut self.state, ExchangeState::Written);
        let ExchangeState::NotAdmitted(filed, refused) = state else { return };
        self.closes |= refused.delay.is_some();
        let head = &filed.head();
        let at = RequestCx::of(cx, head);
        let (scratch, parts) = (&mut cx.worker.scratch, Some(&mut self.parts));
        request::refuse(at, scratch, cx.out, parts, &refused.refusal);
        cx.worker.heads.reuse(filed);
    }
}
