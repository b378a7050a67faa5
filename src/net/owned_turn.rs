//! What the functions take that [`async_agent`](super::async_agent) and
//! [`blocking_agent`](super::blocking_agent) make agents of.

use crate::agent::{Canceled, Closed, Deferred, Job, Turn, TurnKey};

/// A turn that a function owns: a [`Job`], so that each message makes a task or goes on with one;
/// or a [`Deferred`], to find out what comes of it.
pub trait OwnedTurn: sealed::Sealed + Send + Sized + 'static {
    /// Takes it out of a turn.
    #[doc(hidden)]
    fn take(turn: Turn<'_>) -> Result<Self, Closed>;
    /// What tells the turn from others.
    #[doc(hidden)]
    fn key(&self) -> TurnKey;
    /// Its end is of no use.
    #[doc(hidden)]
    fn is_in_vain(&self) -> bool;
    /// Ready when no client will ever see its result; `None`: one may.
    #[doc(hidden)]
    fn unseen(&self) -> Option<Canceled>;
}

impl OwnedTurn for Job {
    fn take(turn: Turn<'_>) -> Result<Job, Closed> {
        turn.detach()
    }

    fn key(&self) -> TurnKey {
        self.turn_key()
    }

    fn is_in_vain(&self) -> bool {
        self.is_closed()
    }

    fn unseen(&self) -> Option<Canceled> {
        None
    }
}

impl OwnedTurn for Deferred {
    fn take(turn: Turn<'_>) -> Result<Deferred, Closed> {
        turn.defer()
    }

    fn key(&self) -> TurnKey {
        self.turn_key()
    }

    fn is_in_vain(&self) -> bool {
        self.request().state().is_none() && self.is_caller_gone()
    }

    fn unseen(&self) -> Option<Canceled> {
        self.request().state().is_none().then(|| self.canceled())
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Job {}
    impl Sealed for super::Deferred {}
}
