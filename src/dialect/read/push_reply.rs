//! Reads a server's answers about push configurations.

use crate::{
    json::{Kind, Value},
    model::{ConfigPosition, Op, PushForm, ReadError, Received, ReceivedKind},
};

use super::{
    push_config::fields,
    reply::{ReplyCx, wrong},
    slots, task,
};

slots!(ConfigListSlots {
    configs: "configs";
    next: "nextPageToken" | "next_page_token";
});

/// Errors name the members as in 1.0.
const POSITION: ConfigPosition = ConfigPosition::of_set(PushForm::StreamResponse);

/// Reads the configuration of a set or a get.
pub(super) fn one(
    cx: &ReplyCx<'_>,
    op: Op,
    result: Option<Value<'_>>,
    received: &mut Received,
) -> Result<(), ReadError> {
    let is_some = match result {
        Some(result) => config(cx, result, received)?,
        None => false,
    };
    // 0.1 answers a get with an empty configuration if the task has none.
    if !is_some && op == Op::PushSet {
        return Err(ReadError::new("must be a push configuration"));
    }
    let kind = if is_some { ReceivedKind::PushConfig } else { ReceivedKind::Nothing };
    received.set_kind(kind);
    Ok(())
}

/// Reads a list of configurations: a bare array, or an array in a member.
pub(super) fn list(
    cx: &ReplyCx<'_>,
    result: Option<Value<'_>>,
    received: &mut Received,
) -> Result<(), ReadError> {
    received.set_kind(ReceivedKind::PushConfigs);
    let Some(result) = result else { return Ok(()) };
    let mut slots = ConfigListSlots::default();
    let configs = match result.kind() {
        Kind::Object => {
            slots.fill(result);
            result.at(slots.configs)
        }
        Kind::Array => Some(result),
        Kind::Null | Kind::Bool(_) | Kind::Number | Kind::String => {
            return Err(ReadError::new("must be a list of push configurations"));
        }
    };
    task::each(configs, "configs", |element| match config(cx, element, received)? {
        true => Ok(()),
        false => Err(ReadError::new("must be a push configuration")),
    })?;
    task::next_page(cx, result.at(slots.next), received)
}

/// Reads a configuration; false: the value has none.
fn config(cx: &ReplyCx<'_>, value: Value<'_>, received: &mut Received) -> Result<bool, ReadError> {
    if value.kind() != Kind::Object {
        return Err(ReadError::new("must be an object"));
    }
    let fields = fields(&cx.read_cx(), value, POSITION).map_err(wrong)?;
    if fields.url.is_none() {
        return Ok(false);
    }
    received.pack_config(|pack| {
        fields.pack(pack);
        Ok(true)
    })
}
