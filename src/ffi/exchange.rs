//! One request that the program has parsed, and its answer. The functions may be called from any
//! thread, one at a time for each request, but not in a callback.

use std::{
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use crate::{
    embed::{HostAnswer, HostCx, HostError, OpenSlot},
    engine::{Cx, Exchange, RequestParts},
};

use super::{
    border,
    buffers::{bytes, put},
    engine::{RunningEngine, running},
    handles::{self, HandleObject},
    peer::{
        PEREGRINE_BODY, PEREGRINE_LOOPBACK, PEREGRINE_SECURE, PEREGRINE_TRAILERS, PeerDescription,
    },
    status::{FfiFailure, PeregrineStatus, run},
};

/// A header field. Its texts have no zero byte at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineField {
    /// The name.
    pub name: *const u8,
    /// The length of `name` in bytes.
    pub name_len: usize,
    /// The value.
    pub value: *const u8,
    /// The length of `value` in bytes.
    pub value_len: usize,
}

/// The head of a request. All of it is copied.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineRequest {
    /// The method.
    pub method: *const u8,
    /// The length of `method` in bytes.
    pub method_len: usize,
    /// The path and the query as received, not decoded.
    pub target: *const u8,
    /// The length of `target` in bytes.
    pub target_len: usize,
    /// `:authority` of HTTP/2; null: the field `Host` is used.
    pub authority: *const u8,
    /// The length of `authority` in bytes.
    pub authority_len: usize,
    /// The fields, in their order.
    pub fields: *const PeregrineField,
    /// The number of fields.
    pub fields_len: usize,
    /// The IP address of the peer as text, without a port; null: unknown.
    pub address: *const u8,
    /// The length of `address` in bytes.
    pub address_len: usize,
    /// `PEREGRINE_SECURE`, `PEREGRINE_LOOPBACK`, `PEREGRINE_BODY` and `PEREGRINE_TRAILERS`.
    pub flags: u32,
}

/// The available part of an answer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineAnswer {
    /// The HTTP status; 0: status and fields are not available yet.
    pub status: u32,
    /// The number of header fields (`peregrine_exchange_field`).
    pub fields: usize,
    /// The next piece of the content. It is valid until `peregrine_exchange_consume` or
    /// `peregrine_exchange_release`.
    pub content: *const u8,
    /// The length of `content` in bytes; 0: nothing is available now.
    pub content_len: usize,
    /// The number of trailers (`peregrine_exchange_trailer`), once `is_over` is true.
    pub trailers: usize,
    /// Poll again within this many milliseconds; `UINT64_MAX`: no limit.
    pub wait_ms: u64,
    /// True: the answer is complete.
    pub is_over: bool,
    /// False: the rest of the body may be discarded.
    pub wants_body: bool,
}

/// The object of a request's handle.
pub(super) struct ExchangeSlot {
    inner: Mutex<ExchangeInner>,
    running: Arc<RunningEngine>,
    slot: OpenSlot,
    peer: PeerDescription,
    wake: Waker,
}

struct ExchangeInner {
    exchange: Exchange,
    answer: HostAnswer,
    /// The buffer for content during a poll; empty between polls.
    out: Vec<u8>,
}

impl ExchangeSlot {
    fn lock(&self) -> MutexGuard<'_, ExchangeInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the exchange, and describes the available part of its answer.
    fn advance(
        &self,
        step: impl FnOnce(&mut Exchange, &mut Cx<'_>, &mut HostAnswer),
    ) -> PeregrineAnswer {
        let inner = &mut *self.lock();
        let ExchangeInner { exchange, answer, out } = inner;
        let (worker, wake, unsent) = (self.slot.worker(), &self.wake, answer.unsent());
        let with = HostCx { worker, wake, out, unsent, peer: self.peer.peer() };
        let engine = &self.running.engine;
        engine.with_cx(with, |cx| step(exchange, cx, answer));
        let first = answer.first();
        let limits = engine.engine().limits();
        // A stream without room for output waits: only the deadline of its call is due.
        let due_ms = match answer.unsent() >= limits.output_bytes_max {
            _ if answer.is_over => None,
            true => exchange.due_ms(),
            false => exchange.deadline_ms(limits),
        };
        PeregrineAnswer {
            status: answer.status.into(),
            fields: answer.fields.len(),
            content: match first.is_empty() {
                true => ptr::null(),
                false => first.as_ptr(),
            },
            content_len: first.len(),
            trailers: answer.trailers.len(),
            wait_ms: self.running.wait_ms(due_ms),
            is_over: answer.is_over,
            wants_body: exchange.wants_body(),
        }
    }
}

/// The name and the value of a field of a request.
type FieldBytes<'a> = (&'a [u8], &'a [u8]);

/// Reads the fields of a request.
///
/// # Safety
/// `fields` is null or points at `len` fields, whose texts are as for [`bytes`].
unsafe fn read_fields<'a>(
    fields: *const PeregrineField,
    len: usize,
) -> Result<Vec<FieldBytes<'a>>, FfiFailure> {
    if len == 0 {
        return Ok(Vec::new());
    }
    if fields.is_null() {
        return Err(FfiFailure::new(PeregrineStatus::Null, "the fields are null"));
    }
    if len > isize::MAX as usize / size_of::<PeregrineField>() {
        let why = format!("the number of fields, {len}, is larger than an allocation can be");
        return Err(FfiFailure::new(PeregrineStatus::Value, why));
    }
    let read = |at| {
        // SAFETY: within the array, and the rest is upheld by the caller; the field may be
        // misaligned.
        let field: PeregrineField = unsafe { fields.add(at).read_unaligned() };
        // SAFETY: upheld by the caller.
        unsafe { Ok((bytes(field.name, field.name_len)?, bytes(field.value, field.value_len)?)) }
    };
    (0..len).map(read).collect()
}

/// Starts a request with this head. Without a body, poll it at once; otherwise pass the body first
/// (`peregrine_exchange_push` and `peregrine_exchange_end`, or `peregrine_exchange_whole`). Names
/// of fields may have any case; connection-specific fields are ignored. Errors of the request are
/// returned as its answer, not here. Release the exchange with `peregrine_exchange_release`, at any
/// time. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8` (the address), `VALUE` (an unknown flag, an invalid
/// address), `SERVER` (the engine is not started), `FULL` (`connections_max` is reached).
///
/// # Safety
/// `request` points at a `PeregrineRequest`, whose pointers point at as many bytes or fields as
/// their lengths; `exchange` points at a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_exchange_new(
    engine: u64,
    request: *const PeregrineRequest,
    exchange: *mut u64,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        if request.is_null() || exchange.is_null() {
            let why = "the request or the pointer for a result is null";
            return Err(FfiFailure::new(PeregrineStatus::Null, why));
        }
        // SAFETY: not null; the rest is upheld by the caller.
        let request = unsafe { request.read_unaligned() };
        let all = PEREGRINE_SECURE | PEREGRINE_LOOPBACK | PEREGRINE_BODY | PEREGRINE_TRAILERS;
        // SAFETY: upheld by the caller.
        let (method, target, fields, peer) = unsafe {
            (
                bytes(request.method, request.method_len)?,
                bytes(request.target, request.target_len)?,
                read_fields(request.fields, request.fields_len)?,
                PeerDescription::read(request.address, request.address_len, request.flags, all)?,
            )
        };
        let authority = match request.authority.is_null() && request.authority_len == 0 {
            true => None,
            // SAFETY: upheld by the caller.
            false => Some(unsafe { bytes(request.authority, request.authority_len) }?),
        };
        let running = running(engine)?;
        let slot = running.engine.open().ok_or(HostError::Full)?;
        let (handle, flags) = (handles::fresh(), peer.flags);
        let (wake, mut out) = (running.host.waker(handle), Vec::new());
        let parts = RequestParts {
            method,
            target,
            authority,
            fields: fields.into_iter(),
            has_body: flags & PEREGRINE_BODY != 0,
            takes_trailers: flags & PEREGRINE_TRAILERS != 0,
        };
        let (worker, wake_by) = (slot.worker(), &wake);
        let with = HostCx { worker, wake: wake_by, out: &mut out, unsent: 0, peer: peer.peer() };
        let started = running.engine.with_cx(with, |cx| Exchange::new(cx, parts));
        let inner = ExchangeInner { exchange: started, answer: HostAnswer::default(), out };
        let inner = Mutex::new(inner);
        let slot = ExchangeSlot { inner, running, slot, peer, wake };
        handles::insert_as(handle, HandleObject::Exchange(slot.into()));
        // SAFETY: not null; the rest is upheld by the caller.
        unsafe { put(exchange, handle) }
    })
}

/// Appends a piece of the body, which is copied. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE`.
///
/// # Safety
/// `data` points at `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_exchange_push(
    exchange: u64,
    data: *const u8,
    len: usize,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        // SAFETY: upheld by the caller.
        let piece = unsafe { bytes(data, len) }?;
        let slot = handles::exchange(exchange)?;
        slot.lock().exchange.push(slot.running.engine.engine().limits(), piece);
        Ok(())
    })
}

/// Ends the body; then poll the exchange. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_exchange_end(exchange: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        handles::exchange(exchange)?.lock().exchange.end();
        Ok(())
    })
}

/// Does push, end and poll for a body in one piece, which is copied only if the request has to
/// wait. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE`.
///
/// # Safety
/// `data` points at `len` bytes; `answer` points at a `PeregrineAnswer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_exchange_whole(
    exchange: u64,
    data: *const u8,
    len: usize,
    answer: *mut PeregrineAnswer,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        // SAFETY: upheld by the caller.
        let body = unsafe { bytes(data, len) }?;
        let available = handles::exchange(exchange)?
            .advance(|exchange, cx, output| _ = exchange.poll_whole(cx, body, output));
        // SAFETY: upheld by the caller.
        unsafe { put(answer, available) }
    })
}

/// Advances the exchange as far as possible, and returns the available part of the answer. Call
/// this function once after the body, and again when `wake` was called with this handle, when
/// `wait_ms` have passed, and when content was consumed: a stream waits while `output_bytes_max`
/// bytes of content are not consumed. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`.
///
/// # Safety
/// `answer` points at a `PeregrineAnswer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_exchange_poll(
    exchange: u64,
    answer: *mut PeregrineAnswer,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let available = handles::exchange(exchange)?
            .advance(|exchange, cx, output| _ = exchange.poll(cx, output));
        // SAFETY: upheld by the caller.
        unsafe { put(answer, available) }
    })
}

/// Removes `len` bytes from the front of the content. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `VALUE` (the content is shorter).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_exchange_consume(exchange: u64, len: usize) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::exchange(exchange)?;
        let mut inner = slot.lock();
        match inner.answer.consume(len) {
            true => Ok(()),
            false => {
                let rest = inner.answer.unsent();
                let why = format!("cannot consume {len} bytes: there are {rest} bytes of content");
                Err(FfiFailure::new(PeregrineStatus::Value, why))
            }
        }
    })
}

/// Returns the header field of the answer at `index`. Its texts are valid until the exchange is
/// released. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE` (`index` is too large).
///
/// # Safety
/// `field` points at a `PeregrineField`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_exchange_field(
    exchange: u64,
    index: usize,
    field: *mut PeregrineField,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { put_field(exchange, field, |answer| answer.fields.get(index)) }
}

/// Returns the trailer of the answer at `index`, as `peregrine_exchange_field` does. Call from any
/// thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE` (`index` is too large).
///
/// # Safety
/// `field` points at a `PeregrineField`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_exchange_trailer(
    exchange: u64,
    index: usize,
    field: *mut PeregrineField,
) -> PeregrineStatus {
    // SAFETY: upheld by the caller.
    unsafe { put_field(exchange, field, |answer| answer.trailers.get(index)) }
}

/// # Safety
/// `field` points at a `PeregrineField`.
unsafe fn put_field(
    exchange: u64,
    field: *mut PeregrineField,
    pick: impl FnOnce(&HostAnswer) -> Option<&(Box<str>, Box<str>)>,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::exchange(exchange)?;
        let inner = slot.lock();
        let (name, value) = pick(&inner.answer).ok_or_else(|| {
            FfiFailure::new(PeregrineStatus::Value, "the answer has no field at this index")
        })?;
        let found = PeregrineField {
            name: name.as_ptr(),
            name_len: name.len(),
            value: value.as_ptr(),
            value_len: value.len(),
        };
        // SAFETY: upheld by the caller.
        unsafe { put(field, found) }
    })
}

/// Releases the exchange. If its answer is not complete, the engine treats this as a disconnect of
/// the client. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_exchange_release(exchange: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        handles::exchange(exchange)?;
        handles::remove(exchange);
        Ok(())
    })
}
