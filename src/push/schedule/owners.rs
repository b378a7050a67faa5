//! Owners: how many of their posts are under way, and which of their lanes wait for one.

use super::turns::{LaneLine, LaneTurn, Lanes};

/// What is posted for one owner.
#[derive(Default)]
pub(super) struct OwnerPosts {
    /// Posts that are under way or granted.
    pub posting: u32,
    /// The same by the numbers of hosts: few, as an owner has few posts at a time.
    by_host: Vec<HostPosts>,
    /// Lanes that wait for the owner, in turns: those for which a place is kept meanwhile, and the
    /// others.
    lines: [LaneLine; 2],
    /// Which of the two is next.
    is_other_next: bool,
}

/// Posts of one owner to one host.
struct HostPosts {
    host: u32,
    posting: u32,
}

impl OwnerPosts {
    /// Counts a post to a host.
    pub fn begin(&mut self, host: u32) {
        self.posting += 1;
        match self.by_host.iter_mut().find(|at| at.host == host) {
            Some(at) => at.posting += 1,
            None => self.by_host.push(HostPosts { host, posting: 1 }),
        }
    }

    /// Counts it no more.
    pub fn end(&mut self, host: u32) {
        self.posting -= 1;
        if let Some(index) = self.by_host.iter().position(|at| at.host == host) {
            self.by_host[index].posting -= 1;
            if self.by_host[index].posting == 0 {
                self.by_host.swap_remove(index);
            }
        }
    }

    /// Whether a post to a host is under way or granted.
    pub fn posts_to(&self, host: u32) -> bool {
        self.by_host.iter().any(|at| at.host == host)
    }

    /// Whether nothing is posted for it and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.posting == 0 && !self.has_turns()
    }

    /// Whether lanes wait for it, or have waited and are not taken out yet.
    pub fn has_turns(&self) -> bool {
        self.lines.iter().any(|line| !line.turns.is_empty())
    }

    /// Puts a lane into its line.
    pub fn wait(&mut self, turn: LaneTurn, is_kept: bool, lanes: &Lanes) {
        let line = &mut self.lines[usize::from(!is_kept)];
        line.turns.push_back(turn);
        line.tidy(lanes);
    }

    /// The next turn, of either line in turns.
    pub fn next_turn(&mut self) -> Option<LaneTurn> {
        let first = usize::from(self.is_other_next);
        let turn = self.lines[first].turns.pop_front();
        let turn = turn.or_else(|| self.lines[1 - first].turns.pop_front())?;
        self.is_other_next = first == 0;
        Some(turn)
    }

    #[cfg(test)]
    pub fn lines(&self) -> &[LaneLine; 2] {
        &self.lines
    }
}
