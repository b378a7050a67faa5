//! Properties of gRPC's messages.
//!
//! - Any bytes as a request of any operation give a call or a fault, never a panic.
//! - Any bytes as an answer are read, or give an error that leaves no state.
//! - A request is written as a message that reads as the same request.
//! - Any text as JSON becomes a `Struct` with that content, and JSON that came from a `Struct` is a
//!   fixed point.

use std::cell::Cell;

use peregrine::{
    binding::{
        grpc::{from_json, read, structs, write},
        interfaces::Binding,
    },
    client::{Format, FormatBuffers, format},
    dialect::ReadCx,
    json::Parser,
    limits::Limits,
    model::{Call, Generation, Op, RawText, Received, ReceivedKind},
    pb::{Fields, Value, Writer},
    service::StreamResponse,
};

const FRESH: &[u8] = b"00000000-0000-4000-8000-000000000000";
const OPS: [Op; 11] = [
    Op::Send,
    Op::Stream,
    Op::Get,
    Op::List,
    Op::Cancel,
    Op::Subscribe,
    Op::PushSet,
    Op::PushGet,
    Op::PushList,
    Op::PushDelete,
    Op::ExtendedCard,
];

/// Bytes are read or refused; a message survives its own writing and reading.
pub fn requests_are_read_or_refused(bytes: &[u8]) {
    let (choice, request) = bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest));
    let op = OPS[usize::from(choice) % OPS.len()];
    let generation = if choice < 128 { Generation::V1 } else { Generation::V03 };
    let limits = Limits::default();
    let cx = ReadCx {
        op,
        limits: &limits,
        fresh_id: FRESH,
        after: None,
        task: None,
        tokens: Cell::new(limits.json_tokens_max),
        tenant: Cell::default(),
    };
    let mut pack = Vec::new();
    let Ok(decoded) = read::call(&cx, generation, request, &mut pack) else { return };
    let Call::Send(send) = decoded.call else { return };
    is_json(send.metadata.map(|metadata| metadata.raw()));
    is_json(send.accepted_output_modes);
    let (mut written, mut again) = (Vec::new(), Vec::new());
    let item = StreamResponse::Message { message: send.message, context_id: RawText::default() };
    assert!(write::event(&mut written, generation, &item, None));
    let Some(Ok((2, Value::Bytes(message)))) = Fields(&written).next() else {
        panic!("no message: {written:?}")
    };
    let mut request = Vec::new();
    let number = if generation == Generation::V1 { 2 } else { 1 };
    Writer(&mut request).bytes(number, message);
    let decoded = read::call(&cx, generation, &request, &mut again).expect("what was written");
    let Call::Send(back) = decoded.call else { panic!("another call") };
    assert_eq!(back.message.packed(), send.message.packed());
}

/// Bytes are an answer to some operation, or are refused and leave no state; the result is JSON of
/// 1.0.
pub fn answers_are_read_or_refused(bytes: &[u8]) {
    let Some((choice, message)) = bytes.split_first() else { return };
    let op = OPS[usize::from(*choice) % OPS.len()];
    let format = match *choice / 86 {
        0 => Format::standard(Binding::Grpc, Generation::V1),
        1 => Format::standard(Binding::Grpc, Generation::V03),
        _ => Format::of_dialect(Binding::Grpc, Generation::V1, "a2a_rust").expect("a dialect"),
    };
    let (mut buffers, mut received) = (FormatBuffers::default(), Received::new());
    let read = format.read_message(&mut buffers, op, message, &mut received);
    let is_empty = received.kind() == ReceivedKind::Nothing;
    assert!(read.is_ok() || is_empty, "{received:?}");
    let mut out = Vec::new();
    format::push_json(&mut out, &received, op);
    is_json(Some(&out));
}

/// Text becomes a `Struct` and a `Value` with JSON that does not change further.
///
/// Stored JSON is UTF-8, so invalid UTF-8 is skipped.
pub fn json_and_structs_agree(text: &[u8]) {
    if std::str::from_utf8(text).is_err() {
        return;
    }
    for is_struct in [true, false] {
        let first = through(text, is_struct);
        is_json(Some(&first));
        assert_eq!(through(&first, is_struct), first);
    }
}

/// JSON to a message and back; a message with too deep nesting is empty.
fn through(json: &[u8], is_struct: bool) -> Vec<u8> {
    let (mut message, mut back) = (Vec::new(), Vec::new());
    match is_struct {
        true => from_json::struct_field(&mut message, 1, json),
        false => from_json::value_field(&mut message, 1, json),
    }
    let mut fields = Fields(&message);
    let Some(Ok((1, Value::Bytes(inner)))) = fields.next() else { panic!("{message:?}") };
    assert_eq!(fields.next(), None);
    let bounds = structs::Bounds { depth_max: 64, tokens: &Cell::new(usize::MAX) };
    let pushed = match is_struct {
        true => structs::push_struct(&mut back, inner, None, bounds),
        false => structs::push_value(&mut back, inner, bounds),
    };
    match pushed {
        Ok(()) => back,
        Err(structs::NotJson::Depth) => b"{}".to_vec(),
        Err(other) => panic!("{other:?}"),
    }
}

fn is_json(text: Option<&[u8]>) {
    let Some(text) = text else { return };
    let parsed = Parser::new().parse(text, 70).map(|_| ());
    assert_eq!(parsed, Ok(()), "{}", String::from_utf8_lossy(text));
}
