//! The chunked transfer coding, decoded as the bytes arrive (RFC 9112 §7.1).
//!
//! Invariant: size lines are read byte by byte, data as whole slices, and no byte is read twice, so
//! the outcome does not depend on how the bytes were split into reads. Extensions and trailers are
//! checked against their grammar, bounded, and dropped, unless the caller requests the trailers.

use super::line::is_token;
use super::{Reject, escape};

/// The limits of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Maximum bytes of all chunk data together; above: 413.
    pub body_bytes_max: u64,
    /// Maximum bytes of one chunk line, with extensions and without CRLF; above: 400.
    pub line_bytes_max: usize,
    /// Maximum bytes of the trailer section, with CRLFs; above: 431.
    pub trailer_bytes_max: usize,
    /// Maximum overhead of all chunks: for each, the bytes of its line minus 16 and minus twice its
    /// data; above: 400.
    pub overhead_bytes_max: usize,
}

/// The result of one call of [`Chunked::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkStep {
    /// Bytes of the input that were consumed: all of them, unless `done`.
    pub consumed: usize,
    /// Whether the body is complete, including its trailers.
    pub done: bool,
}

/// An incremental decoder for one body.
#[derive(Clone, Debug)]
pub struct Chunked {
    limits: ChunkLimits,
    state: ChunkedState,
    /// The value of the size digits read so far, then the remaining bytes of data.
    remaining: u64,
    digits: u8,
    line_bytes: usize,
    trailer_bytes: usize,
    overhead_bytes: usize,
    body_bytes: u64,
}

/// The expected kind of the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkedState {
    Size,
    /// White space after the size: only an extension may follow.
    SizeSpace,
    NameStart,
    Name,
    NameSpace,
    ValueStart,
    Value,
    Quoted,
    QuotedPair,
    QuotedEnd,
    ValueSpace,
    LineLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
    Done,
}

impl ChunkedState {
    /// Inside a field line of the trailer section, before its line feed.
    const fn is_in_trailer_line(self) -> bool {
        matches!(
            self,
            ChunkedState::TrailerName | ChunkedState::TrailerValue | ChunkedState::TrailerLf
        )
    }
}

/// RFC 9112 §7.1: more than 16 digits would not fit 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;

/// Overhead of each chunk that is not counted.
const LINE_BYTES_FREE: u64 = 16;

impl Chunked {
    /// A decoder before the first chunk line.
    pub const fn new(limits: ChunkLimits) -> Self {
        Self {
            limits,
            state: ChunkedState::Size,
            remaining: 0,
            digits: 0,
            line_bytes: 0,
            trailer_bytes: 0,
            overhead_bytes: 0,
            body_bytes: 0,
        }
    }

    /// Whether the body is complete.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, ChunkedState::Done)
    }

    /// Consumes `input` and appends its data to `body`; bytes after the body are not consumed.
    ///
    /// After an error the decoder must not be used again.
    ///
    /// # Errors
    /// [`Reject::ChunkSize`], [`Reject::ChunkExtension`], [`Reject::ChunkLineTooLong`],
    /// [`Reject::ChunkOverhead`], [`Reject::ChunkData`], [`Reject::BodyTooLarge`],
    /// [`Reject::TrailerInvalid`], [`Reject::TrailersTooLarge`], [`Reject::BareLineFeed`],
    /// [`Reject::BareCarriageReturn`].
    #[inline]
    pub fn advance(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<ChunkStep, Reject> {
        self.advance_with(input, body, |_| {})
    }

    /// As [`Chunked::advance`]. `trailer` receives the field lines of the trailer section, each
    /// with its CRLF, byte by byte; they are valid only if the body becomes complete.
    ///
    /// # Errors As [`Chunked::advance`].
    #[inline]
    pub fn advance_with(
        &mut self,
        input: &[u8],
        body: &mut Vec<u8>,
        mut trailer: impl FnMut(u8),
    ) -> Result<ChunkStep, Reject> {
        let mut rest = input;
        while self.state != ChunkedState::Done {
            if self.state == ChunkedState::Data {
                let len = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(rest.len());
                let (data, tail) = rest.split_at(len);
                body.extend_from_slice(data);
                rest = tail;
                self.remaining -= len as u64;
                if self.remaining > 0 {
                    break;
                }
                self.state = ChunkedState::DataCr;
            }
            let Some((&byte, tail)) = rest.split_first() else { break };
            rest = tail;
            let before = self.state;
            self.state = self.step(byte)?;
            if self.state.is_in_trailer_line() || before.is_in_trailer_line() {
                trailer(byte);
            }
        }
        Ok(ChunkStep { consumed: input.len() - rest.len(), done: self.is_done() })
    }

    fn step(&mut self, byte: u8) -> Result<ChunkedState, Reject> {
        match self.state {
            ChunkedState::Size
            | ChunkedState::SizeSpace
            | ChunkedState::NameStart
            | ChunkedState::Name
            | ChunkedState::NameSpace
            | ChunkedState::ValueStart
            | ChunkedState::Value
            | ChunkedState::Quoted
            | ChunkedState::QuotedPair
            | ChunkedState::QuotedEnd
            | ChunkedState::ValueSpace => self.line(byte),
            ChunkedState::LineLf => self.line_end(byte),
            ChunkedState::DataCr if byte == b'\r' => Ok(ChunkedState::DataLf),
            ChunkedState::DataLf if byte == b'\n' => {
                self.digits = 0;
                self.line_bytes = 0;
                Ok(ChunkedState::Size)
            }
            ChunkedState::DataCr | ChunkedState::DataLf => Err(Reject::ChunkData),
            ChunkedState::TrailerStart
            | ChunkedState::TrailerName
            | ChunkedState::TrailerValue
            | ChunkedState::TrailerLf
            | ChunkedState::LastLf => self.trailer(byte),
            // `advance` does not call this in either state.
            ChunkedState::Data | ChunkedState::Done => Ok(self.state),
        }
    }

    /// chunk-size [ chunk-ext ] up to its CR.
    fn line(&mut self, byte: u8) -> Result<ChunkedState, Reject> {
        if byte != b'\r' {
            if self.line_bytes >= self.limits.line_bytes_max {
                return Err(Reject::ChunkLineTooLong);
            }
            self.line_bytes += 1;
        }
        if self.state == ChunkedState::Size {
            return self.size(byte);
        }
        if byte == b'\n' {
            return Err(Reject::BareLineFeed);
        }
        extension(self.state, byte).ok_or(Reject::ChunkExtension)
    }

    /// RFC 9112 §7.1: chunk-size = 1*HEXDIG.
    fn size(&mut self, byte: u8) -> Result<ChunkedState, Reject> {
        if let Some(digit) = escape::hex(byte) {
            if self.digits >= SIZE_DIGITS_MAX {
                return Err(Reject::ChunkSize);
            }
            self.remaining = if self.digits == 0 { 0 } else { self.remaining << 4 };
            self.remaining |= u64::from(digit);
            self.digits += 1;
            return Ok(ChunkedState::Size);
        }
        let next = match byte {
            b'\r' => ChunkedState::LineLf,
            b';' => ChunkedState::NameStart,
            b' ' | b'\t' => ChunkedState::SizeSpace,
            b'\n' if self.digits > 0 => return Err(Reject::BareLineFeed),
            _ => return Err(Reject::ChunkSize),
        };
        if self.digits == 0 {
            return Err(Reject::ChunkSize);
        }
        // RFC 9110 §15.5.14: refuse the body as soon as a size is known, before its data.
        match self.body_bytes.checked_add(self.remaining) {
            Some(sum) if sum <= self.limits.body_bytes_max => self.body_bytes = sum,
            Some(_) | None => return Err(Reject::BodyTooLarge),
        }
        Ok(next)
    }

    fn line_end(&mut self, byte: u8) -> Result<ChunkedState, Reject> {
        if byte != b'\n' {
            return Err(Reject::BareCarriageReturn);
        }
        // Decoding one-byte chunks with long extensions costs much for little data.
        let free = LINE_BYTES_FREE.saturating_add(self.remaining.saturating_mul(2));
        let free = usize::try_from(free).unwrap_or(usize::MAX);
        self.overhead_bytes = (self.overhead_bytes + self.line_bytes).saturating_sub(free);
        if self.overhead_bytes > self.limits.overhead_bytes_max {
            return Err(Reject::ChunkOverhead);
        }
        Ok(if self.remaining == 0 { ChunkedState::TrailerStart } else { ChunkedState::Data })
    }

    /// RFC 9112 §7.1.2: trailer-section = *( field-line CRLF ), then CRLF.
    fn trailer(&mut self, byte: u8) -> Result<ChunkedState, Reject> {
        if self.trailer_bytes >= self.limits.trailer_bytes_max && self.state != ChunkedState::LastLf
        {
            return Err(Reject::TrailersTooLarge);
        }
        self.trailer_bytes += 1;
        match (self.state, byte) {
            (ChunkedState::TrailerStart, b'\r') => Ok(ChunkedState::LastLf),
            (ChunkedState::TrailerName, b':') => Ok(ChunkedState::TrailerValue),
            (ChunkedState::TrailerStart | ChunkedState::TrailerName, _) if is_token(byte) => {
                Ok(ChunkedState::TrailerName)
            }
            (ChunkedState::TrailerValue, b'\r') => Ok(ChunkedState::TrailerLf),
            (ChunkedState::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => {
                Ok(ChunkedState::TrailerValue)
            }
            (ChunkedState::TrailerLf, b'\n') => Ok(ChunkedState::TrailerStart),
            (ChunkedState::LastLf, b'\n') => Ok(ChunkedState::Done),
            (ChunkedState::TrailerLf | ChunkedState::LastLf, _) => Err(Reject::BareCarriageReturn),
            (_, b'\n') => Err(Reject::BareLineFeed),
            _ => Err(Reject::TrailerInvalid),
        }
    }
}

/// RFC 9112 §7.1.1: chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ).
fn extension(state: ChunkedState, byte: u8) -> Option<ChunkedState> {
    let is_space = byte == b' ' || byte == b'\t';
    match state {
        ChunkedState::NameStart if is_space => Some(ChunkedState::NameStart),
        ChunkedState::NameStart | ChunkedState::Name if is_token(byte) => Some(ChunkedState::Name),
        ChunkedState::Name | ChunkedState::NameSpace if byte == b'=' => {
            Some(ChunkedState::ValueStart)
        }
        ChunkedState::Name | ChunkedState::NameSpace if is_space => Some(ChunkedState::NameSpace),
        ChunkedState::ValueStart if is_space => Some(ChunkedState::ValueStart),
        ChunkedState::ValueStart if byte == b'"' => Some(ChunkedState::Quoted),
        ChunkedState::ValueStart | ChunkedState::Value if is_token(byte) => {
            Some(ChunkedState::Value)
        }
        // RFC 9110 §5.6.4: qdtext and quoted-pair.
        ChunkedState::Quoted if byte == b'"' => Some(ChunkedState::QuotedEnd),
        ChunkedState::Quoted if byte == b'\\' => Some(ChunkedState::QuotedPair),
        ChunkedState::Quoted if is_text(byte) => Some(ChunkedState::Quoted),
        ChunkedState::QuotedPair if is_text(byte) => Some(ChunkedState::Quoted),
        ChunkedState::SizeSpace if is_space => Some(ChunkedState::SizeSpace),
        ChunkedState::Value | ChunkedState::QuotedEnd | ChunkedState::ValueSpace if is_space => {
            Some(ChunkedState::ValueSpace)
        }
        // Bad white space is valid before the next `;`, but not before the end of the line.
        ChunkedState::SizeSpace | ChunkedState::ValueSpace | ChunkedState::NameSpace
            if byte == b';' =>
        {
            Some(ChunkedState::NameStart)
        }
        ChunkedState::Name | ChunkedState::Value | ChunkedState::QuotedEnd if byte == b';' => {
            Some(ChunkedState::NameStart)
        }
        ChunkedState::Name | ChunkedState::Value | ChunkedState::QuotedEnd if byte == b'\r' => {
            Some(ChunkedState::LineLf)
        }
        _ => None,
    }
}

/// HTAB, SP, visible ASCII and obs-text.
const fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ChunkLimits = ChunkLimits {
        body_bytes_max: 20,
        line_bytes_max: 20,
        trailer_bytes_max: 12,
        overhead_bytes_max: 20,
    };

    fn read(wire: &str) -> Result<(Vec<u8>, ChunkStep), Reject> {
        let mut body = Vec::new();
        let step = Chunked::new(LIMITS).advance(wire.as_bytes(), &mut body)?;
        Ok((body, step))
    }

    fn refusal(wire: &str) -> Option<Reject> {
        read(wire).err()
    }

    #[test]
    fn rfc9112_7_1_chunks_are_decoded_and_invalid_rejected() {
        let wire = "5\r\nhello\r\n0A\r\n0123456789\r\n000\r\n\r\nGET";
        let step = ChunkStep { consumed: wire.len() - 3, done: true };
        assert_eq!(read(wire), Ok((b"hello0123456789".to_vec(), step)));
        assert_eq!(read("5\r\nhel").map(|(_, s)| s), Ok(ChunkStep { consumed: 6, done: false }));
        for wire in ["+5\r\n", "-5\r\n", "0x5\r\n", " 5\r\n", "\r\n", ";a\r\n", "5_0\r\n", "g\r\n"]
        {
            assert_eq!(refusal(wire), Some(Reject::ChunkSize), "{wire:?}");
        }
        assert_eq!(refusal("00000000000000000\r\n"), Some(Reject::ChunkSize));
        for wire in ["1\r\nxx", "1\r\nx\n", "1\r\nx\rx"] {
            assert_eq!(refusal(wire), Some(Reject::ChunkData), "{wire:?}");
        }
    }

    #[test]
    fn rfc9112_7_1_1_invalid_extensions_are_rejected() {
        for wire in
            ["0;a\r\n", "0;a=b;c\r\n", "0;a=\"b;\\\"\"\r\n", "0 ; a\t= b ;c\r\n", "0;a=\"\"\r\n"]
        {
            assert!(read(wire).is_ok(), "{wire:?}");
        }
        for wire in [
            "0 \r\n",
            "0;\r\n",
            "0;a=\r\n",
            "0;=b\r\n",
            "0;a=b c\r\n",
            "0;a=\"b\r\n",
            "0;a \r\n",
            "0;a=\"b\"c\r\n",
            "0;a=\"\x01\"\r\n",
            "0;a\0",
            "0;\"a\"\r\n",
            "0;a=b \r\n",
            "0;a=\"\\\x7f",
        ] {
            assert_eq!(refusal(wire), Some(Reject::ChunkExtension), "{wire:?}");
        }
        assert!(read("1;aaaaaaaaaaaaaaaaaa\r\n").is_ok());
        assert_eq!(refusal("1;aaaaaaaaaaaaaaaaaaa"), Some(Reject::ChunkLineTooLong));
    }

    #[test]
    fn excessive_chunk_line_overhead_is_rejected() {
        let mut limits = LIMITS;
        limits.line_bytes_max = 64;
        let wire = format!("1;{}\r\nx\r\n", "a".repeat(30)).repeat(2);
        let mut chunked = Chunked::new(limits);
        assert_eq!(chunked.advance(wire.as_bytes(), &mut Vec::new()), Err(Reject::ChunkOverhead));
    }

    #[test]
    fn rfc9112_7_1_2_trailers_are_checked_and_dropped() {
        assert!(
            read("0\r\nX: y\r\nZ:\r\n\r\n").is_ok_and(|(body, step)| body.is_empty() && step.done)
        );
        for wire in ["0\r\nX : y", "0\r\n: y", "0\r\n X", "0\r\nX: \0", "0\r\nX\r\n"] {
            assert_eq!(refusal(wire), Some(Reject::TrailerInvalid), "{wire:?}");
        }
        assert_eq!(refusal("0\r\nX: 0123456789"), Some(Reject::TrailersTooLarge));
    }

    #[test]
    fn advance_with_passes_trailers_to_the_callback() {
        let wire = "3\r\nX: \r\n0;a\r\nX: y\r\nZ:\r\n\r\nX: z\r\n";
        for size in 1..=wire.len() {
            let (mut chunked, mut body, mut lines) = (Chunked::new(LIMITS), vec![], vec![]);
            for piece in wire.as_bytes().chunks(size) {
                chunked.advance_with(piece, &mut body, |byte| lines.push(byte)).unwrap();
            }
            assert_eq!((&body[..], &lines[..]), (&b"X: "[..], &b"X: y\r\nZ:\r\n"[..]));
        }
    }

    #[test]
    fn rfc9112_2_2_bare_cr_or_lf_is_rejected() {
        for wire in ["5\n", "5;a\n", "0\r\n\n", "0\r\nX: y\n", "0;a=\"\\\n"] {
            assert_eq!(refusal(wire), Some(Reject::BareLineFeed), "{wire:?}");
        }
        for wire in ["5\rh", "0\r\n\rX", "0\r\nX: y\rZ"] {
            assert_eq!(refusal(wire), Some(Reject::BareCarriageReturn), "{wire:?}");
        }
    }

    #[test]
    fn rfc9110_15_5_14_large_body_is_rejected_before_its_data() {
        assert!(read("14\r\n").is_ok());
        assert_eq!(refusal("15\r\n"), Some(Reject::BodyTooLarge));
        assert_eq!(refusal("a\r\n0123456789\r\nb\r\n"), Some(Reject::BodyTooLarge));
        assert_eq!(refusal("ffffffffffffffff\r\n"), Some(Reject::BodyTooLarge));
        assert_eq!(refusal("1\r\nx\r\nffffffffffffffff\r\n"), Some(Reject::BodyTooLarge));
    }

    #[test]
    fn finished_decoder_consumes_nothing() -> Result<(), Reject> {
        let mut chunked = Chunked::new(LIMITS);
        assert!(chunked.advance(b"0\r\n\r\n", &mut Vec::new())?.done && chunked.is_done());
        let step = chunked.advance(b"5\r\n", &mut Vec::new())?;
        assert_eq!(step, ChunkStep { consumed: 0, done: true });
        Ok(())
    }
}
