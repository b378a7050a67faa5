//! Push configurations, and the four operations on them (A2A 1.0 §3.1.7 to §3.1.10).
//!
//! Invariant: as for messages, a view reads packed fields; each text is stored as between the
//! quotes of a JSON string. A configuration contains secrets, which `Debug` does not print.

use std::fmt;

use super::{
    build::put_text,
    pack::{PackedFields, Packer},
    push_filter::PushFilter,
    state::Generation,
    text::{RawText, Text},
};

/// Field numbers of a packed configuration: those of `lf.a2a.v1.TaskPushNotificationConfig`; 7 and
/// 8 belong to its `authentication`, 9 to 11 to Evo AI, higher ones to this crate.
pub(crate) mod push_tag {
    pub const ID: u8 = 2;
    pub const TASK_ID: u8 = 3;
    pub const URL: u8 = 4;
    pub const TOKEN: u8 = 5;
    pub const SCHEME: u8 = 7;
    pub const CREDENTIALS: u8 = 8;
    pub const CONTEXT_ID: u8 = 9;
    pub const HEADER_NAME: u8 = 10;
    pub const HEADER_VALUE: u8 = 11;
    /// One byte.
    pub const FILTER: u8 = 12;
    /// The `traceparent` of the call that set the configuration; internal.
    #[cfg(feature = "push")]
    pub const TRACE: u8 = 13;
    /// The number of the operation that set a scope's webhook, 8 bytes; internal.
    #[cfg(feature = "push")]
    pub const SETTING: u8 = 14;
}

/// A packed push configuration (`TaskPushNotificationConfig`; wire §1.6).
#[derive(Clone, Copy)]
pub struct PushConfig<'a>(pub(crate) &'a [u8]);

impl<'a> PushConfig<'a> {
    fn text(self, tag: u8) -> Option<RawText<'a>> {
        PackedFields(self.0).text(tag).filter(|text| !text.is_empty())
    }

    /// The task; `None` in a configuration that is sent with a message.
    pub fn task_id(self) -> Option<RawText<'a>> {
        self.text(push_tag::TASK_ID)
    }

    /// Its id, unique within the task; the server assigns one if the client gives none.
    pub fn id(self) -> Option<RawText<'a>> {
        self.text(push_tag::ID)
    }

    /// The URL that receives the events.
    pub fn url(self) -> RawText<'a> {
        self.text(push_tag::URL).unwrap_or_default()
    }

    /// The token that the server sends with each event, to identify itself to the receiver.
    pub fn token(self) -> Option<RawText<'a>> {
        self.text(push_tag::TOKEN)
    }

    /// The scheme of the server's `Authorization` (RFC 9110 §11.1).
    pub fn scheme(self) -> Option<RawText<'a>> {
        self.text(push_tag::SCHEME)
    }

    /// The credentials after the scheme; servers may mask them in answers.
    pub fn credentials(self) -> Option<RawText<'a>> {
        self.text(push_tag::CREDENTIALS)
    }

    /// The conversation of its tasks, if it names no task (Evo AI).
    pub fn context_id(self) -> Option<RawText<'a>> {
        self.text(push_tag::CONTEXT_ID)
    }

    /// Its additional header fields, by name and value (Evo AI).
    pub fn headers(self) -> impl Iterator<Item = (RawText<'a>, RawText<'a>)> {
        let texts = |tag| PackedFields(self.0).texts(tag);
        texts(push_tag::HEADER_NAME).zip(texts(push_tag::HEADER_VALUE))
    }

    /// The events that the webhook gets, if the configuration specifies them.
    pub fn filter(self) -> Option<PushFilter> {
        let bits = PackedFields(self.0).first(push_tag::FILTER)?;
        bits.first().map(|bits| PushFilter::of_bits(*bits))
    }

    /// The trace in which it was set, in the form of `traceparent` (W3C Trace Context §3.2).
    #[cfg(feature = "push")]
    pub(crate) fn trace(self) -> Option<&'a str> {
        self.text(push_tag::TRACE).map(RawText::raw_str)
    }

    /// A copy with this trace.
    #[cfg(feature = "push")]
    pub(crate) fn in_trace(self, traceparent: &[u8]) -> Vec<u8> {
        self.with(push_tag::TRACE, traceparent)
    }

    /// The number of the operation that set a scope's webhook.
    #[cfg(feature = "push")]
    pub(crate) fn setting(self) -> Option<u64> {
        let bytes = PackedFields(self.0).first(push_tag::SETTING)?;
        bytes.first_chunk().copied().map(u64::from_be_bytes)
    }

    /// A copy with this number.
    #[cfg(feature = "push")]
    pub(crate) fn of_setting(self, setting: u64) -> Vec<u8> {
        self.with(push_tag::SETTING, &setting.to_be_bytes())
    }

    #[cfg(feature = "push")]
    fn with(self, tag: u8, bytes: &[u8]) -> Vec<u8> {
        let mut packed = Vec::with_capacity(self.0.len() + bytes.len() + 8);
        packed.extend_from_slice(self.0);
        Packer(&mut packed).put(tag, bytes);
        packed
    }

    /// A copy with this raw id, and without its task.
    #[cfg_attr(not(feature = "push"), allow(dead_code, reason = "only webhooks use it"))]
    pub(crate) fn under(self, id: &[u8]) -> Box<[u8]> {
        let mut packed = Vec::with_capacity(self.0.len() + id.len() + 8);
        let mut packer = Packer(&mut packed);
        packer.put(push_tag::ID, id);
        for (tag, bytes) in PackedFields(self.0) {
            if !matches!(tag, push_tag::ID | push_tag::TASK_ID) {
                packer.put(tag, bytes);
            }
        }
        packed.into()
    }

    /// The packed fields.
    pub(crate) fn packed(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for PushConfig<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (task_id, id, url) = (self.task_id(), self.id(), self.url());
        f.debug_struct("PushConfig")
            .field("task_id", &task_id)
            .field("id", &id)
            .field("url", &url)
            .finish_non_exhaustive()
    }
}

/// An owned push configuration.
///
/// ```
/// use peregrine::model::PushConfigBuf;
///
/// let config = PushConfigBuf::new("https://hooks.example/a2a").token("t-1").bearer("secret");
/// assert_eq!(config.view().url(), "https://hooks.example/a2a");
/// ```
#[derive(Clone)]
pub struct PushConfigBuf {
    packed: Vec<u8>,
}

impl PushConfigBuf {
    /// A configuration with a URL only.
    pub fn new<'t>(url: impl Into<Text<'t>>) -> PushConfigBuf {
        PushConfigBuf { packed: Vec::new() }.with(push_tag::URL, url.into())
    }

    /// Sets the task.
    #[must_use]
    pub fn task_id<'t>(self, task_id: impl Into<Text<'t>>) -> PushConfigBuf {
        self.with(push_tag::TASK_ID, task_id.into())
    }

    /// Sets the id; a configuration with this id is replaced.
    #[must_use]
    pub fn id<'t>(self, id: impl Into<Text<'t>>) -> PushConfigBuf {
        self.with(push_tag::ID, id.into())
    }

    /// Sets the token that the server sends with each event.
    #[must_use]
    pub fn token<'t>(self, token: impl Into<Text<'t>>) -> PushConfigBuf {
        self.with(push_tag::TOKEN, token.into())
    }

    /// Sets the authorization of the server: a scheme and its credentials.
    #[must_use]
    pub fn authentication<'t>(
        self,
        scheme: impl Into<Text<'t>>,
        credentials: impl Into<Text<'t>>,
    ) -> PushConfigBuf {
        let with_scheme = self.with(push_tag::SCHEME, scheme.into());
        with_scheme.with(push_tag::CREDENTIALS, credentials.into())
    }

    /// Sets a bearer token (RFC 6750) as authorization of the server.
    #[must_use]
    pub fn bearer<'t>(self, credentials: impl Into<Text<'t>>) -> PushConfigBuf {
        self.authentication("Bearer", credentials)
    }

    /// Selects the events, if the agent has the extension
    /// [`PUSH_EVENTS`](super::Extension::PUSH_EVENTS); other agents ignore the filter. Not possible
    /// over gRPC.
    #[must_use]
    pub fn filter(mut self, filter: PushFilter) -> PushConfigBuf {
        super::build::remove(&mut self.packed, push_tag::FILTER);
        Packer(&mut self.packed).put(push_tag::FILTER, &[filter.bits()]);
        self
    }

    /// Adds a header field (Evo AI).
    #[must_use]
    pub fn header<'t>(
        mut self,
        name: impl Into<Text<'t>>,
        value: impl Into<Text<'t>>,
    ) -> PushConfigBuf {
        put_text(&mut Packer(&mut self.packed), push_tag::HEADER_NAME, name.into());
        put_text(&mut Packer(&mut self.packed), push_tag::HEADER_VALUE, value.into());
        self
    }

    /// The configuration.
    pub fn view(&self) -> PushConfig<'_> {
        PushConfig(&self.packed)
    }

    fn with(mut self, tag: u8, text: Text<'_>) -> PushConfigBuf {
        super::build::remove(&mut self.packed, tag);
        put_text(&mut Packer(&mut self.packed), tag, text);
        self
    }
}

/// One of the four operations on push configurations.
#[derive(Clone, Copy, Debug)]
pub enum PushCall<'a> {
    /// Creates or replaces a configuration, which names its task.
    Set(PushConfig<'a>),
    /// Reads a configuration.
    Get {
        /// The task.
        task_id: RawText<'a>,
        /// The id of the configuration; `None` (before 1.0): the configuration without a chosen id,
        /// or else the first.
        id: Option<RawText<'a>>,
    },
    /// Lists the configurations of a task.
    List {
        /// The task.
        task_id: RawText<'a>,
        /// At most this many; 1.0 and the proto of 0.3 have pages.
        page_size: Option<u32>,
        /// The page token; 1.0 and the proto of 0.3 have pages.
        page_token: Option<RawText<'a>>,
    },
    /// Deletes a configuration.
    Delete {
        /// The task.
        task_id: RawText<'a>,
        /// The id of the configuration; `None` (in 0.1): the configuration that a get without an id
        /// returns.
        id: Option<RawText<'a>>,
    },
}

impl<'a> PushCall<'a> {
    /// Its task; empty if it names none.
    pub fn task_id(&self) -> RawText<'a> {
        match *self {
            PushCall::Set(config) => config.task_id().unwrap_or_default(),
            PushCall::Get { task_id, .. }
            | PushCall::List { task_id, .. }
            | PushCall::Delete { task_id, .. } => task_id,
        }
    }
}

/// The content of deliveries, by the dialect that configured the webhook (wire §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PushForm {
    /// 1.0: one `StreamResponse` (A2A 1.0 §4.3.3).
    StreamResponse,
    /// 0.2 and 0.3: the task.
    Task03,
    /// 0.1: the task.
    Task01,
    /// Evo AI: the task's id, its state and the time of the change. Such a configuration names no
    /// task and applies to tasks that are created later.
    EvoAi,
}

impl PushForm {
    /// The content of deliveries to a webhook configured in a generation.
    pub const fn of(generation: Generation) -> PushForm {
        match generation {
            Generation::V1 => PushForm::StreamResponse,
            Generation::V03 => PushForm::Task03,
            Generation::V01 => PushForm::Task01,
        }
    }
}

/// An operation on push configurations, as a server gets it.
#[derive(Clone, Copy, Debug)]
pub struct PushRequest<'a> {
    /// The operation.
    pub call: PushCall<'a>,
    /// The content of deliveries to a webhook that it configures.
    pub form: PushForm,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_has_the_last_set_values_and_debug_hides_secrets() {
        let config = PushConfigBuf::new("https://a.example").id("1").task_id("t\"1").token("hush");
        let config = config.authentication("Basic", "hush").bearer("hush\n").id("2");
        let view = config.view();
        assert_eq!((view.url(), view.task_id().is_some_and(|id| id == "t\"1")), {
            (RawText::known(b"https://a.example"), true)
        });
        assert!(view.id().is_some_and(|id| id == "2"));
        assert!(view.scheme().is_some_and(|scheme| scheme == "Bearer"));
        assert!(view.credentials().is_some_and(|secret| secret == "hush\n"));
        let printed = format!("{view:?}");
        assert!(printed.contains("a.example") && !printed.contains("hush"), "{printed}");
    }

    #[test]
    fn a_configuration_has_the_filter_that_was_set_last() {
        let config = PushConfigBuf::new("https://a.example");
        assert_eq!(config.view().filter(), None);
        let config = config.filter(PushFilter::STATUS).filter(PushFilter::FINAL.coalesced(true));
        assert_eq!(config.view().filter(), Some(PushFilter::FINAL.coalesced(true)));
    }

    #[test]
    fn empty_token_is_returned_as_none() {
        let config = PushConfigBuf::new("").token("");
        assert!(config.view().token().is_none() && config.view().url().is_empty());
    }
}
