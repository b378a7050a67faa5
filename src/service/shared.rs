//! State that all calls of a server share.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicUsize},
};

use super::{Caller, Now, RunningShare};

/// State that all calls of a server share.
#[derive(Default)]
pub struct SharedByCalls {
    /// Bytes of all connections' buffers: the more there are, the smaller is a page.
    pub held_bytes: Arc<AtomicUsize>,
    /// Looks up the limits of callers; `None`: unlimited.
    pub shares: Option<Box<dyn CallerShares>>,
    /// Whether proxies are trusted: a caller's address may then be a forwarded one.
    pub has_proxies: bool,
}

/// Looks up the limits of each caller, for calls that seldom need them.
pub trait CallerShares: Send + Sync {
    /// The limits of a caller beyond the tasks that it owns: permits on its account; `None`:
    /// unlimited.
    fn running(&self, caller: &Caller<'_>, now: Now) -> Option<RunningShare>;

    /// The client address of a caller: the one that trusted proxies have forwarded, if any.
    fn address(&self, caller: &Caller<'_>) -> Option<IpAddr>;
}
