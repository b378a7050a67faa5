//! Masking (RFC 6455 §5.3): a payload is XORed with four bytes, repeatedly.
//!
//! Masking twice is the identity, so one function serves both directions.

/// A masking key at some offset of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskingKey([u8; 4]);

impl MaskingKey {
    /// The key of an unmasked frame: it changes nothing.
    pub const NONE: MaskingKey = MaskingKey([0; 4]);

    /// The key at the start of a payload.
    pub const fn new(key: [u8; 4]) -> MaskingKey {
        MaskingKey(key)
    }

    /// The key at the offset that is `count` bytes later.
    #[must_use]
    pub fn after(self, count: usize) -> MaskingKey {
        let mut key = self.0;
        key.rotate_left(count % 4);
        MaskingKey(key)
    }

    /// Masks or unmasks a payload that begins at the key's offset.
    pub fn apply(self, payload: &mut [u8]) {
        let [a, b, c, d] = self.0;
        let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
        // Words of eight bytes, which compilers vectorize; only the last word is handled byte by
        // byte.
        let (words, rest) = payload.as_chunks_mut::<8>();
        for word in words {
            *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
        }
        for (byte, key) in rest.iter_mut().zip(wide.to_ne_bytes()) {
            *byte ^= key;
        }
    }

    /// Appends the unmasked payload to `out`.
    pub fn append(self, out: &mut Vec<u8>, payload: &[u8]) {
        let at = out.len();
        out.extend_from_slice(payload);
        if self != MaskingKey::NONE {
            self.apply(&mut out[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6455 §5.3, to the letter: octet i is XORed with key octet i modulo 4.
    fn twin(payload: &mut [u8], key: [u8; 4]) {
        for (i, byte) in payload.iter_mut().enumerate() {
            *byte ^= key[i % 4];
        }
    }

    #[test]
    fn rfc6455_5_3_fast_masking_matches_octet_by_octet() {
        let bytes: Vec<u8> = (0..100_u8).map(|n| n.wrapping_mul(37)).collect();
        for length in 0..bytes.len() {
            let key = [1, 0x80, 0xff, length as u8];
            let (mut fast, mut slow) = (bytes[..length].to_vec(), bytes[..length].to_vec());
            MaskingKey::new(key).apply(&mut fast);
            twin(&mut slow, key);
            assert_eq!(fast, slow);
            for cut in 0..length {
                let mut parts = Vec::new();
                MaskingKey::new(key).append(&mut parts, &bytes[..cut]);
                MaskingKey::new(key).after(cut).append(&mut parts, &bytes[cut..length]);
                assert_eq!(parts, slow);
            }
        }
    }
}
