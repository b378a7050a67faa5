//! The whole client over real sockets, against a server of ours.

use peregrine::{
    agent::echo::Echo,
    client::{
        Binding, Client, ClientBuilder, ClientErrorKind, EventKind, ProtocolVersion, SendRequest,
        TraceParent,
    },
    engine::{Interface, Setup},
    model::TaskState,
    net::{BlockingClient, HttpClient, Running, Server},
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
fn every_binding_and_version_on_the_card_is_spoken() {
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
fn a_blocking_client_does_the_same() {
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
    let said = (stream.state(), stream.last_number());
    assert_eq!(said, (Some(TaskState::Completed), Some(4)));
    let id = stream.task_id().unwrap().to_str().into_owned();
    assert_eq!(client.get_task(&id, None).unwrap().state(), Some(TaskState::Completed));
    assert_eq!(stream.activated_extensions().count(), 0);
    assert!(!client.refresh_card().unwrap());
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = client.with_traceparent(TraceParent::parse(trace).unwrap());
    assert_eq!(traced.get_task(&id, None).unwrap().state(), Some(TaskState::Completed));
}

#[test]
fn a_server_that_is_not_there_is_an_error_by_name() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = run(Client::<HttpClient>::discover(&url)).err().unwrap();
    assert!(matches!(error.kind, ClientErrorKind::Transport(_)), "{error:?}");
}
