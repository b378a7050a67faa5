//! Bindings: from an HTTP request to calls of the service, and from its answers to bytes.
//!
//! A binding never sees a store. What it needs of the world stands in its [`Means`], beside the
//! head of a request in an [`Exchange`]; what it leaves behind when an answer has to wait is a
//! [`Parked`] call or a [`stream::Pump`].

pub mod activated;
pub mod asked;
pub mod cards;
pub mod carrier;
#[cfg(feature = "test-echo")]
pub mod echo;
pub mod endpoint;
pub mod envelope;
pub mod grpc;
pub mod hosts;
pub mod http_error;
pub mod interfaces;
pub mod jsonrpc;
pub mod large;
pub mod origin;
pub mod parked;
pub mod rest;
pub mod route;
pub mod site;
pub mod stream;
pub mod ws;

use std::{hint, task::Waker};

use crate::{
    http::{Head, date},
    json::Parser,
    limits::Limits,
    model::{EventBuf, uuid},
    service::{Entropy, Now, Peer, Service},
};

pub use endpoint::Endpoint;
pub use large::LargeBodies;
pub use parked::Parked;
pub use site::Site;

/// Milliseconds after which the allocator is given an occasion to return what it was given.
const KEPT_MS: u64 = 1_500;

/// What the allocator is asked for, and given back, on that occasion: a block of its own.
const OCCASION_BYTES: usize = 1024 * 1024;

/// What one worker reuses from request to request: nothing here outlives a call.
pub struct Scratch {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// JSON parser with its buffers.
    pub parser: Parser,
    /// Where dialects pack messages.
    pub pack: Vec<u8>,
    /// Where messages of WebSockets are unmasked.
    pub message: Vec<u8>,
    /// Params that stand in a query, as JSON.
    pub params: Vec<u8>,
    /// Where an agent's events wait to be applied.
    pub events: EventBuf,
    /// Where identifiers come from.
    pub entropy: Box<dyn Entropy + Send>,
    /// When buffers for large bodies were given back to an allocator that may yet keep them.
    given_ms: Option<u64>,
    /// Cards that were asked for lately.
    pub cards: cards::CardCache,
    fresh_id: [u8; 36],
    date: [u8; 29],
    date_s: u64,
}

impl Scratch {
    /// Empty scratch for one worker.
    pub fn new(worker: usize, limits: &Limits, mut entropy: Box<dyn Entropy + Send>) -> Scratch {
        let fresh_id = uuid(entropy.bits());
        Scratch {
            worker,
            parser: Parser::bounded(limits.json_tokens_max),
            pack: Vec::new(),
            message: Vec::new(),
            params: Vec::new(),
            events: EventBuf::default(),
            entropy,
            given_ms: None,
            cards: cards::CardCache::default(),
            fresh_id,
            date: date::imf_fixdate(0),
            date_s: 0,
        }
    }

    /// The value of `Date`, rendered once a second.
    pub fn date(&mut self, now: Now) -> [u8; 29] {
        let seconds = now.unix_ms / 1000;
        if seconds != self.date_s {
            self.date_s = seconds;
            self.date = date::imf_fixdate(seconds);
        }
        self.date
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

/// What every answer is made with, whatever carries it.
pub struct Means<'x> {
    /// The waist.
    pub service: &'x dyn Service,
    /// Mounts, agents and settings.
    pub site: &'x Site,
    /// The worker's buffers.
    pub scratch: &'x mut Scratch,
    /// The answer.
    pub out: &'x mut Vec<u8>,
    /// The time.
    pub now: Now,
    /// Woken when a parked call or a stream may go on.
    pub wake: &'x Waker,
    /// What is known of the other side.
    pub peer: Peer<'x>,
}

impl Means<'_> {
    /// The same for one call.
    #[inline]
    pub fn reborrow(&mut self) -> Means<'_> {
        let Means { service, site, scratch, out, now, wake, peer } = self;
        Means { service: *service, site, scratch, out, now: *now, wake, peer: *peer }
    }
}

/// One request and everything needed to answer it.
pub struct Exchange<'x> {
    /// What the answer is made with.
    pub means: Means<'x>,
    /// The request's head.
    pub head: &'x Head<'x>,
    /// True: the connection closes after this answer.
    pub close: bool,
}

/// What became of a request.
pub enum Handled {
    /// The answer is complete.
    Answered,
    /// The answer is complete and only the end of the connection ends it.
    AnsweredLast,
    /// The answer waits for one or more tasks.
    Parked(Box<Parked>),
    /// The head of a stream is written; the pump writes the rest.
    Stream(Box<stream::Pump>),
    /// What follows is a WebSocket.
    Upgraded(Box<ws::Session>),
}
