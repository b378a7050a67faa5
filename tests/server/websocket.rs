//! JSON-RPC over WebSocket on real sockets, with tungstenite as the client.

use serde_json::{Value, json};
use tungstenite::{Message, client::IntoClientRequest};

use crate::support::{
    ask::{V1, rpc_id, say},
    binary::Binary,
};

fn send_id(id: &str, words: &str) -> String {
    rpc_id(id, "SendMessage", &V1.params(say(words)))
}

fn stream_id(id: &str, words: &str) -> String {
    rpc_id(id, "SendStreamingMessage", &V1.params(say(words)))
}

fn is_complete(message: &Value) -> bool {
    message["result"] == json!({"status": "stream_complete"})
}

type Client = tungstenite::WebSocket<std::net::TcpStream>;

fn client(server: &Binary, path: &str) -> Client {
    let tcp = server.connect();
    let addr = tcp.stream.peer_addr().unwrap();
    let mut request = format!("ws://{addr}{path}").into_client_request().unwrap();
    request.headers_mut().insert("A2A-Version", "1.0".parse().unwrap());
    request.headers_mut().insert("Sec-WebSocket-Protocol", "a2a".parse().unwrap());
    let (client, response) = tungstenite::client(request, tcp.stream).unwrap();
    assert_eq!(response.status(), 101);
    client
}

fn next_json(client: &mut Client) -> Value {
    loop {
        match client.read().unwrap() {
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn tungstenite_client_sends_calls_and_reads_streams() {
    let server = Binary::limited(&[]);
    let mut client = client(&server, "/?eventIds=1");
    for (id, words) in [("1", "hold:150:1"), ("2", "now"), ("3", "stream:3")] {
        client.send(Message::text(send_id(id, words))).unwrap();
    }
    let order: Vec<Value> = (0..3).map(|_| next_json(&mut client)["id"].clone()).collect();
    assert_eq!(order[2], 1, "{order:?}");
    client.send(Message::text(stream_id("4", "stream:50"))).unwrap();
    let mut last = 0;
    loop {
        let message = next_json(&mut client);
        assert_eq!(message["id"], 4);
        if is_complete(&message) {
            break;
        }
        let id = message["eventId"].as_u64().unwrap();
        assert!(id > last);
        last = id;
    }
    // A message of many reads, returned twice: in the history and in the artifact.
    let long = "é".repeat(500_000);
    client.send(Message::text(send_id("5", &long))).unwrap();
    let answer = next_json(&mut client);
    let task = &answer["result"]["task"];
    assert_eq!(task["artifacts"][0]["parts"][0]["text"].as_str().unwrap(), long);
    client.close(None).unwrap();
    assert!(matches!(client.read(), Ok(Message::Close(_)) | Err(_)));
    server.assert_lives();
}

#[test]
fn shutdown_answers_calls_and_closes_websockets_with_1001() {
    let mut server = Binary::limited(&["drain_ms=200"]);
    let (mut idle, mut busy) = (client(&server, "/"), client(&server, "/"));
    let mut calling = client(&server, "/");
    calling.send(Message::text(send_id("2", "hold:60000:3"))).unwrap();
    busy.send(Message::text(stream_id("1", "hold:60000:3"))).unwrap();
    assert!(next_json(&mut busy)["result"].get("task").is_some());
    server.terminate();
    let going_away = |message: Message| {
        let Message::Close(Some(close)) = message else { panic!("{message:?}") };
        assert_eq!(u16::from(close.code), 1001);
    };
    going_away(idle.read().unwrap());
    let mut last = next_json(&mut busy);
    while last.get("error").is_none() {
        last = next_json(&mut busy);
    }
    assert_eq!(last["error"]["code"], -32000);
    going_away(busy.read().unwrap());
    // A waiting call is answered before the close frame.
    let answer = next_json(&mut calling);
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(2), &json!(-32000)));
    assert!(answer["error"]["data"][0]["metadata"]["taskId"].is_string(), "{answer}");
    going_away(calling.read().unwrap());
    assert!(server.wait());
}
