//! Waiting webhooks, for the operator.

use super::{PostStage, Schedule};

impl<T> Schedule<T> {
    /// How many have something that is yet to be posted, and go on; and since when the one has it
    /// that has waited longest. It looks at all.
    pub fn pending(&self) -> (usize, Option<u64>) {
        let (mut count, mut oldest_ms) = (0, None);
        for entry in self.entries.iter().flatten() {
            match entry.stage {
                PostStage::Idle | PostStage::Stopped => {}
                PostStage::Ready
                | PostStage::Granted
                | PostStage::Posting(_)
                | PostStage::Behind
                | PostStage::Aside
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
