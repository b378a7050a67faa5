//! The store against a naive twin: for each worker a sorted list of tasks that evicts first the
//! oldest finished tasks of an owner, then its waiting ones. Any sequence of steps gives the same
//! result in both and exceeds no limit. The records of its journal hook suffice to rebuild the
//! tasks.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Poll, Wake, Waker},
};

use peregrine::{
    limits::{Limits, SCOPE_BYTES},
    model::{
        ArtifactBuf, EventBuf, Generation, JsonObject, List, MessageBuf, PartsBuf, RawText, Reply,
        TaskBuf, TaskEvent, TaskLimits, TaskState, TaskView, uuid,
    },
    service::{
        AgentIndex, Cursor, Follow, Handle, Now, OwnerIndex, Scope, StreamResponse, TenantIndex,
        WaitHandle,
        tap::{Record, Tap},
    },
    store::{Eviction, NewTask, PageToken, Refused, Store, StoredTask, TaskKey},
};
use proptest::prelude::*;

/// Steps are read from bytes, so that a fuzzer can generate them.
pub(crate) struct Tape<'a>(pub(crate) &'a [u8]);

impl Tape<'_> {
    /// A number below `below`; 0 after the last byte.
    pub(crate) fn next(&mut self, below: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % below
    }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// The order of a status change: its time, its index among the changes of its group at that time,
/// and the group.
type Stamp = (u64, u64, usize);

/// How many milliseconds older another worker's task must be to be evicted before the worker's own.
const LEAD_MS: u64 = 1_000;

/// The twin's copy of a task.
struct TaskCopy {
    key: TaskKey,
    scope: Scope,
    id: Vec<u8>,
    context: Vec<u8>,
    state: TaskState,
    /// The worker that owns its shards.
    group: usize,
    /// Position in the order of status changes.
    order: Stamp,
    /// The time of its status.
    mono_ms: u64,
    seq: u64,
    /// The contents of the task after each event.
    looks: BTreeMap<u64, String>,
}

/// A stream and the events it has received.
struct Reader {
    cursor: Cursor,
    /// Waits for the same task as the stream, for as long.
    ticket: WaitHandle,
    flag: Arc<Flag>,
    is_pending: bool,
    is_first: bool,
}

/// A listing in progress while tasks change.
struct Listing {
    scope: Scope,
    context: Option<Vec<u8>>,
    status: Option<TaskState>,
    after_ms: Option<u64>,
    page_size: u32,
    token: PageToken,
    /// `(key, order)` of the matching tasks at the start, newest first.
    expected: Vec<(TaskKey, Stamp)>,
    seen: Vec<TaskKey>,
}

struct Twin {
    store: Store,
    replica: Arc<Replica>,
    limits: Limits,
    copies: Vec<TaskCopy>,
    readers: Vec<Reader>,
    listing: Option<Listing>,
    now: Now,
    /// The last change in the shards of each worker.
    last: Vec<Stamp>,
    /// The group and the owner that last needed room, if known, and the tasks that had ended
    /// before.
    requester: Option<(usize, OwnerIndex)>,
    ended: Vec<TaskKey>,
    /// The owners that were above their share in a worker's shards, counting one more owner: their
    /// tasks may be evicted for others.
    above: HashSet<(usize, OwnerIndex)>,
    evicted_count: u64,
    bits: u128,
}

fn limits(tape: &mut Tape<'_>) -> Limits {
    let defaults = Limits::default();
    Limits {
        tasks_max: [3, 12, 1000][tape.next(3)],
        store_bytes_max: [12_000, 40_000, 10_000_000][tape.next(3)],
        task_ttl_ms: [20, 1_000_000][tape.next(2)],
        task_bytes_max: [2_000, 9_000, 100_000][tape.next(3)],
        history_max: [1, 3, 100][tape.next(3)],
        artifacts_max: [2, 100][tape.next(2)],
        event_ring_max: [1, 4, 1_000][tape.next(3)],
        ..defaults
    }
}

/// Tasks rebuilt from their records.
struct Replica {
    tasks: Mutex<HashMap<Handle, (Scope, TaskBuf)>>,
    limits: TaskLimits,
}

impl Replica {
    fn new(limits: &Limits) -> Arc<Replica> {
        let limits = TaskLimits {
            // A record is applied whatever the limit on bytes.
            bytes_max: 1 << 30,
            history_max: limits.history_max,
            artifacts_max: limits.artifacts_max,
            replay_max: 1,
        };
        Arc::new(Replica { tasks: Mutex::default(), limits })
    }
}

impl Tap for Replica {
    fn record(&self, task: Handle, record: Record<'_>) -> u64 {
        let mut tasks = self.tasks.lock().unwrap();
        match record {
            Record::Created { id, context_id, scope, generation, at_ms, message, .. } => {
                let made = TaskBuf::new(id, context_id, generation).unwrap();
                let mut made = made.within(self.limits);
                let (state, metadata) = (TaskState::Submitted, None);
                for event in [
                    TaskEvent::UserMessage { message },
                    TaskEvent::Status { state, at_ms, message: None, metadata },
                ] {
                    made.apply(&event).unwrap();
                }
                assert!(tasks.insert(task, (scope, made)).is_none(), "made twice");
            }
            Record::Changed(event) => {
                let (_, existing) = tasks.get_mut(&task).expect("made before");
                existing.apply(&event).expect("it was applied before");
            }
            Record::Evicted => drop(tasks.remove(&task).expect("made before")),
            _ => unreachable!("there is nothing else yet"),
        }
        0
    }

    fn durable(&self) -> u64 {
        0
    }

    fn wait(&self, _number: u64, _wake: &Waker) {}
}

/// Runs the steps encoded in `bytes`.
pub fn store_matches_the_naive_twin(bytes: &[u8]) {
    let mut tape = Tape(bytes);
    let limits = limits(&mut tape);
    let workers = 1 + tape.next(4);
    let replica = Replica::new(&limits);
    let tap = Some(Arc::clone(&replica) as _);
    let mut twin = Twin {
        store: Store::for_workers(&limits, 0xfeed << 70 | 77, workers).tapped(tap),
        replica,
        limits,
        copies: Vec::new(),
        readers: Vec::new(),
        listing: None,
        now: Now { mono_ms: 0, unix_ms: 1_000 },
        last: (0..workers.next_power_of_two()).map(|group| (0, 0, group)).collect(),
        requester: None,
        ended: Vec::new(),
        above: HashSet::new(),
        evicted_count: 0,
        bits: 1,
    };
    while !tape.0.is_empty() {
        match tape.next(14) {
            0 | 1 => twin.create(&mut tape),
            2..=4 => twin.publish(&mut tape),
            5 => twin.send_message(&mut tape),
            6 => twin.cancel(&mut tape),
            7 => twin.subscribe(&mut tape),
            8 => twin.read_more(&mut tape),
            9 => twin.read_page(&mut tape),
            10 => {
                let ms = [tape.next(12) as u64, 3 * LEAD_MS / 2][tape.next(8) / 7];
                twin.now.mono_ms += ms;
                twin.now.unix_ms = (twin.now.unix_ms + ms).saturating_sub(2);
            }
            11 => twin.sweep(),
            12 => twin.force_compaction(&mut tape),
            _ => twin.create_many(&mut tape),
        }
        twin.check();
    }
    twin.check_replica();
    while twin.listing.is_some() {
        twin.read_page(&mut tape);
    }
    for at in 0..twin.copies.len() {
        twin.list_all(at);
    }
}

/// All contents of a view, with long texts by their length.
fn look(view: TaskView<'_>) -> String {
    let short = |bytes: &[u8]| format!("{}:{:?}", bytes.len(), &bytes[..bytes.len().min(40)]);
    let status = view.status();
    let history: Vec<_> = view.history(None).map(|message| short(message.packed())).collect();
    let artifacts: Vec<(Vec<_>, Vec<_>)> = view
        .artifacts()
        .map(|a| (a.fields().collect(), a.parts().map(|part| short(part.packed())).collect()))
        .collect();
    // The view shows the given texts, wherever they are stored.
    let is_generated = |text: &[u8]| {
        let is_all = |letter: u8| text.iter().all(|byte| *byte == letter);
        (MESSAGE_LENGTHS.contains(&text.len()) && is_all(b'x'))
            || (ARTIFACT_LENGTHS.contains(&text.len()) && is_all(b'y'))
    };
    for artifact in view.artifacts() {
        let texts: Vec<_> = artifact.parts().map(|part| part.as_text().expect("text")).collect();
        assert!(
            !texts.is_empty() && texts.iter().all(|text| is_generated(text.raw())),
            "{texts:?}"
        );
    }
    let status_message = status.message.map(|message| short(message.packed()));
    let metadata = status.metadata.map(|metadata| metadata.raw().len());
    let state = (status.state, status.at_ms, metadata);
    format!("{state:?} {status_message:?} {history:?} {artifacts:?}")
}

/// Lengths of the texts of messages and of artifacts.
const MESSAGE_LENGTHS: [usize; 5] = [0, 1, 100, 700, 2_000];
const ARTIFACT_LENGTHS: [usize; 3] = [1, 50, 900];

/// Mostly one scope, and others that differ from it in one field.
fn scope(tape: &mut Tape<'_>) -> Scope {
    let plain = Scope::of(AgentIndex(0));
    match tape.next(8) {
        0 => Scope::of(AgentIndex(1)),
        1 => Scope { tenant: TenantIndex(1), ..plain },
        2 => Scope { owner: OwnerIndex(1), ..plain },
        3 => Scope { tenant: TenantIndex(1), owner: OwnerIndex(2), ..plain },
        _ => plain,
    }
}

fn raw(id: &[u8]) -> RawText<'_> {
    RawText::parse(str::from_utf8(id).unwrap()).unwrap()
}

fn message(tape: &mut Tape<'_>) -> MessageBuf {
    let length = MESSAGE_LENGTHS[tape.next(MESSAGE_LENGTHS.len())];
    MessageBuf::agent(&PartsBuf::new().text(&"x".repeat(length))).id("m")
}

impl Twin {
    fn pick(&self, tape: &mut Tape<'_>) -> Option<usize> {
        // The newest are picked most often, since they are still running.
        let back = tape.next(7);
        (!self.copies.is_empty()).then(|| self.copies.len() - 1 - back.min(self.copies.len() - 1))
    }

    fn event(&self, tape: &mut Tape<'_>, events: &mut EventBuf) {
        let metadata = (tape.next(4) == 0).then(|| JsonObject::parse(r#"{"k":1}"#).unwrap());
        let at_ms = self.now.unix_ms - [0, 0, 3][tape.next(3)];
        let message_buf = message(tape);
        match tape.next(8) {
            kind @ 0..=4 => {
                let state = [
                    TaskState::Working,
                    TaskState::InputRequired,
                    TaskState::AuthRequired,
                    TaskState::Completed,
                    TaskState::Working,
                ][kind];
                let message = (tape.next(2) == 0).then(|| message_buf.view());
                events.push(&TaskEvent::Status { state, at_ms, message, metadata });
            }
            _ => {
                let name = ["a", "b", "r"][tape.next(3)];
                let parts = PartsBuf::new().text(&"y".repeat(ARTIFACT_LENGTHS[tape.next(3)]));
                events.push(&TaskEvent::Artifact {
                    artifact: ArtifactBuf::new(name, &parts).view(),
                    append: tape.next(3) > 0,
                    last_chunk: false,
                    metadata,
                });
            }
        }
    }

    fn create(&mut self, tape: &mut Tape<'_>) {
        let scope = scope(tape);
        let context = match tape.next(6) {
            at @ 0..4 => Some([&b"c0"[..], b"c1", b"c2", b"c3"][at].to_vec()),
            4 => None,
            _ => self.pick(tape).map(|at| self.copies[at].context.clone()),
        };
        self.bits = self.bits.wrapping_mul(0x5851_f42d_4c95_7f2d_1405_7b7e_f767_814f) + 1;
        let chosen = match tape.next(6) {
            0 => Some(b"mine".to_vec()),
            1 => Some(uuid(tape.next(3) as u128).to_vec()),
            2 => self.pick(tape).map(|at| self.copies[at].id.clone()),
            _ => None,
        };
        let new = NewTask {
            scope,
            incarnation: 0,
            context_id: context.as_deref(),
            chosen_id: chosen.as_deref(),
            bits: [self.bits, !self.bits],
            worker: tape.next(5),
            share: None,
            peer: Default::default(),
        };
        let id_exists =
            self.copies.iter().any(|copy| copy.scope == scope && Some(&copy.id) == chosen.as_ref());
        self.requester = None;
        let store = &self.store;
        // A refused creation may have evicted tasks in shards that are unknown here.
        self.requester = None;
        let reserved = match store.reserve(new, self.now) {
            Ok(reserved) => reserved,
            // The existing task may have been evicted to make room for its successor.
            Err(Refused::Taken) => return assert!(id_exists),
            // The bytes of its scope do not fit.
            Err(Refused::OutOfBytes | Refused::OwnShareFull { .. }) if !scope.is_plain() => return,
            Err(refused) => {
                assert!(matches!(refused, Refused::Full | Refused::OwnShareFull { .. }));
                assert_eq!(self.copies.len(), self.limits.tasks_max);
                let mut own = self.copies.iter().filter(|copy| copy.scope.owner == scope.owner);
                let is_evictable = |state: TaskState| state.is_terminal() || state.is_interrupted();
                assert!(!own.any(|copy| is_evictable(copy.state)));
                return;
            }
        };
        let (key, id) = (reserved.key(), reserved.id().to_vec());
        let group = self.group_of(key);
        assert!(context.is_some() || group == new.worker % self.last.len());
        self.requester = Some((group, scope.owner));
        let actual_context = reserved.context_id().to_vec();
        assert!(context.as_ref().is_none_or(|context| *context == actual_context));
        assert_eq!(self.store.find(scope, &id), None);
        if tape.next(5) == 0 {
            return;
        }
        let mut events = EventBuf::default();
        for _ in 0..tape.next(4) {
            self.event(tape, &mut events);
        }
        let message_buf = message(tape);
        let repeats = [0, 0, 1, 2][tape.next(4)];
        for name in ["a", "r"].iter().take(repeats) {
            let head = ArtifactBuf::new(*name, &PartsBuf::new());
            let metadata = JsonObject::parse("{}").unwrap();
            events.push_repeat(&if repeats == 2 { head.metadata(metadata) } else { head });
        }
        for _ in 0..tape.next(3) {
            self.event(tape, &mut events);
        }
        let read =
            |task: StoredTask<'_>| (task.state(), task.seq(), task.updated_ms(), look(task.view()));
        let made = store.commit_new(
            &reserved,
            Generation::V1,
            message_buf.view(),
            &events,
            self.now,
            read,
        );
        drop(reserved);
        let Ok((state, seq, at_ms, look)) = made else { return };
        self.remove_evicted(Some((scope, &id, key)));
        let mut copy = TaskCopy {
            key,
            scope,
            id,
            context: actual_context,
            state,
            group,
            order: (0, 0, 0),
            mono_ms: 0,
            seq,
            looks: BTreeMap::from([(seq, look)]),
        };
        self.stamp(&mut copy, at_ms);
        self.copies.push(copy);
    }

    /// Creates many tasks in one context, which the store then lists by another index.
    fn create_many(&mut self, tape: &mut Tape<'_>) {
        let (events, state) = (tape.next(2) as u8, tape.next(5) as u8);
        for round in 0..18 {
            if self.copies.len() < 100 {
                let state = (state + round) % 5;
                self.create(&mut Tape(&[0, 1, 3, 0, 1, events, 1, 0, 1, state, 1, 1]));
                self.check();
            }
        }
    }

    fn next_stamp(&mut self, group: usize, at_ms: u64) -> Stamp {
        let (ms, last) = (at_ms.min(self.now.unix_ms), &mut self.last[group]);
        *last = if ms > last.0 { (ms, 0, last.2) } else { (last.0, last.1 + 1, last.2) };
        *last
    }

    fn stamp(&mut self, copy: &mut TaskCopy, at_ms: u64) {
        copy.order = self.next_stamp(copy.group, at_ms);
        copy.mono_ms = self.now.mono_ms;
    }

    /// The low bits of a position name the shard; each worker has 16 of them.
    fn group_of(&self, key: TaskKey) -> usize {
        key.position as usize / 16 % self.last.len()
    }

    /// Evicts expired tasks, and synchronizes the workers' clocks.
    fn sweep(&mut self) {
        while self.store.sweep(self.now) {}
        let latest = self.last.iter().map(|last| last.0).max().unwrap_or(0);
        for last in self.last.iter_mut().filter(|last| last.0 < latest) {
            *last = (latest, 0, last.2);
        }
    }

    /// Applies a change to one task in the store and in the twin; returns the twin's new index of
    /// it.
    fn change(
        &mut self,
        at: usize,
        change: &mut dyn FnMut(&mut peregrine::store::Edit<'_>),
    ) -> usize {
        // Earlier changes of the same step count.
        self.above = self.above();
        let mut copy = self.copies.remove(at);
        self.requester = Some((copy.group, copy.scope.owner));
        let status_before = copy.looks.len();
        let looks = &mut copy.looks;
        let result = self.store.update(copy.key, self.now, |edit| {
            let before = edit.task().status_seq();
            change(edit);
            let task = edit.task();
            looks.insert(task.seq(), look(task.view()));
            (task.state(), task.seq(), task.updated_ms(), task.status_seq() != before)
        });
        let (state, seq, at_ms, is_new) = result.expect("a known task is stored");
        self.remove_evicted(Some((copy.scope, &copy.id, copy.key)));
        if seq != copy.seq {
            for reader in
                self.readers.iter_mut().filter(|r| TaskKey::of(&r.cursor.handle) == copy.key)
            {
                assert!(!reader.is_pending || reader.flag.0.swap(false, SeqCst), "lost wake-up");
                reader.is_pending = false;
            }
        }
        assert!(copy.looks.len() >= status_before);
        (copy.state, copy.seq) = (state, seq);
        if is_new {
            self.stamp(&mut copy, at_ms);
        }
        let at = at.min(self.copies.len());
        self.copies.insert(at, copy);
        at
    }

    fn publish(&mut self, tape: &mut Tape<'_>) {
        let Some(mut at) = self.pick(tape) else { return };
        for _ in 0..=tape.next(3) {
            let mut events = EventBuf::default();
            self.event(tape, &mut events);
            let was_terminal = self.copies[at].state.is_terminal();
            at = self.change(at, &mut |edit| match edit.apply_all(&events, None) {
                Ok(()) => assert!(!was_terminal),
                Err(Refused::Terminal) => assert!(was_terminal),
                Err(_) => assert_eq!(edit.task().state(), TaskState::Failed),
            });
        }
    }

    fn send_message(&mut self, tape: &mut Tape<'_>) {
        let Some(at) = self.pick(tape) else { return };
        let message_buf = message(tape);
        let before = self.copies[at].state;
        self.change(at, &mut |edit| {
            let refused = edit.user_message(message_buf.view(), None).err();
            assert_eq!(refused == Some(Refused::Terminal), before.is_terminal());
            assert_eq!(edit.task().state(), before);
        });
    }

    /// Sends messages to one task and replaces an artifact of it repeatedly, so that its history is
    /// trimmed and its log compacted.
    fn force_compaction(&mut self, tape: &mut Tape<'_>) {
        let (back, length) = (tape.next(7) as u8, tape.next(4) as u8);
        for _ in 0..12 {
            self.send_message(&mut Tape(&[back, length]));
            self.publish(&mut Tape(&[back, 0, 1, 0, 0, 5, 1, 2, 0]));
        }
    }

    fn cancel(&mut self, tape: &mut Tape<'_>) {
        let Some(at) = self.pick(tape) else { return };
        let event = TaskEvent::Status {
            state: TaskState::Canceled,
            at_ms: self.now.unix_ms,
            message: None,
            metadata: None,
        };
        self.change(at, &mut |edit| _ = edit.apply(&event));
    }

    fn subscribe(&mut self, tape: &mut Tape<'_>) {
        let Some(at) = self.pick(tape) else { return };
        let copy = &self.copies[at];
        let after = match tape.next(3) {
            0 => 0,
            1 => copy.seq,
            _ => copy.seq / 2,
        };
        let snapshot = tape.next(2) == 0 && copy.looks.contains_key(&after);
        let ends_at_input = tape.next(2) == 0;
        let cursor = Cursor {
            handle: copy.key.handle(),
            seq: after,
            snapshot,
            ends_at_input,
            ..Cursor::default()
        };
        let ticket = WaitHandle { handle: copy.key.handle(), ..WaitHandle::default() };
        let flag = Arc::default();
        self.readers.push(Reader { cursor, ticket, flag, is_pending: false, is_first: true });
    }

    fn read_more(&mut self, tape: &mut Tape<'_>) {
        let mut remaining = Vec::new();
        for mut reader in std::mem::take(&mut self.readers) {
            let enough = [1, 3, 1_000][tape.next(3)];
            if self.follow(&mut reader, enough) {
                remaining.push(reader);
            }
        }
        self.readers = remaining;
    }

    /// True if the stream continues.
    fn follow(&self, reader: &mut Reader, enough: usize) -> bool {
        let waker = Waker::from(Arc::clone(&reader.flag));
        let copy = self.copies.iter().find(|copy| copy.key == TaskKey::of(&reader.cursor.handle));
        let base = self.store.read(TaskKey::of(&reader.cursor.handle), |task| task.base_seq());
        let (mut at, mut received, mut is_last) = (reader.cursor.seq, 0, false);
        let wants_snapshot = reader.cursor.snapshot;
        let follow = self.store.follow(&mut reader.cursor, &waker, &mut |item| {
            let copy = copy.expect("a task that is gone says nothing");
            assert!(!is_last);
            received += 1;
            match item {
                StreamResponse::Snapshot(view) => {
                    assert_eq!(received, 1);
                    assert!(wants_snapshot || at < base.unwrap_or(0));
                    if at < base.unwrap_or(0) {
                        at = copy.seq;
                    }
                    assert_eq!(view.seq(), at);
                    if let Some(then) = copy.looks.get(&at) {
                        assert_eq!(&look(view), then);
                    }
                }
                StreamResponse::Event { seq, event, task_id, context_id, last, .. } => {
                    assert_eq!(
                        (seq, task_id.raw(), context_id.raw()),
                        (at + 1, &copy.id[..], &copy.context[..])
                    );
                    assert!(!matches!(event, TaskEvent::UserMessage { .. }));
                    at = seq;
                    is_last = last;
                }
                StreamResponse::Message { .. } => panic!("a task's stream has no direct message"),
            }
            received < enough
        });
        assert_eq!(reader.cursor.seq, at);
        (reader.is_first, reader.is_pending) = (false, follow == Follow::Pending);
        match follow {
            Follow::Gone => assert!(copy.is_none()),
            Follow::More => assert_eq!(received, enough),
            Follow::Pending => {
                assert!(copy.is_some_and(|k| k.seq == at && !k.state.is_terminal()));
                assert!(!is_last);
            }
            Follow::End => assert!(copy.is_some_and(|k| {
                let needs_input = k.state == TaskState::InputRequired;
                k.seq == at
                    && (k.state.is_terminal() || (needs_input && reader.cursor.ends_at_input))
            })),
        }
        let settled = self.store.poll(&mut reader.ticket, &waker, &mut |reply| {
            let Reply::Task { view, .. } = reply else { panic!("a ticket is for a task") };
            assert_eq!(Some(look(view)), copy.and_then(|k| k.looks.get(&k.seq).cloned()));
        });
        match settled {
            Poll::Ready(Ok(())) => {
                assert!(copy.is_some_and(|k| k.state.is_terminal() || k.state.is_interrupted()))
            }
            Poll::Ready(Err(_)) => assert!(copy.is_none()),
            Poll::Pending => reader.is_pending = true,
        }
        matches!(follow, Follow::More | Follow::Pending)
    }

    fn matching(&self, listing: &Listing) -> Vec<(TaskKey, Stamp)> {
        let mut found: Vec<(TaskKey, Stamp)> = self
            .copies
            .iter()
            .filter(|copy| copy.scope == listing.scope)
            .filter(|copy| listing.context.as_ref().is_none_or(|c| *c == copy.context))
            .filter(|copy| listing.status.is_none_or(|s| s == copy.state))
            .filter(|copy| listing.after_ms.is_none_or(|ms| copy.order.0 >= ms))
            .map(|copy| (copy.key, copy.order))
            .collect();
        found.sort_by_key(|(_, order)| std::cmp::Reverse(*order));
        found
    }

    fn start_listing(&mut self, tape: &mut Tape<'_>) -> Listing {
        let mut listing = Listing {
            scope: scope(tape),
            context: [None, None, Some(b"c1".to_vec())][tape.next(3)].clone(),
            status: [None, Some(TaskState::Working), Some(TaskState::Completed)][tape.next(3)],
            after_ms: (tape.next(3) == 0).then(|| self.now.unix_ms - tape.next(20) as u64),
            page_size: 1 + tape.next(5) as u32,
            token: self
                .store
                .list(Scope::of(AgentIndex(9)), &List::default(), 0, &mut |_| ())
                .unwrap()
                .next,
            expected: Vec::new(),
            seen: Vec::new(),
        };
        listing.expected = self.matching(&listing);
        listing
    }

    /// Reads one page; at the end, compares with the tasks that have not changed meanwhile.
    fn read_page(&mut self, tape: &mut Tape<'_>) {
        let mut listing = match self.listing.take() {
            Some(listing) => listing,
            None => self.start_listing(tape),
        };
        let list = List {
            context_id: listing.context.as_deref().map(raw),
            status: listing.status,
            page_size: Some(listing.page_size),
            page_token: Some(listing.token.as_str().as_bytes()),
            after_ms: listing.after_ms,
            ..List::default()
        };
        let mut page = Vec::new();
        let end = self.store.list(listing.scope, &list, 0, &mut |view| {
            page.push(self.store_key(view.id().raw(), listing.scope));
        });
        let end = end.expect("a token of its own");
        assert_eq!(end.total, self.matching(&listing).len() as u64);
        assert!(page.len() <= listing.page_size as usize);
        listing.seen.extend(page);
        listing.token = end.next;
        if !end.next.as_str().is_empty() {
            self.listing = Some(listing);
            return;
        }
        let unchanged = self.matching(&listing);
        let expected = listing.expected.iter().filter(|task| unchanged.contains(task));
        let expected: Vec<TaskKey> = expected.map(|(key, _)| *key).collect();
        let mut seen = listing.seen.clone();
        seen.retain(|key| expected.contains(key));
        assert_eq!(seen, expected);
        let mut once = listing.seen.clone();
        once.sort_by_key(|key| (key.position, key.check));
        once.dedup();
        assert_eq!(once.len(), listing.seen.len());
    }

    fn store_key(&self, id: &[u8], scope: Scope) -> TaskKey {
        let copy = self.copies.iter().find(|copy| copy.id == id && copy.scope == scope);
        copy.expect("only known tasks are listed").key
    }

    fn list_all(&self, at: usize) {
        let copy = &self.copies[at];
        let mut found = Vec::new();
        let list = List { context_id: Some(raw(&copy.context)), ..List::default() };
        let page =
            self.store.list(copy.scope, &list, 0, &mut |view| found.push(view.id().raw().to_vec()));
        let page = page.expect("no token");
        let mut expected: Vec<&TaskCopy> = self
            .copies
            .iter()
            .filter(|other| other.scope == copy.scope && other.context == copy.context)
            .collect();
        expected.sort_by_key(|other| std::cmp::Reverse(other.order));
        assert_eq!(page.total, expected.len() as u64);
        assert!(expected.iter().take(50).map(|copy| &copy.id).eq(&found));
    }

    /// Records the tasks that the store has ended to make room, and removes the evicted ones after
    /// checking the eviction; `current` is the task that needed room.
    fn remove_evicted(&mut self, current: Option<(Scope, &[u8], TaskKey)>) {
        let (mut remaining, evicted): (Vec<TaskCopy>, Vec<TaskCopy>) =
            std::mem::take(&mut self.copies)
                .into_iter()
                .partition(|copy| self.store.read(copy.key, |_| ()).is_some());
        // Its last change had its stamp before the eviction.
        for copy in evicted.iter().filter(|copy| !copy.state.is_terminal()) {
            assert!(self.may_end(copy));
            self.next_stamp(copy.group, self.now.unix_ms);
        }
        for copy in &mut remaining {
            let now = self.store.read(copy.key, |task| (task.state(), task.seq()));
            let (state, seq) = now.expect("it was there just now");
            if state != copy.state {
                // A client follows it: it stays until the next eviction.
                assert_eq!((state, seq), (TaskState::Failed, copy.seq + 1));
                (copy.state, copy.seq) = (state, seq);
                let look = self.store.read(copy.key, |task| look(task.view()));
                copy.looks.insert(seq, look.expect("it was there just now"));
                copy.order = self.next_stamp(copy.group, self.now.unix_ms);
                copy.mono_ms = self.now.mono_ms;
                self.wake_readers(copy.key);
            }
        }
        self.copies = remaining;
        for copy in evicted.iter().filter(|copy| copy.state.is_terminal()) {
            let is_expired = self.now.mono_ms - copy.mono_ms > self.limits.task_ttl_ms;
            let same = |k: &&TaskCopy| k.group == copy.group && k.scope.owner == copy.scope.owner;
            let mut others = self.copies.iter().filter(|k| k.state.is_terminal()).filter(same);
            let is_oldest = !others.any(|k| k.order < copy.order);
            assert!(is_expired || (is_oldest && self.may_be_evicted(copy)));
        }
        for copy in &evicted {
            let is_current = |current: &(Scope, &[u8], TaskKey)| {
                (current.0, current.1) == (copy.scope, &copy.id[..])
            };
            let successor = current.filter(is_current).map(|(.., key)| key);
            let found = self.find(copy.scope, &copy.id).or(successor);
            assert_eq!(self.store.find(copy.scope, &copy.id), found);
            self.wake_readers(copy.key);
        }
        self.evicted_count += evicted.len() as u64;
    }

    /// Asserts that the readers waiting for a task were woken.
    fn wake_readers(&mut self, key: TaskKey) {
        for reader in self.readers.iter_mut().filter(|r| TaskKey::of(&r.cursor.handle) == key) {
            assert!(!reader.is_pending || reader.flag.0.swap(false, SeqCst), "lost wake-up");
            reader.is_pending = false;
        }
    }

    /// Whether an unfinished task may have been ended: a waiting one, for its owner; or one of an
    /// owner above its share, for another owner.
    fn may_end(&self, copy: &TaskCopy) -> bool {
        let Some((_, owner)) = self.requester else { return true };
        match owner == copy.scope.owner {
            true => copy.state.is_interrupted(),
            false => self.above.contains(&(copy.group, copy.scope.owner)),
        }
    }

    /// The owners above their share of a worker's shards, counting one more owner.
    fn above(&self) -> HashSet<(usize, OwnerIndex)> {
        let groups = self.last.len();
        let mut held: HashMap<(usize, OwnerIndex), (usize, usize)> = HashMap::new();
        for copy in &self.copies {
            let sum = held.entry((copy.group, copy.scope.owner)).or_default();
            let bytes = self.store.read(copy.key, |task| task.heap_bytes()).unwrap_or_default();
            // Includes the bytes of its scope, as an upper bound.
            *sum = (sum.0 + 1, sum.1 + bytes + SCOPE_BYTES);
        }
        // Each of the 16 shards of a worker reserves bytes for the final status of a task.
        let bytes_max = self.limits.store_bytes_max;
        let bytes_max = bytes_max - (groups * 16 * 256).min(bytes_max / 2);
        let is_above = |(group, tasks, bytes): (usize, usize, usize)| {
            let holders = held.keys().filter(|(of, _)| *of == group).count() + 1;
            let share = |most: usize| most / groups / holders;
            tasks > share(self.limits.tasks_max) || bytes > share(bytes_max)
        };
        let above =
            held.iter().filter(|((group, _), (tasks, bytes))| is_above((*group, *tasks, *bytes)));
        above.map(|(holder, _)| *holder).collect()
    }

    /// Compares all tasks of the twin with the store.
    fn check(&mut self) {
        self.remove_evicted(None);
        let ended = self.copies.iter().filter(|copy| copy.state.is_terminal());
        self.ended = ended.map(|copy| copy.key).collect();
        self.above = self.above();
        let stats = self.store.stats();
        assert_eq!(stats.evicted.iter().sum::<u64>(), self.evicted_count);
        assert_eq!(stats.tasks, self.copies.len() as u64);
        assert!(self.copies.len() <= self.limits.tasks_max);
        assert!(stats.bytes <= self.limits.store_bytes_max as u64);
        let held = |copy: &TaskCopy| self.store.read(copy.key, |task| task.heap_bytes() as u64);
        let tasks: u64 = self.copies.iter().filter_map(held).sum();
        // A scope with a name takes bytes of its own in each shard with its tasks.
        let named = self.copies.iter().filter(|copy| !copy.scope.is_plain());
        let shards = 16 * self.last.len() as u32;
        let named = named.map(|copy| (copy.key.position % shards, copy.scope.bits()));
        let scopes: HashSet<_> = named.collect();
        assert_eq!(stats.bytes, tasks + (scopes.len() * SCOPE_BYTES) as u64);
        for (state, count) in TaskState::ALL.into_iter().zip(stats.by_state) {
            assert_eq!(count, self.copies.iter().filter(|k| k.state == state).count() as u64);
        }
        for copy in &self.copies {
            assert_eq!(self.store.find(copy.scope, &copy.id), Some(copy.key));
            // Another agent's, tenant's or owner's scope does not find the task.
            let Scope { agent, tenant, owner } = copy.scope;
            for other in [
                Scope { agent: AgentIndex(7), ..copy.scope },
                Scope { tenant: TenantIndex(7 + tenant.0), ..copy.scope },
                Scope { owner: OwnerIndex(7 + owner.0), ..copy.scope },
                Scope { agent: AgentIndex(agent.0 ^ 1), ..copy.scope },
            ] {
                assert_eq!(self.store.find(other, &copy.id), self.find(other, &copy.id));
            }
        }
        if self.bits % 16 == 1 {
            self.check_replica();
        }
        if self.limits.task_ttl_ms > 1_000 {
            assert_eq!(stats.evicted[Eviction::Ttl as usize], 0);
        }
    }

    /// The records rebuild the same tasks.
    fn check_replica(&self) {
        let replica = self.replica.tasks.lock().unwrap();
        assert_eq!(replica.len(), self.copies.len());
        for copy in &self.copies {
            let (scope, task) = &replica[&copy.key.handle()];
            let task = task.task();
            let (now, seq) = self.store.read(copy.key, |t| (look(t.view()), t.seq())).unwrap();
            assert_eq!((scope, look(task.view()), task.seq()), (&copy.scope, now, seq));
            assert!(task.id() == copy.id && task.context_id() == copy.context);
        }
    }

    /// Whether a finished task may have been evicted for the owner that needed room: the owner's
    /// own tasks in its worker's shards, unless there are none or others are far older. Tasks of
    /// another owner only if that owner is above its share.
    fn may_be_evicted(&self, evicted: &TaskCopy) -> bool {
        let Some((group, owner)) = self.requester else { return true };
        if evicted.scope.owner != owner {
            return self.above.contains(&(evicted.group, evicted.scope.owner));
        }
        let ended = |copy: &&TaskCopy| self.ended.contains(&copy.key) && copy.scope.owner == owner;
        let mut ended = self.copies.iter().filter(ended);
        if evicted.group != group {
            let mut own = ended.filter(|copy| copy.group == group);
            return own.all(|own| evicted.order.0 + LEAD_MS <= own.order.0);
        }
        // A large store does not check the others each time.
        self.limits.tasks_max > 12
            || ended.all(|other| {
                other.group == evicted.group || evicted.order.0 <= other.order.0 + LEAD_MS
            })
    }

    fn find(&self, scope: Scope, id: &[u8]) -> Option<TaskKey> {
        let mut found = self.copies.iter().filter(|copy| copy.scope == scope && copy.id == id);
        found.next().map(|copy| copy.key)
    }
}

mod with_seeds {
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn store_matches_the_naive_twin(bytes in prop::collection::vec(any::<u8>(), 8..1500)) {
            super::store_matches_the_naive_twin(&bytes);
        }
    }
}
