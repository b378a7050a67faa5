//! Identifiers that the server makes.

/// Random bits as the text of a version 4 UUID (RFC 9562 §5.4); six of them become constants.
#[inline]
pub fn uuid(bits: u128) -> [u8; 36] {
    const VERSION: u128 = 0xf000 << 64;
    const VARIANT: u128 = 0xc000 << 48;
    let bits = bits & !(VERSION | VARIANT) | 0x4000 << 64 | 0x8000 << 48;
    let [a, b, c, d] = [96, 64, 32, 0].map(|shift| hex((bits >> shift) as u32));
    let mut text = [b'-'; 36];
    text[..8].copy_from_slice(&a);
    text[9..13].copy_from_slice(&b[..4]);
    text[14..18].copy_from_slice(&b[4..]);
    text[19..23].copy_from_slice(&c[..4]);
    text[24..28].copy_from_slice(&c[4..]);
    text[28..].copy_from_slice(&d);
    text
}

/// Eight hexadecimal digits, computed side by side in one word.
#[inline]
fn hex(word: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Each nibble to a byte of its own.
    let mut nibbles = u64::from(word);
    nibbles = (nibbles | nibbles << 16) & 0x0000_ffff_0000_ffff;
    nibbles = (nibbles | nibbles << 8) & 0x00ff_00ff_00ff_00ff;
    nibbles = (nibbles | nibbles << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // 10 to 15 reach 16 with 6 more, and are letters.
    let letters = (nibbles + 6 * ONES) >> 4 & ONES;
    (nibbles + u64::from(b'0') * ONES + letters * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::uuid;

    #[test]
    fn version_and_variant_are_set() {
        let text = uuid(u128::MAX);
        assert_eq!(&text, b"ffffffff-ffff-4fff-bfff-ffffffffffff");
        let all = uuid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(&all, b"01234567-89ab-4def-8123-456789abcdef");
        assert_eq!(&uuid(0), b"00000000-0000-4000-8000-000000000000");
    }
}
