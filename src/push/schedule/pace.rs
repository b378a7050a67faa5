//! How posts are repeated, and the places of webhooks.

/// How posts are repeated, and how many there are at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Posts of one host at a time, whatever its schemes and ports. Of its origins, where there are
    /// several, each leaves a quarter to others.
    pub per_host: u32,
    /// Posts that a host has in addition, for owners that have none there: posts of others that
    /// hang hold up no owner's first. 0: there are none, and an owner may have places that it does
    /// not leave to others.
    pub first_posts: u32,
    /// Posts for one owner at a time, whatever origins they go to. All anonymous callers may have
    /// three quarters of all.
    pub per_owner: u32,
    /// Posts of all origins at a time.
    pub posts_max: u32,
    /// The longest first pause after a failure; it doubles with each. A pause is anything up to
    /// that.
    pub pause_ms_min: u64,
    /// The longest pause of all, of a webhook and of an origin; a receiver's `Retry-After` is cut
    /// to it.
    pub pause_ms_max: u64,
    /// How long a webhook is tried, since its last post that arrived, or since there was something
    /// to post, if that is later, or since it was replayed. Then it stops.
    pub give_up_ms: u64,
    /// Failures in a row, not of one webhook alone, after which an origin is given a rest: from
    /// then on one post at a time is tried, after pauses as those of a webhook, until its origin
    /// answers otherwise than by 408, 429 or 5xx.
    pub rest_after: u32,
    /// The longest pause of an origin that answers and says that it is not well: of another path
    /// it may say something else.
    pub rest_ms_max: u64,
    /// Posts a second of one owner to one host, challenges included; beyond it several events are
    /// one post. Hosts that the operator allows have no rate.
    pub posts_per_s: u32,
    /// Posts of one owner to one host that may go at once.
    pub posts_burst: u32,
    /// Posts a second to URLs that have answered their challenge.
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
    /// Posts of an origin at a time, at a host that has so many.
    pub(super) fn posts_of_origin(&self, origins: u32) -> u32 {
        match origins {
            0 | 1 => self.per_host,
            _ => self.per_host - self.per_host / 4,
        }
    }

    /// Posts for an owner at a time where so many places are taken; 0: all anonymous callers. An
    /// owner has no more than it leaves to others, so a few whose posts hang leave some.
    pub(super) fn posts_of_owner(&self, owner: u32, taken: u32) -> u32 {
        let most = match owner {
            0 => self.posts_max - self.posts_max / 4,
            _ if self.first_posts == 0 => self.per_owner,
            _ => self.per_owner.min(self.posts_max.saturating_sub(taken)),
        };
        most.max(1)
    }

    /// A pause after so many failures in a row: anything up to what has doubled with each of them,
    /// or up to this.
    pub(super) fn pause_ms(&self, failures: u32, most_ms: u64, random: u64) -> u64 {
        let doubled = self.pause_ms_min.saturating_mul(1 << failures.saturating_sub(1).min(32));
        let longest = doubled.min(most_ms).min(self.pause_ms_max).max(1);
        1 + ((u128::from(random) * u128::from(longest)) >> 64) as u64
    }
}

/// A place in a schedule, and a check against its successor in the same place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PostPlace {
    pub(super) index: u32,
    pub(super) check: u32,
}

impl PostPlace {
    /// No place.
    pub(in crate::push) const NONE: PostPlace = PostPlace { index: u32::MAX, check: 0 };

    /// As a page of a list names it, in ASCII.
    pub fn token(self) -> String {
        format!("{:x}.{:x}", self.index, self.check)
    }

    /// The place that a token names.
    pub fn of_token(token: &str) -> Option<PostPlace> {
        let (index, check) = token.split_once('.')?;
        let number = |text: &str| u32::from_str_radix(text, 16).ok();
        let place = PostPlace { index: number(index)?, check: number(check)? };
        (place.token() == token).then_some(place)
    }
}
