//! What is known of the call behind a turn: borrowed in the turn, owned by what outlives it.

use std::borrow::Cow;

use crate::{
    model::{JsonObject, JsonObjectBuf, TaskState},
    service::{RequestFields, Scope},
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
    pub(crate) fn keep(self) -> Box<[(Box<str>, Box<str>)]> {
        let each = |name: &String| Some((name.as_str().into(), self.fields.value(name)?.into()));
        self.names.iter().filter_map(each).collect()
    }
}

/// What is known of the call that a [`Job`](super::Job) or a [`Deferred`](super::Deferred) is
/// about, beside its message; of a turn that was resumed, little.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    scope: Scope,
    tenant: Option<Box<str>>,
    owner: Option<Box<str>>,
    state: Option<TaskState>,
    identity: Option<Box<str>>,
    extensions: Option<Box<str>>,
    metadata: Option<JsonObjectBuf>,
    headers: Box<[(Box<str>, Box<str>)]>,
}

impl RequestInfo {
    /// What a turn knows.
    pub(super) fn of(turn: &super::Turn<'_>) -> RequestInfo {
        RequestInfo {
            scope: turn.scope,
            tenant: turn.tenant.map(Into::into),
            owner: turn.owner.map(Into::into),
            state: turn.state,
            identity: turn.identity.map(Into::into),
            extensions: turn.extensions.map(Into::into),
            metadata: turn.metadata.map(Into::into),
            headers: turn.headers.keep(),
        }
    }

    /// Nothing but whose the task is, and its state.
    pub(super) fn unknown(
        scope: Scope,
        [tenant, owner]: [Option<&str>; 2],
        state: TaskState,
    ) -> RequestInfo {
        let [tenant, owner] = [tenant, owner].map(|name| name.map(Into::into));
        let state = Some(state);
        let (identity, extensions, metadata, headers) = (None, None, None, Box::default());
        RequestInfo { scope, tenant, owner, state, identity, extensions, metadata, headers }
    }

    /// Whose the task is; go by the names of tenant and owner, as in [`Turn`](super::Turn::scope).
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The name of the space of tasks that the client named.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The name of who owns the task, where somebody says it.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// The state of the task before the message; `None` when the message starts a new one.
    pub fn state(&self) -> Option<TaskState> {
        self.state
    }

    /// The client's name, as its verified certificate has it.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// The extensions that the client asks for, comma separated as in `A2A-Extensions`.
    pub fn extensions(&self) -> Option<&str> {
        self.extensions.as_deref()
    }

    /// The request's metadata.
    pub fn metadata(&self) -> Option<JsonObject<'_>> {
        self.metadata.as_ref().map(JsonObjectBuf::view)
    }

    /// The value of a header field that the profile names.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// Bytes behind pointers.
    pub(crate) fn held_bytes(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let metadata = self.metadata.as_ref().map_or(0, |own| own.view().as_str().len());
        let pair = |(name, value): &(Box<str>, Box<str>)| {
            name.len() + value.len() + size_of::<(Box<str>, Box<str>)>()
        };
        let headers: usize = self.headers.iter().map(pair).sum();
        let names = text(&self.tenant) + text(&self.owner);
        names + text(&self.identity) + text(&self.extensions) + metadata + headers
    }
}
