//! Writes fields to bytes.
//!
//! The length of a nested message is known only after its content. Space for the length is reserved
//! by a guess; after a wrong guess the content moves by a few bytes.

/// Appends fields to a buffer.
pub struct Writer<'v>(pub &'v mut Vec<u8>);

/// The start of a nested message; pass it to [`Writer::close`].
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Nested {
    /// The start of its content.
    start: usize,
    /// Bytes reserved for its length, just before its content.
    reserved: usize,
}

/// Bytes of a number as a varint.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

impl Writer<'_> {
    /// Appends a number as a varint.
    #[inline]
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    #[inline]
    fn key(&mut self, number: u32, wire_type: u32) {
        self.varint(u64::from(number << 3 | wire_type));
    }

    /// Appends an integer, an enum or a boolean, even a default value.
    #[inline]
    pub fn number(&mut self, number: u32, value: u64) {
        self.key(number, 0);
        self.varint(value);
    }

    /// Appends `true`; `false` is the default and omitted.
    #[inline]
    pub fn flag(&mut self, number: u32, value: bool) {
        if value {
            self.number(number, 1);
        }
    }

    /// Appends a `double`.
    #[inline]
    pub fn double(&mut self, number: u32, value: f64) {
        self.key(number, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a string, bytes or a finished message, even an empty one.
    #[inline]
    pub fn bytes(&mut self, number: u32, bytes: &[u8]) {
        match (number, bytes.len()) {
            // Usually key and length are one byte each, and are written at once.
            (..16, length @ ..0x80) => {
                self.0.extend_from_slice(&[(number << 3 | 2) as u8, length as u8]);
            }
            (_, length) => {
                self.key(number, 2);
                self.varint(length as u64);
            }
        }
        self.0.extend_from_slice(bytes);
    }

    /// Opens a nested message of about `guess` bytes, which contains the fields appended until
    /// [`Writer::close`].
    #[inline]
    pub fn open(&mut self, number: u32, guess: usize) -> Nested {
        self.key(number, 2);
        let reserved = varint_len(guess as u64);
        match reserved {
            1 => self.0.push(0),
            2 => self.0.extend_from_slice(&[0; 2]),
            more => self.0.extend_from_slice(&[0; 10][..more]),
        }
        Nested { start: self.0.len(), reserved }
    }

    /// The message that [`Writer::open`] opened at this offset, with this number and guess.
    pub fn opened_at(at: usize, number: u32, guess: usize) -> Nested {
        let reserved = varint_len(guess as u64);
        Nested { start: at + varint_len(u64::from(number << 3)) + reserved, reserved }
    }

    /// Closes a message by writing its length in front of it.
    #[inline]
    pub fn close(&mut self, nested: Nested) {
        let Nested { start, reserved } = nested;
        let length = self.0.len() - start;
        let needed = varint_len(length as u64);
        if needed != reserved {
            self.shift(nested, needed);
        }
        let (mut at, mut value) = (start - reserved, length);
        while value >= 0x80 {
            self.0[at] = value as u8 | 0x80;
            value >>= 7;
            at += 1;
        }
        self.0[at] = value as u8;
    }

    /// Moves a message so that its length has `needed` bytes.
    #[cold]
    fn shift(&mut self, nested: Nested, needed: usize) {
        let Nested { start, reserved } = nested;
        let end = self.0.len();
        if needed > reserved {
            self.0.resize(end + needed - reserved, 0);
        }
        self.0.copy_within(start..end, start + needed - reserved);
        self.0.truncate(end + needed - reserved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::{Fields, Value};

    #[test]
    fn varint_len_equals_written_length() {
        for shift in 0..64 {
            for value in [(1_u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                let mut out = Vec::new();
                Writer(&mut out).varint(value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                let field = [&[0x08], &out[..]].concat();
                assert_eq!(Fields(&field).next(), Some(Ok((1, Value::Varint(value)))));
            }
        }
    }

    #[test]
    fn nested_message_is_correct_for_any_length_guess() {
        for length in [0, 1, 127, 128, 129, 16_383, 16_384, 20_000] {
            for guess in [0, 127, 128, 16_384, 1 << 21] {
                let content: Vec<u8> = (0..length).map(|n| n as u8).collect();
                let (mut out, mut expected) = (vec![9], vec![9]);
                let mut writer = Writer(&mut out);
                let nested = writer.open(5, guess);
                writer.0.extend_from_slice(&content);
                writer.close(nested);
                writer.flag(6, true);
                Writer(&mut expected).bytes(5, &content);
                Writer(&mut expected).flag(6, true);
                assert_eq!(out, expected, "{length} {guess}");
            }
        }
    }
}
