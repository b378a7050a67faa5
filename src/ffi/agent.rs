//! Agents that run turns in callbacks of the program.

use std::{
    ffi::c_void,
    sync::{Arc, Mutex},
};

use crate::{
    agent::{Agent, CancelRequest, Profile, Turn},
    embed::{HostAgent, HostCancel},
};

use super::{
    border,
    buffers::bytes,
    handles::{self, HandleObject},
    status::{FfiFailure, PeregrineStatus},
    turn,
};

/// The callbacks of an agent. Several worker threads of the server call them at once. They must not
/// block: a callback that needs time defers the turn (`peregrine_turn_defer`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineAgent {
    /// Passed to every callback.
    pub user: *mut c_void,
    /// Called with each message to the agent. The turn is valid on this thread, until the callback
    /// returns.
    pub turn: Option<unsafe extern "C" fn(user: *mut c_void, turn: u64)>,
    /// Called when a client cancels a task. The program owns the handle until it decides the cancel
    /// (`peregrine_cancel_agree`, `peregrine_cancel_refuse`). Null: the task ends at once.
    pub cancel: Option<unsafe extern "C" fn(user: *mut c_void, cancel: u64)>,
    /// Called when the server no longer needs the agent; the last callback. It must neither block
    /// nor call a function of the library (`PEREGRINE_STATUS_BUSY`). May be null.
    pub release: Option<unsafe extern "C" fn(user: *mut c_void)>,
}

/// An agent that calls the callbacks.
pub(super) struct CallbackAgent(PeregrineAgent);

// SAFETY: the program has promised that its callbacks may be called from any thread, with its
// `user` pointer.
unsafe impl Send for CallbackAgent {}
// SAFETY: as above.
unsafe impl Sync for CallbackAgent {}

/// Creates an agent from the program's description.
///
/// # Safety
/// `card` points at `card_len` bytes; `agent` is null or points at a `PeregrineAgent` whose
/// functions may be called from any thread with its `user`.
pub(super) unsafe fn read_agent(
    card: *const u8,
    card_len: usize,
    agent: *const PeregrineAgent,
) -> Result<NewAgent, FfiFailure> {
    // SAFETY: upheld by the caller.
    let card = unsafe { bytes(card, card_len) }?;
    let null = |why| Err(FfiFailure::new(PeregrineStatus::Null, why));
    if agent.is_null() {
        return null("the agent is null");
    }
    // SAFETY: not null; the rest is upheld by the caller.
    let callbacks = unsafe { agent.read_unaligned() };
    if callbacks.turn.is_none() {
        return null("the callback turn of the agent is null");
    }
    Ok(NewAgent { profile: HostAgent::profile_of_card(card)?, callbacks })
}

/// An agent that is not part of a server yet: dropping it does not call `release`.
pub(super) struct NewAgent {
    profile: Profile,
    callbacks: PeregrineAgent,
}

impl NewAgent {
    /// Returns the agent. From now on, dropping it calls `release`.
    pub fn take(self) -> HostAgent {
        HostAgent::of(self.profile, Arc::new(CallbackAgent(self.callbacks)))
    }
}

impl Drop for CallbackAgent {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: a callback of the program, called as its comment promises.
            border::in_bare_callback(|| unsafe { release(self.0.user) });
        }
    }
}

impl Agent for CallbackAgent {
    fn start(&self, turn: Turn<'_>) {
        if let Some(callback) = self.0.turn {
            let user = self.0.user;
            // SAFETY: a callback of the program, called as its comment promises.
            turn::lend(turn, |handle| unsafe { callback(user, handle) });
        }
    }

    fn cancel(&self, cancel: CancelRequest<'_>) {
        if let Some(callback) = self.0.cancel
            && let Ok(deferred) = cancel.defer()
        {
            let cancel = Mutex::new(Some(HostCancel::new(deferred)));
            let handle = handles::insert(HandleObject::Cancel(cancel.into()));
            // SAFETY: a callback of the program, called as its comment promises.
            border::in_callback(|| unsafe { callback(self.0.user, handle) });
        }
    }
}
