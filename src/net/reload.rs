//! Reloading while a server runs: on SIGHUP, and when the configuration has changed.
//!
//! Invariant: reloads run on a separate thread, for which no worker waits: a hanging file system
//! blocks only this thread, and not the end of the process. One reload runs at a time, and signals
//! during a reload cause one more reload afterwards.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use crate::{auth::Quotas, engine::Agents, limits::Limits};

#[cfg(feature = "logs")]
use super::log::{self, LogLevel};
#[cfg(feature = "tls")]
use super::{
    ServerError,
    tls::{Tls, UsableTls},
};
use super::{
    report::{info, warn},
    server_state::{ServerState, Stage},
};

/// How often [`Reload::has_changed`] is called.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The names of the limits that [`Controls::set_limits`] changes; workers, the store and the sum of
/// the memory use the initial values of all other limits.
pub const LIVE_LIMITS: &[&str] = &["drain_ms", "tls_handshake_timeout_ms"];

/// Reads the configuration of a running server again.
pub trait Reload: Send {
    /// Called once a second, on a thread that may block: true requests a reload, like a signal.
    fn has_changed(&mut self) -> bool {
        false
    }

    /// Reads the whole configuration again, and applies all possible changes, or none. Returns
    /// messages for the operator, each one line.
    ///
    /// # Errors
    /// The reason why nothing has changed, in one line, for a warning.
    fn reload(&mut self, server: &Controls) -> Result<Vec<String>, String>;
}

/// The changeable parts of a running server.
#[derive(Clone)]
pub struct Controls(Arc<ServerState>);

impl Controls {
    /// The controls of a running server.
    #[cfg(feature = "embed")]
    pub(super) fn of(server: &Arc<ServerState>) -> Controls {
        Controls(Arc::clone(server))
    }

    /// The agents; `None`: a service answers instead of agents.
    pub fn agents(&self) -> Option<&Agents> {
        self.0.engine.agents()
    }

    /// Reads files of TLS, for [`Controls::set_tls`]. Whether client certificates are optional or
    /// required does not change.
    ///
    /// # Errors
    /// [`ServerError::Tls`].
    #[cfg(feature = "tls")]
    pub fn read_tls(&self, files: &Tls) -> Result<UsableTls, ServerError> {
        let files = files.clone();
        UsableTls::read(match &self.0.tls {
            Some(current) if current.are_certificates_optional() => {
                files.with_optional_certificates()
            }
            Some(_) | None => files,
        })
    }

    /// Accepts new connections with these files, if the server uses TLS; open connections keep
    /// their files.
    #[cfg(feature = "tls")]
    pub fn set_tls(&self, tls: UsableTls) {
        if let Some(current) = &self.0.tls {
            current.replace(tls);
        }
    }

    /// Sets the quotas of callers; slots and bytes in use remain counted.
    pub fn set_quotas(&self, quotas: Quotas) {
        self.0.engine.config.access.accounts.set_quotas(quotas);
    }

    /// Sets the level of the log of [`Server::logs`](super::Server::logs), and logs one call in
    /// `one_of`; 0: none.
    #[cfg(feature = "logs")]
    pub fn set_logs(&self, level: LogLevel, one_of: u32) {
        log::set_level(level);
        self.0.set_access_log(one_of);
    }

    /// Sets the limits in [`LIVE_LIMITS`].
    pub fn set_limits(&self, limits: &Limits) {
        self.0.live.set(limits);
    }
}

/// The limits of [`LIVE_LIMITS`].
pub(super) struct LiveLimits {
    drain_ms: AtomicU64,
    tls_handshake_timeout_ms: AtomicU64,
}

impl LiveLimits {
    /// The initial values.
    pub(super) fn new(limits: &Limits) -> LiveLimits {
        LiveLimits {
            drain_ms: AtomicU64::new(limits.drain_ms),
            tls_handshake_timeout_ms: AtomicU64::new(limits.tls_handshake_timeout_ms),
        }
    }

    fn set(&self, limits: &Limits) {
        self.drain_ms.store(limits.drain_ms, Ordering::Relaxed);
        let timeout_ms = limits.tls_handshake_timeout_ms;
        self.tls_handshake_timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }

    /// See [`Limits`].
    pub(super) fn drain_ms(&self) -> u64 {
        self.drain_ms.load(Ordering::Relaxed)
    }

    /// See [`Limits`].
    #[cfg(feature = "tls")]
    pub(super) fn tls_handshake_timeout_ms(&self) -> u64 {
        self.tls_handshake_timeout_ms.load(Ordering::Relaxed)
    }
}

/// Requests reloads.
pub(super) struct ReloadRequests(SyncSender<()>);

impl ReloadRequests {
    /// Requests a reload, unless a request is already waiting.
    pub(super) fn request(&self) {
        let _ = self.0.try_send(());
    }
}

/// Starts the reload thread. When the server ends, the thread ends after its current reload; it is
/// never joined.
///
/// # Errors
/// The system cannot start a thread.
pub(super) fn start(
    server: Arc<ServerState>,
    reload: Box<dyn Reload>,
) -> io::Result<ReloadRequests> {
    let (sender, receiver) = sync_channel(1);
    let thread = thread::Builder::new().name("peregrine-files".to_owned());
    thread.spawn(move || read_again(&Controls(server), reload, &receiver))?;
    Ok(ReloadRequests(sender))
}

fn read_again(server: &Controls, mut reload: Box<dyn Reload>, receiver: &Receiver<()>) {
    loop {
        let is_requested = match receiver.recv_timeout(LOOK_EVERY) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if server.0.stage() != Stage::Serving {
            return;
        }
        if is_requested || reload.has_changed() {
            match reload.reload(server) {
                Ok(lines) => lines.iter().for_each(|line| info(line)),
                Err(line) => warn(&line),
            }
        }
    }
}
