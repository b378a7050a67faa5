//! TLS: the real binary, or a server in this process, against clients of rustls and curl.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use peregrine::{
    agent::{Agent, Profile, Turn, echo::Echo},
    limits::Limits,
    model::{MessageBuf, PartsBuf},
    net::{Running, Server, Tls},
};
use rcgen::SanType;
use tokio_rustls::rustls::{
    self, ClientConfig, ClientConnection, HandshakeKind, StreamOwned,
    pki_types::{CertificateDer, ServerName},
};

use crate::certificates::{Authority, Issued};
use crate::support::{
    ask::{V1, get, get_with, post, rpc, say},
    binary::{Binary, PATIENCE, eventually},
    callers::ByName,
    reply::Reply,
};

const CARD: &str = "/.well-known/agent-card.json";

fn files(issued: &Issued) -> Tls {
    Tls::new(&issued.cert_file, &issued.key_file)
}

/// The binary with a certificate.
fn binary(issued: &Issued, flags: &[&str]) -> Binary {
    binary_with(issued, flags, Stdio::inherit())
}

fn binary_with(issued: &Issued, flags: &[&str], stderr: Stdio) -> Binary {
    let (cert, key) = (issued.cert_file.to_str().unwrap(), issued.key_file.to_str().unwrap());
    let flags = [&["--tls-cert", cert, "--tls-key", key], flags].concat();
    Binary::start_with(&flags, stderr)
}

/// A server in this process.
fn serve(tls: Tls, agent: impl Agent + 'static, limits: Limits) -> Running {
    let server = Server::new().agent(Profile::new("a", "b"), agent).limits(limits).workers(1);
    server.allow_host("a.example").tls(tls).listen("127.0.0.1:0").start().unwrap()
}

// --- A client ------------------------------------------------------------------------------------

struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    received: Vec<u8>,
}

fn tcp(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn connection(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::clone(config), name).unwrap()
}

impl Client {
    fn new(addr: SocketAddr, config: &Arc<ClientConfig>) -> Client {
        let stream = StreamOwned::new(connection(config), tcp(addr));
        Client { stream, received: Vec::new() }
    }

    fn connect(addr: SocketAddr, config: ClientConfig) -> Client {
        Client::new(addr, &Arc::new(config))
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes it");
    }

    /// Reads once; a cut connection gives an error.
    fn read(&mut self) -> std::io::Result<bool> {
        let mut some = vec![0; 64 * 1024];
        let count = self.stream.read(&mut some)?;
        self.received.extend_from_slice(&some[..count]);
        Ok(count > 0)
    }

    fn reply(&mut self) -> Reply {
        loop {
            if let Some((reply, used)) = Reply::parse(&self.received, false, false)
                && reply.complete
            {
                self.received.drain(..used);
                return reply;
            }
            assert!(self.read().unwrap(), "no reply in {}", self.received.escape_ascii());
        }
    }

    fn request(&mut self, request: &[u8]) -> Reply {
        self.write(request);
        self.reply()
    }

    /// True: the server answers on this connection.
    fn lives(&mut self) -> bool {
        self.request(&get(CARD)).status == 200
    }

    /// The certificate that the server sends.
    fn server_cert(&self) -> CertificateDer<'static> {
        self.stream.conn.peer_certificates().unwrap()[0].clone().into_owned()
    }
}

/// The result of a handshake and a first request: TLS 1.3 lets a client finish before the server
/// has verified its certificate.
fn try_client(addr: SocketAddr, config: ClientConfig) -> std::io::Result<Client> {
    try_path(addr, config, CARD)
}

/// The same with a request for this path.
fn try_path(addr: SocketAddr, config: ClientConfig, path: &str) -> std::io::Result<Client> {
    let mut client = Client::connect(addr, config);
    client.stream.write_all(&get(path))?;
    while Reply::parse(&client.received, false, false).is_none() {
        if !client.read()? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    client.received.clear();
    Ok(client)
}

fn send(text: &str) -> Vec<u8> {
    post("/", &[], &rpc(V1.send(), &V1.params(say(text))))
}

/// True when the other side has ended the connection, by a close or a reset.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

// --- Serving -------------------------------------------------------------------------------------

#[test]
fn calls_and_streams_share_a_tls_connection() {
    let authority = Authority::new("calls");
    let server = binary(&authority.server("server"), &[]);
    for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
        let config = authority.trusting_with(versions).with_no_client_auth();
        let mut client = Client::connect(server.addr(), config);
        let card = client.request(&get(CARD)).json();
        assert_eq!(card["url"], "https://a.example/", "the connection decides the scheme");
        let task = client.request(&send("hello")).result();
        assert_eq!(task["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        let stream = post("/", &[], &rpc(V1.stream(), &V1.params(say("stream:100"))));
        assert_eq!(client.request(&stream).events().len(), 101);
        // Several requests in one record are answered in order.
        client.write(&[get(CARD), send("ping"), get(CARD)].concat());
        assert_eq!([(); 3].map(|()| client.reply().status), [200; 3]);
    }
}

#[test]
fn listener_bound_by_the_program_serves_tls() {
    let authority = Authority::new("bound");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let server = Server::new().agent(Echo::profile(), Echo).allow_host("a.example");
    let server = server.workers(2).listener(socket).tls(files(&authority.server("server")));
    let running = server.start().unwrap();
    assert_eq!(running.base_url(), format!("https://{addr}"));
    assert!(Client::connect(addr, authority.without_certificate()).lives());
}

#[test]
fn exposed_admin_listener_uses_the_tls_of_the_server() {
    let authority = Authority::new("admin");
    let callers = Arc::new(ByName::default());
    let server = Server::new().agent(Echo::profile(), Echo).workers(1).authenticator(callers);
    let server = server.limits(Limits { admin_connections_max: 1, ..Limits::default() });
    let server = server.tls(files(&authority.server("server"))).allow_host("a.example");
    let running = server.listen("127.0.0.1:0").admin("0.0.0.0:0").start().unwrap();
    let admin = running.admin().unwrap().strip_prefix("https://0.0.0.0:").unwrap();
    let admin = SocketAddr::from(([127, 0, 0, 1], admin.parse().unwrap()));
    for _ in 0..3 {
        let mut plain = tcp(admin);
        plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert!(is_closed(&mut plain), "it is no TLS");
        // The slot of a failed handshake is free again.
        eventually("an operator is let in", || {
            try_path(admin, authority.without_certificate(), "/healthz").is_ok_and(|mut client| {
                let key = "Authorization: Bearer root a2a:admin\r\n";
                let statuses = [key, ""].map(|key| client.request(&get_with("/tasks", key)).status);
                statuses == [200, 401]
            })
        });
    }
    assert!(Client::connect(running.addrs()[0], authority.without_certificate()).lives());
    running.shutdown();
    running.join();
}

#[test]
fn second_connection_resumes_the_tls_session() {
    let authority = Authority::new("resumed");
    let server = binary(&authority.server("server"), &[]);
    let config = Arc::new(authority.without_certificate());
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let mut client = Client::new(server.addr(), &config);
        assert!(client.lives());
        kinds.push(client.stream.conn.handshake_kind().unwrap());
    }
    assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed]);
}

#[test]
fn large_bodies_pass_through_tls_unchanged() {
    let authority = Authority::new("large");
    let server = binary(&authority.server("server"), &[]);
    let mut client = Client::connect(server.addr(), authority.without_certificate());
    for size in [1 << 14, (1 << 14) + 1, 100_000, 1 << 20, 4_000_000] {
        let text = "x".repeat(size);
        let answer = client.request(&send(&text)).result();
        assert_eq!(answer["task"]["artifacts"][0]["parts"][0]["text"], text.as_str());
    }
}

#[test]
fn tls_records_are_accepted_byte_by_byte() {
    let authority = Authority::new("bytes");
    let server = binary(&authority.server("server"), &[]);
    let mut client = Client::connect(server.addr(), authority.without_certificate());
    assert!(client.lives());
    client.stream.conn.writer().write_all(&send("slowly")).unwrap();
    let mut record = Vec::new();
    while client.stream.conn.wants_write() {
        client.stream.conn.write_tls(&mut record).unwrap();
    }
    for byte in record {
        client.stream.sock.write_all(&[byte]).unwrap();
    }
    assert_eq!(client.reply().status, 200);
}

#[test]
fn alpn_accepts_only_h2_and_http_1_1() {
    let authority = Authority::new("alpn");
    let server = binary(&authority.server("server"), &[]);
    let offer = |names: &[&[u8]]| {
        let mut config = authority.without_certificate();
        config.alpn_protocols = names.iter().map(|name| name.to_vec()).collect();
        try_client(server.addr(), config)
    };
    for names in [&[b"http/1.1" as &[u8]] as &[&[u8]], &[b"acme/1", b"http/1.1"]] {
        let client = offer(names).unwrap();
        assert_eq!(client.stream.conn.alpn_protocol(), Some(b"http/1.1" as &[u8]));
    }
    if cfg!(feature = "grpc") {
        let mut config = authority.without_certificate();
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
        let mut client = Client::connect(server.addr(), config);
        client.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        while client.received.len() < 9 && client.read().unwrap() {}
        assert_eq!(client.stream.conn.alpn_protocol(), Some(b"h2" as &[u8]));
        // SETTINGS come first (RFC 9113 §3.4).
        assert_eq!(client.received[3], 4);
    }
    if cfg!(feature = "grpc") {
        for text in
            ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"]
        {
            let mut config = authority.without_certificate();
            config.alpn_protocols = vec![b"h2".to_vec()];
            let mut client = Client::connect(server.addr(), config);
            client.write(text.as_bytes());
            // An end without `close_notify` is an error, and it still ends the connection.
            while client.read().unwrap_or(false) {}
            let answer = client.received.escape_ascii().to_string();
            assert!(!answer.contains("HTTP/1.1"), "{answer}");
        }
    }
    // RFC 7301 §3.2: without a common protocol the handshake ends.
    let error = offer(&[b"acme/1"]).err().unwrap();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
}

#[test]
fn server_closes_tls_connections_with_close_notify() {
    let authority = Authority::new("ends");
    let mut server = binary(&authority.server("server"), &[]);
    // RFC 8446 §6.1: `close_notify` when we close; rustls reports an end without it as an error.
    let mut client = Client::connect(server.addr(), authority.without_certificate());
    client.write(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    while client.read().unwrap() {}
    assert!(client.received.starts_with(b"HTTP/1.1 405 "));
    // ... when the client has ended its side first,
    let mut client = Client::connect(server.addr(), authority.without_certificate());
    assert!(client.lives());
    client.stream.conn.send_close_notify();
    client.stream.flush().unwrap();
    assert!(!client.read().unwrap());
    // ... and when the server ends. A client that vanishes does no harm.
    let mut client = Client::connect(server.addr(), authority.without_certificate());
    assert!(client.lives());
    let reset = Client::connect(server.addr(), authority.without_certificate());
    reset.stream.sock.shutdown(Shutdown::Both).unwrap();
    server.terminate();
    assert!(!client.read().unwrap());
    assert!(server.wait());
}

#[test]
fn a_foreign_host_is_refused_over_tls() {
    let authority = Authority::new("hosts");
    let server = binary(&authority.server("server"), &[]);
    for (host, status) in [("localhost:1", 200), ("evil.example", 421)] {
        let mut client = Client::connect(server.addr(), authority.without_certificate());
        let reply =
            client.request(format!("GET {CARD} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        assert_eq!(reply.status, status, "{host}");
    }
}

// --- Client certificates -------------------------------------------------------------------------

/// Answers with the caller's name.
struct ShowCaller;

impl Agent for ShowCaller {
    fn start(&self, turn: Turn<'_>) {
        let text = turn.request.identity.unwrap_or("nobody").to_owned();
        turn.reply(MessageBuf::agent(&PartsBuf::new().text(&text)));
    }
}

#[test]
fn client_certificate_name_identifies_the_caller() {
    let authority = Authority::new("clients");
    let tls = files(&authority.server("server")).client_ca(authority.file());
    let running = serve(tls, ShowCaller, Limits::default());
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let uri = |name: &str| SanType::URI(name.try_into().unwrap());
    let mail = |name: &str| SanType::Rfc822Name(name.try_into().unwrap());
    let long = "n".repeat(257);
    for (common, names, caller) in [
        (Some("alice"), vec![], "alice"),
        (Some("Zoë 🦅"), vec![dns("zoe.example")], "Zoë 🦅"),
        (None, vec![uri("spiffe://example/bob"), dns("bob.example")], "URI:spiffe://example/bob"),
        (None, vec![dns("carol.example")], "DNS:carol.example"),
        (None, vec![mail("dave@example.org")], "email:dave@example.org"),
        (None, vec![SanType::IpAddress("::1".parse().unwrap())], "IP:::1"),
        (None, vec![SanType::IpAddress("10.1.2.3".parse().unwrap())], "IP:10.1.2.3"),
        // A common name does not replace another caller's alternative name.
        (Some("DNS:carol.example"), vec![], ""),
        (None, vec![], ""),
        // Not a name that can be returned; and no other name replaces it.
        (Some("a\nb"), vec![dns("e.example")], ""),
        (Some(&*long), vec![dns("e.example")], ""),
    ] {
        let shown = authority.client("client", common, &names);
        let config = authority.trusting().with_client_auth_cert(vec![shown.cert], shown.key);
        let config = Arc::new(config.unwrap());
        for _ in 0..2 {
            let mut client = Client::new(running.addrs()[0], &config);
            let reply = client.request(&send("who am I?"));
            // No session resumption: the certificate would not be verified again.
            assert_eq!(client.stream.conn.handshake_kind(), Some(HandshakeKind::Full));
            if caller.is_empty() {
                // A caller without a name can own no task.
                assert_eq!(reply.status, 401);
                continue;
            }
            assert_eq!(reply.result()["message"]["parts"][0]["text"], caller);
        }
    }
    assert_eq!(running.tls_handshakes_failed(), 0);
}

#[test]
fn client_without_trusted_certificate_is_rejected() {
    let (authority, other) = (Authority::new("demanded"), Authority::new("demanded-other"));
    let tls = files(&authority.server("server")).client_ca(authority.file());
    let running = serve(tls, ShowCaller, Limits::default());
    let addr = running.addrs()[0];
    let stranger = other.client("stranger", Some("alice"), &[]);
    let stranger = authority.trusting().with_client_auth_cert(vec![stranger.cert], stranger.key);
    let error = try_client(addr, authority.without_certificate()).err().unwrap();
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
    let error = try_client(addr, stranger.unwrap()).err().unwrap();
    assert!(error.to_string().contains("UnknownCA"), "{error}");
    eventually("both are counted", || running.tls_handshakes_failed() == 2);
}

#[test]
fn certificates_of_a_removed_authority_are_refused() {
    let [first, second] = ["gone", "gone-second"].map(Authority::new);
    let tls = files(&first.server("server")).client_ca(first.folder.join("both.pem"));
    let both = |names: &[&Authority]| {
        let pems = names.iter().map(|one| fs::read_to_string(one.file()).unwrap());
        fs::write(first.folder.join("both.pem"), pems.collect::<String>()).unwrap();
    };
    both(&[&first]);
    let limits = Limits { sse_keep_alive_ms: 50, ..Limits::default() };
    let running = serve(tls, Echo, limits);
    let client = |authority: &Authority| {
        let shown = authority.client("client", Some("alice"), &[]);
        let config = first.trusting().with_client_auth_cert(vec![shown.cert], shown.key);
        Client::connect(running.addrs()[0], config.unwrap())
    };
    let [mut old, mut stream] = [client(&first), client(&first)];
    stream.write(&post("/", &[], &rpc(V1.stream(), &V1.params(say("hold:600000:3")))));
    while !stream.received.ends_with(b": keep-alive\n\n\r\n") {
        assert!(stream.read().unwrap(), "{}", stream.received.escape_ascii());
    }
    assert_eq!(old.request(&send("hi")).status, 200);
    // An additional authority revokes no other certificate.
    both(&[&first, &second]);
    running.reload_tls().unwrap();
    assert_eq!(old.request(&send("hi")).status, 200);
    let mut new = client(&second);
    assert_eq!(new.request(&send("hi")).status, 200);
    both(&[&second]);
    running.reload_tls().unwrap();
    assert_eq!(old.request(&send("hi")).status, 401);
    while stream.read().unwrap() {}
    // It came in with the files of both authorities, of which one is gone.
    assert_eq!(new.request(&send("hi")).status, 401);
    assert_eq!(client(&second).request(&send("hi")).status, 200);
}

#[test]
fn client_certificate_is_ignored_without_client_ca() {
    let authority = Authority::new("not-asked");
    let running = serve(files(&authority.server("server")), ShowCaller, Limits::default());
    let shown = authority.client("client", Some("alice"), &[]);
    let config = authority.trusting().with_client_auth_cert(vec![shown.cert], shown.key);
    let mut client = Client::connect(running.addrs()[0], config.unwrap());
    let answer = client.request(&send("who am I?")).result();
    assert_eq!(answer["message"]["parts"][0]["text"], "nobody");
}

// --- New files -----------------------------------------------------------------------------------

fn replace(file: &Path, by: &Path) {
    fs::copy(by, file).unwrap();
}

#[test]
fn sighup_reloads_certificate_for_new_connections() {
    let authority = Authority::new("reload");
    let (shown, fresh) = (authority.server("server"), authority.server("fresh"));
    let stderr_path = authority.folder.join("stderr");
    let stderr = fs::File::create(&stderr_path).unwrap();
    let server = binary_with(&shown, &[], stderr.into());
    let cert_now = || {
        let mut client = Client::connect(server.addr(), authority.without_certificate());
        assert!(client.lives());
        client.server_cert()
    };
    let mut old = Client::connect(server.addr(), authority.without_certificate());
    assert!(old.lives());
    assert_eq!(cert_now(), shown.cert);
    // A certificate without its key, and a file that is not a certificate: a line each, and nothing
    // changes.
    let lines = || fs::read_to_string(&stderr_path).unwrap().lines().count();
    replace(&shown.cert_file, &fresh.cert_file);
    server.signal("-HUP");
    eventually("a line on stderr", || lines() == 1);
    assert_eq!(cert_now(), shown.cert);
    fs::write(&shown.cert_file, "-----BEGIN CERTIFICATE-----\n!\n").unwrap();
    server.signal("-HUP");
    eventually("a second line on stderr", || lines() == 2);
    assert_eq!(cert_now(), shown.cert);
    let text = fs::read_to_string(&stderr_path).unwrap();
    for (line, why) in text.lines().zip(["does not belong to the certificate", "server.pem: "]) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "WARN", "{line}");
        let line = line["message"].as_str().unwrap();
        assert!(line.starts_with("cannot use "), "{line}");
        assert!(
            line.ends_with("; the old certificate stays in use") && line.contains(why),
            "{line}"
        );
    }
    // Files that match.
    replace(&shown.cert_file, &fresh.cert_file);
    replace(&shown.key_file, &fresh.key_file);
    server.signal("-HUP");
    eventually("the new certificate", || cert_now() == fresh.cert);
    assert!(old.lives() && old.server_cert() == shown.cert);
    eventually("a third line on stderr", || lines() == 3);
    assert!(
        fs::read_to_string(&stderr_path).unwrap().contains("new connections use the certificate")
    );
}

#[test]
fn config_reload_loads_the_new_certificate() {
    let authority = Authority::new("reload-config");
    let (shown, fresh) = (authority.server("server"), authority.server("fresh"));
    let [stderr_path, file] = ["stderr", "p.toml"].map(|name| authority.folder.join(name));
    let with_tls = |shown: &Issued| {
        let [cert, key] = [&shown.cert_file, &shown.key_file].map(|file| file.display());
        let text = format!("[tls]\ncert = \"{cert}\"\nkey = \"{key}\"\n");
        fs::write(&file, text).unwrap();
    };
    with_tls(&shown);
    let flags = ["--config", file.to_str().unwrap()];
    let server = Binary::start_with(&flags, fs::File::create(&stderr_path).unwrap().into());
    let cert_now = || {
        let mut client = Client::connect(server.addr(), authority.without_certificate());
        assert!(client.lives());
        client.server_cert()
    };
    assert_eq!(cert_now(), shown.cert);
    let text = || fs::read_to_string(&stderr_path).unwrap();
    // Other paths, without a signal; then other files at these paths, with one.
    with_tls(&fresh);
    eventually("the new certificate", || cert_now() == fresh.cert);
    replace(&fresh.cert_file, &shown.cert_file);
    server.signal("-HUP");
    eventually("a line on stderr", || text().contains("; the running configuration is unchanged"));
    assert_eq!(cert_now(), fresh.cert);
    replace(&fresh.key_file, &shown.key_file);
    server.signal("-HUP");
    eventually("the old certificate", || cert_now() == shown.cert);
    // Without TLS it would need other sockets.
    fs::write(&file, "[limits]\nbody_bytes_max = 4_194_304\n").unwrap();
    eventually("a line on stderr", || {
        text().contains("need a restart: limits.body_bytes_max, tls")
    });
    assert_eq!(cert_now(), shown.cert);
}

/// A file that hangs its reader, as on a hung file system: opening a FIFO waits for its writer.
fn hang(file: &Path) {
    fs::remove_file(file).unwrap();
    assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
}

#[test]
fn hanging_certificate_file_blocks_no_call_or_shutdown() {
    let authority = Authority::new("reload-hangs");
    let shown = authority.server("server");
    let stderr_path = authority.folder.join("stderr");
    let mut server = binary_with(&shown, &[], fs::File::create(&stderr_path).unwrap().into());
    hang(&shown.cert_file);
    server.signal("-HUP");
    // The second signal shows that the first one is handled; the third has no more effect than the
    // second.
    let text = || fs::read_to_string(&stderr_path).unwrap();
    let is_reading = |server: &Binary| {
        server.signal("-HUP");
        text().contains("still being read")
    };
    eventually("a reading", || is_reading(&server));
    server.signal("-HUP");
    for _ in 0..3 {
        let mut client = Client::connect(server.addr(), authority.without_certificate());
        assert!(client.lives() && client.server_cert() == shown.cert);
    }
    assert_eq!(text().lines().count(), 1, "{}", text());
    server.terminate();
    assert!(server.wait(), "{}", text());
}

#[test]
fn sighups_during_a_reload_cause_one_more_reload() {
    let authority = Authority::new("reload-again");
    let (shown, fresh) = (authority.server("server"), authority.server("fresh"));
    let stderr_path = authority.folder.join("stderr");
    let server = binary_with(&shown, &[], fs::File::create(&stderr_path).unwrap().into());
    let pem = fs::read(&fresh.cert_file).unwrap();
    hang(&shown.cert_file);
    replace(&shown.key_file, &fresh.key_file);
    let lines = |what: &str| {
        let text = fs::read_to_string(&stderr_path).unwrap();
        text.lines().filter(|line| line.contains(what)).count()
    };
    eventually("a reading", || {
        server.signal("-HUP");
        lines("still being read") == 1
    });
    // However many signals came: each writer of the FIFO is one read.
    for reading in 1..=2 {
        fs::write(&shown.cert_file, &pem).unwrap();
        eventually("a line", || lines("new connections use") == reading);
    }
    server.signal("-HUP");
    fs::write(&shown.cert_file, &pem).unwrap();
    eventually("a line", || lines("new connections use") == 3);
}

#[test]
fn reload_tls_loads_new_files_or_returns_the_error() {
    let authority = Authority::new("reload-call");
    let (shown, fresh) = (authority.server("server"), authority.server("fresh"));
    let running = serve(files(&shown), Echo, Limits::default());
    let cert_now = || {
        let mut client = Client::connect(running.addrs()[0], authority.without_certificate());
        assert!(client.lives());
        client.server_cert()
    };
    fs::remove_file(&shown.key_file).unwrap();
    let error = running.reload_tls().unwrap_err().to_string();
    assert!(error.starts_with("cannot use ") && error.contains("server.key: "), "{error}");
    assert_eq!(cert_now(), shown.cert);
    replace(&shown.cert_file, &fresh.cert_file);
    replace(&shown.key_file, &fresh.key_file);
    running.reload_tls().unwrap();
    assert_eq!(cert_now(), fresh.cert);
}

// --- Misbehaving peers ---------------------------------------------------------------------------

#[test]
fn tls_handshake_timeout_ms() {
    let authority = Authority::new("timeout");
    let server = binary(
        &authority.server("server"),
        &["--limit", "tls_handshake_timeout_ms=300", "--limit", "keep_alive_idle_ms=60_000"],
    );
    let mut hello = Vec::new();
    connection(&Arc::new(authority.without_certificate())).write_tls(&mut hello).unwrap();
    // The limit does not apply after the handshake.
    let mut client = Client::connect(server.addr(), authority.without_certificate());
    assert!(client.lives());
    // One sends nothing, one stops in the middle, one trickles: progress alone is not enough.
    let began = Instant::now();
    let mut silent = tcp(server.addr());
    let mut half = tcp(server.addr());
    half.write_all(&hello[..hello.len() / 2]).unwrap();
    let mut trickling = tcp(server.addr());
    trickling.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut ended = false;
    for byte in &hello[..hello.len() - 1] {
        ended = trickling.write_all(&[*byte]).is_err();
        ended |= match trickling.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        if ended {
            break;
        }
    }
    assert!(ended, "a trickling handshake goes on");
    assert!(began.elapsed() >= Duration::from_millis(299), "{:?}", began.elapsed());
    assert!(is_closed(&mut silent) && is_closed(&mut half));
    assert!(client.lives());
}

#[test]
fn unfinished_handshake_counts_toward_connections_max() {
    let authority = Authority::new("counted");
    let server = binary(&authority.server("server"), &["--limit", "connections_max=2"]);
    let (first, _second) = (tcp(server.addr()), tcp(server.addr()));
    let mut third = tcp(server.addr());
    assert!(is_closed(&mut third));
    drop(first);
    eventually("room for one more", || {
        try_client(server.addr(), authority.without_certificate()).is_ok()
    });
}

#[test]
fn new_peer_gets_slot_of_unfinished_tls_handshake() {
    let authority = Authority::new("shares");
    let server = binary(&authority.server("server"), &["--limit", "connections_max=4"]);
    let mut held: Vec<_> = (0..4).map(|_| crate::peer_shares::from(2, server.addr())).collect();
    held.iter_mut().for_each(|tcp| tcp.write(&[22, 3, 1]));
    let mut client = try_client(server.addr(), authority.without_certificate()).unwrap();
    client.write(&get(CARD));
    assert_eq!(client.reply().status, 200);
    assert!(is_closed(&mut held[0].stream) && held[3].is_silent());
}

#[test]
fn plaintext_at_a_tls_port_is_closed_and_counted() {
    let authority = Authority::new("plaintext");
    let running = serve(files(&authority.server("server")), Echo, Limits::default());
    for (index, bytes) in
        [&get(CARD)[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0; 5000]].into_iter().enumerate()
    {
        let mut stream = tcp(running.addrs()[0]);
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // The reset that follows the alert may discard it.
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/"), "{}", answer.escape_ascii());
        let count = index as u64 + 1;
        eventually("it is counted once", || running.tls_handshakes_failed() == count);
    }
    let mut client = Client::connect(running.addrs()[0], authority.without_certificate());
    assert!(client.lives());
    assert_eq!(running.tls_handshakes_failed(), 3);
}

#[test]
fn failed_tls_handshake_is_logged_with_peer_address() {
    let authority = Authority::new("handshake-log");
    let stderr_path = authority.folder.join("stderr");
    let stderr = fs::File::create(&stderr_path).unwrap();
    let server = binary_with(&authority.server("server"), &[], stderr.into());
    tcp(server.addr()).write_all(&get(CARD)).unwrap();
    let text = || fs::read_to_string(&stderr_path).unwrap();
    eventually("a line", || text().contains("a TLS handshake with 127.0.0.1 has failed: "));
}

#[test]
fn tls_at_a_plain_port_is_a_bad_request() {
    let authority = Authority::new("plain-port");
    let server = Binary::start(&[]);
    let mut hello = Vec::new();
    connection(&Arc::new(authority.without_certificate())).write_tls(&mut hello).unwrap();
    let mut tcp = server.connect();
    tcp.write(&hello);
    assert_eq!(tcp.read_first(), Some(400));
    server.assert_lives();
}

#[test]
fn tls_client_that_does_not_read_is_disconnected() {
    let authority = Authority::new("stall");
    let server = binary(&authority.server("server"), &["--limit", "write_stall_ms=300"]);
    let mut client = Client::connect(server.addr(), authority.without_certificate());
    // Far more than the sockets hold; the client reads nothing until the timeout.
    let request = send(&"z".repeat(3 << 20));
    let began = Instant::now();
    // A waiting write sees the reset, or the socket has it as an error.
    let is_reset = (0..3).any(|_| client.stream.write_all(&request).is_err());
    let socket = client.stream.sock.try_clone().unwrap();
    eventually("it is reset", || is_reset || socket.take_error().unwrap().is_some());
    assert!(began.elapsed() >= Duration::from_millis(299), "{:?}", began.elapsed());
    let mut outcome = client.read();
    while matches!(outcome, Ok(true)) {
        outcome = client.read();
    }
    assert!(outcome.is_err(), "the answers came to an end");
    let mut client = Client::connect(server.addr(), authority.without_certificate());
    assert!(client.lives());
}

// --- Flags ---------------------------------------------------------------------------------------

#[test]
fn unusable_tls_files_and_flags_print_one_line() {
    let authority = Authority::new("files");
    let (server, other) = (authority.server("server"), authority.server("other"));
    let empty = authority.folder.join("empty.pem");
    fs::write(&empty, "nothing\n").unwrap();
    let broken = authority.folder.join("broken.pem");
    fs::write(&broken, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let locked = authority.folder.join("locked.key");
    let text = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    fs::write(&locked, text).unwrap();
    let missing = authority.folder.join("missing.pem");
    // A complete certificate, followed by more bytes than the server reads.
    let large = authority.folder.join("large.pem");
    let text = [fs::read(&server.cert_file).unwrap(), vec![b'\n'; 1024 * 1024]].concat();
    fs::write(&large, text).unwrap();
    let (cert, key) = (&server.cert_file, &server.key_file);
    let none = None::<&PathBuf>;
    for (cert, key, client_ca, blamed, why) in [
        (&missing, key, none, "missing.pem", "No such file"),
        (cert, &missing, none, "missing.pem", "No such file"),
        (cert, key, Some(&missing), "missing.pem", "No such file"),
        (&empty, key, none, "empty.pem", "no certificate in PEM form"),
        (&broken, key, none, "broken.pem", ""),
        (cert, &empty, none, "empty.pem", "no unencrypted private key"),
        (cert, &locked, none, "locked.key", "no unencrypted private key"),
        (cert, &other.key_file, none, "other.key", "does not belong to the certificate"),
        (cert, key, Some(&empty), "empty.pem", "no certificate in PEM form"),
        (cert, key, Some(&broken), "broken.pem", ""),
        (&authority.folder, key, none, "files", "directory"),
        (&large, key, none, "large.pem", "larger than 1 MiB"),
        (cert, &large, none, "large.pem", "larger than 1 MiB"),
        (cert, key, Some(&large), "large.pem", "larger than 1 MiB"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--tls-cert"]).arg(cert);
        command.arg("--tls-key").arg(key);
        if let Some(client_ca) = client_ca {
            command.arg("--tls-client-ca").arg(client_ca);
        }
        let output = command.output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(line.starts_with("peregrine: cannot use ") && line.lines().count() == 1, "{line}");
        assert!(line.contains(&format!("{blamed}: ")) && line.contains(why), "{line}");
        assert!(output.stdout.is_empty());
    }
    for (flags, message) in [
        (&["--tls-cert", "a"] as &[&str], "add --tls-key"),
        (&["--tls-key", "a"], "add --tls-cert"),
        (&["--tls-client-ca", "a"], "add --tls-cert and --tls-key"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
        let output = command.arg("serve").args(flags).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.contains(message) && line.lines().count() == 1, "{line}");
    }
}

#[test]
fn banner_command_completes_a_task_over_tls() {
    let authority = Authority::new("pasted");
    let issued = authority.server("server");
    authority.client("client", Some("alice"), &[]);
    let ca = authority.file();
    for flags in [&[][..], &["--tls-client-ca", ca.to_str().unwrap()]] {
        let server = binary(&issued, flags);
        // It names `client.pem` and `client.key`, which are in this folder.
        let mut pasted = Command::new("sh");
        let pasted = pasted.args(["-c", server.banner("try")]).current_dir(&authority.folder);
        let answer = String::from_utf8(pasted.output().unwrap().stdout).unwrap();
        assert!(answer.contains("TASK_STATE_COMPLETED") && answer.contains("hello"), "{answer}");
    }
}

/// Another TLS implementation, if it is installed.
#[test]
fn curl_completes_a_call_with_client_certificate() {
    if Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    let authority = Authority::new("curl");
    let ca = authority.file();
    let server = binary(&authority.server("server"), &["--tls-client-ca", ca.to_str().unwrap()]);
    let client = authority.client("client", Some("alice"), &[]);
    let port = server.addr().port();
    let curl = |path: &str, args: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--noproxy", "*", "--max-time", "20", "--cacert"]).arg(&ca);
        command.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]).args(args);
        command.arg(format!("https://localhost:{port}{path}"));
        command.output().unwrap()
    };
    let (cert, key) = (client.cert_file.to_str().unwrap(), client.key_file.to_str().unwrap());
    let card = curl(CARD, &["--cert", cert, "--key", key]);
    let card: serde_json::Value = serde_json::from_slice(&card.stdout).unwrap();
    assert_eq!(card["url"], format!("https://localhost:{port}/"));
    let body = rpc(V1.send(), &V1.params(say("hello")));
    let json = "Content-Type: application/json";
    let args = ["--cert", cert, "--key", key, "-H", json, "-H", "A2A-Version: 1.0", "-d", &body];
    let answer: serde_json::Value = serde_json::from_slice(&curl("/", &args).stdout).unwrap();
    assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(!curl(CARD, &[]).status.success(), "without a certificate");
}
