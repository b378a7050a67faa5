//! Calls of the program itself, without HTTP.

use std::{
    ptr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    embed::{HostCall, HostCaller, HostReply},
    model::Op,
};

use super::{
    border,
    buffers::{bytes, put, text},
    engine,
    handles::{self, HandleObject},
    server,
    status::{FfiFailure, PeregrineStatus, run},
};

/// The operation of a call, and the request of A2A 1.0 that it has as JSON.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeregrineOp {
    /// A `SendMessageRequest`; the answer is a `SendMessageResponse`.
    Send = 1,
    /// A `SendMessageRequest`; each answer is a `StreamResponse`.
    Stream = 2,
    /// A `GetTaskRequest`; the answer is a `Task`.
    Get = 3,
    /// A `ListTasksRequest`, or no text; the answer is a `ListTasksResponse`.
    List = 4,
    /// A `CancelTaskRequest`; the answer is a `Task`.
    Cancel = 5,
    /// A `SubscribeToTaskRequest`; each answer is a `StreamResponse`.
    Subscribe = 6,
}

fn op_of(number: u32) -> Result<Op, FfiFailure> {
    let all = [
        (PeregrineOp::Send, Op::Send),
        (PeregrineOp::Stream, Op::Stream),
        (PeregrineOp::Get, Op::Get),
        (PeregrineOp::List, Op::List),
        (PeregrineOp::Cancel, Op::Cancel),
        (PeregrineOp::Subscribe, Op::Subscribe),
    ];
    let found = all.into_iter().find(|(op, _)| *op as u32 == number);
    found.map(|(_, op)| op).ok_or_else(|| {
        FfiFailure::new(PeregrineStatus::Value, format!("there is no operation {number}"))
    })
}

/// A call: the request, and in whose name it is made.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineCall {
    /// The request, JSON. That of a send is read where it is.
    pub json: *const u8,
    /// Its length in bytes.
    pub json_len: usize,
    /// The name of the agent in paths; null: the first agent.
    pub agent: *const u8,
    /// Its length in bytes.
    pub agent_len: usize,
    /// The name of the caller, who owns its tasks, as if a trusted proxy had named it: it has all
    /// scopes, and is not asked for a credential. Null: an anonymous caller.
    pub owner: *const u8,
    /// Its length in bytes.
    pub owner_len: usize,
    /// The tenant; null: the one that the request names, if any.
    pub tenant: *const u8,
    /// Its length in bytes.
    pub tenant_len: usize,
}

/// What has come of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineReply {
    /// The answer or event, JSON of A2A 1.0. It stays good until the next
    /// `peregrine_call_next` or `peregrine_call_release`. Null: there is none.
    pub json: *const u8,
    /// Its length in bytes.
    pub json_len: usize,
    /// True: it is an error, `{"error": …}` as HTTP+JSON has it (A2A 1.0 §11.6).
    pub is_error: bool,
    /// True: nothing follows, and there is no JSON. False without JSON: nothing has come in time.
    pub is_over: bool,
}

/// A call behind its handle.
pub(super) struct HostCallSlot {
    call: HostCall,
    /// The JSON that the program received last.
    shown: Mutex<Vec<u8>>,
}

/// An optional text.
///
/// # Safety
/// As for [`text`].
unsafe fn maybe<'a>(data: *const u8, len: usize) -> Result<Option<&'a str>, FfiFailure> {
    match data.is_null() && len == 0 {
        true => Ok(None),
        // SAFETY: as this function demands.
        false => unsafe { text(data, len) }.map(Some),
    }
}

/// Begins a call (`PeregrineOp`) on a server or engine that runs. There is no socket and no
/// credential: the program says who calls. What is wrong with a call is its answer. Released by
/// `peregrine_call_release`, at any time. On an engine, `wake` names the call when it may have
/// news. Any thread, but not a callback: a job may call, and be called.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8`, `VALUE` (no such operation, a name that none can have,
/// a request that is no JSON object), `SERVER` (it does not run), `FULL` (`connections_max` are
/// open).
///
/// # Safety
/// `request` points at a `PeregrineCall`, whose pointers are null or point at as many bytes as
/// their lengths say; `call` points at a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_call_new(
    server_or_engine: u64,
    op: u32,
    request: *const PeregrineCall,
    call: *mut u64,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        if request.is_null() || call.is_null() {
            let why = "the call or the place of a result is null";
            return Err(FfiFailure::new(PeregrineStatus::Null, why));
        }
        // SAFETY: not null, and as this function demands.
        let request = unsafe { request.read_unaligned() };
        // SAFETY: as this function demands.
        let (json, caller) = unsafe {
            let caller = HostCaller {
                agent: maybe(request.agent, request.agent_len)?,
                owner: maybe(request.owner, request.owner_len)?,
                tenant: maybe(request.tenant, request.tenant_len)?,
            };
            (bytes(request.json, request.json_len)?, caller)
        };
        let (op, handle) = (op_of(op)?, handles::fresh());
        let (engine, wake) = match handles::server(server_or_engine) {
            Ok(_) => (server::engine_of(server_or_engine)?, None),
            Err(_) => {
                let running = engine::running(server_or_engine)?;
                (Arc::clone(&running.engine), Some(running.host.waker(handle)))
            }
        };
        let begun = HostCall::new(&engine, op, json, caller, wake)?;
        let slot = HostCallSlot { call: begun, shown: Mutex::default() };
        handles::insert_as(handle, HandleObject::Call(slot.into()));
        // SAFETY: not null, and as this function demands.
        unsafe { put(call, handle) }
    })
}

/// The answer, or the next event; waits for it at most so many milliseconds, 0: not at all,
/// `UINT64_MAX`: for ever. Any thread, one at a time for each call, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`.
///
/// # Safety
/// `reply` points at a `PeregrineReply`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_call_next(
    call: u64,
    wait_ms: u64,
    reply: *mut PeregrineReply,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::call(call)?;
        if reply.is_null() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "the place of a result is null"));
        }
        let next = slot.call.next(Duration::from_millis(wait_ms));
        let mut shown = slot.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let (json, is_error, is_over) = match next {
            HostReply::Json(json) => (json, false, false),
            HostReply::Error(json) => (json, true, false),
            HostReply::Waiting => (Vec::new(), false, false),
            HostReply::Over => (Vec::new(), false, true),
        };
        *shown = json;
        let json = match shown.is_empty() {
            true => ptr::null(),
            false => shown.as_ptr(),
        };
        let json_len = shown.len();
        // SAFETY: not null, and as this function demands.
        unsafe { put(reply, PeregrineReply { json, json_len, is_error, is_over }) }
    })
}

/// Releases the call. Before its answer this tells the engine that the caller has left; its task
/// goes on. A thread that waits in `peregrine_call_next` returns. Any thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_call_release(call: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        handles::call(call)?.call.close();
        handles::remove(call);
        Ok(())
    })
}
