//! Requests through proxies: absolute URLs, tunnels, and which credentials go to which hop.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    sync::mpsc,
};

use peregrine::{
    agent::{Profile, echo::Echo},
    client::{HttpVersion, TransportError},
    net::{ClientTls, HttpClient, Proxies, Server, Tls},
};

use crate::{certificates::Authority, wire::*};

/// A client with this proxy for everything but `exempt`.
fn through(proxy: SocketAddr, exempt: &str, tls: ClientTls) -> HttpClient {
    let url = format!("http://al%20ice:secret@{proxy}");
    client_with(|options| {
        options.tls = tls;
        options.proxies = Proxies::from_variables(|name| match name {
            "all_proxy" => Some(url.clone()),
            "no_proxy" => Some(exempt.to_owned()),
            _ => None,
        })
        .unwrap();
    })
}

const USER_AGENT: &str = concat!("User-Agent: peregrine/", env!("CARGO_PKG_VERSION"), "\r\n");
const CREDENTIALS: &str = "Proxy-Authorization: Basic YWwgaWNlOnNlY3JldA==\r\n";

/// A proxy that opens tunnels, and reports the heads that came.
fn tunnels() -> (RawServer, mpsc::Receiver<String>) {
    let (sender, received) = mpsc::channel();
    let proxy = RawServer::new(move |_, mut stream| {
        let head = read_head(&mut stream).unwrap();
        let target = head.split(' ').nth(1).unwrap().to_owned();
        sender.send(head).unwrap();
        let target = target.replace("origin.example", "127.0.0.1");
        let mut origin = TcpStream::connect(target).unwrap();
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
        let (mut from, mut to) = (stream.try_clone().unwrap(), origin.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        let _ = std::io::copy(&mut origin, &mut stream);
    });
    (proxy, received)
}

#[test]
fn plain_http_via_proxy_uses_the_absolute_url() {
    let (sender, received) = mpsc::channel();
    let proxy = RawServer::new(move |_, mut stream| {
        while let Some(request) = read_request(&mut stream) {
            sender.send(request).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    let direct = RawServer::saying(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ndirect", drop);
    run(async {
        let client = through(proxy.addr, "127.0.0.1", ClientTls::default());
        for _ in 0..2 {
            let answer = GET.whole(&client, "http://origin.example:81/a?b").await;
            assert_eq!(answer, Ok((200, "ok".to_owned())));
        }
        assert_eq!(GET.whole(&client, &direct.url()).await.unwrap().1, "direct");
    });
    let heads: Vec<_> = received.try_iter().collect();
    let head = "GET http://origin.example:81/a?b HTTP/1.1\r\nHost: origin.example:81\r\n";
    assert_eq!(heads, vec![format!("{head}{USER_AGENT}{CREDENTIALS}\r\n"); 2]);
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn https_uses_a_connect_tunnel_with_proxy_credentials() {
    let authority = Authority::new("client-proxy");
    let params = rcgen::CertificateParams::new(["origin.example".to_owned()]).unwrap();
    let issued = authority.issue("origin", params);
    let server = Server::new().agent(Profile::new("a", "b"), Echo).workers(1);
    let server = server.allow_host("origin.example").listen("127.0.0.1:0");
    let server = server.tls(Tls::new(&issued.cert_file, &issued.key_file)).start().unwrap();
    let port = server.addrs()[0].port();
    let (proxy, received) = tunnels();
    run(async {
        let tls = ClientTls::default().without_system_authorities().authority(authority.file());
        let client = through(proxy.addr, "", tls);
        let url = format!("https://origin.example:{port}/.well-known/agent-card.json");
        for version in [HttpVersion::Http1, HttpVersion::Http1, HttpVersion::Any] {
            assert_eq!(Ask { version, ..GET }.whole(&client, &url).await.unwrap().0, 200);
        }
        // Plain http is tunnelled as well if it needs the connection for itself.
        let mut h2 = Ask { version: HttpVersion::Http2, head_ms: 2_000, ..GET };
        h2.is_repeatable = false;
        let _ = h2.whole(&client, &format!("http://origin.example:{port}/")).await;
    });
    let head = format!("CONNECT origin.example:{port} HTTP/1.1\r\nHost: origin.example:{port}\r\n");
    let heads: Vec<_> = received.try_iter().collect();
    assert!(
        heads.len() >= 2
            && heads.iter().all(|h| *h == format!("{head}{USER_AGENT}{CREDENTIALS}\r\n"))
    );
}

#[test]
fn proxy_credentials_are_not_sent_to_the_tunneled_origin() {
    let (sender, seen) = mpsc::channel();
    let origin = RawServer::new(move |_, mut stream| {
        sender.send(read_head(&mut stream).unwrap()).unwrap();
        let upgraded = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
        stream.write_all(upgraded).unwrap();
    });
    let (proxy, received) = tunnels();
    run(async {
        let client = through(proxy.addr, "", ClientTls::default());
        let upgrade = fields(&[("Connection", "Upgrade"), ("Upgrade", "websocket")]);
        let request = Ask { fields: upgrade.get(), version: HttpVersion::Http1, ..GET };
        let url = format!("http://origin.example:{}/", origin.addr.port());
        assert_eq!(request.whole(&client, &url).await, Ok((403, "no".to_owned())));
    });
    assert!(received.recv().unwrap().contains("Proxy-Authorization"));
    let head = seen.recv().unwrap();
    assert!(head.starts_with("GET / HTTP/1.1\r\n") && !head.contains("Proxy"), "{head}");
}

#[test]
fn proxy_refusal_is_reported_as_a_proxy_error() {
    let answers: [(&[u8], &str); 4] = [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "407"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "502"),
        (b"HTTP/1.1 200 OK\r\n\r\nspeaks first", "into the tunnel"),
        (b"nonsense\r\n\r\n", "status line"),
    ];
    for (answer, expected) in answers {
        let proxy = RawServer::saying(answer, drop);
        run(async {
            let client = through(proxy.addr, "", ClientTls::default());
            let refused = GET.whole(&client, "https://origin.example/").await.unwrap_err();
            assert!(
                matches!(&refused, TransportError::Proxy(why) if why.contains(expected)),
                "{refused:?}"
            );
        });
    }
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    run(async {
        let client = through(dead, "", ClientTls::default());
        let error = GET.whole(&client, "http://origin.example/").await.unwrap_err();
        assert!(matches!(error, TransportError::Proxy(why) if why.contains("refused")));
    });
}
