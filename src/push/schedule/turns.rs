//! Whose turn it is.
//!
//! A lane has what waits of one owner for one origin, apart what has failed and what was not tried
//! yet. Invariants: a lane in which a webhook waits has one turn, in the line of its origin or in
//! that of its owner. In the line of an origin a lane waits only while the origin or its host has
//! no place, and in that of an owner only while the owner has none; where the host has none, owner
//! and origin are in the line of the host. Whatever makes a place lets the next ones of the line
//! through until it is taken. So no place is free while a lane waits for it alone; but an origin
//! whose host has no other any more takes what it has left to others when its next post ends. Each
//! turn lets one through, and a lane with more goes to the end of the line. Where its owner has no
//! place when a lane's turn at an origin comes, the last one there is kept for it, so that it gets
//! both though neither is ever free for long; every second place of the owner is for such lanes.

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
};

use foldhash::fast::RandomState;

use super::{
    OpenPost, PostPlace, PostStage, SPARE, Schedule, Timer, is_at,
    origins::{Circuit, PostOrigin},
};

/// An owner at an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LaneKey {
    pub origin: u32,
    pub owner: u32,
    /// Whether its posts have failed, each since the last that arrived.
    pub is_tried: bool,
}

/// The webhooks that wait there, the longest first; of those that have left meanwhile some
/// are still in it.
#[derive(Default)]
pub(super) struct Lane {
    pub places: VecDeque<PostPlace>,
    /// How many wait.
    pub ready: usize,
    /// Whether it is in the line of its owner, and not in that of its origin.
    waits_for_owner: bool,
    /// Of the turn that it has.
    ticket: u32,
}

/// All lanes.
pub(super) type Lanes = HashMap<LaneKey, Lane, RandomState>;

/// The turn of a lane; another ticket than its lane has: it is over.
#[derive(Clone, Copy)]
pub(super) struct LaneTurn {
    pub(super) lane: LaneKey,
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
    pub(super) fn tidy(&mut self, lanes: &Lanes) {
        if self.turns.len() > self.most.max(SPARE) {
            self.turns.retain(|turn| lanes.get(&turn.lane).is_some_and(|lane| turn.is_of(lane)));
            self.most = 2 * self.turns.len();
        }
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
            self.open_origin(key.origin);
        }
    }

    /// Where an origin and an owner have places no lane waits for them.
    fn grant_at_once(&mut self, place: PostPlace) -> Option<()> {
        let entry = self.entries.get_mut(place.index as usize)?.as_mut()?;
        let entry = Some(entry).filter(|entry| entry.check == place.check)?;
        let most = self.pace.posts_of_owner(entry.owner, self.granted);
        let owner = self.owners.entry(entry.owner).or_default();
        if owner.posting >= most {
            return None;
        }
        if !self.origins.take_if_free(entry.lane(), place, &self.pace, owner) {
            return None;
        }
        entry.stage = PostStage::Granted;
        self.granted += 1;
        Some(())
    }

    /// Puts one before all others that wait for its origin, and asks the origin at once.
    pub(super) fn make_first(&mut self, place: PostPlace) {
        let Some(number) = self.entry(place).map(|entry| entry.origin) else { return };
        if let Some(origin) = self.origins.get_mut(number)
            && origin.circuit == Circuit::Open
        {
            origin.circuit = Circuit::HalfOpen;
        }
        if let Some(lane) = self.put_back(place)
            && let Some(origin) = self.origins.get_mut(number)
        {
            origin.prefer(lane.is_tried);
        }
        self.open_origin(number);
    }

    /// Puts one at the head of its lane, and the lane at the head of its origin's line.
    fn put_back(&mut self, place: PostPlace) -> Option<LaneKey> {
        let (key, _) = self.enter_lane(place, VecDeque::push_front)?;
        self.take_turn(key, VecDeque::push_front);
        Some(key)
    }

    /// Its lane, and how many wait there now.
    fn enter_lane(
        &mut self,
        place: PostPlace,
        put: fn(&mut VecDeque<PostPlace>, PostPlace),
    ) -> Option<(LaneKey, usize)> {
        let entry = self.entry(place)?;
        entry.stage = PostStage::Ready;
        let key = entry.lane();
        let lane = self.lanes.entry(key).or_default();
        put(&mut lane.places, place);
        lane.ready += 1;
        Some((key, lane.ready))
    }

    /// Gives a lane a turn in the line of its origin, in place of the one that it has.
    fn take_turn(&mut self, lane: LaneKey, put: fn(&mut VecDeque<LaneTurn>, LaneTurn)) {
        let turn = self.new_turn(lane, false);
        self.wait_for_origin(turn, put);
    }

    fn wait_for_origin(&mut self, turn: LaneTurn, put: fn(&mut VecDeque<LaneTurn>, LaneTurn)) {
        let lane = turn.lane;
        self.origins.wait_for_host(lane, &self.lanes);
        if let Some(origin) = self.origins.get_mut(lane.origin) {
            let line = &mut origin.lines[usize::from(lane.is_tried)];
            put(&mut line.turns, turn);
            line.tidy(&self.lanes);
        }
    }

    /// The same in a line of its owner; `is_kept`: a place is kept for it.
    fn wait_for_owner(&mut self, lane: LaneKey, is_kept: bool) {
        let turn = self.new_turn(lane, true);
        self.owners.entry(lane.owner).or_default().wait(turn, is_kept, &self.lanes);
    }

    fn new_turn(&mut self, key: LaneKey, waits_for_owner: bool) -> LaneTurn {
        self.tickets = self.tickets.wrapping_add(1);
        let ticket = self.tickets;
        if let Some(lane) = self.lanes.get_mut(&key) {
            (lane.ticket, lane.waits_for_owner) = (ticket, waits_for_owner);
        }
        LaneTurn { lane: key, ticket }
    }

    /// One that has waited in a lane has left it.
    pub(super) fn leave_lane(&mut self, key: LaneKey) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        lane.ready -= 1;
        if lane.ready == 0 {
            self.lanes.remove(&key);
            if self.origins.unreserve(key) {
                self.open_origin(key.origin);
            }
        } else if lane.places.len() > 2 * lane.ready + SPARE {
            let entries = &self.entries;
            lane.places.retain(|place| is_at(entries, *place, PostStage::Ready));
        }
    }

    /// Lets those through that wait for an origin or for others of its host, as long as they have
    /// places: owners in turns, and the origins of each in turns.
    pub(super) fn open_origin(&mut self, number: u32) {
        self.list(number);
        while let Some((owner, at)) = self.origins.next_in_line(number, &self.pace) {
            if let Some(lane) = self.next_lane(at, owner) {
                self.serve(lane);
            }
            self.list(at);
        }
    }

    /// Puts those that are next at an origin, of either kind, into the line of its host, if the
    /// origin has a place: a lane that had none at its turn there has left that line.
    fn list(&mut self, number: u32) {
        let waits = self.origins.get(number).is_some_and(PostOrigin::has_turns);
        if !waits || !self.origins.is_open(number, &self.pace) {
            return;
        }
        let lanes = &self.lanes;
        let is_its = |turn: &LaneTurn| lanes.get(&turn.lane).is_some_and(|lane| turn.is_of(lane));
        let Some(origin) = self.origins.get_mut(number) else { return };
        let fronts = origin.fronts(is_its);
        for lane in fronts.into_iter().flatten() {
            self.origins.wait_for_host(lane, &self.lanes);
        }
    }

    /// The lane whose turn it is at an origin that has a place, where it is that owner's; where it
    /// is asked whether the origin is back, of any owner.
    fn next_lane(&mut self, number: u32, owner: u32) -> Option<LaneKey> {
        if !self.origins.has_place(number, &self.pace) {
            return None;
        }
        if self.origins.get(number)?.circuit == Circuit::Closed {
            return self.waiting_lane(number, owner);
        }
        let (origin, lanes) = (self.origins.get_mut(number)?, &self.lanes);
        let is_its = |turn: &LaneTurn| lanes.get(&turn.lane).is_some_and(|lane| turn.is_of(lane));
        origin.next_turn(is_its).map(|turn| turn.lane)
    }

    /// A lane of an owner that waits for an origin: of what has failed and what has not that which
    /// has waited longer.
    fn waiting_lane(&mut self, number: u32, owner: u32) -> Option<LaneKey> {
        let origin = self.origins.get_mut(number)?;
        let key = |is_tried| LaneKey { origin: number, owner, is_tried };
        let waits = |is_tried| {
            let lane = self.lanes.get(&key(is_tried)).filter(|lane| !lane.waits_for_owner)?;
            Some(lane.ticket)
        };
        let is_tried = match (waits(false), waits(true)) {
            (Some(untried), Some(tried)) => (tried.wrapping_sub(untried) as i32) < 0,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (None, None) => return None,
        };
        let key = key(is_tried);
        origin.prefer(!is_tried);
        // Most often it is the first of its line, too, whose turn is over now.
        origin.lines[usize::from(is_tried)].turns.pop_front_if(|turn| turn.lane == key);
        Some(key)
    }

    /// The same for an owner.
    fn open_owner(&mut self, number: u32) {
        loop {
            let most = self.pace.posts_of_owner(number, self.granted);
            let Some(owner) = self.owners.get_mut(&number) else { return };
            if owner.posting >= most {
                return;
            }
            let Some(LaneTurn { lane: key, ticket }) = owner.next_turn() else { return };
            if self.lanes.get(&key).is_none_or(|lane| lane.ticket != ticket) {
                continue;
            }
            self.origins.unreserve(key);
            if self.origins.has_place(key.origin, &self.pace) {
                self.serve(key);
                // It may have more places, for which the lane now waits with others.
                self.open_origin(key.origin);
            } else {
                self.take_turn(key, VecDeque::push_back);
                self.open_origin(key.origin);
            }
        }
    }

    /// The turn of a lane, whose origin has a place.
    fn serve(&mut self, key: LaneKey) {
        let most = self.pace.posts_of_owner(key.owner, self.granted);
        let owner = self.owners.entry(key.owner).or_default();
        self.origins.unreserve(key);
        if owner.posting >= most {
            let is_kept = self.origins.reserve(key, &self.pace);
            return self.wait_for_owner(key, is_kept);
        }
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let entries = &mut self.entries;
        let mut waiting = std::iter::from_fn(|| lane.places.pop_front());
        let next = waiting.find(|place| is_at(entries, *place, PostStage::Ready));
        if let Some(place) = next
            && let Some(entry) = &mut entries[place.index as usize]
        {
            entry.stage = PostStage::Granted;
            lane.ready -= 1;
            self.granted += 1;
            self.origins.take(key, place, owner);
        }
        if lane.ready == 0 {
            self.lanes.remove(&key);
            return;
        }
        self.tickets = self.tickets.wrapping_add(1);
        (lane.ticket, lane.waits_for_owner) = (self.tickets, false);
        let turn = LaneTurn { lane: key, ticket: lane.ticket };
        self.wait_for_origin(turn, VecDeque::push_back);
    }

    /// An origin and an owner have a place again.
    pub(super) fn release(&mut self, key: LaneKey) {
        if let Some(owner) = self.owners.get_mut(&key.owner) {
            self.origins.give_back(key, owner);
            self.granted -= 1;
            if owner.has_turns() {
                self.open_owner(key.owner);
            }
        }
        self.open_origin(key.origin);
        self.origins.forget_unused(key.origin);
    }

    /// The next one to post, which is then under way.
    pub fn next(&mut self, now_ms: u64) -> Option<PostPlace> {
        self.ring(now_ms);
        while self.posting() < self.pace.posts_max {
            let place = self.origins.next_granted()?;
            let Some(entry) = self.entry(place) else { continue };
            entry.stage = PostStage::Posting(false);
            let (lane, has_rate) = (entry.lane(), entry.url != 0);
            if has_rate && let Some(due_ms) = self.wait_for_rate(place, now_ms) {
                self.pause(place, due_ms);
                self.release(lane);
                continue;
            }
            if self.origins.get(lane.origin).is_some_and(PostOrigin::lets_through) {
                self.under_way.insert(place, OpenPost { lane, successor: None });
                return Some(place);
            }
            self.put_back(place);
            self.release(lane);
        }
        None
    }

    /// Takes a post out of the rate of its owner at its host; when it may go, unless that is now.
    /// One that has waited for its time goes then.
    fn wait_for_rate(&mut self, place: PostPlace, now_ms: u64) -> Option<u64> {
        let entry = self.entry(place)?;
        let (url, lane) = (entry.url, entry.lane());
        if std::mem::take(&mut entry.is_paid) {
            return None;
        }
        let pace = self.pace;
        let due_ms = self.origins.share(lane)?.take(url, &pace, now_ms)?;
        let entry = self.entry(place)?;
        (entry.is_paid, entry.is_limited) = (true, true);
        Some(due_ms)
    }

    /// Webhooks whose time has come go into line.
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
                    let Some(origin) = self.origins.get_mut(number) else { continue };
                    // Another origin may have its number by now, and be well.
                    if origin.circuit == Circuit::Open && origin.open_until_ms <= now_ms {
                        origin.circuit = Circuit::HalfOpen;
                        self.open_origin(number);
                    }
                }
            }
        }
    }
}

impl LaneTurn {
    pub(super) fn is_of(self, lane: &Lane) -> bool {
        lane.ticket == self.ticket
    }
}
