//! Identifiers that carry their task's place, and the keyed hash behind every index.
//!
//! An id made here is a UUIDv4 in text: its first 32 bits are the place, permuted by the store's
//! secret so that counts do not show; its other 90 free bits are random. A lookup decodes the place
//! and compares the whole text, so an id is as unguessable as its random bits. A context's id made
//! here names the place of the context's first task in the same way, under another permutation.

use std::hash::{DefaultHasher, Hasher};

use crate::model::uuid;

/// Domain of [`Keys::code`] for the keys of [`Keys::hash`].
const FOLD: u32 = u32::MAX - 2;

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
    tasks: Permutation,
    contexts: Permutation,
    seed: DefaultHasher,
    fold: [u64; 3],
}

impl Keys {
    pub fn new(secret: u128) -> Keys {
        let mut seed = DefaultHasher::new();
        seed.write_u128(secret);
        let (tasks, contexts) = (secret as u64, (secret >> 64) as u64);
        let (tasks, contexts) = (Permutation::new(tasks), Permutation::new(contexts));
        let mut keys = Keys { tasks, contexts, seed, fold: [0; 3] };
        keys.fold = [0, 1, 2].map(|key| keys.code(FOLD, &[key]));
        keys
    }

    /// A hash for the indexes: peers can neither predict it nor ever see it. `domain` separates
    /// uses.
    ///
    /// Each 16 bytes are masked by the keys, multiplied to 128 bits and folded, as wyhash and
    /// foldhash do.
    #[inline]
    pub fn hash(&self, domain: u32, bytes: &[u8]) -> u64 {
        let [a, b, c] = self.fold;
        // The length tells a padded tail from one that ends with zeros.
        let mut hash = fold(a ^ (u64::from(domain) << 32 | bytes.len() as u64), b);
        let (blocks, tail) = bytes.as_chunks::<16>();
        for block in blocks {
            let block = u128::from_le_bytes(*block);
            hash = fold(block as u64 ^ hash, (block >> 64) as u64 ^ b);
        }
        let mut last = [0; 16];
        match bytes.last_chunk::<16>() {
            Some(end) => last = *end,
            None => last[..tail.len()].copy_from_slice(tail),
        }
        let last = u128::from_le_bytes(last);
        hash = fold(last as u64 ^ hash, (last >> 64) as u64 ^ c);
        fold(hash ^ b, c)
    }

    /// A code that peers may see but not make, nor learn a key from.
    pub fn code(&self, domain: u32, bytes: &[u8]) -> u64 {
        let mut hasher = self.seed.clone();
        hasher.write_u32(domain);
        hasher.write(bytes);
        hasher.finish()
    }

    /// The id of a new task at `place`.
    pub fn id(&self, place: u32, bits: u128) -> [u8; ID_LEN] {
        self.tasks.id(place, bits)
    }

    /// The place that a task's id of ours would name; `None` when it is none of ours.
    pub fn place(&self, id: &[u8]) -> Option<u32> {
        self.tasks.place(id)
    }

    /// The id of a new context whose first task is at `place`.
    pub fn context_id(&self, place: u32, bits: u128) -> [u8; ID_LEN] {
        self.contexts.id(place, bits)
    }

    /// The place that a context's id of ours would name; `None` when it is none of ours.
    pub fn context_place(&self, id: &[u8]) -> Option<u32> {
        self.contexts.place(id)
    }
}

/// A permutation of the places, and ids that begin with one.
struct Permutation {
    mask: u32,
    odd: u32,
    inverse: u32,
}

impl Permutation {
    fn new(secret: u64) -> Permutation {
        let odd = (secret >> 32) as u32 | 1;
        // Newton's iteration doubles the valid bits of an inverse modulo 2^32: 3, 6, 12, 24, 48.
        let mut inverse = odd;
        for _ in 0..4 {
            inverse = inverse.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(inverse)));
        }
        Permutation { mask: secret as u32, odd, inverse }
    }

    fn id(&self, place: u32, bits: u128) -> [u8; ID_LEN] {
        let mixed = (place ^ self.mask).wrapping_mul(self.odd);
        let mixed = mixed ^ mixed >> 16;
        uuid(u128::from(mixed) << 96 | bits & (u128::MAX >> 32))
    }

    #[inline]
    fn place(&self, id: &[u8]) -> Option<u32> {
        if id.len() != ID_LEN {
            return None;
        }
        let mixed = unhex8(id.first_chunk()?)?;
        let mixed = mixed ^ mixed >> 16;
        Some(mixed.wrapping_mul(self.inverse) ^ self.mask)
    }
}

/// Reads eight lower-case hexadecimal digits side by side, one in each byte of a word.
#[inline]
fn unhex8(digits: &[u8; 8]) -> Option<u32> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    let word = u64::from_be_bytes(*digits);
    // No byte below carries into its neighbour: all are below 0x80, or the text is refused.
    let at_least = |bound: u64| (word | HIGH) - bound * ONES;
    let digit = at_least(0x30) & !at_least(0x3a) & HIGH;
    let letter = at_least(0x61) & !at_least(0x67) & HIGH;
    if (digit | letter) & !word != HIGH {
        return None;
    }
    // The low nibble of a letter is 9 less than its value.
    let nibbles = (word & (0x0f * ONES)) + (letter >> 7) * 9;
    let pairs = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    Some((fours | fours >> 16) as u32)
}

/// The halves of a product, one over the other.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
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
    fn an_id_is_a_uuid_of_version_4_with_90_random_bits() {
        let keys = Keys::new(5);
        let (none, all) = (keys.id(3, 0), keys.id(3, u128::MAX));
        assert_eq!(&none[8..], b"-0000-4000-8000-000000000000");
        assert_eq!(&all[8..], b"-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(none[..8], all[..8]);
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
    fn a_hash_depends_on_every_byte_the_length_the_domain_and_the_secret() {
        let keys = Keys::new(3);
        let mut seen = std::collections::HashSet::new();
        for length in 0..70usize {
            let mut bytes = vec![0; length];
            assert!(seen.insert(keys.hash(1, &bytes)));
            assert!(seen.insert(keys.hash(2, &bytes)));
            assert!(seen.insert(Keys::new(4).hash(1, &bytes)));
            for at in 0..length {
                bytes[at] = 1;
                assert!(seen.insert(keys.hash(1, &bytes)));
                bytes[at] = 0;
            }
        }
    }

    #[test]
    fn hashes_spread_over_shards_and_buckets() {
        let keys = Keys::new(11);
        let (mut high, mut low) = ([0; SHARDS], [0; 256]);
        for count in 0..16_384u32 {
            let hash = keys.hash(7, format!("context-{count}").as_bytes());
            high[(hash >> 32) as usize % SHARDS] += 1;
            low[hash as usize % 256] += 1;
        }
        assert!(high.iter().all(|n| (900..1150).contains(n)), "{high:?}");
        assert!(low.iter().all(|n| (30..110).contains(n)), "{low:?}");
    }

    #[test]
    fn eight_digits_at_once_are_eight_digits() {
        for value in [0, 1, 0x0123_4567, 0x89ab_cdef, 0xdead_beef, u32::MAX] {
            let text = format!("{value:08x}");
            let digits = text.as_bytes().first_chunk().expect("eight");
            assert_eq!((unhex8(digits), unhex(digits)), (Some(value), Some(value.into())));
            for (at, byte) in (0..8).flat_map(|at| (0..=255u8).map(move |byte| (at, byte))) {
                let mut digits = *digits;
                digits[at] = byte;
                assert_eq!(unhex8(&digits).map(u64::from), unhex(&digits), "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn a_context_names_the_place_of_its_first_task() {
        let keys = Keys::new(0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978);
        for place in [0, 1, 77, u32::MAX] {
            let id = keys.context_id(place, 5);
            assert_eq!(keys.context_place(&id), Some(place));
            assert_ne!(id, keys.id(place, 5));
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
