//! Shared by the socket tests: a client, requests in one line, and servers of raw bytes.

use std::{
    future::{Future, poll_fn},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use peregrine::{
    client::{
        HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpVersion, Transport, TransportError,
    },
    http::{FieldLines, FieldLinesBuf},
    net::{HttpClient, HttpClientOptions, HttpClientResponse},
};

/// The limit of an operation that should take no time.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test on a runtime of one thread, within [`PATIENCE`].
pub fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await });
    runtime.shutdown_background();
    done.expect("a test that ends")
}

/// A client with the defaults.
pub fn client() -> HttpClient {
    HttpClient::new(HttpClientOptions::default()).unwrap()
}

/// A client with other limits, or another proxy.
pub fn client_with(change: impl FnOnce(&mut HttpClientOptions)) -> HttpClient {
    let mut options = HttpClientOptions::default();
    change(&mut options);
    HttpClient::new(options).unwrap()
}

/// A request; a test sets the parts that matter to it.
#[derive(Clone)]
pub struct Ask<'a> {
    pub method: HttpMethod,
    pub fields: FieldLines<'a>,
    pub body: &'a [u8],
    pub version: HttpVersion,
    pub head_ms: u64,
    pub idle_ms: u64,
    pub is_repeatable: bool,
}

pub const GET: Ask<'static> = Ask {
    method: HttpMethod::Get,
    fields: FieldLines::NONE,
    body: &[],
    version: HttpVersion::Any,
    head_ms: 10_000,
    idle_ms: 10_000,
    is_repeatable: true,
};

/// A POST with this content.
pub const fn post(body: &[u8]) -> Ask<'_> {
    Ask { method: HttpMethod::Post, body, is_repeatable: false, ..GET }
}

/// Fields of names and values.
pub fn fields(all: &[(&str, &str)]) -> FieldLinesBuf {
    let mut fields = FieldLinesBuf::default();
    all.iter().for_each(|(name, value)| fields.push(name, value));
    fields
}

impl Ask<'_> {
    /// The head of the response.
    pub async fn head(
        &self,
        client: &HttpClient,
        url: &str,
    ) -> Result<HttpClientResponse, TransportError> {
        let url = HttpOrigin::parse(url).unwrap();
        let request = HttpRequest {
            method: self.method,
            origin: &url.origin,
            target: &url.path,
            fields: self.fields,
            body: self.body,
            version: self.version,
            head_due_ms: client.now().mono_ms + self.head_ms,
            body_idle_ms: self.idle_ms,
            is_repeatable: self.is_repeatable,
        };
        client.request(request).await
    }

    /// The whole response: status and content.
    pub async fn whole(
        &self,
        client: &HttpClient,
        url: &str,
    ) -> Result<(u16, String), TransportError> {
        let mut response = self.head(client, url).await?;
        let body = body(&mut response).await?;
        Ok((response.status(), String::from_utf8_lossy(&body).into_owned()))
    }
}

/// All of the content.
pub async fn body(response: &mut HttpClientResponse) -> Result<Vec<u8>, TransportError> {
    let mut content = Vec::new();
    while poll_fn(|cx| response.poll_read(cx, &mut content, 64 * 1024)).await? {}
    Ok(content)
}

/// A server of raw bytes: `serve` gets each connection and its number, on a thread of its own.
pub struct RawServer {
    pub addr: SocketAddr,
    /// Connections so far.
    pub accepted: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl RawServer {
    pub fn new(serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> RawServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, serve) = (listener.local_addr().unwrap(), Arc::new(serve));
        let (accepted, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over) = (Arc::clone(&accepted), Arc::clone(&is_over));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Relaxed) {
                    return;
                }
                let (stream, serve) = (stream.unwrap(), Arc::clone(&serve));
                let number = count.fetch_add(1, Relaxed);
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                std::thread::spawn(move || serve(number, stream));
            }
        });
        RawServer { addr, accepted, is_over }
    }

    /// Answers each request that it reads with the same bytes, then calls `after`.
    pub fn saying(answer: &'static [u8], after: fn(TcpStream)) -> RawServer {
        RawServer::new(move |_, mut stream| {
            if read_request(&mut stream).is_some() && stream.write_all(answer).is_ok() {
                after(stream);
            }
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    pub fn connections(&self) -> usize {
        self.accepted.load(Relaxed)
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = TcpStream::connect(self.addr);
    }
}

/// Reads a head and its `Content-Length` bytes of content; `None`: the client has disconnected.
pub fn read_request(stream: &mut TcpStream) -> Option<String> {
    let head = read_head(stream)?;
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8_lossy(&body))
}

/// Reads a head.
pub fn read_head(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Holds a connection open until the client closes it.
pub fn hold(mut stream: TcpStream) {
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}
