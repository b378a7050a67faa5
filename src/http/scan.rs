//! Finding the end of a head in a growing buffer.
//!
//! Every byte is scanned once, and a head is refused at the first byte that proves it invalid, so
//! the outcome does not depend on how the bytes were split into reads. Lines end only in CRLF; the
//! only accepted control byte is the tab.

use super::{HEAD_BYTES_CEILING, HeadLimits, Reject, line};

/// Maximum empty lines before a request line (RFC 9112 §2.2: at least one SHOULD be ignored).
pub const EMPTY_LINES_MAX: usize = 4;

/// The result of [`find_head`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The end was not found; pass `scanned` to the next call.
    Partial {
        /// Bytes that need not be scanned again.
        scanned: usize,
    },
    /// The head is `buf[..head_len]`, including leading empty lines and the final empty line.
    Complete {
        /// Bytes of the head.
        head_len: usize,
    },
}

/// Searches for the end of the head that begins at `buf[0]`.
///
/// `scanned` is 0 for a new head, then the value of the last [`Scan::Partial`]; the bytes before it
/// must not have changed.
///
/// # Errors
/// A head is refused as early as the bytes allow: [`Reject::EmptyLines`],
/// [`Reject::MethodInvalid`], [`Reject::MethodTooLong`], [`Reject::BareLineFeed`],
/// [`Reject::BareCarriageReturn`], [`Reject::ControlByte`], [`Reject::RequestLine`],
/// [`Reject::VersionInvalid`], [`Reject::VersionUnsupported`], [`Reject::TargetTooLong`],
/// [`Reject::FieldFolded`], [`Reject::HeadTooLarge`].
pub fn find_head(buf: &[u8], scanned: usize, limits: &HeadLimits) -> Result<Scan, Reject> {
    let bytes_max = limits.head_bytes_max.min(HEAD_BYTES_CEILING);
    let view = &buf[..buf.len().min(bytes_max)];
    let Some(start) = skip_empty_lines(view)? else {
        return partial(view, bytes_max, 0);
    };
    // The method is short: scanning it again costs less than storing its end.
    line::method(&view[start..], limits)?;
    let mut at = scanned.clamp(start, view.len());
    let mut in_first_line = !view[start..at].contains(&b'\n');
    loop {
        // RFC 9112 §5.2 and §2.2: a line of a head must not begin with white space.
        if !in_first_line && view[at - 1] == b'\n' && matches!(view.get(at), Some(b' ' | b'\t')) {
            return Err(Reject::FieldFolded);
        }
        at = next_control(view, at);
        if in_first_line && at - start > line::bytes_max(limits) {
            return Err(Reject::TargetTooLong);
        }
        match (view.get(at), view.get(at + 1)) {
            (None, _) => break,
            (Some(b'\t'), _) if in_first_line => return Err(Reject::RequestLine),
            (Some(b'\t'), _) => at += 1,
            (Some(b'\n'), _) => return Err(Reject::BareLineFeed),
            (Some(b'\r'), None) => break,
            (Some(b'\r'), Some(b'\n')) => {
                if in_first_line {
                    line::version(&view[start..at])?;
                    in_first_line = false;
                } else if view[at - 1] == b'\n' {
                    return Ok(Scan::Complete { head_len: at + 2 });
                }
                at += 2;
            }
            (Some(b'\r'), Some(_)) => return Err(Reject::BareCarriageReturn),
            (Some(_), _) => return Err(Reject::ControlByte),
        }
    }
    if in_first_line && view.len() == bytes_max {
        return Err(Reject::TargetTooLong);
    }
    partial(view, bytes_max, at)
}

/// `Partial`, unless the view has the maximum size of a head.
fn partial(view: &[u8], bytes_max: usize, scanned: usize) -> Result<Scan, Reject> {
    if view.len() < bytes_max { Ok(Scan::Partial { scanned }) } else { Err(Reject::HeadTooLarge) }
}

/// The start of the request line; `None`: only empty lines, or parts of one, have arrived.
pub(super) fn skip_empty_lines(buf: &[u8]) -> Result<Option<usize>, Reject> {
    // RFC 9112 §2.2: a server SHOULD ignore at least one empty line before the request line.
    for lines in 0..=EMPTY_LINES_MAX {
        let at = 2 * lines;
        match (buf.get(at), buf.get(at + 1)) {
            (None, _) | (Some(b'\r'), None) => return Ok(None),
            (Some(b'\r'), Some(b'\n')) => {}
            (Some(b'\r'), Some(_)) => return Err(Reject::BareCarriageReturn),
            (Some(_), _) => return Ok(Some(at)),
        }
    }
    Err(Reject::EmptyLines)
}

/// The index of the first byte below 0x20 at or after `from`, or `bytes.len()`.
///
/// Reads eight bytes per step; the tests compare it with a slow twin.
pub(super) fn next_control(bytes: &[u8], from: usize) -> usize {
    next(bytes, from, below_0x20, |b| b < 0x20)
}

/// The length of a field value at the start of `bytes`, including white space around it.
///
/// RFC 9110 §5.5: a value has visible bytes, spaces, tabs and bytes above 0x7f.
pub(super) fn value_len(bytes: &[u8]) -> usize {
    let is_out = |byte: u8| (byte < 0x20) | (byte == 0x7f);
    let hits = |word| below_0x20(word) | zeros(word ^ (ONES * 0x7f));
    let mut at = 0;
    loop {
        let mut rest = &bytes[at..];
        while let Some((block, tail)) = rest.split_first_chunk::<32>()
            && !block.iter().fold(false, |is_any, &byte| is_any | is_out(byte))
        {
            rest = tail;
        }
        at = next(bytes, bytes.len() - rest.len(), hits, is_out);
        if bytes.get(at) != Some(&b'\t') {
            return at;
        }
        at += 1;
    }
}

/// The number of bytes before the first space or control byte.
pub(super) fn target_len(bytes: &[u8]) -> usize {
    next(bytes, 0, |word| word.wrapping_sub(ONES * 0x21) & !word & HIGHS, |byte| byte <= b' ')
}

/// Sets the high bit of every zero byte. False hits are only above a true hit.
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);

/// Sets the high bit of every byte below 0x20, because the subtraction borrows from it. False hits
/// are only above a true hit.
fn below_0x20(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x20) & !word & HIGHS
}

/// The first byte for which `is_hit` is true, eight at a time; the lowest bit of `hits` belongs to
/// a true hit.
#[inline(always)]
fn next(
    bytes: &[u8],
    from: usize,
    hits: impl Fn(u64) -> u64,
    is_hit: impl Fn(u8) -> bool,
) -> usize {
    let mut rest = bytes.get(from..).unwrap_or_default();
    let mut at = bytes.len() - rest.len();
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        let hits = hits(u64::from_le_bytes(*word));
        if hits != 0 {
            return at + hits.trailing_zeros() as usize / 8;
        }
        at += 8;
        rest = tail;
    }
    at + rest.iter().position(|&b| is_hit(b)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::TEST_LIMITS as LIMITS;

    fn naive(bytes: &[u8], from: usize, is_hit: impl Fn(u8) -> bool) -> usize {
        (from..bytes.len()).find(|&i| is_hit(bytes[i])).unwrap_or(bytes.len())
    }

    #[test]
    fn fast_scans_equal_naive_scans() {
        for byte in [0, 9, 10, 13, 0x1f, 0x20, b':', 0x7f, 0x80, 0x9f, 0xff] {
            for other in [0x20, b'\t', 0x21, b':', b';', 0x7e, 0x7f, 0x80, 0xa0, 0xff, 0] {
                for at in 0..40 {
                    let mut bytes = [other; 40];
                    bytes[at] = byte;
                    for from in 0..=40 {
                        let want = naive(&bytes, from, |b| b < 0x20);
                        assert_eq!(next_control(&bytes, from), want, "{bytes:?} from {from}");
                    }
                    let want = naive(&bytes, 0, |b| (b < 0x20 && b != b'\t') || b == 0x7f);
                    assert_eq!(value_len(&bytes), want, "{bytes:?}");
                    let want = naive(&bytes, 0, |b| b <= b' ');
                    assert_eq!(target_len(&bytes), want, "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn a_head_ends_at_its_empty_line() {
        let bytes = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET";
        let head_len = bytes.len() - 3;
        assert_eq!(find_head(bytes, 0, &LIMITS), Ok(Scan::Complete { head_len }));
        assert_eq!(find_head(b"", 0, &LIMITS), Ok(Scan::Partial { scanned: 0 }));
        // The CR must be scanned again, together with its LF.
        assert_eq!(find_head(&bytes[..17], 0, &LIMITS), Ok(Scan::Partial { scanned: 16 }));
        // A cursor beyond the buffer is a caller's mistake, but does not panic.
        assert_eq!(find_head(b"GET", 9, &LIMITS), Ok(Scan::Partial { scanned: 3 }));
    }

    #[test]
    fn garbage_is_refused_at_its_first_byte() {
        for byte in [0u8, 0x16, 0x80, 0xff, b' ', b'(', b'{'] {
            assert_eq!(find_head(&[byte], 0, &LIMITS), Err(Reject::MethodInvalid), "{byte}");
        }
    }

    #[test]
    fn limits_apply_before_the_head_is_complete() {
        let small = HeadLimits { head_bytes_max: 40, ..LIMITS };
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nX: 0123456789\r\n\r\n";
        assert_eq!(find_head(&bytes[..39], 0, &small), Ok(Scan::Partial { scanned: 38 }));
        assert_eq!(find_head(&bytes[..40], 0, &small), Err(Reject::HeadTooLarge));
        let target = [b"GET /".as_slice(), &[b'a'; 9000]].concat();
        assert_eq!(find_head(&target, 0, &LIMITS), Err(Reject::TargetTooLong));
    }
}
