//! Traces of a server for an OpenTelemetry collector: a span for each traced call, and for each
//! turn of an agent in the call.
//!
//! Invariant: a worker puts a span into a queue and never waits; spans that the queue or the
//! collector does not accept are counted and lost. A separate thread sends the spans in messages:
//! at once from the start of a drain, and the remaining spans within `SPANS_FLUSH_MS` after the
//! last call.

mod collector;
mod export;
mod spans;

use std::{
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::Ordering::Relaxed,
        mpsc::{self, SyncSender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{
    engine::Engine,
    limits::{SPANS_FLUSH_MS, SPANS_QUEUED_MAX},
    service::{
        observe::{AuthOutcome, CallObserver, CallRecord, LimitHit, RefusedRequest},
        trace::{Tracer, TurnRecord},
    },
};

pub use collector::{TraceCollector, TraceCollectorError};
use export::{ExportState, Exporter};

use super::{client::HttpClientError, clock::monotonic_ns, observers::Observers};

/// An ended span.
enum SpanRecord {
    Call(Box<CallRecord>),
    Turn(Box<TurnRecord>),
}

/// A queued span, and its end on the clock of the observer.
struct EndedSpan {
    record: SpanRecord,
    ended_ns: u64,
}

/// Holds the spans of a server until they are sent.
pub(super) struct Traces {
    one_of: u32,
    queue: SyncSender<EndedSpan>,
    state: Arc<ExportState>,
    /// `Some` until the server has started.
    exporter: Mutex<Option<Exporter>>,
    /// `Some` after the server has started.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Traces {
    /// Traces for this collector.
    ///
    /// # Errors
    /// [`HttpClientError`].
    pub(super) fn new(collector: TraceCollector) -> Result<Traces, HttpClientError> {
        let (queue, records) = mpsc::sync_channel(SPANS_QUEUED_MAX);
        let (one_of, state) = (collector.one_of, Arc::<ExportState>::default());
        let exporter = Exporter::new(collector, records, Arc::clone(&state))?;
        let (exporter, thread) = (Mutex::new(Some(exporter)), Mutex::default());
        Ok(Traces { one_of, queue, state, exporter, thread })
    }

    /// Starts the exporter; `engine` provides the names of agents.
    ///
    /// # Errors
    /// The system provides no runtime or no thread.
    pub(super) fn start(&self, engine: Weak<Engine>) -> io::Result<()> {
        let exporter = self.exporter.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(exporter) = exporter else { return Ok(()) };
        let thread = exporter.spawn(engine)?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Called when the server drains: spans no longer wait for more, so that few spans remain at
    /// the end.
    pub(super) fn drain(&self) {
        self.state.drain();
    }

    /// Sends the remaining spans, and waits at most `SPANS_FLUSH_MS` until they are sent.
    pub(super) fn end(&self) {
        self.state.end(Instant::now() + Duration::from_millis(SPANS_FLUSH_MS));
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic was reported when it happened.
        let _ = thread.map(JoinHandle::join);
    }

    /// The numbers of accepted and of lost spans: lost because the queue was full, because the
    /// collector refused them, or because the collector could not be reached.
    pub(super) fn counts(&self) -> (u64, [(&'static str, u64); 3]) {
        let ExportState { sent, full, refused, failed, .. } = &*self.state;
        let lost = [("queue", full), ("refused", refused), ("failed", failed)];
        (sent.load(Relaxed), lost.map(|(why, count)| (why, count.load(Relaxed))))
    }

    fn push(&self, record: SpanRecord) {
        let ended = EndedSpan { record, ended_ns: self.clock_ns() };
        // Counted before the thread can take the span.
        let before = self.state.queued.fetch_add(1, Relaxed);
        if self.queue.try_send(ended).is_err() {
            self.state.queued.fetch_sub(1, Relaxed);
            self.state.full.fetch_add(1, Relaxed);
        } else if before + 1 == self.state.enough() {
            self.state.wake();
        }
    }
}

impl Tracer for Traces {
    fn clock_ns(&self) -> u64 {
        monotonic_ns()
    }

    /// Servers with the same ratio agree: they use the same bits as OpenTelemetry's samplers.
    fn samples(&self, trace_id: u128) -> bool {
        const ALL: u64 = 1 << 56;
        match self.one_of {
            0 => false,
            one_of => (trace_id as u64) % ALL < ALL / u64::from(one_of),
        }
    }

    fn turn_ended(&self, turn: TurnRecord) {
        self.push(SpanRecord::Turn(Box::new(turn)));
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        self.state.end(Instant::now());
    }
}

/// The observer of a server with traces: a separate type, so that a server without traces has no
/// cost.
pub(super) struct TracedObservers {
    pub(super) others: Arc<Observers>,
    pub(super) traces: Arc<Traces>,
}

impl CallObserver for TracedObservers {
    fn clock_ns(&self) -> u64 {
        self.others.clock_ns()
    }

    fn turned_ns(&self, worker: usize) -> u64 {
        self.others.turned_ns(worker)
    }

    fn keeps_turns(&self) -> bool {
        self.others.keeps_turns()
    }

    fn wants_details(&self) -> bool {
        true
    }

    fn wants_refusals(&self) -> bool {
        self.others.wants_refusals()
    }

    fn request_refused(&self, refused: &RefusedRequest<'_>) {
        self.others.request_refused(refused);
    }

    fn call_ended(&self, call: &CallRecord) {
        self.others.record_call(call, self.others.wants_line());
        if call.details.as_deref().is_some_and(|details| details.span.is_some()) {
            self.traces.push(SpanRecord::Call(Box::new(call.clone())));
        }
    }

    fn filter_ignored(&self, name: &str) {
        self.others.filter_ignored(name);
    }

    fn limit_hit(&self, hit: &LimitHit<'_>) {
        self.others.limit_hit(hit);
    }

    fn peer_slowed(&self, address: IpAddr) {
        self.others.peer_slowed(address);
    }

    fn caller_checked(&self, worker: usize, outcome: AuthOutcome) {
        self.others.caller_checked(worker, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(one_of: u32) -> Traces {
        let collector = TraceCollector::new("http://127.0.0.1:1").unwrap().sample_one_of(one_of);
        Traces::new(collector).unwrap()
    }

    fn turn() -> TurnRecord {
        use crate::service::trace::{CallSpan, TurnEnd};
        TurnRecord {
            call: CallSpan { trace_id: 1, span_id: 2, parent_id: None },
            span_id: 3,
            agent: "echo".into(),
            upstream: None,
            began_ns: 0,
            end: TurnEnd::Replied,
        }
    }

    #[test]
    fn one_of_n_traces_is_sampled() {
        let ids = (0..1_000u128).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let of = |one_of| {
            let traces = traces(one_of);
            ids.clone().filter(|id| traces.samples(*id)).count()
        };
        assert_eq!((of(0), of(1)), (0, 1_000));
        assert!((400..600).contains(&of(2)) && (60..140).contains(&of(10)));
    }

    #[test]
    fn full_queue_delays_no_caller_and_counts_lost_spans() {
        let traces = traces(1);
        (0..SPANS_QUEUED_MAX + 7).for_each(|_| traces.turn_ended(turn()));
        assert_eq!(traces.counts(), (0, [("queue", 7), ("refused", 0), ("failed", 0)]));
    }

    #[test]
    fn span_after_the_end_is_counted_as_lost() {
        let traces = traces(1);
        traces.start(Weak::new()).unwrap();
        traces.end();
        traces.turn_ended(turn());
        assert_eq!(traces.counts().1[0], ("queue", 1));
    }
}
