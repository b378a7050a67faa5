//! Messages on their way to the upstream agent and back: everything as it is, but for the ids.

use crate::{
    client::SendRequest,
    model::{
        Message, MessageBuf, RawText,
        pack::{Packer, message_tag},
    },
};

use super::ids::UpstreamIds;

/// What a message starts that continues no task.
pub struct FreshTask<'t> {
    /// The local context id, which the upstream agent gets, too.
    pub context_id: RawText<'t>,
    /// The local task id, if the upstream agent gets it: in A2A 0.1 clients choose it.
    pub task_id: Option<RawText<'t>>,
}

/// A client's message as the upstream agent gets it. `ids`: those of the task that it continues.
pub fn request(
    message: Message<'_>,
    ids: Option<&UpstreamIds>,
    new: &FreshTask<'_>,
) -> SendRequest {
    let request = SendRequest::of(without_ids(message));
    match ids {
        None => {
            let request = request.context_id(new.context_id);
            match new.task_id {
                None => request,
                Some(task_id) => request.task_id(task_id),
            }
        }
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
