//! Messages on their way to the upstream agent and back: everything as it is, but for the ids.

use crate::{
    agent::Deferred,
    client::SendRequest,
    model::{
        Extension, Message, MessageBuf, RawText,
        pack::{Packer, message_tag},
    },
};

use super::{ids::UpstreamIds, references::TaskReferences};

/// The ids that a message to the upstream agent names.
pub struct SentIds<'t> {
    /// The task that it continues.
    pub continued: Option<&'t UpstreamIds>,
    /// The context of a message that continues no task.
    pub context_id: RawText<'t>,
    /// The task id of a message that continues no task: in A2A 0.1 clients choose it.
    pub task_id: Option<RawText<'t>>,
    /// The tasks that it refers to.
    pub references: &'t TaskReferences,
}

/// The message of a turn as the upstream agent gets it.
pub fn request(turn: &Deferred, ids: &SentIds<'_>) -> SendRequest {
    let message = turn.message();
    let translated = with_references(message, |id| ids.references.upstream_of(id));
    let mut request = SendRequest::of(translated);
    match ids.continued {
        None => {
            request = request.context_id(ids.context_id);
            if let Some(task_id) = ids.task_id {
                request = request.task_id(task_id);
            }
        }
        Some(continued) => {
            request = request.task_id(continued.task_id());
            if !continued.context_id().is_empty() {
                request = request.context_id(continued.context_id());
            }
        }
    }
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

/// A message of the upstream agent as clients get it. It names neither task nor context: the
/// server adds those of its own task. References to tasks of others are left out.
pub fn to_local(message: Message<'_>, references: &TaskReferences) -> MessageBuf {
    with_references(message, |id| references.local_of(id))
}

fn with_references<'t>(
    message: Message<'_>,
    translated: impl Fn(RawText<'_>) -> Option<RawText<'t>>,
) -> MessageBuf {
    let mut packed = Vec::with_capacity(message.packed().len());
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
    MessageBuf::of_packed(packed)
}
