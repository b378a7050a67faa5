//! The share of one owner at one host: its delivery rates, and its confirmed URLs.
//!
//! Invariants: there are two rates, one for URLs that have answered a challenge of this owner, and
//! one for all other URLs. A delivery above its rate gets a start time once, and waits without
//! further checks. A share without effect is dropped.

use super::Pace;

/// Maximum number of confirmed URLs; the oldest is evicted and must be challenged again.
const CONFIRMED_MAX: usize = 32;

/// The share, see the module.
#[derive(Default)]
pub(super) struct HostShare {
    /// When the next delivery of each rate would be due at an even pace, in µs.
    due_us: [u64; 2],
    /// Hashes of URLs that have answered their challenge.
    confirmed: Vec<u32>,
    /// When the next challenge may be sent.
    challenge_ms: u64,
    /// Challenges since the last answer.
    challenges: u32,
}

impl HostShare {
    /// Counts a delivery to a URL in its rate; returns when it may start; `None`: at once.
    pub fn take(&mut self, url: u32, pace: &Pace, now_ms: u64) -> Option<u64> {
        let is_confirmed = self.is_confirmed(url);
        let per_s = if is_confirmed { pace.confirmed_posts_per_s } else { pace.posts_per_s };
        let each_us = 1_000_000 / u64::from(per_s.max(1));
        let now_us = now_ms.saturating_mul(1_000);
        let due_us = &mut self.due_us[usize::from(is_confirmed)];
        let at_us = (*due_us).max(now_us);
        *due_us = at_us + each_us;
        // A burst of deliveries may start before the time of the even pace.
        let early_us = each_us * u64::from(pace.posts_burst.saturating_sub(1));
        let from_us = at_us.saturating_sub(early_us);
        (from_us > now_us).then(|| from_us.div_ceil(1_000))
    }

    /// Whether a URL has answered its challenge.
    pub fn is_confirmed(&self, url: u32) -> bool {
        self.confirmed.contains(&url)
    }

    /// Records that a URL has answered its challenge.
    pub fn confirm(&mut self, url: u32) {
        if !self.is_confirmed(url) {
            if self.confirmed.len() >= CONFIRMED_MAX {
                self.confirmed.remove(0);
            }
            self.confirmed.push(url);
        }
        (self.challenges, self.challenge_ms) = (0, 0);
    }

    /// Whether a challenge may be sent now.
    pub fn may_challenge(&self, now_ms: u64) -> bool {
        self.challenge_ms <= now_ms
    }

    /// Records a challenge: the delay until the next one doubles each time.
    pub fn challenged(&mut self, pace: &Pace, now_ms: u64) {
        self.challenges = self.challenges.saturating_add(1);
        let pause_ms = pace.pause_ms(self.challenges, pace.pause_ms_max, u64::MAX);
        self.challenge_ms = now_ms.saturating_add(pause_ms);
    }

    /// Whether the share has no effect.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        let now_us = now_ms.saturating_mul(1_000);
        self.due_us.iter().all(|due_us| *due_us <= now_us) && self.challenge_ms <= now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_above_the_burst_are_paced_by_the_rate() {
        let pace = Pace { posts_per_s: 50, posts_burst: 200, ..Pace::default() };
        let mut share = HostShare::default();
        let times: Vec<u64> =
            (0..300).map(|_| share.take(7, &pace, 1_000).unwrap_or(1_000)).collect();
        assert_eq!(times.iter().filter(|at| **at == 1_000).count(), 200);
        assert_eq!((times[200], times[201], times[250]), (1_020, 1_040, 2_020));
        assert!(!share.is_idle(5_000) && share.is_idle(20_000));
        // Confirmed URLs have their own rate.
        share.confirm(7);
        assert_eq!(share.take(7, &pace, 1_000), None);
        assert!(share.take(8, &pace, 1_000).is_some());
    }

    #[test]
    fn challenges_back_off_until_one_is_answered() {
        let (pace, mut share) = (Pace::default(), HostShare::default());
        let mut pauses = Vec::new();
        for _ in 0..4 {
            assert!(share.may_challenge(0));
            share.challenged(&pace, 0);
            pauses.push(share.challenge_ms);
            assert!(!share.may_challenge(share.challenge_ms - 1));
            share.challenge_ms = 0;
        }
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000]);
        share.challenged(&pace, 0);
        share.confirm(1);
        assert!(share.may_challenge(0) && share.is_confirmed(1));
        (0..100).for_each(|url| share.confirm(url));
        assert_eq!(share.confirmed.len(), CONFIRMED_MAX);
    }
}
