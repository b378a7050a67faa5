//! Owners: their deliveries in flight, and their owner queues that wait for a slot.

use super::turns::{OwnerQueues, QueueLine, QueueTurn};

/// The deliveries of one owner.
#[derive(Default)]
pub(super) struct OwnerPosts {
    /// The number of deliveries in flight or granted.
    pub posting: u32,
    /// The same by host number; the list is short, as an owner has few concurrent deliveries.
    by_host: Vec<HostPosts>,
    /// Owner queues that wait for a slot of the owner: those with a reserved slot at their origin,
    /// and the others.
    lines: [QueueLine; 2],
    /// Which of the two queues is next; true: the others.
    is_other_next: bool,
}

/// Deliveries of one owner to one host.
struct HostPosts {
    host: u32,
    posting: u32,
}

impl OwnerPosts {
    /// Counts a delivery to a host.
    pub fn begin(&mut self, host: u32) {
        self.posting += 1;
        match self.by_host.iter_mut().find(|at| at.host == host) {
            Some(at) => at.posting += 1,
            None => self.by_host.push(HostPosts { host, posting: 1 }),
        }
    }

    /// Subtracts a delivery to a host.
    pub fn end(&mut self, host: u32) {
        self.posting -= 1;
        if let Some(index) = self.by_host.iter().position(|at| at.host == host) {
            self.by_host[index].posting -= 1;
            if self.by_host[index].posting == 0 {
                self.by_host.swap_remove(index);
            }
        }
    }

    /// Whether a delivery to a host is in flight or granted.
    pub fn posts_to(&self, host: u32) -> bool {
        self.by_host.iter().any(|at| at.host == host)
    }

    /// Whether the owner has no delivery and no waiting owner queue.
    pub fn is_idle(&self) -> bool {
        self.posting == 0 && !self.has_turns()
    }

    /// Whether its queues have turns, valid or stale.
    pub fn has_turns(&self) -> bool {
        self.lines.iter().any(|line| !line.turns.is_empty())
    }

    /// Adds an owner queue to one of the two queues.
    pub fn wait(&mut self, turn: QueueTurn, is_reserved: bool, queues: &OwnerQueues) {
        let line = &mut self.lines[usize::from(!is_reserved)];
        line.turns.push_back(turn);
        line.tidy(queues);
    }

    /// Removes and returns the next turn; the two queues alternate.
    pub fn next_turn(&mut self) -> Option<QueueTurn> {
        let first = usize::from(self.is_other_next);
        let turn = self.lines[first].turns.pop_front();
        let turn = turn.or_else(|| self.lines[1 - first].turns.pop_front())?;
        self.is_other_next = first == 0;
        Some(turn)
    }

    #[cfg(test)]
    pub fn lines(&self) -> &[QueueLine; 2] {
        &self.lines
    }
}
