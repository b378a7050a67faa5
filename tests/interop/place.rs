//! The address of a server, and its transport: TCP, or TLS over TCP.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
};

use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

use crate::support::binary::Tcp;

/// A connection that is open.
pub trait Socket: Read + Write + Send {}

impl<S: Read + Write + Send> Socket for S {}

/// An address, and the certificate to trust there.
#[derive(Clone)]
pub struct Endpoint {
    pub addr: SocketAddr,
    /// `None`: without TLS.
    pub trust: Option<Arc<ClientConfig>>,
    /// The trusted certificate, as a file.
    pub authority: Option<PathBuf>,
}

impl Endpoint {
    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.trust.is_some() { "https" } else { "http" }
    }

    /// The TLS configuration for one protocol over TLS.
    pub fn trust_for(&self, protocol: &str) -> Option<Arc<ClientConfig>> {
        let mut config = ClientConfig::clone(self.trust.as_deref()?);
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Some(Arc::new(config))
    }

    /// The name in the server's certificate.
    pub fn name() -> ServerName<'static> {
        ServerName::try_from("localhost").expect("a name")
    }

    /// Opens a connection for HTTP/1.1.
    pub fn dial(&self) -> Box<dyn Socket> {
        let tcp = Tcp::to(self.addr).stream;
        let Some(config) = self.trust_for("http/1.1") else { return Box::new(tcp) };
        let client = ClientConnection::new(config, Endpoint::name()).expect("a client");
        Box::new(StreamOwned::new(client, tcp))
    }
}
