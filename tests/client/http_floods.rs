//! Responses without end, or that grow when decompressed, through the whole client over each
//! binding that HTTP/1.1 carries: each gives a named error.

use std::io::Write;

use peregrine::{
    client::{
        Client, ClientBuilder, ClientError, ClientErrorKind, SendRequest, TransportError,
        card::AgentCard,
    },
    net::HttpClient,
};

use crate::{scripted::card, wire::*};

const BINDINGS: [&str; 3] = ["JSONRPC", "HTTP+JSON", "WEBSOCKET"];

/// A client of an agent at this server.
fn agent(binding: &str, server: &RawServer) -> Client<HttpClient> {
    let card = card(binding, &format!("http://{}", server.addr));
    let card = AgentCard::read(card.as_bytes()).unwrap();
    ClientBuilder::new().connect_over(client(), card, None).unwrap()
}

/// A server that answers with `first`, and then with `again` for as long as the client reads.
fn endless(first: String, again: &'static [u8]) -> RawServer {
    RawServer::new(move |_, mut stream| {
        let again = again.repeat(1_000);
        if read_request(&mut stream).is_some() && stream.write_all(first.as_bytes()).is_ok() {
            while stream.write_all(&again).is_ok() {}
        }
    })
}

/// The error of a stream without events.
async fn streamed(client: &Client<HttpClient>) -> ClientError {
    match client.stream(&SendRequest::text("hello")).await {
        Ok(mut stream) => stream.next().await.expect("no end").err().expect("no event"),
        Err(error) => error,
    }
}

/// Panics unless a call and a stream over each binding end with this limit.
fn assert_ends(server: &RawServer, limit: &'static str) {
    let expected = ClientErrorKind::Transport(TransportError::TooLarge(limit));
    for binding in BINDINGS {
        run(async {
            let client = agent(binding, server);
            let sent = client.send(&SendRequest::text("hello")).await.expect_err("no answer");
            assert_eq!(sent.kind, expected, "{binding}: a call");
            assert_eq!(streamed(&client).await.kind, expected, "{binding}: a stream");
        });
    }
}

#[test]
fn endless_response_head_is_rejected_at_its_limit() {
    for status in ["200 OK", "101 Switching Protocols", "503 Service Unavailable"] {
        for (first, again, limit) in [
            ("X: ", &b"y"[..], "response_head_bytes_max"),
            ("", b"X: y\r\n", "response_fields_max"),
        ] {
            let server = endless(format!("HTTP/1.1 {status}\r\n{first}"), again);
            assert_ends(&server, limit);
            assert_eq!(server.connections(), 2 * BINDINGS.len(), "each is asked once");
        }
    }
    let server = endless("HTTP/1.1 200 OK\r\nX: ".to_owned(), b"y");
    let found = run(ClientBuilder::new().discover_over(client(), &server.url()));
    let expected = TransportError::TooLarge("response_head_bytes_max");
    assert_eq!(found.err().unwrap().kind, ClientErrorKind::Transport(expected));
}

/// The upgrade to WebSocket gets the same answer: a response other than 101 is read as an error.
#[test]
fn gzip_bomb_is_rejected_over_each_binding() {
    let bomb = gzip(&vec![b'\n'; 10_000_000]);
    for media_type in ["application/json", "text/event-stream"] {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Encoding: gzip\r\n\
             Content-Length: {}\r\n\r\n",
            bomb.len()
        );
        let answer = [head.as_bytes(), &bomb].concat();
        let server = RawServer::new(move |_, mut stream| {
            while read_request(&mut stream).is_some() {
                let _ = stream.write_all(&answer);
            }
        });
        assert_ends(&server, "decoded_ratio_max");
        let found = run(ClientBuilder::new().discover_over(client(), &server.url()));
        // A card is not a stream of events, so nothing of that is read.
        let expected = match media_type {
            "application/json" => {
                ClientErrorKind::Transport(TransportError::TooLarge("decoded_ratio_max"))
            }
            _ => ClientErrorKind::NoCard(200),
        };
        assert_eq!(found.err().unwrap().kind, expected);
    }
}
