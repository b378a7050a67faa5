//! The C interface: a server, or an engine without sockets, with agents that are callbacks.
//!
//! Rules of every function:
//! - Objects are handles, numbers that are never reused. A stale, foreign or zero handle gives
//!   [`PeregrineStatus::Handle`], never undefined behaviour.
//! - An input text is a pointer and a length in bytes; it is UTF-8 and is copied. A null pointer
//!   with a length other than zero gives [`PeregrineStatus::Null`].
//! - An output text is written to a buffer of the caller: `len` receives its length in bytes. If
//!   the buffer is shorter, it is not written ([`PeregrineStatus::Space`]).
//! - `peregrine_last_error` returns the last error of the calling thread.
//! - Nothing unwinds into C. A callback must not unwind, and must not call `longjmp` or
//!   `pthread_exit`; a thread must not be canceled inside a function of the library.
//!
//! cbindgen generates the header `include/peregrine.h` from this module; `tests/tidy/header.rs`
//! fails if the header is not current.
#![allow(unsafe_code)]

mod agent;
mod border;
mod buffers;
mod call;
mod conn;
mod engine;
mod exchange;
mod handles;
mod host;
mod job;
mod peer;
#[cfg(feature = "internals")]
pub mod random;
mod request;
mod server;
mod signals;
mod stage;
mod status;
mod turn;

pub use agent::PeregrineAgent;
pub use call::*;
pub use conn::*;
pub use engine::*;
pub use exchange::*;
pub use host::PeregrineHost;
pub use job::*;
pub use peer::*;
pub use request::*;
pub use server::*;
pub use status::*;
pub use turn::*;

/// The version of this interface. A change that breaks programs compiled for the current version
/// increments it.
pub const PEREGRINE_ABI_VERSION: u32 = 1;

/// The interface version of the library; compare it with `PEREGRINE_ABI_VERSION`. Call from any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_abi_version() -> u32 {
    PEREGRINE_ABI_VERSION
}
