//! The arguments of the functions from which [`async_agent`](super::async_agent) and
//! [`blocking_agent`](super::blocking_agent) create agents.

use crate::agent::{Canceled, Closed, Deferred, Job, Turn, TurnKey};

/// A turn that a function owns: a [`Job`], so that each message creates or continues a task; or a
/// [`Deferred`], to decide this itself.
pub trait OwnedTurn: sealed::Sealed + Send + Sized + 'static {
    /// Takes over the turn.
    #[doc(hidden)]
    fn take(turn: Turn<'_>) -> Result<Self, Closed>;
    /// The key of the turn.
    #[doc(hidden)]
    fn key(&self) -> TurnKey;
    /// True: the result would be discarded.
    #[doc(hidden)]
    fn is_in_vain(&self) -> bool;
    /// Ready when no client will see the result; `None`: a client may always see it.
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
