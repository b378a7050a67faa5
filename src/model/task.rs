//! A task is the log of its events; its state, history and artifacts are a reading of that log.
//!
//! [`Task::apply`] is the one mutation in the system. Entries that a later one replaced are marked
//! dead with the sequence number that killed them, stay as long as the replay window needs them,
//! and are then squeezed out: the log holds at most what is alive, the window, and as much again.

use smallvec::SmallVec;

use super::{
    entry::{DEAD_AT, ENTRY_HEAD, Entries, Entry, NEXT_AT},
    event::TaskEvent,
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
struct Chain {
    first: u32,
    last: u32,
}

/// One task.
pub struct Task {
    log: Vec<u8>,
    id_len: u16,
    context_len: u16,
    state: TaskState,
    generation: Generation,
    /// True: a client has spoken since the last status.
    is_answered: bool,
    seq: u32,
    base_seq: u32,
    status_at: u32,
    dead_bytes: u32,
    squeezes: u32,
    messages: u32,
    updated_ms: u64,
    artifacts: SmallVec<[Chain; 2]>,
}

impl Task {
    /// A task without events; `id` and `context_id` are raw strings of at most 64 KiB each.
    ///
    /// `reserve` bytes of log are allocated at once.
    pub fn new(id: &[u8], context_id: &[u8], generation: Generation, reserve: usize) -> Task {
        let mut log = Vec::with_capacity(id.len() + context_id.len() + reserve);
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
            updated_ms: 0,
            artifacts: SmallVec::new(),
        }
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

    /// Heap bytes that applying `event` may add at most.
    pub fn growth(&self, event: &TaskEvent<'_>) -> usize {
        let (held, need) = (self.log.capacity(), self.log.len() + Task::cost(event));
        // A vector grows to twice its size or to what is needed.
        let log = if need > held { held.max(need - held) } else { 0 };
        let is_full = self.artifacts.len() == self.artifacts.capacity();
        let chains = match event {
            TaskEvent::Artifact { .. } if is_full => 2 * self.artifacts.capacity() * 8,
            TaskEvent::Artifact { .. } | TaskEvent::Turn { .. } | TaskEvent::Status { .. } => 0,
        };
        log + chains
    }

    /// Makes the log long enough for one more event and no longer.
    pub fn make_room(&mut self, event: &TaskEvent<'_>) {
        self.log.reserve_exact(Task::cost(event));
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
        let (length, dead) = (self.log.len() + Task::cost(event), self.dead_bytes as usize);
        // A squeeze of a full log must free a sixteenth: it copies all of it.
        let is_worth_it = dead >= limits.bytes_max / 16;
        if length > limits.bytes_max && (!is_worth_it || length - dead > limits.bytes_max) {
            return Err(Refusal::TooLarge);
        }
        let chain = match event {
            TaskEvent::Artifact { artifact, .. } => self.chain_of(artifact.artifact_id()),
            TaskEvent::Turn { .. } | TaskEvent::Status { .. } => None,
        };
        let is_new = matches!(event, TaskEvent::Artifact { .. }) && chain.is_none();
        if is_new && self.artifacts.len() >= limits.artifacts_max {
            return Err(Refusal::TooManyArtifacts);
        }
        self.squeeze(event, limits);
        let at = self.append(event);
        match event {
            TaskEvent::Turn { .. } => {
                self.messages += 1;
                self.is_answered = true;
            }
            TaskEvent::Status { state, at_ms, message, .. } => {
                let before = std::mem::replace(&mut self.status_at, at);
                self.retire_status(before);
                self.state = *state;
                self.updated_ms = *at_ms;
                self.is_answered = false;
                self.messages += u32::from(message.is_some());
            }
            TaskEvent::Artifact { append, .. } => self.link_artifact(chain, at, *append),
        }
        self.trim_history(limits.history_max);
        Ok(self.seq())
    }

    /// Gives back log memory that nothing will fill; call it when no event is expected soon.
    pub fn fit(&mut self) {
        self.log.shrink_to_fit();
    }

    fn append(&mut self, event: &TaskEvent<'_>) -> u32 {
        if !matches!(event, TaskEvent::Turn { .. }) {
            self.seq += 1;
        }
        let at = self.log.len();
        // At once: `growth` counts on it.
        self.log.reserve(Task::cost(event));
        self.log.extend_from_slice(&(Task::cost(event) as u32).to_le_bytes());
        self.log.extend_from_slice(&self.seq.to_le_bytes());
        self.log.extend_from_slice(&[0; 8]);
        self.log.extend_from_slice(&[event.kind(), event.flag(), 0, 0]);
        event.write_payload(&mut self.log);
        at as u32
    }

    fn chain_of(&self, artifact_id: &[u8]) -> Option<usize> {
        // The newest artifact is by far the likeliest to grow.
        self.artifacts.iter().rposition(|chain| {
            match Entry::at(&self.log, chain.first as usize).and_then(|e| e.event()) {
                Some(TaskEvent::Artifact { artifact, .. }) => artifact.artifact_id() == artifact_id,
                Some(TaskEvent::Turn { .. } | TaskEvent::Status { .. }) | None => false,
            }
        })
    }

    fn link_artifact(&mut self, chain: Option<usize>, at: u32, append: bool) {
        let Some(index) = chain else {
            self.artifacts.push(Chain { first: at, last: at });
            return;
        };
        if append {
            let last = self.artifacts[index].last as usize;
            self.put_u32(last + NEXT_AT, at);
            self.artifacts[index].last = at;
            return;
        }
        let mut old = self.artifacts[index].first as usize;
        while old != 0 {
            self.kill(old);
            old = self.u32_at(old + NEXT_AT) as usize;
        }
        self.artifacts[index] = Chain { first: at, last: at };
    }

    /// A status without a message is dead once replaced; its message lives on in the history.
    fn retire_status(&mut self, at: u32) {
        let Some(entry) = (at != 0).then(|| Entry::at(&self.log, at as usize)).flatten() else {
            return;
        };
        if !entry.holds_message() {
            self.kill(at as usize);
        }
    }

    fn kill(&mut self, at: usize) {
        self.dead_bytes += self.u32_at(at);
        // Zero would say that it lives.
        self.put_u32(at + DEAD_AT, self.seq.max(1));
    }

    fn trim_history(&mut self, history_max: usize) {
        if self.messages as usize <= history_max {
            return;
        }
        let mut at = self.entries_at();
        while let Some(entry) = Entry::at(&self.log, at) {
            let end = at + entry.bytes.len();
            if entry.dead() == 0 && entry.holds_message() && at != self.status_at() {
                self.kill(at);
                self.messages -= 1;
                return;
            }
            at = end;
        }
    }

    /// Drops dead entries that no replay needs once they are half of a log of some size.
    fn squeeze(&mut self, event: &TaskEvent<'_>, limits: &TaskLimits) {
        const WORTH_IT: usize = 4096;
        let dead = self.dead_bytes as usize;
        let tight = self.log.len() + Task::cost(event) > limits.bytes_max;
        if !tight && (dead < WORTH_IT || dead < self.log.len() / 2) {
            return;
        }
        let window = u32::try_from(limits.replay_max).unwrap_or(u32::MAX);
        let floor = if tight { self.seq } else { self.seq.saturating_sub(window) };
        // One squeeze a window at most: it copies the window.
        if !tight && floor < self.base_seq.saturating_add(window.max(1)) {
            return;
        }
        self.rebuild(floor, Task::cost(event));
    }

    /// Copies what lives, and what died after `floor`, with room for `more` bytes.
    fn rebuild(&mut self, floor: u32, more: usize) {
        let old = std::mem::take(&mut self.log);
        // What died after the floor is part of the task as it was at the floor.
        let is_kept = |entry: &Entry<'_>| entry.dead() == 0 || entry.dead() > floor;
        let kept: usize = Entries { log: &old, at: self.entries_at() }
            .filter(|(_, entry)| is_kept(entry))
            .map(|(_, entry)| entry.bytes.len())
            .sum();
        let kept = self.entries_at() + kept;
        let mut log = Vec::with_capacity(old.capacity().min(kept + more.max(kept / 2)));
        log.extend_from_slice(&old[..self.entries_at()]);
        let mut moved: Vec<(u32, u32)> = Vec::new();
        self.dead_bytes = 0;
        for (at, entry) in (Entries { log: &old, at: self.entries_at() }) {
            if is_kept(&entry) {
                moved.push((at as u32, log.len() as u32));
                self.dead_bytes += if entry.dead() != 0 { entry.bytes.len() as u32 } else { 0 };
                log.extend_from_slice(entry.bytes);
            }
        }
        let new_place = |old: u32| match moved.binary_search_by_key(&old, |m| m.0) {
            Ok(index) => moved[index].1,
            Err(_) => 0,
        };
        for &(_, at) in &moved {
            let next_at = at as usize + NEXT_AT;
            if let Some(next) = log[next_at..].first_chunk::<4>() {
                let next = new_place(u32::from_le_bytes(*next));
                log[next_at..next_at + 4].copy_from_slice(&next.to_le_bytes());
            }
        }
        for chain in &mut self.artifacts {
            *chain = Chain { first: new_place(chain.first), last: new_place(chain.last) };
        }
        self.status_at = new_place(self.status_at);
        self.log = log;
        self.base_seq = self.base_seq.max(floor);
        self.squeezes += 1;
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
    use crate::model::{ArtifactBuf, MessageBuf, PartsBuf};

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
