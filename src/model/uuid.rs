//! Identifiers of the server.

/// Random bits as the text of a version 4 UUID (RFC 9562 §5.4); six of the bits become constants.
#[inline]
pub fn uuid(bits: u128) -> [u8; 36] {
    let digits = uuid_digits(bits);
    let digits = digits.as_flattened();
    let mut text = [b'-'; 36];
    text[..8].copy_from_slice(&digits[..8]);
    text[9..13].copy_from_slice(&digits[8..12]);
    text[14..18].copy_from_slice(&digits[12..16]);
    text[19..23].copy_from_slice(&digits[16..20]);
    text[24..].copy_from_slice(&digits[20..]);
    text
}

/// The hexadecimal digits of such a UUID, two for each byte.
#[inline]
pub(crate) fn uuid_digits(bits: u128) -> [[u8; 2]; 16] {
    const VERSION: u128 = 0xf000 << 64;
    const VARIANT: u128 = 0xc000 << 48;
    let bits = bits & !(VERSION | VARIANT) | 0x4000 << 64 | 0x8000 << 48;
    let mut digits = [[0; 2]; 16];
    hex(&bits.to_be_bytes(), &mut digits);
    digits
}

/// Two hexadecimal digits for each byte.
#[inline(never)] // The compiler uses vector instructions only without inlining.
fn hex(bytes: &[u8; 16], digits: &mut [[u8; 2]; 16]) {
    for (pair, byte) in digits.iter_mut().zip(bytes) {
        let both = u16::from(*byte);
        let nibbles = both >> 4 | both << 8 & 0x0f00;
        let letters = (nibbles + 0x0606) >> 4 & 0x0101;
        // Digits from `0`, letters from `a`, which is 39 above the character after `9`.
        *pair = (nibbles + 0x3030 + letters * 39).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::{hex, uuid};

    #[test]
    fn bytes_are_written_as_two_hex_digits() {
        for first in (0..=255).step_by(16) {
            let bytes = std::array::from_fn(|at| first + at as u8);
            let mut digits = [[0; 2]; 16];
            hex(&bytes, &mut digits);
            let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digits.as_flattened(), expected.as_bytes());
        }
    }

    #[test]
    fn version_and_variant_are_set() {
        let text = uuid(u128::MAX);
        assert_eq!(&text, b"ffffffff-ffff-4fff-bfff-ffffffffffff");
        let all = uuid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(&all, b"01234567-89ab-4def-8123-456789abcdef");
        assert_eq!(&uuid(0), b"00000000-0000-4000-8000-000000000000");
    }
}
