//! Reads a server's answers: one lenient reader for all generations and dialects (wire §8 to §10).
//!
//! Results may be wrapped or bare, with or without `kind`, in ProtoJSON or in the JSON of 0.1 to
//! 0.3; the members identify the form. Empty or `null` is unset, unknown members are ignored. If an
//! answer cannot be understood, the error names the member; the reader never guesses.

use std::cell::Cell;

use crate::{
    fault::Fault,
    json::{Kind, Value, ValueSlot},
    limits::Limits,
    model::{
        Generation, JsonObject, Op, ReadError, Received, ReceivedKind, Refusal, Role,
        pack::{Packer, message_tag, part_tag},
        received::Shapes,
    },
};

use super::{ReadCx, Rules, event, message, push_reply, slots, task};

/// The context of a reader of answers.
pub struct ReplyCx<'a> {
    /// The generation of the call.
    pub generation: Generation,
    /// True: data parts are separate messages, as in the ProtoJSON of 0.3.
    pub proto: bool,
    /// The limits of ids, texts, parts and lists; the parser limits size and depth.
    pub limits: &'a Limits,
    /// Maximum artifacts of a task, because reading them costs the square of their number.
    pub artifacts_max: usize,
    /// Maximum tasks of a page.
    pub tasks_max: usize,
    /// True: unknown values are errors.
    pub is_strict: bool,
}

impl ReplyCx<'_> {
    /// The reading rules for messages and parts of answers.
    pub(super) fn rules(&self) -> Rules {
        Rules { proto: self.proto, judges: self.is_strict, ..Rules::of(self.generation) }
    }

    /// The context for the readers of messages and parts, which requests use, too.
    pub(super) fn read_cx(&self) -> ReadCx<'_> {
        ReadCx {
            op: Op::Send,
            limits: self.limits,
            fresh_id: b"",
            after: None,
            task: None,
            tokens: Cell::new(usize::MAX),
            tenant: Cell::default(),
        }
    }
}

slots!(ResultSlots {
    kind: "kind";
    task: "task";
    message: "message" | "msg";
    status_update: "statusUpdate" | "status_update";
    artifact_update: "artifactUpdate" | "artifact_update";
    status: "status";
    artifact: "artifact";
    role: "role";
    task_id: "taskId" | "task_id";
    is_final: "final";
    artifacts: "artifacts";
    history: "history";
    complete: "stream_complete";
});

/// Clears `received` and reads the result of an operation into it (`None`: no result).
///
/// # Errors
/// [`ReadError`]; `received` is then empty.
pub fn read(
    cx: &ReplyCx<'_>,
    op: Op,
    result: Option<Value<'_>>,
    received: &mut Received,
) -> Result<(), ReadError> {
    received.clear();
    let result = result.filter(|result| !result.is_null());
    let read = match op {
        Op::Send | Op::Stream | Op::Get | Op::Cancel | Op::Subscribe => {
            let result = result.ok_or_else(|| ReadError::new("must be a task"));
            result.and_then(|result| shaped(cx, op, result, received))
        }
        Op::List => {
            let result = result.ok_or_else(|| ReadError::new("must be a page of tasks"));
            result.and_then(|result| task::page(cx, result, received))
        }
        Op::PushSet | Op::PushGet => push_reply::one(cx, op, result, received),
        Op::PushList => push_reply::list(cx, result, received),
        // Wire §1.5: the result is `null`, `{}` or absent.
        Op::PushDelete => Ok(()),
        Op::ExtendedCard => card(result, received),
    };
    if read.is_err() {
        received.clear();
    } else if let Some(result) = result {
        received.set_span(result.span());
    }
    read
}

/// Clears `received` and reads an item of a stream into it; see [`read`].
///
/// # Errors
/// [`ReadError`]; `received` is then empty.
pub fn item(cx: &ReplyCx<'_>, item: Value<'_>, received: &mut Received) -> Result<(), ReadError> {
    read(cx, Op::Stream, Some(item), received)
}

/// Whether a value has the shape of an item of a stream, valid or not.
#[cold]
pub fn looks_like_item(value: Value<'_>) -> bool {
    let mut slots = ResultSlots::default();
    slots.fill(value);
    let is_object =
        |slot| value.at(slot).is_some_and(|value: Value<'_>| value.kind() == Kind::Object);
    let members = [
        slots.task,
        slots.message,
        slots.status_update,
        slots.artifact_update,
        slots.status,
        slots.artifact,
    ];
    let kinds = ["task", "message", "status-update", "artifact-update"];
    let is_named =
        value.at(slots.kind).is_some_and(|kind| kinds.iter().any(|name| kind.str_eq(name)));
    is_named || value.at(slots.role).is_some() || members.into_iter().any(is_object)
}

/// Reads a value that is identified by its members: a task, a message, an event.
fn shaped(
    cx: &ReplyCx<'_>,
    op: Op,
    value: Value<'_>,
    received: &mut Received,
) -> Result<(), ReadError> {
    let shapes = match op {
        Op::Get | Op::Cancel => Shapes::Task,
        Op::Send => Shapes::Answer,
        Op::Stream
        | Op::Subscribe
        | Op::List
        | Op::PushSet
        | Op::PushGet
        | Op::PushList
        | Op::PushDelete
        | Op::ExtendedCard => Shapes::Item,
    };
    let (kind, member, inner) = match shape(cx, op, shapes, value) {
        Err(error) => unwrapped(cx, value).map_or(Err(error), |inner| shape(cx, op, shapes, inner)),
        shape => shape,
    }?;
    if !shapes.allow(kind) {
        return Err(ReadError::new(shapes.expected()));
    }
    let read = match kind {
        ReceivedKind::Task => task::read(cx, inner, received),
        ReceivedKind::Message => direct(cx, inner, received),
        ReceivedKind::StatusUpdate => event::status_update(cx, inner, received),
        ReceivedKind::ArtifactUpdate => event::artifact_update(cx, inner, received),
        ReceivedKind::Nothing
        | ReceivedKind::Page
        | ReceivedKind::PushConfig
        | ReceivedKind::PushConfigs
        | ReceivedKind::Card => Ok(()),
    };
    read.map_err(|error| if member.is_empty() { error } else { error.within(member) })?;
    received.set_kind(kind);
    Ok(())
}

/// The content of a result that is wrapped once more: in another envelope, in a model of Pydantic,
/// or in the proto's `payload`; at most three levels.
#[cold]
fn unwrapped<'p>(cx: &ReplyCx<'_>, value: Value<'p>) -> Option<Value<'p>> {
    const WRAPPERS: [&str; 4] = ["result", "root", "payload", "response"];
    let inside = |value: Value<'p>| {
        let mut inner = WRAPPERS.into_iter().filter_map(|name| value.get(name));
        inner.find(|inner| inner.kind() == Kind::Object).filter(|_| !looks_like_item(value))
    };
    let mut inner = inside(value).filter(|_| !cx.is_strict)?;
    for _ in 1..3 {
        inner = inside(inner).unwrap_or(inner);
    }
    Some(inner)
}

/// The kind of a result, the member that contains it (empty: bare), and its value.
fn shape<'p>(
    cx: &ReplyCx<'_>,
    op: Op,
    shapes: Shapes,
    value: Value<'p>,
) -> Result<(ReceivedKind, &'static str, Value<'p>), ReadError> {
    if value.kind() != Kind::Object {
        return Err(ReadError::new("must be an object"));
    }
    let mut slots = ResultSlots::default();
    slots.fill(value);
    let at = |slot: ValueSlot| value.at(slot);
    let named = at(slots.kind).and_then(|kind| {
        let names = [
            ("task", ReceivedKind::Task),
            ("message", ReceivedKind::Message),
            ("status-update", ReceivedKind::StatusUpdate),
            ("artifact-update", ReceivedKind::ArtifactUpdate),
        ];
        names.into_iter().find(|(name, _)| kind.str_eq(name)).map(|(_, kind)| kind)
    });
    let status = at(slots.status);
    let is_object = |value: &Value<'_>| value.kind() == Kind::Object;
    let (artifact, role) = (at(slots.artifact).filter(is_object), at(slots.role));
    let is_bare = status.is_some() || role.is_some() || artifact.is_some();
    if let Some(kind) = named.filter(|_| is_bare || cx.is_strict) {
        return Ok((kind, "", value));
    }
    // The last message of a2a-rust's streams over WebSocket (wire §8).
    let is_end = at(slots.complete).is_some_and(|complete| complete.as_bool() == Some(true))
        || status.is_some_and(|status| status.str_eq("stream_complete"));
    if is_end && op.is_streaming() {
        return Ok((ReceivedKind::Nothing, "", value));
    }
    if artifact.is_some() {
        return Ok((ReceivedKind::ArtifactUpdate, "", value));
    }
    if status.is_some() {
        let has_lists = at(slots.artifacts).is_some() || at(slots.history).is_some();
        // 0.1 streams no tasks; other generations mark the last event, or use another member for
        // the task id (wire §1.6).
        let is_update = at(slots.task_id).is_some()
            || at(slots.is_final).is_some()
            || (cx.generation == Generation::V01 && !has_lists);
        let is_update = op.is_streaming() && is_update;
        let kind = if is_update { ReceivedKind::StatusUpdate } else { ReceivedKind::Task };
        return Ok((kind, "", value));
    }
    if role.is_some() {
        return Ok((ReceivedKind::Message, "", value));
    }
    let wrapped = [
        (ReceivedKind::Task, "task", at(slots.task)),
        (ReceivedKind::Message, "message", at(slots.message)),
        (ReceivedKind::StatusUpdate, "statusUpdate", at(slots.status_update)),
        (ReceivedKind::ArtifactUpdate, "artifactUpdate", at(slots.artifact_update)),
    ];
    let mut wrapped = wrapped.into_iter().filter_map(|(kind, member, inner)| {
        inner.filter(is_object).map(|inner| (kind, member, inner))
    });
    match (wrapped.next(), wrapped.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => Err(ReadError::new("must be exactly one kind of event")),
        (None, _) => match named {
            Some(kind) => Ok((kind, "", value)),
            None => Err(ReadError::new(shapes.expected())),
        },
    }
}

/// Reads a direct message.
fn direct(cx: &ReplyCx<'_>, value: Value<'_>, received: &mut Received) -> Result<(), ReadError> {
    received.pack_message(|pack| read_message(cx, value, pack))
}

/// Packs a message.
pub(super) fn read_message(
    cx: &ReplyCx<'_>,
    value: Value<'_>,
    pack: &mut Vec<u8>,
) -> Result<(), ReadError> {
    if let Some(text) = value.string_raw() {
        words(text, pack);
        return Ok(());
    }
    if value.kind() != Kind::Object {
        return Err(ReadError::new("must be an object"));
    }
    message::read::<true>(&cx.rules(), &cx.read_cx(), value, pack).map(drop).map_err(wrong)
}

/// Packs a server's message that is only text.
#[cold]
fn words(text: &[u8], pack: &mut Vec<u8>) {
    let mut packer = Packer(pack);
    packer.put(message_tag::MESSAGE_ID, b"");
    packer.put(message_tag::ROLE, &[Role::Agent as u8]);
    let part = packer.open(message_tag::PART);
    packer.put(part_tag::TEXT, text);
    packer.close(part);
}

/// Stores a card unchanged.
fn card(result: Option<Value<'_>>, received: &mut Received) -> Result<(), ReadError> {
    let card = result.filter(|card| card.kind() == Kind::Object);
    let card = card.ok_or_else(|| ReadError::new("must be a card"))?;
    received.put_card(JsonObject::known(card.raw()));
    received.set_kind(ReceivedKind::Card);
    Ok(())
}

/// Converts the error of a reader that requests use, too, to a path in the server's answer.
#[cold]
pub(super) fn wrong(fault: Fault) -> ReadError {
    let field = fault.field.unwrap_or_default();
    let member = field.strip_prefix("message").unwrap_or(field).trim_start_matches('.');
    ReadError { path: member.to_owned(), expected: fault.detail }
}

/// Why the log of a task rejects received content.
#[cold]
pub(super) fn refused(refusal: Refusal) -> ReadError {
    ReadError::new(match refusal {
        Refusal::Terminal => "must not have events after the task has ended",
        Refusal::TooLarge => "must not be larger than the size limit of a task",
        Refusal::TooManyArtifacts => "must not have more artifacts than the limit of a task",
    })
}
