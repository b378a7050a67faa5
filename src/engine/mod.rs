//! The sans-IO server connection: bytes in, bytes out, and when to come back.
//!
//! An [`Engine`] is what all connections of a server share, a [`Worker`] what the connections of
//! one thread share, a [`Conn`] what is left. Sockets, clocks and threads belong to the driver.

mod conn;
mod request;
mod setup;

pub use crate::service::Start;
pub use conn::{Conn, Cx, Next, Progress};
pub use setup::{BuildError, Engine, Mount, Setup};

use crate::{binding::Scratch, limits::Limits, service::Entropy};

/// What the connections of one thread share: buffers that no request outlives.
pub struct Worker {
    pub(crate) scratch: Scratch,
}

impl Worker {
    /// Scratch for worker number `index`.
    pub fn new(index: usize, _limits: &Limits, entropy: Box<dyn Entropy + Send>) -> Worker {
        Worker { scratch: Scratch::new(index, entropy) }
    }
}
