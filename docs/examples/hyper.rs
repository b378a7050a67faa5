//! A2A below hyper: the engine answers requests that hyper has parsed, JSON and gRPC alike.
//!
//! `cargo run --example hyper` serves the echo agent on 127.0.0.1:3000, over HTTP/1.1 and HTTP/2.
//! Everything runs on one thread, so that one worker serves all connections.

use std::{
    cell::RefCell,
    collections::VecDeque,
    convert::Infallible,
    fs::File,
    future::poll_fn,
    io::{self, Read},
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Request, Response, StatusCode, Version,
    body::{Body, Frame, Incoming},
    header::{HeaderName, HeaderValue},
    service::service_fn,
};
use hyper_util::{rt::TokioIo, server::conn::auto};
use peregrine::{
    agent::echo::Echo,
    engine::{
        Cx, Engine, Exchange, FieldLines, HeadParts, RequestParts, ResponseSink, Setup, Start,
        Worker,
    },
    service::{Entropy, Now, Peer},
};
use tokio::{net::TcpListener, task::LocalSet, time::Sleep};

/// Random bits of the operating system.
struct Urandom(File);

impl Entropy for Urandom {
    #[allow(clippy::expect_used)] // Ids that can be guessed would be worse than no server.
    fn bits(&mut self) -> u128 {
        let mut bytes = [0; 16];
        self.0.read_exact(&mut bytes).expect("/dev/urandom gives as much as one wants");
        u128::from_ne_bytes(bytes)
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The state that all requests share.
struct A2a {
    engine: Arc<Engine>,
    worker: RefCell<Worker>,
    began: Instant,
}

impl A2a {
    fn now(&self) -> Now {
        Now { mono_ms: self.began.elapsed().as_millis() as u64, unix_ms: unix_ms() }
    }

    fn with_cx<T>(&self, wake: &Waker, work: impl FnOnce(&mut Cx<'_>) -> T) -> T {
        let (worker, out) = (&mut *self.worker.borrow_mut(), &mut Vec::new());
        let (engine, now) = (&*self.engine, self.now());
        work(&mut Cx { engine, worker, now, wake, out, unsent: 0, peer: Peer::default() })
    }

    /// Answers one request.
    async fn answer(
        self: Rc<A2a>,
        request: Request<Incoming>,
    ) -> Result<Response<Answer>, hyper::Error> {
        let (head, body) = request.into_parts();
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let parts = RequestParts {
            method: head.method.as_str().as_bytes(),
            target: target.as_bytes(),
            authority: head.uri.authority().map(|authority| authority.as_str().as_bytes()),
            fields: head.headers.iter().map(|(name, value)| (name.as_ref(), value.as_bytes())),
            has_body: !body.is_end_stream(),
            takes_trailers: head.version == Version::HTTP_2,
        };
        let exchange = self.with_cx(Waker::noop(), |cx| Exchange::new(cx, parts));
        let sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
        let output = PendingOutput::default();
        let mut answer = Answer { a2a: self, exchange, body, output, sleep };
        let head = poll_fn(|cx| answer.poll_head(cx)).await?;
        Ok(head.map(|()| answer))
    }
}

/// Output of the exchange that hyper has not taken.
#[derive(Default)]
struct PendingOutput {
    head: Option<Response<()>>,
    frames: VecDeque<Frame<Bytes>>,
    is_over: bool,
}

fn put(headers: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::from_bytes(name.as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
        headers.append(name, value);
    }
}

impl ResponseSink for PendingOutput {
    fn head(&mut self, head: &HeadParts) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or_default();
        head.for_each_field(|name, value| put(response.headers_mut(), name, value));
        self.head = Some(response);
    }

    fn content(&mut self, bytes: &mut Vec<u8>) {
        self.frames.push_back(Frame::data(std::mem::take(bytes).into()));
    }

    fn end(&mut self, trailers: FieldLines<'_>) {
        let mut headers = HeaderMap::new();
        trailers.iter().for_each(|(name, value)| put(&mut headers, name, value));
        if !headers.is_empty() {
            self.frames.push_back(Frame::trailers(headers));
        }
        self.is_over = true;
    }
}

/// A request and its answer, which advances when hyper polls it.
struct Answer {
    a2a: Rc<A2a>,
    exchange: Exchange,
    body: Incoming,
    output: PendingOutput,
    sleep: Pin<Box<Sleep>>,
}

impl Answer {
    /// Forwards the body, then waits for the head of the answer; `Err`: the body broke off.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<Response<()>>> {
        while self.exchange.wants_body() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(frame)) => {
                    let piece = frame?.into_data().unwrap_or_default();
                    self.exchange.push(self.a2a.engine.limits(), &piece);
                }
                Poll::Ready(None) => self.exchange.end(),
                Poll::Pending => break,
            }
        }
        self.advance(cx);
        self.output.head.take().map_or(Poll::Pending, |head| Poll::Ready(Ok(head)))
    }

    fn advance(&mut self, cx: &mut Context<'_>) {
        let Answer { a2a, exchange, output, sleep, .. } = self;
        let _ = a2a.with_cx(cx.waker(), |engine_cx| exchange.poll(engine_cx, output));
        if let Some(due_ms) = exchange.deadline_ms(a2a.engine.limits()) {
            sleep.as_mut().reset((a2a.began + Duration::from_millis(due_ms)).into());
            if sleep.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // Nothing more is written while output is pending.
        if self.output.frames.is_empty() && !self.output.is_over {
            self.advance(cx);
        }
        match self.output.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None if self.output.is_over => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.output.is_over && self.output.frames.is_empty()
    }
}

/// Calls agents that are due.
async fn tick(a2a: Rc<A2a>) {
    loop {
        let now = a2a.now();
        let due_ms = poll_fn(|cx| {
            let mut worker = a2a.worker.borrow_mut();
            Poll::Ready(a2a.engine.tick(&mut worker, now, cx.waker()))
        })
        .await;
        let wait_ms = due_ms.map_or(100, |due_ms| due_ms.saturating_sub(now.mono_ms).clamp(1, 100));
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}

fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let addr: SocketAddr = addr.parse().map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind(addr).await?;
        println!("http://{}", listener.local_addr()?);
        serve(listener).await
    })
}

/// Answers each client that connects.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let base_url = format!("http://{}", listener.local_addr()?);
    let mut entropy = Urandom(File::open("/dev/urandom")?);
    let setup = Setup { agents: vec![(Echo::profile(), Arc::new(Echo))], ..Setup::default() };
    let start = Start { secret: entropy.bits(), unix_ms: Arc::new(unix_ms), workers: 1, base_url };
    let engine = setup.build(start).map_err(io::Error::other)?;
    let worker = RefCell::new(Worker::new(0, engine.limits(), Box::new(entropy)));
    let a2a = Rc::new(A2a { engine, worker, began: Instant::now() });
    let ticks = Rc::clone(&a2a);
    tokio::task::spawn_local(tick(ticks));
    loop {
        let (stream, _) = listener.accept().await?;
        let a2a = Rc::clone(&a2a);
        tokio::task::spawn_local(async move {
            let service = service_fn(move |request| Rc::clone(&a2a).answer(request));
            let server = auto::Builder::new(LocalExecutor);
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Streams of HTTP/2 stay on the thread of their connection.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
