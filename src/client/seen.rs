//! The state of a task as the reader of a stream has received it, so that a broken stream resumes
//! without repetitions.
//!
//! Invariant: a resumed stream begins with the task. The difference between the task and the
//! received state becomes events, with each part of an artifact once. Only intermediate statuses
//! can be lost.

use std::hash::{BuildHasher, Hasher};

use foldhash::{
    SharedSeed,
    quality::{FoldHasher, SeedableRandomState},
};

use crate::model::{
    Artifact, EventBuf, Message, Part, RawText, Received, ReceivedKind, TaskEvent, TaskState,
    TaskView,
    pack::{Packer, artifact_tag},
};

/// The received state of one task.
pub(super) struct Seen {
    /// Maximum remembered artifacts; others count as new.
    artifacts_max: usize,
    /// The number of the newest event, if the server numbers its events.
    number: Option<u64>,
    /// The highest number of any event.
    highest: Option<u64>,
    /// True: no number was skipped so far.
    is_dense: bool,
    /// True: the server began with a task without a number, so the next number may belong to
    /// another numbering.
    is_uncounted: bool,
    /// True: the server has sent a task without a number.
    has_uncounted_task: bool,
    status: Option<SeenStatus>,
    artifacts: Vec<SeenArtifact>,
    /// The id field and the index of the artifact that was extended last: usually the next chunk
    /// extends the same artifact.
    last: (Vec<u8>, usize),
    /// Keyed, because the server chooses the hashed text; with a collision it breaks only its own
    /// stream.
    hashes: SeedableRandomState,
    packed: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct SeenStatus {
    state: TaskState,
    /// The hash of the time and the message.
    hash: u64,
}

struct SeenArtifact {
    /// The hash of the id.
    id: u64,
    parts: usize,
    /// The hash of the parts, in their order.
    hasher: FoldHasher<'static>,
}

/// The change of a task in an item of a stream.
#[derive(Clone, Copy)]
pub(super) enum TaskChange<'a> {
    /// A snapshot of the task.
    Task(TaskView<'a>),
    Status {
        state: TaskState,
        at_ms: u64,
        message: Option<Message<'a>>,
        has_metadata: bool,
    },
    Chunk {
        artifact: Artifact<'a>,
        append: bool,
    },
    /// No change: the item is a message.
    Message,
}

/// An item of a stream, and its task.
pub(super) struct StreamItem<'a> {
    pub change: TaskChange<'a>,
    /// Both ids are empty if the item does not name a task.
    pub task_id: RawText<'a>,
    pub context_id: RawText<'a>,
    /// True: the server declares it the last item of its stream.
    pub is_final: bool,
}

impl<'a> StreamItem<'a> {
    /// `None`: the received value is not an item of a stream.
    pub fn of(received: &'a Received) -> Option<StreamItem<'a>> {
        let mut item = StreamItem {
            change: TaskChange::Message,
            task_id: RawText::default(),
            context_id: RawText::default(),
            is_final: false,
        };
        match received.kind() {
            ReceivedKind::ArtifactUpdate => {
                let update = received.artifact_update()?;
                (item.task_id, item.context_id) = (update.task_id, update.context_id);
                item.change =
                    TaskChange::Chunk { artifact: update.artifact, append: update.append };
            }
            ReceivedKind::StatusUpdate => {
                let update = received.status_update()?;
                (item.task_id, item.context_id) = (update.task_id, update.context_id);
                item.is_final = update.is_final;
                let has_metadata = update.metadata.is_some();
                let (state, at_ms, message) = (update.state, update.at_ms, update.message);
                item.change = TaskChange::Status { state, at_ms, message, has_metadata };
            }
            ReceivedKind::Task => {
                let view = received.task()?;
                (item.task_id, item.context_id) = (view.id(), view.context_id());
                item.change = TaskChange::Task(view);
            }
            ReceivedKind::Message => {
                let message = received.message()?;
                item.task_id = message.task_id().unwrap_or_default();
                item.context_id = message.context_id().unwrap_or_default();
            }
            ReceivedKind::Nothing
            | ReceivedKind::Page
            | ReceivedKind::PushConfig
            | ReceivedKind::PushConfigs
            | ReceivedKind::Card => return None,
        }
        Some(item)
    }
}

/// Whether an event is new to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seeing {
    New,
    /// The number occurred before the server restarted its numbering.
    Perhaps,
    Repeated,
}

impl Seen {
    /// The empty state. `random`: 64 bits that no server can know.
    pub fn new(random: u64, artifacts_max: usize) -> Seen {
        let hashes = SeedableRandomState::with_seed(random, SharedSeed::global_fixed());
        let (artifacts, last, packed) = (Vec::new(), (Vec::new(), usize::MAX), Vec::new());
        Seen {
            artifacts_max,
            number: None,
            highest: None,
            is_dense: true,
            is_uncounted: false,
            has_uncounted_task: false,
            status: None,
            artifacts,
            last,
            hashes,
            packed,
        }
    }

    /// The number of the newest event, if the server numbers its events.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// The number after which to resume. `None` if the server numbers its events but not the
    /// initial task (a2a-protocol-server): it would repeat events that are already part of this
    /// task.
    pub fn resume_number(&self) -> Option<u64> {
        self.number.filter(|_| !self.has_uncounted_task)
    }

    /// The newest state; `None`: none was received.
    pub fn state(&self) -> Option<TaskState> {
        self.status.map(|status| status.state)
    }

    /// Records an item, with its number if it has one. An item is a repetition if its number is not
    /// above the newest number; an item without a number, if it repeats the newest status: servers
    /// send a status that is already in their initial task.
    pub fn note(&mut self, change: TaskChange<'_>, number: Option<u64>) -> Seeing {
        let mut seeing = Seeing::New;
        match (number, self.number) {
            (Some(number), Some(newest)) if number <= newest => return Seeing::Repeated,
            (Some(next), newest) => {
                self.is_dense &= newest.is_none_or(|newest| next == newest + 1);
                if self.highest.is_some_and(|highest| next <= highest) {
                    seeing = Seeing::Perhaps;
                }
                self.highest = self.highest.max(number);
                (self.number, self.is_uncounted) = (number, false);
            }
            (None, _) if self.is_newest(change) => return Seeing::Repeated,
            (None, _) => {}
        }
        match change {
            TaskChange::Task(view) => {
                self.has_uncounted_task |= number.is_none();
                self.take(view);
            }
            TaskChange::Status { state, at_ms, message, .. } => {
                self.status = Some(self.status_of(state, at_ms, message));
            }
            TaskChange::Chunk { artifact, append } => self.add(artifact, append),
            TaskChange::Message => {}
        }
        seeing
    }

    /// Whether the first numbered item after a task without a number repeats the status of this
    /// task; if so, the number is recorded.
    #[cold]
    pub fn is_in_uncounted_task(&mut self, change: TaskChange<'_>, number: Option<u64>) -> bool {
        let Some(next) = number.filter(|_| self.is_newest(change)) else { return false };
        self.is_dense &= self.number.is_none_or(|newest| next <= newest + 1);
        self.highest = self.highest.max(number);
        (self.number, self.is_uncounted) = (number, false);
        true
    }

    /// Whether a stream that begins with this number continues the broken stream, perhaps with its
    /// last event again. Numbers that were contiguous so far must remain contiguous; no number may
    /// decrease.
    pub fn continues_at(&self, next: u64) -> bool {
        self.number.is_some_and(|newest| match next.checked_sub(newest) {
            Some(step) => step <= 1 || !self.is_dense,
            None => false,
        })
    }

    /// Whether a higher number was received.
    pub fn has_newer(&self, number: Option<u64>) -> bool {
        number.zip(self.number).is_some_and(|(number, newest)| number < newest)
    }

    /// Whether the server began with a task without a number, and no number followed. If the next
    /// number is then below the newest one, the numbering has restarted.
    pub fn is_uncounted(&self) -> bool {
        self.is_uncounted
    }

    /// Restarts the numbering: `next` is the next number.
    pub fn count_from(&mut self, next: Option<u64>) {
        self.number = next.and_then(|next| next.checked_sub(1));
    }

    /// Records the number of an initial task after its changes became events.
    pub fn counted(&mut self, number: Option<u64>) {
        self.is_uncounted = number.is_none();
        self.number = number.or(self.number);
    }

    /// Whether this is the newest status again. A status without a message id is compared only if
    /// it has a time and no metadata.
    fn is_newest(&self, change: TaskChange<'_>) -> bool {
        let TaskChange::Status { state, at_ms, message, has_metadata } = change else {
            return false;
        };
        let is_named = message.is_some_and(|message| !message.message_id().raw().is_empty());
        let is_distinguishable = is_named || (at_ms != 0 && !has_metadata);
        is_distinguishable && self.status == Some(self.status_of(state, at_ms, message))
    }

    /// Replaces the received state by the task.
    fn take(&mut self, view: TaskView<'_>) {
        let status = view.status();
        self.status = Some(self.status_of(status.state, status.at_ms, status.message));
        self.artifacts.clear();
        self.last.1 = usize::MAX;
        for whole in view.artifacts().take(self.artifacts_max) {
            let id = self.id_of(whole.head());
            let mut artifact = SeenArtifact { id, parts: 0, hasher: self.hashes.build_hasher() };
            whole.parts().for_each(|part| artifact.add(part));
            self.artifacts.push(artifact);
        }
    }

    /// Appends the difference between the task and the received state to `events`, and records the
    /// task; false: both are equal.
    pub fn catch_up(&mut self, view: TaskView<'_>, events: &mut EventBuf) -> bool {
        let before = events.len();
        for whole in view.artifacts() {
            let id = self.id_of(whole.head());
            let seen = self.artifacts.iter().find(|seen| seen.id == id);
            let received =
                seen.filter(|seen| seen.begins(whole.parts(), self.hashes.build_hasher()));
            let received_parts = received.map(|seen| seen.parts);
            let append = received_parts.is_some();
            let mut rest = whole.parts().skip(received_parts.unwrap_or(0)).peekable();
            if append && rest.peek().is_none() {
                continue;
            }
            self.packed.clear();
            pack(&mut self.packed, whole.head(), append, rest);
            let (artifact, last_chunk) = (Artifact::new(&self.packed), false);
            events.push(&TaskEvent::Artifact { artifact, append, last_chunk, metadata: None });
        }
        let now = view.status();
        let status = self.status_of(now.state, now.at_ms, now.message);
        if self.status != Some(status) {
            events.push(&TaskEvent::Status {
                state: now.state,
                at_ms: now.at_ms,
                message: now.message,
                metadata: now.metadata,
            });
        }
        self.take(view);
        events.len() > before
    }

    fn add(&mut self, artifact: Artifact<'_>, append: bool) {
        let id_field = artifact.id_field();
        if append
            && id_field == self.last.0
            && let Some(seen) = self.artifacts.get_mut(self.last.1)
        {
            return match artifact.lone_part(id_field) {
                Some(part) => seen.add(part),
                None => artifact.parts().for_each(|part| seen.add(part)),
            };
        }
        let id = self.id_of(artifact);
        let fresh = SeenArtifact { id, parts: 0, hasher: self.hashes.build_hasher() };
        let at = match self.artifacts.iter().position(|seen| seen.id == id) {
            Some(at) if append => at,
            Some(at) => {
                self.artifacts[at] = fresh;
                at
            }
            None if self.artifacts.len() == self.artifacts_max => return,
            None => {
                self.artifacts.push(fresh);
                self.artifacts.len() - 1
            }
        };
        id_field.clone_into(&mut self.last.0);
        self.last.1 = at;
        let seen = &mut self.artifacts[at];
        artifact.parts().for_each(|part| seen.add(part));
    }

    fn id_of(&self, artifact: Artifact<'_>) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write(artifact.artifact_id().raw());
        hasher.finish()
    }

    fn status_of(&self, state: TaskState, at_ms: u64, message: Option<Message<'_>>) -> SeenStatus {
        let mut hasher = self.hashes.build_hasher();
        hasher.write_u64(at_ms);
        hasher.write(message.map_or(&[][..], Message::packed));
        SeenStatus { state, hash: hasher.finish() }
    }
}

impl SeenArtifact {
    fn add(&mut self, part: Part<'_>) {
        self.parts += 1;
        self.hasher.write(part.packed());
    }

    /// Whether these parts begin with the received parts.
    fn begins<'a>(
        &self,
        parts: impl Iterator<Item = Part<'a>>,
        hasher: FoldHasher<'static>,
    ) -> bool {
        let mut first = SeenArtifact { id: self.id, parts: 0, hasher };
        parts.take(self.parts).for_each(|part| first.add(part));
        first.parts == self.parts && first.hasher.finish() == self.hasher.finish()
    }
}

/// Packs an artifact with these parts; an extended artifact gets only its id.
fn pack<'a>(
    out: &mut Vec<u8>,
    head: Artifact<'_>,
    is_extended: bool,
    parts: impl Iterator<Item = Part<'a>>,
) {
    let mut packer = Packer(out);
    for (tag, bytes) in head.fields() {
        let is_named = tag == artifact_tag::ARTIFACT_ID;
        if tag != artifact_tag::PART && (is_named || !is_extended) {
            packer.put(tag, bytes);
        }
    }
    parts.for_each(|part| packer.put(artifact_tag::PART, part.packed()));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::{ArtifactBuf, Generation, MessageBuf, PartsBuf, TaskBuf};

    fn task() -> TaskBuf {
        let mut task = TaskBuf::new("t", "c", Generation::V1).unwrap();
        task.status(TaskState::Working, 1, None).unwrap();
        task
    }

    fn artifact(id: &str, texts: &[&str]) -> ArtifactBuf {
        let parts = texts.iter().fold(PartsBuf::new(), |parts, text| parts.text(*text));
        ArtifactBuf::new(id, &parts).name("plan")
    }

    /// Applies an artifact to the task, and passes it to `seen`, if any.
    fn publish(task: &mut TaskBuf, seen: Option<&mut Seen>, artifact: &ArtifactBuf, append: bool) {
        let (artifact, last_chunk, metadata) = (artifact.view(), false, None);
        let event = TaskEvent::Artifact { artifact, append, last_chunk, metadata };
        task.apply(&event).unwrap();
        if let Some(seen) = seen {
            seen.note(TaskChange::Chunk { artifact, append }, None);
        }
    }

    fn described(events: &EventBuf) -> Vec<String> {
        let show = |event: TaskEvent<'_>| match event {
            TaskEvent::Status { state, .. } => format!("{state:?}"),
            TaskEvent::UserMessage { .. } => "message".to_owned(),
            TaskEvent::Artifact { artifact, append, .. } => {
                let texts = artifact.parts().map(|part| part.as_text().unwrap().to_str());
                let texts: Vec<_> = texts.map(|text| text.into_owned()).collect();
                let name = artifact.name().map(|name| name.to_str().into_owned());
                let id = artifact.artifact_id().to_str().into_owned();
                format!("{id} {append} {texts:?} {name:?}")
            }
        };
        events.iter(None).map(show).collect()
    }

    #[test]
    fn received_event_number_is_detected_as_repeated() {
        let (mut seen, task) = (Seen::new(1, 10), task());
        let snapshot = TaskChange::Task(task.view());
        assert_eq!(seen.note(snapshot, Some(4)), Seeing::New);
        assert_eq!(seen.note(snapshot, Some(4)), Seeing::Repeated);
        assert_eq!(seen.note(snapshot, Some(3)), Seeing::Repeated);
        assert_eq!(seen.note(snapshot, Some(5)), Seeing::New);
        assert_eq!((seen.number(), seen.state()), (Some(5), Some(TaskState::Working)));
    }

    #[test]
    fn repeated_status_is_detected_if_it_is_distinguishable() {
        let (mut seen, mut task) = (Seen::new(1, 10), task());
        let words = MessageBuf::agent(&PartsBuf::new().text("one")).id("m");
        task.status(TaskState::Working, 0, Some(&words)).unwrap();
        assert_eq!(seen.note(TaskChange::Task(task.view()), None), Seeing::New);
        let status = |at_ms, message| {
            let (state, has_metadata) = (TaskState::Working, false);
            TaskChange::Status { state, at_ms, message, has_metadata }
        };
        let current = task.view().status();
        let again = status(current.at_ms, current.message);
        assert_eq!(seen.note(again, None), Seeing::Repeated);
        for (at_ms, expected) in [(7, Seeing::New), (7, Seeing::Repeated), (0, Seeing::New)] {
            assert_eq!(seen.note(status(at_ms, None), None), expected);
        }
        assert_eq!(seen.note(status(0, None), None), Seeing::New);
    }

    #[test]
    fn catch_up_emits_only_missed_changes_and_only_once() {
        let (mut seen, mut task, mut events) = (Seen::new(1, 10), task(), EventBuf::default());
        seen.note(TaskChange::Task(task.view()), None);
        publish(&mut task, Some(&mut seen), &artifact("a", &["1", "2"]), false);
        assert!(!seen.catch_up(task.view(), &mut events));
        publish(&mut task, None, &artifact("a", &["3"]), true);
        publish(&mut task, None, &artifact("b", &["x"]), false);
        let words = MessageBuf::agent(&PartsBuf::new().text("done")).id("m");
        task.status(TaskState::Completed, 2, Some(&words)).unwrap();
        assert!(seen.catch_up(task.view(), &mut events));
        let expected = ["a true [\"3\"] None", "b false [\"x\"] Some(\"plan\")", "Completed"];
        assert_eq!(described(&events), expected);
        events.clear();
        assert!(!seen.catch_up(task.view(), &mut events));
    }

    #[test]
    fn replaced_artifact_is_emitted_whole() {
        let (mut seen, mut task, mut events) = (Seen::new(1, 10), task(), EventBuf::default());
        publish(&mut task, Some(&mut seen), &artifact("a", &["1", "2"]), false);
        publish(&mut task, None, &artifact("a", &["1", "3", "4"]), false);
        assert!(seen.catch_up(task.view(), &mut events));
        let expected = ["a false [\"1\", \"3\", \"4\"] Some(\"plan\")", "Working"];
        assert_eq!(described(&events), expected);
    }

    #[test]
    fn number_of_remembered_artifacts_is_bounded() {
        let (mut seen, mut task, mut events) = (Seen::new(1, 1), task(), EventBuf::default());
        seen.note(TaskChange::Task(task.view()), None);
        publish(&mut task, Some(&mut seen), &artifact("a", &["1"]), false);
        publish(&mut task, Some(&mut seen), &artifact("b", &["2"]), false);
        assert!(seen.catch_up(task.view(), &mut events));
        assert_eq!(described(&events), ["b false [\"2\"] Some(\"plan\")"]);
    }
}
