//! Tests of finished tasks that a watcher needs.

use super::*;
use crate::{
    shares::Holder,
    watch::{Changes, TaskWatch},
};

const HOUR: u64 = 60 * 60 * 1_000;

fn limits(tasks_max: usize) -> Limits {
    Limits { tasks_max, task_ttl_ms: HOUR, ..Limits::default() }
}

/// Watches a task, which makes it needed.
fn watched(store: &Store, key: TaskKey) -> Arc<TaskWatch> {
    let watch = Arc::new(TaskWatch::new(
        key.handle().key,
        b"t",
        Holder::default(),
        &Arc::new(Changes::default()),
    ));
    assert!(store.watch(key, Arc::clone(&watch)).is_some());
    watch.set_needed(true);
    watch
}

fn sweep(store: &Store, ms: u64) {
    while store.sweep(at(ms)) {}
}

#[test]
fn needed_task_is_evicted_soon_after_it_is_released() {
    let store = Store::new(&limits(1_000), 7);
    let mut tasks = Vec::new();
    for bits in 0..200 {
        let key = make(&store, bits, TaskState::Completed, at(1_000 + bits as u64)).unwrap();
        tasks.push((key, watched(&store, key)));
    }
    tasks[1].1.set_needed(false);
    sweep(&store, 2 * HOUR);
    sweep(&store, 3 * HOUR);
    let is_evicted = |store: &Store, at: usize| state(store, tasks[at].0).is_none();
    assert_eq!((0..200).filter(|task| is_evicted(&store, *task)).collect::<Vec<_>>(), [1]);
    assert_eq!((tasks[1].1.left(), tasks[0].1.left()), (Some(2), None));
    for task in [0, 7, 199] {
        tasks[task].1.set_needed(false);
    }
    // Each sweep examines at most 64 spared tasks of a shard.
    for second in 0..200 / 64 + 1 {
        sweep(&store, 3 * HOUR + second);
    }
    assert_eq!(
        (0..200).filter(|task| is_evicted(&store, *task)).collect::<Vec<_>>(),
        [0, 1, 7, 199]
    );
    assert_eq!(store.stats().tasks, 196);
}

#[test]
fn needed_task_is_evicted_for_room_if_it_is_the_oldest() {
    let store = Store::new(&limits(2), 7);
    let first = make(&store, 1, TaskState::Completed, at(1_000)).unwrap();
    let watch = watched(&store, first);
    sweep(&store, 2 * HOUR);
    assert!(state(&store, first).is_some());
    let second = make(&store, 2, TaskState::Completed, at(2 * HOUR)).unwrap();
    make(&store, 3, TaskState::Working, at(2 * HOUR + 1)).unwrap();
    assert!(state(&store, first).is_none() && state(&store, second).is_some());
    assert_eq!(watch.left(), Some(2));
}

#[test]
fn ended_watch_does_not_replace_a_newer_watch() {
    let store = Store::new(&limits(10), 7);
    let key = make(&store, 1, TaskState::Working, at(1_000)).unwrap();
    let changes = Arc::new(Changes::default());
    let [early, late] = [(); 2]
        .map(|()| Arc::new(TaskWatch::new(key.handle().key, b"t", Holder::default(), &changes)));
    // The webhook of the first watch was deleted and the second watch set, before the first call
    // continued.
    early.end();
    store.watch(key, Arc::clone(&late));
    store.watch(key, early);
    apply(&store, key, &status(TaskState::Completed));
    assert_eq!(changes.noted(), 1);
}

#[test]
fn watch_tracks_the_sequence_number_of_its_task() {
    let store = Store::new(&limits(10), 7);
    let key = make(&store, 1, TaskState::Submitted, at(1_000)).unwrap();
    let watch = watched(&store, key);
    for state in [TaskState::Working, TaskState::InputRequired, TaskState::Completed] {
        let seq = apply(&store, key, &status(state)).unwrap().unwrap();
        assert_eq!((watch.seq(), watch.left()), (seq, None));
    }
}
