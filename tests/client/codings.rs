//! Content codings: decoded as the bytes arrive, and within limits for any announced length.

use std::{
    future::poll_fn,
    io::Write,
    sync::{Arc, Mutex, mpsc},
};

use flate2::{
    Compression,
    write::{GzEncoder, ZlibEncoder},
};
use peregrine::client::{HttpResponse, TransportError};

use crate::wire::*;

fn deflate(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// A server with this coded content.
pub fn server(fields: &str, content: Vec<u8>) -> RawServer {
    let length = content.len();
    let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {length}\r\n\r\n");
    RawServer::new(move |_, mut stream| {
        while read_request(&mut stream).is_some() {
            let _ = stream.write_all(&[head.as_bytes(), &content].concat());
        }
    })
}

/// The client's decoding of it.
fn read(fields: &str, content: Vec<u8>) -> Result<String, TransportError> {
    let server = server(fields, content);
    run(async {
        let client = client_with(|options| options.limits.decoded_bytes_max = 2_000_000);
        GET.whole(&client, &server.url()).await.map(|(_, content)| content)
    })
}

/// Text that compresses partly.
fn text(length: usize) -> String {
    let mut state = 7_u64;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'a' + (state >> 60) as u8)
    });
    letters.take(length).collect()
}

#[test]
fn gzip_and_deflate_are_decoded() {
    for length in [0, 1, 1_000, 1_500_000] {
        let content = text(length);
        let bytes = content.as_bytes();
        assert!(read("Content-Encoding: gzip", gzip(bytes)).unwrap() == content, "{length}");
        assert!(read("content-encoding: X-GZIP", gzip(bytes)).unwrap() == content, "{length}");
        assert!(read("Content-Encoding: deflate", deflate(bytes)).unwrap() == content, "{length}");
        assert!(read("Content-Encoding: identity", bytes.to_vec()).unwrap() == content);
    }
    // Empty content has no coding.
    assert_eq!(read("Content-Encoding: gzip", Vec::new()), Ok(String::new()));
}

#[test]
fn decompression_bomb_is_rejected() {
    let ratio = Err(TransportError::TooLarge("decoded_ratio_max"));
    assert_eq!(read("Content-Encoding: gzip", gzip(&vec![0; 100_000_000])), ratio);
    assert_eq!(read("Content-Encoding: deflate", deflate(&vec![0; 10_000_000])), ratio);
    let events = "Content-Type: text/event-stream\r\nContent-Encoding: gzip";
    assert_eq!(read(events, gzip(&vec![b'\n'; 10_000_000])), ratio);
    let large = Err(TransportError::TooLarge("decoded_bytes_max"));
    assert_eq!(read("Content-Encoding: gzip", gzip(text(2_000_001).as_bytes())), large);
}

#[test]
fn content_that_does_not_match_its_coding_is_an_error() {
    let coding = |result: Result<String, TransportError>| match result {
        Err(TransportError::Coding(why)) => why,
        other => panic!("{other:?}"),
    };
    let whole = gzip(text(5_000).as_bytes());
    assert!(
        coding(read("Content-Encoding: br", whole.clone()))
            .contains("only gzip and deflate are supported")
    );
    assert!(
        coding(read("Content-Encoding: gzip, gzip", whole.clone()))
            .contains("only gzip and deflate are supported")
    );
    let twice = "Content-Encoding: gzip\r\nContent-Encoding: gzip";
    assert!(coding(read(twice, whole.clone())).contains("more than one"));
    for cut in [1, 5, 100, whole.len() - 9, whole.len() - 1] {
        let why = coding(read("Content-Encoding: gzip", whole[..cut].to_vec()));
        assert!(why.contains("truncated"), "{cut}: {why}");
    }
    let mut garbage = whole.clone();
    garbage.extend_from_slice(b"x");
    assert!(coding(read("Content-Encoding: gzip", garbage)).contains("follow"));
    let mut changed = whole.clone();
    let at = changed.len() - 6;
    changed[at] ^= 1;
    assert!(coding(read("Content-Encoding: gzip", changed)).contains("corrupt"));
    assert!(coding(read("Content-Encoding: gzip", b"plain text".to_vec())).contains("corrupt"));
    assert!(coding(read("Content-Encoding: deflate", whole)).contains("corrupt"));
}

#[test]
fn gzip_events_are_decoded_as_they_arrive() {
    let (next, go) = mpsc::channel::<()>();
    let go = Arc::new(Mutex::new(go));
    let server = RawServer::new(move |_, mut stream| {
        read_request(&mut stream).unwrap();
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
            Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head).unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        for number in 0..5 {
            write!(encoder, "data: {number}\n\n").unwrap();
            encoder.flush().unwrap();
            let piece = std::mem::take(encoder.get_mut());
            write!(stream, "{:x}\r\n", piece.len()).unwrap();
            stream.write_all(&[&piece[..], b"\r\n"].concat()).unwrap();
            go.lock().unwrap().recv().unwrap();
        }
        let rest = encoder.finish().unwrap();
        write!(stream, "{:x}\r\n", rest.len()).unwrap();
        stream.write_all(&[&rest[..], b"\r\n0\r\n\r\n"].concat()).unwrap();
    });
    run(async {
        let mut response = GET.head(&client(), &server.url()).await.unwrap();
        for number in 0..5 {
            let mut event = Vec::new();
            assert!(poll_fn(|cx| response.poll_read(cx, &mut event, 1_000)).await.unwrap());
            assert_eq!(event, format!("data: {number}\n\n").as_bytes());
            next.send(()).unwrap();
        }
        assert_eq!(body(&mut response).await.unwrap(), b"");
    });
}

#[test]
fn decoded_read_never_exceeds_the_requested_size() {
    let content = text(300_000);
    let server = server("Content-Encoding: gzip", gzip(content.as_bytes()));
    run(async {
        let mut response = GET.head(&client(), &server.url()).await.unwrap();
        let mut all = Vec::new();
        loop {
            let before = all.len();
            let is_more = poll_fn(|cx| response.poll_read(cx, &mut all, 777)).await.unwrap();
            assert!(all.len() - before <= 777);
            if !is_more {
                break;
            }
        }
        assert!(all == content.as_bytes());
    });
}
