//! Memory that calls use one after another.
//!
//! Law: a call takes what it needs and gives it back, so what goes on in the steady state allocates
//! nothing. Memory that one large answer took is not kept; that of a call that was dropped is
//! freed.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{http::FieldLinesBuf, model::Received};

use super::{
    ClientLimits,
    credentials::HeldToken,
    format::{FormatBuffers, WrittenCall},
};

/// Bytes of one buffer above which it is given back to the allocator.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Scratches, and answers, that wait for the next call.
const KEPT_MAX: usize = 64;

/// What a call uses until it has its answer.
pub(super) struct CallBuffers {
    /// The message as it is sent, and ids.
    pub packed: Vec<u8>,
    /// The request but for its head.
    pub written: WrittenCall,
    /// Path and query of the request.
    pub target: String,
    /// The head.
    pub fields: FieldLinesBuf,
    /// The OAuth token in it.
    pub token: Option<Arc<HeldToken>>,
    /// Parses the answer.
    pub buffers: FormatBuffers,
    /// Bytes of a stream of events that were read together.
    pub input: Vec<u8>,
    /// The answer.
    pub said: ReplyBuf,
}

/// Memory that is given back when its owner is dropped.
pub(super) struct LentBuffers {
    /// There until it is dropped.
    buffers: Option<Box<CallBuffers>>,
    stash: Arc<Stash>,
}

impl Deref for LentBuffers {
    type Target = CallBuffers;

    fn deref(&self) -> &CallBuffers {
        let Some(buffers) = &self.buffers else { unreachable!("it was dropped") };
        buffers
    }
}

impl DerefMut for LentBuffers {
    fn deref_mut(&mut self) -> &mut CallBuffers {
        let Some(buffers) = &mut self.buffers else { unreachable!("it was dropped") };
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

/// What a server said.
#[derive(Default)]
pub(super) struct ReplyBuf {
    /// The content of the response, or the data of one event.
    pub body: Vec<u8>,
    /// The same, read.
    pub received: Received,
    /// `A2A-Extensions` of the response's head: those that the server has activated.
    pub extensions: String,
}

/// Where memory waits for the next call.
pub(super) struct Stash {
    limits: ClientLimits,
    /// Boxed, because they are large and moved twice a call.
    #[allow(clippy::vec_box)]
    idle: Mutex<Vec<Box<CallBuffers>>>,
    said: Mutex<Vec<ReplyBuf>>,
}

impl Stash {
    pub fn new(limits: ClientLimits) -> Arc<Stash> {
        Arc::new(Stash { limits, idle: Mutex::default(), said: Mutex::default() })
    }

    pub fn take(&self) -> Box<CallBuffers> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut scratch = idle.unwrap_or_else(|| self.fresh());
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).pop();
        scratch.said = said.unwrap_or_default();
        scratch
    }

    /// The same, given back by itself.
    pub fn lend(self: &Arc<Stash>) -> LentBuffers {
        LentBuffers { buffers: Some(self.take()), stash: Arc::clone(self) }
    }

    fn fresh(&self) -> Box<CallBuffers> {
        Box::new(CallBuffers {
            packed: Vec::new(),
            written: WrittenCall::default(),
            target: String::new(),
            fields: FieldLinesBuf::default(),
            token: None,
            buffers: FormatBuffers::new(&self.limits),
            input: Vec::new(),
            said: ReplyBuf::default(),
        })
    }

    pub fn give(&self, mut scratch: Box<CallBuffers>) {
        let CallBuffers { packed, written, input, .. } = &mut *scratch;
        for buffer in [packed, &mut written.body, input] {
            buffer.clear();
            buffer.shrink_to(KEPT_BYTES_MAX);
        }
        scratch.token = None;
        self.give_said(std::mem::take(&mut scratch.said));
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT_MAX {
            idle.push(scratch);
        }
    }

    pub fn give_said(&self, mut said: ReplyBuf) {
        said.body.clear();
        said.extensions.clear();
        let held_bytes = said.body.capacity() + said.received.held_bytes();
        let held_bytes = held_bytes + said.extensions.capacity();
        if held_bytes == 0 || held_bytes > KEPT_BYTES_MAX {
            return;
        }
        let mut kept = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(said);
        }
    }
}
