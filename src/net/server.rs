//! A server of agents: its settings, and its life from `start` to the end of the drain.
//!
//! The start checks the settings and reads files, then binds, then builds the engine, and then
//! starts the threads: every worker or none.

mod prepare;

use std::{net::TcpListener, panic::resume_unwind, sync::Arc, thread};

#[cfg(feature = "push")]
use crate::push::PushSettings;
use crate::{
    agent::{Agent, AgentFailure, Profile},
    auth::Authenticator,
    engine::{Setup, Start},
    limits::Limits,
    service::{Entropy, Service, tap::Tap},
};

#[cfg(feature = "logs")]
use super::log::{LogLevel, LoggedPrincipal};
use super::{
    clock::unix_ms,
    entropy::Chacha,
    error::ServerError,
    pages::ReadyCheck,
    reload::{self, Reload},
    report,
    running::{Running, WorkerEnd},
    slow_turn::{SlowTurn, SlowTurnListener},
    tls::Tls,
    worker,
};

/// The default address of a server.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:3000";

/// A server that has not started.
///
/// ```no_run
/// use peregrine::{
///     agent::{Agent, Profile, Turn},
///     model::{MessageBuf, PartsBuf},
///     net::{Server, ServerError},
/// };
///
/// struct Hello;
///
/// impl Agent for Hello {
///     fn start(&self, turn: Turn<'_>) {
///         turn.reply(MessageBuf::agent(&PartsBuf::new().text("hello")));
///     }
/// }
///
/// fn main() -> Result<(), ServerError> {
///     Server::new().agent(Profile::new("hello", "Says hello."), Hello).run()
/// }
/// ```
#[derive(Default)]
pub struct Server {
    pub(super) setup: Setup,
    listen: Vec<String>,
    listeners: Vec<TcpListener>,
    workers: Option<usize>,
    tls: Option<Tls>,
    anonymous: bool,
    memory: Option<u64>,
    secret: Option<u128>,
    slow_turns: Option<SlowTurnListener>,
    reload: Option<Box<dyn Reload>>,
    pub(super) admin: Option<String>,
    pub(super) checks: Vec<ReadyCheck>,
    #[cfg(feature = "metrics")]
    pub(super) counts_calls: bool,
    #[cfg(feature = "logs")]
    pub(super) log: Option<(LogLevel, u32)>,
    #[cfg(feature = "logs")]
    pub(super) logged_principal: LoggedPrincipal,
    #[cfg(feature = "otlp")]
    pub(super) traces: Option<super::TraceCollector>,
    #[cfg(feature = "push")]
    webhooks: super::HttpClientOptions,
}

impl Server {
    /// A server without agents, on [`LISTEN_DEFAULT`], with a worker per core.
    pub fn new() -> Server {
        Server::default()
    }

    /// A server with all settings of a [`Setup`].
    pub fn with(setup: Setup) -> Server {
        Server { setup, ..Server::default() }
    }

    /// Adds an agent; the first agent is the default, which answers at `/`.
    #[must_use]
    pub fn agent(mut self, profile: Profile, agent: impl Agent + 'static) -> Server {
        self.setup.agents.push((profile, Arc::new(agent)));
        self
    }

    /// Sets the service that answers instead of agents; see [`Setup::service`].
    #[must_use]
    pub fn service(mut self, service: Arc<dyn Service>) -> Server {
        self.setup.service = Some(service);
        self
    }

    /// Sets the number that is part of the ids of tasks; see [`Setup::node`].
    #[must_use]
    pub fn node(mut self, node: u16) -> Server {
        self.setup.node = Some(node);
        self
    }

    /// Sets the journal hook for the events of tasks; see [`Setup::tap`].
    #[must_use]
    pub fn tap(mut self, tap: Arc<dyn Tap>) -> Server {
        self.setup.tap = Some(tap);
        self
    }

    /// Sets the [`Start::secret`]; the default is 128 fresh random bits that no other process
    /// knows.
    #[must_use]
    pub fn secret(mut self, secret: u128) -> Server {
        self.secret = Some(secret);
        self
    }

    /// Adds an address to listen on: an IP address or host name and a port (0: any free port), or
    /// `unix:PATH`: a socket to which only the user of this process may connect, without TLS.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Server {
        self.listen.push(address.into());
        self
    }

    /// Adds a socket that is already bound, for instance to a port that was chosen before, by
    /// another process, or for longer than the process. Call this once for each socket, also
    /// together with [`Server::listen`].
    ///
    /// The sockets of one address are distributed. If there are as many sockets as workers, each
    /// worker accepts from a separate socket, as with [`Server::listen`]; then the caller must have
    /// set `SO_REUSEPORT` on all sockets before binding. If there are fewer sockets, workers share
    /// a socket through duplicates: a new connection wakes all workers of the socket, and one
    /// worker accepts it. If there are more sockets, a worker has several.
    ///
    /// The server makes the sockets nonblocking, lets them listen, and sets the same options as on
    /// its own sockets, so that the kernel queues little for a peer that does not read;
    /// `SO_REUSEPORT` and the address do not change. Earlier connections wait in the socket's
    /// queue. At its end the server closes the sockets: a duplicate of the caller accepts nothing
    /// from then on.
    #[must_use]
    pub fn listener(mut self, socket: TcpListener) -> Server {
        self.listeners.push(socket);
        self
    }

    /// Allows every client that reaches the port to call the agents. Without this,
    /// [`Server::authenticator`] or `Tls::client_ca`, a server listens only on loopback addresses,
    /// because clients are not authenticated.
    #[must_use]
    pub fn allow_anonymous(mut self) -> Server {
        self.anonymous = true;
        self
    }

    /// Sets the authenticator; see [`Setup::authenticator`].
    #[must_use]
    pub fn authenticator(mut self, authenticator: Arc<dyn Authenticator>) -> Server {
        self.setup.authenticator = Some(authenticator);
        self
    }

    /// Serves push notifications: a separate thread delivers them, with the TLS settings and limits
    /// of `options`; proxies are not used. If an address is not a loopback address, and callers are
    /// not authenticated (no authenticator, and no [`Tls`] that requires certificates), push
    /// notifications need [`PushSettings::anonymous`]. Without this setting they are off: cards do
    /// not declare them, and their operations fail with `PushNotificationNotSupported`.
    ///
    /// [`Server::start`] fails with [`ServerError::System`] if `options` cannot be used, or the
    /// thread cannot be started.
    #[cfg(feature = "push")]
    #[must_use]
    pub fn push(mut self, settings: PushSettings, options: super::HttpClientOptions) -> Server {
        self.setup.push = Some(settings);
        self.webhooks = options;
        self
    }

    /// Sets the number of workers, each a thread; at least one.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Server {
        self.workers = Some(workers.max(1));
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Server {
        self.setup.limits = limits;
        self
    }

    /// Divides `bytes` of memory among the limits that [`Limits::for_memory`] sets, instead of
    /// their values in [`Server::limits`]; other limits do not change.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Server {
        self.memory = Some(bytes);
        self
    }

    /// Sets the URL in cards, for a server behind a proxy.
    #[must_use]
    pub fn public_url(mut self, url: impl Into<String>) -> Server {
        self.setup.public_url = Some(url.into());
        self
    }

    /// Adds an allowed host, like [`Setup::allow_hosts`].
    #[must_use]
    pub fn allow_host(mut self, host: impl Into<String>) -> Server {
        self.setup.allow_hosts.push(host.into());
        self
    }

    /// Uses TLS on every address except `unix:PATH`.
    ///
    /// The files are read when the server starts, again on SIGHUP under [`Server::run`] (an error
    /// is then a line on stderr), and on [`Running::reload_tls`].
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, files: Tls) -> Server {
        self.tls = Some(files);
        self
    }

    /// Sets the function that is called, at most once a minute, when an agent has blocked a worker
    /// for more than 50 ms. The function runs on that worker, which serves no call during this
    /// time. The measured time is elapsed time: on an overloaded machine, the reported agent may
    /// itself have had to wait.
    ///
    /// Without this function each report is a line of the log, or on stderr.
    #[must_use]
    pub fn on_slow_turn(mut self, listener: impl Fn(&SlowTurn) + Send + Sync + 'static) -> Server {
        self.slow_turns = Some(Box::new(listener));
        self
    }

    /// Sets whether clients receive the texts of errors and panics of agents. By default they do if
    /// every address is a loopback address; otherwise they receive a reference, which is reported
    /// together with the text: see [`Server::on_agent_failure`].
    #[must_use]
    pub fn show_errors(mut self, shows_errors: bool) -> Server {
        self.setup.failures.shows_errors = Some(shows_errors);
        self
    }

    /// Sets the function that is called for each error or panic that has failed a turn, a cancel or
    /// a lookup of an agent, on the thread of the failure. Without this function each report is a
    /// line of the log, or on stderr.
    #[must_use]
    pub fn on_agent_failure(
        mut self,
        listener: impl Fn(&AgentFailure) + Send + Sync + 'static,
    ) -> Server {
        self.setup.failures.listener = Some(Arc::new(listener));
        self
    }

    /// Sets the function that reads the server's whole configuration again, under [`Server::run`]:
    /// on SIGHUP, which then does nothing else, and when the configuration has changed.
    #[must_use]
    pub fn reload(mut self, reload: impl Reload + 'static) -> Server {
        self.reload = Some(Box::new(reload));
        self
    }

    /// Starts the workers and returns. The workers do not need the calling thread, which may belong
    /// to a runtime.
    ///
    /// If the system allows the process fewer files than `connections_max` and the server itself
    /// need, the soft limit of the system is raised, at most to the hard limit, and
    /// [`Running::limits`] returns the possible number of connections.
    ///
    /// # Errors
    /// Every [`ServerError`]; nothing runs then.
    pub fn start(self) -> Result<Running, ServerError> {
        let (mut running, sockets) = self.prepare()?;
        running.spawn(sockets)?;
        Ok(running)
    }

    /// Serves on the calling thread and others until SIGTERM or SIGINT, drains, and returns. A
    /// second signal ends the process at once, with code 1. A drain reports on stderr the work that
    /// it waits for, and the work that it has cut.
    ///
    /// In an async function this blocks the thread of that function until the end, so the call
    /// belongs at the end of `main`: with other work of a runtime use [`Server::start`].
    ///
    /// # Errors
    /// The errors of [`Server::start`].
    pub fn run(self) -> Result<(), ServerError> {
        self.run_then(|_| ())
    }

    /// Like [`Server::run`]; calls `ready` when connections are accepted and signals are handled.
    ///
    /// # Errors
    /// The errors of [`Server::run`].
    pub fn run_then(self, ready: impl FnOnce(&Running) + Send) -> Result<(), ServerError> {
        if tokio::runtime::Handle::try_current().is_ok() {
            // A worker has its own runtime, which cannot run on a thread of another runtime.
            let joined = thread::scope(|scope| scope.spawn(|| self.run_on_this(ready)).join());
            return joined.unwrap_or_else(|panic| resume_unwind(panic));
        }
        self.run_on_this(ready)
    }

    /// Serves on this thread, which belongs to no runtime, and on others.
    fn run_on_this(mut self, ready: impl FnOnce(&Running)) -> Result<(), ServerError> {
        let reload = self.reload.take();
        let (mut running, mut sockets) = self.prepare()?;
        // The calling thread is worker 0: a server of one worker is a process of one thread.
        let own = sockets.remove(0);
        running.spawn(sockets)?;
        let server = Arc::clone(&running.server);
        if let Some(reload) = reload {
            let requests =
                reload::start(Arc::clone(&server), reload).map_err(ServerError::System)?;
            server.reload_requests.get_or_init(|| requests);
        }
        let life = WorkerEnd(Arc::clone(&server));
        let mut started = Ok(());
        worker::run(worker::WorkerThread::Main, server, own, |outcome| match outcome {
            Ok(()) => ready(&running),
            Err(error) => started = Err(ServerError::System(error)),
        });
        drop(life);
        started?;
        let server = Arc::clone(&running.server);
        running.join();
        #[cfg(feature = "metrics")]
        if let Some(observers) = &server.observers {
            observers.log_unlogged(true);
        }
        report::drained(&server);
        report::flush();
        Ok(())
    }
}

/// Returns the inputs of a core with its own store, for `workers` workers: a fresh secret, and the
/// clock of this machine. See [`local_core`](crate::engine::local_core).
///
/// # Errors
/// [`ServerError::System`]: the system provides no random bits.
pub fn start(workers: usize) -> Result<Start, ServerError> {
    let secret = Chacha::new().map_err(ServerError::System)?.bits();
    Ok(Start { secret, unix_ms: Arc::new(unix_ms), workers, base_url: String::new() })
}

/// The default number of workers: one per core.
pub fn workers_default() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        use crate::agent::echo::Echo;
        Server::new().agent(Echo::profile(), Echo).workers(1)
    }

    #[test]
    fn public_address_requires_allow_anonymous() {
        for text in ["0.0.0.0:0", "[::]:0"] {
            let refused = server().listen("127.0.0.1:0").listen(text).start();
            assert!(matches!(refused.err(), Some(ServerError::Public(named)) if named == text));
        }
        assert!(server().listen("0.0.0.0:0").allow_anonymous().start().is_ok());
    }

    #[test]
    fn server_starts_and_runs_inside_a_tokio_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let started = server().listen("127.0.0.1:0").start();
            assert!(started.is_ok());
            let mut url = String::new();
            let ran = server().listen("127.0.0.1:0").run_then(|running| {
                running.base_url().clone_into(&mut url);
                running.shutdown();
            });
            assert!(ran.is_ok() && url.starts_with("http://127.0.0.1:"), "{url}");
        });
    }
}
