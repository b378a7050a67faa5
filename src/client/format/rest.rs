//! Calls over HTTP+JSON: an operation is a method and a path, its params are path, query and body
//! (wire §3).
//!
//! Invariant: an id is one path segment, for any content; an id that cannot be a segment is
//! rejected.

use crate::{
    client::HttpMethod,
    dialect::{
        calls::{self, CallOut},
        rest::HttpJson,
    },
    http::media,
    model::{Generation, List, NotExpressible, OutgoingCall, PushCall, RawText, time},
};

use super::{Format, WrittenCall};

const BY: &str = "HTTP+JSON";

/// `Accept` for JSON: servers of 1.0.1 use the type of A2A, servers of 1.0.0 the general type.
const ACCEPT_V1: &str = "application/a2a+json, application/json";

pub(super) fn write(
    format: &Format,
    call: &OutgoingCall<'_>,
    tenant: Option<&str>,
    out: &mut WrittenCall,
) -> Result<(), NotExpressible> {
    let op = call.op();
    let form = calls::http_json(format.dialect, format.generation);
    let row = form.and_then(|form| Some((form, form.method(op)?)));
    let missing = NotExpressible { what: op.name(), by: format.name() };
    let (form, method) = row.ok_or(missing)?;
    prefix(format, tenant, &mut out.path)?;
    let tenant = tenant.filter(|_| form.generation != Generation::V1);
    let has_body = target(form, call, out)?;
    // Writing the body also checks the values that are in the query.
    method.wire.calls.write(&mut out.body, call, CallOut { tenant, event_id: false })?;
    if has_body {
        // Servers of 1.0.0 support only this type, and servers of 1.0.1 accept it (wire §3.3).
        out.content_type = Some(media::JSON);
    } else {
        out.body.clear();
    }
    out.accept = match form.generation {
        Generation::V1 => ACCEPT_V1,
        Generation::V01 | Generation::V03 => media::JSON,
    };
    Ok(())
}

/// Writes the prefix of the paths: `/v1` before 1.0, in 1.0 the tenant, if any (A2A 1.0 §11.3).
fn prefix(format: &Format, tenant: Option<&str>, path: &mut String) -> Result<(), NotExpressible> {
    match format.generation {
        Generation::V01 | Generation::V03 => path.push_str("/v1"),
        Generation::V1 => {
            let Some(tenant) = tenant else { return Ok(()) };
            path.push_str(format.dialect.routes.rest_tenant);
            push_segment(path, tenant)?;
        }
    }
    Ok(())
}

/// Writes method and path; true: the params go into the body.
fn target(
    form: &HttpJson,
    call: &OutgoingCall<'_>,
    out: &mut WrittenCall,
) -> Result<bool, NotExpressible> {
    let is_v1 = form.generation == Generation::V1;
    let path = &mut out.path;
    let (method, has_body) = match *call {
        OutgoingCall::Send(_) => {
            let is_stream = call.op().is_streaming();
            path.push_str(if is_stream { "/message:stream" } else { "/message:send" });
            (HttpMethod::Post, true)
        }
        OutgoingCall::Get(get) => {
            task(path, get.id)?;
            // In 0.3 this field has no presence: a missing number is 0 (wire §1.5).
            let all = (!is_v1).then_some(calls::ALL_HISTORY);
            if let Some(history) = get.history.or(all) {
                Query::of(path).put("historyLength", &history.to_string());
            }
            (HttpMethod::Get, false)
        }
        OutgoingCall::List(ref list) => {
            path.push_str("/tasks");
            self::list(path, list);
            (HttpMethod::Get, false)
        }
        OutgoingCall::Cancel(ref target) => {
            task(path, target.id)?;
            path.push_str(":cancel");
            (HttpMethod::Post, true)
        }
        OutgoingCall::Subscribe(ref target) => {
            task(path, target.id)?;
            path.push_str(":subscribe");
            (if is_v1 { HttpMethod::Post } else { HttpMethod::Get }, is_v1)
        }
        OutgoingCall::Push(ref call) => push(path, call)?,
        OutgoingCall::ExtendedCard => {
            path.push_str(if is_v1 { "/extendedAgentCard" } else { "/card" });
            (HttpMethod::Get, false)
        }
    };
    out.method = method;
    Ok(has_body)
}

fn push(path: &mut String, call: &PushCall<'_>) -> Result<(HttpMethod, bool), NotExpressible> {
    let (task_id, id) = match *call {
        PushCall::Set(config) => (config.task_id(), None),
        PushCall::Get { task_id, id } | PushCall::Delete { task_id, id } => (Some(task_id), id),
        PushCall::List { task_id, .. } => (Some(task_id), None),
    };
    let what = "a push configuration without taskId";
    task(path, task_id.ok_or(NotExpressible { what, by: BY })?)?;
    path.push_str("/pushNotificationConfigs");
    if let Some(id) = id {
        path.push('/');
        push_segment(path, &id.to_str())?;
    }
    Ok(match *call {
        PushCall::Set(_) => (HttpMethod::Post, true),
        PushCall::Get { .. } => (HttpMethod::Get, false),
        PushCall::List { page_size, page_token, .. } => {
            let mut query = Query::of(path);
            if let Some(size) = page_size {
                query.put("pageSize", &size.to_string());
            }
            if let Some(token) = page_token {
                query.put("pageToken", &token.to_str());
            }
            (HttpMethod::Get, false)
        }
        PushCall::Delete { .. } => (HttpMethod::Delete, false),
    })
}

fn list(path: &mut String, list: &List<'_>) {
    let mut query = Query::of(path);
    if let Some(context_id) = list.context_id {
        query.put("contextId", &context_id.to_str());
    }
    if let Some(status) = list.status {
        query.put("status", calls::state_name(status));
    }
    if let Some(size) = list.page_size {
        query.put("pageSize", &size.to_string());
    }
    if let Some(token) = list.page_token.filter(|token| !token.is_empty()) {
        query.put("pageToken", &RawText::known(token).to_str());
    }
    if let Some(history) = list.history {
        query.put("historyLength", &history.to_string());
    }
    if let Some(after_ms) = list.after_ms {
        query.put("statusTimestampAfter", str::from_utf8(&time::rfc3339(after_ms)).unwrap_or(""));
    }
    if list.include_artifacts {
        query.put("includeArtifacts", "true");
    }
}

fn task(path: &mut String, id: RawText<'_>) -> Result<(), NotExpressible> {
    path.push_str("/tasks/");
    push_segment(path, &id.to_str())
}

/// Appends text as one path segment (RFC 3986 §3.3): everything but unreserved characters is
/// encoded, because a colon starts a custom method in a segment.
fn push_segment(path: &mut String, text: &str) -> Result<(), NotExpressible> {
    // RFC 3986 §5.2.4: a proxy that resolves the path would remove these, even if encoded.
    if matches!(text, "" | "." | "..") {
        return Err(NotExpressible {
            what: "an id or a tenant that cannot be a path segment",
            by: BY,
        });
    }
    push_encoded(path, text);
    Ok(())
}

/// RFC 3986 §2.3: unreserved characters stay.
pub(in crate::client) fn push_encoded(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// Appends a query to a path without one.
struct Query<'q> {
    path: &'q mut String,
    separator: char,
}

impl Query<'_> {
    fn of(path: &mut String) -> Query<'_> {
        Query { path, separator: '?' }
    }

    fn put(&mut self, name: &str, value: &str) {
        self.path.push(std::mem::replace(&mut self.separator, '&'));
        self.path.push_str(name);
        self.path.push('=');
        push_encoded(self.path, value);
    }
}
