//! A client of one agent: its operations over the chosen interface.

use std::sync::{
    Arc, Mutex, PoisonError, RwLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::{
    fault::FaultKind,
    model::{
        Generation, Get, JsonObject, OutgoingCall, PushCall, PushConfigBuf, RawText, Target, uuid,
    },
};

use super::{
    Answer, CallOptions, ClientBuilder, ClientError, ClientErrorKind, KnownCard, ListTasks,
    SendRequest, TaskAddress, Transport,
    card::{AgentCard, ChosenInterface, check_signed, next_version},
    credentials::TokenCache,
    endpoint::AgentEndpoint,
    exchange::Written,
    format::WrittenCall,
    outgoing_terms::{CallTerms, OutgoingTerms, merged},
    request::two,
    scratch::{CallBuffers, Stash},
    websocket::IdleSessions,
};

/// Writes one call, which may borrow from the buffer of [`MakeCall`].
type WriteCall<'w> = dyn FnMut(&OutgoingCall<'_>) -> Result<Written, ClientError> + 'w;

/// Builds one call in a buffer and writes it, for each attempt.
type MakeCall<'m> =
    dyn Fn(&mut Vec<u8>, &mut WriteCall<'_>) -> Result<Written, ClientError> + Sync + 'm;

/// A client of one agent. Clones share their state; calls may run concurrently.
///
/// Created by [`ClientBuilder`](super::ClientBuilder), which reads the agent's card and chooses the
/// interface.
pub struct Client<T: Transport> {
    pub(super) inner: Arc<SharedClient<T>>,
    /// The terms that calls of this client pass on; see [`Client::within`] and
    /// [`Client::with_traceparent`].
    pub(super) terms: CallTerms,
}

impl<T: Transport> Clone for Client<T> {
    fn clone(&self) -> Client<T> {
        Client { inner: Arc::clone(&self.inner), terms: self.terms.clone() }
    }
}

/// The state that all clones share.
pub(super) struct SharedClient<T: Transport> {
    pub transport: T,
    /// The sessions of an interface over WebSocket.
    pub sessions: Arc<IdleSessions<T::Response>>,
    pub stash: Arc<Stash>,
    pub rpc_id: AtomicU64,
    pub endpoint: RwLock<Arc<AgentEndpoint>>,
    /// All interfaces that may be called, in the order of preference.
    pub interfaces: Vec<ChosenInterface>,
    /// The card that calls use: the extended card once it was fetched.
    pub card: RwLock<Arc<AgentCard>>,
    /// The public card, if it came from a URL.
    pub cached_card: Mutex<Option<KnownCard>>,
    /// The OAuth token, if the card requires one.
    pub tokens: Arc<TokenCache>,
    /// The caller's options.
    pub built: ClientBuilder,
    /// True: the client has warned that the agent does not declare push notifications.
    pub has_warned_of_push: AtomicBool,
}

impl<T: Transport> SharedClient<T> {
    pub(super) fn endpoint(&self) -> Arc<AgentEndpoint> {
        Arc::clone(&self.endpoint.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn card(&self) -> Arc<AgentCard> {
        Arc::clone(&self.card.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_card(&self, card: Arc<AgentCard>) {
        *self.card.write().unwrap_or_else(PoisonError::into_inner) = card;
    }

    /// The deadline of a call that begins now.
    pub(super) fn due_ms(&self, terms: Option<&OutgoingTerms>) -> u64 {
        let call_ms = self.built.options.call_ms;
        let remaining_ms = terms.and_then(|terms| terms.remaining_ms(|| self.transport.now()));
        let remaining_ms = remaining_ms.unwrap_or(call_ms);
        self.transport.mono_ms().saturating_add(call_ms.min(remaining_ms))
    }

    /// Writes a call for an endpoint.
    pub(super) fn write(
        &self,
        endpoint: &AgentEndpoint,
        terms: Option<&OutgoingTerms>,
        call: &OutgoingCall<'_>,
        out: &mut WrittenCall,
    ) -> Result<Written, ClientError> {
        let rpc_id = self.rpc_id.fetch_add(1, Ordering::Relaxed);
        endpoint.format.write(call, rpc_id, endpoint.tenant(terms), out)?;
        let after = match call {
            OutgoingCall::Subscribe(target) => target.after,
            _ => None,
        };
        Ok(Written { op: call.op(), rpc_id, after })
    }

    /// Executes a call. Repeats it if the server rejects the version and names another one, and
    /// over another interface if there is no connection.
    async fn run(&self, terms: &CallTerms, make: &MakeCall<'_>) -> Result<Answer, ClientError> {
        let mut scratch = self.stash.take();
        scratch.terms.clone_from(terms);
        let mut endpoint = self.endpoint();
        let mut search = InterfaceSearch::default();
        let answered = loop {
            let CallBuffers { packed, written, terms, .. } = &mut *scratch;
            let terms = terms.as_deref();
            let mut write = |call: &OutgoingCall<'_>| self.write(&endpoint, terms, call, written);
            let written = match make(packed, &mut write) {
                Ok(written) => written,
                Err(error) => break Err(error),
            };
            match self.call(&endpoint, written, &search, &mut scratch).await {
                Err(error) => match self.change_endpoint(&endpoint, error, &mut search) {
                    Ok(other) => endpoint = other,
                    Err(error) => break Err(error),
                },
                Ok(()) => break Ok(written.op),
            }
        };
        let answer = answered.map(|op| {
            let reply = std::mem::replace(&mut scratch.reply, self.stash.take_reply());
            Answer::new(reply, op, endpoint.is_v1_json(), &self.stash)
        });
        self.stash.give(scratch);
        answer
    }
}

impl<T: Transport> Client<T> {
    /// The agent's card: the extended card once it was fetched.
    pub fn card(&self) -> Arc<AgentCard> {
        self.inner.card()
    }

    /// The interface that calls use.
    pub fn interface(&self) -> ChosenInterface {
        self.inner.endpoint().interface.clone()
    }

    /// The generation of the called interface.
    pub fn generation(&self) -> Generation {
        self.inner.endpoint().interface.generation
    }

    /// The transport of the client's requests.
    pub fn transport(&self) -> &T {
        &self.inner.transport
    }

    /// A client of the same agent over another transport, with these call options. The card, the
    /// interface and the builder's other options are the same. Connections, sessions and, without
    /// [`ClientBuilder::share_tokens`], tokens are its own.
    pub fn over<U: Transport>(&self, transport: U, options: CallOptions) -> Client<U> {
        let shared = &*self.inner;
        let built = ClientBuilder { options, ..shared.built.clone() };
        let inner = SharedClient {
            transport,
            sessions: Arc::default(),
            stash: Stash::new(built.limits.clone(), built.options.is_strict),
            rpc_id: AtomicU64::new(1),
            endpoint: RwLock::new(shared.endpoint()),
            interfaces: shared.interfaces.clone(),
            card: RwLock::new(shared.card()),
            cached_card: Mutex::new(None),
            tokens: built.tokens.clone().unwrap_or_default(),
            built,
            has_warned_of_push: AtomicBool::new(false),
        };
        Client { inner: Arc::new(inner), terms: self.terms.clone() }
    }

    /// Sends a message and waits for its task or message (A2A 1.0 §3.1.1), as the request
    /// specifies.
    ///
    /// # Errors
    /// [`ClientError`]; `OtherTask` for an answer about another task than the request names. A send
    /// is repeated only if the server cannot have handled it, or recognises repeated messages.
    pub async fn send(&self, request: &SendRequest) -> Result<Answer, ClientError> {
        self.inner.check_push(request.has_push())?;
        let id = uuid(self.inner.transport.random());
        let terms = merged(request.terms(), &self.terms);
        let make = |packed: &mut Vec<u8>, write: &mut WriteCall<'_>| {
            write(&request.call(false, &id, packed))
        };
        let answer = self.inner.run(&terms, &make).await?;
        match (request.task(), answer.task_id()) {
            (Some(requested), Some(answered)) if requested != answered => {
                self.inner.about_other(answer)
            }
            (_, _) => Ok(answer),
        }
    }

    /// Reads a task (A2A 1.0 §3.1.3), with at most `history` of its messages; `None`: the server
    /// decides how many.
    ///
    /// # Errors
    /// [`ClientError`], such as the fault `TaskNotFound`; `OtherTask` for an answer about another
    /// task.
    pub async fn get_task<'k>(
        &self,
        task: impl Into<TaskAddress<'k>>,
        history: Option<u32>,
    ) -> Result<Answer, ClientError> {
        let task = task.into();
        self.inner
            .run(&self.terms, &|packed, write| {
                let (id, context_id) = task.raw(packed);
                write(&OutgoingCall::Get(Get { id, context_id, history, wait: None }))
            })
            .await
            .and_then(|answer| self.inner.about(task, answer))
    }

    /// Lists tasks (A2A 1.0 §3.1.4), newest first.
    ///
    /// # Errors
    /// [`ClientError`]; `NotExpressible` if the version has no such operation in this binding, such
    /// as 0.3 over JSON-RPC.
    pub async fn list_tasks(&self, list: &ListTasks) -> Result<Answer, ClientError> {
        self.inner.run(&self.terms, &|packed, write| write(&list.call(packed))).await
    }

    /// Cancels a task (A2A 1.0 §3.1.5) and returns its resulting state.
    ///
    /// # Errors
    /// [`ClientError`], such as the fault `TaskNotCancelable`; `OtherTask` for an answer about
    /// another task.
    pub async fn cancel_task<'k>(
        &self,
        task: impl Into<TaskAddress<'k>>,
        metadata: Option<JsonObject<'_>>,
    ) -> Result<Answer, ClientError> {
        let task = task.into();
        self.inner
            .run(&self.terms, &|packed, write| {
                let (id, context_id) = task.raw(packed);
                write(&OutgoingCall::Cancel(Target { context_id, ..target(id, metadata) }))
            })
            .await
            .and_then(|answer| self.inner.about(task, answer))
    }

    /// Makes the server send a task's events to a URL (A2A 1.0 §3.1.7). A configuration of the same
    /// id is replaced.
    ///
    /// # Errors
    /// [`ClientError`]; `NotDeclared` if the card does not declare push notifications.
    pub async fn set_push_config(&self, config: &PushConfigBuf) -> Result<Answer, ClientError> {
        self.inner.check_push(true)?;
        let call = OutgoingCall::Push(PushCall::Set(config.view()));
        self.inner.run(&self.terms, &|_, write| write(&call)).await
    }

    /// Reads a push configuration (A2A 1.0 §3.1.8). Without an id, reads the server's default
    /// configuration; 1.0 requires an id.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_push_config(
        &self,
        task_id: &str,
        id: Option<&str>,
    ) -> Result<Answer, ClientError> {
        self.push(&|packed| {
            let [task_id, id] = two(packed, [Some(task_id), id]);
            PushCall::Get { task_id: task_id.unwrap_or_default(), id }
        })
        .await
    }

    /// Lists the push configurations of a task (A2A 1.0 §3.1.9): the page of `page_token`
    /// ([`Answer::next_page_token`]), or the first page, with at most `page_size` entries; `None`:
    /// the server decides how many.
    ///
    /// # Errors
    /// [`ClientError`]; `NotExpressible` if a page is requested and the agent's protocol has no
    /// pages: before 1.0 every binding except HTTP+JSON and gRPC of 0.3.
    pub async fn list_push_configs(
        &self,
        task_id: &str,
        page_size: Option<u32>,
        page_token: Option<&str>,
    ) -> Result<Answer, ClientError> {
        self.push(&|packed| {
            let [task_id, page_token] = two(packed, [Some(task_id), page_token]);
            PushCall::List { task_id: task_id.unwrap_or_default(), page_size, page_token }
        })
        .await
    }

    /// Deletes a push configuration (A2A 1.0 §3.1.10); a missing one is not an error.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn delete_push_config(&self, task_id: &str, id: &str) -> Result<Answer, ClientError> {
        self.push(&|packed| {
            let [task_id, id] =
                two(packed, [Some(task_id), Some(id)]).map(Option::unwrap_or_default);
            PushCall::Delete { task_id, id: Some(id) }
        })
        .await
    }

    async fn push(
        &self,
        call: &(dyn for<'p> Fn(&'p mut Vec<u8>) -> PushCall<'p> + Sync),
    ) -> Result<Answer, ClientError> {
        self.inner.check_push(true)?;
        self.inner.run(&self.terms, &|packed, write| write(&OutgoingCall::Push(call(packed)))).await
    }

    /// Reads the card for authenticated callers (A2A 1.0 §3.1.11), which becomes this client's
    /// card. The chosen interface stays.
    ///
    /// # Errors
    /// [`ClientError`]; `NotDeclared` if the card declares no extended card. On an error the client
    /// keeps its card.
    pub async fn extended_card(&self) -> Result<Arc<AgentCard>, ClientError> {
        if !self.inner.card().is_extendable() {
            return Err(not_declared("extended card"));
        }
        let answer =
            self.inner.run(&self.terms, &|_, write| write(&OutgoingCall::ExtendedCard)).await?;
        let json = answer.card().map_or(&b""[..], JsonObject::raw);
        let built = &self.inner.built;
        let card = Arc::new(AgentCard::read_within(json, built.limits.card_bytes_max)?);
        check_signed(&card, built.card_keys.as_ref())?;
        self.inner.set_card(Arc::clone(&card));
        Ok(card)
    }
}

/// The attempts of one call.
#[derive(Default)]
pub(super) struct InterfaceSearch {
    /// The call was repeated in a version that the server named.
    has_changed_version: bool,
    /// A bit for each of the first 64 interfaces; set: the client could not connect to it.
    failed: u64,
    /// One of the failed interfaces has TLS.
    needs_tls: bool,
    /// No other interface is tried, because the task is at this one.
    is_over: bool,
}

impl InterfaceSearch {
    /// For a call that stays at its interface.
    pub fn over() -> InterfaceSearch {
        InterfaceSearch { is_over: true, ..InterfaceSearch::default() }
    }
}

impl<T: Transport> SharedClient<T> {
    /// Chooses the endpoint for the repetition of a failed call: the next interface of the card if
    /// there was no connection, or a version that the server named. All later calls use this
    /// endpoint.
    ///
    /// # Errors
    /// `error`, if there is no such endpoint.
    pub(super) fn change_endpoint(
        &self,
        previous: &AgentEndpoint,
        error: ClientError,
        search: &mut InterfaceSearch,
    ) -> Result<Arc<AgentEndpoint>, ClientError> {
        if let Some(next) = self.next_interface(previous, &error, search) {
            let origin = &previous.interface.url.origin;
            let interfaces = self.interfaces.iter().take(u64::BITS as usize).enumerate();
            let failed = interfaces.filter(|(_, one)| one.url.origin == *origin);
            search.failed |= failed.fold(0, |failed, (at, _)| failed | 1 << at);
            search.needs_tls |= origin.is_secure();
            let ChosenInterface { url, binding, .. } = &next.interface;
            let name = binding.name();
            self.built.warn(&format!("{error}; calling {url} ({name}) instead"));
            self.use_endpoint(&next);
            return Ok(next);
        }
        if search.has_changed_version {
            return Err(error);
        }
        let other = self.change_version(previous, error)?;
        search.has_changed_version = true;
        Ok(other)
    }

    /// The next interface of the card, if there was no connection to the last one: the server read
    /// nothing, so the call cannot take effect twice (A2A 0.3 §5.6.3). An interface with TLS is
    /// never replaced by one without, and interfaces to which the credentials may not be sent are
    /// skipped.
    #[cold]
    pub(super) fn next_interface(
        &self,
        previous: &AgentEndpoint,
        error: &ClientError,
        search: &InterfaceSearch,
    ) -> Option<Arc<AgentEndpoint>> {
        if search.is_over || !error.is_unconnected() {
            return None;
        }
        let failed = &previous.interface.url.origin;
        let needs_tls = search.needs_tls || failed.is_secure();
        let is_new = |(at, one): &(usize, &ChosenInterface)| {
            let has_failed = one.url.origin == *failed || search.failed & 1 << at != 0;
            !has_failed && (one.url.origin.is_secure() || !needs_tls)
        };
        let interfaces = self.interfaces.iter().take(u64::BITS as usize).enumerate();
        let card = self.card();
        let mut endpoints = interfaces.filter(is_new).map(|(_, one)| {
            let endpoint = self.built.endpoint(&card, one.clone());
            endpoint.plan().is_ok().then(|| Arc::new(endpoint))
        });
        endpoints.find_map(|endpoint| endpoint)
    }

    fn use_endpoint(&self, endpoint: &Arc<AgentEndpoint>) {
        let mut used = self.endpoint.write().unwrap_or_else(PoisonError::into_inner);
        *used = Arc::clone(endpoint);
    }

    /// The endpoint in a version that the server named when it rejected the version of the call.
    /// All later calls use this endpoint.
    ///
    /// # Errors
    /// `error`, if it is not `VersionNotSupported`, or names no version at or above the floor.
    fn change_version(
        &self,
        previous: &AgentEndpoint,
        error: ClientError,
    ) -> Result<Arc<AgentEndpoint>, ClientError> {
        if error.fault_kind() != Some(FaultKind::VersionNotSupported) {
            return Err(error);
        }
        let fault = error.fault();
        let named = fault
            .into_iter()
            .flat_map(|fault| [fault.message.as_str(), fault.data.as_deref().unwrap_or_default()]);
        let next = next_version(previous.interface.version, named, &self.built.wants)
            .ok()
            .and_then(|version| Some((version, version.generation()?)));
        let Some((version, generation)) = next else { return Err(error) };
        let interface = ChosenInterface { version, generation, ..previous.interface.clone() };
        let endpoint = Arc::new(self.built.endpoint(&self.card(), interface));
        self.use_endpoint(&endpoint);
        Ok(endpoint)
    }

    /// A2A 1.0 §3.3.4: a feature that the card does not declare is not requested, unless the caller
    /// assumes it.
    #[inline]
    pub(super) fn check_push(&self, is_requested: bool) -> Result<(), ClientError> {
        match is_requested && !self.card().pushes() {
            true => self.assume_push(),
            false => Ok(()),
        }
    }

    #[cold]
    fn assume_push(&self) -> Result<(), ClientError> {
        if !self.built.options.assumes_push {
            return Err(not_declared("push notifications"));
        }
        if !self.has_warned_of_push.swap(true, Ordering::Relaxed) {
            self.built.warn(
                "the agent's card does not declare push notifications; the webhook is sent, and \
                 the agent may ignore it",
            );
        }
        Ok(())
    }
}

#[cold]
pub(super) fn not_declared(what: &'static str) -> ClientError {
    let detail = format!("the agent's card does not declare: {what}");
    ClientError::because(ClientErrorKind::NotDeclared(what), detail)
}

pub(super) fn target<'p>(id: RawText<'p>, metadata: Option<JsonObject<'p>>) -> Target<'p> {
    Target { id, context_id: None, metadata, generation: Generation::V1, after: None }
}
