//! The log of a task against a plain list of artifacts, history and status: for any published lists
//! of events both show the same, now, at earlier events, and in replays. The records of the journal
//! hook rebuild the task, and the store counts the bytes of the log.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    task::Waker,
};

use peregrine::{
    limits::Limits,
    model::{
        Artifact, ArtifactBuf, EventBuf, Generation, Json, JsonObject, Message, MessageBuf,
        PartsBuf, Task, TaskBuf, TaskEvent, TaskLimits, TaskState, TaskView,
        pack::{Packer, artifact_tag},
        view::ReplayPosition,
    },
    service::{
        AgentIndex, Handle, Now, Scope,
        tap::{Record, Tap},
    },
    store::{NewTask, Refused, Store, TaskKey},
};
use proptest::prelude::*;

use super::store::Tape;

const NOW: Now = Now { mono_ms: 0, unix_ms: 1_000 };

/// The content of an artifact or a chunk: its id, its other fields except parts, and its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ArtifactContent {
    id: Vec<u8>,
    fields: Vec<(u8, Vec<u8>)>,
    parts: Vec<Vec<u8>>,
}

impl ArtifactContent {
    fn of(artifact: Artifact<'_>) -> ArtifactContent {
        let id = artifact.artifact_id().raw().to_vec();
        let is_other = |tag| ![artifact_tag::ARTIFACT_ID, artifact_tag::PART].contains(&tag);
        let fields = artifact.fields().filter(|(tag, _)| is_other(*tag));
        let fields = fields.map(|(tag, bytes)| (tag, bytes.to_vec())).collect();
        let parts = artifact.parts().map(|part| part.packed().to_vec()).collect();
        ArtifactContent { id, fields, parts }
    }
}

/// The content of an event, without its sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Status { state: TaskState, message: Option<Vec<u8>>, metadata: bool },
    Artifact { content: ArtifactContent, append: bool, last_chunk: bool, metadata: bool },
}

impl Event {
    fn of(event: &TaskEvent<'_>) -> Event {
        match *event {
            TaskEvent::UserMessage { .. } => panic!("a client's message is no event of an agent"),
            TaskEvent::Status { state, message, metadata, .. } => {
                let message = message.map(|message| message.packed().to_vec());
                Event::Status { state, message, metadata: metadata.is_some() }
            }
            TaskEvent::Artifact { artifact, append, last_chunk, metadata } => {
                let (content, metadata) = (ArtifactContent::of(artifact), metadata.is_some());
                Event::Artifact { content, append, last_chunk, metadata }
            }
        }
    }
}

/// A task as readers see it: state, message of the status, history, artifacts with their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Look {
    state: u8,
    message: Option<Vec<u8>>,
    history: Vec<Vec<u8>>,
    artifacts: Vec<(u32, ArtifactContent)>,
}

impl Look {
    fn of(view: TaskView<'_>) -> Look {
        let status = view.status();
        let artifacts = view.artifacts().map(|artifact| {
            let parts = artifact.parts().map(|part| part.packed().to_vec()).collect();
            (artifact.index(), ArtifactContent { parts, ..ArtifactContent::of(artifact.head()) })
        });
        Look {
            state: status.state as u8,
            message: status.message.map(|message| message.packed().to_vec()),
            history: view.history(None).map(|message| message.packed().to_vec()).collect(),
            artifacts: artifacts.collect(),
        }
    }
}

/// The plain list.
#[derive(Clone, Default)]
struct Plain {
    look: Look,
    /// All messages that are not dropped yet, including that of the status.
    messages: Vec<Vec<u8>>,
    /// The index of the status message among these.
    status: Option<usize>,
    /// Each event with the number of its artifact; the first has the sequence number 1.
    events: Vec<(Event, u32)>,
    /// The contents of the task after each event, and its client's message before the next.
    looks: BTreeMap<u64, Look>,
    history_max: usize,
    bytes_max: usize,
    artifacts_max: usize,
}

impl Plain {
    fn seq(&self) -> u64 {
        self.events.len() as u64
    }

    fn is_terminal(&self) -> bool {
        TaskState::ALL.into_iter().any(|s| s.is_terminal() && s as u8 == self.look.state)
    }

    fn trim(&mut self) {
        if self.messages.len() > self.history_max {
            let oldest = usize::from(self.status == Some(0));
            if oldest < self.messages.len() {
                self.messages.remove(oldest);
                self.status = self.status.map(|at| at - usize::from(at > oldest));
            }
        }
        let history = self.messages.iter().enumerate().filter(|(at, _)| Some(*at) != self.status);
        self.look.history = history.map(|(_, message)| message.clone()).collect();
        self.looks.insert(self.seq(), self.look.clone());
    }

    fn push_message(&mut self, message: &[u8]) {
        self.messages.push(message.to_vec());
        self.trim();
    }

    /// True if it is an artifact beyond the limit.
    fn is_too_much(&self, event: &Event) -> bool {
        let Event::Artifact { content, .. } = event else { return false };
        let artifacts = &self.look.artifacts;
        artifacts.len() >= self.artifacts_max && !artifacts.iter().any(|(_, a)| a.id == content.id)
    }

    fn apply(&mut self, event: &Event) {
        let mut index = 0;
        match event {
            Event::Status { state, message, .. } => {
                self.look.state = *state as u8;
                self.look.message = message.clone();
                self.status = message.is_some().then_some(self.messages.len());
                self.messages.extend(message.clone());
            }
            Event::Artifact { content, append, .. } => {
                let artifacts = &mut self.look.artifacts;
                let at = artifacts.iter().position(|(_, existing)| existing.id == content.id);
                match at {
                    Some(at) if *append => {
                        index = artifacts[at].0;
                        artifacts[at].1.parts.extend(content.parts.iter().cloned());
                    }
                    Some(at) => {
                        index = artifacts.remove(at).0;
                        artifacts.push((index, content.clone()));
                    }
                    None => {
                        index = artifacts.len() as u32;
                        artifacts.push((index, content.clone()));
                    }
                }
            }
        }
        self.events.push((event.clone(), index));
        self.trim();
    }
}

/// The task rebuilt from its records.
struct Replica(Mutex<Option<TaskBuf>>, TaskLimits);

impl Tap for Replica {
    fn record(&self, _task: Handle, record: Record<'_>) -> u64 {
        let mut task = self.0.lock().unwrap();
        match record {
            Record::Created { id, context_id, generation, at_ms, message, .. } => {
                let mut made = TaskBuf::new(id, context_id, generation).unwrap().within(self.1);
                made.user_message(message).unwrap();
                made.status(TaskState::Submitted, at_ms, None).unwrap();
                *task = Some(made);
            }
            Record::Changed(event) => task.as_mut().unwrap().apply(&event).unwrap(),
            _ => panic!("nothing else happens here"),
        }
        0
    }

    fn durable(&self) -> u64 {
        0
    }

    fn wait(&self, _number: u64, _wake: &Waker) {}
}

/// A list of events, and their contents.
#[derive(Default)]
struct Published {
    events: EventBuf,
    plain: Vec<Event>,
}

const IDS: [Option<&str>; 5] = [Some("a"), Some("b"), Some(""), None, Some("an-id-of-some-length")];

fn parts(tape: &mut Tape<'_>, count: usize, number: &mut usize) -> PartsBuf {
    (0..count).fold(PartsBuf::new(), |parts, _| {
        *number += 1;
        let text = format!("{number} {}", "y".repeat([0, 3, 20, 400][tape.next(4)]));
        match tape.next(8) {
            0 => parts.data(Json::parse(&format!("[{number}]")).unwrap()),
            _ => parts.text(&text),
        }
    })
}

/// The packed fields of an artifact, in the usual order or another one.
fn artifact(tape: &mut Tape<'_>, number: &mut usize) -> Vec<u8> {
    let id = IDS[[0, 0, 0, 0, 1, 1, 2, 3, 4, 4][tape.next(10)]];
    let count = [1, 1, 1, 1, 0, 2][tape.next(6)];
    let parts = ArtifactBuf::new("", &parts(tape, count, number));
    let mut packed = Vec::new();
    let order = tape.next(10);
    let put_id = |packed: &mut Vec<u8>| {
        Packer(packed).put_some(artifact_tag::ARTIFACT_ID, id.map(str::as_bytes));
    };
    if order > 1 {
        put_id(&mut packed);
    }
    if order == 2 {
        Packer(&mut packed).put(artifact_tag::NAME, b"name");
    }
    for part in parts.view().parts() {
        Packer(&mut packed).put(artifact_tag::PART, part.packed());
    }
    if order == 3 {
        Packer(&mut packed).put(artifact_tag::METADATA, br#"{"m":1}"#);
    }
    if order <= 1 {
        put_id(&mut packed);
    }
    packed
}

impl Published {
    fn push(&mut self, tape: &mut Tape<'_>, number: &mut usize) {
        let metadata = (tape.next(12) == 0).then(|| JsonObject::parse(r#"{"k":1}"#).unwrap());
        let (message_buf, packed);
        let event = match tape.next(16) {
            0 | 1 => {
                *number += 1;
                message_buf =
                    MessageBuf::agent(&PartsBuf::new().text("said")).id(&number.to_string());
                let state = [TaskState::Working, TaskState::InputRequired][tape.next(2)];
                let message = (tape.next(2) == 0).then(|| message_buf.view());
                TaskEvent::Status { state, at_ms: 7, message, metadata }
            }
            2 if tape.next(6) == 0 => {
                let state = TaskState::Completed;
                TaskEvent::Status { state, at_ms: 7, message: None, metadata }
            }
            _ => {
                packed = artifact(tape, number);
                let artifact = Artifact::from_packed(&packed).unwrap();
                let (append, last_chunk) = (tape.next(5) > 0, tape.next(4) == 0);
                TaskEvent::Artifact { artifact, append, last_chunk, metadata }
            }
        };
        self.plain.push(Event::of(&event));
        self.events.push(&event);
    }

    fn push_repeat(&mut self, id: &str, first: Message<'_>) {
        let head = ArtifactBuf::new(id, &PartsBuf::new());
        self.events.push_repeat(&head);
        let parts = first.parts().map(|part| part.packed().to_vec()).collect();
        let content = ArtifactContent { parts, ..ArtifactContent::of(head.view()) };
        let (append, last_chunk, metadata) = (false, true, false);
        self.plain.push(Event::Artifact { content, append, last_chunk, metadata });
    }

    /// Asserts that it reads as the plain list.
    fn check(&self, first: Option<Message<'_>>) {
        let events: Vec<Event> = self.events.iter(first).map(|event| Event::of(&event)).collect();
        assert_eq!(events, self.plain);
        assert_eq!(self.events.len(), self.plain.len());
    }
}

/// A reader of the task, and its position.
#[derive(Default)]
struct Reader {
    seq: u64,
    position: ReplayPosition,
}

impl Reader {
    /// Reads at most so many events.
    fn read(&mut self, task: &Task, plain: &Plain, most: usize) {
        if self.seq < task.base_seq() {
            self.seq = task.seq();
        }
        let (mut seen, mut at) = (0, self.seq);
        let seq = task.replay(self.seq, &mut self.position, |replayed| {
            let (event, index) = &plain.events[at as usize];
            (at, seen) = (at + 1, seen + 1);
            assert_eq!((replayed.seq, &Event::of(&replayed.event)), (at, event));
            if matches!(event, Event::Artifact { .. }) {
                assert_eq!(replayed.artifact_index, *index);
            }
            seen < most
        });
        assert_eq!(seq, at);
        assert!(seen == most || at == task.seq());
        self.seq = seq;
    }
}

/// Runs the steps encoded in `bytes`.
fn task_matches_its_plain_list(bytes: &[u8]) {
    let mut tape = Tape(bytes);
    let limits = Limits {
        task_bytes_max: [2_000, 8_000, 1 << 20][tape.next(3)],
        history_max: [1, 3, 100][tape.next(3)],
        artifacts_max: [1, 2, 100][tape.next(3)],
        event_ring_max: [1, 4, 1_000][tape.next(3)],
        ..Limits::default()
    };
    let mut plain = Plain {
        history_max: limits.history_max,
        artifacts_max: limits.artifacts_max,
        bytes_max: limits.task_bytes_max,
        ..Plain::default()
    };
    let of_replica = TaskLimits {
        bytes_max: 1 << 30,
        history_max: limits.history_max,
        artifacts_max: limits.artifacts_max,
        replay_max: 1,
    };
    let replica = Arc::new(Replica(Mutex::default(), of_replica));
    let store = Store::for_workers(&limits, 7, 1).tapped(Some(Arc::clone(&replica) as _));
    let mut number = 0;
    let count = 1 + tape.next(2);
    let first = MessageBuf::agent(&parts(&mut tape, count, &mut number)).id("first");
    let mut published = Published::default();
    let (before, repeats, after) = (tape.next(3), tape.next(4), tape.next(6));
    (0..before).for_each(|_| published.push(&mut tape, &mut number));
    for id in ["a", "b"].iter().take(repeats.saturating_sub(1)) {
        published.push_repeat(id, first.view());
    }
    (0..after).for_each(|_| published.push(&mut tape, &mut number));
    published.check(Some(first.view()));
    let new = NewTask {
        scope: Scope::of(AgentIndex(0)),
        incarnation: 0,
        context_id: None,
        chosen_id: None,
        bits: [1, 2],
        worker: 0,
        share: None,
        peer: Default::default(),
    };
    let reserved = store.reserve(new, NOW).unwrap();
    let key = reserved.key();
    let (made, events) = (Generation::V1, &published.events);
    if store.commit_new(&reserved, made, first.view(), events, NOW, |_| ()).is_err() {
        return;
    }
    drop(reserved);
    plain.push_message(first.view().packed());
    let submitted = Event::Status { state: TaskState::Submitted, message: None, metadata: false };
    plain.apply(&submitted);
    let (state, seq) = store.read(key, |task| (task.state(), task.seq())).unwrap();
    follow_list(&mut plain, &published.plain, seq, state == TaskState::Failed);
    let mut readers: Vec<Reader> = Vec::new();
    while !tape.0.is_empty() {
        match tape.next(8) {
            0 => send_message(&store, key, &mut plain, &mut number),
            1 => readers.push(Reader { seq: plain.seq() / 2, position: ReplayPosition::default() }),
            _ => publish(&store, key, &mut plain, &mut tape, &mut number),
        }
        let (every, most) = (1 + tape.next(5) as u64, [1, 3, 1_000][tape.next(3)]);
        let held = store.read(key, |task| {
            check(&task, &plain, every);
            readers.iter_mut().for_each(|reader| reader.read(&task, &plain, most));
            task.heap_bytes() as u64
        });
        assert_eq!(Some(store.stats().bytes), held);
        let replica = replica.0.lock().unwrap();
        assert_eq!(Look::of(replica.as_ref().unwrap().view()), plain.look);
    }
}

/// Applies the part of a list that brought the task to this sequence number.
fn follow_list(plain: &mut Plain, list: &[Event], seq: u64, is_failed: bool) {
    let applied = (seq - plain.seq()) as usize - usize::from(is_failed);
    list[..applied].iter().for_each(|event| {
        assert!(!plain.is_terminal() && !plain.is_too_much(event));
        plain.apply(event);
    });
    if is_failed {
        let refused = &list[applied];
        // A refusal has a reason.
        assert!(plain.is_too_much(refused) || plain.bytes_max < 1 << 20);
        let text = "the task has reached a limit (task_bytes_max or artifacts_max) and was ended";
        let message_buf = MessageBuf::agent(&PartsBuf::new().text(text));
        let message = Some(message_buf.id("limit-reached").view().packed().to_vec());
        plain.apply(&Event::Status { state: TaskState::Failed, message, metadata: false });
    }
    assert!(plain.is_terminal() || applied == list.len());
}

fn send_message(store: &Store, key: TaskKey, plain: &mut Plain, number: &mut usize) {
    *number += 1;
    let message_buf = MessageBuf::agent(&PartsBuf::new().text("hm")).id(&number.to_string());
    let result =
        store.update(key, NOW, |edit| edit.user_message(message_buf.view(), None)).unwrap();
    match result {
        Ok(()) => plain.push_message(message_buf.view().packed()),
        Err(Refused::Terminal) => assert!(plain.is_terminal()),
        Err(refused) => assert_eq!(refused, Refused::TooLarge),
    }
}

fn publish(
    store: &Store,
    key: TaskKey,
    plain: &mut Plain,
    tape: &mut Tape<'_>,
    number: &mut usize,
) {
    let mut published = Published::default();
    let count = [1, 1, 2, 4, 16][tape.next(5)];
    (0..count).for_each(|_| published.push(tape, number));
    published.check(None);
    let (result, seq) = store
        .update(key, NOW, |edit| (edit.apply_all(&published.events, None), edit.task().seq()))
        .unwrap();
    let is_failed = matches!(result, Err(Refused::TooLarge));
    let was_terminal = plain.is_terminal();
    follow_list(plain, &published.plain, seq, is_failed);
    match result {
        Ok(()) => assert!(!was_terminal),
        Err(refused) => assert!(plain.is_terminal(), "{refused:?}"),
    }
}

/// Compares all observable contents of a task.
fn check(task: &Task, plain: &Plain, every: u64) {
    assert_eq!(task.seq(), plain.seq());
    assert_eq!(Look::of(task.view()), plain.look);
    let (oldest, newest) = (task.base_seq().max(1), task.seq());
    let some = [oldest, oldest + every, (oldest + newest) / 2, newest.saturating_sub(every)];
    for seq in some.into_iter().filter(|seq| (oldest..=newest).contains(seq)) {
        assert_eq!(Look::of(task.view_at(seq)), plain.looks[&seq], "at {seq}");
        Reader { seq, position: ReplayPosition::default() }.read(task, plain, 1_000_000);
        // A copy of an earlier state continues independently of the original.
        let mut copy = TaskBuf::of(task.view_at(seq));
        assert_eq!(Look::of(copy.view()), plain.looks[&seq]);
        let chunk = ArtifactBuf::new("a", &PartsBuf::new().text("copied"));
        let (artifact, append, last_chunk, metadata) = (chunk.view(), true, false, None);
        let event = TaskEvent::Artifact { artifact, append, last_chunk, metadata };
        if copy.apply(&event).is_ok() {
            let mut plain = plain.clone();
            (plain.history_max, plain.artifacts_max) = (usize::MAX, usize::MAX);
            plain.apply(&Event::of(&event));
            assert_eq!(Look::of(copy.view()), plain.look);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn task_log_matches_a_plain_list(bytes in prop::collection::vec(any::<u8>(), 8..700)) {
        task_matches_its_plain_list(&bytes);
    }
}
