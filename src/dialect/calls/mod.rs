//! Writes calls: the params of each operation, as each generation and platform defines them (wire
//! §1.5, §3, §8).
//!
//! Invariant: strict. Only members of the generation are written, and an inexpressible value is an
//! error that names it; nothing is omitted silently. JSON from the caller is copied unchanged.

mod object;
mod pre_v1;
mod v03_rest;
mod v1;

use crate::model::{
    Content, Generation, Message, NotExpressible, Op, OutgoingCall, PushConfig, TaskState,
    pack::message_tag,
};

use super::{Dialect, Method, Wire, rest::HttpJson, v01};

pub use pre_v1::CallRules;
pub use v03_rest::ALL_HISTORY;

/// The context of a writer of calls.
#[derive(Clone, Copy)]
pub struct CallOut<'a> {
    /// The tenant of the interface, if it is part of the params.
    pub tenant: Option<&'a str>,
    /// True: the position of a resuming subscriber is part of the params, because no header can
    /// contain it.
    pub event_id: bool,
}

/// How the calls of a wire family are written.
#[derive(Clone, Copy)]
pub enum Calls {
    /// As in 1.0.
    V1,
    /// As before 1.0, over JSON-RPC.
    PreV1(&'static CallRules),
    /// As in the ProtoJSON of 0.3.
    V03Rest,
    /// Not as JSON.
    NoJson,
}

impl Calls {
    /// Appends the params of a call: an object.
    ///
    /// # Errors
    /// [`NotExpressible`]; the caller drops the output.
    pub fn write(
        self,
        out: &mut Vec<u8>,
        call: &OutgoingCall<'_>,
        cx: CallOut<'_>,
    ) -> Result<(), NotExpressible> {
        match self {
            Calls::V1 => v1::params(out, call, cx),
            Calls::PreV1(rules) => pre_v1::params(out, call, cx, rules),
            Calls::V03Rest => v03_rest::params(out, call, cx),
            Calls::NoJson => Err(NotExpressible { what: "a message of gRPC", by: "JSON" }),
        }
    }
}

/// The method of a dialect for calls of a generation: its name, writers and readers; `None`: the
/// dialect has no such method.
pub fn method(
    dialect: &Dialect,
    generation: Generation,
    op: Op,
) -> Option<(&'static str, &'static Wire)> {
    let of = |method: &&Method| method.op == op;
    let mut rows = dialect.methods.iter().filter(of);
    let own = rows.clone().find(|method| method.generation() == generation);
    if let Some(method) = own {
        return Some((method.name, method.wire));
    }
    // Wire §1.2: names that 0.1 and 0.3 share.
    let shared = rows.find(|method| method.by_task && generation == Generation::V01)?;
    Some((shared.name, &v01::WIRE))
}

/// The name of a generation in errors.
pub fn generation_name(generation: Generation) -> &'static str {
    match generation {
        Generation::V01 => "0.1",
        Generation::V03 => "0.3",
        Generation::V1 => "1.0",
    }
}

/// The value of `A2A-Version` on calls of a generation (wire §1.8); 0.1 has no such header.
pub fn version_header(generation: Generation) -> Option<&'static str> {
    match generation {
        Generation::V01 => None,
        Generation::V03 => Some("0.3"),
        Generation::V1 => Some("1.0"),
    }
}

/// The headers that name the extensions of a client (wire §10, trap 34); 0.1 has none.
pub fn extension_headers(generation: Generation) -> &'static [&'static str] {
    match generation {
        Generation::V01 => &[],
        Generation::V03 => &["X-A2A-Extensions", "A2A-Extensions"],
        Generation::V1 => &["A2A-Extensions"],
    }
}

/// The HTTP+JSON binding of a generation; `None`: the generation has none.
pub fn http_json(dialect: &Dialect, generation: Generation) -> Option<&'static HttpJson> {
    dialect.routes.rest.iter().copied().find(|form| form.generation == generation)
}

/// The name of a state in a filter of tasks.
pub(super) fn state_v1(state: TaskState) -> &'static [u8] {
    match state {
        TaskState::Unspecified => b"TASK_STATE_UNSPECIFIED",
        TaskState::Submitted => b"TASK_STATE_SUBMITTED",
        TaskState::Working => b"TASK_STATE_WORKING",
        TaskState::Completed => b"TASK_STATE_COMPLETED",
        TaskState::Failed => b"TASK_STATE_FAILED",
        TaskState::Canceled => b"TASK_STATE_CANCELED",
        TaskState::InputRequired => b"TASK_STATE_INPUT_REQUIRED",
        TaskState::Rejected => b"TASK_STATE_REJECTED",
        TaskState::AuthRequired => b"TASK_STATE_AUTH_REQUIRED",
    }
}

/// The name of a state in a query of HTTP+JSON.
pub fn state_name(state: TaskState) -> &'static str {
    // All names are ASCII.
    str::from_utf8(state_v1(state)).unwrap_or_default()
}

/// Appends a message with `write`, and inserts the task and context id of the call, unless the
/// message has its own.
fn message_with_ids(
    out: &mut Vec<u8>,
    message: Message<'_>,
    [context_id, task_id]: [Option<&[u8]>; 2],
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    write(out);
    let mut extra = Vec::new();
    for (key, id, own) in [
        (&b"\"contextId\":\""[..], context_id, message.context_id()),
        (b"\"taskId\":\"", task_id, message.task_id()),
    ] {
        if let (Some(id), None) = (id, own) {
            extra.extend_from_slice(key);
            extra.extend_from_slice(id);
            extra.extend_from_slice(b"\",");
        }
    }
    if !extra.is_empty() {
        // After the opening brace; a message always has members.
        out.splice(start + 1..start + 1, extra);
    }
}

/// Checks that the message has an id, which the sender must create.
fn has_id(message: Message<'_>, by: &'static str) -> Result<(), NotExpressible> {
    match message.message_id().is_empty() {
        true => Err(NotExpressible { what: "a message without messageId", by }),
        false => Ok(()),
    }
}

/// Checks the parts for 0.x: only a file may have a name and a media type.
fn plain_parts(message: Message<'_>, by: &'static str) -> Result<(), NotExpressible> {
    for part in message.parts() {
        let is_file = match part.content() {
            Content::Raw(_) | Content::Url(_) => true,
            Content::Text(_) | Content::Data(_) | Content::Unknown(_) => false,
        };
        if !is_file && part.filename().is_some() {
            return Err(NotExpressible { what: "filename of a part that is not a file", by });
        }
        if !is_file && part.media_type().is_some() {
            return Err(NotExpressible { what: "mediaType of a part that is not a file", by });
        }
    }
    Ok(())
}

/// Rejects a message that has a field with this tag.
fn without(
    message: Message<'_>,
    tag: u8,
    what: &'static str,
    by: &'static str,
) -> Result<(), NotExpressible> {
    let has = message.fields().any(|(found, _)| found == tag);
    if has { Err(NotExpressible { what, by }) } else { Ok(()) }
}

fn without_references(message: Message<'_>, by: &'static str) -> Result<(), NotExpressible> {
    without(message, message_tag::REFERENCE, "referenceTaskIds", by)
}

fn without_extensions(message: Message<'_>, by: &'static str) -> Result<(), NotExpressible> {
    without(message, message_tag::EXTENSION, "extensions", by)
}

/// Rejects fields that only Evo AI configurations have.
fn plain_config(config: PushConfig<'_>, by: &'static str) -> Result<(), NotExpressible> {
    only(config.headers().next(), "header fields of a push configuration", by)?;
    only(config.context_id(), "the context of a push configuration", by)
}

/// Rejects a value that the generation cannot express.
fn only<T>(value: Option<T>, what: &'static str, by: &'static str) -> Result<(), NotExpressible> {
    if value.is_some() { Err(NotExpressible { what, by }) } else { Ok(()) }
}
