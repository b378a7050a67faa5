//! Permits for calls of a process, an HTTP function or a remote agent: a bounded number of turns
//! hold a permit, other turns wait.
//!
//! Invariants: waiting owners get permits round robin, and the turns of an owner in their order.
//! The permit of a turn that no longer waits goes to the next turn.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot::{self, Receiver, Sender};

use crate::{agent::Canceled, service::OwnerIndex};

/// The permits of one agent, and the turns that wait for a permit.
pub(super) struct TurnQueue {
    /// Maximum number of issued permits; at least one.
    running_max: usize,
    /// Maximum number of waiting turns.
    waiting_max: usize,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    running: usize,
    waiting: usize,
    /// The owners with waiting turns; the first owner is next.
    owners: VecDeque<(OwnerIndex, VecDeque<Sender<TurnPermit>>)>,
}

/// The permit for a process, or for a request to an HTTP function or a remote agent, until it is
/// dropped.
pub(super) struct TurnPermit {
    /// `None` after the permit was passed on.
    queue: Option<Arc<TurnQueue>>,
}

/// A permit, or a position in the queue for one.
pub(super) enum QueuedTurn {
    Ready(TurnPermit),
    Waiting(Receiver<TurnPermit>),
}

impl QueuedTurn {
    /// Waits for the permit; `None`: the turn has been canceled.
    pub async fn permit(self, mut canceled: Canceled) -> Option<TurnPermit> {
        match self {
            QueuedTurn::Ready(permit) => Some(permit),
            QueuedTurn::Waiting(waiting) => canceled.race(pin!(waiting)).await.ok()?.ok(),
        }
    }
}

impl TurnQueue {
    pub fn new(running_max: usize, waiting_max: usize) -> Arc<TurnQueue> {
        let running_max = running_max.max(1);
        Arc::new(TurnQueue { running_max, waiting_max, state: Mutex::default() })
    }

    /// Queues a turn of this owner, across its tenants; `None`: the queue is full.
    pub fn enter(self: &Arc<TurnQueue>, owner: OwnerIndex) -> Option<QueuedTurn> {
        let mut state = self.lock();
        if state.running < self.running_max {
            state.running += 1;
            return Some(QueuedTurn::Ready(TurnPermit { queue: Some(Arc::clone(self)) }));
        }
        if state.waiting >= self.waiting_max {
            state.remove_canceled();
        }
        if state.waiting >= self.waiting_max {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting += 1;
        match state.owners.iter_mut().find(|(queued_owner, _)| *queued_owner == owner) {
            Some((_, turns)) => turns.push_back(sender),
            None => state.owners.push_back((owner, VecDeque::from([sender]))),
        }
        Some(QueuedTurn::Waiting(receiver))
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Takes the next turn.
    fn next(&mut self) -> Option<Sender<TurnPermit>> {
        let (owner, mut turns) = self.owners.pop_front()?;
        let next = turns.pop_front()?;
        if !turns.is_empty() {
            self.owners.push_back((owner, turns));
        }
        self.waiting -= 1;
        Some(next)
    }

    /// Removes the turns that no longer wait.
    fn remove_canceled(&mut self) {
        for (_, turns) in &mut self.owners {
            turns.retain(|turn| !turn.is_closed());
        }
        self.owners.retain(|(_, turns)| !turns.is_empty());
        self.waiting = self.owners.iter().map(|(_, turns)| turns.len()).sum();
    }
}

impl Drop for TurnPermit {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        loop {
            let next = {
                let mut state = queue.lock();
                let next = state.next();
                if next.is_none() {
                    state.running -= 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(TurnPermit { queue: Some(Arc::clone(&queue)) }) {
                Ok(()) => return,
                // This turn no longer waits: the next turn gets the permit.
                Err(mut permit) => permit.queue = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(queue: &Arc<TurnQueue>, number: u32) -> Receiver<TurnPermit> {
        match queue.enter(OwnerIndex(number)) {
            Some(QueuedTurn::Waiting(receiver)) => receiver,
            Some(QueuedTurn::Ready(_)) | None => panic!("the turn does not wait"),
        }
    }

    #[test]
    fn owners_get_permits_round_robin() {
        let queue = TurnQueue::new(1, 3);
        let Some(QueuedTurn::Ready(permit)) = queue.enter(OwnerIndex(1)) else {
            panic!("no permit")
        };
        let (mut first, mut second) = (waiting(&queue, 1), waiting(&queue, 1));
        let mut other = waiting(&queue, 2);
        assert!(queue.enter(OwnerIndex(3)).is_none());
        drop(permit);
        let permit = first.try_recv().unwrap();
        assert!(other.try_recv().is_err());
        drop(permit);
        let permit = other.try_recv().unwrap();
        assert!(second.try_recv().is_err());
        drop(permit);
        drop(second.try_recv().unwrap());
        assert!(matches!(queue.enter(OwnerIndex(1)), Some(QueuedTurn::Ready(_))));
    }

    #[test]
    fn dropped_turn_frees_its_queue_slot() {
        let queue = TurnQueue::new(1, 1);
        let permit = queue.enter(OwnerIndex(1));
        drop(waiting(&queue, 1));
        drop(waiting(&queue, 2));
        let mut last = waiting(&queue, 3);
        drop(permit);
        assert!(last.try_recv().is_ok());
    }
}
