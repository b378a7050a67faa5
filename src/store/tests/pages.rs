//! Tests of page tokens, and of lists of contexts with many tasks.

use super::*;
use crate::{
    model::{RawText, TaskView},
    store::shard::{FEW, MANY},
};

#[test]
fn invalid_page_token_or_zero_page_size_is_rejected() {
    let store = Store::new(&Limits::default(), 7);
    for bits in 0..3 {
        make(&store, bits, TaskState::Completed, NOW).unwrap();
    }
    let page_of = |agent, token: &[u8], page_size| {
        let list = List { page_token: Some(token), page_size, ..List::default() };
        store.list(agent, &list, 0, &mut |_| ())
    };
    let first = page_of(AGENT, b"", Some(2)).unwrap();
    let token = first.next.as_str().as_bytes();
    assert_eq!((token.len(), first.total, first.page_size), (32, 3, 2));
    assert_eq!(page_of(AGENT, token, Some(2)).unwrap().next.as_str(), "");
    for at in 0..token.len() {
        let mut wrong = token.to_vec();
        wrong[at] ^= 1;
        assert_eq!(page_of(AGENT, &wrong, None).unwrap_err().field, Some("pageToken"));
    }
    for wrong in [&token[1..], b"0", b"next", &[b'0'; 32], &[0xff; 32]] {
        assert_eq!(page_of(AGENT, wrong, None).unwrap_err().field, Some("pageToken"));
    }
    assert!(page_of(Scope::of(AgentIndex(1)), token, None).is_err());
    assert_eq!(page_of(AGENT, b"", Some(0)).unwrap_err().field, Some("pageSize"));
    assert_eq!(page_of(AGENT, b"", Some(1_000)).unwrap().page_size, 100);
}

#[test]
fn page_shrinks_as_held_buffers_grow() {
    let mib = 1024 * 1024;
    let limits = Limits { buffers_bytes_max: 64 * mib, ..Limits::default() };
    let store = Store::new(&limits, 7);
    for bits in 0..10 {
        make(&store, bits, TaskState::Completed, NOW).unwrap();
    }
    let shown = |held| {
        let (mut shown, list) = (0, List { include_artifacts: true, ..List::default() });
        let page = store.list(AGENT, &list, held, &mut |_| shown += 1).unwrap();
        assert_eq!((page.total, page.next.as_str().is_empty()), (10, shown == 10));
        shown
    };
    let all = [0, 15 * mib, 16 * mib - 6_000, 16 * mib, usize::MAX].map(shown);
    assert!(all[..2] == [10, 10] && (2..10).contains(&all[2]) && all[3..] == [1, 1], "{all:?}");
}

/// A context as a plain list: `(id, state, time)`, oldest status change first.
struct Plain {
    store: Store,
    tasks: Vec<(Vec<u8>, TaskState, u64)>,
}

impl Plain {
    fn new() -> Plain {
        let limits = Limits { tasks_max: 100_000, task_ttl_ms: 1_000_000, ..Limits::default() };
        Plain { store: Store::new(&limits, 7), tasks: Vec::new() }
    }

    /// Stores a task of an agent in the context of the list.
    fn make(&mut self, scope: Scope, state: TaskState, ms: u64) {
        let bits = self.tasks.len() as u128 * 2 + u128::from(scope.agent.0);
        let reserved = self.store.reserve(NewTask { scope, ..new(bits) }, at(ms)).unwrap();
        let mut events = EventBuf::default();
        if state != TaskState::Submitted {
            events.push(&TaskEvent::Status { state, at_ms: ms, message: None, metadata: None });
        }
        let id = reserved.id().to_vec();
        let (message, generation) = (text_message(1), Generation::V1);
        self.store
            .commit_new(&reserved, generation, message.view(), &events, at(ms), |_| ())
            .unwrap();
        if scope == AGENT {
            self.tasks.push((id, state, ms));
        }
    }

    /// Sets a new status of the task at a position.
    fn change(&mut self, position: usize, state: TaskState, ms: u64) {
        let (id, ..) = self.tasks.remove(position);
        let key = self.store.find(AGENT, &id).unwrap();
        let event = TaskEvent::Status { state, at_ms: ms, message: None, metadata: None };
        self.store.update(key, at(ms), |edit| edit.apply(&event)).unwrap().unwrap();
        self.tasks.push((id, state, ms));
    }

    /// Evicts tasks that ended before, and removes them from the list.
    fn sweep(&mut self, before_ms: u64) {
        while self.store.sweep(at(before_ms + 1_000_000)) {}
        self.tasks.retain(|(_, state, ms)| !state.is_terminal() || *ms >= before_ms);
    }

    /// Reads all pages and compares them with the list; returns the number of tasks.
    fn agree(&self, status: Option<TaskState>, after_ms: Option<u64>, page_size: u32) -> usize {
        let wanted = self.tasks.iter().rev().filter(|(_, state, ms)| {
            status.is_none_or(|status| status == *state)
                && after_ms.is_none_or(|after| *ms >= after)
        });
        let wanted: Vec<&Vec<u8>> = wanted.map(|(id, ..)| id).collect();
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let list = List {
                context_id: Some(RawText::known(b"c")),
                status,
                after_ms,
                page_size: Some(page_size),
                page_token: Some(token.as_bytes()),
                ..List::default()
            };
            let mut each = |view: TaskView<'_>| found.push(view.id().raw().to_vec());
            let page = self.store.list(AGENT, &list, 0, &mut each).unwrap();
            assert_eq!(page.total, wanted.len() as u64);
            token = page.next.as_str().to_owned();
            if token.is_empty() {
                break;
            }
        }
        assert!(found.iter().eq(wanted.iter().copied()));
        found.len()
    }

    fn agree_on_all(&self) {
        for status in [None].into_iter().chain(TaskState::ALL.map(Some)) {
            for after_ms in [None, Some(0), Some(1_007), Some(6_000), Some(u64::MAX / 4)] {
                self.agree(status, after_ms, 100);
            }
        }
        self.agree(Some(TaskState::Working), None, 7);
    }

    /// True when the agent's context has orders of its own.
    fn is_crowd(&self) -> bool {
        let (at, context) = self.store.context(AGENT, b"c");
        self.store.lock(at).large_context(context.hash).is_some()
    }
}

#[test]
fn context_of_10_000_tasks_pages_like_a_plain_list() {
    let states = [TaskState::Submitted, TaskState::Working, TaskState::InputRequired];
    let mut plain = Plain::new();
    for count in 0..10_000 {
        plain.make(AGENT, states[count % 3], 1_000 + count as u64);
        plain.make(Scope::of(AgentIndex(1)), TaskState::Working, 1_000 + count as u64);
    }
    assert_eq!(plain.agree(None, None, 100), 10_000);
    let mut pick = 1;
    for round in 0..5_000 {
        pick = (pick * 75 + 74) % 65_537;
        let position = pick * plain.tasks.len() / 65_537;
        if !plain.tasks[position].1.is_terminal() {
            let state = [TaskState::Working, TaskState::Completed, TaskState::Failed][round % 3];
            plain.change(position, state, 11_000 + round as u64);
        }
    }
    plain.agree_on_all();
    for before_ms in [11_001, 12_000, 14_000, 17_000] {
        plain.sweep(before_ms);
        plain.agree_on_all();
    }
    assert!(plain.is_crowd());
    while let Some(position) = plain.tasks.iter().position(|(_, state, _)| !state.is_terminal()) {
        plain.change(position, TaskState::Completed, 20_000);
    }
    plain.agree_on_all();
    plain.sweep(20_001);
    assert_eq!((plain.agree(None, None, 1), plain.is_crowd()), (0, false));
}

#[test]
fn large_context_has_own_orders_until_few_tasks_remain() {
    let mut plain = Plain::new();
    for ms in [1_000, 2_000, 3_000] {
        for count in 0..u64::from(MANY) {
            assert!(!plain.is_crowd());
            plain.make(AGENT, TaskState::Working, ms + count);
            plain.agree_on_all();
        }
        assert!(plain.is_crowd());
        // The removed task is the newest, the oldest, or one in between.
        for count in 0..u64::from(MANY) {
            let len = plain.tasks.len();
            plain.change((count * 7) as usize % len, TaskState::Completed, ms + 500);
            if count % 2 == 0 && len > 1 {
                plain.change(0, TaskState::Working, ms + 500);
            }
            plain.sweep(ms + 501);
            plain.agree_on_all();
            assert_eq!(plain.is_crowd(), plain.tasks.len() >= FEW as usize);
        }
        assert!(plain.tasks.is_empty());
    }
}

#[test]
fn server_created_context_lists_its_tasks_through_evictions() {
    let limits = Limits { task_ttl_ms: 1_000, ..Limits::default() };
    let store = Store::new(&limits, 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978);
    let make = |context_id: Option<&[u8]>, agent, bits, ms| {
        let (state, mut events) = (TaskState::Completed, EventBuf::default());
        events.push(&TaskEvent::Status { state, at_ms: ms, message: None, metadata: None });
        let reserved =
            store.reserve(NewTask { scope: agent, context_id, ..new(bits) }, at(ms)).unwrap();
        let (made, message) = (reserved.context_id().to_vec(), text_message(1));
        let generation = Generation::V1;
        store.commit_new(&reserved, generation, message.view(), &events, at(ms), |_| ()).unwrap();
        made
    };
    let total = |agent, context_id: &[u8]| {
        let list = List { context_id: Some(RawText::known(context_id)), ..List::default() };
        store.list(agent, &list, 0, &mut |_| ()).unwrap().total
    };
    let (ours, other) = (make(None, AGENT, 1, 100), make(None, AGENT, 2, 200));
    assert_eq!((total(AGENT, &ours), total(AGENT, &other)), (1, 1));
    // The same text is a different context for another agent.
    let stranger = Scope::of(AgentIndex(1));
    assert_eq!(total(stranger, &ours), 0);
    make(Some(&ours), stranger, 3, 300);
    assert_eq!((total(AGENT, &ours), total(stranger, &ours)), (1, 1));
    for (count, ms) in [(2, 400), (3, 500)] {
        make(Some(&ours), AGENT, 4 + count, ms);
        assert_eq!((total(AGENT, &ours), total(AGENT, &other)), (count as u64, 1));
    }
    // The first task of `ours` is evicted, then the only task of `other`, then all tasks.
    for (ms, remaining) in [(1_150, (2, 1)), (1_250, (2, 0)), (1_450, (1, 0)), (9_000, (0, 0))] {
        store.sweep(at(ms));
        assert_eq!((total(AGENT, &ours), total(AGENT, &other)), remaining, "{ms}");
    }
    assert_eq!((store.stats().tasks, total(stranger, &ours)), (0, 0));
}

#[test]
fn page_token_does_not_reveal_its_stamp() {
    let store = Store::new(&Limits::default(), 7);
    let ms = 1_790_000_000_000;
    for bits in 0..40 {
        make(&store, bits, TaskState::Completed, at(ms)).unwrap();
    }
    // A stamp is the time and a count of changes; no part of a token reveals it.
    let mut token = String::new();
    for _ in 0..30 {
        let list =
            List { page_size: Some(1), page_token: Some(token.as_bytes()), ..List::default() };
        token = store.list(AGENT, &list, 0, &mut |_| ()).unwrap().next.as_str().to_owned();
        let halves =
            [&token[..16], &token[16..]].map(|half| u64::from_str_radix(half, 16).unwrap());
        for shown in [halves[0], halves[1], halves[0] ^ halves[1]] {
            assert_ne!(shown >> 20, ms, "{token}");
        }
    }
}
