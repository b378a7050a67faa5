//! Limits of the client that no other test reaches: each ends with its named error, or with the
//! connections that it closes.

use std::io::Write;

use peregrine::{
    client::{
        ClientBuilder, ClientErrorKind, ClientLimits, HttpVersion, SendRequest, TransportError,
        card::AgentCard,
    },
    net::{ClientTls, Proxies},
};

use crate::{codings, scripted, wire::*};

/// Longer than a test may take: an earlier end is due to another limit.
const FOREVER_MS: u64 = 3_600_000;

const NO_CONNECTION: TransportError = TransportError::Timeout("connection");

/// A request that has all the time there is.
fn patient(version: HttpVersion) -> Ask<'static> {
    Ask { version, head_ms: FOREVER_MS, idle_ms: FOREVER_MS, ..GET }
}

#[test]
fn an_unanswered_handshake_ends_with_the_connect_timeout() {
    let server = RawServer::new(|_, stream| hold(stream));
    let url = format!("https://{}/", server.addr);
    for version in [HttpVersion::Any, HttpVersion::Http1, HttpVersion::Http2] {
        run(async {
            let client = client_with(|options| {
                options.limits.connect_ms = 50;
                options.tls = ClientTls::default().insecure();
            });
            assert_eq!(patient(version).whole(&client, &url).await, Err(NO_CONNECTION));
        });
    }
}

#[test]
fn unanswered_proxy_tunnel_ends_with_connect_timeout() {
    let proxy = RawServer::new(|_, stream| hold(stream));
    let proxy_url = format!("http://{}", proxy.addr);
    run(async {
        let client = client_with(|options| {
            options.limits.connect_ms = 50;
            options.proxies =
                Proxies::from_variables(|name| (name == "all_proxy").then(|| proxy_url.clone()))
                    .unwrap();
        });
        let request = patient(HttpVersion::Any);
        let error = request.whole(&client, "https://origin.example/").await.unwrap_err();
        // Both time out at the same moment, so the error may name either.
        let is_late = match &error {
            TransportError::Proxy(why) => why.contains("in time"),
            other => *other == NO_CONNECTION,
        };
        assert!(is_late, "{error:?}");
    });
}

/// The error of a stream after its head, without an event.
fn silent_stream(binding: &str, head: &'static [u8]) -> ClientErrorKind {
    let server = RawServer::saying(head, hold);
    let card = scripted::card(binding, &format!("http://{}", server.addr));
    let card = AgentCard::read(card.as_bytes()).unwrap();
    run(async {
        let limits =
            ClientLimits { stream_idle_ms: 50, idle_ms: FOREVER_MS, ..ClientLimits::default() };
        let builder = ClientBuilder::new().limits(limits);
        let client = builder.connect_over(client(), card, None).unwrap();
        let mut stream = client.stream(&SendRequest::text("hello")).await.unwrap();
        let next = stream.next().await.expect("no end");
        next.err().expect("no event").kind.clone()
    })
}

#[test]
fn silent_stream_ends_with_stream_idle_timeout() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let expected = TransportError::Timeout("byte of the body");
        assert_eq!(silent_stream(binding, HEAD), ClientErrorKind::Transport(expected), "{binding}");
    }
}

/// A server that keeps its connections open.
fn keeping() -> RawServer {
    RawServer::new(|_, mut stream| {
        while read_request(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    })
}

#[test]
fn connections_beyond_pool_origins_max_are_closed() {
    for (pool_origins_max, connections) in [(2, 1), (1, 2), (0, 2)] {
        let (first, second) = (keeping(), keeping());
        run(async {
            let client = client_with(|options| options.limits.pool_origins_max = pool_origins_max);
            for server in [&first, &second, &first] {
                assert_eq!(GET.whole(&client, &server.url()).await.unwrap().0, 200);
            }
        });
        assert_eq!(first.connections(), connections, "{pool_origins_max}");
        assert_eq!(second.connections(), 1, "{pool_origins_max}");
    }
}

#[test]
fn decoded_ratio_is_checked_above_decoded_bytes_free() {
    let decoded = |length: usize, bytes_free: Option<usize>| {
        let content = gzip(&vec![b'0'; length]);
        assert!(content.len() * 100 < length, "it is beyond the ratio");
        let server = codings::server("Content-Encoding: gzip", content);
        run(async {
            let client = client_with(|options| {
                if let Some(bytes_free) = bytes_free {
                    options.limits.decoded_bytes_free = bytes_free;
                }
            });
            GET.whole(&client, &server.url()).await.map(|(_, content)| content.len())
        })
    };
    let ratio = Err(TransportError::TooLarge("decoded_ratio_max"));
    const KIB: usize = 1024;
    assert_eq!(decoded(64 * KIB, None), Ok(64 * KIB));
    assert_eq!(decoded(64 * KIB + 1, None), ratio);
    assert_eq!(decoded(64 * KIB, Some(64 * KIB - 1)), ratio);
    assert_eq!(decoded(64 * KIB + 1, Some(64 * KIB + 1)), Ok(64 * KIB + 1));
}

/// The error of a call that gets this many frames without data before its answer.
fn after_silent_frames(frame: &[u8], count: usize) -> Option<ClientErrorKind> {
    let frames = frame.repeat(count);
    let transport = scripted::Scripted::new(move |request| {
        let answer = scripted::result(1, scripted::MESSAGE);
        let silent = scripted::Piece::Bytes(frames.clone());
        scripted::Reply::socket(request, vec![vec![silent, answer]])
    });
    let client = scripted::client(transport, "WEBSOCKET", "http://agent.test");
    let sent = scripted::settled(client.send(&SendRequest::text("hello")));
    sent.err().map(|error| error.kind.clone())
}

/// `SILENT_FRAMES_MAX`.
#[test]
fn too_many_websocket_control_frames_are_an_error() {
    const PONG: &[u8] = b"\x8a\x00";
    const PING: &[u8] = b"\x89\x00";
    for frame in [PONG, PING] {
        assert_eq!(after_silent_frames(frame, 9_900), None);
        let expected = TransportError::Malformed("too many control frames without a message");
        let expected = Some(ClientErrorKind::Transport(expected));
        assert_eq!(after_silent_frames(frame, 10_000), expected);
    }
}
