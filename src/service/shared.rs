//! State that all calls of a server share.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicUsize},
};

use super::{Caller, Now, RunningShare};

/// State that all calls of a server share.
#[derive(Default)]
pub struct SharedByCalls {
    /// Bytes of all connections' buffers: the more bytes, the smaller a page of tasks.
    pub held_bytes: Arc<AtomicUsize>,
    /// Looks up the limits of callers; `None`: unlimited.
    pub shares: Option<Box<dyn CallerShares>>,
    /// Whether proxies are trusted: the address of a caller may then come from a header field.
    pub has_proxies: bool,
}

/// Looks up the limits of a caller on demand, since few calls need them.
pub trait CallerShares: Send + Sync {
    /// The limits on the running tasks of a caller, with its account; `None`: unlimited.
    fn running(&self, caller: &Caller<'_>, now: Now) -> Option<RunningShare>;

    /// The client address of a caller: the address that trusted proxies have forwarded, if any.
    fn address(&self, caller: &Caller<'_>) -> Option<IpAddr>;
}
