//! Large posts under way: nobody's may hold the bytes of all.
//!
//! Law: small posts, of which there is a bounded number, are not looked at; they may hold half of
//! the bytes. Large ones hold the other half, those of one owner at most half of that, and those of
//! one host a quarter. Whoever has none under way may have one, however large, if there are bytes
//! left; and where there is none at all, there may always be one.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{outbox::PostRequest, schedule::host_name, url_origin};

/// Whose a large post is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostSize {
    /// Who counts for it; 0: nobody in particular.
    owner: u32,
    host: Box<str>,
    bytes: usize,
}

/// Bytes of large posts under way.
#[derive(Debug)]
pub struct LargePosts {
    small_max: usize,
    large_max: usize,
    held: usize,
    by_owner: HashMap<u32, usize, RandomState>,
    by_host: HashMap<Box<str>, usize, RandomState>,
}

impl LargePosts {
    /// For so many bytes and posts in all.
    pub fn new(bytes_max: usize, posts_max: u32) -> LargePosts {
        let large_max = bytes_max / 2;
        let small_max = large_max / (posts_max as usize).max(1);
        let (held, by_owner, by_host) = Default::default();
        LargePosts { small_max, large_max, held, by_owner, by_host }
    }

    /// What is counted of a request; `None`: it is small.
    pub fn size(&self, request: &PostRequest) -> Option<PostSize> {
        let bytes = request.bytes();
        let host = || host_name(url_origin(&request.url)).into();
        (bytes > self.small_max).then(|| PostSize { owner: request.owner, host: host(), bytes })
    }

    /// Whether there is room for one.
    pub fn has_room(&self, size: &PostSize) -> bool {
        let share = |held: Option<&usize>, most: usize| {
            held.is_none_or(|held| held.saturating_add(size.bytes) <= most)
        };
        // Nobody in particular may be everybody.
        let of_owner = self.large_max / if size.owner == 0 { 1 } else { 2 };
        self.is_idle()
            || (self.held.saturating_add(size.bytes) <= self.large_max
                && share(self.by_owner.get(&size.owner), of_owner)
                && share(self.by_host.get(&size.host), self.large_max / 4))
    }

    /// Whether none is under way.
    pub fn is_idle(&self) -> bool {
        self.held == 0
    }

    /// Counts one that is under way.
    pub fn enter(&mut self, size: &PostSize) {
        self.held += size.bytes;
        *self.by_owner.entry(size.owner).or_default() += size.bytes;
        *self.by_host.entry(size.host.clone()).or_default() += size.bytes;
    }

    /// It has ended.
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
mod tests {
    use super::*;

    fn request(owner: u32, url: &str, bytes: usize) -> PostRequest {
        let body = vec![b' '; bytes - url.len()];
        PostRequest { owner, url: url.to_owned(), body, ..PostRequest::default() }
    }

    #[test]
    fn nobody_has_more_than_a_share_and_everybody_may_have_one() {
        let mut posts = LargePosts::new(16_000, 8);
        assert_eq!(posts.size(&request(1, "https://a/", 1_000)), None);
        let size = |owner, url, bytes| posts.size(&request(owner, url, bytes)).unwrap();
        // Two of the first owner at hosts of their own, and one of the second.
        let huge = size(1, "https://a/1", 20_000);
        let [a, b, c, d, e] = [
            size(1, "https://a/2?x", 1_900),
            size(1, "https://b/", 1_900),
            size(1, "https://c/", 1_900),
            size(2, "http://a:81/", 1_900),
            size(0, "https://d/", 2_300),
        ];
        let huge_of_other = size(2, "https://e/", 7_000);
        assert!(posts.has_room(&huge));
        posts.enter(&huge);
        assert!(!posts.has_room(&a) && !posts.has_room(&d));
        posts.leave(&huge);
        posts.enter(&a);
        assert!(!posts.has_room(&a), "a host has a quarter");
        assert!(!posts.has_room(&d), "whoever it is for, at whatever port");
        posts.enter(&b);
        assert!(!posts.has_room(&c), "an owner has half");
        assert!(!posts.has_room(&huge_of_other));
        assert!(posts.has_room(&e));
        posts.enter(&e);
        assert!(!posts.has_room(&e));
        [&a, &b, &e].into_iter().for_each(|size| posts.leave(size));
        assert!(posts.held == 0 && posts.by_owner.is_empty() && posts.by_host.is_empty());
    }
}
