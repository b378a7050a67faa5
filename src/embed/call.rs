//! A call of the program itself, without HTTP. Request and answers are JSON of A2A 1.0.
//!
//! Internally, a call is an HTTP+JSON [`Exchange`]; the program vouches for the caller. Limits,
//! quotas, idempotency and errors are those of a call over the network.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Wake, Waker},
    time::{Duration, Instant},
};

use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::{
    auth::{CredentialKind, Principal, PrincipalBuf, ScopeSet, TenantGrant, is_name},
    engine::{Exchange, RequestParts},
    http::path,
    limits::{Limits, callers::CALLER_NAME_BYTES_MAX},
    model::{Op, is_agent_name},
    service::{AgentIndex, Peer},
};

use super::{HostAnswer, HostCx, HostEngine, HostError, OpenSlot};

/// The caller of a call, and the agent that it calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostCaller<'a> {
    /// The name of the agent in paths; `None`: the first agent.
    pub agent: Option<&'a str>,
    /// The caller's name, as a trusted proxy would send it; the caller owns its tasks. `None`: an
    /// anonymous caller.
    pub owner: Option<&'a str>,
    /// The tenant; `None`: the tenant in the request, if any.
    pub tenant: Option<&'a str>,
}

/// The result of one [`HostCall::next`].
#[derive(Debug, PartialEq, Eq)]
pub enum HostReply {
    /// The answer, or the next event: JSON of A2A 1.0.
    Json(Vec<u8>),
    /// The call has failed: `{"error": ...}`, as HTTP+JSON has it (A2A 1.0 §11.6).
    Error(Vec<u8>),
    /// No answer arrived in time. The waker of the call is woken when an answer may have arrived.
    /// Nothing wakes the program when this time in ms has passed, although [`HostCall::next`] is
    /// due then; `None`: no such time.
    Waiting(Option<u64>),
    /// Nothing follows.
    Over,
}

/// A call. Its drop counts as a disconnect of the caller.
pub struct HostCall {
    inner: Mutex<CallInner>,
    engine: Arc<HostEngine>,
    slot: OpenSlot,
    bell: Arc<CallBell>,
    wake: Waker,
}

struct CallInner {
    exchange: Exchange,
    answer: HostAnswer,
    out: Vec<u8>,
    has_events: bool,
    /// Bytes of an event that is not complete.
    partial: Vec<u8>,
    replies: VecDeque<HostReply>,
}

/// Wakes the thread that waits for a call, and the waker of the program, if any.
struct CallBell {
    is_rung: Mutex<CallSignal>,
    heard: Condvar,
    also: Option<Waker>,
}

#[derive(Default)]
struct CallSignal {
    is_rung: bool,
    is_closed: bool,
}

impl CallBell {
    fn lock(&self) -> MutexGuard<'_, CallSignal> {
        self.is_rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for CallBell {
    fn wake(self: Arc<Self>) {
        self.lock().is_rung = true;
        self.heard.notify_all();
        self.also.iter().for_each(Waker::wake_by_ref);
    }
}

/// An upper bound of the bytes of a call's head without its target.
const FIELD_BYTES: usize = 256;

/// A request as HTTP+JSON has it.
struct CallRequest<'j> {
    method: &'static str,
    target: String,
    body: Option<std::borrow::Cow<'j, [u8]>>,
}

impl HostCall {
    /// Starts a call; the JSON of a send is read in place. `also` is woken whenever
    /// [`HostCall::next`] may have a result.
    ///
    /// # Errors
    /// [`HostError::Event`]: the request is not a JSON object, or a name of an agent, owner, tenant
    /// or task is invalid or too long for a head (`target_bytes_max`), or `op` is not one of send,
    /// stream, get, list, cancel and subscribe.
    /// [`HostError::Full`]: too many calls, requests and connections of this process are open
    /// (`connections_max`).
    pub fn new(
        engine: &Arc<HostEngine>,
        op: Op,
        request: &[u8],
        caller: HostCaller<'_>,
        also: Option<Waker>,
    ) -> Result<HostCall, HostError> {
        if caller.owner.is_some_and(|owner| !is_name(owner)) {
            let most = CALLER_NAME_BYTES_MAX;
            let rule = format!("the owner must have 1 to {most} bytes and no control characters");
            return Err(wrong(rule));
        }
        let made = CallRequest::new(engine, op, request, caller)?;
        let CallRequest { method, target, body } = made.check_length(engine.engine().limits())?;
        let mut slot = engine.open().ok_or(HostError::Full)?;
        let bell = Arc::new(CallBell { is_rung: Mutex::default(), heard: Condvar::new(), also });
        let wake = Waker::from(Arc::clone(&bell));
        slot.wake_at_cut(&wake);
        let (mut out, mut answer) = (Vec::new(), HostAnswer::default());
        let length = body.as_ref().map_or(0, |body| body.len()).to_string();
        let fields: [(&[u8], &[u8]); 4] = [
            (b"host", b"localhost"),
            (b"a2a-version", b"1.0"),
            (b"content-type", b"application/json"),
            (b"content-length", length.as_bytes()),
        ];
        let count = if body.is_some() { 4 } else { 2 };
        let parts = RequestParts {
            method: method.as_bytes(),
            target: target.as_bytes(),
            authority: None,
            fields: fields.into_iter().take(count),
            has_body: body.is_some(),
            takes_trailers: false,
        };
        let principal = caller.owner.map(|owner| principal(engine, owner, caller.tenant));
        let with = cx(&slot, &wake, &mut out, 0);
        let exchange = engine.with_cx(with, |cx| {
            let mut exchange = Exchange::vouched(cx, parts, principal);
            // `next` reads the outcome.
            let _ = match &body {
                Some(body) => exchange.poll_whole(cx, body, &mut answer),
                None => exchange.poll(cx, &mut answer),
            };
            exchange
        });
        let has_events = op.is_streaming();
        let (partial, replies) = (Vec::new(), VecDeque::new());
        let inner = CallInner { exchange, answer, out, has_events, partial, replies };
        let engine = Arc::clone(engine);
        Ok(HostCall { inner: Mutex::new(inner), engine, slot, bell, wake })
    }

    /// Waits at most `wait` for the next answer. Only one thread at a time may call this.
    pub fn next(&self, wait: Duration) -> HostReply {
        let until = Instant::now().checked_add(wait);
        loop {
            {
                let mut signal = self.bell.lock();
                if signal.is_closed {
                    return HostReply::Over;
                }
                // Cleared before the poll, which may set the flag again.
                signal.is_rung = false;
            }
            let due_ms = {
                let inner = &mut *self.inner.lock().unwrap_or_else(PoisonError::into_inner);
                // Before the next poll: so the stored replies are at most those of one poll.
                if let Some(reply) = inner.replies.pop_front() {
                    return reply;
                }
                let CallInner { exchange, answer, out, .. } = inner;
                let with = cx(&self.slot, &self.wake, out, answer.unsent());
                let _ = self.engine.with_cx(with, |cx| exchange.poll(cx, answer));
                inner.read();
                if let Some(reply) = inner.replies.pop_front() {
                    return reply;
                }
                if inner.answer.is_over {
                    return HostReply::Over;
                }
                inner.exchange.deadline_ms(self.engine.engine().limits())
            };
            let now = Instant::now();
            let remaining =
                until.map_or(Duration::MAX, |until| until.saturating_duration_since(now));
            let due_ms = due_ms.map(|due_ms| due_ms.saturating_sub(self.engine.now().mono_ms));
            if remaining.is_zero() {
                return HostReply::Waiting(due_ms);
            }
            let due = due_ms.map_or(Duration::MAX, |ms| Duration::from_millis(ms.max(1)));
            let signal = self.bell.lock();
            let quiet = |signal: &mut CallSignal| !signal.is_rung && !signal.is_closed;
            drop(self.bell.heard.wait_timeout_while(signal, remaining.min(due), quiet));
        }
    }

    /// From now on [`HostCall::next`] returns [`HostReply::Over`], also in a thread that waits.
    pub fn close(&self) {
        self.bell.lock().is_closed = true;
        self.bell.heard.notify_all();
    }
}

fn cx<'a>(slot: &OpenSlot, wake: &'a Waker, out: &'a mut Vec<u8>, unsent: usize) -> HostCx<'a> {
    HostCx { worker: slot.worker(), wake, out, unsent, peer: Peer::default() }
}

/// The caller of this name.
fn principal(engine: &HostEngine, owner: &str, tenant: Option<&str>) -> Principal {
    let own = [ScopeSet::READ, ScopeSet::SEND, ScopeSet::CANCEL];
    let scopes = match engine.engine().service().required_scopes() {
        Some(required) => ScopeSet::new(own.into_iter().chain(required.names.names())),
        None => ScopeSet::new(own),
    };
    let tenants = match tenant {
        Some(tenant) => TenantGrant::Named(vec![tenant.into()]),
        None => TenantGrant::Any,
    };
    let (kind, name) = (CredentialKind::Proxy, owner.to_owned());
    Principal::new(PrincipalBuf { kind, issuer: String::new(), name, tenants, scopes, quota: None })
}

impl CallInner {
    /// Converts the received content into replies.
    fn read(&mut self) {
        if self.answer.status == 0 {
            return;
        }
        let is_error = self.answer.status >= 400;
        if self.has_events && !is_error {
            while let Some(piece) = self.answer.take() {
                self.partial.extend_from_slice(&piece);
            }
            let mut begin = 0;
            let blank = |bytes: &[u8]| bytes.windows(2).position(|two| two == b"\n\n");
            while let Some(len) = blank(&self.partial[begin..]) {
                let event = self.partial[begin..begin + len].split(|byte| *byte == b'\n');
                begin += len + 2;
                let data = event.filter_map(|line| line.strip_prefix(b"data: "));
                let json = data.collect::<Vec<_>>().join(&b'\n');
                // Comments have no data.
                if !json.is_empty() {
                    let is_error = json.starts_with(b"{\"error\":");
                    self.replies.push_back(reply(is_error, json));
                }
            }
            self.partial.drain(..begin);
        } else if self.answer.is_over
            && let Some(mut whole) = self.answer.take()
        {
            while let Some(piece) = self.answer.take() {
                whole.extend_from_slice(&piece);
            }
            self.replies.push_back(reply(is_error, whole));
        }
    }
}

fn reply(is_error: bool, json: Vec<u8>) -> HostReply {
    if is_error { HostReply::Error(json) } else { HostReply::Json(json) }
}

fn wrong(why: impl Into<String>) -> HostError {
    HostError::Event(why.into())
}

impl<'j> CallRequest<'j> {
    fn new(
        engine: &HostEngine,
        op: Op,
        request: &'j [u8],
        caller: HostCaller<'_>,
    ) -> Result<CallRequest<'j>, HostError> {
        let first = || engine.engine().service().profile(AgentIndex(0));
        let agent = match caller.agent {
            Some(agent) if is_agent_name(agent) => agent.to_owned(),
            Some(agent) => return Err(wrong(format!("invalid agent name {agent:?}"))),
            None => first().ok_or_else(|| wrong("the server has no agent"))?.name.clone(),
        };
        let base = |tenant: Option<&str>| match tenant {
            Some(tenant) if is_agent_name(tenant) => {
                Ok(format!("/agents/{agent}/tenants/{tenant}"))
            }
            Some(tenant) => Err(wrong(format!("invalid tenant name {tenant:?}"))),
            None => Ok(format!("/agents/{agent}")),
        };
        let verb = match op {
            Op::Send => "send",
            Op::Stream => "stream",
            Op::PushSet | Op::PushGet | Op::PushList | Op::PushDelete | Op::ExtendedCard => {
                return Err(wrong(format!("calls of this process do not support {}", op.name())));
            }
            Op::Get | Op::List | Op::Cancel | Op::Subscribe => {
                let members: Map<String, Value> = match request.is_empty() {
                    true => Map::new(),
                    false => serde_json::from_slice(request).map_err(|e| wrong(e.to_string()))?,
                };
                return CallRequest::of_task(op, members, caller.tenant, base);
            }
        };
        let target = format!("{}/message:{verb}", base(caller.tenant)?);
        Ok(CallRequest { method: "POST", target, body: Some(request.into()) })
    }

    /// A request about tasks: path and query carry its members.
    fn of_task(
        op: Op,
        mut members: Map<String, Value>,
        tenant: Option<&str>,
        base: impl FnOnce(Option<&str>) -> Result<String, HostError>,
    ) -> Result<CallRequest<'j>, HostError> {
        let mut text = |name: &str| match members.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            Some(_) => Err(wrong(format!("{name} must be a string"))),
        };
        let named = text("tenant")?;
        if let (Some(named), Some(tenant)) = (&named, tenant)
            && named != tenant
        {
            return Err(wrong("tenant must be the same in the request and in the call"));
        }
        let base = base(tenant.or(named.as_deref()))?;
        let id = match op {
            Op::List => None,
            _ => Some(text("id")?.ok_or_else(|| wrong("the request has no task id (id)"))?),
        };
        let id = id.map(|id| form_urlencoded::byte_serialize(id.as_bytes()).collect::<String>());
        // A space is written as a plus, which a path does not decode to a space.
        let id = id.map_or(String::new(), |id| format!("/{}", id.replace('+', "%20")));
        // Rejects ids that a path cannot contain.
        path::check(&id).map_err(|_| wrong("no task has this id"))?;
        let (method, verb) = match op {
            Op::Cancel => ("POST", ":cancel"),
            Op::Subscribe => ("POST", ":subscribe"),
            _ => ("GET", ""),
        };
        let mut target = format!("{base}/tasks{id}{verb}");
        if method == "POST" {
            let body = match members.is_empty() {
                true => Vec::from(*b"{}"),
                false => serde_json::to_vec(&members).map_err(|error| wrong(error.to_string()))?,
            };
            return Ok(CallRequest { method, target, body: Some(body.into()) });
        }
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &members {
            match value {
                Value::Null => {}
                Value::String(text) => _ = query.append_pair(name, text),
                Value::Bool(_) | Value::Number(_) => {
                    query.append_pair(name, &value.to_string());
                }
                Value::Array(_) | Value::Object(_) => {
                    return Err(wrong(format!("{name} must be a single value")));
                }
            }
        }
        let query = query.finish();
        if !query.is_empty() {
            target = format!("{target}?{query}");
        }
        Ok(CallRequest { method, target, body: None })
    }

    /// Rejects names too long for a head: the exchange would not answer in the form of HTTP+JSON.
    fn check_length(self, limits: &Limits) -> Result<CallRequest<'j>, HostError> {
        let head_bytes = self.target.len() + FIELD_BYTES;
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        let limit = match () {
            () if self.target.len() > limits.target_bytes_max => "target_bytes_max",
            () if query.len() > limits.query_bytes_max => "query_bytes_max",
            () if head_bytes > limits.head_bytes_max => "head_bytes_max",
            () => return Ok(self),
        };
        Err(wrong(format!("the names and values of the request are too long ({limit})")))
    }
}
