//! Webhooks: the delivery of task events, and the check of targets (A2A 1.0 §4.3.3, §13.2).

pub mod address;
mod dead;
pub mod fields;
pub mod large;
pub mod outbox;
mod owner_line;
mod registry;
mod schedule;
mod settings;
pub mod signature;
pub mod standard_webhooks;
mod target;
mod webhook;

pub use self::dead::{DeadLetter, WhyDead};
pub use self::registry::{
    CONFIG_BYTES, DEFAULT_ID, FailedPost, NewWebhook, NextPost, NoPage, Post, PushBounds,
    PushOutcomes, PushRefused, PushStart, PushStats, ReplayOutcome, Webhooks, WithdrawnWebhook,
};
pub use self::schedule::{FailureKind, Fate, Pace, Schedule, WebhookSlot};
pub use self::settings::{PushChallenge, PushSettings};
pub use self::target::{HostRule, NoHostRule, PortRule, PushTargets, TargetError, WebhookUrl};
pub use self::webhook::url_origin;
