//! The thread that sends spans to their collector, as OTLP over HTTP.

use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
        mpsc::Receiver,
    },
    task::{Poll, Waker},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use tokio::{
    runtime::{Builder, Runtime},
    time::{sleep, sleep_until},
};

use crate::{
    client::{
        HttpMethod, HttpRequest, HttpResponse, HttpVersion, SizeLimit, Transport, TransportError,
        read_all, retry::retry_after_ms,
    },
    engine::Engine,
    limits::{
        SPANS_ANSWER_BYTES_MAX, SPANS_RETRY_MS_MAX, SPANS_SEND_MS, SPANS_SENT_MAX, SPANS_TRIES_MAX,
        SPANS_WAIT_MS,
    },
};

use super::{
    super::{
        HttpClient, HttpClientError,
        clock::{monotonic_ns, unix_ns},
        report,
    },
    EndedSpan, TraceCollector,
    spans::{Clocks, SpanWriter},
};

/// The state that workers and the thread share.
#[derive(Default)]
pub(super) struct ExportState {
    /// Spans in the queue.
    pub(super) queued: AtomicUsize,
    pub(super) sent: AtomicU64,
    /// Spans lost because the queue was full.
    pub(super) full: AtomicU64,
    /// Spans lost because the collector refused them.
    pub(super) refused: AtomicU64,
    /// Spans lost because the collector could not be reached, or has deferred them too often.
    pub(super) failed: AtomicU64,
    /// True: the server drains, and each span is sent at once.
    drains: AtomicBool,
    /// The deadline of the last spans, once the server ends.
    end: OnceLock<Instant>,
    /// The waker of the thread.
    waker: Mutex<Option<Waker>>,
}

impl ExportState {
    /// The number of spans that are sent without waiting for more.
    pub(super) fn enough(&self) -> usize {
        if self.drains.load(Acquire) { 1 } else { SPANS_SENT_MAX }
    }

    /// From now on spans are sent without waiting for more.
    pub(super) fn drain(&self) {
        self.drains.store(true, Release);
        self.wake();
    }

    /// Sets the time after which nothing is sent.
    pub(super) fn end(&self, at: Instant) {
        self.end.get_or_init(|| at);
        self.wake();
    }

    pub(super) fn wake(&self) {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.into_iter().for_each(Waker::wake);
    }

    fn listen(&self, waker: &Waker) {
        let own = Some(waker.clone());
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = own;
    }

    /// Waits until there are enough spans for a message, until `SPANS_WAIT_MS` have passed, or
    /// until the server ends.
    async fn wait_for_spans(&self) {
        let pause = Duration::from_millis(SPANS_WAIT_MS);
        self.wait(pause, || self.queued.load(Relaxed) >= self.enough()).await;
    }

    /// Waits until `is_there` returns true, at most for `pause`, or until the server ends.
    async fn wait(&self, pause: Duration, is_there: impl Fn() -> bool) {
        let mut timer = pin!(sleep(pause));
        poll_fn(|cx| {
            self.listen(cx.waker());
            if self.end.get().is_some() || is_there() {
                return Poll::Ready(());
            }
            timer.as_mut().poll(cx)
        })
        .await;
    }

    /// The result of a future; `None`: the server has ended before.
    async fn until_end<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut timer = None;
        poll_fn(|cx| {
            self.listen(cx.waker());
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            let Some(end) = self.end.get() else { return Poll::Pending };
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until((*end).into())));
            timer.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}

/// The state of the thread.
pub(super) struct Exporter {
    collector: TraceCollector,
    records: Receiver<EndedSpan>,
    state: Arc<ExportState>,
    client: HttpClient,
}

/// The collector's answer to a message.
#[derive(Debug, PartialEq, Eq)]
enum CollectorAnswer {
    /// The collector has accepted all but `rejected` spans.
    Accepted { rejected: u64 },
    /// The collector defers the message for `ms` milliseconds.
    Deferred { ms: u64 },
    /// The collector refuses the message.
    Refused { status: u16 },
}

impl Exporter {
    /// An exporter to this collector.
    ///
    /// # Errors
    /// [`HttpClientError`].
    pub(super) fn new(
        collector: TraceCollector,
        records: Receiver<EndedSpan>,
        state: Arc<ExportState>,
    ) -> Result<Exporter, HttpClientError> {
        let client = HttpClient::new(collector.options.clone())?;
        Ok(Exporter { collector, records, state, client })
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system provides no runtime or no thread.
    pub(super) fn spawn(self, engine: Weak<Engine>) -> io::Result<JoinHandle<()>> {
        let runtime: Runtime = Builder::new_current_thread().enable_all().build()?;
        let work = move || {
            runtime.block_on(self.run(&engine));
            // Does not wait for a name resolution in progress.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("peregrine-traces".to_owned()).spawn(work)
    }

    /// Runs until the server has ended and no span remains.
    async fn run(self, engine: &Weak<Engine>) {
        loop {
            self.state.wait_for_spans().await;
            let batch: Vec<EndedSpan> = self.records.try_iter().take(SPANS_SENT_MAX).collect();
            self.state.queued.fetch_sub(batch.len(), AcqRel);
            if batch.is_empty() && self.state.end.get().is_some() {
                return;
            }
            if !batch.is_empty() {
                self.export(&batch, engine).await;
            }
        }
    }

    /// Sends spans, and counts the outcomes.
    async fn export(&self, batch: &[EndedSpan], engine: &Weak<Engine>) {
        let count = batch.len() as u64;
        let clocks = Clocks { unix_ns: unix_ns(), now_ns: monotonic_ns() };
        let writer = SpanWriter { service: &self.collector.service, clocks, engine };
        let body = writer.message(batch).encode_to_vec();
        let state = &self.state;
        let failure = match state.until_end(self.send(&body)).await {
            Some(Ok(CollectorAnswer::Accepted { rejected })) => {
                let rejected = rejected.min(count);
                state.sent.fetch_add(count - rejected, Relaxed);
                state.refused.fetch_add(rejected, Relaxed);
                None
            }
            Some(Ok(CollectorAnswer::Refused { status })) => {
                state.refused.fetch_add(count, Relaxed);
                Some(format!("HTTP status {status}"))
            }
            Some(Ok(CollectorAnswer::Deferred { .. })) => {
                state.failed.fetch_add(count, Relaxed);
                Some("the collector asks to retry later".to_owned())
            }
            Some(Err(error)) => {
                state.failed.fetch_add(count, Relaxed);
                Some(error.to_string())
            }
            None => {
                state.failed.fetch_add(count, Relaxed);
                Some("the server shut down".to_owned())
            }
        };
        if let Some(why) = failure {
            report::traces_lost(&why);
        }
    }

    /// Sends a message, and repeats it if the collector defers it.
    async fn send(&self, body: &[u8]) -> Result<CollectorAnswer, TransportError> {
        let mut tries = 1;
        loop {
            match self.post(body).await? {
                CollectorAnswer::Deferred { ms } if tries < SPANS_TRIES_MAX => {
                    self.state.wait(Duration::from_millis(ms), || false).await;
                    tries += 1;
                }
                answer => return Ok(answer),
            }
        }
    }

    /// Sends a message once. Redirects are not followed, since the fields are only for this
    /// collector.
    async fn post(&self, body: &[u8]) -> Result<CollectorAnswer, TransportError> {
        let due_ms = self.client.mono_ms().saturating_add(SPANS_SEND_MS);
        let request = HttpRequest {
            method: HttpMethod::Post,
            origin: &self.collector.url.origin,
            target: &self.collector.url.path,
            fields: self.collector.fields.get(),
            body,
            version: HttpVersion::Any,
            head_due_ms: due_ms,
            body_idle_ms: SPANS_SEND_MS,
            is_repeatable: false,
        };
        let mut response = self.client.request(request).await?;
        let (status, unix_ms) = (response.status(), self.client.now().unix_ms);
        let retry = response.field("retry-after").and_then(|text| retry_after_ms(text, unix_ms));
        let mut content = Vec::new();
        let limit = SizeLimit { bytes_max: SPANS_ANSWER_BYTES_MAX, name: "SPANS_ANSWER_BYTES_MAX" };
        let read = read_all(&self.client, &mut response, &mut content, limit, due_ms).await;
        Ok(match (status, retry) {
            (200..=299, _) => {
                read?;
                CollectorAnswer::Accepted { rejected: rejected(&content) }
            }
            (429 | 503, Some(ms)) => CollectorAnswer::Deferred { ms: ms.min(SPANS_RETRY_MS_MAX) },
            (status, _) => CollectorAnswer::Refused { status },
        })
    }
}

/// How many spans the collector has rejected (OTLP 1.x, "Partial Success"). Other parts of the
/// answer, and other formats, are ignored.
fn rejected(content: &[u8]) -> u64 {
    let response = ExportTraceServiceResponse::decode(content).ok();
    let partial = response.and_then(|response| response.partial_success);
    partial.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    /// Whether the thread has something to do now.
    fn is_due(state: &ExportState) -> bool {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut wait = pin!(state.wait_for_spans());
            poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx).is_ready())).await
        })
    }

    #[test]
    fn spans_wait_for_a_full_batch_or_a_drain() {
        let state = ExportState::default();
        state.queued.store(SPANS_SENT_MAX - 1, Relaxed);
        assert!(!is_due(&state));
        state.queued.store(SPANS_SENT_MAX, Relaxed);
        assert!(is_due(&state));
        state.queued.store(1, Relaxed);
        assert!(!is_due(&state));
        state.drain();
        assert!(is_due(&state));
        state.queued.store(0, Relaxed);
        assert!(!is_due(&state));
        state.end(Instant::now());
        assert!(is_due(&state));
    }

    #[test]
    fn partial_success_returns_the_rejected_span_count() {
        for (spans, expected) in [(0, 0), (7, 7), (-1, 0)] {
            let partial = ExportTracePartialSuccess {
                rejected_spans: spans,
                error_message: "too old".to_owned(),
            };
            let answer = ExportTraceServiceResponse { partial_success: Some(partial) };
            assert_eq!(rejected(&answer.encode_to_vec()), expected);
        }
        assert_eq!((rejected(b""), rejected(b"{}"), rejected(&[0xff; 9])), (0, 0, 0));
    }
}
