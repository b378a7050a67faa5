//! Events of a stream are read the same whatever was read before them.
//!
//! What brings a piece of text is read by what it shares with the event before it. So the same
//! bytes are given to one reader that has read others, and to one that has read nothing.

use peregrine::{
    client::{Binding, Format, FormatBuffers, format::push_json},
    model::{Generation, Op, Received},
};
use proptest::prelude::*;

/// Events with places for texts, `@`: what the families say, and what nobody should.
const EVENTS: [&str; 12] = [
    // 1.0, as our server writes it and with all members.
    r#"{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"@"}]},"append":true}}"#,
    r#" {"artifact_update" : {"task_id":"t", "append":false, "lastChunk":true, "metadata":{"x":"@"},
        "artifact":{"name":"n","parts":[{"metadata":{"y":1},"text":"@","mediaType":"text/plain"}],
        "extensions":["e"],"artifactId":"a","metadata":{"z":[]}}}} "#,
    // 0.3, Rabbit Hole's shape, 0.1.
    r#"{"kind":"artifact-update","taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"@"}]},"append":true,"lastChunk":false}"#,
    r#"{"kind":"artifact-update","taskId":"t","artifact":{"artifactId":"@","parts":[{"type":"text","text":"@"}]}}"#,
    r#"{"id":"t","artifact":{"index":0,"append":true,"parts":[{"type":"text","text":"@"}]},"final":false}"#,
    r#"{"id":"t","artifact":{"parts":[{"type":"text","text":"@"},{"type":"data","data":{"text":"@"}}]}}"#,
    // Members that repeat: the last one counts.
    r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"@","text":"@"}]}}}"#,
    r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"@"}],"parts":[{"text":"b"}]}}}"#,
    // Texts that are none of an artifact, and an artifact without any.
    r#"{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_WORKING","message":{"messageId":"@","role":"ROLE_AGENT","parts":[{"text":"@"}]}},"final":true}}"#,
    r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"@"}]}}"#,
    r#"{"artifactUpdate":{"taskId":"@","artifact":{"artifactId":"a","parts":[{"data":"@"}]}}}"#,
    r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"@"},{"text":"@"}]},"unknown":"@"}}"#,
];

/// Speaking in which an event is read, and the id of its call.
fn spoken(choice: usize) -> (Format, u64) {
    let binding = [Binding::JsonRpc, Binding::HttpJson, Binding::WebSocket][choice % 3];
    let generation = [Generation::V1, Generation::V03, Generation::V01][choice / 3 % 3];
    let format = match choice / 9 % 3 {
        0 => Format::of_dialect(binding, generation, "langsmith"),
        _ => None,
    };
    (format.unwrap_or_else(|| Format::standard(binding, generation)), 7 + (choice / 27 % 2) as u64)
}

/// One event on its way.
#[derive(Clone, Debug)]
struct Sent {
    choice: usize,
    data: Vec<u8>,
    is_error: bool,
}

fn sent(event: usize, texts: &[Vec<u8>], choice: usize) -> Sent {
    let (format, id) = spoken(choice);
    let mut texts = texts.iter().cycle();
    let mut data = Vec::new();
    for piece in EVENTS[event % EVENTS.len()].split_inclusive('@') {
        match piece.strip_suffix('@') {
            Some(before) => {
                data.extend_from_slice(before.as_bytes());
                data.extend_from_slice(texts.next().map_or(&b""[..], |text| text));
            }
            None => data.extend_from_slice(piece.as_bytes()),
        }
    }
    if format.binding() != Binding::HttpJson {
        let envelope = format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":"#);
        data = [envelope.as_bytes(), &data, b"}"].concat();
    }
    Sent { choice, data, is_error: false }
}

/// All that can be seen of what was read.
fn seen(read: Result<(), impl ToString>, received: &Received) -> String {
    let mut json = Vec::new();
    if let Err(error) = read {
        return error.to_string();
    }
    push_json(&mut json, received, Op::Stream);
    let chunk = received.artifact_update().map(|update| (update.append, update.last_chunk));
    let is_final = received.status_update().map(|update| update.is_final);
    let (kind, span) = (received.kind(), received.span());
    let ids = (received.task_id(), received.context_id(), received.page().is_some());
    format!("{kind:?} {span:?} {chunk:?} {is_final:?} {ids:?} {}", json.escape_ascii())
}

fn all_are_read_as_if_alone(stream: &[Sent]) {
    let (mut kept, mut received) = (FormatBuffers::default(), Received::new());
    for Sent { choice, data, is_error } in stream {
        let (format, id) = spoken(*choice);
        let read = format.read_item(&mut kept, id, data, *is_error, &mut received);
        let (mut alone, mut fresh) = (FormatBuffers::default(), Received::new());
        let expected = format.read_item(&mut alone, id, data, *is_error, &mut fresh);
        let expected = seen(expected, &fresh);
        assert_eq!(seen(read, &received), expected, "{}", data.escape_ascii());
    }
}

/// What may stand between quotes, and what may not.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        &b"a"[..],
        b"t",
        b"text",
        b"word ",
        b"\\n",
        b"\\\"",
        b"\\\\",
        b"\\u00e9",
        b"\\ud83d\\ude00",
        "\u{e9}".as_bytes(),
        "\u{1f600}".as_bytes(),
        b"{}[],:",
        // What is no text.
        b"\"",
        b"\\",
        b"\\x",
        b"\\ud83d",
        b"\n",
        b"\0",
        b"\xff",
        b"\xe2\x82",
        b"\",\"text\":\"b",
        b"\"}],\"parts\":[{\"text\":\"b",
    ]);
    let pieces = prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat());
    prop_oneof![3 => "[a-z {}:,]{0,40}".prop_map(String::into_bytes), 2 => pieces]
}

prop_compose! {
    /// A stream that says mostly the same, and now and then something else.
    fn stream()(
        event in 0..EVENTS.len(),
        choice in 0..54_usize,
        turns in prop::collection::vec(
            (prop::collection::vec(text(), 1..3), 0..20_usize, 0..54_usize, any::<u16>()),
            1..12,
        ),
    ) -> Vec<Sent> {
        let one = |(texts, odd, other, at): (Vec<Vec<u8>>, usize, usize, u16)| {
            let mut one = match odd {
                0 => sent(other, &texts, choice),
                1 => sent(event, &texts, other),
                _ => sent(event, &texts, choice),
            };
            let at = usize::from(at) % one.data.len();
            match odd {
                2 => one.data.truncate(at),
                3 => one.data[at] ^= 1 << (other % 8),
                4 => one.data.insert(at, b' '),
                5 => one.is_error = true,
                _ => {}
            }
            one
        };
        turns.into_iter().map(one).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn an_event_is_read_the_same_after_any_other(stream in stream()) {
        all_are_read_as_if_alone(&stream);
    }
}

#[test]
fn each_event_is_read_the_same_after_each_other() {
    let texts = [&b"word"[..], b"", b"a", b"text", b"\\\"x\\u00e9", b"\"", b"\\", b"{\xc3\xa9}"];
    for choice in [0, 1, 3, 4, 6] {
        for event in 0..EVENTS.len() {
            let one = |text: &&[u8]| sent(event, &[text.to_vec(), b"other".to_vec()], choice);
            let stream: Vec<Sent> = texts.iter().chain(&texts).map(one).collect();
            all_are_read_as_if_alone(&stream);
        }
    }
}
