//! Unguessable bits: a ChaCha20 generator per worker, seeded once by the system.

use chacha20::{
    ChaCha20Rng,
    rand_core::{Rng, SeedableRng},
};

use crate::{engine::Worker, limits::Limits, net::ServerError, service::Entropy};

/// Creates a worker whose ids are random bits of this machine, for a program that drives an
/// [`Engine`](crate::engine::Engine) in its own runtime.
///
/// # Errors
/// [`ServerError::System`]: the system provides no random bits.
pub fn worker(index: usize, limits: &Limits) -> Result<Worker, ServerError> {
    let entropy = Chacha::new().map_err(ServerError::System)?;
    Ok(Worker::new(index, limits, Box::new(entropy)))
}

/// Random bits of this machine.
///
/// # Errors
/// The system provides no random bits.
#[cfg(feature = "embed")]
pub(crate) fn entropy() -> std::io::Result<Box<dyn Entropy + Send>> {
    Ok(Box::new(Chacha::new()?))
}

/// The generator of one worker.
pub(super) struct Chacha(ChaCha20Rng);

impl Chacha {
    /// Creates a generator with a fresh seed.
    ///
    /// # Errors
    /// The system provides no random bits.
    pub(super) fn new() -> std::io::Result<Chacha> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Chacha(ChaCha20Rng::from_seed(seed)))
    }
}

impl Entropy for Chacha {
    fn bits(&mut self) -> u128 {
        u128::from(self.0.next_u64()) << 64 | u128::from(self.0.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_generators_produce_distinct_values() {
        let (mut one, mut other) = (Chacha::new().unwrap(), Chacha::new().unwrap());
        let ones: std::collections::HashSet<u128> = (0..1000).map(|_| one.bits()).collect();
        assert_eq!(ones.len(), 1000);
        assert!((0..1000).all(|_| !ones.contains(&other.bits())));
    }
}
