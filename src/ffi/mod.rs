//! The C interface: the server or an engine without sockets, and agents that are callbacks.
//!
//! Rules of every function:
//! - Objects are handles, numbers that are never reused. A handle that is stale, foreign or zero is
//!   [`PeregrineStatus::Handle`], never undefined behaviour.
//! - Text goes in as a pointer and a length in bytes, is UTF-8, and is copied. A null pointer with
//!   a length that is not zero is [`PeregrineStatus::Null`].
//! - Text comes out into a buffer of the caller's: `len` receives the length in bytes, and if the
//!   buffer is shorter, nothing is written ([`PeregrineStatus::Space`]).
//! - `peregrine_last_error` returns the last error of the calling thread.
//! - Nothing unwinds into C. A callback must not unwind, and must not call `longjmp` or
//!   `pthread_exit`; a thread must not be canceled inside of a function.
//!
//! cbindgen generates the header `include/peregrine.h` from this module; `tests/tidy/header.rs`
//! compares it.
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

/// The version of this interface. It grows by one when a program that was compiled for the version
/// before does not work any more.
pub const PEREGRINE_ABI_VERSION: u32 = 1;

/// The version of the interface that the library has; compare it with `PEREGRINE_ABI_VERSION`. Any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_abi_version() -> u32 {
    PEREGRINE_ABI_VERSION
}
