//! The requests of a caller, owned and reusable: a message to send, a list of tasks.

use std::sync::Arc;

use crate::{
    agent::RequestInfo,
    model::{
        Generation, JsonObject, JsonObjectBuf, List, Message, MessageBuf, OutgoingCall, PartsBuf,
        PushConfigBuf, RawText, Role, Send, SendMode, TaskState, Text,
        pack::{Packer, message_tag},
    },
};

use super::{
    TraceParent,
    outgoing_terms::{CallTerms, OutgoingTerms, merged},
};

/// A message to an agent, with options for the answer. The request can be sent any number of times;
/// each time the message gets a new id, unless it has its own.
///
/// ```
/// use peregrine::client::SendRequest;
///
/// let request = SendRequest::text("hello").context_id("c-1").history(10);
/// ```
#[derive(Clone)]
pub struct SendRequest {
    message: MessageBuf,
    at_once: bool,
    history: Option<u32>,
    /// A JSON array of strings.
    output_modes: Option<Box<str>>,
    metadata: Option<JsonObjectBuf>,
    push: Option<PushConfigBuf>,
    terms: CallTerms,
}

impl SendRequest {
    /// A message of one part of text.
    pub fn text<'t>(text: impl Into<Text<'t>>) -> SendRequest {
        SendRequest::parts(&PartsBuf::new().text(text))
    }

    /// A message of these parts; at least one is required.
    pub fn parts(parts: &PartsBuf) -> SendRequest {
        SendRequest::of(MessageBuf::agent(parts))
    }

    /// This message; a client sends it with the role of the user, whatever role it has.
    pub fn of(message: MessageBuf) -> SendRequest {
        let (at_once, history, output_modes) = (false, None, None);
        let (metadata, push, terms) = (None, None, None);
        SendRequest { message, at_once, history, output_modes, metadata, push, terms }
    }

    /// The task to continue. Servers create the ids of tasks and reject unknown ids (except in 0.1,
    /// where an unknown id creates the task, as does the id of a message without a task). An answer
    /// about another task is an error (except for LangSmith and Pydantic AI, where each message
    /// creates a task).
    #[must_use]
    pub fn task_id<'t>(mut self, id: impl Into<Text<'t>>) -> SendRequest {
        self.message = self.message.task_id(id);
        self
    }

    /// The conversation that the message belongs to.
    #[must_use]
    pub fn context_id<'t>(mut self, id: impl Into<Text<'t>>) -> SendRequest {
        self.message = self.message.context_id(id);
        self
    }

    /// Returns as soon as the task exists, instead of when it has ended or waits for its client
    /// (A2A 1.0 §3.2.2). Has no effect on a stream.
    #[must_use]
    pub fn return_immediately(mut self) -> SendRequest {
        self.at_once = true;
        self
    }

    /// Maximum messages of history in the answer; unset: the server decides.
    #[must_use]
    pub fn history(mut self, most: u32) -> SendRequest {
        self.history = Some(most);
        self
    }

    /// The accepted media types of the answer (RFC 6838), the preferred one first.
    #[must_use]
    pub fn accepted_output_modes<'m>(
        mut self,
        modes: impl IntoIterator<Item = &'m str>,
    ) -> SendRequest {
        let mut json = vec![b'['];
        for mode in modes {
            if json.len() > 1 {
                json.push(b',');
            }
            json.push(b'"');
            Text::from(mode).push_raw(&mut json);
            json.push(b'"');
        }
        json.push(b']');
        self.output_modes = Some(String::from_utf8_lossy(&json).into());
        self
    }

    /// The accepted media types as a JSON array of strings.
    #[cfg(feature = "gateway")]
    #[must_use]
    pub(crate) fn accepted_output_modes_json(mut self, json: &str) -> SendRequest {
        self.output_modes = Some(json.into());
        self
    }

    /// Metadata of the request; metadata of the message is part of the message.
    #[must_use]
    pub fn metadata(mut self, metadata: JsonObject<'_>) -> SendRequest {
        self.metadata = Some(metadata.into());
        self
    }

    /// A webhook that also receives the events of the task.
    #[must_use]
    pub fn push(mut self, config: PushConfigBuf) -> SendRequest {
        self.push = Some(config);
        self
    }

    /// The trace of the call, and of all calls of its stream; see
    /// [`Client::with_traceparent`](super::Client::with_traceparent).
    #[must_use]
    pub fn traceparent(mut self, trace: TraceParent) -> SendRequest {
        self.own_terms().trace = Some(trace);
        self
    }

    /// Requests extensions of the agent by comma-separated URIs, in addition to the extensions that
    /// the client requests in all calls (A2A 1.0 §4.6.1). URIs that are not visible ASCII are
    /// omitted; over WebSocket all are.
    #[must_use]
    pub fn extensions(mut self, uris: &str) -> SendRequest {
        let is_uri =
            |uri: &&str| !uri.is_empty() && uri.bytes().all(|byte| byte.is_ascii_graphic());
        let uris: Vec<&str> = uris.split(',').map(str::trim).filter(is_uri).collect();
        self.own_terms().extensions = (!uris.is_empty()).then(|| uris.join(", ").into());
        self
    }

    /// The message of the request.
    pub fn message(&self) -> Message<'_> {
        self.message.view()
    }

    /// The task that the message names.
    pub(super) fn task(&self) -> Option<RawText<'_>> {
        self.message.view().task_id().filter(|id| !id.is_empty())
    }

    /// Sends the message for a request that the caller serves; see
    /// [`Client::within`](super::Client::within).
    #[must_use]
    pub fn within(mut self, request: &RequestInfo) -> SendRequest {
        self.terms = merged(&self.terms, &Some(Arc::new(OutgoingTerms::of(request))));
        self
    }

    pub(super) fn terms(&self) -> &CallTerms {
        &self.terms
    }

    fn own_terms(&mut self) -> &mut OutgoingTerms {
        Arc::make_mut(self.terms.get_or_insert_default())
    }

    /// Whether a webhook also receives the events.
    pub(super) fn has_push(&self) -> bool {
        self.push.is_some()
    }

    /// The call. Its message is packed again, with the client's role and, if it has no id, with
    /// `fresh_id`.
    pub(super) fn call<'a>(
        &'a self,
        is_stream: bool,
        fresh_id: &[u8],
        packed: &'a mut Vec<u8>,
    ) -> OutgoingCall<'a> {
        pack(self.message.view(), fresh_id, packed);
        let message = self.message.view();
        let mode = match (is_stream, self.at_once) {
            (true, _) => SendMode::Stream,
            (false, true) => SendMode::Return,
            (false, false) => SendMode::Wait,
        };
        let send = Send {
            message: Message(packed),
            has_own_id: true,
            task_id: message.task_id(),
            client_chooses_id: false,
            context_id: message.context_id(),
            mode,
            history: self.history,
            accepted_output_modes: self.output_modes.as_deref().map(str::as_bytes),
            metadata: self.metadata.as_ref().map(JsonObjectBuf::view),
            push: self.push.as_ref().map(PushConfigBuf::view),
            generation: Generation::V1,
        };
        OutgoingCall::Send(send)
    }
}

/// Two texts as raw text in `packed`.
pub(super) fn two<'p>(
    packed: &'p mut Vec<u8>,
    texts: [Option<&str>; 2],
) -> [Option<RawText<'p>>; 2] {
    packed.clear();
    Text::from(texts[0].unwrap_or_default()).push_raw(packed);
    let middle = packed.len();
    Text::from(texts[1].unwrap_or_default()).push_raw(packed);
    let (first, second) = packed.split_at(middle);
    [texts[0].map(|_| RawText::known(first)), texts[1].map(|_| RawText::known(second))]
}

/// Packs a message with the client's role, its id first.
fn pack(message: Message<'_>, fresh_id: &[u8], packed: &mut Vec<u8>) {
    packed.clear();
    let id = message.message_id().raw();
    let mut packer = Packer(packed);
    packer.put(message_tag::MESSAGE_ID, if id.is_empty() { fresh_id } else { id });
    packer.put(message_tag::ROLE, &[Role::User as u8]);
    for (tag, bytes) in message.fields() {
        if tag != message_tag::MESSAGE_ID && tag != message_tag::ROLE {
            packer.put(tag, bytes);
        }
    }
}

/// A task by its id, and by its conversation if the dialect needs it (LangSmith).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskAddress<'a> {
    id: &'a str,
    context_id: Option<&'a str>,
}

impl<'a> TaskAddress<'a> {
    /// The task with this id.
    pub fn new(id: &'a str) -> TaskAddress<'a> {
        TaskAddress { id, context_id: None }
    }

    /// The task in this conversation, which only some dialects can express.
    #[must_use]
    pub fn within(self, context_id: &'a str) -> TaskAddress<'a> {
        TaskAddress { context_id: Some(context_id), ..self }
    }

    /// Whether this is the address of the task with this id. `has_threads`: the server is
    /// LangSmith, which may write ids as `context:task` in requests and answers.
    pub(super) fn names(&self, id: RawText<'_>, has_threads: bool) -> bool {
        id == self.id
            || has_threads && {
                let (requested, answered) = (self.id, id.to_str());
                let is_end = |whole: &str, end: &str| {
                    whole.strip_suffix(end).is_some_and(|context| context.ends_with(':'))
                };
                is_end(requested, &answered) || is_end(&answered, requested)
            }
    }

    /// The id and the conversation as raw text in `packed`.
    pub(super) fn raw<'p>(self, packed: &'p mut Vec<u8>) -> (RawText<'p>, Option<RawText<'p>>) {
        let [id, context_id] = two(packed, [Some(self.id), self.context_id]);
        (id.unwrap_or_default(), context_id)
    }
}

impl<'a> From<&'a str> for TaskAddress<'a> {
    fn from(id: &'a str) -> TaskAddress<'a> {
        TaskAddress::new(id)
    }
}

impl<'a> From<&'a String> for TaskAddress<'a> {
    fn from(id: &'a String) -> TaskAddress<'a> {
        TaskAddress::new(id)
    }
}

impl<'a> From<&'a std::borrow::Cow<'_, str>> for TaskAddress<'a> {
    fn from(id: &'a std::borrow::Cow<'_, str>) -> TaskAddress<'a> {
        TaskAddress::new(id)
    }
}

/// A filter of tasks to list (A2A 1.0 §3.1.4); the default is the newest fifty of all tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListTasks {
    /// Only tasks of this conversation.
    pub context_id: Option<String>,
    /// Only tasks in this state.
    pub status: Option<TaskState>,
    /// Maximum tasks of a page, 1 to 100.
    pub page_size: Option<u32>,
    /// The token of the page, from the previous page.
    pub page_token: Option<String>,
    /// Maximum messages of history in each task.
    pub history: Option<u32>,
    /// Only tasks with a status change at or after this time, in ms since the Unix epoch.
    pub after_ms: Option<u64>,
    /// True: the tasks have their artifacts.
    pub include_artifacts: bool,
}

impl ListTasks {
    /// The call, which borrows from `packed`.
    pub(super) fn call<'a>(&self, packed: &'a mut Vec<u8>) -> OutgoingCall<'a> {
        let texts = [self.context_id.as_deref(), self.page_token.as_deref()];
        let [context_id, token] = two(packed, texts);
        OutgoingCall::List(List {
            context_id,
            status: self.status,
            page_size: self.page_size,
            page_token: token.map(RawText::raw),
            history: self.history,
            after_ms: self.after_ms,
            include_artifacts: self.include_artifacts,
        })
    }
}
