//! What an operator decides about webhooks.

use super::{Pace, PushTargets};
use crate::model::PushFilter;

/// What an operator decides about webhooks. The default posts wherever is publicly reachable over
/// https, for callers that are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushSettings {
    /// Where they may go.
    pub targets: PushTargets,
    /// True: anonymous callers may configure them, too. A server that does not authenticate callers
    /// has no others.
    pub anonymous: bool,
    /// Which URLs have to answer a token that they are asked for (wire §6, the sample of 0.1).
    pub challenge: PushChallenge,
    /// Which events webhooks get, and whether they are coalesced, as far as they do not say so
    /// themselves.
    pub filter: PushFilter,
    /// How posts are repeated, and how many there are at a time.
    pub pace: Pace,
}

/// Which URLs of webhooks are asked, by GET, whether they want posts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushChallenge {
    /// None.
    Never,
    /// All: one is posted nothing until it has answered.
    Always,
    /// Those to which more is to be posted than [`Pace::posts_per_s`] lets through: one that has
    /// answered has [`Pace::confirmed_posts_per_s`], and one that does not answer has what it had.
    /// Hosts that the operator allows are asked nothing.
    #[default]
    Auto,
}
