//! When which webhook is posted next: which are ready, which wait after a failure, and which
//! origins are given a rest.
//!
//! Invariants: of one webhook one post is under way at most, so its events arrive in order; a
//! webhook that takes its place waits until that has ended. A host and an owner have a bounded
//! number of posts at a time, and a post counts until it has ended, whatever becomes of its
//! webhook. Owners take turns at a host, and so do the origins of each and the owners of an origin,
//! so a slow one holds up no other; nor do those that have failed, with which others take turns.
//! When an origin has failed often in a row, one post at a time finds out whether it is back, and
//! all others wait in line without a timer: waiting costs nothing until then.

mod host_line;
mod hosts;
mod origins;
mod outcome;
mod owners;
mod pace;
mod pending;
mod shares;
mod turns;
mod upkeep;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use foldhash::fast::RandomState;

use self::{
    origins::PostOrigins,
    owners::OwnerPosts,
    turns::{LaneKey, Lanes},
};
use crate::shares::Holder;

pub use self::pace::{Pace, PostPlace};
pub(super) use self::{hosts::host_name, origins::origin_bytes};

/// Places, turns and timers of those that have left which are not looked for.
const SPARE: usize = 64;

/// What became of a post that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is repeated.
    Repeated,
    /// It was tried for as long as it may be.
    GivenUp,
}

/// Why a post has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Its receiver does not take it, though its origin is there: it says nothing about others.
    Refused,
    /// Its origin answers, and says that it is not well.
    Unwell,
    /// There was no answer.
    NoAnswer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PostStage {
    /// There is nothing that was not posted.
    Idle,
    /// In its lane.
    Ready,
    /// Its host and its owner have a place for it; it waits for one among all posts.
    Granted,
    /// Under way; true: there is something new since it began.
    Posting(bool),
    /// Until the post of the one whose place it has taken has ended.
    Behind,
    /// Until there is room for its post, which is a large one.
    Aside,
    /// Until its pause is over.
    Paused,
    /// Until it is resumed.
    Stopped,
}

/// One that is posted to.
struct Scheduled<T> {
    value: T,
    origin: u32,
    /// Its owner; 0: all anonymous callers.
    owner: u32,
    check: u32,
    stage: PostStage,
    failures: u32,
    /// Since when there is something that was not posted.
    since_ms: u64,
    /// When its pause is over.
    due_ms: u64,
    /// A hash of its URL, whose posts have a rate; 0: they have none.
    url: u32,
    /// True: its next post was taken out of its rate.
    is_paid: bool,
    /// True: a post had to wait for its rate since the last that arrived.
    is_limited: bool,
}

impl<T> Scheduled<T> {
    /// Where it waits.
    fn lane(&self) -> LaneKey {
        LaneKey { origin: self.origin, owner: self.owner, is_tried: self.failures > 0 }
    }
}

/// A post under way, whose webhook may have left.
struct OpenPost {
    lane: LaneKey,
    /// The webhook that waits for its end.
    successor: Option<PostPlace>,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Pause(u32, u32),
    /// The circuit of an origin lets one post through.
    Probe(u32),
}

/// See the module. `T` is what is kept of each.
pub struct Schedule<T> {
    pace: Pace,
    entries: Vec<Option<Scheduled<T>>>,
    free: Vec<u32>,
    checks: u32,
    origins: PostOrigins,
    /// Owners with a delivery in flight, now or lately.
    owners: HashMap<u32, OwnerPosts, RandomState>,
    /// Of each owner at each origin: the webhooks that wait there.
    lanes: Lanes,
    tickets: u32,
    under_way: HashMap<PostPlace, OpenPost, RandomState>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    /// Places that are taken, of all owners.
    granted: u32,
}

impl<T> Schedule<T> {
    /// What each takes.
    #[cfg(test)]
    pub(super) const ENTRY_BYTES: usize = size_of::<Option<Scheduled<T>>>();

    /// An empty schedule.
    pub fn new(pace: Pace) -> Schedule<T> {
        Schedule {
            pace,
            entries: Vec::new(),
            free: Vec::new(),
            checks: 0,
            origins: PostOrigins::default(),
            owners: HashMap::default(),
            lanes: HashMap::default(),
            tickets: 0,
            under_way: HashMap::default(),
            timers: BinaryHeap::new(),
            granted: 0,
        }
    }

    /// The hash of the URL of one whose posts have a rate; 0: they have none.
    pub fn limit_of(&self, place: PostPlace) -> u32 {
        let entry = self.entries.get(place.index as usize).and_then(Option::as_ref);
        entry.filter(|entry| entry.check == place.check).map_or(0, |entry| entry.url)
    }

    /// Posts of one have a rate from now on, that of its URL, of which this is a hash; 0: none.
    pub fn limit(&mut self, place: PostPlace, url: u32) {
        if let Some(entry) = self.entry(place) {
            entry.url = url;
        }
    }

    /// Whether a post of one had to wait for its rate since the last that arrived.
    pub fn is_limited(&self, place: PostPlace) -> bool {
        let entry = self.entries.get(place.index as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.check == place.check && entry.is_limited)
    }

    /// Whether one has a rate, whose URL has not answered a challenge and may be sent one.
    pub fn may_challenge(&mut self, place: PostPlace, now_ms: u64) -> bool {
        let Some((url, lane)) = self.limited(place) else { return false };
        let share = self.origins.share(lane);
        share.is_some_and(|share| !share.is_confirmed(url) && share.may_challenge(now_ms))
    }

    /// A challenge is sent to the URL of one.
    pub fn challenged(&mut self, place: PostPlace, now_ms: u64) {
        let pace = self.pace;
        if let Some((_, lane)) = self.limited(place)
            && let Some(share) = self.origins.share(lane)
        {
            share.challenged(&pace, now_ms);
        }
    }

    /// The URL of one has answered its challenge.
    pub fn confirm(&mut self, place: PostPlace) {
        if let Some((url, lane)) = self.limited(place)
            && let Some(share) = self.origins.share(lane)
        {
            share.confirm(url);
        }
    }

    fn limited(&mut self, place: PostPlace) -> Option<(u32, LaneKey)> {
        let entry = self.entry(place).filter(|entry| entry.url != 0)?;
        Some((entry.url, entry.lane()))
    }

    /// The origin of one; `None`: it is gone.
    pub fn origin(&self, place: PostPlace) -> Option<&str> {
        let entry = self.entries.get(place.index as usize)?.as_ref();
        let origin = entry.filter(|entry| entry.check == place.check)?.origin;
        self.origins.get(origin).map(|origin| &*origin.text)
    }

    /// Whether an origin has webhooks.
    pub fn has_origin(&self, origin: &str) -> bool {
        self.origins.number(origin).is_some()
    }

    /// Webhooks of a host, whatever its schemes and ports.
    pub fn entries_of_host(&self, name: &str) -> usize {
        self.origins.entries_of_host(name)
    }

    /// What all origins take.
    pub fn origin_bytes(&self) -> usize {
        self.origins.bytes()
    }

    /// What the origins take that a holder has named first.
    pub fn origin_bytes_of(&self, holder: Holder) -> usize {
        self.origins.bytes_of(holder)
    }

    /// What the origins take that all strangers have named first.
    pub fn origin_bytes_of_strangers(&self) -> usize {
        self.origins.bytes_of_strangers()
    }

    /// Adds an entry that has nothing to post yet, at an origin such as `https://a.example:443`,
    /// charged to a holder. All anonymous holders take turns as one owner, 0.
    pub fn add(&mut self, origin: &str, holder: Holder, value: T) -> PostPlace {
        let origin = self.origins.enter(origin, holder);
        let owner = holder.number();
        self.checks = self.checks.wrapping_add(1);
        let check = self.checks;
        let stage = PostStage::Idle;
        let entry = Some(Scheduled {
            value,
            origin,
            owner,
            check,
            stage,
            failures: 0,
            since_ms: 0,
            due_ms: 0,
            url: 0,
            is_paid: false,
            is_limited: false,
        });
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        PostPlace { index, check }
    }

    /// Takes one in that has the place of another, which is yet to be removed: as long as a post of
    /// that is under way it waits.
    pub fn add_behind(
        &mut self,
        before: PostPlace,
        origin: &str,
        holder: Holder,
        value: T,
    ) -> PostPlace {
        let place = self.add(origin, holder, value);
        let since_ms = self.entry(before).map(|entry| entry.since_ms);
        let is_its = |(of, post): &(&PostPlace, &mut OpenPost)| {
            **of == before || post.successor == Some(before)
        };
        if let (Some(since_ms), Some((_, post))) =
            (since_ms, self.under_way.iter_mut().find(is_its))
        {
            post.successor = Some(place);
            if let Some(entry) = self.entry(place) {
                (entry.stage, entry.since_ms) = (PostStage::Behind, since_ms);
            }
        }
        place
    }

    /// Lets one go, whatever it was about. A post of it that is under way counts until it has
    /// ended.
    pub fn remove(&mut self, place: PostPlace) -> Option<T> {
        self.entry(place)?;
        let entry = self.entries[place.index as usize].take()?;
        self.free.push(place.index);
        let lane = entry.lane();
        match entry.stage {
            PostStage::Ready => self.leave_lane(lane),
            PostStage::Granted => {
                self.origins.withdraw(lane.origin, place);
                self.release(lane);
            }
            _ => {}
        }
        self.origins.leave(entry.origin);
        Some(entry.value)
    }

    /// What is kept of one; `None`: it is gone.
    pub fn get(&self, place: PostPlace) -> Option<&T> {
        let entry = self.entries.get(place.index as usize)?.as_ref()?;
        (entry.check == place.check).then_some(&entry.value)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, place: PostPlace) -> Option<&mut T> {
        self.entry(place).map(|entry| &mut entry.value)
    }

    fn entry(&mut self, place: PostPlace) -> Option<&mut Scheduled<T>> {
        let entry = self.entries.get_mut(place.index as usize)?.as_mut()?;
        (entry.check == place.check).then_some(entry)
    }

    /// Whether there is something that is yet to be posted to one, and it goes on.
    pub fn is_busy(&self, place: PostPlace) -> bool {
        let entry = self.entries.get(place.index as usize).and_then(Option::as_ref);
        let entry = entry.filter(|entry| entry.check == place.check);
        entry.is_some_and(|entry| !matches!(entry.stage, PostStage::Idle | PostStage::Stopped))
    }

    /// Whether a post of one is under way.
    pub fn is_posting(&self, place: PostPlace) -> bool {
        self.get(place).is_some() && self.under_way.contains_key(&place)
    }

    /// Whether one waits for the end of a post of the one before in its place.
    pub fn is_behind(&self, place: PostPlace) -> bool {
        is_at(&self.entries, place, PostStage::Behind)
    }

    /// The replacement of a webhook that is gone and has a delivery in flight.
    pub fn successor(&self, place: PostPlace) -> Option<PostPlace> {
        match self.get(place) {
            Some(_) => None,
            None => self.under_way.get(&place)?.successor,
        }
    }

    /// Whether one was given up, and has not gone on since.
    pub fn is_stopped(&self, place: PostPlace) -> bool {
        is_at(&self.entries, place, PostStage::Stopped)
    }

    /// Says that there is something new for one.
    pub fn note(&mut self, place: PostPlace, now_ms: u64) {
        let Some(entry) = self.entry(place) else { return };
        match entry.stage {
            PostStage::Idle => {
                entry.since_ms = now_ms;
                self.make_ready(place);
            }
            PostStage::Posting(_) => entry.stage = PostStage::Posting(true),
            // What is posted is what there is then.
            PostStage::Ready
            | PostStage::Granted
            | PostStage::Behind
            | PostStage::Aside
            | PostStage::Paused
            | PostStage::Stopped => {}
        }
    }

    /// Has one that was given up, or waits, go on at once; if its origin has a rest, this one finds
    /// out whether it is back.
    pub fn resume(&mut self, place: PostPlace, now_ms: u64) {
        let Some(entry) = self.entry(place) else { return };
        if matches!(entry.stage, PostStage::Idle | PostStage::Paused | PostStage::Stopped) {
            (entry.failures, entry.since_ms) = (0, now_ms);
            self.make_first(place);
        }
    }

    /// Has one stop that has nothing to post yet, until [`Schedule::resume`].
    pub fn stop(&mut self, place: PostPlace) {
        if let Some(entry) = self.entry(place).filter(|entry| entry.stage == PostStage::Idle) {
            entry.stage = PostStage::Stopped;
        }
    }

    /// When [`Schedule::next`] may have one, unless something else happens before.
    pub fn due_ms(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    /// Posts under way.
    pub fn posting(&self) -> u32 {
        self.under_way.len() as u32
    }

    /// Webhooks, and origins.
    pub fn len(&self) -> (usize, usize) {
        (self.entries.len() - self.free.len(), self.origins.len())
    }
}

/// Whether one is at a stage.
fn is_at<T>(entries: &[Option<Scheduled<T>>], place: PostPlace, stage: PostStage) -> bool {
    let entry = entries.get(place.index as usize).and_then(Option::as_ref);
    entry.is_some_and(|entry| entry.check == place.check && entry.stage == stage)
}

#[cfg(test)]
mod tests;
