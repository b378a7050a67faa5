//! An engine without sockets: the program passes requests, or the bytes of connections.

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

/// The object of an engine's handle.
pub(super) struct EngineSlot {
    stage: Staged<Arc<RunningEngine>>,
    host: Arc<HostCallbacks>,
}

/// A started engine, and the callbacks of its program.
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

/// Creates an engine with a configuration, the text of a TOML file as for `peregrine_server_new`;
/// `len` 0: the defaults. The program passes parsed requests (`peregrine_exchange_new`) or the
/// bytes of connections (`peregrine_conn_new`), and calls `peregrine_engine_tick`. The engine has
/// no sockets and no threads, except one that fetches the keys of `[auth.issuers]` and also calls
/// `now`. Configuration keys of listeners, TLS, logs, metrics and webhooks have no effect. The
/// program itself limits the connections per address, and closes connections that accept no output
/// for `write_stall_ms`. The callbacks are copied; if this function fails, `release` is not called.
/// Release the engine with `peregrine_engine_release`. Call from any thread.
///
/// Errors: `NULL` (also if `wake` of the host is null), `UTF8`, `SERVER` (the system has no random
/// bits).
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
        // SAFETY: upheld by the caller.
        let settings = unsafe { text(data, len) }?;
        if host.is_null() || engine.is_null() {
            let why = "the host or the pointer for a result is null";
            return Err(FfiFailure::new(PeregrineStatus::Null, why));
        }
        // SAFETY: not null; the rest is upheld by the caller.
        let host = unsafe { host.read_unaligned() };
        if host.wake.is_none() {
            let why = "the callback wake of the host is null";
            return Err(FfiFailure::new(PeregrineStatus::Null, why));
        }
        let host = HostCallbacks::new(host)?;
        let slot = EngineSlot { stage: Staged::new("engine", settings), host };
        let handle = handles::insert(HandleObject::Engine(slot.into()));
        // SAFETY: not null; the rest is upheld by the caller.
        unsafe { put(engine, handle) }
    })
}

/// Adds an agent before the start, as `peregrine_server_agent` does. Call from any thread.
///
/// Errors: `NULL`, `HANDLE`, `VALUE` (the card), `SERVER` (the engine was started already).
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
        // SAFETY: upheld by the caller.
        let agent = unsafe { read_agent(card, card_len, agent) }?;
        handles::engine(engine)?.stage.add(agent)
    })
}

/// Passes a header field to the last agent, as `peregrine_server_header` does. Call from any
/// thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `SERVER` (no agent was added, or the engine was started
/// already).
///
/// # Safety
/// `name` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_engine_header(
    engine: u64,
    name: *const u8,
    len: usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { with_text(name, len, |name| handles::engine(engine)?.stage.pass_header(name)) }
}

/// Starts the engine: from now on it accepts requests and connections, but no more agents. If the
/// start fails, the engine has ended. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `SERVER` (the configuration is wrong, or the engine was started
/// already).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_engine_start(engine: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::engine(engine)?;
        // The engine may start a thread that fetches the keys of issuers.
        let _blocked = PipeSignalBlock::new();
        slot.stage.start(|settings, agents| {
            let (host, wake) = (Arc::clone(&slot.host), slot.host.waker(engine));
            let engine = HostEngine::new(settings, agents, Arc::clone(&host) as Arc<_>)?;
            Ok(Arc::new(RunningEngine { engine, host, wake }))
        })
    })
}

/// Evicts expired tasks and does other due work. Call this function again after `wait_ms`
/// milliseconds (`UINT64_MAX`: no limit), or after `wake` was called with the engine's handle. Call
/// from any thread, one at a time, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `SERVER` (the engine is not started).
///
/// # Safety
/// `wait_ms` points at a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_engine_tick(engine: u64, wait_ms: *mut u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let engine = running(engine)?;
        let due_ms = engine.engine.tick(&engine.wake);
        // SAFETY: upheld by the caller.
        unsafe { put(wait_ms, engine.wait_ms(due_ms)) }
    })
}

/// Drains the engine: from now on answers close their connections, and new tasks are refused.
/// `is_idle` receives true if no call waits and no stream is open; call this function again to
/// check. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `SERVER` (the engine is not started).
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
        // SAFETY: upheld by the caller.
        unsafe { put(is_idle, engine.running() == 0) }
    })
}

/// Answers waiting calls with an error and ends streams: calls of the program at once, which wakes
/// them, exchanges at their next poll, and connections at their next advance. Call from any thread,
/// but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `SERVER` (the engine is not started).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_engine_cut(engine: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        running(engine)?.engine.cut();
        Ok(())
    })
}

/// Releases the handle. Exchanges, connections, calls and jobs of the engine stay usable until they
/// are released themselves. Call from any thread, but not in a callback.
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
