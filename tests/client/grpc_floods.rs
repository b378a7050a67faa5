//! Endless frames in answer to a gRPC call, before its head and after it: each gives a named error
//! before the deadline.

use std::{
    io::{Write, copy, sink},
    net::TcpStream,
};

use peregrine::client::{ClientBuilder, ClientErrorKind, TransportError};

use crate::{
    frames::*,
    items::Over,
    server_faults::{Way, agent},
    wire::*,
};

/// Writes `first` and then `again`, for as long as the client reads, and reads the client's frames.
fn flood(stream: &mut TcpStream, first: &[u8], again: &[u8]) {
    let mut reader = stream.try_clone().unwrap();
    std::thread::spawn(move || copy(&mut reader, &mut sink()));
    let again = again.repeat(200);
    let _ = stream.write_all(first);
    while stream.write_all(&again).is_ok() {}
}

/// A flood: its name, and the bytes to repeat in answer to a stream.
type Flood = (&'static str, fn(u32) -> Vec<u8>);

/// Tries each way to call, and checks the name of its error.
fn assert_ends(
    all: &[Flood],
    first: fn(u32) -> Vec<u8>,
    is_named: impl Fn(&TransportError) -> bool,
) {
    for (name, again) in all {
        let again = *again;
        let server = RawServer::new(move |_, mut stream| {
            serve(&mut stream, |id, stream| {
                flood(stream, &first(id), &again(id));
                false
            });
        });
        run(async {
            let client = agent(Over::Grpc, server.addr, client(), ClientBuilder::new());
            for way in [Way::Send, Way::Stream] {
                let error = way.call(&client).await.expect_err("no answer").kind.clone();
                let ClientErrorKind::Transport(error) = error else { panic!("{name}: {error:?}") };
                assert!(is_named(&error), "{name}: {way:?}: {error:?}");
            }
        });
    }
}

fn nothing(_: u32) -> Vec<u8> {
    Vec::new()
}

fn head(stream: u32) -> Vec<u8> {
    headers(stream, 0, &[(":status", "200"), ("content-type", "application/grpc")])
}

#[test]
fn empty_frame_flood_ends_the_call_with_an_error() {
    let all: [Flood; 7] = [
        ("PING", |_| frame(PING, 0, 0, &[7; 8])),
        ("SETTINGS", |_| frame(SETTINGS, 0, 0, &[])),
        ("SETTINGS of a window", |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        ("PRIORITY", |id| frame(PRIORITY, 0, id, &[0, 0, 0, 0, 1])),
        ("an unknown frame", |_| frame(0xbb, 0, 0, b"x")),
        ("WINDOW_UPDATE by one", |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("WINDOW_UPDATE of the stream", |id| frame(WINDOW_UPDATE, 0, id, &[0, 0, 0, 1])),
    ];
    let is_named = |error: &TransportError| match error {
        TransportError::Http2(why) => why.contains("too many empty frames"),
        _ => false,
    };
    assert_ends(&all, nothing, is_named);
    assert_ends(&all, head, is_named);
    let is_http2 = |error: &TransportError| matches!(error, TransportError::Http2(_));
    assert_ends(&[("empty DATA", |id| frame(DATA, 0, id, &[]))], head, is_http2);
    assert_ends(&[("padding", |id| frame(DATA, 8, id, &[3, 0, 0, 0]))], head, is_http2);
}

#[test]
fn endless_header_fields_end_the_call_with_an_error() {
    let is_http2 = |error: &TransportError| matches!(error, TransportError::Http2(_));
    let continued = |id| frame(CONTINUATION, 0, id, &block(&[("x", "y")]));
    // In the head, and in the trailers.
    let begun = |id| frame(HEADERS, 0, id, &block(&[(":status", "200"), ("x", "y")]));
    assert_ends(&[("CONTINUATION", continued)], begun, is_http2);
    let begun =
        |id| [head(id), frame(HEADERS, END_STREAM, id, &block(&[("grpc-status", "0")]))].concat();
    assert_ends(&[("CONTINUATION of trailers", continued)], begun, is_http2);
    let empty = |id| frame(CONTINUATION, 0, id, &[]);
    let begun = |id| frame(HEADERS, 0, id, &block(&[(":status", "200")]));
    assert_ends(&[("empty CONTINUATION", empty)], begun, is_http2);
    let interim = |id| headers(id, 0, &[(":status", "103"), ("link", "x")]);
    assert_ends(&[("interim responses", interim)], nothing, is_http2);
}

#[test]
fn unrequested_frames_end_a_call() {
    let is_http2 = |error: &TransportError| {
        matches!(error, TransportError::Http2(_) | TransportError::Closed { .. })
    };
    let all: [Flood; 3] = [
        ("resets of what nobody has opened", |_| frame(RST_STREAM, 0, 9, &[0, 0, 0, 8])),
        ("pushed streams", |id| frame(PUSH_PROMISE, END_HEADERS, id, &[0, 0, 0, 2])),
        ("GOAWAY", |_| frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0])),
    ];
    assert_ends(&all, nothing, is_http2);
    assert_ends(&all, head, is_http2);
    // A message of two GiB: the bytes read exceed a limit before they exceed the window.
    let data: Flood = ("data beyond the window", |id| frame(DATA, 0, id, &[b'x'; 16_000]));
    let is_too_large = |error: &TransportError| matches!(error, TransportError::TooLarge(_));
    assert_ends(&[data], head, |error| is_http2(error) || is_too_large(error));
}
