//! Messages to and from the upstream agent: everything except the ids passes unchanged.

use crate::{
    agent::Deferred,
    client::SendRequest,
    model::{
        Extension, Message, MessageBuf, RawText,
        pack::{Packer, message_tag},
    },
};

use super::{
    ids::{FIELD_BYTES, UpstreamIds},
    references::TaskReferences,
};

/// The ids that a message to the upstream agent names.
pub struct SentIds<'t> {
    /// The task that the message continues.
    pub continued: Option<&'t UpstreamIds>,
    /// The context of a message that continues no task.
    pub context_id: RawText<'t>,
    /// The task id of a message that continues no task: in A2A 0.1 clients choose it.
    pub task_id: Option<RawText<'t>>,
    /// The tasks that the message refers to.
    pub references: &'t TaskReferences,
}

/// The message of a turn in its form for the upstream agent.
pub fn request(turn: &Deferred, ids: &SentIds<'_>) -> SendRequest {
    let (task_id, context_id) = match ids.continued {
        None => (ids.task_id, Some(ids.context_id)),
        Some(continued) => {
            let context_id = Some(continued.context_id()).filter(|id| !id.is_empty());
            (Some(continued.task_id()), context_id)
        }
    };
    let named = [(message_tag::TASK_ID, task_id), (message_tag::CONTEXT_ID, context_id)];
    let upstream_of = |id: RawText<'_>| ids.references.upstream_of(id);
    let mut request = SendRequest::of(with_ids(turn.message(), named, upstream_of));
    let info = turn.request();
    if let Some(metadata) = info.metadata() {
        request = request.metadata(metadata);
    }
    if let Some(json) = info.accepted_output_modes() {
        request = request.accepted_output_modes_json(json);
    }
    if let Some(named) = info.extensions() {
        request = request.extensions(&of_the_agent(named));
    }
    request.within(info)
}

/// Extensions of a comma-separated list that are not this server's own.
fn of_the_agent(named: &str) -> String {
    let others = named.split(',').map(str::trim);
    let others = others.filter(|uri| !Extension::OF_SERVERS.contains(uri));
    others.collect::<Vec<_>>().join(",")
}

/// A message of the upstream agent in its form for clients. It has no task and context id, because
/// the server adds the ids of the local task. References to unrelated tasks are removed.
pub fn to_local(message: Message<'_>, references: &TaskReferences) -> MessageBuf {
    with_ids(message, [], |id| references.local_of(id))
}

/// A message with these fields in place of its task and context id, and with translated references.
fn with_ids<'t, const N: usize>(
    message: Message<'t>,
    named: [(u8, Option<RawText<'_>>); N],
    translated: impl Fn(RawText<'t>) -> Option<RawText<'t>>,
) -> MessageBuf {
    let ids = named.iter().filter_map(|(tag, id)| Some((*tag, (*id)?.raw())));
    let bytes = ids.clone().map(|(_, id)| id.len() + FIELD_BYTES).sum::<usize>();
    let mut packed = Vec::with_capacity(message.packed().len() + bytes);
    let mut packer = Packer(&mut packed);
    for (tag, bytes) in message.fields() {
        match tag {
            message_tag::TASK_ID | message_tag::CONTEXT_ID => {}
            message_tag::REFERENCE => {
                if let Some(id) = translated(RawText::known(bytes)) {
                    packer.put(tag, id.raw());
                }
            }
            _ => packer.put(tag, bytes),
        }
    }
    ids.for_each(|(tag, id)| packer.put(tag, id));
    MessageBuf::of_packed(packed)
}
