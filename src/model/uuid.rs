//! Identifiers that the server makes.

/// Random bits as the text of a version 4 UUID (RFC 9562 §5.4); six of them become constants.
#[inline]
pub fn uuid(bits: u128) -> [u8; 36] {
    const VERSION: u128 = 0xf000 << 64;
    const VARIANT: u128 = 0xc000 << 48;
    let bits = bits & !(VERSION | VARIANT) | 0x4000 << 64 | 0x8000 << 48;
    let bytes = bits.to_be_bytes();
    let mut text = [b'-'; 36];
    let mut at = 0;
    while at < bytes.len() {
        let [high, low] = HEX[bytes[at] as usize];
        (text[PLACES[at]], text[PLACES[at] + 1]) = (high, low);
        at += 1;
    }
    text
}

/// Where the digits of each byte are.
const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// `00` to `ff`.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut at = 0;
    while at < 256 {
        pairs[at] = [digits[at >> 4], digits[at & 15]];
        at += 1;
    }
    pairs
};

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
