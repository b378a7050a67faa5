//! Large deliveries in flight: one owner cannot hold all of the memory.
//!
//! Invariant: small deliveries have a bounded number and are not counted here; they may hold half
//! of the bytes. Large deliveries hold the other half: at most half of it for one owner (all of it
//! for anonymous callers together) and a quarter for one host. The first large delivery of an owner
//! or host may exceed that share, but not the free bytes. If no large delivery is in flight, any
//! delivery may start. The delivery that has waited longest for free bytes starts before later
//! ones; a resumed delivery has its bytes reserved.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{
    outbox::PostRequest,
    schedule::{WebhookSlot, host_name},
    url_origin,
};

/// The size of a large delivery, with its owner and host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostSize {
    /// The owner of its webhook; 0: all anonymous callers.
    pub owner: u32,
    host: Box<str>,
    bytes: usize,
}

/// Whether a delivery has room for its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostRoom {
    /// The bytes are free.
    Free,
    /// The bytes exceed the share of its owner or its host.
    ShareHeld,
    /// The bytes exceed the free bytes of all large deliveries.
    AllHeld,
}

/// Bytes of large deliveries in flight.
#[derive(Debug)]
pub struct LargePosts {
    small_max: usize,
    large_max: usize,
    /// Bytes of deliveries in flight and of promised ones.
    held: usize,
    /// Bytes of the delivery that has waited longest for free bytes; 0: none waits.
    waiting: usize,
    /// Resumed deliveries: their bytes are reserved until they start.
    promised: Vec<(WebhookSlot, PostSize)>,
    by_owner: HashMap<u32, usize, RandomState>,
    by_host: HashMap<Box<str>, usize, RandomState>,
}

impl LargePosts {
    /// Limits for this total of bytes and deliveries.
    pub fn new(bytes_max: usize, posts_max: u32) -> LargePosts {
        let large_max = bytes_max / 2;
        let small_max = large_max / (posts_max as usize).max(1);
        let (held, waiting, promised, by_owner, by_host) = Default::default();
        LargePosts { small_max, large_max, held, waiting, promised, by_owner, by_host }
    }

    /// The size of a request that counts as large; `None`: it is small.
    pub fn size(&self, request: &PostRequest) -> Option<PostSize> {
        let bytes = request.bytes();
        let host = || host_name(url_origin(&request.url)).into();
        (bytes > self.small_max).then(|| PostSize { owner: request.owner, host: host(), bytes })
    }

    /// Whether a delivery has room for its bytes.
    pub fn room(&self, size: &PostSize) -> PostRoom {
        self.room_with_reserved(size, self.waiting)
    }

    /// As [`LargePosts::room`], while `others` bytes are reserved.
    fn room_with_reserved(&self, size: &PostSize, others: usize) -> PostRoom {
        let share = |held: Option<&usize>, most: usize| {
            held.is_none_or(|held| held.saturating_add(size.bytes) <= most)
        };
        // All anonymous callers count as one owner.
        let of_owner = self.large_max / if size.owner == 0 { 1 } else { 2 };
        let needed = self.held.saturating_add(size.bytes).saturating_add(others);
        if self.held == 0 {
            PostRoom::Free
        } else if !share(self.by_owner.get(&size.owner), of_owner)
            || !share(self.by_host.get(&size.host), self.large_max / 4)
        {
            PostRoom::ShareHeld
        } else if needed > self.large_max {
            PostRoom::AllHeld
        } else {
            PostRoom::Free
        }
    }

    /// Counts a delivery that starts; false: it has no room. A promised delivery may also use the
    /// bytes that are reserved for the waiting one, which came later.
    pub fn begin(&mut self, slot: WebhookSlot, size: &PostSize) -> bool {
        let others = if self.keep_promise(slot) { 0 } else { self.waiting };
        let has_room = self.room_with_reserved(size, others) == PostRoom::Free;
        if has_room {
            self.enter(size);
        }
        has_room
    }

    /// Whether no delivery is in flight, except promised ones.
    pub fn is_idle(&self) -> bool {
        self.held == self.promised.iter().map(|(_, size)| size.bytes).sum::<usize>()
    }

    /// Reserves the bytes of a resumed delivery until it starts.
    pub fn promise(&mut self, slot: WebhookSlot, size: PostSize) {
        self.enter(&size);
        self.promised.push((slot, size));
    }

    /// Releases the reserved bytes of a delivery that starts; false: no bytes were reserved.
    pub fn keep_promise(&mut self, slot: WebhookSlot) -> bool {
        let at = self.promised.iter().position(|(promised, _)| *promised == slot);
        let promise = at.map(|at| self.promised.swap_remove(at));
        promise.inspect(|(_, size)| self.leave(size)).is_some()
    }

    /// Releases the reserved bytes of deliveries that will not start soon.
    pub fn review(&mut self, is_near: impl Fn(WebhookSlot) -> bool) {
        let removed = self.promised.extract_if(.., |(slot, _)| !is_near(*slot));
        for (_, size) in removed.collect::<Vec<_>>() {
            self.leave(&size);
        }
        self.waiting = 0;
    }

    /// Records a delivery that waits for free bytes: it starts before later ones.
    pub fn wait(&mut self, size: &PostSize) {
        self.waiting = size.bytes;
    }

    /// Adds the bytes of a delivery.
    fn enter(&mut self, size: &PostSize) {
        self.held += size.bytes;
        *self.by_owner.entry(size.owner).or_default() += size.bytes;
        *self.by_host.entry(size.host.clone()).or_default() += size.bytes;
    }

    /// Subtracts the bytes of a delivery that has ended.
    pub fn leave(&mut self, size: &PostSize) {
        self.held -= size.bytes;
        if let Some(held) = self.by_owner.get_mut(&size.owner) {
            *held -= size.bytes;
            if *held == 0 {
                self.by_owner.remove(&size.owner);
            }
        }
        if let Some(held) = self.by_host.get_mut(&size.host) {
            *held -= size.bytes;
            if *held == 0 {
                self.by_host.remove(&size.host);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{
        PostRoom::{AllHeld, Free, ShareHeld},
        *,
    };

    fn request(owner: u32, url: &str, bytes: usize) -> PostRequest {
        let body = vec![b' '; bytes - url.len()];
        PostRequest { owner, url: url.to_owned(), body, ..PostRequest::default() }
    }

    #[test]
    fn large_deliveries_are_limited_by_owner_and_host_share() {
        let mut posts = LargePosts::new(16_000, 8);
        assert_eq!(posts.size(&request(1, "https://a/", 1_000)), None);
        let size = |owner, url, bytes| posts.size(&request(owner, url, bytes)).unwrap();
        // Two deliveries of the first owner at different hosts, and one of the second owner.
        let huge = size(1, "https://a/1", 20_000);
        let [a, b, c, d, e] = [
            size(1, "https://a/2?x", 1_900),
            size(1, "https://b/", 1_900),
            size(1, "https://c/", 1_900),
            size(2, "http://a:81/", 1_900),
            size(0, "https://d/", 2_300),
        ];
        let huge_of_other = size(2, "https://e/", 7_000);
        assert_eq!(posts.room(&huge), Free);
        posts.enter(&huge);
        assert_eq!([&a, &d].map(|size| posts.room(size)), [ShareHeld, ShareHeld]);
        posts.leave(&huge);
        posts.enter(&a);
        assert_eq!(posts.room(&a), ShareHeld, "a host has a quarter");
        assert_eq!(posts.room(&d), ShareHeld, "of any owner, at any port");
        posts.enter(&b);
        assert_eq!(posts.room(&c), ShareHeld, "an owner has half");
        assert_eq!(posts.room(&huge_of_other), AllHeld);
        assert_eq!(posts.room(&e), Free);
        posts.enter(&e);
        assert_eq!(posts.room(&e), ShareHeld);
        [&a, &b, &e].into_iter().for_each(|size| posts.leave(size));
        assert!(posts.held == 0 && posts.by_owner.is_empty() && posts.by_host.is_empty());
    }

    #[test]
    fn longest_waiting_large_delivery_comes_first() {
        let mut posts = LargePosts::new(16_000, 8);
        let size = |owner, url, bytes| posts.size(&request(owner, url, bytes)).unwrap();
        let [a, b, c] = ["https://a/", "https://b/", "https://c/"].map(|url| size(0, url, 1_900));
        let next = size(1, "https://d/", 6_000);
        let slot = |index: u32| WebhookSlot::of_token(&format!("{index}.0")).unwrap();
        assert!(posts.begin(slot(1), &a) && posts.begin(slot(2), &b));
        assert_eq!(posts.room(&next), AllHeld);
        posts.wait(&next);
        assert!(!posts.begin(slot(3), &c), "the free bytes are reserved for the waiting one");
        posts.leave(&a);
        assert!(!posts.begin(slot(3), &c));
        posts.review(|_| true);
        assert_eq!(posts.room(&next), Free);
        posts.promise(slot(4), next.clone());
        assert!(!posts.begin(slot(3), &c), "a resumed delivery has its bytes before it starts");
        posts.leave(&b);
        assert!(posts.is_idle(), "none is in flight");
        posts.wait(&c);
        assert!(posts.begin(slot(4), &next) && !posts.is_idle());
        // A delivery that will not start holds no bytes.
        posts.leave(&next);
        posts.promise(slot(5), a);
        posts.review(|near| near != slot(5));
        assert!(posts.held == 0 && posts.by_owner.is_empty() && posts.by_host.is_empty());
        assert!(!posts.keep_promise(slot(5)));
    }
}
