//! Content codings of requests: gzip (RFC 1952) and deflate (RFC 1950), RFC 9110 §8.4.
//!
//! Content is accepted only if it is exactly one stream of its coding. For any input the output
//! exceeds the limit by at most one step.

use super::Head;
#[cfg(feature = "compression")]
use std::io::Read;

/// A coding that the server decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// `gzip`, or `x-gzip`, which means the same (RFC 9110 §8.4.1.3).
    Gzip,
    /// `deflate`: in the zlib format (RFC 9110 §8.4.1.2).
    Deflate,
}

/// Why content is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InflateError {
    /// The content is not exactly one complete stream of its coding.
    Broken,
    /// The decoded content exceeds the limit.
    #[cfg_attr(not(feature = "compression"), allow(dead_code, reason = "no decoder"))]
    TooLarge,
}

/// The value of `Accept-Encoding` in an answer 415 (RFC 9110 §15.5.16).
pub const ACCEPTED_CODINGS: &str =
    if cfg!(feature = "compression") { "gzip, deflate" } else { "identity" };

/// Bytes that are decoded in one step.
#[cfg(feature = "compression")]
const STEP_BYTES: usize = 16 * 1024;

impl ContentCoding {
    /// The coding in `Content-Encoding`; `None`: the content is not coded. `identity` and empty
    /// elements of the list are ignored.
    ///
    /// # Errors
    /// The value of the field: an unknown coding, or several codings.
    pub fn of(head: &Head<'_>) -> Result<Option<ContentCoding>, String> {
        let values = || head.values("Content-Encoding");
        let named = |coding: &&[u8]| !coding.eq_ignore_ascii_case(b"identity");
        let mut codings = values().flat_map(super::list).filter(named);
        let coding = match (codings.next(), codings.next()) {
            (None, _) => return Ok(None),
            (Some(only), None) => ContentCoding::named(only),
            (Some(_), Some(_)) => None,
        };
        let all = || values().map(String::from_utf8_lossy).collect::<Vec<_>>().join(", ");
        coding.filter(|_| cfg!(feature = "compression")).map(Some).ok_or_else(all)
    }

    fn named(name: &[u8]) -> Option<ContentCoding> {
        let is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
        if is("gzip") || is("x-gzip") {
            return Some(ContentCoding::Gzip);
        }
        is("deflate").then_some(ContentCoding::Deflate)
    }

    /// The name of the coding.
    pub fn name(self) -> &'static str {
        match self {
            ContentCoding::Gzip => "gzip",
            ContentCoding::Deflate => "deflate",
        }
    }

    /// Decodes content to at most `bytes_max` bytes, and appends `room` zeros.
    ///
    /// # Errors
    /// [`InflateError`].
    #[cfg(feature = "compression")]
    pub fn inflate(
        self,
        coded: &[u8],
        bytes_max: usize,
        room: usize,
    ) -> Result<Vec<u8>, InflateError> {
        use flate2::{Decompress, bufread::GzDecoder};
        match self {
            ContentCoding::Gzip => {
                let mut decoder = GzDecoder::new(coded);
                let decoded = read(&mut decoder, bytes_max, room)?;
                whole(decoder.get_ref(), decoded)
            }
            ContentCoding::Deflate => {
                let state = Decompress::new(true);
                let mut decoder = ZlibDecoder { state, rest: coded, is_over: false };
                let decoded = read(&mut decoder, bytes_max, room)?;
                whole(decoder.rest, decoded)
            }
        }
    }

    /// Fails, because this build has no decoder.
    ///
    /// # Errors
    /// [`InflateError::Broken`].
    #[cfg(not(feature = "compression"))]
    pub fn inflate(self, _: &[u8], _: usize, _: usize) -> Result<Vec<u8>, InflateError> {
        Err(InflateError::Broken)
    }
}

/// flate2's own decoder does not distinguish the end of the input from the end of the stream.
#[cfg(feature = "compression")]
struct ZlibDecoder<'c> {
    state: flate2::Decompress,
    rest: &'c [u8],
    is_over: bool,
}

#[cfg(feature = "compression")]
impl Read for ZlibDecoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        use flate2::{FlushDecompress, Status};
        if self.is_over {
            return Ok(0);
        }
        let (consumed, made) = (self.state.total_in(), self.state.total_out());
        let status = self.state.decompress(self.rest, out, FlushDecompress::None)?;
        self.is_over = status == Status::StreamEnd;
        let (consumed, made) = (self.state.total_in() - consumed, self.state.total_out() - made);
        self.rest = self.rest.get(consumed as usize..).unwrap_or_default();
        match made as usize {
            0 if !self.is_over => Err(std::io::ErrorKind::UnexpectedEof.into()),
            made => Ok(made),
        }
    }
}

/// Refuses bytes after the end of the stream.
#[cfg(feature = "compression")]
fn whole(rest: &[u8], decoded: Vec<u8>) -> Result<Vec<u8>, InflateError> {
    if rest.is_empty() { Ok(decoded) } else { Err(InflateError::Broken) }
}

#[cfg(feature = "compression")]
fn read(decoder: &mut impl Read, bytes_max: usize, room: usize) -> Result<Vec<u8>, InflateError> {
    let (mut decoded, mut length) = (Vec::new(), 0);
    loop {
        if decoded.len() < length + STEP_BYTES {
            // Doubles the capacity, up to the limit of the output.
            let most = bytes_max + STEP_BYTES + room;
            decoded.reserve_exact((2 * length + STEP_BYTES + room).min(most) - length);
            decoded.resize(length + STEP_BYTES, 0);
        }
        let count = decoder.read(&mut decoded[length..]).map_err(|_| InflateError::Broken)?;
        length += count;
        if length > bytes_max {
            return Err(InflateError::TooLarge);
        }
        if count == 0 {
            decoded.truncate(length);
            decoded.resize(length + room, 0);
            return Ok(decoded);
        }
    }
}

/// The bytes compressed with gzip; `None`: the result is not shorter.
#[cfg(feature = "compression")]
pub fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    use flate2::{Compression, bufread::GzEncoder};
    let mut coded = Vec::new();
    // An output as long as the input is not used, so encoding stops there.
    let mut encoder = GzEncoder::new(bytes, Compression::fast()).take(bytes.len() as u64);
    encoder.read_to_end(&mut coded).ok()?;
    (coded.len() < bytes.len()).then_some(coded)
}

#[cfg(all(test, feature = "compression"))]
mod tests {
    use std::io::Read;

    use flate2::{
        Compression,
        bufread::{GzEncoder, ZlibEncoder},
    };

    use super::*;

    fn coded(coding: ContentCoding, bytes: &[u8]) -> Vec<u8> {
        let (mut coded, level) = (Vec::new(), Compression::best());
        _ = match coding {
            ContentCoding::Gzip => GzEncoder::new(bytes, level).read_to_end(&mut coded),
            ContentCoding::Deflate => ZlibEncoder::new(bytes, level).read_to_end(&mut coded),
        };
        coded
    }

    #[test]
    fn inflate_accepts_exactly_one_stream_within_the_limit() {
        let content: Vec<u8> = (0..100_000_u32).map(|at| (at / 7) as u8).collect();
        for coding in [ContentCoding::Gzip, ContentCoding::Deflate] {
            for length in [0, 1, STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 100_000] {
                let coded = coded(coding, &content[..length]);
                let decoded = coding.inflate(&coded, length, 64).unwrap();
                assert_eq!(
                    (&decoded[..length], &decoded[length..]),
                    (&content[..length], &[0; 64][..])
                );
                assert!(decoded.capacity() <= length.max(1) * 2 + 2 * STEP_BYTES + 64);
                if length > 0 {
                    let short = coding.inflate(&coded, length - 1, 0);
                    assert_eq!(short, Err(InflateError::TooLarge));
                }
                for broken in [&coded[..coded.len() - 1], &[&coded[..], b"x"].concat(), b"{}", b""]
                {
                    let refused = coding.inflate(broken, length, 0);
                    assert_eq!(refused, Err(InflateError::Broken), "{length}");
                }
            }
        }
    }

    #[test]
    fn gzip_returns_none_unless_output_is_shorter() {
        let long = b"hello ".repeat(100);
        let coded = gzip(&long).unwrap();
        assert_eq!(ContentCoding::Gzip.inflate(&coded, 600, 0), Ok(long));
        assert_eq!(gzip(b"hello"), None);
        assert_eq!(gzip(b""), None);
    }
}
