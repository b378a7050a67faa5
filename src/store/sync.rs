//! Locks and atomics of the store: those of std, or of the model checker in
//! `tests/concurrency/scheduler.rs`.

#[cfg(shuttle)]
pub(super) use shuttle::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(shuttle))]
pub(super) use std::sync::{Mutex, MutexGuard, atomic};
