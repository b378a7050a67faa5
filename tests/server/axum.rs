//! `docs/examples/axum.rs`: the engine as a service in an axum router, over real sockets.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::Request,
};
use peregrine::{
    agent::{Agent, Job, Profile, Turn, echo::Echo},
    engine::Setup,
    limits::Limits,
    model::{ArtifactBuf, PartsBuf, TaskState},
    net,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
};
use tonic::Code;
use tower_service::Service;

use crate::hyper::assert_grpc_is_served;

#[allow(dead_code)]
#[path = "../../docs/examples/axum.rs"]
mod example;

const PATIENCE: Duration = Duration::from_secs(20);

fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() });
}

/// The example itself.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(example::serve(listener));
    addr
}

/// Its service in another router.
async fn serve_in(setup: Setup, router: impl FnOnce(example::A2a) -> Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let router = router(example::A2a::new(setup, addr).unwrap());
    tokio::spawn(async { axum::serve(listener, router).await });
    addr
}

/// Sends a request with this head and body.
async fn open(addr: SocketAddr, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nA2A-Version: 1.0\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The answer to one request.
async fn request(addr: SocketAddr, head: &str, body: &str) -> String {
    let mut answer = String::new();
    open(addr, head, body).await.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Reads until the answer ends with `end`.
async fn read_to(stream: &mut TcpStream, end: &str) -> String {
    let mut read = String::new();
    while !read.contains(end) {
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).await.unwrap();
        assert!(length > 0, "{read}");
        read.push_str(std::str::from_utf8(&piece[..length]).unwrap());
    }
    read
}

fn message(text: &str) -> String {
    format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}"#)
}

fn rpc(method: &str, text: &str) -> String {
    let params = message(text);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

#[test]
fn every_binding_is_served_in_an_axum_router() {
    run(async {
        let addr = serve().await;
        let own = request(addr, "GET /health", "").await;
        assert!(own.starts_with("HTTP/1.1 200 ") && own.ends_with("\r\n\r\nwell"), "{own}");
        let card = request(addr, "GET /.well-known/agent-card.json", "").await;
        assert!(card.starts_with("HTTP/1.1 200 ") && card.contains("\"name\":\"echo\""), "{card}");
        assert!(card.contains(&format!("http://{addr}")), "{card}");
        let sent = request(addr, "POST /", &rpc("SendMessage", "hi")).await;
        assert!(sent.contains("TASK_STATE_COMPLETED"), "{sent}");
        let waited = request(addr, "POST /", &rpc("SendMessage", "hold:30:3")).await;
        assert!(waited.contains("TASK_STATE_COMPLETED"), "{waited}");
        let sent = request(addr, "POST /message:send", &message("hi")).await;
        assert!(sent.contains("TASK_STATE_COMPLETED"), "{sent}");
        let missing = request(addr, "GET /tasks/none", "").await;
        assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
        let refused = request(addr, "GET /a/../b", "").await;
        assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
        let mut foreign = TcpStream::connect(addr).await.unwrap();
        foreign.write_all(b"GET /tasks HTTP/1.1\r\nHost: page.example\r\n\r\n").await.unwrap();
        let refused = read_to(&mut foreign, "\r\n\r\n").await;
        assert!(refused.starts_with("HTTP/1.1 421 "), "{refused}");
    });
}

#[test]
fn grpc_is_served_in_an_axum_router() {
    run(async {
        let mut client = assert_grpc_is_served(serve().await).await;
        let refused = client.send_message(crate::grpc_client::v1::SendMessageRequest::default());
        assert_eq!(refused.await.unwrap_err().code(), Code::InvalidArgument);
    });
}

async fn serve_limited(limits: Limits) -> SocketAddr {
    let agents = vec![(Profile::new("held", "Waits."), jobs().0)];
    let setup = Setup { agents, limits, ..Setup::default() };
    serve_in(setup, |a2a| Router::new().fallback_service(a2a)).await
}

#[test]
fn a_large_body_is_refused_in_an_axum_router() {
    run(async {
        let limits = Limits { body_bytes_max: 65_536, ..Limits::default() };
        let addr = serve_limited(limits).await;
        let mut announced = TcpStream::connect(addr).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nHost: {addr}\r\nContent-Length: 65537\r\n\r\n");
        announced.write_all(head.as_bytes()).await.unwrap();
        let refused = read_to(&mut announced, "\r\n\r\n").await;
        assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
        let mut chunked = TcpStream::connect(addr).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nHost: {addr}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let body = format!("10001\r\n{}\r\n", "x".repeat(65_537));
        chunked.write_all((head + &body).as_bytes()).await.unwrap();
        let refused = read_to(&mut chunked, "\r\n\r\n").await;
        assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    });
}

#[test]
fn a_body_that_trickles_is_refused_in_an_axum_router() {
    run(async {
        let limits = Limits { body_idle_ms: 300, ..Limits::default() };
        let addr = serve_limited(limits).await;
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nHost: {addr}\r\nContent-Length: 9999\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut answer, mut body) = stream.split();
        let trickle = async {
            while body.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            std::future::pending::<()>().await;
        };
        let mut status = [0; 12];
        tokio::select! {
            read = answer.read_exact(&mut status) => assert_eq!(read.unwrap(), 12),
            () = trickle => {}
        }
        assert_eq!(&status, b"HTTP/1.1 408");
    });
}

/// Hands each of its jobs to the test.
struct Held(UnboundedSender<Job>);

impl Agent for Held {
    fn start(&self, turn: Turn<'_>) {
        assert!(self.0.send(turn.detach().unwrap()).is_ok());
    }
}

fn jobs() -> (Arc<dyn Agent>, UnboundedReceiver<Job>) {
    let (sender, jobs) = mpsc::unbounded_channel();
    (Arc::new(Held(sender)), jobs)
}

#[test]
fn axum_router_sends_each_event_when_published() {
    run(async {
        let (agent, mut jobs) = jobs();
        let agents = vec![(Profile::new("held", "Waits."), agent)];
        let setup = Setup { agents, ..Setup::default() };
        let addr = serve_in(setup, |a2a| Router::new().fallback_service(a2a)).await;
        let mut stream = open(addr, "POST /", &rpc("SendStreamingMessage", "hi")).await;
        let begun = read_to(&mut stream, "TASK_STATE_SUBMITTED").await;
        assert!(begun.contains("text/event-stream"), "{begun}");
        let mut job = jobs.recv().await.unwrap();
        for id in ["one", "two", "three"] {
            job.artifact(&ArtifactBuf::new(id, &PartsBuf::new().text("x"))).unwrap();
            read_to(&mut stream, &format!("\"artifactId\":\"{id}\"")).await;
        }
        job.status(TaskState::Completed, None).unwrap();
        read_to(&mut stream, "TASK_STATE_COMPLETED").await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
    });
}

/// Is invoked again for each message, and panics if the message says so.
struct Restless(UnboundedSender<()>);

impl Agent for Restless {
    fn start(&self, turn: Turn<'_>) {
        let token = u64::from(turn.message.text() == "panic");
        turn.resume_after(1, token);
    }

    fn resume(&self, mut turn: Turn<'_>, token: u64) {
        if token > 0 {
            self.0.send(()).unwrap();
            panic!("as the test wants it");
        }
        turn.status(TaskState::Completed);
    }
}

#[test]
fn axum_router_serves_calls_after_agent_panics() {
    run(async {
        let (sender, mut panics) = mpsc::unbounded_channel();
        let agents: Vec<(_, Arc<dyn Agent>)> =
            vec![(Profile::new("restless", "Panics."), Arc::new(Restless(sender)))];
        let setup = Setup { agents, ..Setup::default() };
        let addr = serve_in(setup, |a2a| Router::new().fallback_service(a2a)).await;
        // One on each worker.
        let mut waiting = Vec::new();
        for _ in 0..net::workers_default() {
            waiting.push(open(addr, "POST /", &rpc("SendMessage", "panic")).await);
            panics.recv().await.unwrap();
        }
        let sent = request(addr, "POST /", &rpc("SendMessage", "hi")).await;
        assert!(sent.contains("TASK_STATE_COMPLETED"), "{sent}");
    });
}

#[test]
fn agent_learns_that_an_axum_client_disconnected() {
    run(async {
        let (agent, mut jobs) = jobs();
        let agents = vec![(Profile::new("held", "Waits."), agent)];
        let setup = Setup { agents, ..Setup::default() };
        let addr = serve_in(setup, |a2a| Router::new().fallback_service(a2a)).await;
        let waiting = open(addr, "POST /", &rpc("SendMessage", "hi")).await;
        let job = jobs.recv().await.unwrap();
        drop(waiting);
        job.caller_gone().await;
        let mut stream = open(addr, "POST /", &rpc("SendStreamingMessage", "hi")).await;
        read_to(&mut stream, "TASK_STATE_SUBMITTED").await;
        let job = jobs.recv().await.unwrap();
        drop(stream);
        job.caller_gone().await;
    });
}

#[test]
fn nested_axum_service_serves_its_card_under_its_path() {
    run(async {
        let public_url = Some("http://agents.example/helper".to_owned());
        let agents = vec![(Profile::new("held", "Waits."), jobs().0)];
        let setup = Setup { agents, public_url, ..Setup::default() };
        let addr = serve_in(setup, |a2a| Router::new().nest_service("/helper", a2a)).await;
        let card = request(addr, "GET /helper/.well-known/agent-card.json", "").await;
        assert!(card.contains("\"url\":\"http://agents.example/helper\""), "{card}");
        let missing = request(addr, "GET /.well-known/agent-card.json", "").await;
        assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
    });
}

#[test]
fn axum_service_is_shared_by_several_threads() {
    run(async {
        let agents: Vec<(_, Arc<dyn Agent>)> = vec![(Echo::profile(), Arc::new(Echo))];
        let setup = Setup { agents, ..Setup::default() };
        let a2a = example::A2a::new(setup, "127.0.0.1:3000".parse().unwrap()).unwrap();
        let (threads, together) = (4, Arc::new(Barrier::new(4)));
        let threads = (0..threads).map(|_| {
            let (mut a2a, together) = (a2a.clone(), Arc::clone(&together));
            let answers: Vec<_> = (0..50)
                .map(|_| {
                    let request = Request::post("http://localhost/message:send")
                        .header("content-type", "application/json")
                        .header("a2a-version", "1.0");
                    let body = message("hold:1:3");
                    a2a.call(request.body(Body::from(body)).unwrap())
                })
                .collect();
            thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                together.wait();
                runtime.block_on(async {
                    for answer in answers.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
                        let body = answer.await.unwrap().unwrap().into_body();
                        let body = to_bytes(body, 65_536).await.unwrap();
                        assert!(String::from_utf8_lossy(&body).contains("TASK_STATE_COMPLETED"));
                    }
                });
            })
        });
        let threads: Vec<_> = threads.collect();
        // Meanwhile this thread ticks.
        while !threads.iter().all(thread::JoinHandle::is_finished) {
            tokio::task::yield_now().await;
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
