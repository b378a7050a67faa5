//! Reads params: one lenient reader for all generations; [`Rules`] contains their differences.
//!
//! Wire §8 and Appendix B: every alias is accepted everywhere, unknown members are ignored, `null`
//! is unset. Members are visited once; of repeated members the last is used. An error names the
//! wrong member.

#[cfg(feature = "client")]
mod artifact;
#[cfg(feature = "client")]
mod event;
#[cfg(feature = "client")]
mod fault;
mod list;
mod message;
mod part;
mod push;
mod push_config;
#[cfg(feature = "client")]
mod push_reply;
#[cfg(feature = "client")]
mod reply;
mod send;
pub(super) mod sizes;
mod target;
#[cfg(feature = "client")]
mod task;

use std::{borrow::Cow, ops::RangeInclusive};

use crate::{
    fault::Fault,
    json::{Kind, Value, ValueSlot},
    model::{Call, Generation, Params},
};

use super::ReadCx;

pub(super) use push::read_headers as push_headers;

pub use list::is_known_filter;
pub use send::NO_GENERATIONS;

#[cfg(feature = "client")]
pub use fault::read as read_fault;
#[cfg(feature = "client")]
pub use reply::{ReplyCx, item as read_item, looks_like_item, read as read_reply};

/// `historyLength` is an int32.
const INT32_MAX: u32 = i32::MAX as u32;

/// The differences between the readers of two dialects.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// The wire family; in 0.1 the client chooses the task id and must request history explicitly.
    pub generation: Generation,
    /// True: `context:task` is a task id, and get and cancel may name the `contextId`.
    pub threads: bool,
    /// Largest `historyLength` of a get.
    pub history_max: u32,
    /// True: the ProtoJSON of 0.3 (wire §3.4). Requests and parts may also have its names, a data
    /// part is a separate message, and an absent `blocking` in a configuration is false.
    pub proto: bool,
    /// True: a message needs an id, and a part must contain the kind that it names. False: the
    /// omissions and other names of known clients are accepted.
    pub strict: bool,
    /// True: push configurations, also in messages, may have header fields.
    pub push_headers: bool,
    /// True: unknown parts and roles of replies are errors.
    pub judges: bool,
}

impl Rules {
    /// The rules of this generation's specification.
    pub const fn of(generation: Generation) -> Rules {
        Rules {
            generation,
            threads: false,
            history_max: INT32_MAX,
            proto: false,
            strict: false,
            push_headers: false,
            judges: false,
        }
    }
}

/// Reads the params of any operation.
pub(super) fn call<'p>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    pack.clear();
    let params = usable(params)?;
    match cx.op.params() {
        Params::Send => send::read(rules, cx, params, pack),
        Params::Get => target::get(rules, cx, params, pack),
        Params::List => list::read(cx, params, pack).map(Call::List),
        Params::Target(call) => target::read(rules, cx, params, pack).map(call),
        Params::Push => push::read(rules, cx, params, pack).map(Call::Push),
        Params::Nothing => {
            only_tenant(cx, params);
            Ok(Call::ExtendedCard)
        }
    }
}

/// Records the tenant in params that are not read otherwise.
fn only_tenant(cx: &ReadCx<'_>, params: Option<Value<'_>>) {
    let tenant = params.and_then(|params| params.get("tenant")).and_then(set);
    cx.tenant.set(tenant.map(|tenant| tenant.slot()).unwrap_or_default());
}

/// Absent, `null`, `{}` and `[]` all mean "no params".
fn usable(params: Option<Value<'_>>) -> Result<Option<Value<'_>>, Fault> {
    let Some(params) = params.and_then(set) else { return Ok(None) };
    match params.kind() {
        Kind::Object => Ok(Some(params)),
        Kind::Array if params.is_empty() => Ok(None),
        Kind::Array | Kind::Null | Kind::Bool(_) | Kind::Number | Kind::String => {
            Err(Fault::param("params", "must be an object"))
        }
    }
}

/// Declares the members of an object with all their names: one slot each, filled in one pass.
///
/// A `null` member is unset, as in ProtoJSON, unless its slot is declared with `=`.
macro_rules! slots {
    ($name:ident { $($slot:ident $keep:tt $($spelling:literal)|+;)+ }) => {
        #[derive(Default)]
        struct $name { $($slot: crate::json::ValueSlot,)+ }

        impl $name {
            /// Fills the slots in place, because the struct is large to move.
            #[inline(always)] // Each reader is compiled once for requests, once for replies.
            fn fill(&mut self, object: Value<'_>) {
                for (key, value) in object.members() {
                    let set = !value.is_null();
                    match key.plain() {
                        Some(name) => self.put(name, value.slot(), set),
                        None => self.put(&key.text(), value.slot(), set),
                    }
                }
            }

            fn put(&mut self, name: &[u8], slot: crate::json::ValueSlot, set: bool) {
                $(
                    if $(name == $spelling.as_bytes())||+ {
                        self.$slot = if set || slots!(@$keep) { slot } else { Default::default() };
                        return;
                    }
                )+
            }
        }
    };
    (@:) => { false };
    (@=) => { true };
}
use slots;

/// The value, unless it is `null`.
#[inline]
fn set(value: Value<'_>) -> Option<Value<'_>> {
    (!value.is_null()).then_some(value)
}

/// The position of a member that only the ProtoJSON of 0.3 has. The lookup is separate, so that
/// other readers need no slot.
#[cold]
fn proto_slot(object: Value<'_>, name: &str) -> ValueSlot {
    object.get(name).and_then(set).map(|value| value.slot()).unwrap_or_default()
}

fn missing(field: &'static str) -> Fault {
    Fault::param(field, "is required")
}

fn too_long(field: &'static str, bytes_max: usize) -> Fault {
    Fault::param(field, format!("must not be longer than {bytes_max} bytes"))
}

/// The text of a string between its quotes: borrowed from the body, or rewritten.
type RawString<'p> = Cow<'p, [u8]>;

/// An identifier in canonical form; the empty string is unset (ProtoJSON default).
#[inline(always)] // Most optional identifiers are absent.
fn identifier<'p>(
    value: Option<Value<'p>>,
    field: &'static str,
    cx: &ReadCx<'_>,
) -> Result<Option<RawString<'p>>, Fault> {
    let Some(value) = value else { return Ok(None) };
    let id = canonical(value, field, cx.limits.identifier_bytes_max)?;
    Ok(Some(id).filter(|id| !id.is_empty()))
}

/// A string in canonical form.
#[inline(always)] // Every id needs it; a function call costs as much.
fn canonical<'p>(
    value: Value<'p>,
    field: &'static str,
    bytes_max: usize,
) -> Result<RawString<'p>, Fault> {
    let text = value.string_canonical().ok_or_else(|| Fault::param(field, "must be a string"))?;
    if text.len() > bytes_max { Err(too_long(field, bytes_max)) } else { Ok(text) }
}

/// The verbatim text of an object. An empty list counts as an empty object, because PHP writes an
/// empty map as a list.
#[inline]
fn object<'p>(value: Option<Value<'p>>, field: &'static str) -> Result<Option<Value<'p>>, Fault> {
    match value {
        Some(value) if value.kind() != Kind::Object => match is_empty_list(value) {
            true => Ok(None),
            false => Err(Fault::param(field, "must be an object")),
        },
        value => Ok(value),
    }
}

fn is_empty_list(value: Value<'_>) -> bool {
    value.kind() == Kind::Array && value.is_empty()
}

/// Whether a value is a list. An empty object counts as one, because Lua writes an empty list as an
/// object.
fn is_list(value: Value<'_>) -> bool {
    match value.kind() {
        Kind::Array => true,
        Kind::Object => value.is_empty(),
        Kind::Null | Kind::Bool(_) | Kind::Number | Kind::String => false,
    }
}

#[inline]
fn boolean(value: Option<Value<'_>>, field: &'static str) -> Result<Option<bool>, Fault> {
    let Some(value) = value else { return Ok(None) };
    value.as_bool().map(Some).ok_or_else(|| Fault::param(field, "must be true or false"))
}

/// A whole number in `range`; ProtoJSON also allows a string.
#[inline]
fn count(
    value: Option<Value<'_>>,
    field: &'static str,
    range: RangeInclusive<u32>,
) -> Result<Option<u32>, Fault> {
    match value {
        Some(value) => whole_number(value, field, range).map(Some),
        None => Ok(None),
    }
}

fn whole_number(
    value: Value<'_>,
    field: &'static str,
    range: RangeInclusive<u32>,
) -> Result<u32, Fault> {
    let number = match value.as_str() {
        Some(text) => text.parse::<i64>().ok(),
        None => value.as_i64(),
    };
    match number.map(u32::try_from) {
        None => Err(Fault::param(field, "must be a whole number")),
        Some(Ok(number)) if range.contains(&number) => Ok(number),
        Some(_) => {
            let (least, most) = range.into_inner();
            Err(Fault::param(field, format!("must be from {least} to {most}")))
        }
    }
}

/// Text that remains valid after reading: in the body, or at a position in the pack.
enum TextRef<'p> {
    Body(&'p [u8]),
    Pack(usize, usize),
}

/// Copies text that is not in the body to the end of `pack`.
fn keep<'p>(pack: &mut Vec<u8>, text: RawString<'p>) -> TextRef<'p> {
    match text {
        Cow::Borrowed(text) => TextRef::Body(text),
        Cow::Owned(text) => {
            let start = pack.len();
            pack.extend_from_slice(&text);
            TextRef::Pack(start, pack.len())
        }
    }
}

impl<'p> TextRef<'p> {
    fn bytes(&self, pack: &'p [u8]) -> &'p [u8] {
        match *self {
            TextRef::Body(text) => text,
            TextRef::Pack(start, end) => pack.get(start..end).unwrap_or_default(),
        }
    }
}
