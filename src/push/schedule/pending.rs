//! Counts waiting webhooks, for the operator.

use super::{PostStage, Schedule};

impl<T> Schedule<T> {
    /// The number of webhooks with undelivered events that are not stopped, and the start of the
    /// longest wait. Examines all webhooks.
    pub fn pending(&self) -> (usize, Option<u64>) {
        let (mut count, mut oldest_ms) = (0, None);
        for entry in self.entries.iter().flatten() {
            match entry.stage {
                PostStage::Idle | PostStage::Stopped => {}
                PostStage::Ready
                | PostStage::Granted
                | PostStage::Posting(_)
                | PostStage::Blocked
                | PostStage::Deferred
                | PostStage::Paused => {
                    count += 1;
                    let before_ms = oldest_ms.unwrap_or(u64::MAX);
                    oldest_ms = Some(entry.since_ms.min(before_ms));
                }
            }
        }
        (count, oldest_ms)
    }
}
