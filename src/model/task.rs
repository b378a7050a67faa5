//! A task is the log of its events; its state, history and artifacts are derived from that log.
//!
//! Only `store/door.rs` creates and changes the tasks of the store: by `Task::submitted`, by
//! `Task::apply`, and by `Task::apply_at_once` for many events. A copy outside the store is a
//! `TaskBuf`, which changes independently. A replaced entry is marked dead with the sequence number
//! of the event that replaced it. It stays while the replay window needs it; then compaction drops
//! it. The log is at most twice as large as the living entries and the window.

use smallvec::SmallVec;

use super::{
    entry::{ENTRY_HEAD, Entry, SEQ_AT, entry_head, mark},
    event::{TaskEvent, kind},
    event_buf::EventBuf,
    pack::Message,
    state::{Generation, TaskState},
    view::TaskView,
};

/// The limits of one task; see `limits.rs` for numbers and reasons.
#[derive(Clone, Copy, Debug)]
pub struct TaskLimits {
    /// Bytes of log, identifiers included.
    pub bytes_max: usize,
    /// Messages in the history; the oldest are dropped first.
    pub history_max: usize,
    /// Distinct artifacts.
    pub artifacts_max: usize,
    /// Events that can be replayed to a returning subscriber.
    pub replay_max: u64,
}

/// Why an event was not applied; the task is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The task is in a terminal state.
    Terminal,
    /// The log would exceed [`TaskLimits::bytes_max`].
    TooLarge,
    /// The task would have more artifacts than [`TaskLimits::artifacts_max`].
    TooManyArtifacts,
}

/// The message that begins a task, and the time when it arrived.
#[derive(Clone, Copy)]
pub(crate) struct FirstMessage<'m> {
    pub(crate) message: Message<'m>,
    pub(crate) at_ms: u64,
}

/// Larger blocks share their pages with few others, or none, in usual allocators.
const RELOCATED_MAX: usize = 512 * 1024;

/// Offsets of the first and the last entry of one artifact.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArtifactChunks {
    pub first: u32,
    pub last: u32,
}

/// One task in its store, to be read or copied ([`TaskBuf::of`](super::TaskBuf::of)).
///
/// ```compile_fail
/// use peregrine::model::{Refusal, Task, TaskEvent, TaskLimits};
///
/// // Only the store changes it.
/// fn change(
///     task: &mut Task,
///     event: &TaskEvent<'_>,
///     limits: &TaskLimits,
/// ) -> Result<u64, Refusal> {
///     task.apply(event, limits)
/// }
/// ```
#[derive(Clone)]
pub struct Task {
    pub(super) log: Vec<u8>,
    pub(super) id_len: u16,
    pub(super) context_len: u16,
    pub(super) state: TaskState,
    pub(super) generation: Generation,
    /// True: a client has sent a message since the last status.
    pub(super) is_answered: bool,
    pub(super) seq: u32,
    pub(super) base_seq: u32,
    pub(super) status_at: u32,
    pub(super) dead_bytes: u32,
    pub(super) compactions: u32,
    pub(super) messages: u32,
    /// The search for a message to trim from the history begins at this offset.
    pub(super) trimmed_at: u32,
    /// The offset of the only entry that repeats the first message; 0: there is none.
    pub(super) repeats_at: u32,
    pub(super) artifacts: SmallVec<[ArtifactChunks; 1]>,
}

impl Task {
    /// A task without events; `id` and `context_id` are raw strings of at most 64 KiB each.
    ///
    /// `reserve` bytes of log are allocated at once, identifiers included.
    #[inline]
    pub(crate) fn new(
        id: &[u8],
        context_id: &[u8],
        generation: Generation,
        reserve: usize,
    ) -> Task {
        Task::with_log(Task::log_of(id, context_id, reserve), id, context_id, generation)
    }

    #[inline]
    fn log_of(id: &[u8], context_id: &[u8], reserve: usize) -> Vec<u8> {
        let mut log = Vec::with_capacity(reserve.max(id.len() + context_id.len()));
        log.extend_from_slice(id);
        log.extend_from_slice(context_id);
        log
    }

    #[inline]
    pub(super) fn with_log(
        log: Vec<u8>,
        id: &[u8],
        context_id: &[u8],
        generation: Generation,
    ) -> Task {
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
            compactions: 0,
            messages: 0,
            trimmed_at: 0,
            repeats_at: 0,
            artifacts: SmallVec::new(),
        }
    }

    /// A task after a client's message and then `submitted`; see also [`Task::new`].
    #[inline(always)] // A task is expensive to copy: it is created in its slot.
    pub(crate) fn submitted(
        id: &[u8],
        context_id: &[u8],
        generation: Generation,
        first: FirstMessage<'_>,
        reserve: usize,
    ) -> Task {
        let FirstMessage { message, at_ms } = first;
        let mut log = Task::log_of(id, context_id, reserve);
        log.extend_from_slice(&entry_head(message.0.len(), kind::USER_MESSAGE | mark::MESSAGE, 0));
        log.extend_from_slice(message.0);
        let (state, status_at, seq) = (TaskState::Submitted, log.len(), 1u32);
        TaskEvent::Status { state, at_ms, message: None, metadata: None }.encode(&mut log);
        log[status_at + SEQ_AT..status_at + SEQ_AT + 4].copy_from_slice(&seq.to_le_bytes());
        let mut task = Task::with_log(log, id, context_id, generation);
        (task.state, task.status_at) = (state, status_at as u32);
        (task.seq, task.messages) = (seq, 1);
        task
    }

    /// Log bytes of `Task::submitted` in addition to the two ids.
    pub(crate) fn submitted_cost(message: Message<'_>) -> usize {
        let (state, at_ms) = (TaskState::Submitted, 0);
        let first = TaskEvent::Status { state, at_ms, message: None, metadata: None };
        Task::cost(&TaskEvent::UserMessage { message }) + Task::cost(&first)
    }

    /// Log bytes that an event needs.
    pub(crate) fn cost(event: &TaskEvent<'_>) -> usize {
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

    /// The wire family of the call that created the task.
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
        match self.status_entry().and_then(|entry| entry.payload.first_chunk()) {
            Some(at_ms) => u64::from_le_bytes(*at_ms),
            None => 0,
        }
    }

    /// The entry of the current status; `None` before the first.
    fn status_entry(&self) -> Option<Entry<'_>> {
        Entry::at(&self.log, self.status_at()).filter(|_| self.status_at != 0)
    }

    /// Bytes held on the heap.
    pub fn heap_bytes(&self) -> usize {
        let artifacts = if self.artifacts.spilled() { self.artifacts.capacity() * 8 } else { 0 };
        self.log.capacity() + artifacts
    }

    /// Sequence number of the current status; 0 before the first.
    pub fn status_seq(&self) -> u64 {
        self.status_entry().map_or(0, |entry| u64::from(entry.seq()))
    }

    /// True when the task waits for input that its client has not sent yet.
    pub fn awaits_input(&self) -> bool {
        self.state == TaskState::InputRequired && !self.is_answered
    }

    /// True when the client has to act next: the task is interrupted and has received no answer
    /// yet.
    pub fn waits_for_client(&self) -> bool {
        self.state.is_interrupted() && !self.is_answered
    }

    /// Maximum heap bytes that applying `event` may add.
    pub(crate) fn growth(&self, event: &TaskEvent<'_>) -> usize {
        let is_full = self.artifacts.len() == self.artifacts.capacity();
        let artifacts = match event {
            TaskEvent::Artifact { .. } if is_full => {
                2 * self.artifacts.capacity() * size_of::<ArtifactChunks>()
            }
            TaskEvent::Artifact { .. }
            | TaskEvent::UserMessage { .. }
            | TaskEvent::Status { .. } => 0,
        };
        self.log_growth(Task::cost(event)) + artifacts
    }

    /// Bytes by which the log grows: a vector grows to twice its size, or to the required size.
    fn log_growth(&self, more: usize) -> usize {
        let (held, need) = (self.log.capacity(), self.log.len() + more);
        if need > held { held.max(need - held) } else { 0 }
    }

    /// Grows the log to the exact size for one more event.
    pub(crate) fn make_room(&mut self, event: &TaskEvent<'_>) {
        self.log.reserve_exact(Task::cost(event));
    }

    /// Bytes of the log if repeated parts were stored twice.
    pub(super) fn length(&self) -> usize {
        let first = (self.repeats_at != 0).then(|| Entry::at(&self.log, self.entries_at()));
        self.log.len() + first.flatten().map_or(0, |entry| entry.len())
    }

    /// Number of compactions of the log: they invalidate earlier offsets.
    pub(super) fn compactions(&self) -> u32 {
        self.compactions
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

    /// No message of the current history is before this offset.
    pub(super) fn trimmed_at(&self) -> usize {
        self.entries_at().max(self.trimmed_at as usize)
    }

    /// The lowest possible offset of the first artifact, and the number of artifacts.
    pub(super) fn artifacts_at(&self) -> (usize, usize) {
        let first = self.artifacts.iter().map(|chunks| chunks.first).min();
        (first.unwrap_or(0) as usize, self.artifacts.len())
    }

    /// Messages of the current history.
    pub(super) fn history_len(&self) -> u32 {
        self.messages - u32::from(self.status_entry().is_some_and(|entry| entry.holds_message()))
    }

    /// The current task.
    pub fn view(&self) -> TaskView<'_> {
        TaskView::new(self, self.seq())
    }

    /// The task as it was after event `seq`, if the log still has it.
    pub fn view_at(&self, seq: u64) -> TaskView<'_> {
        TaskView::new(self, seq.min(self.seq()))
    }

    /// Applies one event. Only the store's `Door`, and a [`TaskBuf`](super::TaskBuf) for its own
    /// task, call this function.
    ///
    /// Returns the task's new sequence number.
    ///
    /// # Errors
    /// [`Refusal`]; the task is then unchanged.
    pub(crate) fn apply(
        &mut self,
        event: &TaskEvent<'_>,
        limits: &TaskLimits,
    ) -> Result<u64, Refusal> {
        if self.state.is_terminal() {
            return Err(Refusal::Terminal);
        }
        let cost = Task::cost(event);
        let (length, dead) = (self.length() + cost, self.dead_bytes as usize);
        // Compaction of a full log must free a sixteenth, since it copies the whole log.
        let is_worth_it = dead >= limits.bytes_max / 16;
        if length > limits.bytes_max && (!is_worth_it || length - dead > limits.bytes_max) {
            return Err(Refusal::TooLarge);
        }
        if let TaskEvent::Artifact { artifact, .. } = event
            && self.artifacts.len() >= limits.artifacts_max
            && self.artifact_of_id(artifact.artifact_id().raw()).is_none()
        {
            return Err(Refusal::TooManyArtifacts);
        }
        self.compact(cost, limits);
        self.append(event, limits);
        Ok(self.seq())
    }

    /// Applies the first events of a list at once, with the same result as [`Task::apply`] for
    /// each.
    ///
    /// Returns the number of applied events, and whether a status was among them. Applies none if
    /// the list comes near a limit, and stops before an event that is refused. Use `apply` for the
    /// rest.
    pub(crate) fn apply_at_once(
        &mut self,
        events: &EventBuf,
        limits: &TaskLimits,
    ) -> (usize, bool) {
        let bytes = events.bytes();
        if self.state.is_terminal()
            || self.length() + bytes.len() > limits.bytes_max
            || self.may_compact(bytes.len(), events.len() as u64, limits)
        {
            return (0, false);
        }
        let (mut at, status_at) = (self.log.len(), self.status_at);
        self.log.extend_from_slice(bytes);
        let (mut applied, mut growing) = (0, None);
        while !self.state.is_terminal()
            && let Some(end) = self.append_entry(at, &mut growing, limits)
        {
            at = end;
            applied += 1;
        }
        self.log.truncate(at);
        (applied, self.status_at != status_at)
    }

    /// Maximum heap bytes that `Task::apply_at_once` may add.
    pub(crate) fn growth_at_once(&self, events: &EventBuf) -> usize {
        let artifacts = self.artifacts.len() + events.artifacts();
        let is_full = events.artifacts() > 0 && artifacts > self.artifacts.capacity();
        self.log_growth(events.bytes_len())
            + if is_full { artifacts.next_power_of_two() * size_of::<ArtifactChunks>() } else { 0 }
    }

    /// Releases unused log memory; call it when no event is expected soon.
    pub(crate) fn fit(&mut self) {
        self.log.shrink_to_fit();
    }

    /// Moves the log to newly allocated memory of the same size; returns the number of bytes moved.
    /// Returns 0 for a large log, which is not moved: it shares its pages with few other
    /// allocations.
    pub(crate) fn relocate(&mut self) -> usize {
        let bytes = self.log.capacity();
        if bytes > RELOCATED_MAX {
            return 0;
        }
        let mut log = Vec::with_capacity(bytes);
        log.extend_from_slice(&self.log);
        self.log = log;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{compact::Deaths, entry::Entries},
        *,
    };
    use crate::model::{ArtifactBuf, Json, MessageBuf, PartsBuf};

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
    fn view_at_returns_task_state_at_each_retained_event() {
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
        assert!(task.compactions() > 0);
    }

    #[test]
    fn compaction_is_infrequent_and_skipped_if_useless() {
        let mut task = Task::new(b"t", b"c", Generation::V1, 0);
        for _ in 0..800 {
            replace(&mut task, 600, &limits()).unwrap();
        }
        assert!((10..=100).contains(&task.compactions()), "{}", task.compactions());
        let large = TaskLimits { replay_max: 100_000, ..limits() };
        let parts = PartsBuf::new().text(&"x".repeat(95_000));
        let message_buf = MessageBuf::agent(&parts).id("m");
        let mut task = Task::new(b"t", b"c", Generation::V1, 0);
        task.apply(&TaskEvent::UserMessage { message: message_buf.view() }, &large).unwrap();
        let refused =
            (0..10_000).find_map(|_| task.apply(&status(TaskState::Working), &large).err());
        assert_eq!(refused, Some(Refusal::TooLarge));
        assert_eq!(task.compactions(), 0);
    }

    #[test]
    fn submitted_task_equals_task_built_from_events() {
        let message_buf = MessageBuf::agent(&PartsBuf::new().text("hello")).id("m");
        let mut slow = Task::new(b"t", b"c", Generation::V03, 0);
        slow.apply(&TaskEvent::UserMessage { message: message_buf.view() }, &limits()).unwrap();
        slow.apply(&status(TaskState::Submitted), &limits()).unwrap();
        let first = FirstMessage { message: message_buf.view(), at_ms: 1 };
        let mut fast = Task::submitted(b"t", b"c", Generation::V03, first, 0);
        for task in [&mut slow, &mut fast] {
            assert_eq!(task.log().len(), 2 + Task::submitted_cost(message_buf.view()));
            task.apply(&status(TaskState::Working), &limits()).unwrap();
            assert_eq!((task.seq(), task.status_seq(), task.updated_ms()), (2, 2, 1));
            assert_eq!(task.view_at(1).status().state, TaskState::Submitted);
            assert_eq!(task.view().history(None).count(), 1);
        }
        assert_eq!(slow.log(), fast.log());
    }

    #[test]
    fn batched_events_equal_events_applied_one_by_one() {
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
                    let message_buf = MessageBuf::agent(&PartsBuf::new().text("x")).id("m");
                    let parts = (0..mix % 3).fold(PartsBuf::new(), |parts, _| parts.text("p"));
                    let artifact = ArtifactBuf::new(&(step / 3 * mix % 3).to_string(), &parts);
                    let artifact = artifact.view();
                    let (append, last_chunk, metadata) = (mix != 2, false, None);
                    let (state, at_ms) = (TaskState::Working, round as u64);
                    let message = (mix == 7).then(|| message_buf.view());
                    events.push(&match mix {
                        0..=5 => TaskEvent::Artifact { artifact, append, last_chunk, metadata },
                        6..=8 => TaskEvent::Status { state, at_ms, message, metadata },
                        9 if round > 35 => status(TaskState::Completed),
                        _ => TaskEvent::UserMessage { message: message_buf.view() },
                    });
                }
                let growth = fast.heap_bytes() + fast.growth_at_once(&events);
                let (applied, _) = fast.apply_at_once(&events, &limits);
                assert!(fast.heap_bytes() <= growth);
                for (at, event) in events.iter(None).enumerate() {
                    let result = slow.apply(&event, &limits);
                    if at >= applied {
                        assert_eq!(fast.apply(&event, &limits), result);
                    }
                }
                let base = slow.base_seq().max(fast.base_seq());
                for seq in (base..=fast.seq()).filter(|seq| seq.is_multiple_of(7)) {
                    assert_eq!(shown(&slow, seq), shown(&fast, seq));
                }
                assert_eq!((slow.seq, slow.messages), (fast.seq, fast.messages));
                assert_eq!(slow.state, fast.state);
                assert_eq!(slow.history_len() as usize, slow.view().history(None).count());
                assert_eq!(slow.artifacts.len(), slow.view().artifacts().count());
            }
        }
    }

    /// All data that a reader sees of a task after an event, and of later events.
    fn shown(task: &Task, seq: u64) -> Vec<Vec<u8>> {
        let view = task.view_at(seq);
        let mut shown = vec![format!("{:?} {}", view.status().state, view.seq()).into_bytes()];
        shown.extend(view.history(None).map(|message| message.0.to_vec()));
        for artifact in view.artifacts() {
            let id = artifact.head().artifact_id();
            shown.push([id.raw(), format!("{:?}", artifact.head().as_text()).as_bytes()].concat());
            shown.extend(artifact.parts().map(|part| part.0.to_vec()));
        }
        task.replay(seq, &mut Default::default(), |replayed| {
            let mut event = EventBuf::default();
            event.push(&replayed.event);
            shown.push(event.bytes().to_vec());
            true
        });
        shown
    }

    #[test]
    fn repeated_message_is_stored_once_and_viewed_in_full() {
        let text = |text: &str| PartsBuf::new().text(text);
        let large =
            [text(&"x".repeat(9_000)), text(&"x".repeat(9_000)).text("y").data(Json::known(b"{}"))];
        for (round, history_max) in (0..12usize).zip([1, 2, 10].into_iter().cycle()) {
            let limits = TaskLimits { history_max, ..limits() };
            let message_buf = MessageBuf::agent(&large[round % 2]).id("m");
            let first = FirstMessage { message: message_buf.view(), at_ms: 1 };
            let submitted = || Task::submitted(b"t", b"c", Generation::V1, first, 0);
            let (mut fast, mut slow, mut events) = (submitted(), submitted(), EventBuf::default());
            events.push_repeat_with(|packer| packer.put(1, b"0"));
            events.push(&status(TaskState::Working));
            assert_eq!(fast.apply_at_once(&events, &limits), (2, true));
            for event in events.iter(Some(message_buf.view())) {
                slow.apply(&event, &limits).unwrap();
            }
            assert!(fast.log.len() < 10_000 && slow.log.len() > 18_000);
            assert!((0..50).contains(&(fast.length() - slow.log.len())));
            for step in 0..60usize {
                let reply = MessageBuf::agent(&text("z")).id(&step.to_string());
                // Some events append to the repeating artifact, and some later event replaces it.
                let (append, id) = ((step + round) % 20 != 0, (step * round % 3).to_string());
                let artifact = ArtifactBuf::new(&id, &text(&"w".repeat(round * 150)));
                let artifact = artifact.view();
                let (last_chunk, metadata) = (false, None);
                let event = match step % 3 {
                    0 => TaskEvent::UserMessage { message: reply.view() },
                    1 => TaskEvent::Artifact { artifact, append, last_chunk, metadata },
                    _ => status(TaskState::Working),
                };
                assert_eq!(fast.apply(&event, &limits), slow.apply(&event, &limits));
                let base = fast.base_seq().max(slow.base_seq());
                for seq in (base..=fast.seq()).filter(|seq| (seq + step as u64).is_multiple_of(5)) {
                    assert_eq!(shown(&fast, seq), shown(&slow, seq));
                }
                assert!(fast.length() <= limits.bytes_max);
                let entries = Entries { log: &fast.log, at: fast.entries_at() };
                let mut deaths = Deaths::default();
                let dead: usize =
                    entries.map(|(_, e)| if deaths.of(&e) == 0 { 0 } else { e.len() }).sum();
                assert!(dead == fast.dead_bytes as usize || fast.repeats_at != 0);
            }
        }
    }

    #[test]
    fn single_part_chunk_omits_repeated_artifact_id() {
        let one = |id: &str, text: &str| ArtifactBuf::new(id, &PartsBuf::new().text(text));
        let two = |id: &str| ArtifactBuf::new(id, &PartsBuf::new().text("1").text("2"));
        // The chunk, whether it is appended, and whether its entry has the id.
        let long = "an-id-that-is-longer-than-what-it-stands-for";
        let steps = [
            (one(long, "a"), false, true),
            (one(long, "b"), true, false),
            (two(long), true, true),
            (one(long, "c"), true, false),
            (one(long, "d").name("n"), true, true),
            (one("other", "e"), true, true),
            (one("other", "f"), true, false),
            (one(long, "g"), true, true),
            (one(long, "h"), false, true),
            (one(long, "i"), true, false),
        ];
        let mut events = EventBuf::default();
        for (artifact, append, has_id) in &steps {
            let (artifact, append, last_chunk) = (artifact.view(), *append, *has_id);
            let before = events.bytes_len();
            events.push(&TaskEvent::Artifact { artifact, append, last_chunk, metadata: None });
            let is_long = events.bytes_len() - before >= long.len() + 2 * ENTRY_HEAD;
            assert!(is_long == (*has_id && artifact.artifact_id() == long));
        }
        let mut task = Task::new(b"t", b"c", Generation::V1, 0);
        assert_eq!(task.apply_at_once(&events, &limits()), (steps.len(), false));
        let mut seen = Vec::new();
        let mut see = |event: TaskEvent<'_>| {
            let TaskEvent::Artifact { artifact, append, last_chunk, metadata: None } = event else {
                return;
            };
            let mut packed = Vec::new();
            artifact.pack(&mut packed);
            assert_eq!(packed.len(), artifact.packed_len());
            seen.push((packed, append, last_chunk));
        };
        events.iter(None).for_each(&mut see);
        task.replay(0, &mut Default::default(), |replayed| {
            see(replayed.event);
            true
        });
        assert_eq!(seen.len(), 2 * steps.len());
        for (seen, (artifact, append, has_id)) in seen.iter().zip(steps.iter().cycle()) {
            assert_eq!(*seen, (artifact.view().packed.to_vec(), *append, *has_id));
        }
        let texts: Vec<String> = task
            .view()
            .artifacts()
            .map(|artifact| {
                artifact.parts().filter_map(|p| p.as_text()).map(|t| t.to_string()).collect()
            })
            .collect();
        assert_eq!(texts, ["ef", "hi"]);
    }

    #[test]
    fn message_repeats_once_and_only_if_a_copy_would_fit() {
        let message_buf = MessageBuf::agent(&PartsBuf::new().text(&"x".repeat(60_000))).id("m");
        let first = FirstMessage { message: message_buf.view(), at_ms: 1 };
        let mut task = Task::submitted(b"t", b"c", Generation::V1, first, 0);
        let mut events = EventBuf::default();
        events.push_repeat_with(|packer| packer.put(1, b"0"));
        assert_eq!(task.apply_at_once(&events, &limits()), (0, false));
        let event = events.iter(Some(message_buf.view())).next().unwrap();
        assert_eq!(task.apply(&event, &limits()), Err(Refusal::TooLarge));
        let larger = TaskLimits { bytes_max: 200_000, ..limits() };
        assert_eq!(task.apply_at_once(&events, &larger), (1, false));
        assert_eq!(task.apply_at_once(&events, &larger), (0, false));
        assert_eq!(task.view().bytes(), task.length());
        assert_eq!(task.apply(&event, &larger), Ok(3));
        // Without a repeating artifact the message is trimmed and compacted away.
        let short = TaskLimits { history_max: 1, ..larger };
        let message = TaskEvent::UserMessage { message: Message(b"") };
        task.apply(&message, &short).unwrap();
        let tight = TaskLimits { bytes_max: task.log.len(), ..short };
        task.apply(&message, &tight).unwrap();
        assert_eq!((task.repeats_at, task.compactions()), (0, 1));
        assert_eq!(task.view().artifacts().count(), 1);
    }

    #[test]
    fn growth_estimate_bounds_heap_growth_of_an_event() {
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
    fn task_awaits_input_until_the_next_user_message() {
        let mut task = Task::new(b"t", b"c", Generation::V1, 0);
        let message_buf = MessageBuf::agent(&PartsBuf::new()).id("m");
        let message = TaskEvent::UserMessage { message: message_buf.view() };
        let mut awaits = |event: &TaskEvent<'_>| {
            task.apply(event, &limits()).unwrap();
            (task.awaits_input(), task.status_seq())
        };
        assert_eq!(awaits(&message), (false, 0));
        assert_eq!(awaits(&status(TaskState::AuthRequired)), (false, 1));
        assert_eq!(awaits(&status(TaskState::InputRequired)), (true, 2));
        assert_eq!(awaits(&message), (false, 2));
        assert_eq!(awaits(&status(TaskState::Completed)), (false, 3));
    }
}
