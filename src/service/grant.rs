//! What somebody was let in by, and that it can be taken back.

use std::sync::atomic::{AtomicBool, Ordering};

/// What stands behind a principal and can be withdrawn: a key in the configuration, the key of an
/// issuer, the authorities that certificates lead to.
#[derive(Debug, Default)]
pub struct Grant {
    withdrawn: AtomicBool,
}

impl Grant {
    /// From now on nobody is admitted by it; who was, no longer is.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
    }

    /// True after [`Grant::withdraw`].
    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }
}
