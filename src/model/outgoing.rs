//! Calls of a client: every operation with all of its parameters.
//!
//! Invariant: a call that a generation or dialect cannot express is an error that names the member;
//! no part of a call is dropped silently.

use std::fmt;

use super::{
    call::{Get, List, Op, Send, SendMode, Target},
    push::PushCall,
};

/// One call before it is written, borrowed: the client's counterpart of [`Call`](super::Call).
///
/// [`Send::generation`] and [`Target::generation`] are ignored: the receiver determines the
/// generation.
#[derive(Clone, Copy)]
pub enum OutgoingCall<'a> {
    /// Send a message; [`Op::Stream`] with [`SendMode::Stream`].
    Send(Send<'a>),
    /// Read a task.
    Get(Get<'a>),
    /// Page through tasks.
    List(List<'a>),
    /// Cancel a task.
    Cancel(Target<'a>),
    /// Attach to a task's stream.
    Subscribe(Target<'a>),
    /// Set, read, list or delete push configurations.
    Push(PushCall<'a>),
    /// Read the card for authenticated callers.
    ExtendedCard,
}

impl OutgoingCall<'_> {
    /// The operation.
    pub fn op(&self) -> Op {
        match self {
            OutgoingCall::Send(send) if send.mode == SendMode::Stream => Op::Stream,
            OutgoingCall::Send(_) => Op::Send,
            OutgoingCall::Get(_) => Op::Get,
            OutgoingCall::List(_) => Op::List,
            OutgoingCall::Cancel(_) => Op::Cancel,
            OutgoingCall::Subscribe(_) => Op::Subscribe,
            OutgoingCall::Push(PushCall::Set(_)) => Op::PushSet,
            OutgoingCall::Push(PushCall::Get { .. }) => Op::PushGet,
            OutgoingCall::Push(PushCall::List { .. }) => Op::PushList,
            OutgoingCall::Push(PushCall::Delete { .. }) => Op::PushDelete,
            OutgoingCall::ExtendedCard => Op::ExtendedCard,
        }
    }
}

/// A part of a call that the generation or the dialect of its server cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotExpressible {
    /// The operation, or the member by its 1.0 name.
    pub what: &'static str,
    /// The generation, such as `0.3`, or the name of the dialect.
    pub by: &'static str,
}

impl fmt::Display for NotExpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not exist in A2A {}", self.what, self.by)
    }
}

impl std::error::Error for NotExpressible {}
