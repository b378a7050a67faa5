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
    /// True: a webhook is posted nothing until its URL has answered a token that it was asked for
    /// (wire §6, the sample of 0.1).
    pub challenge: bool,
    /// Which events webhooks get, and whether they are coalesced, as far as they do not say so
    /// themselves.
    pub filter: PushFilter,
    /// How posts are repeated, and how many there are at a time.
    pub pace: Pace,
}
