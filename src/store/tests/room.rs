//! Tests of bytes and limits: a change beyond them is refused, or fails the task.

use super::*;

#[test]
fn store_bytes_stay_within_the_limit() {
    let limits = Limits { store_bytes_max: 20_000, ..Limits::default() };
    let store = Store::new(&limits, 7);
    let (message, artifact) = (text_message(2_000), PartsBuf::new().text(&"y".repeat(1_500)));
    let artifact = ArtifactBuf::new("a", &artifact);
    let grow = TaskEvent::Artifact {
        artifact: artifact.view(),
        append: true,
        last_chunk: false,
        metadata: None,
    };
    let ended = make(&store, 1, TaskState::Completed, NOW).unwrap();
    let mut running = Vec::new();
    let full = loop {
        let reserved = store.reserve(new(running.len() as u128), NOW).unwrap();
        let (key, none) = (reserved.key(), EventBuf::default());
        match store.commit_new(&reserved, Generation::V1, message.view(), &none, NOW, |_| key) {
            Ok(key) => running.push(key),
            Err(refused) => break refused,
        }
        assert!(store.stats().bytes <= 20_000);
    };
    assert_eq!((full, state(&store, ended)), (Refused::OutOfBytes, None));
    assert_eq!(store.stats().tasks, running.len() as u64);
    // A running task that cannot grow fails; then it can be evicted for the others.
    assert_eq!(apply(&store, running[0], &grow), Some(Err(Refused::OutOfBytes)));
    assert_eq!(state(&store, running[0]), Some(TaskState::Failed));
    assert!(store.stats().bytes <= 20_000);
    assert_eq!(apply(&store, running[1], &grow), Some(Ok(2)));
    assert_eq!(state(&store, running[0]), None);
    assert_eq!(store.stats().evicted, [0, 0, 2, 0]);
    assert!(store.stats().bytes <= 20_000);
}

#[test]
fn event_beyond_a_limit_fails_its_task_with_a_message() {
    for (bytes, artifacts) in [(600, 9), (4_000, 1)] {
        let limits =
            Limits { task_bytes_max: bytes, artifacts_max: artifacts, ..Limits::default() };
        let store = Store::new(&limits, 7);
        let key = make(&store, 1, TaskState::Working, NOW).unwrap();
        let refused = (0..100).find_map(|round| {
            let artifact = ArtifactBuf::new(&round.to_string(), &PartsBuf::new().text("y"));
            let event = TaskEvent::Artifact {
                artifact: artifact.view(),
                append: false,
                last_chunk: true,
                metadata: None,
            };
            apply(&store, key, &event).unwrap().err()
        });
        assert_eq!(refused, Some(Refused::TooLarge));
        let words = store.read(key, |task| task.view().status().message.map(|m| m.text()));
        assert!(words.unwrap().unwrap().contains("limit"));
        let closed = apply(&store, key, &status(TaskState::Working));
        assert_eq!(closed, Some(Err(Refused::Terminal)));
    }
}

#[test]
fn final_status_messages_fit_the_reserved_bytes() {
    let store = Store::new(&Limits::default(), 7);
    for words in &store.final_messages {
        let event = TaskEvent::Status {
            state: TaskState::Failed,
            at_ms: 0,
            message: Some(words.view()),
            metadata: None,
        };
        assert!(Task::cost(&event) <= FINAL_STATUS_BYTES, "{}", Task::cost(&event));
    }
}

#[test]
fn too_large_message_creates_no_task_and_changes_none() {
    let limits = Limits { task_bytes_max: 1_000, ..Limits::default() };
    let store = Store::new(&limits, 7);
    let (large, none) = (text_message(1_000), EventBuf::default());
    let reserved = store.reserve(new(1), NOW).unwrap();
    let made = store.commit_new(&reserved, Generation::V1, large.view(), &none, NOW, |_| ());
    drop(reserved);
    assert_eq!(made, Err(Refused::TooLarge));
    assert_eq!(store.stats(), Stats::default());
    let key = make(&store, 1, TaskState::InputRequired, NOW).unwrap();
    let turn = store.update(key, NOW, |edit| edit.user_message(large.view(), None));
    assert_eq!(turn, Some(Err(Refused::TooLarge)));
    assert_eq!(state(&store, key), Some(TaskState::InputRequired));
}
