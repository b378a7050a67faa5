//! Texts that must not be shown by accident.

use std::{fmt, sync::Arc};

/// A password, key or token. `Debug` shows `[secret]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<Arc<str>>) -> Secret {
        Secret(text.into())
    }

    /// The text, for the one position in a request that carries it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
