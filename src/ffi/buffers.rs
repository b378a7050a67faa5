//! Text across the border.

use std::slice;

use super::status::{FfiFailure, PeregrineStatus};

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

/// A place for one value.
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

/// A buffer of the caller's for a text.
pub(super) struct TextOut {
    out: *mut u8,
    capacity: usize,
    len: *mut usize,
}

impl TextOut {
    /// # Safety
    /// `out` points at `capacity` bytes, or is null while `capacity` is 0; `len` is null or points
    /// at a `size_t`, which may be misaligned. Nothing else uses them while the buffer is used.
    pub unsafe fn new(
        out: *mut u8,
        capacity: usize,
        len: *mut usize,
    ) -> Result<TextOut, FfiFailure> {
        if out.is_null() && capacity != 0 {
            return Err(FfiFailure::new(
                PeregrineStatus::Null,
                "a buffer is null and has a length",
            ));
        }
        Ok(TextOut { out, capacity, len })
    }

    /// Writes the text, or only its length where it does not fit.
    pub fn write(self, text: &[u8]) -> Result<(), FfiFailure> {
        if !self.len.is_null() {
            // SAFETY: it is not null, and points at a `size_t`.
            unsafe { self.len.write_unaligned(text.len()) };
        }
        if text.len() > self.capacity {
            let why = format!("{} bytes are needed", text.len());
            return Err(FfiFailure::new(PeregrineStatus::Space, why));
        }
        if !text.is_empty() {
            // SAFETY: the buffer has room for `text`, which is not in it.
            unsafe { self.out.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        }
        Ok(())
    }
}
