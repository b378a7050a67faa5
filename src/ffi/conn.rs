//! One connection as bytes: HTTP/1.1 and WebSocket. Any thread, one at a time for each connection,
//! but not a callback.

use std::{
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
};

use crate::{
    embed::{HostCx, HostError, OpenSlot},
    engine::{Conn, Next},
};

use super::{
    border,
    buffers::{bytes, put},
    engine::{RunningEngine, running},
    handles::{self, HandleObject},
    peer::{PEREGRINE_LOOPBACK, PEREGRINE_SECURE, PeerDescription},
    status::{FfiFailure, PeregrineStatus, run},
};

/// A larger empty output buffer is freed.
const EMPTY_BYTES_MAX: usize = 64 * 1024;

/// What to do with a socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeregrineNext {
    /// Keep it.
    Open = 0,
    /// Send the output, close for writing, ignore input for a while (`linger_ms`), then close.
    Close = 1,
    /// Close it now, by a reset.
    Abort = 2,
    /// The peer speaks HTTP/2, which a server does and an engine does not: close it.
    Http2 = 3,
}

/// What a connection wants next.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineProgress {
    /// Bytes at the front of the input that are done with.
    pub consumed: usize,
    /// The connection needs this many bytes of input, counted from the first byte that is not
    /// consumed, before it can advance; 0: unknown.
    pub need: usize,
    /// Bytes of output (`peregrine_conn_output`).
    pub unsent: usize,
    /// Advance again in so many milliseconds at the latest; `UINT64_MAX`: for ever.
    pub wait_ms: u64,
    /// A `PeregrineNext`.
    pub next: u32,
    /// False: leave input in the socket.
    pub reads: bool,
}

/// A connection behind its handle.
pub(super) struct ConnSlot {
    inner: Mutex<ConnInner>,
    running: Arc<RunningEngine>,
    slot: OpenSlot,
    peer: PeerDescription,
    wake: Waker,
}

struct ConnInner {
    conn: Conn,
    out: Vec<u8>,
    /// Bytes at the front of `out` that were sent.
    sent: usize,
}

impl ConnSlot {
    fn lock(&self) -> MutexGuard<'_, ConnInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnInner {
    fn unsent(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Reclaims the room of sent output.
    fn compact(&mut self) {
        self.out.drain(..std::mem::take(&mut self.sent));
        if self.out.is_empty() && self.out.capacity() > EMPTY_BYTES_MAX {
            self.out = Vec::new();
        }
    }
}

/// Begins a connection that the program has accepted: its bytes are those behind TLS, if there is
/// TLS. `address` is the IP address of the peer as text, without a port; null: unknown. `flags` are
/// `PEREGRINE_SECURE` and `PEREGRINE_LOOPBACK`. Released by `peregrine_conn_release`, at any time.
/// Any thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8`, `VALUE` (an unknown flag, an address that is none),
/// `SERVER` (the engine was not started), `FULL` (`connections_max` are open).
///
/// # Safety
/// `address` is null or points at `address_len` bytes; `conn` points at a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_conn_new(
    engine: u64,
    address: *const u8,
    address_len: usize,
    flags: u32,
    conn: *mut u64,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let allowed = PEREGRINE_SECURE | PEREGRINE_LOOPBACK;
        // SAFETY: as this function demands.
        let peer = unsafe { PeerDescription::read(address, address_len, flags, allowed) }?;
        if conn.is_null() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "the place of a result is null"));
        }
        let running = running(engine)?;
        let slot = running.engine.open().ok_or(HostError::Full)?;
        let handle = handles::fresh();
        let wake = running.host.waker(handle);
        let begun = Conn::new(running.engine.now());
        let inner = Mutex::new(ConnInner { conn: begun, out: Vec::new(), sent: 0 });
        let slot = ConnSlot { inner, running, slot, peer, wake };
        handles::insert_as(handle, HandleObject::Conn(slot.into()));
        // SAFETY: not null, and as this function demands.
        unsafe { put(conn, handle) }
    })
}

/// Advances as far as possible. `data` is all input that was received and not consumed; it is not
/// copied; `eof`: the peer has closed its side. Call it when input came, output was sent,
/// `wake` was called with this handle, or `wait_ms` have passed. Any thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `VALUE`.
///
/// # Safety
/// `data` points at `len` bytes; `progress` points at a `PeregrineProgress`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_conn_advance(
    conn: u64,
    data: *const u8,
    len: usize,
    eof: bool,
    progress: *mut PeregrineProgress,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        // SAFETY: as this function demands.
        let input = unsafe { bytes(data, len) }?;
        if progress.is_null() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "the place of a result is null"));
        }
        let slot = handles::conn(conn)?;
        let inner = &mut *slot.lock();
        inner.compact();
        let (worker, wake, peer) = (slot.slot.worker(), &slot.wake, slot.peer.peer());
        let with = HostCx { worker, wake, out: &mut inner.out, unsent: 0, peer };
        let conn = &mut inner.conn;
        let advanced = slot.running.engine.with_cx(with, |cx| conn.advance(cx, input, eof));
        let next = match advanced.next {
            Next::Open => PeregrineNext::Open,
            Next::Close => PeregrineNext::Close,
            Next::Abort => PeregrineNext::Abort,
            Next::Http2 => PeregrineNext::Http2,
        };
        let there = PeregrineProgress {
            consumed: advanced.consumed,
            need: advanced.need,
            unsent: inner.unsent().len(),
            wait_ms: slot.running.wait_ms(advanced.deadline_ms),
            next: next as u32,
            reads: advanced.read,
        };
        // SAFETY: not null, and as this function demands.
        unsafe { put(progress, there) }
    })
}

/// The bytes to send. The pointer is valid until the connection is advanced or released. Any
/// thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`.
///
/// # Safety
/// `data` points at a `const uint8_t *`, which becomes null if there is nothing; `len` points at a
/// `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peregrine_conn_output(
    conn: u64,
    data: *mut *const u8,
    len: *mut usize,
) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::conn(conn)?;
        let inner = slot.lock();
        let unsent = inner.unsent();
        let at = match unsent.is_empty() {
            true => ptr::null(),
            false => unsent.as_ptr(),
        };
        // SAFETY: as this function demands.
        unsafe {
            put(data, at)?;
            put(len, unsent.len())
        }
    })
}

/// So many bytes of the output were sent. Any thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`, `VALUE` (there are fewer).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_conn_consume(conn: u64, len: usize) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::conn(conn)?;
        let mut inner = slot.lock();
        let unsent = inner.unsent().len();
        if len > unsent {
            let why = format!("there are {unsent} bytes of output");
            return Err(FfiFailure::new(PeregrineStatus::Value, why));
        }
        inner.sent += len;
        Ok(())
    })
}

/// Releases the connection. Its calls without an answer are given up as if the client had left. Any
/// thread, but not a callback.
///
/// Errors: `HANDLE`, `BUSY`.
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_conn_release(conn: u64) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        handles::conn(conn)?;
        handles::remove(conn);
        Ok(())
    })
}
