//! Calls that the program itself makes, without HTTP.

use std::{
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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

/// The operation of a call. The request and the answers are JSON of A2A 1.0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeregrineOp {
    /// A `SendMessageRequest`; the answer is a `SendMessageResponse`.
    Send = 1,
    /// A `SendMessageRequest`; each answer is a `StreamResponse`.
    Stream = 2,
    /// A `GetTaskRequest`; the answer is a `Task`.
    Get = 3,
    /// A `ListTasksRequest`, or empty; the answer is a `ListTasksResponse`.
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
        FfiFailure::new(PeregrineStatus::Value, format!("unknown operation {number}"))
    })
}

/// A call: the request and its caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineCall {
    /// The request, JSON. A send request is not copied.
    pub json: *const u8,
    /// The length of `json` in bytes.
    pub json_len: usize,
    /// The name of the agent in paths; null: the first agent.
    pub agent: *const u8,
    /// The length of `agent` in bytes.
    pub agent_len: usize,
    /// The name of the caller. The caller owns its tasks, has all scopes and needs no credential,
    /// as if a trusted proxy had named it. 1 to 256 bytes without control characters. Null with
    /// length 0: an anonymous caller.
    pub owner: *const u8,
    /// The length of `owner` in bytes.
    pub owner_len: usize,
    /// The tenant; null: the tenant in the request, if any.
    pub tenant: *const u8,
    /// The length of `tenant` in bytes.
    pub tenant_len: usize,
}

/// A reply of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineReply {
    /// The answer or event, JSON of A2A 1.0. It is valid until the next `peregrine_call_next` or
    /// `peregrine_call_release` of this call. Null: nothing has arrived.
    pub json: *const u8,
    /// The length of `json` in bytes.
    pub json_len: usize,
    /// If `json` is null and `is_over` is false: call again within this many milliseconds;
    /// `UINT64_MAX`: no limit.
    pub wait_ms: u64,
    /// True: `json` is an error, `{"error": …}` as in HTTP+JSON (A2A 1.0 §11.6).
    pub is_error: bool,
    /// True: the call is complete, and `json` is null. False with a null `json`: nothing has
    /// arrived in time.
    pub is_over: bool,
}

/// The object of a call's handle.
pub(super) struct HostCallSlot {
    call: HostCall,
    /// The JSON that the program received last; `None`: the call was released.
    shown: Mutex<Option<Vec<u8>>>,
}

impl HostCallSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the JSON of a reply for the program. After the release of the call, every reply is
    /// `is_over`, because the slot is about to be dropped.
    fn show(&self, reply: HostReply) -> PeregrineReply {
        let wait_ms = match reply {
            HostReply::Waiting(Some(ms)) => ms,
            _ => engine::FOREVER_MS,
        };
        let (arrived, is_error, is_over) = match reply {
            HostReply::Json(json) => (json, false, false),
            HostReply::Error(json) => (json, true, false),
            HostReply::Waiting(_) => (Vec::new(), false, false),
            HostReply::Over => (Vec::new(), false, true),
        };
        let (json, json_len) = (ptr::null(), 0);
        match &mut *self.lock() {
            None => PeregrineReply { json, json_len, wait_ms, is_error: false, is_over: true },
            Some(shown) => {
                *shown = arrived;
                let json = if shown.is_empty() { json } else { shown.as_ptr() };
                PeregrineReply { json, json_len: shown.len(), wait_ms, is_error, is_over }
            }
        }
    }
}

/// An optional text.
///
/// # Safety
/// As for [`text`].
unsafe fn maybe<'a>(data: *const u8, len: usize) -> Result<Option<&'a str>, FfiFailure> {
    match data.is_null() && len == 0 {
        true => Ok(None),
        // SAFETY: upheld by the caller.
        false => unsafe { text(data, len) }.map(Some),
    }
}

/// Starts a call (`op` is a `PeregrineOp`) on a running server or engine. There is no socket and no
/// credential: the program names the caller. Errors of the call are returned as its answer. Release
/// the call with `peregrine_call_release`. On an engine, `wake` receives the handle of the call
/// when replies may be available. One wake may stand for several replies, and replies that are
/// available at once cause no wake: a program that does not wait in `peregrine_call_next` calls it
/// after this function and after each wake, until `json` is null. Call from any thread, but not in
/// a callback: defer the turn, and call from its job.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8`, `VALUE` (an unknown operation, an invalid or too long
/// name of an agent, owner, tenant or task, a request that is not a JSON object), `SERVER` (the
/// server or engine does not run), `FULL` (`connections_max` is reached).
///
/// # Safety
/// `request` points at a `PeregrineCall`, whose pointers are null or point at as many bytes as
/// their lengths; `call` points at a `uint64_t`.
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
            let why = "the call or the pointer for a result is null";
            return Err(FfiFailure::new(PeregrineStatus::Null, why));
        }
        // SAFETY: not null; the rest is upheld by the caller.
        let request = unsafe { request.read_unaligned() };
        // SAFETY: upheld by the caller.
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
        let started = HostCall::new(&engine, op, json, caller, wake)?;
        let slot = HostCallSlot { call: started, shown: Mutex::new(Some(Vec::new())) };
        handles::insert_as(handle, HandleObject::Call(slot.into()));
        // SAFETY: not null; the rest is upheld by the caller.
        unsafe { put(call, handle) }
    })
}

/// Returns the answer or the next event. Waits for it at most `wait_ms` milliseconds; 0: no wait,
/// `UINT64_MAX`: no limit. Call from any thread, one at a time for each call, but not in a
/// callback.
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
            return Err(FfiFailure::new(PeregrineStatus::Null, "the pointer for a result is null"));
        }
        let next = slot.show(slot.call.next(Duration::from_millis(wait_ms)));
        // SAFETY: not null; the rest is upheld by the caller.
        unsafe { put(reply, next) }
    })
}

/// Ends the replies of the call: from now on `peregrine_call_next` returns `is_over`, also on a
/// thread that already waits in it. The JSON of the last reply stays valid until the next
/// `peregrine_call_next`. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_call_close(call: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        handles::call(call)?.call.close();
        Ok(())
    })
}

/// Releases the call and the JSON of its last reply, which must not be read afterwards. If another
/// thread uses the call, first call `peregrine_call_close` and wait for that thread. A call without
/// an answer is abandoned, as if its caller had disconnected; its task continues. Call from any
/// thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_call_release(call: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::call(call)?;
        handles::remove(call);
        slot.call.close();
        // A thread in `peregrine_call_next` may still use the slot: without the JSON, it returns no
        // pointer into the slot.
        *slot.lock() = None;
        Ok(())
    })
}
