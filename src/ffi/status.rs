//! The results of calls of the interface.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::embed::HostError;

use super::{border, buffers::put_text};

/// What a call has come to.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeregrineStatus {
    /// It was done.
    Ok = 0,
    /// A pointer is null that must not be.
    Null = 1,
    /// The handle is zero, stale, or of another kind.
    Handle = 2,
    /// A text is no UTF-8.
    Utf8 = 3,
    /// A value is out of range, or cannot be read.
    Value = 4,
    /// The task takes no more events: it has ended or was canceled, or the turn was answered.
    Closed = 5,
    /// The buffer is too short; nothing was written, and the length is the required one.
    Space = 6,
    /// The server cannot do it: its configuration is wrong, the address is taken, it runs already.
    Server = 7,
    /// The library has failed; this is a mistake in it.
    Internal = 8,
    /// A callback cannot call this function, which would wait for the callback.
    Busy = 9,
    /// A limit is reached: as many requests and connections are open as may.
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
    // While a thread ends its storage for the text is gone.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    status
}

/// The text of the last error of this thread, in UTF-8 and without a zero byte at its end. Any
/// thread; the text stays until the next error.
///
/// Errors: `NULL`, `SPACE`.
///
/// # Safety
/// `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
/// `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_last_error(
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    let text = LAST.try_with(|last| last.borrow().clone()).unwrap_or_default();
    // SAFETY: as this function demands.
    match unsafe { put_text(out, capacity, len, text.as_bytes()) } {
        Ok(()) => PeregrineStatus::Ok,
        Err(FfiFailure(status, _)) => status,
    }
}
