//! Memory that calls reuse.
//!
//! Invariant: a call takes buffers and returns them, so the steady state allocates nothing. The
//! buffers of a large answer are freed, as are those of a dropped call.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{http::FieldLinesBuf, model::Received};

use super::{
    ClientLimits,
    credentials::HeldToken,
    format::{FormatBuffers, WrittenCall},
    outgoing_terms::CallTerms,
};

/// Bytes of one buffer above which it is freed.
const RETAINED_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of retained buffers, and of retained answers.
const RETAINED_MAX: usize = 64;

/// The buffers of a call until its answer has arrived.
pub(super) struct CallBuffers {
    /// The packed message, and ids.
    pub packed: Vec<u8>,
    /// The request without its head.
    pub written: WrittenCall,
    /// Path and query of the request.
    pub target: String,
    /// The fields of the request.
    pub fields: FieldLinesBuf,
    /// The OAuth token in the fields.
    pub token: Option<Arc<HeldToken>>,
    /// The terms of the call that this call serves.
    pub terms: CallTerms,
    /// The memory of the answer's parser.
    pub buffers: FormatBuffers,
    /// Received bytes of a stream of events.
    pub input: Vec<u8>,
    /// The answer. Boxed, because it is moved between owners.
    pub reply: Box<ReplyBuf>,
}

/// Buffers that return to the stash when they are dropped.
pub(super) struct LentBuffers {
    /// `Some` until the drop.
    buffers: Option<Box<CallBuffers>>,
    stash: Arc<Stash>,
}

impl Deref for LentBuffers {
    type Target = CallBuffers;

    fn deref(&self) -> &CallBuffers {
        let Some(buffers) = &self.buffers else { unreachable!("the buffers were dropped") };
        buffers
    }
}

impl DerefMut for LentBuffers {
    fn deref_mut(&mut self) -> &mut CallBuffers {
        let Some(buffers) = &mut self.buffers else { unreachable!("the buffers were dropped") };
        buffers
    }
}

impl Drop for LentBuffers {
    fn drop(&mut self) {
        if let Some(buffers) = self.buffers.take() {
            self.stash.give(buffers);
        }
    }
}

/// A server's answer.
#[derive(Default)]
pub(super) struct ReplyBuf {
    /// The content of the response, or the data of one event.
    pub body: Vec<u8>,
    /// The parsed answer.
    pub received: Received,
    /// `A2A-Extensions` of the response's head: the extensions that the server has activated.
    pub extensions: String,
}

impl ReplyBuf {
    fn clear(&mut self) {
        self.body.clear();
        self.extensions.clear();
    }

    /// Whether the memory of the answer is retained: not after a large answer.
    fn is_retained(&self) -> bool {
        let held_bytes = self.body.capacity() + self.extensions.capacity();
        held_bytes + self.received.held_bytes() <= RETAINED_BYTES_MAX
    }
}

/// The retained memory.
pub(super) struct Stash {
    limits: ClientLimits,
    is_strict: bool,
    #[allow(clippy::vec_box, reason = "the buffers are large, and moved twice per call")]
    idle: Mutex<Vec<Box<CallBuffers>>>,
    #[allow(clippy::vec_box, reason = "each future of a call would move the reply")]
    replies: Mutex<Vec<Box<ReplyBuf>>>,
}

impl Stash {
    pub fn new(limits: ClientLimits, is_strict: bool) -> Arc<Stash> {
        Arc::new(Stash { limits, is_strict, idle: Mutex::default(), replies: Mutex::default() })
    }

    pub fn take(&self) -> Box<CallBuffers> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| self.fresh())
    }

    /// Memory for the next answer.
    pub fn take_reply(&self) -> Box<ReplyBuf> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Buffers that return to the stash when they are dropped.
    pub fn lend(self: &Arc<Stash>) -> LentBuffers {
        LentBuffers { buffers: Some(self.take()), stash: Arc::clone(self) }
    }

    fn fresh_buffers(&self) -> FormatBuffers {
        FormatBuffers::new(&self.limits).strict(self.is_strict)
    }

    fn fresh(&self) -> Box<CallBuffers> {
        Box::new(CallBuffers {
            packed: Vec::new(),
            written: WrittenCall::default(),
            target: String::new(),
            fields: FieldLinesBuf::default(),
            token: None,
            terms: None,
            buffers: self.fresh_buffers(),
            input: Vec::new(),
            reply: Box::default(),
        })
    }

    pub fn give(&self, mut scratch: Box<CallBuffers>) {
        let CallBuffers { packed, written, input, .. } = &mut *scratch;
        for buffer in [packed, &mut written.body, input] {
            buffer.clear();
            buffer.shrink_to(RETAINED_BYTES_MAX);
        }
        if !scratch.buffers.is_within(RETAINED_BYTES_MAX) {
            scratch.buffers = self.fresh_buffers();
        }
        (scratch.token, scratch.terms) = (None, None);
        scratch.reply.clear();
        if !scratch.reply.is_retained() {
            scratch.reply = Box::default();
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < RETAINED_MAX {
            idle.push(scratch);
        }
    }

    pub fn give_reply(&self, mut reply: Box<ReplyBuf>) {
        reply.clear();
        if !reply.is_retained() {
            return;
        }
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        if replies.len() < RETAINED_MAX {
            replies.push(reply);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        binding::interfaces::Binding, client::format::Format, model::Generation, model::Received,
    };

    /// The parser's memory for a document is a multiple of the document.
    #[test]
    fn parser_memory_of_large_document_is_freed() {
        let stash = Stash::new(ClientLimits::default(), false);
        let format = Format::standard(Binding::HttpJson, Generation::V1);
        for (bytes, is_retained) in [(1_000, true), (RETAINED_BYTES_MAX + 1, false)] {
            let mut scratch = stash.take();
            let event = format!("{{\"unknown\":\"{}\"}}", "x".repeat(bytes));
            let (buffers, mut received) = (&mut scratch.buffers, Received::new());
            assert!(format.read_item(buffers, 1, event.as_bytes(), false, &mut received).is_err());
            assert!(!scratch.buffers.is_within(bytes));
            stash.give(scratch);
            assert_eq!(!stash.take().buffers.is_within(0), is_retained);
        }
    }
}
