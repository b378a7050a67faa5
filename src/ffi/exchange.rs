//! One request that the program has parsed, and its answer. Any thread, one at a time for each
//! request, but not a callback.

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

/// A header field; neither text ends with a zero byte.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineField {
    /// The name.
    pub name: *const u8,
    /// Its length in bytes.
    pub name_len: usize,
    /// The value.
    pub value: *const u8,
    /// Its length in bytes.
    pub value_len: usize,
}

/// The head of a request. All of it is copied.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineRequest {
    /// The method.
    pub method: *const u8,
    /// Its length in bytes.
    pub method_len: usize,
    /// Path and query, as they came.
    pub target: *const u8,
    /// Its length in bytes.
    pub target_len: usize,
    /// `:authority` of HTTP/2; null: the field `Host` says it.
    pub authority: *const u8,
    /// Its length in bytes.
    pub authority_len: usize,
    /// The fields, in their order.
    pub fields: *const PeregrineField,
    /// How many there are.
    pub fields_len: usize,
    /// The IP address of the other side as text, without a port; null: unknown.
    pub address: *const u8,
    /// Its length in bytes.
    pub address_len: usize,
    /// `PEREGRINE_SECURE`, `PEREGRINE_LOOPBACK`, `PEREGRINE_BODY` and `PEREGRINE_TRAILERS`.
    pub flags: u32,
}

/// What there is of an answer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineAnswer {
    /// The status of HTTP; 0: it is not known yet, and neither are the fields.
    pub status: u32,
    /// The number of header fields (`peregrine_exchange_field`).
    pub fields: usize,
    /// The next piece of the content. It stays good until `peregrine_exchange_consume` or
    /// `peregrine_exchange_release`.
    pub content: *const u8,
    /// Its length in bytes; 0: there is none now.
    pub content_len: usize,
    /// The number of trailers (`peregrine_exchange_trailer`), once `is_over`.
    pub trailers: usize,
    /// Poll again in so many milliseconds at the latest; `UINT64_MAX`: for ever.
    pub wait_ms: u64,
    /// True: the answer is complete.
    pub is_over: bool,
    /// False: the rest of the body may be thrown away.
    pub wants_body: bool,
}

/// A request behind its handle.
pub(super) struct ExchangeSlot {
    inner: Mutex<ExchangeInner>,
    running: Arc<RunningEngine>,
    slot: OpenSlot,
    peer: PeerDescription,
    wake: Waker,
}

struct ExchangeInner {
    exchange: Exchange,
    said: HostAnswer,
    /// Where content is written; empty between polls.
    out: Vec<u8>,
}

impl ExchangeSlot {
    fn lock(&self) -> MutexGuard<'_, ExchangeInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the exchange, and describes the available part of its answer.
    fn go_on(
        &self,
        step: impl FnOnce(&mut Exchange, &mut Cx<'_>, &mut HostAnswer),
    ) -> PeregrineAnswer {
        let inner = &mut *self.lock();
        let ExchangeInner { exchange, said, out } = inner;
        let (worker, wake, unsent) = (self.slot.worker(), &self.wake, said.unsent());
        let with = HostCx { worker, wake, out, unsent, peer: self.peer.peer() };
        let engine = &self.running.engine;
        engine.with_cx(with, |cx| step(exchange, cx, said));
        let first = said.first();
        let limits = engine.engine().limits();
        // Without room for output a stream waits, whatever else is due.
        let due_ms = match said.unsent() >= limits.output_bytes_max {
            _ if said.is_over => None,
            true => exchange.due_ms(),
            false => exchange.deadline_ms(limits),
        };
        PeregrineAnswer {
            status: said.status.into(),
            fields: said.fields.len(),
            content: match first.is_empty() {
                true => ptr::null(),
                false => first.as_ptr(),
            },
            content_len: first.len(),
            trailers: said.trailers.len(),
            wait_ms: self.running.wait_ms(due_ms),
            is_over: said.is_over,
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
        return Err(FfiFailure::new(PeregrineStatus::Value, "there are too many fields"));
    }
    let read = |at| {
        // SAFETY: within the array, and as this function demands; it may be misaligned.
        let field: PeregrineField = unsafe { fields.add(at).read_unaligned() };
        // SAFETY: as this function demands.
        unsafe { Ok((bytes(field.name, field.name_len)?, bytes(field.value, field.value_len)?)) }
    };
    (0..len).map(read).collect()
}

/// Begins a request with this head. Poll it at once if it has no body, else give it the body
/// (`peregrine_exchange_push` and `peregrine_exchange_end`, or `peregrine_exchange_whole`). Names
/// of fields may have any case; fields of a connection are ignored. Errors of the request are its
/// answer, not an error here. Released by `peregrine_exchange_release`, at any time. Any
/// thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8` (the address), `VALUE` (an unknown flag, an address
/// that is none), `SERVER` (the engine was not started), `FULL` (`connections_max` requests and
/// connections are open).
///
/// # Safety
/// `request` points at a `PeregrineRequest`, whose pointers point at as many bytes or fields as
/// their lengths say; `exchange` points at a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_exchange_new(
    engine: u64,
    request: *const PeregrineRequest,
    exchange: *mut u64,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        if request.is_null() || exchange.is_null() {
            let why = "the request or the place of a result is null";
            return Err(FfiFailure::new(PeregrineStatus::Null, why));
        }
        // SAFETY: not null, and as this function demands.
        let request = unsafe { request.read_unaligned() };
        let all = PEREGRINE_SECURE | PEREGRINE_LOOPBACK | PEREGRINE_BODY | PEREGRINE_TRAILERS;
        // SAFETY: as this function demands.
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
            // SAFETY: as this function demands.
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
        let begun = running.engine.with_cx(with, |cx| Exchange::new(cx, parts));
        let inner = ExchangeInner { exchange: begun, said: HostAnswer::default(), out };
        let inner = Mutex::new(inner);
        let slot = ExchangeSlot { inner, running, slot, peer, wake };
        handles::insert_as(handle, HandleObject::Exchange(slot.into()));
        // SAFETY: not null, and as this function demands.
        unsafe { put(exchange, handle) }
    })
}

/// Appends a piece of the body, which is copied. Any thread, but not a callback.
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
        // SAFETY: as this function demands.
        let piece = unsafe { bytes(data, len) }?;
        let slot = handles::exchange(exchange)?;
        slot.lock().exchange.push(slot.running.engine.engine().limits(), piece);
        Ok(())
    })
}

/// The body is complete: poll the exchange. Any thread, but not a callback.
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

/// As push, end and poll for a body that came in one piece: it is read where it is, and copied only
/// if it has to wait. Any thread, but not a callback.
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
        // SAFETY: as this function demands.
        let body = unsafe { bytes(data, len) }?;
        let there = handles::exchange(exchange)?
            .go_on(|exchange, cx, said| _ = exchange.poll_whole(cx, body, said));
        // SAFETY: as this function demands.
        unsafe { put(answer, there) }
    })
}

/// Advances as far as possible, and gives the available part of the answer. Call it at first, when
/// the body has ended, when `wake` was called with this handle, when `wait_ms` have passed, and
/// when content was consumed: while more than `output_bytes_max` is not, a stream waits. Any
/// thread, but not a callback.
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
        let there =
            handles::exchange(exchange)?.go_on(|exchange, cx, said| _ = exchange.poll(cx, said));
        // SAFETY: as this function demands.
        unsafe { put(answer, there) }
    })
}

/// Takes so many bytes from the front of the content. Any thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `VALUE` (there is less).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_exchange_consume(exchange: u64, len: usize) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::exchange(exchange)?;
        let mut inner = slot.lock();
        match inner.said.consume(len) {
            true => Ok(()),
            false => {
                let why = format!("there are {} bytes of content", inner.said.unsent());
                Err(FfiFailure::new(PeregrineStatus::Value, why))
            }
        }
    })
}

/// A header field of the answer. Its texts stay good until the exchange is released. Any thread,
/// but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE` (there are fewer).
///
/// # Safety
/// `field` points at a `PeregrineField`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_exchange_field(
    exchange: u64,
    index: usize,
    field: *mut PeregrineField,
) -> PeregrineStatus {
    // SAFETY: as this function demands.
    unsafe { put_field(exchange, field, |said| said.fields.get(index)) }
}

/// A trailer of the answer, as `peregrine_exchange_field`. Any thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE` (there are fewer).
///
/// # Safety
/// `field` points at a `PeregrineField`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_exchange_trailer(
    exchange: u64,
    index: usize,
    field: *mut PeregrineField,
) -> PeregrineStatus {
    // SAFETY: as this function demands.
    unsafe { put_field(exchange, field, |said| said.trailers.get(index)) }
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
        let (name, value) = pick(&inner.said).ok_or_else(|| {
            FfiFailure::new(PeregrineStatus::Value, "the answer has no such field")
        })?;
        let found = PeregrineField {
            name: name.as_ptr(),
            name_len: name.len(),
            value: value.as_ptr(),
            value_len: value.len(),
        };
        // SAFETY: as this function demands.
        unsafe { put(field, found) }
    })
}

/// Releases the exchange. Before its answer is complete this tells the engine that the client has
/// left. Any thread, but not a callback.
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
