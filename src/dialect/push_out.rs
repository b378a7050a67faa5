//! Push configurations in answers, in each generation (wire §1.5, §1.6, §3.4).
//!
//! Invariant: credentials are never written: the caller that set them has them, and no other caller
//! may read them.

use crate::model::{PushConfig, PushReply, RawText};

use super::{json_out, push_name};

/// Replaces a credential.
const HIDDEN: &[u8] = b"***";

/// Appends the form of 1.0. The answer to a delete is that of the SDKs, since the specification
/// does not define it.
pub(super) fn v1(out: &mut Vec<u8>, reply: &PushReply<'_>) {
    match *reply {
        PushReply::Config { task_id, config } => v1_config(out, task_id, config),
        PushReply::ListStart => out.extend_from_slice(b"{\"configs\":["),
        PushReply::Listed { task_id, config } => {
            json_out::page_comma(out);
            v1_config(out, task_id, config);
        }
        PushReply::ListEnd { next } => list_end(out, next),
        PushReply::Deleted | PushReply::NoConfig { .. } => out.extend_from_slice(b"null"),
    }
}

fn v1_config(out: &mut Vec<u8>, task_id: RawText<'_>, config: PushConfig<'_>) {
    json_out::text(out, b"{\"id\":\"", config.id().unwrap_or_default().raw());
    json_out::text(out, b",\"taskId\":\"", task_id.raw());
    json_out::text(out, b",\"url\":\"", config.url().raw());
    json_out::text_some(out, b",\"token\":\"", config.token());
    if let Some(scheme) = config.scheme() {
        json_out::text(out, b",\"authentication\":{\"scheme\":\"", scheme.raw());
        out.push(b'}');
    }
    filter(out, config);
    out.push(b'}');
}

/// Appends the event filter of a configuration, after its other members.
pub(super) fn filter(out: &mut Vec<u8>, config: PushConfig<'_>) {
    let Some(filter) = config.filter() else { return };
    if let Some(kinds) = filter.kinds() {
        json_out::list(out, b",\"events\":[", kinds, true, |out, kind| {
            json_out::text(out, b"\"", kind.as_bytes());
        });
    }
    if let Some(coalesce) = filter.coalesces() {
        json_out::flag(out, b",\"coalesce\":", coalesce);
    }
}

fn list_end(out: &mut Vec<u8>, next: &str) {
    out.push(b']');
    if !next.is_empty() {
        json_out::text(out, b",\"nextPageToken\":\"", next.as_bytes());
    }
    out.push(b'}');
}

/// Appends the form of 0.3. A list is a bare array, since it has no pages.
pub(super) fn v03(out: &mut Vec<u8>, reply: &PushReply<'_>) {
    match *reply {
        PushReply::Config { task_id, config } => v03_config(out, task_id, config),
        PushReply::ListStart => out.push(b'['),
        PushReply::Listed { task_id, config } => {
            json_out::page_comma(out);
            v03_config(out, task_id, config);
        }
        PushReply::ListEnd { .. } => out.push(b']'),
        PushReply::Deleted | PushReply::NoConfig { .. } => out.extend_from_slice(b"null"),
    }
}

fn v03_config(out: &mut Vec<u8>, task_id: RawText<'_>, config: PushConfig<'_>) {
    json_out::text(out, b"{\"taskId\":\"", task_id.raw());
    out.extend_from_slice(b",\"pushNotificationConfig\":");
    old_config(out, config, true);
    out.push(b'}');
}

/// Appends the form of 0.1, which has one configuration for each task.
pub(super) fn v01(out: &mut Vec<u8>, reply: &PushReply<'_>) {
    match *reply {
        PushReply::Config { task_id, config } => {
            json_out::text(out, b"{\"id\":\"", task_id.raw());
            out.extend_from_slice(b",\"pushNotificationConfig\":");
            old_config(out, config, false);
            out.push(b'}');
        }
        PushReply::NoConfig { task_id } => {
            json_out::text(out, b"{\"id\":\"", task_id.raw());
            out.extend_from_slice(b",\"pushNotificationConfig\":null}");
        }
        // 0.1 has neither list nor delete.
        PushReply::ListStart
        | PushReply::Listed { .. }
        | PushReply::ListEnd { .. }
        | PushReply::Deleted => v03(out, reply),
    }
}

/// Appends the form of HTTP+JSON of 0.3: a configuration has a resource name.
pub(super) fn v03_rest(out: &mut Vec<u8>, reply: &PushReply<'_>) {
    let config_out = |out: &mut Vec<u8>, task_id: RawText<'_>, config: PushConfig<'_>| {
        let name = push_name(task_id.raw(), config.id().map(RawText::raw));
        json_out::text(out, b"{\"name\":\"", &name);
        out.extend_from_slice(b",\"pushNotificationConfig\":");
        old_config(out, config, true);
        out.push(b'}');
    };
    match *reply {
        PushReply::Config { task_id, config } => config_out(out, task_id, config),
        PushReply::ListStart => out.extend_from_slice(b"{\"configs\":["),
        PushReply::Listed { task_id, config } => {
            json_out::page_comma(out);
            config_out(out, task_id, config);
        }
        PushReply::ListEnd { next } => list_end(out, next),
        PushReply::Deleted | PushReply::NoConfig { .. } => out.extend_from_slice(b"{}"),
    }
}

fn old_config(out: &mut Vec<u8>, config: PushConfig<'_>, has_id: bool) {
    out.push(b'{');
    if let Some(id) = config.id().filter(|_| has_id) {
        json_out::text(out, b"\"id\":\"", id.raw());
        out.push(b',');
    }
    json_out::text(out, b"\"url\":\"", config.url().raw());
    json_out::text_some(out, b",\"token\":\"", config.token());
    if let Some(scheme) = config.scheme() {
        json_out::text(out, b",\"authentication\":{\"schemes\":[\"", scheme.raw());
        out.extend_from_slice(b"]}");
    }
    filter(out, config);
    out.push(b'}');
}

/// Appends the form of Evo AI, which has one configuration: the names of its header fields, without
/// their values.
pub(super) fn evo_ai(out: &mut Vec<u8>, reply: &PushReply<'_>) {
    let config = match *reply {
        PushReply::Config { config, .. } => config,
        PushReply::NoConfig { .. } => return out.extend_from_slice(b"{\"config\":null}"),
        // Evo AI has neither list nor delete.
        PushReply::ListStart
        | PushReply::Listed { .. }
        | PushReply::ListEnd { .. }
        | PushReply::Deleted => return v03(out, reply),
    };
    json_out::text(out, b"{\"config\":{\"url\":\"", config.url().raw());
    json_out::text_some(out, b",\"contextId\":\"", config.context_id());
    json_out::text_some(out, b",\"token\":\"", config.token());
    if let Some(scheme) = config.scheme() {
        json_out::text(out, b",\"authentication\":{\"schemes\":[\"", scheme.raw());
        out.extend_from_slice(b"]}");
    }
    filter(out, config);
    out.extend_from_slice(b",\"headers\":{");
    for (at, (name, _)) in config.headers().enumerate() {
        json_out::text(out, if at == 0 { b"\"" } else { b",\"" }, name.raw());
        json_out::text(out, b":\"", HIDDEN);
    }
    out.extend_from_slice(b"}}}");
}
