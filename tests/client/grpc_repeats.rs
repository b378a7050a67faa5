//! What a gRPC status without an A2A reason means for its call, like the corresponding HTTP status.

use peregrine::{
    client::{
        CallOptions, Client, ClientBuilder, ClientError, ClientErrorKind, HttpRequest, SendRequest,
    },
    json::base64,
    model::TaskState,
};

use crate::{
    repeats::{self, clock, first, request_count},
    scripted::*,
    stream_faults::{ItemKind, Over, item, pb, stream},
};

const MEDIA: (&str, &str) = ("content-type", "application/grpc");
const UNAVAILABLE: &str = "14";
const EXHAUSTED: &str = "8";

/// A client of a server that numbers its requests from 1.
fn numbered(
    is_idempotent: bool,
    script: impl Fn(u64, &HttpRequest<'_>) -> Reply + Send + Sync + 'static,
) -> Client<Scripted> {
    let options = CallOptions { is_idempotent, ..CallOptions::default() };
    repeats::numbered(Over::Grpc, ClientBuilder::new().options(options), script)
}

/// `grpc-status-details-bin` with RetryInfo of this many seconds and one nanosecond, which the
/// client rounds up to a millisecond.
fn retry_info(seconds: u8) -> String {
    let delay = pb(1, &[8, seconds, 16, 1]);
    let any = [pb(1, b"type.googleapis.com/google.rpc.RetryInfo"), pb(2, &delay)].concat();
    base64::encode(&pb(3, &any))
}

/// A call that fails: by its head, or by later trailers.
fn refused(code: &str, seconds: Option<u8>, is_late: bool) -> Reply {
    let details = seconds.map(retry_info).unwrap_or_default();
    let mut end = vec![("grpc-status", code)];
    if !details.is_empty() {
        end.push(("grpc-status-details-bin", &details));
    }
    match is_late {
        true => Reply::of(200, &[MEDIA], "").trailers(&end),
        false => Reply::of(200, &[&[MEDIA], end.as_slice()].concat(), ""),
    }
}

/// A call that succeeds with this message.
fn answered(message: &[u8]) -> Reply {
    let mut reply = Reply::of(200, &[MEDIA], "").trailers(&[("grpc-status", "0")]);
    let length = (message.len() as u32).to_be_bytes();
    reply.pieces = [Piece::Bytes([&[0], length.as_slice(), message].concat())].into();
    reply
}

fn task() -> Vec<u8> {
    [pb(1, b"t"), pb(2, b"c"), pb(3, &[8, 2])].concat()
}

fn status_of(error: &ClientError) -> Option<&str> {
    error.fault().and_then(|fault| fault.status.as_deref())
}

#[test]
fn a_read_is_retried_after_the_servers_delay() {
    for (code, name) in [(UNAVAILABLE, "UNAVAILABLE"), (EXHAUSTED, "RESOURCE_EXHAUSTED")] {
        for is_late in [false, true] {
            let client = numbered(false, move |number, _| match number {
                1 => refused(code, Some(1), is_late),
                2 => refused(code, Some(30), is_late),
                3 => refused(code, None, is_late),
                _ => answered(&task()),
            });
            assert!(settled(client.get_task("t", None)).is_ok(), "{name} {is_late}");
            assert_eq!(request_count(&client), 4, "{name}");
            assert!(clock(&client) >= 31_002, "{name}");
            // Four attempts in all, and only one if the server asks for too long a wait.
            for (seconds, times) in [(Some(1), 4), (None, 4), (Some(60), 1)] {
                let client = numbered(false, move |_, _| refused(code, seconds, is_late));
                let error = settled(client.get_task("t", None)).unwrap_err();
                assert_eq!(status_of(&error), Some(name));
                let requested_ms = seconds.map(|seconds| u64::from(seconds) * 1_000 + 1);
                assert_eq!(error.retry_after_ms, requested_ms, "{name}");
                assert_eq!(request_count(&client), times, "{name} {seconds:?}");
            }
        }
    }
    // Any other call would be retried.
    let client = numbered(true, |_, _| refused("13", Some(1), false));
    assert!(settled(client.get_task("t", None)).is_err());
    assert_eq!(request_count(&client), 1);
}

#[test]
fn send_is_retried_only_with_retry_info_or_idempotency() {
    for code in [UNAVAILABLE, EXHAUSTED] {
        for (seconds, is_idempotent) in
            [(None, false), (None, true), (Some(1), false), (Some(1), true)]
        {
            let client = numbered(is_idempotent, move |number, _| match number {
                1 => refused(code, seconds, false),
                _ => answered(&pb(1, &task())),
            });
            let sent = settled(client.send(&SendRequest::text("hello")));
            let is_repeated = seconds.is_some() || is_idempotent;
            let case = format!("{code} {seconds:?} {is_idempotent}");
            assert_eq!(sent.is_ok(), is_repeated, "{case}");
            assert_eq!(request_count(&client), 1 + usize::from(is_repeated), "{case}");
        }
    }
}

#[test]
fn stream_open_is_retried_after_the_servers_delay() {
    for is_late in [false, true] {
        let client = numbered(false, move |number, request| match number {
            1 => refused(EXHAUSTED, Some(1), is_late),
            2 => refused(UNAVAILABLE, Some(20), is_late),
            _ => {
                stream(Over::Grpc, request, vec![Piece::Bytes(item(Over::Grpc, ItemKind::Task, 1))])
            }
        });
        assert_eq!(first(&client).unwrap(), Some(TaskState::Working), "{is_late}");
        assert_eq!(request_count(&client), 3, "{is_late}");
        assert!(clock(&client) >= 21_002, "{is_late}");
        // A server that may have executed the call is not called again.
        let client = numbered(false, move |_, _| refused(UNAVAILABLE, None, is_late));
        let error = first(&client).unwrap_err();
        assert_eq!(status_of(&error), Some("UNAVAILABLE"), "{is_late}");
        assert_eq!(request_count(&client), 1, "{is_late}");
    }
}

#[test]
fn stream_ended_by_unavailable_status_is_resumed() {
    const COMPLETED: u8 = 3;
    for seconds in [None, Some(7)] {
        let client = numbered(false, move |number, _| match number {
            1 => {
                let mut reply = refused(UNAVAILABLE, seconds, true);
                reply.pieces = [Piece::Bytes(item(Over::Grpc, ItemKind::Task, 1))].into();
                reply
            }
            2 => refused(UNAVAILABLE, Some(5), true),
            3 => refused(EXHAUSTED, Some(5), false),
            4 => refused(UNAVAILABLE, None, false),
            _ => {
                let done = [pb(1, b"t"), pb(2, b"c"), pb(3, &[8, COMPLETED])].concat();
                answered(&pb(1, &done))
            }
        });
        settled(async {
            let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
            while let Some(event) = stream.next().await {
                event.unwrap();
            }
            assert_eq!(stream.state(), Some(TaskState::Completed), "{seconds:?}");
        });
        assert_eq!(request_count(&client), 5, "{seconds:?}");
        let requested_ms = 10_000 + u64::from(seconds.unwrap_or_default()) * 1_000;
        assert!(clock(&client) >= requested_ms, "{seconds:?}");
    }
    // The client does not wait if the server asks for too long a wait.
    let client = numbered(false, |number, _| match number {
        1 => {
            let mut reply = refused(UNAVAILABLE, Some(61), true);
            reply.pieces = [Piece::Bytes(item(Over::Grpc, ItemKind::Task, 1))].into();
            reply
        }
        _ => answered(&task()),
    });
    let error = settled(async {
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        stream.next().await.unwrap().unwrap();
        stream.next().await.unwrap().map(drop).unwrap_err()
    });
    assert!(matches!(error.kind, ClientErrorKind::Fault(_)), "{error:?}");
    assert_eq!(request_count(&client), 1);
}
