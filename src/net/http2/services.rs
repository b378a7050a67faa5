//! The services that every gRPC server has in addition to A2A: health and reflection.
//!
//! Invariant: a call of these services starts when its head was checked, like every call, but does
//! not wait for other answers: a connection that does not read its answers still gets the server's
//! health. Two of the calls are streams that last as long as the client wants; they need no
//! authentication, and so have separate permits.

use std::{future::poll_fn, net::IpAddr, rc::Rc, task::Poll};

use h2::{SendStream, server::SendResponse};
use http::{HeaderValue, Response, header::CONTENT_TYPE};

use crate::{
    auth::{CallerPermit, PermitKind},
    binding::grpc::{
        self, Code, Rpc, Status,
        frame::ACCEPTED_ENCODINGS,
        health::{self, Serving},
        reflection,
    },
    fault::Fault,
    http::media,
    net::wheel::NEVER,
    permits::Permit,
};

use super::{
    CallGuard, Http2Shared,
    body::Body,
    deadline::{Deadline, earlier},
    fields::{ACCEPT_ENCODING, trailers},
    message::{Messages, NoMessage},
    send::{Outgoing, Sending, StreamFailed, take_piece},
};

/// A call of these services with a valid head.
pub(super) struct ServiceCall {
    guard: CallGuard,
    respond: SendResponse<Outgoing>,
    deadline: Deadline,
    /// The client's deadline.
    due_ms: Option<u64>,
    /// The peer's address.
    address: Option<IpAddr>,
}

/// The permits of a stream: of all streams of these services, and of the streams of its peer.
type StreamPermits = (Permit, Option<CallerPermit>);

/// How a call ends: with a status, or without one because its stream has failed.
enum End {
    Status(Status),
    Failed,
}

impl From<StreamFailed> for End {
    fn from(_: StreamFailed) -> End {
        End::Failed
    }
}

impl From<NoMessage> for End {
    fn from(no_message: NoMessage) -> End {
        match no_message {
            NoMessage::End => End::Status(Status::OK),
            NoMessage::Status(status) => End::Status(status),
            NoMessage::Failed => End::Failed,
        }
    }
}

/// Returns the call of these services at this path.
pub(super) fn rpc_at(path: &str) -> Option<Rpc> {
    // A cheap test first, because most paths belong to other calls.
    if path.starts_with("/grpc.") { grpc::rpc(path) } else { None }
}

impl ServiceCall {
    pub(super) fn new(
        guard: CallGuard,
        respond: SendResponse<Outgoing>,
        due_ms: Option<u64>,
        address: Option<IpAddr>,
    ) -> ServiceCall {
        ServiceCall { guard, respond, deadline: Deadline::default(), due_ms, address }
    }

    /// Answers the call, with its messages in `body`.
    pub(super) async fn answer(mut self, rpc: Rpc, body: Body) {
        let messages = Messages::new(body, &self.guard.shared);
        let end = match rpc {
            Rpc::Reflection => self.reflection(messages).await,
            Rpc::HealthCheck | Rpc::HealthWatch | Rpc::A2a(_) => self.health(rpc, messages).await,
        };
        if let Err(End::Status(status)) = end {
            self.refuse(&status);
        }
    }

    fn shared(&self) -> Rc<Http2Shared> {
        Rc::clone(&self.guard.shared)
    }

    /// Begins the answer.
    fn open(&mut self) -> Result<SendStream<Outgoing>, End> {
        self.respond.send_response(initial(), false).map_err(|_| End::Failed)
    }

    /// Ends a call that has sent nothing, with a trailers-only response.
    fn refuse(&mut self, status: &Status) {
        let mut response = initial();
        response.headers_mut().extend(trailers(status.fields().get()));
        // A client that left needs no answer.
        let _ = self.respond.send_response(response, true);
    }

    /// Takes the permits of a stream. These are not permits of calls, because callers are not
    /// authenticated here.
    fn permits(&self) -> Result<StreamPermits, End> {
        let shared = &self.guard.shared;
        let config = &shared.engine().config;
        let full = |limit| {
            config.report_limit(shared.local.worker, Some(limit), None);
            End::Status(grpc::status_of(&Fault::at_limit(limit)))
        };
        let of_peer = self.address.map(|address| {
            let most = u32::try_from(config.limits.service_streams_peer_max).unwrap_or(u32::MAX);
            let accounts = &config.access.accounts;
            let account = accounts.of_services(address, shared.local.now());
            CallerPermit::take(PermitKind::Stream, &account, most)
                .ok_or_else(|| full("service_streams_peer_max"))
        });
        let of_peer = of_peer.transpose()?;
        let permit = config.service_streams.permit(shared.local.worker);
        Ok((permit.ok_or_else(|| full("service_streams_max"))?, of_peer))
    }

    /// Sends a message; false: the deadline passed before all bytes were sent.
    async fn send(
        &mut self,
        stream: &mut SendStream<Outgoing>,
        message: Outgoing,
        due_ms: u64,
    ) -> Result<bool, StreamFailed> {
        let ServiceCall { guard, deadline, .. } = self;
        let mut sending = Sending::new(message, false, &guard.shared);
        poll_fn(|cx| sending.poll(cx, stream, &guard.shared, deadline, due_ms)).await
    }

    /// `grpc.health.v1.Health`.
    async fn health(&mut self, rpc: Rpc, mut messages: Messages) -> Result<(), End> {
        let message = messages.only(&mut self.deadline, self.due_ms).await?;
        let is_known = health::is_known(&message).map_err(End::Status)?;
        // A watcher may wait for long; its request is not retained meanwhile.
        drop((message, messages));
        let shared = self.shared();
        let look = || Serving::of(is_known, shared.engine().is_draining());
        let (mut serving, mut out) = (look(), Vec::new());
        let due_ms = self.due_ms.unwrap_or(NEVER);
        health::push(&mut out, serving);
        if let Rpc::HealthCheck = rpc {
            if serving == Serving::Unknown {
                return Err(End::Status(health::no_service()));
            }
            let mut stream = self.open()?;
            let in_time = self.send(&mut stream, Outgoing::Part(out.into()), due_ms).await?;
            return end(&mut stream, &if in_time { Status::OK } else { Status::late() });
        }
        let permits = self.permits()?;
        let mut stream = self.open()?;
        loop {
            let news = take_piece(&mut out, &shared)?;
            self.send(&mut stream, news, due_ms).await?;
            let status = poll_fn(|cx| {
                if stream.poll_reset(cx).is_ready() {
                    return Poll::Ready(Err(End::Failed));
                }
                let now = look();
                if now != serving {
                    serving = now;
                    return Poll::Ready(Ok(None));
                }
                if shared.now_ms() >= due_ms {
                    return Poll::Ready(Ok(Some(Status::late())));
                }
                if shared.engine().is_cut() {
                    let status = Status::new(Code::Unavailable, "the server is shutting down");
                    return Poll::Ready(Ok(Some(status)));
                }
                self.deadline.arm(cx, &shared.local, due_ms);
                Poll::Pending
            });
            match status.await? {
                None => health::push(&mut out, serving),
                Some(status) => {
                    drop(permits);
                    return end(&mut stream, &status);
                }
            }
        }
    }

    /// `ServerReflectionInfo`: an answer to each request until the client ends its side.
    async fn reflection(&mut self, mut messages: Messages) -> Result<(), End> {
        let _permit = self.permits()?;
        let (shared, mut stream) = (self.shared(), self.open()?);
        messages.rest();
        let mut out = Vec::new();
        loop {
            let idle_ms = shared.now_ms() + shared.limits().keep_alive_idle_ms;
            let due_ms = earlier(self.due_ms, Some(idle_ms));
            let status = match messages.next(&mut self.deadline, Some(due_ms)).await {
                Ok(message) => match reflection::answer(&mut out, &message) {
                    Ok(()) => {
                        drop(message);
                        let answer = take_piece(&mut out, &shared)?;
                        let sending = self.send(&mut stream, answer, due_ms);
                        let _ = messages.receive_during(sending).await??;
                        continue;
                    }
                    Err(status) => status,
                },
                Err(NoMessage::End) => Status::OK,
                Err(NoMessage::Status(status)) => status,
                Err(NoMessage::Failed) => return Err(End::Failed),
            };
            return end(&mut stream, &status);
        }
    }
}

/// The initial metadata of an answer.
fn initial() -> Response<()> {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media::GRPC));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED_ENCODINGS));
    response
}

/// Ends a stream.
fn end(stream: &mut SendStream<Outgoing>, status: &Status) -> Result<(), End> {
    stream.send_trailers(trailers(status.fields().get())).map_err(|_| End::Failed)
}
