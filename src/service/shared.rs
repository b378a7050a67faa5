//! What all calls of a server use.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicUsize},
};

use super::{Caller, Now, RunningShare};

/// What all calls of a server use.
#[derive(Default)]
pub struct SharedByCalls {
    /// Bytes of buffers that all connections hold: the more there are, the smaller is a page.
    pub held_bytes: Arc<AtomicUsize>,
    /// Says what callers may take; `None`: each as much as there is.
    pub shares: Option<Box<dyn CallerShares>>,
    /// Whether proxies are trusted: the address of a caller may be one that a proxy forwarded.
    pub has_proxies: bool,
}

/// Says what each caller may take, for calls that seldom take anything.
pub trait CallerShares: Send + Sync {
    /// What a caller may take beside the tasks that it owns: places on its account; `None`: as many
    /// as there is room for.
    fn running(&self, caller: &Caller<'_>, now: Now) -> Option<RunningShare>;

    /// The address of a caller: that which trusted proxies have forwarded, if there are any.
    fn address(&self, caller: &Caller<'_>) -> Option<IpAddr>;
}
