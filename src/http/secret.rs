//! Bytes that may hold a secret, such as a head with a credential: they are overwritten after use.
//!
//! Invariant: bytes are wiped while they are still owned. Without authentication nothing is wiped.

use std::{hint::black_box, ops::Deref};

/// Overwrites bytes that may hold a secret.
#[inline(never)]
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // The compiler may omit a write that is never read, but not this one.
    black_box(bytes);
}

/// Bytes that are wiped when they are dropped, if they may hold a secret.
#[derive(Debug)]
pub struct SecretBytes {
    bytes: Vec<u8>,
    is_secret: bool,
}

impl SecretBytes {
    /// Takes bytes; `is_secret`: they may hold a secret.
    pub fn new(bytes: Vec<u8>, is_secret: bool) -> SecretBytes {
        SecretBytes { bytes, is_secret }
    }
}

impl Deref for SecretBytes {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        if self.is_secret {
            wipe(&mut self.bytes);
        }
    }
}
