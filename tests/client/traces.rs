//! Which calls carry the trace that they belong to.

use peregrine::{
    client::{
        Client, ClientBuilder, ClientErrorKind, HttpRequest, ListTasks, SendRequest, TraceParent,
        card::AgentCard,
    },
    model::PushConfigBuf,
};

use crate::{
    scripted::*,
    stream_faults::{ItemKind, Over, item, pb, stream},
};

const OF_ALL: &str = "00-00000000000000000000000000000001-0000000000000001-00";
const OF_CLIENT: &str = "00-00000000000000000000000000000002-0000000000000002-01";
const OF_CALL: &str = "00-00000000000000000000000000000003-0000000000000003-01";

const BINDINGS: [(Over, &str); 3] =
    [(Over::JsonRpc, "JSONRPC"), (Over::Rest, "HTTP+JSON"), (Over::Grpc, "GRPC")];

fn trace(text: &str) -> TraceParent {
    TraceParent::parse(text).unwrap()
}

/// A client with one trace for all requests.
fn client(transport: Scripted, binding: &str) -> Client<Scripted> {
    let more = r#""streaming":true,"pushNotifications":true,"extendedAgentCard":true"#;
    let card = card(binding, "http://agent.test").replace(r#""streaming":true"#, more);
    let card = AgentCard::read(card.as_bytes()).unwrap();
    let builder = ClientBuilder::new().field("Traceparent", OF_ALL).unwrap();
    builder.connect_over(transport, card, None).unwrap()
}

/// The traces of the requests since the last call.
fn traces(client: &Client<Scripted>) -> Vec<String> {
    let mut fields = client.transport().fields.lock().unwrap();
    fields
        .drain(..)
        .map(|lines| {
            let values: Vec<&str> = lines
                .lines()
                .filter_map(|line| line.split_once(": "))
                .filter(|(name, _)| name.eq_ignore_ascii_case("traceparent"))
                .map(|(_, value)| value)
                .collect();
            values.join(" and ")
        })
        .collect()
}

#[test]
fn send_uses_trace_of_request_then_client_then_builder() {
    for (_, binding) in BINDINGS {
        let all = client(Scripted::new(|_| Reply::of(404, &[], "")), binding);
        let traced = all.with_traceparent(trace(OF_CLIENT));
        let plain = SendRequest::text("hello");
        let own = plain.clone().traceparent(trace(OF_CALL));
        let cases = [
            (&all, &own, OF_CALL),
            (&all, &plain, OF_ALL),
            (&traced, &own, OF_CALL),
            (&traced, &plain, OF_CLIENT),
            (&all, &plain, OF_ALL),
        ];
        for (client, request, expected) in cases {
            let _ = settled(client.send(request));
            let _ = settled(client.stream(request));
            assert_eq!(traces(&all), [expected; 2], "{binding}");
        }
    }
}

#[test]
fn every_client_operation_carries_its_trace() {
    for (_, binding) in BINDINGS {
        let all = client(Scripted::new(|_| Reply::of(404, &[], "")), binding);
        for (client, expected) in
            [(all.with_traceparent(trace(OF_CLIENT)).clone(), OF_CLIENT), (all.clone(), OF_ALL)]
        {
            settled(async {
                let _ = client.subscribe("t", Some(7)).await;
                let _ = client.get_task("t", None).await;
                let _ = client.list_tasks(&ListTasks::default()).await;
                let _ = client.cancel_task("t", None).await;
                let config = PushConfigBuf::new("https://hook.test").task_id("t");
                let _ = client.set_push_config(&config).await;
                let _ = client.get_push_config("t", Some("p")).await;
                let _ = client.list_push_configs("t", None, None).await;
                let _ = client.delete_push_config("t", "p").await;
                let _ = client.extended_card().await;
            });
            assert_eq!(traces(&all), [expected; 9], "{binding}");
        }
    }
}

/// The answer to the call of this number, which reads a running task.
fn task(over: Over, id: usize) -> Reply {
    let json = r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}"#;
    match over {
        Over::Grpc => {
            let message = [pb(1, b"t"), pb(2, b"c"), pb(3, &[8, 2])].concat();
            let length = (message.len() as u32).to_be_bytes();
            let fields = [("content-type", "application/grpc"), ("grpc-status", "0")];
            let mut reply = Reply::of(200, &fields, "");
            reply.pieces = [Piece::Bytes([&[0], &length[..], &message].concat())].into();
            reply
        }
        Over::JsonRpc => {
            Reply::json(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{json}}}"#))
        }
        Over::Rest | Over::WebSocket => Reply::json(json),
    }
}

/// The stream and its subscriptions break, so that the task is read again and again.
#[test]
fn resumptions_carry_the_trace_of_their_stream() {
    const CALLS: usize = 9;
    for (over, binding) in BINDINGS {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let script = move |request: &HttpRequest<'_>| {
            let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            let body = String::from_utf8_lossy(request.body);
            let is_read = body.contains("\"GetTask\"")
                || request.target.ends_with("/GetTask")
                || request.target == "/tasks/t";
            let first = Piece::Bytes(item(over, ItemKind::Task, 1));
            match number {
                CALLS => Reply::of(404, &[], ""),
                1 => stream(over, request, vec![first, Piece::Break]),
                _ if is_read => task(over, number),
                _ => stream(over, request, vec![Piece::Break]),
            }
        };
        let client = client(Scripted::new(script), binding);
        let request = SendRequest::text("hello").traceparent(trace(OF_CALL));
        let error = settled(async {
            let mut stream = client.stream(&request).await.unwrap();
            loop {
                if let Err(error) = stream.next().await.unwrap() {
                    return error;
                }
            }
        });
        assert!(!matches!(error.kind, ClientErrorKind::Transport(_)), "{binding}: {error:?}");
        assert_eq!(traces(&client), [OF_CALL; CALLS], "{binding}");
    }
}

/// The caller that opens a session does not set the trace of later callers.
#[test]
fn websocket_sends_only_the_trace_of_all_requests() {
    let transport = Scripted::new(|request| {
        Reply::socket(request, vec![vec![result(1, MESSAGE)], vec![result(2, MESSAGE)]])
    });
    let all = client(transport, "WEBSOCKET");
    let traced = all.with_traceparent(trace(OF_CLIENT));
    settled(traced.send(&SendRequest::text("hello"))).unwrap();
    let own = SendRequest::text("hello").traceparent(trace(OF_CALL));
    settled(all.send(&own)).unwrap();
    assert_eq!(traces(&all), [OF_ALL]);
}
