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
    slots: Box<[OnceLock<NameEntry>]>,
    hash: SipHasher13,
    /// By index: true if the agent is gone and its name can be used again.
    freed: Box<[AtomicBool]>,
    /// The number of names.
    count: AtomicU16,
}

struct NameEntry {
    name: Box<str>,
    index: AgentIndex,
}

impl Names {
    /// A table for up to `most` names; the secret prevents chosen collisions.
    pub fn new(most: usize, secret: u128) -> Names {
        let most = most.clamp(1, usize::from(u16::MAX));
        Names {
            slots: (0..(2 * most).next_power_of_two()).map(|_| OnceLock::new()).collect(),
            hash: SipHasher13::new_with_keys((secret >> 64) as u64, secret as u64),
            freed: (0..most).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicU16::new(0),
        }
    }

    /// The agent of this name, unless it is gone.
    #[inline]
    pub fn find(&self, name: &str) -> Option<AgentIndex> {
        self.find_ever(name).filter(|index| !self.is_freed(*index))
    }

    /// The agent with this name, also if it is gone.
    pub fn find_ever(&self, name: &str) -> Option<AgentIndex> {
        let used = self.slots_of(name).map_while(|slot| slot.get());
        used.into_iter().find(|named| *named.name == *name).map(|named| named.index)
    }

    /// The slots where a name may be stored, in probing order.
    fn slots_of(&self, name: &str) -> impl Iterator<Item = &OnceLock<NameEntry>> {
        let (first, mask) = (self.hash.hash(name.as_bytes()) as usize, self.slots.len() - 1);
        (0..self.slots.len()).map(move |step| &self.slots[(first + step) & mask])
    }

    /// Assigns the next index to a new name; `None`: the table is full. Only one thread at a time
    /// may call this.
    pub fn add(&self, name: &str) -> Option<AgentIndex> {
        let index = AgentIndex(self.count.load(Ordering::Relaxed));
        self.freed.get(usize::from(index.0))?;
        let named = NameEntry { name: name.into(), index };
        let free = self.slots_of(name).find(|slot| slot.get().is_none())?;
        free.set(named).ok()?;
        self.count.store(index.0 + 1, Ordering::Relaxed);
        Some(index)
    }

    /// The number of free indexes.
    pub fn remaining(&self) -> usize {
        self.freed.len() - usize::from(self.count.load(Ordering::Relaxed))
    }

    /// True if the agent is gone and its name can be used again.
    pub fn is_freed(&self, index: AgentIndex) -> bool {
        self.freed.get(usize::from(index.0)).is_some_and(|freed| freed.load(Ordering::Relaxed))
    }

    /// Sets whether the agent is gone and its name can be used again.
    pub fn set_freed(&self, index: AgentIndex, is_freed: bool) {
        if let Some(freed) = self.freed.get(usize::from(index.0)) {
            freed.store(is_freed, Ordering::Relaxed);
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
                for other in 0..most {
                    let index = (other <= at).then_some(AgentIndex(other as u16));
                    assert_eq!(names.find(&format!("agent-{other}")), index);
                }
            }
            assert_eq!((names.add("more"), names.find("more")), (None, None));
            assert_eq!(names.remaining(), 0);
            names.set_freed(AgentIndex(0), true);
            assert_eq!(
                (names.find("agent-0"), names.find_ever("agent-0")),
                (None, Some(AgentIndex(0)))
            );
        }
    }
}
