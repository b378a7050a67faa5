//! The whole client over real sockets, against our own server.

use std::{net::TcpListener, sync::mpsc, thread, time::Duration};

use peregrine::{
    agent::echo::Echo,
    client::{
        Binding, Client, ClientBuilder, ClientErrorKind, ClientLimits, EventKind, ProtocolVersion,
        SendRequest, TraceParent, card::AgentCard,
    },
    engine::{Interface, Setup},
    model::TaskState,
    net::{BlockingClient, HttpClient, HttpClientOptions, Running, Server},
};
use serde_json::Value;
use tungstenite::Message;

use crate::{
    scripted::{MESSAGE, card},
    wire::PATIENCE,
};

fn server() -> (Running, String) {
    let all = [Binding::JsonRpc, Binding::HttpJson, Binding::WebSocket, Binding::Grpc];
    let interfaces = all.map(|binding| Interface { binding, url: None }).to_vec();
    let agents = vec![(Echo::profile(), std::sync::Arc::new(Echo) as _)];
    let setup = Setup { agents, interfaces, ..Setup::default() };
    let running = Server::with(setup).listen("127.0.0.1:0").workers(1).start().unwrap();
    let url = format!("http://{}", running.addrs()[0]);
    (running, url)
}

fn run<R>(future: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(future)
}

const VARIANTS: [(Binding, &str); 6] = [
    (Binding::Grpc, "1.0"),
    (Binding::JsonRpc, "1.0"),
    (Binding::HttpJson, "1.0"),
    (Binding::WebSocket, "1.0"),
    (Binding::JsonRpc, "0.3"),
    (Binding::HttpJson, "0.3"),
];

#[test]
fn each_binding_and_version_sends_and_streams() {
    let (_running, url) = server();
    for (binding, version) in VARIANTS {
        run(async {
            let builder = ClientBuilder::new()
                .transports([binding])
                .version(ProtocolVersion::parse(version).unwrap());
            let client = builder.discover(&url).await.unwrap();
            assert_eq!(client.interface().binding, binding, "{binding:?} {version}");
            for _ in 0..3 {
                let answer = client.send(&SendRequest::text("hello")).await.unwrap();
                assert_eq!(answer.state(), Some(TaskState::Completed), "{binding:?} {version}");
            }
            let mut stream = client.stream(&SendRequest::text("stream:100")).await.unwrap();
            let mut changes = 0;
            while let Some(event) = stream.next().await {
                changes += usize::from(matches!(event.unwrap().kind(), EventKind::Change { .. }));
            }
            assert_eq!(changes, 100, "{binding:?} {version}");
            let answer = client.send(&SendRequest::text("after")).await.unwrap();
            assert_eq!(answer.state(), Some(TaskState::Completed), "{binding:?} {version}");
        });
    }
}

#[test]
fn blocking_client_sends_streams_and_reads_tasks() {
    let (_running, url) = server();
    let client = BlockingClient::discover(&url).unwrap();
    let answer = client.send(&SendRequest::text("hello")).unwrap();
    let id = answer.task_id().unwrap().to_str().into_owned();
    assert_eq!(client.get_task(&id, None).unwrap().state(), Some(TaskState::Completed));
    let mut stream = client.stream(&SendRequest::text("stream:3")).unwrap();
    let mut events = 0;
    while let Some(event) = stream.next() {
        event.unwrap();
        events += 1;
    }
    assert_eq!(events, 4);
    let end = (stream.state(), stream.last_number());
    assert_eq!(end, (Some(TaskState::Completed), Some(4)));
    let id = stream.task_id().unwrap().to_str().into_owned();
    assert_eq!(client.get_task(&id, None).unwrap().state(), Some(TaskState::Completed));
    assert_eq!(stream.activated_extensions().count(), 0);
    assert!(!client.refresh_card().unwrap());
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = client.with_traceparent(TraceParent::parse(trace).unwrap());
    assert_eq!(traced.get_task(&id, None).unwrap().state(), Some(TaskState::Completed));
}

#[test]
fn unreachable_server_gives_a_transport_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = run(Client::<HttpClient>::discover(&url)).err().unwrap();
    assert!(matches!(error.kind, ClientErrorKind::Transport(_)), "{error:?}");
}

/// A WebSocket server that answers each call with a message; the close codes of its sessions, 0 for
/// a session that closes without one.
fn websockets() -> (String, mpsc::Receiver<u16>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, closed) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (sender, stream) = (sender.clone(), stream.unwrap());
            thread::spawn(move || {
                let mut socket = tungstenite::accept(stream).unwrap();
                loop {
                    match socket.read() {
                        Ok(Message::Text(text)) => {
                            let call: Value = serde_json::from_str(&text).unwrap();
                            let id = &call["id"];
                            let response =
                                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{MESSAGE}}}"#);
                            socket.send(Message::text(response)).unwrap();
                        }
                        Ok(Message::Close(frame)) => {
                            return sender.send(frame.map_or(0, |frame| frame.code.into()));
                        }
                        Ok(other) => panic!("{other:?}"),
                        Err(_) => return sender.send(0),
                    }
                }
            });
        }
    });
    (url, closed)
}

/// A client of a WebSocket server that keeps idle sessions open for this long.
fn patient(url: &str, pool_idle_ms: u64) -> Client<HttpClient> {
    let limits = ClientLimits { pool_idle_ms, ..ClientLimits::default() };
    let card = AgentCard::read(card("WEBSOCKET", url).as_bytes()).unwrap();
    let transport = HttpClient::new(HttpClientOptions::default()).unwrap();
    ClientBuilder::new().limits(limits).connect_over(transport, card, None).unwrap()
}

/// Waits, without a call, until this many sessions have closed properly.
async fn closes(closed: mpsc::Receiver<u16>, count: usize) -> mpsc::Receiver<u16> {
    let waits = move || {
        for _ in 0..count {
            assert_eq!(closed.recv_timeout(PATIENCE), Ok(1000));
        }
        closed
    };
    tokio::task::spawn_blocking(waits).await.unwrap()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Waits until no task is left.
async fn is_alone() {
    tokio::time::timeout(PATIENCE, async {
        while tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("no task");
}

#[test]
fn idle_websockets_are_closed_without_a_call() {
    let (url, mut closed) = websockets();
    run(async {
        let client = patient(&url, 40);
        let request = SendRequest::text("hello");
        for _ in 0..2 {
            assert_eq!(tasks(), 0);
            let (one, two) = tokio::join!(client.send(&request), client.send(&request));
            assert!(one.is_ok() && two.is_ok());
            // One task watches both sessions.
            assert_eq!(tasks(), 1);
            closed = closes(closed, 2).await;
            is_alone().await;
        }
    });
}

#[test]
fn dropping_a_client_closes_its_websockets_and_tasks() {
    let (url, closed) = websockets();
    run(async {
        let client = patient(&url, 2_000);
        client.send(&SendRequest::text("hello")).await.unwrap();
        assert_eq!(tasks(), 1);
        drop(client);
        closes(closed, 1).await;
        is_alone().await;
    });
}

#[test]
fn client_can_be_dropped_outside_or_after_its_runtime() {
    for is_runtime_dropped in [false, true] {
        let (url, closed) = websockets();
        let client = patient(&url, 60_000);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(client.send(&SendRequest::text("hello"))).unwrap();
        let runtime = (!is_runtime_dropped).then_some(runtime);
        drop(client);
        // A runtime that has ended may not send another frame.
        let code = closed.recv_timeout(PATIENCE).expect("an end");
        assert!(is_runtime_dropped || code == 1000);
        drop(runtime);
    }
}
