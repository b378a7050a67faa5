//! The operator's settings for webhooks.

use super::{Pace, PushTargets};
use crate::model::PushFilter;

/// The operator's settings for webhooks. By default they may go to any public host over https, for
/// authenticated callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushSettings {
    /// Allowed targets.
    pub targets: PushTargets,
    /// True: anonymous callers may configure webhooks, too. A server without an authenticator has
    /// only such callers.
    pub anonymous: bool,
    /// Which URLs must answer a challenge (wire §6, the sample of 0.1).
    pub challenge: PushChallenge,
    /// Which events webhooks get, and whether they are coalesced, unless the configuration sets it.
    pub filter: PushFilter,
    /// Retries, and limits on concurrent deliveries.
    pub pace: Pace,
}

/// Which webhook URLs are sent a `GET` challenge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushChallenge {
    /// None.
    Never,
    /// All: nothing is posted to a URL until it has answered.
    Always,
    /// Those with more deliveries than [`Pace::posts_per_s`]: after its answer a URL gets
    /// [`Pace::confirmed_posts_per_s`], and without an answer its rate stays. Hosts that the
    /// operator allows are not challenged.
    #[default]
    Auto,
}
