//! Properties of the dialects.
//!
//! - A generation reads its own output as the same packed message, as far as it can express the
//!   message; [`expressible`] computes that part.
//! - Any JSON as params of any method gives a call or a fault, never a panic; each call can be
//!   written in every dialect, and the output is JSON.
//! - The user's numbers and strings come out as the text that went in.

use std::cell::Cell;

use peregrine::{
    dialect::{
        self, Dialect, ReadCx, Wire, WriteCx,
        rest::{self, HttpJson},
    },
    fault::{Fault, FaultKind},
    json::{Parser, Value},
    limits::Limits,
    model::{
        Artifact, Call, Generation, JsonObject, Message, Op, RawText, Reply, TaskBuf, TaskEvent,
        TaskLimits, TaskState,
        pack::{Packer, artifact_tag, message_tag, part_tag},
    },
    service::StreamResponse,
};
use proptest::prelude::*;

pub const FRESH: &str = "00000000-0000-4000-8000-000000000000";

/// A part as raw texts.
#[derive(Clone, Debug)]
pub struct PartModel {
    pub content: (u8, String),
    pub metadata: Option<String>,
    pub filename: Option<String>,
    pub media_type: Option<String>,
}

/// A message as raw texts.
#[derive(Clone, Debug)]
pub struct MessageModel {
    pub id: String,
    pub context: Option<String>,
    pub task: Option<String>,
    pub parts: Vec<PartModel>,
    pub metadata: Option<String>,
    pub extensions: Vec<String>,
    pub references: Vec<String>,
}

/// Raw text of a string, with unnecessary escapes.
fn raw_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "B7",
        " ",
        "é",
        "😀",
        "\\n",
        "\\\"",
        "\\\\",
        "\\/",
        "\\u00e9",
        "\\ud83d\\ude00",
        "{",
    ]);
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// An identifier in canonical form.
pub fn identifier() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec!["a", "7", "-", ":", "é", "\\n", "\\\"", "/"]);
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

const VALUES: [&str; 16] = [
    "1",
    "-0",
    "1.0",
    "1e400",
    "9007199254740993",
    "0.10",
    "-1.5E+3",
    "null",
    "true",
    "[]",
    "[1, 2]",
    "{}",
    "{\"a\" : 1}",
    "{\"value\":7}",
    "\"\\u00e9\\/\"",
    "\"x\"",
];

pub fn metadata() -> impl Strategy<Value = Option<String>> {
    prop::option::of(
        prop::sample::select(vec![
            "{}",
            "{\"k\":1e400}",
            "{ \"a\" : [1.0] , \"b\":{} }",
            "{\"data_part_compat\":false}",
        ])
        .prop_map(str::to_owned),
    )
}

fn part() -> impl Strategy<Value = PartModel> {
    let content = prop_oneof![
        raw_text().prop_map(|text| (part_tag::TEXT, text)),
        prop::sample::select(vec!["", "aGk=", "Zm9v", "+/8="])
            .prop_map(|bytes| (part_tag::RAW, bytes.to_owned())),
        raw_text().prop_map(|text| (part_tag::URL, format!("u{text}"))),
        prop::sample::select(VALUES.to_vec()).prop_map(|json| (part_tag::DATA, json.to_owned())),
    ];
    let name = || prop::option::of(raw_text());
    (content, metadata(), name(), name()).prop_map(|(content, metadata, filename, media_type)| {
        PartModel { content, metadata, filename, media_type }
    })
}

pub fn message() -> impl Strategy<Value = MessageModel> {
    let id = || prop::option::of(identifier());
    let ids = || prop::collection::vec(identifier(), 0..3);
    (identifier(), id(), id(), prop::collection::vec(part(), 1..5), metadata(), ids(), ids())
        .prop_map(|(id, context, task, parts, metadata, extensions, references)| MessageModel {
            id,
            context,
            task,
            parts,
            metadata,
            extensions,
            references,
        })
}

impl PartModel {
    fn pack(&self, packer: &mut Packer<'_>) {
        let bytes = |text: &'_ Option<String>| text.clone().map(String::into_bytes);
        packer.put(self.content.0, self.content.1.as_bytes());
        packer.put_some(part_tag::METADATA, bytes(&self.metadata).as_deref());
        packer.put_some(part_tag::FILENAME, bytes(&self.filename).as_deref());
        packer.put_some(part_tag::MEDIA_TYPE, bytes(&self.media_type).as_deref());
    }
}

impl MessageModel {
    pub fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::new();
        let mut packer = Packer(&mut packed);
        packer.put(message_tag::MESSAGE_ID, self.id.as_bytes());
        packer.put_some(message_tag::CONTEXT_ID, self.context.as_ref().map(|s| s.as_bytes()));
        packer.put_some(message_tag::TASK_ID, self.task.as_ref().map(|s| s.as_bytes()));
        packer.put(message_tag::ROLE, &[1]);
        for part in &self.parts {
            let nested = packer.open(message_tag::PART);
            part.pack(&mut packer);
            packer.close(nested);
        }
        packer.put_some(message_tag::METADATA, self.metadata.as_ref().map(|s| s.as_bytes()));
        for extension in &self.extensions {
            packer.put(message_tag::EXTENSION, extension.as_bytes());
        }
        for reference in &self.references {
            packer.put(message_tag::REFERENCE, reference.as_bytes());
        }
        packed
    }
}

/// The message without the parts that the wire format cannot hold (wire §1.6, §1.9, §3.4).
pub fn expressible(message: &MessageModel, wire: &Wire) -> MessageModel {
    let (mut message, generation) = (message.clone(), wire.encode.generation);
    if rest::V03.method(Op::Send).is_some_and(|method| std::ptr::eq(method.wire, wire)) {
        // The proto of 0.3 has no references.
        message.references.clear();
    }
    let parts_v1 = dialect::by_name("fasta2a").expect("a dialect").methods[0].wire;
    if generation == Generation::V1 || std::ptr::eq(parts_v1, wire) {
        return message;
    }
    if generation == Generation::V01 {
        message.id = FRESH.to_owned();
        (message.context, message.task) = (None, None);
        message.extensions.clear();
        message.references.clear();
    }
    for part in &mut message.parts {
        let (tag, content) = &part.content;
        if *tag == part_tag::TEXT || *tag == part_tag::DATA {
            (part.filename, part.media_type) = (None, None);
        }
        let is_whole =
            content.starts_with('{') || (generation == Generation::V01 && content.starts_with('['));
        // Empty metadata with the mark of wrapped data looks like the mark alone.
        if *tag == part_tag::DATA && !is_whole && part.metadata.as_deref() == Some("{}") {
            part.metadata = None;
        }
    }
    message
}

/// Each pair of reader and writer, with an operation that uses it.
fn wires() -> Vec<(&'static Dialect, &'static Wire)> {
    let rows = dialect::ALL.iter().flat_map(|dialect| {
        let sends = dialect.methods.iter().filter(|method| method.op == Op::Send);
        sends.map(|method| (*dialect, method.wire))
    });
    let rests = [&rest::V1, &rest::V03].map(|rest| (&dialect::STANDARD, wire_of(rest, Op::Send)));
    rows.chain(rests).collect()
}

fn wire_of(rest: &'static HttpJson, op: Op) -> &'static Wire {
    rest.method(op).expect("a row for each operation").wire
}

/// Each method over JSON-RPC, and each operation over HTTP+JSON.
fn methods() -> impl Iterator<Item = (Op, &'static Wire)> {
    let rows = dialect::ALL.iter().flat_map(|dialect| dialect.methods);
    let ops = dialect::STANDARD.methods.iter().map(|method| method.op);
    let rests = ops.flat_map(|op| [&rest::V1, &rest::V03].map(|rest| (op, wire_of(rest, op))));
    rows.map(|method| (method.op, method.wire)).chain(rests)
}

fn read<'p>(
    wire: &Wire,
    op: Op,
    params: Option<Value<'p>>,
    pack: &'p mut Vec<u8>,
) -> Result<Call<'p>, Fault> {
    let limits = Limits::default();
    (wire.decode)(
        &ReadCx {
            op,
            limits: &limits,
            fresh_id: FRESH.as_bytes(),
            after: Some(3),
            task: None,
            tokens: Cell::default(),
            tenant: Cell::default(),
        },
        params,
        pack,
    )
}

/// The message in the output for a direct message: bare, wrapped, or in a status.
fn message_of<'p>(result: Value<'p>) -> Value<'p> {
    let status_message = result.get("status").and_then(|status| status.get("message"));
    status_message.or(result.get("message")).unwrap_or(result)
}

fn round_trip(wire: &Wire, packed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let cx = WriteCx { op: Op::Send, task_id: b"t", history: None, unix_ms: 1 };
    let message = Message::from_packed(packed).unwrap();
    let reply = Reply::Message { message, context_id: RawText::parse("c").unwrap() };
    (wire.encode.reply)(&mut out, &reply, &cx);
    let mut parser = Parser::new();
    let written = message_of(parser.parse(&out, 64).unwrap()).raw_str().to_owned();
    let params = format!("{{\"id\":\"t\",\"message\":{written}}}");
    let (mut parser, mut pack) = (Parser::new(), Vec::new());
    let params = parser.parse(params.as_bytes(), 64).unwrap();
    match read(wire, Op::Send, Some(params), &mut pack) {
        Ok(Call::Send(send)) => send.message.packed().to_vec(),
        Ok(_) => panic!("a send is a send"),
        Err(fault) => panic!("{fault:?} in {written}"),
    }
}

/// Events of all kinds around one message.
fn events<'a>(message: Message<'a>, artifact: Artifact<'a>) -> Vec<TaskEvent<'a>> {
    let status = |state, message| TaskEvent::Status { state, at_ms: 7, message, metadata: None };
    let artifact = |append| TaskEvent::Artifact {
        artifact,
        append,
        last_chunk: append,
        metadata: JsonObject::parse("{\"e\":1}").ok(),
    };
    let mut events = vec![
        status(TaskState::Submitted, None),
        TaskEvent::UserMessage { message },
        artifact(false),
        artifact(true),
    ];
    let open = TaskState::ALL.into_iter().filter(|state| !state.is_terminal());
    events.extend(open.map(|state| status(state, Some(message))));
    events.push(status(TaskState::Completed, Some(message)));
    events
}

/// Writes all kinds of answers with a message, and checks that they are JSON.
fn writes_json(wire: &Wire, message: Message<'_>, context_id: RawText<'_>) {
    let mut packed = Vec::new();
    let mut packer = Packer(&mut packed);
    packer.put(artifact_tag::ARTIFACT_ID, message.message_id().raw());
    for part in message.parts() {
        packer.put(artifact_tag::PART, part.packed());
    }
    let mut parser = Parser::new();
    let mut check = |out: &mut Vec<u8>| {
        if let Err(error) = parser.parse(out, 64) {
            panic!("{error}: {}", String::from_utf8_lossy(out));
        }
        out.clear();
    };
    let limits =
        TaskLimits { bytes_max: 1 << 22, history_max: 9, artifacts_max: 9, replay_max: 99 };
    let task = TaskBuf::new(message.message_id(), context_id, Generation::V03);
    let mut task = task.unwrap().within(limits);
    let cx = WriteCx::new(Op::Send);
    let mut out = Vec::new();
    for event in events(message, Artifact::from_packed(&packed).unwrap()) {
        task.apply(&event).unwrap();
        let (seq, task_id) = (task.task().seq(), task.view().id());
        let (artifact_index, last) = (0, false);
        let item = StreamResponse::Event { seq, event, artifact_index, task_id, context_id, last };
        let is_user_message = matches!(event, TaskEvent::UserMessage { .. });
        assert_eq!((wire.encode.event)(&mut out, &item, &cx), !is_user_message);
        if is_user_message {
            assert!(out.is_empty());
            continue;
        }
        check(&mut out);
        assert!((wire.encode.event)(&mut out, &StreamResponse::Snapshot(task.view()), &cx));
        check(&mut out);
    }
    for history in [None, Some(0), Some(1)] {
        let reply = Reply::Task { view: task.view(), history };
        (wire.encode.reply)(&mut out, &reply, &cx);
        check(&mut out);
    }
    assert!((wire.encode.event)(&mut out, &StreamResponse::Message { message, context_id }, &cx));
    check(&mut out);
    (wire.encode.reply)(&mut out, &Reply::Message { message, context_id }, &cx);
    check(&mut out);
}

/// Any params, for each method: a call that can be written back, or a fault.
pub fn params_are_read_or_refused(bytes: &[u8]) {
    let mut parser = Parser::new();
    let params = parser.parse(bytes, 64).ok();
    let mut pack = Vec::new();
    for (op, wire) in methods() {
        match read(wire, op, params, &mut pack) {
            Ok(Call::Send(send)) => {
                assert!(send.message.parts().next().is_some());
                assert!(!send.message.message_id().is_empty());
                for (_, wire) in wires() {
                    writes_json(wire, send.message, send.context_id.unwrap_or_default());
                }
            }
            Ok(_) => {}
            Err(fault) => {
                let named = fault.field.is_some();
                let allowed = fault.kind == FaultKind::PushNotificationNotSupported;
                assert!(named == (fault.kind == FaultKind::InvalidParams) && (named || allowed));
                let (mut out, mut parser) = (Vec::new(), Parser::new());
                (wire.encode.fault)(&mut out, &fault, &WriteCx::new(op));
                parser.parse(&out, 8).unwrap();
            }
        }
    }
}

/// JSON close to params: real names, with fitting and other values.
fn params() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "message",
        "configuration",
        "metadata",
        "id",
        "taskId",
        "task_id",
        "contextId",
        "sessionId",
        "historyLength",
        "pushNotification",
        "parts",
        "role",
        "messageId",
        "message_id",
        "kind",
        "type",
        "text",
        "raw",
        "url",
        "data",
        "file",
        "bytes",
        "uri",
        "name",
        "mimeType",
        "mediaType",
        "filename",
        "extensions",
        "referenceTaskIds",
        "acceptedOutputModes",
        "blocking",
        "returnImmediately",
        "taskPushNotificationConfig",
        "status",
        "pageSize",
        "pageToken",
        "statusTimestampAfter",
        "includeArtifacts",
        "p\\u0061rts",
        "value",
        "data_part_compat",
        "request",
        "content",
        "x",
    ]);
    let leaf = prop_oneof![
        prop::sample::select(VALUES.to_vec()).prop_map(str::to_owned),
        prop::sample::select(vec![
            "\"user\"",
            "\"ROLE_AGENT\"",
            "\"text\"",
            "\"file\"",
            "\"data\"",
            "\"aGk\"",
            "\"\"",
            "\"2026-01-01T00:00:00Z\"",
            "\"working\"",
            "-1",
            "4294967296",
            "\"12\"",
            "\"a:b\"",
        ])
        .prop_map(str::to_owned),
        raw_text().prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        let member = (name.clone(), inner.clone()).prop_map(|(n, v)| format!("\"{n}\":{v}"));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|list| format!("[{}]", list.join(","))),
            prop::collection::vec(member, 0..6).prop_map(|list| format!("{{{}}}", list.join(","))),
        ]
    })
}

/// Almost valid params of a send: one member of a valid message is replaced.
fn nearly_right() -> impl Strategy<Value = String> {
    (params(), params(), 0..12_usize).prop_map(|(odd, other, variant)| {
        let mut slots = [
            "\"role\":\"user\"",
            "\"messageId\":\"m\"",
            "\"parts\":[{\"kind\":\"text\",\"text\":\"x\"}]",
            "\"metadata\":{}",
        ]
        .map(str::to_owned);
        let mut outer = String::new();
        match variant {
            0 => slots[0] = format!("\"role\":{odd}"),
            1 => slots[1] = format!("\"messageId\":{odd}"),
            2 => slots[2] = format!("\"parts\":[{odd},{other}]"),
            3 => slots[3] = format!("\"metadata\":{odd}"),
            4 => slots[2] = format!("\"parts\":[{{\"data\":{odd},\"metadata\":{other}}}]"),
            5 => slots[2] = format!("\"parts\":[{{\"kind\":\"file\",\"file\":{odd}}}]"),
            6 => slots[2] = format!("\"parts\":[{{\"text\":\"x\",\"filename\":{odd}}}]"),
            7 => slots[3] = format!("\"extensions\":[{odd}],\"referenceTaskIds\":{other}"),
            8 => slots[3] = format!("\"taskId\":{odd},\"contextId\":{other}"),
            9 => outer = format!(",\"configuration\":{odd}"),
            10 => {
                outer =
                    format!(",\"configuration\":{{\"historyLength\":{odd},\"blocking\":{other}}}")
            }
            _ => outer = format!(",\"contextId\":{odd},\"metadata\":{other}"),
        }
        format!("{{\"id\":\"t\",\"message\":{{{}}}{outer}}}", slots.join(","))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn message_round_trips_in_each_wire_format(message in message()) {
        for (dialect, wire) in wires() {
            let expected = expressible(&message, wire).pack();
            let ours = round_trip(wire, &message.pack());
            prop_assert_eq!(&ours, &expected, "{} {:?}", dialect.name, wire.encode.generation);
            // A second round trip changes nothing.
            prop_assert_eq!(&round_trip(wire, &ours), &expected);
        }
    }

    #[test]
    fn any_params_are_read_or_refused(text in prop_oneof![params(), nearly_right()]) {
        params_are_read_or_refused(text.as_bytes());
    }

    #[test]
    fn any_message_is_written_as_json_in_each_wire_format(message in message()) {
        let packed = message.pack();
        for (_, wire) in wires() {
            writes_json(wire, Message::from_packed(&packed).unwrap(), RawText::default());
        }
    }

    #[test]
    fn damaged_packed_message_is_refused_or_written_as_json(
        message in message(),
        cut in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        drop in 0..3_usize,
    ) {
        let mut packed = message.pack();
        let at = cut.index(packed.len());
        packed[at] = byte;
        packed.drain(at..packed.len().min(at + drop));
        if let Ok(message) = Message::from_packed(&packed) {
            for (_, wire) in wires() {
                writes_json(wire, message, RawText::default());
            }
        }
    }
}

#[test]
fn numbers_and_strings_are_verbatim() {
    for value in VALUES.iter().chain(&["[9007199254740993,1e400,-0,1.0,\"\\u00e9\\/\"]"]) {
        for (dialect, wire) in wires() {
            let part = PartModel {
                content: (part_tag::DATA, format!("{{\"v\": {value}}}")),
                metadata: Some(format!("{{\"m\": {value}}}")),
                filename: None,
                media_type: None,
            };
            let text_part =
                PartModel { content: (part_tag::TEXT, "\\u00e9\\/".to_owned()), ..part.clone() };
            let message = MessageModel {
                id: FRESH.to_owned(),
                context: None,
                task: None,
                parts: vec![part, text_part],
                metadata: Some(format!("{{\"x\":{value} }}")),
                extensions: Vec::new(),
                references: Vec::new(),
            };
            assert_eq!(round_trip(wire, &message.pack()), message.pack(), "{}", dialect.name);
        }
    }
}

#[test]
fn message_fields_over_their_limits_are_rejected() {
    let limits = Limits {
        identifier_bytes_max: 8,
        string_bytes_max: 12,
        parts_max: 2,
        references_max: 1,
        ..Limits::default()
    };
    let wire = dialect::STANDARD.method(b"SendMessage").unwrap().wire;
    let outcome = |params: String| {
        let cx = ReadCx {
            op: Op::Send,
            limits: &limits,
            fresh_id: FRESH.as_bytes(),
            after: None,
            task: None,
            tokens: Cell::default(),
            tenant: Cell::default(),
        };
        let (mut parser, mut pack) = (Parser::new(), Vec::new());
        let params = parser.parse(params.as_bytes(), 64).unwrap();
        let fault = (wire.decode)(&cx, Some(params), &mut pack).err();
        fault.map(|fault| (fault.field.unwrap_or("-"), fault.message().to_owned()))
    };
    let send = |extra: &str, parts: &str| {
        outcome(format!("{{\"message\":{{\"role\":1,\"parts\":[{parts}]{extra}}}}}"))
    };
    let text = "{\"text\":\"any length at all is fine here\"}";
    assert_eq!(send(",\"taskId\":\"12345678\"", text), None);
    for member in ["messageId", "taskId", "contextId"] {
        let (field, error) = send(&format!(",\"{member}\":\"123456789\""), text).unwrap();
        assert_eq!(field, format!("message.{member}"));
        assert_eq!(error, "must not be longer than 8 bytes");
    }
    let (field, error) = send("", &[text; 3].join(",")).unwrap();
    assert_eq!((field, &*error), ("message.parts", "must not have more than 2 parts"));
    let (field, _) = send(",\"referenceTaskIds\":[\"a\",\"b\"]", text).unwrap();
    assert_eq!(field, "message.referenceTaskIds");
    let (field, _) = send(",\"extensions\":[\"1234567890123\"]", text).unwrap();
    assert_eq!(field, "message.extensions");
    for name in ["filename", "mediaType"] {
        let (field, error) =
            send("", &format!("{{\"text\":\"\",\"{name}\":\"1234567890123\"}}")).unwrap();
        assert_eq!(field, "message.parts");
        assert_eq!(error, format!("part 0: {name} must not be longer than 12 bytes"));
    }
}

#[test]
fn dialect_names_methods_and_statuses_are_valid() {
    for (at, dialect) in dialect::ALL.iter().enumerate() {
        assert!(std::ptr::eq(dialect::by_name(dialect.name).unwrap(), *dialect));
        assert!(dialect::ALL[..at].iter().all(|other| other.name != dialect.name));
        for (at, method) in dialect.methods.iter().enumerate() {
            assert!(dialect.methods[..at].iter().all(|other| other.name != method.name));
            assert_eq!(
                dialect.method(method.name.as_bytes()).map(|found| found.op),
                Some(method.op)
            );
            let made = method.encode_for(Generation::V01).generation;
            assert!(made == method.generation() || method.by_task);
            assert_eq!(method.encode_for(Generation::V1).generation, method.generation());
        }
        assert!(dialect.method(b"").is_none() && dialect.method(b"sendmessage").is_none());
        for kind in FaultKind::ALL {
            let status = (dialect.quirks.fault_http)(&Fault::new(kind));
            assert!(
                [200, 400, 401, 403, 405, 429, 500, 503, 504, 508].contains(&status),
                "{} {kind:?} {status}",
                dialect.name
            );
        }
    }
    assert!(dialect::by_name("").is_none() && dialect::by_name("Standard").is_none());
}
