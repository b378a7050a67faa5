//! The services that every gRPC server has: health, and reflection.

use std::{future::poll_fn, task::Poll};

use bytes::Bytes;

use crate::{
    binding::grpc::{
        self, Code, Rpc, Status,
        health::{self, Serving},
        reflection,
    },
    fault::Fault,
    net::wheel::NEVER,
    permits::Permit,
};

use super::{
    Http2Shared, earlier,
    grpc::{End, GrpcCall, initial},
    message::{Messages, NoMessage, late},
    send::{send, take, take_piece},
};

impl GrpcCall {
    /// `grpc.health.v1.Health`.
    pub(super) async fn health(&mut self, rpc: Rpc, mut messages: Messages) -> Result<(), End> {
        let message = messages.only(&mut self.deadline, self.due_ms).await?;
        let is_known = health::is_known(&message).map_err(End::Status)?;
        // Whoever watches may wait for long; what it asked with is not held meanwhile.
        drop((message, messages));
        let look = |shared: &Http2Shared| Serving::of(is_known, shared.engine().is_draining());
        let mut serving = look(&self.shared);
        let mut out = Vec::new();
        health::push(&mut out, serving);
        if let Rpc::HealthCheck = rpc {
            if serving == Serving::Unknown {
                return Err(End::Status(health::no_service()));
            }
            return self.answered(take(&mut out, &self.shared)?).await;
        }
        let permit = self.permit()?;
        let mut stream = self.respond.send_response(initial(), false).map_err(|_| End::Gone)?;
        loop {
            let due_ms = self.due_ms.unwrap_or(NEVER);
            let news = take_piece(&mut out, &self.shared)?;
            send(&mut stream, news, false, &self.shared, &mut self.deadline, due_ms).await?;
            let GrpcCall { shared, deadline, due_ms, .. } = self;
            let status = poll_fn(|cx| {
                let now = look(shared);
                if stream.poll_reset(cx).is_ready() {
                    return Poll::Ready(Err(End::Gone));
                }
                if now != serving {
                    serving = now;
                    return Poll::Ready(Ok(None));
                }
                if due_ms.is_some_and(|due_ms| shared.local.clock.now().mono_ms >= due_ms) {
                    return Poll::Ready(Ok(Some(late())));
                }
                if shared.engine().is_cut() {
                    let status = Status::new(Code::Unavailable, "the server is shutting down");
                    return Poll::Ready(Ok(Some(status)));
                }
                deadline.arm(cx, due_ms.unwrap_or(NEVER));
                Poll::Pending
            });
            match status.await? {
                None => health::push(&mut out, serving),
                Some(status) => {
                    drop(permit);
                    return self.finish(&mut stream, Bytes::new(), &status).await;
                }
            }
        }
    }

    /// A place among the open streams.
    fn permit(&self) -> Result<Permit, End> {
        let shared = &self.shared;
        let permit = shared.engine().config.streams.permit(shared.local.worker);
        let refused = || grpc::status_of(&Fault::at_limit("streams_max"));
        permit.ok_or_else(|| End::Status(refused()))
    }

    /// `ServerReflectionInfo`: an answer to each question until the client ends.
    pub(super) async fn reflection(&mut self, mut messages: Messages) -> Result<(), End> {
        let _permit = self.permit()?;
        let mut stream = self.respond.send_response(initial(), false).map_err(|_| End::Gone)?;
        messages.rest();
        let mut out = Vec::new();
        loop {
            let idle_ms =
                self.shared.local.clock.now().mono_ms + self.shared.limits().keep_alive_idle_ms;
            let due_ms = earlier(self.due_ms, Some(idle_ms));
            let status = match messages.next(&mut self.deadline, Some(due_ms)).await {
                Ok(message) => match reflection::answer(&mut out, &message) {
                    Ok(()) => {
                        drop(message);
                        let answer = take_piece(&mut out, &self.shared)?;
                        let GrpcCall { shared, deadline, .. } = self;
                        let sending = send(&mut stream, answer, false, shared, deadline, due_ms);
                        let _ = messages.beside(sending).await??;
                        continue;
                    }
                    Err(status) => status,
                },
                Err(NoMessage::End) => Status::OK,
                Err(NoMessage::Status(status)) => status,
                Err(NoMessage::Gone) => return Err(End::Gone),
            };
            return self.finish(&mut stream, Bytes::new(), &status).await;
        }
    }
}
