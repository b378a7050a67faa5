//! Messages on their way to the upstream agent and back: everything as it is, but for the ids.

use crate::{
    client::SendRequest,
    model::{
        Message, MessageBuf, RawText,
        pack::{Packer, message_tag},
    },
};

use super::ids::UpstreamIds;

/// A client's message as the upstream agent gets it. `ids`: those of the task that it continues;
/// without, it starts a task in the context `context_id`.
pub fn request(message: Message<'_>, ids: Option<&UpstreamIds>, context_id: &[u8]) -> SendRequest {
    let request = SendRequest::of(without_ids(message));
    match ids {
        None => request.context_id(RawText::known(context_id)),
        Some(ids) => {
            let request = request.task_id(ids.task_id());
            match ids.context_id() {
                none if none.is_empty() => request,
                context_id => request.context_id(context_id),
            }
        }
    }
}

/// A message without the ids of task and context: the server shows those of its own task.
pub fn without_ids(message: Message<'_>) -> MessageBuf {
    let mut packed = Vec::with_capacity(message.packed().len());
    let mut packer = Packer(&mut packed);
    for (tag, bytes) in message.fields() {
        if !matches!(tag, message_tag::TASK_ID | message_tag::CONTEXT_ID | message_tag::REFERENCE) {
            packer.put(tag, bytes);
        }
    }
    MessageBuf::of_packed(packed)
}
