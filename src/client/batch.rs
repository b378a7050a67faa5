//! Several calls in one request: a JSON-RPC batch (JSON-RPC 2.0 §6).

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    binding::interfaces::Binding,
    model::{Get, Op, OutgoingCall, ReadError},
};

use super::{
    Answer, CallId, Client, ClientError, ClientErrorKind, TaskAddress, Transport,
    exchange::{SizeLimit, explained, head_of, read_all},
};

/// The id of the call that an answer of a batch belongs to.
#[derive(Deserialize)]
struct BatchAnswer<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
}

impl<T: Transport> Client<T> {
    /// Reads several tasks in one batch of JSON-RPC over HTTP. The answers have the order of `ids`,
    /// and each may be an error. A batch is not retried.
    ///
    /// # Errors
    /// [`ClientError`]: the batch as a whole failed, or the binding is not JSON-RPC over HTTP.
    pub async fn get_tasks(
        &self,
        ids: &[&str],
    ) -> Result<Vec<Result<Answer, ClientError>>, ClientError> {
        let (inner, endpoint) = (&self.inner, self.inner.endpoint());
        if endpoint.interface.binding != Binding::JsonRpc {
            let why = "batches need JSON-RPC over HTTP";
            return Err(ClientError::because(ClientErrorKind::NotDeclared("batch"), why));
        }
        let mut scratch = inner.stash.lend();
        scratch.terms.clone_from(&self.terms);
        let (mut body, mut rpc_ids, mut last) = (vec![b'['], Vec::new(), None);
        for id in ids {
            let scratch = &mut *scratch;
            let (id, context_id) = TaskAddress::new(id).raw(&mut scratch.packed);
            let call = OutgoingCall::Get(Get { id, context_id, history: None, wait: None });
            let terms = scratch.terms.as_deref();
            let written = inner.write(&endpoint, terms, &call, &mut scratch.written)?;
            if last.is_some() {
                body.push(b',');
            }
            body.extend_from_slice(&scratch.written.body);
            rpc_ids.push(written.rpc_id);
            last = Some(written);
        }
        let Some(written) = last else { return Ok(Vec::new()) };
        body.push(b']');
        scratch.written.body = body;
        let due_ms = inner.due_ms(scratch.terms.as_deref());
        let mut response = inner.request(&endpoint, written, &mut scratch, due_ms).await?;
        let mut body = Vec::new();
        let limit =
            SizeLimit { bytes_max: inner.built.limits.body_bytes_max, name: "body_bytes_max" };
        read_all(&inner.transport, &mut response, &mut body, limit, due_ms).await?;
        let Some(mut answers) = answers_by_id(&body) else {
            // The batch was rejected as a whole, or the body is not JSON-RPC: read as one answer.
            let scratch = &mut *scratch;
            let (call, head) = (CallId { op: Op::Get, rpc_id: written.rpc_id }, head_of(&response));
            let received = &mut scratch.reply.received;
            let read =
                endpoint.format.read_reply(&mut scratch.buffers, call, head, &body, received);
            let error = read.err().map_or_else(no_batch, ClientError::from);
            return Err(explained(error, &response, inner.transport.now()));
        };
        if answers.len() > rpc_ids.len() {
            return Err(explained(no_batch(), &response, inner.transport.now()));
        }
        let read = rpc_ids.into_iter().zip(ids).map(|(rpc_id, id)| {
            let json = answers.remove(&rpc_id).ok_or_else(no_batch)?;
            let mut reply = inner.stash.take_reply();
            reply.body.extend_from_slice(json.get().as_bytes());
            let (call, head) = (CallId { op: Op::Get, rpc_id }, head_of(&response));
            let reply_buf = &mut *reply;
            let received = &mut reply_buf.received;
            let read = endpoint.format.read_reply(
                &mut scratch.buffers,
                call,
                head,
                &reply_buf.body,
                received,
            );
            read?;
            let answer = Answer::new(reply, Op::Get, endpoint.is_v1_json(), &inner.stash);
            inner.about(TaskAddress::new(id), answer)
        });
        Ok(read.collect())
    }
}

/// The answers of a batch by their ids; `None`: the body is not a list of answers with distinct ids
/// (JSON-RPC 2.0 §6).
fn answers_by_id(body: &[u8]) -> Option<HashMap<u64, &RawValue>> {
    let list: Vec<&RawValue> = serde_json::from_slice(body).ok()?;
    let mut by_id = HashMap::with_capacity(list.len());
    for json in list {
        let BatchAnswer { id } = serde_json::from_str(json.get()).ok()?;
        // The client writes ids as strings of digits; some servers answer with numbers.
        let is_second = by_id.insert(id.get().trim_matches('"').parse().ok()?, json).is_some();
        if is_second {
            return None;
        }
    }
    Some(by_id)
}

#[cold]
fn no_batch() -> ClientError {
    let error = ReadError::new("must be a list with one answer to each call of the batch");
    let why = error.to_string();
    ClientError::because(ClientErrorKind::Unreadable(Box::new(error)), why)
}
