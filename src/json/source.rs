//! Where a document lies: in bytes that are shared, or in a buffer whose rest may be lent.
//!
//! simd-json wants a mutable slice that reaches a block beyond the document. A buffer that has
//! such room is read in place; anything else is copied first. Either way no byte is changed.

/// A document, or input that holds one, and the room behind it.
#[derive(Debug)]
pub struct Source<'s>(SourceBytes<'s>);

#[derive(Debug)]
enum SourceBytes<'s> {
    Shared(&'s [u8]),
    /// The first so many bytes; what follows is anything, and stays as it is.
    Roomy(&'s mut [u8], usize),
}

impl<'s> From<&'s [u8]> for Source<'s> {
    fn from(bytes: &'s [u8]) -> Source<'s> {
        Source(SourceBytes::Shared(bytes))
    }
}

impl<'s> From<&'s Vec<u8>> for Source<'s> {
    fn from(bytes: &'s Vec<u8>) -> Source<'s> {
        Source(SourceBytes::Shared(bytes))
    }
}

impl<'s> Source<'s> {
    /// The first `length` bytes of `buffer`, all of it at most; the rest is room.
    #[inline]
    pub fn roomy(buffer: &'s mut [u8], length: usize) -> Source<'s> {
        let length = length.min(buffer.len());
        Source(SourceBytes::Roomy(buffer, length))
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            SourceBytes::Shared(bytes) => bytes,
            SourceBytes::Roomy(buffer, length) => &buffer[..*length],
        }
    }

    /// The bytes from `start` on, with the same room behind them.
    ///
    /// # Panics
    /// When `start` is beyond the end.
    #[inline]
    pub fn behind(&mut self, start: usize) -> Source<'_> {
        Source(match &mut self.0 {
            SourceBytes::Shared(bytes) => SourceBytes::Shared(&bytes[start..]),
            SourceBytes::Roomy(buffer, length) => {
                SourceBytes::Roomy(&mut buffer[start..], *length - start)
            }
        })
    }

    /// The first `mid` bytes, and the `length` bytes behind them as a source of their own: what
    /// follows those is its room.
    ///
    /// # Panics
    /// When there are not so many.
    #[inline(always)]
    pub fn split(self, mid: usize, length: usize) -> (&'s [u8], Source<'s>) {
        match self.0 {
            SourceBytes::Shared(bytes) => {
                (&bytes[..mid], Source(SourceBytes::Shared(&bytes[mid..mid + length])))
            }
            SourceBytes::Roomy(buffer, all) => {
                assert!(mid + length <= all);
                let (first, rest) = buffer.split_at_mut(mid);
                (first, Source(SourceBytes::Roomy(rest, length)))
            }
        }
    }

    /// The bytes for as long as they live.
    #[inline]
    pub(super) fn into_bytes(self) -> &'s [u8] {
        match self.0 {
            SourceBytes::Shared(bytes) => bytes,
            SourceBytes::Roomy(buffer, length) => &buffer[..length],
        }
    }

    /// The buffer and the length of the document, if `room` bytes follow it.
    #[inline]
    pub(super) fn buffer(&mut self, room: usize) -> Option<(&mut [u8], usize)> {
        match &mut self.0 {
            SourceBytes::Roomy(buffer, length) if buffer.len() - *length >= room => {
                Some((buffer, *length))
            }
            SourceBytes::Roomy(..) | SourceBytes::Shared(_) => None,
        }
    }
}
