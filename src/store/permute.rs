//! A keyed permutation of 64-bit blocks: what peers see of a place tells nothing of it.
//!
//! A balanced Feistel network (Luby and Rackoff, 1988). Its round function is multiply-add-shift
//! with keys of its own in each round, which is strongly universal (Dietzfelbinger, 1996): to
//! a client that sees two blocks, four such rounds are as good as a random permutation, but for a
//! chance of about 2^-30 (Vaudenay's decorrelation, 2003).
//!
//! Peers see more blocks, for which there is an argument and no proof: they see them sealed only,
//! and half of what was sealed with a place are random bits that no client is told or can choose.
//! A client that broke it would learn how many tasks there are; an id would still be 58 bits to
//! guess, or 42 where it names a node.

/// Four for two blocks. That is a mean over all keys: with four, a few keys let some bits change
/// others too seldom, and with a fifth none does that was tried.
const ROUNDS: usize = 5;

/// A permutation; its keys are pairs of a factor and a summand.
pub(super) struct Permutation([(u64, u64); ROUNDS]);

impl Permutation {
    /// The permutation whose keys are the numbers of `key`, which are to be independent.
    pub fn new(mut key: impl FnMut() -> u64) -> Permutation {
        Permutation([(); ROUNDS].map(|()| (key(), key())))
    }

    /// The block that stands for two halves.
    #[inline]
    pub fn seal(&self, (mut left, mut right): (u32, u32)) -> (u32, u32) {
        for key in &self.0 {
            (left, right) = (right, left ^ mix(*key, right));
        }
        (left, right)
    }

    /// The halves that a block stands for.
    #[inline]
    pub fn open(&self, (mut left, mut right): (u32, u32)) -> (u32, u32) {
        for key in self.0.iter().rev() {
            (left, right) = (right ^ mix(*key, left), left);
        }
        (left, right)
    }
}

#[inline]
fn mix((factor, summand): (u64, u64), half: u32) -> u32 {
    (factor.wrapping_mul(u64::from(half)).wrapping_add(summand) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use siphasher::sip::SipHasher24;

    use super::*;

    /// Numbers that are the same in each run.
    fn numbers(seed: u128) -> impl FnMut() -> u64 {
        let mut count = 0u64;
        move || {
            count += 1;
            SipHasher24::new_with_keys(seed as u64, (seed >> 64) as u64).hash(&count.to_le_bytes())
        }
    }

    fn block(number: u64) -> (u32, u32) {
        (number as u32, (number >> 32) as u32)
    }

    /// As the books write it: round by round, without a thought of registers.
    fn slow(permutation: &Permutation, (mut left, mut right): (u32, u32)) -> (u32, u32) {
        for (factor, summand) in permutation.0 {
            let product = u128::from(factor) * u128::from(right) + u128::from(summand);
            let function = (product % (1 << 64)) / (1 << 32);
            let next = left ^ u32::try_from(function).unwrap();
            left = right;
            right = next;
        }
        (left, right)
    }

    #[test]
    fn it_is_a_feistel_network_and_each_block_has_one_other() {
        for seed in 0..20 {
            let mut next = numbers(seed);
            let permutation = Permutation::new(&mut next);
            for input in (0..500).map(|_| block(next())).chain([(0, 0), (u32::MAX, u32::MAX)]) {
                let sealed = permutation.seal(input);
                assert_eq!(sealed, slow(&permutation, input));
                assert_eq!(permutation.open(sealed), input);
                // Whatever a peer makes up stands for something, too.
                assert_eq!(permutation.seal(permutation.open(input)), input);
            }
        }
    }

    #[test]
    fn each_bit_changes_half_of_all_bits() {
        const SAMPLES: u32 = 4_000;
        for (seed, bit) in (0..4).flat_map(|seed| (0..64).map(move |bit| (seed, bit))) {
            let mut next = numbers(seed);
            let permutation = Permutation::new(&mut next);
            let mut flips = [0u32; 64];
            for _ in 0..SAMPLES {
                let number = next();
                let (one, other) = (block(number), block(number ^ 1 << bit));
                let (one, other) = (permutation.seal(one), permutation.seal(other));
                let changed = u64::from(one.0 ^ other.0) | u64::from(one.1 ^ other.1) << 32;
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
