//! The program's callbacks for an engine without sockets: a wake-up, and optionally a clock and
//! random bits.

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Wake, Waker},
};

use crate::{
    embed::{HostError, HostTime, OwnTime},
    service::Now,
};

use super::border;

/// The latest time that a program may return, so that additions do not overflow.
const MS_MAX: u64 = u64::MAX >> 8;

/// The callbacks of a program that drives an engine. They are called from any thread, also from
/// several at once, and must neither block nor call a function of the library
/// (`PEREGRINE_STATUS_BUSY`), because locks of the library may be held.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PeregrineHost {
    /// Passed to every callback.
    pub user: *mut c_void,
    /// The object with this handle can continue: poll the exchange, advance the connection, poll
    /// the call, or tick the engine. The handle may be released already. Must not be null.
    pub wake: Option<unsafe extern "C" fn(user: *mut c_void, handle: u64)>,
    /// Returns the time in ms: `mono_ms` of a clock that never goes back, and `unix_ms` since the
    /// Unix epoch. Null: the clocks of the system.
    pub now: Option<unsafe extern "C" fn(user: *mut c_void, mono_ms: *mut u64, unix_ms: *mut u64)>,
    /// Fills 16 bytes with random bits that no peer can guess. Null: the random bits of the system.
    pub random: Option<unsafe extern "C" fn(user: *mut c_void, out: *mut u8)>,
    /// Called once the engine, its exchanges, connections, calls and jobs are released; the last
    /// callback. May be null.
    pub release: Option<unsafe extern "C" fn(user: *mut c_void)>,
}

/// The callbacks, which live until the last waker of the engine is dropped.
pub(super) struct HostCallbacks {
    host: PeregrineHost,
    own: OwnTime,
    /// The latest time that the program has returned: the clock never goes back.
    mono_ms: AtomicU64,
}

// SAFETY: the program has promised that its callbacks may be called from any thread, with its
// `user` pointer.
unsafe impl Send for HostCallbacks {}
// SAFETY: as above.
unsafe impl Sync for HostCallbacks {}

impl HostCallbacks {
    /// Takes ownership of the callbacks.
    pub fn new(host: PeregrineHost) -> Result<Arc<HostCallbacks>, HostError> {
        let own = OwnTime::new()?;
        Ok(Arc::new(HostCallbacks { host, own, mono_ms: AtomicU64::new(0) }))
    }

    /// A waker that wakes the program with this handle.
    pub fn waker(self: &Arc<Self>, handle: u64) -> Waker {
        Waker::from(Arc::new(HandleWaker { host: Arc::clone(self), handle }))
    }
}

impl Drop for HostCallbacks {
    fn drop(&mut self) {
        if let Some(release) = self.host.release {
            // SAFETY: a callback of the program, called as its comment promises.
            border::in_bare_callback(|| unsafe { release(self.host.user) });
        }
    }
}

impl HostTime for HostCallbacks {
    fn now(&self) -> Now {
        let Some(now) = self.host.now else { return self.own.now() };
        let (mut mono_ms, mut unix_ms) = (0, 0);
        // SAFETY: a callback of the program, called as its comment promises.
        border::in_bare_callback(|| unsafe { now(self.host.user, &mut mono_ms, &mut unix_ms) });
        let mono_ms = mono_ms.min(MS_MAX);
        let before_ms = self.mono_ms.fetch_max(mono_ms, Ordering::Relaxed);
        Now { mono_ms: mono_ms.max(before_ms), unix_ms: unix_ms.min(MS_MAX) }
    }

    fn bits(&self) -> u128 {
        let Some(random) = self.host.random else { return self.own.bits() };
        let mut bytes = [0; 16];
        // SAFETY: a callback of the program, called as its comment promises.
        border::in_bare_callback(|| unsafe { random(self.host.user, bytes.as_mut_ptr()) });
        u128::from_ne_bytes(bytes)
    }
}

struct HandleWaker {
    host: Arc<HostCallbacks>,
    handle: u64,
}

impl Wake for HandleWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let HandleWaker { host, handle } = &**self;
        if let Some(wake) = host.host.wake {
            // SAFETY: a callback of the program, called as its comment promises.
            border::in_bare_callback(|| unsafe { wake(host.host.user, *handle) });
        }
    }
}
