//! Bytes that may contain a secret, such as a head with a credential: they are overwritten after
//! use.
//!
//! Invariant: the owner of the bytes wipes them before it frees them. Without authentication
//! nothing is wiped.

use std::{hint::black_box, ops::Deref};

/// Overwrites bytes that may hold a secret.
#[inline(never)]
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // The compiler may omit a write that is never read, but `black_box` counts as a read.
    black_box(bytes);
}

/// Bytes that may contain a secret; if so, they are wiped when dropped.
#[derive(Debug)]
pub struct SecretBytes {
    bytes: Vec<u8>,
    is_secret: bool,
}

impl SecretBytes {
    /// Wraps bytes; `is_secret`: they may contain a secret.
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
