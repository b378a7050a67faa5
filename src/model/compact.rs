//! Compacting a task's log: removes entries that are dead and no longer replayed.
//!
//! Compaction copies the remaining log, so it runs at most once per replay window, or when it frees
//! a sixteenth of a full log.

use super::{
    entry::{Entries, Entry, NEXT, next_at},
    event::kind,
    task::{ArtifactChunks, Task, TaskLimits},
};

/// Dead bytes below which a log is not compacted.
const WORTH_IT: usize = 4096;

impl Task {
    /// False only if `events` more events of `more` bytes certainly fit without compaction.
    pub(super) fn may_compact(&self, more: usize, events: u64, limits: &TaskLimits) -> bool {
        let newest = u64::from(self.seq) + events;
        let window = u64::from(u32::try_from(limits.replay_max).unwrap_or(u32::MAX));
        let is_due = newest.saturating_sub(window) >= u64::from(self.base_seq) + window.max(1);
        is_due && self.log.len() + more >= WORTH_IT
    }

    /// Drops dead entries that no replay needs, if they are half of the log and at least
    /// [`WORTH_IT`] bytes, or if the log is full.
    pub(super) fn compact(&mut self, more: usize, limits: &TaskLimits) {
        let dead = self.dead_bytes as usize;
        let tight = self.length() + more > limits.bytes_max;
        if !tight && (dead < WORTH_IT || dead < self.log.len() / 2) {
            return;
        }
        let window = u32::try_from(limits.replay_max).unwrap_or(u32::MAX);
        let floor = if tight { self.seq } else { self.seq.saturating_sub(window) };
        // At most once per window, since compaction copies the window.
        if !tight && floor < self.base_seq.saturating_add(window.max(1)) {
            return;
        }
        self.rebuild(floor, more);
    }

    /// Copies the living entries and those that died after `floor`, with room for `more` bytes.
    fn rebuild(&mut self, floor: u32, more: usize) {
        let old = std::mem::take(&mut self.log);
        let (first, repeats_at) = (self.entries_at(), self.repeats_at as usize);
        // Entries that died after the floor are part of the task as it was at the floor.
        let lives = |died: u32| died == 0 || died > floor;
        let repeating =
            Entry::at(&old, repeats_at).filter(|entry| repeats_at != 0 && lives(entry.dead()));
        let mut moved: Vec<(u32, u32)> = Vec::new();
        let (mut end, mut deaths) = (first, Deaths::default());
        self.dead_bytes = 0;
        for (at, entry) in (Entries { log: &old, at: first }) {
            let died = deaths.of(&entry);
            // A repeated message stays at its offset.
            let repeated_by = repeating.filter(|_| at == first);
            if !lives(died) && repeated_by.is_none() {
                continue;
            }
            let is_needed = repeated_by.is_some_and(|repeating| repeating.dead() == 0);
            self.dead_bytes += if died != 0 && !is_needed { entry.len() as u32 } else { 0 };
            moved.push((at as u32, end as u32));
            end += entry.len();
        }
        let mut log = Vec::with_capacity(old.capacity().min(end + more.max(end / 2)));
        log.extend_from_slice(&old[..first]);
        for entry in moved.iter().filter_map(|&(at, _)| Entry::at(&old, at as usize)) {
            entry.copy_to(&mut log);
        }
        let new_offset = |old: u32| match moved.binary_search_by_key(&old, |m| m.0) {
            Ok(index) => moved[index].1,
            Err(_) => 0,
        };
        for &(_, at) in &moved {
            let at = at as usize;
            let artifact = Entry::at(&log, at).filter(|entry| entry.kind() == kind::ARTIFACT);
            if let Some((next, flag)) = artifact.map(|entry| (entry.next(), entry.flag())) {
                let at = at + next_at(flag);
                log[at..at + NEXT].copy_from_slice(&new_offset(next as u32).to_le_bytes());
            }
        }
        for chunks in &mut self.artifacts {
            *chunks =
                ArtifactChunks { first: new_offset(chunks.first), last: new_offset(chunks.last) };
        }
        self.status_at = new_offset(self.status_at);
        self.repeats_at = new_offset(self.repeats_at);
        self.trimmed_at = 0;
        self.log = log;
        self.base_seq = self.base_seq.max(floor);
        self.compactions += 1;
    }
}

/// The events that replaced entries. Entries must be queried in the order of the log: a continuing
/// chunk dies with the first entry of its artifact.
#[derive(Default)]
pub(super) struct Deaths {
    /// The event that replaced the newest artifact of each index; 0: it lives.
    artifacts: Vec<u32>,
}

impl Deaths {
    /// The number of the event that replaced the entry; 0: it lives.
    pub fn of(&mut self, entry: &Entry<'_>) -> u32 {
        let index = usize::from(entry.index());
        if entry.is_continuing() {
            return self.artifacts.get(index).copied().unwrap_or(0);
        }
        if entry.is_artifact_start() {
            self.artifacts.resize(self.artifacts.len().max(index + 1), 0);
            self.artifacts[index] = entry.dead();
        }
        entry.dead()
    }
}
