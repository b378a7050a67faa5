//! The owners that wait for a slot of a host.
//!
//! Invariant: owners take turns, and so do the origins of each owner, so an owner with many ports
//! gets no more turns than another. An origin is in the queue of an owner at most once. There are
//! at most as many stale entries as valid ones, or [`SPARE`].

use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::{
    super::owner_line::OwnerLine,
    SPARE,
    turns::{OwnerQueues, QueueKey},
};

/// The queue of a host.
#[derive(Default)]
pub(super) struct HostLine {
    /// The next owner and origin. Usually no other waits.
    first: Option<(u32, u32)>,
    others: Option<Box<Others>>,
}

#[derive(Default)]
struct Others {
    /// Origins, by owner.
    line: OwnerLine<u32>,
    /// The waiting pairs of owner and origin.
    listed: HashSet<(u32, u32), RandomState>,
    /// The length above which stale entries are swept.
    most: usize,
}

impl HostLine {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let is_idle = |others: &Others| others.line.len() == 0 && others.listed.is_empty();
        self.first.is_none() && self.others.as_deref().is_none_or(is_idle)
    }

    /// Appends an origin to the queue of its owner.
    pub fn enter(&mut self, owner: u32, origin: u32, queues: &OwnerQueues) {
        match self.first {
            None => self.first = Some((owner, origin)),
            Some(first) if first == (owner, origin) => {}
            Some(_) => {
                let others = self.others.get_or_insert_default();
                others.enter(owner, origin);
                others.tidy(queues);
            }
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, |it| it.listed.len())
    }

    /// Removes and returns the next owner and origin.
    pub fn next(&mut self) -> Option<(u32, u32)> {
        let next = self.first.take()?;
        self.first = self.others.as_mut().and_then(|others| others.next());
        Some(next)
    }
}

impl Others {
    fn enter(&mut self, owner: u32, origin: u32) {
        if self.listed.insert((owner, origin)) {
            self.line.push_back(owner, origin);
        }
    }

    fn next(&mut self) -> Option<(u32, u32)> {
        let next = self.line.pop_front()?;
        self.listed.remove(&next);
        Some(next)
    }

    /// Sweeps entries without an owner queue if they may be the majority.
    fn tidy(&mut self, queues: &OwnerQueues) {
        if self.listed.len() <= self.most.max(SPARE) {
            return;
        }
        self.listed.retain(|(owner, origin)| {
            let queue = |is_tried| QueueKey { origin: *origin, owner: *owner, is_tried };
            [false, true].into_iter().any(|is_tried| queues.contains_key(&queue(is_tried)))
        });
        self.line.retain(|owner, origin| self.listed.contains(&(owner, *origin)));
        self.most = 2 * self.listed.len();
        self.listed.shrink_to(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::{HostLine, OwnerQueues};

    #[test]
    fn owners_take_turns_however_many_origins_they_have() {
        let mut line = HostLine::default();
        for origin in [1, 2, 3, 1] {
            line.enter(7, origin, &OwnerQueues::default());
        }
        line.enter(8, 3, &OwnerQueues::default());
        let next: Vec<_> = std::iter::from_fn(|| line.next()).collect();
        assert_eq!(next, [(7, 1), (7, 2), (8, 3), (7, 3)]);
        assert!(line.is_empty());
    }
}
