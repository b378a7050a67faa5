//! The A2A nouns: messages, parts, artifacts, tasks, events, calls, replies, and agent profiles.
//!
//! Values are packed bytes and views over them; text is stored as the peer's verbatim JSON, so
//! output equals input. This module depends on no wire format, socket, clock or lock.

mod append;
pub mod build;
pub mod call;
mod check;
mod compact;
mod config_position;
mod entry;
pub mod event;
mod event_buf;
mod json;
mod must_escape;
#[cfg(feature = "client")]
pub mod outgoing;
mod owned;
pub mod pack;
mod part;
mod profile;
pub mod push;
mod push_filter;
#[cfg(feature = "client")]
pub mod received;
pub mod reply;
mod security;
pub mod state;
pub mod task;
mod text;
pub mod time;
mod uuid;
pub mod view;

pub use crate::json::JsonError;
pub use build::{ArtifactBuf, MessageBuf, PartBuf, PartsBuf};
pub(crate) use call::Params;
pub use call::{
    Call, Get, Idempotency, IdempotentConflict, List, Op, RepeatRules, Send, SendMode, Target,
    TaskWait,
};
pub(crate) use config_position::ConfigPosition;
pub use event::TaskEvent;
pub use event_buf::EventBuf;
pub use json::{JSON_DEPTH_MAX, Json, JsonObject, JsonObjectBuf, ValueError};
pub use must_escape::must_escape;
#[cfg(feature = "client")]
pub use outgoing::{NotExpressible, OutgoingCall};
pub use owned::{CallBuf, TaskBuf};
pub use pack::{Artifact, Message};
pub use part::{Content, Part};
pub use profile::{Extension, Profile, Provider, Skill, is_agent_name};
pub use push::{PushCall, PushConfig, PushConfigBuf, PushForm, PushRequest};
pub use push_filter::PushFilter;
#[cfg(feature = "client")]
pub use received::{ReadError, Received, ReceivedKind};
pub use reply::{PushReply, Reply};
pub use security::{CardRequirement, CardScheme, CardSchemeKind, CardSecurity};
pub use state::{Generation, Role, TaskState};
pub(crate) use task::FirstMessage;
pub use task::{Refusal, Task, TaskLimits};
pub use text::{RawText, Text};
pub use uuid::uuid;
#[cfg(feature = "push")]
pub(crate) use uuid::uuid_digits;
pub use view::{ArtifactView, TaskStatus, TaskView};
