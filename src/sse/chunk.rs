//! Chunked framing (RFC 9112 §7.1) around bytes that are rendered in place.
//!
//! The size is written afterwards into eight reserved digits: `chunk-size` is `1*HEXDIG`, so
//! leading zeros are legal. An empty chunk would end the body (the last chunk has size 0), so it is
//! removed instead.

/// Bytes in front of a chunk's data: eight digits and CRLF.
const HEAD: &[u8; 10] = b"00000000\r\n";

/// An open chunk: the position of its size.
#[derive(Debug)]
#[must_use = "end the chunk with chunk_end"]
pub struct ChunkMark {
    start: usize,
}

/// Opens a chunk; append its data to `out`, then call [`chunk_end`].
///
/// ```
/// use peregrine::sse::{chunk_begin, chunk_end, chunk_last};
/// let mut out = Vec::new();
/// let mark = chunk_begin(&mut out);
/// out.extend_from_slice(b"data: 1\n\n");
/// assert_eq!(chunk_end(&mut out, mark), 9);
/// chunk_last(&mut out);
/// assert_eq!(out, b"00000009\r\ndata: 1\n\n\r\n0\r\n\r\n");
/// ```
pub fn chunk_begin(out: &mut Vec<u8>) -> ChunkMark {
    let start = out.len();
    out.extend_from_slice(HEAD);
    ChunkMark { start }
}

/// Ends the chunk and returns the size of its data, less than 4 GiB. If the size is 0, the chunk is
/// removed from `out`.
pub fn chunk_end(out: &mut Vec<u8>, mark: ChunkMark) -> usize {
    let size = out.len().saturating_sub(mark.start + HEAD.len());
    debug_assert!(u32::try_from(size).is_ok());
    if size == 0 {
        out.truncate(mark.start);
        return 0;
    }
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut remaining = size;
    for digit in out[mark.start..mark.start + 8].iter_mut().rev() {
        *digit = HEX[remaining & 15];
        remaining >>= 4;
    }
    out.extend_from_slice(b"\r\n");
    size
}

/// Ends the body with the last chunk, without trailers.
pub fn chunk_last(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_size_is_written_as_eight_hex_digits() {
        let mut out = b"head".to_vec();
        let mark = chunk_begin(&mut out);
        out.extend_from_slice(&[b'x'; 0x1abc]);
        assert_eq!(chunk_end(&mut out, mark), 0x1abc);
        assert!(out.starts_with(b"head00001abc\r\nxxx") && out.ends_with(b"x\r\n"));
        assert_eq!(out.len(), 4 + 10 + 0x1abc + 2);
    }

    #[test]
    fn empty_chunk_is_removed() {
        let mut out = b"head".to_vec();
        let mark = chunk_begin(&mut out);
        assert_eq!(chunk_end(&mut out, mark), 0);
        assert_eq!(out, b"head");
    }
}
