//! The server. Its functions may be called from any thread. A callback must neither reload nor
//! release the server, because that would wait for the callback.

use std::sync::Arc;

use crate::embed::{HostEngine, HostServer};

use super::{
    agent::{PeregrineAgent, read_agent},
    border,
    buffers::{give, put, text, with_text},
    handles::{self, HandleObject},
    signals::PipeSignalBlock,
    stage::Staged,
    status::{FfiFailure, PeregrineStatus, run},
};

/// The object of a server's handle.
pub(super) type ServerSlot = Staged<HostServer>;

/// The engine of a running server, for calls of this process.
pub(super) fn engine_of(server: u64) -> Result<Arc<HostEngine>, FfiFailure> {
    Ok(handles::server(server)?.running(HostServer::engine)??)
}

/// Creates a server with a configuration, the text of a TOML file (`docs/peregrine.toml`); `len` 0:
/// the defaults. The server is not started yet. Release it with `peregrine_server_release`. Call
/// from any thread.
///
/// Errors: `NULL`, `UTF8`.
///
/// # Safety
/// `data` points at `len` bytes; `server` points at a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_server_new(
    data: *const u8,
    len: usize,
    server: *mut u64,
) -> PeregrineStatus {
    run(|| {
        // SAFETY: upheld by the caller.
        let settings = unsafe { text(data, len) }?;
        if server.is_null() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "the pointer for a result is null"));
        }
        let slot = ServerSlot::new("server", settings);
        let handle = handles::insert(HandleObject::Server(slot.into()));
        // SAFETY: not null; the rest is upheld by the caller.
        unsafe { put(server, handle) }
    })
}

/// Adds an agent before the start: its card in the JSON of any generation of A2A, and its
/// callbacks. The first agent answers at `/`, each at `/agents/NAME`. The callbacks are copied; if
/// this function fails, `release` is not called. Call from any thread.
///
/// Errors: `HANDLE`, `NULL` (also if `turn` of the agent is null), `VALUE` (the card), `SERVER`
/// (the server was started already).
///
/// # Safety
/// `card` points at `card_len` bytes; `agent` points at a `PeregrineAgent` whose functions may be
/// called from any thread with its `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_server_agent(
    server: u64,
    card: *const u8,
    card_len: usize,
    agent: *const PeregrineAgent,
) -> PeregrineStatus {
    run(|| {
        // SAFETY: upheld by the caller.
        let agent = unsafe { read_agent(card, card_len, agent) }?;
        handles::server(server)?.add(agent)
    })
}

/// Passes the header field of this name in each request to the agent that was added last
/// (`peregrine_turn_headers`, `peregrine_job_headers`). With a field that agents cannot receive,
/// the start fails. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `SERVER` (no agent was added, or the server was started
/// already).
///
/// # Safety
/// `name` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_server_header(
    server: u64,
    name: *const u8,
    len: usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { with_text(name, len, |name| handles::server(server)?.pass_header(name)) }
}

/// Starts the server with its own worker threads. If the start fails, the server has ended. The
/// start raises the soft limit of open files of the process (`RLIMIT_NOFILE`) as far as
/// `connections_max` needs. The server logs to standard error. Call from any thread.
///
/// Errors: `HANDLE`, `SERVER` (the configuration is wrong, the system refuses, or the server was
/// started already).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_server_start(server: u64) -> PeregrineStatus {
    run(|| {
        let _blocked = PipeSignalBlock::new();
        let start = |settings, agents| HostServer::start(settings, Vec::new(), agents);
        handles::server(server)?.start(start)
    })
}

/// Writes the port of the first address; 0: the server listens only on Unix sockets. Call from any
/// thread.
///
/// Errors: `HANDLE`, `NULL`, `SERVER` (the server does not run).
///
/// # Safety
/// `port` points at a `uint16_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_server_port(server: u64, port: *mut u16) -> PeregrineStatus {
    run(|| {
        let number = handles::server(server)?.running(HostServer::port)?;
        // SAFETY: upheld by the caller.
        unsafe { put(port, number) }
    })
}

/// Writes a URL under which this machine reaches the server, without a slash at the end. Call from
/// any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `SERVER` (the server does not run).
///
/// # Safety
/// `out` points at `capacity` bytes, or is null if `capacity` is 0; `len` is null or points at a
/// `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_server_url(
    server: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    let url = || {
        let server = handles::server(server)?;
        server.running(|server| server.running().base_url().to_owned())
    };
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, url) }
}

/// Reloads the configuration, as `peregrine serve` does on SIGHUP: from this text, or with `len` 0
/// from the last text. Agents of the configuration, callers, quotas, TLS, the log and live limits
/// change, all or none; agents of the program stay. Each change is logged. The reload waits for the
/// answers of the agents of the configuration, and other reloads of this server wait for the
/// reload. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8`, `SERVER` (the server does not run, or refuses the
/// configuration; nothing was changed).
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_server_reload(
    server: u64,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    let reload = |text: &str| {
        border::outside_callbacks()?;
        // A new agent of the configuration may start a thread.
        let _blocked = PipeSignalBlock::new();
        let text = Some(text).filter(|text| !text.is_empty());
        let reloader = handles::server(server)?.running(HostServer::reloader)?;
        Ok(reloader.reload(text)?)
    };
    // SAFETY: upheld by the caller.
    unsafe { with_text(data, len, reload) }
}

/// Stops accepting connections, and gives running calls `drain_ms` to end; returns at once. Call
/// from any thread.
///
/// Errors: `HANDLE`, `SERVER` (the server does not run).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_server_shutdown(server: u64) -> PeregrineStatus {
    run(|| handles::server(server)?.running(HostServer::shutdown))
}

/// Shuts down the server if it runs, waits for its end, and releases the handle. Calls of the
/// program (`peregrine_call_new`) do not delay the end: waiting calls are then answered with an
/// error, and their streams end. In a callback of an agent the function changes nothing
/// (`PEREGRINE_STATUS_SERVER`). Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `SERVER` (in a callback).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_server_release(server: u64) -> PeregrineStatus {
    run(|| {
        let slot = handles::server(server)?;
        if border::is_in_callback() {
            let why = "a callback cannot release a server, which would wait for the callback";
            return Err(FfiFailure::new(PeregrineStatus::Server, why));
        }
        handles::remove(server);
        if let Some(server) = slot.end() {
            server.shutdown();
            server.join();
        }
        Ok(())
    })
}
