//! Recorded answers of the servers, byte for byte, parsed by our readers.

use std::{fs, path::Path};

use peregrine::{
    binding::interfaces::Binding,
    client::{
        CallError, CallId, Format, FormatBuffers, ReplyHead,
        card::{AgentCard, SecurityScheme},
        format::push_json,
    },
    model::{Generation, Op, Received},
    sse::SseParser,
};
use serde_json::Value;

use super::expected::{Outcome, Peer, Sdk, check};

const EVENT_BYTES_MAX: usize = 1 << 20;

/// A file of `tests/data/peers`: a server, called in one generation, and its exchanges.
struct Capture {
    name: String,
    sdk: Sdk,
    generation: Generation,
    content: Value,
}

fn captures() -> Vec<Capture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/peers");
    let mut captures = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let content: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let sdk = match name.split('-').next() {
            Some("py1") => Sdk::Py1,
            Some("py03") => Sdk::Py03,
            Some("js1") => Sdk::Js1,
            Some("js03") => Sdk::Js03,
            _ => panic!("whose is {name}?"),
        };
        let generation = match content["version"].as_str() {
            Some("1.0") => Generation::V1,
            Some("0.3") => Generation::V03,
            _ => panic!("which version has {name}?"),
        };
        captures.push(Capture { name, sdk, generation, content });
    }
    captures.sort_by(|a, b| a.name.cmp(&b.name));
    captures
}

fn op_of(name: &str) -> Op {
    match name {
        "send" => Op::Send,
        "stream" => Op::Stream,
        "get" => Op::Get,
        "list" => Op::List,
        "cancel" => Op::Cancel,
        "subscribe" => Op::Subscribe,
        "push-set" => Op::PushSet,
        "push-get" => Op::PushGet,
        "push-list" => Op::PushList,
        "push-delete" => Op::PushDelete,
        "extended-card" => Op::ExtendedCard,
        _ => panic!("which operation is {name}?"),
    }
}

fn binding_of(name: &str) -> Binding {
    match name {
        "JSONRPC" => Binding::JsonRpc,
        "HTTP+JSON" => Binding::HttpJson,
        "GRPC" => Binding::Grpc,
        _ => panic!("which binding is {name}?"),
    }
}

/// Reads the response of one exchange over HTTP as our client would.
fn read(format: Format, op: Op, exchange: &Value) -> Outcome {
    let mut outcome = Outcome { is_cut: exchange["is_cut"] == true, ..Outcome::default() };
    let rpc_id = exchange["rpc_id"].as_u64().unwrap_or_default();
    let body = exchange["body"].as_str().unwrap().as_bytes();
    let head = ReplyHead {
        status: u16::try_from(exchange["status"].as_u64().unwrap()).unwrap(),
        content_type: exchange
            .pointer("/fields/content-type")
            .map(|t| t.as_str().unwrap().as_bytes()),
    };
    let (mut buffers, mut received) = (FormatBuffers::default(), Received::new());
    if !(head.is_success() && head.is_event_stream()) {
        let read =
            format.read_reply(&mut buffers, CallId { op, rpc_id }, head, body, &mut received);
        outcome.take(read, op, &received);
        return outcome;
    }
    let mut parser = SseParser::new(EVENT_BYTES_MAX);
    let mut rest = body;
    while !rest.is_empty() {
        let step = parser.advance(rest).unwrap();
        rest = &rest[step.ate..];
        let Some(event) = step.event else { break };
        let (data, is_error) = (event.data, event.kind == "error");
        let read = format.read_item(&mut buffers, rpc_id, data, is_error, &mut received);
        outcome.take(read, op, &received);
    }
    outcome
}

impl Outcome {
    fn take(&mut self, read: Result<(), CallError>, op: Op, received: &Received) {
        match read {
            Ok(()) => {
                let mut json = Vec::new();
                push_json(&mut json, received, op);
                self.items.push(serde_json::from_slice(&json).unwrap());
            }
            Err(CallError::Fault(fault)) => self.fault = Some(*fault),
            Err(error @ (CallError::Unreadable(_) | CallError::NotA2a { .. })) => {
                self.error = Some(error.to_string());
            }
        }
    }
}

#[test]
fn recorded_answers_of_official_servers_are_read() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for capture in captures().iter().filter(|capture| !capture.name.ends_with("-guarded")) {
        for exchange in capture.content["exchanges"].as_array().unwrap() {
            let text = |key: &str| exchange[key].as_str().unwrap();
            let binding = binding_of(text("binding"));
            if binding == Binding::Grpc {
                continue;
            }
            let (op, about) = (op_of(text("operation")), text("about"));
            let format = Format::standard(binding, capture.generation);
            let peer = Peer { sdk: capture.sdk, generation: capture.generation, binding };
            let outcome = read(format, op, exchange);
            count += 1;
            if let Err(why) = check(&peer, op, about, &outcome) {
                let sdk = &capture.content["sdk"];
                wrong.push(format!("{} ({sdk}), {binding:?} {op:?} {about}: {why}", capture.name));
            }
        }
    }
    assert!(count > 400, "{count} exchanges");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn recorded_401_response_is_read_as_fault_with_status() {
    let mut count = 0;
    for capture in captures().iter().filter(|capture| capture.name.ends_with("-guarded")) {
        for exchange in capture.content["exchanges"].as_array().unwrap() {
            let binding = binding_of(exchange["binding"].as_str().unwrap());
            if exchange["about"] != "no credentials" || binding == Binding::Grpc {
                continue;
            }
            let format = Format::standard(binding, capture.generation);
            let op = op_of(exchange["operation"].as_str().unwrap());
            let outcome = read(format, op, exchange);
            assert_eq!(
                outcome.fault.as_ref().and_then(|fault| fault.http),
                Some(401),
                "{outcome:?}"
            );
            count += 1;
        }
    }
    assert_eq!(count, 16);
}

#[test]
fn recorded_cards_of_official_servers_are_read() {
    let captures = captures();
    assert_eq!(captures.len(), 10);
    for capture in &captures {
        let mut cards = vec![capture.content["card"]["body"].as_str().unwrap().to_owned()];
        for exchange in capture.content["exchanges"].as_array().unwrap() {
            if exchange["operation"] != "extended-card" || exchange["binding"] == "GRPC" {
                continue;
            }
            let body: Value = serde_json::from_str(exchange["body"].as_str().unwrap()).unwrap();
            cards.push(body.get("result").unwrap_or(&body).to_string());
        }
        assert_eq!(cards.len(), 3, "{}", capture.name);
        for json in cards {
            let card = AgentCard::read(json.as_bytes()).unwrap_or_else(|e| panic!("{e}: {json}"));
            assert!(card.name.starts_with(capture.name.split('-').next().unwrap()), "{json}");
            assert_eq!((card.version.as_str(), card.skills.len()), ("1.2.3", 1), "{json}");
            assert_eq!(card.skills[0].tags, ["test", "größe"], "{json}");
            assert!(card.interfaces.len() >= 3, "{json}");
            if capture.name.ends_with("-guarded") {
                let schemes = &card.security_schemes;
                assert!(matches!(schemes["key"], SecurityScheme::ApiKey(_)), "{json}");
                assert!(matches!(schemes["bearer"], SecurityScheme::Http(_)), "{json}");
                assert_eq!(card.security_requirements.len(), 2, "{json}");
            }
        }
    }
}
