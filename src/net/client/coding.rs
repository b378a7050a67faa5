//! Content codings of responses: gzip and deflate, decoded as they arrive.
//!
//! Invariants: content is exactly one stream of its coding. The output is bounded, in bytes and as
//! a multiple of the input, and is produced on demand: a small input never needs more than a
//! bounded amount of memory.

use std::{
    io::Write,
    task::{Context, Poll, ready},
};

use flate2::write::{GzDecoder, ZlibDecoder};

use crate::client::{ClientLimits, TransportError};

/// Coded bytes of one decoding step: at 1,032 times their size they are 1 MiB.
const STEP_BYTES: usize = 1_024;

/// Coded bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// Decodes the content of one response.
pub(super) struct Decoder {
    inflate: Inflate,
    /// Coded input; the bytes before `start` are decoded.
    coded: Vec<u8>,
    start: usize,
    is_all: bool,
    is_over: bool,
    coded_bytes: u64,
    decoded_bytes: u64,
    bounds: DecoderBounds,
    /// The number of decoded bytes that were returned.
    returned: usize,
}

/// Limits of the output.
struct DecoderBounds {
    bytes_max: u64,
    bytes_free: u64,
    ratio_max: u64,
}

enum Inflate {
    Gzip(GzDecoder<Vec<u8>>),
    Deflate(ZlibDecoder<Vec<u8>>),
}

impl Decoder {
    /// A decoder for a `Content-Encoding`; `None`: the content needs no decoding. A stream of
    /// events may be endless: only its ratio and each event are bounded.
    ///
    /// # Errors
    /// [`TransportError::Coding`]: the coding is not gzip, deflate or identity.
    pub(super) fn new(
        coding: Option<&[u8]>,
        media_type: Option<&[u8]>,
        limits: &ClientLimits,
    ) -> Result<Option<Box<Decoder>>, TransportError> {
        let Some(coding) = coding else { return Ok(None) };
        let is = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
        // RFC 9110 §8.4.1.3: x-gzip is the same coding as gzip.
        let inflate = if is("gzip") || is("x-gzip") {
            Inflate::Gzip(GzDecoder::new(Vec::new()))
        } else if is("deflate") {
            Inflate::Deflate(ZlibDecoder::new(Vec::new()))
        } else if is("identity") || coding.is_empty() {
            return Ok(None);
        } else {
            return Err(TransportError::Coding("only gzip and deflate are supported"));
        };
        const EVENTS: &[u8] = b"text/event-stream";
        let start = media_type.and_then(|media| media.get(..EVENTS.len()));
        let is_stream = start.is_some_and(|start| start.eq_ignore_ascii_case(EVENTS));
        let bytes_max = if is_stream { u64::MAX } else { limits.decoded_bytes_max as u64 };
        Ok(Some(Box::new(Decoder {
            inflate,
            coded: Vec::new(),
            start: 0,
            is_all: false,
            is_over: false,
            coded_bytes: 0,
            decoded_bytes: 0,
            bounds: DecoderBounds {
                bytes_max,
                bytes_free: limits.decoded_bytes_free as u64,
                ratio_max: limits.decoded_ratio_max as u64,
            },
            returned: 0,
        })))
    }

    /// Appends decoded content. `read` appends coded bytes, and returns whether there may be more.
    ///
    /// # Errors
    /// The errors of `read`, [`TransportError::Coding`], [`TransportError::TooLarge`].
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        room: usize,
        mut read: impl FnMut(
            &mut Context<'_>,
            &mut Vec<u8>,
            usize,
        ) -> Poll<Result<bool, TransportError>>,
    ) -> Poll<Result<bool, TransportError>> {
        loop {
            if self.take(out, room) {
                return Poll::Ready(Ok(true));
            }
            if self.is_over {
                return Poll::Ready(Ok(false));
            }
            if self.start < self.coded.len() {
                self.decode()?;
            } else if self.is_all {
                self.finish()?;
            } else {
                (self.start, _) = (0, self.coded.clear());
                self.is_all = !ready!(read(cx, &mut self.coded, READ_BYTES))?;
            }
        }
    }

    /// Moves decoded bytes into `out`; false: there were no decoded bytes.
    fn take(&mut self, out: &mut Vec<u8>, room: usize) -> bool {
        let decoded = self.inflate.decoded();
        let count = (decoded.len() - self.returned).min(room.max(1));
        out.extend_from_slice(&decoded[self.returned..self.returned + count]);
        self.returned += count;
        if self.returned == decoded.len() {
            (self.returned, _) = (0, decoded.clear());
        }
        count > 0
    }

    /// Decodes the next piece.
    fn decode(&mut self) -> Result<(), TransportError> {
        const BROKEN: TransportError = TransportError::Coding("the content is corrupt");
        let end = self.coded.len().min(self.start + STEP_BYTES);
        while self.start < end {
            let count = self.inflate.write(&self.coded[self.start..end]).map_err(|_| BROKEN)?;
            if count == 0 {
                return Err(TransportError::Coding("bytes follow the end of the content"));
            }
            self.start += count;
            self.coded_bytes += count as u64;
        }
        self.inflate.flush().map_err(|_| BROKEN)?;
        self.count()
    }

    /// Checks that the content ends with its coding and that the checksums match.
    fn finish(&mut self) -> Result<(), TransportError> {
        self.is_over = true;
        // A response without content has no coding either.
        if self.coded_bytes == 0 {
            return Ok(());
        }
        let ended = self.inflate.finish();
        ended.map_err(|_| TransportError::Coding("the content is truncated or corrupt"))?;
        self.count()?;
        self.is_over = self.inflate.decoded().is_empty();
        Ok(())
    }

    fn count(&mut self) -> Result<(), TransportError> {
        let DecoderBounds { bytes_max, bytes_free, ratio_max } = self.bounds;
        self.decoded_bytes += self.inflate.decoded().len() as u64;
        if self.decoded_bytes > bytes_max {
            return Err(TransportError::TooLarge("decoded_bytes_max"));
        }
        let most = self.coded_bytes.saturating_mul(ratio_max).max(bytes_free);
        if self.decoded_bytes > most {
            return Err(TransportError::TooLarge("decoded_ratio_max"));
        }
        Ok(())
    }
}

impl Inflate {
    fn decoded(&mut self) -> &mut Vec<u8> {
        match self {
            Inflate::Gzip(inflate) => inflate.get_mut(),
            Inflate::Deflate(inflate) => inflate.get_mut(),
        }
    }

    fn write(&mut self, coded: &[u8]) -> std::io::Result<usize> {
        match self {
            Inflate::Gzip(inflate) => inflate.write(coded),
            Inflate::Deflate(inflate) => inflate.write(coded),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Inflate::Gzip(inflate) => inflate.flush(),
            Inflate::Deflate(inflate) => inflate.flush(),
        }
    }

    fn finish(&mut self) -> std::io::Result<()> {
        match self {
            Inflate::Gzip(inflate) => inflate.try_finish(),
            Inflate::Deflate(inflate) => inflate.try_finish(),
        }
    }
}
