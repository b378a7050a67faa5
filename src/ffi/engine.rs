//! An engine without sockets. Any thread, but not a callback.

use std::{sync::Arc, task::Waker};

use crate::embed::HostEngine;

use super::{
    agent::{PeregrineAgent, read_agent},
    border,
    buffers::{put, text, with_text},
    handles::{self, HandleObject},
    host::{HostCallbacks, PeregrineHost},
    signals::PipeSignalBlock,
    stage::Staged,
    status::{FfiFailure, PeregrineStatus, run},
};

/// An engine behind its handle.
pub(super) struct EngineSlot {
    stage: Staged<Arc<RunningEngine>>,
    host: Arc<HostCallbacks>,
}

/// An engine that was started, and its program.
pub(super) struct RunningEngine {
    pub(super) engine: Arc<HostEngine>,
    pub(super) host: Arc<HostCallbacks>,
    /// Wakes the program with the engine's handle.
    wake: Waker,
}

/// The waiting time that means "for ever".
pub(super) const FOREVER_MS: u64 = u64::MAX;

impl RunningEngine {
    /// Milliseconds until `due_ms`; `None`: for ever.
    pub fn wait_ms(&self, due_ms: Option<u64>) -> u64 {
        due_ms.map_or(FOREVER_MS, |due_ms| due_ms.saturating_sub(self.engine.now().mono_ms))
    }
}

/// The started engine of a handle.
pub(super) fn running(engine: u64) -> Result<Arc<RunningEngine>, FfiFailure> {
    handles::engine(engine)?.stage.running(Arc::clone)
}

/// Makes an engine of a configuration, the text of a TOML file as for `peregrine_server_new`; `len`
/// 0: the defaults. The program passes requests that it has parsed
/// (`peregrine_exchange_new`) or the bytes of connections (`peregrine_conn_new`), and calls
/// `peregrine_engine_tick`. The engine has no sockets and no threads, except one that fetches the
/// keys of `[auth.issuers]` and also calls `now`. Keys of listeners, TLS, logs, metrics and
/// webhooks have no effect; the program itself limits the connections of one address, and closes
/// those that it could not write to for `write_stall_ms`. The callbacks are copied; where this
/// fails, `release` is not called. Released by `peregrine_engine_release`. Any thread.
///
/// Errors: `NULL` (also a host without `wake`), `UTF8`, `SERVER` (the system has no random bits).
///
/// # Safety
/// `data` points at `len` bytes; `host` points at a `PeregrineHost` whose functions may be called
/// from any thread with its `user`; `engine` points at a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_engine_new(
    data: *const u8,
    len: usize,
    host: *const PeregrineHost,
    engine: *mut u64,
) -> PeregrineStatus {
    run(|| {
        // SAFETY: as this function demands.
        let settings = unsafe { text(data, len) }?;
        if host.is_null() || engine.is_null() {
            let why = "the host or the place of a result is null";
            return Err(FfiFailure::new(PeregrineStatus::Null, why));
        }
        // SAFETY: not null, and as this function demands.
        let host = unsafe { host.read_unaligned() };
        if host.wake.is_none() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "a host has no callback to wake"));
        }
        let host = HostCallbacks::new(host)?;
        let slot = EngineSlot { stage: Staged::new("engine", settings), host };
        let handle = handles::insert(HandleObject::Engine(slot.into()));
        // SAFETY: not null, and as this function demands.
        unsafe { put(engine, handle) }
    })
}

/// Adds an agent before the start, as `peregrine_server_agent` does. Any thread.
///
/// Errors: `NULL`, `HANDLE`, `VALUE` (the card), `SERVER` (it was started already).
///
/// # Safety
/// As for `peregrine_server_agent`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_engine_agent(
    engine: u64,
    card: *const u8,
    card_len: usize,
    agent: *const PeregrineAgent,
) -> PeregrineStatus {
    run(|| {
        // SAFETY: as this function demands.
        let agent = unsafe { read_agent(card, card_len, agent) }?;
        handles::engine(engine)?.stage.add(agent)
    })
}

/// As `peregrine_server_header`. Any thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `SERVER` (there is no agent yet, or it was started already).
///
/// # Safety
/// `name` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_engine_header(
    engine: u64,
    name: *const u8,
    len: usize,
) -> PeregrineStatus {
    // SAFETY: as this function demands.
    unsafe { with_text(name, len, |name| handles::engine(engine)?.stage.pass_header(name)) }
}

/// Starts the engine: from now on it takes requests and connections, and no agents. An engine that
/// could not start has ended. Any thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `SERVER` (the configuration is wrong, or it was started already).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_engine_start(engine: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::engine(engine)?;
        // Keys of issuers are fetched by a thread.
        let _blocked = PipeSignalBlock::new();
        slot.stage.start(|settings, agents| {
            let (host, wake) = (Arc::clone(&slot.host), slot.host.waker(engine));
            let engine = HostEngine::new(settings, agents, Arc::clone(&host) as Arc<_>)?;
            Ok(Arc::new(RunningEngine { engine, host, wake }))
        })
    })
}

/// Evicts expired tasks and does what else is due. Call it again when `wait_ms` milliseconds have
/// passed, or `wake` was called with the engine's handle; `UINT64_MAX`: for ever. Any thread, one
/// at a time, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `SERVER` (it was not started).
///
/// # Safety
/// `wait_ms` points at a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_engine_tick(engine: u64, wait_ms: *mut u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let engine = running(engine)?;
        let due_ms = engine.engine.tick(&engine.wake);
        // SAFETY: as this function demands.
        unsafe { put(wait_ms, engine.wait_ms(due_ms)) }
    })
}

/// From now on answers close their connections and new tasks are refused; `is_idle` tells whether
/// no call waits and no stream is open. It may be called again to ask that. Any thread, but not a
/// callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `SERVER` (it was not started).
///
/// # Safety
/// `is_idle` points at a `bool`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_engine_drain(
    engine: u64,
    is_idle: *mut bool,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let running = running(engine)?;
        let engine = running.engine.engine();
        engine.drain();
        // SAFETY: as this function demands.
        unsafe { put(is_idle, engine.running() == 0) }
    })
}

/// Answers what still waits with an error, and ends streams: calls of the program at once, which
/// wakes them, exchanges and connections when they are polled or advanced next. Any thread, but not
/// a callback.
///
/// Errors: `HANDLE`, `BUSY`, `SERVER` (it was not started).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_engine_cut(engine: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        running(engine)?.engine.cut();
        Ok(())
    })
}

/// Releases the handle. What the engine has opened stays usable until it is released itself. Any
/// thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_engine_release(engine: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::engine(engine)?;
        handles::remove(engine);
        slot.stage.end();
        Ok(())
    })
}
