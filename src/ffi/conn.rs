//! One connection as bytes: HTTP/1.1 and WebSocket. The functions may be called from any thread,
//! one at a time for each connection, but not in a callback.

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

/// An empty output buffer with more capacity is freed.
const EMPTY_BYTES_MAX: usize = 64 * 1024;

/// What to do with a socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeregrineNext {
    /// Keep the socket open.
    Open = 0,
    /// Send the output, close for writing, ignore input for a while (`linger_ms`), then close.
    Close = 1,
    /// Close the socket now, with a reset.
    Abort = 2,
    /// The peer uses HTTP/2, which a server supports and an engine does not: close the socket.
    Http2 = 3,
}

/// The state of a connection after an advance.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineProgress {
    /// Bytes that were consumed at the front of the input.
    pub consumed: usize,
    /// The connection needs this many bytes of input, counted from the first unconsumed byte,
    /// before it can advance; 0: unknown.
    pub need: usize,
    /// Bytes of output to send (`peregrine_conn_output`).
    pub unsent: usize,
    /// Advance again within this many milliseconds; `UINT64_MAX`: no limit.
    pub wait_ms: u64,
    /// A `PeregrineNext`.
    pub next: u32,
    /// False: leave input in the socket.
    pub reads: bool,
}

/// The object of a connection's handle.
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

    /// Frees the space of sent output.
    fn compact(&mut self) {
        self.out.drain(..std::mem::take(&mut self.sent));
        if self.out.is_empty() && self.out.capacity() > EMPTY_BYTES_MAX {
            self.out = Vec::new();
        }
    }
}

/// Starts a connection that the program has accepted. Its bytes are those after decryption, if it
/// uses TLS. `address` is the IP address of the peer as text, without a port; null: unknown.
/// `flags` are `PEREGRINE_SECURE` and `PEREGRINE_LOOPBACK`. Release the connection with
/// `peregrine_conn_release`, at any time. Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`, `UTF8`, `VALUE` (an unknown flag, an invalid address),
/// `SERVER` (the engine is not started), `FULL` (`connections_max` is reached).
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
        // SAFETY: upheld by the caller.
        let peer = unsafe { PeerDescription::read(address, address_len, flags, allowed) }?;
        if conn.is_null() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "the pointer for a result is null"));
        }
        let running = running(engine)?;
        let slot = running.engine.open().ok_or(HostError::Full)?;
        let handle = handles::fresh();
        let wake = running.host.waker(handle);
        let opened = Conn::new(running.engine.now());
        let inner = Mutex::new(ConnInner { conn: opened, out: Vec::new(), sent: 0 });
        let slot = ConnSlot { inner, running, slot, peer, wake };
        handles::insert_as(handle, HandleObject::Conn(slot.into()));
        // SAFETY: not null; the rest is upheld by the caller.
        unsafe { put(conn, handle) }
    })
}

/// Advances the connection as far as possible. `data` is all input that was received and not
/// consumed; it is not copied. `eof`: the peer has closed its side. Call this function when input
/// has arrived, output was sent, `wake` was called with this handle, or `wait_ms` have passed. Call
/// from any thread, but not in a callback.
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
        // SAFETY: upheld by the caller.
        let input = unsafe { bytes(data, len) }?;
        if progress.is_null() {
            return Err(FfiFailure::new(PeregrineStatus::Null, "the pointer for a result is null"));
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
        let state = PeregrineProgress {
            consumed: advanced.consumed,
            need: advanced.need,
            unsent: inner.unsent().len(),
            wait_ms: slot.running.wait_ms(advanced.deadline_ms),
            next: next as u32,
            reads: advanced.read,
        };
        // SAFETY: not null; the rest is upheld by the caller.
        unsafe { put(progress, state) }
    })
}

/// Returns the bytes to send. The pointer is valid until the connection is advanced or released.
/// Call from any thread, but not in a callback.
///
/// Errors: `HANDLE`, `BUSY`, `NULL`.
///
/// # Safety
/// `data` points at a `const uint8_t *`, which becomes null if there is no output; `len` points at
/// a `size_t`.
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
        // SAFETY: upheld by the caller.
        unsafe {
            put(data, at)?;
            put(len, unsent.len())
        }
    })
}

/// Removes `len` sent bytes from the front of the output. Call from any thread, but not in a
/// callback.
///
/// Errors: `HANDLE`, `BUSY`, `VALUE` (the output is shorter).
#[unsafe(no_mangle)]
pub extern "C" fn peregrine_conn_consume(conn: u64, len: usize) -> PeregrineStatus {
    run(|| {
        border::outside_callbacks()?;
        let slot = handles::conn(conn)?;
        let mut inner = slot.lock();
        let unsent = inner.unsent().len();
        if len > unsent {
            let why = format!("cannot consume {len} bytes: there are {unsent} bytes of output");
            return Err(FfiFailure::new(PeregrineStatus::Value, why));
        }
        inner.sent += len;
        Ok(())
    })
}

/// Releases the connection. Its calls without an answer are abandoned, as if the client had
/// disconnected. Call from any thread, but not in a callback.
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
