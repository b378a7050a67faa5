//! Lines of agents in any language: any bytes are an event or are refused.

use peregrine::{
    gateway::lines::{EventLine, LineEvent, TurnLine},
    model::{MessageBuf, RawText},
};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};
use serde_json::Value;

/// A line is read without a panic. Its message is written to an agent as one line of JSON that
/// reads as the same message. An invalid event has a printable error.
pub fn message_round_trips_through_a_turn_line(bytes: &[u8]) {
    let Ok(EventLine { turn, event }) = EventLine::read(bytes) else { return };
    let message = match event {
        Ok(LineEvent::Message(message) | LineEvent::Status { message: Some(message), .. }) => {
            message
        }
        Ok(LineEvent::Status { message: None, .. } | LineEvent::Artifact { .. }) => return,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let line = turn_line(turn, &message);
    let text = line.strip_suffix("\n").expect("the end of the line");
    assert!(!text.contains(['\n', '\r']), "{text}");
    // Numbers out of range are JSON as well, and serde_json refuses them.
    let Ok(read) = serde_json::from_str::<Value>(text) else { return };
    assert_eq!(read["turn"], turn.to_string());
    if bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return;
    }
    let (_, of_message) = text.split_once(",\"message\":").expect("a message");
    let again = format!("{{\"turn\":{turn},\"message\":{of_message}");
    match EventLine::read(again.as_bytes()).expect("a line").event.expect("an event") {
        LineEvent::Message(again) => assert_eq!(again.view().packed(), message.view().packed()),
        LineEvent::Status { .. } | LineEvent::Artifact { .. } => panic!("not a message"),
    }
}

fn turn_line(turn: u64, message: &MessageBuf) -> String {
    let mut line = Vec::new();
    TurnLine {
        turn,
        task_id: RawText::default(),
        context_id: RawText::default(),
        state: None,
        message: message.view(),
        metadata: None,
        caller: None,
        tenant: None,
        deadline_unix_ms: None,
        history: b"",
    }
    .write(&mut line);
    String::from_utf8(line).expect("UTF-8")
}

#[test]
fn each_message_form_round_trips_through_a_turn() {
    for message in [
        r#""a\u00e9\n""#,
        r#"{"text":"","metadata":{"a": 1}}"#,
        r#"{"parts":[{"text":"a","metadata":{}},{"data": [1.50] },{"raw":"aGk"}]}"#,
        r#"{"parts":[{"url":"https://a.example","filename":"\ud83d\ude00","mediaType":"a/b"}]}"#,
    ] {
        for state in ["", r#","status":"working""#] {
            let line = format!(r#"{{"turn":"1","message":{message}{state}}}"#);
            assert!(EventLine::read(line.as_bytes()).unwrap().event.is_ok(), "{line}");
            message_round_trips_through_a_turn_line(line.as_bytes());
        }
    }
}

const LINES: &[&str] = &[
    r#"{"turn":"1","message":"a\u00e9\n"}"#,
    r#"{"turn":1,"status":"working","message":{"text":"a","metadata":{"a": 1}}}"#,
    r#"{"turn":1,"message":{"parts":[{"text":"a"},{"data": [1.50e9] },{"raw":"aGk="}]}}"#,
    r#"{"turn":1,"artifact":{"artifactId":"a","parts":[{"url":"b"}]},"append":true}"#,
];

proptest! {
    #[test]
    fn damaged_lines_are_read_or_refused(
        line in 0..LINES.len(),
        edits in vec((any::<Index>(), prop_oneof![any::<u8>(), select(b"\"\\{}[]:,0u".to_vec())]), 1..4),
    ) {
        let mut bytes = LINES[line].as_bytes().to_vec();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        message_round_trips_through_a_turn_line(&bytes);
    }
}
