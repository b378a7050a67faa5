//! The codecs compared with serde_json and httparse, in the same process.
//!
//! `cargo bench --bench codecs`. Each case first asserts that both give the same result.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::{borrow::Cow, cell::Cell, hint::black_box};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use peregrine::{
    dialect::{ReadCx, STANDARD, WriteCx},
    http::{self, HeadLimits, Scan},
    json::{Parser, Source, base64},
    limits::Limits,
    model::{
        Call, Content, Generation, Message, Op, Part, Reply, TaskBuf, TaskEvent, TaskLimits,
        TaskState,
    },
    rpc, sse,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use support::{NOW, TEXT, post, send};

/// The type that a server with serde would derive for the same body.
#[derive(Deserialize)]
struct Request<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    method: Cow<'a, str>,
    params: Params<'a>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    message: SentMessage<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentMessage<'a> {
    #[serde(borrow)]
    message_id: Cow<'a, str>,
    role: Cow<'a, str>,
    parts: Vec<SentPart<'a>>,
}

#[derive(Deserialize)]
struct SentPart<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

/// From a body to a call: parse, envelope, method table, params.
fn read_send(parser: &mut Parser, pack: &mut Vec<u8>, limits: &Limits, body: Source<'_>) -> usize {
    let value = parser.parse_from(body, 64).unwrap();
    let Ok(request) = rpc::read(value, limits) else { panic!("a request") };
    let method = STANDARD.method(&request.method).unwrap();
    let cx = ReadCx {
        op: method.op,
        limits,
        fresh_id: b"fresh",
        after: None,
        task: None,
        tokens: Cell::default(),
        tenant: Cell::default(),
    };
    let Call::Send(send) = (method.wire.decode)(&cx, request.params, pack).unwrap() else {
        panic!("a send")
    };
    let Some(Content::Text(text)) = send.message.parts().next().map(Part::content) else {
        panic!("a text")
    };
    text.raw().len()
}

fn reading(criterion: &mut Criterion) {
    let (mut parser, mut pack, limits) = (Parser::new(), Vec::new(), Limits::default());
    let mut group = criterion.benchmark_group("read_send");
    for (name, text) in [("300B", TEXT.to_owned()), ("64KiB", TEXT.repeat(655))] {
        let body = send("SendMessage", &text);
        let bytes = body.as_bytes();
        let typed: Request<'_> = serde_json::from_slice(bytes).unwrap();
        let value: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        assert_eq!(value["params"]["message"]["parts"][0]["text"], text);
        assert_eq!((typed.jsonrpc, typed.id.get(), &*typed.method), ("2.0", "1", "SendMessage"));
        let message = &typed.params.message;
        assert_eq!((&*message.message_id, &*message.role), ("0123456789abcdef", "ROLE_USER"));
        assert_eq!(message.parts[0].text, text);
        // As in the driver's buffers, there is room after the body.
        let (length, mut buffer) = (bytes.len(), [bytes, &[0; 64]].concat());
        let source = Source::roomy(&mut buffer, length);
        assert_eq!(read_send(&mut parser, &mut pack, &limits, source), text.len());
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("{name}/peregrine_parse"), |bencher| {
            bencher.iter(|| {
                let source = Source::roomy(black_box(&mut buffer), length);
                parser.parse_from(source, 64).unwrap().members().count()
            });
        });
        group.bench_function(format!("{name}/peregrine_call"), |bencher| {
            bencher.iter(|| {
                let source = Source::roomy(black_box(&mut buffer), length);
                read_send(&mut parser, &mut pack, &limits, source)
            });
        });
        group.bench_function(format!("{name}/serde_json_typed"), |bencher| {
            bencher.iter(|| {
                let request: Request<'_> = serde_json::from_slice(black_box(bytes)).unwrap();
                request.params.message.parts.len()
            });
        });
        group.bench_function(format!("{name}/serde_json_value"), |bencher| {
            bencher.iter(|| {
                let value: serde_json::Value = serde_json::from_slice(black_box(bytes)).unwrap();
                value.as_object().map(serde_json::Map::len)
            });
        });
    }
    group.finish();
}

/// The task that echo makes of the message in `body`.
fn task(body: &[u8]) -> TaskBuf {
    let (mut parser, mut pack, limits) = (Parser::new(), Vec::new(), Limits::default());
    read_send(&mut parser, &mut pack, &limits, body.into());
    let message = Message::from_packed(&pack).expect("it was just packed");
    let limits = TaskLimits { bytes_max: 1 << 24, history_max: 9, artifacts_max: 9, replay_max: 9 };
    let id = "0123456789abcdef0123456789abcdef0123";
    let task = TaskBuf::new(id, "a-context", Generation::V1).unwrap();
    let mut task = task.within(limits);
    task.user_message(message).unwrap();
    let at_ms = NOW.unix_ms;
    let (state, metadata) = (TaskState::Completed, None);
    let completed = TaskEvent::Status { state, at_ms, message: Some(message), metadata };
    task.apply(&completed).unwrap();
    task
}

fn writing(criterion: &mut Criterion) {
    let wire = STANDARD.method(b"GetTask").unwrap().wire;
    let cx = WriteCx::new(Op::Get);
    let mut group = criterion.benchmark_group("write_task");
    for (name, text) in [("300B", TEXT.to_owned()), ("64KiB", TEXT.repeat(655))] {
        let task = task(send("SendMessage", &text).as_bytes());
        let mut out = Vec::new();
        let write = |out: &mut Vec<u8>| {
            out.clear();
            (wire.encode.reply)(out, &Reply::Task { view: task.view(), history: None }, &cx);
        };
        write(&mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["status"]["message"]["parts"][0]["text"], text);
        assert_eq!(value["history"].as_array().unwrap().len(), 1);
        group.throughput(Throughput::Bytes(out.len() as u64));
        group.bench_function(format!("{name}/peregrine"), |bencher| {
            bencher.iter(|| write(black_box(&mut out)));
        });
        group.bench_function(format!("{name}/serde_json_to_vec"), |bencher| {
            bencher.iter(|| serde_json::to_vec(black_box(&value)).unwrap());
        });
        // The twin without its allocation.
        group.bench_function(format!("{name}/serde_json_to_writer"), |bencher| {
            bencher.iter(|| {
                out.clear();
                serde_json::to_writer(&mut out, black_box(&value)).unwrap();
            });
        });
    }
    group.finish();
}

fn heads(criterion: &mut Criterion) {
    let limits = Limits::default();
    let limits = HeadLimits {
        head_bytes_max: limits.head_bytes_max,
        fields_max: limits.head_fields_max,
        target_bytes_max: limits.target_bytes_max,
        query_bytes_max: limits.query_bytes_max,
        method_bytes_max: limits.method_bytes_max,
        body_bytes_max: limits.body_bytes_max as u64,
    };
    let request = post(&send("SendMessage", TEXT));
    let read = |bytes: &[u8]| {
        let Ok(Scan::Complete { head_len }) = http::find_head(bytes, 0, &limits) else {
            panic!("a whole head")
        };
        assert!(http::parse_head(&bytes[..head_len], &limits).is_ok());
        head_len
    };
    let twin = |bytes: &[u8]| {
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut parsed = httparse::Request::new(&mut fields);
        parsed.parse(bytes).unwrap().unwrap()
    };
    assert_eq!(read(&request), twin(&request));
    let mut group = criterion.benchmark_group("read_head");
    group.bench_function("peregrine", |bencher| bencher.iter(|| read(black_box(&request))));
    group.bench_function("httparse_alone", |bencher| bencher.iter(|| twin(black_box(&request))));
    group.finish();
}

fn frames(criterion: &mut Criterion) {
    let mut out = Vec::with_capacity(1 << 16);
    let write = |out: &mut Vec<u8>| {
        out.clear();
        let chunk = sse::chunk_begin(out);
        for id in 0..100 {
            let frame = sse::begin(out, Some(id));
            out.extend_from_slice(TEXT.as_bytes());
            sse::finish(out, frame);
        }
        sse::chunk_end(out, chunk);
    };
    write(&mut out);
    assert_eq!(support::count(&out, TEXT.as_bytes()), 100);
    let mut group = criterion.benchmark_group("sse");
    group.throughput(Throughput::Elements(100));
    group.bench_function("write_100_frames", |bencher| {
        bencher.iter(|| write(black_box(&mut out)));
    });
    group.finish();

    let bytes: Vec<u8> = (0..30_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    let text = base64::encode(&bytes);
    assert_eq!(base64::decode(&text), Some(bytes));
    let mut group = criterion.benchmark_group("base64");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("normalise_40k", |bencher| {
        bencher.iter(|| base64::normalise(black_box(&text)).unwrap().len());
    });
    group.finish();
}

criterion_group!(benches, reading, writing, heads, frames);
criterion_main!(benches);
