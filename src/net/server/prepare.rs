//! Prepares a server: checks, binds and builds it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::{Arc, Mutex},
};

use super::{LISTEN_DEFAULT, Server, start, workers_default};
use crate::{
    auth::CertificateCallers,
    limits::Limits,
    net::{
        admin,
        bind::{bind, resolve, take_over},
        descriptors,
        error::ServerError,
        pages::Pages,
        report,
        running::Running,
        server_state::ServerState,
        tls::{Current as LoadedTls, Tls},
        unix_socket::{UnixSocket, is_path},
    },
    service::pages::PageSource,
};

/// A server that is not bound yet.
struct Checked {
    /// The addresses to listen on.
    listen: Vec<SocketAddr>,
    /// The loaded certificates.
    tls: Option<LoadedTls>,
    limits: Limits,
}

impl Server {
    /// The addresses to listen on. An address that other machines can reach, also that of a bound
    /// socket, needs authentication or permission for anonymous clients.
    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>, ServerError> {
        let default = [LISTEN_DEFAULT.to_owned()];
        let is_explicit = !self.listen.is_empty() || !self.listeners.is_empty();
        let texts = if is_explicit { &self.listen } else { &default[..] };
        let authenticates_callers = self.setup.authenticator.is_some() || self.verifies_clients();
        let is_deliberate = self.anonymous || authenticates_callers;
        let check = |addr: SocketAddr, text: &str| match is_deliberate || addr.ip().is_loopback() {
            true => Ok(addr),
            false => Err(ServerError::Public(text.to_owned())),
        };
        for socket in &self.listeners {
            let addr = socket.local_addr().map_err(ServerError::System)?;
            check(addr, &addr.to_string())?;
        }
        let texts = texts.iter().filter(|text| !is_path(text));
        texts.map(|text| check(resolve(text)?, text)).collect()
    }

    /// Whether every client must send a certificate.
    pub(super) fn verifies_clients(&self) -> bool {
        self.tls.as_ref().is_some_and(Tls::verifies_clients)
    }

    /// Makes client certificates authenticate clients: in addition to other credentials, or alone.
    pub(super) fn authenticate_by_certificate(&mut self) {
        if self.setup.authenticator.is_some() {
            self.tls = self.tls.take().map(Tls::with_optional_certificates);
        } else if self.verifies_clients() && !self.anonymous {
            self.setup.authenticator = Some(Arc::new(CertificateCallers::default()));
        }
    }

    /// Turns push notifications off if other machines can reach the server, callers are not
    /// authenticated and `PushSettings::anonymous` is unset.
    #[cfg(feature = "push")]
    fn bound_push(&mut self, listen: &[SocketAddr]) {
        let sockets = self.listeners.iter().filter_map(|socket| socket.local_addr().ok());
        let is_public = listen.iter().copied().chain(sockets).any(|at| !at.ip().is_loopback());
        let authenticates_callers = self.setup.authenticator.is_some() || self.verifies_clients();
        if is_public
            && !authenticates_callers
            && self.setup.push.as_ref().is_some_and(|p| !p.anonymous)
        {
            self.setup.push = None;
            // The signing keys are not used, so they are not published.
            self.setup.webhook_signer = None;
        }
    }

    /// Returns the errors of [`Server::start`] that can be found without sockets and threads.
    ///
    /// # Errors
    /// [`ServerError::Build`], [`ServerError::Address`], [`ServerError::Public`],
    /// [`ServerError::Memory`], [`ServerError::UnixSocket`], [`ServerError::Tls`].
    pub fn check(&self) -> Result<(), ServerError> {
        let workers = self.workers.unwrap_or_else(workers_default);
        self.checked(workers).map(drop)
    }

    /// The common part of a start and a check: everything that can be refused before sockets are
    /// bound.
    fn checked(&self, workers: usize) -> Result<Checked, ServerError> {
        self.setup.check()?;
        let listen = self.addresses()?;
        let mut paths = self.listen.iter().filter(|text| is_path(text));
        paths.try_for_each(|text| UnixSocket::check(text))?;
        self.admin.as_deref().map_or(Ok(()), admin::check)?;
        let tls = self.tls.clone().map(Tls::load).transpose()?;
        let limits = match self.memory {
            Some(bytes) => self.setup.limits.for_memory(bytes, workers, tls.is_some(), &[]),
            None => Ok(self.setup.limits.clone()),
        };
        Ok(Checked { listen, tls, limits: limits.map_err(ServerError::Memory)? })
    }

    /// Checks, binds and builds; returns the sockets of each worker.
    pub(super) fn prepare(mut self) -> Result<(Running, Vec<Vec<TcpListener>>), ServerError> {
        let workers = self.workers.unwrap_or_else(workers_default);
        self.authenticate_by_certificate();
        let Checked { listen, tls, limits } = self.checked(workers)?;
        self.setup.limits = limits;
        #[cfg(feature = "push")]
        self.bound_push(&listen);
        #[cfg(feature = "metrics")]
        let observing = self.observe(workers)?;
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
        let base_url = match addrs.first() {
            Some(addr) => format!("{scheme}://{}", reachable(*addr)),
            // Clients connect to the socket by its path:
            // `curl --unix-socket PATH http://localhost/`.
            None => "http://localhost".to_owned(),
        };
        let mut start = start(workers)?;
        start.base_url.clone_from(&base_url);
        start.secret = self.secret.unwrap_or(start.secret);
        let pages = Arc::new(Pages::new(self.checks, self.admin.is_none()));
        self.setup.pages.get_or_insert_with(|| Arc::clone(&pages) as Arc<dyn PageSource>);
        let admin = self.admin.map(|text| admin::listen(&text, stall_ms, tls.is_some()));
        let admin = admin.transpose()?;
        let (socket, admin) = admin.unzip();
        let paths: Vec<String> = self.listen.into_iter().filter(|text| is_path(text)).collect();
        let unix_sockets = paths.iter().map(|text| UnixSocket::listen(text));
        let unix_sockets = unix_sockets.collect::<Result<Vec<_>, _>>()?;
        self.setup.failures.listener.get_or_insert_with(|| Arc::new(report::agent_failure));
        self.slow_turns.get_or_insert_with(|| Box::new(report::slow_turn));
        // Behind a proxy clients are on other machines.
        let has_proxy = self.setup.public_url.is_some()
            || self.setup.trust_forwarded
            || !self.setup.trusted_proxies.is_empty();
        let shows_errors = !has_proxy && addrs.iter().all(|addr| addr.ip().is_loopback());
        let shows_errors = *self.setup.failures.shows_errors.get_or_insert(shows_errors);
        let engine = self.setup.build(start)?;
        let mut server = ServerState::new(engine, tls, workers, self.slow_turns);
        server.admin = Mutex::new(socket);
        server.unix_sockets = Mutex::new(unix_sockets);
        #[cfg(feature = "metrics")]
        server.observed_by(observing).map_err(ServerError::System)?;
        #[cfg(feature = "push")]
        server
            .start_webhook_worker(self.webhooks)
            .map_err(|error| ServerError::System(std::io::Error::other(error.to_string())))?;
        let server = Arc::new(server);
        pages.belong_to(&server);
        let threads = Vec::new();
        Ok((
            Running { addrs, paths, base_url, workers, server, admin, shows_errors, threads },
            sockets,
        ))
    }
}

/// The address at which this machine can reach a socket that listens on `addr`.
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
    fn reachable_replaces_unspecified_address_by_loopback() {
        for (addr, url) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("10.1.2.3:1", "10.1.2.3:1"),
            ("[fe80::1]:1", "[fe80::1]:1"),
        ] {
            assert_eq!(reachable(addr.parse().unwrap()).to_string(), url);
        }
    }
}
