//! What a client asks of a server: every operation with all that it can say.
//!
//! Invariant: a call that a generation or dialect cannot express is an error that names what, and
//! nothing of it is dropped on the way.

use std::fmt;

use super::{
    call::{Get, List, Op, Send, SendMode, Target},
    push::PushCall,
};

/// One call, borrowed, before it is written: what [`Call`](super::Call) is behind a server's
/// readers.
///
/// [`Send::generation`] and [`Target::generation`] mean nothing here: the receiver decides
/// which it is.
#[derive(Clone, Copy)]
pub enum OutgoingCall<'a> {
    /// Send a message; as [`Op::Stream`] by [`SendMode::Stream`].
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

/// What a call says that the generation or the dialect of its server has no way to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotExpressible {
    /// The operation, or the member by its name in 1.0.
    pub what: &'static str,
    /// What cannot express it: a generation such as `0.3`, or the name of a dialect.
    pub by: &'static str,
}

impl fmt::Display for NotExpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not exist in A2A {}", self.what, self.by)
    }
}

impl std::error::Error for NotExpressible {}
