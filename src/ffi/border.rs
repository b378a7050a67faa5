//! Tracks the callbacks that run on this thread. Some functions must not be called in a callback,
//! because they would wait for that callback to return.

use std::cell::Cell;

use super::status::{FfiFailure, PeregrineStatus};

thread_local! {
    /// The depth of nested callbacks on this thread.
    static CALLBACKS: Cell<usize> = const { Cell::new(0) };
    /// True: the innermost callback must not call the library ([`in_bare_callback`]).
    static IS_BARE: Cell<bool> = const { Cell::new(false) };
}

/// Counts a callback until the guard is dropped, also when the callback unwinds.
struct InCallback {
    was_bare: bool,
}

impl Drop for InCallback {
    fn drop(&mut self) {
        CALLBACKS.set(CALLBACKS.get() - 1);
        IS_BARE.set(self.was_bare);
    }
}

fn enter(is_bare: bool) -> InCallback {
    CALLBACKS.set(CALLBACKS.get() + 1);
    InCallback { was_bare: IS_BARE.replace(is_bare) }
}

/// Runs a callback of an agent, which may use its turn, jobs and cancels.
pub(super) fn in_callback<R>(callback: impl FnOnce() -> R) -> R {
    let _in_callback = enter(false);
    callback()
}

/// Runs a callback that must not call the library, because locks may be held.
pub(super) fn in_bare_callback<R>(callback: impl FnOnce() -> R) -> R {
    let _in_callback = enter(true);
    callback()
}

/// True on a thread that runs a callback.
pub(super) fn is_in_callback() -> bool {
    CALLBACKS.get() > 0
}

/// True if the innermost callback of this thread must not call the library.
pub(super) fn is_bare() -> bool {
    IS_BARE.get()
}

/// Returns an error in a callback, for functions that would wait for the callback.
///
/// # Errors
/// [`PeregrineStatus::Busy`].
pub(super) fn outside_callbacks() -> Result<(), FfiFailure> {
    match is_in_callback() {
        true => Err(FfiFailure::new(
            PeregrineStatus::Busy,
            "a callback cannot call this function, which would wait for the callback",
        )),
        false => Ok(()),
    }
}
