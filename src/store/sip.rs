//! SipHash-2-4 (Aumasson and Bernstein, 2012): a pseudorandom function with a key of 128 bits.
//!
//! It makes the keys of everything else, and what peers may see but not make. Nothing of it runs
//! for a call that names no page.

/// The 64 bits of `bytes` under `key`, whose lower half is the first word.
pub(super) fn siphash(key: u128, bytes: &[u8]) -> u64 {
    let (first, second) = (key as u64, (key >> 64) as u64);
    let mut state = [
        first ^ 0x736f_6d65_7073_6575,
        second ^ 0x646f_7261_6e64_6f6d,
        first ^ 0x6c79_6765_6e65_7261,
        second ^ 0x7465_6462_7974_6573,
    ];
    let (words, tail) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    last[7] = bytes.len() as u8;
    for word in words.iter().chain([&last]) {
        let word = u64::from_le_bytes(*word);
        state[3] ^= word;
        (0..2).for_each(|_| round(&mut state));
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut state));
    state.iter().fold(0, |sum, word| sum ^ word)
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_its_authors() {
        let key = u128::from_le_bytes(std::array::from_fn(|at| at as u8));
        let input: Vec<u8> = (0..63).collect();
        for (length, hash) in [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ] {
            assert_eq!(siphash(key, &input[..length]), hash, "{length}");
        }
    }

    #[test]
    #[allow(deprecated)]
    fn the_standard_library_agrees() {
        use std::hash::{Hasher, SipHasher};
        let input: Vec<u8> = (0..=255).collect();
        for length in 0..=input.len() {
            let mut theirs = SipHasher::new_with_keys(7, u64::MAX - length as u64);
            theirs.write(&input[..length]);
            let key = u128::from(u64::MAX - length as u64) << 64 | 7;
            assert_eq!(siphash(key, &input[..length]), theirs.finish(), "{length}");
        }
    }
}
