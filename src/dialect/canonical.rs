//! Received answers, in any wire format, as the JSON of 1.0.
//!
//! Invariant: the JSON is written by the writers of a server's 1.0 answers, so that an answer of a
//! 1.0 server is reproduced unchanged, and reading the output returns the same content.

use crate::{
    json::write::push_escaped,
    model::{JsonObject, Op, PushConfig, RawText, Received, ReceivedKind, TaskEvent, TaskView},
};

use super::{
    json_out, push_out,
    v1::{self, Artifacts},
};

/// Appends the JSON of a received answer to `op`: an object, in which a task or a message is
/// wrapped in a member if 1.0 defines so (A2A 1.0 §9.4). An empty answer is `{}`.
pub fn write(out: &mut Vec<u8>, received: &Received, op: Op) {
    let wrapped = matches!(op, Op::Send | Op::Stream | Op::Subscribe);
    match received.kind() {
        ReceivedKind::Nothing => out.extend_from_slice(b"{}"),
        ReceivedKind::Task => {
            let Some(view) = received.task() else { return };
            if wrapped {
                out.extend_from_slice(b"{\"task\":");
            }
            task(out, view, received.task_metadata());
            if wrapped {
                out.push(b'}');
            }
        }
        ReceivedKind::Message => {
            let Some(message) = received.message() else { return };
            v1::direct(out, message, RawText::default());
        }
        ReceivedKind::StatusUpdate | ReceivedKind::ArtifactUpdate => update(out, received),
        ReceivedKind::Page => page(out, received),
        ReceivedKind::PushConfig => {
            if let Some(config) = received.push_config() {
                push_config(out, config, None);
            }
        }
        ReceivedKind::PushConfigs => {
            let configs = received.push_configs();
            json_out::list(out, b"{\"configs\":[", configs, true, |out, config| {
                push_config(out, config, None);
            });
            json_out::text_some(out, b",\"nextPageToken\":\"", received.next_page_token());
            out.push(b'}');
        }
        ReceivedKind::Card => {
            out.extend_from_slice(received.card().map_or(&b"{}"[..], JsonObject::raw));
        }
    }
}

/// Appends a message.
#[cfg(any(feature = "gateway", feature = "internals"))]
pub fn message(out: &mut Vec<u8>, message: crate::model::Message<'_>) {
    v1::message(out, message, json_out::TaskRef { task_id: b"", context_id: b"" });
}

/// Appends a task with all known fields.
pub fn task(out: &mut Vec<u8>, view: TaskView<'_>, metadata: Option<JsonObject<'_>>) {
    v1::task(out, &view, None, Artifacts::Some);
    if let Some(metadata) = metadata {
        // Removes the closing brace that was just written.
        out.pop();
        json_out::json(out, b",\"metadata\":", metadata.raw());
        out.push(b'}');
    }
}

fn update(out: &mut Vec<u8>, received: &Received) {
    if let Some(update) = received.status_update() {
        let (state, at_ms) = (update.state, update.at_ms);
        let (message, metadata) = (update.message, update.metadata);
        let event = TaskEvent::Status { state, at_ms, message, metadata };
        v1::update(out, &event, update.task_id, update.context_id);
    } else if let Some(update) = received.artifact_update() {
        let (append, last_chunk) = (update.append, update.last_chunk);
        let (artifact, metadata) = (update.artifact, update.metadata);
        let event = TaskEvent::Artifact { artifact, append, last_chunk, metadata };
        v1::update(out, &event, update.task_id, update.context_id);
    }
}

fn page(out: &mut Vec<u8>, received: &Received) {
    let Some(page) = received.page() else { return };
    json_out::page_start(out);
    for (view, metadata) in page.tasks() {
        json_out::page_comma(out);
        task(out, view, metadata);
    }
    json_out::page_end(out, page.next_page_token.raw_str(), page.page_size, page.total_size);
}

/// Appends a push configuration of 1.0 (wire §1.6), with the tenant if it is part of a call.
pub(super) fn push_config(out: &mut Vec<u8>, config: PushConfig<'_>, tenant: Option<&str>) {
    let start = out.len();
    if let Some(tenant) = tenant {
        out.extend_from_slice(b",\"tenant\":\"");
        push_escaped(out, tenant);
        out.push(b'"');
    }
    json_out::text_some(out, b",\"id\":\"", config.id());
    json_out::text_some(out, b",\"taskId\":\"", config.task_id());
    json_out::text(out, b",\"url\":\"", config.url().raw());
    json_out::text_some(out, b",\"token\":\"", config.token());
    if config.scheme().is_some() || config.credentials().is_some() {
        let scheme = config.scheme().unwrap_or_default();
        json_out::text(out, b",\"authentication\":{\"scheme\":\"", scheme.raw());
        json_out::text_some(out, b",\"credentials\":\"", config.credentials());
        out.push(b'}');
    }
    push_out::filter(out, config);
    out.push(b'}');
    // Replaces the comma of the first member; at least the URL exists.
    if let Some(first) = out.get_mut(start) {
        *first = b'{';
    }
}
