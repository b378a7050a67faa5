//! The server. Any thread; a callback must neither reload nor release it, which would wait for the
//! callback.

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

/// A server behind its handle.
pub(super) type ServerSlot = Staged<HostServer>;

/// The engine of a running server, for calls of this process.
pub(super) fn engine_of(server: u64) -> Result<Arc<HostEngine>, FfiFailure> {
    Ok(handles::server(server)?.running(HostServer::engine)??)
}

/// Makes a server of a configuration, the text of a TOML file (`docs/peregrine.toml`); `len` 0:
/// the defaults. It does not start yet. It is released by `peregrine_server_release`. Any
/// thread.
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
        // SAFETY: as this function demands.
        let settings = unsafe { text(data, len) }?;
        if server.is_null() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "the place of a result is null"));
        }
        let slot = ServerSlot::new("server", settings);
        let handle = handles::insert(HandleObject::Server(slot.into()));
        // SAFETY: not null, and as this function demands.
        unsafe { put(server, handle) }
    })
}

/// Adds an agent, before the start: its card in the JSON of any generation of A2A, and its
/// callbacks. The first agent answers at `/`, each at `/agents/NAME`. The callbacks are copied;
/// where this fails, `release` is not called. Any thread.
///
/// Errors: `HANDLE`, `NULL` (also an agent without `turn`), `VALUE` (the card), `SERVER` (it was
/// started already).
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
        // SAFETY: as this function demands.
        let agent = unsafe { read_agent(card, card_len, agent) }?;
        handles::server(server)?.add(agent)
    })
}

/// Passes a header field of requests with this name to the agent that was added last
/// (`peregrine_turn_headers`, `peregrine_job_headers`). A field that no agent can receive
/// is an error of the start. Any thread.
///
/// Errors: `HANDLE`, `NULL`, `UTF8`, `SERVER` (there is no agent yet, or it was started already).
///
/// # Safety
/// `name` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_server_header(
    server: u64,
    name: *const u8,
    len: usize,
) -> PeregrineStatus {
    // SAFETY: as this function demands.
    unsafe { with_text(name, len, |name| handles::server(server)?.pass_header(name)) }
}

/// Starts the server, whose workers are threads of its own. A server that could not start has
/// ended. It raises the soft limit of open files of the process (`RLIMIT_NOFILE`) as far as
/// `connections_max` needs, and logs to standard error. Any thread.
///
/// Errors: `HANDLE`, `SERVER` (the configuration is wrong, the system refuses, or it was started
/// already).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_server_start(server: u64) -> PeregrineStatus {
    run(|| {
        let _blocked = PipeSignalBlock::new();
        let start = |settings, agents| HostServer::start(settings, Vec::new(), agents);
        handles::server(server)?.start(start)
    })
}

/// The port of the first address; 0: the server listens on sockets with a path alone. Any thread.
///
/// Errors: `HANDLE`, `NULL`, `SERVER` (it does not run).
///
/// # Safety
/// `port` points at a `uint16_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_server_port(server: u64, port: *mut u16) -> PeregrineStatus {
    run(|| {
        let number = handles::server(server)?.running(HostServer::port)?;
        // SAFETY: as this function demands.
        unsafe { put(port, number) }
    })
}

/// A URL under which this machine reaches the server, without a slash at the end. Any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `SERVER` (it does not run).
///
/// # Safety
/// `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
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
    // SAFETY: as this function demands.
    unsafe { give(out, capacity, len, url) }
}

/// Reads the configuration again, as `peregrine serve` does on SIGHUP: this text, or with `len` 0
/// the last one. Agents of the configuration, callers, quotas, TLS, the log and live limits change,
/// all or none; agents of the program stay. The log has a line for each change. This may take as
/// long as the agents of the configuration need to answer, and another reload of this server waits
/// meanwhile. Any thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8`, `SERVER` (it does not run, or nothing has changed).
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
        // An agent that is added may need a thread.
        let _blocked = PipeSignalBlock::new();
        let text = Some(text).filter(|text| !text.is_empty());
        let reloader = handles::server(server)?.running(HostServer::reloader)?;
        Ok(reloader.reload(text)?)
    };
    // SAFETY: as this function demands.
    unsafe { with_text(data, len, reload) }
}

/// Stops accepting, and lets what runs end within `drain_ms`; returns at once. Any thread.
///
/// Errors: `HANDLE`, `SERVER` (it does not run).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_server_shutdown(server: u64) -> PeregrineStatus {
    run(|| handles::server(server)?.running(HostServer::shutdown))
}

/// Shuts the server down if it runs, waits for its end, and releases the handle. Calls of the
/// program (`peregrine_call_new`) do not delay the end: those that wait are then answered with an
/// error, and their streams end. In a callback for a turn it does nothing
/// (`PEREGRINE_STATUS_SERVER`). Any thread, but not a callback.
///
/// Errors: `HANDLE`, `SERVER` (in a callback).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_server_release(server: u64) -> PeregrineStatus {
    run(|| {
        let slot = handles::server(server)?;
        if border::is_in_callback() {
            let why = "a callback cannot release a server, which would wait for it";
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
