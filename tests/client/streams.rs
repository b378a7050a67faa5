//! Streams, and how they resume after a break.

use std::{future::poll_fn, pin::pin, task::Poll};

use peregrine::{
    client::{
        Binding, ClientBuilder, ClientStream, EventKind, ProtocolVersion, SendRequest, StreamEvent,
    },
    model::{TaskEvent, TaskState},
};

use crate::{
    in_process::{InProcess, Mischief},
    operations::{client, run},
};

/// All events of a stream, each as a word; a gap as `gap`.
async fn words(stream: &mut ClientStream<InProcess>) -> Vec<String> {
    let mut words = Vec::new();
    while let Some(event) = stream.next().await {
        words.push(word(&event.unwrap()));
        assert!(words.len() < 1_000, "{words:?}");
    }
    words
}

fn word(event: &StreamEvent<'_>) -> String {
    match event.kind() {
        EventKind::Task(view) => format!("task {:?}", view.status().state),
        EventKind::Message(message) => format!("message {}", message.text()),
        EventKind::Change { change: TaskEvent::Status { state, .. }, .. } => {
            format!("{state:?}")
        }
        EventKind::Change { change: TaskEvent::Artifact { artifact, .. }, .. } => {
            let texts = artifact.parts().map(|part| part.as_text().unwrap().to_str());
            texts.collect::<Vec<_>>().concat()
        }
        EventKind::Change { change: TaskEvent::UserMessage { .. }, .. } => "user".to_owned(),
        EventKind::Gap { may_repeat, .. } => format!("gap {may_repeat}"),
    }
}

/// The same, for a reader that drops `next` after 0 to 11 polls and then waits again.
async fn words_of_the_impatient(stream: &mut ClientStream<InProcess>, seed: u32) -> Vec<String> {
    let (mut words, mut patience) = (Vec::new(), seed);
    for _ in 0..10_000 {
        patience = patience.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut remaining = (patience >> 16) % 12;
        let mut next = pin!(stream.next());
        let waited = poll_fn(|cx| match next.as_mut().poll(cx) {
            Poll::Ready(event) => Poll::Ready(Some(event.map(|event| word(&event.unwrap())))),
            Poll::Pending if remaining == 0 => Poll::Ready(None),
            Poll::Pending => {
                remaining -= 1;
                Poll::Pending
            }
        });
        match waited.await {
            Some(Some(word)) => words.push(word),
            Some(None) => return words,
            None => {}
        }
    }
    panic!("it goes on for ever: {words:?}");
}

fn builder(binding: Binding, version: &str) -> ClientBuilder {
    let version = ProtocolVersion::parse(version).unwrap();
    ClientBuilder::new().transports([binding]).version(version)
}

/// Texts of artifacts alone, as one.
fn content(words: &[String]) -> String {
    let is_content = |word: &&String| word.starts_with(|c: char| c.is_ascii_digit());
    words.iter().filter(is_content).map(String::as_str).collect()
}

#[test]
fn stream_delivers_events_in_order() {
    run(async {
        let client = client(ClientBuilder::new()).await;
        let mut stream = client.stream(&SendRequest::text("stream:5")).await.unwrap();
        let words = words(&mut stream).await;
        assert_eq!(words.first().map(String::as_str), Some("task Submitted"), "{words:?}");
        assert_eq!(words.last().map(String::as_str), Some("Completed"), "{words:?}");
        assert_eq!(words.len(), 6, "{words:?}");
        assert_eq!(stream.state(), Some(TaskState::Completed));
        assert!(stream.next().await.is_none());
    });
}

#[test]
fn a_direct_message_is_the_only_event_of_its_stream() {
    run(async {
        let client = client(ClientBuilder::new()).await;
        let mut stream = client.stream(&SendRequest::text("ping")).await.unwrap();
        assert_eq!(words(&mut stream).await, ["message pong"]);
    });
}

/// Wherever a numbered stream is cut, its reader gets the same events as without the cut.
#[test]
fn numbered_stream_cut_anywhere_delivers_the_same_events() {
    for (binding, version) in
        [(Binding::JsonRpc, "1.0"), (Binding::HttpJson, "1.0"), (Binding::JsonRpc, "0.3")]
    {
        run(async {
            let client = client(builder(binding, version)).await;
            let request = SendRequest::text("stream:6");
            let whole = words(&mut client.stream(&request).await.unwrap()).await;
            let mut resumed = 0;
            for cut in (1..3_000).step_by(7) {
                client.transport().mischief.lock().unwrap().cuts = vec![cut];
                let mut stream = client.stream(&request).await.unwrap();
                let mut seen = Vec::new();
                match stream.next().await.unwrap() {
                    Ok(_) => seen.push(whole[0].clone()),
                    // It broke before it sent its task.
                    Err(error) => {
                        assert!(cut < 800, "{cut}: {error}");
                        continue;
                    }
                }
                seen.extend(words(&mut stream).await);
                assert_eq!(seen, whole, "{binding:?} {version} cut after {cut} bytes");
                resumed += 1;
            }
            assert!(resumed > 100);
        });
    }
}

/// Without numbers, missed events are read from the task, and a gap marks them.
#[test]
fn cut_unnumbered_stream_neither_loses_nor_repeats_content() {
    run(async {
        let client = client(ClientBuilder::new()).await;
        client.transport().mischief.lock().unwrap().without_numbers = true;
        let request = SendRequest::text("stream:6");
        let whole = words(&mut client.stream(&request).await.unwrap()).await;
        let mut gaps = 0;
        for cut in (400..3_000).step_by(7) {
            client.transport().mischief.lock().unwrap().cuts = vec![cut];
            let mut stream = client.stream(&request).await.unwrap();
            let Some(Ok(_)) = stream.next().await else { continue };
            let seen = words(&mut stream).await;
            assert_eq!(content(&seen), content(&whole), "cut after {cut} bytes: {seen:?}");
            assert_eq!(seen.last(), whole.last(), "cut after {cut} bytes: {seen:?}");
            gaps += seen.iter().filter(|word| word.as_str() == "gap false").count();
        }
        assert!(gaps > 50, "{gaps}");
    });
}

/// A reader that drops `next` at any point, even during a resumption, misses nothing.
#[test]
fn dropping_next_at_any_point_loses_no_content() {
    for without_numbers in [false, true] {
        run(async {
            let client = client(ClientBuilder::new()).await;
            client.transport().mischief.lock().unwrap().without_numbers = without_numbers;
            let request = SendRequest::text("stream:6");
            let whole = words(&mut client.stream(&request).await.unwrap()).await;
            for cut in (800..2_500).step_by(7) {
                *client.transport().mischief.lock().unwrap() =
                    Mischief { cuts: vec![cut], without_numbers, ..Mischief::default() };
                let mut stream = client.stream(&request).await.unwrap();
                let first = stream.next().await;
                let mut seen = vec![word(&first.unwrap().unwrap())];
                client.transport().mischief.lock().unwrap().is_slow = true;
                seen.extend(words_of_the_impatient(&mut stream, cut as u32).await);
                let tasks = seen.iter().filter(|word| word.starts_with("task")).count();
                assert_eq!(tasks, 1, "cut after {cut} bytes: {seen:?}");
                assert_eq!(content(&seen), content(&whole), "cut after {cut} bytes: {seen:?}");
                assert_eq!(seen.last(), whole.last(), "cut after {cut} bytes: {seen:?}");
            }
        });
    }
}

/// The reader does not wait for the end of the stream once its task has ended.
#[test]
fn client_stream_ends_with_task_if_server_keeps_it_open() {
    run(async {
        let client = client(ClientBuilder::new()).await;
        client.transport().mischief.lock().unwrap().without_end = true;
        let mut stream = client.stream(&SendRequest::text("stream:3")).await.unwrap();
        assert_eq!(words(&mut stream).await.last().map(String::as_str), Some("Completed"));
    });
}
