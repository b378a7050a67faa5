//! Retry policy and concurrency limits of deliveries, and the keys of webhooks.

/// The retry policy and the limits on concurrent deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Maximum concurrent deliveries to one host, over all schemes and ports. If the host has
    /// several origins, a quarter is not available to any single origin.
    pub per_host: u32,
    /// Additional slots of a host for owners without a delivery to it, so that hanging deliveries
    /// of others do not delay an owner's first delivery. 0: no such slots, and an owner may use
    /// `per_owner` slots, even the last free ones.
    pub first_posts: u32,
    /// Maximum concurrent deliveries of one owner, over all origins. All anonymous callers together
    /// may have three quarters of `posts_max`.
    pub per_owner: u32,
    /// Maximum concurrent deliveries over all origins.
    pub posts_max: u32,
    /// The upper bound of the first pause after a failure; it doubles with each failure. A pause is
    /// random up to the bound.
    pub pause_ms_min: u64,
    /// The upper bound of all pauses, of webhooks and origins; a longer `Retry-After` of a receiver
    /// is cut to it.
    pub pause_ms_max: u64,
    /// How long a webhook is retried, from the latest of its last successful delivery, its first
    /// undelivered event, and its replay. Then it stops.
    pub give_up_ms: u64,
    /// Consecutive failures, not all of one webhook, after which an origin rests. Then one delivery
    /// at a time probes it, after pauses as for a webhook, until the origin responds with a status
    /// other than 408, 429 and 5xx.
    pub rest_after: u32,
    /// The maximum rest of an origin that responds with a temporary error, which may concern only
    /// some of its paths.
    pub rest_ms_max: u64,
    /// Deliveries per second of one owner to one host, including challenges; above this rate,
    /// several events become one delivery. Hosts that the operator allows have no rate limit.
    pub posts_per_s: u32,
    /// Maximum burst of deliveries of one owner to one host.
    pub posts_burst: u32,
    /// Deliveries per second to URLs that have answered their challenge.
    pub confirmed_posts_per_s: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            per_host: 8,
            first_posts: 24,
            per_owner: 64,
            posts_max: 256,
            pause_ms_min: 1_000,
            pause_ms_max: 60 * 60 * 1_000,
            give_up_ms: 24 * 60 * 60 * 1_000,
            rest_after: 8,
            rest_ms_max: 60 * 1_000,
            posts_per_s: 50,
            posts_burst: 200,
            confirmed_posts_per_s: 1_000,
        }
    }
}

impl Pace {
    /// Concurrent deliveries to an origin at a host with `origins` origins.
    pub(super) fn posts_of_origin(&self, origins: u32) -> u32 {
        match origins {
            0 | 1 => self.per_host,
            _ => self.per_host - self.per_host / 4,
        }
    }

    /// Maximum concurrent deliveries of an owner while `used` slots are in use; 0: all anonymous
    /// callers. An owner uses at most as many slots as remain free, so a few owners with hanging
    /// deliveries cannot use all slots.
    pub(super) fn posts_of_owner(&self, owner: u32, used: u32) -> u32 {
        let most = match owner {
            0 => self.posts_max - self.posts_max / 4,
            _ if self.first_posts == 0 => self.per_owner,
            _ => self.per_owner.min(self.posts_max.saturating_sub(used)),
        };
        most.max(1)
    }

    /// A random pause after consecutive failures: its upper bound doubles with each failure, up to
    /// `most_ms`.
    pub(super) fn pause_ms(&self, failures: u32, most_ms: u64, random: u64) -> u64 {
        let doubled = self.pause_ms_min.saturating_mul(1 << failures.saturating_sub(1).min(32));
        let longest = doubled.min(most_ms).min(self.pause_ms_max).max(1);
        1 + ((u128::from(random) * u128::from(longest)) >> 64) as u64
    }
}

/// The key of a webhook in a schedule: a slot, and a check that distinguishes later webhooks in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WebhookSlot {
    pub(super) index: u32,
    pub(super) check: u32,
}

impl WebhookSlot {
    /// A key that no webhook has.
    pub(in crate::push) const NONE: WebhookSlot = WebhookSlot { index: u32::MAX, check: 0 };

    /// The page token for this key, in ASCII.
    pub fn token(self) -> String {
        format!("{:x}.{:x}", self.index, self.check)
    }

    /// The key in a page token.
    pub fn of_token(token: &str) -> Option<WebhookSlot> {
        let (index, check) = token.split_once('.')?;
        let number = |text: &str| u32::from_str_radix(text, 16).ok();
        let slot = WebhookSlot { index: number(index)?, check: number(check)? };
        (slot.token() == token).then_some(slot)
    }
}
