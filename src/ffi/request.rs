//! Properties of the requests of turns and jobs, except the messages.

use crate::agent::{RequestInfo, Turn};

use super::{
    buffers::{give, put},
    handles,
    job::over,
    status::{FfiFailure, PeregrineStatus, run},
    turn::with_turn,
};

fn of_turn(turn: u64, read: fn(&RequestInfo) -> String) -> Result<String, FfiFailure> {
    let read = |turn: &mut Turn<'static>| Ok(read(&RequestInfo::of(&turn.request, turn.state)));
    with_turn(turn, read)
}

fn of_job(job: u64, read: fn(&RequestInfo) -> String) -> Result<String, FfiFailure> {
    handles::job(job)?.ask(|_, request| read(request)).ok_or_else(over)
}

fn caller(request: &RequestInfo) -> String {
    request.principal().map_or_else(String::new, |principal| principal.name().to_owned())
}

fn tenant(request: &RequestInfo) -> String {
    request.tenant().unwrap_or_default().to_owned()
}

fn metadata(request: &RequestInfo) -> String {
    request.metadata().map_or_else(String::new, |metadata| metadata.as_str().to_owned())
}

fn headers(request: &RequestInfo) -> String {
    let named = |(name, value): (&str, &str)| (name.to_owned(), value.into());
    let headers: serde_json::Map<_, _> = request.headers().map(named).collect();
    serde_json::Value::from(headers).to_string()
}

/// Writes the id of the conversation. Call only in the callback.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// As for `peregrine_turn_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_context_id(
    turn: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    let context_id = |turn: &mut Turn<'static>| Ok(turn.context_id.to_str().into_owned());
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || with_turn(turn, context_id)) }
}

/// Writes the name of the caller, empty if callers are not authenticated. Call only in the
/// callback.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// As for `peregrine_turn_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_caller(
    turn: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || of_turn(turn, caller)) }
}

/// Writes the tenant that the client named, empty without one. Call only in the callback.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// As for `peregrine_turn_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_tenant(
    turn: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || of_turn(turn, tenant)) }
}

/// Writes the metadata of the request, a JSON object; empty: the request has no metadata. Call only
/// in the callback.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// As for `peregrine_turn_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_metadata(
    turn: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || of_turn(turn, metadata)) }
}

/// Writes the header fields that are passed to the agent (`peregrine_server_header`), a JSON object
/// of strings. Call only in the callback.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// As for `peregrine_turn_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_turn_headers(
    turn: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || of_turn(turn, headers)) }
}

/// Writes the id of the conversation. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`.
///
/// # Safety
/// As for `peregrine_job_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_context_id(
    job: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || Ok(handles::job(job)?.context_id().to_owned())) }
}

/// Writes the name of the caller, empty if callers are not authenticated. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// As for `peregrine_job_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_caller(
    job: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || of_job(job, caller)) }
}

/// Writes the tenant that the client named, empty without one. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// As for `peregrine_job_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_tenant(
    job: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || of_job(job, tenant)) }
}

/// Writes the metadata of the request, a JSON object; empty: the request has no metadata. Call from
/// any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// As for `peregrine_job_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_metadata(
    job: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || of_job(job, metadata)) }
}

/// Writes the header fields that are passed to the agent (`peregrine_server_header`), a JSON object
/// of strings. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `SPACE`, `CLOSED`.
///
/// # Safety
/// As for `peregrine_job_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_headers(
    job: u64,
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { give(out, capacity, len, || of_job(job, headers)) }
}

/// Writes the state of the task before the message, as `TaskState` of `a2a.proto`; 0: the message
/// started the task. Call from any thread.
///
/// Errors: `HANDLE`, `NULL`, `CLOSED`.
///
/// # Safety
/// `state` points at a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_job_state(job: u64, state: *mut u32) -> PeregrineStatus {
    run(|| {
        let before = handles::job(job)?.ask(|_, request| request.state()).ok_or_else(over)?;
        // SAFETY: upheld by the caller.
        unsafe { put(state, before.map_or(0, |state| state as u32)) }
    })
}
