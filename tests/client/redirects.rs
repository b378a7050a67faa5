//! Redirects as real servers send them: of a card, and of calls.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use peregrine::{
    client::{
        Client, ClientBuilder, ClientErrorKind, SendRequest, card::AgentCard,
        redirect::RedirectError,
    },
    net::{ClientTls, HttpClient},
};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto::ring};

use crate::{
    certificates::Authority,
    frames::{END_STREAM, headers, serve},
    scripted::card,
    server_faults::WAYS,
    wire::*,
};

/// A server that redirects every request to `location`, and the number of redirects.
fn sending_on(status: &'static str, location: String) -> (RawServer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let server = RawServer::new(move |_, mut stream| {
        while read_request(&mut stream).is_some() {
            counter.fetch_add(1, Relaxed);
            let head = format!("HTTP/1.1 {status}\r\nLocation: {location}\r\n");
            let _ = stream.write_all(format!("{head}Content-Length: 0\r\n\r\n").as_bytes());
        }
    });
    (server, count)
}

/// The error of a card that is not found there.
fn not_found(client: HttpClient, url: &str) -> (ClientErrorKind, String) {
    let found = run(ClientBuilder::new().discover_over(client, url));
    let error = found.err().expect("no card");
    (error.kind.clone(), error.to_string())
}

#[test]
fn card_discovery_follows_at_most_five_redirects() {
    let (server, count) = sending_on("302 Found", "/again".to_owned());
    let (kind, message) = not_found(client(), &server.url());
    assert_eq!(kind, ClientErrorKind::Redirect(RedirectError::TooMany(5)));
    assert_eq!(message, "more than 5 redirects in a row");
    assert_eq!((count.load(Relaxed), server.connections()), (6, 1));
}

#[test]
fn card_redirect_from_https_to_http_is_rejected() {
    let plain = RawServer::new(|_, _| {});
    let authority = Authority::new("client-redirects");
    let issued = authority.server("server");
    let config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![issued.cert.clone()], issued.key.clone_key());
    let (config, location) = (Arc::new(config.unwrap()), plain.url());
    let secure = RawServer::new(move |_, stream| {
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        let (mut head, mut byte) = (Vec::new(), [0]);
        while stream.read(&mut byte).is_ok_and(|count| count == 1) {
            head.push(byte[0]);
            if head.ends_with(b"\r\n\r\n") {
                let moved = format!("HTTP/1.1 301 Moved Permanently\r\nLocation: {location}\r\n");
                let _ = stream.write_all(format!("{moved}Content-Length: 0\r\n\r\n").as_bytes());
            }
        }
    });
    let tls = ClientTls::default().without_system_authorities().authority(authority.file());
    let client = client_with(|options| options.tls = tls);
    let (kind, _) = not_found(client, &format!("https://localhost:{}/", secure.addr.port()));
    assert_eq!(kind, ClientErrorKind::Redirect(RedirectError::Insecure));
    assert_eq!(plain.connections(), 0);
}

/// A client of an agent there.
fn agent(binding: &str, url: &str) -> Client<HttpClient> {
    let card = AgentCard::read(card(binding, url).as_bytes()).unwrap();
    ClientBuilder::new().connect_over(client(), card, None).unwrap()
}

/// Whether a call failed because of a redirect there.
fn leads_to(kind: &ClientErrorKind, code: u16, location: &str) -> bool {
    match kind {
        ClientErrorKind::Redirect(RedirectError::Call { status, to, .. }) => {
            *status == code && to == location
        }
        _ => false,
    }
}

/// A message and its credentials go only to the origin that the caller named.
#[test]
fn call_redirect_to_another_origin_is_not_followed() {
    let other = RawServer::new(|_, _| {});
    for (status, code) in [("307 Temporary Redirect", 307), ("308 Permanent Redirect", 308)] {
        for binding in ["JSONRPC", "HTTP+JSON", "WEBSOCKET"] {
            let (server, count) = sending_on(status, other.url());
            let to = other.url();
            let url = format!("http://{}", server.addr);
            run(async {
                let client = agent(binding, &url);
                let request = SendRequest::text("hello");
                let sent = client.send(&request).await.err().unwrap().kind.clone();
                assert!(leads_to(&sent, code, &to), "{binding}: {sent:?}");
                let read = client.get_task("t", None).await.err().unwrap().kind.clone();
                assert!(leads_to(&read, code, &to), "{binding}: {read:?}");
                let streamed = client.stream(&request).await.err().unwrap().kind.clone();
                assert!(leads_to(&streamed, code, &to), "{binding}: {streamed:?}");
            });
            assert_eq!(count.load(Relaxed), 3, "{binding}: each is asked once");
        }
    }
    assert_eq!(other.connections(), 0);
}

#[test]
fn call_follows_at_most_five_redirects_within_its_origin() {
    for (status, most) in
        [("307 Temporary Redirect", 5), ("308 Permanent Redirect", 5), ("302 Found", 0)]
    {
        let (server, count) = sending_on(status, "/again".to_owned());
        run(async {
            let client = agent("JSONRPC", &server.url());
            let error = client.send(&SendRequest::text("hello")).await.err().unwrap();
            let to = format!("{}again", server.url());
            assert!(error.to_string().contains(&to), "{error}");
        });
        assert_eq!(count.load(Relaxed), 1 + most, "{status}");
    }
}

#[test]
fn grpc_call_redirects_are_not_followed() {
    let other = RawServer::new(|_, _| {});
    for code in [301, 302, 303, 307, 308] {
        let total = Arc::new(AtomicUsize::new(0));
        let (count, location, to) = (Arc::clone(&total), other.url(), other.url());
        let server = RawServer::new(move |_, mut stream| {
            serve(&mut stream, |id, stream| {
                count.fetch_add(1, Relaxed);
                let fields = [(":status", &*code.to_string()), ("location", &location)];
                stream.write_all(&headers(id, END_STREAM, &fields)).is_ok()
            });
        });
        run(async {
            let client = agent("GRPC", &format!("http://{}", server.addr));
            for way in WAYS {
                let error = way.call(&client).await.err().unwrap().kind.clone();
                assert!(leads_to(&error, code, &to), "{way:?}: {error:?}");
            }
        });
        assert_eq!(total.load(Relaxed), WAYS.len(), "each is asked once");
    }
    assert_eq!(other.connections(), 0);
}
