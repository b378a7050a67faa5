//! What a call is answered with.

use std::{fmt, sync::Arc};

use crate::model::{
    JsonObject, Message, Op, PushConfig, RawText, Received, TaskState, TaskView, received::TaskPage,
};

use super::{
    format::push_json,
    scratch::{ReplyBuf, Stash},
    v1_shape::has_v1_shape,
};

/// What a server answered. It keeps its memory until it is dropped, and then gives it to the next
/// call.
pub struct Answer {
    /// There until it is dropped.
    said: Option<Box<ReplyBuf>>,
    op: Op,
    /// Its JSON is that of 1.0.
    is_v1_json: bool,
    stash: Arc<Stash>,
}

impl Answer {
    pub(super) fn new(said: Box<ReplyBuf>, op: Op, is_v1_json: bool, stash: &Arc<Stash>) -> Answer {
        Answer { said: Some(said), op, is_v1_json, stash: Arc::clone(stash) }
    }

    fn said(&self) -> &ReplyBuf {
        match &self.said {
            Some(said) => said,
            None => unreachable!("an answer has what was said until it is dropped"),
        }
    }

    /// All of it, in canonical form.
    pub fn received(&self) -> &Received {
        &self.said().received
    }

    /// The task.
    pub fn task(&self) -> Option<TaskView<'_>> {
        self.said().received.task()
    }

    /// The direct message.
    pub fn message(&self) -> Option<Message<'_>> {
        self.said().received.message()
    }

    /// The page of tasks.
    pub fn page(&self) -> Option<TaskPage<'_>> {
        self.said().received.page()
    }

    /// The push configurations of a list, or the one.
    pub fn push_configs(&self) -> impl Iterator<Item = PushConfig<'_>> {
        self.said().received.push_configs()
    }

    /// The token of the next page of a list, if there is one.
    pub fn next_page_token(&self) -> Option<RawText<'_>> {
        self.said().received.next_page_token().filter(|token| !token.is_empty())
    }

    /// The extended card, as the JSON that it is.
    pub fn card(&self) -> Option<JsonObject<'_>> {
        self.said().received.card()
    }

    /// The task that it is or is about.
    pub fn task_id(&self) -> Option<RawText<'_>> {
        self.said().received.task_id()
    }

    /// The conversation that it belongs to.
    pub fn context_id(&self) -> Option<RawText<'_>> {
        self.said().received.context_id()
    }

    /// The state of the task.
    pub fn state(&self) -> Option<TaskState> {
        self.said().received.state()
    }

    /// The URIs of the extensions that the server says it has activated for the call (A2A 1.0
    /// §4.6.1), in its order. None over WebSocket, where a call has no head of its own.
    pub fn activated_extensions(&self) -> impl Iterator<Item = &str> {
        extension_list(&self.said().extensions)
    }

    /// The JSON of the result as it came, without its envelope, in the spelling of the server;
    /// `None`: it did not come as JSON.
    pub fn raw_json(&self) -> Option<&[u8]> {
        self.said().body.get(self.said().received.span()).filter(|json| !json.is_empty())
    }

    /// The JSON of the result if it came as that of 1.0; empty otherwise.
    #[cfg(feature = "load")]
    pub(crate) fn v1_json(&self) -> &[u8] {
        self.raw_json().filter(|_| self.is_v1_json).unwrap_or_default()
    }

    /// Appends the JSON of the result as 1.0 has it: as it came where it came so, else written
    /// anew, whatever it was wrapped in. It is read again for that.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let start = out.len();
        push_json(out, &self.said().received, self.op);
        if let Some(json) = self.raw_json().filter(|_| self.is_v1_json)
            && has_v1_shape(json, &out[start..])
        {
            out.truncate(start);
            out.extend_from_slice(json);
        }
    }
}

/// The entries of `A2A-Extensions` (A2A 1.0 §3.2.6: a comma-separated list of URIs).
pub(super) fn extension_list(field: &str) -> impl Iterator<Item = &str> {
    field.split(',').map(str::trim).filter(|uri| !uri.is_empty())
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(said) = self.said.take() {
            self.stash.give_said(said);
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answer").field(&self.said().received).finish()
    }
}
