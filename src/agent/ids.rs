//! Ids created by an agent: UUIDs of random bits from its server.

use crate::{model::uuid, service::Entropy};

/// Identifies a turn: random bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TurnKey(u128);

/// Number of low bits that are incremented.
const COUNTED_BITS: u32 = 62;

/// Creates ids without a generator: from random bits that were drawn once and are incremented.
#[derive(Clone, Copy)]
pub(super) struct FreshIds(u128);

impl FreshIds {
    pub fn drawn(entropy: &mut dyn Entropy) -> FreshIds {
        FreshIds(entropy.bits())
    }

    pub fn of_bits(bits: u128) -> FreshIds {
        FreshIds(bits)
    }

    /// Identifies the turn.
    pub fn key(self) -> TurnKey {
        TurnKey(self.0 >> COUNTED_BITS)
    }

    /// The next id.
    pub fn next(&mut self) -> String {
        let bits = self.0;
        // The low 62 bits are all in the id, so no two ids are equal.
        self.0 = bits.wrapping_add(1);
        id_of(bits)
    }
}

/// A random UUID (RFC 9562 §5.4) as ordinary text.
pub(super) fn id_of(bits: u128) -> String {
    uuid(bits).into_iter().map(char::from).collect()
}
