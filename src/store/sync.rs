//! Locks and atomics of the store: std's, or the model checker's of
//! `tests/concurrency/scheduler.rs`.

#[cfg(shuttle)]
pub(super) use shuttle::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(shuttle))]
pub(super) use std::sync::{Mutex, MutexGuard, atomic};
