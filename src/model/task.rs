//! A task is the log of its events; its state, history and artifacts are a reading of that log.
//!
//! [`Task::apply`] is the one mutation in the system. Entries that a later one replaced are marked
//! dead with the sequence number that killed them, stay as long as the replay window needs them,
//! and are then squeezed out: the log holds at most what is alive, the window, and as much again.

mod bulk;

use smallvec::SmallVec;

use super::{
    entry::{
        DEAD_AT, ENTRY_HEAD, Entries, Entry, INDEX_AT, KIND_AT, NEXT_AT, SEQ_AT, entry_head, mark,
    },
    event::{TaskEvent, is_append, kind},
    pack::Message,
    state::{Generation, TaskState},
    view::TaskView,
};

/// What bounds one task; see `limits.rs` for numbers and reasons.
#[derive(Clone, Copy, Debug)]
pub struct TaskLimits {
    /// Bytes of log, identifiers included.
    pub bytes_max: usize,
    /// Messages kept in the history; the oldest leave first.
    pub history_max: usize,
    /// Distinct artifacts.
    pub artifacts_max: usize,
    /// Events that can be replayed to a subscriber that comes back.
    pub replay_max: u64,
}

/// Why an event was not applied; the task is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The task is in a terminal state.
    Terminal,
    /// The log would exceed [`TaskLimits::bytes_max`].
    TooLarge,
    /// One artifact more than [`TaskLimits::artifacts_max`].
    TooManyArtifacts,
}

/// First and last entry of one artifact.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub first: u32,
    pub last: u32,
}

/// One task.
pub struct Task {
    pub(super) log: Vec<u8>,
    id_len: u16,
    context_len: u16,
    state: TaskState,
    generation: Generation,
    /// True: a client has spoken since the last status.
    is_answered: bool,
    pub(super) seq: u32,
    pub(super) base_seq: u32,
    pub(super) status_at: u32,
    pub(super) dead_bytes: u32,
    pub(super) squeezes: u32,
    messages: u32,
    /// Before it, no message can be trimmed from the history.
    pub(super) trimmed_at: u32,
    updated_ms: u64,
    pub(super) artifacts: SmallVec<[Chain; 2]>,
}

impl Task {
    /// A task without events; `id` and `context_id` are raw strings of at most 64 KiB each.
    ///
    /// `reserve` bytes of log are allocated at once, identifiers included.
    #[inline]
    pub fn new(id: &[u8], context_id: &[u8], generation: Generation, reserve: usize) -> Task {
        let mut log = Vec::with_capacity(reserve.max(id.len() + context_id.len()));
        log.extend_from_slice(id);
        log.extend_from_slice(context_id);
        Task {
            log,
            id_len: id.len() as u16,
            context_len: context_id.len() as u16,
            state: TaskState::Unspecified,
            generation,
            is_answered: false,
            seq: 0,
            base_seq: 0,
            status_at: 0,
            dead_bytes: 0,
            squeezes: 0,
            messages: 0,
            trimmed_at: 0,
            updated_ms: 0,
            artifacts: SmallVec::new(),
        }
    }

    /// A task as it is after a client's message and then `submitted`; for the rest, see
    /// [`Task::new`].
    pub fn submitted(
        id: &[u8],
        context_id: &[u8],
        generation: Generation,
        (message, at_ms): (Message<'_>, u64),
        reserve: usize,
    ) -> Task {
        let mut task = Task::new(id, context_id, generation, reserve);
        let head = entry_head(message.0.len(), kind::TURN | mark::MESSAGE, 0);
        task.log.extend_from_slice(&head);
        task.log.extend_from_slice(message.0);
        let state = TaskState::Submitted;
        (task.status_at, task.updated_ms, task.state) = (task.log.len() as u32, at_ms, state);
        TaskEvent::Status { state, at_ms, message: None, metadata: None }.encode(&mut task.log);
        (task.seq, task.messages) = (1, 1);
        task.put_u32(task.status_at() + SEQ_AT, task.seq);
        task
    }

    /// Log bytes that [`Task::submitted`] takes beside the two ids.
    pub fn submitted_cost(message: Message<'_>) -> usize {
        let (state, at_ms) = (TaskState::Submitted, 0);
        let first = TaskEvent::Status { state, at_ms, message: None, metadata: None };
        Task::cost(&TaskEvent::Turn { message }) + Task::cost(&first)
    }

    /// Log bytes that an event will take.
    pub fn cost(event: &TaskEvent<'_>) -> usize {
        ENTRY_HEAD + event.payload_len()
    }

    /// Raw task id.
    pub fn id(&self) -> &[u8] {
        &self.log[..usize::from(self.id_len)]
    }

    /// Raw context id.
    pub fn context_id(&self) -> &[u8] {
        &self.log[usize::from(self.id_len)..self.entries_at()]
    }

    /// The state after the last event.
    pub fn state(&self) -> TaskState {
        self.state
    }

    /// The wire family of the call that made the task.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Sequence number of the last event; the first event has 1.
    pub fn seq(&self) -> u64 {
        u64::from(self.seq)
    }

    /// Every event after this number can still be replayed.
    pub fn base_seq(&self) -> u64 {
        u64::from(self.base_seq)
    }

    /// When the status last changed, in milliseconds since the Unix epoch.
    pub fn updated_ms(&self) -> u64 {
        self.updated_ms
    }

    /// Bytes held on the heap.
    pub fn heap_bytes(&self) -> usize {
        let chains = if self.artifacts.spilled() { self.artifacts.capacity() * 8 } else { 0 };
        self.log.capacity() + chains
    }

    /// Sequence number of the event that brought the current status; 0 before the first.
    pub fn status_seq(&self) -> u64 {
        let at = self.status_at();
        (at != 0).then(|| Entry::at(&self.log, at)).flatten().map_or(0, |e| u64::from(e.seq()))
    }

    /// True when the task waits for input that its client has not given yet.
    pub fn awaits_input(&self) -> bool {
        self.state == TaskState::InputRequired && !self.is_answered
    }

    /// Times the log was squeezed: offsets from before are void.
    pub(super) fn squeezes(&self) -> u32 {
        self.squeezes
    }

    pub(super) fn entries_at(&self) -> usize {
        usize::from(self.id_len) + usize::from(self.context_len)
    }

    pub(super) fn log(&self) -> &[u8] {
        &self.log
    }

    pub(super) fn status_at(&self) -> usize {
        self.status_at as usize
    }

    /// Before it, there is no message of the history as it is now.
    pub(super) fn trimmed_at(&self) -> usize {
        self.entries_at().max(self.trimmed_at as usize)
    }

    /// Where the first artifact may begin, and how many there are now.
    pub(super) fn artifacts_at(&self) -> (usize, usize) {
        let first = self.artifacts.iter().map(|chain| chain.first).min();
        (first.unwrap_or(0) as usize, self.artifacts.len())
    }

    /// Messages of the history as it is now.
    pub(super) fn history_len(&self) -> u32 {
        let status = Entry::at(&self.log, self.status_at()).filter(|_| self.status_at != 0);
        self.messages - u32::from(status.is_some_and(|entry| entry.holds_message()))
    }

    /// The task as it is now.
    pub fn view(&self) -> TaskView<'_> {
        TaskView::new(self, self.seq())
    }

    /// The task as it was after event `seq`, if the log still reaches back that far.
    pub fn view_at(&self, seq: u64) -> TaskView<'_> {
        TaskView::new(self, seq.min(self.seq()))
    }

    /// Applies one event: the only way a task changes.
    ///
    /// Returns the sequence number of the task afterwards.
    ///
    /// # Errors
    /// [`Refusal`]; the task is then as it was.
    pub fn apply(&mut self, event: &TaskEvent<'_>, limits: &TaskLimits) -> Result<u64, Refusal> {
        if self.state.is_terminal() {
            return Err(Refusal::Terminal);
        }
        let cost = Task::cost(event);
        let (length, dead) = (self.log.len() + cost, self.dead_bytes as usize);
        // A squeeze of a full log must free a sixteenth: it copies all of it.
        let is_worth_it = dead >= limits.bytes_max / 16;
        if length > limits.bytes_max && (!is_worth_it || length - dead > limits.bytes_max) {
            return Err(Refusal::TooLarge);
        }
        if let TaskEvent::Artifact { artifact, .. } = event
            && self.artifacts.len() >= limits.artifacts_max
            && self.chain_of_id(artifact.artifact_id()).is_none()
        {
            return Err(Refusal::TooManyArtifacts);
        }
        self.squeeze(cost, limits);
        let at = self.log.len();
        // It reserves at once: `growth` counts on it.
        event.encode(&mut self.log);
        self.enter(at, limits);
        Ok(self.seq())
    }

    /// Makes the entry at `at`, the newest, part of the task; returns where it ends.
    ///
    /// `None`: there is none, or it is an artifact too many.
    #[inline]
    fn enter(&mut self, at: usize, limits: &TaskLimits) -> Option<usize> {
        let entry = Entry::at(&self.log, at)?;
        let (end, flag) = (at + entry.len(), entry.flag());
        let (mut index, mut mark) = (0, 0);
        match entry.kind() {
            kind::STATUS => {
                let at_ms = entry.payload.first_chunk().map_or(0, |ms| u64::from_le_bytes(*ms));
                self.messages += u32::from(entry.holds_message());
                self.seq += 1;
                let before = std::mem::replace(&mut self.status_at, at as u32);
                self.retire_status(before);
                self.state = TaskState::from_number(flag).unwrap_or(TaskState::Unspecified);
                self.updated_ms = at_ms;
                self.is_answered = false;
            }
            kind::ARTIFACT => {
                let chain = self.chain_of(&entry);
                if chain.is_none() && self.artifacts.len() >= limits.artifacts_max {
                    return None;
                }
                self.seq += 1;
                index = chain.unwrap_or(self.artifacts.len());
                mark = self.link_artifact(chain, at, is_append(flag));
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

    /// Which artifact an entry is about, if there is one of this id.
    #[inline]
    fn chain_of(&self, entry: &Entry<'_>) -> Option<usize> {
        // The newest artifact is by far the likeliest to grow.
        let newest = self.artifacts.last().and_then(|c| Entry::at(&self.log, c.first as usize));
        if let (Some(newest), Some(key)) = (newest, entry.artifact_key())
            && newest.payload.starts_with(key)
        {
            return Some(self.artifacts.len() - 1);
        }
        self.chain_of_id(entry.artifact().artifact_id())
    }

    fn chain_of_id(&self, artifact_id: &[u8]) -> Option<usize> {
        self.artifacts.iter().rposition(|chain| {
            Entry::at(&self.log, chain.first as usize)
                .is_some_and(|entry| entry.artifact().artifact_id() == artifact_id)
        })
    }

    /// Returns the mark of the new entry.
    #[inline]
    fn link_artifact(&mut self, chain: Option<usize>, at: usize, append: bool) -> u8 {
        let new = Chain { first: at as u32, last: at as u32 };
        let Some(chain) = chain.and_then(|index| self.artifacts.get_mut(index)) else {
            self.artifacts.push(new);
            return 0;
        };
        if append {
            let last = std::mem::replace(&mut chain.last, at as u32);
            self.put_u32(last as usize + NEXT_AT, at as u32);
            return mark::CHUNK;
        }
        let mut old = std::mem::replace(chain, new).first as usize;
        while old != 0 {
            self.kill(old);
            old = self.u32_at(old + NEXT_AT) as usize;
        }
        0
    }

    /// A status without a message is dead once replaced; its message lives on in the history.
    fn retire_status(&mut self, at: u32) {
        let Some(entry) = (at != 0).then(|| Entry::at(&self.log, at as usize)).flatten() else {
            return;
        };
        if entry.holds_message() {
            self.trimmed_at = self.trimmed_at.min(at);
        } else {
            self.kill(at as usize);
        }
    }

    fn kill(&mut self, at: usize) {
        self.dead_bytes += self.u32_at(at);
        // Zero would say that it lives.
        self.put_u32(at + DEAD_AT, self.seq.max(1));
    }

    #[inline]
    fn trim_history(&mut self, history_max: usize) {
        if self.messages as usize > history_max {
            self.forget_message();
        }
    }

    /// Kills the oldest message of the history.
    fn forget_message(&mut self) {
        // No message that could go is before `trimmed_at`: each entry is looked at once or twice.
        for (at, entry) in (Entries { log: &self.log, at: self.trimmed_at() }) {
            if entry.dead() == 0 && entry.holds_message() && at != self.status_at() {
                self.trimmed_at = (at + entry.len()) as u32;
                self.kill(at);
                self.messages -= 1;
                return;
            }
        }
    }

    fn u32_at(&self, at: usize) -> u32 {
        self.log.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
    }

    fn put_u32(&mut self, at: usize, value: u32) {
        self.log[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ArtifactBuf, EventBuf, MessageBuf, PartsBuf};

    fn limits() -> TaskLimits {
        TaskLimits { bytes_max: 100_000, history_max: 10, artifacts_max: 10, replay_max: 8 }
    }

    fn status(state: TaskState) -> TaskEvent<'static> {
        TaskEvent::Status { state, at_ms: 1, message: None, metadata: None }
    }

    fn replace(task: &mut Task, length: usize, limits: &TaskLimits) -> Result<u64, Refusal> {
        let artifact = ArtifactBuf::new("a", &PartsBuf::new().text(&"y".repeat(length)));
        let (append, last_chunk) = (false, true);
        let artifact = artifact.view();
        task.apply(&TaskEvent::Artifact { artifact, append, last_chunk, metadata: None }, limits)
    }

    #[test]
    fn a_task_can_be_seen_as_it_was_at_the_base_of_its_window() {
        let mut task = Task::new(b"t", b"c", Generation::V1, 0);
        let mut sizes = vec![(TaskState::Unspecified, 0)];
        for round in 0..200 {
            let state = if round % 2 == 0 { TaskState::Working } else { TaskState::AuthRequired };
            for is_status in [true, false] {
                let applied = match is_status {
                    true => task.apply(&status(state), &limits()),
                    false => replace(&mut task, 200 + round, &limits()),
                };
                let size = if is_status { sizes[sizes.len() - 1].1 } else { 200 + round };
                assert_eq!(applied, Ok(sizes.len() as u64));
                sizes.push((state, size));
            }
            for seq in task.base_seq()..=task.seq() {
                let view = task.view_at(seq);
                let size = view.artifacts().map(|a| a.parts().map(|p| p.0.len()).sum::<usize>());
                let (state, length) = sizes[seq as usize];
                assert_eq!(view.status().state, state);
                let head = super::super::pack::FIELD_HEAD;
                assert_eq!(size.sum::<usize>(), if length > 0 { length + head } else { 0 });
            }
        }
        assert!(task.squeezes() > 0);
    }

    #[test]
    fn a_window_is_squeezed_once_and_a_full_log_only_when_it_is_worth_it() {
        let mut task = Task::new(b"t", b"c", Generation::V1, 0);
        for _ in 0..800 {
            replace(&mut task, 600, &limits()).unwrap();
        }
        assert!((10..=100).contains(&task.squeezes()), "{}", task.squeezes());
        let large = TaskLimits { replay_max: 100_000, ..limits() };
        let parts = PartsBuf::new().text(&"x".repeat(95_000));
        let said = MessageBuf::agent("m", &parts);
        let mut task = Task::new(b"t", b"c", Generation::V1, 0);
        task.apply(&TaskEvent::Turn { message: said.view() }, &large).unwrap();
        let refused =
            (0..10_000).find_map(|_| task.apply(&status(TaskState::Working), &large).err());
        assert_eq!(refused, Some(Refusal::TooLarge));
        assert_eq!(task.squeezes(), 0);
    }

    #[test]
    fn a_submitted_task_is_its_slow_twin() {
        let said = MessageBuf::agent("m", &PartsBuf::new().text("hello"));
        let mut slow = Task::new(b"t", b"c", Generation::V03, 0);
        slow.apply(&TaskEvent::Turn { message: said.view() }, &limits()).unwrap();
        slow.apply(&status(TaskState::Submitted), &limits()).unwrap();
        let mut fast = Task::submitted(b"t", b"c", Generation::V03, (said.view(), 1), 0);
        for task in [&mut slow, &mut fast] {
            assert_eq!(task.log().len(), 2 + Task::submitted_cost(said.view()));
            task.apply(&status(TaskState::Working), &limits()).unwrap();
            assert_eq!((task.seq(), task.status_seq(), task.updated_ms()), (2, 2, 1));
            assert_eq!(task.view_at(1).status().state, TaskState::Submitted);
            assert_eq!(task.view().history(None).count(), 1);
        }
        assert_eq!(slow.log(), fast.log());
    }

    #[test]
    fn events_at_once_are_events_one_by_one() {
        for (bytes_max, artifacts_max, replay_max) in
            [(100_000, 10, 1_000), (3_000, 10, 1_000), (100_000, 3, 1_000), (100_000, 10, 2)]
        {
            let limits = TaskLimits { bytes_max, artifacts_max, replay_max, history_max: 3 };
            let (mut fast, mut slow) =
                [b"f", b"s"].map(|id| Task::new(id, b"", Generation::V1, 0)).into();
            for round in 0..40usize {
                let mut events = EventBuf::default();
                for step in 0..round % 7 {
                    let mix = (round * 31 + step * 17) % 11;
                    let said = MessageBuf::agent("m", &PartsBuf::new().text("x"));
                    let artifact = ArtifactBuf::new(&(mix % 5).to_string(), &PartsBuf::new());
                    let artifact = artifact.view();
                    let (append, last_chunk, metadata) = (mix % 2 == 0, false, None);
                    let (state, at_ms) = (TaskState::Working, round as u64);
                    let message = (mix == 7).then(|| said.view());
                    events.push(&match mix {
                        0..=5 => TaskEvent::Artifact { artifact, append, last_chunk, metadata },
                        6..=8 => TaskEvent::Status { state, at_ms, message, metadata },
                        9 if round > 35 => status(TaskState::Completed),
                        _ => TaskEvent::Turn { message: said.view() },
                    });
                }
                let growth = fast.heap_bytes() + fast.growth_at_once(&events);
                let (applied, _) = fast.apply_at_once(&events, &limits);
                assert!(fast.heap_bytes() <= growth);
                for (at, event) in events.iter().enumerate() {
                    let result = slow.apply(&event, &limits);
                    if at >= applied {
                        assert_eq!(fast.apply(&event, &limits), result);
                    }
                }
                assert_eq!(slow.log()[1..], fast.log()[1..]);
                assert_eq!((slow.seq, slow.messages), (fast.seq, fast.messages));
                assert_eq!((slow.state, slow.dead_bytes), (fast.state, fast.dead_bytes));
                assert_eq!(slow.history_len() as usize, slow.view().history(None).count());
                assert_eq!(slow.artifacts.len(), slow.view().artifacts().count());
            }
        }
    }

    #[test]
    fn growth_bounds_what_an_event_adds() {
        let mut task = Task::new(b"t", b"c", Generation::V1, 10);
        for round in 0..300usize {
            let event = ArtifactBuf::new(&(round % 9).to_string(), &PartsBuf::new().text("y"));
            let event = TaskEvent::Artifact {
                artifact: event.view(),
                append: round % 2 == 0,
                last_chunk: false,
                metadata: None,
            };
            let (before, growth) = (task.heap_bytes(), task.growth(&event));
            task.apply(&event, &limits()).unwrap();
            assert!(task.heap_bytes() <= before + growth);
        }
    }

    #[test]
    fn a_task_awaits_input_until_its_client_speaks() {
        let mut task = Task::new(b"t", b"c", Generation::V1, 0);
        let said = MessageBuf::agent("m", &PartsBuf::new());
        let turn = TaskEvent::Turn { message: said.view() };
        let mut awaits = |event: &TaskEvent<'_>| {
            task.apply(event, &limits()).unwrap();
            (task.awaits_input(), task.status_seq())
        };
        assert_eq!(awaits(&turn), (false, 0));
        assert_eq!(awaits(&status(TaskState::AuthRequired)), (false, 1));
        assert_eq!(awaits(&status(TaskState::InputRequired)), (true, 2));
        assert_eq!(awaits(&turn), (false, 2));
        assert_eq!(awaits(&status(TaskState::Completed)), (false, 3));
    }
}
