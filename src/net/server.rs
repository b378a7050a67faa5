//! A server of agents: what it is made of, and its life from `start` to the end of the drain.
//!
//! It checks and reads files before it binds, binds before it builds, builds before it starts a
//! thread, and starts every worker or none.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::Arc,
};

use crate::{
    agent::{Agent, Profile},
    auth::{Authenticator, CertificateCallers},
    engine::{Setup, Start},
    limits::Limits,
    service::{Entropy, Service, tap::Tap},
};

use super::{
    bind::{bind, resolve, take_over},
    clock::unix_ms,
    descriptors,
    entropy::Chacha,
    error::ServerError,
    report,
    running::{Running, WorkerEnd},
    server_state::ServerState,
    slow_turn::{SlowTurn, SlowTurnListener},
    tls::Tls,
    worker,
};

/// Where a server listens that was told nothing else.
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
    setup: Setup,
    listen: Vec<String>,
    listeners: Vec<TcpListener>,
    workers: Option<usize>,
    tls: Option<Tls>,
    anonymous: bool,
    memory: Option<u64>,
    secret: Option<u128>,
    slow_turns: Option<SlowTurnListener>,
}

impl Server {
    /// A server without agents, on [`LISTEN_DEFAULT`], with a worker per core.
    pub fn new() -> Server {
        Server::default()
    }

    /// A server with everything that [`Setup`] can say.
    pub fn with(setup: Setup) -> Server {
        Server { setup, ..Server::default() }
    }

    /// Adds an agent; the first one is the default, which answers at `/`.
    #[must_use]
    pub fn agent(mut self, profile: Profile, agent: impl Agent + 'static) -> Server {
        self.setup.agents.push((profile, Arc::new(agent)));
        self
    }

    /// Sets what answers, in place of agents; see [`Setup::service`].
    #[must_use]
    pub fn service(mut self, service: Arc<dyn Service>) -> Server {
        self.setup.service = Some(service);
        self
    }

    /// Sets the number that ids of tasks tell; see [`Setup::node`].
    #[must_use]
    pub fn node(mut self, node: u16) -> Server {
        self.setup.node = Some(node);
        self
    }

    /// Sets who keeps what happens to tasks; see [`Setup::tap`].
    #[must_use]
    pub fn tap(mut self, tap: Arc<dyn Tap>) -> Server {
        self.setup.tap = Some(tap);
        self
    }

    /// Sets the [`Start::secret`], which is otherwise a fresh one: 128 random bits that nobody else
    /// knows.
    #[must_use]
    pub fn secret(mut self, secret: u128) -> Server {
        self.secret = Some(secret);
        self
    }

    /// Adds an address to listen on: IP address or host name, and port; port 0: any free one.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Server {
        self.listen.push(address.into());
        self
    }

    /// Adds a socket that is bound already: one whose port was chosen before, that somebody else
    /// may bind, or that outlives a process. It may be called for several sockets, and beside
    /// [`Server::listen`].
    ///
    /// Those of one address are dealt out: with as many as workers each accepts from a socket of
    /// its own, as with [`Server::listen`]; then the caller has set `SO_REUSEPORT` on all of them
    /// before they were bound. Of fewer sockets workers share one, by a duplicate of it: a
    /// connection that comes wakes each of those, and one takes it. Of more, workers have several.
    ///
    /// The server makes the sockets nonblocking, lets them listen, and sets what it sets on its
    /// own, so that the kernel queues little for a peer that does not read; `SO_REUSEPORT` and the
    /// address stay as they are. What came before the start waits in the socket's queue. At the end
    /// the sockets are closed: of one that the caller has duplicated, nobody accepts from then on.
    #[must_use]
    pub fn listener(mut self, socket: TcpListener) -> Server {
        self.listeners.push(socket);
        self
    }

    /// Lets anybody call the agents who reaches the port. Without this word,
    /// [`Server::authenticator`] or `Tls::client_ca`, a server listens on addresses of this
    /// machine's loopback alone: nobody else is asked who they are.
    #[must_use]
    pub fn allow_anonymous(mut self) -> Server {
        self.anonymous = true;
        self
    }

    /// Sets who knows callers; see [`Setup::authenticator`].
    #[must_use]
    pub fn authenticator(mut self, authenticator: Arc<dyn Authenticator>) -> Server {
        self.setup.authenticator = Some(authenticator);
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

    /// Divides so many bytes of memory among the limits that may shrink, whatever
    /// [`Server::limits`] said of them; [`Limits::for_memory`] leaves some as they are.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Server {
        self.memory = Some(bytes);
        self
    }

    /// Sets the URL that cards name, for a server behind a proxy.
    #[must_use]
    pub fn public_url(mut self, url: impl Into<String>) -> Server {
        self.setup.public_url = Some(url.into());
        self
    }

    /// Adds a host that is answered to, as [`Setup::allow_hosts`] has it.
    #[must_use]
    pub fn allow_host(mut self, host: impl Into<String>) -> Server {
        self.setup.allow_hosts.push(host.into());
        self
    }

    /// Speaks TLS on every address.
    ///
    /// The files are read when the server starts, again on SIGHUP under [`Server::run`] (what is
    /// wrong then is a line on stderr), and on [`Running::reload_tls`].
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, files: Tls) -> Server {
        self.tls = Some(files);
        self
    }

    /// Sets who is told, once a minute at most, of an agent that has held up a worker for more than
    /// 50 ms: on that worker, which serves nobody meanwhile. What is measured is time, not work: on
    /// a machine that has too much to do, an agent may be named that had to wait itself.
    ///
    /// Without it [`Server::run`] says a line on stderr, and [`Server::start`] nothing.
    #[must_use]
    pub fn on_slow_turn(mut self, tell: impl Fn(&SlowTurn) + Send + Sync + 'static) -> Server {
        self.slow_turns = Some(Box::new(tell));
        self
    }

    /// Starts the workers and returns; none of them needs the calling thread, which may belong to
    /// a runtime.
    ///
    /// A process may have fewer files open than `connections_max` and the server's own need. Then
    /// the soft limit of the system is raised, at most to the hard one, and
    /// [`Running::limits`] says how many connections there is room for.
    ///
    /// # Errors
    /// Every [`ServerError`]; nothing runs then.
    pub fn start(self) -> Result<Running, ServerError> {
        let (mut running, sockets) = self.prepare()?;
        running.spawn(sockets)?;
        Ok(running)
    }

    /// Serves on the calling thread and others until SIGTERM or SIGINT, drains, and returns. A
    /// second signal ends the process at once, with code 1. What a drain waits for, what it has
    /// cut, and once a minute which agent has held up a worker, is a line on stderr.
    ///
    /// # Errors
    /// As [`Server::start`], and [`ServerError::InRuntime`].
    pub fn run(self) -> Result<(), ServerError> {
        self.run_then(|_| ())
    }

    /// As [`Server::run`]; calls `ready` when connections are accepted and signals are heard.
    ///
    /// # Errors
    /// As [`Server::run`].
    pub fn run_then(mut self, ready: impl FnOnce(&Running)) -> Result<(), ServerError> {
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(ServerError::InRuntime);
        }
        self.slow_turns.get_or_insert_with(|| Box::new(report::slow_turn));
        let (mut running, mut sockets) = self.prepare()?;
        // The calling thread is worker 0: a server of one worker is a process of one thread.
        let own = sockets.remove(0);
        running.spawn(sockets)?;
        let server = Arc::clone(&running.server);
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
        report::drained(&server);
        Ok(())
    }

    /// The addresses to listen on. They and those of the sockets that are there already are meant
    /// to be reached by whoever reaches them.
    fn addresses(&self) -> Result<Vec<SocketAddr>, ServerError> {
        let default = [LISTEN_DEFAULT.to_owned()];
        let is_told = !self.listen.is_empty() || !self.listeners.is_empty();
        let texts = if is_told { &self.listen } else { &default[..] };
        let knows_callers = self.setup.authenticator.is_some() || self.knows_clients();
        let is_deliberate = self.anonymous || knows_callers;
        let check = |addr: SocketAddr, text: &str| match is_deliberate || addr.ip().is_loopback() {
            true => Ok(addr),
            false => Err(ServerError::Public(text.to_owned())),
        };
        for socket in &self.listeners {
            let addr = socket.local_addr().map_err(ServerError::System)?;
            check(addr, &addr.to_string())?;
        }
        texts.iter().map(|text| check(resolve(text)?, text)).collect()
    }

    /// Whether every client must show a certificate.
    fn knows_clients(&self) -> bool {
        self.tls.as_ref().is_some_and(Tls::knows_clients)
    }

    /// Who shows a certificate is a caller: one kind among others, or the only one.
    fn ask_clients(&mut self) {
        if self.setup.authenticator.is_some() {
            self.tls = self.tls.take().map(Tls::of_known_callers);
        } else if self.knows_clients() && !self.anonymous {
            self.setup.authenticator = Some(Arc::new(CertificateCallers::default()));
        }
    }

    /// Checks, binds and builds; the sockets are those of each worker.
    fn prepare(mut self) -> Result<(Running, Vec<Vec<TcpListener>>), ServerError> {
        self.setup.check()?;
        let listen = self.addresses()?;
        self.ask_clients();
        let tls = self.tls.map(Tls::load).transpose()?;
        let workers = self.workers.unwrap_or_else(workers_default);
        if let Some(bytes) = self.memory {
            let divided = self.setup.limits.for_memory(bytes, workers, tls.is_some(), &[]);
            self.setup.limits = divided.map_err(ServerError::Memory)?;
        }
        let (mut addrs, mut sockets) = (Vec::new(), Vec::new());
        sockets.resize_with(workers, Vec::new);
        let stall_ms = self.setup.limits.write_stall_ms;
        let bound = listen.into_iter().map(|addr| bind(addr, workers, stall_ms));
        let mut bound = bound.collect::<Result<Vec<_>, _>>()?;
        bound.extend(take_over(self.listeners, workers, stall_ms).map_err(ServerError::System)?);
        for listeners in bound {
            addrs.push(listeners.addr);
            let dealt = listeners.sockets.into_iter().enumerate();
            dealt.for_each(|(index, socket)| sockets[index % workers].push(socket));
        }
        let connections_max = &mut self.setup.limits.connections_max;
        *connections_max = descriptors::connections(*connections_max, workers);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let base_url = format!("{scheme}://{}", reachable(addrs[0]));
        let mut start = start(workers)?;
        start.base_url.clone_from(&base_url);
        start.secret = self.secret.unwrap_or(start.secret);
        let engine = self.setup.build(start)?;
        let server = Arc::new(ServerState::new(engine, tls, workers, self.slow_turns));
        Ok((Running { addrs, base_url, workers, server, threads: Vec::new() }, sockets))
    }
}

/// What a core of one's own starts with for a server of so many workers: a fresh secret, and the
/// clock of this machine. See [`local_core`](crate::engine::local_core).
///
/// # Errors
/// [`ServerError::System`]: there are no random bits.
pub fn start(workers: usize) -> Result<Start, ServerError> {
    let secret = Chacha::new().map_err(ServerError::System)?.bits();
    Ok(Start { secret, unix_ms, workers, base_url: String::new() })
}

/// A worker per core.
pub fn workers_default() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The address under which this machine reaches a socket that listens on `addr`.
fn reachable(mut addr: SocketAddr) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => addr.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => addr.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    addr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_one_that_this_machine_reaches() {
        for (addr, url) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("10.1.2.3:1", "10.1.2.3:1"),
            ("[fe80::1]:1", "[fe80::1]:1"),
        ] {
            assert_eq!(reachable(addr.parse().unwrap()).to_string(), url);
        }
    }

    fn server() -> Server {
        use crate::agent::echo::Echo;
        Server::new().agent(Echo::profile(), Echo).workers(1)
    }

    #[test]
    fn a_public_address_needs_a_word() {
        for text in ["0.0.0.0:0", "[::]:0"] {
            let refused = server().listen("127.0.0.1:0").listen(text).start();
            assert!(matches!(refused.err(), Some(ServerError::Public(named)) if named == text));
        }
        assert!(server().listen("0.0.0.0:0").allow_anonymous().start().is_ok());
    }

    #[test]
    fn a_runtime_is_not_held_up_but_told() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let refused = server().listen("127.0.0.1:0").run();
            assert!(matches!(refused, Err(ServerError::InRuntime)));
            let started = server().listen("127.0.0.1:0").start();
            assert!(started.is_ok());
        });
    }
}
