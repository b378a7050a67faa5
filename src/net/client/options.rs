//! The options of an [`HttpClient`](super::HttpClient), and its errors.

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc};

use crate::{
    client::{ClientLimits, HttpOrigin},
    http::USER_AGENT,
};

use super::{ClientTls, Proxies};

/// Checks the origin and each of its addresses before each connection. Clones share the check. The
/// default allows every address.
#[derive(Clone, Default)]
pub struct ConnectGuard {
    check: Option<Arc<CheckAddress>>,
    is_strict: bool,
}

type CheckAddress = dyn Fn(&HttpOrigin, SocketAddr) -> Result<(), String> + Send + Sync;

impl ConnectGuard {
    /// A guard that calls `check`; its error is the reason for refusing an address. A refused
    /// address is skipped.
    pub fn new(
        check: impl Fn(&HttpOrigin, SocketAddr) -> Result<(), String> + Send + Sync + 'static,
    ) -> ConnectGuard {
        ConnectGuard { check: Some(Arc::new(check)), is_strict: false }
    }

    /// A strict guard: one refused address of a name refuses the name, even if it has other
    /// addresses, because such a name may be meant to reach the refused address.
    #[must_use]
    pub fn strict(self) -> ConnectGuard {
        ConnectGuard { is_strict: true, ..self }
    }

    /// Whether one refused address refuses the name.
    pub(super) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Checks one address.
    ///
    /// # Errors
    /// The reason for refusing the address.
    pub(in crate::net) fn check(
        &self,
        origin: &HttpOrigin,
        address: SocketAddr,
    ) -> Result<(), String> {
        self.check.as_ref().map_or(Ok(()), |check| check(origin, address))
    }
}

impl fmt::Debug for ConnectGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (&self.check, self.is_strict) {
            (None, _) => "ConnectGuard(none)",
            (Some(_), false) => "ConnectGuard",
            (Some(_), true) => "ConnectGuard(strict)",
        })
    }
}

/// The options of an [`HttpClient`](super::HttpClient). The default connects to every address,
/// trusts the authorities of the system, and uses no proxy.
#[derive(Clone, Debug)]
pub struct HttpClientOptions {
    /// The limits on resources of the client that servers can use.
    pub limits: ClientLimits,
    /// The trusted authorities, and the client's certificate.
    pub tls: ClientTls,
    /// The proxies.
    pub proxies: Proxies,
    /// The guard of new connections. It skips a refused address, or refuses the whole name
    /// ([`ConnectGuard::strict`]); if no address remains, the request fails with
    /// [`TransportError::Refused`](crate::client::TransportError::Refused). For an origin behind a
    /// proxy, the guard checks the proxy's origin and address, since the proxy resolves the origin.
    /// An idle connection is reused for its origin without another check.
    pub guard: ConnectGuard,
    /// The value of `User-Agent` in every request without this field, also in CONNECT to a proxy:
    /// visible ASCII and spaces. The default is `peregrine/VERSION`.
    pub user_agent: String,
}

impl Default for HttpClientOptions {
    fn default() -> HttpClientOptions {
        HttpClientOptions {
            limits: ClientLimits::default(),
            tls: ClientTls::default(),
            proxies: Proxies::none(),
            guard: ConnectGuard::default(),
            user_agent: USER_AGENT.1.to_owned(),
        }
    }
}

impl HttpClientOptions {
    /// Reads the proxies from the environment now; see [`Proxies::from_environment`].
    ///
    /// # Errors
    /// [`HttpClientError::Proxy`].
    pub fn proxies_from_environment(mut self) -> Result<HttpClientOptions, HttpClientError> {
        self.proxies = Proxies::from_environment()?;
        Ok(self)
    }
}

/// Why a client cannot be created. `Debug` is the same as `Display`, so that `main` can return it.
#[derive(Clone, PartialEq, Eq)]
pub enum HttpClientError {
    /// A file of certificates or keys cannot be used.
    File {
        /// The file.
        file: PathBuf,
        /// The reason, in one line.
        reason: String,
    },
    /// A proxy's URL cannot be used.
    Proxy {
        /// The name of the environment variable.
        variable: String,
        /// The reason, in one line, without a password of the URL.
        reason: String,
    },
    /// `user_agent` is empty, or has a byte that is neither visible ASCII nor a space.
    UserAgent,
    /// The system provides no random bits, or TLS cannot be set up.
    System(String),
}

impl fmt::Display for HttpClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpClientError::File { file, reason } => {
                write!(f, "cannot use {}: {reason}", file.display())
            }
            HttpClientError::Proxy { variable, reason } => {
                write!(f, "cannot use the proxy of {variable}: {reason}")
            }
            HttpClientError::UserAgent => {
                f.write_str("user_agent must be visible ASCII and spaces, and not empty")
            }
            HttpClientError::System(reason) => write!(f, "cannot create a client: {reason}"),
        }
    }
}

impl fmt::Debug for HttpClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for HttpClientError {}
