//! How many posts each owner has under way, and who waits because there are as many as may be.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::{PostPlace, SPARE};

/// Those for whom something is posted. Owner 0 is nobody in particular, and has no bound.
#[derive(Default)]
pub(super) struct Owners(HashMap<u32, OwnerPosts, RandomState>);

/// What is posted for one owner.
#[derive(Default)]
struct OwnerPosts {
    posting: u32,
    /// Places whose turn came while there were as many as may be; some have left meanwhile.
    waiting: VecDeque<PostPlace>,
}

impl Owners {
    /// Begins a post, of which an owner has `most` at a time; false: the place waits.
    pub fn begin(
        &mut self,
        owner: u32,
        place: PostPlace,
        most: u32,
        is_ready: impl Fn(PostPlace) -> bool,
    ) -> bool {
        if owner == 0 {
            return true;
        }
        let posts = self.0.entry(owner).or_default();
        if posts.posting < most.max(1) {
            posts.posting += 1;
            return true;
        }
        if posts.waiting.len() >= SPARE && posts.waiting.len().is_power_of_two() {
            posts.waiting.retain(|place| is_ready(*place));
        }
        posts.waiting.push_back(place);
        false
    }

    /// Ends a post; says who goes into line again.
    pub fn end(&mut self, owner: u32, is_ready: impl Fn(PostPlace) -> bool) -> Option<PostPlace> {
        let posts = self.0.get_mut(&owner)?;
        posts.posting -= 1;
        let next = std::iter::from_fn(|| posts.waiting.pop_front()).find(|place| is_ready(*place));
        if posts.posting == 0 && posts.waiting.is_empty() {
            self.0.remove(&owner);
        }
        next
    }
}
