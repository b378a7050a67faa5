//! The data of a request other than its message: borrowed for an immediate answer, or owned for a
//! later one.

use std::{borrow::Cow, fmt, sync::Arc};

use crate::{
    model::{JsonObject, JsonObjectBuf, Profile, TaskState},
    service::{Caller, Principal, RequestFields, Scope},
};

/// The header fields that the agent's profile names.
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

    /// An owned copy of all fields that the profile names.
    pub(crate) fn keep(self) -> OwnedHeaders {
        let each = |name: &String| Some((name.as_str().into(), self.fields.value(name)?.into()));
        OwnedHeaders(self.names.iter().filter_map(each).collect())
    }
}

/// Names and values of header fields.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct OwnedHeaders(Box<[(Box<str>, Box<str>)]>);

impl OwnedHeaders {
    /// Bytes on the heap.
    pub fn held_bytes(&self) -> usize {
        let pair = |(name, value): &(Box<str>, Box<str>)| {
            name.len() + value.len() + size_of::<(Box<str>, Box<str>)>()
        };
        self.0.iter().map(pair).sum()
    }
}

/// Omits the values, which may be secrets.
impl fmt::Debug for OwnedHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The data of the request of a [`Turn`](super::Turn), a [`CancelRequest`](super::CancelRequest) or
/// a [`TaskLookup`](super::TaskLookup), other than its message or task. A resumed turn has only the
/// scope of the task, with the names of tenant and owner.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The request's metadata.
    pub metadata: Option<JsonObject<'a>>,
    /// The media types that the client accepts, as a JSON array of strings; `None`: not specified.
    pub accepted_output_modes: Option<&'a [u8]>,
    /// The extensions that the client activates, comma separated as in `A2A-Extensions`.
    pub extensions: Option<&'a str>,
    /// The client's name in its verified certificate.
    pub identity: Option<&'a str>,
    /// The header fields that the profile names.
    pub headers: Headers<'a>,
    /// The scope of the task. Numbers of tenants and owners are reassigned when nothing refers to
    /// them: without a stored task, use the names.
    pub scope: Scope,
    /// The name of the tenant that the client named.
    pub tenant: Option<&'a str>,
    /// The name of the owner of the task, if the task has one.
    pub owner: Option<&'a str>,
    /// The caller, if callers are authenticated: name, issuer, tenants and scopes.
    pub principal: Option<&'a Arc<Principal>>,
    /// When the caller no longer wants the answer, in ms since the Unix epoch; `None`: not
    /// specified.
    pub deadline_unix_ms: Option<u64>,
    /// The number of agents and proxies that the call has passed, from `A2A-Hops` or `Via`.
    pub hops: u32,
}

impl<'a> RequestView<'a> {
    /// A request of this caller to an agent with this profile.
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

    /// A request without a caller, for a task of this scope, with the names of its tenant and
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

/// The data of the call of a [`Job`](super::Job) or a [`Deferred`](super::Deferred), other than its
/// message: an owned [`RequestView`]. A resumed turn has only some of the data.
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
    headers: OwnedHeaders,
    deadline_unix_ms: Option<u64>,
    hops: u32,
}

impl RequestInfo {
    /// Copies a request that continues a task in this state; `None`: the request starts a task.
    pub(crate) fn of(request: &RequestView<'_>, state: Option<TaskState>) -> RequestInfo {
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

    /// The scope of the task; prefer the names of tenant and owner, see [`RequestView::scope`].
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The name of the tenant that the client named.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The name of the owner of the task, if the task has one.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// The caller, if callers are authenticated: name, issuer, tenants and scopes.
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_deref()
    }

    /// The state of the task before the message; `None`: the message starts a new task.
    pub fn state(&self) -> Option<TaskState> {
        self.state
    }

    /// The client's name in its verified certificate.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// When the caller no longer wants the answer, in ms since the Unix epoch.
    pub fn deadline_unix_ms(&self) -> Option<u64> {
        self.deadline_unix_ms
    }

    /// The number of agents and proxies that the call has passed.
    pub fn hops(&self) -> u32 {
        self.hops
    }

    /// The extensions that the client activates, comma separated as in `A2A-Extensions`.
    pub fn extensions(&self) -> Option<&str> {
        self.extensions.as_deref()
    }

    /// The request's metadata.
    pub fn metadata(&self) -> Option<JsonObject<'_>> {
        self.metadata.as_ref().map(JsonObjectBuf::view)
    }

    /// The media types that the client accepts (A2A 1.0 `acceptedOutputModes`), as a JSON array of
    /// strings; `None`: not specified.
    pub fn accepted_output_modes(&self) -> Option<&str> {
        str::from_utf8(self.accepted_output_modes.as_ref()?).ok()
    }

    /// The value of a header field that the profile names.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.0.iter();
        headers.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// The header fields that the profile names.
    #[cfg(feature = "ffi")]
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Bytes on the heap.
    pub(crate) fn held_bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let metadata = self.metadata.as_ref().map_or(0, |own| own.view().as_str().len());
        let modes = self.accepted_output_modes.as_ref().map_or(0, |json| json.len());
        let names = text(&self.tenant) + text(&self.owner) + modes;
        names + text(&self.identity) + text(&self.extensions) + metadata + self.headers.held_bytes()
    }
}
