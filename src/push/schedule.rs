//! When which webhook is posted next: who is ready, who waits after a failure, and which hosts are
//! given a rest.
//!
//! Laws: of one webhook one post is under way at most, so its events arrive in order. A host has a
//! bounded number of posts at a time, and hosts take turns, so a slow one holds up nobody else.
//! When a host has failed often in a row, one post at a time finds out whether it is back, and all
//! others wait in line without a timer: who waits costs nothing until then.

mod outcome;
mod owners;
mod pace;
mod pending;
mod upkeep;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
};

use foldhash::fast::RandomState;

use self::owners::Owners;

pub use self::pace::{Pace, PostPlace};

/// Places and timers of those that have left which are not looked for.
const SPARE: usize = 64;

/// What became of a post that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is repeated.
    Repeated,
    /// It was tried for as long as it may be.
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PostStage {
    /// There is nothing that was not posted.
    Idle,
    /// In the line of its host.
    Ready,
    /// Under way; true: there is something new since it began.
    Posting(bool),
    /// Until its pause is over.
    Paused,
    /// Until somebody has it go on.
    Stopped,
}

/// One that is posted to.
struct Scheduled<T> {
    value: T,
    host: u32,
    /// Who counts for it; 0: nobody.
    owner: u32,
    check: u32,
    stage: PostStage,
    failures: u32,
    /// Since when there is something that was not posted.
    since_ms: u64,
    /// When its pause is over.
    due_ms: u64,
}

/// Whether a host is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostRest {
    None,
    /// Until its timer rings.
    Now,
    /// One post finds out whether it is back.
    Over,
}

/// Where posts go.
struct PostHost {
    origin: Box<str>,
    /// Webhooks that go there.
    entries: u32,
    posting: u32,
    /// Places whose turn comes; of those that have left meanwhile some are still in it.
    line: VecDeque<PostPlace>,
    /// In a row.
    failures: u32,
    rest: HostRest,
    rests_until_ms: u64,
    /// True: it is in the line of hosts.
    is_listed: bool,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Pause(u32, u32),
    Rest(u32),
}

/// See the module. `T` is what is kept of each.
pub struct Schedule<T> {
    pace: Pace,
    entries: Vec<Option<Scheduled<T>>>,
    free: Vec<u32>,
    checks: u32,
    hosts: Vec<Option<PostHost>>,
    free_hosts: Vec<u32>,
    by_origin: HashMap<Box<str>, u32, RandomState>,
    /// Those of whom there is something under way.
    owners: Owners,
    /// Hosts whose lines are not empty, and which may have another post.
    line: VecDeque<u32>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    posting: u32,
}

impl<T> Schedule<T> {
    /// What each takes.
    #[cfg(test)]
    pub(super) const ENTRY_BYTES: usize = size_of::<Option<Scheduled<T>>>();

    /// A schedule without anybody.
    pub fn new(pace: Pace) -> Schedule<T> {
        Schedule {
            pace,
            entries: Vec::new(),
            free: Vec::new(),
            checks: 0,
            hosts: Vec::new(),
            free_hosts: Vec::new(),
            by_origin: HashMap::default(),
            owners: Owners::default(),
            line: VecDeque::new(),
            timers: BinaryHeap::new(),
            posting: 0,
        }
    }

    /// How many webhooks there are at an origin.
    pub fn of_origin(&self, origin: &str) -> usize {
        let host = self.by_origin.get(origin).and_then(|host| self.hosts[*host as usize].as_ref());
        host.map_or(0, |host| host.entries as usize)
    }

    /// The origin of one; `None`: it is gone.
    pub fn origin(&self, place: PostPlace) -> Option<&str> {
        let entry = self.entries.get(place.index as usize)?.as_ref();
        let host = entry.filter(|entry| entry.check == place.check)?.host;
        self.hosts.get(host as usize)?.as_ref().map(|host| &*host.origin)
    }

    /// Takes one in that has nothing to post yet, at an origin such as `https://a.example:443`, for
    /// an owner; 0: nobody in particular.
    pub fn add(&mut self, origin: &str, owner: u32, value: T) -> PostPlace {
        let host = match self.by_origin.get(origin) {
            Some(host) => *host,
            None => self.add_host(origin),
        };
        if let Some(host) = &mut self.hosts[host as usize] {
            host.entries += 1;
        }
        self.checks = self.checks.wrapping_add(1);
        let check = self.checks;
        let stage = PostStage::Idle;
        let entry = Some(Scheduled {
            value,
            host,
            owner,
            check,
            stage,
            failures: 0,
            since_ms: 0,
            due_ms: 0,
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

    fn add_host(&mut self, origin: &str) -> u32 {
        let host = Some(PostHost {
            origin: origin.into(),
            entries: 0,
            posting: 0,
            line: VecDeque::new(),
            failures: 0,
            rest: HostRest::None,
            rests_until_ms: 0,
            is_listed: false,
        });
        let number = match self.free_hosts.pop() {
            Some(number) => {
                self.hosts[number as usize] = host;
                number
            }
            None => {
                self.hosts.push(host);
                (self.hosts.len() - 1) as u32
            }
        };
        self.by_origin.insert(origin.into(), number);
        number
    }

    /// Lets one go, whatever it was about; what is under way is nobody's then.
    pub fn remove(&mut self, place: PostPlace) -> Option<T> {
        self.entry(place)?;
        let entry = self.entries[place.index as usize].take()?;
        self.free.push(place.index);
        if let PostStage::Posting(_) = entry.stage {
            self.count_end(entry.host, entry.owner);
        }
        let host = self.hosts[entry.host as usize].as_mut()?;
        host.entries -= 1;
        if host.entries == 0 {
            let origin = std::mem::take(&mut host.origin);
            self.by_origin.remove(&origin);
            self.hosts[entry.host as usize] = None;
            self.free_hosts.push(entry.host);
            self.line.retain(|number| *number != entry.host);
        } else {
            self.tidy_line(entry.host);
            self.list(entry.host);
        }
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

    /// Says that there is something new for one.
    pub fn note(&mut self, place: PostPlace, now_ms: u64) {
        let Some(entry) = self.entry(place) else { return };
        match entry.stage {
            PostStage::Idle => {
                entry.since_ms = now_ms;
                self.make_ready(place.index);
            }
            PostStage::Posting(_) => entry.stage = PostStage::Posting(true),
            PostStage::Ready | PostStage::Paused | PostStage::Stopped => {}
        }
    }

    /// Has one that was given up, or waits, go on at once.
    pub fn resume(&mut self, place: PostPlace, now_ms: u64) {
        let Some(entry) = self.entry(place) else { return };
        if matches!(entry.stage, PostStage::Idle | PostStage::Paused | PostStage::Stopped) {
            (entry.failures, entry.since_ms) = (0, now_ms);
            self.make_ready(place.index);
        }
    }

    fn make_ready(&mut self, index: u32) {
        let Some(entry) = &mut self.entries[index as usize] else { return };
        entry.stage = PostStage::Ready;
        let (number, place) = (entry.host, PostPlace { index, check: entry.check });
        if let Some(host) = &mut self.hosts[number as usize] {
            host.line.push_back(place);
        }
        self.list(number);
    }

    /// Puts a host in line if it may have another post.
    fn list(&mut self, number: u32) {
        let per_host = self.pace.per_host;
        let Some(host) = &mut self.hosts[number as usize] else { return };
        let may_post = match host.rest {
            HostRest::None => host.posting < per_host,
            HostRest::Now => false,
            HostRest::Over => host.posting == 0,
        };
        if may_post && !host.line.is_empty() && !host.is_listed {
            host.is_listed = true;
            self.line.push_back(number);
        }
    }

    /// The next one to post, which is then under way.
    pub fn next(&mut self, now_ms: u64) -> Option<PostPlace> {
        self.ring(now_ms);
        if self.posting >= self.pace.posts_max {
            return None;
        }
        while let Some(number) = self.line.pop_front() {
            let Some(host) = &mut self.hosts[number as usize] else { continue };
            host.is_listed = false;
            let entries = &mut self.entries;
            let place = std::iter::from_fn(|| host.line.pop_front());
            let Some(place) = { place }.find(|place| is_ready(entries, *place)) else { continue };
            let Some(entry) = &mut entries[place.index as usize] else { continue };
            let (owner, most) = (entry.owner, self.pace.per_owner);
            let is_begun = self.owners.begin(owner, place, most, |place| is_ready(entries, place));
            if let (true, Some(entry)) = (is_begun, &mut entries[place.index as usize]) {
                entry.stage = PostStage::Posting(false);
                host.posting += 1;
                self.posting += 1;
            }
            self.list(number);
            if is_begun {
                return Some(place);
            }
        }
        None
    }

    /// Whoever's time has come goes into line.
    fn ring(&mut self, now_ms: u64) {
        while let Some(Reverse((due_ms, timer))) = self.timers.peek().copied() {
            if due_ms > now_ms {
                return;
            }
            self.timers.pop();
            match timer {
                Timer::Pause(index, check) => {
                    let Some(entry) = self.entry(PostPlace { index, check }) else { continue };
                    if entry.stage == PostStage::Paused && entry.due_ms <= now_ms {
                        self.make_ready(index);
                    }
                }
                Timer::Rest(number) => {
                    let Some(host) = &mut self.hosts[number as usize] else { continue };
                    // Another host may have its number by now, and have no rest.
                    if host.rest == HostRest::Now && host.rests_until_ms <= now_ms {
                        host.rest = HostRest::Over;
                        self.list(number);
                    }
                }
            }
        }
    }

    /// When [`Schedule::next`] may have one, unless something else happens before.
    pub fn due_ms(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    /// Posts under way.
    pub fn posting(&self) -> u32 {
        self.posting
    }

    /// Webhooks, and hosts.
    pub fn len(&self) -> (usize, usize) {
        (self.entries.len() - self.free.len(), self.by_origin.len())
    }
}

/// Whether the turn of a place comes, which is in a line.
fn is_ready<T>(entries: &[Option<Scheduled<T>>], place: PostPlace) -> bool {
    let entry = entries.get(place.index as usize).and_then(Option::as_ref);
    entry.is_some_and(|entry| entry.check == place.check && entry.stage == PostStage::Ready)
}

#[cfg(test)]
mod tests;
