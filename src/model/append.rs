//! Appending an entry to a task: state, history and artifacts follow from the log.
//!
//! Each entry is examined once or twice in its life, for any length of the log.

use super::{
    entry::{
        DEAD_AT, ENTRY_HEAD, Entries, Entry, FLAG_AT, INDEX_AT, KIND_AT, PARTS_RANGE, SEQ_AT, mark,
        next_at,
    },
    event::{TaskEvent, encode_chunk, is_append, is_continuing, kind, state_of},
    pack::Message,
    state::TaskState,
    task::{ArtifactChunks, Task, TaskLimits},
};

impl Task {
    /// Appends an event that the limits allow.
    pub(super) fn append(&mut self, event: &TaskEvent<'_>, limits: &TaskLimits) {
        let at = self.log.len();
        let mut growing = self.artifacts.len().checked_sub(1);
        // Each branch reserves memory once: `Task::growth` relies on that.
        match growing.and_then(|newest| event.as_chunk_of(self.id_field_of(newest))) {
            Some((part, flag)) => encode_chunk(part, flag, &mut self.log),
            None => event.encode(&mut self.log),
        }
        self.append_entry(at, &mut growing, limits);
    }

    /// Applies the newest entry, which is at `at`; returns its end.
    ///
    /// `growing` is the artifact that an entry without an id continues: within a list, the artifact
    /// of the preceding event. Returns `None` if there is no entry, its artifact exceeds the limit,
    /// or it cannot repeat the first message.
    #[inline]
    pub(super) fn append_entry(
        &mut self,
        at: usize,
        growing: &mut Option<usize>,
        limits: &TaskLimits,
    ) -> Option<usize> {
        let entry = Entry::at(&self.log, at)?;
        let (end, flag) = (at + entry.len(), entry.flag());
        let (mut index, mut mark) = (0, 0);
        match entry.kind() {
            kind::STATUS => {
                self.messages += u32::from(entry.holds_message());
                self.seq += 1;
                let before = std::mem::replace(&mut self.status_at, at as u32);
                self.retire_status(before);
                self.state = state_of(flag).unwrap_or(TaskState::Unspecified);
                self.is_answered = false;
            }
            kind::ARTIFACT if is_continuing(flag) => {
                index = (*growing)?;
                self.seq += 1;
                mark = self.link_chunk(index, at);
            }
            kind::ARTIFACT => {
                let existing = self.artifact_of(&entry);
                if existing.is_none() && self.artifacts.len() >= limits.artifacts_max {
                    return None;
                }
                if entry.is_repeating() {
                    self.repeat(at, end, limits)?;
                }
                self.seq += 1;
                index = existing.unwrap_or(self.artifacts.len());
                *growing = Some(index);
                mark = self.link_artifact(existing, at, is_append(flag));
            }
            _ => {
                self.messages += 1;
                self.is_answered = true;
            }
        }
        if let Some::<&mut [u8; ENTRY_HEAD]>(head) = self.log[at..].first_chunk_mut() {
            let index = u16::try_from(index).unwrap_or(u16::MAX);
            head[SEQ_AT..SEQ_AT + 4].copy_from_slice(&self.seq.to_le_bytes());
            head[INDEX_AT..INDEX_AT + 2].copy_from_slice(&index.to_le_bytes());
            head[KIND_AT] |= mark;
        }
        self.trim_history(limits.history_max);
        Some(end)
    }

    /// The index of the artifact with an entry's id, if there is one.
    #[inline]
    fn artifact_of(&self, entry: &Entry<'_>) -> Option<usize> {
        // The newest artifact is by far the likeliest to grow.
        let newest = Entry::at(&self.log, self.artifacts.last()?.first as usize);
        if let (Some(newest), Some(key)) = (newest, entry.artifact_key())
            && newest.plain_artifact().is_some_and(|fields| fields.starts_with(key))
        {
            return Some(self.artifacts.len() - 1);
        }
        self.artifact_of_id(entry.artifact().artifact_id().raw())
    }

    /// The id field of an artifact; empty if there is no such artifact.
    #[inline]
    pub(super) fn id_field_of(&self, index: usize) -> &[u8] {
        let chunks = self.artifacts.get(index);
        let first = chunks.and_then(|chunks| Entry::at(&self.log, chunks.first as usize));
        first.map_or(b"", |first| first.artifact().id_field())
    }

    pub(super) fn artifact_of_id(&self, artifact_id: &[u8]) -> Option<usize> {
        self.artifacts.iter().rposition(|chunks| {
            Entry::at(&self.log, chunks.first as usize)
                .is_some_and(|entry| entry.artifact().artifact_id().raw() == artifact_id)
        })
    }

    /// Adds the entry at `at` to its artifact; returns the mark of the entry.
    #[inline]
    fn link_artifact(&mut self, existing: Option<usize>, at: usize, append: bool) -> u8 {
        if let (Some(index), true) = (existing, append) {
            return self.link_chunk(index, at);
        }
        let new = ArtifactChunks { first: at as u32, last: at as u32 };
        let Some(chunks) = existing.and_then(|index| self.artifacts.get_mut(index)) else {
            self.artifacts.push(new);
            return 0;
        };
        let mut old = std::mem::replace(chunks, new).first as usize;
        while old != 0 {
            let flag = self.flag_at(old);
            match is_continuing(flag) {
                true => self.dead_bytes += self.u32_at(old),
                false => self.mark_dead(old),
            }
            old = self.u32_at(old + next_at(flag)) as usize;
        }
        0
    }

    /// As [`Task::link_artifact`], for a chunk.
    #[inline]
    fn link_chunk(&mut self, index: usize, at: usize) -> u8 {
        if let Some(chunks) = self.artifacts.get_mut(index) {
            let last = std::mem::replace(&mut chunks.last, at as u32) as usize;
            self.put_u32(last + next_at(self.flag_at(last)), at as u32);
        }
        mark::CHUNK
    }

    /// Marks a replaced status dead, unless it has a message: then it stays in the history.
    fn retire_status(&mut self, at: u32) {
        let Some(entry) = (at != 0).then(|| Entry::at(&self.log, at as usize)).flatten() else {
            return;
        };
        if entry.holds_message() {
            self.trimmed_at = self.trimmed_at.min(at);
        } else {
            self.mark_dead(at as usize);
        }
    }

    #[inline]
    fn mark_dead(&mut self, at: usize) {
        // Zero would mark the entry as alive.
        self.put_u32(at + DEAD_AT, self.seq.max(1));
        self.dead_bytes += match self.repeats_at {
            0 => self.u32_at(at),
            repeats_at => self.freed(at, repeats_at as usize),
        };
    }

    /// Bytes freed by the death of an entry: a repeated message is freed with the artifact that
    /// repeats it.
    fn freed(&self, at: usize, repeats_at: usize) -> u32 {
        let first = self.entries_at();
        let is_dead = |at: usize| self.u32_at(at + DEAD_AT) != 0;
        match self.u32_at(at) {
            _ if at == first && !is_dead(repeats_at) => 0,
            freed if at == repeats_at && is_dead(first) => freed + self.u32_at(first),
            freed => freed,
        }
    }

    /// Marks the artifact from `at` to `end` as the one that repeats the first message.
    ///
    /// `None`: another artifact repeats the message, the task has other messages, the message is
    /// dead, or the task with repeated parts would exceed its size limit. Then the parts must be
    /// copied.
    #[inline(never)]
    fn repeat(&mut self, at: usize, end: usize, limits: &TaskLimits) -> Option<()> {
        let first = self.entries_at();
        let entry = Entry::at(&self.log, first)?;
        let fits = self.log.len() + entry.len() <= limits.bytes_max;
        if !fits || first == 0 || !entry.is_user_message() || entry.dead() != 0 {
            return None;
        }
        if self.repeats_at != 0 || self.messages != 1 {
            return None;
        }
        let (message_at, parts) = (first + ENTRY_HEAD, Message(entry.payload).parts_at());
        self.put_u32(end - PARTS_RANGE, (message_at + parts.start) as u32);
        self.put_u32(end - PARTS_RANGE + 4, (message_at + parts.end) as u32);
        self.repeats_at = at as u32;
        Some(())
    }

    #[inline]
    fn trim_history(&mut self, history_max: usize) {
        if self.messages as usize > history_max {
            self.forget_message();
        }
    }

    /// Marks the oldest message of the history dead.
    fn forget_message(&mut self) {
        // The search begins at `trimmed_at`, so each entry is examined once or twice.
        for (at, entry) in (Entries { log: &self.log, at: self.trimmed_at() }) {
            if entry.dead() == 0 && entry.holds_message() && at != self.status_at() {
                self.trimmed_at = (at + entry.len()) as u32;
                self.mark_dead(at);
                self.messages -= 1;
                return;
            }
        }
    }

    #[inline]
    fn flag_at(&self, at: usize) -> u8 {
        self.log.get(at + FLAG_AT).copied().unwrap_or_default()
    }

    fn u32_at(&self, at: usize) -> u32 {
        self.log.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
    }

    pub(super) fn put_u32(&mut self, at: usize, value: u32) {
        self.log[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}
