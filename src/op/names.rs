//! The names of agents. They are added one by one, and found without a lock and without a write.
//!
//! Invariant: a name belongs to the same index for ever, and the number of both is fixed.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU16, Ordering},
};

use siphasher::sip::SipHasher13;

use crate::service::AgentIndex;

/// An open-addressing hash table, at most half full, so that a search is short.
pub(super) struct Names {
    places: Box<[OnceLock<KnownName>]>,
    hash: SipHasher13,
    /// By index: true if the agent is gone and only its name remains.
    gone: Box<[AtomicBool]>,
    /// The number of names.
    count: AtomicU16,
}

struct KnownName {
    name: Box<str>,
    index: AgentIndex,
}

impl Names {
    /// A table for up to `most` names; the secret prevents chosen collisions.
    pub fn new(most: usize, secret: u128) -> Names {
        let most = most.clamp(1, usize::from(u16::MAX));
        Names {
            places: (0..(2 * most).next_power_of_two()).map(|_| OnceLock::new()).collect(),
            hash: SipHasher13::new_with_keys((secret >> 64) as u64, secret as u64),
            gone: (0..most).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicU16::new(0),
        }
    }

    /// The agent of this name, unless it is gone.
    #[inline]
    pub fn find(&self, name: &str) -> Option<AgentIndex> {
        self.find_ever(name).filter(|index| !self.is_gone(*index))
    }

    /// The agent with this name, also if it is gone.
    pub fn find_ever(&self, name: &str) -> Option<AgentIndex> {
        let taken = self.places_of(name).map_while(|place| place.get());
        taken.into_iter().find(|named| *named.name == *name).map(|named| named.index)
    }

    /// The slots where a name may be stored, in probing order.
    fn places_of(&self, name: &str) -> impl Iterator<Item = &OnceLock<KnownName>> {
        let (first, mask) = (self.hash.hash(name.as_bytes()) as usize, self.places.len() - 1);
        (0..self.places.len()).map(move |step| &self.places[(first + step) & mask])
    }

    /// Assigns the next index to a new name; `None`: the table is full. Only one thread at a time
    /// may call this.
    pub fn add(&self, name: &str) -> Option<AgentIndex> {
        let index = AgentIndex(self.count.load(Ordering::Relaxed));
        self.gone.get(usize::from(index.0))?;
        let named = KnownName { name: name.into(), index };
        let free = self.places_of(name).find(|place| place.get().is_none())?;
        free.set(named).ok()?;
        self.count.store(index.0 + 1, Ordering::Relaxed);
        Some(index)
    }

    /// The number of free indexes.
    pub fn left(&self) -> usize {
        self.gone.len() - usize::from(self.count.load(Ordering::Relaxed))
    }

    /// True if the agent is gone and only its name remains.
    pub fn is_gone(&self, index: AgentIndex) -> bool {
        self.gone.get(usize::from(index.0)).is_some_and(|gone| gone.load(Ordering::Relaxed))
    }

    /// Sets whether the agent is gone and only its name remains.
    pub fn set_gone(&self, index: AgentIndex, is_gone: bool) {
        if let Some(gone) = self.gone.get(usize::from(index.0)) {
            gone.store(is_gone, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_names_are_found_and_their_number_is_bounded() {
        for most in [1, 2, 3, 300] {
            let names = Names::new(most, 7);
            for at in 0..most {
                let name = format!("agent-{at}");
                assert_eq!(names.find(&name), None);
                assert_eq!(names.add(&name), Some(AgentIndex(at as u16)));
                for known in 0..most {
                    let index = (known <= at).then_some(AgentIndex(known as u16));
                    assert_eq!(names.find(&format!("agent-{known}")), index);
                }
            }
            assert_eq!((names.add("more"), names.find("more")), (None, None));
            assert_eq!(names.left(), 0);
            names.set_gone(AgentIndex(0), true);
            assert_eq!(
                (names.find("agent-0"), names.find_ever("agent-0")),
                (None, Some(AgentIndex(0)))
            );
        }
    }
}
