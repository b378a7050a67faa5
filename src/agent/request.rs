//! What is known of a request beside what it asks for: borrowed by an agent that answers it at
//! once, owned by what outlives it.

use std::{borrow::Cow, fmt, sync::Arc};

use crate::{
    model::{JsonObject, JsonObjectBuf, Profile, TaskState},
    service::{Caller, Principal, RequestFields, Scope},
};

/// The header fields that an agent is shown: those that its profile names.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    /// The names that the profile lists.
    pub names: &'a [String],
    /// The fields of the request.
    pub fields: RequestFields<'a>,
}

impl<'a> Headers<'a> {
    /// The value of a field that the profile names.
    pub fn value(self, name: &str) -> Option<Cow<'a, str>> {
        let is_named = self.names.iter().any(|named| named.eq_ignore_ascii_case(name));
        is_named.then(|| self.fields.value(name)).flatten()
    }

    /// All of them.
    pub(crate) fn keep(self) -> KeptHeaders {
        let each = |name: &String| Some((name.as_str().into(), self.fields.value(name)?.into()));
        KeptHeaders(self.names.iter().filter_map(each).collect())
    }
}

/// Names and values of header fields.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeptHeaders(Box<[(Box<str>, Box<str>)]>);

impl KeptHeaders {
    /// Bytes behind pointers.
    pub fn held_bytes(&self) -> usize {
        let pair = |(name, value): &(Box<str>, Box<str>)| {
            name.len() + value.len() + size_of::<(Box<str>, Box<str>)>()
        };
        self.0.iter().map(pair).sum()
    }
}

/// Values may be secrets.
impl fmt::Debug for KeptHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// What is known of the request behind a [`Turn`](super::Turn), a
/// [`CancelRequest`](super::CancelRequest) or a [`TaskLookup`](super::TaskLookup), beside what it
/// asks for; of a turn that was resumed, only whose the task is.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The request's metadata.
    pub metadata: Option<JsonObject<'a>>,
    /// The media types that the client accepts, as a JSON array of strings; `None`: it has not
    /// said.
    pub accepted_output_modes: Option<&'a [u8]>,
    /// The extensions that the client asks for, comma separated as in `A2A-Extensions`.
    pub extensions: Option<&'a str>,
    /// The client's name, as its verified certificate has it.
    pub identity: Option<&'a str>,
    /// The header fields that the profile names.
    pub headers: Headers<'a>,
    /// Whose the task is. The numbers of tenants and owners are given again when nothing refers to
    /// them, and without a stored task say nothing: go by their names.
    pub scope: Scope,
    /// The name of the space of tasks that the client named.
    pub tenant: Option<&'a str>,
    /// The name of the owner of the task, if there is one.
    pub owner: Option<&'a str>,
    /// The caller, where callers are authenticated: name, issuer, tenants and scopes.
    pub principal: Option<&'a Arc<Principal>>,
    /// When the caller no longer wants the answer, in ms since the Unix epoch; `None`: it has not
    /// said.
    pub deadline_unix_ms: Option<u64>,
    /// How many agents and proxies the call has come through, as `A2A-Hops` or `Via` say.
    pub hops: u32,
}

impl<'a> RequestView<'a> {
    /// A request of this caller to an agent of this profile.
    #[inline]
    pub(crate) fn of(
        caller: &Caller<'a>,
        profile: &'a Profile,
        metadata: Option<JsonObject<'a>>,
        accepted_output_modes: Option<&'a [u8]>,
    ) -> RequestView<'a> {
        let Caller { scope, tenant, owner, extensions, peer, fields, principal, .. } = *caller;
        let Caller { deadline_unix_ms, hops, .. } = *caller;
        let headers = Headers { names: &profile.fields, fields };
        RequestView {
            metadata,
            accepted_output_modes,
            extensions,
            identity: peer.identity,
            headers,
            scope,
            tenant,
            owner,
            principal,
            deadline_unix_ms,
            hops,
        }
    }

    /// A request without a caller: of a task of this scope, with the names of its tenant and its
    /// owner.
    pub fn without_caller(scope: Scope, [tenant, owner]: [Option<&'a str>; 2]) -> RequestView<'a> {
        RequestView {
            metadata: None,
            accepted_output_modes: None,
            extensions: None,
            identity: None,
            headers: Headers::default(),
            scope,
            tenant,
            owner,
            principal: None,
            deadline_unix_ms: None,
            hops: 0,
        }
    }
}

/// What is known of the call that a [`Job`](super::Job) or a [`Deferred`](super::Deferred) is
/// about, beside its message: a [`RequestView`] that is kept. Of a turn that was resumed, little.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    scope: Scope,
    tenant: Option<Box<str>>,
    owner: Option<Box<str>>,
    principal: Option<Arc<Principal>>,
    state: Option<TaskState>,
    identity: Option<Box<str>>,
    extensions: Option<Box<str>>,
    metadata: Option<JsonObjectBuf>,
    accepted_output_modes: Option<Box<[u8]>>,
    headers: KeptHeaders,
    deadline_unix_ms: Option<u64>,
    hops: u32,
}

impl RequestInfo {
    /// What a request is kept as that goes on with a task in this state, or begins one.
    pub(super) fn of(request: &RequestView<'_>, state: Option<TaskState>) -> RequestInfo {
        RequestInfo {
            scope: request.scope,
            tenant: request.tenant.map(Into::into),
            owner: request.owner.map(Into::into),
            principal: request.principal.cloned(),
            state,
            identity: request.identity.map(Into::into),
            extensions: request.extensions.map(Into::into),
            metadata: request.metadata.map(Into::into),
            accepted_output_modes: request.accepted_output_modes.map(Into::into),
            headers: request.headers.keep(),
            deadline_unix_ms: request.deadline_unix_ms,
            hops: request.hops,
        }
    }

    /// Whose the task is; go by the names of tenant and owner, as in [`RequestView::scope`].
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The name of the space of tasks that the client named.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The name of the owner of the task, if there is one.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// The caller, where callers are authenticated: name, issuer, tenants and scopes.
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_deref()
    }

    /// The state of the task before the message; `None` when the message starts a new one.
    pub fn state(&self) -> Option<TaskState> {
        self.state
    }

    /// The client's name, as its verified certificate has it.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// When the caller no longer wants the answer, in ms since the Unix epoch.
    pub fn deadline_unix_ms(&self) -> Option<u64> {
        self.deadline_unix_ms
    }

    /// How many agents and proxies the call has come through.
    pub fn hops(&self) -> u32 {
        self.hops
    }

    /// The extensions that the client asks for, comma separated as in `A2A-Extensions`.
    pub fn extensions(&self) -> Option<&str> {
        self.extensions.as_deref()
    }

    /// The request's metadata.
    pub fn metadata(&self) -> Option<JsonObject<'_>> {
        self.metadata.as_ref().map(JsonObjectBuf::view)
    }

    /// The media types that the client accepts (A2A 1.0 `acceptedOutputModes`), as a JSON array of
    /// strings; `None`: it has not said.
    pub fn accepted_output_modes(&self) -> Option<&str> {
        str::from_utf8(self.accepted_output_modes.as_ref()?).ok()
    }

    /// The value of a header field that the profile names.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.0.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// Bytes behind pointers.
    pub(crate) fn held_bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let metadata = self.metadata.as_ref().map_or(0, |own| own.view().as_str().len());
        let modes = self.accepted_output_modes.as_ref().map_or(0, |json| json.len());
        let names = text(&self.tenant) + text(&self.owner) + modes;
        names + text(&self.identity) + text(&self.extensions) + metadata + self.headers.held_bytes()
    }
}
