//! HTTP/2 on the port of HTTP/1.1: what is served over it in addition to gRPC, which errors a
//! client can make, and that the server survives them.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{RecvStream, client::SendRequest};
use http::{HeaderMap, Request, Response};
use peregrine::{
    agent::echo::Echo,
    limits::{Limits, callers::PEER_FAILURES_MAX},
    net::Server,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
};

use crate::{
    grpc_client::{Rig, run, say},
    support::callers::ByName,
};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame.
pub const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const PATIENCE: Duration = Duration::from_secs(20);

pub async fn connect(addr: SocketAddr) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

/// Sends a request with this body, and waits for the head of the answer.
pub async fn fetch(
    client: &mut SendRequest<Bytes>,
    request: Request<()>,
    body: &[u8],
) -> Response<RecvStream> {
    let (response, mut stream) = client.send_request(request, body.is_empty()).unwrap();
    if !body.is_empty() {
        // A server that refuses the body may do so before it arrives.
        let _ = stream.send_data(Bytes::copy_from_slice(body), true);
    }
    tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap()
}

/// Waits for the rest of the answer.
pub async fn rest(response: Response<RecvStream>) -> (HeaderMap, Vec<u8>, HeaderMap) {
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        body.flow_control().release_capacity(piece.len()).unwrap();
        bytes.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    (head.headers, bytes, trailers)
}

fn post(media: &str, path: &str) -> http::request::Builder {
    let uri = format!("http://test.example{path}");
    Request::post(uri).header("content-type", media).header("a2a-version", "1.0")
}

fn rpc(method: &str, params: &Value) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string().into()
}

fn params(words: &str) -> Value {
    let parts = json!([{ "text": words }]);
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": parts } })
}

pub fn framed(message: &impl prost::Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    [&[0][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat()
}

pub fn grpc(path: &str) -> http::request::Builder {
    post("application/grpc", path).header("te", "trailers")
}

const SEND: &str = "/lf.a2a.v1.A2AService/SendMessage";
const STREAM: &str = "/lf.a2a.v1.A2AService/SendStreamingMessage";

/// `grpc-status` of an answer, in its headers or its trailers.
pub async fn status_of(response: Response<RecvStream>) -> (u32, String) {
    assert_eq!(response.status(), 200);
    let (head, _, trailers) = rest(response).await;
    let found = |name: &str| {
        let value = trailers.get(name).or(head.get(name)).map(|value| value.to_str().unwrap());
        value.unwrap_or_default().to_owned()
    };
    (found("grpc-status").parse().unwrap(), found("grpc-message"))
}

async fn assert_serves(rig: &Rig) {
    let sent = rig.v1().await.send_message(say("alive")).await.unwrap();
    assert_eq!(
        crate::grpc_client::state(&crate::grpc_client::task(sent.into_inner())),
        crate::grpc_client::v1::TaskState::Completed
    );
}

#[test]
fn wrong_key_over_the_failure_limit_closes_the_connection() {
    let server = Server::new().agent(Echo::profile(), Echo).allow_host("*").workers(1);
    let server = server.authenticator(Arc::<ByName>::default()).listen("127.0.0.1:0");
    let running = server.start().unwrap();
    run(async {
        let stream = tokio::net::TcpStream::connect(running.addrs()[0]).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        let ended = tokio::spawn(connection);
        let call = |token: &str| {
            let request = post("application/json", "/");
            request.header("authorization", format!("Bearer {token}")).body(()).unwrap()
        };
        let body = rpc("ListTasks", &json!({}));
        for n in 0..PEER_FAILURES_MAX {
            let wrong = fetch(&mut client, call(&format!("wrong {n}")), &body).await;
            assert_eq!(wrong.status(), 401);
            assert_eq!(fetch(&mut client, call("alice"), &body).await.status(), 200);
        }
        assert!(!ended.is_finished());
        let wrong = fetch(&mut client, call("wrong again"), &body).await;
        assert_eq!(wrong.status(), 401);
        assert!(wrong.headers().contains_key("www-authenticate"));
        rest(wrong).await;
        tokio::time::timeout(PATIENCE, ended).await.expect("a GOAWAY").unwrap().unwrap();
        let mut client = connect(running.addrs()[0]).await;
        assert_eq!(fetch(&mut client, call("bob"), &body).await.status(), 200);
    });
}

#[test]
fn json_rpc_and_cards_are_served_over_http2() {
    let rig = Rig::echo();
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let body = rpc("SendMessage", &params("hi"));
        let request = post("application/json", "/").body(()).unwrap();
        let answer = fetch(&mut client, request, &body).await;
        assert_eq!(answer.status(), 200);
        let (head, body, _) = rest(answer).await;
        assert_eq!(head["content-type"], "application/json");
        assert!(head.contains_key("date") && !head.contains_key("connection"));
        let task: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(task["id"], 7);
        assert_eq!(task["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        // A task made over one binding is read over the other.
        let get = crate::grpc_client::v1::GetTaskRequest {
            id: task["result"]["task"]["id"].as_str().unwrap().to_owned(),
            ..Default::default()
        };
        let seen = rig.v1().await.get_task(get).await.unwrap().into_inner();
        assert_eq!(seen.artifacts[0].parts[0], crate::grpc_client::text("hi"));
        let card = Request::get("http://test.example/.well-known/agent-card.json");
        let (head, body, _) = rest(fetch(&mut client, card.body(()).unwrap(), b"").await).await;
        let card: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(card["url"], "http://test.example/");
        let interfaces = card["supportedInterfaces"].as_array().unwrap();
        let grpc = interfaces.iter().find(|one| one["protocolBinding"] == "GRPC").unwrap();
        assert_eq!(grpc["url"], "test.example:80");
        let unchanged = Request::get("http://test.example/.well-known/agent-card.json")
            .header("if-none-match", head["etag"].clone());
        let answer = fetch(&mut client, unchanged.body(()).unwrap(), b"").await;
        assert_eq!(answer.status(), 304);
        assert!(rest(answer).await.1.is_empty());
        let head = Request::head("http://test.example/.well-known/agent-card.json");
        let answer = fetch(&mut client, head.body(()).unwrap(), b"").await;
        assert_eq!((answer.status().as_u16(), rest(answer).await.1.len()), (200, 0));
        for (path, status) in [("/nothing", 404), ("/a%2e%2e/b", 404), ("/../x", 400)] {
            let request = Request::get(format!("http://test.example{path}")).body(()).unwrap();
            assert_eq!(fetch(&mut client, request, b"").await.status(), status, "{path}");
        }
        let request = Request::delete("http://test.example/").body(()).unwrap();
        assert_eq!(fetch(&mut client, request, b"").await.status(), 405);
    });
}

#[test]
fn event_streams_are_served_over_http2() {
    let rig = Rig::limited(|limits| limits.sse_keep_alive_ms = 100);
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let body = rpc("SendStreamingMessage", &params("hold:300:50"));
        let request = post("application/json", "/").body(()).unwrap();
        let answer = fetch(&mut client, request, &body).await;
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert!(!answer.headers().contains_key("transfer-encoding"));
        let text = String::from_utf8(rest(answer).await.1).unwrap();
        let ids: Vec<u64> = text
            .lines()
            .filter_map(|line| line.strip_prefix("id: "))
            .map(|id| id.parse().unwrap())
            .collect();
        assert_eq!(ids, (1..=51).collect::<Vec<_>>());
        assert!(text.contains("\n: keep-alive\n"), "{text}");
        // Long answers come through the windows of the client, which start at 64 KiB.
        let words = "x".repeat(1_000_000);
        let body = rpc("SendMessage", &params(&words));
        let request = post("application/json", "/").body(()).unwrap();
        let (head, body, _) = rest(fetch(&mut client, request, &body).await).await;
        assert_eq!(head["content-length"].to_str().unwrap(), body.len().to_string());
        assert!(body.iter().filter(|byte| **byte == b'x').count() >= 2 * words.len());
    });
}

#[test]
fn body_without_length_is_read_and_long_body_refused() {
    let rig = Rig::limited(|limits| limits.body_bytes_max = 50_000);
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let body = rpc("SendMessage", &params("in pieces"));
        let request = post("application/json", "/").body(()).unwrap();
        let (response, mut stream) = client.send_request(request, false).unwrap();
        for piece in body.chunks(7) {
            stream.send_data(Bytes::copy_from_slice(piece), false).unwrap();
            tokio::task::yield_now().await;
        }
        stream.send_data(Bytes::new(), true).unwrap();
        let (_, body, _) = rest(response.await.unwrap()).await;
        let task: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(task["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
        // By its `content-length`: before any of it is sent.
        let request = post("application/json", "/").header("content-length", "50001");
        let (response, _stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
        assert_eq!(response.await.unwrap().status(), 413);
        // Without `content-length`: once it is too long.
        let request = post("application/json", "/").body(()).unwrap();
        let answer = fetch(&mut client, request, &vec![b' '; 60_000]).await;
        assert_eq!(answer.status(), 413);
        assert_serves(&rig).await;
    });
}

#[test]
fn early_answer_does_not_reset_the_stream_at_once() {
    let rig = Rig::with(|setup| setup.authenticator = Some(Arc::new(ByName::default())));
    run(async {
        let stream = tokio::net::TcpStream::connect(rig.0.addrs()[0]).await.unwrap();
        let (client, mut connection) = h2::client::handshake(stream).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let early = async |client: &mut SendRequest<Bytes>, length: usize| {
            let request = post("application/json", "/").header("content-length", length);
            let sent = client.send_request(request.body(()).unwrap(), false).unwrap();
            let response = tokio::time::timeout(PATIENCE, sent.0).await.unwrap().unwrap();
            assert_eq!(response.status(), 401);
            rest(response).await;
            sent.1
        };
        // An immediate reset after the answer would have come before the PONG.
        let mut body = early(&mut client, 100_000).await;
        pings.ping(h2::Ping::opaque()).await.unwrap();
        let is_open = std::future::poll_fn(|cx| Poll::Ready(body.poll_reset(cx).is_pending()));
        assert!(is_open.await);
        body.send_data(Bytes::from(vec![b'x'; 100_000]), true).unwrap();
        pings.ping(h2::Ping::opaque()).await.unwrap();
        // Of a body beyond the stream's window the rest is not read.
        for sent in [1_000_000, 0] {
            let mut body = early(&mut client, 2_000_000).await;
            body.send_data(Bytes::from(vec![b'x'; sent]), false).unwrap();
            let reset = std::future::poll_fn(|cx| body.poll_reset(cx));
            let reset = tokio::time::timeout(PATIENCE, reset).await.unwrap();
            assert_eq!(reset.unwrap(), h2::Reason::NO_ERROR);
        }
        let request = grpc(SEND).header("authorization", "Bearer alice").body(()).unwrap();
        assert_eq!(status_of(fetch(&mut client, request, &framed(&say("x"))).await).await.0, 0);
    });
}

/// curl 7.88 of Debian 12 loses an answer if the stream is reset at once.
#[test]
fn curl_reads_every_early_answer() {
    if Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    let rig = Rig::with(|setup| {
        setup.authenticator = Some(Arc::new(ByName::default()));
        setup.limits.body_bytes_max = 6_000_000;
    });
    let folder = std::env::temp_dir().join(format!("peregrine-early-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (length, path, status) in [
        (10_000, "/nowhere", "404"),
        (10_000, "/", "401"),
        (5_000_000, "/nowhere", "404"),
        (5_000_000, "/", "401"),
        (7_000_000, "/", "413"),
    ] {
        let body = folder.join(length.to_string());
        std::fs::write(&body, vec![b'x'; length]).unwrap();
        for _ in 0..20 {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--noproxy", "*", "--max-time", "20", "--http2-prior-knowledge"]);
            curl.args(["-o", "/dev/null", "-w", "%{http_code}", "-H", "Expect:"]);
            curl.args(["-H", "Content-Type: application/json", "--data-binary"]);
            curl.arg(format!("@{}", body.display())).arg(format!("{}{path}", rig.0.base_url()));
            let output = curl.output().unwrap();
            let (stdout, error) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
            assert_eq!(String::from_utf8_lossy(stdout), status, "{length} {path}: {error}");
            assert!(output.status.success(), "{length} {path}: {error}");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn evo_ai_body_bytes_max_applies_only_to_evo_ai_paths() {
    let rig = Rig::limited(|limits| {
        (limits.body_bytes_max, limits.evo_ai_body_bytes_max) = (50_000, 90_000);
    });
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        for (path, most, name) in [
            ("/api/v1/a2a/echo", 90_000, "evo_ai_body_bytes_max"),
            ("/", 50_000, "(body_bytes_max"),
        ] {
            for (length, status) in [(most, 200), (most + 1, 413)] {
                let mut body = rpc("tasks/get", &json!({"id": "none"}));
                body.resize(length, b' ');
                for has_length in [true, false] {
                    let mut request = post("application/json", path);
                    if has_length {
                        request = request.header("content-length", length);
                    }
                    let request = request.body(()).unwrap();
                    let answer = fetch(&mut client, request, &body).await;
                    assert_eq!(answer.status(), status, "{path} {length} {has_length}");
                    let (_, text, _) = rest(answer).await;
                    let text = String::from_utf8(text).unwrap();
                    assert_eq!(text.contains(name), status == 413, "{text}");
                }
            }
        }
        assert_serves(&rig).await;
    });
}

#[test]
fn grpc_timeout_ends_the_call_with_deadline_exceeded() {
    let rig = Rig::echo();
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        for path in [SEND, STREAM] {
            let request = grpc(path).header("grpc-timeout", "100m").body(()).unwrap();
            let answer = fetch(&mut client, request, &framed(&say("hold:60000:3"))).await;
            assert_eq!(status_of(answer).await.0, 4, "{path}");
        }
        // Nor does the deadline wait for a message that never comes.
        let request = grpc(SEND).header("grpc-timeout", "100m").body(()).unwrap();
        let (response, _stream) = client.send_request(request, false).unwrap();
        assert_eq!(status_of(response.await.unwrap()).await.0, 4);
        // A malformed deadline is ignored.
        let request = grpc(SEND).header("grpc-timeout", "soon").body(()).unwrap();
        let answer = fetch(&mut client, request, &framed(&say("x"))).await;
        assert_eq!(status_of(answer).await.0, 0);
    });
}

#[test]
fn malformed_grpc_calls_return_their_grpc_status() {
    let rig = Rig::echo();
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let whole = framed(&say("x"));
        let twice = [&whole[..], &whole].concat();
        let compressed = [&[1][..], &whole[1..]].concat();
        let message = "the message does not match its protobuf type";
        let large = "the message is larger than 4194304 bytes (body_bytes_max)";
        for (path, body, code, text) in [
            ("/lf.a2a.v1.A2AService/Nothing", &whole[..], 12, "no such rpc"),
            ("/no.such.Service/SendMessage", &whole, 12, "no such rpc"),
            ("/", &whole, 12, "no such rpc"),
            ("/lf.a2a.v1.A2AService/SendMessage?x", &whole, 12, "no such rpc"),
            (SEND, &whole[..whole.len() - 1], 3, "the message is cut short"),
            (SEND, &whole[..3], 3, "the message is cut short"),
            (SEND, &twice, 3, "the request has more than one message"),
            (SEND, b"", 3, "the request has no message"),
            (SEND, &compressed, 13, "a message is compressed without grpc-encoding"),
            (SEND, b"\0\0\0\0\x02\x0a\x05", 3, message),
            (SEND, b"\0\0\0\0\x03\x12\x01\xff", 3, message),
            (SEND, b"\0\xff\xff\xff\xff", 8, large),
        ] {
            let request = grpc(path).body(()).unwrap();
            let status = status_of(fetch(&mut client, request, body).await).await;
            assert_eq!(status, (code, text.to_owned()), "{path} {body:?}");
        }
        // Another content type is not gRPC, and the path is unknown over HTTP.
        let request = post("text/plain", SEND).body(()).unwrap();
        assert_eq!(fetch(&mut client, request, &whole).await.status(), 404);
        let request = post("application/grpcx", SEND).body(()).unwrap();
        assert_eq!(fetch(&mut client, request, &whole).await.status(), 404);
        let mut request = grpc(SEND).body(()).unwrap();
        for n in 0..100 {
            let name: http::HeaderName = format!("x-{n}").parse().unwrap();
            request.headers_mut().insert(name, "1".parse().unwrap());
        }
        assert_eq!(status_of(fetch(&mut client, request, &whole).await).await.0, 8);
        // RESOURCE_EXHAUSTED as well: a head above the limit of bytes.
        let request = grpc(SEND).header("x", "y".repeat(20_000)).body(()).unwrap();
        assert_eq!(status_of(fetch(&mut client, request, &whole).await).await.0, 8);
        let request = grpc(SEND).header("x", "y".repeat(60_000)).body(()).unwrap();
        assert_eq!(status_of(fetch(&mut client, request, &whole).await).await.0, 8);
        let request = grpc(SEND).body(()).unwrap();
        assert_eq!(status_of(fetch(&mut client, request, &whole).await).await.0, 0);
    });
}

#[test]
fn every_call_of_a_burst_is_answered() {
    let rig = Rig::echo();
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let mut answers = Vec::new();
        for n in 0..100 {
            let request = grpc(SEND).body(()).unwrap();
            let (response, mut stream) = client.send_request(request, false).unwrap();
            let words = if n % 10 == 0 { "hold:30:3" } else { "x" };
            stream.send_data(framed(&say(words)).into(), true).unwrap();
            answers.push(response);
        }
        for answer in answers {
            assert_eq!(status_of(answer.await.unwrap()).await.0, 0);
        }
    });
}

/// Writes to a connection of its own and reads until the server ends it.
fn raw(rig: &Rig, pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(rig.0.addrs()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for piece in pieces {
        // The server may have closed the connection before the last piece.
        if stream.write_all(piece).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The kinds of the frames in an answer, and the error code of the last GOAWAY.
fn frames(mut answer: &[u8]) -> (Vec<u8>, Option<u32>) {
    let (mut kinds, mut goaway) = (Vec::new(), None);
    while let Some((head, rest)) = answer.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        kinds.push(head[3]);
        if head[3] == 7 {
            goaway = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        answer = rest;
    }
    (kinds, goaway)
}

#[test]
fn a_foreign_host_is_refused_over_every_binding() {
    // Only the hosts that a loopback listener accepts anyway.
    let rig = Rig::with(|setup| setup.allow_hosts.clear());
    let at = |host: &str, media: &str, path: &str| {
        let request = Request::post(format!("http://{host}{path}"));
        request.header("content-type", media).header("a2a-version", "1.0").body(()).unwrap()
    };
    let body = rpc("SendMessage", &params("hi"));
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        // Alternating, so that no accepted head is cached for a refused one.
        for _ in 0..2 {
            for (host, http, grpc) in [
                ("localhost:9", 200, 0),
                ("evil.example:3000", 421, 7),
                ("u:p@localhost", 400, 3),
                ("127.0.0.1", 200, 0),
                ("u:p@evil.example", 400, 3),
            ] {
                let answer = fetch(&mut client, at(host, "application/json", "/"), &body).await;
                assert_eq!(answer.status(), http, "{host}");
                let request = at(host, "application/grpc", SEND);
                let (status, text) =
                    status_of(fetch(&mut client, request, &framed(&say("x"))).await).await;
                assert_eq!((status, grpc == 7), (grpc, text.contains("--allow-host")), "{host}");
                let health = at(host, "application/grpc", "/grpc.health.v1.Health/Check");
                let (status, _) = status_of(fetch(&mut client, health, &[0; 5]).await).await;
                assert_eq!(status, grpc, "{host}");
            }
        }
        // The refused calls created no task.
        let list = crate::grpc_client::v1::ListTasksRequest::default();
        assert_eq!(rig.v1().await.list_tasks(list).await.unwrap().into_inner().total_size, 8);
    });
}

#[test]
fn http2_preface_may_arrive_in_pieces() {
    let rig = Rig::echo();
    let pieces: Vec<&[u8]> = PREFACE.chunks(1).chain([SETTINGS]).collect();
    let (kinds, _) = frames(&raw(&rig, &pieces));
    assert_eq!(kinds.first(), Some(&4), "{kinds:?}");
}

#[test]
fn invalid_preface_is_answered_in_http1() {
    let rig = Rig::echo();
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX"[..],
        b"INVALID CONNECTION PREFACE\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n\r\n",
        b"PRI * HTTP/3.0\r\n\r\n",
        b"PRI / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\nPRI * \
          HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let answer = String::from_utf8_lossy(&raw(&rig, &[bytes])).into_owned();
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        let statuses = answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]);
        let status = statuses.filter(|status| status.parse::<u16>().is_ok()).last().unwrap();
        assert!(["400", "405", "501", "505"].contains(&status), "{answer}");
    }
    run(assert_serves(&rig));
}

#[test]
fn protocol_error_closes_only_its_connection() {
    let rig = Rig::echo();
    for (what, bytes) in [
        ("a frame of 1 MiB", frame(0, 0, 1, &[0; 1 << 20])),
        ("data on stream 0", frame(0, 0, 0, b"x")),
        ("headers on an even stream", frame(1, 4, 2, &[0x82])),
        ("a broken header block", frame(1, 5, 1, &[0xff; 16])),
        ("settings that are not a multiple of six", frame(4, 0, 0, &[0; 5])),
        ("a continuation of nothing", frame(9, 4, 1, b"")),
        ("a window that is nothing", frame(8, 0, 0, &[0; 4])),
    ] {
        let (_, goaway) = frames(&raw(&rig, &[PREFACE, SETTINGS, &bytes]));
        assert!(goaway.is_some_and(|error| error != 0), "{what}: {goaway:?}");
    }
    // RFC 9113 §3.4: a preface that SETTINGS does not follow is invalid.
    let refused = raw(&rig, &[PREFACE, b"GET / HTTP/1.1\r\n\r\n"]);
    assert!(refused.starts_with(b"HTTP/1.1 505 "), "{}", refused.escape_ascii());
    run(assert_serves(&rig));
}

/// A header block for GET http://x/ out of the static table.
pub const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'x'];

#[test]
fn http2_resets_max() {
    let rig = Rig::limited(|limits| limits.http2_resets_max = 5);
    let mut burst = Vec::new();
    for n in 0..200_u32 {
        let id = 2 * n + 1;
        burst.extend(frame(1, 5, id, GET));
        burst.extend(frame(3, 0, id, &8_u32.to_be_bytes()));
    }
    let (kinds, goaway) = frames(&raw(&rig, &[PREFACE, SETTINGS, &burst]));
    // ENHANCE_YOUR_CALM, and far from all of them were answered.
    assert_eq!(goaway, Some(11));
    assert!(kinds.iter().filter(|kind| **kind == 1).count() < 200);
    run(assert_serves(&rig));
}

/// Frames that were in flight to a refused call are not an error of the peer.
#[test]
fn refused_calls_do_not_count_toward_http2_resets_max() {
    let rig = Rig::limited(|limits| limits.http2_resets_max = 5);
    let calls = 100_u32;
    // POST to another host, followed by a body.
    let post = [0x83, 0x86, 0x84, 0x41, 0x01, b'y'];
    let heads: Vec<u8> = (0..calls).flat_map(|n| frame(1, 4, 2 * n + 1, &post)).collect();
    let bodies: Vec<u8> = (0..calls).flat_map(|n| frame(0, 1, 2 * n + 1, b"{}")).collect();
    let after = frame(1, 5, 2 * calls + 1, GET);
    let mut stream = TcpStream::connect(rig.0.addrs()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    let sent = [[PREFACE, SETTINGS, &heads].concat(), [bodies, after].concat()];
    for (sent, answers) in sent.iter().zip([calls, calls + 1]) {
        stream.write_all(sent).unwrap();
        loop {
            let (kinds, goaway) = frames(&answer);
            assert_eq!(goaway, None);
            if kinds.iter().filter(|kind| **kind == 1).count() as u32 == answers {
                break;
            }
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "{kinds:?}");
            answer.extend_from_slice(&piece[..count]);
        }
    }
}

#[test]
fn http2_control_frames_max() {
    let rig = Rig::limited(|limits| limits.http2_control_frames_max = 50);
    let call = frame(1, 4, 1, &[&[0x83], &GET[1..]].concat());
    let begun = [PREFACE, SETTINGS, &call].concat();
    for (what, flood) in [
        ("SETTINGS", frame(4, 0, 0, &[])),
        ("PING", frame(6, 0, 0, &[7; 8])),
        ("PRIORITY", frame(2, 0, 3, &[0, 0, 0, 0, 1])),
        ("WINDOW_UPDATE", frame(8, 0, 0, &[0, 0, 0, 1])),
        ("an unknown frame", frame(0xfe, 0, 0, b"")),
        ("empty DATA", frame(0, 0, 1, b"")),
        ("DATA of padding", frame(0, 8, 1, &[1, 0])),
        ("an answer to no PING", frame(6, 1, 0, &[7; 8])),
        ("RST_STREAM", frame(3, 0, 1, &8_u32.to_be_bytes())),
    ] {
        // The last ones are unread when the server closes; the GOAWAY still arrives.
        let (_, goaway) = frames(&raw(&rig, &[&begun, &flood.repeat(20_000)]));
        assert_eq!(goaway, Some(11), "{what}");
        let calm = [&begun[..], &flood.repeat(40), &frame(6, 0, 0, b"the last")].concat();
        if what != "RST_STREAM" {
            let (kinds, goaway) = frames(&raw(&rig, &[&calm]));
            assert!(
                kinds.contains(&6) && goaway.is_none_or(|error| error == 0),
                "{what}: {kinds:?}"
            );
        }
    }
    run(assert_serves(&rig));
}

/// Reads until a frame of this kind has come.
fn read_to(stream: &mut TcpStream, kind: u8) {
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while !frames(&answer).0.contains(&kind) {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "the connection ended");
        answer.extend_from_slice(&piece[..count]);
    }
}

/// h2 ignores frames for a call that we have reset, for as long as it remembers the call.
#[test]
fn frame_flood_for_a_refused_call_closes_the_connection() {
    const RST_STREAM: u8 = 3;
    let rig = Rig::limited(|limits| limits.http2_control_frames_max = 50);
    // POST to another host; the server does not wait for the body.
    let post = [0x83, 0x86, 0x84, 0x41, 0x01, b'y'];
    for (what, flood) in
        [("HEADERS", frame(1, 4, 1, &post)), ("empty DATA that ends", frame(0, 1, 1, b""))]
    {
        let mut stream = TcpStream::connect(rig.0.addrs()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&[PREFACE, SETTINGS, &frame(1, 4, 1, &post)].concat()).unwrap();
        read_to(&mut stream, RST_STREAM);
        stream.write_all(&flood.repeat(60)).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(frames(&answer).1, Some(11), "{what}");
    }
    run(assert_serves(&rig));
}

/// RFC 9113 §8.3.1: one `Host` may stand for `:authority`.
#[test]
fn http2_request_with_two_hosts_is_refused() {
    let rig = Rig::echo();
    for (media, path, body) in [
        ("application/json", "/", rpc("ListTasks", &json!({}))),
        ("application/grpc", SEND, framed(&say("hi"))),
    ] {
        let heads = [1, 2].map(|hosts| {
            let fields = [(":path", path), ("content-type", media), ("a2a-version", "1.0")];
            let hosts = vec![("host", "x"); hosts];
            // Without the `:authority` in front of the other fields.
            let block = call_of(&[&fields[..], &hosts].concat());
            let block = [&block[..2], &block[5..]].concat();
            let call = [frame(1, 4, 1, &block), frame(0, 1, 1, &body)].concat();
            let mut stream = TcpStream::connect(rig.0.addrs()[0]).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&[PREFACE, SETTINGS, &call].concat()).unwrap();
            let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
            // Up to the frame that ends the stream; the first frame with fields begins it.
            while !answer.windows(9).any(|head| head[3] < 2 && head[4] & 1 == 1 && head[8] == 1) {
                let count = stream.read(&mut piece).unwrap();
                assert!(count > 0, "the connection ended");
                answer.extend_from_slice(&piece[..count]);
            }
            let head = answer.windows(9).position(|head| head[3] == 1 && head[8] == 1).unwrap();
            // Which static entry `:status` is, and whether a body follows the fields.
            (answer[head + 9], frames(&answer).0.contains(&0))
        });
        let expected = match media {
            "application/json" => [(0x88, true), (0x8c, true)],
            _ => [(0x88, true), (0x88, false)],
        };
        assert_eq!(heads, expected, "{media}");
    }
}

#[test]
fn window_updates_for_sent_data_are_not_a_flood() {
    let rig = Rig::limited(|limits| limits.http2_control_frames_max = 5);
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        // Through windows of 64 KiB, which are opened again and again.
        let words = "x".repeat(3_000_000);
        let body = rpc("SendMessage", &params(&words));
        let request = post("application/json", "/").body(()).unwrap();
        let (_, body, _) = rest(fetch(&mut client, request, &body).await).await;
        assert!(body.len() > 2 * words.len());
        let request = grpc(STREAM).body(()).unwrap();
        let answer = fetch(&mut client, request, &framed(&say("stream:500"))).await;
        assert_eq!(status_of(answer).await.0, 0);
        for _ in 0..50 {
            let request = grpc(SEND).body(()).unwrap();
            let answer = fetch(&mut client, request, &framed(&say("x"))).await;
            assert_eq!(status_of(answer).await.0, 0);
        }
    });
}

const WINDOW_UPDATE: u8 = 8;

/// Opens `count` calls, sends `piece` on each and nothing more, and counts the calls that the
/// server cuts.
fn cut(rig: &Rig, count: u32, fields: &[(&str, &str)], piece: &[u8]) -> usize {
    let call = call_of(fields);
    let mut calls = Vec::new();
    for n in 0..count {
        calls.extend(frame(1, 4, 2 * n + 1, &call));
        if !piece.is_empty() {
            calls.extend(frame(0, 0, 2 * n + 1, piece));
        }
    }
    let mut stream = TcpStream::connect(rig.0.addrs()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[PREFACE, SETTINGS].concat()).unwrap();
    // Together the pieces need the window that this opens.
    read_to(&mut stream, WINDOW_UPDATE);
    // The PING comes last: its answer shows that the server has read all of them.
    calls.extend(frame(6, 0, 0, b"the last"));
    stream.write_all(&calls).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let (kinds, _) = frames(&answer);
    kinds.iter().filter(|kind| **kind == 3).count()
}

/// A header block of a POST with these fields, and `:path` among them.
fn call_of(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x41, 0x01, b'x'];
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // RFC 7541 §5.1, with a prefix of seven bits.
            match text.len().checked_sub(127) {
                None => block.push(text.len() as u8),
                Some(more) => {
                    block.extend([127, (more % 128) as u8 | 128, (more >> 7) as u8]);
                }
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

#[test]
fn incomplete_calls_over_buffers_bytes_max_are_reset() {
    let grpc = [(":path", SEND), ("content-type", "application/grpc")];
    let long = "x".repeat(10_000);
    let extended = [&grpc[..], &[("a2a-extensions", &*long)]].concat();
    let unknown = [&grpc[..], &[("x-long", &*long)]].concat();
    let json = [(":path", "/"), ("content-type", "application/json"), ("x-long", &*long)];
    let piece = [&b"\0\0\x01\0\0"[..], &[b'x'; 10_000]].concat();
    for (what, fields, piece) in [
        ("the first piece of a message", &grpc[..], &piece[..]),
        ("metadata", &extended, b""),
        ("metadata that an agent may ask for", &unknown, b""),
        ("the head of another request", &json, b""),
    ] {
        let rig = Rig::limited(|limits| limits.buffers_bytes_max = 300_000);
        let count = cut(&rig, 100, fields, piece);
        // Some 30 of them fit.
        assert!((50..100).contains(&count), "{what}: {count}");
        run(assert_serves(&rig));
    }
}

#[test]
fn non_http2_preface_returns_400_and_closes() {
    let rig = Rig::echo();
    // RFC 9113 §3.4: the server may just close; here it treats the bytes as malformed HTTP/1.1.
    let answer = raw_open(&rig, &[b"INVALID CONNECTION PREFACE\r\n\r\n"]);
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", answer.escape_ascii());
}

#[test]
fn reflection_requests_are_read_while_answers_are_unread() {
    use crate::grpc_client::reflection::{
        ServerReflectionRequest, server_reflection_request::MessageRequest::ListServices,
    };
    let rig = Rig::echo();
    let question = framed(&ServerReflectionRequest {
        message_request: Some(ListServices(String::new())),
        ..Default::default()
    });
    run(async {
        let stream = tokio::net::TcpStream::connect(rig.0.addrs()[0]).await.unwrap();
        let mut builder = h2::client::Builder::new();
        let (client, connection) =
            builder.initial_window_size(16).handshake::<_, Bytes>(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        let request = grpc(path).body(()).unwrap();
        let (response, mut stream) = client.send_request(request, false).unwrap();
        // Byte by byte, while the window for the first answer is closed.
        for byte in question.repeat(3) {
            stream.send_data(Bytes::copy_from_slice(&[byte]), false).unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stream.send_data(Bytes::new(), true).unwrap();
        let response = tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap();
        let (_, body, trailers) = rest(response).await;
        assert_eq!(trailers["grpc-status"], "0");
        let one = &body[..body.len() / 3];
        assert_eq!(body, one.repeat(3));
    });
}

#[test]
fn http2_connections_max() {
    let rig = Rig::limited(|limits| limits.http2_connections_max = 1);
    let connect = || async {
        let stream = tokio::net::TcpStream::connect(rig.0.addrs()[0]).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        let served = tokio::spawn(connection);
        (client, served)
    };
    run(async {
        let (client, first) = connect().await;
        let mut client = client.ready().await.unwrap();
        let request = grpc(SEND).body(()).unwrap();
        status_of(fetch(&mut client, request, &framed(&say("x"))).await).await;
        let (_refused, second) = connect().await;
        let reason = second.await.unwrap().unwrap_err().reason();
        assert_eq!(reason, Some(h2::Reason::ENHANCE_YOUR_CALM));
        // The earlier call lives; when it has ended there is room again.
        let request = grpc(SEND).body(()).unwrap();
        status_of(fetch(&mut client, request, &framed(&say("x"))).await).await;
        drop(client);
        let _ = first.await;
        assert_serves(&rig).await;
    });
}

#[test]
fn http2_streams_max() {
    let rig = Rig::limited(|limits| limits.http2_streams_max = 3);
    run(async {
        let stream = tokio::net::TcpStream::connect(rig.0.addrs()[0]).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        // The client learns the limit with the first answer, and holds further calls back.
        let request = grpc(SEND).body(()).unwrap();
        status_of(fetch(&mut client, request, &framed(&say("x"))).await).await;
        let mut held = Vec::new();
        for _ in 0..3 {
            let request = grpc(STREAM).body(()).unwrap();
            held.push(fetch(&mut client, request, &framed(&say("hold:600000:3"))).await);
        }
        let waits = tokio::time::timeout(Duration::from_millis(200), client.clone().ready());
        let request = grpc(SEND).body(()).unwrap();
        if let Ok(Ok(mut ready)) = waits.await {
            let (response, mut stream) = ready.send_request(request, false).unwrap();
            let _ = stream.send_data(framed(&say("x")).into(), true);
            let early = tokio::time::timeout(Duration::from_millis(200), response).await;
            assert!(early.is_err(), "{early:?}");
        }
        drop(held);
        assert_serves(&rig).await;
    });
    // Calls beyond the limit are refused one by one.
    let mut burst = Vec::new();
    for n in 0..6_u32 {
        burst.extend(frame(1, 4, 2 * n + 1, &[&[0x83], &GET[1..]].concat()));
    }
    let (kinds, _) = frames(&raw(&rig, &[PREFACE, SETTINGS, &burst]));
    assert!(kinds.iter().filter(|kind| **kind == 3).count() >= 3, "{kinds:?}");
    run(assert_serves(&rig));
}

#[test]
fn stalled_http2_body_times_out() {
    let rig = Rig::limited(|limits| limits.body_idle_ms = 200);
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let request = grpc(SEND).body(()).unwrap();
        let (response, mut stream) = client.send_request(request, false).unwrap();
        stream.send_data(Bytes::from_static(b"\0\0\0\0\x09abc"), false).unwrap();
        assert_eq!(status_of(response.await.unwrap()).await.0, 1);
        let request = post("application/json", "/").body(()).unwrap();
        let (response, mut stream) = client.send_request(request, false).unwrap();
        stream.send_data(Bytes::from_static(b"{"), false).unwrap();
        assert_eq!(response.await.unwrap().status(), 408);
    });
}

/// The first `content-type` decides, both when the body is buffered and when it is read.
#[test]
fn first_content_type_decides_how_a_body_is_read() {
    let rig = Rig::echo();
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        for (types, expected) in [
            (["application/json", "application/grpc"], "TASK_STATE_COMPLETED"),
            // Not even the five bytes in front of a message.
            (["application/grpc", "application/json"], ""),
        ] {
            let request = post(types[0], "/").header("content-type", types[1]).body(()).unwrap();
            let (response, mut stream) = client.send_request(request, false).unwrap();
            let mut body = rpc("SendMessage", &params("hello"));
            let rest_of_it = body.split_off(body.len() / 2);
            stream.send_data(body.into(), false).unwrap();
            // A round trip after the first piece: the server has it.
            let card = Request::get("http://test.example/.well-known/agent-card.json");
            let (after, _) = client.send_request(card.body(()).unwrap(), true).unwrap();
            assert_eq!(after.await.unwrap().status(), 200);
            let _ = stream.send_data(rest_of_it.into(), true);
            let answer = rest(response.await.unwrap()).await;
            let text = String::from_utf8(answer.1).unwrap();
            assert!(text.contains(expected), "{types:?} {text}");
            assert_eq!(answer.0.contains_key("grpc-status"), expected.is_empty(), "{types:?}");
        }
    });
}

#[test]
fn half_closed_http2_client_gets_its_answers() {
    let rig = Rig::echo();
    let head = call_of(&[(":path", SEND), ("content-type", "application/grpc")]);
    for calls in [1, 5, 50] {
        let mut stream = TcpStream::connect(rig.0.addrs()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The calls and the end arrive together, on an idle connection.
        let ping = frame(6, 0, 0, b"anything");
        stream.write_all(&[PREFACE, SETTINGS, &ping].concat()).unwrap();
        read_to(&mut stream, 6);
        let all: Vec<u8> = (0..calls)
            .map(|n| 2 * n + 1)
            .flat_map(|id| [frame(1, 4, id, &head), frame(0, 1, id, &framed(&say("hello")))])
            .flatten()
            .collect();
        stream.write_all(&all).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let data = frames(&answer).0.iter().filter(|kind| **kind == 0).count();
        assert_eq!(data, calls as usize);
    }
}

/// The client had not seen the GOAWAY when it sent the call.
#[test]
fn a_call_that_crosses_an_idle_goaway_is_answered() {
    let rig = Rig::limited(|limits| {
        limits.keep_alive_idle_ms = 200;
        limits.write_stall_ms = 300;
    });
    let mut stream = TcpStream::connect(rig.0.addrs()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[PREFACE, SETTINGS].concat()).unwrap();
    read_to(&mut stream, 7);
    let head = call_of(&[(":path", SEND), ("content-type", "application/grpc")]);
    let message = frame(0, 1, 1, &framed(&say("hold:1000:1")));
    let call = [frame(1, 4, 1, &head), message].concat();
    stream.write_all(&call).unwrap();
    read_to(&mut stream, 0);
}

#[test]
fn idle_or_silent_http2_connection_is_closed() {
    let rig = Rig::limited(|limits| {
        limits.keep_alive_idle_ms = 200;
        limits.sse_keep_alive_ms = 200;
        limits.write_stall_ms = 300;
        limits.head_timeout_ms = 300;
    });
    // Idle: the server sends GOAWAY. This client never answers, so the server closes the
    // connection.
    let (kinds, goaway) = frames(&raw_open(&rig, &[PREFACE, SETTINGS]));
    assert_eq!(goaway, Some(0), "{kinds:?}");
    // With a waiting call: the server sends PING.
    let request = framed(&say("hold:600000:3"));
    let mut block = vec![0x83, 0x86, 0x41, 0x01, b'x'];
    for (name, value) in [(":path", STREAM), ("content-type", "application/grpc")] {
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    let call = [frame(1, 4, 1, &block), frame(0, 1, 1, &request)].concat();
    let (kinds, _) = frames(&raw_open(&rig, &[PREFACE, SETTINGS, &call]));
    assert!(kinds.contains(&6) && kinds.contains(&0), "{kinds:?}");
    // A preface that nothing follows.
    raw_open(&rig, &[PREFACE]);
    raw_open(&rig, &[&PREFACE[..10]]);
    run(assert_serves(&rig));
}

/// Like [`raw`], but leaves its own side open.
fn raw_open(rig: &Rig, pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(rig.0.addrs()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    pieces.iter().for_each(|piece| stream.write_all(piece).unwrap());
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        ended => drop(ended.expect("the server ends the connection")),
    }
    answer
}

#[test]
fn connection_with_most_unread_output_is_reset() {
    let rig = Rig::limited(|limits| {
        limits.buffers_bytes_max = 16_000_000;
        // Otherwise its calls would wait for each other.
        limits.output_bytes_max = 16_000_000;
    });
    run(async {
        let mut victim = connect(rig.0.addrs()[0]).await;
        let stream = tokio::net::TcpStream::connect(rig.0.addrs()[0]).await.unwrap();
        let (mut greedy, connection) = h2::client::handshake(stream).await.unwrap();
        let greedy_end = tokio::spawn(connection);
        let words = "x".repeat(1_000_000);
        // The client releases nothing: bytes beyond the window of 64 KiB wait.
        let mut unread = Vec::new();
        for _ in 0..7 {
            let request = grpc(SEND).body(()).unwrap();
            greedy = greedy.ready().await.unwrap();
            unread.push(fetch(&mut greedy, request, &framed(&say(&words))).await);
        }
        let request = post("application/json", "/").body(()).unwrap();
        let body = rpc("SendMessage", &params(&words));
        let (_, body, _) = rest(fetch(&mut victim, request, &body).await).await;
        assert!(body.len() > 2 * words.len());
        let end = tokio::time::timeout(PATIENCE, greedy_end).await.unwrap().unwrap();
        let error = end.unwrap_err();
        let kind = error.get_io().map(std::io::Error::kind);
        assert_eq!(kind, Some(ErrorKind::ConnectionReset), "{error}");
        assert_serves(&rig).await;
    });
}

/// Overlapping calls of one connection, which always holds some bytes, but none for long.
struct Busy {
    client: SendRequest<Bytes>,
    in_flight: Vec<(h2::client::ResponseFuture, h2::SendStream<Bytes>, Bytes)>,
    answers: Vec<tokio::task::JoinHandle<usize>>,
}

impl Busy {
    /// Begins a call in every third round, and sends a piece of each call that has begun.
    fn round(&mut self, round: usize, body: &Bytes) {
        if round.is_multiple_of(3) {
            let request = post("application/json", "/").body(()).unwrap();
            let (response, stream) = self.client.send_request(request, false).unwrap();
            self.in_flight.push((response, stream, body.clone()));
        }
        for (_, stream, remaining) in &mut self.in_flight {
            let piece = remaining.split_to(remaining.len().min(body.len() / 12));
            stream.send_data(piece, remaining.is_empty()).unwrap();
        }
        for (response, ..) in self.in_flight.extract_if(.., |(.., remaining)| remaining.is_empty())
        {
            let answer = async { rest(response.await.unwrap()).await.1.len() };
            self.answers.push(tokio::spawn(answer));
        }
    }
}

#[test]
fn stalled_readers_are_reset_before_active_connections() {
    let rig = Rig::limited(|limits| {
        limits.buffers_bytes_max = 16_000_000;
        limits.connections_max = 1_000;
    });
    let addr = rig.0.addrs()[0];
    let head = |length: usize| {
        format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    run(async {
        let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let mut builder = h2::client::Builder::new();
        // It reads its answers at once.
        builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 24);
        let (mut client, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
        tokio::spawn(connection);
        let request = post("application/json", "/").body(()).unwrap();
        let large = rpc("SendMessage", &params(&"x".repeat(225_000)));
        let (_, task, _) = rest(fetch(&mut client, request, &large).await).await;
        let task: Value = serde_json::from_slice(&task).unwrap();
        let get = rpc("GetTask", &json!({ "id": task["result"]["task"]["id"] }));
        let get = [head(get.len()).as_bytes(), &get].concat();

        let words = Bytes::from(rpc("SendMessage", &params(&"x".repeat(60_000))));
        let mut busy = Busy { client, in_flight: Vec::new(), answers: Vec::new() };
        // Its answer is short, so only the body takes memory.
        let upload = rpc("Unknown", &params(&"x".repeat(200_000)));
        let mut slow = tokio::net::TcpStream::connect(addr).await.unwrap();
        slow.write_all(head(upload.len()).as_bytes()).await.unwrap();
        // 17 to 32 readers fill the buffers; many more connect, and none reads its answer.
        let (rounds, mut readers) = (72, Vec::new());
        for (round, piece) in upload.chunks(upload.len().div_ceil(rounds)).enumerate() {
            busy.round(round, &words);
            slow.write_all(piece).await.unwrap();
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let mut reader = socket.connect(addr).await.unwrap();
            reader.write_all(&get).await.unwrap();
            reader.readable().await.unwrap();
            readers.push(reader);
        }
        let mut answer = Vec::new();
        slow.read_to_end(&mut answer).await.unwrap();
        assert!(String::from_utf8_lossy(&answer).contains("-32601"));
        for answer in std::mem::take(&mut busy.answers) {
            assert!(answer.await.unwrap() > 120_000);
        }
        let is_reset = |reader: &tokio::net::TcpStream| reader.take_error().unwrap().is_some();
        let resets = readers.iter().filter(|reader| is_reset(reader)).count();
        assert!(resets > rounds / 2, "{resets}");
        assert_serves(&rig).await;
    });
}

/// Makes calls wait while more than 80,000 bytes of answers are unread.
fn wait_after_80_kb(limits: &mut Limits) {
    limits.output_bytes_max = 40_000;
    limits.answer_bytes_max = 40_000;
}

/// The number of tasks.
async fn tasks(client: &mut SendRequest<Bytes>) -> Value {
    let request = post("application/json", "/").body(()).unwrap();
    let (_, body, _) = rest(fetch(client, request, &rpc("ListTasks", &json!({}))).await).await;
    serde_json::from_slice::<Value>(&body).unwrap()["result"]["totalSize"].clone()
}

#[test]
fn calls_wait_while_their_connection_has_unread_answers() {
    let rig = Rig::limited(wait_after_80_kb);
    let words = "x".repeat(50_000);
    let calls = [
        (grpc(SEND), framed(&say(&words))),
        (post("application/json", "/"), rpc("SendMessage", &params(&words))),
    ];
    run(async {
        let mut observer = connect(rig.0.addrs()[0]).await;
        for (round, (request, message)) in calls.into_iter().enumerate() {
            let mut client = connect(rig.0.addrs()[0]).await;
            let request = request.body(()).unwrap();
            // Its window of 64 KiB holds back a part of the answer, which has over 100 KB.
            let first = fetch(&mut client, request.clone(), &message).await;
            let mut waiting = JoinSet::new();
            for _ in 0..9 {
                let (response, mut stream) = client.send_request(request.clone(), false).unwrap();
                stream.send_data(message.clone().into(), true).unwrap();
                waiting.spawn(async move { rest(response.await.unwrap()).await.1.len() });
            }
            // Once this is answered, the server has seen all that came before it.
            let check = grpc("/grpc.health.v1.Health/Check").body(()).unwrap();
            fetch(&mut client, check, &[0; 5]).await;
            assert_eq!(tasks(&mut observer).await, json!(10 * round + 1));
            waiting.spawn(async move { rest(first).await.1.len() });
            let lengths = tokio::time::timeout(PATIENCE, waiting.join_all()).await.unwrap();
            assert!(lengths.iter().all(|length| *length > 2 * words.len()), "{lengths:?}");
            assert_eq!(tasks(&mut observer).await, json!(10 * round + 10));
        }
        assert_serves(&rig).await;
    });
}

#[test]
fn call_waiting_for_slowly_read_answers_is_refused() {
    let rig = Rig::limited(|limits| {
        wait_after_80_kb(limits);
        (limits.write_stall_ms, limits.write_progress_bytes_min) = (1_000, 1);
    });
    run(async {
        let stream = tokio::net::TcpStream::connect(rig.0.addrs()[0]).await.unwrap();
        let mut builder = h2::client::Builder::new();
        let (client, connection) =
            builder.initial_window_size(1_000).handshake::<_, Bytes>(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let request = || post("application/json", "/").body(()).unwrap();
        let long = rpc("SendMessage", &params(&"x".repeat(50_000)));
        let mut body = fetch(&mut client, request(), &long).await.into_body();
        let mut waiting = Vec::new();
        for (request, message) in [
            (request(), rpc("SendMessage", &params("hello"))),
            (grpc(SEND).body(()).unwrap(), framed(&say("hello"))),
        ] {
            let (response, mut stream) = client.send_request(request, false).unwrap();
            stream.send_data(message.into(), true).unwrap();
            waiting.push(response);
        }
        // The whole body takes ten seconds.
        let trickle = async {
            while let Some(piece) = body.data().await {
                body.flow_control().release_capacity(piece.unwrap().len()).unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let refused = async {
            let status = status_of(waiting.pop().unwrap().await.unwrap()).await;
            assert_eq!(status, (14, "the client does not read earlier answers".to_owned()));
            let response = waiting.pop().unwrap().await.unwrap();
            assert_eq!(response.status(), 503);
            let text = String::from_utf8(rest(response).await.1).unwrap();
            assert!(text.contains(r#""id":null"#) && text.contains("does not read"), "{text}");
        };
        tokio::select! {
            () = trickle => panic!("they waited until all had left"),
            () = refused => {}
        }
        while let Some(piece) = body.data().await {
            body.flow_control().release_capacity(piece.unwrap().len()).unwrap();
        }
        // There is room again, and the refused calls created no task.
        assert_eq!(tasks(&mut client).await, json!(1));
    });
}

/// A call that waits for its task needs no slot for it.
#[test]
fn started_call_is_answered_despite_unread_answers() {
    let rig = Rig::limited(|limits| {
        wait_after_80_kb(limits);
        limits.drain_ms = 300;
    });
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let mut observer = connect(rig.0.addrs()[0]).await;
        let request = post("application/json", "/").body(()).unwrap();
        let (held, mut stream) = client.send_request(request.clone(), false).unwrap();
        stream.send_data(rpc("SendMessage", &params("hold:60000:3")).into(), true).unwrap();
        while tasks(&mut observer).await != json!(1) {}
        let unread = rpc("SendMessage", &params(&"x".repeat(50_000)));
        let unread = fetch(&mut client, request, &unread).await;
        rig.0.shutdown();
        assert_eq!(tokio::time::timeout(PATIENCE, held).await.unwrap().unwrap().status(), 503);
        drop(unread);
    });
    rig.0.join();
}

#[test]
fn unread_streams_delay_no_call() {
    let rig = Rig::limited(wait_after_80_kb);
    let events = "stream:1000";
    let streams = [
        (grpc(STREAM), framed(&say(events))),
        (post("application/json", "/"), rpc("SendStreamingMessage", &params(events))),
    ];
    run(async {
        let mut observer = connect(rig.0.addrs()[0]).await;
        for (round, (request, message)) in streams.into_iter().enumerate() {
            let mut client = connect(rig.0.addrs()[0]).await;
            let request = request.body(()).unwrap();
            let mut unread = Vec::new();
            for _ in 0..4 {
                unread.push(fetch(&mut client, request.clone(), &message).await);
            }
            let call = grpc(SEND).body(()).unwrap();
            fetch(&mut client, call, &framed(&say("hello"))).await;
            assert_eq!(tasks(&mut observer).await, json!(5 * (round + 1)));
        }
        assert_serves(&rig).await;
    });
}

#[test]
fn stalled_http2_stream_reader_is_reset() {
    let rig = Rig::limited(|limits| limits.write_stall_ms = 300);
    let began = Instant::now();
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let words = "x".repeat(1_000_000);
        let request = grpc(SEND).body(()).unwrap();
        let (response, mut stream) = client.send_request(request, false).unwrap();
        stream.send_data(framed(&say(&words)).into(), true).unwrap();
        let (_, mut body) = response.await.unwrap().into_parts();
        // The client releases nothing: the window of 64 KiB stays closed.
        let mut end = None;
        while let Some(piece) = body.data().await {
            if let Err(error) = piece {
                end = error.reason();
                break;
            }
        }
        assert_eq!(end, Some(h2::Reason::ENHANCE_YOUR_CALM));
        assert!(began.elapsed() >= Duration::from_millis(299), "{:?}", began.elapsed());
        assert_serves(&rig).await;
    });
}

#[test]
fn slow_http2_stream_reader_is_reset() {
    let rig = Rig::limited(|limits| limits.write_stall_ms = 300);
    let mut stream = TcpStream::connect(rig.0.addrs()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    // A window of ten bytes, opened by one byte at a time.
    let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 10]);
    let path = b"/.well-known/agent-card.json";
    let card = [&[0x82, 0x86, 0x41, 0x01, b'x', 0x04, path.len() as u8], &path[..]].concat();
    stream.write_all(&[PREFACE, &settings, &frame(1, 5, 1, &card)].concat()).unwrap();
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    let began = Instant::now();
    while !frames(&answer).0.contains(&3) {
        assert!(began.elapsed() < PATIENCE, "it is waited for");
        stream.write_all(&frame(8, 0, 1, &[0, 0, 0, 1])).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        if let Ok(count) = stream.read(&mut piece) {
            answer.extend_from_slice(&piece[..count]);
        }
    }
    assert!(began.elapsed() >= Duration::from_millis(299), "{:?}", began.elapsed());
    run(assert_serves(&rig));
}

#[test]
fn drain_answers_running_call_and_closes_the_connection() {
    let rig = Rig::echo();
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let request = grpc(SEND).body(()).unwrap();
        let (response, mut stream) = client.send_request(request, false).unwrap();
        stream.send_data(framed(&say("hold:1000:3")).into(), true).unwrap();
        // A round trip after it on the same connection: the server has it.
        let card = Request::get("http://test.example/.well-known/agent-card.json");
        let (after, _) = client.send_request(card.body(()).unwrap(), true).unwrap();
        assert_eq!(after.await.unwrap().status(), 200);
        rig.0.shutdown();
        // A running call is answered; then the connection ends by itself.
        assert_eq!(status_of(response.await.unwrap()).await.0, 0);
    });
    rig.0.join();
}

/// Their bodies have twice the bytes of the connection's window.
#[test]
fn waiting_calls_do_not_exhaust_the_connection_window() {
    let rig = Rig::limited(|limits| limits.drain_ms = 300);
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let request = || post("application/json", "/").body(()).unwrap();
        let mut held = rpc("SendMessage", &params("hold:60000:3"));
        held.resize(16 * 1024, b' ');
        let mut waiting = Vec::new();
        for _ in 0..120 {
            let (response, mut stream) = client.send_request(request(), false).unwrap();
            stream.send_data(held.clone().into(), true).unwrap();
            waiting.push(response);
        }
        let late = fetch(&mut client, request(), &rpc("GetTask", &json!({ "id": "none" }))).await;
        assert_eq!(late.status(), 200);
    });
    rig.0.shutdown();
    rig.0.join();
}

/// JSON-RPC and HTTP+JSON; the calls of gRPC are in `tests/server/grpc.rs`.
#[test]
fn shutdown_answers_waiting_http2_calls_with_503() {
    let rig = Rig::limited(|limits| limits.drain_ms = 300);
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let held = params("hold:60000:3");
        let mut answers = Vec::new();
        for (path, body) in [
            ("/", rpc("SendMessage", &held)),
            ("/message:send", held.to_string().into_bytes()),
            // A round trip after the others: the server has them.
            ("/", rpc("GetTask", &json!({ "id": "none" }))),
        ] {
            let request = post("application/json", path).body(()).unwrap();
            let (response, mut stream) = client.send_request(request, false).unwrap();
            stream.send_data(body.into(), true).unwrap();
            answers.push(response);
        }
        assert_eq!(answers.pop().unwrap().await.unwrap().status(), 200);
        rig.0.shutdown();
        for response in answers {
            let answer = tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap();
            assert_eq!(
                (answer.status().as_u16(), answer.headers()["retry-after"].to_str().unwrap()),
                (503, "1")
            );
            let text = String::from_utf8(rest(answer).await.1).unwrap();
            assert!(text.contains(r#""metadata":{"taskId":""#), "{text}");
        }
    });
    rig.0.join();
}

#[test]
fn http2_answers_have_cors_fields_for_allowed_origins() {
    const APP: &str = "https://app.example";
    let origins = vec!["https://b".to_owned(), APP.to_owned()];
    let rig = Rig::with(|setup| setup.cors.origins = origins);
    run(async {
        let mut client = connect(rig.0.addrs()[0]).await;
        let send = rpc("SendMessage", &params("hi"));
        let stream = rpc("SendStreamingMessage", &params("stream:3"));
        let json = |path: &str| post("application/json", path);
        let get = |path: &str| Request::get(format!("http://test.example{path}"));
        let preflight = |path: &str| {
            let options = Request::options(format!("http://test.example{path}"));
            options.header("access-control-request-method", "POST")
        };
        for (what, status, request, body) in [
            ("a preflight", 204, preflight("/message:send"), &[][..]),
            ("a preflight where nothing is", 204, preflight("/nothing"), &[]),
            ("a result", 200, json("/"), &send),
            ("a stream", 200, json("/"), &stream),
            ("a card", 200, get("/.well-known/agent-card.json"), &[]),
            ("a list", 200, get("/agents"), &[]),
            ("nothing", 404, get("/nothing"), &[]),
        ] {
            let request = request.header("origin", APP).body(()).unwrap();
            let answer = fetch(&mut client, request, body).await;
            let head = answer.headers();
            assert_eq!(answer.status(), status, "{what}");
            assert_eq!(head["access-control-allow-origin"], APP, "{what}");
            assert!(head["vary"].to_str().unwrap().contains("Origin"), "{what}: {head:?}");
            assert!(head.contains_key("access-control-expose-headers"), "{what}");
            let is_preflight = head.contains_key("access-control-allow-methods");
            assert_eq!(is_preflight, status == 204, "{what}");
        }
        // The server refuses it before its body arrives.
        let large = json("/").header("content-length", "99999999").header("origin", APP);
        let (answer, _body) = client.send_request(large.body(()).unwrap(), false).unwrap();
        let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap().unwrap();
        assert_eq!(answer.status(), 413);
        assert_eq!(answer.headers()["access-control-allow-origin"], APP);
        let evil = get("/.well-known/agent-card.json").header("origin", "https://evil");
        let answer = fetch(&mut client, evil.body(()).unwrap(), b"").await;
        assert!(!answer.headers().contains_key("access-control-allow-origin"));
    });
}
