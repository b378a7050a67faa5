//! `docs/examples/hyper.rs`: requests that hyper has parsed, over real sockets.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::LocalSet,
};
use tonic::transport::Endpoint;

use crate::grpc_client::{V1, say, task};

#[allow(dead_code)]
#[path = "../../docs/examples/hyper.rs"]
mod example;

/// The answer to one HTTP/1.1 request.
async fn request(addr: std::net::SocketAddr, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nA2A-Version: 1.0\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Makes a task and a stream with tonic's client; returns the client.
pub async fn assert_grpc_is_served(addr: std::net::SocketAddr) -> V1 {
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
    let mut client = V1::new(endpoint.connect().await.unwrap());
    let sent = task(client.send_message(say("hi")).await.unwrap().into_inner());
    assert!(!sent.id.is_empty());
    let stream = client.send_streaming_message(say("hold:30:3")).await.unwrap();
    let mut stream = stream.into_inner();
    let mut events = 0;
    while stream.message().await.unwrap().is_some() {
        events += 1;
    }
    assert_eq!(events, 4);
    client
}

#[test]
fn every_binding_is_served_below_hyper() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::task::spawn_local(example::serve(listener));
        let card = request(addr, "GET /.well-known/agent-card.json", "").await;
        assert!(card.starts_with("HTTP/1.1 200 ") && card.contains("\"name\":\"echo\""), "{card}");
        let message = |text: &str| {
            format!(
                r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}"#
            )
        };
        let rpc = |method: &str, text: &str| {
            let params = message(text);
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
        };
        let sent = request(addr, "POST /", &rpc("SendMessage", "hi")).await;
        assert!(sent.contains("TASK_STATE_COMPLETED"), "{sent}");
        let sent = request(addr, "POST /message:send", &message("hi")).await;
        assert!(sent.contains("TASK_STATE_COMPLETED"), "{sent}");
        let events = request(addr, "POST /", &rpc("SendStreamingMessage", "hold:30:3")).await;
        assert!(events.contains("text/event-stream"), "{events}");
        assert!(events.contains("TASK_STATE_COMPLETED"), "{events}");
        let refused = request(addr, "GET /a/../b", "").await;
        assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");

        assert_grpc_is_served(addr).await;
    });
}
