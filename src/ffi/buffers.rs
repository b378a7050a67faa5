//! Text across the border.

use std::slice;

use super::status::{FfiFailure, PeregrineStatus, run};

/// Bytes of a text of the caller's.
///
/// # Safety
/// `data` points at `len` bytes that do not change while the result is used, or is null.
pub(super) unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8], FfiFailure> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(FfiFailure::new(PeregrineStatus::Null, "a text is null and has a length"));
    }
    if len > isize::MAX as usize {
        return Err(FfiFailure::new(PeregrineStatus::Value, "a text is longer than the memory"));
    }
    // SAFETY: not null, not longer than an allocation, and as this function demands.
    Ok(unsafe { slice::from_raw_parts(data, len) })
}

/// A text of the caller's.
///
/// # Safety
/// As for [`bytes`].
pub(super) unsafe fn text<'a>(data: *const u8, len: usize) -> Result<&'a str, FfiFailure> {
    // SAFETY: as this function demands.
    let bytes = unsafe { bytes(data, len) }?;
    str::from_utf8(bytes).map_err(|error| {
        FfiFailure::new(PeregrineStatus::Utf8, format!("a text is no UTF-8: {error}"))
    })
}

/// Writes a value through a pointer.
///
/// # Safety
/// `place` is null, or points at a `T` that nothing else uses meanwhile; it may be misaligned.
pub(super) unsafe fn put<T>(place: *mut T, value: T) -> Result<(), FfiFailure> {
    if place.is_null() {
        return Err(FfiFailure::new(PeregrineStatus::Null, "the place of a result is null"));
    }
    // SAFETY: not null, and as this function demands.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Writes a text into the caller's buffer, or only its length if it does not fit.
///
/// # Safety
/// `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points at a
/// `size_t`, which may be misaligned. Nothing else uses them meanwhile.
pub(super) unsafe fn put_text(
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
    text: &[u8],
) -> Result<(), FfiFailure> {
    if out.is_null() && capacity != 0 {
        return Err(FfiFailure::new(PeregrineStatus::Null, "a buffer is null and has a length"));
    }
    if !len.is_null() {
        // SAFETY: it is not null, and as this function demands.
        unsafe { len.write_unaligned(text.len()) };
    }
    if text.len() > capacity {
        let why = format!("{} bytes are needed", text.len());
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
        // SAFETY: as this function demands.
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
        // SAFETY: as this function demands.
        act(unsafe { text(data, len) }?)
    })
}
