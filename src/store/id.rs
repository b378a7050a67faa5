//! Identifiers that carry their task's place, and the keyed hash behind every index.
//!
//! An id made here is a UUIDv4 in text: its first 32 bits are the place, permuted by the store's
//! secret so that counts do not leak; its other 90 free bits are random. A lookup decodes the place
//! and compares the whole text, so an id is as unguessable as its random bits.

use std::hash::{DefaultHasher, Hasher};

/// Length of an identifier made by this store.
pub const ID_LEN: usize = 36;

/// Bits of a place that name the shard.
pub(super) const SHARD_BITS: u32 = 4;
/// Number of shards; one context lives in one of them.
pub(super) const SHARDS: usize = 1 << SHARD_BITS;

/// The place of a slot.
pub(super) fn place(shard: usize, index: u32) -> u32 {
    index << SHARD_BITS | shard as u32
}

/// Shard and slot of a place.
pub(super) fn split(place: u32) -> (usize, u32) {
    (place as usize % SHARDS, place >> SHARD_BITS)
}

/// What the store's secret is used for.
pub(super) struct Keys {
    mask: u32,
    odd: u32,
    inverse: u32,
    seed: DefaultHasher,
}

impl Keys {
    pub fn new(secret: u128) -> Keys {
        let odd = (secret >> 32) as u32 | 1;
        // Newton's iteration doubles the valid bits of an inverse modulo 2^32: 3, 6, 12, 24, 48.
        let mut inverse = odd;
        for _ in 0..4 {
            inverse = inverse.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(inverse)));
        }
        let mut seed = DefaultHasher::new();
        seed.write_u128(secret);
        Keys { mask: secret as u32, odd, inverse, seed }
    }

    /// A hash that peers cannot predict; `domain` separates uses.
    pub fn hash(&self, domain: u32, bytes: &[u8]) -> u64 {
        let mut hasher = self.seed.clone();
        hasher.write_u32(domain);
        hasher.write(bytes);
        hasher.finish()
    }

    /// The id of a new task at `place`.
    pub fn id(&self, place: u32, bits: u128) -> [u8; ID_LEN] {
        let mixed = (place ^ self.mask).wrapping_mul(self.odd);
        let mixed = mixed ^ mixed >> 16;
        uuid(u128::from(mixed) << 96 | bits & (u128::MAX >> 32))
    }

    /// The place that an id of ours would name; `None` when it is none of ours.
    pub fn place(&self, id: &[u8]) -> Option<u32> {
        if id.len() != ID_LEN {
            return None;
        }
        let mixed = unhex(id.first_chunk::<8>()?)? as u32;
        let mixed = mixed ^ mixed >> 16;
        Some(mixed.wrapping_mul(self.inverse) ^ self.mask)
    }
}

/// Text of a UUIDv4 (RFC 9562 §5.4) with the free bits of `bits`.
pub fn uuid(bits: u128) -> [u8; ID_LEN] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut bytes = bits.to_be_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = [b'-'; ID_LEN];
    let mut at = 0;
    for (index, byte) in bytes.into_iter().enumerate() {
        at += usize::from(matches!(index, 4 | 6 | 8 | 10));
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
    text
}

/// Reads lower-case hexadecimal digits.
pub(super) fn unhex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, digit| {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(nibble))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid_of_version_4() {
        let text = uuid(u128::MAX);
        assert_eq!(&text, b"ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(&uuid(0), b"00000000-0000-4000-8000-000000000000");
        assert_eq!(
            &uuid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
            b"01234567-89ab-4def-8123-456789abcdef"
        );
    }

    #[test]
    fn a_place_comes_back_from_its_id() {
        for secret in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978] {
            let keys = Keys::new(secret);
            for place in [0, 1, 15, 16, 0x8000_0000, u32::MAX, 12_345_678] {
                assert_eq!(keys.place(&keys.id(place, secret ^ 77)), Some(place));
            }
        }
    }

    #[test]
    fn what_is_no_id_of_ours_names_no_place() {
        let keys = Keys::new(9);
        assert_eq!(keys.place(b""), None);
        assert_eq!(keys.place(b"my-task"), None);
        assert_eq!(keys.place(b"0123456G-89ab-4def-8123-456789abcdef"), None);
        assert_eq!(keys.place(b"0123456A-89ab-4def-8123-456789abcdef"), None);
    }
}
