//! The operator's settings for webhooks.

use super::{Pace, PushTargets};
use crate::model::PushFilter;

/// The operator's settings for webhooks. By default webhooks may go to any public host over https,
/// and only authenticated callers may configure them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushSettings {
    /// Allowed targets.
    pub targets: PushTargets,
    /// True: anonymous callers may configure webhooks, too. Without an authenticator all callers
    /// are anonymous.
    pub anonymous: bool,
    /// Which URLs must answer a challenge (wire §6, the sample of 0.1).
    pub challenge: PushChallenge,
    /// Which events webhooks receive, and whether events are coalesced, unless the configuration
    /// sets it.
    pub filter: PushFilter,
    /// Retries, and limits on concurrent deliveries.
    pub pace: Pace,
}

/// Which webhook URLs receive a `GET` challenge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushChallenge {
    /// No URL.
    Never,
    /// All URLs: nothing is posted to a URL before it has answered.
    Always,
    /// URLs with more deliveries than [`Pace::posts_per_s`]: after its answer a URL receives up to
    /// [`Pace::confirmed_posts_per_s`]; without an answer its rate does not change. Hosts that the
    /// operator allows are not challenged.
    #[default]
    Auto,
}
