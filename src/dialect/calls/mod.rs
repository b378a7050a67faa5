//! Writing calls: the params of each operation, as each generation and platform has them (wire
//! §1.5, §3, §8).
//!
//! Invariant: strict. Only members that the generation has are written, and what it cannot say is
//! an error that names it; nothing is dropped. What a caller gives as JSON is copied as it is.

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

/// What a writer of calls may use beside the call.
#[derive(Clone, Copy)]
pub struct CallOut<'a> {
    /// The space of tasks that the interface names, where it is part of the params.
    pub tenant: Option<&'a str>,
    /// True: where a subscriber goes on is part of the params, as there is no header for it.
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
    /// [`NotExpressible`]; what was appended is then to be dropped.
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

/// The method of a dialect by which calls of a generation are made: its name and how it is written
/// and answered; `None`: there is none.
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
    // Wire §1.2: names that both slash generations have.
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

/// The value of `A2A-Version` on calls of a generation (wire §1.8); 0.1 knows no such header.
pub fn version_header(generation: Generation) -> Option<&'static str> {
    match generation {
        Generation::V01 => None,
        Generation::V03 => Some("0.3"),
        Generation::V1 => Some("1.0"),
    }
}

/// The headers that name the extensions a client uses (wire §10, trap 34); 0.1 knows none.
pub fn extension_headers(generation: Generation) -> &'static [&'static str] {
    match generation {
        Generation::V01 => &[],
        Generation::V03 => &["X-A2A-Extensions", "A2A-Extensions"],
        Generation::V1 => &["A2A-Extensions"],
    }
}

/// How a generation writes calls over HTTP+JSON; `None`: it has no such binding.
pub fn http_json(dialect: &Dialect, generation: Generation) -> Option<&'static HttpJson> {
    dialect.routes.rest.iter().copied().find(|form| form.generation == generation)
}

/// The name of a state where tasks are filtered by it.
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
    // ASCII, every one of them.
    str::from_utf8(state_v1(state)).unwrap_or_default()
}

/// Appends a message that `write` writes, and inside it what the call says beside it: to which
/// task and conversation it belongs, where it does not say so itself.
fn message_with_ids(
    out: &mut Vec<u8>,
    message: Message<'_>,
    [context_id, task_id]: [Option<&[u8]>; 2],
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    write(out);
    let mut beside = Vec::new();
    for (key, id, own) in [
        (&b"\"contextId\":\""[..], context_id, message.context_id()),
        (b"\"taskId\":\"", task_id, message.task_id()),
    ] {
        if let (Some(id), None) = (id, own) {
            beside.extend_from_slice(key);
            beside.extend_from_slice(id);
            beside.extend_from_slice(b"\",");
        }
    }
    if !beside.is_empty() {
        // Behind the brace; a message has members.
        out.splice(start + 1..start + 1, beside);
    }
}

/// A message has an id, which its sender makes.
fn has_id(message: Message<'_>, by: &'static str) -> Result<(), NotExpressible> {
    match message.message_id().is_empty() {
        true => Err(NotExpressible { what: "a message without messageId", by }),
        false => Ok(()),
    }
}

/// Parts of 0.x: a name and a media type are those of a file.
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

/// Refuses what a message has of this kind.
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

/// Refuses what only the configuration of Evo AI has.
fn plain_config(config: PushConfig<'_>, by: &'static str) -> Result<(), NotExpressible> {
    only(config.headers().next(), "header fields of a push configuration", by)?;
    only(config.context_id(), "the context of a push configuration", by)
}

/// Refuses what is there and cannot be said.
fn only<T>(value: Option<T>, what: &'static str, by: &'static str) -> Result<(), NotExpressible> {
    if value.is_some() { Err(NotExpressible { what, by }) } else { Ok(()) }
}
