//! The reusable buffers and the caches of a worker.

use std::hint;

use crate::{
    auth::RecentCallers,
    binding::cards::CardCache,
    http::date,
    json::Parser,
    limits::Limits,
    model::{EventBuf, uuid},
    service::{AgentIndex, Entropy, LastCall, Now, observe::CallDetails},
};

/// Milliseconds between the freeing of large buffers and the allocation that makes the allocator
/// return them to the system.
const RETURN_DELAY_MS: u64 = 1_500;

/// The size of the block that is allocated and freed for this.
const OCCASION_BYTES: usize = 1024 * 1024;

/// The reusable buffers and the caches of a worker.
pub struct Scratch {
    /// The buffers for decoding bodies.
    pub decode: DecodeBuffers,
    /// The state for executing calls.
    pub call: CallScratch,
    /// The callers that the worker has admitted recently.
    pub callers: RecentCallers,
    /// The buffer for unmasking WebSocket messages.
    pub message: Vec<u8>,
    /// When large buffers were last freed; the allocator may still retain them.
    freed_ms: Option<u64>,
    /// The value of `Date`.
    pub date: DateText,
}

/// The value of `Date`, rendered once a second.
pub struct DateText {
    text: [u8; 29],
    second: u64,
}

/// The buffers for decoding a body; a call borrows from them until its answer is written.
pub struct DecodeBuffers {
    /// The JSON parser and its buffers.
    pub parser: Parser,
    /// Packed messages.
    pub pack: Vec<u8>,
    /// Params of a query, as JSON.
    pub params: Vec<u8>,
}

/// The state for executing and answering a call.
pub struct CallScratch {
    /// The number of the worker, from 0.
    pub worker: usize,
    /// Events of an agent until they are applied.
    pub events: EventBuf,
    /// The source of identifiers.
    pub entropy: Box<dyn Entropy + Send>,
    /// The id for the next message without an id.
    pub fresh_id: [u8; 36],
    /// The tenant of the call that was decoded last; empty: no tenant.
    pub tenant: String,
    /// Recently requested cards.
    pub cards: CardCache,
    /// The agent that was called last.
    pub last_call: LastCall,
    /// The log details of the last rejected call of a batch.
    pub refused: Option<Box<CallDetails>>,
}

impl Scratch {
    /// Empty buffers for one worker.
    pub fn new(worker: usize, limits: &Limits, mut entropy: Box<dyn Entropy + Send>) -> Scratch {
        let fresh_id = uuid(entropy.bits());
        let parser = Parser::bounded(limits.json_tokens_max);
        let (events, cards) = (EventBuf::default(), CardCache::default());
        Scratch {
            decode: DecodeBuffers { parser, pack: Vec::new(), params: Vec::new() },
            call: CallScratch {
                worker,
                events,
                entropy,
                fresh_id,
                tenant: String::new(),
                cards,
                last_call: LastCall { agent: AgentIndex(0), at_ms: u64::MAX },
                refused: None,
            },
            callers: RecentCallers::default(),
            message: Vec::new(),
            freed_ms: None,
            date: DateText { text: date::imf_fixdate(0), second: 0 },
        }
    }

    /// Records that large buffers were freed; the allocator may still retain them.
    pub fn note_freed(&mut self, now: Now) {
        self.freed_ms = Some(now.mono_ms);
    }

    /// Makes the allocator return freed memory to the system, some time after large buffers were
    /// freed.
    ///
    /// mimalloc returns memory that was freed more than a second ago only when another large block
    /// is freed. An idle worker frees no blocks, so this function allocates and frees one.
    pub fn shrink(&mut self, now: Now) {
        if self.freed_ms.is_some_and(|at_ms| now.mono_ms >= at_ms + RETURN_DELAY_MS) {
            self.freed_ms = None;
            drop(hint::black_box(Vec::<u8>::with_capacity(OCCASION_BYTES)));
        }
    }
}

impl CallScratch {
    /// Records the agent of a call that begins now.
    #[inline(always)]
    pub fn note_call(&mut self, agent: AgentIndex, now: Now) {
        self.last_call = LastCall { agent, at_ms: now.mono_ms };
    }
}

impl DateText {
    /// The text for this time.
    #[inline]
    pub fn at(&mut self, now: Now) -> &[u8; 29] {
        let second = now.unix_ms / 1000;
        if second != self.second {
            *self = DateText { text: date::imf_fixdate(second), second };
        }
        &self.text
    }
}
