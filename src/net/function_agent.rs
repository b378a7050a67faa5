//! Agents that are HTTP functions: each turn is a POST, and the answer contains the events.
//!
//! Invariants: a turn is posted once. The POST is repeated only if the function cannot have read
//! it, and once with another OAuth token after a 401. Redirects are not followed, and credentials
//! are sent only to https or to this machine.

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    HttpClient, HttpClientError, HttpClientOptions, HttpClientResponse,
    async_agent::start_future,
    clock::monotonic_ns,
    function_answer::{FunctionAnswer, read_start},
    line_turn::{NextEvent, next_event, publish_events, write_turn},
    turn_queue::TurnQueue,
    worker_clients::WorkerClients,
};
use crate::{
    agent::{Agent, Deferred, Turn},
    client::{
        ClientLimits, FieldLinesBuf, HttpMethod, HttpOrigin, HttpRequest, HttpResponse, HttpUrl,
        HttpVersion, OutgoingTerms, Transport, TransportError, UrlError,
        credentials::{
            Credentials, CredentialsError, HeldToken, OAuthClient, OAuthError, TokenCache,
            plan_without_card,
        },
    },
    fault::{Fault, FaultKind},
    gateway::transport_outcome,
    limits::{AGENT_SILENCE_MS, AGENT_TURNS_MAX, AGENT_TURNS_QUEUED_MAX},
    service::upstream::{UpstreamCall, UpstreamMeter, UpstreamOutcome},
};

/// Default milliseconds until an answer begins.
const CALL_MS: u64 = 120_000;
/// Bytes of a function's error answer that a client sees.
const REFUSAL_BYTES: usize = 4 * 1024;

/// The options of an HTTP function.
#[derive(Clone, Debug)]
pub struct FunctionOptions {
    /// An API key is sent in `X-API-Key`, a bearer token, an OAuth token or a password in
    /// `Authorization`; only to https or to this machine. A caller's credential is passed on if the
    /// agent's profile names its header field.
    pub credentials: Credentials,
    /// Milliseconds until the answer begins.
    pub call_ms: u64,
    /// Milliseconds after which the turn fails if no further byte of a started answer arrives.
    pub silence_ms: u64,
    /// Maximum number of concurrent requests.
    pub turns_max: usize,
    /// Maximum number of turns that wait to be sent; the next turn is refused (-32000,
    /// `turns_queued_max`).
    pub queue_max: usize,
    /// True: a turn that continues a task contains the earlier messages of the task.
    pub history: bool,
    /// True: a client sees the first 4 KiB of an answer with a status other than 2xx.
    pub show_errors: bool,
}

impl Default for FunctionOptions {
    fn default() -> FunctionOptions {
        FunctionOptions {
            credentials: Credentials::default(),
            call_ms: CALL_MS,
            silence_ms: AGENT_SILENCE_MS,
            turns_max: AGENT_TURNS_MAX,
            queue_max: AGENT_TURNS_QUEUED_MAX,
            history: false,
            show_errors: false,
        }
    }
}

/// Errors of the configuration of a function agent.
#[derive(Debug)]
pub enum FunctionAgentError {
    /// The URL is invalid.
    Url(UrlError),
    /// The credentials cannot be used.
    Credentials(CredentialsError),
    /// The HTTP client cannot be created.
    Client(HttpClientError),
}

impl fmt::Display for FunctionAgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionAgentError::Url(error) => write!(f, "{error}"),
            FunctionAgentError::Credentials(error) => write!(f, "{error}"),
            FunctionAgentError::Client(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for FunctionAgentError {}

/// An agent that posts its turns to an HTTP function.
///
/// The body of a request is the JSON line of a turn, and the answer has one event or several: as
/// JSON, as JSON lines or as an event stream; see `docs/guide/any-language.md`. The end of the
/// answer completes the task, unless its events ended the task. If the task is canceled or has
/// ended, the connection of the answer is closed. The agent runs only under
/// [`Server`](crate::net::Server).
pub struct FunctionAgent {
    function: Arc<HttpFunction>,
    queue: Arc<TurnQueue>,
}

struct HttpFunction {
    url: HttpUrl,
    options: FunctionOptions,
    /// The header fields of every request.
    fields: FieldLinesBuf,
    oauth: Option<OAuthClient>,
    passes_on: bool,
    limits: ClientLimits,
    /// The template for the workers' clients.
    client: HttpClient,
    clients: WorkerClients<HttpClient>,
    /// The OAuth token, shared by all workers.
    tokens: TokenCache,
    turns: AtomicU64,
    meter: Arc<UpstreamMeter>,
}

impl FunctionAgent {
    /// Creates the agent of the function at `url`. No request is sent before the first message.
    ///
    /// # Errors
    /// [`FunctionAgentError`]
    pub fn new(
        url: &str,
        options: FunctionOptions,
        client_options: HttpClientOptions,
    ) -> Result<FunctionAgent, FunctionAgentError> {
        let url = HttpOrigin::parse(url).map_err(FunctionAgentError::Url)?;
        let plan = plan_without_card(&options.credentials, &url.origin);
        let plan = plan.map_err(FunctionAgentError::Credentials)?;
        let oauth = options.credentials.oauth.clone().filter(|_| plan.needs_token());
        let limits = client_options.limits.clone();
        let client = HttpClient::new(client_options).map_err(FunctionAgentError::Client)?;
        let mut fields = FieldLinesBuf::default();
        fields.push("Content-Type", "application/json");
        fields.push("Accept", "application/json, application/x-ndjson, text/event-stream");
        let fields = FieldLinesBuf::of(&[fields.get(), plan.fields()]);
        let queue = TurnQueue::new(options.turns_max, options.queue_max);
        let origin = Some(url.origin.to_string());
        let function = HttpFunction {
            url,
            options,
            fields,
            oauth,
            passes_on: plan.passes_on(),
            limits,
            client,
            clients: WorkerClients::default(),
            tokens: TokenCache::default(),
            turns: AtomicU64::new(1),
            meter: UpstreamMeter::new(origin, monotonic_ns),
        };
        Ok(FunctionAgent { function: Arc::new(function), queue })
    }
}

impl Agent for FunctionAgent {
    fn start(&self, turn: Turn<'_>) {
        let Some(queued) = self.queue.enter(turn.request.scope.owner) else {
            self.function.meter.refuse();
            return turn.refuse(Fault::at_limit("turns_queued_max"));
        };
        let function = Arc::clone(&self.function);
        let logged = function.meter.log(turn.request.headers.fields);
        start_future(turn, |deferred: Deferred| {
            let mut call = function.meter.message().logged(logged);
            async move {
                let Some(_permit) = queued.permit(deferred.canceled()).await else { return };
                call.send();
                function.run(deferred, call).await;
            }
        });
    }

    fn upstream(&self) -> Option<Arc<UpstreamMeter>> {
        Some(Arc::clone(&self.function.meter))
    }
}

impl HttpFunction {
    /// Posts a turn, and publishes the events of the answer.
    async fn run(&self, deferred: Deferred, call: UpstreamCall) {
        let Ok(answered) = deferred.canceled().race(pin!(self.post(&deferred))).await else {
            return;
        };
        let mut answer = match answered {
            Ok(answer) => answer,
            Err(none) => return none.refuse(deferred, call),
        };
        let Ok(first) = next_event(&mut answer, &mut deferred.canceled()).await else { return };
        match first {
            NextEvent::Event(_) => {
                // On an error the task has ended or was canceled; dropping the answer closes its
                // connection.
                let _ = publish_events(first, &mut answer, deferred, call).await;
            }
            NextEvent::Failed(reason) => wrong_answer(reason).refuse(deferred, call),
            NextEvent::End => {
                let reason = "the answer of the function has no event".to_owned();
                wrong_answer(reason).refuse(deferred, call);
            }
        }
    }

    /// Posts a turn; returns the answer with its complete head.
    async fn post(&self, deferred: &Deferred) -> Result<FunctionAnswer, NoAnswer> {
        let client = self.client().map_err(|error| {
            not_called(FaultKind::Internal, &error, UpstreamOutcome::Unreachable)
        })?;
        let mut body = Vec::new();
        let number = self.turns.fetch_add(1, Ordering::Relaxed);
        write_turn(number, deferred, self.options.history, &mut body);
        let terms = OutgoingTerms::of(deferred.request());
        let mut is_second = false;
        loop {
            let mut fields = self.fields.clone();
            let token = self.token(&client).await.map_err(no_token)?;
            if let Some(token) = &token {
                fields.extend(token.fields());
            }
            let passed = deferred.request().header("authorization").filter(|_| self.passes_on);
            if let Some(passed) = passed {
                fields.push("Authorization", passed);
            }
            let remaining_ms = terms.remaining_ms(|| client.now());
            terms.write(remaining_ms, false, &mut fields);
            let call_ms = self.options.call_ms.min(remaining_ms.unwrap_or(u64::MAX));
            let request = HttpRequest {
                method: HttpMethod::Post,
                origin: &self.url.origin,
                target: &self.url.path,
                fields: fields.get(),
                body: &body,
                version: HttpVersion::Any,
                head_due_ms: client.mono_ms().saturating_add(call_ms),
                body_idle_ms: self.options.silence_ms,
                is_repeatable: false,
            };
            let response = client.request(request).await.map_err(not_reached)?;
            match (response.status(), token) {
                (200..=299, _) => return FunctionAnswer::new(response).map_err(wrong_answer),
                // The token may have been revoked.
                (401, Some(refused)) if !is_second => {
                    self.tokens.forget(&refused);
                    is_second = true;
                }
                (_, _) => return Err(self.refusal(response).await),
            }
        }
    }

    /// The OAuth token; `None`: the function needs none.
    async fn token(&self, client: &HttpClient) -> Result<Option<Arc<HeldToken>>, OAuthError> {
        match &self.oauth {
            Some(oauth) => self.tokens.token(client, oauth, &self.limits).await.map(Some),
            None => Ok(None),
        }
    }

    fn client(&self) -> Result<HttpClient, HttpClientError> {
        if let Some(client) = self.clients.own() {
            return Ok(client);
        }
        let client = self.client.apart()?;
        self.clients.keep(client.clone());
        Ok(client)
    }

    /// The error for an answer with a status other than 2xx.
    async fn refusal(&self, mut response: HttpClientResponse) -> NoAnswer {
        let status = response.status();
        let mut text = format!("the function answered with HTTP {status}");
        let (kind, outcome) = match status {
            300..=399 => {
                text.push_str(", and redirects are not followed");
                (FaultKind::InvalidAgentResponse, UpstreamOutcome::InvalidAnswer)
            }
            401 | 403 => (FaultKind::Internal, UpstreamOutcome::Unauthorized),
            429 => (FaultKind::Overloaded, UpstreamOutcome::Fault),
            502..=504 => (FaultKind::ShuttingDown, UpstreamOutcome::Fault),
            _ => (FaultKind::InvalidAgentResponse, UpstreamOutcome::Fault),
        };
        let seconds = |value: &[u8]| std::str::from_utf8(value).ok()?.trim().parse().ok();
        let retry_s = response.field("retry-after").and_then(seconds);
        if self.options.show_errors {
            let body = read_start(&mut response, REFUSAL_BYTES).await;
            text = format!("{text}: {}", String::from_utf8_lossy(&body).trim());
        }
        NoAnswer { fault: Fault { retry_s, ..Fault::because(kind, text) }, outcome }
    }
}

/// Why a turn has no answer: the fault for the caller, and the outcome for metrics.
struct NoAnswer {
    fault: Fault,
    outcome: UpstreamOutcome,
}

impl NoAnswer {
    fn refuse(self, deferred: Deferred, mut call: UpstreamCall) {
        call.end(self.outcome);
        deferred.refuse(self.fault);
    }
}

fn wrong_answer(reason: String) -> NoAnswer {
    let fault = Fault::because(FaultKind::InvalidAgentResponse, reason);
    NoAnswer { fault, outcome: UpstreamOutcome::InvalidAnswer }
}

fn not_called(kind: FaultKind, error: &dyn fmt::Display, outcome: UpstreamOutcome) -> NoAnswer {
    let fault = Fault::because(kind, format!("the function cannot be called: {error}"));
    NoAnswer { fault, outcome }
}

/// The error if there is no OAuth token.
fn no_token(error: OAuthError) -> NoAnswer {
    let kind = match error {
        OAuthError::Transport(_) => FaultKind::ShuttingDown,
        _ => FaultKind::Internal,
    };
    not_called(kind, &error, UpstreamOutcome::Unauthorized)
}

/// The error if no answer has begun.
fn not_reached(error: TransportError) -> NoAnswer {
    let kind = match error {
        TransportError::Resolve(_)
        | TransportError::Connect(_)
        | TransportError::Refused(_)
        | TransportError::Tls(_)
        | TransportError::Proxy(_)
        | TransportError::Closed { .. } => FaultKind::ShuttingDown,
        _ => FaultKind::InvalidAgentResponse,
    };
    not_called(kind, &error, transport_outcome(&error))
}
