//! A journal hook (`Tap`): events of tasks are recorded in order, and are shown once they are
//! durable.

use std::{
    future::{Future as _, poll_fn},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::client::SendRequest;
use peregrine::{
    agent::{Agent, Profile, Turn, echo::Echo},
    limits::Limits,
    model::TaskState,
    net::{Running, Server},
};
use prost::Message as _;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{
    grpc_client::{Rig, run, say as grpc_say},
    journal::Journal,
    support::{
        ask::{get, post, rpc},
        binary::{PATIENCE, Tcp},
    },
};

fn serve(journal: &Arc<Journal>, limits: Limits) -> (Running, SocketAddr) {
    let server =
        Server::new().agent(Echo::profile(), Echo).workers(1).allow_host("*").limits(limits);
    let running = server.tap(Arc::clone(journal) as _).listen("127.0.0.1:0").start().unwrap();
    let addr = running.addrs()[0];
    (running, addr)
}

fn send(method: &str, text: &str) -> Vec<u8> {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
    let body = rpc(method, &json!({"message": message}));
    post("/", &[("A2A-Version", "1.0")], &body)
}

/// Asserts that no bytes have arrived.
fn assert_no_bytes(peer: &mut Tcp) {
    assert!(peer.peek().is_none() && peer.is_silent());
}

#[test]
fn answer_is_held_until_its_records_are_durable() {
    let journal = Arc::new(Journal::default());
    let (running, addr) = serve(&journal, Limits::default());
    let (mut one, mut other) = (Tcp::to(addr), Tcp::to(addr));
    one.write(&send("SendMessage", "hello"));
    journal.until_wait_count(1);
    assert_no_bytes(&mut one);
    let first = journal.recorded();
    // The records of another client come later, and are confirmed later.
    other.write(&send("SendMessage", "hello"));
    journal.until_wait_count(2);
    journal.confirm(first - 1);
    assert_no_bytes(&mut one);
    journal.confirm(first);
    assert_eq!(one.reply().status, 200);
    assert_no_bytes(&mut other);
    // All records at once.
    journal.confirm(1_000);
    assert_eq!(other.reply().status, 200);
    one.write(&get("/.well-known/agent-card.json"));
    assert_eq!(one.reply().status, 200);
    drop(running);
}

#[test]
fn stream_events_are_held_until_durable() {
    let journal = Arc::new(Journal::default());
    let (running, addr) = serve(&journal, Limits::default());
    let mut peer = Tcp::to(addr);
    peer.write(&send("SendStreamingMessage", "hello"));
    journal.until_wait_count(1);
    assert_no_bytes(&mut peer);
    journal.confirm(journal.recorded());
    peer.read_until("TASK_STATE_COMPLETED");
    drop(running);
}

#[test]
fn grpc_head_and_messages_wait_until_durable() {
    let journal = Arc::new(Journal::default());
    let rig = Rig::with(|setup| setup.tap = Some(Arc::clone(&journal) as _));
    run(async {
        let mut client = rig.v1().await;
        for is_stream in [false, true] {
            journal.confirm(journal.recorded());
            let wait_count = journal.wait_count();
            let mut call = pin!(async {
                match is_stream {
                    // The future is ready at the head of the answer.
                    true => client.send_streaming_message(grpc_say("hi")).await.map(drop),
                    false => client.send_message(grpc_say("hi")).await.map(drop),
                }
            });
            let mut waits = pin!(async {
                while journal.wait_count() == wait_count {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            });
            poll_fn(|cx| match (call.as_mut().poll(cx), waits.as_mut().poll(cx)) {
                (Poll::Ready(result), _) => panic!("stream {is_stream}: {result:?}"),
                (Poll::Pending, waits) => waits,
            })
            .await;
            journal.confirm(journal.recorded());
            call.await.unwrap();
        }
    });
}

/// A gRPC message.
fn framed() -> Vec<u8> {
    let message = grpc_say("hi").encode_to_vec();
    [&[0, 0, 0, 0, message.len() as u8], &message[..]].concat()
}

/// An HTTP/2 client, and its connection.
async fn http2(rig: &Rig) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let stream = tokio::net::TcpStream::connect(rig.0.addrs()[0]).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    (client, tokio::spawn(connection))
}

fn request(media: &str, path: &str) -> http::request::Builder {
    let request = http::Request::post(format!("http://x{path}"));
    request.header("content-type", media).header("a2a-version", "1.0")
}

#[test]
fn held_grpc_call_ends_at_its_deadline() {
    let journal = Arc::new(Journal::default());
    let rig = Rig::with(|setup| setup.tap = Some(Arc::clone(&journal) as _));
    run(async {
        let (mut client, _connection) = http2(&rig).await;
        for method in ["SendMessage", "SendStreamingMessage"] {
            let wait_count = journal.wait_count();
            let path = format!("/lf.a2a.v1.A2AService/{method}");
            let request = request("application/grpc", &path).header("grpc-timeout", "100m");
            let (answer, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
            body.send_data(framed().into(), true).unwrap();
            let answer = tokio::time::timeout(PATIENCE, answer).await.expect("an end").unwrap();
            assert_eq!(answer.headers()["grpc-status"], "4", "{answer:?}");
            assert!(journal.wait_count() > wait_count, "it was held back");
        }
    });
}

/// The connection is idle exactly when its only call has ended.
#[test]
fn held_http2_call_ends_when_the_client_resets_it() {
    let journal = Arc::new(Journal::default());
    let rig = Rig::with(|setup| {
        setup.tap = Some(Arc::clone(&journal) as _);
        setup.limits.keep_alive_idle_ms = 100;
        setup.limits.sse_keep_alive_ms = 100;
    });
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    let json = rpc("SendMessage", &json!({ "message": message }));
    run(async {
        for (media, path, body) in [
            ("application/grpc", "/lf.a2a.v1.A2AService/SendMessage", framed()),
            ("application/json", "/", json.into()),
        ] {
            let (mut client, ended) = http2(&rig).await;
            let wait_count = journal.wait_count();
            let request = request(media, path).body(()).unwrap();
            let (answer, mut sending) = client.send_request(request, false).unwrap();
            sending.send_data(body.into(), true).unwrap();
            let until = Instant::now() + PATIENCE;
            while journal.wait_count() == wait_count {
                assert!(Instant::now() < until, "{media}: nobody waits");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            sending.send_reset(h2::Reason::CANCEL);
            drop((answer, client));
            tokio::time::timeout(PATIENCE, ended).await.expect(media).unwrap().unwrap();
        }
    });
}

#[test]
fn task_events_are_recorded_in_order() {
    let journal = Arc::new(Journal::default());
    journal.confirm(u64::MAX);
    let (running, addr) = serve(&journal, Limits { tasks_max: 1, ..Limits::default() });
    let mut peer = Tcp::to(addr);
    for _ in 0..2 {
        peer.write(&send("SendMessage", "hello"));
        assert_eq!(peer.reply().status, 200);
    }
    let once = ["1 created false", "2 artifact", &format!("2 {:?}", TaskState::Completed)];
    let lines = journal.lines();
    let ends: Vec<&String> = lines.iter().filter(|line| line.ends_with("ted")).collect();
    assert_eq!(lines.iter().filter(|line| **line == once[0]).count(), 2, "{lines:?}");
    assert_eq!(ends.iter().filter(|line| **line == "3 evicted").count(), 1, "{lines:?}");
    assert!(lines[0] == once[0] && lines.iter().any(|line| line == once[2]), "{lines:?}");
    let handles = journal.handles();
    let last = lines.iter().position(|line| line == "3 evicted").unwrap();
    assert!(handles[..=last].iter().all(|task| *task == handles[0]), "{lines:?}");
    assert!(handles[last + 1..].iter().all(|task| *task != handles[0]), "{lines:?}");
    drop(running);
}

/// Keeps data with its task and completes it.
struct Keeps;

impl Agent for Keeps {
    fn start(&self, turn: Turn<'_>) {
        let mut job = turn.detach().unwrap();
        job.keep(b"12345").unwrap();
        job.status(TaskState::Completed, None).unwrap();
        assert!(job.keep(b"late").is_err());
    }
}

#[test]
fn agent_data_stored_with_a_task_is_recorded() {
    let journal = Arc::new(Journal::default());
    journal.confirm(u64::MAX);
    let server = Server::new().agent(Profile::new("keeps", "Keeps."), Keeps).workers(1);
    let server = server.allow_host("*").tap(Arc::clone(&journal) as _).listen("127.0.0.1:0");
    let running = server.start().unwrap();
    let mut peer = Tcp::to(running.addrs()[0]);
    peer.write(&send("SendMessage", "hello"));
    assert_eq!(peer.reply().status, 200);
    let completed = format!("2 {:?}", TaskState::Completed);
    assert_eq!(journal.lines(), ["1 created false", "4 kept 5", &completed]);
}
