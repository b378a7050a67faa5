//! Opens streams: of a sent message, and of an existing task.

use std::{pin::pin, sync::Arc};

use crate::{
    binding::interfaces::Binding,
    model::{Generation, Get, Op, OutgoingCall, RawText, Target, TaskView, Text, uuid},
};

use super::{
    super::{
        Client, ClientError, HttpResponse, SendRequest, Transport,
        client::{InterfaceSearch, not_declared, target},
        endpoint::AgentEndpoint,
        exchange::{Attempts, Written, explained, head_of, within},
        grpc::{self, GrpcStream},
        outgoing_terms::{CallTerms, merged},
        scratch::{CallBuffers, LentBuffers},
        seen::{Seen, TaskChange},
    },
    Caught, ClientStream, FollowedTask, Resumption, StreamState,
    source::{EventOrigin, EventSource},
};

impl<T: Transport> Client<T> {
    /// Sends a message and streams the events of its task (A2A 1.0 §3.1.2).
    ///
    /// # Errors
    /// [`ClientError`]; `NotDeclared` if the card does not declare streaming. The stream returns
    /// `OtherTask` for an event of another task than the request names.
    pub async fn stream(&self, request: &SendRequest) -> Result<ClientStream<T>, ClientError> {
        self.check_streaming()?;
        self.inner.check_push(request.has_push())?;
        let id = uuid(self.inner.transport.random());
        let terms = merged(request.terms(), &self.terms);
        self.open(terms, OpeningCall::Send { request: request.clone(), id }, b"").await
    }

    /// Sends a message and streams the events of its task, even if the agent does not stream: if
    /// the card declares no streaming, or the agent refuses a stream, the task is polled
    /// ([`CallOptions::poll_ms`](crate::client::CallOptions::poll_ms)).
    ///
    /// # Errors
    /// As [`Client::stream`], but never `NotDeclared` for streaming.
    pub async fn follow(&self, request: &SendRequest) -> Result<ClientStream<T>, ClientError> {
        if self.check_streaming().is_ok() {
            match self.stream(request).await {
                Err(error) if error.refuses_stream() => {}
                stream => return stream,
            }
        }
        self.inner.check_push(request.has_push())?;
        let request = self.early(request);
        let terms = merged(request.terms(), &self.terms);
        let id = uuid(self.inner.transport.random());
        self.open(terms, OpeningCall::SendAndPoll { request, id }, b"").await
    }

    /// The request, changed so that it is answered as soon as the task exists. 0.1 cannot express
    /// this: its servers choose when to answer.
    pub fn early(&self, request: &SendRequest) -> SendRequest {
        match self.generation() {
            Generation::V01 => request.clone(),
            Generation::V03 | Generation::V1 => request.clone().return_immediately(),
        }
    }

    /// Streams the events of an existing task (A2A 1.0 §3.1.6), from the event after number `after`
    /// if the server numbers its events, otherwise from now on.
    ///
    /// # Errors
    /// [`ClientError`], such as the fault `UnsupportedOperation` if the task has ended.
    pub async fn subscribe(
        &self,
        task_id: &str,
        after: Option<u64>,
    ) -> Result<ClientStream<T>, ClientError> {
        self.check_streaming()?;
        let mut id = Vec::new();
        Text::from(task_id).push_raw(&mut id);
        self.open(self.terms.clone(), OpeningCall::Subscribe { after }, &id).await
    }

    /// Continues to follow a task from the state `start`, even if the agent does not stream. The
    /// changes since this state come first, as after a break. [`ClientStream::next`] sends the
    /// first request.
    pub fn follow_task(&self, task_id: RawText<'_>, start: TaskView<'_>) -> ClientStream<T> {
        let mut scratch = self.inner.stash.lend();
        scratch.terms.clone_from(&self.terms);
        let streams = self.check_streaming().is_ok();
        let op = if streams { Op::Subscribe } else { Op::Send };
        let written = Written { op, rpc_id: 0, after: None };
        let mut stream = StreamState::closed(self, scratch, written);
        stream.task.id.extend_from_slice(task_id.raw());
        stream.seen.note(TaskChange::Task(start), None);
        match streams {
            true => stream.resumption = Some(Resumption::new(None)),
            false => {
                stream.source = EventOrigin::Polling;
                stream.pause_due_ms = Some(stream.opened_ms);
            }
        }
        ClientStream(stream)
    }

    fn check_streaming(&self) -> Result<(), ClientError> {
        match self.inner.card().capabilities.streaming {
            Some(true) => Ok(()),
            Some(false) | None => Err(not_declared("streaming")),
        }
    }

    async fn open(
        &self,
        terms: CallTerms,
        call: OpeningCall,
        id: &[u8],
    ) -> Result<ClientStream<T>, ClientError> {
        let inner = &self.inner;
        let op = match call {
            OpeningCall::Send { .. } => Op::Stream,
            OpeningCall::SendAndPoll { .. } => Op::Send,
            OpeningCall::Subscribe { .. } => Op::Subscribe,
        };
        let mut scratch = inner.stash.lend();
        let attempts = inner.attempts(terms.as_deref());
        // The terms apply to all calls of the stream.
        scratch.terms = terms;
        let opening =
            OpeningStream { call, attempts, search: InterfaceSearch::default(), next_ms: Some(0) };
        let written = Written { op, rpc_id: 0, after: None };
        let mut stream = StreamState::closed(self, scratch, written);
        stream.task.id.extend_from_slice(id);
        stream.opening = Some(Box::new(opening));
        stream.open().await?;
        stream.name_task();
        Ok(ClientStream(stream))
    }
}

/// The opening of a stream: the call, its attempts, and the time of the next attempt.
pub(super) struct OpeningStream {
    call: OpeningCall,
    attempts: Attempts,
    /// The interfaces that were tried.
    search: InterfaceSearch,
    /// When to open the stream; `None`: it is open, or the opening future was dropped.
    next_ms: Option<u64>,
}

/// The call that opens a stream.
enum OpeningCall {
    /// A message, with this id if it has none.
    Send { request: SendRequest, id: [u8; 36] },
    /// The same, to an agent without streams.
    SendAndPoll { request: SendRequest, id: [u8; 36] },
    /// A subscription to the followed task.
    Subscribe { after: Option<u64> },
}

impl<T: Transport> StreamState<T> {
    /// A stream that is not open and has no opening call.
    #[inline(always)] // The state is large to copy.
    fn closed(client: &Client<T>, scratch: LentBuffers, written: Written) -> Box<StreamState<T>> {
        let inner = &client.inner;
        Box::new(StreamState {
            client: client.clone(),
            endpoint: inner.endpoint(),
            written,
            scratch,
            source: EventOrigin::Nowhere,
            seen: Seen::new(inner.transport.random() as u64, inner.built.limits.artifacts_max),
            task: FollowedTask::default(),
            caught: Caught::default(),
            opening: None,
            put_back: None,
            attempts: 0,
            opened_ms: inner.transport.mono_ms(),
            resumption: None,
            pause_due_ms: None,
            is_over: false,
            is_final: false,
            continues_through_logins: false,
            login_reads: 0,
            repeats: 0,
            has_message: false,
            has_warned: false,
        })
    }

    pub(super) fn is_to_be_opened(&self) -> bool {
        self.opening.as_ref().is_some_and(|opening| opening.next_ms.is_some())
    }

    /// Opens the stream, with safe repetitions, until an item can be read.
    pub(super) async fn open(&mut self) -> Result<(), ClientError> {
        while let Some(next_ms) = self.opening.as_ref().and_then(|opening| opening.next_ms) {
            let transport = &self.client.inner.transport;
            if next_ms > 0 {
                transport.sleep_until(next_ms).await;
            }
            if let Err(error) = self.send_opening().await {
                self.open_again(error)?;
            }
        }
        Ok(())
    }

    /// Records the task that the message names: an answer about another task is an error.
    fn name_task(&mut self) {
        let call = self.opening.as_ref().map(|opening| &opening.call);
        if let Some(OpeningCall::Send { request, .. } | OpeningCall::SendAndPoll { request, .. }) =
            call
            && !self.endpoint.makes_task_each_time()
        {
            self.task.named.extend_from_slice(request.task().unwrap_or_default().raw());
        }
    }

    async fn send_opening(&mut self) -> Result<(), ClientError> {
        let Some(opening) = &mut self.opening else { return Ok(()) };
        // If this future is dropped, the message may have been sent: it is not sent again.
        opening.next_ms = None;
        let CallBuffers { packed, written, terms, .. } = &mut *self.scratch;
        let terms = terms.as_deref();
        let inner = &self.client.inner;
        self.written = match &opening.call {
            OpeningCall::Send { request, id } => {
                inner.write(&self.endpoint, terms, &request.call(true, id, packed), written)?
            }
            OpeningCall::SendAndPoll { request, id } => {
                inner.write(&self.endpoint, terms, &request.call(false, id, packed), written)?
            }
            OpeningCall::Subscribe { after } => {
                let id = RawText::known(&self.task.id);
                let aim = Target { after: *after, ..target(id, None) };
                inner.write(&self.endpoint, terms, &OutgoingCall::Subscribe(aim), written)?
            }
        };
        let due_ms = opening.attempts.due_ms;
        let scratch = &mut self.scratch;
        if self.written.op == Op::Send {
            inner.call(&self.endpoint, self.written, &opening.search, scratch).await?;
            self.source = EventOrigin::Answered;
            return Ok(());
        }
        let opened = open_once(&self.client, &self.endpoint, self.written, scratch, due_ms);
        self.source = opened.await?;
        self.opened_ms = inner.transport.mono_ms();
        Ok(())
    }

    /// Schedules another opening of a rejected stream: with another token, in another version, or
    /// later.
    ///
    /// # Errors
    /// `error`, if another opening cannot help or might do the work twice.
    pub(super) fn open_again(&mut self, error: ClientError) -> Result<(), ClientError> {
        let Some(opening) = &mut self.opening else { return Err(error) };
        let inner = &self.client.inner;
        if !matches!(self.source, EventOrigin::Nowhere) {
            // A head arrived in time, so the next head gets the full time limit again.
            opening.attempts.due_ms = inner.due_ms(self.scratch.terms.as_deref());
            self.source = EventOrigin::Nowhere;
        }
        let error = match inner.change_endpoint(&self.endpoint, error, &mut opening.search) {
            Ok(other) => {
                (self.endpoint, opening.next_ms) = (other, Some(0));
                return Ok(());
            }
            Err(error) => error,
        };
        let (op, generation) = (self.written.op, self.endpoint.interface.generation);
        let scratch = &mut self.scratch;
        match inner.next_attempt_ms(op, generation, &error, &mut opening.attempts, scratch) {
            Some(next_ms) => {
                opening.next_ms = Some(next_ms);
                Ok(())
            }
            None => Err(error),
        }
    }
}

/// Sends a written call and returns the stream in its answer.
async fn open_once<T: Transport>(
    client: &Client<T>,
    endpoint: &Arc<AgentEndpoint>,
    written: Written,
    scratch: &mut CallBuffers,
    due_ms: u64,
) -> Result<EventOrigin<T>, ClientError> {
    let inner = &client.inner;
    if endpoint.interface.binding == Binding::WebSocket {
        let mut session = Box::pin(inner.session(endpoint, scratch, due_ms)).await?;
        let sent = session.send(&scratch.written.body, inner.transport.random());
        within(&inner.transport, due_ms, pin!(sent)).await??;
        return Ok(EventOrigin::Messages(Box::new(session)));
    }
    let mut response = inner.request(endpoint, written, scratch, due_ms).await?;
    if endpoint.interface.binding == Binding::Grpc {
        // gRPC over HTTP/2, "Responses": an immediate refusal has only trailers, sent as its head.
        let is_other = response.status() != 200 || !head_of(&response).may_be_grpc();
        if is_other || response.field("grpc-status").is_some() {
            let ended = grpc::end(endpoint, &response);
            ended.map_err(|error| explained(error, &response, inner.transport.now()))?;
        }
        return Ok(EventOrigin::Rpc(Box::new(GrpcStream::new(response))));
    }
    let is_rest = endpoint.interface.binding == Binding::HttpJson;
    if is_rest && written.op == Op::Subscribe && response.status() == 405 {
        // Wire §10, trap 1: the text of the specification has POST here, its proto GET.
        scratch.written.subscribe_by_get();
        response = inner.request(endpoint, written, scratch, due_ms).await?;
    }
    let head = head_of(&response);
    if head.is_success() && head.is_event_stream() {
        scratch.input.clear();
        let events = EventSource::new(response, inner.built.limits.event_bytes_max);
        return Ok(EventOrigin::Events(Box::new(events)));
    }
    inner.read_answer(endpoint, written, &mut response, scratch, due_ms).await?;
    Ok(EventOrigin::Answered)
}

impl<T: Transport> StreamState<T> {
    /// Opens a subscription as the new source.
    pub(super) async fn subscribe(&mut self) -> Result<(), ClientError> {
        let after = self.seen.resume_number();
        let aim = Target { after, ..target(RawText::known(&self.task.id), None) };
        let call = OutgoingCall::Subscribe(aim);
        let inner = &self.client.inner;
        let CallBuffers { written, terms, .. } = &mut *self.scratch;
        self.written = inner.write(&self.endpoint, terms.as_deref(), &call, written)?;
        let due_ms = inner.due_ms(self.scratch.terms.as_deref());
        let scratch = &mut self.scratch;
        let opened = open_once(&self.client, &self.endpoint, self.written, scratch, due_ms);
        self.source = opened.await?;
        Ok(())
    }

    /// Reads the task into the scratch.
    pub(super) async fn get_task(&mut self) -> Result<(), ClientError> {
        let (id, history) = (RawText::known(&self.task.id), None);
        let context_id = Some(RawText::known(&self.task.context_id)).filter(|id| !id.is_empty());
        let call = OutgoingCall::Get(Get { id, context_id, history, wait: None });
        let inner = &self.client.inner;
        let CallBuffers { written, terms, .. } = &mut *self.scratch;
        self.written = inner.write(&self.endpoint, terms.as_deref(), &call, written)?;
        let search = InterfaceSearch::over();
        inner.call(&self.endpoint, self.written, &search, &mut self.scratch).await
    }
}

impl FollowedTask {
    /// Records the task of the first item, and rejects items of another task. Empty ids are
    /// ignored.
    pub(super) fn check(
        &mut self,
        id: RawText<'_>,
        context_id: RawText<'_>,
    ) -> Result<(), ClientError> {
        let expected = if self.id.is_empty() { &self.named } else { &self.id };
        let has_ids = !expected.is_empty() && !id.is_empty();
        if has_ids && RawText::known(expected) != id {
            return Err(ClientError::of_another_task());
        }
        if self.context_id.is_empty() {
            self.context_id = context_id.raw().to_vec();
        }
        if self.id.is_empty() {
            self.id = id.raw().to_vec();
        }
        Ok(())
    }
}
