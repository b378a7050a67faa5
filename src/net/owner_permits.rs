//! Permits of one remote agent. A caller has at most half of the permits, so that a caller whose
//! tasks run for days, or wait for a login, leaves room for others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;

use crate::service::OwnerIndex;

/// The issued permits.
pub(super) struct OwnerPermits {
    most: usize,
    state: Arc<Mutex<PermitState>>,
}

#[derive(Default)]
struct PermitState {
    all: usize,
    of_owners: HashMap<OwnerIndex, usize, RandomState>,
    /// True: an authenticated caller had a permit. Before that, anonymous callers may have all
    /// permits.
    has_authenticated: bool,
}

/// One permit, until it is dropped.
pub(super) struct OwnerPermit {
    owner: OwnerIndex,
    state: Arc<Mutex<PermitState>>,
}

impl OwnerPermits {
    /// Issues at most `most` permits.
    pub fn new(most: usize) -> OwnerPermits {
        OwnerPermits { most, state: Arc::default() }
    }

    /// A permit for this owner; `None`: all permits are issued, or the owner has half of them. All
    /// anonymous callers together are one owner.
    pub fn permit(&self, owner: OwnerIndex) -> Option<OwnerPermit> {
        let mut state = lock(&self.state);
        state.has_authenticated |= owner != OwnerIndex(0);
        let half = if state.has_authenticated { self.most.div_ceil(2) } else { self.most };
        let own = state.of_owners.get(&owner).copied().unwrap_or(0);
        if state.all >= self.most || own >= half {
            return None;
        }
        state.all += 1;
        state.of_owners.insert(owner, own + 1);
        Some(OwnerPermit { owner, state: Arc::clone(&self.state) })
    }
}

impl Drop for OwnerPermit {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.all -= 1;
        if let Some(own) = state.of_owners.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                state.of_owners.remove(&self.owner);
            }
        }
    }
}

fn lock(state: &Mutex<PermitState>) -> MutexGuard<'_, PermitState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_gets_half_the_permits_after_an_authenticated_call() {
        let permits = OwnerPermits::new(4);
        let take = |owner: u32, count: usize| -> Vec<OwnerPermit> {
            (0..count).map_while(|_| permits.permit(OwnerIndex(owner))).collect()
        };
        let anonymous = take(0, 9);
        assert_eq!((anonymous.len(), take(1, 9).len()), (4, 0));
        drop(anonymous);
        let first = take(1, 9);
        assert_eq!((first.len(), take(0, 9).len()), (2, 2));
        let second = take(2, 1);
        assert_eq!((second.len(), take(3, 9).len()), (1, 1));
        drop((first, second));
        assert!(lock(&permits.state).of_owners.is_empty());
        assert_eq!(lock(&permits.state).all, 0);
    }
}
