//! Answers and events are parsed the same after any earlier ones.
//!
//! A reader caches an answer and compares the next one with it, which may differ in some texts
//! only. So the same bytes are passed to a reader with earlier answers, and to a fresh one.

use peregrine::{
    client::{
        Binding, Format, FormatBuffers,
        format::{CallError, CallId, ReplyHead, push_json},
    },
    model::{Generation, Op, Received},
};
use proptest::prelude::*;

/// Events with `@` for texts: valid ones of each family, and invalid ones.
const EVENTS: [&str; 18] = [
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
    // Each of another task, by any text, with the task's first and last state.
    r#"{"artifactUpdate":{"taskId":"~","contextId":"@","artifact":{"artifactId":"a","parts":[{"text":"@"}]},"append":true}}"#,
    r#"{"kind":"artifact-update","artifact":{"parts":[{"text":"@","kind":"text"}],"artifactId":"@"},"contextId":"c","taskId":"~"}"#,
    r#"{"id":"~","artifact":{"index":0,"append":true,"parts":[{"type":"text","text":"@"}]},"final":false}"#,
    r#"{"task":{"id":"~","contextId":"c","status":{"state":"TASK_STATE_SUBMITTED","timestamp":"^"},"history":[{"messageId":"@","role":"ROLE_USER","taskId":"~","parts":[{"text":"@"}]}]}}"#,
    r#"{"statusUpdate":{"taskId":"~","contextId":"c","status":{"state":"TASK_STATE_WORKING","timestamp":"^"}}}"#,
    r#"{"taskId":"~","kind":"status-update","status":{"state":"completed","timestamp":"^","message":{"messageId":"@","role":"agent","timestamp":"^","parts":[{"kind":"text","text":"@"}]}},"final":true}"#,
    // Repeated members: the last one counts.
    r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"@","text":"@"}]}}}"#,
    r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"@"}],"parts":[{"text":"b"}]}}}"#,
    // Texts outside of artifacts, and an artifact without text.
    r#"{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_WORKING","message":{"messageId":"@","role":"ROLE_AGENT","parts":[{"text":"@"}]}},"final":true}}"#,
    r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"@"}]}}"#,
    r#"{"artifactUpdate":{"taskId":"@","artifact":{"artifactId":"a","parts":[{"data":"@"}]}}}"#,
    r#"{"artifactUpdate":{"taskId":"t","artifact":{"artifactId":"a","parts":[{"text":"@"},{"text":"@"}]},"unknown":"@"}}"#,
];

/// Answers to calls, in the same way; `~` is another text, `^` a time.
const ANSWERS: [&str; 14] = [
    // A task as our server writes it, and one with all members of a task.
    r#"{"task":{"id":"@","contextId":"~","status":{"state":"TASK_STATE_COMPLETED","timestamp":"^"},"artifacts":[{"artifactId":"echo","parts":[{"text":"@"}]}],"history":[{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"@"}]}]}}"#,
    r#"{"id":"@","contextId":"~","status":{"state":"completed","message":{"messageId":"@","role":"agent","taskId":"@","contextId":"~","parts":[{"kind":"text","text":"@"}]},"timestamp":"^"},
      "artifacts":[{"artifactId":"a","name":"@","description":"~","parts":[{"kind":"text","text":"@","metadata":{"text":"~"}},{"kind":"file","file":{"uri":"@","name":"~","mimeType":"@"}}],"extensions":["@"]},
        {"artifactId":"b","parts":[{"kind":"data","data":{"id":"@","text":"~"}}],"metadata":{"name":"@"}}],
      "history":[{"messageId":"@","role":"user","parts":[{"kind":"text","text":"~"}],"referenceTaskIds":["@"]}],"kind":"task"}"#,
    // Two artifacts with possibly one id; an escaped id; two times.
    r#"{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING","timestamp":"^"},"artifacts":[{"artifactId":"@","parts":[{"text":"~"}]},{"artifactId":"~","parts":[{"text":"@"}]}]}}"#,
    r#"{"task":{"id":"\u0061bc","contextId":"@","status":{"state":"TASK_STATE_WORKING"}}}"#,
    r#"{"task":{"id":"\u0061bc","contextId":"abc","status":{"state":"TASK_STATE_WORKING","timestamp":"^"},"history":[{"messageId":"@","role":"ROLE_USER","parts":[{"te\u0078t":"@"}],"timestamp":"^"}]}}"#,
    r#"{"id":"t","taskId":"@","status":{"state":"~","timestamp":"^"},"history":[{"messageId":"@","role":"@","parts":[{"text":"~"}]}]}"#,
    // Ambiguous and repeated members, ids by another name.
    r#"{"task":{"id":"@","id":"~","taskId":"@","status":{"state":"TASK_STATE_WORKING","state":"TASK_STATE_FAILED","timestamp":"^"}}}"#,
    r#"{"taskId":"@","sessionId":"~","status":{"state":"completed","timestamp":"^"},"metadata":{"id":"@"}}"#,
    // 0.1: artifacts are identified by their index.
    r#"{"id":"@","sessionId":"~","status":{"state":"completed","timestamp":"^"},"artifacts":[{"index":7,"parts":[{"type":"text","text":"@"}]}]}"#,
    r#"{"id":"0","status":{"state":"completed"},"artifacts":[{"parts":[{"type":"text","text":"@"}]}],"history":[{"role":"user","parts":[{"type":"text","text":"0"}]}]}"#,
    // Messages.
    r#"{"message":{"messageId":"@","contextId":"~","taskId":"@","role":"ROLE_AGENT","parts":[{"text":"~","filename":"@","mediaType":"~"},{"url":"@"},{"raw":"@"}],"metadata":{"text":"@"},"extensions":["~"]}}"#,
    r#"{"kind":"message","messageId":"@","role":"agent","parts":[{"kind":"text","text":"~"}],"unknown":"@","name":"~"}"#,
    r#"{"kind":"@","messageId":"@","role":"agent","parts":[{"kind":"text","text":"~"}]}"#,
    r#"{"task":{"id":"@","status":{"state":"TASK_STATE_WORKING","timestamp":"~"}}}"#,
];

/// The format in which an event is read, and the id of its call.
fn format_and_id(choice: usize) -> (Format, u64) {
    let binding = [Binding::JsonRpc, Binding::HttpJson, Binding::WebSocket][choice % 3];
    let generation = [Generation::V1, Generation::V03, Generation::V01][choice / 3 % 3];
    let format = match choice / 9 % 3 {
        0 => Format::of_dialect(binding, generation, "langsmith"),
        _ => None,
    };
    (format.unwrap_or_else(|| Format::standard(binding, generation)), 7 + (choice / 27 % 2) as u64)
}

/// A server's answer: an item of a stream, or the answer to an operation.
#[derive(Clone, Debug)]
struct Sent {
    choice: usize,
    op: Option<Op>,
    data: Vec<u8>,
    /// The event is named `error`, or the status is not a success.
    is_error: bool,
}

/// A template with its texts and a time filled in.
fn sent(template: usize, texts: &[Vec<u8>], time: &str, choice: usize) -> Sent {
    let (format, id) = format_and_id(choice);
    let (op, template) = match template % (EVENTS.len() + ANSWERS.len()) {
        event if event < EVENTS.len() => (None, EVENTS[event]),
        answer => (
            Some([Op::Send, Op::Get, Op::Send, Op::Cancel][choice / 3 % 4]),
            ANSWERS[answer - EVENTS.len()],
        ),
    };
    let mut cycled = texts.iter().cycle();
    let mut data = Vec::new();
    for piece in template.split_inclusive(['@', '~', '^']) {
        let (before, marker) = piece.split_at(piece.len() - 1);
        data.extend_from_slice(before.as_bytes());
        match (marker, op) {
            ("@", None) => data.extend_from_slice(cycled.next().map_or(&b""[..], |text| text)),
            ("@", Some(_)) => data.extend_from_slice(&texts[0]),
            ("~", _) => data.extend_from_slice(&texts[texts.len() - 1]),
            ("^", _) => data.extend_from_slice(time.as_bytes()),
            (last, _) => data.extend_from_slice(last.as_bytes()),
        }
    }
    if format.binding() != Binding::HttpJson {
        let envelope = format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":"#);
        data = [envelope.as_bytes(), &data, b"}"].concat();
    }
    Sent { choice, op, data, is_error: false }
}

impl Sent {
    fn read(&self, buffers: &mut FormatBuffers, received: &mut Received) -> Result<(), CallError> {
        let (format, id) = format_and_id(self.choice);
        let Some(op) = self.op else {
            return format.read_item(buffers, id, &self.data, self.is_error, received);
        };
        let status = if self.is_error { 400 } else { 200 };
        let head = ReplyHead { status, content_type: Some(b"application/json") };
        format.read_reply(buffers, CallId { op, rpc_id: id }, head, &self.data, received)
    }
}

/// All observable results of a read.
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

fn assert_same_as_read_alone(stream: &[Sent]) {
    let (mut reused, mut received) = (FormatBuffers::default(), Received::new());
    for sent in stream {
        let read = sent.read(&mut reused, &mut received);
        let (mut alone, mut fresh) = (FormatBuffers::default(), Received::new());
        let expected = sent.read(&mut alone, &mut fresh);
        let expected = seen(expected, &fresh);
        assert_eq!(seen(read, &received), expected, "{}", sent.data.escape_ascii());
    }
}

/// Any document, then the same one with another text between two of its quotes. The first bytes
/// choose the format, the operation, the position, and the length of the other text, which follows.
pub fn answer_parses_the_same_after_another(bytes: &[u8]) {
    let Some(([choice, op, position, len], rest)) = bytes.split_first_chunk() else { return };
    let (text, document) = rest.split_at(usize::from(*len).min(rest.len()));
    let mut pieces: Vec<&[u8]> = document.split(|byte| *byte == b'"').collect();
    let first = pieces.join(&b'"');
    let at = usize::from(*position) % pieces.len();
    pieces[at] = text;
    let op = [None, Some(Op::Send), Some(Op::Get)][usize::from(*op) % 3];
    let sent = |data| Sent { choice: usize::from(*choice), op, data, is_error: false };
    assert_same_as_read_alone(&[sent(first.clone()), sent(pieces.join(&b'"')), sent(first)]);
}

/// Texts that are valid between quotes, and texts that are not.
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
        // Invalid texts.
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

/// The time of a status: the same most often, and sometimes an invalid one.
fn time() -> impl Strategy<Value = &'static str> {
    let times = [
        "2026-11-23T20:14:53.026Z",
        "2026-11-23T20:14:53.027Z",
        "2027-01-01T00:00:00+01:00",
        "2027-01-01T00:00:00",
        "1970-01-01T00:00:00Z",
        "2027-13-01T00:00:00Z",
        "\\u0032026-11-23T20:14:53.026Z",
        "",
    ];
    prop_oneof![2 => Just(times[0]), 1 => prop::sample::select(times.to_vec())]
}

prop_compose! {
    /// A server that sends mostly the same answers, and sometimes different ones.
    fn stream()(
        template in 0..EVENTS.len() + ANSWERS.len(),
        choice in 0..54_usize,
        turns in prop::collection::vec(
            (prop::collection::vec(text(), 1..3), time(), 0..20_usize, 0..54_usize, any::<u16>()),
            1..12,
        ),
    ) -> Vec<Sent> {
        let one = |(texts, time, odd, other, at): (Vec<Vec<u8>>, &str, usize, usize, u16)| {
            let mut one = match odd {
                0 => sent(other, &texts, time, choice),
                1 => sent(template, &texts, time, other),
                _ => sent(template, &texts, time, choice),
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
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn answers_parse_the_same_after_any_earlier_answers(stream in stream()) {
        assert_same_as_read_alone(&stream);
    }

    #[test]
    fn answer_parses_the_same_after_a_change_of_one_text(
        sent in stream(),
        head in any::<[u8; 2]>(),
        text in text(),
    ) {
        for Sent { choice, data, .. } in sent {
            let [op, position] = head;
            let head = [choice as u8, op, position, text.len() as u8];
            answer_parses_the_same_after_another(&[&head[..], &text, &data].concat());
        }
    }
}

#[test]
fn template_parses_the_same_for_any_sequence_of_texts() {
    let texts = [&b"word"[..], b"", b"a", b"text", b"\\\"x\\u00e9", b"\"", b"\\", b"{\xc3\xa9}"];
    for choice in [0, 1, 3, 4, 6] {
        for template in 0..EVENTS.len() + ANSWERS.len() {
            let one = |text: &&[u8]| {
                let texts = [text.to_vec(), b"other".to_vec()];
                sent(template, &texts, "2026-11-23T20:14:53.026Z", choice)
            };
            let stream: Vec<Sent> = texts.iter().chain(&texts).map(one).collect();
            assert_same_as_read_alone(&stream);
        }
    }
}
