//! A transport without sockets: an engine in the same process answers requests, and its responses
//! can be cut anywhere.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use peregrine::{
    agent::echo::Echo,
    client::{HttpMethod, HttpRequest, HttpResponse, Transport, TransportError},
    engine::{
        Cx, Engine, Exchange, FieldLines, HeadParts, RequestParts, ResponseSink, Setup, Start,
        Worker,
    },
    service::{Entropy, Now, Peer},
};

/// Bits that are the same in every run.
struct Counter(u128);

impl Entropy for Counter {
    fn bits(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
        self.0
    }
}

/// The faults that the transport adds to responses.
#[derive(Default)]
pub struct Mischief {
    /// The numbers of bytes after which the next streams break, in order; later streams do not
    /// break.
    pub cuts: Vec<usize>,
    /// True: events have no ids, and `Last-Event-ID` is not forwarded.
    pub without_numbers: bool,
    /// True: no stream ever ends.
    pub without_end: bool,
    /// True: every operation yields once before it continues.
    pub is_slow: bool,
}

/// An engine, and the faults of its transport.
pub struct InProcess {
    engine: Arc<Engine>,
    worker: Arc<Mutex<Worker>>,
    random: AtomicU64,
    now_ms: Arc<AtomicU64>,
    pub mischief: Arc<Mutex<Mischief>>,
    pub requests: Arc<AtomicUsize>,
}

impl InProcess {
    pub fn echo() -> InProcess {
        InProcess::of(Setup { agents: vec![(Echo::profile(), Arc::new(Echo))], ..Setup::default() })
    }

    pub fn of(setup: Setup) -> InProcess {
        let base_url = "http://agent.test".to_owned();
        let start =
            Start { secret: 7, unix_ms: Arc::new(|| 1_790_000_000_000), workers: 1, base_url };
        let engine = setup.build(start).unwrap();
        let worker = Worker::new(0, engine.limits(), Box::new(Counter(3)));
        InProcess {
            engine,
            worker: Arc::new(Mutex::new(worker)),
            random: AtomicU64::new(1),
            now_ms: Arc::new(AtomicU64::new(1_000)),
            mischief: Arc::default(),
            requests: Arc::default(),
        }
    }
}

impl InProcess {
    /// Yields once, if everything is slow.
    async fn wait(&self) {
        let mut remaining = u32::from(self.mischief.lock().unwrap().is_slow);
        poll_fn(|cx| match remaining.checked_sub(1) {
            None => Poll::Ready(()),
            Some(rest) => {
                remaining = rest;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
    }
}

fn now(ms: &AtomicU64) -> Now {
    let mono_ms = ms.load(Relaxed);
    Now { mono_ms, unix_ms: 1_790_000_000_000 + mono_ms }
}

/// Output of the engine that the client has not read.
#[derive(Default)]
struct EngineOutput {
    status: u16,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    is_over: bool,
}

impl ResponseSink for EngineOutput {
    fn head(&mut self, head: &HeadParts) {
        self.status = head.status;
        head.for_each_field(|name, value| {
            self.fields.push((name.to_ascii_lowercase(), value.as_bytes().to_vec()));
        });
    }

    fn content(&mut self, bytes: &mut Vec<u8>) {
        self.body.append(bytes);
    }

    fn end(&mut self, trailers: FieldLines<'_>) {
        for (name, value) in trailers.iter() {
            self.fields.push((name.to_ascii_lowercase(), value.as_bytes().to_vec()));
        }
        self.is_over = true;
    }
}

pub struct InProcessResponse {
    engine: Arc<Engine>,
    worker: Arc<Mutex<Worker>>,
    now_ms: Arc<AtomicU64>,
    exchange: Exchange,
    output: EngineOutput,
    /// Bytes until it breaks.
    remaining: usize,
    without_numbers: bool,
    without_end: bool,
    is_slow: bool,
    has_waited: bool,
}

impl InProcessResponse {
    fn poll_engine(&mut self, wake: &Waker) {
        let (worker, out) = (&mut *self.worker.lock().unwrap(), &mut Vec::new());
        let (engine, now) = (&*self.engine, now(&self.now_ms));
        let mut cx = Cx { engine, worker, now, wake, out, unsent: 0, peer: Peer::default() };
        let _ = self.exchange.poll(&mut cx, &mut self.output);
    }
}

impl HttpResponse for InProcessResponse {
    fn status(&self) -> u16 {
        self.output.status
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.output
            .fields
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_slice())
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<bool, TransportError>> {
        self.has_waited = self.is_slow && !self.has_waited;
        if self.has_waited {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.output.body.is_empty() && !self.output.is_over {
            self.poll_engine(cx.waker());
        }
        if self.without_numbers {
            let text = String::from_utf8(std::mem::take(&mut self.output.body)).unwrap();
            let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("id:"));
            self.output.body = lines.collect::<String>().into_bytes();
        }
        if !self.output.body.is_empty() {
            if self.remaining == 0 {
                return Poll::Ready(Err(TransportError::Closed { before_response: false }));
            }
            let count = self.output.body.len().min(room).min(self.remaining);
            self.remaining -= count;
            out.extend(self.output.body.drain(..count));
            return Poll::Ready(Ok(true));
        }
        let has_ended = self.output.is_over && !self.without_end;
        if has_ended { Poll::Ready(Ok(false)) } else { Poll::Pending }
    }

    fn poll_write(
        &mut self,
        _cx: &mut Context<'_>,
        _bytes: &[u8],
    ) -> Poll<Result<usize, TransportError>> {
        Poll::Ready(Err(TransportError::Io("no upgrade here".to_owned())))
    }
}

impl Transport for InProcess {
    type Response = InProcessResponse;

    async fn request(&self, request: HttpRequest<'_>) -> Result<InProcessResponse, TransportError> {
        self.requests.fetch_add(1, Relaxed);
        let is_stream = request.fields.iter().any(|(_, value)| value == "text/event-stream");
        self.wait().await;
        let (remaining, without_numbers, without_end, is_slow) = {
            let mut mischief = self.mischief.lock().unwrap();
            let is_cut = is_stream && !mischief.cuts.is_empty();
            let remaining = if is_cut { mischief.cuts.remove(0) } else { usize::MAX };
            let Mischief { without_numbers, without_end, is_slow, .. } = *mischief;
            (remaining, without_numbers, is_stream && without_end, is_slow)
        };
        let length = request.body.len().to_string();
        let forwarded = request
            .fields
            .iter()
            .filter(|(name, _)| !(without_numbers && name.eq_ignore_ascii_case("last-event-id")));
        let length = (request.method == HttpMethod::Post).then_some(("Content-Length", &*length));
        let all = forwarded.chain(length);
        let fields: Vec<(&[u8], &[u8])> =
            all.map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let parts = RequestParts {
            method: request.method.name().as_bytes(),
            target: request.target.as_bytes(),
            authority: Some(request.origin.authority().as_bytes()),
            fields: fields.into_iter(),
            has_body: !request.body.is_empty(),
            takes_trailers: true,
        };
        let exchange = {
            let (worker, out) = (&mut *self.worker.lock().unwrap(), &mut Vec::new());
            let (engine, now, wake) = (&*self.engine, now(&self.now_ms), Waker::noop());
            let peer = Peer::default();
            let mut cx = Cx { engine, worker, now, wake, out, unsent: 0, peer };
            let mut exchange = Exchange::new(&mut cx, parts);
            if exchange.wants_body() {
                exchange.push(self.engine.limits(), request.body);
                exchange.end();
            }
            exchange
        };
        let mut response = InProcessResponse {
            engine: Arc::clone(&self.engine),
            worker: Arc::clone(&self.worker),
            now_ms: Arc::clone(&self.now_ms),
            exchange,
            output: EngineOutput::default(),
            remaining,
            without_numbers,
            without_end,
            is_slow,
            has_waited: false,
        };
        poll_fn(|cx| {
            response.poll_engine(cx.waker());
            if response.output.status > 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Ok(response)
    }

    /// Time passes when a caller waits for it.
    async fn sleep_until(&self, due_ms: u64) {
        const STEP_MS: u64 = 250;
        while self.mischief.lock().unwrap().is_slow && self.now().mono_ms + STEP_MS < due_ms {
            self.now_ms.fetch_add(STEP_MS, Relaxed);
            self.wait().await;
        }
        self.now_ms.fetch_max(due_ms, Relaxed);
    }

    fn now(&self) -> Now {
        now(&self.now_ms)
    }

    fn random(&self) -> u128 {
        let low = self.random.fetch_add(1, Relaxed);
        u128::from(low.wrapping_mul(0x9E37_79B9_7F4A_7C15)) << 64 | u128::from(low)
    }
}
