//! hyper as the oracle of responses: our client reads the output of hyper's server, and hyper's
//! client reads each response that our client accepts in the same way.
//!
//! Our client refuses more than hyper does; `client_rejects_lax_responses_that_hyper_accepts` lists it.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Request, Response,
    body::{Body, Frame, SizeHint},
    header::{HeaderName, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use peregrine::http::client::ResponseLimits;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::http_client::{Ended, RequestKind, Seen, read, wire};

const WIDE: ResponseLimits =
    ResponseLimits { head_bytes_max: 1 << 16, fields_max: 128, body_bytes_max: 1 << 20 };

/// A body in pieces, of a known length or not, with trailers or not.
#[derive(Clone, Debug)]
struct Pieces {
    data: VecDeque<Bytes>,
    is_exact: bool,
    trailers: Option<HeaderMap>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.pop_front().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn size_hint(&self) -> SizeHint {
        match self.is_exact {
            true => SizeHint::with_exact(self.data.iter().map(|data| data.len() as u64).sum()),
            false => SizeHint::default(),
        }
    }
}

/// The answer of a server on hyper.
#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    fields: Vec<(String, Vec<u8>)>,
    body: Pieces,
}

fn answers() -> impl Strategy<Value = Answer> {
    let value = prop_oneof![
        "[!-~]([ -~\t]{0,20}[!-~])?".prop_map(String::into_bytes),
        Just(vec![0xe4, b' ', 0xff]),
        Just(Vec::new()),
    ];
    let fields = prop::collection::vec(("x-[a-z0-9]{1,8}", value), 0..5);
    let piece = prop::collection::vec(any::<u8>(), 1..600);
    let status = prop::sample::select(&[200_u16, 200, 201, 204, 304, 404, 500, 599][..]);
    let trailers = prop::option::weighted(0.3, "[a-z]{1,9}");
    (status, fields, prop::collection::vec(piece, 0..5), any::<bool>(), trailers).prop_map(
        |(status, fields, pieces, is_exact, trailer)| {
            let trailers = trailer.filter(|_| !is_exact).map(|value| {
                HeaderMap::from_iter([(
                    HeaderName::from_static("x-trailer"),
                    HeaderValue::from_str(&value).unwrap(),
                )])
            });
            let data = pieces.into_iter().map(Bytes::from).collect();
            Answer { status, fields, body: Pieces { data, is_exact, trailers } }
        },
    )
}

fn response(answer: &Answer) -> Response<Pieces> {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in &answer.fields {
        response = response.header(name, HeaderValue::from_bytes(value).unwrap());
    }
    if answer.body.trailers.is_some() {
        response = response.header("trailer", "x-trailer");
    }
    response.body(answer.body.clone()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// The bytes of hyper's server in answer to a request.
fn written_by_hyper(answer: &Answer) -> Vec<u8> {
    runtime().block_on(async {
        let (client, server) = tokio::io::duplex(1 << 16);
        let answer = answer.clone();
        let service = service_fn(move |_| {
            let response = response(&answer);
            async move { Ok::<_, Infallible>(response) }
        });
        let serving = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .serve_connection(TokioIo::new(server), service);
        let (mut from, mut to) = tokio::io::split(client);
        let asking = async {
            let request = b"GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\n\r\n";
            to.write_all(request).await.unwrap();
            to.shutdown().await.unwrap();
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).await.unwrap();
            bytes
        };
        let (served, bytes) = tokio::join!(serving, asking);
        served.unwrap();
        bytes
    })
}

/// The result of hyper's client for the bytes of a server that then closes: the head, and the body
/// if it is whole.
type Theirs = Option<(u16, Vec<(String, Vec<u8>)>, Option<Vec<u8>>)>;

fn read_by_hyper(bytes: &[u8]) -> Theirs {
    runtime().block_on(async {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (mut from, mut to) = tokio::io::split(server);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
        let none = Pieces { data: VecDeque::new(), is_exact: true, trailers: None };
        let request = Request::get("/").header("host", "h").body(none).unwrap();
        let answering = async {
            // hyper reads no byte before it has sent its request.
            let mut request = [0; 1024];
            assert!(from.read(&mut request).await.unwrap() > 0);
            let _ = to.write_all(bytes).await;
            let _ = to.shutdown().await;
        };
        let asking = async {
            let response = sender.send_request(request).await.ok()?;
            let (head, mut body) = response.into_parts();
            let fields = head.headers.iter();
            let fields = fields.map(|(n, v)| (n.as_str().to_owned(), v.as_bytes().to_vec()));
            let fields: Vec<_> = fields.collect();
            let mut content = Vec::new();
            let whole = loop {
                match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                    Some(Ok(frame)) => content.extend(frame.into_data().unwrap_or_default()),
                    Some(Err(_)) => break None,
                    None => break Some(content),
                }
            };
            Some((head.status.as_u16(), fields, whole))
        };
        let (_, (), theirs) = tokio::join!(connection, answering, asking);
        theirs
    })
}

/// Fields as hyper returns them: in lower case, with equal names grouped.
fn together(fields: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<_> =
        fields.iter().map(|(name, value)| (name.to_lowercase(), value.clone())).collect();
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    fields
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1024) })]

    #[test]
    fn client_reads_responses_written_by_hyper(answer in answers(), size in 1..200_usize) {
        let bytes = written_by_hyper(&answer);
        let Seen { head, body, trailers, end } =
            read(RequestKind::Get, &bytes, &WIDE, &mut || size);
        let (status, fields) = head.unwrap();
        prop_assert_eq!(status, answer.status);
        let ours: Vec<_> = fields.into_iter().filter(|(name, _)| name.starts_with("x-")).collect();
        prop_assert_eq!(together(&ours), together(&answer.fields));
        let has_body = !matches!(status, 204 | 304);
        let sent: Vec<u8> = answer.body.data.iter().filter(|_| has_body).flatten().copied().collect();
        prop_assert_eq!(body, sent);
        prop_assert_eq!(end, Ok(Ended::Whole { bytes: bytes.len(), is_reusable: true }));
        let trailer = answer.body.trailers.filter(|_| has_body);
        let trailer = trailer.map(|map| map["x-trailer"].as_bytes().to_vec());
        let trailers: Vec<_> = trailers.into_iter().map(|(_, value)| value).collect();
        prop_assert_eq!(trailers, trailer.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn hyper_reads_accepted_responses_the_same(wire in wire()) {
        let ours = read(RequestKind::Get, &wire, &WIDE, &mut || usize::MAX);
        let Some(head) = ours.head else { return Ok(()) };
        let theirs = read_by_hyper(&wire);
        let Some((status, fields, whole)) = theirs else {
            panic!("hyper refuses {}", wire.escape_ascii());
        };
        prop_assert_eq!((status, together(&fields)), (head.0, together(&head.1)));
        if ours.end.is_ok() {
            prop_assert_eq!(whole, Some(ours.body), "{}", wire.escape_ascii());
        }
    }
}

/// The responses that only our client refuses, each with the reason.
#[test]
fn client_rejects_lax_responses_that_hyper_accepts() {
    for (wire, why) in [
        ("HTTP/1.1 200 OK\nContent-Length: 1\n\nx", "RFC 9112 §2.2: lines end in CRLF"),
        ("\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "RFC 9112 §2.2 is about requests"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "two have written this head",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "RFC 9112 §6.3 (3): smuggling",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "RFC 9112 §6.3 (4): a coding that nobody asked for",
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx", "the same, until the close"),
    ] {
        let ours = read(RequestKind::Get, wire.as_bytes(), &WIDE, &mut || usize::MAX);
        assert!(ours.end.is_err(), "{wire:?}: {why}");
        assert!(read_by_hyper(wire.as_bytes()).is_some(), "{wire:?}: hyper refuses it, too");
    }
}

/// The oracle itself refuses invalid responses: an oracle that accepts everything would prove
/// nothing.
#[test]
fn hyper_oracle_rejects_invalid_responses() {
    for wire in [
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    ] {
        assert_eq!(read_by_hyper(wire.as_bytes()), None, "{wire:?}");
    }
    let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx";
    assert!(read_by_hyper(wire).is_some_and(|(_, _, whole)| whole.is_none()), "a body cut short");
}
