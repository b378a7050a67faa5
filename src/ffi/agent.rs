//! Agents whose turns are callbacks of the program.

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

/// The callbacks of an agent. They come from several threads at once, those of the server's
/// workers, and must not block: a callback that needs time defers the turn
/// (`peregrine_turn_defer`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineAgent {
    /// Given to every callback.
    pub user: *mut c_void,
    /// A message for the agent. The turn is good on this thread, until the callback returns.
    pub turn: Option<unsafe extern "C" fn(user: *mut c_void, turn: u64)>,
    /// A client wants a task to end: the handle is the program's until it is decided. Null: the
    /// task ends at once.
    pub cancel: Option<unsafe extern "C" fn(user: *mut c_void, cancel: u64)>,
    /// The server needs the agent no more; no other callback comes after it. It must neither block
    /// nor call a function of the library (`PEREGRINE_STATUS_BUSY`). May be null.
    pub release: Option<unsafe extern "C" fn(user: *mut c_void)>,
}

/// The callbacks as an agent.
pub(super) struct CallbackAgent(PeregrineAgent);

// SAFETY: the program has promised that its callbacks may be called from any thread, with the
// pointer that it gave.
unsafe impl Send for CallbackAgent {}
// SAFETY: as above.
unsafe impl Sync for CallbackAgent {}

/// Makes an agent from the program's description.
///
/// # Safety
/// `card` points at `card_len` bytes; `agent` is null or points at a `PeregrineAgent` whose
/// functions may be called from any thread with its `user`.
pub(super) unsafe fn read_agent(
    card: *const u8,
    card_len: usize,
    agent: *const PeregrineAgent,
) -> Result<NewAgent, FfiFailure> {
    // SAFETY: as this function demands.
    let card = unsafe { bytes(card, card_len) }?;
    let null = |why| Err(FfiFailure::new(PeregrineStatus::Null, why));
    if agent.is_null() {
        return null("the agent is null");
    }
    // SAFETY: not null, and as this function demands.
    let callbacks = unsafe { agent.read_unaligned() };
    if callbacks.turn.is_none() {
        return null("an agent has no callback for turns");
    }
    Ok(NewAgent { profile: HostAgent::profile_of_card(card)?, callbacks })
}

/// An agent that is not part of a server yet: dropping it does not call `release`.
pub(super) struct NewAgent {
    profile: Profile,
    callbacks: PeregrineAgent,
}

impl NewAgent {
    /// The agent. From now on dropping it calls `release`.
    pub fn take(self) -> HostAgent {
        HostAgent::of(self.profile, Arc::new(CallbackAgent(self.callbacks)))
    }
}

impl Drop for CallbackAgent {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: a function of the program, called as it has agreed to.
            border::in_bare_callback(|| unsafe { release(self.0.user) });
        }
    }
}

impl Agent for CallbackAgent {
    fn start(&self, turn: Turn<'_>) {
        if let Some(callback) = self.0.turn {
            let user = self.0.user;
            // SAFETY: a function of the program, called as it has agreed to.
            turn::lend(turn, |handle| unsafe { callback(user, handle) });
        }
    }

    fn cancel(&self, cancel: CancelRequest<'_>) {
        if let Some(callback) = self.0.cancel
            && let Ok(deferred) = cancel.defer()
        {
            let cancel = Mutex::new(Some(HostCancel::new(deferred)));
            let handle = handles::insert(HandleObject::Cancel(cancel.into()));
            // SAFETY: a function of the program, called as it has agreed to.
            border::in_callback(|| unsafe { callback(self.0.user, handle) });
        }
    }
}
