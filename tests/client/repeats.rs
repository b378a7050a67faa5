//! Which requests a client retries, when, and how often, over each binding.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use peregrine::{
    client::{
        CallOptions, Client, ClientBuilder, ClientError, ClientErrorKind, HttpRequest,
        ProtocolVersion, SendRequest,
        card::{AgentCard, CardExtension},
        credentials::{Credentials, Secret},
    },
    fault::FaultKind,
    model::{Extension, MessageBuf, PartsBuf, TaskState},
};

use crate::{
    scripted::*,
    stream_faults::{ALL, ItemKind, Over, item, stream},
};

/// A client of a server that numbers its requests from 1.
pub fn numbered(
    over: Over,
    builder: ClientBuilder,
    script: impl Fn(u64, &HttpRequest<'_>) -> Reply + Send + Sync + 'static,
) -> Client<Scripted> {
    let count = AtomicU64::new(0);
    let transport = Scripted::new(move |request| script(count.fetch_add(1, Relaxed) + 1, request));
    let card = AgentCard::read(card(over.binding(), "http://agent.test").as_bytes()).unwrap();
    builder.connect_over(transport, card, None).unwrap()
}

pub fn request_count(client: &Client<Scripted>) -> usize {
    client.transport().requests.lock().unwrap().len()
}

pub fn clock(client: &Client<Scripted>) -> u64 {
    client.transport().now_ms.load(Relaxed)
}

fn later(status: u16, seconds: &str) -> Reply {
    Reply::of(status, &[("retry-after", seconds)], "")
}

/// A task in HTTP+JSON where the answer has only one form.
const READ: &str = r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}"#;

/// A JSON-RPC call that is refused at the server's limit.
const OVERLOADED: &str = concat!(
    r#""error":{"code":-32000,"message":"busy","data":[{"reason":"RESOURCE_EXHAUSTED","#,
    r#""@type":"type.googleapis.com/google.rpc.ErrorInfo"}]}"#
);

#[test]
fn a_read_is_retried_after_the_servers_delay() {
    for status in [429, 503] {
        let client = numbered(Over::Rest, ClientBuilder::new(), move |number, _| match number {
            1 => later(status, "1"),
            2 => later(status, "30"),
            _ => Reply::json(READ),
        });
        assert!(settled(client.get_task("t", None)).is_ok(), "{status}");
        assert_eq!(request_count(&client), 3, "{status}");
        assert!(clock(&client) >= 31_000, "{status}");
        // Four attempts in all, and only one if the server asks for too long a wait.
        for (seconds, times) in [("1", 4), ("61", 1)] {
            let refuses = move |_, _: &HttpRequest<'_>| later(status, seconds);
            let client = numbered(Over::Rest, ClientBuilder::new(), refuses);
            let error = settled(client.get_task("t", None)).unwrap_err();
            assert_eq!(error.kind, ClientErrorKind::NotA2a(status));
            assert_eq!(request_count(&client), times, "{status} {seconds}");
        }
    }
}

#[test]
fn send_is_retried_only_with_retry_after_or_idempotency() {
    fn broken() -> Reply {
        let mut reply = Reply::json("");
        reply.pieces = [Piece::Break].into();
        reply
    }
    let cases: [(fn() -> Reply, bool); 4] = [
        (|| later(429, "1"), true),
        (|| later(503, "1"), true),
        (|| Reply::of(503, &[], ""), false),
        (broken, false),
    ];
    for (case, (refusal, is_unread)) in cases.into_iter().enumerate() {
        for is_idempotent in [false, true] {
            let options = CallOptions { is_idempotent, ..CallOptions::default() };
            let builder = ClientBuilder::new().options(options);
            let client = numbered(Over::Rest, builder, move |number, _| match number {
                1 => refusal(),
                _ => Reply::json(MESSAGE),
            });
            let sent = settled(client.send(&SendRequest::text("hello")));
            let is_repeated = is_unread || is_idempotent;
            assert_eq!(sent.is_ok(), is_repeated, "case {case}: {is_idempotent}");
            assert_eq!(request_count(&client), 1 + usize::from(is_repeated), "case {case}");
        }
    }
}

/// The card of an agent that declares idempotent sends.
fn declaring(callers: &str, requires_key: bool) -> AgentCard {
    let mut card =
        AgentCard::read(card(Over::Rest.binding(), "http://agent.test").as_bytes()).unwrap();
    let params = serde_json::json!({ "callers": callers });
    card.capabilities.extensions.push(CardExtension {
        uri: Extension::IDEMPOTENT_SEND.to_owned(),
        params: params.as_object().cloned(),
        ..CardExtension::default()
    });
    let mut text = serde_json::to_value(&card).unwrap();
    if requires_key {
        text["securitySchemes"] = serde_json::json!(
            {"key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}});
        text["securityRequirements"] = serde_json::json!([{"schemes": {"key": {"list": []}}}]);
    }
    AgentCard::read(text.to_string().as_bytes()).unwrap()
}

#[test]
fn a_send_is_retried_if_the_card_declares_idempotency() {
    for (callers, requires_key, has_key, is_repeated) in [
        ("all", false, false, true),
        ("authenticated", false, false, false),
        ("authenticated", false, true, false),
        ("authenticated", true, true, true),
        ("some", true, true, false),
    ] {
        for status in [503, 504] {
            let mut builder = ClientBuilder::new();
            if has_key {
                builder = builder.credentials(Credentials {
                    api_key: Some(Secret::new("secret")),
                    allows_plain_http: true,
                    allows_other_origins: true,
                    ..Credentials::default()
                });
            }
            let count = AtomicU64::new(0);
            let transport = Scripted::new(move |request: &HttpRequest<'_>| {
                assert!(String::from_utf8_lossy(request.body).contains(r#""messageId":"same""#));
                match count.fetch_add(1, Relaxed) {
                    0 => Reply::of(status, &[], ""),
                    _ => Reply::json(MESSAGE),
                }
            });
            let card = declaring(callers, requires_key);
            let client = builder.connect_over(transport, card, None).unwrap();
            let parts = PartsBuf::new().text("hello");
            let request = SendRequest::of(MessageBuf::user(&parts).id("same"));
            let sent = settled(client.send(&request));
            let case = format!("{callers} {requires_key} {has_key} {status}");
            assert_eq!(sent.is_ok(), is_repeated, "{case}");
            assert_eq!(request_count(&client), 1 + usize::from(is_repeated), "{case}");
        }
    }
}

/// The first item of a stream, as a state.
pub fn first(client: &Client<Scripted>) -> Result<Option<TaskState>, ClientError> {
    settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await?;
        let event = stream.next().await.expect("an item")?;
        Ok(event.state())
    })
}

#[test]
fn stream_open_is_retried_after_the_servers_delay() {
    for over in ALL {
        let client = numbered(over, ClientBuilder::new(), move |number, request| match number {
            1 => later(429, "1"),
            2 => later(503, "20"),
            _ => stream(over, request, vec![Piece::Bytes(item(over, ItemKind::Task, number))]),
        });
        assert_eq!(first(&client).unwrap(), Some(TaskState::Working), "{over:?}");
        assert_eq!(request_count(&client), 3, "{over:?}");
        assert!(clock(&client) >= 21_000, "{over:?}");
        // A server that may have read it is not called again.
        let lost = move |_, _: &HttpRequest<'_>| Reply::of(502, &[], "");
        let client = numbered(over, ClientBuilder::new(), lost);
        assert_eq!(first(&client).unwrap_err().kind, ClientErrorKind::NotA2a(502), "{over:?}");
        assert_eq!(request_count(&client), 1, "{over:?}");
        // A call that changes nothing may be retried.
        assert!(settled(client.subscribe("t", None)).is_err());
        assert_eq!(request_count(&client), 5, "{over:?}");
    }
}

/// A stream that is refused by its first item, or in gRPC by its trailers. `rest` and `rpc`: the
/// members of the fault.
fn refused(over: Over, request: &HttpRequest<'_>, id: u64, rest: &str, rpc: &str) -> Reply {
    let response = format!(r#"{{"jsonrpc":"2.0","id":"{id}",{rpc}}}"#);
    let pieces = match over {
        Over::WebSocket => vec![frame(&response)],
        Over::Rest => vec![Piece::Bytes(format!("event: error\ndata: {{{rest}}}\n\n").into())],
        Over::JsonRpc => vec![Piece::Bytes(format!("data: {response}\n\n").into())],
        Over::Grpc => vec![],
    };
    stream(over, request, pieces)
}

#[test]
fn a_stream_refused_by_its_first_item_is_opened_again() {
    for over in [Over::JsonRpc, Over::WebSocket] {
        for times in [2, 9] {
            let client =
                numbered(over, ClientBuilder::new(), move |number, request| match number < times {
                    true => refused(over, request, number, "", OVERLOADED),
                    false => stream(
                        over,
                        request,
                        vec![Piece::Bytes(item(over, ItemKind::Task, number))],
                    ),
                });
            let result = first(&client);
            match times {
                2 => assert_eq!(result.unwrap(), Some(TaskState::Working), "{over:?}"),
                _ => {
                    let fault = result.unwrap_err().fault_kind();
                    assert_eq!(fault, Some(FaultKind::Overloaded), "{over:?}");
                }
            }
            assert_eq!(request_count(&client) as u64, times.min(4), "{over:?}");
        }
    }
}

/// A version fault over each binding, and the calls that it answers.
#[test]
fn refused_version_is_retried_with_a_supported_version() {
    const WHY: &str = "VersionNotSupportedError: only 0.3 is served";
    let rpc = format!(r#""error":{{"code":-32009,"message":"{WHY}"}}"#);
    let info = r#""@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"a2a-protocol.org""#;
    let details = format!(r#"[{{{info},"reason":"VERSION_NOT_SUPPORTED"}}]"#);
    let rest = format!(
        r#""error":{{"code":400,"status":"FAILED_PRECONDITION","message":"{WHY}","details":{details}}}"#
    );
    for over in ALL {
        for (is_stream, is_late) in [(false, false), (true, false), (true, true)] {
            let (rpc, rest) = (rpc.clone(), rest.clone());
            let builder = ClientBuilder::new().floor(ProtocolVersion::V0_3);
            let client = numbered(over, builder, move |number, request| {
                if number > 1 {
                    return Reply::of(418, &[], "");
                }
                let fault = [("grpc-status", "9"), ("grpc-message", WHY)];
                let media = ("content-type", "application/grpc");
                match (over, is_late) {
                    (Over::Grpc, false) => Reply::of(200, &[media, fault[0], fault[1]], ""),
                    (Over::Grpc, true) => stream(over, request, vec![]).trailers(&fault),
                    (Over::JsonRpc, false) => {
                        Reply::json(&format!(r#"{{"jsonrpc":"2.0","id":"1",{rpc}}}"#))
                    }
                    (Over::Rest, false) => {
                        let media = ("content-type", "application/json");
                        Reply::of(400, &[media], &format!("{{{rest}}}"))
                    }
                    (_, _) => refused(over, request, 1, &rest, &rpc),
                }
            });
            let error = match is_stream {
                true => first(&client).unwrap_err(),
                false => settled(client.send(&SendRequest::text("hello"))).unwrap_err(),
            };
            let case = format!("{over:?} {is_stream} {is_late}");
            assert_eq!(error.kind, ClientErrorKind::NotA2a(418), "{case}");
            let fields = client.transport().fields.lock().unwrap();
            assert_eq!(fields.len(), 2, "{case}");
            assert!(fields[0].contains("A2A-Version: 1.0\r\n"), "{case}");
            assert!(fields[1].contains("A2A-Version: 0.3\r\n"), "{case}");
            assert_eq!(client.interface().version, ProtocolVersion::V0_3, "{case}");
        }
    }
}

#[test]
fn resubscription_waits_for_the_servers_delay() {
    const BUSY: &str = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"busy",
        "details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo",
        "reason":"RESOURCE_EXHAUSTED","domain":"a2a-protocol.org"}]}}"#;
    let done = TASK.replace("WORKING", "COMPLETED");
    let client = numbered(Over::Rest, ClientBuilder::new(), move |number, request| match number {
        1 => {
            let task = Piece::Bytes(item(Over::Rest, ItemKind::Task, number));
            stream(Over::Rest, request, vec![task, Piece::Break])
        }
        2 => later(429, "7"),
        3 => Reply::of(429, &[("content-type", "application/json"), ("retry-after", "5")], BUSY),
        4 => Reply::of(503, &[("content-type", "application/json")], BUSY),
        _ => {
            let event = Piece::Bytes(format!("data: {done}\n\n").into());
            stream(Over::Rest, request, vec![event])
        }
    });
    settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        while let Some(event) = stream.next().await {
            event.unwrap();
        }
        assert_eq!(stream.state(), Some(TaskState::Completed));
    });
    assert_eq!(request_count(&client), 5);
    assert!(clock(&client) >= 12_000);
    // The client does not wait if the server asks for too long a wait.
    let client = numbered(Over::Rest, ClientBuilder::new(), move |number, request| match number {
        1 => {
            let task = Piece::Bytes(item(Over::Rest, ItemKind::Task, number));
            stream(Over::Rest, request, vec![task, Piece::Break])
        }
        _ => later(429, "3600"),
    });
    let error = settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        stream.next().await.unwrap().unwrap();
        stream.next().await.unwrap().map(drop).unwrap_err()
    });
    assert_eq!(error.kind, ClientErrorKind::NotA2a(429));
    assert_eq!(request_count(&client), 2);
}
