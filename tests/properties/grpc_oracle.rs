//! The properties of gRPC messages with seeds, and prost as their oracle: each message that prost
//! writes is read, written again, and read by prost as the same.

use std::cell::Cell;

use peregrine::{
    binding::grpc::{read, write},
    dialect::ReadCx,
    limits::Limits,
    model::{Call, Generation, Op, RawText},
    service::StreamResponse,
};
use proptest::prelude::*;
use prost::Message as _;
use prost_types::{ListValue, Struct, Value, value::Kind};

use super::grpc;
use crate::grpc_client::{v1, v03};

pub fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec!["a", "B7", "\n", "\"", "\\", "é", "😀", "\u{0}", "/"]);
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<f64>().prop_filter("finite", |n| n.is_finite()),
        (-1000_i32..1000).prop_map(f64::from),
        Just(9_007_199_254_740_993.0),
        Just(-0.0),
    ];
    let leaf = prop_oneof![
        Just(Kind::NullValue(0)),
        any::<bool>().prop_map(Kind::BoolValue),
        number.prop_map(Kind::NumberValue),
        text().prop_map(Kind::StringValue),
    ];
    let leaf = leaf.prop_map(|kind| Value { kind: Some(kind) });
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|values| Value { kind: Some(Kind::ListValue(ListValue { values })) }),
            prop::collection::btree_map(text(), inner, 0..4)
                .prop_map(|fields| Value { kind: Some(Kind::StructValue(Struct { fields })) }),
        ]
    })
}

pub fn object() -> impl Strategy<Value = Struct> {
    prop::collection::btree_map(text(), value(), 0..4).prop_map(|fields| Struct { fields })
}

fn bytes() -> impl Strategy<Value = bytes::Bytes> {
    prop::collection::vec(any::<u8>(), 0..300).prop_map(bytes::Bytes::from)
}

pub fn part_v1() -> impl Strategy<Value = v1::Part> {
    use v1::part::Content;
    let content = prop_oneof![
        text().prop_map(Content::Text),
        bytes().prop_map(Content::Raw),
        text().prop_map(Content::Url),
        value().prop_map(Content::Data),
    ];
    (content, prop::option::of(object()), text(), text()).prop_map(
        |(content, metadata, filename, media_type)| v1::Part {
            content: Some(content),
            metadata,
            filename,
            media_type,
        },
    )
}

pub fn part_v03() -> impl Strategy<Value = v03::Part> {
    use v03::{file_part::File, part::Part};
    let file =
        prop_oneof![text().prop_map(File::FileWithUri), bytes().prop_map(File::FileWithBytes),];
    let file = (file, text(), text()).prop_map(|(file, mime_type, name)| v03::FilePart {
        file: Some(file),
        mime_type,
        name,
    });
    let part = prop_oneof![
        text().prop_map(Part::Text),
        file.prop_map(Part::File),
        object().prop_map(|data| Part::Data(v03::DataPart { data: Some(data) })),
    ];
    (part, prop::option::of(object()))
        .prop_map(|(part, metadata)| v03::Part { part: Some(part), metadata })
}

fn cx(limits: &Limits) -> ReadCx<'_> {
    let tokens = Cell::new(limits.json_tokens_max);
    ReadCx {
        op: Op::Send,
        limits,
        fresh_id: b"fresh",
        after: None,
        task: None,
        tokens,
        tenant: Cell::default(),
    }
}

/// Reads a request and writes its message as a stream item.
fn through(generation: Generation, request: &[u8]) -> Vec<u8> {
    let limits = Limits::default();
    let (mut pack, mut out) = (Vec::new(), Vec::new());
    let decoded = read::call(&cx(&limits), generation, request, &mut pack).expect("a call");
    let Call::Send(send) = decoded.call else { panic!("another call") };
    let item = StreamResponse::Message { message: send.message, context_id: RawText::default() };
    assert!(write::event(&mut out, generation, &item, None));
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn prost_reads_round_tripped_1_0_message_unchanged(
        parts in prop::collection::vec(part_v1(), 1..5),
        metadata in prop::option::of(object()),
        ids in prop::array::uniform3(text()),
        lists in prop::array::uniform2(prop::collection::vec(text(), 0..3)),
        role in 1..=2,
    ) {
        let [message_id, context_id, task_id] = ids;
        let [extensions, reference_task_ids] = lists;
        let message_id = format!("m{message_id}");
        let message = v1::Message {
            message_id, context_id, task_id, role, parts, metadata, extensions, reference_task_ids,
        };
        let request =
            v1::SendMessageRequest { message: Some(message.clone()), ..Default::default() };
        let written = through(Generation::V1, &request.encode_to_vec());
        let payload = v1::StreamResponse::decode(&*written).unwrap().payload;
        prop_assert_eq!(payload, Some(v1::stream_response::Payload::Message(message)));
    }

    #[test]
    fn prost_reads_round_tripped_0_3_message_unchanged(
        content in prop::collection::vec(part_v03(), 1..5),
        metadata in prop::option::of(object()),
        ids in prop::array::uniform3(text()),
        extensions in prop::collection::vec(text(), 0..3),
        role in 1..=2,
    ) {
        let [message_id, context_id, task_id] = ids;
        let message_id = format!("m{message_id}");
        let message = v03::Message {
            message_id, context_id, task_id, role, content, metadata, extensions,
        };
        let request =
            v03::SendMessageRequest { request: Some(message.clone()), ..Default::default() };
        let written = through(Generation::V03, &request.encode_to_vec());
        let payload = v03::StreamResponse::decode(&*written).unwrap().payload;
        prop_assert_eq!(payload, Some(v03::stream_response::Payload::Msg(message)));
    }

    #[test]
    fn requests_are_read_or_refused(
        bytes in prop::collection::vec(prop_oneof![
            4 => prop::sample::select(&[0x0a_u8, 0x12, 0x1a, 0x22, 0x2a, 0x20, 1, 2, 3, 5, b'x'][..]),
            1 => any::<u8>(),
        ], 0..200),
    ) {
        grpc::requests_are_read_or_refused(&bytes);
        grpc::answers_are_read_or_refused(&bytes);
    }

    #[test]
    fn json_and_structs_agree(
        bytes in prop::collection::vec(
            prop::sample::select(&b"{}[]\",:01.e-truefalsn \\ud8"[..]), 0..100,
        ),
    ) {
        grpc::json_and_structs_agree(&bytes);
    }
}

#[test]
fn grpc_message_over_json_tokens_max_is_rejected() {
    let nulls = vec![Value { kind: None }; 40];
    let data = Value { kind: Some(Kind::ListValue(ListValue { values: nulls })) };
    let part = v1::Part { content: Some(v1::part::Content::Data(data)), ..Default::default() };
    let read = |parts: usize| {
        let limits = Limits { json_tokens_max: 100, ..Limits::default() };
        let message = v1::Message {
            message_id: "m".into(),
            role: 1,
            parts: vec![part.clone(); parts],
            ..Default::default()
        };
        let request = v1::SendMessageRequest { message: Some(message), ..Default::default() };
        read::call(&cx(&limits), Generation::V1, &request.encode_to_vec(), &mut Vec::new())
            .map(drop)
    };
    // Two brackets, forty names, and as many commas; twice that exceeds the limit for a message.
    assert_eq!(read(1), Ok(()));
    let fault = read(2).unwrap_err();
    assert!(fault.message().contains("json_tokens_max"), "{fault}");
}
