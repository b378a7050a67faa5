//! Observes the responses of a call: the time of the first head, the number of requests, the media
//! types.

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
    /// The probe of the calls that are being polled in this thread.
    static CURRENT: RefCell<Option<Arc<CallProbe>>> = const { RefCell::new(None) };
}

/// The observations of the current call.
#[derive(Debug)]
pub struct CallProbe {
    start: Instant,
    /// True: media types are checked.
    checks_media: bool,
    /// Nanoseconds since `start` to the head of the first response; 0: none has arrived.
    first_byte_ns: AtomicU64,
    /// Requests since the call began.
    requests: AtomicU64,
    /// True: a response had a media type that A2A does not use.
    has_other_media: AtomicBool,
}

impl CallProbe {
    /// A probe with times relative to `start`; `checks_media`: media types are checked.
    pub fn new(start: Instant, checks_media: bool) -> Arc<CallProbe> {
        Arc::new(CallProbe {
            start,
            checks_media,
            first_byte_ns: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            has_other_media: AtomicBool::new(false),
        })
    }

    /// Resets the observations before a new call.
    pub fn clear(&self) {
        self.first_byte_ns.store(0, Relaxed);
        self.requests.store(0, Relaxed);
        self.has_other_media.store(false, Relaxed);
    }

    /// Checks that all responses had a media type of A2A.
    ///
    /// # Errors
    /// A response had another media type, or none.
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

    /// The time at which the head of the first response had arrived; `None`: no response arrived,
    /// such as for a call on an open WebSocket.
    pub fn first_byte_ns(&self) -> Option<u64> {
        Some(self.first_byte_ns.load(Relaxed)).filter(|ns| *ns > 0)
    }

    fn note_head<R: HttpResponse>(&self, response: &R) {
        // A2A 1.0 §9.1 and §11.1; the response that opens a WebSocket (101) has no media type.
        if self.checks_media && response.status() == 200 && !head_of(response).is_of_a2a() {
            self.has_other_media.store(true, Relaxed);
        }
        let now_ns = self.start.elapsed().as_nanos() as u64;
        // Only the head of the first response counts.
        let _ = self.first_byte_ns.compare_exchange(0, now_ns, Relaxed, Relaxed);
    }

    /// Runs consecutive calls with this probe.
    pub fn over<F: Future>(self: &Arc<Self>, calls: F) -> ProbedCalls<F> {
        ProbedCalls { probe: Some(Arc::clone(self)), calls: Box::pin(calls) }
    }
}

/// Calls that are polled with a probe.
pub struct ProbedCalls<F> {
    /// `None` while the calls are being polled.
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

/// A transport that notes in the probe of the call when response heads arrive.
#[derive(Clone)]
pub struct ProbedTransport<T> {
    /// The transport that sends the requests.
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
