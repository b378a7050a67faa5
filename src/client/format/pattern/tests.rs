use super::*;
use crate::{
    client::{Binding, CallId, FormatBuffers, ReplyHead},
    model::{Generation, RawText, time},
};

const V1: Format = Format {
    binding: Binding::JsonRpc,
    generation: Generation::V1,
    dialect: &crate::dialect::STANDARD,
};
const REST: Format = Format { binding: Binding::HttpJson, ..V1 };
const HEAD: ReplyHead<'_> = ReplyHead { status: 200, content_type: None };

fn event(text: &str) -> Vec<u8> {
    let artifact = format!(r#"{{"artifactId":"a","parts":[{{"text":"{text}"}}]}}"#);
    let update = format!(r#"{{"taskId":"t","artifact":{artifact},"append":true}}"#);
    let result = format!(r#"{{"artifactUpdate":{update}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":"7","result":{result}}}"#).into_bytes()
}

fn task(id: &str, at: &str, text: &str) -> String {
    let status = format!(r#"{{"state":"TASK_STATE_COMPLETED","timestamp":"{at}"}}"#);
    let artifact = format!(r#"{{"artifactId":"echo","parts":[{{"text":"{text}"}}]}}"#);
    let message = format!(
        r#"{{"messageId":"m","role":"ROLE_USER","taskId":"{id}","parts":[{{"text":"{text}"}}]}}"#
    );
    format!(
        r#"{{"id":"{id}","contextId":"c","status":{status},"artifacts":[{artifact}],"history":[{message}]}}"#
    )
}

/// Buffers that have learned an event.
fn after_event(text: &str) -> FormatBuffers {
    let (mut buffers, mut received) = (FormatBuffers::default(), Received::new());
    V1.read_item(&mut buffers, 7, &event(text), false, &mut received).unwrap();
    buffers
}

fn after_answer(answer: &str) -> FormatBuffers {
    let (mut buffers, mut received) = (FormatBuffers::default(), Received::new());
    let about = CallId { op: Op::Get, rpc_id: 1 };
    REST.read_reply(&mut buffers, about, HEAD, answer.as_bytes(), &mut received).unwrap();
    buffers
}

fn is_matched(buffers: &mut FormatBuffers, answer: &str, received: &mut Received) -> bool {
    let FormatBuffers { patterns, values, .. } = buffers;
    let about = AnswerSource { format: &REST, answers: Answers::Call(Op::Get), rpc_id: 1 };
    patterns.read(about, answer.as_bytes(), values, received)
}

#[test]
fn event_with_another_text_is_read_by_its_pattern() {
    let FormatBuffers { mut patterns, values, .. } = after_event("one");
    for text in ["two", "", "t", r#"\"x\" \u00e9"#, "\u{e9}", "{}[],:", &"long ".repeat(99)] {
        let (data, mut received) = (event(text), Received::new());
        let about = AnswerSource { format: &V1, answers: Answers::Item, rpc_id: 7 };
        assert!(patterns.read(about, &data, &values, &mut received), "{text}");
        let update = received.artifact_update().unwrap();
        assert_eq!(update.task_id, "t");
        let first = update.artifact.parts().next().unwrap().as_text();
        assert_eq!(first.map(RawText::raw), Some(text.as_bytes()));
        let span = received.span();
        assert!(data[span].starts_with(b"{\"artifactUpdate\""));
    }
}

#[test]
fn event_differing_beyond_text_is_not_read_by_pattern() {
    let FormatBuffers { mut patterns, values, .. } = after_event("one");
    let mut received = Received::new();
    let mut is_matched = |format: &Format, rpc_id, data: &[u8]| {
        let about = AnswerSource { format, answers: Answers::Item, rpc_id };
        patterns.read(about, data, &values, &mut received)
    };
    for text in ["\"", "\\", "\n", "\\x", "\",\"text\":\"two"] {
        assert!(!is_matched(&V1, 7, &event(text)), "{text}");
    }
    assert!(!is_matched(&V1, 8, &event("two")));
    assert!(!is_matched(&Format { generation: Generation::V03, ..V1 }, 7, &event("two")));
    let other = String::from_utf8(event("two")).unwrap().replace("true", "false");
    assert!(!is_matched(&V1, 7, other.as_bytes()));
    let FormatBuffers { mut patterns, values, .. } = after_event("a");
    let about = AnswerSource { format: &V1, answers: Answers::Item, rpc_id: 7 };
    assert!(!patterns.read(about, &event("two"), &values, &mut Received::new()));
}

#[test]
fn answer_with_other_texts_is_read_by_its_pattern() {
    const LATER: &str = "2026-11-23T20:14:53.026Z";
    let mut buffers = after_answer(&task("t-1", "2026-01-01T00:00:00Z", "one"));
    for (id, at, text) in
        [("t-2", LATER, "two"), ("x", LATER, &"long ".repeat(99)), ("y", LATER, "")]
    {
        let (answer, mut received) = (task(id, at, text), Received::new());
        assert!(is_matched(&mut buffers, &answer, &mut received), "{id} {text}");
        let task = received.task().unwrap();
        assert_eq!((task.id().raw(), task.context_id().raw()), (id.as_bytes(), &b"c"[..]));
        assert_eq!(task.status().at_ms, time::parse_rfc3339(LATER).unwrap());
        assert_eq!(received.span(), 0..answer.len());
    }
}

#[test]
fn invalid_or_differing_answer_is_not_read_by_pattern() {
    const AT: &str = "2026-01-01T00:00:00Z";
    let mut buffers = after_answer(&task("t-1", AT, "one"));
    let mut received = Received::new();
    let long = "x".repeat(buffers.values.limits.identifier_bytes_max + 1);
    for id in ["", "a\\n", "\\u0061", "a\n", "a\u{0}", &long] {
        assert!(!is_matched(&mut buffers, &task(id, AT, "two"), &mut received), "{id}");
    }
    for at in ["", "2026", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00"] {
        assert!(!is_matched(&mut buffers, &task("t-2", at, "two"), &mut received), "{at}");
    }
    let other_task = task("t-2", AT, "two").replacen("t-2", "t-3", 1);
    assert!(!is_matched(&mut buffers, &other_task, &mut received));
    let more = task("t-2", AT, "two") + " ";
    assert!(!is_matched(&mut buffers, &more, &mut received));
}

#[test]
fn patterns_sample_documents_that_rarely_match() {
    let mut patterns = AnswerPatterns::default();
    let wanted = (0..800).filter(|_| patterns.wants(b"")).count();
    assert!((100..=120).contains(&wanted), "{wanted}");
}
