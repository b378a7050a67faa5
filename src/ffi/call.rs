//! Calls of the program itself, without HTTP.

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

/// A call: the request and its caller.
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
    /// The name of the caller, which owns its tasks, as if a trusted proxy had named it: it has all
    /// scopes and needs no credential. 1 to 256 bytes without control characters. Null,
    /// with length 0: an anonymous caller.
    pub owner: *const u8,
    /// Its length in bytes.
    pub owner_len: usize,
    /// The tenant; null: the tenant in the request, if any.
    pub tenant: *const u8,
    /// Its length in bytes.
    pub tenant_len: usize,
}

/// A reply of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineReply {
    /// The answer or event, JSON of A2A 1.0. It stays good until the next
    /// `peregrine_call_next` or `peregrine_call_release` of this call. Null: there is none.
    pub json: *const u8,
    /// Its length in bytes.
    pub json_len: usize,
    /// Without JSON, and unless `is_over`: poll again in so many milliseconds at the latest;
    /// `UINT64_MAX`: for ever.
    pub wait_ms: u64,
    /// True: it is an error, `{"error": …}` as HTTP+JSON has it (A2A 1.0 §11.6).
    pub is_error: bool,
    /// True: nothing follows, and there is no JSON. False without JSON: nothing has come in time.
    pub is_over: bool,
}

/// A call behind its handle.
pub(super) struct HostCallSlot {
    call: HostCall,
    /// The JSON that the program received last; `None`: the call was released.
    shown: Mutex<Option<Vec<u8>>>,
}

impl HostCallSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Retains the JSON of a reply for the program. After the release the call is over, whatever
    /// has arrived: the slot is about to be dropped.
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
        // SAFETY: as this function demands.
        false => unsafe { text(data, len) }.map(Some),
    }
}

/// Begins a call (`PeregrineOp`) on a server or engine that runs. There is no socket and no
/// credential: the program names the caller. Errors of the call are its answer. Released by
/// `peregrine_call_release`. On an engine, `wake` names the call when it may have replies: one wake
/// may stand for several, and there is none for replies that are there at once. A program that does
/// not wait in `peregrine_call_next` calls it at first, and after each wake, until it has no JSON.
/// Any thread, but not a callback: a job may call, and be called.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8`, `VALUE` (no such operation, an invalid or too long
/// name of an agent, owner, tenant or task, a request that is not a JSON object), `SERVER` (it does
/// not run), `FULL` (`connections_max` are open).
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
        let slot = HostCallSlot { call: begun, shown: Mutex::new(Some(Vec::new())) };
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
        let next = slot.show(slot.call.next(Duration::from_millis(wait_ms)));
        // SAFETY: not null, and as this function demands.
        unsafe { put(reply, next) }
    })
}

/// Ends the replies of the call: `peregrine_call_next` returns `is_over` from now on, also on a
/// thread that waits in it. The reply that it has returned last stays good. Any thread, but not a
/// callback.
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

/// Releases the call, and the JSON of its last reply, which no thread may read any more: where
/// another thread uses the call, `peregrine_call_close` comes first, then the end of that use.
/// A call without an answer is given up as if its caller had left; its task continues. Any thread,
/// but not a callback.
///
/// Errors: `HANDLE`, `BUSY`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_call_release(call: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::call(call)?;
        handles::remove(call);
        slot.call.close();
        // A thread in `peregrine_call_next` may drop the slot last: it returns no pointer into it.
        *slot.lock() = None;
        Ok(())
    })
}
