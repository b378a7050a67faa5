//! The texts and results that cross the C interface.

use std::slice;

use super::status::{FfiFailure, PeregrineStatus, run};

/// The bytes of a text of the caller.
///
/// # Safety
/// `data` points at `len` bytes that do not change while the result is used, or is null.
pub(super) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8], FfiFailure> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        let why = "a text is null, but its length is not 0";
        return Err(FfiFailure::new(PeregrineStatus::Null, why));
    }
    if len > isize::MAX as usize {
        let why = format!("the length of a text, {len}, is larger than an allocation can be");
        return Err(FfiFailure::new(PeregrineStatus::Value, why));
    }
    // SAFETY: neither null nor longer than an allocation; the rest is upheld by the caller.
    Ok(unsafe { slice::from_raw_parts(data, len) })
}

/// A text of the caller.
///
/// # Safety
/// As for [`bytes`].
pub(super) unsafe fn text<'a>(data: *const u8, len: usize) -> Result<&'a str, FfiFailure> {
    // SAFETY: upheld by the caller.
    let bytes = unsafe { bytes(data, len) }?;
    str::from_utf8(bytes).map_err(|error| {
        FfiFailure::new(PeregrineStatus::Utf8, format!("a text is not UTF-8: {error}"))
    })
}

/// Writes a value through a pointer.
///
/// # Safety
/// `pointer` is null or points at a `T`, maybe misaligned, that nothing else uses during the call.
pub(super) unsafe fn put<T>(pointer: *mut T, value: T) -> Result<(), FfiFailure> {
    if pointer.is_null() {
        return Err(FfiFailure::new(PeregrineStatus::Null, "the pointer for a result is null"));
    }
    // SAFETY: not null; the rest is upheld by the caller.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Writes a text into the caller's buffer, or only its length if it does not fit.
///
/// # Safety
/// `out` points at `capacity` bytes, or is null if `capacity` is 0; `len` is null or points at a
/// `size_t`, which may be misaligned. Nothing else uses this memory during the call.
pub(super) unsafe fn put_text(
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
    text: &[u8],
) -> Result<(), FfiFailure> {
    if out.is_null() && capacity != 0 {
        let why = "the buffer is null, but its capacity is not 0";
        return Err(FfiFailure::new(PeregrineStatus::Null, why));
    }
    if !len.is_null() {
        // SAFETY: not null; the rest is upheld by the caller.
        unsafe { len.write_unaligned(text.len()) };
    }
    if text.len() > capacity {
        let why = format!("the buffer is too short: {} bytes are needed", text.len());
        return Err(FfiFailure::new(PeregrineStatus::Space, why));
    }
    if !text.is_empty() {
        // SAFETY: the buffer has room for `text`, which is not in it.
        unsafe { out.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    }
    Ok(())
}

/// The body of a function that returns a text.
///
/// # Safety
/// As for [`put_text`].
pub(super) unsafe fn give<T: AsRef<[u8]>>(
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
    text: impl FnOnce() -> Result<T, FfiFailure>,
) -> PeregrineStatus {
    run(|| {
        let text = text()?;
        // SAFETY: upheld by the caller.
        unsafe { put_text(out, capacity, len, text.as_ref()) }
    })
}

/// The body of a function that takes a text.
///
/// # Safety
/// As for [`bytes`].
pub(super) unsafe fn with_text(
    data: *const u8,
    len: usize,
    act: impl FnOnce(&str) -> Result<(), FfiFailure>,
) -> PeregrineStatus {
    run(|| {
        // SAFETY: upheld by the caller.
        act(unsafe { text(data, len) }?)
    })
}
