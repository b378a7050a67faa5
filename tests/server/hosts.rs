//! Hosts: a page that resolves its own name to this machine (DNS rebinding) gets no answer, and
//! hosts that the operator names are accepted.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use peregrine::{engine::Setup, service::Peer};

use crate::support::{
    Lab,
    ask::{V1, rpc, say},
    binary::{Binary, Tcp},
    reply::Reply,
};

const CARD: &str = "/.well-known/agent-card.json";

/// A GET of the card with these field lines; `Host` is one of them.
fn card(lines: &str) -> Vec<u8> {
    format!("GET {CARD} HTTP/1.1\r\n{lines}\r\n").into_bytes()
}

/// The answer to a GET of the card on a connection of its own.
fn request(addr: SocketAddr, lines: &str) -> Reply {
    let mut tcp = Tcp::to(addr);
    tcp.write(&card(lines));
    tcp.reply()
}

/// Asserts the status of a GET of the card under each host.
fn assert_hosts(addr: SocketAddr, status: u16, hosts: &[&str]) {
    for host in hosts {
        assert_eq!(request(addr, &format!("Host: {host}\r\n")).status, status, "{host}");
    }
}

fn post(path: &str, host: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nA2A-Version: 1.0\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn upgrade(host: &str, origin: &str, lines: &str) -> Vec<u8> {
    let key = crate::support::ws::KEY;
    format!(
        "GET / HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{origin}\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\
         {lines}\r\n"
    )
    .into_bytes()
}

/// The status of the answer to an upgrade.
fn upgraded(addr: SocketAddr, request: &[u8]) -> Option<u16> {
    let mut tcp = Tcp::to(addr);
    tcp.write(request);
    tcp.read_first()
}

/// An address of this machine outside the loopback interface; sends no packet.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn loopback_listener_refuses_requests_for_a_foreign_host() {
    let server = Binary::start_at("127.0.0.1:0", &[]);
    let host = format!("evil.example:{}", server.addr().port());
    let params = V1.params(say("hi"));
    let send = rpc(V1.send(), &params);
    let line = |request: &str| format!("{request} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    for (what, request) in [
        ("JSON-RPC", post("/", &host, &send)),
        ("HTTP+JSON", post("/message:send", &host, &params.to_string())),
        ("a list", line("GET /tasks")),
        ("a card", line(&format!("GET {CARD}"))),
        ("a card's head", line(&format!("HEAD {CARD}"))),
        ("a preflight", line("OPTIONS /")),
        ("all of it", line("OPTIONS *")),
        ("a WebSocket", upgrade(&host, &host, "")),
        (
            "an absolute target",
            format!("GET http://{host}{CARD} HTTP/1.1\r\nHost: localhost\r\n\r\n").into(),
        ),
        ("a tunnel", format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n").into()),
        ("an old client", format!("GET {CARD} HTTP/1.0\r\nHost: {host}\r\n\r\n").into()),
        // The server refuses it before the body is complete.
        ("half a body", post("/", &host, &send)[..300].to_vec()),
    ] {
        let mut tcp = server.connect();
        tcp.write(&request);
        let answer = String::from_utf8(tcp.read_to_end()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 421 Misdirected Request\r\n"), "{what}: {answer}");
        let is_head = what == "a card's head";
        assert!(is_head == answer.ends_with("\r\n\r\n"), "{what}: {answer}");
        for flag in ["--allow-host HOST", "--public-url URL"] {
            assert!(is_head || answer.contains(flag), "{what}: {answer}");
        }
    }
    let mut tcp = server.connect();
    tcp.write(&post("/", "localhost", r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#));
    assert_eq!(tcp.reply().json()["result"]["totalSize"], 0, "nothing ran");
}

#[test]
fn loopback_listener_accepts_local_host_names_at_any_port() {
    let server = Binary::start_at("127.0.0.1:0", &[]);
    let own = server.addr().to_string();
    let ours = ["localhost", "LocalHost.:9", "a.localhost:80", "127.9.9.9:1", "[::1]:3000", &own];
    assert_hosts(server.addr(), 200, &ours);
    let others = ["localhost.example", "127.0.0.1.example", "10.0.0.1", "0.0.0.0", "a.example"];
    assert_hosts(server.addr(), 421, &others);
    // A client without a host is not a browser.
    let mut tcp = server.connect();
    tcp.write(format!("GET {CARD} HTTP/1.0\r\n\r\n").as_bytes());
    assert_eq!(tcp.reply().status, 200);
    // A head that came before is cached, and admits no other host.
    let mut tcp = server.connect();
    for _ in 0..3 {
        tcp.write(&card("Host: localhost\r\n"));
        assert_eq!(tcp.reply().status, 200);
    }
    tcp.write(&card("Host: localhosu\r\n"));
    assert_eq!(tcp.reply().status, 421);
    assert!(tcp.read_to_end().is_empty());
}

#[test]
fn ipv6_loopback_listener_accepts_the_same_host_names() {
    if TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let server = Binary::start_at("[::1]:0", &[]);
    let own = server.addr().to_string();
    assert_hosts(server.addr(), 200, &[&own, "[0:0::1]", "localhost:1", "127.0.0.1"]);
    assert_hosts(server.addr(), 421, &["evil.example", "[::2]", "[::]"]);
}

#[test]
fn allow_host_flag_accepts_the_named_host() {
    let server =
        Binary::start_at("127.0.0.1:0", &["--allow-host", "A.example", "--allow-host=::2"]);
    assert_hosts(server.addr(), 200, &["a.example", "a.EXAMPLE.:8443", "[0::2]:1", "localhost"]);
    assert_hosts(server.addr(), 421, &["b.a.example", "a.example.evil", "[::3]"]);
    let addr = server.addr();
    assert_eq!(upgraded(addr, &upgrade("a.example:1", "a.example:1", "")), Some(101));
    assert_eq!(upgraded(addr, &upgrade("a.example:1", "evil.example:1", "")), Some(403));
    assert_eq!(upgraded(addr, &upgrade("evil.example:1", "evil.example:1", "")), Some(421));
    let any = Binary::start_at("127.0.0.1:0", &["--allow-host", "*"]);
    assert_hosts(any.addr(), 200, &["evil.example", "localhost", "10.0.0.1"]);
}

#[test]
fn public_listener_checks_hosts_if_a_host_is_configured() {
    let start =
        |flags: &[&str]| Binary::start_at("0.0.0.0:0", &[&["--allow-anonymous"], flags].concat());
    let hosts = ["localhost", "mesh.example:8443", "MESH.example"];
    let open = start(&[]);
    assert_hosts(open.addr(), 200, &hosts);
    assert_hosts(open.addr(), 200, &["evil.example"]);
    for flags in [["--public-url", "https://mesh.example:8443/x"], ["--allow-host", "mesh.example"]]
    {
        let named = start(&flags);
        assert_hosts(named.addr(), 200, &hosts);
        assert_hosts(named.addr(), 421, &["evil.example", "x.mesh.example"]);
    }
}

#[test]
fn local_address_of_the_connection_is_an_accepted_host() {
    let Some(own) = own_address() else { return };
    let flags = ["--allow-anonymous", "--allow-host", "a.example"];
    let everywhere = Binary::start_at("0.0.0.0:0", &flags);
    let port = everywhere.addr().port();
    let (host, at) = (format!("{own}:{port}"), SocketAddr::new(own, port));
    for _ in 0..2 {
        assert_hosts(at, 200, &[&host, "localhost"]);
        assert_hosts(at, 421, &["evil.example", "192.0.2.1"]);
        // To the server on the loopback interface, this is the host of another machine.
        assert_hosts(everywhere.addr(), 421, &[&host]);
    }
    let there = Binary::start_at(&SocketAddr::new(own, 0).to_string(), &flags);
    assert_hosts(there.addr(), 200, &[&there.addr().to_string()]);
    assert_hosts(there.addr(), 421, &["evil.example"]);
}

#[test]
fn trusted_forwarded_host_and_host_are_both_checked() {
    let flags = ["--trust-forwarded", "--allow-host", "mesh.example"];
    let trusting = Binary::start_at("127.0.0.1:0", &flags);
    let plain = Binary::start_at("127.0.0.1:0", &[]);
    for _ in 0..2 {
        let forwarded = "Host: 127.0.0.1:3000\r\nX-Forwarded-Host: mesh.example:8443, inner\r\n";
        let reply = request(trusting.addr(), forwarded);
        assert_eq!(reply.json()["url"], "http://mesh.example:8443/");
        for lines in [
            "Host: localhost\r\nX-Forwarded-Host: evil.example\r\n",
            // A page that reaches the server through the proxy controls every field but `Host`.
            "Host: evil.example\r\nX-Forwarded-Host: mesh.example\r\n",
        ] {
            assert_eq!(request(trusting.addr(), lines).status, 421, "{lines}");
        }
        // Fields of an untrusted peer are ignored.
        let lines = "Host: localhost\r\nX-Forwarded-Host: evil.example\r\n";
        assert_eq!(request(plain.addr(), lines).json()["url"], "http://localhost/");
    }
    // The host of a page that comes through the proxy is the host in the request to the proxy.
    let addr = trusting.addr();
    let request = upgrade("localhost", "mesh.example", "X-Forwarded-Host: mesh.example\r\n");
    assert_eq!(upgraded(addr, &request), Some(101));
    let request = upgrade("localhost", "evil.example", "X-Forwarded-Host: evil.example\r\n");
    assert_eq!(upgraded(addr, &request), Some(421));
}

#[test]
fn user_information_in_target_or_host_is_refused() {
    let server = Binary::start_at("127.0.0.1:0", &["--allow-host", "*"]);
    for target in ["http://u:p@localhost/", "http://u@localhost/", "http://@localhost/"] {
        let mut tcp = server.connect();
        tcp.write(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert_eq!(tcp.reply().status, 400, "{target}");
    }
    assert_hosts(server.addr(), 400, &["u:p@localhost", "u@evil.example"]);
}

#[test]
fn engine_checks_hosts_by_peer_and_setup() {
    let status = |lab: &mut Lab, peer: Peer<'static>, host: &str| {
        let client = lab.open_to(peer);
        lab.write(client, &card(&format!("Host: {host}\r\n")));
        lab.reply(client).status
    };
    let unknown = Peer::default();
    let loopback = Peer { is_loopback: true, ..unknown };
    let local = "10.0.0.1".parse().ok();
    let mut lab = Lab::echo();
    // The same heads repeatedly, on connections with different cached heads.
    for _ in 0..2 {
        for (peer, host, expected) in [
            (unknown, "evil.example", 200),
            (loopback, "evil.example", 421),
            (unknown, "10.0.0.1", 200),
            (loopback, "10.0.0.1", 421),
            (Peer { local, ..loopback }, "10.0.0.1:80", 200),
            (Peer { local, ..loopback }, "[::ffff:10.0.0.1]", 200),
            (Peer { local, ..loopback }, "10.0.0.2", 421),
            (loopback, "localhost", 200),
        ] {
            assert_eq!(status(&mut lab, peer, host), expected, "{peer:?} {host}");
        }
    }
    for setup in [
        Setup { allow_hosts: vec!["a.example".to_owned()], ..Setup::default() },
        Setup { public_url: Some("https://a.example".to_owned()), ..Setup::default() },
    ] {
        let mut lab = Lab::new(setup);
        for (peer, host, expected) in [
            (unknown, "evil.example", 421),
            (unknown, "a.example:9", 200),
            (unknown, "localhost", 200),
            (Peer { local, ..unknown }, "10.0.0.1", 200),
        ] {
            assert_eq!(status(&mut lab, peer, host), expected, "{peer:?} {host}");
        }
    }
}
