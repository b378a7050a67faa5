//! Taking a stream up again.
//!
//! Invariant: the subscription is there before the task is read, so nothing falls between the two.
//! Where the server counts, its task included, it is told the number of the last event, and what it
//! sends from there on is all that was missed. Anything else is compared with what was seen. A
//! server that refuses for now is asked again, when it says; one that refuses the token is asked
//! with a new one, once; one that takes the stream up but cuts it again at once is asked for the
//! task instead; one that does neither is given up.

use crate::{
    fault::FaultKind,
    model::{Op, ReceivedKind},
};

use super::{
    super::{ClientError, ClientErrorKind, Transport, retry::Backoff},
    MissedEvents, StreamState,
    source::{EventOrigin, SourceRead},
};

/// Times that a stream is taken up without an event in between, or a subscription that lasted. The
/// pauses between them are 22.6 s together, at most.
pub(super) const ATTEMPTS_MAX: u32 = 8;

/// Attempts in which the server may not know the task.
const LAGS_MAX: u32 = 2;

/// Milliseconds after which a subscription has lasted: it has said more than looks at the task
/// would have, if only that nothing happens.
const LASTED_MS: u64 = 5_000;

/// How far the taking-up of a stream is: `next` may be dropped wherever it waits.
pub(super) struct TakingUp {
    /// Why there is no connection.
    last: Option<ClientError>,
    /// When the next attempt begins, once that is known.
    due_ms: Option<u64>,
    /// True: there is a subscription, whose first item has not come.
    is_open: bool,
    /// True: a token was refused, and another one is used.
    has_new_token: bool,
}

impl TakingUp {
    /// Of a stream that broke for this reason, or ended too early.
    pub fn new(cause: Option<ClientError>) -> TakingUp {
        TakingUp { last: cause, due_ms: None, is_open: false, has_new_token: false }
    }
}

/// What came of one attempt.
pub(super) enum Taken {
    /// The stream goes on, or what was missed is there.
    Goes,
    /// Later perhaps.
    NotNow(ClientError),
}

impl<T: Transport> StreamState<T> {
    /// The stream is to be taken up again; `cause`: why it broke, `None`: it ended too early.
    pub(super) fn resume(&mut self, cause: Option<ClientError>) -> Result<(), ClientError> {
        self.source = EventOrigin::Nowhere;
        self.opening = None;
        // The end of a stream that is followed beyond it.
        self.is_final = false;
        if self.task.id.is_empty() {
            return Err(cause.unwrap_or_else(ClientError::stream_lost));
        }
        let now_ms = self.client.inner.transport.mono_ms();
        if now_ms.saturating_sub(self.opened_ms) >= LASTED_MS {
            self.attempts = 0;
        }
        // A server that ends its streams early twice has nothing to say in them, and one that was
        // taken up so often without a word reports it to its caller.
        let has_no_streams = self.written.op == Op::Send;
        if has_no_streams || self.attempts >= ATTEMPTS_MAX || cause.is_none() && self.attempts > 1 {
            self.source = EventOrigin::Polling;
            return Ok(());
        }
        self.taking_up = Some(TakingUp::new(cause));
        Ok(())
    }

    /// Takes the stream up again. An attempt that was dropped is made anew; a subscription that it
    /// had is kept.
    pub(super) async fn take_up(&mut self) -> Result<(), ClientError> {
        while self.attempts < ATTEMPTS_MAX {
            self.pause().await?;
            let taken = self.attempt().await?;
            self.attempts += 1;
            match taken {
                Taken::Goes => {
                    self.taking_up = None;
                    self.opened_ms = self.client.inner.transport.mono_ms();
                    return Ok(());
                }
                Taken::NotNow(error) => {
                    if let Some(taking_up) = &mut self.taking_up {
                        (taking_up.last, taking_up.due_ms) = (Some(error), None);
                        taking_up.is_open = false;
                    }
                }
            }
        }
        let last = self.taking_up.take().and_then(|taking_up| taking_up.last);
        Err(last.unwrap_or_else(ClientError::stream_lost))
    }

    /// Waits before the next attempt, as long as the server asks; before the first only if it does.
    ///
    /// # Errors
    /// What the server said that wants to be waited for too long.
    async fn pause(&mut self) -> Result<(), ClientError> {
        let Some(taking_up) = &mut self.taking_up else { return Ok(()) };
        let asked_ms = taking_up.last.as_ref().and_then(|error| error.retry_after_ms);
        if self.attempts == 0 && asked_ms.is_none() {
            return Ok(());
        }
        let transport = &self.client.inner.transport;
        let due_ms = taking_up.due_ms.or_else(|| {
            let options = &self.client.inner.built.options;
            let backoff = Backoff { attempts_max: u32::MAX, ..options.backoff };
            let (now, random) = (transport.now(), transport.random());
            backoff.next_ms(self.attempts.max(1), asked_ms, random, now, None)
        });
        let Some(due_ms) = due_ms else {
            return Err(taking_up.last.take().unwrap_or_else(ClientError::stream_lost));
        };
        taking_up.due_ms = Some(due_ms);
        transport.sleep_until(due_ms).await;
        Ok(())
    }

    /// Says whether there is a subscription that an attempt may go on with.
    fn set_open(&mut self, is_open: bool) {
        if let Some(taking_up) = &mut self.taking_up {
            taking_up.is_open = is_open;
        }
    }

    async fn attempt(&mut self) -> Result<Taken, ClientError> {
        let (mut first, mut is_open) = self.first_item().await;
        let is_refused = |first: &Result<SourceRead, ClientError>| {
            first.as_ref().is_err_and(|error| error.kind == ClientErrorKind::Unauthorized)
        };
        if is_refused(&first) && self.forgets_token() {
            (first, is_open) = self.first_item().await;
        }
        match first {
            Ok(SourceRead::Item(number)) => self.go_on(number).await,
            // What is stray was skipped.
            Ok(SourceRead::End | SourceRead::Poll | SourceRead::Stray(_)) => self.read_task().await,
            // Python's SDK of 0.3 refuses so over HTTP+JSON: the task says why.
            Err(error)
                if is_open && error.is_connection_lost() && error.retry_after_ms.is_none() =>
            {
                let read = self.read_task().await;
                self.source = EventOrigin::Nowhere;
                read
            }
            Err(error) if error.is_for_now() => Ok(Taken::NotNow(error)),
            // The task has ended meanwhile, or no client can subscribe there.
            Err(error) if says_no_stream(&error) => self.read_task().await,
            Err(error) => Err(error),
        }
    }

    /// Waits for the first item of a subscription, which is made if there is none; whether there is
    /// one now.
    async fn first_item(&mut self) -> (Result<SourceRead, ClientError>, bool) {
        if self.taking_up.as_ref().is_none_or(|taking_up| !taking_up.is_open) {
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

    /// Forgets the token that was refused, whether at once or by the first item: it may have been
    /// withdrawn. False: there was none, or the one before it was refused as well.
    fn forgets_token(&mut self) -> bool {
        let Some(taking_up) = &mut self.taking_up else { return false };
        if taking_up.has_new_token || !self.client.inner.forgets_token(&mut self.scratch) {
            return false;
        }
        (taking_up.has_new_token, taking_up.is_open) = (true, false);
        self.source = EventOrigin::Nowhere;
        true
    }

    /// Goes on with the first item of a new subscription.
    async fn go_on(&mut self, number: Option<u64>) -> Result<Taken, ClientError> {
        let is_task = self.scratch.said.received.kind() == ReceivedKind::Task;
        match number {
            // All that a server says over again from its task on may be known.
            _ if is_task => self.catch_up(number, self.seen.is_behind(number))?,
            // It counts, and goes on where it was.
            Some(next) if self.seen.goes_on_with(next) => self.put_back = Some(number),
            _ => return self.catch_up_beside(number).await,
        }
        Ok(Taken::Goes)
    }

    /// Makes events of what the received task has beyond what was seen.
    fn catch_up(&mut self, number: Option<u64>, may_repeat: bool) -> Result<(), ClientError> {
        let received = &self.scratch.said.received;
        let (id, context_id) = (received.task_id(), received.context_id());
        self.task.check(id.unwrap_or_default(), context_id.unwrap_or_default())?;
        let after = self.seen.number();
        let Some(view) = self.scratch.said.received.task() else { return Ok(()) };
        self.caught.clear();
        if self.seen.catch_up(view, &mut self.caught.events) || may_repeat {
            self.caught.gap = Some(MissedEvents { after, may_repeat });
        }
        self.seen.counted(number);
        Ok(())
    }

    /// Reads the task beside a subscription that began with an event, and not with the next one by
    /// its number: it may be part of what is read, and this cannot be known.
    async fn catch_up_beside(&mut self, number: Option<u64>) -> Result<Taken, ClientError> {
        // When this is dropped the subscription is lost, and another is made.
        self.set_open(false);
        let first = std::mem::take(&mut self.scratch.said);
        let (source, written) =
            (std::mem::replace(&mut self.source, EventOrigin::Nowhere), self.written);
        let read = self.get_task().await;
        if let Err(error) = read {
            return if error.is_for_now() { Ok(Taken::NotNow(error)) } else { Err(error) };
        }
        self.catch_up(None, true)?;
        self.seen.count_from(number);
        (self.scratch.said, self.source, self.written) = (first, source, written);
        self.put_back = Some(number);
        Ok(Taken::Goes)
    }

    /// Reads the task where no stream is to be had; while it goes on it is read again and again.
    pub(super) async fn read_task(&mut self) -> Result<Taken, ClientError> {
        if !matches!(self.source, EventOrigin::Polling) {
            self.source = EventOrigin::Nowhere;
        }
        match self.get_task().await {
            Ok(()) => {}
            // A replica may lag behind, but not for long.
            Err(error) if error.fault_kind() == Some(FaultKind::TaskNotFound) => {
                return if self.seen.state().is_some() && self.attempts < LAGS_MAX {
                    Ok(Taken::NotNow(error))
                } else {
                    Err(error)
                };
            }
            Err(error) if error.may_pass() => return Ok(Taken::NotNow(error)),
            Err(error) => return Err(error),
        }
        self.catch_up(None, false)?;
        let is_complete = self.is_complete();
        self.is_final |= is_complete;
        self.source = if is_complete { EventOrigin::Nowhere } else { EventOrigin::Polling };
        Ok(Taken::Goes)
    }

    /// Reads the task again, after a while: a login may take hours, and is waited for by fewer and
    /// fewer looks.
    pub(super) async fn poll_task(&mut self) -> Result<(), ClientError> {
        let transport = &self.client.inner.transport;
        let poll_ms = self.client.inner.built.options.poll_ms;
        let pause_ms = poll_ms.saturating_mul(1 << self.login_reads.min(4));
        let due_ms = transport.mono_ms().saturating_add(pause_ms);
        let due_ms = *self.pause_due_ms.get_or_insert(due_ms);
        transport.sleep_until(due_ms).await;
        let taken = self.read_task().await?;
        self.pause_due_ms = None;
        self.login_reads = if self.waits_for_login() { self.login_reads + 1 } else { 0 };
        match taken {
            Taken::Goes => {
                self.attempts = 0;
                Ok(())
            }
            // It can be neither followed nor read.
            Taken::NotNow(error) if self.attempts >= ATTEMPTS_MAX => Err(error),
            Taken::NotNow(error) => {
                self.opened_ms = self.client.inner.transport.mono_ms();
                self.resume(Some(error))
            }
        }
    }
}

/// The server refused to stream: the task has ended (A2A 1.0 §3.1.6), or it has no streams.
fn says_no_stream(error: &ClientError) -> bool {
    match error.kind {
        ClientErrorKind::NotDeclared(_) | ClientErrorKind::NotExpressible(_) => true,
        _ => matches!(
            error.fault_kind(),
            Some(
                FaultKind::UnsupportedOperation
                    | FaultKind::StreamingNotSupported
                    | FaultKind::TaskTerminal
                    | FaultKind::MethodNotFound
                    // What the Python SDK says of a task that has ended.
                    | FaultKind::InvalidParams
            )
        ),
    }
}
