//! Opening streams: of a message that is sent, and of a task that is there.

use std::sync::Arc;

use crate::{
    binding::interfaces::Binding,
    model::{Get, Op, OutgoingCall, RawText, Target, Text, uuid},
};

use super::{
    super::{
        Client, ClientError, ClientErrorKind, HttpResponse, SendRequest, Transport,
        client::{MakeCall, not_declared, target},
        endpoint::AgentEndpoint,
        exchange::{Written, head_of, within},
        grpc::GrpcStream,
        scratch::CallBuffers,
        seen::Seen,
    },
    Caught, ClientStream, FollowedTask,
    source::{EventOrigin, EventSource},
};

impl<T: Transport> Client<T> {
    /// Sends a message and follows what comes of it (A2A 1.0 §3.1.2).
    ///
    /// # Errors
    /// [`ClientError`]; `NotDeclared` when the card says that the agent does not stream.
    pub async fn stream(&self, request: &SendRequest) -> Result<ClientStream<T>, ClientError> {
        self.check_streaming()?;
        self.inner.check_push(request.has_push())?;
        let id = uuid(self.inner.transport.random());
        self.open(&|packed, write| write(&request.call(true, &id, packed)), b"").await
    }

    /// Follows a task that is there (A2A 1.0 §3.1.6), from the event behind number `after` where
    /// the server counts, else from now on.
    ///
    /// # Errors
    /// [`ClientError`]; `UnsupportedOperation` among its faults when the task has ended.
    pub async fn subscribe(
        &self,
        task_id: &str,
        after: Option<u64>,
    ) -> Result<ClientStream<T>, ClientError> {
        self.check_streaming()?;
        let mut id = Vec::new();
        Text::from(task_id).push_raw(&mut id);
        let aim = Target { after, ..target(RawText::known(&id), None) };
        self.open(&|_, write| write(&OutgoingCall::Subscribe(aim)), &id).await
    }

    fn check_streaming(&self) -> Result<(), ClientError> {
        match self.inner.card().capabilities.streaming {
            Some(true) => Ok(()),
            Some(false) | None => Err(not_declared("streaming")),
        }
    }

    async fn open(
        &self,
        make: &MakeCall<'_>,
        task_id: &[u8],
    ) -> Result<ClientStream<T>, ClientError> {
        let inner = &self.inner;
        let mut scratch = inner.stash.lend();
        let (mut endpoint, mut has_changed) = (inner.endpoint(), false);
        let (written, source) = loop {
            let CallBuffers { packed, written, .. } = &mut *scratch;
            let written = make(packed, &mut |call| inner.write(&endpoint, call, written))?;
            match open_source(self, &endpoint, written, &mut scratch).await {
                Ok(source) => break (written, source),
                Err(error) if has_changed => return Err(error),
                Err(error) => {
                    endpoint = inner.change_version(&endpoint, error)?;
                    has_changed = true;
                }
            }
        };
        let artifacts_max = inner.built.limits.artifacts_max;
        Ok(ClientStream {
            client: self.clone(),
            endpoint,
            written,
            scratch,
            source,
            seen: Seen::new(inner.transport.random(), artifacts_max),
            task: FollowedTask { id: task_id.to_vec(), context_id: Vec::new() },
            caught: Caught::default(),
            put_back: None,
            attempts: 0,
            opened_ms: inner.transport.mono_ms(),
            taking_up: None,
            pause_due_ms: None,
            is_over: false,
            is_final: false,
        })
    }
}

/// Sends what was written, and gives the stream that it is answered with. Where the token is
/// refused it may have been withdrawn, and a new one is tried once.
async fn open_source<T: Transport>(
    client: &Client<T>,
    endpoint: &Arc<AgentEndpoint>,
    written: Written,
    scratch: &mut CallBuffers,
) -> Result<EventOrigin<T>, ClientError> {
    let opened = open_once(client, endpoint, written, scratch).await;
    match opened {
        Err(error)
            if error.kind == ClientErrorKind::Unauthorized
                && client.inner.forgets_token(scratch) =>
        {
            open_once(client, endpoint, written, scratch).await
        }
        opened => opened,
    }
}

async fn open_once<T: Transport>(
    client: &Client<T>,
    endpoint: &Arc<AgentEndpoint>,
    written: Written,
    scratch: &mut CallBuffers,
) -> Result<EventOrigin<T>, ClientError> {
    let inner = &client.inner;
    let due_ms = inner.due_ms();
    if endpoint.interface.binding == Binding::WebSocket {
        let mut session = inner.session(endpoint, scratch, due_ms).await?;
        let sent = session.send(&scratch.written.body, inner.transport.random());
        within(&inner.transport, due_ms, sent).await??;
        return Ok(EventOrigin::Messages(Box::new(session)));
    }
    let mut response = inner.request(endpoint, written, scratch, due_ms).await?;
    if endpoint.interface.binding == Binding::Grpc {
        return Ok(EventOrigin::Rpc(Box::new(GrpcStream::new(response))));
    }
    let is_rest = endpoint.interface.binding == Binding::HttpJson;
    if is_rest && written.op == Op::Subscribe && response.status() == 405 {
        // Wire §10, trap 1: the text of the specification has POST here and its proto GET.
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

impl<T: Transport> ClientStream<T> {
    /// Opens a subscription in place of the source.
    pub(super) async fn subscribe(&mut self) -> Result<(), ClientError> {
        let after = self.seen.number();
        let aim = Target { after, ..target(RawText::known(&self.task.id), None) };
        let call = OutgoingCall::Subscribe(aim);
        let inner = &self.client.inner;
        self.written = inner.write(&self.endpoint, &call, &mut self.scratch.written)?;
        let opened = open_source(&self.client, &self.endpoint, self.written, &mut self.scratch);
        self.source = opened.await?;
        Ok(())
    }

    /// Reads the task into the scratch.
    pub(super) async fn get_task(&mut self) -> Result<(), ClientError> {
        let (id, history) = (RawText::known(&self.task.id), None);
        let context_id = Some(RawText::known(&self.task.context_id)).filter(|id| !id.is_empty());
        let call = OutgoingCall::Get(Get { id, context_id, history });
        let inner = &self.client.inner;
        self.written = inner.write(&self.endpoint, &call, &mut self.scratch.written)?;
        inner.call(&self.endpoint, self.written, &mut self.scratch).await
    }
}

impl FollowedTask {
    /// Notes the task of the first item, and refuses those of any other. What is empty was not
    /// said.
    pub(super) fn check(
        &mut self,
        id: RawText<'_>,
        context_id: RawText<'_>,
    ) -> Result<(), ClientError> {
        if self.context_id.is_empty() {
            self.context_id.extend_from_slice(context_id.raw());
        }
        if self.id.is_empty() {
            self.id.extend_from_slice(id.raw());
        }
        match id.is_empty() || self.id == id.raw() {
            true => Ok(()),
            false => Err(ClientError::of_another_task()),
        }
    }
}
