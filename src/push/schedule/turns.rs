//! Whose turn it is.
//!
//! A lane has what waits of one owner for one host. Laws: a lane in which somebody waits has one
//! turn, in the line of its host or in that of its owner. In the line of a host somebody waits only
//! while the host has no place, and in that of an owner only while the owner has none: whatever
//! makes a place lets the next ones of the line through until it is taken. So no place is free
//! while somebody waits for it alone. Each turn lets one through, and who has more goes to the end
//! of the line.

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
};

use foldhash::fast::RandomState;

use super::{
    OpenPost, PostPlace, PostStage, SPARE, Schedule, Timer,
    hosts::{Circuit, PostHost},
    is_at,
};

/// An owner at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    pub host: u32,
    pub owner: u32,
}

/// Who waits there, the one that has waited longest first; of those that have left meanwhile some
/// are still in it.
#[derive(Default)]
pub(super) struct Lane {
    pub places: VecDeque<PostPlace>,
    /// How many wait.
    pub ready: usize,
    /// Of the turn that it has.
    ticket: u32,
}

/// All lanes.
pub(super) type Lanes = HashMap<LaneKey, Lane, RandomState>;

/// The turn of a lane; another ticket than its lane has: it is over.
#[derive(Clone, Copy)]
pub(super) struct LaneTurn {
    lane: LaneKey,
    ticket: u32,
}

/// Lanes in turns; of some the turn is over.
#[derive(Default)]
pub(super) struct LaneLine {
    pub turns: VecDeque<LaneTurn>,
    /// How many there may be before those are looked for whose turn is over.
    most: usize,
}

impl LaneLine {
    /// Takes those out whose turn is over, when they may be more than the others.
    fn tidy(&mut self, lanes: &Lanes) {
        if self.turns.len() > self.most.max(SPARE) {
            self.turns.retain(|turn| lanes.get(&turn.lane).is_some_and(|lane| turn.is_of(lane)));
            self.most = 2 * self.turns.len();
        }
    }
}

/// What is posted for one owner.
#[derive(Default)]
pub(super) struct OwnerPosts {
    /// Posts that are under way or granted.
    posting: u32,
    /// Lanes that wait for the owner.
    line: LaneLine,
}

impl OwnerPosts {
    /// Whether nothing is posted for it and nobody waits.
    pub fn is_idle(&self) -> bool {
        self.posting == 0 && self.line.turns.is_empty()
    }

    #[cfg(test)]
    pub fn posting(&self) -> u32 {
        self.posting
    }
}

impl<T> Schedule<T> {
    /// Grants one its post if there are places, or else puts it at the end of its lane.
    pub(super) fn make_ready(&mut self, place: PostPlace) {
        if self.grant_at_once(place).is_some() {
            return;
        }
        if let Some((key, 1)) = self.enter_lane(place, VecDeque::push_back) {
            self.take_turn(key, VecDeque::push_back);
            self.open_host(key.host);
        }
    }

    /// Where a host and an owner have places nobody waits for them.
    fn grant_at_once(&mut self, place: PostPlace) -> Option<()> {
        let entry = self.entries.get_mut(place.index as usize)?.as_mut()?;
        let entry = Some(entry).filter(|entry| entry.check == place.check)?;
        let pace = &self.pace;
        let host = self.hosts.get_mut(entry.host).filter(|host| host.has_place(pace))?;
        let owner = self.owners.entry(entry.owner).or_default();
        if owner.posting >= pace.posts_of_owner(entry.owner) {
            return None;
        }
        entry.stage = PostStage::Granted;
        host.posting += 1;
        owner.posting += 1;
        let number = entry.host;
        self.hosts.grant(number, place);
        Some(())
    }

    /// Puts one before all others that wait for its host, and asks the host at once.
    pub(super) fn make_first(&mut self, place: PostPlace) {
        let Some(number) = self.entry(place).map(|entry| entry.host) else { return };
        if let Some(host) = self.hosts.get_mut(number)
            && host.circuit == Circuit::Open
        {
            host.circuit = Circuit::HalfOpen;
        }
        self.put_back(place);
        self.open_host(number);
    }

    /// Puts one at the head of its lane, and the lane at the head of its host's line.
    fn put_back(&mut self, place: PostPlace) {
        if let Some((key, _)) = self.enter_lane(place, VecDeque::push_front) {
            self.take_turn(key, VecDeque::push_front);
        }
    }

    /// Its lane, and how many wait there now.
    fn enter_lane(
        &mut self,
        place: PostPlace,
        put: fn(&mut VecDeque<PostPlace>, PostPlace),
    ) -> Option<(LaneKey, usize)> {
        let entry = self.entry(place)?;
        entry.stage = PostStage::Ready;
        let key = LaneKey { host: entry.host, owner: entry.owner };
        let lane = self.lanes.entry(key).or_default();
        put(&mut lane.places, place);
        lane.ready += 1;
        Some((key, lane.ready))
    }

    /// Gives a lane a turn in the line of its host, in place of the one that it has.
    fn take_turn(&mut self, lane: LaneKey, put: fn(&mut VecDeque<LaneTurn>, LaneTurn)) {
        let turn = self.new_turn(lane);
        if let Some(host) = self.hosts.get_mut(lane.host) {
            put(&mut host.line.turns, turn);
            host.line.tidy(&self.lanes);
        }
    }

    /// The same in the line of its owner.
    fn wait_for_owner(&mut self, lane: LaneKey) {
        let turn = self.new_turn(lane);
        let owner = self.owners.entry(lane.owner).or_default();
        owner.line.turns.push_back(turn);
        owner.line.tidy(&self.lanes);
    }

    fn new_turn(&mut self, key: LaneKey) -> LaneTurn {
        self.tickets = self.tickets.wrapping_add(1);
        let ticket = self.tickets;
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.ticket = ticket;
        }
        LaneTurn { lane: key, ticket }
    }

    /// One that has waited in a lane has left it.
    pub(super) fn leave_lane(&mut self, key: LaneKey) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        lane.ready -= 1;
        if lane.ready == 0 {
            self.lanes.remove(&key);
        } else if lane.places.len() > 2 * lane.ready + SPARE {
            let entries = &self.entries;
            lane.places.retain(|place| is_at(entries, *place, PostStage::Ready));
        }
    }

    /// Lets those through who wait for a host, as long as it has places.
    pub(super) fn open_host(&mut self, number: u32) {
        while let Some(turn) = self.next_turn(number) {
            if self.lanes.get(&turn.lane).is_some_and(|lane| turn.is_of(lane)) {
                self.serve(turn.lane);
            }
        }
    }

    fn next_turn(&mut self, number: u32) -> Option<LaneTurn> {
        let pace = &self.pace;
        let host = self.hosts.get_mut(number).filter(|host| host.has_place(pace))?;
        host.line.turns.pop_front()
    }

    /// The same for an owner.
    fn open_owner(&mut self, number: u32) {
        loop {
            let most = self.pace.posts_of_owner(number);
            let Some(owner) = self.owners.get_mut(&number) else { return };
            if owner.posting >= most {
                return;
            }
            let Some(LaneTurn { lane: key, ticket }) = owner.line.turns.pop_front() else { return };
            if self.lanes.get(&key).is_none_or(|lane| lane.ticket != ticket) {
                continue;
            }
            if self.hosts.get(key.host).is_some_and(|host| host.has_place(&self.pace)) {
                self.serve(key);
                // It may have more places, for which the lane now waits with others.
                self.open_host(key.host);
            } else {
                self.take_turn(key, VecDeque::push_back);
            }
        }
    }

    /// The turn of a lane, whose host has a place.
    fn serve(&mut self, key: LaneKey) {
        let most = self.pace.posts_of_owner(key.owner);
        let owner = self.owners.entry(key.owner).or_default();
        if owner.posting >= most {
            return self.wait_for_owner(key);
        }
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let entries = &mut self.entries;
        let mut waiting = std::iter::from_fn(|| lane.places.pop_front());
        let next = waiting.find(|place| is_at(entries, *place, PostStage::Ready));
        if let Some(place) = next
            && let Some(entry) = &mut entries[place.index as usize]
            && let Some(host) = self.hosts.get_mut(key.host)
        {
            entry.stage = PostStage::Granted;
            lane.ready -= 1;
            owner.posting += 1;
            host.posting += 1;
            self.hosts.grant(key.host, place);
        }
        match lane.ready {
            0 => drop(self.lanes.remove(&key)),
            _ => self.take_turn(key, VecDeque::push_back),
        }
    }

    /// A host and an owner have a place again.
    pub(super) fn release(&mut self, key: LaneKey) {
        if let Some(host) = self.hosts.get_mut(key.host) {
            host.posting -= 1;
        }
        if let Some(owner) = self.owners.get_mut(&key.owner) {
            owner.posting -= 1;
        }
        self.open_owner(key.owner);
        self.open_host(key.host);
        self.hosts.forget_unused(key.host);
    }

    /// The next one to post, which is then under way.
    pub fn next(&mut self, now_ms: u64) -> Option<PostPlace> {
        self.ring(now_ms);
        while self.posting() < self.pace.posts_max {
            let place = self.hosts.next_granted()?;
            let Some(entry) = self.entry(place) else { continue };
            entry.stage = PostStage::Posting(false);
            let lane = LaneKey { host: entry.host, owner: entry.owner };
            if self.hosts.get(lane.host).is_some_and(PostHost::lets_through) {
                self.under_way.insert(place, OpenPost { lane, successor: None });
                return Some(place);
            }
            self.put_back(place);
            self.release(lane);
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
                    let place = PostPlace { index, check };
                    let Some(entry) = self.entry(place) else { continue };
                    if entry.stage == PostStage::Paused && entry.due_ms <= now_ms {
                        self.make_ready(place);
                    }
                }
                Timer::Probe(number) => {
                    let Some(host) = self.hosts.get_mut(number) else { continue };
                    // Another host may have its number by now, and be well.
                    if host.circuit == Circuit::Open && host.open_until_ms <= now_ms {
                        host.circuit = Circuit::HalfOpen;
                        self.open_host(number);
                    }
                }
            }
        }
    }
}

impl LaneTurn {
    fn is_of(self, lane: &Lane) -> bool {
        lane.ticket == self.ticket
    }
}
