//! A task is the log of its events; its state, history and artifacts are a reading of that log.
//!
//! [`Task::apply`] is the one mutation in the system. Entries that a later one replaced are marked
//! dead with the sequence number that killed them, stay as long as the replay window needs them,
//! and are then squeezed out: the log holds at most what is alive, the window, and as much again.

use smallvec::SmallVec;

use super::{
    event::{TaskEvent, kind},
    pack::Artifact,
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

/// Fixed columns before each entry's payload.
///
/// `length u32` counts them; `seq`, `next` (offset of the artifact's next chunk, 0 = none) and
/// `dead` (sequence number that replaced the entry, 0 = alive) are u32.
pub(super) const ENTRY_HEAD: usize = 20;
const SEQ_AT: usize = 4;
const NEXT_AT: usize = 8;
const DEAD_AT: usize = 12;

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

    /// True when streams of this task end here: it is terminal, or waits for its client's input
    /// (A2A 1.0 §3.1.2). For credentials a client waits with its stream open.
    pub fn ends_streams(&self) -> bool {
        self.state.is_terminal() || (self.state == TaskState::InputRequired && !self.is_answered)
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
        if self.log.len() + Task::cost(event) - self.dead_bytes as usize > limits.bytes_max {
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
        self.put_u32(at + DEAD_AT, self.seq);
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
        let floor =
            if tight { self.seq } else { self.seq.saturating_sub(limits.replay_max as u32) };
        if !tight && floor <= self.base_seq {
            return;
        }
        self.rebuild(floor);
    }

    fn rebuild(&mut self, floor: u32) {
        let old = std::mem::take(&mut self.log);
        let mut log = Vec::with_capacity(old.len() - self.dead_bytes as usize / 2);
        log.extend_from_slice(&old[..self.entries_at()]);
        let mut moved: Vec<(u32, u32)> = Vec::new();
        let mut at = self.entries_at();
        self.dead_bytes = 0;
        while let Some(entry) = Entry::at(&old, at) {
            let is_dead = entry.dead() != 0;
            if !is_dead || entry.seq() > floor {
                moved.push((at as u32, log.len() as u32));
                self.dead_bytes += if is_dead { entry.bytes.len() as u32 } else { 0 };
                log.extend_from_slice(entry.bytes);
            }
            at += entry.bytes.len();
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

/// One entry of a log.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub bytes: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry that starts at `at`; `None` at the end of the log.
    pub fn at(log: &'a [u8], at: usize) -> Option<Entry<'a>> {
        let rest = log.get(at..)?;
        let length = u32::from_le_bytes(*rest.first_chunk()?) as usize;
        let bytes = rest.get(..length)?;
        (length >= ENTRY_HEAD).then_some(Entry { bytes })
    }

    fn column(&self, at: usize) -> u32 {
        self.bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
    }

    pub fn seq(&self) -> u32 {
        self.column(SEQ_AT)
    }

    pub fn next(&self) -> usize {
        self.column(NEXT_AT) as usize
    }

    pub fn dead(&self) -> u32 {
        self.column(DEAD_AT)
    }

    /// True when the entry is alive in the task as it was after event `seq`.
    pub fn lives_at(&self, seq: u32) -> bool {
        self.seq() <= seq && (self.dead() == 0 || self.dead() > seq)
    }

    pub fn kind(&self) -> u8 {
        self.bytes[16]
    }

    pub fn event(&self) -> Option<TaskEvent<'a>> {
        TaskEvent::decode(self.bytes[16], self.bytes[17], &self.bytes[ENTRY_HEAD..])
    }

    pub fn artifact(&self) -> Option<Artifact<'a>> {
        match self.event()? {
            TaskEvent::Artifact { artifact, .. } => Some(artifact),
            TaskEvent::Turn { .. } | TaskEvent::Status { .. } => None,
        }
    }

    /// True for a turn and for a status that says something.
    pub fn holds_message(&self) -> bool {
        match self.event() {
            Some(TaskEvent::Turn { .. }) => true,
            Some(TaskEvent::Status { message, .. }) => message.is_some(),
            Some(TaskEvent::Artifact { .. }) | None => false,
        }
    }

    pub fn is_turn(&self) -> bool {
        self.kind() == kind::TURN
    }
}
