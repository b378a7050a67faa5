//! Resumes a stream.
//!
//! Invariant: the subscription is open before the task is read, so no change is missed in between.
//! If the server numbers its events and the initial task, it gets the number of the last event and
//! sends all later ones. Otherwise the task is compared with the received state. If a server
//! refuses temporarily, the client waits as long as requested; if it rejects the token, the client
//! tries a new one, once; if it cuts each new stream at once, the client polls the task instead; if
//! polling fails too, the stream ends with an error.

use crate::{
    fault::FaultKind,
    model::{Op, ReceivedKind},
};

use super::{
    super::{ClientError, ClientErrorKind, Transport, retry::Backoff},
    MissedEvents, StreamState,
    source::{EventOrigin, SourceRead},
};

/// Maximum attempts to resume without an event or a subscription that lasted. The pauses between
/// them take at most 22.6 s together.
pub(super) const ATTEMPTS_MAX: u32 = 8;

/// Attempts in which the server may not have the task yet.
const LAGS_MAX: u32 = 2;

/// Milliseconds after which a subscription counts as lasting: it has then shown at least as much as
/// polls would have.
const LASTED_MS: u64 = 5_000;

/// The progress of a resumption, stored because the future of `next` may be dropped at any wait.
pub(super) struct Resumption {
    /// Why the stream, or the last attempt, failed.
    last: Option<ClientError>,
    /// When the next attempt begins, once computed.
    due_ms: Option<u64>,
    /// True: a subscription is open, and its first item has not arrived.
    is_open: bool,
    /// True: a token was rejected, and another one is used.
    has_new_token: bool,
}

impl Resumption {
    /// The start for a stream that broke for this reason or, with `None`, ended too early.
    pub fn new(cause: Option<ClientError>) -> Resumption {
        Resumption { last: cause, due_ms: None, is_open: false, has_new_token: false }
    }
}

/// The result of one attempt.
pub(super) enum ResumeOutcome {
    /// The stream is resumed, or the missed changes were read.
    Resumed,
    /// A later attempt may succeed.
    Retry(ClientError),
}

impl<T: Transport> StreamState<T> {
    /// Begins to resume the stream; `cause`: why it broke, `None`: it ended too early.
    pub(super) fn resume(&mut self, cause: Option<ClientError>) -> Result<(), ClientError> {
        self.source = EventOrigin::Nowhere;
        self.opening = None;
        // The stream continues although the server ended it.
        self.is_final = false;
        if self.task.id.is_empty() {
            return Err(cause.unwrap_or_else(ClientError::stream_lost));
        }
        let now_ms = self.client.inner.transport.mono_ms();
        if now_ms.saturating_sub(self.opened_ms) >= LASTED_MS {
            self.attempts = 0;
        }
        // Polls instead if the agent does not stream, if its streams ended early twice, or after
        // the maximum of attempts without an event; a failing poll then returns its error.
        let has_no_streams = self.written.op == Op::Send;
        if has_no_streams || self.attempts >= ATTEMPTS_MAX || cause.is_none() && self.attempts > 1 {
            self.source = EventOrigin::Polling;
            return Ok(());
        }
        self.resumption = Some(Resumption::new(cause));
        Ok(())
    }

    /// Resumes the stream. A dropped attempt is repeated; its subscription is retained.
    pub(super) async fn try_resume(&mut self) -> Result<(), ClientError> {
        while self.attempts < ATTEMPTS_MAX {
            self.pause().await?;
            let outcome = self.attempt().await?;
            self.attempts += 1;
            match outcome {
                ResumeOutcome::Resumed => {
                    self.resumption = None;
                    self.opened_ms = self.client.inner.transport.mono_ms();
                    return Ok(());
                }
                ResumeOutcome::Retry(error) => {
                    if let Some(resumption) = &mut self.resumption {
                        (resumption.last, resumption.due_ms) = (Some(error), None);
                        resumption.is_open = false;
                    }
                }
            }
        }
        let last = self.resumption.take().and_then(|resumption| resumption.last);
        Err(last.unwrap_or_else(ClientError::stream_lost))
    }

    /// Waits before the next attempt, as long as the server requests; before the first attempt only
    /// if the server requests it.
    ///
    /// # Errors
    /// The server's error, if the requested wait is too long.
    async fn pause(&mut self) -> Result<(), ClientError> {
        let Some(resumption) = &mut self.resumption else { return Ok(()) };
        let requested_ms = resumption.last.as_ref().and_then(|error| error.retry_after_ms);
        if self.attempts == 0 && requested_ms.is_none() {
            return Ok(());
        }
        let transport = &self.client.inner.transport;
        let due_ms = resumption.due_ms.or_else(|| {
            let options = &self.client.inner.built.options;
            let backoff = Backoff { attempts_max: u32::MAX, ..options.backoff };
            let (now, random) = (transport.now(), transport.random());
            backoff.next_ms(self.attempts.max(1), requested_ms, random, now, None)
        });
        let Some(due_ms) = due_ms else {
            return Err(resumption.last.take().unwrap_or_else(ClientError::stream_lost));
        };
        resumption.due_ms = Some(due_ms);
        transport.sleep_until(due_ms).await;
        Ok(())
    }

    /// Sets whether the next attempt can use an open subscription.
    fn set_open(&mut self, is_open: bool) {
        if let Some(resumption) = &mut self.resumption {
            resumption.is_open = is_open;
        }
    }

    async fn attempt(&mut self) -> Result<ResumeOutcome, ClientError> {
        let (mut first, mut is_open) = self.first_item().await;
        let is_refused = |first: &Result<SourceRead, ClientError>| {
            first.as_ref().is_err_and(|error| error.kind == ClientErrorKind::Unauthorized)
        };
        if is_refused(&first) && self.forgets_token() {
            (first, is_open) = self.first_item().await;
        }
        match first {
            Ok(SourceRead::Item(number)) => self.continue_from(number).await,
            // Stray events were skipped.
            Ok(SourceRead::End | SourceRead::Poll | SourceRead::Stray(_)) => self.read_task().await,
            // The Python SDK of 0.3 refuses a subscription over HTTP+JSON by closing the
            // connection: the task shows why.
            Err(error)
                if is_open && error.is_connection_lost() && error.retry_after_ms.is_none() =>
            {
                let read = self.read_task().await;
                self.source = EventOrigin::Nowhere;
                read
            }
            Err(error) if error.is_for_now() => Ok(ResumeOutcome::Retry(error)),
            // The task has ended meanwhile, or the server supports no subscriptions.
            Err(error) if rejects_streaming(&error) => self.read_task().await,
            Err(error) => Err(error),
        }
    }

    /// Waits for the first item of the subscription, and opens one if none is open. The flag tells
    /// whether a subscription is open now.
    async fn first_item(&mut self) -> (Result<SourceRead, ClientError>, bool) {
        if self.resumption.as_ref().is_none_or(|resumption| !resumption.is_open) {
            if let Err(error) = self.subscribe().await {
                return (Err(error), false);
            }
            self.set_open(true);
        }
        loop {
            let StreamState { client, endpoint, written, scratch, source, .. } = self;
            match source.next(&client.inner, endpoint, *written, scratch).await {
                Ok(SourceRead::Stray(stray)) => self.skip(stray),
                first => return (first, true),
            }
        }
    }

    /// Drops a rejected token, because it may have been revoked. False: the call had no token, or
    /// the previous token was rejected, too.
    fn forgets_token(&mut self) -> bool {
        let Some(resumption) = &mut self.resumption else { return false };
        if resumption.has_new_token || !self.client.inner.forgets_token(&mut self.scratch) {
            return false;
        }
        (resumption.has_new_token, resumption.is_open) = (true, false);
        self.source = EventOrigin::Nowhere;
        true
    }

    /// Continues with the first item of a new subscription.
    async fn continue_from(&mut self, number: Option<u64>) -> Result<ResumeOutcome, ClientError> {
        let is_task = self.scratch.reply.received.kind() == ReceivedKind::Task;
        match number {
            // A server that repeats its events after the task may send known ones.
            _ if is_task => self.catch_up(number, self.seen.has_newer(number))?,
            // The server numbers its events, and continues at the right number.
            Some(next) if self.seen.continues_at(next) => self.put_back = Some(number),
            _ => return self.catch_up_by_get(number).await,
        }
        Ok(ResumeOutcome::Resumed)
    }

    /// Turns the difference between the received task and the earlier state into events.
    fn catch_up(&mut self, number: Option<u64>, may_repeat: bool) -> Result<(), ClientError> {
        let received = &self.scratch.reply.received;
        let (id, context_id) = (received.task_id(), received.context_id());
        self.task.check(id.unwrap_or_default(), context_id.unwrap_or_default())?;
        let after = self.seen.number();
        let Some(view) = self.scratch.reply.received.task() else { return Ok(()) };
        self.caught.clear();
        if self.seen.catch_up(view, &mut self.caught.events) || may_repeat {
            self.caught.gap = Some(MissedEvents { after, may_repeat });
        }
        self.seen.counted(number);
        Ok(())
    }

    /// Reads the task while a subscription is open that began with an event of an unexpected
    /// number: the client cannot know whether the task includes this event.
    async fn catch_up_by_get(&mut self, number: Option<u64>) -> Result<ResumeOutcome, ClientError> {
        // If this future is dropped, the subscription is lost, and a new one is opened.
        self.set_open(false);
        let first = std::mem::take(&mut self.scratch.reply);
        let (source, written) =
            (std::mem::replace(&mut self.source, EventOrigin::Nowhere), self.written);
        let read = self.get_task().await;
        if let Err(error) = read {
            return if error.is_for_now() { Ok(ResumeOutcome::Retry(error)) } else { Err(error) };
        }
        self.catch_up(None, true)?;
        self.seen.count_from(number);
        (self.scratch.reply, self.source, self.written) = (first, source, written);
        self.put_back = Some(number);
        Ok(ResumeOutcome::Resumed)
    }

    /// Reads the task if no stream is available; polls it until it has ended.
    pub(super) async fn read_task(&mut self) -> Result<ResumeOutcome, ClientError> {
        if !matches!(self.source, EventOrigin::Polling) {
            self.source = EventOrigin::Nowhere;
        }
        match self.get_task().await {
            Ok(()) => {}
            // A replica may lag, but not for long.
            Err(error) if error.fault_kind() == Some(FaultKind::TaskNotFound) => {
                return if self.seen.state().is_some() && self.attempts < LAGS_MAX {
                    Ok(ResumeOutcome::Retry(error))
                } else {
                    Err(error)
                };
            }
            Err(error) if error.may_pass() => return Ok(ResumeOutcome::Retry(error)),
            Err(error) => return Err(error),
        }
        self.catch_up(None, false)?;
        let is_complete = self.is_complete();
        self.is_final |= is_complete;
        self.source = if is_complete { EventOrigin::Nowhere } else { EventOrigin::Polling };
        Ok(ResumeOutcome::Resumed)
    }

    /// Polls the task after a pause; the pauses grow while the task waits for a login, which may
    /// take hours.
    pub(super) async fn poll_task(&mut self) -> Result<(), ClientError> {
        let transport = &self.client.inner.transport;
        let poll_ms = self.client.inner.built.options.poll_ms;
        let pause_ms = poll_ms.saturating_mul(1 << self.login_reads.min(4));
        let due_ms = transport.mono_ms().saturating_add(pause_ms);
        let due_ms = *self.pause_due_ms.get_or_insert(due_ms);
        transport.sleep_until(due_ms).await;
        let outcome = self.read_task().await?;
        self.pause_due_ms = None;
        self.login_reads = if self.waits_for_login() { self.login_reads + 1 } else { 0 };
        match outcome {
            ResumeOutcome::Resumed => {
                self.attempts = 0;
                Ok(())
            }
            // The task can be neither streamed nor read.
            ResumeOutcome::Retry(error) if self.attempts >= ATTEMPTS_MAX => Err(error),
            ResumeOutcome::Retry(error) => {
                self.opened_ms = self.client.inner.transport.mono_ms();
                self.resume(Some(error))
            }
        }
    }
}

/// Whether the server refused to stream: the task has ended (A2A 1.0 §3.1.6), or the server has no
/// streams.
fn rejects_streaming(error: &ClientError) -> bool {
    match error.kind {
        ClientErrorKind::NotDeclared(_) | ClientErrorKind::NotExpressible(_) => true,
        _ => matches!(
            error.fault_kind(),
            Some(
                FaultKind::UnsupportedOperation
                    | FaultKind::StreamingNotSupported
                    | FaultKind::TaskTerminal
                    | FaultKind::MethodNotFound
                    // The Python SDK's error for a task that has ended.
                    | FaultKind::InvalidParams
            )
        ),
    }
}
