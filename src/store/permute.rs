//! A keyed permutation of 64-bit blocks: hides locations from peers.
//!
//! A balanced Feistel network (Luby and Rackoff, 1988). Its round function is multiply-add-shift
//! with independent keys in each round, which is strongly universal (Dietzfelbinger, 1996): for a
//! client that sees two blocks, four such rounds are as good as a random permutation, except with a
//! probability of about 2^-30 (Vaudenay's decorrelation, 2003).
//!
//! Peers see more blocks, for which there is an argument but no proof: they see only sealed blocks,
//! and half of the sealed bits are random bits that no client knows or can choose. A client that
//! broke the permutation would learn the number of tasks; it would still have to guess 58 bits of
//! an id, or 42 if the id names a node.

/// Four rounds suffice for two blocks as a mean over all keys, but with a few keys some input bits
/// then change some output bits too seldom. With a fifth round, no tested key has this fault.
const ROUNDS: usize = 5;

/// A permutation; its keys are pairs of a factor and a summand.
pub(super) struct Permutation([RoundKey; ROUNDS]);

#[derive(Clone, Copy)]
struct RoundKey {
    factor: u64,
    summand: u64,
}

/// A block, as its two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub left: u32,
    pub right: u32,
}

impl Permutation {
    /// The permutation with keys from `key`, which must return independent numbers.
    pub fn new(mut key: impl FnMut() -> u64) -> Permutation {
        Permutation([(); ROUNDS].map(|()| RoundKey { factor: key(), summand: key() }))
    }

    /// The sealed block of two halves.
    #[inline]
    pub fn seal(&self, block: Block) -> Block {
        let Block { mut left, mut right } = block;
        for key in &self.0 {
            (left, right) = (right, left ^ mix(*key, right));
        }
        Block { left, right }
    }

    /// The halves of a sealed block.
    #[inline]
    pub fn open(&self, block: Block) -> Block {
        let Block { mut left, mut right } = block;
        for key in self.0.iter().rev() {
            (left, right) = (right ^ mix(*key, left), left);
        }
        Block { left, right }
    }
}

#[inline]
fn mix(key: RoundKey, half: u32) -> u32 {
    let RoundKey { factor, summand } = key;
    (factor.wrapping_mul(u64::from(half)).wrapping_add(summand) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use siphasher::sip::SipHasher24;

    use super::*;

    /// Reproducible numbers.
    fn numbers(seed: u128) -> impl FnMut() -> u64 {
        let mut count = 0u64;
        move || {
            count += 1;
            SipHasher24::new_with_keys(seed as u64, (seed >> 64) as u64).hash(&count.to_le_bytes())
        }
    }

    fn block(number: u64) -> Block {
        Block { left: number as u32, right: (number >> 32) as u32 }
    }

    /// The textbook form: round by round, without optimization.
    fn slow(permutation: &Permutation, block: Block) -> Block {
        let Block { mut left, mut right } = block;
        for RoundKey { factor, summand } in permutation.0 {
            let product = u128::from(factor) * u128::from(right) + u128::from(summand);
            let function = (product % (1 << 64)) / (1 << 32);
            let next = left ^ u32::try_from(function).unwrap();
            left = right;
            right = next;
        }
        Block { left, right }
    }

    #[test]
    fn permutation_matches_the_textbook_form_and_is_invertible() {
        for seed in 0..20 {
            let mut next = numbers(seed);
            let permutation = Permutation::new(&mut next);
            for input in (0..500).map(|_| block(next())).chain([block(0), block(u64::MAX)]) {
                let sealed = permutation.seal(input);
                assert_eq!(sealed, slow(&permutation, input));
                assert_eq!(permutation.open(sealed), input);
                // A forged block can be opened, too.
                assert_eq!(permutation.seal(permutation.open(input)), input);
            }
        }
    }

    #[test]
    fn each_input_bit_flips_half_of_the_output_bits() {
        const SAMPLES: u32 = 4_000;
        for (seed, bit) in (0..4).flat_map(|seed| (0..64).map(move |bit| (seed, bit))) {
            let mut next = numbers(seed);
            let permutation = Permutation::new(&mut next);
            let mut flips = [0u32; 64];
            for _ in 0..SAMPLES {
                let number = next();
                let (one, other) = (block(number), block(number ^ 1 << bit));
                let (one, other) = (permutation.seal(one), permutation.seal(other));
                let changed =
                    u64::from(one.left ^ other.left) | u64::from(one.right ^ other.right) << 32;
                for (at, count) in flips.iter_mut().enumerate() {
                    *count += u32::from(changed >> at & 1 == 1);
                }
            }
            // Six standard deviations of a fair coin are 190.
            let fair = SAMPLES / 2 - 200..SAMPLES / 2 + 200;
            assert!(flips.iter().all(|count| fair.contains(count)), "{seed} {bit}: {flips:?}");
        }
    }
}
