//! Tests of each caller's share of running tasks and of their bytes.

use super::*;
use crate::service::{
    RunningShare,
    quota::{CallerAccount, RunningPermit},
};
use crate::store::slab::private_heap_bytes;

const OWNER: OwnerIndex = OwnerIndex(3);

fn of_owner(bits: u128, share: Option<&RunningShare>) -> NewTask<'_> {
    NewTask { scope: Scope { owner: OWNER, ..AGENT }, context_id: None, share, ..new(bits) }
}

fn commit(store: &Store, reserved: &Reserved<'_>, state: TaskState) -> TaskKey {
    let mut events = EventBuf::default();
    events.push(&status(state));
    let key = reserved.key();
    store
        .commit_new(reserved, Generation::V1, text_message(9).view(), &events, NOW, |_| key)
        .unwrap()
}

#[test]
fn owner_task_counts_from_reservation_to_end_unless_waiting() {
    let store = Store::new(&Limits::default(), 7);
    let two = RunningShare::of_owner(2);
    let reserve = |bits| store.reserve(of_owner(bits, Some(&two)), NOW);
    let (first, second) = (reserve(1).unwrap(), reserve(2).unwrap());
    assert_eq!(reserve(3).err(), Some(Refused::ShareExhausted(2)));
    drop(first);
    let retained = reserve(4).unwrap().keep();
    assert_eq!(reserve(5).err(), Some(Refused::ShareExhausted(2)));
    store.give_back(retained);
    let retained = reserve(6).unwrap().keep();
    let key = store.reopen(retained, |reserved| commit(&store, reserved, TaskState::Working));
    let done = commit(&store, &second, TaskState::Completed);
    drop(second);
    assert_eq!(store.spaces.running.count(OWNER), 1);
    assert!(reserve(7).is_ok());
    // A task that waits for its client does not count until it is continued.
    apply(&store, key, &status(TaskState::InputRequired)).unwrap().unwrap();
    assert_eq!(
        (store.spaces.running.count(OWNER), store.spaces.running.count_bytes(OWNER)),
        (0, 0)
    );
    let message =
        |share| store.update(key, NOW, |edit| edit.user_message(text_message(9).view(), share));
    let both = (reserve(11).unwrap(), reserve(12).unwrap());
    assert_eq!(message(Some(&two)), Some(Err(Refused::ShareExhausted(2))));
    assert_eq!(
        (store.spaces.running.count(OWNER), store.spaces.running.count_bytes(OWNER)),
        (2, 0)
    );
    drop(both);
    assert_eq!(message(Some(&two)), Some(Ok(())));
    assert_eq!(store.spaces.running.count(OWNER), 1);
    assert_eq!(store.spaces.running.count_bytes(OWNER), held(&store, key) as u64);
    apply(&store, key, &status(TaskState::Completed)).unwrap().unwrap();
    assert_eq!(apply(&store, done, &status(TaskState::Failed)), Some(Err(Refused::Terminal)));
    assert_eq!(store.spaces.running.count(OWNER), 0);
    // Tasks of calls without a share are counted as well: a later call may have a share.
    let all = [store.reserve(of_owner(8, None), NOW), store.reserve(of_owner(9, None), NOW)];
    assert_eq!(reserve(10).err(), Some(Refused::ShareExhausted(2)));
    drop(all);
    assert_eq!(store.spaces.running.count(OWNER), 0);
}

#[test]
fn refused_reservation_does_not_count_for_its_owner() {
    let limits = Limits { tasks_max: 2, task_bytes_max: 1 << 16, ..Limits::default() };
    let store = Store::new(&limits, 7);
    let share = RunningShare::of_owner(9);
    let chosen = NewTask { chosen_id: Some(b"mine"), ..of_owner(1, Some(&share)) };
    let first = store.reserve(chosen, NOW).unwrap();
    assert_eq!(store.reserve(chosen, NOW).err(), Some(Refused::Taken));
    let second = store.reserve(of_owner(2, Some(&share)), NOW).unwrap();
    assert_eq!(store.reserve(of_owner(3, Some(&share)), NOW).err(), Some(Refused::Full));
    assert_eq!(store.spaces.running.count(OWNER), 2);
    let none = EventBuf::default();
    let large = text_message(1 << 16);
    let refused = store.commit_new(&second, Generation::V1, large.view(), &none, NOW, |_| ());
    assert_eq!(refused.err(), Some(Refused::TooLarge));
    drop((first, second));
    assert_eq!(store.spaces.running.count(OWNER), 0);
}

#[test]
fn task_without_an_owner_counts_for_its_caller() {
    let store = Store::new(&Limits::default(), 7);
    let account = Arc::new(CallerAccount::default());
    let share = RunningShare { account: Some(Arc::clone(&account)), ..RunningShare::of_owner(2) };
    let reserve = |bits| store.reserve(NewTask { share: Some(&share), ..new(bits) }, NOW);
    let is_free = || RunningPermit::take(&account, &share).is_some();
    let (first, second) = (reserve(1).unwrap(), reserve(2).unwrap());
    assert_eq!(reserve(3).err(), Some(Refused::ShareExhausted(2)));
    // A reservation ends when its task is stored, when it is dropped, and when it is retained and
    // dropped.
    commit(&store, &first, TaskState::Completed);
    drop(second);
    let retained = reserve(4).unwrap().keep();
    let held = reserve(5).unwrap();
    assert!(!is_free());
    store.give_back(retained);
    assert!(is_free());
    let key = commit(&store, &held, TaskState::Working);
    store.update(key, NOW, |edit| edit.keep(b"of the agent")).unwrap().unwrap();
    let last = reserve(6).unwrap();
    assert!(!is_free());
    apply(&store, key, &status(TaskState::Canceled)).unwrap().unwrap();
    assert!(is_free());
    drop(last);
    let both = [reserve(7).is_ok(), reserve(8).is_ok()];
    assert_eq!((both, Arc::strong_count(&account)), ([true; 2], 2));
}

/// The share of a caller with this limit of KiB.
fn of_kib(kib_max: u32) -> RunningShare {
    RunningShare { begin_kib_max: kib_max, kib_max, ..RunningShare::of_owner(100) }
}

/// Stores a working task with a message of this length.
fn begin(store: &Store, new: NewTask<'_>, length: usize) -> Result<TaskKey, Refused> {
    let reserved = store.reserve(new, NOW)?;
    let (key, mut events) = (reserved.key(), EventBuf::default());
    events.push(&status(TaskState::Working));
    store.commit_new(&reserved, Generation::V1, text_message(length).view(), &events, NOW, |_| key)
}

/// Adds an artifact of this length to a task.
fn grow(store: &Store, key: TaskKey, length: usize) -> Result<u64, Refused> {
    let parts = PartsBuf::new().text(&"y".repeat(length));
    let artifact = ArtifactBuf::new("a", &parts);
    let (artifact, append) = (artifact.view(), true);
    let event = TaskEvent::Artifact { artifact, append, last_chunk: false, metadata: None };
    apply(store, key, &event).unwrap()
}

/// The bytes of a task; 0 if it has ended or waits for its client.
fn counted(store: &Store, key: TaskKey) -> usize {
    let waits = store.update(key, NOW, |edit| edit.task().waits_for_client());
    if waits == Some(true) { 0 } else { held(store, key) }
}

/// The bytes of a task; 0 if it has ended.
fn held(store: &Store, key: TaskKey) -> usize {
    let held = |edit: &mut Edit<'_>| match edit.task().state().is_terminal() {
        true => 0,
        false => edit.task().heap_bytes() + private_heap_bytes(edit.private_bytes()),
    };
    store.update(key, NOW, held).unwrap_or(0)
}

#[test]
fn caller_at_its_byte_share_can_only_end_its_tasks() {
    let (store, share) = (Store::new(&Limits::default(), 7), of_kib(16));
    let first = begin(&store, of_owner(1, Some(&share)), 6_000).unwrap();
    let second = begin(&store, of_owner(2, Some(&share)), 6_000).unwrap();
    let held_by = || (held(&store, first) + held(&store, second)) as u64;
    assert_eq!(store.spaces.running.count_bytes(OWNER), held_by());
    // The message exceeds the rest of the share; after that the share is used up.
    let third = |length| begin(&store, of_owner(3, Some(&share)), length);
    assert_eq!(third(6_000), Err(Refused::ShareBytesExhausted(16)));
    assert_eq!(store.spaces.running.count(OWNER), 2);
    let remaining = 16 * 1024 - held_by() as usize - private_heap_bytes(&[0]);
    store.update(first, NOW, |edit| edit.keep(&vec![0; remaining + 1])).unwrap().unwrap();
    assert_eq!(store.spaces.running.count_bytes(OWNER), 16 * 1024);
    assert_eq!(store.reserve(of_owner(3, Some(&share)), NOW).err(), third(0).err());
    assert_eq!(third(0), Err(Refused::ShareBytesExhausted(16)));
    // Other owners have their own shares.
    let scope = Scope { owner: OwnerIndex(4), ..AGENT };
    begin(&store, NewTask { scope, ..of_owner(4, Some(&share)) }, 6_000).unwrap();
    // A refused client message leaves the task unchanged.
    let refused =
        store.update(first, NOW, |edit| edit.user_message(text_message(9_000).view(), None));
    assert_eq!(refused, Some(Err(Refused::ShareBytesExhausted(16))));
    assert_eq!(state(&store, first), Some(TaskState::Working));
    let refused = store.update(second, NOW, |edit| edit.keep(&[0; 9]));
    assert_eq!(refused, Some(Err(Refused::ShareBytesExhausted(16))));
    // A final status always has room, even with a long message.
    let words = text_message(20_000);
    let (state, message) = (TaskState::Completed, Some(words.view()));
    let done = TaskEvent::Status { state, at_ms: 1_000, message, metadata: None };
    apply(&store, first, &done).unwrap().unwrap();
    assert_eq!(self::state(&store, first), Some(TaskState::Completed));
    assert_eq!(store.spaces.running.count_bytes(OWNER), held(&store, second) as u64);
    apply(&store, second, &status(TaskState::Canceled)).unwrap().unwrap();
    let running = &store.spaces.running;
    assert_eq!((running.count(OWNER), running.count_bytes(OWNER)), (0, 0));
}

#[test]
fn event_beyond_the_byte_share_fails_its_task_with_a_reason() {
    let (store, share) = (Store::new(&Limits::default(), 7), of_kib(16));
    let keys = [1, 2].map(|bits| begin(&store, of_owner(bits, Some(&share)), 3_000).unwrap());
    grow(&store, keys[0], 100).unwrap();
    assert_eq!(grow(&store, keys[0], 20_000), Err(Refused::ShareBytesExhausted(16)));
    let ended = store.read(keys[0], |task| {
        let status = task.view().status();
        (status.state, status.message.map(|message| message.text().to_string()))
    });
    let (state, text) = ended.unwrap();
    assert_eq!(state, TaskState::Failed);
    assert!(text.unwrap().contains("caller"));
    assert_eq!(store.spaces.running.count_bytes(OWNER), held(&store, keys[1]) as u64);
    // A new task fails, too: its message fits, but its agent's events do not.
    let reserved = store.reserve(of_owner(3, Some(&share)), NOW).unwrap();
    let (parts, mut events) = (PartsBuf::new().text(&"y".repeat(20_000)), EventBuf::default());
    let artifact = ArtifactBuf::new("a", &parts);
    let (artifact, append) = (artifact.view(), false);
    events.push(&TaskEvent::Artifact { artifact, append, last_chunk: true, metadata: None });
    let (message, key) = (text_message(9), reserved.key());
    let stored = store.commit_new(&reserved, Generation::V1, message.view(), &events, NOW, |_| ());
    assert_eq!((stored, self::state(&store, key)), (Ok(()), Some(TaskState::Failed)));
    assert_eq!(store.spaces.running.count(OWNER), 1);
    // For a running task, the list does not fit as a whole.
    store.update(keys[1], NOW, |edit| edit.apply_all(&events, None)).unwrap().unwrap_err();
    assert_eq!(self::state(&store, keys[1]), Some(TaskState::Failed));
    // Later events are not counted.
    let (parts, mut few) = (PartsBuf::new().text(&"y".repeat(4_000)), EventBuf::default());
    let artifact = ArtifactBuf::new("a", &parts);
    let (artifact, append) = (artifact.view(), false);
    few.push(&TaskEvent::Artifact { artifact, append, last_chunk: true, metadata: None });
    let late = store.update(keys[1], NOW, |edit| edit.apply_all(&few, None));
    assert_eq!(late, Some(Err(Refused::Terminal)));
    let running = &store.spaces.running;
    assert_eq!((running.count(OWNER), running.count_bytes(OWNER)), (0, 0));
}

#[test]
fn refusal_at_a_byte_share_evicts_no_tasks() {
    let limits = Limits { store_bytes_max: 60_000, ..Limits::default() };
    let (store, share) = (Store::new(&limits, 7), of_kib(4));
    let ended: Vec<TaskKey> = (0..)
        .map_while(|bits| {
            let is_full = store.stats().bytes > 50_000;
            (!is_full).then(|| make(&store, bits, TaskState::Completed, NOW).unwrap())
        })
        .collect();
    for length in [10_000, 30_000, 50_000] {
        let refused = begin(&store, of_owner(1, Some(&share)), length);
        assert_eq!(refused, Err(Refused::ShareBytesExhausted(4)));
        let (key, owner) = (ended[0], OWNER);
        let held = store.hold_for_task(key, owner, length);
        assert_eq!(held.err(), Some(Refused::ShareBytesExhausted(4)));
    }
    assert_eq!(store.stats().evicted, [0, 0, 0, 0]);
}

#[test]
fn owner_number_is_not_reused_while_an_agent_holds_a_call() {
    let limits = Limits { owners_max: 1, task_ttl_ms: 1_000, ..Limits::default() };
    let store = Store::new(&limits, 7);
    let enter = |name, ms| {
        let named = SpaceName {
            scope: AGENT,
            tenant: None,
            owner: Some(name),
            owner_hint: None,
            authenticates_callers: true,
        };
        store.enter_space(0, named, at(ms), &|_| ()).map(|space| space.scope).ok()
    };
    let scope = enter("alice", 0).unwrap();
    let key = begin(&store, NewTask { scope, ..of_owner(1, None) }, 9).unwrap();
    let held = store.hold_for_task(key, OwnerIndex(0), 100).ok().unwrap();
    apply(&store, key, &status(TaskState::Canceled)).unwrap().unwrap();
    while store.sweep(at(10_000)) {}
    assert_eq!(state(&store, key), None);
    assert_eq!(enter("bob", 20_000), None);
    store.release_held(held);
    assert_eq!(enter("bob", 30_000), Some(scope));
}

/// A caller that stores tasks, and its remaining tasks.
struct Maker {
    scope: Scope,
    share: RunningShare,
    tasks: Vec<TaskKey>,
    reserved: Vec<ReservedBuf>,
    held: Vec<(HeldBytes, usize)>,
}

impl Maker {
    fn new(owner: u32, account: Option<&Arc<CallerAccount>>) -> Maker {
        let scope = Scope { owner: OwnerIndex(owner), ..AGENT };
        let share = RunningShare { account: account.cloned(), ..of_kib(24) };
        Maker { scope, share, tasks: Vec::new(), reserved: Vec::new(), held: Vec::new() }
    }

    /// The bytes counted for the caller.
    fn counted(&self, store: &Store) -> u64 {
        match &self.share.account {
            Some(account) => account.running_bytes().count(),
            None => store.spaces.running.count_bytes(self.scope.owner),
        }
    }

    /// The bytes of the caller's tasks and deferred calls.
    fn holds(&self, store: &Store) -> u64 {
        let tasks: usize = self.tasks.iter().map(|key| counted(store, *key)).sum();
        let held: usize = self.held.iter().map(|(_, bytes)| bytes).sum();
        (tasks + held) as u64
    }

    fn step(&mut self, store: &Store, bits: u128, mut random: impl FnMut(usize) -> usize) {
        // Some tasks may have been evicted for other callers.
        self.tasks.retain(|key| held(store, *key) > 0);
        let length = [0, 50, 500, 5_000, 20_000][random(5)];
        let share = Some(&self.share).filter(|share| share.account.is_some() || random(20) > 0);
        let new = NewTask { scope: self.scope, ..of_owner(bits, share) };
        let any = (!self.tasks.is_empty()).then(|| self.tasks[random(self.tasks.len())]);
        let mut events = EventBuf::default();
        let parts = PartsBuf::new().text(&"y".repeat(length));
        let artifact = ArtifactBuf::new(["a", "b", "c"][random(3)], &parts);
        let (artifact, append) = (artifact.view(), random(2) == 0);
        events.push(&TaskEvent::Artifact { artifact, append, last_chunk: false, metadata: None });
        let ends = [TaskState::Working, TaskState::InputRequired, TaskState::Completed];
        events.push(&status(ends[random(3)]));
        let commit = |reserved: &Reserved<'_>, few: &EventBuf| {
            let (message, key) = (text_message(length), reserved.key());
            store.commit_new(reserved, Generation::V1, message.view(), few, NOW, |_| key)
        };
        match (random(10), any) {
            (0 | 1, _) => drop(store.reserve(new, NOW).map(|reserved| {
                let few = if random(3) == 0 { &events } else { &EventBuf::default() };
                self.tasks.extend(commit(&reserved, few));
            })),
            (2, _) => drop(store.reserve(new, NOW).map(|new| self.reserved.push(new.keep()))),
            (3, _) => {
                let Some(reserved) = self.reserved.pop() else { return };
                match random(3) {
                    0 => store.give_back(reserved),
                    _ => self
                        .tasks
                        .extend(store.reopen(reserved, |reserved| commit(reserved, &events)).ok()),
                }
            }
            (4, Some(key)) => {
                let bytes = length.min(1_000);
                let held = store.hold_for_task(key, OwnerIndex(0), bytes);
                self.held.extend(held.map(|held| (held, bytes)).ok());
            }
            (5, _) => drop(self.held.pop().map(|(held, _)| store.release_held(held))),
            (6, Some(key)) => drop(store.update(key, NOW, |edit| edit.keep(&vec![0; length]))),
            (7, Some(key)) => {
                let _ = store
                    .update(key, NOW, |edit| edit.user_message(text_message(length).view(), None));
            }
            (8, Some(key)) => drop(store.update(key, NOW, |edit| edit.apply_all(&events, None))),
            (9, Some(key)) => drop(apply(store, key, &status(ends[random(3)]))),
            (_, None) | (10.., _) => {}
        }
        self.tasks.retain(|key| held(store, *key) > 0);
    }
}

#[test]
fn counted_bytes_equal_the_bytes_of_running_tasks() {
    for (seed, store_bytes_max) in [(1u64, 60_000), (2, 200_000), (3, 10_000_000)] {
        let limits = Limits {
            tasks_max: 30,
            store_bytes_max,
            task_bytes_max: 9_000,
            history_max: 3,
            ..Limits::default()
        };
        let (store, mut bits, mut word) = (Store::new(&limits, 7), 0, seed);
        let accounts: [Arc<CallerAccount>; 2] = Default::default();
        let mut makers = [
            Maker::new(1, None),
            Maker::new(3, None),
            Maker::new(0, Some(&accounts[0])),
            Maker::new(0, Some(&accounts[1])),
        ];
        let mut random = |below: usize| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (word >> 33) as usize % below
        };
        for _ in 0..6_000 {
            bits += 1;
            let at = random(makers.len());
            makers[at].step(&store, bits, &mut random);
            for maker in &makers {
                assert_eq!(maker.counted(&store), maker.holds(&store));
            }
        }
        for maker in &mut makers {
            std::mem::take(&mut maker.held)
                .into_iter()
                .for_each(|(held, _)| store.release_held(held));
            std::mem::take(&mut maker.reserved)
                .into_iter()
                .for_each(|reserved| store.give_back(reserved));
            maker.tasks.retain(|key| held(&store, *key) > 0);
            for key in std::mem::take(&mut maker.tasks) {
                // The task is canceled, or fails if the store has no room for that status.
                let _ = apply(&store, key, &status(TaskState::Canceled)).unwrap();
            }
            assert_eq!(maker.counted(&store), 0);
            assert_eq!(store.spaces.running.count(maker.scope.owner), 0);
        }
        for account in accounts {
            let permits = (0..100).map_while(|_| RunningPermit::take(&account, &of_kib(1)));
            assert_eq!(permits.collect::<Vec<_>>().len(), 100);
        }
    }
}
