//! The pages about the server over real sockets: their content, which clients get them, and at
//! which paths.

use std::{
    os::unix::{fs::PermissionsExt, net::UnixStream},
    process::id,
};

use http::Request;
use serde_json::{Value, json};

use crate::{
    grpc_client::run,
    http2,
    support::{
        ask::{V1, V03, get_with, post, rpc, say},
        binary::{Binary, Line, Tcp, eventually},
        reply::Reply,
        ws,
    },
};

const LOCAL: &str = "Host: localhost\r\n";

/// A GET from this machine.
fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\n{LOCAL}\r\n").into_bytes()
}

fn send(server: &Binary, request: &[u8]) -> Reply {
    let mut tcp = server.connect();
    tcp.write(request);
    tcp.reply()
}

/// The number on the line of a metric that begins with `line`; 0: there is none.
fn count(text: &str, line: &str) -> f64 {
    let found = text.lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(' '));
    found.map_or(0.0, |number| number.parse().unwrap())
}

fn calls(method: &str, system: &str, generation: &str, outcome: &str) -> String {
    format!(
        "peregrine_calls_total{{rpc_method=\"{method}\",rpc_system=\"{system}\",\
         version=\"{generation}\",agent=\"echo\",outcome=\"{outcome}\"}}"
    )
}

fn metrics(server: &Binary) -> String {
    let reply = send(server, &get("/metrics"));
    assert_eq!(reply.status, 200);
    assert!(reply.field("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    reply.text().to_owned()
}

#[test]
fn metrics_count_each_call_of_every_binding_once() {
    let server = Binary::start(&["--workers", "2"]);
    let version = [("A2A-Version", "1.0")];
    for _ in 0..3 {
        send(&server, &post("/", &version, &rpc(V1.send(), &V1.params(say("hi")))));
    }
    send(&server, &post("/", &[], &rpc(V03.send(), &V03.params(say("hi")))));
    send(&server, &post("/", &version, &rpc("Nothing", &json!({}))));
    send(&server, &get_with("/tasks/none", "A2A-Version: 1.0\r\n"));
    let mut socket = server.connect();
    socket.write(&ws::upgrade("/", "A2A-Version: 1.0\r\n"));
    socket.read_until("\r\n\r\n");
    for _ in 0..2 {
        socket.write(&ws::text(&rpc("GetTask", &json!({ "id": "none" }))));
    }
    socket.read_until("-32001");
    let mut stream = server.connect();
    let body = rpc("SendStreamingMessage", &V1.params(say("stream:3")));
    stream.write(&post("/", &version, &body));
    stream.read_until("\r\n0\r\n\r\n");
    run(async {
        let mut client = http2::connect(server.addr()).await;
        let uri = "http://a.example/lf.a2a.v1.A2AService/GetTask";
        let request = Request::post(uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("a2a-version", "1.0");
        // A message that names the task `x`.
        let body = [0, 0, 0, 0, 3, 0x12, 1, b'x'];
        http2::fetch(&mut client, request.body(()).unwrap(), &body).await;
    });
    let lines = [
        (calls("SendMessage", "jsonrpc", "1.0", "ok"), 3.0),
        (calls("SendMessage", "jsonrpc", "0.3", "ok"), 1.0),
        (calls("_OTHER", "jsonrpc", "1.0", "METHOD_NOT_FOUND"), 1.0),
        (calls("GetTask", "http+json", "1.0", "TASK_NOT_FOUND"), 1.0),
        (calls("GetTask", "websocket", "1.0", "TASK_NOT_FOUND"), 2.0),
        (calls("SendStreamingMessage", "jsonrpc", "1.0", "ok"), 1.0),
        (calls("GetTask", "grpc", "1.0", "TASK_NOT_FOUND"), 1.0),
        ("peregrine_tasks{state=\"completed\"}".to_owned(), 5.0),
        ("peregrine_streams_ended_total{reason=\"complete\"}".to_owned(), 1.0),
        ("peregrine_time_to_first_event_seconds_count".to_owned(), 1.0),
        ("peregrine_open_streams".to_owned(), 0.0),
    ];
    eventually("everything is counted", || {
        let text = metrics(&server);
        let wrong: Vec<_> =
            lines.iter().filter(|(line, number)| count(&text, line) != *number).collect();
        wrong.is_empty()
    });
    let text = metrics(&server);
    let total: f64 = text
        .lines()
        .filter(|line| line.starts_with("peregrine_calls_total{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert_eq!(total, 10.0, "{text}");
    for name in ["process_open_fds", "process_max_fds", "peregrine_store_bytes"] {
        assert!(count(&text, name) > 0.0, "{name}");
    }
}

#[test]
fn proxied_request_gets_no_metrics_or_readiness_details() {
    let server = Binary::start(&[]);
    for field in ["X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1", "Via: 1.1 proxy"] {
        let send = |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\n{LOCAL}{field}\r\n\r\n");
            send(&server, request.as_bytes())
        };
        assert_eq!(send("/metrics").status, 403, "{field}");
        assert_eq!(send("/healthz").status, 200);
        let ready = send("/readyz");
        assert_eq!((ready.status, ready.json()), (200, json!({ "status": "ready" })), "{field}");
    }
    let ready = send(&server, &get("/readyz")).json();
    assert_eq!(ready["checks"], json!({ "store": "ok", "listeners": "ok" }));
    // The Host check applies here, too.
    for path in ["/healthz", "/readyz", "/metrics"] {
        let other = format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert_eq!(send(&server, other.as_bytes()).status, 421, "{path}");
        let posted = post(path, &[], "{}");
        let reply = send(&server, &posted);
        assert_eq!((reply.status, reply.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
    }
}

#[test]
fn pages_are_served_over_http_2() {
    let server = Binary::start(&[]);
    run(async {
        let mut client = http2::connect(server.addr()).await;
        for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 200)] {
            let request = Request::get(format!("http://localhost{path}")).body(()).unwrap();
            let answer = http2::fetch(&mut client, request, b"").await;
            assert_eq!(answer.status(), status, "{path}");
            assert_eq!(answer.headers()["cache-control"], "no-store");
        }
    });
}

#[test]
fn tenant_and_page_of_the_same_name_are_both_served() {
    let server = Binary::start(&[]);
    let body = V1.params(say("hi")).to_string();
    for name in ["healthz", "readyz", "metrics"] {
        let path = format!("/{name}/message:send");
        let reply = send(&server, &post(&path, &[("A2A-Version", "1.0")], &body));
        assert_eq!(reply.status, 200, "{path} {}", reply.text());
        let listed = send(&server, &get_with(&format!("/{name}/tasks"), "A2A-Version: 1.0\r\n"));
        assert_eq!(listed.json()["totalSize"], 1, "{name}");
        assert_eq!(send(&server, &get(&format!("/{name}"))).status, 200);
        assert_eq!(send(&server, &get(&format!("/{name}/"))).status, 404);
    }
}

#[test]
fn admin_listener_serves_pages_but_no_agent() {
    let server = Binary::start(&["--admin", "127.0.0.1:0"]);
    let admin = server.banner("admin").strip_prefix("http://").unwrap().parse().unwrap();
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(send(&server, &get(path)).status, 404, "{path}");
        let mut tcp = Tcp::to(admin);
        tcp.write(&get(path));
        assert_eq!(tcp.reply().status, 200, "{path}");
    }
    for request in [
        post("/", &[("Host", "localhost")], &rpc(V1.send(), &V1.params(say("hi")))),
        get("/.well-known/agent-card.json"),
    ] {
        let request = String::from_utf8(request).unwrap().replace("Host: a.example\r\n", "");
        let mut tcp = Tcp::to(admin);
        tcp.write(request.as_bytes());
        assert_eq!(tcp.reply().status, 404);
    }
    let mut tcp = Tcp::to(admin);
    tcp.write(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(tcp.reply().status, 421);
}

#[test]
fn admin_socket_is_private_and_removed_at_shutdown() {
    let path = std::env::temp_dir().join(format!("peregrine-admin-{}", id()));
    let flag = format!("unix:{}", path.display());
    for _ in 0..2 {
        let mut server = Binary::start(&["--admin", &flag]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut line = Line::over(UnixStream::connect(&path).unwrap());
        line.write(&get("/metrics"));
        assert_eq!(line.reply().status, 200);
        line.write(&get("/readyz"));
        assert_eq!(line.reply().json()["checks"]["store"], "ok");
        drop(line);
        // A killed server leaves its socket file, which has no owner then.
        server.signal("-KILL");
        server.exit_code();
        assert!(path.exists());
    }
    let mut server = Binary::start(&["--admin", &flag]);
    server.terminate();
    assert!(server.wait() && !path.exists());
}

#[test]
fn draining_server_reports_not_ready() {
    let mut server = Binary::start(&["--admin", "127.0.0.1:0"]);
    let admin = server.banner("admin").strip_prefix("http://").unwrap().parse().unwrap();
    let mut busy = server.connect();
    busy.write(&post(
        "/",
        &[("A2A-Version", "1.0")],
        &rpc(V1.send(), &V1.params(say("hold:5000:1"))),
    ));
    server.wait_for_tasks(1);
    server.terminate();
    server.wait_until_refused();
    let send = |path: &str| {
        let mut tcp = Tcp::to(admin);
        tcp.write(&get(path));
        tcp.reply()
    };
    let ready = send("/readyz");
    assert_eq!((ready.status, &ready.json()["status"]), (503, &Value::from("draining")));
    assert_eq!(send("/healthz").status, 200);
    assert_eq!(busy.reply().status, 200);
    assert!(server.wait());
}

#[test]
fn admin_connections_max() {
    let limits = ["--limit", "admin_connections_max=1", "--limit", "connections_max=1"];
    let server = Binary::start(&[&["--admin", "127.0.0.1:0"][..], &limits].concat());
    let admin = server.banner("admin").strip_prefix("http://").unwrap().parse().unwrap();
    // The server is full, and still answers here.
    let _held = server.connect();
    eventually("the server is full", || {
        let mut tcp = server.connect();
        tcp.write(&get("/"));
        tcp.read_first() == Some(503)
    });
    let mut first = Tcp::to(admin);
    first.write(&get("/healthz"));
    assert_eq!(first.reply().status, 200);
    assert_eq!(Tcp::to(admin).read_to_end(), b"");
    first.write(&get("/metrics"));
    let text = first.reply().text().to_owned();
    assert_eq!(count(&text, "peregrine_refused_total{limit=\"admin_connections_max\"}"), 1.0);
    assert!(count(&text, "peregrine_refused_total{limit=\"connections_max\"}") >= 1.0);
    assert_eq!(count(&text, "peregrine_open_connections"), 1.0);
}
