//! What a worker reuses from request to request: buffers, and caches that may be emptied at any
//! time.

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

/// Milliseconds after which the allocator is given an occasion to return what it was given.
const KEPT_MS: u64 = 1_500;

/// What the allocator is asked for, and given back, on that occasion: a block of its own.
const OCCASION_BYTES: usize = 1024 * 1024;

/// All that one worker reuses.
pub struct Scratch {
    /// What bodies are decoded in.
    pub decode: DecodeBuffers,
    /// What calls are made with.
    pub call: CallScratch,
    /// The callers that it admitted last.
    pub callers: RecentCallers,
    /// Where messages of WebSockets are unmasked.
    pub message: Vec<u8>,
    /// When buffers for large bodies were given back to an allocator that may yet keep them.
    given_ms: Option<u64>,
    /// The value of `Date`.
    pub date: DateText,
}

/// The value of `Date`, rendered once a second.
pub struct DateText {
    text: [u8; 29],
    second: u64,
}

/// What a body is decoded in; a call borrows from it until it is answered.
pub struct DecodeBuffers {
    /// JSON parser with its buffers.
    pub parser: Parser,
    /// Where dialects pack messages.
    pub pack: Vec<u8>,
    /// Params that stand in a query, as JSON.
    pub params: Vec<u8>,
}

/// What a call is made and answered with.
pub struct CallScratch {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// Where an agent's events wait to be applied.
    pub events: EventBuf,
    /// Where identifiers come from.
    pub entropy: Box<dyn Entropy + Send>,
    /// The id of the next message that comes without one.
    pub fresh_id: [u8; 36],
    /// The tenant of the call that was decoded last; empty: none.
    pub tenant: String,
    /// Cards that were asked for lately.
    pub cards: CardCache,
    /// The call that was made last.
    pub last_call: LastCall,
    /// What a log tells of the call of a batch that was just refused.
    pub refused: Option<Box<CallDetails>>,
}

impl Scratch {
    /// Empty scratch for one worker.
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
            given_ms: None,
            date: DateText { text: date::imf_fixdate(0), second: 0 },
        }
    }

    /// Notes that memory was given back to an allocator that may yet keep it.
    pub fn gave_back(&mut self, now: Now) {
        self.given_ms = Some(now.mono_ms);
    }

    /// Gives the allocator an occasion to return what it was given.
    ///
    /// mimalloc returns to the system what was freed a second ago when a large block is freed,
    /// which a quiet worker does not do: so it frees one more.
    pub fn shrink(&mut self, now: Now) {
        if self.given_ms.is_some_and(|at_ms| now.mono_ms >= at_ms + KEPT_MS) {
            self.given_ms = None;
            drop(hint::black_box(Vec::<u8>::with_capacity(OCCASION_BYTES)));
        }
    }
}

impl CallScratch {
    /// Notes the agent of a call that is made now.
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
