//! The bytes of a document: shared, or in a buffer that may be lent with the space after them.
//!
//! simd-json needs a mutable slice that extends a block beyond the document. A buffer with such
//! space is read in place; other bytes are copied first. In both cases no byte is changed.

/// A document, or input that contains one, and the space after it.
#[derive(Debug)]
pub struct Source<'s>(SourceBytes<'s>);

#[derive(Debug)]
enum SourceBytes<'s> {
    Shared(&'s [u8]),
    /// The document is the first bytes, of this number; the rest is arbitrary, and stays unchanged.
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
    /// The first `length` bytes of `buffer`, at most the whole buffer; the rest is space.
    #[inline]
    pub fn roomy(buffer: &'s mut [u8], length: usize) -> Source<'s> {
        let length = length.min(buffer.len());
        Source(SourceBytes::Roomy(buffer, length))
    }

    /// The bytes of the document.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            SourceBytes::Shared(bytes) => bytes,
            SourceBytes::Roomy(buffer, length) => &buffer[..*length],
        }
    }

    /// The bytes from `start` on, with the same space after them.
    ///
    /// # Panics
    /// When `start` is beyond the end.
    #[inline]
    pub fn tail(&mut self, start: usize) -> Source<'_> {
        Source(match &mut self.0 {
            SourceBytes::Shared(bytes) => SourceBytes::Shared(&bytes[start..]),
            SourceBytes::Roomy(buffer, length) => {
                SourceBytes::Roomy(&mut buffer[start..], *length - start)
            }
        })
    }

    /// The first `mid` bytes, and the next `length` bytes as a separate source, with the rest as
    /// its space.
    ///
    /// # Panics
    /// When the source is shorter.
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

    /// The bytes with their full lifetime.
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
