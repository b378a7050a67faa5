//! How a stream uses the event numbers with which a server continues after a break.

use peregrine::{
    client::{ClientBuilder, EventKind, SendRequest, StreamEvent},
    model::TaskEvent,
};

use crate::{
    repeats::numbered,
    scripted::*,
    stream_faults::{Over, stream},
};

/// The task that a read returns in addition to the stream: it has the events from before and after
/// the break.
const READ: &str = concat!(
    r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"},"#,
    r#""artifacts":[{"artifactId":"a","parts":[{"text":"one"},{"text":"two"},{"text":"lost"}]}]}"#
);

fn task(number: u64) -> String {
    let task = r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}"#;
    format!("id: {number}\ndata: {{\"task\":{task}}}\n\n")
}

fn text(number: u64, text: &str) -> String {
    let artifact = format!(r#"{{"artifactId":"a","parts":[{{"text":"{text}"}}]}}"#);
    let update = format!(r#"{{"taskId":"t","contextId":"c","artifact":{artifact},"append":true}}"#);
    format!("id: {number}\ndata: {{\"artifactUpdate\":{update}}}\n\n")
}

fn done(number: u64) -> String {
    let status = r#"{"state":"TASK_STATE_COMPLETED"}"#;
    let update = format!(r#"{{"taskId":"t","contextId":"c","status":{status}}}"#);
    format!("id: {number}\ndata: {{\"statusUpdate\":{update}}}\n\n")
}

fn word(event: &StreamEvent<'_>) -> String {
    match event.kind() {
        EventKind::Gap { may_repeat, .. } => format!("gap {may_repeat}"),
        EventKind::Change { change: TaskEvent::Artifact { artifact, .. }, .. } => {
            let texts = artifact.parts().filter_map(|part| Some(part.as_text()?.to_str()));
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => format!("{:?}", event.state().unwrap()).to_lowercase(),
    }
}

/// Reads a stream that breaks after the first events, resumes with the others, and reads the task
/// if need be; returns its words, and the number of requests.
fn resumed(before: &[String], after: &[String]) -> (Vec<String>, usize) {
    let (before, after) = (before.to_vec(), after.to_vec());
    let pieces = |texts: &[String], ends: bool| {
        let mut pieces: Vec<Piece> =
            texts.iter().map(|text| Piece::Bytes(text.clone().into_bytes())).collect();
        pieces.extend((!ends).then_some(Piece::Break));
        pieces
    };
    let client = numbered(Over::Rest, ClientBuilder::new(), move |number, request| match number {
        1 => stream(Over::Rest, request, pieces(&before, false)),
        2 => stream(Over::Rest, request, pieces(&after, true)),
        _ => Reply::json(READ),
    });
    let words = settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        let mut words = Vec::new();
        while let Some(event) = stream.next().await {
            words.push(word(&event.unwrap()));
        }
        words
    });
    let requests = client.transport().requests.lock().unwrap().len();
    (words, requests)
}

#[test]
fn resume_with_next_event_number_continues_without_gap() {
    let before = [task(1), text(2, "one"), text(3, "two")];
    for after in [
        vec![text(4, "three"), done(5)],
        // The last event again.
        vec![text(3, "two"), text(4, "three"), done(5)],
    ] {
        let (words, requests) = resumed(&before, &after);
        assert_eq!(words, ["working", "one", "two", "three", "completed"]);
        assert_eq!(requests, 2);
    }
}

#[test]
fn resume_by_server_with_sparse_numbers_reports_no_gap() {
    let before = [task(10), text(20, "one"), text(35, "two")];
    let (words, requests) = resumed(&before, &[text(50, "three"), done(70)]);
    assert_eq!(words, ["working", "one", "two", "three", "completed"]);
    assert_eq!(requests, 2);
}

#[test]
fn number_jump_only_after_a_break_is_reported_as_gap() {
    let before = [task(1), text(2, "one"), text(3, "two")];
    let (words, requests) = resumed(&before, &[text(9, "three"), done(10)]);
    assert_eq!(words, ["working", "one", "two", "gap true", "lost", "three", "completed"]);
    assert_eq!(requests, 3);
}

#[test]
fn restarted_event_numbers_report_gap_and_read_the_task() {
    let before = [task(1), text(2, "one"), text(3, "two")];
    for first in [0, 1, 2] {
        let after = [text(first, "three"), text(first + 1, "four"), done(first + 2)];
        let (words, requests) = resumed(&before, &after);
        let lost = ["working", "one", "two", "gap true", "lost", "three", "four", "completed"];
        assert_eq!(words, lost, "from {first}");
        assert_eq!(requests, 3);
    }
}

#[test]
fn replay_from_the_task_is_reported_as_repeating_gap() {
    let before = [task(1), text(2, "one"), text(3, "two")];
    let (words, requests) = resumed(&before, &[&before[..], &[done(4)]].concat());
    assert_eq!(words, ["working", "one", "two", "gap true", "one", "two", "completed"]);
    assert_eq!(requests, 2);
}

#[test]
fn restarted_numbers_after_unnumbered_task_report_a_gap() {
    let before = [task(1), text(2, "one"), text(3, "two")];
    let unnumbered = task(0).split_off("id: 0\n".len());
    let (words, requests) = resumed(&before, &[unnumbered, text(1, "three"), done(2)]);
    assert_eq!(words, ["working", "one", "two", "gap true", "three", "completed"]);
    assert_eq!(requests, 2);
}

/// Like a2a-protocol-server 0.15: a subscription begins with the task, without a number, and then
/// sends all events after the requested one, whether or not the task contains them.
#[test]
fn resume_with_unnumbered_task_repeats_no_events() {
    let unnumbered = |task: &str| format!("data: {{\"task\":{task}}}\n\n");
    let message = r#"{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hm"}]}"#;
    let status = &format!(r#"{{"state":"TASK_STATE_WORKING","message":{message}}}"#);
    let update =
        format!(r#"{{"statusUpdate":{{"taskId":"t","contextId":"c","status":{status}}}}}"#);
    let whole = READ.replace(r#"{"state":"TASK_STATE_WORKING"}"#, status);
    let first = task(0).split_off("id: 0\n".len());
    let client = numbered(Over::Rest, ClientBuilder::new(), move |number, request| {
        let mut texts = vec![unnumbered(&whole)];
        if number == 1 {
            texts = vec![first.clone(), text(1, "one")];
        } else if format!("{:?}", request.fields).to_lowercase().contains("last-event-id") {
            texts.extend([text(2, "two"), text(3, "lost")]);
        }
        if number > 1 {
            texts.extend([format!("id: 4\ndata: {update}\n\n"), done(5)]);
        }
        let pieces = texts.into_iter().map(|text| Piece::Bytes(text.into_bytes()));
        let cut = (number == 1).then_some(Piece::Break);
        stream(Over::Rest, request, pieces.chain(cut).collect())
    });
    let words = settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        let mut words = Vec::new();
        while let Some(event) = stream.next().await {
            words.push(word(&event.unwrap()));
        }
        words
    });
    assert_eq!(words, ["working", "one", "gap false", "two lost", "working", "completed"]);
}

#[test]
fn repeated_events_without_progress_back_off() {
    let all = [text(1, "one"), text(2, "two")];
    let pieces = move || {
        let texts = all.iter().map(|text| Piece::Bytes(text.clone().into_bytes()));
        texts.chain([Piece::Break]).collect::<Vec<_>>()
    };
    let client = numbered(Over::Rest, ClientBuilder::new(), move |number, request| {
        if request.target.contains("stream") || request.target.contains("subscribe") {
            assert!(number < 100, "asked again and again");
            return stream(Over::Rest, request, pieces());
        }
        Reply::json(&READ.replace("WORKING", if number < 60 { "WORKING" } else { "COMPLETED" }))
    });
    settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        while let Some(event) = stream.next().await {
            event.unwrap();
        }
    });
    let requests = client.transport().requests.lock().unwrap();
    let subscribed = requests.iter().filter(|request| format!("{request:?}").contains("subscribe"));
    assert!(subscribed.count() <= 9);
}
