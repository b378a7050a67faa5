//! Handles: numbers that stand for objects.
//!
//! Law: a number is given once in a process, and what it does not name any more is an error. An
//! object is dropped when its handle was released and no call uses it.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::embed::{HostCancel, HostTurn};

use super::{
    server::ServerSlot,
    status::{FfiFailure, PeregrineStatus},
};

/// What a handle stands for.
#[derive(Clone)]
pub(super) enum HandleObject {
    Server(Arc<ServerSlot>),
    Job(Arc<HostTurn>),
    Cancel(Arc<Mutex<Option<HostCancel>>>),
}

/// So many maps, each with its lock.
const SHARDS: usize = 16;

type Shard = Mutex<HashMap<u64, HandleObject, foldhash::fast::RandomState>>;

static NEXT: AtomicU64 = AtomicU64::new(1);
static SHARDED: LazyLock<[Shard; SHARDS]> = LazyLock::new(Default::default);

fn shard(
    handle: u64,
) -> MutexGuard<'static, HashMap<u64, HandleObject, foldhash::fast::RandomState>> {
    SHARDED[handle as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that no object has and none had.
pub(super) fn fresh() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The handle of an object.
pub(super) fn insert(object: HandleObject) -> u64 {
    let handle = fresh();
    shard(handle).insert(handle, object);
    handle
}

/// Releases a handle, which stands for nothing from now on.
pub(super) fn remove(handle: u64) {
    let removed = shard(handle).remove(&handle);
    // Without the lock: a server that ends may release other handles.
    drop(removed);
}

fn get(handle: u64) -> Option<HandleObject> {
    shard(handle).get(&handle).cloned()
}

fn stale(kind: &str) -> FfiFailure {
    FfiFailure::new(PeregrineStatus::Handle, format!("the handle is not that of a {kind}"))
}

pub(super) fn server(handle: u64) -> Result<Arc<ServerSlot>, FfiFailure> {
    match get(handle) {
        Some(HandleObject::Server(server)) => Ok(server),
        Some(HandleObject::Job(_) | HandleObject::Cancel(_)) | None => Err(stale("server")),
    }
}

pub(super) fn job(handle: u64) -> Result<Arc<HostTurn>, FfiFailure> {
    match get(handle) {
        Some(HandleObject::Job(job)) => Ok(job),
        Some(HandleObject::Server(_) | HandleObject::Cancel(_)) | None => Err(stale("job")),
    }
}

pub(super) fn cancel(handle: u64) -> Result<Arc<Mutex<Option<HostCancel>>>, FfiFailure> {
    match get(handle) {
        Some(HandleObject::Cancel(cancel)) => Ok(cancel),
        Some(HandleObject::Server(_) | HandleObject::Job(_)) | None => Err(stale("cancel")),
    }
}
