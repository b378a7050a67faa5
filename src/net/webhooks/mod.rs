//! The webhook worker: delivers to webhooks, on a separate thread.
//!
//! Invariants: the [`Outbox`] decides what to deliver, and when; it receives the outcome of each
//! request once. A connection is opened only if the outbox allows all addresses of the name. The
//! thread ends with its owner, and drops attempts in flight without a report.

mod post;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker},
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use crate::{
    client::Transport,
    limits::webhooks::{
        WEBHOOK_IDLE_PER_ORIGIN_MAX, WEBHOOK_ORIGINS_MAX, WEBHOOK_POST_MS, WEBHOOK_RESTS_MAX,
    },
    push::{
        outbox::{NextRequest, Outbox, PostOutcome, PostRequest},
        url_origin,
    },
    service::Now,
};

use self::post::PostBuffers;
use super::{
    ConnectGuard, HttpClient, HttpClientError, HttpClientOptions, Proxies,
    background::{BackgroundState, BackgroundThread},
    clock::unix_ms,
    own_address::is_own,
    report,
};

/// The longest wait until the outbox is called again.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// The shortest wait: an outbox with a slow clock must not cause a busy loop.
const SHORTEST: Duration = Duration::from_millis(1);

/// Milliseconds before an outbox that has panicked is called again.
const AFTER_PANIC_MS: u64 = 1_000;

/// Buffers that are retained for further deliveries.
const BUFFERS_RETAINED_MAX: usize = 16;

/// Sends the deliveries of an outbox. Dropping this value ends them.
pub struct WebhookWorker {
    _thread: BackgroundThread,
}

impl fmt::Debug for WebhookWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookWorker")
    }
}

impl WebhookWorker {
    /// Starts the thread; `mono_ms` is [`Now::mono_ms`] of the outbox's clock. The worker ignores
    /// the proxies of `options`, since a proxy hides the receiver's address, and `body_bytes_max`,
    /// since no answer is copied; the guard of `options` is called before the outbox.
    ///
    /// # Errors
    /// [`HttpClientError::File`]: certificates or keys in `options` cannot be used.
    /// [`HttpClientError::System`]: the system provides no random bits or no thread, or TLS cannot
    /// be set up.
    pub fn start(
        outbox: Arc<dyn Outbox>,
        options: HttpClientOptions,
        mono_ms: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<WebhookWorker, HttpClientError> {
        WebhookWorker::start_within(WEBHOOK_POST_MS, outbox, options, mono_ms)
    }

    /// Like [`WebhookWorker::start`], with `post_ms` for each attempt.
    fn start_within(
        post_ms: u64,
        outbox: Arc<dyn Outbox>,
        options: HttpClientOptions,
        mono_ms: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<WebhookWorker, HttpClientError> {
        let client = HttpClient::new(guarded(options, &outbox))?;
        let (mono_ms, free_buffers) = (Box::new(mono_ms), Mutex::default());
        let rests = Semaphore::new(WEBHOOK_RESTS_MAX);
        let worker = move |state| DeliveryWorker {
            outbox,
            client,
            mono_ms,
            post_ms,
            state,
            free_buffers,
            rests,
        };
        let work = move |state| run(Arc::new(worker(state)));
        let thread = BackgroundThread::start("peregrine-hooks", work);
        let no_thread = |error: io::Error| HttpClientError::System(error.to_string());
        Ok(WebhookWorker { _thread: thread.map_err(no_thread)? })
    }
}

/// Restricts options: a caller's webhook reaches no address that the outbox refuses, and holds no
/// more than the limits of webhooks.
fn guarded(options: HttpClientOptions, outbox: &Arc<dyn Outbox>) -> HttpClientOptions {
    let HttpClientOptions { mut limits, tls, proxies: _, guard, user_agent } = options;
    limits.pool_per_origin_max = limits.pool_per_origin_max.min(WEBHOOK_IDLE_PER_ORIGIN_MAX);
    limits.pool_origins_max = limits.pool_origins_max.min(WEBHOOK_ORIGINS_MAX);
    // Answers are not stored, and only a small part is read.
    limits.body_bytes_max = usize::MAX;
    let outbox = Arc::clone(outbox);
    let guard = ConnectGuard::new(move |origin, address| {
        guard.check(origin, address)?;
        let (name, address) = (origin.host_name(), address.ip());
        outbox.check_address(name, address, &is_own).map_err(|error| error.to_string())
    });
    HttpClientOptions { limits, tls, proxies: Proxies::none(), guard: guard.strict(), user_agent }
}

/// The state that the thread and its attempts share.
struct DeliveryWorker {
    outbox: Arc<dyn Outbox>,
    client: HttpClient,
    mono_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    post_ms: u64,
    state: Arc<BackgroundState>,
    free_buffers: Mutex<Vec<PostBuffers>>,
    /// Permits to read the rest of an answer after its delivery was reported.
    rests: Semaphore,
}

/// Runs until the owner was dropped. The outbox decides how many attempts run concurrently.
async fn run(worker: Arc<DeliveryWorker>) {
    let mut timer = pin!(sleep(Duration::ZERO));
    poll_fn(|cx| {
        worker.state.set_waker(cx.waker());
        loop {
            if worker.state.is_stopped() {
                return Poll::Ready(());
            }
            let (now, mut buffers) = (worker.now(), worker.take_buffers());
            match worker.next_request(now, cx.waker(), &mut buffers.request) {
                NextRequest::Post => {
                    let worker = Arc::clone(&worker);
                    tokio::spawn(PostInFlight { worker, buffers, is_reported: false }.run());
                }
                NextRequest::At(until_ms) => {
                    worker.keep_buffers(buffers);
                    let pause = Duration::from_millis(until_ms.saturating_sub(now.mono_ms));
                    timer.as_mut().reset(Instant::now() + pause.clamp(SHORTEST, LONGEST));
                    if timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                NextRequest::Never => {
                    worker.keep_buffers(buffers);
                    return Poll::Pending;
                }
            }
        }
    })
    .await;
}

impl DeliveryWorker {
    /// The next request of the outbox. An outbox that panics is called again a little later: all of
    /// its webhooks depend on this worker.
    fn next_request(&self, now: Now, wake: &Waker, request: &mut PostRequest) -> NextRequest {
        let next = || self.outbox.next(now, wake, request);
        let later = |_| NextRequest::At(now.mono_ms + AFTER_PANIC_MS);
        catch_unwind(AssertUnwindSafe(next)).unwrap_or_else(later)
    }

    fn now(&self) -> Now {
        Now { mono_ms: (self.mono_ms)(), unix_ms: unix_ms() }
    }

    fn take_buffers(&self) -> PostBuffers {
        self.free_buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn keep_buffers(&self, buffers: PostBuffers) {
        let mut free_buffers = self.free_buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if free_buffers.len() < BUFFERS_RETAINED_MAX && buffers.are_small() {
            free_buffers.push(buffers);
        }
    }
}

/// A request of the outbox, until its outcome is reported.
struct PostInFlight {
    worker: Arc<DeliveryWorker>,
    buffers: PostBuffers,
    is_reported: bool,
}

impl PostInFlight {
    async fn run(mut self) {
        let worker = Arc::clone(&self.worker);
        let (outcome, rest) = self.buffers.post(&worker.client, worker.post_ms).await;
        self.report(outcome);
        drop(self);
        if let (Some(rest), Ok(_permit)) = (rest, worker.rests.try_acquire()) {
            rest.read_away().await;
        }
    }

    fn report(&mut self, outcome: PostOutcome) {
        self.is_reported = true;
        let worker = &*self.worker;
        let origin = url_origin(&self.buffers.request.url);
        match &outcome {
            PostOutcome::Delivered => {}
            PostOutcome::Gone => report::not_posted(origin, &"it accepts no more posts (410)"),
            PostOutcome::Refused { why, .. }
            | PostOutcome::Unwell { why, .. }
            | PostOutcome::Failed { why, .. } => {
                report::not_posted(origin, why);
            }
        }
        let random = worker.client.random() as u64;
        worker.outbox.done(&self.buffers.request, outcome, worker.now(), random);
        worker.keep_buffers(std::mem::take(&mut self.buffers));
        worker.state.wake();
    }
}

impl Drop for PostInFlight {
    /// Also reports an attempt that has panicked: otherwise its webhook would wait for ever.
    fn drop(&mut self) {
        if !self.is_reported && !self.worker.state.is_stopped() {
            let why = "the post was interrupted".to_owned();
            self.report(PostOutcome::Failed { why, retry_after_ms: None });
        }
    }
}
