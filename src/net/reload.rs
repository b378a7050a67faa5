//! What is read again while a server runs: on SIGHUP, and when it has changed.
//!
//! Invariant: it is read on a thread of its own, which no worker waits for: a file system that
//! hangs holds up that thread and nothing else, not even the end of the process. One reading runs
//! at a time, and signals that come meanwhile are one more reading behind it.

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
    report::{say, warn},
    server_state::{ServerState, Stage},
};

/// How often [`Reload::has_changed`] is asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The names of the limits that [`Controls::set_limits`] changes; of the others each worker, the
/// store or the sum of the memory has what they were at the start.
pub const LIVE_LIMITS: &[&str] = &["drain_ms", "tls_handshake_timeout_ms"];

/// Reads what a server was made of again while it runs.
pub trait Reload: Send {
    /// Asked once a second, on a thread that may block: true to be called as on a signal.
    fn has_changed(&mut self) -> bool {
        false
    }

    /// Reads everything again, and changes all of it that can be changed, or nothing. What it says
    /// is said to the operator, each in one line.
    ///
    /// # Errors
    /// Why nothing has changed, in one line: a warning.
    fn reload(&mut self, server: &Controls) -> Result<Vec<String>, String>;
}

/// What can be changed of a server while it runs.
#[derive(Clone)]
pub struct Controls(Arc<ServerState>);

impl Controls {
    /// Those of a server that runs.
    #[cfg(feature = "embed")]
    pub(super) fn of(server: &Arc<ServerState>) -> Controls {
        Controls(Arc::clone(server))
    }

    /// The agents; `None` where a service answers in place of agents.
    pub fn agents(&self) -> Option<&Agents> {
        self.0.engine.agents()
    }

    /// Reads files of TLS, for [`Controls::set_tls`]. Whether clients may show no certificate stays
    /// as it is.
    ///
    /// # Errors
    /// [`ServerError::Tls`].
    #[cfg(feature = "tls")]
    pub fn read_tls(&self, files: &Tls) -> Result<UsableTls, ServerError> {
        let files = files.clone();
        UsableTls::read(match &self.0.tls {
            Some(current) if current.are_clients_free() => files.of_known_callers(),
            Some(_) | None => files,
        })
    }

    /// Accepts connections with these files from now on, where the server speaks TLS anyway; those
    /// that are open keep what they have.
    #[cfg(feature = "tls")]
    pub fn set_tls(&self, tls: UsableTls) {
        if let Some(current) = &self.0.tls {
            current.replace(tls);
        }
    }

    /// Sets what callers may take; what was taken stays taken.
    pub fn set_quotas(&self, quotas: Quotas) {
        self.0.engine.config.access.accounts.set_quotas(quotas);
    }

    /// Has the log of [`Server::logs`](super::Server::logs) write these lines from now on, and one
    /// for one call of so many; 0: none.
    #[cfg(feature = "logs")]
    pub fn set_logs(&self, level: LogLevel, one_of: u32) {
        log::set_level(level);
        self.0.set_access_log(one_of);
    }

    /// Sets those of the limits that are in [`LIVE_LIMITS`].
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
    /// As they are at the start.
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

/// The source of a request to read.
pub(super) struct ReloadRequests(SyncSender<()>);

impl ReloadRequests {
    /// Asks for one, which may be the one that waits already.
    pub(super) fn ask(&self) {
        let _ = self.0.try_send(());
    }
}

/// Starts the thread that reads again; it is never joined, and ends with what it reads when the
/// server does.
///
/// # Errors
/// When the system has no thread.
pub(super) fn start(
    server: Arc<ServerState>,
    reload: Box<dyn Reload>,
) -> io::Result<ReloadRequests> {
    let (ask, asked) = sync_channel(1);
    let thread = thread::Builder::new().name("peregrine-files".to_owned());
    thread.spawn(move || read_again(&Controls(server), reload, &asked))?;
    Ok(ReloadRequests(ask))
}

fn read_again(server: &Controls, mut reload: Box<dyn Reload>, asked: &Receiver<()>) {
    loop {
        let is_asked = match asked.recv_timeout(LOOK_EVERY) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if server.0.stage() != Stage::Serving {
            return;
        }
        if is_asked || reload.has_changed() {
            match reload.reload(server) {
                Ok(lines) => lines.iter().for_each(|line| say(line)),
                Err(line) => warn(&line),
            }
        }
    }
}
