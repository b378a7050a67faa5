//! Reads fields from bytes.

/// The bytes are not a message: truncated, overlong, or with an unknown wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The value of a field, by its wire type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Integers, enums and booleans.
    Varint(u64),
    /// `fixed64`, `sfixed64`, `double`.
    Fixed64(u64),
    /// `fixed32`, `sfixed32`, `float`.
    Fixed32(u32),
    /// Strings, bytes, messages, maps and packed lists.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The bytes of a string, of bytes or of a message.
    ///
    /// # Errors
    /// [`Malformed`] on any other wire type.
    #[inline]
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Fixed64(_) | Value::Fixed32(_) => Err(Malformed),
        }
    }

    /// The text of a string.
    ///
    /// # Errors
    /// [`Malformed`] on any other wire type and on text that is not UTF-8, as proto3 requires.
    #[inline]
    pub fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// An integer, an enum's number or a boolean.
    ///
    /// # Errors
    /// [`Malformed`] on any other wire type.
    #[inline]
    pub fn varint(self) -> Result<u64, Malformed> {
        match self {
            Value::Varint(value) => Ok(value),
            Value::Bytes(_) | Value::Fixed64(_) | Value::Fixed32(_) => Err(Malformed),
        }
    }

    /// An `int32` or an enum's number: the lower bits, as every implementation reads it.
    ///
    /// # Errors
    /// As [`Value::varint`].
    #[inline]
    pub fn int32(self) -> Result<i32, Malformed> {
        self.varint().map(|value| value as i32)
    }
}

/// Iterates over the fields of a message: number and value. It ends after an error.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match self.field() {
                Some(ProtoField::Value(number, value)) => return Some(Ok((number, value))),
                Some(ProtoField::Group) => {}
                None => {
                    self.0 = &[];
                    return Some(Err(Malformed));
                }
            }
        }
        None
    }
}

enum ProtoField<'a> {
    Value(u32, Value<'a>),
    /// A whole group was skipped.
    Group,
}

impl<'a> Fields<'a> {
    #[inline]
    fn field(&mut self) -> Option<ProtoField<'a>> {
        let (number, wire_type) = self.key()?;
        if wire_type == 3 {
            self.skip_group(number)?;
            return Some(ProtoField::Group);
        }
        self.value(wire_type).map(|value| ProtoField::Value(number, value))
    }

    /// Number and wire type; a number is between 1 and 2^29 - 1.
    #[inline]
    fn key(&mut self) -> Option<(u32, u8)> {
        let key = u32::try_from(self.varint()?).ok()?;
        (key >> 3 > 0).then_some((key >> 3, (key & 7) as u8))
    }

    #[inline]
    fn value(&mut self, wire_type: u8) -> Option<Value<'a>> {
        Some(match wire_type {
            0 => Value::Varint(self.varint()?),
            1 => {
                let (bytes, rest) = self.0.split_first_chunk::<8>()?;
                self.0 = rest;
                Value::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            5 => {
                let (bytes, rest) = self.0.split_first_chunk::<4>()?;
                self.0 = rest;
                Value::Fixed32(u32::from_le_bytes(*bytes))
            }
            _ => return None,
        })
    }

    /// A varint of at most ten bytes; a tenth byte has a single bit.
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        if first < 0x80 {
            self.0 = rest;
            return Some(u64::from(first));
        }
        let mut value = 0;
        for (at, &byte) in self.0.iter().take(10).enumerate() {
            if at == 9 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Some(value);
            }
        }
        None
    }

    /// Skips to the end of the group, including nested groups.
    fn skip_group(&mut self, number: u32) -> Option<()> {
        // Starts and ends are only counted: of the group numbers, only the outermost one is
        // compared.
        let mut depth = 1_usize;
        loop {
            match self.key()? {
                (_, 3) => depth += 1,
                (end, 4) => {
                    depth -= 1;
                    if depth == 0 {
                        return (end == number).then_some(());
                    }
                }
                (_, wire_type) => drop(self.value(wire_type)?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Malformed> {
        Fields(bytes).collect()
    }

    #[test]
    fn every_wire_type_is_read() {
        let bytes = [
            0x08, 0x96, 0x01, // 1: 150
            0x12, 0x02, b'h', b'i', // 2: "hi"
            0x19, 1, 0, 0, 0, 0, 0, 0, 0, // 3: fixed64
            0x25, 2, 0, 0, 0, // 4: fixed32
        ];
        assert_eq!(
            all(&bytes),
            Ok(vec![
                (1, Value::Varint(150)),
                (2, Value::Bytes(b"hi")),
                (3, Value::Fixed64(1)),
                (4, Value::Fixed32(2)),
            ])
        );
        assert_eq!(all(b""), Ok(Vec::new()));
        let minus_one = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(all(&minus_one).unwrap()[0].1.int32(), Ok(-1));
    }

    #[test]
    fn groups_are_skipped() {
        let bytes = [0x0b, 0x08, 0x01, 0x13, 0x14, 0x0c, 0x10, 0x05];
        assert_eq!(all(&bytes), Ok(vec![(2, Value::Varint(5))]));
        for open in [&[0x0b][..], &[0x0b, 0x14], &[0x0b, 0x13, 0x0c], &[0x0c]] {
            assert_eq!(all(open), Err(Malformed), "{open:?}");
        }
    }

    #[test]
    fn malformed_fields_are_rejected() {
        let long = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        let cut: [&[u8]; 9] = [
            &[0x08],
            &[0x08, 0x80],
            &[0x12, 0x02, b'h'],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x19, 1, 2, 3],
            &[0x25, 1],
            &[0x0e],
            &[0x00, 0x01],
            &long,
        ];
        for bytes in cut {
            assert_eq!(all(bytes), Err(Malformed), "{bytes:?}");
        }
        assert_eq!(Value::Bytes(b"\xff").text(), Err(Malformed));
        assert_eq!(Value::Varint(1).bytes(), Err(Malformed));
        assert_eq!(Value::Bytes(b"").varint(), Err(Malformed));
    }
}
