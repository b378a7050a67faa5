//! Shows as JSON how the client reads a payload, to test its readers.

use crate::{
    binding::interfaces::Binding,
    client::card::AgentCard,
    dialect::{self, ReplyCx},
    fault::PeerFault,
    json::{
        Kind, Value,
        write::{push_escaped, push_i64, push_string},
    },
    model::{Generation, Op, Received},
};

use super::{Format, FormatBuffers, push_json};

/// Names in the conformance suite (ACTS) of the operations that do not return a card.
const ACTS_OPS: [(Op, &str); 10] = [
    (Op::Send, "send_message"),
    (Op::Stream, "send_streaming_message"),
    (Op::Get, "get_task"),
    (Op::List, "list_tasks"),
    (Op::Cancel, "cancel_task"),
    (Op::Subscribe, "subscribe_to_task"),
    (Op::PushSet, "create_push_config"),
    (Op::PushGet, "get_push_config"),
    (Op::PushList, "list_push_configs"),
    (Op::PushDelete, "delete_push_config"),
];

/// The kind of a payload.
#[derive(Clone, Copy)]
enum PayloadKind {
    /// A card of any generation.
    Card,
    /// The result of an operation, without an envelope.
    Result,
    /// An item of a stream, without an envelope.
    Event,
    /// An error object, or the body that contains it.
    Fault,
}

/// Reads a payload that `words` describe, and returns one JSON object: the canonical JSON of 1.0 of
/// a card, result or event; `{"fault":…}`; or `{"error":…}` with a name if the payload is invalid.
///
/// A payload `{"operation":…,"wire_payload":…}`, as in a step `client_response` of the A2A
/// conformance suite (ACTS), describes itself: it includes its JSON-RPC envelope, and an error has
/// the form that the suite reads, `{"error":{"code":…,"message":…}}`.
///
/// The words, in any order (a later one overrides an earlier one): `card`, `result`, `event` or
/// `fault`; a version such as `0.3` (default 1.0); an operation by its name in 1.0 (default
/// `SendMessage`); `HTTP+JSON`, which differs in 0.3.
pub fn explain(words: &str, payload: &[u8]) -> String {
    let mut out = Vec::new();
    if let Err((name, path, message)) = read(words, payload, &mut out) {
        out.clear();
        out.extend_from_slice(b"{\"error\":{\"name\":");
        push_string(&mut out, name);
        out.extend_from_slice(b",\"path\":");
        push_string(&mut out, &path);
        out.extend_from_slice(b",\"message\":");
        push_string(&mut out, &message);
        out.extend_from_slice(b"}}");
    }
    // The output is UTF-8, because the parsed input and all added texts are.
    String::from_utf8(out).unwrap_or_default()
}

/// The name, the path and the message of an error.
type Unexplained = (&'static str, String, String);

fn read(words: &str, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Unexplained> {
    let (mut kind, mut op) = (PayloadKind::Result, Op::Send);
    let (mut generation, mut binding) = (Generation::V1, Binding::JsonRpc);
    for word in words.split_whitespace() {
        match word {
            "card" => kind = PayloadKind::Card,
            "result" => kind = PayloadKind::Result,
            "event" => kind = PayloadKind::Event,
            "fault" => kind = PayloadKind::Fault,
            "HTTP+JSON" => binding = Binding::HttpJson,
            "JSONRPC" => binding = Binding::JsonRpc,
            _ => match Op::ALL.iter().copied().find(|op| op.name() == word) {
                Some(named) => op = named,
                None => generation = version(word)?,
            },
        }
    }
    let format = Format::standard(binding, generation);
    let FormatBuffers { mut parser, depth_max, values, .. } = FormatBuffers::default();
    if let Ok(value) = parser.parse(payload, depth_max)
        && let (Some(operation), Some(wire)) = (value.get("operation"), value.get("wire_payload"))
    {
        return client_response(&format.reply_cx(&values), operation, wire, out);
    }
    // The answer to the operation for the extended card is a card.
    let is_card =
        matches!((kind, op), (PayloadKind::Card, _) | (PayloadKind::Result, Op::ExtendedCard));
    if is_card {
        return card(payload, out);
    }
    let value = parser.parse(payload, depth_max);
    let value = value.map_err(|error| ("JsonError", String::new(), error.to_string()))?;
    let (mut received, cx) = (Received::new(), format.reply_cx(&values));
    let read = match kind {
        PayloadKind::Result => dialect::read_reply(&cx, op, Some(value), &mut received),
        PayloadKind::Event => {
            op = Op::Stream;
            dialect::read_item(&cx, value, &mut received)
        }
        PayloadKind::Fault => {
            let fault = dialect::read_fault(value, generation, None);
            if !has_content(&fault) {
                return Err(no_fault(value));
            }
            push_fault(out, &fault);
            return Ok(());
        }
        // The card was read above.
        PayloadKind::Card => return Ok(()),
    };
    read.map_err(|error| ("ReadError", error.path.clone(), error.to_string()))?;
    push_json(out, &received, op);
    Ok(())
}

/// The ACTS operations that return a card.
const CARD_OPERATIONS: [&str; 2] = ["get_agent_card", "get_extended_agent_card"];

/// Reads the answer to the operation of an ACTS step.
fn client_response(
    cx: &ReplyCx<'_>,
    operation: Value<'_>,
    wire: Value<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Unexplained> {
    let name = operation.as_str().unwrap_or_default();
    let is_card = CARD_OPERATIONS.contains(&&*name);
    let op = ACTS_OPS.into_iter().find(|(_, known)| *known == name).map(|(op, _)| op);
    let Some(op) = op.or(is_card.then_some(Op::ExtendedCard)) else {
        let message = format!("{name:?} is not an operation of the conformance suite (ACTS)");
        return Err(("UnknownOperation", "operation".to_owned(), message));
    };
    if let Some(error) = wire.get("error").filter(|error| !error.is_null()) {
        let fault = dialect::read_fault(error, cx.generation, None);
        if !has_content(&fault) {
            return Err(no_fault(error));
        }
        out.extend_from_slice(b"{\"error\":");
        push_fault_object(out, &fault);
        out.push(b'}');
        return Ok(());
    }
    // A card over HTTP, and any answer of HTTP+JSON, has no envelope.
    let result = match (wire.get("jsonrpc"), wire.get("result")) {
        (_, Some(result)) => result,
        (None, None) => wire,
        (Some(_), None) => {
            let message = "the response has neither a result nor an error".to_owned();
            return Err(("ReadError", "wire_payload".to_owned(), message));
        }
    };
    if is_card {
        return card(result.raw(), out);
    }
    let mut received = Received::new();
    let read = dialect::read_reply(cx, op, Some(result), &mut received);
    read.map_err(|error| ("ReadError", error.path.clone(), error.to_string()))?;
    push_json(out, &received, op);
    Ok(())
}

fn card(payload: &[u8], out: &mut Vec<u8>) -> Result<(), Unexplained> {
    let card = AgentCard::read(payload);
    let card = card.map_err(|error| ("CardError", error.member.clone(), error.to_string()))?;
    out.extend_from_slice(card.to_v1_json().as_bytes());
    Ok(())
}

fn version(word: &str) -> Result<Generation, Unexplained> {
    dialect::version::generation(word).ok_or_else(|| {
        let valid = "card, result, event, fault, a version, an operation or HTTP+JSON";
        ("UnknownWord", word.to_owned(), format!("{word} is not {valid}"))
    })
}

/// Whether a fault has any content: a client accepts anything in the position of a fault.
fn has_content(fault: &PeerFault) -> bool {
    let texts = [&fault.reason, &fault.status];
    fault.kind.is_some()
        || fault.code.is_some()
        || fault.name.is_some()
        || !fault.message.is_empty()
        || texts.into_iter().any(Option::is_some)
}

fn no_fault(value: Value<'_>) -> Unexplained {
    let inner = value.get("error").filter(|error| error.kind() == Kind::Object);
    let prefix = if inner.is_some() { "error." } else { "" };
    let (path, message) = match inner.unwrap_or(value).get("code") {
        Some(_) => (format!("{prefix}code"), "code is not a whole number, and there is no message"),
        None => (String::new(), "the fault has neither a code nor a message"),
    };
    ("FaultError", path, message.to_owned())
}

fn push_fault(out: &mut Vec<u8>, fault: &PeerFault) {
    out.extend_from_slice(b"{\"fault\":");
    push_fault_object(out, fault);
    out.push(b'}');
}

fn push_fault_object(out: &mut Vec<u8>, fault: &PeerFault) {
    out.extend_from_slice(b"{\"message\":\"");
    push_escaped(out, &fault.message);
    out.push(b'"');
    if let Some(code) = fault.code {
        out.extend_from_slice(b",\"code\":");
        push_i64(out, code);
    }
    let name = fault.name.map(|name| name.0);
    for (key, text) in
        [("name", name), ("reason", fault.reason.as_deref()), ("status", fault.status.as_deref())]
    {
        let Some(text) = text else { continue };
        out.extend_from_slice(format!(",\"{key}\":").as_bytes());
        push_string(out, text);
    }
    if let Some(data) = &fault.data {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(data.as_bytes());
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::explain;

    #[test]
    fn explain_prints_payload_as_json_or_its_error() {
        let task = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"working"}}"#;
        let v1 = r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}"#;
        assert_eq!(explain("result 0.3 GetTask", task.as_bytes()), v1);
        assert_eq!(explain("result 0.3", task.as_bytes()), format!("{{\"task\":{v1}}}"));
        assert_eq!(
            explain("fault 0.1", br#"{"code":-32009,"message":"over","data":[1]}"#),
            concat!(
                r#"{"fault":{"message":"over","code":-32009,"#,
                r#""name":"InvalidTaskStateError","data":[1]}}"#
            )
        );
        for (words, payload, error) in [
            ("event", "{}", "\"name\":\"ReadError\",\"path\":\"\""),
            ("result", r#"{"task":{"id":7}}"#, "\"name\":\"ReadError\",\"path\":\"task.id\""),
            ("result", "{", "\"name\":\"JsonError\""),
            ("card", "{}", "\"name\":\"CardError\",\"path\":\"name\""),
            ("fault", "[]", "\"name\":\"FaultError\",\"path\":\"\""),
            ("fault", "{}", "\"name\":\"FaultError\",\"path\":\"\""),
            ("fault 0.1", r#"{"code":"x"}"#, "\"name\":\"FaultError\",\"path\":\"code\""),
            ("fault", r#"{"error":{"code":[]}}"#, "\"path\":\"error.code\""),
            ("result GetExtendedAgentCard", "{}", "\"name\":\"CardError\",\"path\":\"name\""),
            ("tea", "{}", "\"name\":\"UnknownWord\",\"path\":\"tea\""),
        ] {
            let output = explain(words, payload.as_bytes());
            assert!(output.starts_with("{\"error\":{") && output.contains(error), "{output}");
        }
    }
}
