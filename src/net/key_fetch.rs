//! Fetches the keys of issuers, on a separate thread.
//!
//! Invariants: [`Callers`] decides what to fetch, and when; this thread sends the requests with the
//! client's transport. A fetch ends by its deadline and holds at most the size limit of a document.
//! The thread ends with its owner and drops unfinished fetches.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    auth::{Callers, FetchedDocument, KeyFetch, NextFetch},
    client::{
        HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpVersion, SizeLimit, Transport,
        read_all, redirect,
    },
    http::{FieldLines, field_lines},
    limits::callers::{ISSUER_DOCUMENT_BYTES_MAX, ISSUER_REDIRECTS_MAX},
    service::Now,
};

use super::{
    HttpClient, HttpClientError, HttpClientOptions,
    background::{BackgroundState, BackgroundThread},
    clock::unix_ms,
    report,
};

const FIELDS: FieldLines<'static> = field_lines!("Accept": "application/json");

/// The longest wait until the next fetch is determined again.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Fetches the keys of the issuers that [`Callers`] trusts. Dropping this value ends all fetches.
///
/// [`Running::fetch_keys`](super::Running::fetch_keys) starts one for a server; a program without a
/// server starts it directly.
pub struct KeyFetcher {
    _thread: BackgroundThread,
}

impl fmt::Debug for KeyFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFetcher")
    }
}

impl KeyFetcher {
    /// Starts fetching; `mono_ms` is [`Now::mono_ms`] of the authenticator's clock.
    ///
    /// # Errors
    /// [`HttpClientError`]
    pub fn start(
        callers: Arc<Callers>,
        options: HttpClientOptions,
        mono_ms: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<KeyFetcher, HttpClientError> {
        let client = HttpClient::new(options)?;
        let mono_ms = Arc::new(mono_ms);
        let work = |state| Fetching { callers, client, mono_ms, state }.run();
        let thread = BackgroundThread::start("peregrine-keys", work);
        let no_thread = |error: io::Error| HttpClientError::System(error.to_string());
        Ok(KeyFetcher { _thread: thread.map_err(no_thread)? })
    }
}

/// The state of the thread.
struct Fetching {
    callers: Arc<Callers>,
    client: HttpClient,
    mono_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    state: Arc<BackgroundState>,
}

impl Fetching {
    /// Runs until the owner was dropped. Each issuer has at most one fetch in flight.
    async fn run(self) {
        let mut timer = pin!(sleep(Duration::ZERO));
        poll_fn(|cx| {
            self.state.set_waker(cx.waker());
            if self.state.is_stopped() {
                return Poll::Ready(());
            }
            loop {
                let now = now(&*self.mono_ms);
                match self.callers.next_fetch(now, cx.waker()) {
                    NextFetch::Fetch(next) => {
                        let (client, state) = (self.client.clone(), Arc::clone(&self.state));
                        let mono_ms = Arc::clone(&self.mono_ms);
                        tokio::spawn(async move {
                            fetch(&client, next, &*mono_ms).await;
                            state.wake();
                        });
                    }
                    NextFetch::Wait(until_ms) => {
                        let pause = Duration::from_millis(until_ms.saturating_sub(now.mono_ms));
                        timer.as_mut().reset(Instant::now() + pause.min(LONGEST));
                        if timer.as_mut().poll(cx).is_pending() {
                            return Poll::Pending;
                        }
                    }
                }
            }
        })
        .await;
    }
}

fn now(mono_ms: &(dyn Fn() -> u64 + Send + Sync)) -> Now {
    Now { mono_ms: mono_ms(), unix_ms: unix_ms() }
}

/// Fetches a document, and the documents that it refers to.
async fn fetch(client: &HttpClient, next: KeyFetch, mono_ms: &(dyn Fn() -> u64 + Send + Sync)) {
    let mut next = Some(next);
    while let Some(fetch) = next {
        let remaining_ms = fetch.due_ms().saturating_sub(mono_ms());
        let fetched = get(client, &fetch, remaining_ms).await;
        if let Err(why) = &fetched {
            report::keys_not_fetched(fetch.url(), why);
        }
        next = fetch.end(now(mono_ms), fetched);
    }
}

/// Returns the content of an answer with status 200, or the error.
async fn get(
    client: &HttpClient,
    fetch: &KeyFetch,
    remaining_ms: u64,
) -> Result<FetchedDocument, String> {
    let due_ms = client.mono_ms().saturating_add(remaining_ms);
    let mut url = HttpOrigin::parse(fetch.url()).map_err(|error| error.to_string())?;
    for redirects in 0.. {
        let request = HttpRequest {
            method: HttpMethod::Get,
            origin: &url.origin,
            target: &url.path,
            fields: FIELDS,
            body: b"",
            version: HttpVersion::Any,
            head_due_ms: due_ms,
            body_idle_ms: remaining_ms,
            is_repeatable: true,
        };
        let mut response = client.request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        if redirect::is_redirect(status) {
            let location = response.field("location");
            let (get, most) = (HttpMethod::Get, ISSUER_REDIRECTS_MAX);
            let next = redirect::next(get, &url, location, redirects, most);
            url = next.map_err(|error| error.to_string())?.url;
            if !fetch.may_go_to(&url.to_string()) {
                return Err("the redirect does not lead to an https URL".to_owned());
            }
            continue;
        }
        if status != 200 {
            return Err(format!("HTTP status {status}"));
        }
        let mut content = Vec::new();
        let limit =
            SizeLimit { bytes_max: ISSUER_DOCUMENT_BYTES_MAX, name: "ISSUER_DOCUMENT_BYTES_MAX" };
        let read = read_all(client, &mut response, &mut content, limit, due_ms).await;
        read.map_err(|error| error.to_string())?;
        let cache_control = response.field("cache-control");
        let cache_control = cache_control.map(|value| String::from_utf8_lossy(value).into_owned());
        return Ok(FetchedDocument { content, cache_control });
    }
    Err("too many redirects".to_owned())
}
