//! Tests of the private bytes that agents store with their tasks.

use super::*;
use crate::store::slab::private_heap_bytes;

fn in_context(store: &Store, bits: u128, scope: Scope, now: Now) -> TaskKey {
    let new = NewTask { scope, context_id: Some(b"c"), ..new(bits) };
    let reserved = store.reserve(new, now).unwrap();
    let (key, message, none) = (reserved.key(), text_message(1), EventBuf::default());
    store.commit_new(&reserved, Generation::V1, message.view(), &none, now, |_| key).unwrap()
}

fn keep(store: &Store, key: TaskKey, bytes: &[u8]) {
    store.update(key, NOW, |edit| edit.keep(bytes)).unwrap().unwrap();
}

#[test]
fn private_bytes_are_retained_until_the_task_is_evicted() {
    let limits = Limits { task_ttl_ms: 10, ..Limits::default() };
    let store = Store::new(&limits, 7);
    let key = make(&store, 1, TaskState::Working, NOW).unwrap();
    let id = store.read(key, |task| task.id().to_vec()).unwrap();
    keep(&store, key, b"mine");
    let held = |key| store.read(key, |task| task.heap_bytes() as u64).unwrap();
    assert_eq!(store.stats().bytes, held(key) + private_heap_bytes(b"mine") as u64);
    apply(&store, key, &status(TaskState::Completed)).unwrap().unwrap();
    assert_eq!(store.private_bytes_of(AGENT, &id), b"mine");
    assert_eq!(store.stats().bytes, held(key) + private_heap_bytes(b"mine") as u64);
    let other = Scope { owner: OwnerIndex(9), ..AGENT };
    assert_eq!(store.private_bytes_of(other, &id), b"");
    let later = Now { mono_ms: NOW.mono_ms + 11, ..NOW };
    while store.sweep(later) {}
    assert_eq!((store.private_bytes_of(AGENT, &id), store.stats().bytes), (Vec::new(), 0));
}

#[test]
fn new_task_stores_private_bytes_or_fails_for_lack_of_room() {
    let store = Store::new(&Limits { store_bytes_max: 20_000, ..Limits::default() }, 7);
    for (bits, length, expected) in [(1, 10, TaskState::Submitted), (2, 30_000, TaskState::Failed)]
    {
        let reserved = store.reserve(new(bits), NOW).unwrap();
        let (key, mut retained, bytes) = (reserved.key(), reserved.keep(), vec![b'x'; length]);
        retained.keep(bytes.as_slice().into());
        store.reopen(retained, |reserved| {
            let (message, none) = (text_message(9), EventBuf::default());
            store.commit_new(reserved, Generation::V1, message.view(), &none, NOW, |_| ()).unwrap();
        });
        let (id, state, held) = store
            .read(key, |task| (task.id().to_vec(), task.state(), task.heap_bytes() as u64))
            .unwrap();
        assert_eq!(state, expected);
        if expected == TaskState::Submitted {
            assert_eq!(store.stats().bytes, held + private_heap_bytes(&bytes) as u64);
            assert_eq!(store.private_bytes_of(AGENT, &id), bytes);
            apply(&store, key, &status(TaskState::Completed)).unwrap().unwrap();
        }
    }
}

#[test]
fn context_returns_private_bytes_of_its_newest_task_with_any() {
    let store = Store::new(&Limits::default(), 7);
    let other = Scope { owner: OwnerIndex(9), ..AGENT };
    assert_eq!(store.private_bytes_in_context(AGENT, b"c"), b"");
    let keys: Vec<TaskKey> = (1..5).map(|bits| in_context(&store, bits, AGENT, NOW)).collect();
    let of_other = in_context(&store, 9, other, NOW);
    keep(&store, of_other, b"of another");
    assert_eq!(store.private_bytes_in_context(AGENT, b"c"), b"");
    keep(&store, keys[1], b"old");
    keep(&store, keys[2], b"new");
    assert_eq!(store.private_bytes_in_context(AGENT, b"c"), b"new");
    apply(&store, keys[2], &status(TaskState::Completed)).unwrap().unwrap();
    assert_eq!(store.private_bytes_in_context(AGENT, b"c"), b"new");
    assert_eq!(store.private_bytes_in_context(other, b"c"), b"of another");
    assert_eq!(store.private_bytes_in_context(AGENT, b"d"), b"");
}
