//! What happens inside a call: when the head of its response came.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Instant,
};

use crate::{
    client::{HttpRequest, HttpResponse, Tick, Transport, TransportError, head_of},
    service::Now,
};

use super::failure::CallFailure;

thread_local! {
    /// The call that is being polled in this thread.
    static CURRENT: RefCell<Option<Arc<CallProbe>>> = const { RefCell::new(None) };
}

/// The observations of one call at a time.
#[derive(Debug)]
pub struct CallProbe {
    start: Instant,
    /// Whether media types are looked at.
    checks_media: bool,
    /// Nanoseconds since `start`; 0: not yet.
    first_byte_ns: AtomicU64,
    /// Requests since the call began.
    requests: AtomicU64,
    /// A response had a media type that is not of A2A.
    has_other_media: AtomicBool,
}

impl CallProbe {
    /// A probe whose times count from `start`; `checks_media`: it checks media types.
    pub fn new(start: Instant, checks_media: bool) -> Arc<CallProbe> {
        Arc::new(CallProbe {
            start,
            checks_media,
            first_byte_ns: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            has_other_media: AtomicBool::new(false),
        })
    }

    /// Forgets the call before.
    pub fn clear(&self) {
        self.first_byte_ns.store(0, Relaxed);
        self.requests.store(0, Relaxed);
        self.has_other_media.store(false, Relaxed);
    }

    /// Checks that all responses were of a media type of A2A.
    ///
    /// # Errors
    /// One was of another, or of none.
    pub(super) fn check_media(&self) -> Result<(), CallFailure> {
        match self.has_other_media.load(Relaxed) {
            false => Ok(()),
            true => {
                let why = "the Content-Type of an answer must be JSON, an event stream or gRPC";
                Err(CallFailure::wrong("content_type", why))
            }
        }
    }

    /// Requests since the call began.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// When the head of the first response had come; `None`: there was none, as with a WebSocket
    /// that was open.
    pub fn first_byte_ns(&self) -> Option<u64> {
        Some(self.first_byte_ns.load(Relaxed)).filter(|ns| *ns > 0)
    }

    fn note_head<R: HttpResponse>(&self, response: &R) {
        // A2A 1.0 §9.1 and §11.1; a WebSocket that opens (101) has none.
        if self.checks_media && response.status() == 200 && !head_of(response).is_of_a2a() {
            self.has_other_media.store(true, Relaxed);
        }
        let now_ns = self.start.elapsed().as_nanos() as u64;
        // A repetition is not the first one.
        let _ = self.first_byte_ns.compare_exchange(0, now_ns, Relaxed, Relaxed);
    }

    /// Runs calls, one after the other, under this probe.
    pub fn over<F: Future>(self: &Arc<Self>, calls: F) -> ProbedCalls<F> {
        ProbedCalls { probe: Some(Arc::clone(self)), calls: Box::pin(calls) }
    }
}

/// Calls under a probe.
pub struct ProbedCalls<F> {
    /// There but while the calls are polled.
    probe: Option<Arc<CallProbe>>,
    calls: Pin<Box<F>>,
}

impl<F: Future> Future for ProbedCalls<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        CURRENT.set(self.probe.take());
        let polled = self.calls.as_mut().poll(cx);
        self.probe = CURRENT.take();
        polled
    }
}

/// A transport that tells the probe of the call when heads of responses come.
#[derive(Clone)]
pub struct ProbedTransport<T> {
    /// Brings the requests.
    pub inner: T,
}

impl<T: Transport> Transport for ProbedTransport<T> {
    type Response = T::Response;

    async fn request(&self, request: HttpRequest<'_>) -> Result<T::Response, TransportError> {
        CURRENT.with_borrow(|current| {
            if let Some(probe) = current {
                probe.requests.fetch_add(1, Relaxed);
            }
        });
        let response = self.inner.request(request).await?;
        CURRENT.with_borrow(|current| current.iter().for_each(|probe| probe.note_head(&response)));
        Ok(response)
    }

    async fn sleep_until(&self, due_ms: u64) {
        self.inner.sleep_until(due_ms).await;
    }

    fn now(&self) -> Now {
        self.inner.now()
    }

    fn mono_ms(&self) -> u64 {
        self.inner.mono_ms()
    }

    fn random(&self) -> u128 {
        self.inner.random()
    }

    fn every(&self, ms: u64, tick: Tick) {
        self.inner.every(ms, tick);
    }
}
