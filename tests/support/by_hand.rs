//! An HTTP server with answers written by a test.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use socket2::SockRef;

/// A received request.
#[derive(Clone)]
pub struct ReceivedRequest {
    /// The request line and the fields.
    pub head: String,
    /// The content; null if there is none.
    pub body: Value,
}

/// A server that answers one request on each connection with `respond`, then closes it, or resets
/// it if its linger time is zero.
pub struct ByHand {
    pub addr: SocketAddr,
    requests: Receiver<ReceivedRequest>,
}

impl ByHand {
    pub fn new(
        respond: impl Fn(&ReceivedRequest, &mut TcpStream) + Send + Sync + 'static,
    ) -> ByHand {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (sender, requests) = channel();
        thread::spawn(move || serve(&listener, &sender, &respond));
        ByHand { addr, requests }
    }

    /// The next request that no test has taken.
    pub fn request(&self) -> ReceivedRequest {
        self.requests.recv_timeout(Duration::from_secs(10)).expect("a request")
    }

    /// Whether a request has arrived that no test has taken.
    pub fn has_request(&self) -> bool {
        self.requests.try_recv().is_ok()
    }
}

fn serve(
    listener: &TcpListener,
    requests: &Sender<ReceivedRequest>,
    respond: &(impl Fn(&ReceivedRequest, &mut TcpStream) + Sync),
) {
    thread::scope(|scope| {
        for stream in listener.incoming() {
            let (mut stream, requests) = (stream.unwrap(), requests.clone());
            scope.spawn(move || {
                let Some(request) = read_request(&mut stream) else { return };
                let _ = requests.send(request.clone());
                respond(&request, &mut stream);
                if matches!(SockRef::from(&stream).linger(), Ok(Some(Duration::ZERO))) {
                    return;
                }
                let _ = stream.shutdown(Shutdown::Write);
                // Until the other side has read all bytes.
                let _ = stream.read(&mut [0]);
            });
        }
    });
}

/// `None`: the connection was closed before a whole request.
fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                let body = serde_json::from_str(body).unwrap_or_default();
                return Some(ReceivedRequest { head: head.to_owned(), body });
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

/// A whole answer, the last one on its connection.
pub fn answer(status: &str, media_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: {media_type}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// A remote agent with a card, which answers calls with `respond`.
pub fn remote(
    respond: impl Fn(&ReceivedRequest, &mut TcpStream) + Send + Sync + 'static,
) -> ByHand {
    let own: Arc<OnceLock<SocketAddr>> = Arc::default();
    let addr = Arc::clone(&own);
    let remote = ByHand::new(move |request, stream| {
        if !request.head.starts_with("GET /.well-known/") {
            return respond(request, stream);
        }
        let url = format!("http://{}/", addr.wait());
        let interface = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
        let card = json!({
            "name": "remote", "description": "It misbehaves.", "version": "1",
            "supportedInterfaces": [interface], "capabilities": {"streaming": true},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
        });
        let _ =
            stream.write_all(answer("200 OK", "application/json", &card.to_string()).as_bytes());
    });
    own.set(remote.addr).unwrap();
    remote
}

/// The head of a stream that ends with its connection.
pub const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

/// Makes the drop of the connection reset it.
pub fn reset(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Waits until the other side disconnects, at most 100 ms.
pub fn stall(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let _ = stream.read(&mut [0]);
}

/// A stream event in answer to a request.
pub fn event(request: &ReceivedRequest, result: &Value) -> String {
    let event = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
    format!("data: {event}\n\n")
}
