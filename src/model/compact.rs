//! Compacting a task's log: what is dead and no longer replayed goes.
//!
//! Compaction copies what it keeps, so it happens once a window at most, or when a full log gets a
//! sixteenth of itself back.

use super::{
    entry::{Entries, Entry, NEXT, NEXT_AT},
    event::kind,
    task::{ArtifactChunks, Task, TaskLimits},
};

/// Dead bytes below which a log is left as it is.
const WORTH_IT: usize = 4096;

impl Task {
    /// True unless it is certain that `events` more of `more` bytes fit without compaction.
    pub(super) fn may_compact(&self, more: usize, events: u64, limits: &TaskLimits) -> bool {
        let newest = u64::from(self.seq) + events;
        let window = u64::from(u32::try_from(limits.replay_max).unwrap_or(u32::MAX));
        let is_due = newest.saturating_sub(window) >= u64::from(self.base_seq) + window.max(1);
        is_due && self.log.len() + more >= WORTH_IT
    }

    /// Drops dead entries that no replay needs once they are half of a log of some size.
    pub(super) fn compact(&mut self, more: usize, limits: &TaskLimits) {
        let dead = self.dead_bytes as usize;
        let tight = self.length() + more > limits.bytes_max;
        if !tight && (dead < WORTH_IT || dead < self.log.len() / 2) {
            return;
        }
        let window = u32::try_from(limits.replay_max).unwrap_or(u32::MAX);
        let floor = if tight { self.seq } else { self.seq.saturating_sub(window) };
        // Once a window at most: it copies the window.
        if !tight && floor < self.base_seq.saturating_add(window.max(1)) {
            return;
        }
        self.rebuild(floor, more);
    }

    /// Copies what lives, and what died after `floor`, with room for `more` bytes.
    fn rebuild(&mut self, floor: u32, more: usize) {
        let old = std::mem::take(&mut self.log);
        // What died after the floor is part of the task as it was at the floor.
        let lives = |entry: &Entry<'_>| entry.dead() == 0 || entry.dead() > floor;
        let (first, repeats_at) = (self.entries_at(), self.repeats_at as usize);
        let repeating = Entry::at(&old, repeats_at).filter(|entry| repeats_at != 0 && lives(entry));
        // What is repeated stays, and it stays where it is.
        let is_repeated = |at: usize| at == first && repeating.is_some();
        let is_kept = |at: usize, entry: &Entry<'_>| lives(entry) || is_repeated(at);
        let kept: usize = Entries { log: &old, at: self.entries_at() }
            .filter(|(at, entry)| is_kept(*at, entry))
            .map(|(_, entry)| entry.len())
            .sum();
        let kept = self.entries_at() + kept;
        let mut log = Vec::with_capacity(old.capacity().min(kept + more.max(kept / 2)));
        log.extend_from_slice(&old[..self.entries_at()]);
        let mut moved: Vec<(u32, u32)> = Vec::new();
        self.dead_bytes = 0;
        for (at, entry) in (Entries { log: &old, at: self.entries_at() }) {
            if is_kept(at, &entry) {
                moved.push((at as u32, log.len() as u32));
                let is_needed = is_repeated(at) && repeating.is_some_and(|r| r.dead() == 0);
                let is_dead = entry.dead() != 0 && !is_needed;
                self.dead_bytes += if is_dead { entry.len() as u32 } else { 0 };
                entry.copy_to(&mut log);
            }
        }
        let new_place = |old: u32| match moved.binary_search_by_key(&old, |m| m.0) {
            Ok(index) => moved[index].1,
            Err(_) => 0,
        };
        for &(_, at) in &moved {
            let at = at as usize;
            let artifact = Entry::at(&log, at).filter(|entry| entry.kind() == kind::ARTIFACT);
            if let Some(next) = artifact.map(|entry| new_place(entry.next() as u32)) {
                log[at + NEXT_AT..at + NEXT_AT + NEXT].copy_from_slice(&next.to_le_bytes());
            }
        }
        for chunks in &mut self.artifacts {
            *chunks =
                ArtifactChunks { first: new_place(chunks.first), last: new_place(chunks.last) };
        }
        self.status_at = new_place(self.status_at);
        self.repeats_at = new_place(self.repeats_at);
        self.trimmed_at = 0;
        self.log = log;
        self.base_seq = self.base_seq.max(floor);
        self.compactions += 1;
    }
}
