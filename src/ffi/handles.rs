//! Handles: numbers that stand for objects.
//!
//! Invariant: a process issues each number once; using a number without an object is an error. An
//! object is dropped once its handle is released and no call uses the object.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::embed::{HostCancel, HostTurn};

use super::{
    call::HostCallSlot,
    conn::ConnSlot,
    engine::EngineSlot,
    exchange::ExchangeSlot,
    server::ServerSlot,
    status::{FfiFailure, PeregrineStatus},
};

/// The object of a handle.
#[derive(Clone)]
pub(super) enum HandleObject {
    Server(Arc<ServerSlot>),
    Engine(Arc<EngineSlot>),
    Exchange(Arc<ExchangeSlot>),
    Call(Arc<HostCallSlot>),
    Conn(Arc<ConnSlot>),
    Job(Arc<HostTurn>),
    Cancel(Arc<Mutex<Option<HostCancel>>>),
}

/// The number of maps; each has its own lock.
const SHARDS: usize = 16;

type Shard = Mutex<HashMap<u64, HandleObject, foldhash::fast::RandomState>>;

static NEXT: AtomicU64 = AtomicU64::new(1);
static SHARDED: LazyLock<[Shard; SHARDS]> = LazyLock::new(Default::default);

fn shard(
    handle: u64,
) -> MutexGuard<'static, HashMap<u64, HandleObject, foldhash::fast::RandomState>> {
    SHARDED[handle as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that was never issued before.
pub(super) fn fresh() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Stores an object and returns its new handle.
pub(super) fn insert(object: HandleObject) -> u64 {
    let handle = fresh();
    insert_as(handle, object);
    handle
}

/// Stores an object under a fresh handle.
pub(super) fn insert_as(handle: u64, object: HandleObject) {
    shard(handle).insert(handle, object);
}

/// Releases a handle.
pub(super) fn remove(handle: u64) {
    let removed = shard(handle).remove(&handle);
    // Dropped without the lock, because the end of a server may release other handles.
    drop(removed);
}

fn get(handle: u64) -> Option<HandleObject> {
    shard(handle).get(&handle).cloned()
}

/// The object of one kind; `pick` selects the kind.
fn of_kind<T>(
    handle: u64,
    kind: &str,
    pick: impl FnOnce(HandleObject) -> Option<T>,
) -> Result<T, FfiFailure> {
    get(handle).and_then(pick).ok_or_else(|| {
        FfiFailure::new(PeregrineStatus::Handle, format!("the handle is stale or not of a {kind}"))
    })
}

/// Defines the function that finds an object of one kind.
macro_rules! finds {
    ($name:ident, $kind:ident, $object:ty) => {
        pub(super) fn $name(handle: u64) -> Result<$object, FfiFailure> {
            of_kind(handle, stringify!($name), |object| match object {
                HandleObject::$kind(found) => Some(found),
                _ => None,
            })
        }
    };
}

finds!(server, Server, Arc<ServerSlot>);
finds!(engine, Engine, Arc<EngineSlot>);
finds!(exchange, Exchange, Arc<ExchangeSlot>);
finds!(call, Call, Arc<HostCallSlot>);
finds!(conn, Conn, Arc<ConnSlot>);
finds!(job, Job, Arc<HostTurn>);
finds!(cancel, Cancel, Arc<Mutex<Option<HostCancel>>>);
