//! HTTP/2 over sockets: one connection for all requests, and retries when the server closes it.

use std::{
    future::{Future, poll_fn},
    io::Write,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response};
use peregrine::{
    client::{HttpResponse, HttpVersion, TransportError},
    net::HttpClient,
};
use tokio::net::TcpListener;

use crate::{frames::frame, wire::*};

const H2: Ask<'static> = Ask { version: HttpVersion::Http2, ..GET };

fn h2_post(body: &[u8]) -> Ask<'_> {
    Ask { version: HttpVersion::Http2, ..post(body) }
}

/// How a server answers a request: its number, the request, and the handle for the response.
type Serve = fn(usize, Request<RecvStream>, SendResponse<Bytes>);

/// An HTTP/2 server in the test's runtime, and the number of its connections.
async fn server(
    builder: h2::server::Builder,
    goaway_after: usize,
    serve: Serve,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        let requests = Arc::new(AtomicUsize::new(0));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Relaxed);
            let (builder, requests) = (builder.clone(), Arc::clone(&requests));
            tokio::spawn(async move {
                let Ok(mut h2) = builder.handshake::<_, Bytes>(stream).await else { return };
                let mut served = 0;
                while let Some(Ok((request, respond))) = h2.accept().await {
                    serve(requests.fetch_add(1, Relaxed), request, respond);
                    served += 1;
                    if served == goaway_after {
                        h2.graceful_shutdown();
                    }
                }
            });
        }
    });
    (addr, connections)
}

/// Answers with `text`, and a trailer.
fn answer(mut respond: SendResponse<Bytes>, text: &'static str) {
    let mut send = respond.send_response(Response::new(()), false).unwrap();
    send.send_data(Bytes::from_static(text.as_bytes()), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    send.send_trailers(trailers).unwrap();
}

fn ok(_: usize, _: Request<RecvStream>, respond: SendResponse<Bytes>) {
    answer(respond, "ok");
}

fn url(addr: SocketAddr) -> String {
    format!("http://{addr}/a?b=c")
}

async fn get(client: &HttpClient, addr: SocketAddr) -> Result<(u16, String), TransportError> {
    H2.whole(client, &url(addr)).await
}

/// Polls all of them concurrently.
async fn all<T>(works: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut works: Vec<_> = works.into_iter().map(|work| (Box::pin(work), None)).collect();
    poll_fn(|cx| {
        for (work, done) in works.iter_mut().filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(value) = work.as_mut().poll(cx) {
                *done = Some(value);
            }
        }
        match works.iter().all(|(_, done)| done.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    works.into_iter().filter_map(|(_, done)| done).collect()
}

#[test]
fn requests_at_the_same_time_share_one_connection() {
    run(async {
        let mut builder = h2::server::Builder::new();
        // Requests beyond the server's limit wait.
        builder.max_concurrent_streams(2);
        let (addr, connections) = server(builder, 0, ok).await;
        let client = client();
        for answer in all((0..20).map(|_| get(&client, addr)).collect()).await {
            assert_eq!(answer, Ok((200, "ok".to_owned())));
        }
        assert_eq!(connections.load(Relaxed), 1);
    });
}

#[test]
fn trailers_are_available_after_the_content_is_read() {
    run(async {
        let (addr, _) = server(h2::server::Builder::new(), 0, |_, request, respond| {
            assert_eq!(request.uri().path_and_query().unwrap(), "/a?b=c");
            assert_eq!(request.headers()["a2a-version"], "1.0");
            answer(respond, "ok");
        })
        .await;
        let version = fields(&[("A2A-Version", "1.0")]);
        let request = Ask { fields: version.get(), ..H2 };
        let mut response = request.head(&client(), &url(addr)).await.unwrap();
        assert_eq!(response.field("grpc-status"), None);
        assert_eq!(body(&mut response).await.unwrap(), b"ok");
        assert_eq!(response.field("grpc-status"), Some(&b"0"[..]));
        let mut nothing = Vec::new();
        assert!(!poll_fn(|cx| response.poll_read(cx, &mut nothing, 9)).await.unwrap());
    });
}

#[test]
fn refused_streams_are_retried() {
    run(async {
        let (addr, _) = server(h2::server::Builder::new(), 0, |number, _, mut respond| {
            if number == 0 {
                return respond.send_reset(Reason::REFUSED_STREAM);
            }
            answer(respond, "again");
        })
        .await;
        let again = h2_post(b"x").whole(&client(), &url(addr)).await;
        assert_eq!(again, Ok((200, "again".to_owned())));

        let (addr, _) = server(h2::server::Builder::new(), 0, |_, _, mut respond| {
            respond.send_reset(Reason::REFUSED_STREAM);
        })
        .await;
        // But not indefinitely.
        let refused = h2_post(b"x").whole(&client(), &url(addr)).await.unwrap_err();
        assert!(matches!(refused, TransportError::Http2(why) if why.contains("refused")));
    });
}

#[test]
fn requests_that_may_have_run_are_not_retried() {
    run(async {
        let (addr, _) = server(h2::server::Builder::new(), 0, |number, _, mut respond| {
            assert_eq!(number, 0);
            respond.send_reset(Reason::INTERNAL_ERROR);
        })
        .await;
        let failed = h2_post(b"x").whole(&client(), &url(addr)).await.unwrap_err();
        assert!(matches!(failed, TransportError::Http2(why) if why.contains("internal error")));
    });
}

#[test]
fn repeatable_requests_are_retried_once_on_a_closed_connection() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::default(), Arc::default());
        let (count, received) = (Arc::clone(&connections), Arc::clone(&requests));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = AtomicUsize::fetch_add(&count, 1, Relaxed);
                let mut h2 = h2::server::handshake(stream).await.unwrap();
                // The first connection answers one request, the others none.
                let mut answers = usize::from(number == 0);
                while let Some(Ok((_, respond))) = h2.accept().await {
                    AtomicUsize::fetch_add(&received, 1, Relaxed);
                    if answers == 0 {
                        break;
                    }
                    answers -= 1;
                    answer(respond, "ok");
                }
            }
        });
        let client = client();
        let post = Ask { is_repeatable: true, ..h2_post(b"x") };
        assert_eq!(post.whole(&client, &url(addr)).await, Ok((200, "ok".to_owned())));
        assert!(post.whole(&client, &url(addr)).await.is_err());
        assert_eq!((connections.load(Relaxed), requests.load(Relaxed)), (2, 3));
        // A connection opened for the request is not a pooled one.
        assert!(post.whole(&client, &url(addr)).await.is_err());
        assert_eq!((connections.load(Relaxed), requests.load(Relaxed)), (3, 4));
    });
}

#[test]
fn request_after_goaway_opens_a_new_connection() {
    run(async {
        let (addr, connections) = server(h2::server::Builder::new(), 1, ok).await;
        let client = client();
        for _ in 0..5 {
            assert_eq!(get(&client, addr).await, Ok((200, "ok".to_owned())));
            // The GOAWAY arrives.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(connections.load(Relaxed), 5);
    });
}

#[test]
fn content_larger_than_every_window_is_transferred() {
    run(async {
        let (addr, _) = server(h2::server::Builder::new(), 0, |_, request, mut respond| {
            tokio::spawn(async move {
                let mut body = request.into_body();
                let mut sum = 0;
                while let Some(piece) = body.data().await {
                    let piece = piece.unwrap();
                    sum += piece.len();
                    body.flow_control().release_capacity(piece.len()).unwrap();
                }
                let mut send = respond.send_response(Response::new(()), false).unwrap();
                send.send_data(Bytes::from(vec![b'z'; sum]), true).unwrap();
            });
        })
        .await;
        let content = vec![b'a'; 5_000_000];
        let (status, answer) = h2_post(&content).whole(&client(), &url(addr)).await.unwrap();
        assert!(status == 200 && answer.len() == content.len());
    });
}

#[test]
fn http2_response_head_and_body_waits_time_out() {
    run(async {
        let (addr, _) = server(h2::server::Builder::new(), 0, |number, _, mut respond| {
            tokio::spawn(async move {
                let head = Response::new(());
                let stream = (number > 0).then(|| respond.send_response(head, false).unwrap());
                tokio::time::sleep(PATIENCE).await;
                drop((stream, respond));
            });
        })
        .await;
        let client = client();
        let request = Ask { head_ms: 50, idle_ms: 50, ..H2 };
        let late = request.whole(&client, &url(addr)).await;
        assert_eq!(late, Err(TransportError::Timeout("response")));
        let late = request.whole(&client, &url(addr)).await;
        assert_eq!(late, Err(TransportError::Timeout("byte of the body")));
    });
}

#[test]
fn http1_only_server_is_reported_as_lacking_http2() {
    let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let server = RawServer::saying(answer, hold);
    run(async {
        let client = client();
        for _ in 0..2 {
            let error = H2.whole(&client, &server.url()).await;
            assert_eq!(error, Err(TransportError::NoHttp2));
        }
    });
}

#[test]
fn request_times_out_if_server_allows_no_streams() {
    run(async {
        let mut builder = h2::server::Builder::new();
        builder.max_concurrent_streams(0);
        let (addr, _) = server(builder, 0, ok).await;
        let client = client();
        let request = Ask { head_ms: 200, ..H2 };
        let url = url(addr);
        for round in 0..2 {
            let all = all((0..3).map(|_| request.whole(&client, &url)).collect()).await;
            for late in all {
                assert!(matches!(late, Err(TransportError::Timeout(_))), "{round}: {late:?}");
            }
        }
    });
}

/// The error of a request to a server that sends `first` and then `again` without end.
fn flooded(first: Vec<u8>, again: Vec<u8>) -> TransportError {
    let server = RawServer::new(move |_, mut stream| {
        let mut reader = stream.try_clone().unwrap();
        // The server reads the client's frames; otherwise the client would block.
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        let settings = frame(4, 0, 0, &[]);
        let _ = stream.write_all(&[settings, first.clone()].concat());
        let again = again.repeat(200);
        while stream.write_all(&again).is_ok() {}
    });
    run(async { H2.whole(&client(), &server.url()).await.unwrap_err() })
}

#[test]
fn frame_flood_gives_a_named_error() {
    let named = |error: &TransportError| match error {
        TransportError::Http2(why) => why.contains("too many empty frames"),
        _ => false,
    };
    let ping = frame(6, 0, 0, &[7; 8]);
    let settings = frame(4, 0, 0, &[]);
    let unknown = frame(0xbb, 0, 0, b"x");
    let window = frame(8, 0, 0, &[0, 0, 0, 0]);
    for again in [ping, settings, unknown] {
        let error = flooded(Vec::new(), again);
        assert!(named(&error), "{error:?}");
    }
    // Interim responses without end, `:status` 100 as a literal.
    let interim = [&[0x08, 3], b"100".as_slice()].concat();
    let error = flooded(Vec::new(), frame(1, 4, 1, &interim));
    assert!(matches!(error, TransportError::Http2(_)), "{error:?}");
    // Floods that h2 ends: frames without window, fields without end, streams that the client has
    // not opened.
    let endless = frame(9, 0, 1, &[0x40, 1, b'x', 1, b'y']);
    let reset = frame(3, 0, 9, &[0, 0, 0, 8]);
    let pushed = frame(5, 4, 1, &[0, 0, 0, 2]);
    for (first, again) in [
        (Vec::new(), window),
        (frame(1, 0, 1, &[0x88]), endless),
        (Vec::new(), reset),
        (Vec::new(), pushed),
    ] {
        let error = flooded(first, again);
        let is_named = matches!(error, TransportError::Http2(_) | TransportError::Closed { .. });
        assert!(is_named, "{error:?}");
    }
}

#[test]
fn response_with_too_many_fields_is_rejected() {
    run(async {
        let (addr, _) = server(h2::server::Builder::new(), 0, |_, _, mut respond| {
            let mut head = Response::new(());
            for number in 0..200 {
                let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
                head.headers_mut().insert(name, "y".parse().unwrap());
            }
            respond.send_response(head, true).unwrap();
        })
        .await;
        let error = get(&client(), addr).await;
        assert_eq!(error, Err(TransportError::TooLarge("response_fields_max")));
    });
}
