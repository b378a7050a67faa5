//! A remote agent over gRPC that does what the text of a message says.
//!
//! It speaks HTTP/2 by h2, and writes directly to the socket the bytes that h2 would not.

use std::{
    future::{pending, poll_fn},
    io::Write,
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::channel,
    },
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, Request, Response};
use prost::Message;
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream as Socket},
    time::{sleep, timeout},
};

use crate::{
    grpc_client::{
        run, text,
        v1::{
            Artifact, SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task,
            TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent, part::Content,
            stream_response::Payload,
        },
    },
    support::by_hand,
};

const GRPC: &str = "application/grpc";
const LARGE_BYTES: usize = 1 << 20;
const CHUNK_BYTES: usize = 8 * 1024;

const OK: &str = "0";
const NOT_FOUND: &str = "5";
const INTERNAL: &str = "13";
const UNAVAILABLE: &str = "14";

/// Kinds of frames (RFC 9113 §6).
const DATA: u8 = 0;
const GOAWAY: u8 = 7;

/// Starts the agent; it answers an unknown word correctly.
pub fn misbehaving() -> SocketAddr {
    serve(|socket| async move {
        let socket = socket.into_std().expect("a socket");
        socket.set_nodelay(true).expect("no delay");
        let link = Arc::new(socket.try_clone().expect("a socket"));
        let socket = Socket::from_std(socket).expect("a socket");
        let Ok(mut h2) = h2::server::handshake(socket).await else { return };
        while let Some(Ok((request, respond))) = h2.accept().await {
            let link = Arc::clone(&link);
            tokio::spawn(answer(request, respond, link));
        }
    })
}

/// Starts a server with the card of a gRPC agent; `serve` gets the other connections.
pub fn serve<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(Socket) -> F + Send + 'static,
) -> SocketAddr {
    let (addr, has_addr) = channel();
    std::thread::spawn(move || {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let own = listener.local_addr().expect("an address");
            addr.send(own).expect("the test waits for it");
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                let mut begin = [0];
                if matches!(socket.peek(&mut begin).await, Ok(1)) && begin == *b"G" {
                    tokio::spawn(show_card(socket, own));
                } else {
                    tokio::spawn(serve(socket));
                }
            }
        });
    });
    has_addr.recv().expect("an address")
}

/// Answers a GET over HTTP/1.1.
async fn show_card(socket: Socket, own: SocketAddr) {
    let interface = json!({"url": format!("http://{own}"), "protocolBinding": "GRPC",
        "protocolVersion": "1.0"});
    let card = json!({
        "name": "remote", "description": "It misbehaves.", "version": "1",
        "supportedInterfaces": [interface], "capabilities": {"streaming": true},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
    });
    let whole = by_hand::answer("200 OK", "application/json", &card.to_string());
    write(&socket, whole.as_bytes()).await;
    // Until the other side has read it.
    let _ = socket.readable().await;
    sleep(Duration::from_millis(10)).await;
}

async fn write(socket: &Socket, mut bytes: &[u8]) {
    while !bytes.is_empty() && socket.writable().await.is_ok() {
        match socket.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// A frame of the whole connection or of stream 1.
fn frame(kind: u8, length: u32, content: &[u8]) -> Vec<u8> {
    let length = length.to_be_bytes();
    let stream = u8::from(kind == DATA);
    [&[length[1], length[2], length[3], kind, 0, 0, 0, 0, stream], content].concat()
}

fn goaway(last_stream: u32, reason: Reason) -> Vec<u8> {
    let content = [last_stream.to_be_bytes(), u32::from(reason).to_be_bytes()].concat();
    frame(GOAWAY, 8, &content)
}

/// A gRPC message after its five bytes.
fn framed(flag: u8, message: &[u8]) -> Bytes {
    [&[flag], (message.len() as u32).to_be_bytes().as_slice(), message].concat().into()
}

fn item(payload: Payload) -> Bytes {
    framed(0, &StreamResponse { payload: Some(payload) }.encode_to_vec())
}

fn status(state: TaskState) -> Option<TaskStatus> {
    Some(TaskStatus { state: state.into(), ..TaskStatus::default() })
}

fn task(id: &str, state: TaskState) -> Task {
    let (id, context_id) = (id.to_owned(), "c".to_owned());
    Task { id, context_id, status: status(state), ..Task::default() }
}

fn update(id: &str, state: TaskState) -> Bytes {
    let (task_id, context_id) = (id.to_owned(), "c".to_owned());
    item(Payload::StatusUpdate(TaskStatusUpdateEvent {
        task_id,
        context_id,
        status: status(state),
        ..TaskStatusUpdateEvent::default()
    }))
}

fn chunk(id: &str, bytes: usize) -> Bytes {
    let (task_id, context_id) = (id.to_owned(), "c".to_owned());
    let (artifact_id, parts) = ("a".to_owned(), vec![text(&"x".repeat(bytes))]);
    let artifact = Some(Artifact { artifact_id, parts, ..Artifact::default() });
    item(Payload::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id,
        context_id,
        artifact,
        append: true,
        ..TaskArtifactUpdateEvent::default()
    }))
}

/// A whole gRPC message, without its five bytes.
async fn message_of(mut body: RecvStream) -> Option<Bytes> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        bytes.extend_from_slice(&piece.ok()?);
    }
    // Not earlier: a message of more than a window must not arrive whole.
    body.flow_control().release_capacity(bytes.len()).ok()?;
    Some(Bytes::from(bytes).split_off(5))
}

fn head(status: u16, media_type: &str) -> Response<()> {
    let head = Response::builder().status(status).header("content-type", media_type);
    head.body(()).expect("a head")
}

/// The trailers that end a response, or a trailers-only response.
fn trailers(code: &str, message: &str) -> HeaderMap {
    let fields = [("grpc-status", code), ("grpc-message", message)];
    fields
        .into_iter()
        .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
        .collect()
}

/// Refuses a call by its head alone.
fn refuse(respond: &mut SendResponse<Bytes>, code: &str) {
    let mut head = head(200, GRPC);
    head.headers_mut().extend(trailers(code, "no such thing"));
    let _ = respond.send_response(head, true);
}

/// Lets h2 write its output: its connection is a task of the same thread.
async fn written() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Writes bytes to the socket that no peer may send, and closes the connection.
async fn break_off(link: &TcpStream, bytes: &[u8]) {
    written().await;
    let _ = { link }.write_all(bytes);
    let _ = link.shutdown(Shutdown::Both);
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    link: Arc<TcpStream>,
) {
    let rpc = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let Some(message) = message_of(request.into_body()).await else { return };
    if rpc != "SendStreamingMessage" {
        return later(&rpc, &message, respond);
    }
    let message = SendMessageRequest::decode(message).expect("a message").message;
    let parts = message.expect("a message").parts;
    let Some(Content::Text(word)) = &parts[0].content else { panic!("{parts:?}") };
    if no_stream(word, &mut respond, &link).await {
        return;
    }
    static TASKS: AtomicUsize = AtomicUsize::new(0);
    let id = format!("{word}-{}", TASKS.fetch_add(1, Relaxed));
    let Ok(mut stream) = respond.send_response(head(200, GRPC), false) else { return };
    let _ = stream.send_data(item(Payload::Task(task(&id, TaskState::Working))), false);
    rest(word, &id, stream, &link).await;
}

/// Answers a call about a task by the word that its id begins with.
fn later(rpc: &str, message: &[u8], mut respond: SendResponse<Bytes>) {
    // All of these have the task's id in the same field.
    let id = SubscribeToTaskRequest::decode(message).expect("a message").id;
    let is_known = ["known", "good", "goaway graceful", "large", "flood"];
    let is_known = is_known.iter().any(|word| id.contains(word));
    let whole = match rpc {
        "CancelTask" => framed(0, &task(&id, TaskState::Canceled).encode_to_vec()),
        "SubscribeToTask" if is_known => item(Payload::Task(task(&id, TaskState::Completed))),
        _ => return refuse(&mut respond, NOT_FOUND),
    };
    let Ok(mut stream) = respond.send_response(head(200, GRPC), false) else { return };
    let _ = stream.send_data(whole, false);
    let _ = stream.send_trailers(trailers(OK, ""));
}

/// The fault in place of a stream; false: a stream begins.
async fn no_stream(word: &str, respond: &mut SendResponse<Bytes>, link: &TcpStream) -> bool {
    let begin = |respond: &mut SendResponse<Bytes>, bytes: Bytes| {
        if let Ok(mut stream) = respond.send_response(head(200, GRPC), false) {
            let _ = stream.send_data(bytes, false);
            let _ = stream.send_trailers(trailers(OK, ""));
        }
    };
    match word {
        "no: internal" => refuse(respond, INTERNAL),
        "no: unavailable" => refuse(respond, UNAVAILABLE),
        "no: exhausted" => refuse(respond, "8"),
        "no: unimplemented" => refuse(respond, "12"),
        "no: status" => drop(respond.send_response(head(200, GRPC), true)),
        "no: html" => drop(respond.send_response(head(200, "text/html"), true)),
        "no: 500" => drop(respond.send_response(head(500, "text/plain"), true)),
        "no: 503" => drop(respond.send_response(head(503, "text/plain"), true)),
        "no: 429" => drop(respond.send_response(head(429, "text/plain"), true)),
        "no: redirect" => drop(respond.send_response(head(307, "text/plain"), true)),
        "no: event" => begin(respond, Bytes::new()),
        "no: half" => begin(respond, framed(0, b"xxxx").slice(..7)),
        "no: compressed" => begin(respond, framed(1, b"xxxx")),
        "no: nonsense" => begin(respond, framed(0, b"\xff\xff\xff")),
        "no: reset" => respond.send_reset(Reason::INTERNAL_ERROR),
        "no: refused" => respond.send_reset(Reason::REFUSED_STREAM),
        "no: silence" => {
            sleep(Duration::from_millis(100)).await;
            respond.send_reset(Reason::CANCEL);
        }
        "no: cut" => break_off(link, b"").await,
        "no: garbage" => break_off(link, b"HTTP/1.1 what? nonsense, and more of that").await,
        "no: goaway" => break_off(link, &goaway(0, Reason::NO_ERROR)).await,
        _ => return false,
    }
    true
}

/// The rest of a stream after its first event.
async fn rest(word: &str, id: &str, mut stream: SendStream<Bytes>, link: &TcpStream) {
    let completed = update(id, TaskState::Completed);
    let text = match word.trim_end_matches(" known") {
        "cut" => return break_off(link, &frame(DATA, 100, b"only some")).await,
        "garbage" => return break_off(link, &[b'x'; 100]).await,
        "oversized frame" => return break_off(link, &frame(DATA, 0xff_ffff, &[0; 100])).await,
        "goaway" => return break_off(link, &goaway(0, Reason::INTERNAL_ERROR)).await,
        "goaway graceful" => {
            written().await;
            let _ = { link }.write_all(&goaway(u32::MAX >> 1, Reason::NO_ERROR));
            completed
        }
        "reset" => {
            written().await;
            return stream.send_reset(Reason::INTERNAL_ERROR);
        }
        "reset without error" => {
            written().await;
            return stream.send_reset(Reason::NO_ERROR);
        }
        "stall" => {
            let _ = timeout(Duration::from_millis(100), poll_fn(|cx| stream.poll_reset(cx))).await;
            return stream.send_reset(Reason::CANCEL);
        }
        "unavailable" => return drop(stream.send_trailers(trailers(UNAVAILABLE, "going"))),
        "internal" => return drop(stream.send_trailers(trailers(INTERNAL, "it broke"))),
        "close" => return drop(stream.send_data(Bytes::new(), true)),
        "end" => return drop(stream.send_trailers(trailers(OK, ""))),
        "half" => completed.slice(..completed.len() - 2),
        "compressed" => framed(1, b"xxxx"),
        "nonsense" => framed(0, b"\xff\xff\xff"),
        "oversized" => framed(0, &[]).iter().map(|_| 0x7f).collect(),
        "other task" => update("another", TaskState::Completed),
        "large" => [chunk(id, LARGE_BYTES), completed].concat().into(),
        "flood" => [chunk(id, 64).repeat(1_000).into(), completed].concat().into(),
        "endless" => return endless(id, stream).await,
        _ => completed,
    };
    let _ = stream.send_data(text, false);
    let _ = stream.send_trailers(trailers(OK, ""));
}

/// Sends chunks as fast as the gateway reads them.
async fn endless(id: &str, mut stream: SendStream<Bytes>) {
    let chunk = chunk(id, CHUNK_BYTES);
    loop {
        stream.reserve_capacity(chunk.len());
        while stream.capacity() < chunk.len() {
            let Some(Ok(_)) = poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        }
        if stream.send_data(chunk.clone(), false).is_err() {
            return;
        }
    }
}

/// Accepts a connection, and sends nothing.
pub async fn silent(socket: Socket) {
    let _socket = socket;
    pending().await
}

/// Accepts a connection, sends these bytes, and closes it.
pub async fn write_and_close(socket: Socket, bytes: &'static [u8]) {
    write(&socket, bytes).await;
    sleep(Duration::from_millis(100)).await;
}
