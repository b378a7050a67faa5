//! One call over HTTP: its request, its response, and its repetitions.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use crate::{
    binding::interfaces::Binding,
    http::{FieldLines, FieldLinesBuf},
    model::{Generation, Op},
    service::Now,
};

use super::{
    Answer, ClientError, ClientErrorKind, HttpRequest, HttpResponse, HttpUrl, TaskAddress,
    Transport, TransportError,
    client::{InterfaceSearch, SharedClient},
    credentials::{CredentialPlan, CredentialsError, HeldToken},
    endpoint::AgentEndpoint,
    format::{CallId, ReplyHead, WrittenCall},
    outgoing_terms::OutgoingTerms,
    redirect,
    retry::{self, Failure},
    scratch::{CallBuffers, ReplyBuf},
};

/// Bytes to read of a response at once.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// The buffer of a response with more bytes grows to the limit in one step: 1 MiB.
const LARGE_BYTES: usize = 1024 * 1024;

/// A longer pause before the next attempt gives a warning: 1 s.
const NOTED_PAUSE_MS: u64 = 1_000;

/// A written call.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub op: Op,
    pub rpc_id: u64,
    /// The last event that a subscriber has received.
    pub after: Option<u64>,
}

/// The attempts at one call, or at opening one stream.
pub(super) struct Attempts {
    failed: u32,
    /// True: a token was rejected, and another one is used.
    has_new_token: bool,
    /// The deadline of the call.
    pub due_ms: u64,
}

impl<T: Transport> SharedClient<T> {
    /// Sends a written call, repeats it if that is safe, and reads the answer. `search`: the
    /// attempts so far; another interface has precedence over a repetition at the same one.
    pub(super) async fn call(
        &self,
        endpoint: &AgentEndpoint,
        written: Written,
        search: &InterfaceSearch,
        scratch: &mut CallBuffers,
    ) -> Result<(), ClientError> {
        let (op, generation) = (written.op, endpoint.interface.generation);
        let mut attempts = self.attempts(scratch.terms.as_deref());
        loop {
            let error = match self.call_once(endpoint, written, scratch, attempts.due_ms).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if self.next_interface(endpoint, &error, search).is_some() {
                return Err(error);
            }
            match self.next_attempt_ms(op, generation, &error, &mut attempts, scratch) {
                Some(next_ms) => self.transport.sleep_until(next_ms).await,
                None => return Err(error),
            }
        }
    }

    async fn call_once(
        &self,
        endpoint: &AgentEndpoint,
        written: Written,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<(), ClientError> {
        if endpoint.interface.binding == Binding::WebSocket {
            return Box::pin(self.call_by_message(endpoint, written, scratch, due_ms)).await;
        }
        let mut response = self.request(endpoint, written, scratch, due_ms).await?;
        if endpoint.interface.binding == Binding::Grpc {
            return self.read_grpc(endpoint, written, &mut response, scratch, due_ms).await;
        }
        self.read_answer(endpoint, written, &mut response, scratch, due_ms).await
    }

    /// Reads a response that is not a stream.
    pub(super) async fn read_answer(
        &self,
        endpoint: &AgentEndpoint,
        written: Written,
        response: &mut T::Response,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<(), ClientError> {
        let CallBuffers { buffers, reply, .. } = scratch;
        let ReplyBuf { body, received, .. } = &mut **reply;
        body.clear();
        let limit =
            SizeLimit { bytes_max: self.built.limits.body_bytes_max, name: "body_bytes_max" };
        read_all(&self.transport, response, body, limit, due_ms).await?;
        let call = CallId { op: written.op, rpc_id: written.rpc_id };
        let read = endpoint.format.read_reply(buffers, call, head_of(response), body, received);
        read.map_err(|error| explained(error.into(), response, self.transport.now()))
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn request(
        &self,
        endpoint: &AgentEndpoint,
        written: Written,
        scratch: &mut CallBuffers,
        due_ms: u64,
    ) -> Result<T::Response, ClientError> {
        let plan = endpoint.plan()?;
        let prepared = prepared_fields(endpoint, plan, written, scratch);
        let CallBuffers { written: call, target, fields, token, terms, .. } = scratch;
        *token = None;
        let terms = terms.as_deref();
        endpoint.write_target(call, target);
        plan.add_query(target);
        let fields = match prepared {
            Some(prepared) => prepared,
            None => {
                endpoint.write_fields(call, written.after, terms, plan, fields);
                let is_grpc = endpoint.interface.binding == Binding::Grpc;
                if let Some(terms) = terms {
                    terms.write(terms.remaining_ms(|| self.transport.now()), is_grpc, fields);
                    if let Some(uris) = &terms.extensions {
                        endpoint.write_extensions(uris, fields);
                    }
                }
                if plan.needs_token() {
                    Box::pin(self.add_token(fields, token, due_ms)).await?;
                }
                let authorization = terms.and_then(|terms| terms.authorization.as_ref());
                if let Some(own) = authorization.filter(|_| plan.passes_on()) {
                    fields.push("Authorization", own.expose());
                }
                fields.get()
            }
        };
        let content = RequestContent { call, target, fields };
        let request = self.http_request(endpoint, written, content, due_ms);
        let mut response = self.transport.request(request).await?;
        if (300..400).contains(&response.status()) {
            // The fields are determined again, so that a waiting call does not hold them.
            let fields = prepared_fields(endpoint, plan, written, scratch);
            let fields = fields.unwrap_or_else(|| scratch.fields.get());
            let CallBuffers { written: call, target, .. } = &*scratch;
            let content = RequestContent { call, target, fields };
            let request = self.http_request(endpoint, written, content, due_ms);
            response = Box::pin(self.redirected(plan, request, response)).await?;
        }
        let extensions = &mut scratch.reply.extensions;
        extensions.clear();
        response.each_field("a2a-extensions", &mut |field| {
            extensions.push_str(if extensions.is_empty() { "" } else { "," });
            extensions.push_str(&String::from_utf8_lossy(field));
        });
        Ok(response)
    }
}

/// The prepared fields of a request; `None`: the request needs other fields.
fn prepared_fields<'e>(
    endpoint: &'e AgentEndpoint,
    plan: &CredentialPlan,
    written: Written,
    scratch: &CallBuffers,
) -> Option<FieldLines<'e>> {
    let prepared = endpoint.prepared_fields(&scratch.written, written.after);
    prepared.filter(|_| !plan.needs_token() && scratch.terms.is_none())
}

/// The parts of a request that differ between requests to one endpoint.
struct RequestContent<'a> {
    call: &'a WrittenCall,
    target: &'a str,
    fields: FieldLines<'a>,
}

impl<T: Transport> SharedClient<T> {
    #[inline]
    fn http_request<'a>(
        &self,
        endpoint: &'a AgentEndpoint,
        written: Written,
        RequestContent { call, target, fields }: RequestContent<'a>,
        due_ms: u64,
    ) -> HttpRequest<'a> {
        let body_idle_ms = match written.op.is_streaming() {
            true => self.built.limits.stream_idle_ms,
            false => self.built.limits.idle_ms,
        };
        HttpRequest {
            method: call.method,
            origin: &endpoint.interface.url.origin,
            target,
            fields,
            body: &call.body,
            version: endpoint.http_version(),
            head_due_ms: due_ms,
            body_idle_ms,
            is_repeatable: self.is_repeatable(endpoint, written.op),
        }
    }

    /// Sends a redirected call to its new target within its origin.
    ///
    /// # Errors
    /// `Redirect` for a redirect that is not followed, and the errors of the transport.
    pub(super) async fn redirected(
        &self,
        plan: &CredentialPlan,
        request: HttpRequest<'_>,
        mut response: T::Response,
    ) -> Result<T::Response, ClientError> {
        let (origin, path) = (request.origin.clone(), request.target.to_owned());
        let (mut current, redirects_max) =
            (HttpUrl { origin, path }, self.built.limits.redirects_max);
        let mut count = 0;
        while redirect::is_redirect(response.status()) {
            let (status, location) = (response.status(), response.field("location"));
            current = redirect::next_of_call(status, &current, location, count, redirects_max)?;
            if !current.path.contains('?') {
                plan.add_query(&mut current.path);
            }
            count += 1;
            response =
                self.transport.request(HttpRequest { target: &current.path, ..request }).await?;
        }
        Ok(response)
    }

    /// Whether a call may reach the server twice.
    fn is_repeatable(&self, endpoint: &AgentEndpoint, op: Op) -> bool {
        let generation = endpoint.interface.generation;
        let is_idempotent = self.is_idempotent_send(endpoint, op);
        retry::is_repeatable(op, generation, is_idempotent, Failure::Unknown)
    }

    /// Whether a send may reach the server twice, because the server recognises a message by its
    /// id.
    fn is_idempotent_send(&self, endpoint: &AgentEndpoint, op: Op) -> bool {
        // 0.1 has no message ids.
        let has_ids = endpoint.interface.generation != Generation::V01;
        // Whether the original caller has credentials is unknown here.
        let has_credentials =
            || endpoint.plan().is_ok_and(|plan| !plan.is_empty() && !plan.passes_on());
        matches!(op, Op::Send | Op::Stream)
            && (self.built.options.is_idempotent
                || (has_ids && self.card().deduplicates_sends(has_credentials())))
    }

    /// The attempts of a call that begins now.
    pub(super) fn attempts(&self, terms: Option<&OutgoingTerms>) -> Attempts {
        Attempts { failed: 0, has_new_token: false, due_ms: self.due_ms(terms) }
    }

    /// Counts a failed attempt and returns the time of the next one, in ms of [`Now::mono_ms`];
    /// `None`: the call is not repeated.
    pub(super) fn next_attempt_ms(
        &self,
        op: Op,
        generation: Generation,
        error: &ClientError,
        attempts: &mut Attempts,
        scratch: &mut CallBuffers,
    ) -> Option<u64> {
        attempts.failed += 1;
        let is_refused = error.kind == ClientErrorKind::Unauthorized;
        if is_refused && !attempts.has_new_token && self.forgets_token(scratch) {
            // The token may have been revoked: nothing was done, so a new one is tried once.
            attempts.has_new_token = true;
            return Some(0);
        }
        // The server was unreachable for the whole connect timeout.
        if matches!(&error.kind, ClientErrorKind::Transport(error) if error.is_connect_timeout()) {
            return None;
        }
        let backoff = &self.built.options.backoff;
        let is_idempotent = self.is_idempotent_send(&self.endpoint(), op);
        if !retry::is_repeatable(op, generation, is_idempotent, error.failure()) {
            return None;
        }
        let (now, random) = (self.transport.now(), self.transport.random());
        let due_ms = Some(attempts.due_ms);
        let next_ms =
            backoff.next_ms(attempts.failed, error.retry_after_ms, random, now, due_ms)?;
        let pause_ms = next_ms.saturating_sub(now.mono_ms);
        if pause_ms >= NOTED_PAUSE_MS {
            let seconds = pause_ms.div_ceil(1_000);
            self.built.warn(&format!("{error}; next attempt in {seconds} s"));
        }
        Some(next_ms)
    }

    /// Adds the OAuth token that the plan needs, and waits for it until `due_ms`; `used` then holds
    /// the token.
    pub(super) async fn add_token(
        &self,
        fields: &mut FieldLinesBuf,
        used: &mut Option<Arc<HeldToken>>,
        due_ms: u64,
    ) -> Result<(), ClientError> {
        if let Some(oauth) = &self.built.credentials.oauth {
            let token = pin!(self.tokens.token(&self.transport, oauth, &self.built.limits));
            let token = within(&self.transport, due_ms, token).await?;
            let token = token.map_err(CredentialsError::from)?;
            fields.extend(token.fields());
            *used = Some(token);
        }
        Ok(())
    }

    /// After a 401 to a call with a token: drops this token, but not a newer one that another call
    /// has fetched; false: the call had no token.
    pub(super) fn forgets_token(&self, scratch: &mut CallBuffers) -> bool {
        let Some(refused) = scratch.token.take() else { return false };
        self.tokens.forget(&refused);
        true
    }
}

impl<T: Transport> SharedClient<T> {
    /// The answer, if it is about the requested task.
    pub(super) fn about(
        &self,
        task: TaskAddress<'_>,
        answer: Answer,
    ) -> Result<Answer, ClientError> {
        let has_threads = self.endpoint().has_threads();
        match answer.task_id().is_some_and(|id| task.names(id, has_threads)) {
            true => Ok(answer),
            false => Err(ClientError::of_another_task()),
        }
    }

    /// Accepts an answer about another task than the named one, if each message creates a task.
    pub(super) fn about_other(&self, answer: Answer) -> Result<Answer, ClientError> {
        match self.endpoint().makes_task_each_time() {
            true => Ok(answer),
            false => Err(ClientError::of_another_task()),
        }
    }
}

/// Adds the `Retry-After` of a response to its error.
#[cold]
pub(super) fn explained<R: HttpResponse>(
    mut error: ClientError,
    response: &R,
    now: Now,
) -> ClientError {
    let retry_after = response.field("retry-after");
    let requested_ms = retry_after.and_then(|text| retry::retry_after_ms(text, now.unix_ms));
    error.retry_after_ms = requested_ms.or(error.retry_after_ms);
    error
}

/// The parts of a response's head that describe its body.
pub(crate) fn head_of<R: HttpResponse>(response: &R) -> ReplyHead<'_> {
    ReplyHead { status: response.status(), content_type: response.field("content-type") }
}

/// A limit of the bytes of a response, and its name.
#[derive(Clone, Copy)]
pub(crate) struct SizeLimit {
    pub(crate) bytes_max: usize,
    pub(crate) name: &'static str,
}

/// Appends the whole content of a response to `out`, until `due_ms` at most: the idle timeout alone
/// does not end a response that sends single bytes slowly, or bytes other than content.
///
/// # Errors
/// `TooLarge` with the name of the limit, `Timeout`, and the errors of the transport.
pub(crate) async fn read_all<T: Transport>(
    transport: &T,
    response: &mut T::Response,
    out: &mut Vec<u8>,
    limit: SizeLimit,
    due_ms: u64,
) -> Result<(), TransportError> {
    let SizeLimit { bytes_max, name } = limit;
    const LATE: TransportError = TransportError::Timeout("end of the response");
    let mut due = pin!(transport.sleep_until(due_ms));
    loop {
        let room = (bytes_max + 1).saturating_sub(out.len()).min(READ_BYTES);
        let read = poll_fn(|cx| match response.poll_read(cx, out, room) {
            Poll::Ready(read) => Poll::Ready(Some(read)),
            Poll::Pending => due.as_mut().poll(cx).map(|()| None),
        });
        if !read.await.ok_or(LATE)?? {
            return Ok(());
        }
        if out.len() > bytes_max {
            return Err(TransportError::TooLarge(name));
        }
        if out.len() > LARGE_BYTES {
            // Reserves the maximum once: doubling would hold up to twice the limit, and both copies
            // during a move. Pages that are never written take no memory.
            out.reserve_exact(bytes_max + 1 - out.len());
        }
        if transport.mono_ms() >= due_ms {
            return Err(LATE);
        }
    }
}

/// Waits for a future until `due_ms` at most. The caller pins it, since the state of an `async fn`
/// holds a parameter twice.
///
/// # Errors
/// `Timeout`.
pub(super) async fn within<T: Transport, R>(
    transport: &T,
    due_ms: u64,
    mut future: Pin<&mut impl Future<Output = R>>,
) -> Result<R, ClientError> {
    let mut due = pin!(transport.sleep_until(due_ms));
    let done = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => due.as_mut().poll(cx).map(|()| None),
    });
    done.await.ok_or_else(|| TransportError::Timeout("answer").into())
}
