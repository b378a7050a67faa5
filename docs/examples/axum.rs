//! A2A in an axum router: a tower service that answers with the engine, JSON and gRPC alike, next
//! to your own routes.
//!
//! `cargo run --example axum` serves the echo agent on 127.0.0.1:3000, over HTTP/1.1 and HTTP/2. In
//! a runtime of many threads each polls any request, since the engine never waits: it locks the
//! request's worker for some microseconds, or for as long as an agent's `start` takes.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::poll_fn,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use axum::{
    BoxError, Router,
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version},
    response::IntoResponse,
    routing::get,
};
use hyper::body::Frame;
use peregrine::{
    agent::echo::Echo,
    engine::{
        Cx, Engine, Exchange, FieldLines, HeadParts, RequestParts, ResponseSink, Setup, Start,
        Worker,
    },
    net,
    service::{Now, Peer},
};
use tokio::{
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};
use tower_service::Service;

/// The service; its clones share everything.
#[derive(Clone)]
pub struct A2a(Arc<Shared>);

struct Shared {
    engine: Arc<Engine>,
    /// One per core. A request keeps the worker that it began with.
    workers: Vec<Mutex<Worker>>,
    /// One per concurrent request.
    permits: Arc<Semaphore>,
    peer: Peer<'static>,
    began: Instant,
    unix_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl A2a {
    /// A service behind a listener on this address, made within a runtime.
    pub fn new(setup: Setup, addr: SocketAddr) -> Result<A2a, BoxError> {
        let count = net::workers_default();
        let start = Start { base_url: format!("http://{addr}"), ..net::start(count)? };
        let unix_ms = Arc::clone(&start.unix_ms);
        let engine = setup.build(start)?;
        let workers = (0..count).map(|index| net::worker(index, engine.limits()).map(Mutex::new));
        let a2a = A2a(Arc::new(Shared {
            workers: workers.collect::<Result<_, _>>()?,
            permits: Arc::new(Semaphore::new(engine.limits().connections_max)),
            // Foreign pages in a browser of this machine get no answer. With TLS in front:
            // `is_secure`.
            peer: Peer { is_loopback: addr.ip().is_loopback(), ..Peer::default() },
            began: Instant::now(),
            unix_ms,
            engine,
        }));
        for worker in 0..count {
            tokio::spawn(a2a.clone().tick(worker));
        }
        Ok(a2a)
    }

    fn with_cx<T>(&self, worker: usize, wake: &Waker, work: impl FnOnce(&mut Cx<'_>) -> T) -> T {
        let Shared { engine, workers, peer, began, unix_ms, .. } = &*self.0;
        let worker = &mut *workers[worker].lock().unwrap_or_else(PoisonError::into_inner);
        let now = Now { mono_ms: began.elapsed().as_millis() as u64, unix_ms: unix_ms() };
        work(&mut Cx { engine, worker, now, wake, out: &mut Vec::new(), unsent: 0, peer: *peer })
    }

    /// Calls agents that are due, and evicts expired tasks.
    async fn tick(self, worker: usize) {
        let mut sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
        poll_fn(|cx| {
            let due = self.with_cx(worker, cx.waker(), |c| c.engine.tick(c.worker, c.now, c.wake));
            self.wake_at(due, &mut sleep, cx);
            Poll::Pending
        })
        .await
    }

    fn wake_at(&self, due_ms: Option<u64>, sleep: &mut Pin<Box<Sleep>>, cx: &mut Context<'_>) {
        let Some(due_ms) = due_ms else { return };
        sleep.as_mut().reset((self.0.began + Duration::from_millis(due_ms)).into());
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    async fn answer(self, request: Request<Body>) -> Response<Body> {
        let Ok(permit) = Arc::clone(&self.0.permits).try_acquire_owned() else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let (head, body) = request.into_parts();
        let parts = RequestParts {
            method: head.method.as_str().as_bytes(),
            target: head.uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes(),
            authority: head.uri.authority().map(|authority| authority.as_str().as_bytes()),
            fields: head.headers.iter().map(|(name, value)| (name.as_ref(), value.as_bytes())),
            has_body: !body.is_end_stream(),
            takes_trailers: head.version == Version::HTTP_2,
        };
        // Concurrent requests share the workers.
        let worker = self.0.permits.available_permits() % self.0.workers.len();
        let exchange = self.with_cx(worker, Waker::noop(), |cx| Exchange::new(cx, parts));
        let sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
        let output = PendingOutput::default();
        let mut answer =
            Answer { a2a: self, worker, exchange, body, output, sleep, _permit: permit };
        match poll_fn(|cx| answer.poll_head(cx)).await {
            Ok(head) => head.map(|()| Body::new(answer)),
            Err(_) => StatusCode::BAD_REQUEST.into_response(),
        }
    }
}

impl Service<Request<Body>> for A2a {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let a2a = self.clone();
        Box::pin(async { Ok(a2a.answer(request).await) })
    }
}

/// A request and its answer, which advances when hyper polls it. It is dropped when the client
/// disconnects, and the exchange ends with it.
struct Answer {
    a2a: A2a,
    worker: usize,
    exchange: Exchange,
    body: Body,
    output: PendingOutput,
    sleep: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Answer {
    /// Forwards the body, then waits for the head of the answer; `Err`: the body broke off.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<()>, axum::Error>> {
        while self.exchange.wants_body() {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(frame)) => {
                    let piece = frame?.into_data().unwrap_or_default();
                    self.exchange.push(self.a2a.0.engine.limits(), &piece);
                }
                Poll::Ready(None) => self.exchange.end(),
                Poll::Pending => break,
            }
        }
        self.advance(cx);
        self.output.head.take().map_or(Poll::Pending, |head| Poll::Ready(Ok(head)))
    }

    fn advance(&mut self, cx: &mut Context<'_>) {
        let Answer { a2a, worker, exchange, output, sleep, .. } = self;
        let _ = a2a.with_cx(*worker, cx.waker(), |cx| exchange.poll(cx, output));
        a2a.wake_at(exchange.deadline_ms(a2a.0.engine.limits()), sleep, cx);
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // A client that does not read gets nothing more until it does.
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

/// Output of the exchange that hyper has not taken.
#[derive(Default)]
struct PendingOutput {
    head: Option<Response<()>>,
    frames: VecDeque<Frame<Bytes>>,
    is_over: bool,
}

fn field(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((name.parse().ok()?, value.parse().ok()?))
}

impl ResponseSink for PendingOutput {
    fn head(&mut self, head: &HeadParts) {
        let mut response = Response::builder().status(head.status).body(()).unwrap_or_default();
        head.for_each_field(|name, value| response.headers_mut().extend(field(name, value)));
        self.head = Some(response);
    }

    fn content(&mut self, bytes: &mut Vec<u8>) {
        self.frames.push_back(Frame::data(std::mem::take(bytes).into()));
    }

    fn end(&mut self, trailers: FieldLines<'_>) {
        let trailers: HeaderMap =
            trailers.iter().filter_map(|(name, value)| field(name, value)).collect();
        if !trailers.is_empty() {
            self.frames.push_back(Frame::trailers(trailers));
        }
        self.is_over = true;
    }
}

/// Serves A2A on every path without another route.
pub async fn serve(listener: TcpListener) -> Result<(), BoxError> {
    let setup = Setup { agents: vec![(Echo::profile(), Arc::new(Echo))], ..Setup::default() };
    let a2a = A2a::new(setup, listener.local_addr()?)?;
    let router = Router::new().route("/health", get(|| async { "well" })).fallback_service(a2a);
    Ok(axum::serve(listener, router).await?)
}

// Use `#[tokio::main]`: this repository does without that feature of tokio.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(addr).await?;
    println!("http://{}", listener.local_addr()?);
    serve(listener).await
}
