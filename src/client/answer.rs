//! The answer to a call.

use std::{fmt, sync::Arc};

use crate::model::{
    JsonObject, Message, Op, PushConfig, RawText, Received, TaskState, TaskView, received::TaskPage,
};

use super::{
    format::push_json,
    scratch::{ReplyBuf, Stash},
    v1_shape::has_v1_shape,
};

/// A server's answer. It owns its buffers and returns them to the client when it is dropped.
pub struct Answer {
    /// `Some` until the drop.
    reply: Option<Box<ReplyBuf>>,
    op: Op,
    /// True: the server sent the answer as JSON of 1.0.
    is_v1_json: bool,
    stash: Arc<Stash>,
}

impl Answer {
    pub(super) fn new(
        reply: Box<ReplyBuf>,
        op: Op,
        is_v1_json: bool,
        stash: &Arc<Stash>,
    ) -> Answer {
        Answer { reply: Some(reply), op, is_v1_json, stash: Arc::clone(stash) }
    }

    fn reply(&self) -> &ReplyBuf {
        match &self.reply {
            Some(reply) => reply,
            None => unreachable!("the reply is present until the answer is dropped"),
        }
    }

    /// The whole answer, in canonical form.
    pub fn received(&self) -> &Received {
        &self.reply().received
    }

    /// The task.
    pub fn task(&self) -> Option<TaskView<'_>> {
        self.reply().received.task()
    }

    /// The direct message.
    pub fn message(&self) -> Option<Message<'_>> {
        self.reply().received.message()
    }

    /// The page of tasks.
    pub fn page(&self) -> Option<TaskPage<'_>> {
        self.reply().received.page()
    }

    /// The push configurations of the answer: all of a list, or a single one.
    pub fn push_configs(&self) -> impl Iterator<Item = PushConfig<'_>> {
        self.reply().received.push_configs()
    }

    /// The token of the next page of a list; `None`: this is the last page.
    pub fn next_page_token(&self) -> Option<RawText<'_>> {
        self.reply().received.next_page_token().filter(|token| !token.is_empty())
    }

    /// The extended card as JSON.
    pub fn card(&self) -> Option<JsonObject<'_>> {
        self.reply().received.card()
    }

    /// The id of the task that the answer contains or refers to.
    pub fn task_id(&self) -> Option<RawText<'_>> {
        self.reply().received.task_id()
    }

    /// The context id of the task or message.
    pub fn context_id(&self) -> Option<RawText<'_>> {
        self.reply().received.context_id()
    }

    /// The state of the task.
    pub fn state(&self) -> Option<TaskState> {
        self.reply().received.state()
    }

    /// The URIs of the extensions that the server activated for the call (A2A 1.0 §4.6.1), in the
    /// server's order. Empty over WebSocket, where an answer has no head.
    pub fn activated_extensions(&self) -> impl Iterator<Item = &str> {
        extension_list(&self.reply().extensions)
    }

    /// The JSON of the result as received, without its envelope and in the server's wire format;
    /// `None`: the answer was not JSON.
    pub fn raw_json(&self) -> Option<&[u8]> {
        self.reply().body.get(self.reply().received.span()).filter(|json| !json.is_empty())
    }

    /// The JSON of the result if the server sent JSON of 1.0; empty otherwise.
    #[cfg(feature = "load")]
    pub(crate) fn v1_json(&self) -> &[u8] {
        self.raw_json().filter(|_| self.is_v1_json).unwrap_or_default()
    }

    /// Appends the result as JSON of 1.0, without an envelope: the received bytes if they are JSON
    /// of 1.0, otherwise the result serialized again. The check reads the received bytes again.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let start = out.len();
        push_json(out, &self.reply().received, self.op);
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
        if let Some(reply) = self.reply.take() {
            self.stash.give_reply(reply);
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answer").field(&self.reply().received).finish()
    }
}
