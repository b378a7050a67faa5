//! The request of a turn, for the program.

use crate::{
    agent::RequestInfo,
    binding::grpc::write,
    dialect::canonical,
    model::{Generation, JsonObject, Message, Op, Reply, TaskView},
};

/// Appends the `SendMessageRequest` of A2A 1.0 in protocol buffers.
pub(super) fn push_send_request(out: &mut Vec<u8>, message: Message<'_>, request: &RequestInfo) {
    let metadata = request.metadata().map(JsonObject::as_str);
    write::send_request(out, message, request.accepted_output_modes(), metadata);
}

/// Appends a `Task` of A2A 1.0 in protocol buffers.
pub(super) fn push_task(out: &mut Vec<u8>, task: TaskView<'_>) {
    let reply = Reply::Task { view: task, history: None };
    write::reply(out, Generation::V1, Op::Get, &reply);
}

/// Appends a `Message` of A2A 1.0 in JSON.
pub(super) fn push_message_json(out: &mut Vec<u8>, message: Message<'_>) {
    canonical::message(out, message);
}
