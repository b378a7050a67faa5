//! The statuses and errors of the functions of the C interface.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::embed::HostError;

use super::{border, buffers::put_text};

/// The result of a function.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeregrineStatus {
    /// The function has succeeded.
    Ok = 0,
    /// A required pointer is null.
    Null = 1,
    /// The handle is zero, stale, or of another kind.
    Handle = 2,
    /// A text is not UTF-8.
    Utf8 = 3,
    /// A value is out of range, or cannot be parsed.
    Value = 4,
    /// The task accepts no more events: the task has ended or was canceled, or the turn was
    /// answered.
    Closed = 5,
    /// The buffer is too short: nothing was written to it, and `len` is the required length.
    Space = 6,
    /// The server refuses: its configuration is wrong, its address is in use, or its state is wrong
    /// (such as already started).
    Server = 7,
    /// The library panicked, which is a bug of the library.
    Internal = 8,
    /// A callback cannot call this function, which would wait for the callback.
    Busy = 9,
    /// The limit of open requests, connections and calls is reached (`connections_max`).
    Full = 10,
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// An error with its text.
pub(super) struct FfiFailure(pub PeregrineStatus, pub String);

impl FfiFailure {
    pub fn new(status: PeregrineStatus, text: impl Into<String>) -> FfiFailure {
        FfiFailure(status, text.into())
    }
}

impl From<HostError> for FfiFailure {
    fn from(error: HostError) -> FfiFailure {
        let status = match error {
            HostError::Closed => PeregrineStatus::Closed,
            HostError::Card(_) | HostError::Event(_) | HostError::OtherTask(_) => {
                PeregrineStatus::Value
            }
            HostError::Server(_) => PeregrineStatus::Server,
            HostError::Full => PeregrineStatus::Full,
        };
        FfiFailure(status, error.to_string())
    }
}

/// Runs the body of a function of the interface. Its result becomes a status; the text of an error
/// is stored for `peregrine_last_error`.
pub(super) fn run(body: impl FnOnce() -> Result<(), FfiFailure>) -> PeregrineStatus {
    let outcome = match border::is_bare() {
        true => Ok(border::outside_callbacks()),
        false => catch_unwind(AssertUnwindSafe(body)),
    };
    let FfiFailure(status, text) = match outcome {
        Ok(Ok(())) => return PeregrineStatus::Ok,
        Ok(Err(failure)) => failure,
        Err(_) => FfiFailure::new(PeregrineStatus::Internal, "the library has panicked"),
    };
    // At the end of a thread, its storage for the text no longer exists.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    status
}

/// Writes the text of the last error of the calling thread, in UTF-8 and without a zero byte at its
/// end. The text is stored until the next error. Call from any thread.
///
/// Errors: `NULL`, `SPACE`.
///
/// # Safety
/// `out` points at `capacity` bytes, or is null if `capacity` is 0; `len` is null or points at a
/// `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_last_error(
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    let text = LAST.try_with(|last| last.borrow().clone()).unwrap_or_default();
    // SAFETY: upheld by the caller.
    match unsafe { put_text(out, capacity, len, text.as_bytes()) } {
        Ok(()) => PeregrineStatus::Ok,
        Err(FfiFailure(status, _)) => status,
    }
}
